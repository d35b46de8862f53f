// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Target/ExpandClamp.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;

namespace {
struct ExpandClamp : OpRewritePattern<math::ClampFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::ClampFOp op,
                                PatternRewriter &rewriter) const override {
    Value atLeast = rewriter.createOrFold<arith::MaximumFOp>(
        op.getLoc(), op.getValue(), op.getMin());
    rewriter.replaceOp(op, rewriter.createOrFold<arith::MinimumFOp>(
                               op.getLoc(), atLeast, op.getMax()));
    return success();
  }
};
} // namespace

void fa::populateExpandClamp(RewritePatternSet &patterns) {
  patterns.add<ExpandClamp>(patterns.getContext());
}
