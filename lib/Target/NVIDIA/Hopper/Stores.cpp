// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Results that leave through shared memory, by TMA.

#include "Schedule.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

/// Whether a tile that is inserted is cut only where the tensor ends, which is
/// what TMA does by itself.
static bool isCutByTensor(tensor::ParallelInsertSliceOp insert,
                          RankedTensorType tile) {
  llvm::SmallBitVector dropped = insert.getDroppedDims();
  unsigned at = 0;
  for (unsigned d = 0; d < dropped.size(); ++d) {
    if (dropped.test(d))
      continue;
    OpFoldResult size = insert.getMixedSizes()[d];
    int64_t whole = tile.getDimSize(at++);
    if (getConstantIntValue(size) == whole)
      continue;
    auto value = dyn_cast<Value>(size);
    auto min = value ? value.getDefiningOp<affine::AffineMinOp>()
                     : affine::AffineMinOp();
    if (!min || min.getMap().getNumResults() != 2)
      return false;
    auto constant = dyn_cast<AffineConstantExpr>(min.getMap().getResult(0));
    if (!constant)
      constant = dyn_cast<AffineConstantExpr>(min.getMap().getResult(1));
    auto offset = dyn_cast<Value>(insert.getMixedOffsets()[d]);
    if (!constant || constant.getValue() != whole || !offset ||
        !llvm::is_contained(min.getOperands(), offset))
      return false;
  }
  return at == 2;
}

/// Whether TMA can store what an insertion inserts.
static bool isStageable(tensor::ParallelInsertSliceOp insert,
                        RankedTensorType tile) {
  return tile && tile.getRank() == 2 && tile.hasStaticShape() &&
         tile.getElementTypeBitWidth() == 16 && tile.getDimSize(1) % 8 == 0 &&
         insert.getDestType().getRank() <= 5 && isCutByTensor(insert, tile);
}

RankedTensorType fa::nvidia::findStageable(scf::ForallOp forall) {
  RankedTensorType found;
  unsigned count = 0;
  forall.getTerminator()->walk([&](tensor::ParallelInsertSliceOp insert) {
    Value tile = insert.getSource();
    if (auto slice = tile.getDefiningOp<tensor::ExtractSliceOp>())
      tile = slice.getSource();
    auto type = dyn_cast<RankedTensorType>(tile.getType());
    if (!isStageable(insert, type))
      return;
    found = type;
    ++count;
  });
  return count == 1 ? found : RankedTensorType();
}

void fa::nvidia::stageStores(scf::ForallOp forall, ConsumersOp role,
                             int64_t offset, int64_t panels) {
  if (!panels)
    return;
  Operation *yield = role.getBody().front().getTerminator();
  forall.getTerminator()->walk([&](tensor::ParallelInsertSliceOp insert) {
    if (insert.getSource().getDefiningOp() != role)
      return;
    unsigned number = cast<OpResult>(insert.getSource()).getResultNumber();
    Value value = yield->getOperand(number);
    auto slice = value.getDefiningOp<tensor::ExtractSliceOp>();
    Value tile = slice ? slice.getSource() : value;
    auto type = dyn_cast<RankedTensorType>(tile.getType());
    if (!isStageable(insert, type))
      return;
    OpBuilder b(slice ? slice : yield);
    int64_t section = panels * RingType::panelCols;
    auto columns = section < type.getDimSize(1) ? b.getI64IntegerAttr(section)
                                                : IntegerAttr();
    // Where nothing else lies.
    Value staged = StageOp::create(b, tile.getLoc(), tile, /*turned=*/false,
                                   offset, columns, IntegerAttr());
    if (slice)
      slice.getSourceMutable().set(staged);
    else
      yield->setOperand(number, staged);
  });
}
