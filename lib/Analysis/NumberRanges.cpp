// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Analysis/NumberRanges.h"

#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"

using namespace mlir;
using namespace fa;

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

NumberRange NumberRanges::of(Value v) {
  // Operands first: a function may be thousands of operations deep.
  SmallVector<std::pair<Value, bool>> work = {{v, false}};
  while (!work.empty()) {
    auto [value, hasOperands] = work.pop_back_val();
    if (ranges.contains(value))
      continue;
    if (hasOperands) {
      ranges[value] = evaluate(value);
      continue;
    }
    work.push_back({value, true});
    if (Operation *op = value.getDefiningOp())
      for (Value operand : op->getOperands())
        if (!ranges.contains(operand))
          work.push_back({operand, false});
  }
  return ranges[v];
}

NumberRange NumberRanges::evaluate(Value v) {
  NumberRange range = find(v);
  // What its type cannot hold becomes infinite.
  if (auto type = dyn_cast<FloatType>(v.getType())) {
    double most =
        APFloat::getLargest(type.getFloatSemantics()).convertToDouble();
    range.isFinite &= range.lo >= -most && range.hi <= most;
  }
  return range;
}

NumberRange NumberRanges::find(Value v) {
  if (APFloat c(0.0f); matchPattern(v, m_ConstantFloat(&c)))
    return {c.convertToDouble(), c.convertToDouble(), c.isFinite()};
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
    operands.push_back(ranges.lookup(operand));
  return isUpstreams ? inferIntegers(integers, operands)
                     : scalar.inferRange(operands);
}
