// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AttentionCommon.h"

#include "fa/Analysis/LinearForm.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace fa;

double AttentionBackwardOp::getScaleOrDefault() {
  return scaleOrDefault(getScale(), getHeadDim());
}

void AttentionBackwardOp::clampCapturedIndices(OpBuilder &builder) {
  clampIndices(builder, *this);
}

YieldAdjointOp AttentionBackwardOp::getAdjointYield() {
  if (getAdjoint().empty() || getAdjoint().front().empty())
    return {};
  return dyn_cast<YieldAdjointOp>(getAdjoint().front().back());
}

/// Whether an index grows with the column, and nothing else in it depends on
/// the column. A negative index that counts from the end brings two columns
/// together at most.
static bool growsWith(Value column, Value index, Region &region) {
  if (auto choice = index.getDefiningOp<arith::SelectOp>())
    return growsWith(column, choice.getTrueValue(), region) &&
           growsWith(column, choice.getFalseValue(), region);
  std::optional<LinearForm> form = getLinearForm(
      index, [&](Value v) { return !region.isAncestor(v.getParentRegion()); });
  return form && form->of(column) != 0 &&
         llvm::all_of(form->factors, [&](auto &part) {
           return part.first == column || !dependsOn(part.first, column);
         });
}

bool AttentionBackwardOp::addsRowsUp() {
  YieldAdjointOp yield = getAdjointYield();
  if (!yield)
    return false;
  Value column = getAdjoint().front().getArgument(4);
  for (unsigned term = 0; term < yield.getTerms().size(); ++term)
    if (llvm::none_of(yield.getIndicesOf(term), [&](Value index) {
          return growsWith(column, index, getAdjoint());
        }))
      return true;
  return false;
}

static int64_t rankOf(Value tensor) {
  return cast<RankedTensorType>(tensor.getType()).getRank();
}

OperandRange YieldAdjointOp::getIndicesOf(unsigned n) {
  Operation *parent = (*this)->getParentOp();
  auto backward = dyn_cast<AttentionBackwardOp>(parent);
  auto rank = [&](int64_t to) {
    return rankOf(backward
                      ? backward.getWrt()[to]
                      : cast<SoftmaxGradOp>(parent).getCapturedGrads()[to]);
  };
  unsigned first = 0;
  for (int64_t to : getTo().take_front(n))
    first += rank(to);
  return getAt().slice(first, rank(getTo()[n]));
}

//===----------------------------------------------------------------------===//
// %q, %k, %v out %o, %lse grads %do (, %dlse)? (wrt %x, ...)? functions
//     (adjoint {...})? attributes : types
//===----------------------------------------------------------------------===//

ParseResult AttentionBackwardOp::parse(OpAsmParser &parser,
                                       OperationState &result) {
  Region *score = result.addRegion(), *mask = result.addRegion(),
         *keep = result.addRegion(), *adjoint = result.addRegion();
  SmallVector<OpAsmParser::UnresolvedOperand> operands(6), wrt;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseOperand(operands[0]) || parser.parseComma() ||
      parser.parseOperand(operands[1]) || parser.parseComma() ||
      parser.parseOperand(operands[2]) || parser.parseKeyword("out") ||
      parser.parseOperand(operands[3]) || parser.parseComma() ||
      parser.parseOperand(operands[4]) || parser.parseKeyword("grads") ||
      parser.parseOperand(operands[5]))
    return failure();
  bool hasLseGrad = succeeded(parser.parseOptionalComma());
  if (hasLseGrad && parser.parseOperand(operands.emplace_back()))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("wrt")) &&
      parser.parseOperandList(wrt))
    return failure();
  FloatAttr scale, times;
  if (parseFunctions(parser, *score, *mask, *keep, scale, times) ||
      (succeeded(parser.parseOptionalKeyword("adjoint")) &&
       parser.parseRegion(*adjoint)))
    return failure();
  auto &properties = result.getOrAddProperties<Properties>();
  properties.scale = scale;
  properties.times = times;
  properties.operandSegmentSizes = {
      1, 1, 1, 1, 1, 1, hasLseGrad, static_cast<int32_t>(wrt.size())};
  llvm::append_range(operands, wrt);
  FunctionType type;
  if (parser.parseOptionalAttrDict(result.attributes) ||
      parser.parseColonType(type) ||
      parser.resolveOperands(operands, type.getInputs(), loc, result.operands))
    return failure();
  result.addTypes(type.getResults());
  return success();
}

void AttentionBackwardOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getQuery() << ", " << getKey() << ", " << getValue()
          << " out " << getOut() << ", " << getLse() << " grads "
          << getOutGrad();
  if (getLseGrad())
    printer << ", " << getLseGrad();
  if (!getWrt().empty())
    printer << " wrt " << getWrt();
  printFunctions(printer, getScore(), getMask(), getKeep(), getScaleAttr(),
                 getTimesAttr());
  if (!getAdjoint().empty()) {
    printer << " adjoint ";
    printer.printRegion(getAdjoint());
  }
  printer.printOptionalAttrDict((*this)->getAttrs(),
                                {"scale", "times", "operandSegmentSizes"});
  printer << " : ";
  printer.printFunctionalType(*this);
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

LogicalResult AttentionBackwardOp::verify() {
  if (failed(verifyTypes({*this, getQuery().getType(), getKey().getType(),
                          getValue().getType(), getOut().getType(),
                          getLse().getType()})) ||
      failed(verifyFactors(*this, getScale(), getTimes(), !getKeep().empty())))
    return failure();
  if (getLseGrad() && getLseGrad().getType() != getLse().getType())
    return emitOpError() << "expected lse_grad of type " << getLse().getType()
                         << " like lse, got " << getLseGrad().getType()
                         << " (fa_attention_backward_c2)";
  SmallVector<Type> sums;
  for (Type type : getWrt().getTypes())
    sums.push_back(cast<RankedTensorType>(type).clone(getComputeType()));
  if (TypeRange(sums) != TypeRange(getWrtGrads())) {
    InFlightDiagnostic diag = emitOpError()
                              << "expected gradients of captured tensors of "
                                 "types (";
    llvm::interleaveComma(sums, diag);
    diag << "), got (";
    llvm::interleaveComma(getWrtGrads().getTypes(), diag);
    return diag << ") (fa_attention_backward_c1)";
  }
  return success();
}

LogicalResult AttentionBackwardOp::verifyRegions() {
  if (failed(verifyFunctions(*this, getComputeType(), getScore(), getMask(),
                             getKeep())))
    return failure();
  if (getAdjoint().empty()) {
    if (!getScore().empty())
      return emitOpError("expected an adjoint region beside the score region; "
                         "run fa-differentiate on the forward "
                         "(fa_attention_backward_c3)");
    return success();
  }
  Builder b(getContext());
  Type index = b.getIndexType(), real = getComputeType();
  if (failed(verifyRegionArguments(*this, getAdjoint(), "adjoint",
                                   {real, index, index, index, index, real})))
    return failure();
  YieldAdjointOp yield = getAdjointYield();
  if (!yield)
    return emitOpError("expected the adjoint region to end in "
                       "fa.yield_adjoint (fa_attention_backward_c3)");
  if (failed(verifyRegionIsPure(getAdjoint(), "adjoint")))
    return failure();
  return verifyAdds(yield, getComputeType(), getWrt(),
                    "fa_attention_backward_c3");
}
