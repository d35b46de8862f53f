// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fa.attention -> the standard algorithm on matrices.

#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/Transforms/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <limits>

namespace fa {
#define GEN_PASS_DEF_DECOMPOSEPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-decompose"

/// The matrix [S,D] of one batch entry and head.
static Value headOf(OpBuilder &b, Location loc, Value tensor,
                    OpFoldResult batch, OpFoldResult head) {
  auto type = cast<RankedTensorType>(tensor.getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, tensor);
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  SmallVector<OpFoldResult> offsets = {batch, head, zero, zero};
  sizes[0] = sizes[1] = one;
  SmallVector<OpFoldResult> strides(4, one);
  auto matrix = RankedTensorType::get(type.getShape().drop_front(2),
                                      type.getElementType());
  return tensor::ExtractSliceOp::create(b, loc, matrix, tensor, offsets, sizes,
                                        strides);
}

/// scale, score, mask: S' from Q K^T, masked elements -inf.
static Value buildScores(OpBuilder &builder, AttentionOp op, Value product,
                         Value batch, Value head) {
  SoftmaxBuilder b(builder, op.getLoc());
  Type f32 = builder.getF32Type();
  return b.elementwise(
      product, f32,
      [&](OpBuilder &nested, Location loc, ValueRange args) -> Value {
        auto constant = [&](double x) -> Value {
          return arith::ConstantOp::create(nested, loc,
                                           nested.getF32FloatAttr(x));
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
      {max, sum}, builder.getF32Type(),
      [](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value log = math::LogOp::create(nested, l, args[1]);
        return arith::AddFOp::create(nested, l, args[0], log);
      });
}

/// The matrices of one batch entry and head: {out} or {out, lse}.
static SmallVector<Value> buildStandardAttention(OpBuilder &builder,
                                                 AttentionOp op, Value batch,
                                                 Value head) {
  Location loc = op.getLoc();
  SoftmaxBuilder b(builder, loc);
  Type f32 = builder.getF32Type(), elementType = op.getElementType();
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

  Value product = b.contractRowsByRows(q, k, b.fill({rows, keys}, f32, 0.0));
  Value scores = buildScores(builder, op, product, batch, head);
  Value max = b.rowMax(
      scores, b.fill({rows}, f32, -std::numeric_limits<double>::infinity()));
  Value weights = b.expDifference(scores, b.finiteOrZero(max));
  Value sum = b.rowSum(weights, b.fill({rows}, f32, 0.0));
  Value probabilities = b.convert(b.divideOrZero(weights, sum), elementType);
  if (!op.getKeep().empty())
    probabilities = b.keep(probabilities, [&](OpBuilder &nested,
                                              ValueRange at) {
      return inlineRegion(nested, op.getKeep(), {batch, head, at[0], at[1]});
    });
  Value out = b.contractRowsByColumns(probabilities, v,
                                      b.fill({rows, valueDim}, f32, 0.0));
  if (std::optional<APFloat> times = op.getTimes())
    out = b.scale(out, times->convertToDouble());
  SmallVector<Value> results = {b.convert(out, elementType)};
  if (op.getLse())
    results.push_back(buildLogSumExp(builder, loc, max, sum));
  return results;
}

static void decompose(IRRewriter &rewriter, AttentionOp op) {
  Location loc = op.getLoc();
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
        tensor::EmptyOp::create(rewriter, loc, shape, rewriter.getF32Type()));
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

namespace {
struct DecomposePass : fa::impl::DecomposePassBase<DecomposePass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    SmallVector<AttentionOp> ops;
    getOperation().walk([&](AttentionOp op) { ops.push_back(op); });
    for (AttentionOp op : ops)
      decompose(rewriter, op);
  }
};
} // namespace
