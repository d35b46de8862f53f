// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loops over keys visit a list of blocks where only data tell which are seen;
// and so do loops over rows, where everything that is said of keys here holds
// of rows, and what is said of rows of keys (MaskedLoop).

#include "MaskedLoop.h"
#include "fa/Dialect/FA/IR/Granularity.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Dialect/FA/Transforms/Utils.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <numeric>

namespace fa {
#define GEN_PASS_DEF_LISTBLOCKSPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-list-blocks"

namespace {
/// Makes the lists of one loop, and lets it follow them.
class BlockLister {
public:
  BlockLister(MaskedLoop &masked, const MaskIntervals &intervals,
              unsigned indexBits)
      : masked(masked), loop(masked.loop), intervals(intervals),
        indexBits(indexBits), loc(masked.scores.getLoc()) {}
  /// Why there is no list, or nothing.
  StringRef match();
  void rewrite();

private:
  /// The dimension of the scores that the loop walks along.
  unsigned keyDim() const { return masked.transposed ? 0 : 1; }
  StringRef findAround();
  bool findConditions();
  bool canClone(Value value, bool everywhere = false);
  bool dependsOn(Value value);
  Value clone(OpBuilder &b, Value value, IRMapping &map);
  OpFoldResult clone(OpBuilder &b, OpFoldResult size, IRMapping &map);
  std::pair<Value, Value> buildBounds();
  ListBlocksOp buildList(OpBuilder &b, ArrayRef<Value> ivs, ValueRange outs);
  std::pair<int64_t, int64_t> everyOf(ListBlocksOp list, Value seen, Value row);
  void follow(ValueRange lists);

  MaskedLoop &masked;
  scf::ForOp loop;
  const MaskIntervals &intervals;
  unsigned indexBits;
  Location loc;
  scf::ForallOp forall;
  /// Around the loop, each with how far it counts, but for that of the rows.
  SmallVector<std::pair<Value, OpFoldResult>> around;
  OpFoldResult endOfRows;
  /// Conditions on coordinates alone, and whether these are the whole mask.
  SmallVector<std::pair<Value, bool>> conditions;
  bool isWhole = true;
  /// Of the conditions those that are the same for a whole block: they hold
  /// where it is listed.
  SmallVector<std::pair<Value, bool>> implied;
  /// Keys at these and beyond are not seen: j < limit; and so are rows.
  SmallVector<Value> limits, rowLimits;
  Value from, to;
  /// Blocks of rows and of keys.
  OpFoldResult rowBlocks, keyBlocks;
};
} // namespace

//===----------------------------------------------------------------------===//
// What can be listed
//===----------------------------------------------------------------------===//

/// Whether what computes a value within a region can be copied: pure operations
/// without regions, from leaves and what is outside.
static bool canCopy(Value value, Region &region,
                    llvm::function_ref<bool(Value)> isLeaf) {
  SmallVector<Value> worklist = {value};
  DenseSet<Value> seen;
  while (!worklist.empty()) {
    Value next = worklist.pop_back_val();
    if (!seen.insert(next).second ||
        !region.isAncestor(next.getParentRegion()) || isLeaf(next))
      continue;
    Operation *op = next.getDefiningOp();
    if (!op || op->getNumRegions() || !isPure(op))
      return false;
    llvm::append_range(worklist, op->getOperands());
  }
  return true;
}

/// Whether a value in the body of the scores depends on their operands: on
/// more than coordinates and captured tensors.
static bool dependsOnScores(Value value, linalg::GenericOp scores) {
  return !canCopy(value, scores.getRegion(), [](Value) { return false; });
}

/// Splits the mask into the conditions that coordinates decide and the ends of
/// the keys.
bool BlockLister::findConditions() {
  for (auto [condition, negated] : masked.conjuncts()) {
    if (dependsOnScores(condition, masked.scores)) {
      isWhole = false;
      continue;
    }
    auto compare = condition.getDefiningOp<arith::CmpIOp>();
    bool isLimit = compare && !negated &&
                   compare.getPredicate() == arith::CmpIPredicate::slt &&
                   loop.isDefinedOutsideOfLoop(compare.getRhs());
    if (isLimit &&
        isPlaceIn(compare.getLhs(), keyDim(), loop.getInductionVar()))
      limits.push_back(compare.getRhs());
    else if (isLimit && isPlaceIn(compare.getLhs(), 1 - keyDim(), masked.outer))
      rowLimits.push_back(compare.getRhs());
    else
      conditions.push_back({condition, negated});
  }
  return !conditions.empty();
}

/// The loops around the one over keys: of heads, of what shares a key head.
StringRef BlockLister::findAround() {
  StringRef reason = "the loop is not one over keys in one over rows in an "
                     "scf.forall, all of which count from 0 by 1 or by blocks";
  auto visit = [&](Value iv, OpFoldResult lower, OpFoldResult upper,
                   OpFoldResult step) {
    bool isOfRows = iv == masked.outer;
    if (isOfRows)
      endOfRows = upper;
    else
      around.push_back({iv, upper});
    return isConstantIntValue(lower, 0) &&
           isConstantIntValue(step, isOfRows ? masked.rows : 1);
  };
  SmallVector<scf::ForOp> loops;
  Operation *op = loop->getParentOp();
  for (; auto outer = dyn_cast<scf::ForOp>(op); op = op->getParentOp())
    loops.push_back(outer);
  forall = dyn_cast<scf::ForallOp>(op);
  if (!forall ||
      forall->getParentOp() != forall->getParentOfType<func::FuncOp>())
    return reason;
  for (auto [iv, lower, upper, step] :
       llvm::zip(forall.getInductionVars(), forall.getMixedLowerBound(),
                 forall.getMixedUpperBound(), forall.getMixedStep()))
    if (!visit(iv, lower, upper, step))
      return reason;
  for (scf::ForOp outer : llvm::reverse(loops))
    if (!visit(outer.getInductionVar(), OpFoldResult(outer.getLowerBound()),
               getAsOpFoldResult(outer.getUpperBound()),
               OpFoldResult(outer.getStep())))
      return reason;
  return endOfRows ? "" : reason;
}

StringRef BlockLister::match() {
  if (StringRef reason = findAround(); !reason.empty())
    return reason;
  if (masked.step != masked.keys || masked.keys % 2)
    return "tiles do not lie side by side, or have an odd number of keys";
  if (!findConditions())
    return "no part of the mask depends on coordinates alone";
  SmallVector<OpFoldResult> ends = {getAsOpFoldResult(loop.getUpperBound()),
                                    endOfRows};
  for (auto &[iv, end] : around)
    ends.push_back(end);
  for (OpFoldResult end : ends)
    if (auto value = dyn_cast<Value>(end);
        value && !canClone(value, /*everywhere=*/true))
      return "the number of keys or rows is not the same for all";
  SmallVector<Value> needed(limits);
  for (auto &[condition, negated] : conditions)
    needed.push_back(condition);
  if (!llvm::all_of(needed, [&](Value v) { return canClone(v); }))
    return "the mask depends on more than coordinates and captured tensors";
  return "";
}

//===----------------------------------------------------------------------===//
// The lists
//===----------------------------------------------------------------------===//

/// Whether a value is computed from coordinates (not where it is needed
/// everywhere) and what is outside by what can be copied.
bool BlockLister::canClone(Value value, bool everywhere) {
  return canCopy(value, forall.getRegion(), [&](Value leaf) {
    bool isCoordinate =
        leaf == loop.getInductionVar() || leaf == masked.outer ||
        llvm::is_contained(llvm::make_first_range(around), leaf);
    return isCoordinate && !everywhere;
  });
}

/// Copies what computes a value inside the forall.
Value BlockLister::clone(OpBuilder &b, Value value, IRMapping &map) {
  if (map.contains(value) ||
      !forall.getRegion().isAncestor(value.getParentRegion()))
    return map.lookupOrDefault(value);
  Operation *op = value.getDefiningOp();
  for (Value operand : op->getOperands())
    map.map(operand, clone(b, operand, map));
  b.clone(*op, map);
  return map.lookup(value);
}

OpFoldResult BlockLister::clone(OpBuilder &b, OpFoldResult size,
                                IRMapping &map) {
  auto value = dyn_cast<Value>(size);
  return value ? getAsOpFoldResult(clone(b, value, map)) : size;
}

/// Whether the mask of a block depends on an induction variable around it.
bool BlockLister::dependsOn(Value iv) {
  SmallVector<Value> worklist = {from, to};
  for (auto &[condition, negated] : conditions)
    worklist.push_back(condition);
  DenseSet<Value> seen;
  while (!worklist.empty()) {
    Value next = worklist.pop_back_val();
    if (next == iv)
      return true;
    if (Operation *op = next.getDefiningOp(); op && seen.insert(next).second)
      llvm::append_range(worklist, op->getOperands());
  }
  return false;
}

/// First and last key that may be seen, computed before the loop.
std::pair<Value, Value> BlockLister::buildBounds() {
  OpBuilder b(loop);
  SmallVector<OpFoldResult> symbols;
  SmallVector<Value> flags;
  intervals.materializeUniforms(b, symbols, flags, indexBits);
  OpFoldResult unbounded = getAsOpFoldResult(loop.getUpperBound());
  Bound end = masked.upperBound(symbols);
  BoundBuilder bounds(b, loc, symbols, flags, unbounded);
  auto value = [&](const Bound &bound) {
    return getValueOrCreateConstantIndexOp(b, loc, bounds.build(bound));
  };
  Bound zero = Bound::affine(b.getAffineConstantExpr(0));
  Bound start = intervals.visited.lo.isNegInf()
                    ? zero
                    : Bound::max(align(intervals.visited.lo, masked.step,
                                       /*up=*/false),
                                 zero);
  Value last = value(Bound::min(intervals.visited.hi, end));
  for (Value limit : limits)
    if (limit != loop.getUpperBound())
      last = arith::MinSIOp::create(b, loc, last, limit);
  return {value(start), last};
}

/// For how many rows and columns of a block one value of its mask stands.
std::pair<int64_t, int64_t> BlockLister::everyOf(ListBlocksOp list, Value seen,
                                                 Value row) {
  Block &mask = list.getMask().front();
  DenseMap<Value, int64_t> multiples = {{row, masked.rows},
                                        {mask.getArgument(2), masked.keys}};
  auto every = [&](unsigned dim, int64_t size) {
    return std::gcd(getGranularity(seen, mask.getArgument(dim), multiples),
                    size);
  };
  return {every(0, masked.rows), every(1, masked.keys)};
}

ListBlocksOp BlockLister::buildList(OpBuilder &b, ArrayRef<Value> ivs,
                                    ValueRange outs) {
  IRMapping map;
  for (auto [outer, iv] : llvm::zip(around, ivs))
    map.map(outer.first, iv);
  map.map(masked.outer, ivs.back());
  Value first = clone(b, from, map), last = clone(b, to, map);
  AffineExpr row, rows;
  bindDims(b.getContext(), row);
  bindSymbols(b.getContext(), rows);
  Value size = getValueOrCreateConstantIndexOp(
      b, loc,
      affine::makeComposedFoldedAffineMin(
          b, loc,
          AffineMap::get(1, 1,
                         {rows - row, b.getAffineConstantExpr(masked.rows)},
                         b.getContext()),
          {OpFoldResult(ivs.back()), clone(b, endOfRows, map)}));
  auto list = ListBlocksOp::create(
      b, loc, TypeRange(outs), size, first, last, outs[0], outs[1],
      b.getDenseI64ArrayAttr({masked.rows, masked.keys}),
      b.getDenseI64ArrayAttr({1, 1}));
  Type index = b.getIndexType();
  Block *body = b.createBlock(&list.getMask(), {}, {index, index, index},
                              {loc, loc, loc});
  for (Operation &op : masked.scores.getBody()->without_terminator())
    if (auto coordinate = dyn_cast<linalg::IndexOp>(op))
      map.map(coordinate.getResult(),
              body->getArgument(coordinate.getDim() == keyDim() ? 1 : 0));
  map.map(loop.getInductionVar(), body->getArgument(2));
  Value seen;
  for (auto &[condition, negated] : conditions) {
    Value part = clone(b, condition, map);
    if (everyOf(list, part, ivs.back()) == std::pair(masked.rows, masked.keys))
      implied.push_back({condition, negated});
    if (negated) {
      Value yes = arith::ConstantIntOp::create(b, loc, 1, 1);
      part = arith::XOrIOp::create(b, loc, part, yes);
    }
    seen = seen ? arith::AndIOp::create(b, loc, seen, part).getResult() : part;
  }
  YieldOp::create(b, loc, seen);
  auto [everyRow, everyKey] = everyOf(list, seen, ivs.back());
  list.setEvery({everyRow, everyKey});
  return list;
}

/// The loop runs over the list of its block of rows.
void BlockLister::follow(ValueRange lists) {
  OpBuilder b(loop);
  auto constant = [&](int64_t c) -> Value {
    return arith::ConstantIndexOp::create(b, loc, c);
  };
  SmallVector<Value> place;
  auto type = cast<RankedTensorType>(lists[0].getType());
  for (auto [d, outer] : llvm::enumerate(around))
    place.push_back(type.getDimSize(d) == 1 ? constant(0) : outer.first);
  AffineExpr d0 = b.getAffineDimExpr(0);
  place.push_back(affine::AffineApplyOp::create(
      b, loc, d0.floorDiv(masked.rows), ValueRange(masked.outer)));
  SmallVector<Value> only(place);
  only.push_back(constant(0));
  Value count = tensor::ExtractOp::create(b, loc, lists[0], only);
  count = arith::IndexCastOp::create(b, loc, b.getIndexType(), count);
  loop.setLowerBound(constant(0));
  loop.setUpperBound(count);
  loop.setStep(constant(1));

  OpBuilder in = OpBuilder::atBlockBegin(loop.getBody());
  Value iv = loop.getInductionVar();
  place.push_back(iv);
  auto entry = tensor::ExtractOp::create(in, loc, lists[1], place);
  auto evenBits = arith::ConstantIntOp::create(in, loc, -2, 32);
  Value first = arith::AndIOp::create(in, loc, entry, evenBits);
  Value key = arith::IndexCastOp::create(in, loc, in.getIndexType(), first);
  iv.replaceAllUsesExcept(key, entry);
  for (auto &[condition, negated] : implied) {
    OpBuilder before(masked.scores);
    Value known = arith::ConstantIntOp::create(before, loc, !negated, 1);
    condition.replaceUsesWithIf(known, [&](OpOperand &use) {
      return masked.scores->isProperAncestor(use.getOwner());
    });
  }
  if (!isWhole)
    return;
  OpBuilder at(masked.scores);
  Value isFull = arith::TruncIOp::create(at, loc, at.getI1Type(), entry);
  for (Value limit : rowLimits) {
    Value end = affine::AffineApplyOp::create(at, loc, d0 + masked.rows,
                                              ValueRange(masked.outer));
    Value exist =
        arith::CmpIOp::create(at, loc, arith::CmpIPredicate::sle, end, limit);
    isFull = arith::AndIOp::create(at, loc, isFull, exist);
  }
  masked.chooseUnmasked(at, isFull);
}

void BlockLister::rewrite() {
  std::tie(from, to) = buildBounds();
  OpBuilder b(forall);
  SmallVector<OpFoldResult> sizes;
  IRMapping outside;
  for (auto &[iv, upper] : around)
    sizes.push_back(dependsOn(iv) ? clone(b, upper, outside)
                                  : OpFoldResult(b.getIndexAttr(1)));
  auto blocks = [&](OpFoldResult end, int64_t size) {
    return affine::makeComposedFoldedAffineApply(
        b, loc, b.getAffineSymbolExpr(0).ceilDiv(size), {end});
  };
  OpFoldResult end = clone(b, endOfRows, outside);
  OpFoldResult endOfKeys =
      clone(b, getAsOpFoldResult(loop.getUpperBound()), outside);
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  SmallVector<OpFoldResult> lower(sizes.size() + 1, zero), upper(sizes),
      step(sizes.size(), one);
  upper.push_back(end);
  step.push_back(b.getIndexAttr(masked.rows));
  sizes.push_back(blocks(end, masked.rows));
  SmallVector<OpFoldResult> counts(sizes), entries(sizes);
  counts.push_back(one);
  entries.push_back(blocks(endOfKeys, masked.keys));
  SmallVector<Value> outs;
  for (ArrayRef<OpFoldResult> shape : {ArrayRef(counts), ArrayRef(entries)})
    outs.push_back(
        tensor::EmptyOp::create(b, loc, shape, b.getI32Type()).getResult());
  auto lists = scf::ForallOp::create(b, loc, lower, upper, step, outs,
                                     /*mapping=*/std::nullopt);
  b.setInsertionPoint(lists.getTerminator());
  SmallVector<Value> ivs(lists.getInductionVars());
  AffineExpr d0 = b.getAffineDimExpr(0);
  OpFoldResult block = affine::makeComposedFoldedAffineApply(
      b, loc, d0.floorDiv(masked.rows), {OpFoldResult(ivs.back())});
  SmallVector<OpFoldResult> offsets(ivs.begin(), ivs.end() - 1);
  offsets.append({block, zero});
  SmallVector<OpFoldResult> ones(offsets.size(), one);
  SmallVector<Value> rows;
  auto sizesOf = [&](unsigned i) {
    SmallVector<OpFoldResult> shape(ones);
    shape.back() = i ? entries.back() : one;
    return shape;
  };
  for (auto [i, out] : llvm::enumerate(lists.getRegionIterArgs())) {
    auto whole = cast<RankedTensorType>(out.getType());
    auto type = RankedTensorType::get(whole.getShape().take_back(),
                                      whole.getElementType());
    rows.push_back(tensor::ExtractSliceOp::create(b, loc, type, out, offsets,
                                                  sizesOf(i), ones));
  }
  ListBlocksOp list = buildList(b, ivs, rows);
  b.setInsertionPointToEnd(lists.getTerminator().getBody());
  for (auto [i, result] : llvm::enumerate(list->getResults()))
    tensor::ParallelInsertSliceOp::create(b, loc, result,
                                          lists.getRegionIterArgs()[i], offsets,
                                          sizesOf(i), ones);
  follow(lists.getResults());
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
struct ListBlocksPass : fa::impl::ListBlocksPassBase<ListBlocksPass> {
  using ListBlocksPassBase::ListBlocksPassBase;
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    SmallVector<TileStepOpInterface> steps;
    func.walk([&](TileStepOpInterface op) { steps.push_back(op); });
    bool changed = false;
    for (TileStepOpInterface step : steps)
      changed |= list(step);
    if (changed && failed(cleanUp(func)))
      signalPassFailure();
  }

  bool list(TileStepOpInterface step) {
    StringRef reason;
    std::optional<MaskedLoop> masked = MaskedLoop::match(step, reason);
    if (!masked)
      return false; // fa-split-mask-loops says why.
    MaskIntervals intervals = masked->computeIntervals();
    if (intervals.decided)
      return false;
    auto options = [&](StringRef name) {
      return remark::RemarkOpts::name(name)
          .category(DEBUG_TYPE)
          .function(getOperation().getName());
    };
    Location loc = masked->scores.getLoc();
    BlockLister lister(*masked, intervals, indexBits);
    if (reason = lister.match(); !reason.empty()) {
      remark::missed(loc, options("NotListed")) << reason;
      return false;
    }
    lister.rewrite();
    std::string over = masked->transposed ? "rows" : "keys";
    remark::passed(loc, options("Listed"))
        << "the loop over " + over +
               " follows a list of blocks that is made of the mask, which "
               "depends on data";
    return true;
  }
};
} // namespace
