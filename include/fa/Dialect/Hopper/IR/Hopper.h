// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The hopper dialect: schedules for sm_90a.

#ifndef FA_DIALECT_HOPPER_IR_HOPPER_H
#define FA_DIALECT_HOPPER_IR_HOPPER_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "fa/Dialect/Hopper/IR/HopperDialect.h.inc"

namespace fa::hopper {
/// Threads of a warpgroup, and rows of its part of a tile.
inline constexpr int64_t warpgroupThreads = 128, warpgroupRows = 64;
/// Warpgroups that may compute in a block.
inline constexpr int64_t maxWarpgroups = 4;
/// Groups of products that wgmma.wait_group can leave in flight.
inline constexpr int64_t maxPending = 7;
/// Shared memory of a block on sm_90a.
inline constexpr int64_t sharedBytes = 227 * 1024;
/// Where wgmma's descriptors and the 128-byte swizzle want a tile to begin.
inline constexpr int64_t tileAlignment = 1024;
/// Bytes of an mbarrier.
inline constexpr int64_t barrierBytes = 8;
} // namespace fa::hopper

#define GET_TYPEDEF_CLASSES
#include "fa/Dialect/Hopper/IR/HopperTypes.h.inc"

#define GET_OP_CLASSES
#include "fa/Dialect/Hopper/IR/HopperOps.h.inc"

namespace fa::hopper {
/// The tile that a value is, will be (pending) or holds (a slot); null for
/// other types.
mlir::RankedTensorType getTileType(mlir::Type type);

/// The ring of whose tiles a slot is one, also where a loop carries slots from
/// one iteration to the next; null where they are not all of one ring.
RingOp ringOfSlot(mlir::Value slot);

/// Whether the consumers fill a ring themselves.
bool isComputed(mlir::Value ring);
/// The ring that a ring is with, whose stages fill and empty with its own; null
/// where it is with none.
mlir::Value leaderOf(mlir::Value ring);
/// The rings that are with a ring.
llvm::SmallVector<RingOp> companionsOf(mlir::Value ring);

/// What adds a staged tile of f32, or slices of it, to memory.
llvm::SmallVector<mlir::Operation *> sumsOf(StageOp stage);

/// Whether an operation of the dialect does something that other threads of the
/// block see, or that completes later.
bool isStep(mlir::Operation *op);

/// How warpgroups divide a tile: its rows among `rows` of them and, among as
/// many as hold the same rows, its columns. As many divide rows as have 64 or a
/// multiple of them.
struct Division {
  int64_t rows = 1, cols = 1;
  static Division of(llvm::ArrayRef<int64_t> shape, int64_t warpgroups);
  /// What a warpgroup has of a tile: from the first to before the end.
  struct Part {
    int64_t firstRow, endRow, firstCol, endCol;
  };
  Part part(llvm::ArrayRef<int64_t> shape, int64_t warpgroup) const;
};

/// Whether parts of so many columns lie in whole panels each, or in one.
bool fitsPanels(int64_t cols);

/// Whether the parts of a product's result are what instructions give: of 64
/// rows, and of columns that they read from whole panels, from one, or 16 or
/// more at a time.
bool takesProduct(mlir::RankedTensorType result, int64_t warpgroups);

/// Whether warpgroups can write such a tile to shared memory, as it is or
/// turned.
bool takesShare(mlir::RankedTensorType tile, int64_t warpgroups, bool turned);

/// The role of a block that computes; null where the block has none.
ConsumersOp consumersOf(mlir::scf::ForallOp forall);
/// How many times a block has its consumers.
int64_t teamsOf(mlir::scf::ForallOp forall);
} // namespace fa::hopper

#endif // FA_DIALECT_HOPPER_IR_HOPPER_H
