// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many iterations later than the others an operation of a loop runs.

#ifndef FA_LIB_DIALECT_HOPPER_TRANSFORMS_DELAY_H
#define FA_LIB_DIALECT_HOPPER_TRANSFORMS_DELAY_H

#include "fa/Dialect/Hopper/IR/Hopper.h"

namespace fa::hopper {

inline constexpr llvm::StringLiteral delayName = "hopper.delay";

/// Without the attribute 0.
inline int64_t delayOf(mlir::Operation *op) {
  auto delay = op->getAttrOfType<mlir::IntegerAttr>(delayName);
  return delay ? delay.getInt() : 0;
}

inline void setDelay(mlir::Operation *op, int64_t delay) {
  op->setAttr(delayName,
              mlir::IntegerAttr::get(
                  mlir::IntegerType::get(op->getContext(), 64), delay));
}

/// How many iterations earlier than other tiles' that of an acquisition in a
/// pipelined loop is.
inline constexpr llvm::StringLiteral behindName = "hopper.behind";

inline int64_t behindOf(AcquireOp op) {
  auto behind = op->getAttrOfType<mlir::IntegerAttr>(behindName);
  return behind ? behind.getInt() : 0;
}

/// Whether one of its regions has a step of the schedule.
bool holdsSteps(mlir::Operation *op);

/// Whether it cuts a tensor out of another one, to be read.
bool isView(mlir::Operation *op);

/// Whether it only computes numbers, of anything.
bool isNumber(mlir::Operation *op);

/// Marks rings of a block whose stages nobody need wait for as unguarded.
void leaveUnguarded(mlir::scf::ForallOp forall);

/// Whether warpgroups share what they compute.
bool sharesTiles(ConsumersOp role);

} // namespace fa::hopper

#endif // FA_LIB_DIALECT_HOPPER_TRANSFORMS_DELAY_H
