// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles are loaded up to where the mask ends for all rows and keys.

#include "MaskedLoop.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Dialect/FA/Transforms/Utils.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace fa {
#define GEN_PASS_DEF_CLIPLOADSPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-clip-loads"

namespace {
/// Clips the tiles that one step reads.
class LoadClipper {
public:
  LoadClipper(TileStepOpInterface step, MaskedLoop &masked)
      : step(step), masked(masked), loop(masked.loop) {}
  /// How many tiles end sooner.
  unsigned run();

private:
  Value findEnd(unsigned dim, Value first);
  bool isUniform(Value value, bool &reads);
  SmallVector<tensor::PadOp> loadsAt(Value first);
  bool clip(tensor::PadOp pad, Value first, Value end);

  TileStepOpInterface step;
  MaskedLoop &masked;
  scf::ForOp loop;
};
} // namespace

/// Whether a value of the scores' region, or of the loop before them, is the
/// same for all elements and iterations; `reads` becomes true where it is
/// computed from an element in memory.
bool LoadClipper::isUniform(Value value, bool &reads) {
  if (!loop.getRegion().isAncestor(value.getParentRegion()))
    return true;
  Operation *op = value.getDefiningOp();
  if (!op || isa<linalg::IndexOp>(op) || op->getNumRegions() ||
      !isMemoryEffectFree(op))
    return false;
  reads |= isa<tensor::ExtractOp>(op);
  return llvm::all_of(op->getOperands(),
                      [&](Value operand) { return isUniform(operand, reads); });
}

/// Computes a uniform value where `b` inserts, before `at`; null where
/// something that it needs is not known there.
static Value cloneBefore(OpBuilder &b, const DominanceInfo &dominance,
                         Operation *at, Value value, IRMapping &map) {
  if (dominance.properlyDominates(value, at))
    return value;
  if (Value known = map.lookupOrNull(value))
    return known;
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumRegions() || !isMemoryEffectFree(op))
    return {};
  for (Value operand : op->getOperands()) {
    Value known = cloneBefore(b, dominance, at, operand, map);
    if (!known)
      return {};
    map.map(operand, known);
  }
  b.clone(*op, map);
  return map.lookup(value);
}

/// The number, read from memory, that the rows (0) or keys (1) of all tiles are
/// below, as the scores compute it; null where the mask has none. `first` is a
/// tile's first row or key.
Value LoadClipper::findEnd(unsigned dim, Value first) {
  for (auto [condition, isNegated] : masked.conjuncts()) {
    auto compare = condition.getDefiningOp<arith::CmpIOp>();
    if (!compare || isNegated)
      continue;
    Value place = compare.getLhs(), end = compare.getRhs();
    if (compare.getPredicate() == arith::CmpIPredicate::sgt)
      std::swap(place, end);
    else if (compare.getPredicate() != arith::CmpIPredicate::slt)
      continue;
    bool reads = false;
    if (isPlaceIn(place, dim, first) && end.getType().isIndex() &&
        isUniform(end, reads) && reads)
      return end;
  }
  return {};
}

/// The padded tiles that are read and not added to, whose slices begin at a row
/// or key: of a forward's step the values alone, since the mask chooses among
/// scores.
SmallVector<tensor::PadOp> LoadClipper::loadsAt(Value first) {
  bool isForward = isa<OnlineSoftmaxOp>(step.getOperation());
  auto style = cast<DestinationStyleOpInterface>(step.getOperation());
  llvm::SetVector<Operation *> pads;
  for (Operation *user : first.getUsers()) {
    auto slice = dyn_cast<tensor::ExtractSliceOp>(user);
    if (!slice || !isa<FloatType>(slice.getType().getElementType()))
      continue;
    for (Operation *reader : slice->getUsers())
      if (auto pad = dyn_cast<tensor::PadOp>(reader);
          pad && !llvm::is_contained(style.getDpsInits(), pad.getResult()) &&
          (!isForward || pad.getResult() == step.getOperandAlong(1)))
        pads.insert(pad);
  }
  SmallVector<tensor::PadOp> found;
  for (Operation *pad : pads)
    found.push_back(cast<tensor::PadOp>(pad));
  return found;
}

/// Ends a slice at `end`, and pads it to the size that it had.
bool LoadClipper::clip(tensor::PadOp pad, Value first, Value end) {
  auto slice = pad.getSource().getDefiningOp<tensor::ExtractSliceOp>();
  OpBuilder b(slice);
  Location loc = slice.getLoc();
  SmallVector<OpFoldResult> offsets = slice.getMixedOffsets(),
                            sizes = slice.getMixedSizes();
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  unsigned kept = 0;
  for (auto [dim, offset] : llvm::enumerate(offsets)) {
    if (dropped.test(dim))
      continue;
    unsigned own = kept++;
    if (dyn_cast<Value>(offset) != first)
      continue;
    IRMapping map;
    Value limit = cloneBefore(b, DominanceInfo(), slice, end, map);
    if (!limit)
      return false;
    Value left = arith::SubIOp::create(b, loc, limit, first);
    Value none = arith::ConstantIndexOp::create(b, loc, 0);
    left = arith::MaxSIOp::create(b, loc, left, none);
    Value size = getValueOrCreateConstantIndexOp(b, loc, sizes[dim]);
    size = arith::MinSIOp::create(b, loc, size, left);
    sizes[dim] = size;
    auto clipped = tensor::ExtractSliceOp::create(
        b, loc, slice.getType(), slice.getSource(), offsets, sizes,
        slice.getMixedStrides());
    SmallVector<OpFoldResult> high = pad.getMixedHighPad();
    b.setInsertionPoint(pad);
    high[own] = affine::makeComposedFoldedAffineApply(
        b, loc,
        b.getAffineConstantExpr(pad.getType().getDimSize(own)) -
            b.getAffineSymbolExpr(0),
        {OpFoldResult(size)});
    auto padded = tensor::PadOp::create(b, loc, pad.getType(), clipped,
                                        pad.getMixedLowPad(), high,
                                        pad.getConstantPaddingValue());
    pad.replaceAllUsesWith(padded.getResult());
    pad.erase();
    return true;
  }
  return false;
}

unsigned LoadClipper::run() {
  unsigned count = 0;
  for (unsigned dim : {0, 1}) {
    tensor::ExtractSliceOp slice =
        sliceBehindPadding(step.getOperandAlong(dim));
    if (!slice)
      continue;
    auto first = dyn_cast<Value>(
        slice.getMixedOffsets()[firstKeptDim(slice.getDroppedDims())]);
    Value end = first ? findEnd(dim, first) : Value();
    if (!end)
      continue;
    for (tensor::PadOp pad : loadsAt(first))
      count += clip(pad, first, end);
  }
  return count;
}

namespace {
struct ClipLoadsPass : fa::impl::ClipLoadsPassBase<ClipLoadsPass> {
  void runOnOperation() override {
    SmallVector<TileStepOpInterface> steps;
    getOperation().walk([&](TileStepOpInterface op) { steps.push_back(op); });
    unsigned all = 0;
    for (TileStepOpInterface step : steps) {
      StringRef reason;
      std::optional<MaskedLoop> masked = MaskedLoop::match(step, reason);
      unsigned count = masked ? LoadClipper(step, *masked).run() : 0;
      all += count;
      if (count)
        remark::passed(step.getLoc(), remark::RemarkOpts::name("Clipped")
                                          .category(DEBUG_TYPE)
                                          .function(getOperation().getName()))
            << "tiles end where the mask does: " + std::to_string(count);
    }
    if (all && failed(cleanUp(getOperation())))
      signalPassFailure();
  }
};
} // namespace
