// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps of softmax and of its gradient as products and what is computed between
// them.

#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Dialect/FA/Transforms/Utils.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

namespace fa {
#define GEN_PASS_DEF_EXPANDSTEPSPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-expand-steps"

//===----------------------------------------------------------------------===//
// Sums that a grid shares
//===----------------------------------------------------------------------===//

/// init + A B, written where `init` was read, is A B added there.
static void addInPlace(RewriterBase &rewriter, tensor::InsertSliceOp insert) {
  Value sum = insert.getSource();
  if (auto clip = sum.getDefiningOp<tensor::ExtractSliceOp>())
    sum = clip.getSource();
  auto product = sum.getDefiningOp<linalg::GenericOp>();
  if (!product || !isAnyProduct(product) || !sum.hasOneUse())
    return;
  tensor::ExtractSliceOp read = sliceBehindPadding(product.getDpsInits()[0]);
  if (!read || read.getSource() != insert.getDest() ||
      !isSameSlice(read, insert))
    return;
  Location loc = product.getLoc();
  rewriter.setInsertionPoint(product);
  Value zeros = SoftmaxBuilder(rewriter, loc)
                    .fill(tensor::getMixedSizes(rewriter, loc, sum),
                          getElementTypeOrSelf(sum), 0.0);
  rewriter.modifyOpInPlace(product,
                           [&] { product.getDpsInitsMutable()[0].set(zeros); });
  rewriter.setInsertionPoint(insert);
  rewriter.replaceOpWithNewOp<AccumulateSliceOp>(
      insert, insert.getSource(), insert.getDest(), insert.getMixedOffsets(),
      insert.getMixedSizes(), insert.getMixedStrides());
}

namespace {
struct ExpandStepsPass : fa::impl::ExpandStepsPassBase<ExpandStepsPass> {
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    IRRewriter rewriter(&getContext());
    if (failed(expandSoftmaxes(func)))
      return signalPassFailure();
    SmallVector<linalg::AggregatedOpInterface> steps;
    func.walk([&](Operation *op) {
      if (isa<SoftmaxGradOp, SoftmaxDeltaOp>(op))
        steps.push_back(cast<linalg::AggregatedOpInterface>(op));
    });
    for (linalg::AggregatedOpInterface step : steps) {
      rewriter.setInsertionPoint(step);
      FailureOr<SmallVector<Value>> values = step.decomposeOperation(rewriter);
      if (failed(values)) {
        step.emitOpError("has no expansion");
        return signalPassFailure();
      }
      rewriter.replaceOp(step, *values);
    }
    SmallVector<tensor::InsertSliceOp> inserts;
    func.walk([&](scf::ForallOp grid) {
      if (addsUp(grid))
        grid.walk([&](tensor::InsertSliceOp op) { inserts.push_back(op); });
    });
    for (tensor::InsertSliceOp insert : inserts)
      addInPlace(rewriter, insert);
    if (failed(cleanUp(func)))
      signalPassFailure();
  }
};
} // namespace
