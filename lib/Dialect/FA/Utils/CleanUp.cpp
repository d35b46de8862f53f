// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/FA/Utils/CleanUp.h"

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/IR/StepExpansion.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/Transforms/Transforms.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"

using namespace mlir;
using namespace fa;

/// Upstream's canonicalisations, except those of loops: a loop of one step
/// keeps its place, so that the structure of tiles is the same at every shape.
static void addCanonicalizations(RewritePatternSet &patterns) {
  MLIRContext *ctx = patterns.getContext();
  for (StringRef name : {"affine", "arith", "linalg", "tensor"})
    if (Dialect *dialect = ctx->getLoadedDialect(name))
      dialect->getCanonicalizationPatterns(patterns);
  for (RegisteredOperationName op : ctx->getRegisteredOperations())
    if (llvm::is_contained({"affine", "arith", "linalg", "tensor"},
                           op.getDialectNamespace()))
      op.getCanonicalizationPatterns(patterns, ctx);
  scf::IfOp::getCanonicalizationPatterns(patterns, ctx);
}

namespace {
/// A slice of a constant tensor is a smaller constant tensor.
struct SliceOfFill : OpRewritePattern<tensor::ExtractSliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(tensor::ExtractSliceOp op,
                                PatternRewriter &rewriter) const override {
    auto fill = op.getSource().getDefiningOp<linalg::FillOp>();
    if (!fill || op.getSourceType().getRank() != op.getType().getRank())
      return rewriter.notifyMatchFailure(op, "not a slice of a fill");
    Value empty =
        tensor::EmptyOp::create(rewriter, op.getLoc(), op.getMixedSizes(),
                                op.getType().getElementType());
    rewriter.replaceOpWithNewOp<linalg::FillOp>(op, fill.getInputs(), empty);
    return success();
  }
};

/// A loop that only writes into what it carries keeps its sizes.
struct SizeOfLoopResult : OpRewritePattern<tensor::DimOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(tensor::DimOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.getSource().getDefiningOp<scf::ForOp>())
      return rewriter.notifyMatchFailure(op, "not of a loop's result");
    Value source = getShapeSource(op.getSource());
    if (source == op.getSource())
      return rewriter.notifyMatchFailure(op, "sizes may change");
    rewriter.modifyOpInPlace(op, [&] { op.getSourceMutable().assign(source); });
    return success();
  }
};
} // namespace

LogicalResult fa::cleanUp(func::FuncOp func) {
  MLIRContext *ctx = func.getContext();
  if (failed(verifyDims(func)))
    return failure();
  RewritePatternSet patterns(ctx);
  addCanonicalizations(patterns);
  memref::populateResolveRankedShapedTypeResultDimsPatterns(patterns);
  tensor::populateMergeConsecutiveInsertExtractSlicePatterns(patterns);
  tensor::populateFoldTensorEmptyPatterns(patterns);
  patterns.add<SliceOfFill, SizeOfLoopResult>(ctx);
  FrozenRewritePatternSet frozen(std::move(patterns));
  if (failed(applyPatternsGreedily(func, frozen)))
    return func.emitError("clean-up did not converge");
  // Not out of scf.forall: what a block computes for itself stays its own.
  func.walk<WalkOrder::PostOrder>([](scf::ForOp loop) {
    moveLoopInvariantCode(cast<LoopLikeOpInterface>(loop.getOperation()));
  });
  IRRewriter rewriter(ctx);
  DominanceInfo dominance(func);
  eliminateCommonSubExpressions(rewriter, dominance, func);
  if (failed(applyPatternsGreedily(func, frozen)))
    return func.emitError("clean-up did not converge");
  return success();
}

SmallVector<Operation *> fa::collectSoftmaxes(Operation *root) {
  SmallVector<Operation *> steps;
  root->walk([&](Operation *op) {
    if (isa<OnlineSoftmaxOp, SpeculatedSoftmaxOp>(op))
      steps.push_back(op);
  });
  return steps;
}

void fa::expandSoftmax(RewriterBase &rewriter, Operation *step,
                       StepExpansion &target) {
  rewriter.setInsertionPoint(step);
  auto merge = dyn_cast<OnlineSoftmaxOp>(step);
  rewriter.replaceOp(
      step, merge ? merge.expand(rewriter, target)
                  : cast<SpeculatedSoftmaxOp>(step).expand(rewriter, target));
}

LogicalResult fa::expandSoftmaxes(func::FuncOp func) {
  SmallVector<Operation *> steps = collectSoftmaxes(func);
  if (steps.empty())
    return success();
  IRRewriter rewriter(func.getContext());
  StepExpansion plain;
  for (Operation *step : steps)
    expandSoftmax(rewriter, step, plain);
  return cleanUp(func);
}
