// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Three-pass softmax -> two passes -> one: fa.online_softmax.

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Transforms/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <limits>

namespace fa {
#define GEN_PASS_DEF_ONLINESOFTMAXPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-online-softmax"

/// The body of the two-pass form's reduction: (s, m, l) -> (m', l').
static void buildOnlineNormalizer(OpBuilder &b, Location loc, ValueRange args) {
  Value s = args[0], m = args[1], l = args[2];
  auto constant = [&](double x) -> Value {
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(m.getType(), x));
  };
  Value newMax = arith::MaxNumFOp::create(b, loc, s, m);
  Value none = constant(-std::numeric_limits<double>::infinity());
  Value empty =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, newMax, none);
  Value shift = arith::SelectOp::create(b, loc, empty, constant(0.0), newMax);
  auto exp = [&](Value x) -> Value {
    Value difference = arith::SubFOp::create(b, loc, x, shift);
    return math::ExpOp::create(b, loc, difference);
  };
  Value carried = arith::MulFOp::create(b, loc, l, exp(m));
  Value newSum = arith::AddFOp::create(b, loc, carried, exp(s));
  linalg::YieldOp::create(b, loc, ValueRange{newMax, newSum});
}

namespace {
/// The two-pass form's reduction: scores, and what maximum and sum start from.
struct OnlineNormalizer {
  Value scores, max, sum;
};
} // namespace

/// Matches what buildOnlineNormalizer builds, over the rows of a matrix.
static std::optional<OnlineNormalizer>
matchOnlineNormalizer(linalg::GenericOp op) {
  if (!reducesRows(op) || op.getNumDpsInputs() != 1 || op->getNumResults() != 2)
    return std::nullopt;
  Block *body = op.getBody();
  Value s = body->getArgument(0), m = body->getArgument(1),
        l = body->getArgument(2);
  Operation *yield = body->getTerminator();
  auto newMax = yield->getOperand(0).getDefiningOp<arith::MaxNumFOp>();
  auto newSum = yield->getOperand(1).getDefiningOp<arith::AddFOp>();
  if (!newMax || newMax.getLhs() != s || newMax.getRhs() != m || !newSum)
    return std::nullopt;
  auto isZero = [](Value v) { return matchPattern(v, m_AnyZeroFloat()); };
  auto isShift = [&](Value v) {
    auto select = v.getDefiningOp<arith::SelectOp>();
    auto empty = select ? select.getCondition().getDefiningOp<arith::CmpFOp>()
                        : arith::CmpFOp();
    return empty && empty.getPredicate() == arith::CmpFPredicate::OEQ &&
           empty.getLhs() == newMax && isNegativeInfinity(empty.getRhs()) &&
           isZero(select.getTrueValue()) && select.getFalseValue() == newMax;
  };
  auto isWeight = [&](Value v, Value of) {
    auto exp = v.getDefiningOp<math::ExpOp>();
    auto difference =
        exp ? exp.getOperand().getDefiningOp<arith::SubFOp>() : arith::SubFOp();
    return difference && difference.getLhs() == of &&
           isShift(difference.getRhs());
  };
  auto carried = newSum.getLhs().getDefiningOp<arith::MulFOp>();
  if (!carried || carried.getLhs() != l || !isWeight(carried.getRhs(), m) ||
      !isWeight(newSum.getRhs(), s))
    return std::nullopt;
  return OnlineNormalizer{op.getDpsInputs()[0], op.getDpsInits()[0],
                          op.getDpsInits()[1]};
}

/// What selects weights (matchKeep) becomes the merge's region.
static void moveKeep(PatternRewriter &rewriter, linalg::GenericOp keep,
                     OnlineSoftmaxOp merge) {
  Block &body = *keep.getBody();
  auto select =
      body.getTerminator()->getOperand(0).getDefiningOp<arith::SelectOp>();
  merge.buildKeep(rewriter, [&](OpBuilder &b, ValueRange at) {
    IRMapping map;
    for (Operation &op : body.without_terminator()) {
      if (auto coordinate = dyn_cast<linalg::IndexOp>(op))
        map.map(coordinate.getResult(), at[coordinate.getDim()]);
      else if (&op != select)
        b.clone(op, map);
    }
    return map.lookupOrDefault(select.getCondition());
  });
}

namespace {

/// sum_j exp(s - max_j s) and the maximum as one reduction.
struct FuseMaxAndSum : OpRewritePattern<linalg::GenericOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(linalg::GenericOp op,
                                PatternRewriter &rewriter) const override {
    if (op->getNumResults() != 1)
      return rewriter.notifyMatchFailure(op, "not one result");
    std::optional<RowReduction> sum = matchRowSum(op.getResult(0));
    std::optional<ValuePair> weights =
        sum ? matchExpDifference(sum->matrix) : std::nullopt;
    Value maxValue = weights ? matchFiniteOrZero(weights->second) : Value();
    std::optional<RowReduction> max =
        maxValue ? matchRowMax(maxValue) : std::nullopt;
    if (!max || max->matrix != weights->first)
      return rewriter.notifyMatchFailure(op, "not a sum of exp(s - max s)");
    // The sum starts from nothing, so that it needs no rescaling.
    std::optional<APFloat> start = matchFill(sum->init);
    if (!start || !start->isZero())
      return rewriter.notifyMatchFailure(op, "the sum does not start at 0");
    Operation *maxOp = maxValue.getDefiningOp();
    if (!maxOp->isBeforeInBlock(op))
      return rewriter.notifyMatchFailure(op, "maximum in another block");
    // Both results must exist where the maximum's first use is.
    rewriter.setInsertionPoint(maxOp);
    Operation *init = sum->init.getDefiningOp();
    if (!init->isBeforeInBlock(maxOp)) {
      Operation *empty = init->getOperand(1).getDefiningOp();
      for (Operation *o : {empty, init})
        if (o && !o->isBeforeInBlock(maxOp))
          rewriter.moveOpBefore(o, maxOp);
    }
    auto i = rewriter.getAffineDimExpr(0);
    AffineMap rows = AffineMap::get(2, 0, i);
    auto fused = linalg::GenericOp::create(
        rewriter, op.getLoc(),
        TypeRange{maxValue.getType(), op.getResult(0).getType()}, max->matrix,
        ValueRange{max->init, sum->init},
        ArrayRef<AffineMap>{rewriter.getMultiDimIdentityMap(2), rows, rows},
        ArrayRef<utils::IteratorType>{utils::IteratorType::parallel,
                                      utils::IteratorType::reduction},
        buildOnlineNormalizer);
    rewriter.replaceOp(maxOp, fused.getResult(0));
    rewriter.replaceOp(op, fused.getResult(1));
    return success();
  }
};

/// The weighted sum of values joins the reduction: fa.online_softmax.
struct FuseWeightedSum : OpRewritePattern<linalg::GenericOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(linalg::GenericOp op,
                                PatternRewriter &rewriter) const override {
    if (op->getNumResults() != 1)
      return rewriter.notifyMatchFailure(op, "not one result");
    std::optional<MatrixProduct> product = matchMatrixProduct(op.getResult(0));
    if (!product || product->rhsTransposed)
      return rewriter.notifyMatchFailure(op, "not a product P V");
    Value kept = matchKeep(product->lhs);
    Value probabilities = kept ? kept : product->lhs;
    Value narrow = matchConvert(probabilities);
    std::optional<ValuePair> quotient =
        matchDivideOrZero(narrow ? narrow : probabilities);
    std::optional<ValuePair> weights =
        quotient ? matchExpDifference(quotient->first) : std::nullopt;
    Value max = weights ? matchFiniteOrZero(weights->second) : Value();
    auto normalizer =
        max ? max.getDefiningOp<linalg::GenericOp>() : linalg::GenericOp();
    std::optional<OnlineNormalizer> state =
        normalizer ? matchOnlineNormalizer(normalizer) : std::nullopt;
    if (!state || max != normalizer.getResult(0) ||
        quotient->second != normalizer.getResult(1) ||
        state->scores != weights->first)
      return rewriter.notifyMatchFailure(op, "P is not a softmax of scores");
    std::optional<APFloat> start = matchFill(product->init);
    if (!start || !start->isZero())
      return rewriter.notifyMatchFailure(op, "the product does not start at 0");
    // The merge converts its weights to the values' type, and sums in the type
    // that these are computed in.
    Type element = getElementTypeOrSelf(product->rhs);
    if (getElementTypeOrSelf(product->lhs) != element ||
        getElementTypeOrSelf(product->init) != getComputeType(element))
      return rewriter.notifyMatchFailure(op, "P and V differ in type, or their "
                                             "product is not in what they are "
                                             "computed in");
    rewriter.setInsertionPoint(op);
    Value inits[] = {state->max, state->sum, product->init};
    auto merged = OnlineSoftmaxOp::create(rewriter, op.getLoc(), weights->first,
                                          product->rhs, ValueRange(inits),
                                          /*keeps=*/bool(kept));
    if (kept)
      moveKeep(rewriter, product->lhs.getDefiningOp<linalg::GenericOp>(),
               merged);
    rewriter.replaceOp(op, merged.getNewAcc());
    // What is left of the old form is dead except for uses by the LSE.
    rewriter.replaceUsesWithIf(
        normalizer.getResults(), merged->getResults().take_front(2),
        [&](OpOperand &use) {
          return merged->isBeforeInBlock(
              merged->getBlock()->findAncestorOpInBlock(*use.getOwner()));
        });
    return success();
  }
};

struct OnlineSoftmaxPass : fa::impl::OnlineSoftmaxPassBase<OnlineSoftmaxPass> {
  using OnlineSoftmaxPassBase::OnlineSoftmaxPassBase;
  void runOnOperation() override {
    if (passes != 1 && passes != 2) {
      getOperation().emitError()
          << "expected passes=1 or passes=2, got passes=" << passes;
      return signalPassFailure();
    }
    RewritePatternSet patterns(&getContext());
    patterns.add<FuseMaxAndSum>(&getContext());
    if (passes == 1)
      patterns.add<FuseWeightedSum>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
