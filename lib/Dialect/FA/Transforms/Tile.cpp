// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocks of keys outside, blocks of queries inside: FlashAttention,
// Algorithm 1.

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Granularity.h"
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

/// Tiles a step over (rows, keys), keys outside, and fuses the producers of its
/// operands but for those of `kept`, which the tiles slice.
static FailureOr<scf::SCFTileAndFuseResult> tileStep(IRRewriter &rewriter,
                                                     TilingInterface op,
                                                     int64_t rows, int64_t keys,
                                                     ValueRange kept) {
  scf::SCFTilingOptions tiling;
  tiling.setTileSizes(
      {rewriter.getIndexAttr(rows), rewriter.getIndexAttr(keys)});
  if (keys)
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
    // A grid over blocks of keys has said how many these have.
    std::optional<ArrayRef<int64_t>> grid = random.getTile();
    random.setTile(ArrayRef<int64_t>{rows, keys || !grid ? keys : (*grid)[1]});
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

/// The loop over blocks around a step: a step inside of one is a tile already.
static bool isTiled(Operation *step) {
  for (auto loop = step->getParentOfType<scf::ForOp>(); loop;
       loop = loop->getParentOfType<scf::ForOp>())
    if (!isConstantIntValue(OpFoldResult(loop.getStep()), 1))
      return true;
  return false;
}

/// The contraction Q K^T that the merge's scores come from.
static std::optional<Contraction> findScoreProduct(Value scores) {
  while (auto op = scores.getDefiningOp<linalg::GenericOp>()) {
    if (auto product = matchContraction(op->getResult(0)))
      return product;
    if (op.getDpsInputs().empty())
      break;
    scores = op.getDpsInputs()[0];
  }
  return std::nullopt;
}

namespace {
/// The coordinates that a block's body reads; null where it does not.
struct Coordinates {
  Value row, column;
  explicit Coordinates(linalg::GenericOp op) {
    for (auto index : op.getBody()->getOps<linalg::IndexOp>())
      (index.getDim() ? column : row) = index;
  }
};
} // namespace

/// Whether something is read for each element, not for rows and for keys, nor
/// for blocks of both.
static bool isReadByElement(tensor::ExtractOp read, const Coordinates &at) {
  if (!at.row || !at.column)
    return false;
  auto row = getGranularity(read, at.row),
       column = getGranularity(read, at.column);
  return row && column && (row == 1 || column == 1);
}

/// Whether something holds of an operation between the products and the scores.
static bool anyOnTheWay(Value scores,
                        llvm::function_ref<bool(linalg::GenericOp)> holds) {
  auto generic = scores.getDefiningOp<linalg::GenericOp>();
  if (!generic || generic.getNumReductionLoops())
    return false;
  return holds(generic) ||
         llvm::any_of(generic.getDpsInputs(),
                      [&](Value input) { return anyOnTheWay(input, holds); });
}

/// Whether it needs something that is read for each element.
static bool readsElements(linalg::GenericOp generic) {
  Coordinates at(generic);
  return llvm::any_of(
      generic.getBody()->getOps<tensor::ExtractOp>(),
      [&](tensor::ExtractOp read) { return isReadByElement(read, at); });
}

/// Whether it does more than scale and mask by coordinates and by what is read
/// for rows and for keys.
static bool computesScores(linalg::GenericOp generic) {
  for (Operation &op : generic.getBody()->without_terminator()) {
    if (isa<math::MathDialect>(op.getDialect()))
      return true;
    auto multiply = dyn_cast<arith::MulFOp>(op);
    bool scales = multiply && llvm::any_of(op.getOperands(), [](Value v) {
                    return matchPattern(v, m_Constant());
                  });
    bool computes = isa<arith::AddFOp, arith::SubFOp, arith::MulFOp,
                        arith::DivFOp, arith::SIToFPOp, arith::UIToFPOp>(op);
    if (computes && !scales)
      return true;
  }
  return false;
}

/// Whether it depends on the places of rows and of keys: where no score
/// function reads these, a mask does.
static bool readsPlaces(linalg::GenericOp generic) {
  Coordinates at(generic);
  return at.row && at.column;
}

/// Whether scores are computed from something that is read once for a block of
/// rows and keys: blocks[i / 128, j / 128].
static bool hasBlockMask(Value scores) {
  auto generic = scores.getDefiningOp<linalg::GenericOp>();
  if (!generic || generic.getNumLoops() != 2 || generic.getNumReductionLoops())
    return false;
  Coordinates at(generic);
  if (!at.row || !at.column)
    return false;
  auto reads = generic.getBody()->getOps<tensor::ExtractOp>();
  return llvm::any_of(reads, [&](tensor::ExtractOp read) {
    return getGranularity(read, at.row) > 1 &&
           getGranularity(read, at.column) > 1;
  });
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
      std::optional<Contraction> product = findScoreProduct(op.getScores());
      TileProblem problem;
      // The maximum is used for nothing else.
      problem.logSumExp = !op.getNewMax().use_empty();
      problem.elementReads = anyOnTheWay(op.getScores(), readsElements);
      problem.scoreFunction =
          problem.elementReads || anyOnTheWay(op.getScores(), computesScores);
      problem.rowMask = anyOnTheWay(op.getScores(), readsPlaces);
      problem.blockMask = hasBlockMask(op.getScores());
      problem.dropout = !op.getKeep().empty();
      llvm::Expected<TileSizes> tiles = chooseTiles(
          product ? product->lhs : op.getValues(), op.getValues(),
          op.getScores().getType(), target, algorithm, rows, keys, problem);
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
                      target, algorithm, rows, keys, problemOf(op));
      if (!tiles) {
        op.emitOpError() << llvm::toString(tiles.takeError());
        return signalPassFailure();
      }
      // Of a grid over blocks of keys a step has only its block's.
      auto grid = op->getParentOfType<scf::ForallOp>();
      bool hasKeys = !grid || grid.getRank() < 3;
      if (failed(tileGradients(rewriter, op, tiles->rows,
                               hasKeys ? tiles->keys : 0)))
        return signalPassFailure();
    }
    if (failed(cleanUp(func)))
      signalPassFailure();
  }
};
} // namespace
