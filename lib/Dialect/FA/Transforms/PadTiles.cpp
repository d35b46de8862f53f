// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles at the edge become full tiles: padded, masked, clipped.

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
#include "mlir/Interfaces/LoopLikeInterface.h"

#include <limits>

namespace fa {
#define GEN_PASS_DEF_PADTILESPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-pad-tiles"

/// Largest static sizes of a slice, or nothing where a size has no bound.
static std::optional<SmallVector<int64_t>>
getStaticSizes(ArrayRef<OpFoldResult> sizes) {
  SmallVector<int64_t> bounds;
  for (OpFoldResult size : sizes) {
    std::optional<int64_t> bound = getStaticBound(size);
    if (!bound)
      return std::nullopt;
    bounds.push_back(*bound);
  }
  return bounds;
}

/// True inside a loop over tiles: an scf.for, or a grid with a dimension more
/// than batch and head.
static bool isInTileLoop(Operation *op) {
  if (op->getParentOfType<scf::ForOp>())
    return true;
  auto grid = op->getParentOfType<scf::ForallOp>();
  return grid && grid.getRank() > 2;
}

/// The neutral element of the reduction that `use` is an input of, if it is a
/// reduction by one operation.
static std::optional<double> neutralFor(OpOperand &use) {
  auto generic = dyn_cast<linalg::GenericOp>(use.getOwner());
  if (!generic || generic.getNumReductionLoops() == 0 ||
      generic->getNumResults() != 1 || !generic.isDpsInput(&use))
    return std::nullopt;
  Operation *combiner =
      generic.getBody()->getTerminator()->getOperand(0).getDefiningOp();
  if (!combiner || !llvm::is_contained(combiner->getOperands(),
                                       generic.getMatchingBlockArgument(&use)))
    return std::nullopt;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  // No NaN for maxnumf: padded elements may have other users, too.
  if (isa<arith::MaxNumFOp, arith::MaximumFOp>(combiner))
    return -infinity;
  if (isa<arith::MinNumFOp, arith::MinimumFOp>(combiner))
    return infinity;
  return isa<arith::MulFOp>(combiner) ? 1.0 : 0.0;
}

/// What a padded element must be: neutral for the reductions that use it, along
/// rows or columns.
static double neutralElement(tensor::ExtractSliceOp slice) {
  for (OpOperand &use : slice->getUses())
    if (std::optional<double> neutral = neutralFor(use))
      return *neutral;
  return 0.0;
}

/// Pads a slice at its end to a static shape.
static Value padToStatic(OpBuilder &b, tensor::ExtractSliceOp slice,
                         ArrayRef<int64_t> shape) {
  Location loc = slice.getLoc();
  RankedTensorType type = slice.getType();
  SmallVector<OpFoldResult> sizes =
      tensor::getMixedSizes(b, loc, slice.getResult());
  SmallVector<OpFoldResult> low(shape.size(), b.getIndexAttr(0)), high;
  AffineExpr s;
  bindSymbols(b.getContext(), s);
  for (auto [size, bound] : llvm::zip(sizes, shape))
    high.push_back(
        affine::makeComposedFoldedAffineApply(b, loc, bound - s, {size}));
  Value neutral = arith::ConstantOp::create(
      b, loc, b.getFloatAttr(type.getElementType(), neutralElement(slice)));
  auto padded = RankedTensorType::get(shape, type.getElementType());
  return tensor::PadOp::create(b, loc, padded, slice, low, high, neutral);
}

namespace {
/// What counts the first row or key of tiles, and where it ends.
struct TileWalk {
  Value iv;
  OpFoldResult end;
};

/// Makes the tiles of one loop over rows or keys static.
class Padder {
public:
  explicit Padder(func::FuncOp func) : func(func), builder(func) {}
  LogicalResult run();

private:
  void padSlice(tensor::ExtractSliceOp slice);
  void makeStatic(Operation *op);
  template <typename InsertOp> void clip(InsertOp insert, Operation *before);
  linalg::GenericOp scoresOf(TileStepOpInterface step);
  LogicalResult maskPadding(TileStepOpInterface step, unsigned dim);
  func::FuncOp func;
  OpBuilder builder;
};
} // namespace

void Padder::padSlice(tensor::ExtractSliceOp slice) {
  SmallVector<OpFoldResult> sizes;
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  for (auto [i, size] : llvm::enumerate(slice.getMixedSizes()))
    if (!dropped.test(i))
      sizes.push_back(size);
  std::optional<SmallVector<int64_t>> shape = getStaticSizes(sizes);
  if (!shape)
    return;
  builder.setInsertionPointAfter(slice);
  Value padded = padToStatic(builder, slice, *shape);
  Operation *keep = padded.getDefiningOp();
  slice.getResult().replaceUsesWithIf(padded, [&](OpOperand &use) {
    return use.getOwner() != keep && !isa<tensor::DimOp>(use.getOwner());
  });
}

/// Gives an op's results the static types that its operands now have.
void Padder::makeStatic(Operation *op) {
  if (auto empty = dyn_cast<tensor::EmptyOp>(op)) {
    std::optional<SmallVector<int64_t>> shape =
        getStaticSizes(empty.getMixedSizes());
    if (!shape || empty.getType().hasStaticShape())
      return;
    builder.setInsertionPoint(op);
    Value replacement = tensor::EmptyOp::create(
        builder, op->getLoc(), *shape, empty.getType().getElementType());
    empty.getResult().replaceAllUsesWith(replacement);
    return;
  }
  if (auto style = dyn_cast<DestinationStyleOpInterface>(op)) {
    for (auto [result, init] :
         llvm::zip(style->getResults(), style.getDpsInits()))
      result.setType(init.getType());
    return;
  }
  if (auto loop = dyn_cast<scf::ForOp>(op))
    for (auto [result, carried, init] : llvm::zip(
             loop.getResults(), loop.getRegionIterArgs(), loop.getInitArgs())) {
      result.setType(init.getType());
      carried.setType(init.getType());
    }
}

/// A padded tile is written without its padding.
template <typename InsertOp>
void Padder::clip(InsertOp insert, Operation *before) {
  if (insert.getSourceType() == insert.getDestType() ||
      !insert.getSourceType().hasStaticShape())
    return;
  // The sizes of the source: those of the slice, less the dropped ones.
  SmallVector<OpFoldResult> sizes = insert.getMixedSizes();
  llvm::SmallBitVector dropped = insert.getDroppedDims();
  for (int64_t i = sizes.size() - 1; i >= 0; --i)
    if (dropped.test(i))
      sizes.erase(sizes.begin() + i);
  if (llvm::all_of(sizes, [](OpFoldResult s) { return isa<Attribute>(s); }))
    return;
  builder.setInsertionPoint(before);
  SmallVector<OpFoldResult> zeros(sizes.size(), builder.getIndexAttr(0)),
      ones(sizes.size(), builder.getIndexAttr(1));
  Value valid = tensor::ExtractSliceOp::create(
      builder, insert.getLoc(), insert.getSource(), zeros, sizes, ones);
  insert.getSourceMutable().assign(valid);
}

/// The loop, or a grid's dimension, that a padded tile's first row or key is
/// counted by.
static std::optional<TileWalk> walkOf(Value padded) {
  tensor::ExtractSliceOp slice = sliceBehindPadding(padded);
  if (!slice)
    return std::nullopt;
  unsigned dim = firstKeptDim(slice.getDroppedDims());
  auto start = dyn_cast<Value>(slice.getMixedOffsets()[dim]);
  for (Operation *op = slice->getParentOp(); op; op = op->getParentOp()) {
    auto loop = dyn_cast<LoopLikeOpInterface>(op);
    std::optional<SmallVector<Value>> ivs =
        loop ? loop.getLoopInductionVars() : std::nullopt;
    std::optional<SmallVector<OpFoldResult>> ends =
        loop ? loop.getLoopUpperBounds() : std::nullopt;
    if (!ivs || !ends)
      continue;
    for (auto [iv, end] : llvm::zip(*ivs, *ends))
      if (iv == start)
        return TileWalk{iv, end};
  }
  return std::nullopt;
}

/// Scores as an operation of their own, to be masked.
linalg::GenericOp Padder::scoresOf(TileStepOpInterface step) {
  Value scores = step.getScoresOperand().get();
  auto generic = scores.getDefiningOp<linalg::GenericOp>();
  if (isElementwise(generic))
    return generic;
  // A scale of 1 leaves the contraction's result as it is.
  builder.setInsertionPoint(step);
  auto type = cast<RankedTensorType>(scores.getType());
  Value empty =
      tensor::EmptyOp::create(builder, step.getLoc(), type, ValueRange());
  AffineMap identity = builder.getMultiDimIdentityMap(2);
  generic = linalg::GenericOp::create(
      builder, step.getLoc(), TypeRange(type), scores, empty,
      ArrayRef<AffineMap>{identity, identity},
      SmallVector<utils::IteratorType>(2, utils::IteratorType::parallel),
      [](OpBuilder &nested, Location l, ValueRange args) {
        linalg::YieldOp::create(nested, l, args[0]);
      });
  step.getScoresOperand().set(generic.getResult(0));
  return generic;
}

/// Rows or keys past the end get the score -inf: it does nothing.
LogicalResult Padder::maskPadding(TileStepOpInterface step, unsigned dim) {
  Value along = step.getOperandAlong(dim);
  if (!step.mustMaskPadding(dim) || !along.getDefiningOp<tensor::PadOp>())
    return success();
  std::optional<TileWalk> walk = walkOf(along);
  auto type = cast<RankedTensorType>(step.getScoresOperand().get().getType());
  if (!walk || !type.hasStaticShape())
    return step.emitOpError("expected padded ")
           << (dim ? "keys" : "rows") << " to be read in a loop over "
           << (dim ? "keys" : "rows") << "; run fa-tile first";
  linalg::GenericOp scores = scoresOf(step);
  Operation *yield = scores.getBody()->getTerminator();
  builder.setInsertionPoint(yield);
  Location loc = step.getLoc();
  Value at = linalg::IndexOp::create(builder, loc, dim);
  at = arith::AddIOp::create(builder, loc, at, walk->iv);
  Value inside = arith::CmpIOp::create(
      builder, loc, arith::CmpIPredicate::slt, at,
      getValueOrCreateConstantIndexOp(builder, loc, walk->end));
  Value score = yield->getOperand(0);
  Value none = arith::ConstantOp::create(
      builder, loc,
      builder.getFloatAttr(score.getType(),
                           -std::numeric_limits<double>::infinity()));
  // A mask that is there already is extended, so that there is one to analyse.
  if (auto select = score.getDefiningOp<arith::SelectOp>())
    if (isNegativeInfinity(select.getFalseValue())) {
      inside =
          arith::AndIOp::create(builder, loc, select.getCondition(), inside);
      score = select.getTrueValue();
    }
  yield->setOperand(0,
                    arith::SelectOp::create(builder, loc, inside, score, none));
  return success();
}

LogicalResult Padder::run() {
  SmallVector<tensor::ExtractSliceOp> loads;
  func.walk([&](tensor::ExtractSliceOp slice) {
    if (isInTileLoop(slice) && !slice.getType().hasStaticShape())
      loads.push_back(slice);
  });
  for (tensor::ExtractSliceOp slice : loads)
    padSlice(slice);
  func.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (isInTileLoop(op))
      makeStatic(op);
  });
  SmallVector<tensor::InsertSliceOp> stores;
  func.walk([&](tensor::InsertSliceOp op) { stores.push_back(op); });
  for (tensor::InsertSliceOp store : stores)
    clip(store, store);
  SmallVector<tensor::ParallelInsertSliceOp> results;
  func.walk([&](tensor::ParallelInsertSliceOp op) { results.push_back(op); });
  for (tensor::ParallelInsertSliceOp result : results)
    if (isInTileLoop(result))
      clip(result, result->getParentOp());
  SmallVector<TileStepOpInterface> steps;
  func.walk([&](TileStepOpInterface op) { steps.push_back(op); });
  for (TileStepOpInterface step : steps)
    for (unsigned dim : {1, 0})
      if (failed(maskPadding(step, dim)))
        return failure();
  return success();
}

namespace {
struct PadTilesPass : fa::impl::PadTilesPassBase<PadTilesPass> {
  void runOnOperation() override {
    if (failed(Padder(getOperation()).run()) || failed(cleanUp(getOperation())))
      signalPassFailure();
  }
};
} // namespace
