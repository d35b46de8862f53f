// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fa.attention and its gradient -> the standard algorithm on matrices.

#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/Transforms/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"

#include <limits>

namespace fa {
#define GEN_PASS_DEF_DECOMPOSEPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-decompose"

/// The matrix [S,D] of one batch entry and head, or its vector [S].
static Value headOf(OpBuilder &b, Location loc, Value tensor,
                    OpFoldResult batch, OpFoldResult head) {
  auto type = cast<RankedTensorType>(tensor.getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, tensor);
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  SmallVector<OpFoldResult> offsets(sizes.size(), zero);
  offsets[0] = batch;
  offsets[1] = head;
  sizes[0] = sizes[1] = one;
  SmallVector<OpFoldResult> strides(sizes.size(), one);
  auto matrix = RankedTensorType::get(type.getShape().drop_front(2),
                                      type.getElementType());
  return tensor::ExtractSliceOp::create(b, loc, matrix, tensor, offsets, sizes,
                                        strides);
}

/// scale, score, mask: S' from Q K^T, masked elements -inf.
template <typename OpTy>
static Value buildScores(OpBuilder &builder, OpTy op, Value product,
                         Value batch, Value head) {
  SoftmaxBuilder b(builder, op.getLoc());
  Type real = op.getComputeType();
  return b.elementwise(
      product, real,
      [&](OpBuilder &nested, Location loc, ValueRange args) -> Value {
        auto constant = [&](double x) -> Value {
          return arith::ConstantOp::create(nested, loc,
                                           nested.getFloatAttr(real, x));
        };
        Value score = arith::MulFOp::create(nested, loc, args[0],
                                            constant(op.getScaleOrDefault()));
        if (op.getScore().empty() && op.getMask().empty())
          return score;
        Value i = linalg::IndexOp::create(nested, loc, 0);
        Value j = linalg::IndexOp::create(nested, loc, 1);
        if (!op.getScore().empty())
          score =
              inlineRegion(nested, op.getScore(), {score, batch, head, i, j});
        if (op.getMask().empty())
          return score;
        Value seen = inlineRegion(nested, op.getMask(), {batch, head, i, j});
        Value nothing = constant(-std::numeric_limits<double>::infinity());
        return arith::SelectOp::create(nested, loc, seen, score, nothing);
      });
}

/// m + ln l, and -inf for a row that has seen nothing.
static Value buildLogSumExp(OpBuilder &builder, Location loc, Value max,
                            Value sum) {
  SoftmaxBuilder b(builder, loc);
  return b.elementwise(
      {max, sum}, getElementTypeOrSelf(max),
      [](OpBuilder &nested, Location l, ValueRange args) -> Value {
        // A sum of weights is no denormal number.
        Value log = math::LogOp::create(
            nested, l, args[1],
            arith::FastMathFlagsAttr::get(nested.getContext(),
                                          arith::FastMathFlags::afn));
        return arith::AddFOp::create(nested, l, args[0], log);
      });
}

/// The matrices of one batch entry and head: {out} or {out, lse}.
static SmallVector<Value> buildStandardAttention(OpBuilder &builder,
                                                 AttentionOp op, Value batch,
                                                 Value head) {
  Location loc = op.getLoc();
  SoftmaxBuilder b(builder, loc);
  Type real = op.getComputeType(), elementType = op.getElementType();
  OpFoldResult keyHead = head;
  if (op.getGroupSize() != 1)
    keyHead = affine::makeComposedFoldedAffineApply(
        builder, loc, builder.getAffineDimExpr(0).floorDiv(op.getGroupSize()),
        {head});
  Value q = headOf(builder, loc, op.getQuery(), batch, head);
  Value k = headOf(builder, loc, op.getKey(), batch, keyHead);
  Value v = headOf(builder, loc, op.getValue(), batch, keyHead);
  OpFoldResult rows = tensor::getMixedSize(builder, loc, q, 0);
  OpFoldResult keys = tensor::getMixedSize(builder, loc, k, 0);
  OpFoldResult valueDim = tensor::getMixedSize(builder, loc, v, 1);

  Value product = b.contractRowsByRows(q, k, b.fill({rows, keys}, real, 0.0));
  Value scores = buildScores(builder, op, product, batch, head);
  Value max = b.rowMax(
      scores, b.fill({rows}, real, -std::numeric_limits<double>::infinity()));
  Value weights = b.expDifference(scores, b.finiteOrZero(max));
  Value sum = b.rowSum(weights, b.fill({rows}, real, 0.0));
  Value probabilities = b.convert(b.divideOrZero(weights, sum), elementType);
  if (!op.getKeep().empty())
    probabilities = b.keep(probabilities, [&](OpBuilder &nested,
                                              ValueRange at) {
      return inlineRegion(nested, op.getKeep(), {batch, head, at[0], at[1]});
    });
  Value out = b.contractRowsByColumns(probabilities, v,
                                      b.fill({rows, valueDim}, real, 0.0));
  if (std::optional<APFloat> times = op.getTimes())
    out = b.scale(out, times->convertToDouble());
  SmallVector<Value> results = {b.convert(out, elementType)};
  if (op.getLse())
    results.push_back(buildLogSumExp(builder, loc, max, sum));
  return results;
}

static void decompose(IRRewriter &rewriter, AttentionOp op) {
  Location loc = op.getLoc();
  CustomGradientOp::takeValues(rewriter, op);
  op.clampCapturedIndices(rewriter);
  rewriter.setInsertionPoint(op);
  SmallVector<Value> inits;
  SmallVector<OpFoldResult> shape =
      tensor::getMixedSizes(rewriter, loc, op.getQuery());
  SmallVector<OpFoldResult> grid = {shape[0], shape[1]};
  shape[3] = tensor::getMixedSize(rewriter, loc, op.getValue(), 3);
  inits.push_back(
      tensor::EmptyOp::create(rewriter, loc, shape, op.getElementType()));
  if (op.getLse()) {
    shape.pop_back();
    inits.push_back(
        tensor::EmptyOp::create(rewriter, loc, shape, op.getComputeType()));
  }
  auto forall = scf::ForallOp::create(rewriter, loc, grid, inits,
                                      /*mapping=*/std::nullopt);
  Value batch = forall.getInductionVar(0), head = forall.getInductionVar(1);
  rewriter.setInsertionPoint(forall.getTerminator());
  SmallVector<Value> results =
      buildStandardAttention(rewriter, op, batch, head);
  // in_parallel admits only insertions: compute the sizes before it.
  for (auto [matrix, into] : llvm::zip(results, forall.getRegionIterArgs())) {
    SmallVector<OpFoldResult> sizes =
        tensor::getMixedSizes(rewriter, loc, into);
    OpFoldResult zero = rewriter.getIndexAttr(0),
                 one = rewriter.getIndexAttr(1);
    SmallVector<OpFoldResult> offsets(sizes.size(), zero);
    SmallVector<OpFoldResult> strides(sizes.size(), one);
    offsets[0] = batch;
    offsets[1] = head;
    sizes[0] = sizes[1] = one;
    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPointToEnd(forall.getTerminator().getBody());
    tensor::ParallelInsertSliceOp::create(rewriter, loc, matrix, into, offsets,
                                          sizes, strides);
  }
  rewriter.replaceOp(op, forall.getResults());
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

namespace {
/// The gradients of one fa.attention_backward, in three steps: of all rows D
/// and what their scores are less by; loops over batch and key heads, and in
/// them over the query heads that share one, which sum in the compute type; and
/// the sums' scale and type.
class BackwardBuilder {
public:
  BackwardBuilder(RewriterBase &rewriter, AttentionBackwardOp op)
      : r(rewriter), op(op), loc(op.getLoc()), b(rewriter, op.getLoc()),
        real(op.getComputeType()),
        sumsScores(op.getElementType() != real && op.addsRowsUp()) {}
  void rewrite();

private:
  /// What rows have, each [B,Hq,Sq]: D, and the log-sum-exp where it is finite.
  struct Rows {
    Value delta, lse;
  };
  /// For each batch entry and query head what `build` makes of them, of a type
  /// and rank each.
  SmallVector<Value>
  forQueryHeads(ArrayRef<std::pair<Type, unsigned>> made,
                llvm::function_ref<SmallVector<Value>(Value, Value)> build);
  Value buildDelta(Value batch, Value head);
  Value buildDeltaOfScores(Value batch, Value head);
  Value buildProduct(Value batch, Value head, OpFoldResult keyHead);
  void buildKeep(Region &region, Value batch, Value head);
  scf::ForallOp buildSums(Rows rows);
  /// Of a key head: the sums for its queries [G,Sq,D], in `queryGrads`, for its
  /// keys and values, and the captured tensors' so far.
  SmallVector<Value> buildKeyHead(Value batch, Value keyHead, Rows rows,
                                  Value queryGrads, ValueRange captured);
  /// One query head's part: of its queries' sums, and the others so far.
  SmallVector<Value> buildHead(Value batch, Value head, OpFoldResult keyHead,
                               Rows rows, ValueRange sums);
  SoftmaxGradOp buildStep(ArrayRef<Value> inputs, ValueRange sums, Value batch,
                          Value head);
  /// The place of a key head's part in a whole gradient.
  void placeOf(unsigned n, Value batch, Value keyHead,
               SmallVector<OpFoldResult> &offsets,
               SmallVector<OpFoldResult> &sizes);
  Value index(int64_t x) { return arith::ConstantIndexOp::create(r, loc, x); }
  bool addsToCaptured() {
    YieldAdjointOp yield = op.getAdjointYield();
    return yield && !yield.getTerms().empty();
  }

  RewriterBase &r;
  AttentionBackwardOp op;
  Location loc;
  SoftmaxBuilder b;
  Type real;
  /// Whether D is summed from the scores, since the output is rounded and
  /// gradients keep D's error (fa.softmax_delta).
  bool sumsScores;
};
} // namespace

SmallVector<Value> BackwardBuilder::forQueryHeads(
    ArrayRef<std::pair<Type, unsigned>> made,
    llvm::function_ref<SmallVector<Value>(Value, Value)> build) {
  SmallVector<OpFoldResult> shape =
      tensor::getMixedSizes(r, loc, op.getQuery());
  SmallVector<Value> wholes;
  for (auto [element, rank] : made)
    wholes.push_back(tensor::EmptyOp::create(
        r, loc, ArrayRef<OpFoldResult>(shape).take_front(rank), element));
  auto forall = scf::ForallOp::create(
      r, loc, ArrayRef<OpFoldResult>{shape[0], shape[1]}, wholes,
      /*mapping=*/std::nullopt);
  OpBuilder::InsertionGuard guard(r);
  r.setInsertionPoint(forall.getTerminator());
  Value batch = forall.getInductionVar(0), head = forall.getInductionVar(1);
  SmallVector<Value> parts = build(batch, head);
  r.setInsertionPointToEnd(forall.getTerminator().getBody());
  for (auto [part, whole] : llvm::zip(parts, forall.getRegionIterArgs())) {
    unsigned rank = cast<RankedTensorType>(whole.getType()).getRank();
    SmallVector<OpFoldResult> offsets(rank, r.getIndexAttr(0)),
        ones(rank, r.getIndexAttr(1)),
        sizes(shape.begin(), shape.begin() + rank);
    offsets[0] = batch;
    offsets[1] = head;
    sizes[0] = sizes[1] = r.getIndexAttr(1);
    tensor::ParallelInsertSliceOp::create(r, loc, part, whole, offsets, sizes,
                                          ones);
  }
  return SmallVector<Value>(forall.getResults());
}

/// Q K^T of one head.
Value BackwardBuilder::buildProduct(Value batch, Value head,
                                    OpFoldResult keyHead) {
  Value q = headOf(r, loc, op.getQuery(), batch, head);
  Value k = headOf(r, loc, op.getKey(), batch, keyHead);
  return b.contractRowsByRows(q, k,
                              b.fill({tensor::getMixedSize(r, loc, q, 0),
                                      tensor::getMixedSize(r, loc, k, 0)},
                                     real, 0.0));
}

/// A step's keep region, of one head.
void BackwardBuilder::buildKeep(Region &region, Value batch, Value head) {
  OpBuilder::InsertionGuard guard(r);
  Type index = r.getIndexType();
  Block *keep = r.createBlock(&region, {}, {index, index}, {loc, loc});
  Value kept;
  if (op.getKeep().empty())
    kept = arith::ConstantIntOp::create(r, loc, 1, 1);
  else
    kept =
        inlineRegion(r, op.getKeep(),
                     {batch, head, keep->getArgument(0), keep->getArgument(1)});
  YieldOp::create(r, loc, kept);
}

/// D = rowsum(P * dP) / rowsum(P), from the scores, in the compute type.
Value BackwardBuilder::buildDeltaOfScores(Value batch, Value head) {
  OpFoldResult keyHead = head;
  if (op.getGroupSize() != 1)
    keyHead = affine::makeComposedFoldedAffineApply(
        r, loc, r.getAffineDimExpr(0).floorDiv(op.getGroupSize()), {head});
  Value product = buildProduct(batch, head, keyHead);
  Value scores = buildScores(r, op, product, batch, head);
  Value zeros = b.fill({tensor::getMixedSize(r, loc, scores, 0)}, real, 0.0);
  auto step = SoftmaxDeltaOp::create(
      r, loc,
      ValueRange{scores, headOf(r, loc, op.getValue(), batch, keyHead),
                 headOf(r, loc, op.getOutGrad(), batch, head),
                 b.finiteOrZero(headOf(r, loc, op.getLse(), batch, head))},
      ValueRange{zeros, zeros}, op.getTimesAttr());
  buildKeep(step.getKeep(), batch, head);
  return b.divideOrZero(step.getNewDelta(), step.getNewSum());
}

/// D = rowsum(dO * O) or the same from the scores, less the log-sum-exp's
/// gradient.
Value BackwardBuilder::buildDelta(Value batch, Value head) {
  Value delta;
  if (sumsScores) {
    delta = buildDeltaOfScores(batch, head);
  } else {
    Value outGrad = headOf(r, loc, op.getOutGrad(), batch, head);
    Value out = headOf(r, loc, op.getOut(), batch, head);
    Value products = b.multiply(b.convert(outGrad, real), b.convert(out, real));
    OpFoldResult rows = tensor::getMixedSize(r, loc, out, 0);
    delta = b.rowSum(products, b.fill({rows}, real, 0.0));
  }
  if (!op.getLseGrad())
    return delta;
  Value lseGrad = headOf(r, loc, op.getLseGrad(), batch, head);
  return b.elementwise(
      {delta, lseGrad}, real,
      [](OpBuilder &nested, Location l, ValueRange args) -> Value {
        return arith::SubFOp::create(nested, l, args[0], args[1]);
      });
}

SoftmaxGradOp BackwardBuilder::buildStep(ArrayRef<Value> inputs,
                                         ValueRange sums, Value batch,
                                         Value head) {
  auto step = SoftmaxGradOp::create(r, loc, inputs, sums, op.getTimesAttr());
  OpBuilder::InsertionGuard guard(r);
  buildKeep(step.getKeep(), batch, head);
  Type index = r.getIndexType();
  Block *adjoint = r.createBlock(
      &step.getAdjoint(), {}, {real, index, index, real}, {loc, loc, loc, loc});
  Value g = adjoint->getArgument(3);
  if (op.getAdjoint().empty()) {
    YieldAdjointOp::create(r, loc, g, {}, {}, ArrayRef<int64_t>{});
    return step;
  }
  Value score = arith::MulFOp::create(
      r, loc, adjoint->getArgument(0),
      arith::ConstantOp::create(r, loc,
                                r.getFloatAttr(real, op.getScaleOrDefault())));
  IRMapping map;
  map.map(op.getAdjoint().front().getArguments(),
          ValueRange{score, batch, head, adjoint->getArgument(1),
                     adjoint->getArgument(2), g});
  for (Operation &inner : op.getAdjoint().front())
    r.clone(inner, map);
  return step;
}

SmallVector<Value> BackwardBuilder::buildHead(Value batch, Value head,
                                              OpFoldResult keyHead, Rows rows,
                                              ValueRange sums) {
  Value q = headOf(r, loc, op.getQuery(), batch, head);
  Value k = headOf(r, loc, op.getKey(), batch, keyHead);
  Value v = headOf(r, loc, op.getValue(), batch, keyHead);
  Value outGrad = headOf(r, loc, op.getOutGrad(), batch, head);
  Value product = buildProduct(batch, head, keyHead);
  Value scores = buildScores(r, op, product, batch, head);
  SoftmaxGradOp step = buildStep({scores, product, q, k, v, outGrad,
                                  headOf(r, loc, rows.lse, batch, head),
                                  headOf(r, loc, rows.delta, batch, head)},
                                 sums, batch, head);
  return SmallVector<Value>(step->getResults());
}

SmallVector<Value> BackwardBuilder::buildKeyHead(Value batch, Value keyHead,
                                                 Rows rows, Value queryGrads,
                                                 ValueRange captured) {
  Type element = op.getElementType();
  OpFoldResult keys = tensor::getMixedSize(r, loc, op.getKey(), 2),
               queries = tensor::getMixedSize(r, loc, op.getQuery(), 2),
               dim = r.getIndexAttr(op.getHeadDim()),
               valueDim = r.getIndexAttr(op.getValueDim()),
               one = r.getIndexAttr(1), zero = r.getIndexAttr(0);
  SmallVector<Value> sums = {queryGrads, b.fill({keys, dim}, real, 0.0),
                             b.fill({keys, valueDim}, real, 0.0)};
  llvm::append_range(sums, captured);
  SmallVector<Value> results;
  int64_t group = op.getGroupSize();
  if (group == 1) {
    results = buildHead(batch, keyHead, keyHead, rows, sums);
  } else {
    auto loop =
        scf::ForOp::create(r, loc, index(0), index(group), index(1), sums);
    OpBuilder::InsertionGuard guard(r);
    r.setInsertionPointToStart(loop.getBody());
    AffineExpr x, y;
    bindDims(r.getContext(), x, y);
    Value number = loop.getInductionVar();
    Value head = affine::AffineApplyOp::create(r, loc, x * group + y,
                                               ValueRange{keyHead, number});
    SmallVector<OpFoldResult> offsets = {number, zero, zero},
                              shape = {one, queries, dim}, ones(3, one);
    SmallVector<Value> carried(loop.getRegionIterArgs());
    auto type = cast<RankedTensorType>(queryGrads.getType());
    carried[0] = tensor::ExtractSliceOp::create(
        r, loc,
        RankedTensorType::get(type.getShape().drop_front(),
                              type.getElementType()),
        carried[0], offsets, shape, ones);
    SmallVector<Value> parts = buildHead(batch, head, keyHead, rows, carried);
    parts[0] = tensor::InsertSliceOp::create(
        r, loc, parts[0], loop.getRegionIterArg(0), offsets, shape, ones);
    scf::YieldOp::create(r, loc, parts);
    results = SmallVector<Value>(loop.getResults());
  }
  results[1] = b.convert(b.scale(results[1], op.getScaleOrDefault()), element);
  if (op.getTimes())
    results[2] = b.scale(results[2], op.getTimes()->convertToDouble());
  results[2] = b.convert(results[2], element);
  return results;
}

void BackwardBuilder::placeOf(unsigned n, Value batch, Value keyHead,
                              SmallVector<OpFoldResult> &offsets,
                              SmallVector<OpFoldResult> &sizes) {
  OpFoldResult zero = r.getIndexAttr(0);
  sizes = tensor::getMixedSizes(r, loc, op->getOperand(n));
  offsets = {batch, keyHead, zero, zero};
  sizes[0] = sizes[1] = r.getIndexAttr(1);
  int64_t group = op.getGroupSize();
  if (n == 0 && group != 1) {
    offsets[1] = affine::makeComposedFoldedAffineApply(
        r, loc, r.getAffineDimExpr(0) * group, {OpFoldResult(keyHead)});
    sizes[1] = r.getIndexAttr(group);
  }
}

/// The sums over rows and keys: for queries, keys and values, each part by
/// itself, and for captured tensors, to which every head adds.
scf::ForallOp BackwardBuilder::buildSums(Rows rows) {
  Type element = op.getElementType();
  SmallVector<Value> wholes;
  for (unsigned n = 0; n < 3; ++n)
    wholes.push_back(tensor::EmptyOp::create(
        r, loc, tensor::getMixedSizes(r, loc, op->getOperand(n)),
        n == 0 ? real : element));
  if (addsToCaptured())
    for (Value tensor : op.getWrt())
      wholes.push_back(
          b.fill(tensor::getMixedSizes(r, loc, tensor), real, 0.0));
  OpFoldResult batches = tensor::getMixedSize(r, loc, op.getQuery(), 0),
               heads = r.getIndexAttr(op.getNumKeyHeads());
  auto forall =
      scf::ForallOp::create(r, loc, ArrayRef<OpFoldResult>{batches, heads},
                            wholes, /*mapping=*/std::nullopt);
  Value batch = forall.getInductionVar(0), head = forall.getInductionVar(1);
  ArrayRef<BlockArgument> shared = forall.getRegionIterArgs();
  OpBuilder::InsertionGuard guard(r);
  r.setInsertionPoint(forall.getTerminator());
  SmallVector<OpFoldResult> offsets, sizes, ones(4, r.getIndexAttr(1));
  // The queries' sums begin at 0 where they will lie.
  placeOf(0, batch, head, offsets, sizes);
  auto type = cast<RankedTensorType>(shared[0].getType());
  auto part = RankedTensorType::get(
      type.getShape().drop_front(op.getGroupSize() == 1 ? 2 : 1), real);
  if (part.getRank() == 3)
    part =
        part.clone({op.getGroupSize(), part.getDimSize(1), part.getDimSize(2)});
  Value start = tensor::ExtractSliceOp::create(r, loc, part, shared[0], offsets,
                                               sizes, ones);
  Value zero = arith::ConstantOp::create(r, loc, r.getFloatAttr(real, 0));
  start = linalg::FillOp::create(r, loc, zero, start).getResult(0);
  SmallVector<Value> parts = buildKeyHead(
      batch, head, rows, start, SmallVector<Value>(shared.drop_front(3)));
  for (auto [n, part] : llvm::enumerate(parts)) {
    if (n < 3)
      placeOf(n, batch, head, offsets, sizes);
    OpBuilder::InsertionGuard inner(r);
    r.setInsertionPointToEnd(forall.getTerminator().getBody());
    if (n < 3)
      tensor::ParallelInsertSliceOp::create(r, loc, part, shared[n], offsets,
                                            sizes, ones);
    else
      ParallelAccumulateOp::create(r, loc, part, shared[n]);
  }
  return forall;
}

void BackwardBuilder::rewrite() {
  CustomGradientOp::takeValues(r, op);
  op.clampCapturedIndices(r);
  r.setInsertionPoint(op);
  // Here once, and not in each block of keys: all of a row that has seen
  // nothing, whose log-sum-exp is -inf, are scores of -inf.
  SmallVector<Value> rows =
      forQueryHeads({{real, 3}, {real, 3}}, [&](Value batch, Value head) {
        Value lse = headOf(r, loc, op.getLse(), batch, head);
        return SmallVector<Value>{buildDelta(batch, head), b.finiteOrZero(lse)};
      });
  scf::ForallOp sums = buildSums({rows[0], rows[1]});
  SmallVector<Value> results(sums.getResults());
  // Where the sums are the gradient there is nothing to do.
  if (op.getScaleOrDefault() != 1 || op.getElementType() != real)
    results[0] =
        forQueryHeads({{op.getElementType(), 4}}, [&](Value batch, Value head) {
          Value sum = headOf(r, loc, sums.getResult(0), batch, head);
          return SmallVector<Value>{b.convert(
              b.scale(sum, op.getScaleOrDefault()), op.getElementType())};
        })[0];
  if (!addsToCaptured())
    for (Value tensor : op.getWrt())
      results.push_back(
          b.fill(tensor::getMixedSizes(r, loc, tensor), real, 0.0));
  r.replaceOp(op, results);
}

namespace {
struct DecomposePass : fa::impl::DecomposePassBase<DecomposePass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    SmallVector<AttentionOp> ops;
    getOperation().walk([&](AttentionOp op) { ops.push_back(op); });
    for (AttentionOp op : ops)
      decompose(rewriter, op);
    SmallVector<AttentionBackwardOp> gradients;
    getOperation().walk(
        [&](AttentionBackwardOp op) { gradients.push_back(op); });
    for (AttentionBackwardOp op : gradients)
      BackwardBuilder(rewriter, op).rewrite();
  }
};
} // namespace
