// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A function of tile programs as a gpu.module of kernels.

#ifndef FA_LIB_TARGET_NVIDIA_PROGRAM_PROGRAM_H
#define FA_LIB_TARGET_NVIDIA_PROGRAM_PROGRAM_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fa::nvidia {

/// Makes the gpu.module of a function whose body is scf.forall beside scalars,
/// with the lines that describe arguments and launches as its attribute
/// `fa.program`. The function stays.
mlir::LogicalResult buildProgram(mlir::func::FuncOp func,
                                 mlir::OpBuilder &builder);

} // namespace fa::nvidia

#endif // FA_LIB_TARGET_NVIDIA_PROGRAM_PROGRAM_H
