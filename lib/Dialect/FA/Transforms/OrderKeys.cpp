// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocks of keys from the last to the first, where scores grow with the key.

#include "fa/Analysis/MaskIntervals.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Dialect/FA/Transforms/Utils.h"

#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"

namespace fa {
#define GEN_PASS_DEF_ORDERKEYSPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-order-keys"

//===----------------------------------------------------------------------===//
// How scores change from key to key
//===----------------------------------------------------------------------===//

namespace {
enum class Trend { None, Grows, Falls, Unknown };
enum class Sign { NotNegative, NotPositive, Unknown };
} // namespace

static Trend negate(Trend x) {
  return x == Trend::Grows   ? Trend::Falls
         : x == Trend::Falls ? Trend::Grows
                             : x;
}
static Sign negate(Sign x) {
  return x == Sign::NotNegative   ? Sign::NotPositive
         : x == Sign::NotPositive ? Sign::NotNegative
                                  : x;
}
/// Of a sum, a maximum or a minimum.
static Trend join(Trend x, Trend y) {
  if (x == Trend::None || x == y)
    return y;
  return y == Trend::None ? x : Trend::Unknown;
}
static Trend times(Trend x, Sign factor) {
  if (x == Trend::None || factor == Sign::NotNegative)
    return x;
  return factor == Sign::NotPositive ? negate(x) : Trend::Unknown;
}
static Sign times(Sign x, Sign y) {
  if (x == Sign::Unknown || y == Sign::Unknown)
    return Sign::Unknown;
  return x == y ? Sign::NotNegative : Sign::NotPositive;
}

static bool keepsSign(Operation *op) {
  return isa<arith::IndexCastOp, arith::SIToFPOp, arith::ExtSIOp, arith::ExtFOp,
             arith::TruncFOp>(op);
}

namespace {
/// The trend of values in the body that computes a block of scores.
class TrendFinder {
public:
  explicit TrendFinder(Value firstKey) : firstKey(firstKey) {}
  Trend find(Value v);

private:
  Trend findOf(Operation *op);
  Sign signOf(Value v);
  Sign findSign(Value v);

  Value firstKey;
  /// What was found, since values may be read many times.
  DenseMap<Value, Trend> trends;
  DenseMap<Value, Sign> signs;
};
} // namespace

Sign TrendFinder::signOf(Value v) {
  if (auto known = signs.find(v); known != signs.end())
    return known->second;
  Sign sign = findSign(v);
  signs[v] = sign;
  return sign;
}

Sign TrendFinder::findSign(Value v) {
  APFloat number(0.0f);
  if (matchPattern(v, m_ConstantFloat(&number)))
    return number.isNegative() ? Sign::NotPositive : Sign::NotNegative;
  if (std::optional<int64_t> integer = getConstantIntValue(v))
    return *integer < 0 ? Sign::NotPositive : Sign::NotNegative;
  Operation *op = v.getDefiningOp();
  if (!op)
    return Sign::Unknown;
  if (isa<math::ExpOp, math::Exp2Op, math::SqrtOp, math::AbsFOp, math::AbsIOp>(
          op))
    return Sign::NotNegative;
  if (keepsSign(op))
    return signOf(op->getOperand(0));
  if (isa<arith::NegFOp>(op))
    return negate(signOf(op->getOperand(0)));
  if (isa<arith::MulFOp, arith::DivFOp>(op))
    return times(signOf(op->getOperand(0)), signOf(op->getOperand(1)));
  return Sign::Unknown;
}

Trend TrendFinder::find(Value v) {
  if (v == firstKey)
    return Trend::Grows;
  Operation *op = v.getDefiningOp();
  if (!op)
    return Trend::None;
  if (auto known = trends.find(v); known != trends.end())
    return known->second;
  Trend trend = findOf(op);
  trends[v] = trend;
  return trend;
}

Trend TrendFinder::findOf(Operation *op) {
  if (auto index = dyn_cast<linalg::IndexOp>(op))
    return index.getDim() == 1 ? Trend::Grows : Trend::None;
  SmallVector<Trend> trends;
  for (Value operand : op->getOperands())
    trends.push_back(find(operand));
  if (llvm::all_of(trends, [](Trend t) { return t == Trend::None; }))
    return Trend::None;
  if (auto apply = dyn_cast<affine::AffineApplyOp>(op)) {
    SmallVector<int64_t> factors;
    AffineMap map = apply.getAffineMap();
    if (failed(getFlattenedAffineExpr(map.getResult(0), map.getNumDims(),
                                      map.getNumSymbols(), &factors)) ||
        factors.size() != trends.size() + 1)
      return Trend::Unknown;
    Trend sum = Trend::None;
    for (auto [trend, factor] : llvm::zip(trends, factors))
      if (factor)
        sum = join(sum, factor > 0 ? trend : negate(trend));
    return sum;
  }
  if (keepsSign(op) || isa<math::ExpOp, math::Exp2Op, math::LogOp, math::Log2Op,
                           math::Log1pOp, math::SqrtOp, math::TanhOp>(op))
    return trends[0];
  if (isa<arith::NegFOp>(op))
    return negate(trends[0]);
  if (isa<arith::AddIOp, arith::AddFOp, arith::MaxSIOp, arith::MinSIOp,
          arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp,
          arith::MinNumFOp>(op))
    return join(trends[0], trends[1]);
  if (isa<arith::SubIOp, arith::SubFOp>(op))
    return join(trends[0], negate(trends[1]));
  if (isa<arith::MulIOp, arith::MulFOp>(op) && trends[0] == Trend::None)
    return times(trends[1], signOf(op->getOperand(0)));
  if (isa<arith::MulIOp, arith::MulFOp, arith::DivFOp>(op) &&
      trends[1] == Trend::None)
    return times(trends[0], signOf(op->getOperand(1)));
  return Trend::Unknown;
}

/// What a generic yields where the mask lets it through.
static Value unmaskedScore(linalg::GenericOp op) {
  std::optional<ScoreMask> mask = matchScoreMask(op);
  return mask ? mask->unmasked : op.getBody()->getTerminator()->getOperand(0);
}

static Trend trendOf(Value scores, scf::ForOp loop) {
  Trend trend = Trend::None;
  for (linalg::GenericOp op : scoreGenerics(scores))
    trend = join(
        trend, op && op.getNumLoops() == 2
                   ? TrendFinder(loop.getInductionVar()).find(unmaskedScore(op))
                   : Trend::Unknown);
  return trend;
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// Blocks that a list names come in its order.
static bool followsList(scf::ForOp loop) {
  return llvm::any_of(loop.getInductionVar().getUsers(), [](Operation *user) {
    return isa<tensor::ExtractOp>(user);
  });
}

/// The body works on first + last - iv.
static void reverse(scf::ForOp loop, int64_t step) {
  OpBuilder b(loop);
  Location loc = loop.getLoc();
  AffineExpr first = b.getAffineSymbolExpr(0), end = b.getAffineSymbolExpr(1);
  AffineExpr last = first + (end - first - 1).floorDiv(step) * step;
  Value sum = getValueOrCreateConstantIndexOp(
      b, loc,
      affine::makeComposedFoldedAffineApply(
          b, loc, first + last,
          getAsOpFoldResult({loop.getLowerBound(), loop.getUpperBound()})));
  b.setInsertionPointToStart(loop.getBody());
  Value iv = loop.getInductionVar();
  auto key = arith::SubIOp::create(b, loc, sum, iv);
  iv.replaceAllUsesExcept(key, key);
}

namespace {
struct OrderKeysPass : fa::impl::OrderKeysPassBase<OrderKeysPass> {
  using OrderKeysPassBase::OrderKeysPassBase;

  void runOnOperation() override {
    if (!llvm::is_contained({"auto", "ascending", "descending"}, order)) {
      getOperation().emitError("expected order auto, ascending or descending, "
                               "got ")
          << order;
      return signalPassFailure();
    }
    SmallVector<OnlineSoftmaxOp> merges;
    getOperation().walk([&](OnlineSoftmaxOp op) { merges.push_back(op); });
    for (OnlineSoftmaxOp merge : merges) {
      auto loop = dyn_cast<scf::ForOp>(merge->getParentOp());
      std::optional<int64_t> step =
          loop ? getConstantIntValue(OpFoldResult(loop.getStep()))
               : std::nullopt;
      if (order == "ascending" || !step || followsList(loop))
        continue;
      std::string why =
          order == "descending" ? "that was asked for" : reason(merge, loop);
      if (why.empty())
        continue;
      reverse(loop, *step);
      remark::passed(merge.getLoc(), remark::RemarkOpts::name("Descending")
                                         .category(DEBUG_TYPE)
                                         .function(getOperation().getName()))
          << "put the last keys first: " + why;
    }
  }

  /// Why the last keys are to come first; empty: they are not.
  static std::string reason(OnlineSoftmaxOp merge, scf::ForOp loop) {
    Trend trend = trendOf(merge.getScores(), loop);
    if (trend == Trend::Grows)
      return "scores grow with the key";
    auto rows = loop->getParentOfType<scf::ForOp>();
    if (trend == Trend::Unknown && rows &&
        dependsOn(loop.getUpperBound(), rows.getInductionVar()))
      return "scores change with the key, and the last ones are the nearest";
    return "";
  }
};
} // namespace
