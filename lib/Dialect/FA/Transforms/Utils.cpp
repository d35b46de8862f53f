// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/FA/Transforms/Utils.h"
#include "fa/Dialect/FA/IR/Matchers.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace fa;

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

llvm::Expected<TileSizes> fa::chooseTiles(SoftmaxDeltaOp step, StringRef target,
                                          int64_t rows, int64_t keys) {
  return chooseTiles(step.getOutGrad(), step.getValue(),
                     step.getScores().getType(), target, "fa2", rows, keys,
                     problemOf(step));
}

bool fa::followsList(scf::ForOp loop) {
  return llvm::any_of(loop.getInductionVar().getUsers(), [](Operation *user) {
    return isa<tensor::ExtractOp>(user);
  });
}

void fa::reverseLoop(scf::ForOp loop, int64_t step) {
  OpBuilder b(loop);
  Location loc = loop.getLoc();
  AffineExpr first = b.getAffineSymbolExpr(0), end = b.getAffineSymbolExpr(1);
  AffineExpr last = first + (end - first - 1).floorDiv(step) * step;
  Value sum = getValueOrCreateConstantIndexOp(
      b, loc,
      affine::makeComposedFoldedAffineApply(
          b, loc, first + last,
          getAsOpFoldResult({loop.getLowerBound(), loop.getUpperBound()})));
  b.setInsertionPointToStart(loop.getBody());
  Value iv = loop.getInductionVar();
  auto key = arith::SubIOp::create(b, loc, sum, iv);
  iv.replaceAllUsesExcept(key, key);
}
