// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// exp -> exp2, with the scale folded into one fma.

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
#include "mlir/IR/Matchers.h"

namespace fa {
#define GEN_PASS_DEF_FOLDSCALEEXP2PASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-fold-scale-exp2"

static constexpr double kLog2E = 1.4426950408889634;

/// The positive constant that a score generic multiplies its input by, where
/// that and a mask is all it does.
static std::optional<double> matchScale(linalg::GenericOp op) {
  if (!isElementwise(op) || op.getNumDpsInputs() != 1)
    return std::nullopt;
  Value score = op.getBody()->getTerminator()->getOperand(0);
  if (auto select = score.getDefiningOp<arith::SelectOp>()) {
    APFloat masked(0.0f);
    if (!matchPattern(select.getFalseValue(), m_ConstantFloat(&masked)) ||
        !masked.isInfinity() || !masked.isNegative())
      return std::nullopt;
    score = select.getTrueValue();
  }
  auto mul = score.getDefiningOp<arith::MulFOp>();
  APFloat scale(0.0f);
  if (!mul || !mul->hasOneUse() ||
      mul.getLhs() != op.getBody()->getArgument(0) ||
      !op.getBody()->getArgument(0).hasOneUse() ||
      !matchPattern(mul.getRhs(), m_ConstantFloat(&scale)) ||
      !scale.isFinite() || scale.isNegative() || scale.isZero())
    return std::nullopt;
  return scale.convertToFloat();
}

/// The generics that compute a score block: one, or one per arm of an scf.if.
static SmallVector<linalg::GenericOp> scoreGenerics(Value scores) {
  if (auto branch = scores.getDefiningOp<scf::IfOp>()) {
    unsigned i = cast<OpResult>(scores).getResultNumber();
    SmallVector<linalg::GenericOp> all;
    for (scf::YieldOp yield : {branch.thenYield(), branch.elseYield()})
      all.push_back(yield.getOperand(i).getDefiningOp<linalg::GenericOp>());
    return all;
  }
  return {scores.getDefiningOp<linalg::GenericOp>()};
}

/// The constant that all of a score block's generics scale by.
static std::optional<double> commonScale(Value scores) {
  std::optional<double> common;
  for (linalg::GenericOp op : scoreGenerics(scores)) {
    std::optional<double> scale = op ? matchScale(op) : std::nullopt;
    if (!scale || (common && *common != *scale))
      return std::nullopt;
    common = scale;
  }
  return common;
}

static void dropScale(IRRewriter &rewriter, Value scores) {
  for (linalg::GenericOp op : scoreGenerics(scores))
    for (auto mul :
         llvm::make_early_inc_range(op.getBody()->getOps<arith::MulFOp>()))
      if (mul.getLhs() == op.getBody()->getArgument(0)) {
        rewriter.replaceOp(mul, mul.getLhs());
        break;
      }
}

/// exp(x - shift) as exp2(fma(x, c, -(shift * c))).
static void foldExp(IRRewriter &rewriter, linalg::GenericOp op, double c) {
  std::optional<ValuePair> pair = matchExpDifference(op.getResult(0));
  Location loc = op.getLoc();
  rewriter.setInsertionPoint(op);
  SoftmaxBuilder b(rewriter, loc);
  Type f32 = rewriter.getF32Type();
  auto constant = [&](OpBuilder &nested, Location l, double value) -> Value {
    return arith::ConstantOp::create(nested, l, nested.getF32FloatAttr(value));
  };
  Value shift = b.elementwise(
      pair->second, f32,
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        return arith::MulFOp::create(nested, l, args[0],
                                     constant(nested, l, -c));
      });
  rewriter.replaceOp(op, b.scaledExp2(pair->first, shift, c));
}

namespace {
/// How a loop's running maximum hangs together with its scores.
struct ScaledMaximum {
  scf::ForOp loop;
  unsigned index; // of the carried maximum
  Value scores;
  double scale;
};
} // namespace

/// Finds a carried maximum of scores that only exponentials use, too.
static std::optional<ScaledMaximum> matchScaledMaximum(scf::ForOp loop) {
  for (unsigned i = 0; i < loop.getNumRegionIterArgs(); ++i) {
    std::optional<RowReduction> max = matchRowMax(loop.getYieldedValues()[i]);
    if (!max || max->init != loop.getRegionIterArg(i))
      continue;
    std::optional<double> scale = commonScale(max->matrix);
    std::optional<APFloat> start = matchFill(loop.getInitArgs()[i]);
    // Only -inf is the same number in both units.
    if (!scale || !start || !start->isInfinity())
      continue;
    auto usedByExp = [](Value v, auto also) {
      return llvm::all_of(v.getUsers(), [&](Operation *user) {
        auto generic = dyn_cast<linalg::GenericOp>(user);
        return also(user) || (generic && generic->getNumResults() == 1 &&
                              (matchExpDifference(generic.getResult(0)) ||
                               matchFiniteOrZero(generic.getResult(0))));
      });
    };
    Operation *maxOp = loop.getYieldedValues()[i].getDefiningOp();
    Operation *yield = loop.getBody()->getTerminator();
    auto isMax = [&](Operation *user) { return user == maxOp; };
    auto isYield = [&](Operation *user) { return user == yield; };
    if (usedByExp(max->matrix, isMax) &&
        usedByExp(loop.getRegionIterArg(i), isMax) &&
        usedByExp(loop.getYieldedValues()[i], isYield))
      return ScaledMaximum{loop, i, max->matrix, *scale};
  }
  return std::nullopt;
}

/// Takes the maximum of the unscaled product and scales it after the loop.
static void unscaleMaximum(IRRewriter &rewriter, const ScaledMaximum &match) {
  dropScale(rewriter, match.scores);
  scf::ForOp loop = match.loop;
  Value max = loop.getResult(match.index);
  if (max.use_empty())
    return;
  // Not the uses made below: of the maximum, and of its size if dynamic.
  SmallVector<OpOperand *> uses;
  for (OpOperand &use : max.getUses())
    uses.push_back(&use);
  rewriter.setInsertionPointAfter(loop);
  SoftmaxBuilder b(rewriter, loop.getLoc());
  Value scaled = b.elementwise(
      max, rewriter.getF32Type(),
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value c = arith::ConstantOp::create(
            nested, l, nested.getF32FloatAttr(match.scale));
        return arith::MulFOp::create(nested, l, args[0], c);
      });
  for (OpOperand *use : uses)
    rewriter.modifyOpInPlace(use->getOwner(), [&] { use->set(scaled); });
}

namespace {
struct FoldScaleExp2Pass : fa::impl::FoldScaleExp2PassBase<FoldScaleExp2Pass> {
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    IRRewriter rewriter(&getContext());
    DenseMap<Operation *, double> scaleOf;
    SmallVector<scf::ForOp> loops;
    func.walk([&](scf::ForOp loop) { loops.push_back(loop); });
    for (scf::ForOp loop : loops)
      if (auto match = matchScaledMaximum(loop)) {
        unscaleMaximum(rewriter, *match);
        scaleOf[loop] = match->scale;
      }
    SmallVector<linalg::GenericOp> exponentials;
    func.walk([&](linalg::GenericOp op) {
      if (op->getNumResults() == 1 && matchExpDifference(op.getResult(0)))
        exponentials.push_back(op);
    });
    for (linalg::GenericOp op : exponentials) {
      auto it = scaleOf.find(op->getParentOfType<scf::ForOp>());
      foldExp(rewriter, op, kLog2E * (it == scaleOf.end() ? 1.0 : it->second));
    }
    if (failed(cleanUp(func)))
      signalPassFailure();
  }
};
} // namespace
