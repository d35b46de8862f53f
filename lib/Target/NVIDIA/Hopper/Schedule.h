// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What fa-hopper-place (Placement.h) is made of:
//
//   Loads.cpp   which tiles TMA can load
//   Rows.cpp    steps of softmax, as warps make them
//   Stores.cpp  results that leave through shared memory

#ifndef FA_LIB_TARGET_NVIDIA_HOPPER_SCHEDULE_H
#define FA_LIB_TARGET_NVIDIA_HOPPER_SCHEDULE_H

#include "fa/Dialect/Hopper/Transforms/Utils.h"
#include "fa/Schedule/BlockProgram.h"
#include "fa/Schedule/Contraction.h"
#include "fa/Target/NVIDIA/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fa::nvidia {

//===----------------------------------------------------------------------===//
// Loads.cpp
//===----------------------------------------------------------------------===//

/// Whether a tile is cut out of memory.
inline bool isLoaded(mlir::Value tile) { return !getLoadChain(tile).empty(); }

/// Bytes of a tile in a ring, where it may lie turned.
int64_t tileBytes(mlir::Value tile, bool isTurned = false);

/// Whether TMA can load a loaded tile, rows of one dimension by the last
/// dimension; else says in `why` what stands against it.
bool canLoadByTMA(mlir::Value tile, std::string &why);

/// Whether the number of steps of a loop is read from memory: that of a list.
bool readsItsEnd(mlir::scf::ForOp loop);

//===----------------------------------------------------------------------===//
// Rows.cpp
//===----------------------------------------------------------------------===//

/// A function's steps of softmax: "some row is not below the limit" is decided
/// by warp, and carried sums of rows become partial sums that a thread makes
/// alone (tensor<rows x 8>), of which the rest is added after the loop.
mlir::LogicalResult expandForWarps(mlir::func::FuncOp func);

/// Partial sums that a loop gives, made by the tensor cores: every column is
/// then the whole sum.
void takeWholeSums(mlir::Value sums);

//===----------------------------------------------------------------------===//
// Stores.cpp
//===----------------------------------------------------------------------===//

/// The block's result that can be staged, if there is exactly one; else null.
mlir::RankedTensorType findStageable(mlir::scf::ForallOp forall);

/// That result goes through shared memory, so many panels of 64 columns at a
/// time; where none, it does not.
void stageStores(mlir::scf::ForallOp forall, hopper::ConsumersOp role,
                 int64_t offset, int64_t panels);

} // namespace fa::nvidia

#endif // FA_LIB_TARGET_NVIDIA_HOPPER_SCHEDULE_H
