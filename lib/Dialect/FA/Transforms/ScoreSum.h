// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scores that are a product of queries and keys and something added that knows
// nothing of it, such as a distance times a slope. For fa-speculate-max.

#ifndef FA_LIB_DIALECT_FA_TRANSFORMS_SCORESUM_H
#define FA_LIB_DIALECT_FA_TRANSFORMS_SCORESUM_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace fa {

/// Scores x * c + bias, with bias a function of the coordinates.
struct ScoreSum {
  /// Computes the sum of the first parts; null where scores are no such sum.
  mlir::linalg::GenericOp sum;

  /// Splits scores that are computed by a linalg.generic or by an scf.if
  /// between two, maybe with a mask: what computed them gives the first parts
  /// `x` afterwards, and -inf where they are masked. The bias is finite, so
  /// that it does not matter there.
  static ScoreSum split(mlir::RewriterBase &rewriter, mlir::Value scores);
  explicit operator bool() const { return sum != nullptr; }

  /// exp2(sum + shift) of the first parts, with `shift` of their rows, or the
  /// sum itself where that is null. With the bias the shift takes no operation
  /// of an element more.
  mlir::Value build(mlir::OpBuilder &b, mlir::Value first,
                    mlir::Value shift = {});
};

} // namespace fa

#endif // FA_LIB_DIALECT_FA_TRANSFORMS_SCORESUM_H
