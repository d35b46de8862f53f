// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A function of tile programs as a gpu.module of kernels.

#ifndef FA_LIB_TARGET_NVIDIA_PROGRAM_H
#define FA_LIB_TARGET_NVIDIA_PROGRAM_H

#include "BlockPlan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fa::nvidia {

/// Makes the gpu.module of a function whose body is scf.forall beside scalars,
/// with the lines that describe arguments and launches as its attribute
/// `fa.program`. The function stays.
mlir::LogicalResult buildProgram(mlir::func::FuncOp func,
                                 const ScheduleOptions &options,
                                 mlir::OpBuilder &builder);

/// The functions of a module that have an scf.forall to make a kernel of.
llvm::SmallVector<mlir::func::FuncOp> collectPrograms(mlir::ModuleOp module);

/// What random bits decide in elementwise operations becomes a tile of its own,
/// of i1: it depends on nothing that is computed, and is made for many elements
/// at once. (SplitRandomMasks.cpp)
void splitRandomMasks(mlir::func::FuncOp func);

/// Whether a loop in the forall has a bound that depends on a value. Where that
/// is the block's number, blocks differ in length.
bool boundsDependOn(mlir::scf::ForallOp forall, mlir::Value value);

} // namespace fa::nvidia

#endif // FA_LIB_TARGET_NVIDIA_PROGRAM_H
