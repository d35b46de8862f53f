// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AttentionCommon.h"

#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/StepExpansion.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fa;

LogicalResult OnlineSoftmaxOp::verify() {
  RankedTensorType s = getScores().getType(), v = getValues().getType(),
                   m = getMax().getType(), l = getSum().getType(),
                   o = getAcc().getType();
  std::tuple<StringRef, RankedTensorType, int64_t> ranks[] = {{"scores", s, 2},
                                                              {"values", v, 2},
                                                              {"max", m, 1},
                                                              {"sum", l, 1},
                                                              {"acc", o, 2}};
  for (auto &[name, type, rank] : ranks)
    if (type.getRank() != rank)
      return emitOpError() << "expected " << name << " of rank " << rank
                           << ", got rank " << type.getRank();
  for (auto &[name, type, rank] : ranks)
    if (name != "values" &&
        failed(verifyComputeType(*this, v.getElementType(), name, type,
                                 "fa_online_softmax_c1")))
      return failure();
  std::tuple<StringRef, int64_t, int64_t> dims[] = {
      {"scores and values to have the same number of keys", s.getDimSize(1),
       v.getDimSize(0)},
      {"scores and max to have the same number of rows", s.getDimSize(0),
       m.getDimSize(0)},
      {"scores and sum to have the same number of rows", s.getDimSize(0),
       l.getDimSize(0)},
      {"scores and acc to have the same number of rows", s.getDimSize(0),
       o.getDimSize(0)},
      {"values and acc to have the same value dim", v.getDimSize(1),
       o.getDimSize(1)}};
  for (auto &[what, a, b] : dims)
    if (sizesDiffer(a, b))
      return emitOpError() << "expected " << what << ", got " << a << " and "
                           << b;
  if (std::optional<APFloat> scale = getLog2Scale())
    return verifyLog2Scale(*this, *scale, "fa_online_softmax_c2");
  if (getSubtractFirst())
    return emitOpError("expected log2_scale with subtract_first "
                       "(fa_online_softmax_c2)");
  return success();
}

LogicalResult OnlineSoftmaxOp::verifyRegions() {
  return verifyKeep(*this, getKeep());
}

OpOperand &OnlineSoftmaxOp::getScoresOperand() { return getScoresMutable(); }

/// A padded row's state is cut off.
bool OnlineSoftmaxOp::mustMaskPadding(unsigned dim) { return dim == 1; }

Value OnlineSoftmaxOp::getOperandAlong(unsigned dim) {
  return dim == 0 ? Value(getMax()) : Value(getValues());
}

void OnlineSoftmaxOp::buildKeep(
    OpBuilder &builder, function_ref<Value(OpBuilder &, ValueRange)> body) {
  OpBuilder::InsertionGuard guard(builder);
  Location loc = getLoc();
  Type index = builder.getIndexType();
  Block *block =
      builder.createBlock(&getKeep().front(), {}, {index, index}, {loc, loc});
  Value kept = body(builder, block->getArguments());
  YieldOp::create(builder, loc, kept);
}

//===----------------------------------------------------------------------===//
// TilingInterface: (i, j), rows parallel, keys a reduction.
//===----------------------------------------------------------------------===//

SmallVector<utils::IteratorType> OnlineSoftmaxOp::getLoopIteratorTypes() {
  return {utils::IteratorType::parallel, utils::IteratorType::reduction};
}

SmallVector<Range> OnlineSoftmaxOp::getIterationDomain(OpBuilder &b) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  return {{zero, tensor::getMixedSize(b, getLoc(), getScores(), 0), one},
          {zero, tensor::getMixedSize(b, getLoc(), getScores(), 1), one}};
}

/// A slice with unit strides.
static tensor::ExtractSliceOp sliceOf(OpBuilder &b, Location loc, Value source,
                                      ArrayRef<OpFoldResult> offsets,
                                      ArrayRef<OpFoldResult> sizes) {
  SmallVector<OpFoldResult> strides(offsets.size(), b.getIndexAttr(1));
  return tensor::ExtractSliceOp::create(b, loc, source, offsets, sizes,
                                        strides);
}

FailureOr<TilingResult>
OnlineSoftmaxOp::getTiledImplementation(OpBuilder &b,
                                        ArrayRef<OpFoldResult> offsets,
                                        ArrayRef<OpFoldResult> sizes) {
  Location loc = getLoc();
  OpFoldResult zero = b.getIndexAttr(0);
  OpFoldResult dv = tensor::getMixedSize(b, loc, getValues(), 1);
  SmallVector<Operation *> slices;
  auto slice = [&](Value source, ArrayRef<OpFoldResult> o,
                   ArrayRef<OpFoldResult> s) -> Value {
    auto op = sliceOf(b, loc, source, o, s);
    slices.push_back(op);
    return op;
  };
  Value s = slice(getScores(), {offsets[0], offsets[1]}, {sizes[0], sizes[1]});
  Value v = slice(getValues(), {offsets[1], zero}, {sizes[1], dv});
  Value state[] = {slice(getMax(), {offsets[0]}, {sizes[0]}),
                   slice(getSum(), {offsets[0]}, {sizes[0]}),
                   slice(getAcc(), {offsets[0], zero}, {sizes[0], dv})};
  auto tiled = OnlineSoftmaxOp::create(b, loc, s, v, ValueRange(state),
                                       /*keeps=*/!getKeep().empty());
  if (!getKeep().empty())
    tiled.buildKeep(b, [&](OpBuilder &nested, ValueRange at) {
      Value whole[2];
      for (unsigned d = 0; d < 2; ++d)
        whole[d] = nested.createOrFold<arith::AddIOp>(
            loc, at[d],
            getValueOrCreateConstantIndexOp(nested, loc, offsets[d]));
      return inlineRegion(nested, getKeep().front(), whole);
    });
  return TilingResult{{tiled}, SmallVector<Value>(tiled->getResults()), slices};
}

LogicalResult OnlineSoftmaxOp::getResultTilePosition(
    OpBuilder &b, unsigned resultNumber, ArrayRef<OpFoldResult> offsets,
    ArrayRef<OpFoldResult> sizes, SmallVector<OpFoldResult> &resultOffsets,
    SmallVector<OpFoldResult> &resultSizes) {
  resultOffsets = {offsets[0]};
  resultSizes = {sizes[0]};
  if (resultNumber == 2) {
    resultOffsets.push_back(b.getIndexAttr(0));
    resultSizes.push_back(tensor::getMixedSize(b, getLoc(), getValues(), 1));
  }
  return success();
}

//===----------------------------------------------------------------------===//
// The merge, as linalg.
//===----------------------------------------------------------------------===//

/// exp(x - shift), of numbers in the op's units.
static Value powerOf(SoftmaxBuilder &b, OnlineSoftmaxOp op, Value x,
                     Value shift) {
  std::optional<APFloat> scale = op.getLog2Scale();
  return scale ? b.exp2Difference(x, shift, scale->convertToDouble())
               : b.expDifference(x, shift);
}

/// exp(score - shift): of many scores to one shift.
static Value weightsOf(SoftmaxBuilder &b, OnlineSoftmaxOp op, Value shift) {
  std::optional<APFloat> scale = op.getLog2Scale();
  if (!scale || op.getSubtractFirst())
    return powerOf(b, op, op.getScores(), shift);
  double c = scale->convertToDouble();
  return b.scaledExp2(op.getScores(), b.scale(shift, -c), c);
}

SmallVector<Value> OnlineSoftmaxOp::expand(OpBuilder &builder,
                                           StepExpansion &target) {
  SoftmaxBuilder b(builder, getLoc());
  Value newMax = b.rowMax(getScores(), getMax());
  // A row that has seen nothing has m' = -inf: exp(-inf - 0) is the 0 wanted.
  Value shift = b.finiteOrZero(newMax);
  Value alpha = powerOf(b, *this, getMax(), shift);
  Value weights = weightsOf(b, *this, shift);
  Value scaledSum = b.multiply(getSum(), alpha);
  Value newSum = target.addRows(builder, getLoc(), weights, scaledSum);
  Value carried = b.multiply(getAcc(), getUnnormalized() ? alpha : scaledSum);
  Type elementType = getValues().getType().getElementType();
  Value narrow = b.convert(weights, elementType);
  if (!getKeep().empty())
    narrow = b.keep(narrow, [&](OpBuilder &nested, ValueRange at) {
      return inlineRegion(nested, getKeep().front(), at);
    });
  Value numerator = b.contractRowsByColumns(narrow, getValues(), carried);
  return {newMax, newSum,
          getUnnormalized() ? numerator : b.divideOrZero(numerator, newSum)};
}

FailureOr<SmallVector<Value>>
OnlineSoftmaxOp::decomposeOperation(OpBuilder &builder) {
  StepExpansion plain;
  return expand(builder, plain);
}
