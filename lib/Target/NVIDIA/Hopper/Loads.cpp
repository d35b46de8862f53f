// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles that TMA can load, and lists that loops follow.

#include "Schedule.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

int64_t fa::nvidia::tileBytes(Value tile, bool isTurned) {
  auto type = cast<RankedTensorType>(tile.getType());
  return RingType::get(type.getContext(), 1, type, isTurned).tileBytes();
}

bool fa::nvidia::canLoadByTMA(Value v, std::string &why) {
  auto type = cast<RankedTensorType>(v.getType());
  std::string name;
  llvm::raw_string_ostream(name) << type;
  if (!type.hasStaticShape() || type.getDimSize(0) > RingType::maxRows ||
      type.getDimSize(0) < 8 || type.getDimSize(0) % 8) {
    why = "expected a multiple of 8 rows, at most " +
          std::to_string(RingType::maxRows) + ", got the tile " + name;
    return false;
  }
  if (type.getDimSize(1) % 8 || type.getDimSize(1) < 8) {
    why = "rows of " + name + " are not whole chunks of 16 bytes";
    return false;
  }
  if (type.getDimSize(1) > RingType::maxCols) {
    why = "the tile " + name + " has more than " +
          std::to_string(RingType::maxCols) +
          " columns, of which 8 rows do not fit into shared memory";
    return false;
  }
  SmallVector<Operation *> chain = getLoadChain(v);
  for (Operation *op : chain)
    if (auto pad = dyn_cast<tensor::PadOp>(op)) {
      Value padding = pad.getConstantPaddingValue();
      if (!padding || !matchPattern(padding, m_AnyZeroFloat())) {
        why = "the tile " + name + " is not padded with zeros";
        return false;
      }
    }
  auto slice = cast<tensor::ExtractSliceOp>(chain.back());
  RankedTensorType base = slice.getSourceType();
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  bool last = base.getRank() <= 5 && !dropped.test(base.getRank() - 1);
  if (!last || isLoaded(slice.getSource())) {
    why = "the tile " + name +
          " is not a slice of rows along the last dimension of a tensor "
          "of rank 5 or less";
    return false;
  }
  return true;
}

bool fa::nvidia::readsItsEnd(scf::ForOp loop) {
  SmallVector<Value> worklist = {loop.getUpperBound()};
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val().getDefiningOp();
    if (isa_and_nonnull<tensor::ExtractOp>(op))
      return true;
    if (op)
      llvm::append_range(worklist, op->getOperands());
  }
  return false;
}
