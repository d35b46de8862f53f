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

/// Replaces every merge by the linalg ops it consists of.
static LogicalResult expandMerges(IRRewriter &rewriter, func::FuncOp func) {
  SmallVector<OnlineSoftmaxOp> merges;
  func.walk([&](OnlineSoftmaxOp op) { merges.push_back(op); });
  for (OnlineSoftmaxOp merge : merges) {
    rewriter.setInsertionPoint(merge);
    FailureOr<SmallVector<Value>> expanded = merge.decomposeOperation(rewriter);
    if (failed(expanded))
      return merge.emitOpError("could not be expanded");
    rewriter.replaceOp(merge, *expanded);
  }
  return success();
}

namespace {
/// The recurrence `o' = (o * (l * alpha) + ...) / l'` of a loop's carried
/// values: `quotient` is o', `carried` is o * (l * alpha).
struct NormalizedRecurrence {
  unsigned output, sum;
  Value quotient, numerator;
  linalg::GenericOp carried;
  Value alpha;
};
} // namespace

static std::optional<NormalizedRecurrence> matchRecurrence(scf::ForOp loop,
                                                           unsigned output) {
  Value yielded = loop.getYieldedValues()[output];
  BlockArgument o = loop.getRegionIterArg(output);
  std::optional<ValuePair> quotient = matchDivideOrZero(yielded);
  if (!quotient || !o.hasOneUse())
    return std::nullopt;
  for (unsigned sum = 0; sum < loop.getNumRegionIterArgs(); ++sum) {
    BlockArgument l = loop.getRegionIterArg(sum);
    if (sum == output || quotient->second != loop.getYieldedValues()[sum])
      continue;
    auto carried = dyn_cast<linalg::GenericOp>(*o.getUsers().begin());
    if (!carried || carried->getNumResults() != 1)
      continue;
    std::optional<ValuePair> product = matchMultiply(carried.getResult(0));
    std::optional<ValuePair> weight = product && product->first == o
                                          ? matchMultiply(product->second)
                                          : std::nullopt;
    if (weight && weight->first == l)
      return NormalizedRecurrence{output,          sum,     yielded,
                                  quotient->first, carried, weight->second};
  }
  return std::nullopt;
}

/// Carries n = l * o instead of o: n' = n * alpha + ..., o = n / l afterwards.
static void deferDivision(IRRewriter &rewriter, scf::ForOp loop,
                          NormalizedRecurrence &match) {
  rewriter.setInsertionPoint(loop);
  Value init = loop.getInitArgs()[match.output];
  std::optional<APFloat> start = matchFill(init);
  if (!start || !start->isZero()) {
    SoftmaxBuilder before(rewriter, loop.getLoc());
    init = before.multiply(init, loop.getInitArgs()[match.sum]);
    loop.getInitArgsMutable()[match.output].assign(init);
  }
  rewriter.setInsertionPoint(match.carried);
  SoftmaxBuilder inside(rewriter, match.carried.getLoc());
  Value scaled =
      inside.multiply(loop.getRegionIterArg(match.output), match.alpha);
  rewriter.replaceOp(match.carried, scaled);
  loop.getBody()->getTerminator()->setOperand(match.output, match.numerator);

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
    if (failed(expandMerges(rewriter, func)))
      return signalPassFailure();
    SmallVector<scf::ForOp> loops;
    func.walk([&](scf::ForOp loop) { loops.push_back(loop); });
    for (scf::ForOp loop : loops)
      for (unsigned i = 0; i < loop.getNumRegionIterArgs(); ++i)
        if (auto match = matchRecurrence(loop, i))
          deferDivision(rewriter, loop, *match);
    if (failed(cleanUp(func)))
      signalPassFailure();
  }
};
} // namespace
