// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AttentionCommon.h"

#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace fa;

void SoftmaxDeltaOp::build(OpBuilder &builder, OperationState &state,
                           ValueRange inputs, ValueRange sums,
                           FloatAttr times) {
  assert(inputs.size() == kNumInputs && sums.size() == 2);
  state.addOperands(inputs);
  state.addOperands(sums);
  state.addTypes(sums.getTypes());
  if (times)
    state.getOrAddProperties<Properties>().times = times;
  state.addRegion();
}

OpOperand &SoftmaxDeltaOp::getScoresOperand() { return getScoresMutable(); }

Value SoftmaxDeltaOp::getOperandAlong(unsigned dim) {
  return dim == 0 ? getOutGrad() : getValue();
}

bool SoftmaxDeltaOp::keepsAll() { return fa::keepsAll(getKeep()); }

/// A padded row's sums are cut off.
bool SoftmaxDeltaOp::mustMaskPadding(unsigned dim) { return dim == 1; }

LogicalResult SoftmaxDeltaOp::verify() {
  struct Operand {
    StringLiteral name;
    Value value;
    unsigned rank;
  };
  Operand operands[] = {{"scores", getScores(), 2},    {"value", getValue(), 2},
                        {"out_grad", getOutGrad(), 2}, {"lse", getLse(), 1},
                        {"delta", getDelta(), 1},      {"sum", getSum(), 1}};
  Type element = getValue().getType().getElementType();
  for (auto &[name, value, rank] : operands) {
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getRank() != rank)
      return emitOpError() << "expected " << name << " of rank " << rank
                           << ", got rank " << type.getRank()
                           << " (fa_softmax_delta_c1)";
    bool isComputed = name != "value" && name != "out_grad";
    if (isComputed && failed(verifyComputeType(*this, element, name, type,
                                               "fa_softmax_delta_c1")))
      return failure();
  }
  struct Pair {
    unsigned first, firstDim, second, secondDim;
    StringLiteral dim;
  };
  constexpr Pair pairs[] = {{0, 0, 2, 0, "rows"}, {0, 0, 3, 0, "rows"},
                            {0, 0, 4, 0, "rows"}, {0, 0, 5, 0, "rows"},
                            {0, 1, 1, 0, "keys"}, {1, 1, 2, 1, "value dim"}};
  for (const Pair &pair : pairs) {
    auto sizeOf = [&](unsigned operand, unsigned dim) {
      return cast<RankedTensorType>(operands[operand].value.getType())
          .getDimSize(dim);
    };
    int64_t first = sizeOf(pair.first, pair.firstDim),
            second = sizeOf(pair.second, pair.secondDim);
    if (sizesDiffer(first, second))
      return emitOpError() << "expected " << operands[pair.first].name
                           << " and " << operands[pair.second].name
                           << " to have the same " << pair.dim << ", got "
                           << first << " and " << second
                           << " (fa_softmax_delta_c1)";
  }
  return success();
}

LogicalResult SoftmaxDeltaOp::verifyRegions() {
  return verifyKeep(*this, getKeep());
}

//===----------------------------------------------------------------------===//
// TilingInterface: (i, j), rows parallel, keys a reduction.
//===----------------------------------------------------------------------===//

SmallVector<utils::IteratorType> SoftmaxDeltaOp::getLoopIteratorTypes() {
  return {utils::IteratorType::parallel, utils::IteratorType::reduction};
}

SmallVector<Range> SoftmaxDeltaOp::getIterationDomain(OpBuilder &b) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  return {{zero, tensor::getMixedSize(b, getLoc(), getScores(), 0), one},
          {zero, tensor::getMixedSize(b, getLoc(), getScores(), 1), one}};
}

FailureOr<TilingResult>
SoftmaxDeltaOp::getTiledImplementation(OpBuilder &b,
                                       ArrayRef<OpFoldResult> offsets,
                                       ArrayRef<OpFoldResult> sizes) {
  Location loc = getLoc();
  OpFoldResult zero = b.getIndexAttr(0);
  OpFoldResult dim = tensor::getMixedSize(b, loc, getValue(), 1);
  SmallVector<Operation *> slices;
  auto slice = [&](Value source, ArrayRef<OpFoldResult> at,
                   ArrayRef<OpFoldResult> size) -> Value {
    SmallVector<OpFoldResult> ones(at.size(), b.getIndexAttr(1));
    auto op = tensor::ExtractSliceOp::create(b, loc, source, at, size, ones);
    slices.push_back(op);
    return op;
  };
  Value inputs[] = {slice(getScores(), offsets, sizes),
                    slice(getValue(), {offsets[1], zero}, {sizes[1], dim}),
                    slice(getOutGrad(), {offsets[0], zero}, {sizes[0], dim}),
                    slice(getLse(), offsets[0], sizes[0])};
  Value sums[] = {slice(getDelta(), offsets[0], sizes[0]),
                  slice(getSum(), offsets[0], sizes[0])};
  auto tiled = SoftmaxDeltaOp::create(b, loc, inputs, sums, getTimesAttr());
  cloneShifted(b, loc, getKeep(), tiled.getKeep(), 0, offsets);
  return TilingResult{{tiled}, SmallVector<Value>(tiled->getResults()), slices};
}

LogicalResult SoftmaxDeltaOp::getResultTilePosition(
    OpBuilder &b, unsigned resultNumber, ArrayRef<OpFoldResult> offsets,
    ArrayRef<OpFoldResult> sizes, SmallVector<OpFoldResult> &resultOffsets,
    SmallVector<OpFoldResult> &resultSizes) {
  resultOffsets = {offsets[0]};
  resultSizes = {sizes[0]};
  return success();
}

FailureOr<TilingResult>
SoftmaxDeltaOp::generateResultTileValue(OpBuilder &b, unsigned resultNumber,
                                        ArrayRef<OpFoldResult> offsets,
                                        ArrayRef<OpFoldResult> sizes) {
  OpFoldResult keys = tensor::getMixedSize(b, getLoc(), getScores(), 1);
  FailureOr<TilingResult> tiled = getTiledImplementation(
      b, {offsets[0], b.getIndexAttr(0)}, {sizes[0], keys});
  if (succeeded(tiled))
    tiled->tiledValues = {tiled->tiledValues[resultNumber]};
  return tiled;
}

FailureOr<SmallVector<Value>>
SoftmaxDeltaOp::decomposeOperation(OpBuilder &builder) {
  SoftmaxBuilder b(builder, getLoc());
  Type real = getScores().getType().getElementType();
  Value weights = b.expDifference(getScores(), getLse());
  Value zeros =
      b.fill(tensor::getMixedSizes(builder, getLoc(), getScores()), real, 0.0);
  Value grads =
      keepWeights(builder, getKeep(),
                  b.contractRowsByRows(getOutGrad(), getValue(), zeros));
  std::optional<double> times;
  if (getTimes())
    times = getTimes()->convertToDouble();
  Value terms = b.elementwise(
      {weights, grads}, real,
      [&](OpBuilder &nested, Location loc, ValueRange args) -> Value {
        Value x = args[1];
        if (times)
          x = arith::MulFOp::create(nested, loc, x,
                                    floatConstant(nested, loc, real, *times));
        return arith::MulFOp::create(nested, loc, args[0], x);
      });
  return SmallVector<Value>{b.rowSum(terms, getDelta()),
                            b.rowSum(weights, getSum())};
}
