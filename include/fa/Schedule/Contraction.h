// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products among a block's operations.

#ifndef FA_SCHEDULE_CONTRACTION_H
#define FA_SCHEDULE_CONTRACTION_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <optional>

namespace fa {

/// C(i,j) += A(i,k) B(k,j), read off the op's maps and body.
struct Contraction {
  mutable mlir::linalg::LinalgOp op; // MLIR's op classes lack const
  mlir::OpOperand *a, *b;
  /// The operand's tensor is indexed (k,i) or (k,j), else (i,k) or (j,k).
  bool aOuterK, bOuterK;
  int64_t m, n, k;
  mlir::Type elementType;
  /// Tensor cores multiply 16-bit numbers; f32 are multiplied and added.
  bool tensorCore() const { return elementType.getIntOrFloatBitWidth() == 16; }
};

/// The contraction that an op is, or nothing.
std::optional<Contraction> matchContraction(mlir::Operation *op);

/// Whether each tile that a loop loads has one of these products as its reader,
/// in the loop's own block, and readers come in the order of the tiles.
bool isReadInTurn(mlir::scf::ForOp loop, llvm::ArrayRef<mlir::Value> loads,
                  llvm::ArrayRef<Contraction> contractions);

} // namespace fa

#endif // FA_SCHEDULE_CONTRACTION_H
