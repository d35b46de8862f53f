// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Analysis/LinearForm.h"

#include "fa/Analysis/ScalarOpInterface.h"

#include "mlir/IR/Matchers.h"
#include "mlir/IR/Operation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace fa;

/// By how much a map's result grows with one of its operands, where that is a
/// constant.
static std::optional<int64_t> factorIn(AffineMap map, unsigned operand) {
  MLIRContext *context = map.getContext();
  unsigned dims = map.getNumDims();
  AffineExpr expr = map.getResult(0);
  AffineExpr x = operand < dims ? getAffineDimExpr(operand, context)
                                : getAffineSymbolExpr(operand - dims, context);
  AffineExpr change = simplifyAffineExpr(expr.replace(x, x + 1) - expr, dims,
                                         map.getNumSymbols());
  auto constant = dyn_cast<AffineConstantExpr>(change);
  if (!constant)
    return std::nullopt;
  return constant.getValue();
}

/// Whether a map's result is 0 where its operands are.
static bool isZeroAtZero(AffineMap map) {
  MLIRContext *context = map.getContext();
  AffineExpr zero = getAffineConstantExpr(0, context);
  SmallVector<AffineExpr> dims(map.getNumDims(), zero),
      symbols(map.getNumSymbols(), zero);
  AffineExpr result = simplifyAffineExpr(
      map.getResult(0).replaceDimsAndSymbols(dims, symbols), 0, 0);
  return result == zero;
}

std::optional<LinearForm> fa::getLinearForm(Value value,
                                            function_ref<bool(Value)> isFixed) {
  LinearForm result;
  if (isFixed(value) || matchPattern(value, m_Constant())) {
    result.isExact = matchPattern(value, m_Zero());
    return result;
  }
  Operation *op = value.getDefiningOp();
  if (!op) {
    result.factors[value] = 1;
    return result;
  }
  SmallVector<std::optional<LinearForm>> operands;
  bool areFixed = true;
  for (Value operand : op->getOperands()) {
    operands.push_back(getLinearForm(operand, isFixed));
    areFixed &= operands.back() && operands.back()->factors.empty();
  }
  if (areFixed && op->getNumRegions() == 0 && isPure(op)) {
    result.isExact = false;
    return result;
  }
  IntegerForm form = getIntegerForm(op);
  if (!form.isKnown() || !form.nonNegative.empty() ||
      form.map.getNumResults() != 1 || mayWrap(op))
    return std::nullopt;
  for (auto [i, operand] : llvm::enumerate(operands)) {
    std::optional<int64_t> factor = factorIn(form.map, i);
    if (factor == 0)
      continue;
    bool isFixedOperand = operand && operand->factors.empty();
    if (!operand || (!factor && !isFixedOperand))
      return std::nullopt;
    result.isExact &= operand->isExact;
    for (auto [leaf, times] : operand->factors)
      result.factors[leaf] += *factor * times;
  }
  result.isExact &= isZeroAtZero(form.map);
  result.factors.remove_if([](auto &entry) { return entry.second == 0; });
  return result;
}
