// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of what is read and written: by name, and by number.

#include "IOEvents.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"

using namespace mlir;
using namespace fa;

//===----------------------------------------------------------------------===//
// Totals by name
//===----------------------------------------------------------------------===//

namespace {
class SymbolicCounter {
public:
  explicit SymbolicCounter(SizeTracer &sizes) : sizes(sizes) {}
  Totals<Polynomial> count(const Scope &scope);
  bool isUpperBound = false;

private:
  Polynomial countEvent(const Event &event);
  bool tilesExactly(const Size &size, const LoopDim &loop);
  SmallVector<const LoopDim *> around;
  SizeTracer &sizes;
};
} // namespace

/// Whether the slices of all steps together are the loop's whole extent: steps
/// as long as the tile, which is clamped at the end or divides the extent.
bool SymbolicCounter::tilesExactly(const Size &size, const LoopDim &loop) {
  if (size.offset != loop.iv)
    return false;
  if (size.constant) {
    std::optional<int64_t> end = getConstantIntValue(loop.upper);
    std::optional<int64_t> extent = loop.extent.getConstant();
    if (!extent)
      extent = sizes.getNumber(loop.extent.str());
    return *size.constant == loop.step &&
           ((end && *end % loop.step == 0) ||
            (extent && *extent % loop.step == 0));
  }
  auto min = size.value ? size.value.getDefiningOp<affine::AffineMinOp>()
                        : affine::AffineMinOp();
  return min && llvm::any_of(min.getMap().getResults(), [&](AffineExpr expr) {
           auto constant = dyn_cast<AffineConstantExpr>(expr);
           return constant && constant.getValue() == loop.step;
         });
}

Polynomial SymbolicCounter::countEvent(const Event &event) {
  Polynomial product = event.bytes;
  SmallVector<const LoopDim *> loops(around);
  for (const Size &size : event.sizes) {
    auto tiled = llvm::find_if(
        loops, [&](const LoopDim *loop) { return tilesExactly(size, *loop); });
    if (tiled != loops.end()) {
      product = product * (*tiled)->extent;
      loops.erase(tiled);
    } else {
      product = product * sizes.getSymbolic(size);
    }
  }
  for (const LoopDim *loop : loops)
    product = product * Polynomial::ceilDiv(loop->extent, loop->step);
  return product;
}

Totals<Polynomial> SymbolicCounter::count(const Scope &scope) {
  size_t depth = around.size();
  for (const LoopDim &dim : scope.dims)
    around.push_back(&dim);
  Totals<Polynomial> totals;
  auto add = [](Totals<Polynomial> &to, const Totals<Polynomial> &x) {
    to.read = to.read + x.read;
    to.write = to.write + x.write;
    to.temp = to.temp + x.temp;
  };
  bool any = !scope.events.empty();
  for (const Event &event : scope.events)
    totals[event.kind] = totals[event.kind] + countEvent(event);
  for (auto &loop : scope.loops)
    add(totals, count(*loop));
  for (auto &choice : scope.choices) {
    Totals<Polynomial> a = count(*choice.then), b = count(*choice.otherwise);
    for (Traffic kind : {Traffic::Read, Traffic::Write, Traffic::Temp}) {
      if (a[kind] == b[kind])
        b[kind] = 0;
      else
        isUpperBound = true;
    }
    add(totals, a);
    add(totals, b);
  }
  for (const LoopDim &dim : scope.dims)
    isUpperBound |= any && !dim.isExact;
  around.resize(depth);
  return totals;
}

//===----------------------------------------------------------------------===//
// Totals by number
//===----------------------------------------------------------------------===//

namespace {
class NumericCounter {
public:
  explicit NumericCounter(SizeTracer &sizes) : sizes(sizes) {}
  /// Nothing where a size is unknown or the loops are too long to walk.
  std::optional<Totals<int64_t>> count(const Scope &scope);
  bool isUpperBound = false;

private:
  std::optional<Totals<int64_t>> countLoop(const Scope &scope, unsigned dim);
  std::optional<Totals<int64_t>> countBody(const Scope &scope);
  /// How what happens in a scope depends on an induction variable.
  enum class Dependence { None, Shrinking, Any };
  Dependence getDependence(const Scope &scope, Value iv);
  Dependence getDependence(Value value, Value iv);
  RangeMap known;
  SizeTracer &sizes;
  int64_t budget = 200'000;
};
} // namespace

NumericCounter::Dependence NumericCounter::getDependence(Value value,
                                                         Value iv) {
  llvm::DenseSet<Value> seen;
  SmallVector<Value> worklist = {value};
  bool depends = false;
  while (!worklist.empty() && !depends) {
    Value x = worklist.pop_back_val();
    depends |= x == iv;
    if (Operation *op = x.getDefiningOp(); op && seen.insert(x).second)
      llvm::append_range(worklist, op->getOperands());
  }
  if (!depends)
    return Dependence::None;
  // min(T, N - iv): constant but for the end.
  auto min = value.getDefiningOp<affine::AffineMinOp>();
  if (!min)
    return Dependence::Any;
  AffineMap map = min.getMap();
  for (auto [i, operand] : llvm::enumerate(min.getOperands())) {
    if (getDependence(operand, iv) == Dependence::None)
      continue;
    if (operand != iv || i >= map.getNumDims())
      return Dependence::Any;
    for (AffineExpr expr : map.getResults()) {
      AffineExpr d = getAffineDimExpr(i, map.getContext());
      AffineExpr next = expr.replace(d, d + 1) - expr;
      next = simplifyAffineExpr(next, map.getNumDims(), map.getNumSymbols());
      auto change = dyn_cast<AffineConstantExpr>(next);
      if (!change || change.getValue() > 0)
        return Dependence::Any;
    }
  }
  return Dependence::Shrinking;
}

NumericCounter::Dependence NumericCounter::getDependence(const Scope &scope,
                                                         Value iv) {
  Dependence result = Dependence::None;
  auto merge = [&](Dependence x) { result = std::max(result, x); };
  for (const Event &event : scope.events)
    for (const Size &size : event.sizes)
      if (size.value && !size.constant)
        merge(getDependence(size.value, iv));
  auto anyUse = [&](OpFoldResult bound) {
    if (auto value = dyn_cast<Value>(bound))
      if (getDependence(value, iv) != Dependence::None)
        merge(Dependence::Any);
  };
  for (auto &loop : scope.loops) {
    for (const LoopDim &dim : loop->dims) {
      anyUse(dim.lower);
      anyUse(dim.upper);
    }
    merge(getDependence(*loop, iv));
  }
  for (auto &choice : scope.choices) {
    auto isEmpty = [](const Scope &s) {
      return s.events.empty() && s.loops.empty() && s.choices.empty();
    };
    if (isEmpty(*choice.then) && isEmpty(*choice.otherwise))
      continue;
    anyUse(choice.condition);
    merge(getDependence(*choice.then, iv));
    merge(getDependence(*choice.otherwise, iv));
  }
  return result;
}

static void accumulate(Totals<int64_t> &to, const Totals<int64_t> &x,
                       int64_t times = 1) {
  to.read = clampedAdd(to.read, clampedMul(x.read, times));
  to.write = clampedAdd(to.write, clampedMul(x.write, times));
  to.temp = clampedAdd(to.temp, clampedMul(x.temp, times));
}

std::optional<Totals<int64_t>> NumericCounter::countLoop(const Scope &scope,
                                                         unsigned number) {
  if (number == scope.dims.size())
    return countBody(scope);
  const LoopDim &dim = scope.dims[number];
  auto bound = [&](OpFoldResult x) -> ValueRange64 {
    if (std::optional<int64_t> c = getConstantIntValue(x))
      return {*c, *c};
    return sizes.evaluate(cast<Value>(x), known);
  };
  ValueRange64 lower = bound(dim.lower), upper = bound(dim.upper);
  if (dim.listLength)
    upper.hi = std::min(upper.hi, sizes.evaluate(*dim.listLength, known).hi);
  if (!lower.isPoint() || !upper.isPoint()) {
    isUpperBound = true;
    lower.lo = std::max<int64_t>(lower.lo, 0);
  }
  if (upper.hi == INT64_MAX || lower.lo == INT64_MIN)
    return std::nullopt;
  if (upper.hi <= lower.lo)
    return Totals<int64_t>();
  int64_t trips = llvm::divideCeil(clampedAdd(upper.hi, -lower.lo), dim.step);
  auto step = [&](int64_t n) {
    int64_t iv = lower.lo + n * dim.step;
    known[dim.iv] = {iv, iv};
    auto result = countLoop(scope, number + 1);
    known.erase(dim.iv);
    return result;
  };
  Totals<int64_t> totals;
  Dependence dependence = getDependence(scope, dim.iv);
  std::optional<Totals<int64_t>> first = step(0);
  if (!first)
    return std::nullopt;
  if (dependence == Dependence::None) {
    accumulate(totals, *first, trips);
    return totals;
  }
  if (dependence == Dependence::Shrinking && trips > 2) {
    std::optional<Totals<int64_t>> last = step(trips - 1),
                                   before = step(trips - 2);
    if (!last || !before)
      return std::nullopt;
    if (before->read == first->read && before->write == first->write) {
      accumulate(totals, *first, trips - 1);
      accumulate(totals, *last);
      return totals;
    }
  }
  accumulate(totals, *first);
  for (int64_t n = 1; n < trips; ++n) {
    std::optional<Totals<int64_t>> next = step(n);
    if (!next || --budget < 0)
      return std::nullopt;
    accumulate(totals, *next);
  }
  return totals;
}

std::optional<Totals<int64_t>> NumericCounter::countBody(const Scope &scope) {
  Totals<int64_t> totals;
  for (const Event &event : scope.events) {
    int64_t product = event.bytes;
    for (const Size &size : event.sizes) {
      ValueRange64 range = sizes.evaluate(size, known);
      if (range.hi == INT64_MAX)
        return std::nullopt;
      isUpperBound |= !range.isPoint();
      product = clampedMul(product, std::max<int64_t>(range.hi, 0));
    }
    totals[event.kind] = clampedAdd(totals[event.kind], product);
  }
  for (auto &loop : scope.loops) {
    std::optional<Totals<int64_t>> inner = count(*loop);
    if (!inner)
      return std::nullopt;
    accumulate(totals, *inner);
  }
  for (auto &choice : scope.choices) {
    std::optional<Totals<int64_t>> a = count(*choice.then),
                                   b = count(*choice.otherwise);
    if (!a || !b)
      return std::nullopt;
    ValueRange64 condition = sizes.evaluate(choice.condition, known);
    if (condition.isPoint()) {
      accumulate(totals, condition.lo != 0 ? *a : *b);
      continue;
    }
    for (Traffic kind : {Traffic::Read, Traffic::Write, Traffic::Temp}) {
      isUpperBound |= (*a)[kind] != (*b)[kind];
      totals[kind] = clampedAdd(totals[kind], std::max((*a)[kind], (*b)[kind]));
    }
  }
  return totals;
}

std::optional<Totals<int64_t>> NumericCounter::count(const Scope &scope) {
  return countLoop(scope, 0);
}

Totals<Polynomial> fa::countSymbolic(const Scope &scope, SizeTracer &sizes,
                                     bool &isUpperBound) {
  SymbolicCounter counter(sizes);
  Totals<Polynomial> totals = counter.count(scope);
  isUpperBound = counter.isUpperBound;
  return totals;
}

std::optional<Totals<int64_t>>
fa::countNumeric(const Scope &scope, SizeTracer &sizes, bool &isUpperBound) {
  NumericCounter counter(sizes);
  std::optional<Totals<int64_t>> totals = counter.count(scope);
  isUpperBound = counter.isUpperBound;
  return totals;
}
