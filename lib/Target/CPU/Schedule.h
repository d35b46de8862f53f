// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How linalg ops on buffers become loops over native vectors.

#ifndef FA_LIB_TARGET_CPU_SCHEDULE_H
#define FA_LIB_TARGET_CPU_SCHEDULE_H

#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

namespace fa {

/// The registers that the code is made for.
struct VectorUnit {
  /// Bits of a register.
  int64_t bits = 256;
  /// Rows of a contraction's kernel.
  int64_t rows = 4;
  /// Registers in a row of a contraction's kernel.
  int64_t columns = 2;

  /// Lanes of what elements of this type are computed in.
  int64_t lanesOf(mlir::Type element) const {
    return bits / getComputeType(element).getIntOrFloatBitWidth();
  }
};

/// Replaces a contraction C[i,j] += sum_k A[i,k] B[j,k] (or B[k,j]) by a
/// register-tiled kernel. Ops that it creates on the way (conversions of 16-bit
/// operands) are appended to `remaining`. Fails on anything else.
llvm::LogicalResult
scheduleContraction(mlir::RewriterBase &rewriter, mlir::linalg::LinalgOp op,
                    const VectorUnit &unit,
                    llvm::SmallVectorImpl<mlir::linalg::LinalgOp> &remaining);

/// C[i,j] += sum_k A[i,k] B[j,k] with nothing copied, for few rows of A:
/// vectors run along k. The buffers have unit inner strides; A and B may be of
/// 16 bits.
void emitDots(mlir::RewriterBase &rewriter, mlir::Location loc, mlir::Value a,
              mlir::Value b, mlir::Value c, const VectorUnit &unit);

/// Replaces an elementwise op or row reduction by loops of which the innermost
/// one runs over vectors. Fails where an operand or the body forbids it.
llvm::LogicalResult scheduleRows(mlir::RewriterBase &rewriter,
                                 mlir::linalg::LinalgOp op,
                                 const VectorUnit &unit);

/// The size of a buffer's dimension, a constant where it is static.
mlir::Value dimOf(mlir::OpBuilder &b, mlir::Location loc, mlir::Value buffer,
                  unsigned dim);

/// Whether neighbours in a buffer's last dimension are neighbours in memory.
bool hasUnitInnerStride(mlir::Value buffer);

/// `x` rounded down to a multiple of `to`.
mlir::Value roundDown(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x,
                      int64_t to);

/// The constant that `v` is, if it is one.
std::optional<int64_t> constantOf(mlir::Value v);

} // namespace fa

#endif // FA_LIB_TARGET_CPU_SCHEDULE_H
