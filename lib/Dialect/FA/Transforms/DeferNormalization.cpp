// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Carry the numerator, divide once after the loop.

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
#include "mlir/IR/IRMapping.h"

namespace fa {
#define GEN_PASS_DEF_DEFERNORMALIZATIONPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-defer-normalization"

namespace {
/// A merge whose sum and output a loop carries for it alone.
struct CarriedMerge {
  scf::ForOp loop;
  OnlineSoftmaxOp merge;
  unsigned sum, output;
};
} // namespace

static std::optional<CarriedMerge> matchCarriedMerge(OnlineSoftmaxOp merge) {
  auto loop = dyn_cast<scf::ForOp>(merge->getParentOp());
  BlockArgument sum = matchCarried(loop, merge.getSum(), merge.getNewSum()),
                output = matchCarried(loop, merge.getAcc(), merge.getNewAcc());
  if (merge.getUnnormalized() || !sum || !output || !output.hasOneUse() ||
      !merge.getNewAcc().hasOneUse())
    return std::nullopt;
  unsigned first = loop.getNumInductionVars();
  return CarriedMerge{loop, merge, sum.getArgNumber() - first,
                      output.getArgNumber() - first};
}

/// Carries n = l * o instead of o, and divides after the loop: o = n / l.
static void deferDivision(IRRewriter &rewriter, const CarriedMerge &match) {
  scf::ForOp loop = match.loop;
  rewriter.setInsertionPoint(loop);
  Value init = loop.getInitArgs()[match.output];
  std::optional<APFloat> start = matchFill(init);
  if (!start || !start->isZero()) {
    SoftmaxBuilder before(rewriter, loop.getLoc());
    init = before.multiply(init, loop.getInitArgs()[match.sum]);
    loop.getInitArgsMutable()[match.output].assign(init);
  }
  OnlineSoftmaxOp merge = match.merge;
  rewriter.modifyOpInPlace(merge, [&] { merge.setUnnormalized(true); });

  rewriter.setInsertionPointAfter(loop);
  SoftmaxBuilder after(rewriter, loop.getLoc());
  Value numerator = loop.getResult(match.output);
  Value quotient = after.divideOrZero(numerator, loop.getResult(match.sum));
  rewriter.replaceUsesWithIf(numerator, quotient, [&](OpOperand &use) {
    return use.getOwner() != quotient.getDefiningOp() &&
           !isa<tensor::DimOp>(use.getOwner());
  });
}

namespace {
struct DeferNormalizationPass
    : fa::impl::DeferNormalizationPassBase<DeferNormalizationPass> {
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    IRRewriter rewriter(&getContext());
    SmallVector<OnlineSoftmaxOp> merges;
    func.walk([&](OnlineSoftmaxOp op) { merges.push_back(op); });
    for (OnlineSoftmaxOp merge : merges)
      if (auto match = matchCarriedMerge(merge))
        deferDivision(rewriter, *match);
    if (failed(cleanUp(func)))
      signalPassFailure();
  }
};
} // namespace
