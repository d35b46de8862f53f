// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One kernel: the loop over row blocks joins the grid.

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

namespace fa {
#define GEN_PASS_DEF_FUSEPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-fuse"

namespace {
/// A forall over batch and head, its loop over row blocks, and what follows.
class Fuser {
public:
  Fuser(IRRewriter &rewriter, scf::ForallOp forall, scf::ForOp rows)
      : rewriter(rewriter), forall(forall), rows(rows) {}
  LogicalResult match();
  void rewrite();

private:
  void cloneEpilogue(Operation &op, IRMapping &map);
  void insertBlocks(scf::ForallOp fused, IRMapping &map);
  IRRewriter &rewriter;
  scf::ForallOp forall;
  scf::ForOp rows;
  SmallVector<tensor::InsertSliceOp> stores;
  SmallVector<Operation *> prologue, epilogue;
};
} // namespace

/// Elementwise in the rows: block by block gives the same.
static bool isRowwise(Operation &op) {
  if (isa<tensor::EmptyOp, tensor::DimOp, arith::ConstantOp>(op))
    return true;
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!isElementwise(generic) || generic.hasIndexSemantics())
    return false;
  return llvm::all_of(generic.getIndexingMapsArray(), [](AffineMap map) {
    return map.getNumResults() == 0 ||
           map.getResult(0) == getAffineDimExpr(0, map.getContext());
  });
}

LogicalResult Fuser::match() {
  for (Value yielded : rows.getYieldedValues()) {
    auto store = yielded.getDefiningOp<tensor::InsertSliceOp>();
    if (!store || !isa<BlockArgument>(store.getDest()) ||
        dyn_cast<Value>(store.getMixedOffsets()[0]) != rows.getInductionVar() ||
        !llvm::all_of(llvm::drop_begin(store.getMixedOffsets()),
                      [](OpFoldResult o) { return isConstantIntValue(o, 0); }))
      return failure();
    stores.push_back(store);
  }
  // The blocks may not read what other blocks wrote.
  for (BlockArgument carried : rows.getRegionIterArgs())
    if (!carried.hasOneUse())
      return failure();
  bool after = false;
  for (Operation &op : forall.getBody()->without_terminator()) {
    if (&op == rows) {
      after = true;
      continue;
    }
    if (!after) {
      prologue.push_back(&op);
      continue;
    }
    if (!isRowwise(op))
      return failure();
    epilogue.push_back(&op);
  }
  return success();
}

/// Clones an op that follows the loop, on one block.
void Fuser::cloneEpilogue(Operation &op, IRMapping &map) {
  if (isa<tensor::DimOp>(op) && map.contains(op.getOperand(0)) &&
      map.lookup(op.getOperand(0)) != op.getOperand(0)) {
    // Only sizes of whole results: used by tensor.empty, which is rebuilt.
    return;
  }
  if (isa<tensor::EmptyOp>(op))
    return;
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic) {
    rewriter.clone(op, map);
    return;
  }
  // The result has the shape of the input of the highest rank.
  Value shapeFrom;
  for (Value input : generic.getDpsInputs()) {
    Value block = map.lookupOrDefault(input);
    if (!shapeFrom || cast<RankedTensorType>(block.getType()).getRank() >
                          cast<RankedTensorType>(shapeFrom.getType()).getRank())
      shapeFrom = block;
  }
  auto type = cast<RankedTensorType>(generic.getResult(0).getType());
  Value empty = tensor::EmptyOp::create(
      rewriter, op.getLoc(),
      tensor::getMixedSizes(rewriter, op.getLoc(), shapeFrom),
      type.getElementType());
  map.map(generic.getDpsInits()[0], empty);
  Operation *clone = rewriter.clone(op, map);
  clone->getResult(0).setType(empty.getType());
}

/// Writes each block where its rows are in the whole result.
void Fuser::insertBlocks(scf::ForallOp fused, IRMapping &map) {
  Value row = fused.getInductionVar(2);
  tensor::InsertSliceOp store = stores.front();
  OpFoldResult valid = store.getMixedSizes()[0];
  if (auto v = dyn_cast<Value>(valid))
    valid = map.lookupOrDefault(v);
  for (Operation &op : forall.getTerminator().getBody()->getOperations()) {
    auto insert = cast<tensor::ParallelInsertSliceOp>(op);
    Location loc = insert.getLoc();
    Value block = map.lookupOrDefault(insert.getSource());
    rewriter.setInsertionPoint(fused.getTerminator());
    SmallVector<OpFoldResult> sizes =
        tensor::getMixedSizes(rewriter, loc, block);
    sizes[0] = valid;
    SmallVector<OpFoldResult> zeros(sizes.size(), rewriter.getIndexAttr(0)),
        ones(sizes.size(), rewriter.getIndexAttr(1));
    Value clipped = block;
    if (isa<Value>(valid))
      clipped = tensor::ExtractSliceOp::create(rewriter, loc, block, zeros,
                                               sizes, ones);
    SmallVector<OpFoldResult> offsets =
        lookupAll(map, insert.getMixedOffsets());
    SmallVector<OpFoldResult> extents = lookupAll(map, insert.getMixedSizes());
    offsets[2] = row;
    extents[2] = valid;
    rewriter.setInsertionPointToEnd(fused.getTerminator().getBody());
    tensor::ParallelInsertSliceOp::create(rewriter, loc, clipped,
                                          map.lookup(insert.getDest()), offsets,
                                          extents, insert.getMixedStrides());
  }
}

void Fuser::rewrite() {
  Location loc = forall.getLoc();
  rewriter.setInsertionPoint(forall);
  SmallVector<OpFoldResult> lower = forall.getMixedLowerBound(),
                            upper = forall.getMixedUpperBound(),
                            step = forall.getMixedStep();
  lower.push_back(getAsOpFoldResult(rows.getLowerBound()));
  upper.push_back(getAsOpFoldResult(rows.getUpperBound()));
  step.push_back(getAsOpFoldResult(rows.getStep()));
  auto fused = scf::ForallOp::create(rewriter, loc, lower, upper, step,
                                     forall.getOutputs(),
                                     /*mapping=*/std::nullopt);
  IRMapping map;
  for (auto [from, to] :
       llvm::zip(forall.getInductionVars(), fused.getInductionVars()))
    map.map(from, to);
  map.map(forall.getRegionIterArgs(), fused.getRegionIterArgs());
  Value row = fused.getInductionVar(2);
  map.map(rows.getInductionVar(), row);
  rewriter.setInsertionPoint(fused.getTerminator());
  for (Operation *op : prologue)
    rewriter.clone(*op, map);
  for (Operation &op : rows.getBody()->without_terminator())
    if (!llvm::is_contained(stores, dyn_cast<tensor::InsertSliceOp>(op)))
      rewriter.clone(op, map);
  for (auto [result, store] : llvm::zip(rows.getResults(), stores)) {
    // The whole padded block, not its valid rows: clipped when written.
    Value block = store.getSource();
    if (auto clip = block.getDefiningOp<tensor::ExtractSliceOp>();
        clip && clip.getSourceType().hasStaticShape())
      block = clip.getSource();
    map.map(result, map.lookupOrDefault(block));
  }
  for (Operation *op : epilogue)
    cloneEpilogue(*op, map);
  insertBlocks(fused, map);
  rewriter.replaceOp(forall, fused.getResults());
}

/// What an element computes of none of its coordinates and operands, such as a
/// head's slope, is computed once for the whole loop.
static void hoistFromBodies(scf::ForOp loop) {
  SmallVector<Block *> bodies;
  loop->walk([&](linalg::GenericOp op) { bodies.push_back(op.getBody()); });
  loop->walk([&](OnlineSoftmaxOp op) {
    for (Region &keep : op.getKeep())
      bodies.push_back(&keep.front());
  });
  for (Block *body : bodies)
    for (Operation &op :
         llvm::make_early_inc_range(body->without_terminator())) {
      bool isFree = llvm::all_of(op.getOperands(), [&](Value operand) {
        return loop.isDefinedOutsideOfLoop(operand);
      });
      if (isFree && op.getNumRegions() == 0 && isPure(&op) &&
          !isa<linalg::IndexOp>(op))
        op.moveBefore(loop);
    }
}

namespace {
struct FusePass : fa::impl::FusePassBase<FusePass> {
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    SmallVector<std::pair<scf::ForallOp, scf::ForOp>> nests;
    func.walk([&](scf::ForallOp forall) {
      if (forall.getRank() != 2)
        return;
      // The one loop directly below that carries tensors of full size.
      SmallVector<scf::ForOp> loops(forall.getBody()->getOps<scf::ForOp>());
      if (loops.size() == 1)
        nests.push_back({forall, loops.front()});
    });
    IRRewriter rewriter(&getContext());
    for (auto [forall, rows] : nests) {
      Fuser fuser(rewriter, forall, rows);
      if (succeeded(fuser.match()))
        fuser.rewrite();
    }
    func.walk([](scf::ForOp loop) { hoistFromBodies(loop); });
    if (failed(cleanUp(func)))
      signalPassFailure();
  }
};
} // namespace
