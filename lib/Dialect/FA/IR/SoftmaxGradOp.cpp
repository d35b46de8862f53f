// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AttentionCommon.h"

#include "fa/Analysis/NumberRanges.h"
#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa;

void SoftmaxGradOp::build(OpBuilder &builder, OperationState &state,
                          ValueRange inputs, ValueRange grads,
                          FloatAttr times) {
  assert(inputs.size() == kNumInputs && grads.size() >= 3);
  state.addOperands(inputs);
  state.addOperands(grads);
  state.addTypes(grads.getTypes());
  if (times)
    state.getOrAddProperties<Properties>().times = times;
  state.addRegion();
  state.addRegion();
}

YieldAdjointOp SoftmaxGradOp::getAdjointYield() {
  return cast<YieldAdjointOp>(getAdjoint().front().getTerminator());
}

OpOperand &SoftmaxGradOp::getScoresOperand() { return getScoresMutable(); }

Value SoftmaxGradOp::getOperandAlong(unsigned dim) {
  return dim == 0 ? getQuery() : getKey();
}

/// Rows add to the gradients of keys, keys to those of rows, and both to those
/// of captured tensors.
bool SoftmaxGradOp::mustMaskPadding(unsigned dim) { return true; }

bool SoftmaxGradOp::readsProduct(Value yielded) {
  return dependsOn(yielded, getAdjoint().front().getArgument(0));
}

bool SoftmaxGradOp::keepsAll() { return fa::keepsAll(getKeep()); }

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

namespace {
/// What the dimensions of an operand are.
enum Dim : unsigned { Rows, Keys, HeadDim, ValueDim };
struct Shape {
  StringLiteral name;
  unsigned rank;
  Dim dims[2];
};
} // namespace

/// In the operands' order; captured tensors' gradients have dimensions of their
/// own.
static constexpr Shape kShapes[] = {
    {"scores", 2, {Rows, Keys}},        {"products", 2, {Rows, Keys}},
    {"query", 2, {Rows, HeadDim}},      {"key", 2, {Keys, HeadDim}},
    {"value", 2, {Keys, ValueDim}},     {"out_grad", 2, {Rows, ValueDim}},
    {"lse", 1, {Rows, Rows}},           {"delta", 1, {Rows, Rows}},
    {"query_grad", 2, {Rows, HeadDim}}, {"key_grad", 2, {Keys, HeadDim}},
    {"value_grad", 2, {Keys, ValueDim}}};

LogicalResult SoftmaxGradOp::verify() {
  constexpr StringLiteral names[] = {"rows", "keys", "head dim", "value dim"};
  std::pair<StringRef, int64_t> known[4];
  Type element = getQuery().getType().getElementType();
  for (auto [shape, v] : llvm::zip(kShapes, getOperands())) {
    auto type = cast<RankedTensorType>(v.getType());
    if (type.getRank() != shape.rank)
      return emitOpError() << "expected " << shape.name << " of rank "
                           << shape.rank << ", got rank " << type.getRank()
                           << " (fa_softmax_grad_c1)";
    bool isComputed =
        !llvm::is_contained({"query", "key", "value", "out_grad"}, shape.name);
    if (isComputed && failed(verifyComputeType(*this, element, shape.name, type,
                                               "fa_softmax_grad_c1")))
      return failure();
    for (unsigned at = 0; at < shape.rank; ++at) {
      int64_t size = type.getDimSize(at);
      auto &[name, other] = known[shape.dims[at]];
      if (ShapedType::isDynamic(size))
        continue;
      if (name.empty()) {
        name = shape.name;
        other = size;
      } else if (other != size) {
        return emitOpError()
               << "expected " << name << " and " << shape.name
               << " to have the same " << names[shape.dims[at]] << ", got "
               << other << " and " << size << " (fa_softmax_grad_c1)";
      }
    }
  }
  for (Value grad : getCapturedGrads())
    if (failed(verifyComputeType(*this, element, "captured_grads",
                                 grad.getType(), "fa_softmax_grad_c1")))
      return failure();
  return success();
}

LogicalResult SoftmaxGradOp::verifyRegions() {
  Builder b(getContext());
  Type index = b.getIndexType(), real = getComputeType();
  std::tuple<StringRef, Region *, SmallVector<Type>> regions[] = {
      {"keep", &getKeep(), {index, index}},
      {"adjoint", &getAdjoint(), {real, index, index, real}}};
  for (auto &[name, region, types] : regions) {
    Block &block = region->front();
    if (!llvm::equal(block.getArgumentTypes(), types)) {
      InFlightDiagnostic diag = emitOpError() << "expected the " << name
                                              << " region to take (";
      llvm::interleaveComma(types, diag);
      return diag << ") (fa_softmax_grad_c2)";
    }
    if (failed(verifyRegionIsPure(*region, name)))
      return failure();
  }
  Block &keep = getKeep().front(), &adjoint = getAdjoint().front();
  auto kept = keep.empty() ? YieldOp() : dyn_cast<YieldOp>(keep.back());
  if (!kept || !kept.getResult().getType().isInteger(1))
    return emitOpError("expected the keep region to end in fa.yield of an i1 "
                       "(fa_softmax_grad_c2)");
  auto yield = adjoint.empty() ? YieldAdjointOp()
                               : dyn_cast<YieldAdjointOp>(adjoint.back());
  if (!yield)
    return emitOpError("expected the adjoint region to end in fa.yield_adjoint "
                       "(fa_softmax_grad_c2)");
  return verifyAdds(yield, getComputeType(), getCapturedGrads(),
                    "fa_softmax_grad_c2");
}

//===----------------------------------------------------------------------===//
// TilingInterface: (i, j); each element of the block adds to its own rows and
// to its own keys.
//===----------------------------------------------------------------------===//

SmallVector<utils::IteratorType> SoftmaxGradOp::getLoopIteratorTypes() {
  return {utils::IteratorType::reduction, utils::IteratorType::reduction};
}

SmallVector<Range> SoftmaxGradOp::getIterationDomain(OpBuilder &b) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  return {{zero, tensor::getMixedSize(b, getLoc(), getScores(), 0), one},
          {zero, tensor::getMixedSize(b, getLoc(), getScores(), 1), one}};
}

/// The part of an operand that a tile of the loops, over rows and keys, reads
/// or writes.
static void positionOf(OpBuilder &b, SoftmaxGradOp op, OpOperand &operand,
                       ArrayRef<OpFoldResult> offsets,
                       ArrayRef<OpFoldResult> sizes,
                       SmallVector<OpFoldResult> &partOffsets,
                       SmallVector<OpFoldResult> &partSizes) {
  unsigned number = operand.getOperandNumber();
  partSizes = tensor::getMixedSizes(b, op.getLoc(), operand.get());
  partOffsets.assign(partSizes.size(), b.getIndexAttr(0));
  if (number >= std::size(kShapes))
    return;
  for (unsigned at = 0; at < kShapes[number].rank; ++at)
    if (Dim dim = kShapes[number].dims[at]; dim == Rows || dim == Keys) {
      partOffsets[at] = offsets[dim];
      partSizes[at] = sizes[dim];
    }
}

FailureOr<TilingResult>
SoftmaxGradOp::getTiledImplementation(OpBuilder &b,
                                      ArrayRef<OpFoldResult> offsets,
                                      ArrayRef<OpFoldResult> sizes) {
  Location loc = getLoc();
  SmallVector<Operation *> slices;
  SmallVector<Value> parts;
  for (OpOperand &operand : getOperation()->getOpOperands()) {
    SmallVector<OpFoldResult> at, size;
    positionOf(b, *this, operand, offsets, sizes, at, size);
    bool isWhole = operand.getOperandNumber() >= kNumInputs + 3;
    if (isWhole) {
      parts.push_back(operand.get());
      continue;
    }
    SmallVector<OpFoldResult> ones(at.size(), b.getIndexAttr(1));
    auto slice =
        tensor::ExtractSliceOp::create(b, loc, operand.get(), at, size, ones);
    slices.push_back(slice);
    parts.push_back(slice);
  }
  ArrayRef<Value> all(parts);
  auto tiled =
      SoftmaxGradOp::create(b, loc, all.take_front(kNumInputs),
                            all.drop_front(kNumInputs), getTimesAttr());
  cloneShifted(b, loc, getKeep(), tiled.getKeep(), 0, offsets);
  cloneShifted(b, loc, getAdjoint(), tiled.getAdjoint(), 1, offsets);
  return TilingResult{{tiled}, SmallVector<Value>(tiled->getResults()), slices};
}

LogicalResult SoftmaxGradOp::getResultTilePosition(
    OpBuilder &b, unsigned resultNumber, ArrayRef<OpFoldResult> offsets,
    ArrayRef<OpFoldResult> sizes, SmallVector<OpFoldResult> &resultOffsets,
    SmallVector<OpFoldResult> &resultSizes) {
  positionOf(b, *this, getOperation()->getOpOperand(kNumInputs + resultNumber),
             offsets, sizes, resultOffsets, resultSizes);
  return success();
}

//===----------------------------------------------------------------------===//
// The step, as linalg.
//===----------------------------------------------------------------------===//

namespace {
/// Builds the parts of one step.
class StepBuilder {
public:
  StepBuilder(OpBuilder &builder, SoftmaxGradOp op)
      : builder(builder), op(op), b(builder, op.getLoc()),
        real(op.getComputeType()) {}
  SmallVector<Value> build();

private:
  Value weights();
  Value weightGrads(Value weights);
  Value adjoint(Value grads, llvm::function_ref<Value(YieldAdjointOp)> choose);
  Value accumulate(Value grads, unsigned term, Value into);
  OpBuilder &builder;
  SoftmaxGradOp op;
  SoftmaxBuilder b;
  Type real;
};
} // namespace

Value StepBuilder::weights() {
  return b.expDifference(op.getScores(), op.getLse());
}

/// g = P * (times * kept * dP - D).
Value StepBuilder::weightGrads(Value weights) {
  Value product = keepWeights(
      builder, op.getKeep(),
      b.contractRowsByRows(
          op.getOutGrad(), op.getValue(),
          b.fill(tensor::getMixedSizes(builder, op.getLoc(), op.getScores()),
                 real, 0.0)));
  std::optional<double> times;
  if (op.getTimes())
    times = op.getTimes()->convertToDouble();
  return b.elementwise(
      {weights, product, op.getDelta()}, real,
      [&](OpBuilder &nested, Location loc, ValueRange args) -> Value {
        Value x = args[1];
        if (times) {
          Value factor = arith::ConstantOp::create(
              nested, loc, nested.getFloatAttr(real, *times));
          Value less = arith::NegFOp::create(nested, loc, args[2]);
          x = math::FmaOp::create(nested, loc, x, factor, less);
        } else {
          x = arith::SubFOp::create(nested, loc, x, args[2]);
        }
        return arith::MulFOp::create(nested, loc, args[0], x);
      });
}

/// Whether what an adjoint yields is 0 where the gradient of the score is.
static bool isZeroWithGrad(Value yielded, Value grad) {
  NumberRanges ranges;
  ranges.assume(grad, {0, 0, /*isFinite=*/true});
  return ranges.of(yielded).isZero();
}

/// What the adjoint gives of each element; of nothing, as where an element is
/// masked, it is 0.
Value StepBuilder::adjoint(Value grads,
                           llvm::function_ref<Value(YieldAdjointOp)> choose) {
  YieldAdjointOp yield = op.getAdjointYield();
  if (choose(yield) == op.getAdjoint().front().getArgument(3))
    return grads;
  // What is not read is not kept for it.
  SmallVector<Value> read{grads};
  if (op.readsProduct(choose(yield)))
    read.push_back(op.getProducts());
  return b.elementwise(
      read, real,
      [&](OpBuilder &nested, Location loc, ValueRange args) -> Value {
        IRMapping map;
        Block &block = op.getAdjoint().front();
        map.map(block.getArgument(0), args[read.size() - 1]);
        for (unsigned d = 0; d < 2; ++d)
          map.map(block.getArgument(1 + d),
                  linalg::IndexOp::create(nested, loc, d));
        map.map(block.getArgument(3), args[0]);
        for (Operation &inner : block.without_terminator())
          nested.clone(inner, map);
        Value result = map.lookupOrDefault(choose(yield));
        if (isZeroWithGrad(choose(yield), block.getArgument(3)))
          return result;
        // The function's derivative may be infinite there, or NaN.
        Value zero = arith::ConstantOp::create(nested, loc,
                                               nested.getFloatAttr(real, 0));
        Value any = arith::CmpFOp::create(
            nested, loc, arith::CmpFPredicate::UNE, args[0], zero);
        return arith::SelectOp::create(nested, loc, any, result, zero);
      });
}

/// A term of each element, added to its gradient at its place.
Value StepBuilder::accumulate(Value grads, unsigned term, Value into) {
  Location loc = op.getLoc();
  YieldAdjointOp yield = op.getAdjointYield();
  Block &block = op.getAdjoint().front();
  SmallVector<Value> places(yield.getIndicesOf(term));
  Value terms =
      adjoint(grads, [&](YieldAdjointOp y) { return y.getTerms()[term]; });
  auto made = AccumulateOp::create(builder, loc, into.getType(), terms, into,
                                   /*ordered=*/nullptr);
  OpBuilder::InsertionGuard guard(builder);
  Type index = builder.getIndexType();
  Block *body =
      builder.createBlock(&made.getPlaces(), {}, {index, index}, {loc, loc});
  IRMapping map;
  // No place depends on these; what computes it may compute more.
  Value zero =
      arith::ConstantOp::create(builder, loc, builder.getFloatAttr(real, 0));
  map.map(block.getArgument(0), zero);
  map.map(block.getArgument(3), zero);
  for (unsigned d = 0; d < 2; ++d)
    map.map(block.getArgument(1 + d), body->getArgument(d));
  // Of the adjoint only what places are computed of.
  auto needed = [&](Operation *inner) {
    return llvm::any_of(places, [&](Value place) {
      return llvm::any_of(inner->getResults(),
                          [&](Value v) { return dependsOn(place, v); });
    });
  };
  for (Operation &inner : block.without_terminator())
    if (needed(&inner))
      builder.clone(inner, map);
  SmallVector<Value> yielded;
  for (Value place : places)
    yielded.push_back(map.lookupOrDefault(place));
  YieldPlacesOp::create(builder, loc, yielded);
  return made.getResult();
}

SmallVector<Value> StepBuilder::build() {
  Type element = op.getQuery().getType().getElementType();
  Value p = weights();
  Value g = weightGrads(p);
  Value ds = b.convert(
      adjoint(g, [](YieldAdjointOp yield) { return yield.getGrad(); }),
      element);
  Value narrow = keepWeights(builder, op.getKeep(), b.convert(p, element));
  SmallVector<Value> results(3);
  llvm::append_range(results, op.getCapturedGrads());
  // Before the products, which need no g.
  for (auto [term, to] : llvm::enumerate(op.getAdjointYield().getTo()))
    results[3 + to] = accumulate(g, term, results[3 + to]);
  // The queries' last: on a GPU other warps have made what it needs of dS while
  // the others are computed.
  results[2] =
      b.contractColumnsByColumns(narrow, op.getOutGrad(), op.getValueGrad());
  results[1] = b.contractColumnsByColumns(ds, op.getQuery(), op.getKeyGrad());
  results[0] = b.contractRowsByColumns(ds, op.getKey(), op.getQueryGrad());
  return results;
}

FailureOr<SmallVector<Value>>
SoftmaxGradOp::decomposeOperation(OpBuilder &builder) {
  return StepBuilder(builder, *this).build();
}
