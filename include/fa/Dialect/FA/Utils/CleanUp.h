// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Clean-up and expansion of softmax, shared by passes of the algorithm level
// and by schedules.

#ifndef FA_DIALECT_FA_UTILS_CLEANUP_H
#define FA_DIALECT_FA_UTILS_CLEANUP_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"

namespace fa {

class StepExpansion;

/// The last step of every pass of the algorithm level: resolves sizes to the
/// values they came from, merges slices of slices, hoists invariant ops, and
/// removes common subexpressions and dead ops.
mlir::LogicalResult cleanUp(mlir::func::FuncOp func);

/// The steps of softmax (`fa.online_softmax`, `fa.speculated_softmax`) in an
/// operation.
llvm::SmallVector<mlir::Operation *> collectSoftmaxes(mlir::Operation *root);

/// Replaces a step by its expansion for a target.
void expandSoftmax(mlir::RewriterBase &rewriter, mlir::Operation *step,
                   StepExpansion &target);

/// Expands all steps of a function to linalg's operations; cleans up if there
/// are some.
mlir::LogicalResult expandSoftmaxes(mlir::func::FuncOp func);

} // namespace fa

#endif // FA_DIALECT_FA_UTILS_CLEANUP_H
