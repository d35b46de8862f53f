// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loops over keys visit what the mask lets through, and mask what it cuts.

#include "MaskedLoop.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/IR/TileRanges.h"
#include "fa/Dialect/FA/Transforms/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

namespace fa {
#define GEN_PASS_DEF_SPLITMASKLOOPSPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-split-mask-loops"

namespace {
/// Rewrites one loop.
class LoopSplitter {
public:
  LoopSplitter(MaskedLoop &masked, const MaskIntervals &intervals,
               unsigned indexBits)
      : masked(masked), loop(masked.loop), intervals(intervals),
        indexBits(indexBits), builder(loop), loc(masked.scores.getLoc()),
        key(loop.getInductionVar()) {}
  /// What was done, or nothing where there was nothing to do.
  std::string run();

private:
  void setLowerBound(BoundBuilder &bounds);
  void setUpperBound(BoundBuilder &bounds, const Bound &end);
  void skipUnseen(BoundBuilder &bounds);
  void buildIf(BoundBuilder &bounds);
  bool isOfBlock(const Bound &bound) const;
  bool isAlwaysFull(const Bound &end) const;
  bool isNeverFull() const;

  MaskedLoop &masked;
  scf::ForOp loop;
  const MaskIntervals &intervals;
  unsigned indexBits;
  OpBuilder builder;
  Location loc;
  /// The first key of the block in the loop: its variable, or further on.
  Value key;
  SmallVector<OpFoldResult> symbols;
  SmallVector<Value> flags;
  std::string done;
};
} // namespace

//===----------------------------------------------------------------------===//
// The rewrite
//===----------------------------------------------------------------------===//

void LoopSplitter::setLowerBound(BoundBuilder &bounds) {
  if (intervals.visited.lo.isNegInf())
    return;
  Bound zero = Bound::affine(builder.getAffineConstantExpr(0));
  Bound start =
      Bound::max(align(intervals.visited.lo, masked.step, /*up=*/false), zero);
  loop.setLowerBound(
      getValueOrCreateConstantIndexOp(builder, loc, bounds.build(start)));
  done += "it starts later, ";
}

void LoopSplitter::setUpperBound(BoundBuilder &bounds, const Bound &end) {
  Bound newEnd = Bound::min(intervals.visited.hi, end);
  if (newEnd == end)
    return;
  loop.setUpperBound(
      getValueOrCreateConstantIndexOp(builder, loc, bounds.build(newEnd)));
  done += "it ends earlier, ";
}

/// Leaves out the tiles that lie in the gap between the keys seen: the loop
/// counts tiles, and from the gap on a tile's first key is further on.
void LoopSplitter::skipUnseen(BoundBuilder &bounds) {
  const KeyInterval &unseen = intervals.unseen;
  std::optional<int64_t> length = unseen.getMaxLength();
  // Without an end on both sides it is no gap; the bounds have dealt with it.
  if (unseen.isNothing() || unseen.lo.isNegInf() || unseen.hi.isPosInf() ||
      masked.step != masked.keys || (length && *length < masked.step))
    return;
  auto value = [&](const Bound &bound) {
    return getValueOrCreateConstantIndexOp(builder, loc, bounds.build(bound));
  };
  Value start = loop.getLowerBound(), end = loop.getUpperBound();
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value from = value(align(unseen.lo, masked.step, /*up=*/true)),
        to = value(align(unseen.hi, masked.step, /*up=*/false));
  from = arith::MaxSIOp::create(builder, loc, from, start);
  Value gap = arith::SubIOp::create(builder, loc, to, from);
  gap = arith::MaxSIOp::create(builder, loc, gap, zero);
  // Where nothing is seen behind the gap, the loop ends at it.
  Value last = arith::MinSIOp::create(builder, loc, from, end);
  Value shorter = arith::SubIOp::create(builder, loc, end, gap);
  loop.setUpperBound(
      arith::MaxSIOp::create(builder, loc, shorter, last).getResult());
  OpBuilder b = OpBuilder::atBlockBegin(loop.getBody());
  Value iv = loop.getInductionVar();
  Value isBehind =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, iv, from);
  Value skipped = arith::SelectOp::create(b, loc, isBehind, gap, zero);
  auto sum = arith::AddIOp::create(b, loc, iv, skipped);
  iv.replaceUsesWithIf(sum, [&](OpOperand &use) {
    return use.getOwner() != sum && use.getOwner() != isBehind.getDefiningOp();
  });
  key = sum;
  done += "it leaves out keys between, ";
}

/// Whether a bound differs from block to block of a loop or grid around.
bool LoopSplitter::isOfBlock(const Bound &bound) const {
  auto isVariable = [&](AffineExpr expr) {
    auto symbol = dyn_cast<AffineSymbolExpr>(expr);
    auto argument =
        symbol ? dyn_cast_if_present<BlockArgument>(
                     dyn_cast_if_present<Value>(symbols[symbol.getPosition()]))
               : BlockArgument();
    return argument &&
           isa<LoopLikeOpInterface>(argument.getOwner()->getParentOp());
  };
  bool found = false;
  if (bound.getKind() == Bound::Kind::Affine)
    bound.getExpr().walk([&](AffineExpr expr) { found |= isVariable(expr); });
  return found || llvm::any_of(bound.getOperands(), [&](const Bound &operand) {
           return isOfBlock(operand);
         });
}

bool LoopSplitter::isAlwaysFull(const Bound &end) const {
  if (!intervals.full.lo.isNegInf())
    return false;
  if (intervals.full.hi.isPosInf())
    return true;
  // Every key there is, and no tile reaches past the last one.
  return Bound::min(intervals.full.hi, end) == end && end.getConstant() &&
         *end.getConstant() % masked.keys == 0 && masked.step == masked.keys;
}

bool LoopSplitter::isNeverFull() const {
  if (intervals.full.isNothing())
    return true;
  std::optional<int64_t> length = intervals.full.getMaxLength();
  return length && *length < masked.keys;
}

void LoopSplitter::buildIf(BoundBuilder &bounds) {
  Value from, to;
  if (!intervals.full.lo.isNegInf())
    from = getValueOrCreateConstantIndexOp(builder, loc,
                                           bounds.build(intervals.full.lo));
  if (!intervals.full.hi.isPosInf())
    to = getValueOrCreateConstantIndexOp(builder, loc,
                                         bounds.build(intervals.full.hi));
  OpBuilder b(masked.scores);
  Value isFull;
  if (to) {
    Value end = affine::AffineApplyOp::create(
        b, loc, b.getAffineDimExpr(0) + masked.keys, ValueRange(key));
    isFull = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, end, to);
  }
  if (from) {
    Value after =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, key, from);
    isFull = isFull ? arith::AndIOp::create(b, loc, after, isFull).getResult()
                    : after;
  }
  masked.chooseUnmasked(b, isFull);
}

std::string LoopSplitter::run() {
  intervals.materializeUniforms(builder, symbols, flags, indexBits);
  OpFoldResult unbounded = getAsOpFoldResult(loop.getUpperBound());
  Bound end = masked.upperBound(symbols);
  BoundBuilder bounds(builder, loc, symbols, flags, unbounded);
  // Blocks that begin at different places are to be seen to end at the same.
  // Where they do not, nothing is gained by knowing more of ends: ptxas 13
  // makes code of it that is 2% slower at D=128, and spills more with a score.
  if (isOfBlock(intervals.visited.lo))
    bounds.useLoops();
  setLowerBound(bounds);
  setUpperBound(bounds, end);
  skipUnseen(bounds);
  if (isAlwaysFull(end)) {
    OpBuilder b(masked.scores);
    auto unmasked = masked.buildUnmasked(b);
    masked.scores->replaceAllUsesWith(unmasked->getResults());
    masked.scores->erase();
    done += "all its tiles are full and need no mask, ";
  } else if (!isNeverFull()) {
    buildIf(bounds);
    done += "its full tiles run without the mask, ";
  } else if (!done.empty()) {
    done += "none of its tiles is full, ";
  }
  if (!done.empty())
    done.resize(done.size() - 2);
  return done;
}

//===----------------------------------------------------------------------===//
// What the mask says of distances
//===----------------------------------------------------------------------===//

/// Whether a comparison says x >= y.
static bool saysNotBelow(arith::CmpIOp compare, Value x, Value y) {
  using P = arith::CmpIPredicate;
  P predicate = compare.getPredicate();
  bool greater = predicate == P::sge || predicate == P::sgt,
       less = predicate == P::sle || predicate == P::slt;
  return (greater && compare.getLhs() == x && compare.getRhs() == y) ||
         (less && compare.getLhs() == y && compare.getRhs() == x);
}

/// max(x - y, 0 - (x - y)) in scores is x - y where the mask lets nothing else
/// through, and 0 - (x - y) where it lets only that: what a score function
/// makes of |i - j| needs no magnitude under a causal mask.
static void resolveMagnitudes(MaskedLoop &masked) {
  Block &body = *masked.scores.getBody();
  DenseSet<Operation *> ofMask;
  for (auto [condition, isNegated] : masked.mask.conditions)
    ofMask.insert_range(sliceInBlock(condition, body));
  SmallVector<std::pair<Value, bool>> conjuncts = masked.conjuncts();
  for (auto max : llvm::make_early_inc_range(body.getOps<arith::MaxSIOp>())) {
    Value difference = matchMagnitude(max);
    auto sub = difference ? difference.getDefiningOp<arith::SubIOp>()
                          : arith::SubIOp();
    if (!sub || ofMask.contains(max))
      continue;
    Value minus = max.getLhs() == difference ? max.getRhs() : max.getLhs();
    auto zeroMinus = minus.getDefiningOp<arith::SubIOp>();
    Value resolved;
    for (auto [condition, isNegated] : conjuncts) {
      auto compare = condition.getDefiningOp<arith::CmpIOp>();
      if (isNegated || !compare)
        continue;
      if (saysNotBelow(compare, sub.getLhs(), sub.getRhs()))
        resolved = difference;
      else if (saysNotBelow(compare, sub.getRhs(), sub.getLhs()))
        resolved = minus;
    }
    if (!resolved)
      continue;
    max.getResult().replaceAllUsesWith(resolved);
    max.erase();
    if (zeroMinus->use_empty())
      zeroMinus.erase();
  }
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
struct SplitMaskLoopsPass
    : fa::impl::SplitMaskLoopsPassBase<SplitMaskLoopsPass> {
  using SplitMaskLoopsPassBase::SplitMaskLoopsPassBase;
  void runOnOperation() override {
    SmallVector<TileStepOpInterface> steps;
    getOperation().walk([&](TileStepOpInterface op) { steps.push_back(op); });
    for (TileStepOpInterface step : steps)
      split(step);
    if (steps.empty())
      reportExpanded();
  }

  remark::RemarkOpts remarkOptions(StringRef name) {
    return remark::RemarkOpts::name(name)
        .category(DEBUG_TYPE)
        .function(getOperation().getName());
  }

  void split(TileStepOpInterface step) {
    StringRef reason;
    std::optional<MaskedLoop> masked = MaskedLoop::match(step, reason);
    if (!masked) {
      if (!reason.empty())
        remark::missed(step.getLoc(), remarkOptions("NotSplit")) << reason;
      return;
    }
    resolveMagnitudes(*masked);
    MaskIntervals intervals = masked->computeIntervals();
    std::string text;
    llvm::raw_string_ostream stream(text);
    intervals.print(stream);
    Location loc = masked->scores.getLoc();
    std::string over = masked->transposed ? "rows" : "keys";
    std::string done = LoopSplitter(*masked, intervals, indexBits).run();
    if (done.empty())
      remark::missed(loc, remarkOptions("NotSplit"))
          << "the mask cuts nothing off the loop over " + over + " (" + text +
                 ")";
    else
      remark::passed(loc, remarkOptions("Split"))
          << "split the loop over " + over + ": " + done + " (" + text + ")";
  }

  /// After the merge is expanded, its identity is no longer visible.
  void reportExpanded() {
    getOperation().walk([&](linalg::GenericOp op) {
      if (isa<scf::ForOp>(op->getParentOp()) && matchScoreMask(op))
        remark::missed(op.getLoc(), remarkOptions("NotSplit"))
            << "the loop has no fa.online_softmax; run this pass before "
               "fa-defer-normalization";
    });
  }
};
} // namespace
