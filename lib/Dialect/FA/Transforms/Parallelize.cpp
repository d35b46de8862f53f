// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients: blocks of keys, and of rows, are iterations of a grid.

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
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"
#include "llvm/ADT/bit.h"

namespace fa {
#define GEN_PASS_DEF_PARALLELIZEPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-parallelize"

namespace {
/// A forall over batch and heads as one over blocks of their rows or keys, too.
class GridBuilder {
public:
  GridBuilder(IRRewriter &rewriter, scf::ForallOp forall, TileSizes tiles = {})
      : rewriter(rewriter), forall(forall), loc(forall.getLoc()),
        tiles(std::move(tiles)) {}
  /// Blocks of rows, each by itself: of as many as a tile has, if there are
  /// tiles.
  LogicalResult splitRows();
  /// A step of gradients: sums for keys are a block's own, the others are what
  /// all blocks add up.
  LogicalResult splitKeys(SoftmaxGradOp step);

private:
  void cloneOver(unsigned output, int64_t block);
  LogicalResult tileStep(SoftmaxGradOp step);
  LogicalResult addUp();
  void sayTiles();
  void insertBlock(tensor::ParallelInsertSliceOp insert);
  void fuseProducers();
  OpFoldResult extentOf(unsigned output);

  IRRewriter &rewriter;
  scf::ForallOp forall, grid;
  Location loc;
  TileSizes tiles;
  IRMapping map;
  /// The block's first row or key, and how many it has.
  OpFoldResult first, count;
  /// Slices whose producers are to be computed for a block only.
  SmallVector<tensor::ExtractSliceOp> slices;
};
} // namespace

/// Rows or keys of an output: its third dimension.
OpFoldResult GridBuilder::extentOf(unsigned output) {
  return tensor::getMixedSize(rewriter, loc, forall.getOutputs()[output], 2);
}

/// The same iterations for each block of an output's rows or keys.
void GridBuilder::cloneOver(unsigned output, int64_t block) {
  rewriter.setInsertionPoint(forall);
  SmallVector<OpFoldResult> lower = forall.getMixedLowerBound(),
                            upper = forall.getMixedUpperBound(),
                            step = forall.getMixedStep();
  OpFoldResult extent = extentOf(output);
  lower.push_back(rewriter.getIndexAttr(0));
  upper.push_back(extent);
  step.push_back(rewriter.getIndexAttr(block));
  grid = scf::ForallOp::create(rewriter, loc, lower, upper, step,
                               forall.getOutputs(), /*mapping=*/std::nullopt);
  map.map(forall.getInductionVars(),
          ValueRange(grid.getInductionVars()).take_front(forall.getRank()));
  map.map(forall.getRegionIterArgs(), grid.getRegionIterArgs());
  rewriter.setInsertionPoint(grid.getTerminator());
  Value from = grid.getInductionVars().back();
  AffineExpr i, n;
  bindDims(rewriter.getContext(), i, n);
  first = from;
  std::optional<int64_t> whole = getConstantIntValue(extent);
  if (whole && *whole % block == 0)
    count = rewriter.getIndexAttr(block);
  else
    count = affine::makeComposedFoldedAffineMin(
        rewriter, loc,
        AffineMap::get(2, 0, {rewriter.getAffineConstantExpr(block), n - i},
                       rewriter.getContext()),
        {OpFoldResult(from), extent});
  for (Operation &op : forall.getBody()->without_terminator())
    rewriter.clone(op, map);
}

/// Here, and nowhere later, blocks begin at multiples of their sizes for all to
/// see.
void GridBuilder::sayTiles() {
  grid.walk([&](RandomBitsOp random) {
    random.setTile(ArrayRef<int64_t>{tiles.rows, tiles.keys});
  });
}

/// Writes a block of what was written whole.
void GridBuilder::insertBlock(tensor::ParallelInsertSliceOp insert) {
  SmallVector<OpFoldResult> offsets = lookupAll(map, insert.getMixedOffsets()),
                            sizes = lookupAll(map, insert.getMixedSizes());
  rewriter.setInsertionPoint(grid.getTerminator());
  Value whole = map.lookupOrDefault(insert.getSource());
  SmallVector<OpFoldResult> partSizes =
      tensor::getMixedSizes(rewriter, loc, whole);
  SmallVector<OpFoldResult> partOffsets(partSizes.size(),
                                        rewriter.getIndexAttr(0)),
      ones(partSizes.size(), rewriter.getIndexAttr(1));
  partOffsets[0] = offsets[2] = first;
  partSizes[0] = sizes[2] = count;
  auto part = tensor::ExtractSliceOp::create(rewriter, loc, whole, partOffsets,
                                             partSizes, ones);
  slices.push_back(part);
  rewriter.setInsertionPointToEnd(grid.getTerminator().getBody());
  tensor::ParallelInsertSliceOp::create(rewriter, loc, part,
                                        map.lookup(insert.getDest()), offsets,
                                        sizes, insert.getMixedStrides());
}

/// Computes of what slices are cut from only the slices.
void GridBuilder::fuseProducers() {
  while (!slices.empty()) {
    tensor::ExtractSliceOp slice = slices.pop_back_val();
    auto producer = dyn_cast<OpResult>(slice.getSource());
    auto op = producer ? dyn_cast<TilingInterface>(producer.getOwner())
                       : TilingInterface();
    if (!op || !grid->isProperAncestor(op))
      continue;
    rewriter.setInsertionPoint(slice);
    FailureOr<TilingResult> tiled =
        tensor::replaceExtractSliceWithTiledProducer(rewriter, slice, producer);
    if (failed(tiled))
      continue;
    for (Operation *made : tiled->generatedSlices)
      if (auto next = dyn_cast<tensor::ExtractSliceOp>(made))
        slices.push_back(next);
    rewriter.replaceOp(slice, tiled->tiledValues[0]);
  }
}

/// Rows of a block that meets no keys, a power of two. Where all is computed
/// element by element these are as many as have 8192 elements at most, since a
/// warp may compute the block by itself; 64 at most in any case.
static int64_t rowsOfBlock(scf::ForallOp forall) {
  constexpr int64_t most = 64, fewest = 8, elements = 8192;
  auto type = cast<RankedTensorType>(forall.getOutputs()[0].getType());
  int64_t columns = type.getShape().back();
  bool isElementwise = !ShapedType::isDynamic(columns) && columns > 0;
  forall.walk([&](linalg::GenericOp op) {
    isElementwise &= op.getNumLoops() == 2 && op.getNumReductionLoops() == 0;
  });
  if (!isElementwise)
    return most;
  return std::clamp<int64_t>(llvm::bit_floor(uint64_t(elements / columns)),
                             fewest, most);
}

LogicalResult GridBuilder::splitRows() {
  cloneOver(0, tiles.rows ? tiles.rows : rowsOfBlock(forall));
  sayTiles();
  for (Operation &op : forall.getTerminator().getYieldingOps())
    insertBlock(cast<tensor::ParallelInsertSliceOp>(op));
  fuseProducers();
  rewriter.replaceOp(forall, grid.getResults());
  return success();
}

/// Whether a result of the step has a part for each key: dK and dV.
static bool isByKeys(std::optional<unsigned> result) {
  return result == 1 || result == 2;
}

/// Which result of the step a value is computed of, element by element.
static std::optional<unsigned> resultOf(Value value, SoftmaxGradOp step) {
  while (auto result = dyn_cast<OpResult>(value)) {
    Operation *op = result.getOwner();
    if (op == step)
      return result.getResultNumber();
    if (auto loop = dyn_cast<scf::ForOp>(op))
      value = loop.getYieldedValues()[result.getResultNumber()];
    else if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
      value = insert.getSource();
    else if (auto generic = dyn_cast<linalg::GenericOp>(op);
             generic && generic.getNumReductionLoops() == 0 &&
             generic.getNumDpsInputs() != 0)
      value = generic.getDpsInputs()[0];
    else
      break;
  }
  return std::nullopt;
}

/// Cuts the block's keys out of a whole step.
LogicalResult GridBuilder::tileStep(SoftmaxGradOp step) {
  auto tileable = cast<TilingInterface>(step.getOperation());
  rewriter.setInsertionPoint(step);
  SmallVector<Range> domain = tileable.getIterationDomain(rewriter);
  SmallVector<OpFoldResult> offsets = {rewriter.getIndexAttr(0), first},
                            sizes = {domain[0].size, count};
  FailureOr<TilingResult> tiled =
      tileable.getTiledImplementation(rewriter, offsets, sizes);
  if (failed(tiled))
    return step.emitOpError("could not be tiled along its keys");
  for (Operation *made : tiled->generatedSlices)
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(made))
      slices.push_back(slice);
  SmallVector<Value> results;
  for (OpResult result : step->getResults()) {
    unsigned n = result.getResultNumber();
    Value init = step.getTiedOpOperand(result)->get();
    Value part = tiled->tiledValues[n];
    if (!isByKeys(n)) {
      results.push_back(part);
      continue;
    }
    SmallVector<OpFoldResult> at, size;
    if (failed(tileable.getResultTilePosition(rewriter, n, offsets, sizes, at,
                                              size)))
      return failure();
    SmallVector<OpFoldResult> ones(at.size(), rewriter.getIndexAttr(1));
    results.push_back(tensor::InsertSliceOp::create(rewriter, loc, part, init,
                                                    at, size, ones));
  }
  auto group = dyn_cast<scf::ForOp>(step->getParentOp());
  rewriter.replaceOp(step, results);
  if (!group)
    return success();
  // The keys' sums stay for all query heads that share them; nothing may ask
  // for the sizes of what is carried.
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(*group.getBody())))
    if (isOpTriviallyDead(&op))
      rewriter.eraseOp(&op);
  Operation *carrying = hoistLoopInvariantSubsets(rewriter, group);
  // Nothing of the whole is carried any more.
  RewritePatternSet patterns(rewriter.getContext());
  scf::ForOp::getCanonicalizationPatterns(patterns, rewriter.getContext());
  GreedyRewriteConfig config;
  config.setStrictness(GreedyRewriteStrictness::ExistingOps);
  (void)applyOpPatternsGreedily({carrying}, std::move(patterns), config);
  return success();
}

/// What begins at 0 in one block's memory begins there before all blocks.
LogicalResult GridBuilder::addUp() {
  for (linalg::FillOp fill :
       llvm::make_early_inc_range(grid.getBody()->getOps<linalg::FillOp>())) {
    auto slice = fill.getOutputs()[0].getDefiningOp<tensor::ExtractSliceOp>();
    auto argument =
        slice ? dyn_cast<BlockArgument>(slice.getSource()) : BlockArgument();
    if (!argument || argument.getOwner() != grid.getBody())
      continue;
    if (!matchPattern(fill.getInputs()[0], m_AnyZeroFloat()))
      return fill.emitOpError("expected sums that begin at 0");
    rewriter.replaceOp(fill, slice);
    OpOperand &output =
        grid.getOutputsMutable()[argument.getArgNumber() - grid.getRank()];
    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPoint(grid);
    Value zero = arith::ConstantOp::create(
        rewriter, loc,
        rewriter.getZeroAttr(getElementTypeOrSelf(output.get())));
    Value zeros =
        linalg::FillOp::create(rewriter, loc, zero, output.get()).getResult(0);
    rewriter.modifyOpInPlace(grid, [&] { output.set(zeros); });
  }
  return success();
}

LogicalResult GridBuilder::splitKeys(SoftmaxGradOp step) {
  // An output that holds a step's sums for keys says how many there are.
  SmallVector<std::optional<unsigned>> results;
  std::optional<unsigned> byKeys;
  SmallVector<Operation *> combining;
  for (Operation &op : forall.getTerminator().getYieldingOps()) {
    combining.push_back(&op);
    auto insert = dyn_cast<tensor::ParallelInsertSliceOp>(op);
    results.push_back(insert ? resultOf(insert.getSource(), step)
                             : std::nullopt);
    if (results.back() == 1)
      byKeys = cast<BlockArgument>(insert.getDest()).getArgNumber() -
               forall.getRank();
  }
  if (!byKeys)
    return step.emitOpError("expected the gradients of keys to be a result of "
                            "its scf.forall; run fa-decompose first");
  cloneOver(*byKeys, tiles.keys);
  SoftmaxGradOp inner;
  grid.walk([&](SoftmaxGradOp op) { inner = op; });
  sayTiles();
  for (auto [op, result] : llvm::zip(combining, results)) {
    if (auto sum = dyn_cast<ParallelAccumulateOp>(op)) {
      rewriter.setInsertionPointToEnd(grid.getTerminator().getBody());
      rewriter.clone(*op, map);
      continue;
    }
    auto insert = cast<tensor::ParallelInsertSliceOp>(op);
    if (isByKeys(result)) {
      insertBlock(insert);
      continue;
    }
    rewriter.setInsertionPoint(grid.getTerminator());
    Value dest = map.lookup(insert.getDest());
    Value sum = tensor::InsertSliceOp::create(
        rewriter, loc, map.lookupOrDefault(insert.getSource()), dest,
        lookupAll(map, insert.getMixedOffsets()),
        lookupAll(map, insert.getMixedSizes()), insert.getMixedStrides());
    rewriter.setInsertionPointToEnd(grid.getTerminator().getBody());
    ParallelAccumulateOp::create(rewriter, loc, sum, dest);
  }
  if (failed(addUp()) || failed(tileStep(inner)))
    return failure();
  fuseProducers();
  rewriter.replaceOp(forall, grid.getResults());
  return success();
}

namespace {
struct ParallelizePass : fa::impl::ParallelizePassBase<ParallelizePass> {
  using ParallelizePassBase::ParallelizePassBase;

  FailureOr<TileSizes> tilesOf(SoftmaxGradOp step) {
    return checked(step, chooseTiles(step.getQuery(), step.getValue(),
                                     step.getScores().getType(), target, "fa2",
                                     rows, keys, problemOf(step, ordered)));
  }
  FailureOr<TileSizes> tilesOf(SoftmaxDeltaOp step) {
    return checked(step, chooseTiles(step, target, rows, keys));
  }
  FailureOr<TileSizes> checked(Operation *step,
                               llvm::Expected<TileSizes> tiles) {
    if (tiles)
      return *tiles;
    step->emitOpError() << llvm::toString(tiles.takeError());
    return failure();
  }

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (failed(checkTileOptions(func, rows, keys)))
      return signalPassFailure();
    SmallVector<std::pair<scf::ForallOp, SoftmaxGradOp>> foralls;
    bool hasSteps = false;
    func.walk([&](scf::ForallOp forall) {
      if (forall.getRank() != 2)
        return;
      SoftmaxGradOp step;
      forall.walk([&](SoftmaxGradOp op) { step = op; });
      foralls.push_back({forall, step});
      hasSteps |= bool(step);
    });
    if (!hasSteps)
      return;
    IRRewriter rewriter(&getContext());
    for (auto [forall, step] : foralls) {
      if (!step) {
        TileSizes tiles;
        bool isChosen = true;
        forall.walk([&](SoftmaxDeltaOp delta) {
          FailureOr<TileSizes> chosen = tilesOf(delta);
          isChosen = succeeded(chosen);
          tiles = chosen.value_or(TileSizes());
        });
        if (!isChosen ||
            failed(GridBuilder(rewriter, forall, tiles).splitRows()))
          return signalPassFailure();
        continue;
      }
      FailureOr<TileSizes> tiles = tilesOf(step);
      if (failed(tiles) ||
          failed(GridBuilder(rewriter, forall, *tiles).splitKeys(step)))
        return signalPassFailure();
      remark::passed(forall.getLoc(), remark::RemarkOpts::name("TileSizes")
                                          .category(DEBUG_TYPE)
                                          .function(func.getName()))
          << tiles->reason;
    }
    if (failed(cleanUp(func)))
      signalPassFailure();
  }
};
} // namespace
