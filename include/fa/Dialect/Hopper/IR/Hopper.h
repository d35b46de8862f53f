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

/// Whether an operation of the dialect does something that other threads of the
/// block see, or that completes later.
bool isStep(mlir::Operation *op);

/// How many times a block has its consumers.
int64_t teamsOf(mlir::scf::ForallOp forall);
} // namespace fa::hopper

#endif // FA_DIALECT_HOPPER_IR_HOPPER_H
