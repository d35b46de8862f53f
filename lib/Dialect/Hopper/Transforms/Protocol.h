// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules that what roles do has to keep: of one role alone, and of all that
// run in a block.

#ifndef FA_LIB_DIALECT_HOPPER_TRANSFORMS_PROTOCOL_H
#define FA_LIB_DIALECT_HOPPER_TRANSFORMS_PROTOCOL_H

#include "Control.h"

namespace fa::hopper {

/// What the roles do in one tile of a block.
struct TileTrace {
  Trace producer, consumers;
};

/// Says after an error when it happens.
using Describe = llvm::function_ref<void(mlir::InFlightDiagnostic &)>;

/// Checks what the consumers of a tile do with slots, products in flight, turns
/// and polls, of themselves. `stays` is whether the block has further tiles.
mlir::LogicalResult checkConsumers(const Trace &trace, bool stays,
                                   Describe describe);

/// Checks that the producer loads the tiles of each ring that the consumers
/// take.
mlir::LogicalResult checkLoads(const TileTrace &tile, ProducerOp producer,
                               Describe describe);

/// Checks that stages that nobody waits for are empty when they are filled, by
/// the order of the consumers' steps in tiles one after another.
mlir::LogicalResult checkUnguarded(llvm::ArrayRef<const TileTrace *> tiles,
                                   Describe describe);

/// Lets a block's roles work on tiles, one after another, each as far as it
/// gets: nobody waits for ever.
mlir::LogicalResult checkProgress(llvm::ArrayRef<const TileTrace *> tiles,
                                  ConsumersOp consumers, ProducerOp producer,
                                  Describe describe);

} // namespace fa::hopper

#endif // FA_LIB_DIALECT_HOPPER_TRANSFORMS_PROTOCOL_H
