// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Analysis/Trend.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"

using namespace mlir;
using namespace fa;

//===----------------------------------------------------------------------===//
// Ranges
//===----------------------------------------------------------------------===//

/// The integers of a type in a range.
static ConstantIntRanges integersIn(NumberRange range, Type type) {
  unsigned width = ConstantIntRanges::getStorageBitwidth(type);
  ConstantIntRanges all = ConstantIntRanges::maxRange(width);
  // Numbers of so many bits are what they are in float64.
  constexpr double kExact = int64_t(1) << 53;
  auto bound = [&](double x, const APInt &otherwise) {
    bool fits = width <= 64 && std::abs(x) < kExact &&
                llvm::isIntN(width, static_cast<int64_t>(x));
    return fits ? APInt(width, static_cast<int64_t>(x), true) : otherwise;
  };
  return ConstantIntRanges::fromSigned(bound(std::ceil(range.lo), all.smin()),
                                       bound(std::floor(range.hi), all.smax()));
}

/// The range of an integer by upstream's interface, which knows where it wraps.
static NumberRange inferIntegers(InferIntRangeInterface op,
                                 ArrayRef<NumberRange> operands) {
  SmallVector<ConstantIntRanges> arguments;
  for (auto [range, type] : llvm::zip(operands, op->getOperandTypes()))
    arguments.push_back(integersIn(range, type));
  NumberRange result;
  op.inferResultRanges(arguments, [&](Value, const ConstantIntRanges &range) {
    // Rounding to float64 does not change a sign.
    result = {range.smin().signedRoundToDouble(),
              range.smax().signedRoundToDouble()};
  });
  return result;
}

NumberRange TrendFinder::rangeOf(Value v) {
  if (auto known = ranges.find(v); known != ranges.end())
    return known->second;
  NumberRange range = findRange(v);
  ranges[v] = range;
  return range;
}

NumberRange TrendFinder::findRange(Value v) {
  if (APFloat c(0.0f); matchPattern(v, m_ConstantFloat(&c)))
    return {c.convertToDouble(), c.convertToDouble()};
  if (APInt c; matchPattern(v, m_ConstantInt(&c)))
    return {c.signedRoundToDouble(), c.signedRoundToDouble()};
  Operation *op = v.getDefiningOp();
  auto integers = dyn_cast_or_null<InferIntRangeInterface>(op);
  auto scalar = dyn_cast_or_null<ScalarOpInterface>(op);
  auto isInteger = [](Type type) { return type.isIntOrIndex(); };
  bool isUpstreams = integers && isInteger(v.getType()) &&
                     llvm::all_of(op->getOperandTypes(), isInteger);
  if (!isUpstreams && !scalar)
    return {};
  SmallVector<NumberRange> operands;
  for (Value operand : op->getOperands())
    operands.push_back(rangeOf(operand));
  return isUpstreams ? inferIntegers(integers, operands)
                     : scalar.inferRange(operands);
}

//===----------------------------------------------------------------------===//
// Trends
//===----------------------------------------------------------------------===//

Trend TrendFinder::find(Value v) {
  if (v == firstKey)
    return Trend::Grows;
  Operation *op = v.getDefiningOp();
  if (!op)
    return Trend::None;
  if (auto known = trends.find(v); known != trends.end())
    return known->second;
  Trend trend = findOf(op);
  trends[v] = trend;
  return trend;
}

Trend TrendFinder::findOf(Operation *op) {
  if (auto index = dyn_cast<linalg::IndexOp>(op))
    return index.getDim() == 1 ? Trend::Grows : Trend::None;
  SmallVector<Trend> inner;
  for (Value operand : op->getOperands())
    inner.push_back(find(operand));
  if (llvm::all_of(inner, [](Trend t) { return t == Trend::None; }))
    return Trend::None;
  auto scalar = dyn_cast<ScalarOpInterface>(op);
  if (!scalar)
    return Trend::Unknown;
  SmallVector<NumberRange> operands;
  for (Value operand : op->getOperands())
    operands.push_back(rangeOf(operand));
  Trend trend = Trend::None;
  for (auto [i, t] : llvm::enumerate(inner))
    if (t != Trend::None)
      trend = join(trend, compose(scalar.getTrend(i, operands), t));
  return trend;
}
