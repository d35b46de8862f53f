// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AttentionCommon.h"

#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace fa;

LogicalResult CustomGradientOp::verify() {
  if (getValues().empty())
    return emitOpError("expected at least one value, got none; give the "
                       "value of the result (fa_custom_gradient_c1)");
  bool isKnown = !getGradient().empty(), isUnknown = getUnknown().has_value();
  if (isKnown + isUnknown != !getInputs().empty())
    return emitOpError()
           << "expected a gradient region, or why it is unknown, "
              "exactly where there are inputs, got "
           << getInputs().size() << " inputs and "
           << (isKnown && isUnknown ? "both"
               : isKnown            ? "a region"
               : isUnknown          ? "a reason"
                                    : "neither")
           << "; name the inputs that the gradient is with respect to "
              "(fa_custom_gradient_c1)";
  return success();
}

LogicalResult CustomGradientOp::verifyRegions() {
  if (getGradient().empty())
    return success();
  Block &block = getGradient().front();
  if (block.getArgumentTypes() != getValues().getTypes())
    return emitOpError() << "expected a gradient region that takes "
                         << getValues().getTypes()
                         << ", the values' types, got "
                         << block.getArgumentTypes()
                         << " (fa_custom_gradient_c2)";
  auto yield = block.empty() ? YieldGradientsOp()
                             : dyn_cast<YieldGradientsOp>(block.back());
  if (!yield)
    return emitOpError("expected the gradient region to end in "
                       "fa.yield_gradients (fa_custom_gradient_c2)");
  if (yield.getGradients().getTypes() != getInputs().getTypes())
    return emitOpError() << "expected a gradient region that yields "
                         << getInputs().getTypes()
                         << ", the inputs' types, got "
                         << yield.getGradients().getTypes()
                         << " (fa_custom_gradient_c2)";
  return verifyRegionIsPure(getGradient(), "gradient",
                            "compute gradients with arithmetic alone "
                            "(fa_custom_gradient_c3)");
}

void CustomGradientOp::takeValues(RewriterBase &rewriter, Operation *op) {
  SmallVector<CustomGradientOp> found;
  op->walk([&](CustomGradientOp custom) { found.push_back(custom); });
  for (CustomGradientOp custom : found)
    rewriter.replaceOp(custom, custom.getValues());
}

SmallVector<Value> CustomGradientOp::buildGradients(OpBuilder &builder,
                                                    IRMapping map,
                                                    ValueRange gradients) {
  if (getGradient().empty())
    return {};
  Block &block = getGradient().front();
  map.map(block.getArguments(), gradients);
  for (Operation &op : block.without_terminator())
    cloneAnew(builder, op, map);
  SmallVector<Value> results;
  for (Value v : block.getTerminator()->getOperands())
    results.push_back(map.lookupOrDefault(v));
  return results;
}
