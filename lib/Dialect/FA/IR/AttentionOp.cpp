// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AttentionCommon.h"

#include "fa/Dialect/FA/IR/FA.h"

using namespace mlir;
using namespace fa;

double AttentionOp::getScaleOrDefault() {
  return scaleOrDefault(getScale(), getHeadDim());
}

void AttentionOp::clampCapturedIndices(OpBuilder &builder) {
  clampIndices(builder, *this);
}

//===----------------------------------------------------------------------===//
// %q, %k, %v functions attributes : types
//===----------------------------------------------------------------------===//

ParseResult AttentionOp::parse(OpAsmParser &parser, OperationState &result) {
  Region *score = result.addRegion(), *mask = result.addRegion(),
         *keep = result.addRegion();
  SmallVector<OpAsmParser::UnresolvedOperand, 3> operands(3);
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseOperand(operands[0]) || parser.parseComma() ||
      parser.parseOperand(operands[1]) || parser.parseComma() ||
      parser.parseOperand(operands[2]))
    return failure();
  FloatAttr scale, times;
  if (parseFunctions(parser, *score, *mask, *keep, scale, times))
    return failure();
  auto &properties = result.getOrAddProperties<AttentionOp::Properties>();
  properties.scale = scale;
  properties.times = times;
  FunctionType type;
  if (parser.parseOptionalAttrDict(result.attributes) ||
      parser.parseColonType(type) ||
      parser.resolveOperands(operands, type.getInputs(), loc, result.operands))
    return failure();
  result.addTypes(type.getResults());
  return success();
}

void AttentionOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getQuery() << ", " << getKey() << ", " << getValue();
  printFunctions(printer, getScore(), getMask(), getKeep(), getScaleAttr(),
                 getTimesAttr());
  printer.printOptionalAttrDict((*this)->getAttrs(), {"scale", "times"});
  printer << " : ";
  printer.printFunctionalType(*this);
}

LogicalResult AttentionOp::verify() {
  RankedTensorType lse = getLse() ? getLse().getType() : RankedTensorType();
  if (failed(verifyTypes({*this, getQuery().getType(), getKey().getType(),
                          getValue().getType(), getOut().getType(), lse})))
    return failure();
  return verifyFactors(*this, getScale(), getTimes(), !getKeep().empty());
}

LogicalResult AttentionOp::verifyRegions() {
  return verifyFunctions(*this, getComputeType(), getScore(), getMask(),
                         getKeep());
}
