// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// linalg's operations: the lanes are parallel iterations, some of the outermost
// at a time; reductions go step by step.

#include "Body.h"

#include <cstring>

using namespace mlir;
using namespace fa::run;
using namespace fa::run::interpreter;

/// Lanes that are computed together, about: what stays in the first cache.
static constexpr int64_t kLanes = 2048;

namespace {

/// An operand's elements as a linear function of the iteration.
struct Access {
  Tensor tensor;
  int64_t base = 0;
  /// Elements from one iteration to the next, for each dimension.
  SmallVector<int64_t, 4> steps;
};

/// One operation on its way.
class LinalgRun {
public:
  LinalgRun(linalg::LinalgOp op, Body &body, Failure &failure)
      : op(op), body(body), failure(failure) {}
  LogicalResult run(Scope &scope, SmallVectorImpl<Tensor> &results);

private:
  LogicalResult findSizes();
  LogicalResult findAccess(OpOperand &operand, Access &access);
  LogicalResult runChunk(int64_t first, int64_t count);
  void load(unsigned number, const Access &access);
  void store(const Access &access, const Lanes &value);
  void setIndices();
  int64_t offsetOf(const Access &access) const;
  SmallVector<int64_t, 4> laneSteps(const Access &access) const;

  linalg::LinalgOp op;
  Body &body;
  Failure &failure;
  SmallVector<Tensor, 4> operands;
  SmallVector<Access, 4> inputs, outputs;
  SmallVector<int64_t, 4> sizes;
  SmallVector<unsigned, 4> parallel, reductions;
  /// Of the chunk at hand: sizes of the parallel dimensions, and where all
  /// dimensions are.
  SmallVector<int64_t, 4> laneSizes, at;
  int64_t lanes = 1;
  /// What reductions have so far, by output.
  SmallVector<Tensor, 2> sums;
};

} // namespace

//===----------------------------------------------------------------------===//
// Iterations
//===----------------------------------------------------------------------===//

LogicalResult LinalgRun::findSizes() {
  unsigned dims = op.getNumLoops();
  sizes.assign(dims, -1);
  for (auto [operand, tensor] : llvm::zip(op->getOpOperands(), operands)) {
    if (!tensor.isValid())
      continue;
    AffineMap map = op.getMatchingIndexingMap(&operand);
    for (auto [expr, size] : llvm::zip(map.getResults(), tensor.shape()))
      if (auto dim = dyn_cast<AffineDimExpr>(expr))
        sizes[dim.getPosition()] = size;
  }
  if (llvm::is_contained(sizes, -1))
    return failure.at(op, "has a loop whose size no operand tells");
  for (auto [d, type] : llvm::enumerate(op.getIteratorTypesArray()))
    (type == utils::IteratorType::parallel ? parallel : reductions)
        .push_back(d);
  return success();
}

/// The value of an expression that is linear; nothing for others.
static std::optional<int64_t> evaluate(AffineExpr expr, ArrayRef<int64_t> at) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return at[dim.getPosition()];
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary || (expr.getKind() != AffineExprKind::Add &&
                  expr.getKind() != AffineExprKind::Mul))
    return std::nullopt;
  auto a = evaluate(binary.getLHS(), at), b = evaluate(binary.getRHS(), at);
  if (!a || !b)
    return std::nullopt;
  return expr.getKind() == AffineExprKind::Add ? *a + *b : *a * *b;
}

LogicalResult LinalgRun::findAccess(OpOperand &operand, Access &access) {
  access.tensor = operands[operand.getOperandNumber()];
  unsigned dims = op.getNumLoops();
  access.steps.assign(dims, 0);
  if (!access.tensor.isValid())
    return success();
  AffineMap map = op.getMatchingIndexingMap(&operand);
  SmallVector<int64_t, 4> zero(dims, 0);
  for (auto [d, expr] : llvm::enumerate(map.getResults())) {
    std::optional<int64_t> first = evaluate(expr, zero);
    if (!first)
      return failure.at(op, "has an indexing map that is not interpreted");
    int64_t stride = access.tensor.strides()[d], last = *first;
    access.base += *first * stride;
    for (unsigned i = 0; i < dims; ++i) {
      SmallVector<int64_t, 4> unit(zero);
      unit[i] = 1;
      int64_t step = *evaluate(expr, unit) - *first;
      access.steps[i] += step * stride;
      last += step * (sizes[i] - 1);
    }
    if (std::min(*first, last) < 0 ||
        std::max(*first, last) >= access.tensor.shape()[d])
      return failure.at(op, "reads or writes outside of operand " +
                                Twine(operand.getOperandNumber()));
  }
  return success();
}

int64_t LinalgRun::offsetOf(const Access &access) const {
  int64_t offset = access.base;
  for (auto [i, step] : llvm::zip(at, access.steps))
    offset += i * step;
  return offset;
}

SmallVector<int64_t, 4> LinalgRun::laneSteps(const Access &access) const {
  SmallVector<int64_t, 4> steps;
  for (unsigned d : parallel)
    steps.push_back(access.steps[d]);
  return steps;
}

//===----------------------------------------------------------------------===//
// Lanes
//===----------------------------------------------------------------------===//

static SmallVector<int64_t, 4> contiguousSteps(ArrayRef<int64_t> sizes) {
  SmallVector<int64_t, 4> steps(sizes.size());
  int64_t step = 1;
  for (unsigned d = sizes.size(); d-- > 0;) {
    steps[d] = step;
    step *= sizes[d];
  }
  return steps;
}

/// Whether lanes lie one after another in memory.
static bool isContiguous(ArrayRef<int64_t> sizes, ArrayRef<int64_t> steps) {
  int64_t step = 1;
  for (unsigned d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && steps[d] != step)
      return false;
    step *= sizes[d];
  }
  return true;
}

template <typename T>
static void copyLanes(ArrayRef<int64_t> sizes, T *to, ArrayRef<int64_t> toSteps,
                      const T *from, ArrayRef<int64_t> fromSteps) {
  int64_t di = sizes.empty() ? 1 : toSteps.back(),
          dj = sizes.empty() ? 1 : fromSteps.back();
  forEachRow(sizes, toSteps, fromSteps, [&](int64_t i, int64_t j, int64_t n) {
    if (di == 1 && dj == 1)
      std::memcpy(to + i, from + j, n * sizeof(T));
    else if (di == 1 && dj == 0)
      std::fill_n(to + i, n, from[j]);
    else
      for (int64_t x = 0; x < n; ++x)
        to[i + x * di] = from[j + x * dj];
  });
}

void LinalgRun::load(unsigned number, const Access &access) {
  Lanes &to = body.argument(number);
  if (!access.tensor.isValid() || !body.readsArgument(number))
    return;
  SmallVector<int64_t, 4> steps = laneSteps(access);
  int64_t offset = offsetOf(access);
  bool uniform = llvm::all_of(llvm::zip(steps, laneSizes), [](const auto &dim) {
    return std::get<0>(dim) == 0 || std::get<1>(dim) == 1;
  });
  SmallVector<int64_t, 4> dense = contiguousSteps(laneSizes);
  auto with = [&](auto *data, auto make, auto set) {
    if (uniform)
      set(*data);
    else if (isContiguous(laneSizes, steps))
      to.view(data);
    else
      copyLanes(laneSizes, make(), dense, data, steps);
  };
  if (access.tensor.kind().isFloat)
    with(
        const_cast<const float *>(access.tensor.floats() + offset),
        [&] { return to.makeFloats(lanes, false); },
        [&](float x) { to.setFloat(x); });
  else
    with(
        const_cast<const int64_t *>(access.tensor.ints() + offset),
        [&] { return to.makeInts(lanes, false); },
        [&](int64_t x) { to.setInt(x); });
}

void LinalgRun::store(const Access &access, const Lanes &value) {
  SmallVector<int64_t, 4> steps = laneSteps(access),
                          from = contiguousSteps(laneSizes);
  if (value.isUniform())
    std::fill(from.begin(), from.end(), 0);
  int64_t offset = offsetOf(access);
  if (access.tensor.kind().isFloat)
    copyLanes(laneSizes, access.tensor.floats() + offset, steps, value.floats(),
              from);
  else
    copyLanes(laneSizes, access.tensor.ints() + offset, steps, value.ints(),
              from);
}

void LinalgRun::setIndices() {
  SmallVector<int64_t, 4> dense = contiguousSteps(laneSizes);
  for (unsigned d = 0; d < sizes.size(); ++d) {
    if (!body.readsIndex(d))
      continue;
    auto *dim = llvm::find(parallel, d);
    if (dim == parallel.end()) {
      body.index(d).setInt(at[d]);
      continue;
    }
    unsigned number = dim - parallel.begin();
    int64_t *to = body.index(d).makeInts(lanes, false);
    int64_t step = dense[number], size = laneSizes[number];
    for (int64_t i = 0; i < lanes; ++i)
      to[i] = at[d] + i / step % size;
  }
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

/// All reductions of some iterations of the outermost parallel dimension.
LogicalResult LinalgRun::runChunk(int64_t first, int64_t count) {
  std::fill(at.begin(), at.end(), 0);
  laneSizes.clear();
  lanes = 1;
  for (unsigned d : parallel) {
    laneSizes.push_back(laneSizes.empty() ? count : sizes[d]);
    lanes *= laneSizes.back();
  }
  if (!parallel.empty())
    at[parallel.front()] = first;
  int64_t steps = 1;
  for (unsigned d : reductions)
    steps *= sizes[d];
  unsigned firstOutput = inputs.size();
  for (int64_t step = 0; step < steps; ++step) {
    int64_t rest = step;
    for (unsigned d : llvm::reverse(reductions)) {
      at[d] = rest % sizes[d];
      rest /= sizes[d];
    }
    for (auto [n, input] : llvm::enumerate(inputs))
      load(n, input);
    for (auto [n, output] : llvm::enumerate(outputs))
      load(firstOutput + n, output);
    setIndices();
    if (failed(body.run(lanes, failure)))
      return mlir::failure();
    for (auto [n, output] : llvm::enumerate(outputs))
      store(output, body.yielded(n));
  }
  return success();
}

LogicalResult LinalgRun::run(Scope &scope, SmallVectorImpl<Tensor> &results) {
  for (OpOperand &operand : op->getOpOperands()) {
    Value v = operand.get();
    unsigned number = operand.getOperandNumber();
    operands.emplace_back();
    if (isa<RankedTensorType>(v.getType())) {
      FailureOr<Tensor> t = scope.tensor(v);
      if (failed(t))
        return mlir::failure();
      operands.back() = *t;
      continue;
    }
    FailureOr<Number> x = scope.number(v);
    auto kind = ElementKind::of(v.getType());
    if (failed(x) || !kind)
      return failure.at(op, "has an operand that is not interpreted");
    if (kind->isFloat)
      body.argument(number).setFloat(x->f);
    else
      body.argument(number).setInt(x->i);
  }
  if (failed(body.bind(scope, failure)) || failed(findSizes()))
    return mlir::failure();
  // Results take the place of the inits, of which they are copies where
  // something of these is read or remains.
  unsigned firstOutput = op.getNumDpsInputs();
  for (OpOperand &operand : op.getDpsInitsMutable()) {
    Tensor &t = operands[operand.getOperandNumber()];
    bool keeps = body.readsArgument(operand.getOperandNumber()) ||
                 !op.getMatchingIndexingMap(&operand).isPermutation();
    t = keeps ? t.clone() : Tensor::make(t.kind(), t.shape());
    results.push_back(t);
  }
  at.assign(sizes.size(), 0);
  if (llvm::is_contained(sizes, 0)) {
    for (auto [n, result] : llvm::enumerate(results)) {
      FailureOr<Tensor> init = scope.tensor(op->getOperand(firstOutput + n));
      if (failed(init))
        return mlir::failure();
      result = *init;
    }
    return success();
  }
  for (OpOperand &operand : op->getOpOperands()) {
    auto &list = operand.getOperandNumber() < firstOutput ? inputs : outputs;
    list.emplace_back();
    if (failed(findAccess(operand, list.back())))
      return mlir::failure();
  }
  int64_t outer = parallel.empty() ? 1 : sizes[parallel.front()], inner = 1;
  for (unsigned d : ArrayRef(parallel).drop_front(!parallel.empty()))
    inner *= sizes[d];
  int64_t chunk = std::max<int64_t>(1, kLanes / std::max<int64_t>(1, inner));
  for (int64_t first = 0; first < outer; first += chunk)
    if (failed(runChunk(first, std::min(chunk, outer - first))))
      return mlir::failure();
  return success();
}

LogicalResult interpreter::runLinalg(linalg::LinalgOp op, Bodies &bodies,
                                     Scope &scope, Failure &failure,
                                     SmallVectorImpl<Tensor> &results) {
  if (op->getNumRegions() != 1 || !op->getRegion(0).hasOneBlock() ||
      op->getNumResults() != static_cast<unsigned>(op.getNumDpsInits()))
    return failure.at(op, "is not interpreted");
  auto body = bodyOf(op, op->getRegion(0).front(), bodies, failure);
  if (mlir::failed(body))
    return mlir::failure();
  return LinalgRun(op, **body, failure).run(scope, results);
}
