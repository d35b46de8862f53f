// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What random bits decide as tiles of their own, before a schedule is made.

#include "fa/Schedule/SplitRandomMasks.h"

#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/IR/TileRanges.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

/// Whether an elementwise operation's body compares random bits with something,
/// of coordinates and what is outside alone: `slice` is what computes that.
static bool isMask(arith::CmpIOp compare, ArrayRef<Operation *> slice) {
  auto op = cast<linalg::GenericOp>(compare->getParentOp());
  return op.getNumDpsInputs() > 0 && fa::isElementwise(op) &&
         op.getNumLoops() == 2 &&
         op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity() &&
         cast<RankedTensorType>(op.getResult(0).getType()).hasStaticShape() &&
         llvm::all_of(slice, [&](Operation *inner) {
           return inner->getNumRegions() == 0 &&
                  llvm::none_of(inner->getOperands(), [&](Value v) {
                    return llvm::is_contained(op.getBody()->getArguments(), v);
                  });
         });
}

/// The tile of what these operations compute, the last of them.
static Value buildTile(OpBuilder &b, linalg::GenericOp op,
                       ArrayRef<Operation *> slice) {
  Type type = slice.back()->getResult(0).getType();
  auto shape = cast<RankedTensorType>(op.getResult(0).getType()).getShape();
  Value empty = tensor::EmptyOp::create(b, op.getLoc(), shape, type);
  return linalg::GenericOp::create(
             b, op.getLoc(), empty.getType(), ValueRange(), empty,
             b.getMultiDimIdentityMap(2), op.getIteratorTypesArray(),
             [&](OpBuilder &nested, Location loc, ValueRange) {
               IRMapping map;
               Operation *last = nullptr;
               for (Operation *inner : slice)
                 last = nested.clone(*inner, map);
               linalg::YieldOp::create(nested, loc, last->getResults());
             })
      .getResult(0);
}

void fa::splitRandomMasks(func::FuncOp func) {
  SmallVector<arith::CmpIOp> compares;
  func.walk([&](arith::CmpIOp op) {
    if (isa<linalg::GenericOp>(op->getParentOp()) &&
        op.getLhs().getDefiningOp<RandomBitsOp>())
      compares.push_back(op);
  });
  for (arith::CmpIOp compare : compares) {
    auto op = cast<linalg::GenericOp>(compare->getParentOp());
    Block &body = *op.getBody();
    SmallVector<Operation *> slice = sliceInBlock(compare, body);
    if (!isMask(compare, slice))
      continue;
    OpBuilder b(op);
    Value tile = buildTile(b, op, slice);
    unsigned inputs = op.getNumDpsInputs();
    Value bit =
        body.insertArgument(inputs, compare.getType(), compare.getLoc());
    compare.getResult().replaceAllUsesWith(bit);
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    maps.insert(maps.begin() + inputs, b.getMultiDimIdentityMap(2));
    op.getInputsMutable().append(tile);
    op.setIndexingMapsAttr(b.getAffineMapArrayAttr(maps));
    for (Operation &inner : llvm::make_early_inc_range(llvm::reverse(body)))
      if (isOpTriviallyDead(&inner))
        inner.erase();
  }
}
