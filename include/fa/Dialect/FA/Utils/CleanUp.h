// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What passes of the algorithm level and schedules do alike.

#ifndef FA_DIALECT_FA_UTILS_CLEANUP_H
#define FA_DIALECT_FA_UTILS_CLEANUP_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"

namespace fa {

class StepExpansion;

/// What every pass of the algorithm level leaves behind: sizes resolved to the
/// values they came from, slices of slices merged, invariant ops hoisted,
/// common subexpressions and dead ops gone.
mlir::LogicalResult cleanUp(mlir::func::FuncOp func);

/// The steps of softmax (`fa.online_softmax`, `fa.speculated_softmax`) in an
/// operation.
llvm::SmallVector<mlir::Operation *> collectSoftmaxes(mlir::Operation *root);

/// Replaces a step by the operations that it consists of.
void expandSoftmax(mlir::RewriterBase &rewriter, mlir::Operation *step,
                   StepExpansion &target);

/// All steps of a function, by linalg's operations; cleans up if there are
/// some.
mlir::LogicalResult expandSoftmaxes(mlir::func::FuncOp func);

} // namespace fa

#endif // FA_DIALECT_FA_UTILS_CLEANUP_H
