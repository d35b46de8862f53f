// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/FA/Transforms/Utils.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/Transforms/Transforms.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/Patterns.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"

using namespace mlir;

static void addCanonicalizations(RewritePatternSet &patterns) {
  MLIRContext *ctx = patterns.getContext();
  for (StringRef name : {"affine", "arith", "linalg", "scf", "tensor"})
    if (Dialect *dialect = ctx->getLoadedDialect(name)) {
      dialect->getCanonicalizationPatterns(patterns);
      for (RegisteredOperationName op : ctx->getRegisteredOperations())
        if (op.getDialectNamespace() == name)
          op.getCanonicalizationPatterns(patterns, ctx);
    }
}

LogicalResult fa::cleanUp(func::FuncOp func) {
  MLIRContext *ctx = func.getContext();
  RewritePatternSet patterns(ctx);
  addCanonicalizations(patterns);
  memref::populateResolveRankedShapedTypeResultDimsPatterns(patterns);
  tensor::populateMergeConsecutiveInsertExtractSlicePatterns(patterns);
  tensor::populateFoldTensorEmptyPatterns(patterns);
  scf::populateSCFForLoopCanonicalizationPatterns(patterns);
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

std::optional<int64_t> fa::getStaticBound(OpFoldResult size) {
  if (std::optional<int64_t> constant = getConstantIntValue(size))
    return constant;
  auto min = dyn_cast_if_present<affine::AffineMinOp>(
      cast<Value>(size).getDefiningOp());
  if (!min)
    return std::nullopt;
  std::optional<int64_t> bound;
  for (AffineExpr e : min.getMap().getResults())
    if (auto constant = dyn_cast<AffineConstantExpr>(e))
      bound =
          bound ? std::min(*bound, constant.getValue()) : constant.getValue();
  return bound;
}
