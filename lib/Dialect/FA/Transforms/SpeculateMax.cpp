// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Weights against a reference from earlier blocks, checked afterwards.

#include "ScoreSum.h"
#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Dialect/FA/Transforms/Utils.h"
#include "fa/Target/TargetInfo.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

namespace fa {
#define GEN_PASS_DEF_SPECULATEMAXPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-speculate-max"

static constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;
static constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Blocks that take the running maximum before their weights after an overflow
/// that comes at most so many blocks after the last one, or after blocks that
/// did.
static constexpr int64_t kSoon = 2, kWaryBlocks = 32;
/// Such blocks after any other overflow, where weights cannot be shifted.
static constexpr int64_t kFewWaryBlocks = 4;

namespace {
/// Online softmax as a loop carries it, and what is made of it afterwards.
struct Recurrence {
  scf::ForOp loop;
  /// Which carried values the state is.
  unsigned max = 0, sum = 0, output = 0;
  Value scores, weights, alpha;
  /// The weights as the contraction reads them, but for those that are dropped.
  Value rounded;
  /// The weights that are kept; null: all are.
  linalg::GenericOp keep;
  linalg::GenericOp contraction;
  /// Scores to log2 units.
  double scale = 0;
  /// Scores may be large: the reference is in their units, and is subtracted
  /// before they are scaled.
  bool isDifference = false;
  /// Where they are sums, `scores` are the products of queries and keys alone,
  /// and the bias is added where scores are read.
  ScoreSum scoreSum;
  /// The log-sum-exp after the loop, if there is one.
  linalg::GenericOp logSumExp;
};

/// Where the reference lies and how far the weights may go.
struct Range {
  double headroom, limit;
  /// Weights below this can be shifted back by a power of two.
  double farLimit = 0;
  /// Whether some of those that are out of range can.
  bool canShift() const { return farLimit > limit; }
};
} // namespace

//===----------------------------------------------------------------------===//
// What is matched
//===----------------------------------------------------------------------===//

/// Whether all users of a value are among those given.
static bool onlyUsedBy(Value value, ArrayRef<Operation *> users) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    return llvm::is_contained(users, user);
  });
}

/// The maximum, and the weights that are computed with it.
static LogicalResult matchWeights(Recurrence &r, StringRef &reason) {
  Value max = r.loop.getYieldedValues()[r.max];
  Operation *reduction = max.getDefiningOp();
  r.scores = matchRowMax(max)->matrix;
  reason = "the weights are not exp2(fma(score, c, -max * c)) or exp2((score - "
           "max) * c) of the running maximum; run fa-fold-scale-exp2 first";
  std::optional<ScaledExp2> exp;
  for (Operation *user : r.scores.getUsers())
    if (user != reduction && user->getNumResults() == 1) {
      r.weights = user->getResult(0);
      exp = matchScaledExp2(r.weights);
      r.isDifference = !exp;
      if (r.isDifference)
        exp = matchExp2Difference(r.weights);
    }
  if (!exp || exp->x != r.scores || !(exp->scale > 0) ||
      !std::isfinite(exp->scale) ||
      !onlyUsedBy(r.scores, {reduction, r.weights.getDefiningOp()}))
    return failure();
  r.scale = exp->scale;
  Value finite = exp->shift;
  if (!r.isDifference) {
    auto negated = matchScaled(exp->shift);
    if (!negated || negated->second != -r.scale ||
        !onlyUsedBy(exp->shift, {r.weights.getDefiningOp()}))
      return failure();
    finite = negated->first;
  }
  if (matchFiniteOrZero(finite) != max)
    return failure();
  Value previous = r.loop.getRegionIterArg(r.max);
  for (Operation *user : previous.getUsers())
    if (user != reduction && user->getNumResults() == 1)
      r.alpha = user->getResult(0);
  std::optional<ScaledExp2> alpha =
      r.alpha ? matchExp2Difference(r.alpha) : std::nullopt;
  Operation *yield = r.loop.getBody()->getTerminator();
  return success(
      alpha && alpha->x == previous && alpha->shift == finite &&
      alpha->scale == r.scale &&
      onlyUsedBy(previous, {reduction, r.alpha.getDefiningOp()}) &&
      onlyUsedBy(max, {finite.getDefiningOp(), yield}) &&
      onlyUsedBy(finite, {r.isDifference ? r.weights.getDefiningOp()
                                         : exp->shift.getDefiningOp(),
                          r.alpha.getDefiningOp()}));
}

/// The carried value that `scaled` is a multiple of, by alpha.
static std::optional<unsigned> matchRescaled(const Recurrence &r,
                                             Value scaled) {
  std::optional<ValuePair> product = matchMultiply(scaled);
  auto carried = product ? dyn_cast<BlockArgument>(product->first) : nullptr;
  scf::ForOp loop = r.loop;
  if (!carried || carried.getOwner() != loop.getBody() ||
      carried == loop.getInductionVar() || !carried.hasOneUse() ||
      product->second != r.alpha || !scaled.hasOneUse())
    return std::nullopt;
  return carried.getArgNumber() - loop.getNumInductionVars();
}

/// The sum and the output that the loop carries beside the maximum.
static LogicalResult matchState(Recurrence &r, StringRef &reason) {
  reason = "the loop carries something other than a maximum, a sum and an "
           "output that are rescaled together";
  if (r.loop.getNumRegionIterArgs() != 3)
    return failure();
  bool hasSum = false;
  for (unsigned i = 0; i < 3; ++i) {
    Value yielded = r.loop.getYieldedValues()[i];
    if (i == r.max)
      continue;
    if (std::optional<RowReduction> sum = matchRowSum(yielded)) {
      hasSum = sum->matrix == r.weights && matchRescaled(r, sum->init) == i;
      r.sum = i;
    } else if (std::optional<Contraction> output = matchContraction(yielded)) {
      if (matchRescaled(r, output->init) != i)
        return failure();
      r.output = i;
      r.contraction = yielded.getDefiningOp<linalg::GenericOp>();
      r.rounded = output->lhs;
      if (Value kept = matchKeep(r.rounded)) {
        r.keep = r.rounded.getDefiningOp<linalg::GenericOp>();
        if (!r.rounded.hasOneUse())
          return failure();
        r.rounded = kept;
      }
    }
    if (!yielded.hasOneUse())
      return failure();
  }
  if (!hasSum || !r.contraction || r.alpha.use_empty() ||
      llvm::range_size(r.alpha.getUsers()) != 2)
    return failure();
  auto type = cast<RankedTensorType>(r.rounded.getType()).getElementType();
  if (!type.isF16() && !type.isBF16()) {
    reason = "the contraction reads weights in a type that is neither f16 nor "
             "bf16: there is no rounding to check them by";
    return failure();
  }
  Operation *sum = r.loop.getYieldedValues()[r.sum].getDefiningOp();
  return success(matchConvert(r.rounded) == r.weights &&
                 r.rounded.hasOneUse() &&
                 onlyUsedBy(r.weights, {sum, r.rounded.getDefiningOp()}));
}

/// What is made of the state: the output over the sum, and m + ln l.
static LogicalResult matchResults(Recurrence &r, StringRef &reason) {
  reason = "the maximum and the sum are used by more than a division and a "
           "log-sum-exp after the loop";
  Value max = r.loop.getResult(r.max), sum = r.loop.getResult(r.sum),
        output = r.loop.getResult(r.output);
  Operation *division = nullptr;
  for (Operation *user : sum.getUsers()) {
    auto generic = dyn_cast<linalg::GenericOp>(user);
    Value value = generic && generic->getNumResults() == 1
                      ? generic.getResult(0)
                      : Value();
    if (value && matchDivideOrZero(value) == ValuePair(output, sum)) {
      division = user;
      continue;
    }
    std::optional<ValuePair> lse = value ? matchAddLog(value) : std::nullopt;
    if (!lse || lse->second != sum || r.logSumExp)
      return failure();
    r.logSumExp = generic;
  }
  if (!division)
    return failure();
  if (!r.logSumExp)
    return success(max.use_empty());
  Value shift = matchAddLog(r.logSumExp.getResult(0))->first;
  double scale = 1;
  if (auto scaled = matchScaled(shift)) {
    if (!shift.hasOneUse())
      return failure();
    scale = scaled->second;
    Operation *multiply = shift.getDefiningOp();
    return success(scaled->first == max && onlyUsedBy(max, {multiply}) &&
                   static_cast<float>(kLog2E * scale) == r.scale);
  }
  return success(shift == max && onlyUsedBy(max, {r.logSumExp}) &&
                 static_cast<float>(kLog2E) == r.scale);
}

/// Matches the loop; no reason means that there is no running maximum in it.
static std::optional<Recurrence> matchRecurrence(scf::ForOp loop,
                                                 StringRef &reason) {
  for (unsigned i = 0; i < loop.getNumRegionIterArgs(); ++i) {
    std::optional<RowReduction> max = matchRowMax(loop.getYieldedValues()[i]);
    if (!max || max->init != loop.getRegionIterArg(i))
      continue;
    std::optional<APFloat> start = matchFill(loop.getInitArgs()[i]);
    if (!start || !start->isInfinity() || !start->isNegative()) {
      reason = "the running maximum does not start from -inf";
      return std::nullopt;
    }
    Recurrence r;
    r.loop = loop;
    r.max = i;
    if (failed(matchWeights(r, reason)) || failed(matchState(r, reason)) ||
        failed(matchResults(r, reason)))
      return std::nullopt;
    return r;
  }
  return std::nullopt;
}

/// Whether the schedule of the target has branches on values of tiles: on a
/// GPU only the one with warpgroup-wide products.
static bool canBranch(const TargetInfo &target, Recurrence &r) {
  if (target.kind != TargetInfo::Kind::NVIDIA)
    return true;
  auto weights = cast<RankedTensorType>(r.rounded.getType()),
       output = cast<RankedTensorType>(r.contraction.getResult(0).getType());
  TileProblem problem;
  problem.valueDim = output.getDimSize(1);
  problem.elementBits = weights.getElementTypeBitWidth();
  WalkResult others = r.loop.walk([&](linalg::GenericOp op) {
    std::optional<Contraction> product =
        op->getNumResults() == 1 && op != r.contraction
            ? matchContraction(op.getResult(0))
            : std::nullopt;
    if (!product)
      return WalkResult::advance();
    auto query = cast<RankedTensorType>(product->lhs.getType());
    // One product makes the scores, of the same type as the weights.
    if (problem.headDim || op->getParentOp() != r.loop ||
        query.getElementType() != weights.getElementType())
      return WalkResult::interrupt();
    problem.headDim = query.getDimSize(1);
    return WalkResult::advance();
  });
  return !others.wasInterrupted() && problem.headDim > 0 &&
         takesWgmma(target, problem, weights.getDimSize(0),
                    weights.getDimSize(1));
}

//===----------------------------------------------------------------------===//
// The rewrite
//===----------------------------------------------------------------------===//

namespace {
/// Rewrites one loop.
class Speculator {
public:
  Speculator(IRRewriter &rewriter, Recurrence &r, Range range)
      : rewriter(rewriter), b(rewriter, r.loop.getLoc()), r(r), range(range),
        loc(r.loop.getLoc()), f32(rewriter.getF32Type()),
        type(cast<RankedTensorType>(r.rounded.getType()).getElementType()) {}
  void run();

private:
  /// The state of a step: `exact` where exact weights are summed, `exactSum`
  /// where rounded ones are, too, for a log-sum-exp.
  struct State {
    Value reference, rounded, exact, sum, output, exactSum;
    /// What the weights join.
    SmallVector<Value> sums() const {
      SmallVector<Value> all = {sum, output};
      if (exactSum)
        all.push_back(exactSum);
      return all;
    }
    void setSums(ValueRange all) {
      sum = all[0], output = all[1];
      if (exactSum)
        exactSum = all[2];
    }
    SmallVector<Value> values() const {
      SmallVector<Value> all = sums();
      all.append({reference, rounded});
      if (exact)
        all.push_back(exact);
      return all;
    }
    void setValues(ValueRange all) {
      setSums(all);
      all = all.drop_front(exactSum ? 3 : 2);
      reference = all[0], rounded = all[1];
      if (exact)
        exact = all[2];
    }
  };
  unsigned carry(Value init);
  Value negate(Value x);
  Value exactWeights(Value reference);
  void makeWeights(State &state, Value reference);
  Value anyNotBelow(Value vector, double limit);
  Value rowMax(Value scores);
  Value largest(Value weights, Type as);
  Value overflows(Value max, Value reference);
  Value moveReference(Value reference, Value max);
  Value factorOf(Value before, Value after);
  void rescale(State &state, Value factor);
  scf::IfOp branchOn(Value condition, ValueRange kept,
                     llvm::function_ref<SmallVector<Value>()> then);
  scf::IfOp branchBetween(Value condition, TypeRange types,
                          llvm::function_ref<SmallVector<Value>()> then,
                          llvm::function_ref<SmallVector<Value>()> otherwise);
  SmallVector<Value> moveWary(Value scores, Value reference, Value nothing);
  SmallVector<Value> moveWhereWary(Value isWary, Value reference);
  State startAgain(const State &state, Value first, Value max);
  State shiftDown(const State &state, Value top);
  Value nextWary(Value overflowed, Value until);
  SmallVector<Value> recover(const State &state, Value first, Value until);
  void finishStep(const State &state);
  void finishLogSumExp();

  IRRewriter &rewriter;
  SoftmaxBuilder b;
  Recurrence &r;
  Range range;
  Location loc;
  Type f32, type;
  /// Which carried value the sum of the unrounded weights is, beside that of
  /// the rounded ones.
  std::optional<unsigned> exactSum;
  /// Where weights are dropped, their rounding errors are not those of the sum:
  /// it is of exact weights.
  bool sumsExact() const { return exactSum || r.keep; }
};
} // namespace

static Value constant(OpBuilder &b, Location loc, Type type, double value) {
  return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value));
}

/// The loop carries one value more; which one it is.
unsigned Speculator::carry(Value init) {
  unsigned number = r.loop.getNumRegionIterArgs();
  rewriter.setInsertionPoint(r.loop);
  FailureOr<LoopLikeOpInterface> replaced = r.loop.replaceWithAdditionalYields(
      rewriter, init,
      /*replaceInitOperandUsesInLoop=*/false,
      [](OpBuilder &, Location, ArrayRef<BlockArgument> added) {
        return SmallVector<Value>(added.begin(), added.end());
      });
  r.loop = cast<scf::ForOp>(replaced->getOperation());
  return number;
}

Value Speculator::negate(Value x) {
  return b.elementwise(
      x, f32, [](OpBuilder &nested, Location l, ValueRange args) -> Value {
        return arith::NegFOp::create(nested, l, args[0]);
      });
}

/// Whether some element of a vector is not below a limit, or not a number.
Value Speculator::anyNotBelow(Value vector, double limit) {
  Value flags = b.elementwise(
      vector, rewriter.getI1Type(),
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        return arith::CmpFOp::create(
            nested, l, arith::CmpFPredicate::UGE, args[0],
            constant(nested, l, args[0].getType(), limit));
      });
  Value empty = tensor::EmptyOp::create(rewriter, loc, ArrayRef<OpFoldResult>(),
                                        rewriter.getI1Type());
  Value no =
      arith::ConstantOp::create(rewriter, loc, rewriter.getBoolAttr(false));
  Value start = linalg::FillOp::create(rewriter, loc, no, empty).getResult(0);
  AffineMap maps[] = {rewriter.getMultiDimIdentityMap(1),
                      AffineMap::get(1, 0, rewriter.getContext())};
  Value any = linalg::GenericOp::create(
                  rewriter, loc, start.getType(), flags, start, maps,
                  utils::IteratorType::reduction,
                  [](OpBuilder &nested, Location l, ValueRange args) {
                    Value either =
                        arith::OrIOp::create(nested, l, args[0], args[1]);
                    linalg::YieldOp::create(nested, l, either);
                  })
                  .getResult(0);
  return tensor::ExtractOp::create(rewriter, loc, any, ValueRange());
}

/// The block's largest scores.
Value Speculator::rowMax(Value scores) {
  if (r.scoreSum)
    scores = r.scoreSum.build(rewriter, scores);
  Value reference = r.loop.getRegionIterArg(r.max);
  return b.rowMax(scores,
                  b.fill({tensor::getMixedSize(rewriter, loc, reference, 0)},
                         f32, -kInfinity));
}

/// The rows' largest weights, of type `as`; not a number where one is not.
Value Speculator::largest(Value weights, Type as) {
  return b.reduceRows(
      weights,
      b.fill({tensor::getMixedSize(rewriter, loc, weights, 0)}, as, 0.0),
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value weight = args[0];
        if (weight.getType() != as)
          weight = arith::ExtFOp::create(nested, l, as, weight);
        return arith::MaximumFOp::create(nested, l, weight, args[1]);
      });
}

/// Whether a row's largest score gives a weight that is not below the limit.
/// Rows without a reference do not count, nor does what is not a number.
Value Speculator::overflows(Value max, Value reference) {
  // In log2 units above the reference.
  Value above = b.elementwise(
      {max, reference}, f32,
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value c = constant(nested, l, f32, r.scale), distance;
        if (r.isDifference) {
          Value x = arith::SubFOp::create(nested, l, args[0], args[1]);
          distance = math::FmaOp::create(
              nested, l, x, c, constant(nested, l, f32, -range.headroom));
        } else {
          Value negative = arith::NegFOp::create(nested, l, args[1]);
          distance = math::FmaOp::create(nested, l, args[0], c, negative);
        }
        Value hasOne =
            arith::CmpFOp::create(nested, l, arith::CmpFPredicate::OGT, args[1],
                                  constant(nested, l, f32, -kInfinity));
        return arith::SelectOp::create(nested, l, hasOne, distance,
                                       constant(nested, l, f32, 0));
      });
  return anyNotBelow(above, std::log2(range.limit));
}

/// References above all scores so far. All rows move that can: where one has
/// fallen behind its neighbours will soon, too.
Value Speculator::moveReference(Value reference, Value max) {
  return b.elementwise(
      {max, reference}, f32,
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value above = args[0];
        if (!r.isDifference)
          above = math::FmaOp::create(nested, l, args[0],
                                      constant(nested, l, f32, r.scale),
                                      constant(nested, l, f32, range.headroom));
        return arith::MaxNumFOp::create(nested, l, above, args[1]);
      });
}

/// The factor from what was summed against a reference to what is summed
/// against another.
Value Speculator::factorOf(Value before, Value after) {
  if (r.isDifference)
    return b.exp2Difference(before, b.finiteOrZero(after), r.scale);
  return b.elementwise(
      {before, b.finiteOrZero(after)}, f32,
      [](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value difference = arith::SubFOp::create(nested, l, args[0], args[1]);
        return math::Exp2Op::create(nested, l, difference);
      });
}

void Speculator::rescale(State &state, Value factor) {
  state.sum = b.multiply(state.sum, factor);
  state.output = b.multiply(state.output, factor);
  if (state.exactSum)
    state.exactSum = b.multiply(state.exactSum, factor);
}

/// exp2(score * c - reference), or exp2((score - reference) * c - headroom).
Value Speculator::exactWeights(Value reference) {
  if (r.isDifference)
    return b.exp2Difference(r.scores, reference, r.scale, -range.headroom);
  Value shift = negate(reference);
  return r.scoreSum ? r.scoreSum.build(rewriter, r.scores, shift)
                    : b.scaledExp2(r.scores, shift, r.scale);
}

/// The weights, as the contraction reads them and exact.
void Speculator::makeWeights(State &state, Value reference) {
  Value weights = exactWeights(reference);
  state.rounded = b.convert(weights, type);
  if (sumsExact())
    state.exact = weights;
}

/// A branch that groups of rows may take for themselves.
scf::IfOp
Speculator::branchBetween(Value condition, TypeRange types,
                          llvm::function_ref<SmallVector<Value>()> then,
                          llvm::function_ref<SmallVector<Value>()> otherwise) {
  auto branch = scf::IfOp::create(rewriter, loc, types, condition,
                                  /*withElseRegion=*/true);
  branch->setAttr(kRowwiseAttr, rewriter.getUnitAttr());
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(rewriter, loc, otherwise());
  rewriter.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(rewriter, loc, then());
  return branch;
}

scf::IfOp Speculator::branchOn(Value condition, ValueRange kept,
                               llvm::function_ref<SmallVector<Value>()> then) {
  return branchBetween(condition, TypeRange(kept), then,
                       [&] { return SmallVector<Value>(kept); });
}

/// With the running maximum: the reference moves, where one has to, before
/// there are weights. Gives it, the factor for what was summed, which is
/// nothing where none moved, and whether one did.
SmallVector<Value> Speculator::moveWary(Value scores, Value reference,
                                        Value nothing) {
  Value max = rowMax(scores);
  Value any = overflows(max, reference);
  scf::IfOp moved = branchOn(any, {reference, nothing}, [&] {
    Value next = moveReference(reference, max);
    return SmallVector<Value>{next, factorOf(reference, next)};
  });
  return {moved.getResult(0), moved.getResult(1), any};
}

/// For some blocks after an overflow. Where scores come out of a branch that
/// masks some blocks, this is in that branch: the common way has one branch.
/// What was summed so far is not touched: it may still be computed.
SmallVector<Value> Speculator::moveWhereWary(Value isWary, Value reference) {
  Value no =
      arith::ConstantOp::create(rewriter, loc, rewriter.getBoolAttr(false));
  Value nothing = tensor::EmptyOp::create(
      rewriter, loc,
      ArrayRef<OpFoldResult>{tensor::getMixedSize(rewriter, loc, reference, 0)},
      f32);
  SmallVector<Value> kept = {reference, nothing, no};
  auto mask = r.scores.getDefiningOp<scf::IfOp>();
  if (!mask || mask->getNumResults() != 1 || mask->getParentOp() != r.loop)
    return branchOn(isWary, kept,
                    [&] { return moveWary(r.scores, reference, nothing); })
        ->getResults();
  // The mask's branch becomes the one of blocks that are masked or wary.
  Value yes =
      arith::ConstantOp::create(rewriter, loc, rewriter.getBoolAttr(true));
  Value common =
      arith::AndIOp::create(rewriter, loc, mask.getCondition(),
                            arith::XOrIOp::create(rewriter, loc, isWary, yes));
  Type types[] = {r.scores.getType(), reference.getType(), nothing.getType(),
                  no.getType()};
  auto merged = scf::IfOp::create(rewriter, loc, types, common,
                                  /*withElseRegion=*/true);
  merged->setAttr(kRowwiseAttr, rewriter.getUnitAttr());
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPointToStart(merged.thenBlock());
  IRMapping map;
  for (Operation &op : mask.thenBlock()->without_terminator())
    rewriter.clone(op, map);
  Value whole = map.lookupOrDefault(mask.thenYield().getOperand(0));
  scf::YieldOp::create(rewriter, loc,
                       ValueRange{whole, reference, nothing, no});
  rewriter.setInsertionPointToStart(merged.elseBlock());
  Value scores = rewriter.clone(*mask)->getResult(0);
  scf::IfOp moved = branchOn(
      isWary, kept, [&] { return moveWary(scores, reference, nothing); });
  SmallVector<Value> values{scores};
  llvm::append_range(values, moved.getResults());
  scf::YieldOp::create(rewriter, loc, values);
  r.scores = merged.getResult(0);
  return merged->getResults().drop_front();
}

/// Up to which block steps are wary after weights that were out of range.
Value Speculator::nextWary(Value overflowed, Value until) {
  auto blocksFrom = [&](Value from, int64_t count) -> Value {
    Value blocks = arith::ConstantIndexOp::create(rewriter, loc, count);
    return arith::AddIOp::create(
        rewriter, loc, from,
        arith::MulIOp::create(rewriter, loc, r.loop.getStep(), blocks));
  };
  Value iv = r.loop.getInductionVar();
  Value isSoon = arith::CmpIOp::create(rewriter, loc, arith::CmpIPredicate::sle,
                                       iv, blocksFrom(until, kSoon));
  int64_t few = range.canShift() ? 0 : kFewWaryBlocks;
  Value later = arith::SelectOp::create(rewriter, loc, isSoon,
                                        blocksFrom(iv, kWaryBlocks + 1),
                                        blocksFrom(iv, few + 1));
  return arith::SelectOp::create(rewriter, loc, overflowed, later, until);
}

/// The block's weights from its scores, against a reference above all of them.
/// In the first block nothing is summed yet, and nothing to be rescaled.
Speculator::State Speculator::startAgain(const State &state, Value first,
                                         Value max) {
  State next = state;
  next.reference = moveReference(state.reference, max);
  makeWeights(next, b.finiteOrZero(next.reference));
  scf::IfOp sums = branchBetween(
      first, TypeRange(ValueRange(state.sums())), [&] { return state.sums(); },
      [&] {
        State scaled = state;
        rescale(scaled, factorOf(state.reference, next.reference));
        return scaled.sums();
      });
  next.setSums(sums.getResults());
  return next;
}

/// The block's weights, of which `top` are the rows' largest, and what was
/// summed, times a power of two that lays the reference as far above `top` as
/// it is to be: exact, but for what is too small to matter.
Speculator::State Speculator::shiftDown(const State &state, Value top) {
  Type i32 = rewriter.getI32Type();
  constexpr int64_t mantissaBits = 23, bias = 127;
  auto integer = [&](OpBuilder &nested, Location l, int64_t value) -> Value {
    return arith::ConstantOp::create(nested, l,
                                     rewriter.getI32IntegerAttr(value));
  };
  // floor(log2(top)) + headroom; rows that are below it stay.
  Value exponent = b.elementwise(
      top, i32, [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value bits = arith::BitcastOp::create(nested, l, i32, args[0]);
        Value biased = arith::ShRUIOp::create(nested, l, bits,
                                              integer(nested, l, mantissaBits));
        int64_t above = std::floor(range.headroom) - bias;
        Value exponent =
            arith::AddIOp::create(nested, l, biased, integer(nested, l, above));
        return arith::MaxSIOp::create(nested, l, exponent,
                                      integer(nested, l, 0));
      });
  Value factor = b.elementwise(
      exponent, f32,
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value biased =
            arith::SubIOp::create(nested, l, integer(nested, l, bias), args[0]);
        Value bits = arith::ShLIOp::create(nested, l, biased,
                                           integer(nested, l, mantissaBits));
        return arith::BitcastOp::create(nested, l, f32, bits);
      });
  State next = state;
  next.reference = b.elementwise(
      {state.reference, exponent}, f32,
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value up = arith::SIToFPOp::create(nested, l, f32, args[1]);
        return arith::AddFOp::create(nested, l, args[0], up);
      });
  next.rounded = b.elementwise(
      {state.rounded, factor}, type,
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value weight = args[0];
        if (type != f32)
          weight = arith::ExtFOp::create(nested, l, f32, weight);
        weight = arith::MulFOp::create(nested, l, weight, args[1]);
        return type == f32 ? weight
                           : arith::TruncFOp::create(nested, l, type, weight);
      });
  // Not from the exact weights: nothing need keep them.
  if (sumsExact())
    next.exact = exactWeights(next.reference);
  rescale(next, factor);
  return next;
}

/// After weights out of range, or in the first block.
SmallVector<Value> Speculator::recover(const State &state, Value first,
                                       Value until) {
  auto restart = [&]() -> SmallVector<Value> {
    Value max = rowMax(r.scores);
    SmallVector<Value> values = startAgain(state, first, max).values();
    values.push_back(arith::SelectOp::create(
        rewriter, loc, first, until,
        nextWary(overflows(max, state.reference), until)));
    return values;
  };
  if (!range.canShift())
    return restart();
  Value top = largest(state.rounded, f32);
  Value far = arith::OrIOp::create(rewriter, loc, first,
                                   anyNotBelow(top, range.farLimit));
  SmallVector<Type> types(TypeRange(ValueRange(state.values())));
  types.push_back(until.getType());
  return branchBetween(far, types, restart,
                       [&] {
                         SmallVector<Value> values =
                             shiftDown(state, top).values();
                         Value yes = arith::ConstantOp::create(
                             rewriter, loc, rewriter.getBoolAttr(true));
                         values.push_back(nextWary(yes, until));
                         return values;
                       })
      ->getResults();
}

/// The block's weights join the sum and the output.
void Speculator::finishStep(const State &state) {
  Operation *yield = r.loop.getBody()->getTerminator();
  yield->setOperand(r.max, state.reference);
  Value summed = r.keep ? state.exact : b.convert(state.rounded, f32);
  yield->setOperand(r.sum, b.rowSum(summed, state.sum));
  IRMapping map;
  map.map(r.rounded, state.rounded);
  if (r.keep)
    rewriter.clone(*r.keep, map);
  map.map(r.contraction.getDpsInits()[0], state.output);
  Operation *contraction = rewriter.clone(*r.contraction, map);
  yield->setOperand(r.output, contraction->getResult(0));
  if (exactSum)
    yield->setOperand(*exactSum, b.rowSum(state.exact, state.exactSum));
}

/// (R + log2 l) ln 2, or R + (headroom + log2 l) ln 2.
void Speculator::finishLogSumExp() {
  rewriter.setInsertionPoint(r.logSumExp);
  Value lse = b.elementwise(
      {r.loop.getResult(r.max), r.loop.getResult(exactSum.value_or(r.sum))},
      f32, [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value log = math::Log2Op::create(nested, l, args[1]);
        if (r.isDifference) {
          Value up = arith::AddFOp::create(
              nested, l, log, constant(nested, l, f32, range.headroom));
          return math::FmaOp::create(nested, l, up,
                                     constant(nested, l, f32, kLn2), args[0]);
        }
        Value sum = arith::AddFOp::create(nested, l, args[0], log);
        return arith::MulFOp::create(nested, l, sum,
                                     constant(nested, l, f32, kLn2));
      });
  rewriter.replaceOp(r.logSumExp, lse);
}

void Speculator::run() {
  if (r.scale == 1)
    r.scoreSum = ScoreSum::split(rewriter, r.scores);
  if (r.logSumExp && !r.keep)
    exactSum = carry(r.loop.getInitArgs()[r.sum]);
  // Blocks before this one are wary.
  unsigned wary = carry(r.loop.getLowerBound());
  Operation *yield = r.loop.getBody()->getTerminator();
  rewriter.setInsertionPoint(yield);
  Value iv = r.loop.getInductionVar(), until = r.loop.getRegionIterArg(wary);
  Value isWary = arith::CmpIOp::create(rewriter, loc, arith::CmpIPredicate::slt,
                                       iv, until);
  SmallVector<Value> moved =
      moveWhereWary(isWary, r.loop.getRegionIterArg(r.max));

  State state;
  state.reference = moved[0];
  state.sum = r.loop.getRegionIterArg(r.sum);
  state.output = r.loop.getRegionIterArg(r.output);
  if (exactSum)
    state.exactSum = r.loop.getRegionIterArg(*exactSum);
  makeWeights(state, state.reference);
  state.setSums(branchOn(moved[2], state.sums(), [&] {
                  State next = state;
                  rescale(next, moved[1]);
                  return next.sums();
                }).getResults());
  Value any = anyNotBelow(largest(state.rounded, type), range.limit);
  Value first = arith::CmpIOp::create(rewriter, loc, arith::CmpIPredicate::eq,
                                      iv, r.loop.getLowerBound());
  Value repeats = arith::OrIOp::create(rewriter, loc, first, any);
  SmallVector<Value> kept = state.values();
  kept.push_back(until);
  scf::IfOp branch =
      branchOn(repeats, kept, [&] { return recover(state, first, until); });
  state.setValues(branch.getResults().drop_back());
  yield->setOperand(wary, branch.getResults().back());
  finishStep(state);
  if (r.logSumExp)
    finishLogSumExp();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
struct SpeculateMaxPass : fa::impl::SpeculateMaxPassBase<SpeculateMaxPass> {
  using SpeculateMaxPassBase::SpeculateMaxPassBase;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    llvm::Expected<TargetInfo> info = lookupTarget(target);
    if (!info) {
      func.emitError(llvm::toString(info.takeError()));
      return signalPassFailure();
    }
    if (failed(checkOptions()))
      return signalPassFailure();
    SmallVector<scf::ForOp> loops;
    func.walk([&](scf::ForOp loop) { loops.push_back(loop); });
    IRRewriter rewriter(&getContext());
    bool found = false;
    for (scf::ForOp loop : loops) {
      StringRef reason;
      std::optional<Recurrence> r = matchRecurrence(loop, reason);
      if (r && !canBranch(*info, *r)) {
        r = std::nullopt;
        reason = "the target's schedule for these tiles has no branches on "
                 "their values";
      }
      found |= r || !reason.empty();
      if (!reason.empty() && !r)
        remark::missed(loop.getLoc(), remarkOptions("NotSpeculated")) << reason;
      if (r && failed(speculate(rewriter, *r)))
        return signalPassFailure();
    }
    if (!found)
      remark::missed(func.getLoc(), remarkOptions("NotSpeculated"))
          << "no loop carries a running maximum";
    if (failed(cleanUp(func)))
      signalPassFailure();
  }

  remark::RemarkOpts remarkOptions(StringRef name) {
    return remark::RemarkOpts::name(name)
        .category(DEBUG_TYPE)
        .function(getOperation().getName());
  }

  LogicalResult checkOptions() {
    if (!std::isnan(headroom) && !(headroom >= 0 && headroom <= 126))
      return getOperation().emitError()
             << "expected headroom in [0, 126], got "
             << llvm::formatv("{0}", double(headroom)).str()
             << "; leave it out to choose by the weights' type";
    if (limit != 0 && !(limit > 1 && limit <= 0x1p60))
      return getOperation().emitError()
             << "expected limit in (1, 2^60], got "
             << llvm::formatv("{0}", double(limit)).str()
             << "; leave it out to choose by the weights' type";
    return success();
  }

  LogicalResult speculate(IRRewriter &rewriter, Recurrence &r) {
    Type type = cast<RankedTensorType>(r.rounded.getType()).getElementType();
    Range range = type.isF16() ? Range{0, 32768} : Range{63, 2};
    if (!std::isnan(headroom))
      range.headroom = headroom;
    if (limit != 0)
      range.limit = limit;
    if (type.isF16() && range.limit > 65504)
      return r.loop.emitError("expected a limit that f16 weights can reach, at "
                              "most 65504, got ")
             << llvm::formatv("{0}", range.limit).str()
             << "; leave it out to choose by the weights' type";
    // f16 ends where its weights' limit is; and a large reference does not
    // move by a little.
    if (!type.isF16() && !r.isDifference)
      range.farLimit = std::exp2(126 - std::ceil(range.headroom));
    remark::passed(r.loop.getLoc(), remarkOptions("Speculated"))
        << llvm::formatv(
               "weights are computed with a reference that the loop "
               "carries, with headroom {0} and limit {1}{2}",
               range.headroom, range.limit,
               r.logSumExp ? ", and the log-sum-exp has a sum of its own" : "")
               .str();
    Speculator(rewriter, r, range).run();
    return success();
  }
};
} // namespace
