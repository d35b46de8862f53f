// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/FA/Transforms/Utils.h"
#include "fa/Dialect/FA/IR/Matchers.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/Transforms/Transforms.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace fa;

/// Upstream's canonicalisations, except those of loops: a loop of one step
/// keeps its place, so that the structure of tiles is the same at every shape.
static void addCanonicalizations(RewritePatternSet &patterns) {
  MLIRContext *ctx = patterns.getContext();
  for (StringRef name : {"affine", "arith", "linalg", "tensor"})
    if (Dialect *dialect = ctx->getLoadedDialect(name))
      dialect->getCanonicalizationPatterns(patterns);
  for (RegisteredOperationName op : ctx->getRegisteredOperations())
    if (llvm::is_contained({"affine", "arith", "linalg", "tensor"},
                           op.getDialectNamespace()))
      op.getCanonicalizationPatterns(patterns, ctx);
  scf::IfOp::getCanonicalizationPatterns(patterns, ctx);
}

namespace {
/// A slice of a constant tensor is a smaller constant tensor.
struct SliceOfFill : OpRewritePattern<tensor::ExtractSliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(tensor::ExtractSliceOp op,
                                PatternRewriter &rewriter) const override {
    auto fill = op.getSource().getDefiningOp<linalg::FillOp>();
    if (!fill || op.getSourceType().getRank() != op.getType().getRank())
      return rewriter.notifyMatchFailure(op, "not a slice of a fill");
    Value empty =
        tensor::EmptyOp::create(rewriter, op.getLoc(), op.getMixedSizes(),
                                op.getType().getElementType());
    rewriter.replaceOpWithNewOp<linalg::FillOp>(op, fill.getInputs(), empty);
    return success();
  }
};

/// A loop that only writes into what it carries keeps its sizes.
struct SizeOfLoopResult : OpRewritePattern<tensor::DimOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(tensor::DimOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.getSource().getDefiningOp<scf::ForOp>())
      return rewriter.notifyMatchFailure(op, "not of a loop's result");
    Value source = getShapeSource(op.getSource());
    if (source == op.getSource())
      return rewriter.notifyMatchFailure(op, "sizes may change");
    rewriter.modifyOpInPlace(op, [&] { op.getSourceMutable().assign(source); });
    return success();
  }
};
} // namespace

tensor::ExtractSliceOp fa::sliceBehindPadding(Value tile) {
  if (auto pad = tile.getDefiningOp<tensor::PadOp>())
    tile = pad.getSource();
  return tile.getDefiningOp<tensor::ExtractSliceOp>();
}

bool fa::isSameSlice(tensor::ExtractSliceOp read, tensor::InsertSliceOp write) {
  return cast<OffsetSizeAndStrideOpInterface>(read.getOperation())
      .isSameAs(cast<OffsetSizeAndStrideOpInterface>(write.getOperation()),
                [](OpFoldResult x, OpFoldResult y) { return x == y; });
}

LogicalResult fa::checkTileOptions(func::FuncOp func, int64_t rows,
                                   int64_t keys) {
  if (rows >= 0 && keys >= 0)
    return success();
  return func.emitError()
         << "expected tile sizes of at least 1, or 0 to choose, got rows="
         << rows << " keys=" << keys;
}

bool fa::isAnyProduct(Operation *op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  return generic && generic.getNumLoops() == 3 &&
         linalg::isaContractionOpInterface(generic);
}

void fa::carryWholeTiles(RewriterBase &rewriter, scf::ForOp loop) {
  auto coversAll = [](auto slice) {
    return llvm::all_of(slice.getMixedOffsets(), [](OpFoldResult offset) {
      return isConstantIntValue(offset, 0);
    });
  };
  for (BlockArgument carried : loop.getRegionIterArgs())
    for (Operation *user : llvm::make_early_inc_range(carried.getUsers())) {
      if (auto read = dyn_cast<tensor::ExtractSliceOp>(user);
          read && coversAll(read) && read.getType() == carried.getType())
        rewriter.replaceOp(read, carried);
      else if (auto write = dyn_cast<tensor::InsertSliceOp>(user);
               write && coversAll(write) &&
               write.getSourceType() == carried.getType())
        rewriter.replaceOp(write, write.getSource());
    }
}

LogicalResult fa::cleanUp(func::FuncOp func) {
  MLIRContext *ctx = func.getContext();
  if (failed(verifyDims(func)))
    return failure();
  RewritePatternSet patterns(ctx);
  addCanonicalizations(patterns);
  memref::populateResolveRankedShapedTypeResultDimsPatterns(patterns);
  tensor::populateMergeConsecutiveInsertExtractSlicePatterns(patterns);
  tensor::populateFoldTensorEmptyPatterns(patterns);
  patterns.add<SliceOfFill, SizeOfLoopResult>(ctx);
  FrozenRewritePatternSet frozen(std::move(patterns));
  if (failed(applyPatternsGreedily(func, frozen)))
    return func.emitError("clean-up did not converge");
  // Not out of scf.forall: what a block computes for itself stays its own.
  func.walk<WalkOrder::PostOrder>([](scf::ForOp loop) {
    moveLoopInvariantCode(cast<LoopLikeOpInterface>(loop.getOperation()));
  });
  IRRewriter rewriter(ctx);
  DominanceInfo dominance(func);
  eliminateCommonSubExpressions(rewriter, dominance, func);
  if (failed(applyPatternsGreedily(func, frozen)))
    return func.emitError("clean-up did not converge");
  return success();
}

std::optional<int64_t> fa::getStaticBound(OpFoldResult size) {
  if (std::optional<int64_t> constant = getConstantIntValue(size))
    return constant;
  auto min = dyn_cast_if_present<affine::AffineMinOp>(
      cast<Value>(size).getDefiningOp());
  if (!min)
    return std::nullopt;
  std::optional<int64_t> bound;
  for (AffineExpr e : min.getMap().getResults())
    if (auto constant = dyn_cast<AffineConstantExpr>(e))
      bound =
          bound ? std::min(*bound, constant.getValue()) : constant.getValue();
  return bound;
}

SmallVector<linalg::GenericOp> fa::scoreGenerics(Value scores) {
  auto branch = scores.getDefiningOp<scf::IfOp>();
  if (!branch)
    return {scores.getDefiningOp<linalg::GenericOp>()};
  unsigned i = cast<OpResult>(scores).getResultNumber();
  SmallVector<linalg::GenericOp> all;
  for (scf::YieldOp yield : {branch.thenYield(), branch.elseYield()})
    all.push_back(yield.getOperand(i).getDefiningOp<linalg::GenericOp>());
  return all;
}

OpOperand *fa::scoreOperand(linalg::GenericOp op) {
  OpOperand &yielded = op.getBody()->getTerminator()->getOpOperand(0);
  auto select = yielded.get().getDefiningOp<arith::SelectOp>();
  if (!select)
    return &yielded;
  if (!select->hasOneUse() || !isNegativeInfinity(select.getFalseValue()))
    return nullptr;
  return &select.getTrueValueMutable();
}

arith::MulFOp fa::matchScaling(Value v) {
  auto mul = v.getDefiningOp<arith::MulFOp>();
  APFloat factor(0.0f);
  bool scales = mul && matchPattern(mul.getRhs(), m_ConstantFloat(&factor)) &&
                factor.isFinite() && !factor.isNegative() && !factor.isZero();
  return scales ? mul : arith::MulFOp();
}

std::string fa::describeTiles(int64_t rows, int64_t keys,
                              const TileSizes &chosen, StringRef why) {
  if (rows && keys)
    return llvm::formatv(
               "took the {0} rows and {1} keys a tile that were asked "
               "for",
               rows, keys)
        .str();
  if (!rows && !keys)
    return llvm::formatv("chose {0} rows and {1} keys a tile: {2}", chosen.rows,
                         chosen.keys, why)
        .str();
  return llvm::formatv("took the {0} {1} that were asked for and chose {2} {3} "
                       "a tile, as for {4}x{5}: {6}",
                       rows ? rows : keys, rows ? "rows" : "keys",
                       rows ? chosen.keys : chosen.rows, rows ? "keys" : "rows",
                       chosen.rows, chosen.keys, why)
      .str();
}

llvm::Expected<TileSizes> fa::chooseTiles(Value query, Value values,
                                          RankedTensorType scores,
                                          StringRef target, StringRef algorithm,
                                          int64_t rows, int64_t keys,
                                          TileProblem problem) {
  llvm::Expected<TargetInfo> info = lookupTarget(target);
  if (!info)
    return info.takeError();
  auto valuesType = cast<RankedTensorType>(values.getType());
  problem.elementBits = valuesType.getElementTypeBitWidth();
  if (llvm::Error error = checkElements(*info, problem.elementBits))
    return std::move(error);
  if (rows && keys) {
    TileSizes given;
    given.rows = rows;
    given.keys = keys;
    given.reason = describeTiles(rows, keys, given, "");
    return given;
  }
  auto length = [](int64_t size) -> std::optional<int64_t> {
    if (ShapedType::isDynamic(size))
      return std::nullopt;
    return size;
  };
  problem.headDim = cast<RankedTensorType>(query.getType()).getDimSize(1);
  problem.valueDim = valuesType.getDimSize(1);
  problem.queryLength = length(scores.getDimSize(0));
  problem.keyLength = length(scores.getDimSize(1));
  llvm::Expected<TileSizes> chosen =
      chooseTileSizes(*info, problem,
                      algorithm == "fa1"        ? TileAlgorithm::FA1
                      : algorithm == "standard" ? TileAlgorithm::Standard
                                                : TileAlgorithm::FA2);
  if (!chosen)
    return chosen.takeError();
  chosen->reason = describeTiles(rows, keys, *chosen, chosen->reason);
  chosen->rows = rows ? rows : chosen->rows;
  chosen->keys = keys ? keys : chosen->keys;
  return chosen;
}
