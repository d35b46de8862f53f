// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What passes of schedules have in common.

#ifndef FA_DIALECT_HOPPER_TRANSFORMS_UTILS_H
#define FA_DIALECT_HOPPER_TRANSFORMS_UTILS_H

#include "fa/Dialect/Hopper/IR/Hopper.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"

namespace fa::hopper {

/// A value of a region for what `map` knows otherwise: what computes it in the
/// region, once more.
mlir::Value cloneSlice(mlir::OpBuilder &b, mlir::Value v, mlir::Region &region,
                       mlir::IRMapping &map);

/// Erases what nothing uses, from the last operation to the first.
void eraseDead(mlir::Block &block);

/// Fills the producer, whatever it had before, with the loads of what the
/// consumers acquire, in the same order, under the same control.
void buildProducer(ProducerOp producer, ConsumersOp consumers);

/// A branch that one side of an earlier branch rules out, and the other
/// decides, moves into that other side, where nothing that it needs comes
/// between and its tiles are no wider: the common path tests once.
void mergeBranches(mlir::scf::ForOp loop);

} // namespace fa::hopper

#endif // FA_DIALECT_HOPPER_TRANSFORMS_UTILS_H
