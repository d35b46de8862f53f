// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "MaskedLoop.h"

#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Transforms/Utils.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace fa;

/// Whether a loop yields of what it carries what a step makes of it: the whole
/// of it or a slice, padded or not.
static bool isState(Value yielded, Value carried, TileStepOpInterface step) {
  if (yielded == carried)
    return true;
  auto style = cast<DestinationStyleOpInterface>(step.getOperation());
  auto write = yielded.getDefiningOp<tensor::InsertSliceOp>();
  if (!write) {
    auto result = dyn_cast<OpResult>(yielded);
    return result && result.getOwner() == step &&
           style.getTiedOpOperand(result)->get() == carried;
  }
  Value part = write.getSource();
  if (auto clip = part.getDefiningOp<tensor::ExtractSliceOp>())
    part = clip.getSource();
  auto result = dyn_cast<OpResult>(part);
  if (!result || result.getOwner() != step || write.getDest() != carried)
    return false;
  tensor::ExtractSliceOp read =
      sliceBehindPadding(style.getTiedOpOperand(result)->get());
  return read && read.getSource() == carried && isSameSlice(read, write);
}

/// Skipping a step of the loop must leave what it carries as it is: each value
/// is the step's state, which a block of -inf scores does not change.
static bool carriesOnlyState(scf::ForOp loop, TileStepOpInterface step) {
  for (auto [carried, yielded] :
       llvm::zip(loop.getRegionIterArgs(), loop.getYieldedValues()))
    if (!isState(yielded, carried, step))
      return false;
  return llvm::all_of(loop.getBody()->without_terminator(),
                      [](Operation &op) { return isMemoryEffectFree(&op); });
}

/// How many rows or keys a tile has, at most, by what it slices of them.
static std::optional<int64_t> boundAlong(TileStepOpInterface step,
                                         unsigned dim) {
  auto type = cast<RankedTensorType>(step.getScoresOperand().get().getType());
  if (!type.isDynamicDim(dim))
    return type.getDimSize(dim);
  auto slice =
      step.getOperandAlong(dim).getDefiningOp<tensor::ExtractSliceOp>();
  if (!slice)
    return std::nullopt;
  return getStaticBound(
      slice.getMixedSizes()[firstKeptDim(slice.getDroppedDims())]);
}

/// Where a tile begins in a dimension of the scores, if that is no constant.
static Value offsetAlong(TileStepOpInterface step, unsigned dim) {
  tensor::ExtractSliceOp slice = sliceBehindPadding(step.getOperandAlong(dim));
  if (!slice)
    return {};
  unsigned kept = firstKeptDim(slice.getDroppedDims());
  return dyn_cast<Value>(slice.getMixedOffsets()[kept]);
}

/// Whether the loop is over blocks of rows: each of its steps has others.
static bool isOverRows(scf::ForOp loop, TileStepOpInterface step) {
  Value row = offsetAlong(step, 0);
  return row && !loop.isDefinedOutsideOfLoop(row);
}

std::optional<MaskedLoop> MaskedLoop::match(TileStepOpInterface tile,
                                            StringRef &reason) {
  MaskedLoop masked;
  masked.loop = dyn_cast<scf::ForOp>(tile->getParentOp());
  if (!masked.loop)
    return std::nullopt; // Not tiled.
  Value scores = tile.getScoresOperand().get();
  masked.scores = scores.getDefiningOp<linalg::GenericOp>();
  if (!masked.scores || masked.scores->getBlock() != masked.loop.getBody()) {
    reason = "the scores are not computed by a linalg.generic in the loop";
    return std::nullopt;
  }
  std::optional<ScoreMask> mask = matchScoreMask(masked.scores);
  if (!mask)
    return std::nullopt;
  masked.mask = *mask;
  std::optional<int64_t> rows = boundAlong(tile, 0), keys = boundAlong(tile, 1);
  // The forward's later passes want padded tiles: they come first there.
  bool isMerge = isa<OnlineSoftmaxOp>(tile.getOperation());
  auto type = cast<RankedTensorType>(scores.getType());
  if (!rows || !keys || (isMerge && !type.hasStaticShape())) {
    reason = "the tiles have no static size; run fa-pad-tiles first";
    return std::nullopt;
  }
  masked.transposed = isOverRows(masked.loop, tile);
  masked.rows = masked.transposed ? *keys : *rows;
  masked.keys = masked.transposed ? *rows : *keys;
  masked.outer = offsetAlong(tile, masked.transposed ? 1 : 0);
  // A merge has no slice of the queries: its rows are those of the loop around.
  if (auto around = dyn_cast<scf::ForOp>(masked.loop->getParentOp());
      around && !masked.outer)
    masked.outer = around.getInductionVar();
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
  if (!carriesOnlyState(masked.loop, tile)) {
    reason = "the loop carries more than the state of one merge; run "
             "fa-interchange first";
    return std::nullopt;
  }
  return masked;
}

MaskIntervals MaskedLoop::computeIntervals() {
  return MaskIntervals::compute(
      mask, {scores, loop.getInductionVar(), loop, rows, transposed});
}

SmallVector<std::pair<Value, bool>> MaskedLoop::conjuncts() {
  SmallVector<std::pair<Value, bool>> work(mask.conditions), parts;
  // Parts may be shared.
  DenseSet<Value> seen[2];
  while (!work.empty()) {
    auto [condition, negated] = work.pop_back_val();
    if (!seen[negated].insert(condition).second)
      continue;
    auto both = condition.getDefiningOp<arith::AndIOp>();
    if (both && !negated &&
        scores.getRegion().isAncestor(both->getParentRegion())) {
      work.push_back({both.getLhs(), false});
      work.push_back({both.getRhs(), false});
    } else {
      parts.push_back({condition, negated});
    }
  }
  return parts;
}

bool fa::isPlaceIn(Value place, unsigned dim, Value first) {
  auto is = [&](Value a, Value b) {
    auto offset = a.getDefiningOp<linalg::IndexOp>();
    return offset && offset.getDim() == dim && b == first;
  };
  SmallVector<Value> terms;
  if (auto sum = place.getDefiningOp<arith::AddIOp>())
    terms = {sum.getLhs(), sum.getRhs()};
  else if (auto apply = place.getDefiningOp<affine::AffineApplyOp>()) {
    AffineMap map = apply.getAffineMap();
    terms.assign(apply.getOperands().begin(), apply.getOperands().end());
    if (terms.size() != 2)
      return false;
    AffineExpr plain = getAffineConstantExpr(0, map.getContext());
    for (unsigned i = 0; i < 2; ++i)
      plain = plain + (i < map.getNumDims()
                           ? getAffineDimExpr(i, map.getContext())
                           : getAffineSymbolExpr(i - map.getNumDims(),
                                                 map.getContext()));
    if (simplifyAffineExpr(map.getResult(0) - plain, map.getNumDims(),
                           map.getNumSymbols()) !=
        getAffineConstantExpr(0, map.getContext()))
      return false;
  }
  return terms.size() == 2 &&
         (is(terms[0], terms[1]) || is(terms[1], terms[0]));
}

Bound fa::align(const Bound &bound, int64_t step, bool up) {
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

Bound MaskedLoop::upperBound(SmallVectorImpl<OpFoldResult> &symbols) {
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

linalg::GenericOp MaskedLoop::buildUnmasked(OpBuilder &b) {
  IRMapping mapping;
  auto copy = cast<linalg::GenericOp>(b.clone(*scores, mapping));
  Operation *yield = copy.getBody()->getTerminator();
  yield->setOperand(0, mapping.lookupOrDefault(mask.unmasked));
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(*copy.getBody())))
    if (&op != yield && op.use_empty() && isMemoryEffectFree(&op))
      op.erase();
  return copy;
}

void MaskedLoop::chooseUnmasked(OpBuilder &b, Value isFull) {
  auto choice = scf::IfOp::create(b, scores.getLoc(), scores.getResultTypes(),
                                  isFull, /*withElseRegion=*/true);
  scores->replaceAllUsesWith(choice.getResults());
  b.setInsertionPointToStart(choice.thenBlock());
  auto unmasked = buildUnmasked(b);
  scf::YieldOp::create(b, scores.getLoc(), unmasked->getResults());
  b.setInsertionPointToStart(choice.elseBlock());
  scf::YieldOp::create(b, scores.getLoc(), scores->getResults());
  scores->moveBefore(choice.elseBlock()->getTerminator());
}
