// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Analysis/ScalarOpInterface.h"

#include "IntegerFactor.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include "fa/Analysis/ScalarOpInterface.cpp.inc"

using namespace mlir;
using namespace fa;

//===----------------------------------------------------------------------===//
// Trends
//===----------------------------------------------------------------------===//

Trend fa::negate(Trend x) {
  return x == Trend::Grows   ? Trend::Falls
         : x == Trend::Falls ? Trend::Grows
                             : x;
}

Trend fa::join(Trend x, Trend y) {
  if (x == Trend::None || x == y)
    return y;
  return y == Trend::None ? x : Trend::Unknown;
}

Trend fa::compose(Trend outer, Trend inner) {
  if (outer == Trend::None || inner == Trend::None)
    return Trend::None;
  if (outer == Trend::Unknown)
    return Trend::Unknown;
  return outer == Trend::Grows ? inner : negate(inner);
}

/// Of an affine expression in one of its dimensions or symbols.
static Trend trendIn(AffineExpr x, AffineExpr expr) {
  if (expr == x)
    return Trend::Grows;
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return Trend::None;
  Trend lhs = trendIn(x, binary.getLHS()), rhs = trendIn(x, binary.getRHS());
  if (expr.getKind() == AffineExprKind::Add)
    return join(lhs, rhs);
  auto c = dyn_cast<AffineConstantExpr>(binary.getRHS());
  if (lhs == Trend::None && rhs == Trend::None)
    return Trend::None;
  if (!c || expr.getKind() == AffineExprKind::Mod)
    return Trend::Unknown;
  if (c.getValue() > 0)
    return lhs;
  return expr.getKind() == AffineExprKind::Mul ? negate(lhs) : Trend::Unknown;
}

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

bool IntegerForm::reads(unsigned operand) const {
  unsigned numDims = map.getNumDims();
  if (llvm::is_contained(nonNegative, operand))
    return true;
  return operand < numDims ? map.isFunctionOfDim(operand)
                           : map.isFunctionOfSymbol(operand - numDims);
}

Trend IntegerForm::getTrend(unsigned operand,
                            ArrayRef<NumberRange> operandRanges) const {
  if (!isKnown() || !llvm::all_of(nonNegative, [&](unsigned i) {
        return operandRanges[i].isNonNegative();
      }))
    return Trend::Unknown;
  MLIRContext *ctx = map.getContext();
  unsigned numDims = map.getNumDims();
  AffineExpr x = operand < numDims
                     ? getAffineDimExpr(operand, ctx)
                     : getAffineSymbolExpr(operand - numDims, ctx);
  Trend trend = Trend::None;
  for (AffineExpr expr : map.getResults())
    trend = join(trend, trendIn(x, simplifyAffineExpr(expr, numDims,
                                                      map.getNumSymbols())));
  return trend;
}

IntegerForm fa::getIntegerForm(Operation *op) {
  auto scalar = dyn_cast<ScalarOpInterface>(op);
  return scalar ? scalar.getIntegerForm() : IntegerForm();
}

bool fa::mayWrap(Operation *op) {
  auto type = dyn_cast<IntegerType>(op->getResult(0).getType());
  auto flags = dyn_cast<arith::ArithIntegerOverflowFlagsInterface>(op);
  return type && type.getWidth() < 64 && !(flags && flags.hasNoSignedWrap());
}

std::optional<int64_t> fa::getFactor(AffineExpr expr, unsigned operand,
                                     AffineMap map) {
  MLIRContext *ctx = map.getContext();
  unsigned dims = map.getNumDims();
  AffineExpr x = operand < dims ? getAffineDimExpr(operand, ctx)
                                : getAffineSymbolExpr(operand - dims, ctx);
  AffineExpr change = simplifyAffineExpr(expr.replace(x, x + 1) - expr, dims,
                                         map.getNumSymbols());
  auto constant = dyn_cast<AffineConstantExpr>(change);
  if (!constant)
    return std::nullopt;
  return constant.getValue();
}

/// The change of one of a map's results where its operands change by `steps`.
static std::optional<StepRange> stepOf(AffineExpr expr, AffineMap map,
                                       ArrayRef<StepRange> steps) {
  // Sums of such products fit.
  constexpr int64_t kMost = int64_t(1) << 30;
  StepRange all;
  for (auto [i, step] : llvm::enumerate(steps)) {
    if (step.isZero())
      continue;
    std::optional<int64_t> factor = getFactor(expr, i, map);
    if (!factor || std::abs(*factor) > kMost)
      return std::nullopt;
    auto [lo, hi] = std::minmax({*factor * step.lo, *factor * step.hi});
    all.lo += lo;
    all.hi += hi;
    if (std::max(std::abs(all.lo), std::abs(all.hi)) > kMost)
      return std::nullopt;
  }
  return all;
}

namespace {
/// Steps of values, each computed once: operations may share operands.
class Steps {
public:
  using Known = llvm::function_ref<std::optional<StepRange>(Value)>;
  explicit Steps(Known known) : known(known) {}
  std::optional<StepRange> of(Value value) {
    if (auto it = found.find(value); it != found.end())
      return it->second;
    std::optional<StepRange> step = known(value);
    if (!step)
      step = compute(value.getDefiningOp());
    found.insert({value, step});
    return step;
  }

private:
  std::optional<StepRange> compute(Operation *op);

  Known known;
  DenseMap<Value, std::optional<StepRange>> found;
};
} // namespace

std::optional<StepRange> Steps::compute(Operation *op) {
  // Operations in regions may read what is no operand.
  if (!op || op->getNumRegions() || op->getNumResults() != 1)
    return std::nullopt;
  SmallVector<StepRange> steps;
  for (Value operand : op->getOperands()) {
    std::optional<StepRange> step = of(operand);
    if (!step)
      return std::nullopt;
    steps.push_back(*step);
  }
  if (llvm::all_of(steps, [](StepRange step) { return step.isZero(); }))
    return StepRange();
  IntegerForm form = getIntegerForm(op);
  if (!form.isKnown() || !form.nonNegative.empty() || mayWrap(op))
    return std::nullopt;
  // Of several, the least and the largest change no more than one of them.
  std::optional<StepRange> all;
  for (AffineExpr expr : form.map.getResults()) {
    std::optional<StepRange> step = stepOf(expr, form.map, steps);
    if (!step)
      return std::nullopt;
    all = all ? StepRange{std::min(all->lo, step->lo),
                          std::max(all->hi, step->hi)}
              : *step;
  }
  return all;
}

std::optional<StepRange>
fa::getStepRange(Value value,
                 llvm::function_ref<std::optional<StepRange>(Value)> known) {
  return Steps(known).of(value);
}
