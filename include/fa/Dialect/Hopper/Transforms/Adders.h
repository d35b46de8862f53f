// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_DIALECT_HOPPER_TRANSFORMS_ADDERS_H
#define FA_DIALECT_HOPPER_TRANSFORMS_ADDERS_H

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/Hopper/IR/Hopper.h"

namespace fa::hopper {

/// The tile that is added, or of which a slice is.
mlir::Value addedTile(AccumulateSliceOp sum);

/// Where what is added is staged for TMA; null: it is not.
StageOp stageOf(AccumulateSliceOp sum);

/// Whether adders add it.
bool isHanded(fa::AccumulateSliceOp sum);

/// What adders add: the first of the operations, whose memory and staged tiles
/// are all alike (verifyAdders). Null where there are none.
AccumulateSliceOp findHandedSum(mlir::scf::ForallOp forall);

/// How many adders a block has: one for each warpgroup of the consumers, or 0
/// where nothing is handed to them.
int64_t addersOf(mlir::scf::ForallOp forall);

/// Reports what is handed to adders and is not one sum, or copies of it, and
/// all that blocks add in an order.
mlir::LogicalResult verifyAdders(mlir::scf::ForallOp forall);

/// Reports a block with roles that adds in an order in which it cannot.
mlir::LogicalResult verifyOrder(mlir::scf::ForallOp forall);

} // namespace fa::hopper

#endif // FA_DIALECT_HOPPER_TRANSFORMS_ADDERS_H
