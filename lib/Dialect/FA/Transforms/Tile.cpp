// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocks of keys outside, blocks of queries inside: FlashAttention,
// Algorithm 1.

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
#include "mlir/Dialect/SCF/Transforms/TileUsingInterface.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"

namespace fa {
#define GEN_PASS_DEF_TILEPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-tile"

/// Tiles a step over (rows, keys), keys outside if that is asked for, and fuses
/// the producers of its operands but for those of `kept`, which the tiles
/// slice.
static FailureOr<scf::SCFTileAndFuseResult>
tileStep(IRRewriter &rewriter, TilingInterface op, int64_t rows, int64_t keys,
         ValueRange kept, bool keysOutside = true) {
  scf::SCFTilingOptions tiling;
  tiling.setTileSizes(
      {rewriter.getIndexAttr(rows), rewriter.getIndexAttr(keys)});
  if (keys && keysOutside)
    tiling.setInterchange({1, 0});
  scf::SCFTileAndFuseOptions options;
  options.setTilingOptions(tiling);
  llvm::SmallPtrSet<Operation *, 8> outside;
  for (Value v : kept)
    if (Operation *def = v.getDefiningOp())
      outside.insert(def);
  options.setFusionControlFn(
      [&](tensor::ExtractSliceOp, OpResult producer,
          bool) -> std::optional<scf::SCFTileAndFuseOptions::ControlFnResult> {
        if (outside.contains(producer.getOwner()))
          return std::nullopt;
        return scf::SCFTileAndFuseOptions::ControlFnResult{};
      });
  rewriter.setInsertionPoint(op);
  FailureOr<scf::SCFTileAndFuseResult> result =
      scf::tileConsumerAndFuseProducersUsingSCF(rewriter, op, options);
  if (failed(result))
    return op->emitOpError("could not be tiled");
  for (OpResult value : op->getResults())
    rewriter.replaceAllUsesWith(value, result->replacements.lookup(value));
  // Here, and nowhere later, tiles begin at multiples of their sizes for all to
  // see.
  result->loops.front()->walk([&](RandomBitsOp random) {
    // A grid over blocks of rows or keys has said how many these have.
    std::optional<ArrayRef<int64_t>> grid = random.getTile();
    random.setTile(ArrayRef<int64_t>{rows || !grid ? rows : (*grid)[0],
                                     keys || !grid ? keys : (*grid)[1]});
  });
  rewriter.eraseOp(op);
  return result;
}

/// Tiles the merge. The state's initial values stay outside: they are what the
/// loop carries.
static LogicalResult tileMerge(IRRewriter &rewriter, OnlineSoftmaxOp op,
                               int64_t rows, int64_t keys) {
  return tileStep(rewriter, cast<TilingInterface>(op.getOperation()), rows,
                  keys, {op.getMax(), op.getSum(), op.getAcc()});
}

/// Tiles the gradients' step. What is known of rows is computed once for them.
/// The gradients of a block of keys stay on chip while it meets the rows, those
/// of rows go through memory: FlashAttention's Algorithm 4.
static LogicalResult tileGradients(IRRewriter &rewriter, SoftmaxGradOp op,
                                   int64_t rows, int64_t keys) {
  SmallVector<Value> kept = {op.getLse(), op.getDelta()};
  llvm::append_range(kept, op.getDpsInits());
  FailureOr<scf::SCFTileAndFuseResult> tiled = tileStep(
      rewriter, cast<TilingInterface>(op.getOperation()), rows, keys, kept);
  if (failed(tiled))
    return failure();
  for (LoopLikeOpInterface loop : tiled->loops)
    carryWholeTiles(rewriter, cast<scf::ForOp>(loop.getOperation()));
  hoistLoopInvariantSubsets(rewriter, tiled->loops.back());
  return success();
}

/// Tiles D's step: a loop over keys inside a block of rows. A grid has cut the
/// block already where `rows` is 0.
static LogicalResult tileDelta(IRRewriter &rewriter, SoftmaxDeltaOp op,
                               int64_t rows, int64_t keys) {
  Value lse = op.getLse();
  FailureOr<scf::SCFTileAndFuseResult> tiled =
      tileStep(rewriter, cast<TilingInterface>(op.getOperation()), rows, keys,
               {lse, op.getDelta(), op.getSum()}, /*keysOutside=*/false);
  if (failed(tiled))
    return failure();
  // A tile has all rows of a block that a grid has made.
  if (rows == 0)
    for (Operation *user : llvm::make_early_inc_range(lse.getUsers()))
      if (auto slice = dyn_cast<tensor::ExtractSliceOp>(user);
          slice && slice.getType() == lse.getType())
        rewriter.replaceOp(slice, lse);
  for (LoopLikeOpInterface loop : tiled->loops)
    carryWholeTiles(rewriter, cast<scf::ForOp>(loop.getOperation()));
  hoistLoopInvariantSubsets(rewriter, tiled->loops.back());
  return success();
}

/// Whether a step is in a grid that has a dimension of blocks.
static bool isInBlockGrid(Operation *step) {
  auto grid = step->getParentOfType<scf::ForallOp>();
  return grid && grid.getRank() > 2;
}

/// The loop over blocks around a step: a step inside of one is a tile already.
static bool isTiled(Operation *step) {
  for (auto loop = step->getParentOfType<scf::ForOp>(); loop;
       loop = loop->getParentOfType<scf::ForOp>())
    if (!isConstantIntValue(OpFoldResult(loop.getStep()), 1))
      return true;
  return false;
}

/// The contraction Q K^T that the merge's scores come from.
static std::optional<MatrixProduct> findScoreProduct(Value scores) {
  while (auto op = scores.getDefiningOp<linalg::GenericOp>()) {
    if (auto product = matchMatrixProduct(op->getResult(0)))
      return product;
    if (op.getDpsInputs().empty())
      break;
    scores = op.getDpsInputs()[0];
  }
  return std::nullopt;
}

namespace {
struct TilePass : fa::impl::TilePassBase<TilePass> {
  using TilePassBase::TilePassBase;
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (failed(checkTileOptions(func, rows, keys)))
      return signalPassFailure();
    SmallVector<OnlineSoftmaxOp> ops;
    func.walk([&](OnlineSoftmaxOp op) {
      // A merge inside a loop has been tiled already.
      if (!op->getParentOfType<scf::ForOp>())
        ops.push_back(op);
    });
    IRRewriter rewriter(&getContext());
    for (OnlineSoftmaxOp op : ops) {
      std::optional<MatrixProduct> product = findScoreProduct(op.getScores());
      llvm::Expected<TileSizes> tiles =
          chooseTiles(product ? product->lhs : op.getValues(), op.getValues(),
                      op.getScores().getType(), target, algorithm, rows, keys,
                      problemOf(op));
      if (!tiles) {
        op.emitOpError() << llvm::toString(tiles.takeError());
        return signalPassFailure();
      }
      remark::passed(op.getLoc(), remark::RemarkOpts::name("TileSizes")
                                      .category(DEBUG_TYPE)
                                      .function(func.getName()))
          << tiles->reason;
      if (failed(tileMerge(rewriter, op, tiles->rows, tiles->keys)))
        return signalPassFailure();
    }
    SmallVector<SoftmaxGradOp> gradients;
    func.walk([&](SoftmaxGradOp op) {
      if (!isTiled(op))
        gradients.push_back(op);
    });
    for (SoftmaxGradOp op : gradients) {
      llvm::Expected<TileSizes> tiles =
          chooseTiles(op.getQuery(), op.getValue(), op.getScores().getType(),
                      target, algorithm, rows, keys, problemOf(op, ordered));
      if (!tiles) {
        op.emitOpError() << llvm::toString(tiles.takeError());
        return signalPassFailure();
      }
      // Of a grid over blocks of keys a step has only its block's.
      if (failed(tileGradients(rewriter, op, tiles->rows,
                               isInBlockGrid(op) ? 0 : tiles->keys)))
        return signalPassFailure();
    }
    SmallVector<SoftmaxDeltaOp> deltas;
    func.walk([&](SoftmaxDeltaOp op) {
      if (!isTiled(op))
        deltas.push_back(op);
    });
    for (SoftmaxDeltaOp op : deltas) {
      llvm::Expected<TileSizes> tiles = chooseTiles(op, target, rows, keys);
      if (!tiles) {
        op.emitOpError() << llvm::toString(tiles.takeError());
        return signalPassFailure();
      }
      // Of a grid over blocks of rows a step has only its block's.
      if (failed(tileDelta(rewriter, op, isInBlockGrid(op) ? 0 : tiles->rows,
                           tiles->keys)))
        return signalPassFailure();
    }
    if (failed(cleanUp(func)))
      signalPassFailure();
  }
};
} // namespace
