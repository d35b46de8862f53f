// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loops over keys visit what the mask lets through, and mask what it cuts.

#include "fa/Analysis/MaskIntervals.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/Transforms/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace fa {
#define GEN_PASS_DEF_SPLITMASKLOOPSPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-split-mask-loops"

namespace {
/// A loop over blocks of keys and the masked scores in it.
struct MaskedLoop {
  scf::ForOp loop;
  linalg::GenericOp scores;
  ScoreMask mask;
  int64_t rows, keys, step;
};

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
  Bound upperBoundOfLoop();
  void setLowerBound(BoundBuilder &bounds);
  void setUpperBound(BoundBuilder &bounds, const Bound &end);
  void skipUnseen(BoundBuilder &bounds);
  linalg::GenericOp buildUnmasked(OpBuilder &b);
  void buildIf(BoundBuilder &bounds);
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
// What can be split
//===----------------------------------------------------------------------===//

/// Skipping a step of the loop must leave what it carries as it is: each value
/// is the merge's state, which a block of -inf scores does not change.
static bool carriesOnlyState(scf::ForOp loop, OnlineSoftmaxOp merge) {
  for (auto [carried, yielded] :
       llvm::zip(loop.getRegionIterArgs(), loop.getYieldedValues())) {
    if (yielded == carried)
      continue;
    auto result = dyn_cast<OpResult>(yielded);
    if (!result || result.getOwner() != merge ||
        merge.getDpsInits()[result.getResultNumber()] != carried)
      return false;
  }
  return llvm::all_of(loop.getBody()->without_terminator(),
                      [](Operation &op) { return isMemoryEffectFree(&op); });
}

/// Matches the loop around a merge, or says why it does not match. No reason
/// means that there is nothing to say.
static std::optional<MaskedLoop> matchMaskedLoop(OnlineSoftmaxOp merge,
                                                 StringRef &reason) {
  MaskedLoop masked;
  masked.loop = dyn_cast<scf::ForOp>(merge->getParentOp());
  if (!masked.loop)
    return std::nullopt; // Not tiled.
  masked.scores = merge.getScores().getDefiningOp<linalg::GenericOp>();
  if (!masked.scores || masked.scores->getBlock() != masked.loop.getBody()) {
    reason = "the scores are not computed by a linalg.generic in the loop";
    return std::nullopt;
  }
  std::optional<ScoreMask> mask = matchScoreMask(masked.scores);
  if (!mask)
    return std::nullopt;
  masked.mask = *mask;
  auto type = merge.getScores().getType();
  if (!type.hasStaticShape()) {
    reason = "the tiles have no static size; run fa-pad-tiles first";
    return std::nullopt;
  }
  masked.rows = type.getDimSize(0);
  masked.keys = type.getDimSize(1);
  std::optional<int64_t> step =
      getConstantIntValue(OpFoldResult(masked.loop.getStep()));
  if (!step || *step < 1 || masked.loop.getUnsignedCmp() ||
      !masked.loop.getInductionVar().getType().isIndex() ||
      getConstantIntValue(OpFoldResult(masked.loop.getLowerBound())) != 0) {
    reason = "the loop over keys does not start at 0 with a constant step";
    return std::nullopt;
  }
  masked.step = *step;
  if (masked.scores.getNumLoops() != 2 ||
      masked.scores.getNumParallelLoops() != 2 ||
      !masked.scores.getIndexingMapsArray().back().isIdentity()) {
    reason = "the scores' loops are not its rows and keys";
    return std::nullopt;
  }
  if (!carriesOnlyState(masked.loop, merge)) {
    reason = "the loop carries more than the state of one merge; run "
             "fa-interchange first";
    return std::nullopt;
  }
  return masked;
}

//===----------------------------------------------------------------------===//
// The rewrite
//===----------------------------------------------------------------------===//

/// The bound, down or up to a multiple of `step`.
static Bound align(const Bound &bound, int64_t step, bool up) {
  ArrayRef<Bound> x = bound.getOperands();
  switch (bound.getKind()) {
  case Bound::Kind::NegInf:
  case Bound::Kind::PosInf:
    return bound;
  case Bound::Kind::Affine:
    return Bound::affine(
        (up ? bound.getExpr().ceilDiv(step) : bound.getExpr().floorDiv(step)) *
        step);
  case Bound::Kind::Min:
  case Bound::Kind::Max: {
    Bound result = align(x.front(), step, up);
    for (const Bound &next : x.drop_front()) {
      Bound aligned = align(next, step, up);
      result = bound.getKind() == Bound::Kind::Min
                   ? Bound::min(result, aligned)
                   : Bound::max(result, aligned);
    }
    return result;
  }
  case Bound::Kind::Select:
    return Bound::select(bound.getCondition(), align(x[0], step, up),
                         align(x[1], step, up));
  }
  llvm_unreachable("all kinds are handled");
}

Bound LoopSplitter::upperBoundOfLoop() {
  Value end = loop.getUpperBound();
  MLIRContext *ctx = loop.getContext();
  if (std::optional<int64_t> constant = getConstantIntValue(OpFoldResult(end)))
    return Bound::affine(getAffineConstantExpr(*constant, ctx));
  auto dim = end.getDefiningOp<tensor::DimOp>();
  for (auto [i, symbol] : llvm::enumerate(symbols)) {
    auto value = dyn_cast<Value>(symbol);
    auto other = value ? value.getDefiningOp<tensor::DimOp>() : tensor::DimOp();
    if (value == end || (dim && other && dim.getSource() == other.getSource() &&
                         dim.getConstantIndex() &&
                         dim.getConstantIndex() == other.getConstantIndex()))
      return Bound::affine(getAffineSymbolExpr(i, ctx));
  }
  symbols.push_back(end);
  return Bound::affine(getAffineSymbolExpr(symbols.size() - 1, ctx));
}

void LoopSplitter::setLowerBound(BoundBuilder &bounds) {
  if (intervals.visited.lo.isNegInf())
    return;
  Bound zero = Bound::affine(builder.getAffineConstantExpr(0));
  Bound start =
      Bound::max(align(intervals.visited.lo, masked.step, /*up=*/false), zero);
  loop.setLowerBound(
      getValueOrCreateConstantIndexOp(builder, loc, bounds.build(start)));
  done += "starts later, ";
}

void LoopSplitter::setUpperBound(BoundBuilder &bounds, const Bound &end) {
  Bound newEnd = Bound::min(intervals.visited.hi, end);
  if (newEnd == end)
    return;
  loop.setUpperBound(
      getValueOrCreateConstantIndexOp(builder, loc, bounds.build(newEnd)));
  done += "ends earlier, ";
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
  done += "keys between are left out, ";
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

linalg::GenericOp LoopSplitter::buildUnmasked(OpBuilder &b) {
  IRMapping map;
  auto copy = cast<linalg::GenericOp>(b.clone(*masked.scores, map));
  Operation *yield = copy.getBody()->getTerminator();
  yield->setOperand(0, map.lookupOrDefault(masked.mask.unmasked));
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(*copy.getBody())))
    if (&op != yield && op.use_empty() && isMemoryEffectFree(&op))
      op.erase();
  return copy;
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
  auto choice = scf::IfOp::create(b, loc, masked.scores.getResultTypes(),
                                  isFull, /*withElseRegion=*/true);
  masked.scores->replaceAllUsesWith(choice.getResults());
  b.setInsertionPointToStart(choice.thenBlock());
  auto unmasked = buildUnmasked(b);
  scf::YieldOp::create(b, loc, unmasked->getResults());
  b.setInsertionPointToStart(choice.elseBlock());
  scf::YieldOp::create(b, loc, masked.scores->getResults());
  masked.scores->moveBefore(choice.elseBlock()->getTerminator());
}

std::string LoopSplitter::run() {
  intervals.materializeUniforms(builder, symbols, flags, indexBits);
  OpFoldResult unbounded = getAsOpFoldResult(loop.getUpperBound());
  Bound end = upperBoundOfLoop();
  BoundBuilder bounds(builder, loc, symbols, flags, unbounded);
  setLowerBound(bounds);
  setUpperBound(bounds, end);
  skipUnseen(bounds);
  if (isAlwaysFull(end)) {
    OpBuilder b(masked.scores);
    auto unmasked = buildUnmasked(b);
    masked.scores->replaceAllUsesWith(unmasked->getResults());
    masked.scores->erase();
    done += "all tiles are full: no mask, ";
  } else if (!isNeverFull()) {
    buildIf(bounds);
    done += "full tiles run without the mask, ";
  } else if (!done.empty()) {
    done += "no tile is full, ";
  }
  if (!done.empty())
    done.resize(done.size() - 2);
  return done;
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
struct SplitMaskLoopsPass
    : fa::impl::SplitMaskLoopsPassBase<SplitMaskLoopsPass> {
  using SplitMaskLoopsPassBase::SplitMaskLoopsPassBase;
  void runOnOperation() override {
    SmallVector<OnlineSoftmaxOp> merges;
    getOperation().walk([&](OnlineSoftmaxOp op) { merges.push_back(op); });
    for (OnlineSoftmaxOp merge : merges)
      split(merge);
    if (merges.empty())
      reportExpanded();
  }

  remark::RemarkOpts remarkOptions(StringRef name) {
    return remark::RemarkOpts::name(name)
        .category(DEBUG_TYPE)
        .function(getOperation().getName());
  }

  void split(OnlineSoftmaxOp merge) {
    StringRef reason;
    std::optional<MaskedLoop> masked = matchMaskedLoop(merge, reason);
    if (!masked) {
      if (!reason.empty())
        remark::missed(merge.getLoc(), remarkOptions("NotSplit")) << reason;
      return;
    }
    MaskIntervals intervals = MaskIntervals::compute(
        masked->mask, {masked->scores, masked->loop.getInductionVar(),
                       masked->loop, masked->rows});
    std::string text;
    llvm::raw_string_ostream stream(text);
    intervals.print(stream);
    Location loc = masked->scores.getLoc();
    std::string done = LoopSplitter(*masked, intervals, indexBits).run();
    if (done.empty())
      remark::missed(loc, remarkOptions("NotSplit"))
          << "the mask cuts nothing off: " + text;
    else
      remark::passed(loc, remarkOptions("Split")) << done + ": " + text;
  }

  /// After the merge is expanded, its identity is no longer visible.
  void reportExpanded() {
    getOperation().walk([&](linalg::GenericOp op) {
      if (isa<scf::ForOp>(op->getParentOp()) && matchScoreMask(op))
        remark::missed(op.getLoc(), remarkOptions("NotSplit"))
            << "no fa.online_softmax in the loop: run this pass before "
               "fa-defer-normalization";
    });
  }
};
} // namespace
