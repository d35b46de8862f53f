// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One kernel per op: intermediate matrices of all heads in memory.

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
#include "mlir/Dialect/SCF/Transforms/TileUsingInterface.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"

namespace fa {
#define GEN_PASS_DEF_DISTRIBUTEPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-distribute"

namespace {
/// Splits one scf.forall over batch and head into a sequence of them.
class Distributor {
public:
  Distributor(IRRewriter &rewriter, scf::ForallOp forall, int64_t rows,
              int64_t keys)
      : rewriter(rewriter), forall(forall), rows(rows), keys(keys) {}
  LogicalResult run();

private:
  LogicalResult emitTiledOp(TilingInterface op);
  LogicalResult emitLoop(scf::ForOp loop);
  void cloneInto(Value value, IRMapping &map, Value batch, Value head);
  SmallVector<Value> wholeResults(Operation *op);
  SmallVector<OpFoldResult> cloneSizes(ArrayRef<OpFoldResult> sizes);
  SmallVector<OpFoldResult> tileSizes(TilingInterface op,
                                      ArrayRef<Range> domain);
  scf::ForallOp createForall(ArrayRef<OpFoldResult> extents,
                             ArrayRef<OpFoldResult> steps, ValueRange outs);

  IRRewriter &rewriter;
  scf::ForallOp forall;
  int64_t rows, keys;
  /// What was a matrix or row vector of one head, as a tensor of all heads.
  DenseMap<Value, Value> whole;
  /// The sizes of those matrices and vectors, as values before the kernels.
  DenseMap<Value, SmallVector<OpFoldResult>> sizesOf;
  OpFoldResult keyCount;
};
} // namespace

/// Clones what `value` needs from the old body; a matrix that an earlier
/// kernel computed is sliced from the tensor of all heads.
void Distributor::cloneInto(Value value, IRMapping &map, Value batch,
                            Value head) {
  if (map.contains(value) || forall.isDefinedOutsideOfLoop(value))
    return;
  if (Value all = whole.lookup(value)) {
    Location loc = value.getLoc();
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, all);
    OpFoldResult zero = rewriter.getIndexAttr(0),
                 one = rewriter.getIndexAttr(1);
    SmallVector<OpFoldResult> offsets(sizes.size(), zero),
        strides(sizes.size(), one);
    offsets[0] = batch;
    offsets[1] = head;
    sizes[0] = sizes[1] = one;
    map.map(value, tensor::ExtractSliceOp::create(rewriter, loc, type, all,
                                                  offsets, sizes, strides));
    return;
  }
  Operation *def = value.getDefiningOp();
  if (!def)
    return;
  if (auto dim = dyn_cast<tensor::DimOp>(def)) {
    auto sizes = sizesOf.find(dim.getSource());
    std::optional<int64_t> index = dim.getConstantIndex();
    if (sizes != sizesOf.end() && index) {
      map.map(value, getValueOrCreateConstantIndexOp(rewriter, value.getLoc(),
                                                     sizes->second[*index]));
      return;
    }
  }
  SetVector<Value> needed(def->operand_begin(), def->operand_end());
  def->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (!def->isAncestor(operand.getParentBlock()->getParentOp()))
        needed.insert(operand);
  });
  for (Value operand : needed)
    cloneInto(operand, map, batch, head);
  rewriter.clone(*def, map);
}

/// A size of a slice is one of its sizes, that of a result one of its init's.
static OpFoldResult resolveSize(OpFoldResult size) {
  while (auto value = dyn_cast<Value>(size)) {
    auto dim = value.getDefiningOp<tensor::DimOp>();
    std::optional<int64_t> index = dim ? dim.getConstantIndex() : std::nullopt;
    if (!index)
      break;
    Operation *source = dim.getSource().getDefiningOp();
    if (auto slice = dyn_cast_if_present<tensor::ExtractSliceOp>(source)) {
      SmallVector<OpFoldResult> kept;
      llvm::SmallBitVector dropped = slice.getDroppedDims();
      for (auto [i, s] : llvm::enumerate(slice.getMixedSizes()))
        if (!dropped.test(i))
          kept.push_back(s);
      size = kept[*index];
    } else if (auto empty = dyn_cast_if_present<tensor::EmptyOp>(source)) {
      size = empty.getMixedSizes()[*index];
    } else if (auto style =
                   dyn_cast_if_present<DestinationStyleOpInterface>(source)) {
      Value init =
          style.getTiedOpOperand(cast<OpResult>(dim.getSource()))->get();
      OpBuilder b(dim);
      size = tensor::getMixedSize(b, dim.getLoc(), init, *index);
    } else {
      break;
    }
  }
  return size;
}

/// Sizes do not depend on batch or head: compute them before the kernels.
SmallVector<OpFoldResult>
Distributor::cloneSizes(ArrayRef<OpFoldResult> sizes) {
  SmallVector<OpFoldResult> result;
  for (OpFoldResult size : sizes) {
    size = resolveSize(size);
    if (auto value = dyn_cast<Value>(size)) {
      IRMapping map;
      cloneInto(value, map, Value(), Value());
      size = map.lookupOrDefault(value);
    }
    result.push_back(size);
  }
  return result;
}

/// The tensors of all heads that an op's results go to: the function's result
/// where the old forall inserted it there, an intermediate one elsewhere.
SmallVector<Value> Distributor::wholeResults(Operation *op) {
  SmallVector<Value> outs;
  for (OpResult result : op->getResults()) {
    Value init;
    if (auto loop = dyn_cast<scf::ForOp>(op))
      init = loop.getInitArgs()[result.getResultNumber()];
    else
      init =
          cast<DestinationStyleOpInterface>(op).getTiedOpOperand(result)->get();
    while (auto fill = init.getDefiningOp<linalg::FillOp>())
      init = fill.getOutputs()[0];
    SmallVector<OpFoldResult> sizes;
    {
      OpBuilder::InsertionGuard guard(rewriter);
      rewriter.setInsertionPoint(op);
      sizes = tensor::getMixedSizes(rewriter, op->getLoc(), init);
    }
    sizesOf[result] = cloneSizes(sizes);
    Value out;
    for (Operation *user : result.getUsers())
      if (auto insert = dyn_cast<tensor::ParallelInsertSliceOp>(user))
        out = forall.getTiedOpOperand(cast<BlockArgument>(insert.getDest()))
                  ->get();
    if (!out) {
      SmallVector<OpFoldResult> shape = forall.getMixedUpperBound();
      llvm::append_range(shape, sizesOf[result]);
      out = tensor::EmptyOp::create(
          rewriter, op->getLoc(), shape,
          cast<RankedTensorType>(result.getType()).getElementType());
    }
    outs.push_back(out);
  }
  return outs;
}

scf::ForallOp Distributor::createForall(ArrayRef<OpFoldResult> extents,
                                        ArrayRef<OpFoldResult> steps,
                                        ValueRange outs) {
  SmallVector<OpFoldResult> lower(2 + extents.size(), rewriter.getIndexAttr(0));
  SmallVector<OpFoldResult> upper = forall.getMixedUpperBound();
  SmallVector<OpFoldResult> step(2, rewriter.getIndexAttr(1));
  llvm::append_range(upper, extents);
  llvm::append_range(step, steps);
  return scf::ForallOp::create(rewriter, forall.getLoc(), lower, upper, step,
                               outs, /*mapping=*/std::nullopt);
}

/// Tile size per loop: rows, keys, or 0 for a loop over a head dim.
SmallVector<OpFoldResult> Distributor::tileSizes(TilingInterface op,
                                                 ArrayRef<Range> domain) {
  SmallVector<OpFoldResult> sizes;
  for (auto [i, range] : llvm::enumerate(domain)) {
    bool overKeys =
        i > 0 && isEqualConstantIntOrValue(resolveSize(range.size), keyCount);
    sizes.push_back(
        rewriter.getIndexAttr(i == 0 ? rows : (overKeys ? keys : 0)));
  }
  return sizes;
}

LogicalResult Distributor::emitTiledOp(TilingInterface op) {
  Location loc = op->getLoc();
  rewriter.setInsertionPoint(forall);
  SmallVector<Value> outs = wholeResults(op);
  SmallVector<Range> domain;
  {
    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPoint(op);
    domain = op.getIterationDomain(rewriter);
  }
  SmallVector<OpFoldResult> tiles = tileSizes(op, domain);
  SmallVector<utils::IteratorType> iterators = op.getLoopIteratorTypes();
  SmallVector<OpFoldResult> extents, steps, reductionTiles;
  SmallVector<int64_t> gridLoop(domain.size(), -1);
  bool tilesReduction = false;
  for (auto [i, range] : llvm::enumerate(domain)) {
    bool tiled = !isConstantIntValue(tiles[i], 0);
    bool parallel = iterators[i] == utils::IteratorType::parallel;
    reductionTiles.push_back(tiled && !parallel ? tiles[i]
                                                : rewriter.getIndexAttr(0));
    tilesReduction |= tiled && !parallel;
    if (!tiled || !parallel)
      continue;
    gridLoop[i] = extents.size();
    extents.push_back(cloneSizes({range.size}).front());
    steps.push_back(tiles[i]);
  }
  scf::ForallOp kernel = createForall(extents, steps, outs);
  rewriter.setInsertionPoint(kernel.getTerminator());
  Value batch = kernel.getInductionVar(0), head = kernel.getInductionVar(1);
  IRMapping map;
  map.map(forall.getInductionVars(),
          ValueRange(kernel.getInductionVars()).take_front(2));
  cloneInto(op->getResult(0), map, batch, head);
  auto clone =
      cast<TilingInterface>(map.lookup(op->getResult(0)).getDefiningOp());
  // The block's part of the op.
  AffineExpr offset, extent;
  bindDims(rewriter.getContext(), offset, extent);
  SmallVector<OpFoldResult> offsets, sizes;
  for (auto [i, range] : llvm::enumerate(clone.getIterationDomain(rewriter))) {
    if (gridLoop[i] < 0) {
      offsets.push_back(rewriter.getIndexAttr(0));
      sizes.push_back(range.size);
      continue;
    }
    Value iv = kernel.getInductionVar(2 + gridLoop[i]);
    int64_t tile = *getConstantIntValue(tiles[i]);
    AffineMap clamp = AffineMap::get(
        2, 0,
        {getAffineConstantExpr(tile, rewriter.getContext()), extent - offset},
        rewriter.getContext());
    offsets.push_back(iv);
    sizes.push_back(affine::makeComposedFoldedAffineMin(
        rewriter, loc, clamp, {OpFoldResult(iv), range.size}));
  }
  FailureOr<TilingResult> tiled =
      clone.getTiledImplementation(rewriter, offsets, sizes);
  if (failed(tiled))
    return op->emitOpError("could not be tiled");
  SmallVector<Value> results = tiled->tiledValues;
  if (tilesReduction) {
    scf::SCFTilingOptions options;
    options.setTileSizes(reductionTiles);
    auto inner = cast<TilingInterface>(tiled->tiledOps.front());
    rewriter.setInsertionPoint(inner);
    FailureOr<scf::SCFTilingResult> loops =
        scf::tileUsingSCF(rewriter, inner, options);
    if (failed(loops))
      return op->emitOpError("could not be tiled along its reduction");
    results = loops->replacements;
    carryWholeTiles(rewriter, cast<scf::ForOp>(loops->loops.front()));
  }
  // Insert the blocks.
  for (unsigned r = 0; r < results.size(); ++r) {
    rewriter.setInsertionPoint(kernel.getTerminator());
    SmallVector<OpFoldResult> blockOffsets, blockSizes;
    if (failed(clone.getResultTilePosition(rewriter, r, offsets, sizes,
                                           blockOffsets, blockSizes)))
      return op->emitOpError("has no position for a block of its result");
    OpFoldResult one = rewriter.getIndexAttr(1);
    blockOffsets.insert(blockOffsets.begin(), {batch, head});
    blockSizes.insert(blockSizes.begin(), {one, one});
    SmallVector<OpFoldResult> strides(blockOffsets.size(), one);
    rewriter.setInsertionPointToEnd(kernel.getTerminator().getBody());
    tensor::ParallelInsertSliceOp::create(rewriter, loc, results[r],
                                          kernel.getRegionIterArgs()[r],
                                          blockOffsets, blockSizes, strides);
    whole[op->getResult(r)] = kernel.getResult(r);
  }
  return success();
}

/// A loop that carries matrices of one head: one block per head runs it, the
/// matrices stay in memory.
LogicalResult Distributor::emitLoop(scf::ForOp loop) {
  for (Value init : loop.getInitArgs())
    if (auto fill = init.getDefiningOp<linalg::FillOp>();
        fill && !whole.count(init) && !forall.isDefinedOutsideOfLoop(init))
      if (failed(emitTiledOp(cast<TilingInterface>(fill.getOperation()))))
        return failure();
  rewriter.setInsertionPoint(forall);
  SmallVector<Value> outs;
  for (Value init : loop.getInitArgs()) {
    if (!whole.count(init))
      return loop.emitOpError(
          "expected the values that the loop carries to start from "
          "constant tensors; run fa-tile first");
    outs.push_back(whole[init]);
  }
  scf::ForallOp kernel = createForall({}, {}, outs);
  rewriter.setInsertionPoint(kernel.getTerminator());
  Value batch = kernel.getInductionVar(0), head = kernel.getInductionVar(1);
  IRMapping map;
  map.map(forall.getInductionVars(), kernel.getInductionVars());
  // The carried matrices are the kernel's own outputs.
  DenseMap<Value, Value> outside = whole;
  for (auto [init, arg] :
       llvm::zip(loop.getInitArgs(), kernel.getRegionIterArgs()))
    whole[init] = arg;
  cloneInto(loop.getResult(0), map, batch, head);
  whole = outside;
  for (auto [result, init, arg] : llvm::zip(
           loop.getResults(), loop.getInitArgs(), kernel.getRegionIterArgs())) {
    rewriter.setInsertionPoint(kernel.getTerminator());
    auto slice = map.lookup(init).getDefiningOp<tensor::ExtractSliceOp>();
    rewriter.setInsertionPointToEnd(kernel.getTerminator().getBody());
    tensor::ParallelInsertSliceOp::create(
        rewriter, loop.getLoc(), map.lookup(result), arg,
        slice.getMixedOffsets(), slice.getMixedSizes(),
        slice.getMixedStrides());
    whole[result] = kernel.getResult(result.getResultNumber());
    sizesOf[result] = SmallVector<OpFoldResult>(sizesOf[init]);
  }
  return success();
}

LogicalResult Distributor::run() {
  SmallVector<Operation *> ops;
  for (Operation &op : forall.getBody()->without_terminator())
    ops.push_back(&op);
  // How many keys there are: the rows of what Q K^T contracts with.
  forall.walk([&](linalg::GenericOp op) {
    if (op->getNumResults() != 1 || keyCount)
      return;
    auto product = matchMatrixProduct(op.getResult(0));
    if (product && product->rhsTransposed) {
      rewriter.setInsertionPoint(op);
      keyCount = tensor::getMixedSize(rewriter, op.getLoc(), product->rhs, 0);
      keyCount = resolveSize(keyCount);
    }
  });
  for (Operation *op : ops) {
    if (auto loop = dyn_cast<scf::ForOp>(op)) {
      if (failed(emitLoop(loop)))
        return failure();
    } else if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
      if (failed(emitTiledOp(cast<TilingInterface>(op))))
        return failure();
    } else if (!isMemoryEffectFree(op)) {
      return op->emitOpError("can't be distributed over kernels");
    }
  }
  SmallVector<Value> results(forall->getNumResults());
  for (Operation &op : forall.getTerminator().getBody()->getOperations()) {
    auto insert = cast<tensor::ParallelInsertSliceOp>(op);
    auto number =
        cast<BlockArgument>(insert.getDest()).getArgNumber() - forall.getRank();
    results[number] = whole.lookup(insert.getSource());
  }
  for (Value result : results)
    if (!result)
      return forall.emitOpError("has a result that no linalg op computes");
  rewriter.replaceOp(forall, results);
  return success();
}

/// Tile sizes for the attention in a forall over batch and head.
static llvm::Expected<TileSizes> chooseTilesOf(scf::ForallOp forall,
                                               StringRef target,
                                               StringRef algorithm,
                                               int64_t rows, int64_t keys) {
  Value query, values;
  RankedTensorType scores;
  forall.walk([&](Operation *op) {
    if (auto merge = dyn_cast<OnlineSoftmaxOp>(op)) {
      values = merge.getValues();
      return;
    }
    auto product = op->getNumResults() == 1
                       ? matchMatrixProduct(op->getResult(0))
                       : std::nullopt;
    if (product && product->rhsTransposed) {
      query = product->lhs;
      scores = cast<RankedTensorType>(op->getResult(0).getType());
    } else if (product) {
      values = product->rhs;
    }
  });
  if (query && values)
    return chooseTiles(query, values, scores, target, algorithm, rows, keys);
  TileSizes sizes;
  sizes.rows = rows ? rows : 64;
  sizes.keys = keys ? keys : 64;
  sizes.reason = describeTiles(
      rows, keys, sizes, "there are no products with K and V to choose by");
  return sizes;
}

namespace {
struct DistributePass : fa::impl::DistributePassBase<DistributePass> {
  using DistributePassBase::DistributePassBase;
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (failed(checkTileOptions(func, rows, keys)))
      return signalPassFailure();
    if (failed(cleanUp(func)))
      return signalPassFailure();
    SmallVector<scf::ForallOp> foralls;
    func.walk([&](scf::ForallOp op) {
      if (op.getRank() == 2)
        foralls.push_back(op);
    });
    IRRewriter rewriter(&getContext());
    for (scf::ForallOp forall : foralls) {
      llvm::Expected<TileSizes> tiles =
          chooseTilesOf(forall, target, algorithm, rows, keys);
      if (!tiles) {
        forall.emitOpError() << llvm::toString(tiles.takeError());
        return signalPassFailure();
      }
      remark::passed(forall.getLoc(), remark::RemarkOpts::name("TileSizes")
                                          .category(DEBUG_TYPE)
                                          .function(func.getName()))
          << tiles->reason;
      if (failed(Distributor(rewriter, forall, tiles->rows, tiles->keys).run()))
        return signalPassFailure();
    }
    if (failed(cleanUp(func)))
      signalPassFailure();
  }
};
} // namespace
