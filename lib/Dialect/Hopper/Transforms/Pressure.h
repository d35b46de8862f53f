// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Registers of tiles, as a block's operations come one after the other.

#ifndef FA_LIB_DIALECT_HOPPER_TRANSFORMS_PRESSURE_H
#define FA_LIB_DIALECT_HOPPER_TRANSFORMS_PRESSURE_H

#include "fa/Dialect/Hopper/IR/Hopper.h"

#include "llvm/ADT/SetVector.h"

namespace fa::hopper {

/// Whether a value is a tile that threads hold in registers, complete or
/// pending: products and what is computed give such, memory does not.
bool isInRegisters(mlir::Value value);

/// How many registers each thread has of a value; 0 where it is in none.
int64_t registersOf(mlir::Value value, int64_t warpgroups);

/// What an operation of a block uses, of a branch that may do nothing what that
/// gives on: the other side is for few blocks, and what it needs else is kept
/// for it where registers are left.
llvm::SetVector<mlir::Value> surelyUsedBy(mlir::Operation *op);

/// Whether a block's terminator carries a tile into the next iteration, or out
/// of the loop, to say which one a stage holds, and for nothing else.
bool isCarriedAsName(mlir::Operation *op, mlir::Value v);

/// What the operations of a block that consumers run keep in registers, up to a
/// point between them, where each so far has been told to `place`.
class Pressure {
public:
  Pressure(mlir::Block &block, int64_t warpgroups);

  /// Registers a thread now.
  int64_t live() const { return liveNow; }
  /// How many more there would be behind `op`: what it uses for the last time
  /// gives its registers to what it makes.
  int64_t growth(mlir::Operation *op) const;
  void place(mlir::Operation *op);
  /// How many of the products in flight, which end in the order of their
  /// start, have ended when a wait gives its results.
  size_t endedBy(WaitGroupOp wait) const;
  size_t pendingProducts() const { return inFlight.size(); }
  /// Whether a product in flight reads registers, which stay as they are.
  bool holdsOperands() const;

private:
  int64_t registersOf(mlir::Value value) const {
    return fa::hopper::registersOf(value, warpgroups);
  }
  /// What of its values an operation uses for the last time.
  llvm::SmallVector<mlir::Value> freedBy(mlir::Operation *op) const;
  /// Values from registers that the products keep reading until they end.
  mlir::Value heldBy(mlir::Operation *product) const;

  int64_t warpgroups, liveNow = 0;
  /// The operations that use a value and have not been placed, or are products
  /// that have not ended.
  llvm::DenseMap<mlir::Value, llvm::SmallPtrSet<mlir::Operation *, 4>> users;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Value>> used;
  llvm::SmallVector<WgmmaOp> inFlight;
};

} // namespace fa::hopper

#endif // FA_LIB_DIALECT_HOPPER_TRANSFORMS_PRESSURE_H
