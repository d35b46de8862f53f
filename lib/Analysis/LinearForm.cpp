// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Analysis/LinearForm.h"

#include "IntegerFactor.h"
#include "fa/Analysis/ScalarOpInterface.h"

#include "mlir/IR/Matchers.h"
#include "mlir/IR/Operation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fa;

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

namespace {
/// Forms of values, each computed once: operations may share operands.
class Forms {
public:
  explicit Forms(function_ref<bool(Value)> isFixed) : isFixed(isFixed) {}
  std::optional<LinearForm> of(Value value) {
    if (auto it = known.find(value); it != known.end())
      return it->second;
    std::optional<LinearForm> form = compute(value);
    known.insert({value, form});
    return form;
  }

private:
  std::optional<LinearForm> compute(Value value);

  function_ref<bool(Value)> isFixed;
  DenseMap<Value, std::optional<LinearForm>> known;
};
} // namespace

std::optional<LinearForm> Forms::compute(Value value) {
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
    operands.push_back(of(operand));
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
    std::optional<int64_t> factor =
        getFactor(form.map.getResult(0), i, form.map);
    if (factor == 0)
      continue;
    bool isFixedOperand = operand && operand->factors.empty();
    if (!operand || (!factor && !isFixedOperand))
      return std::nullopt;
    result.isExact &= operand->isExact;
    for (auto [leaf, times] : operand->factors)
      if (int64_t grows;
          llvm::MulOverflow(*factor, times, grows) ||
          llvm::AddOverflow(result.factors[leaf], grows, result.factors[leaf]))
        return std::nullopt;
  }
  result.isExact &= isZeroAtZero(form.map);
  result.factors.remove_if([](auto &entry) { return entry.second == 0; });
  return result;
}

std::optional<LinearForm> fa::getLinearForm(Value value,
                                            function_ref<bool(Value)> isFixed) {
  return Forms(isFixed).of(value);
}
