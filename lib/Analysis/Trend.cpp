// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Analysis/Trend.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace fa;

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
    operands.push_back(ranges.of(operand));
  Trend trend = Trend::None;
  for (auto [i, t] : llvm::enumerate(inner))
    if (t != Trend::None)
      trend = join(trend, compose(scalar.getTrend(i, operands), t));
  return trend;
}
