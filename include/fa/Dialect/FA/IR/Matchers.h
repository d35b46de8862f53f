// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognise the linalg ops that SoftmaxBuilder builds, whoever built them. Each
// asks for the body, the iterators and the indexing maps: the same body over
// columns, over transposed operands or over a vector that is repeated along the
// other dimension is another computation.

#ifndef FA_DIALECT_FA_IR_MATCHERS_H
#define FA_DIALECT_FA_IR_MATCHERS_H

#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/SmallBitVector.h"

#include <optional>
#include <utility>

namespace fa {

using ValuePair = std::pair<mlir::Value, mlir::Value>;

/// A row reduction [M,N] -> [M] whose body is one commutative op.
struct RowReduction {
  mlir::Value matrix, init;
};
/// Matches `init[i] = CombinerOp(matrix[i,j], init[i])`.
std::optional<RowReduction> matchRowMax(mlir::Value v);
std::optional<RowReduction> matchRowSum(mlir::Value v);

/// A matrix product's operands; rhsTransposed means rhs is [N,K].
struct MatrixProduct {
  mlir::Value lhs, rhs, init;
  bool rhsTransposed;
};
std::optional<MatrixProduct> matchMatrixProduct(mlir::Value v);

/// exp(x - shift), in a compute type (getComputeType).
std::optional<ValuePair> matchExpDifference(mlir::Value v);
/// x times a constant.
std::optional<std::pair<mlir::Value, double>> matchScaled(mlir::Value v);
/// x + ln y.
std::optional<ValuePair> matchAddLog(mlir::Value v);
/// x, with -inf replaced by 0.
mlir::Value matchFiniteOrZero(mlir::Value v);
/// x / y, 0 where y is 0.
std::optional<ValuePair> matchDivideOrZero(mlir::Value v);
/// x where a condition on its coordinates holds, 0 elsewhere.
mlir::Value matchKeep(mlir::Value v);
/// x converted to another float type.
mlir::Value matchConvert(mlir::Value v);

/// The tensor of the same shape from which a value comes by writes into it. For
/// a loop that only writes into its carried tensor it is the loop's initial
/// tensor. Without writes it is the value itself.
mlir::Value getShapeSource(mlir::Value v);

/// Reports a tensor.dim of a dimension that its tensor does not have. Its
/// result is undefined, and upstream's patterns assume that there is none.
mlir::LogicalResult verifyDims(mlir::func::FuncOp func);

/// ceil(x / n), a number of blocks: x and n.
std::optional<std::pair<mlir::Value, int64_t>> matchCeilQuotient(mlir::Value v);

/// x of |x| of integers; the program may write it as max(x, 0 - x).
mlir::Value matchMagnitude(mlir::Value v);
/// `before` as an argument of the loop's body, if the next iteration gets
/// `after` for it; null otherwise, or without a loop.
mlir::BlockArgument matchCarried(mlir::scf::ForOp loop, mlir::Value before,
                                 mlir::Value after);
/// Whether a value is the constant -inf, the score of a masked element.
bool isNegativeInfinity(mlir::Value v);
/// Whether a value depends on another.
bool dependsOn(mlir::Value v, mlir::Value on);
/// Whether a generic has only parallel iterators and one result.
bool isElementwise(mlir::linalg::GenericOp op);
/// Whether rows stay rows: all operands are indexed by the leading loops, in
/// order, a matrix by (i, j) and a vector of its rows by (i).
bool isRowwise(mlir::linalg::GenericOp op);
/// Whether a generic reduces matrices [i,j] along j to vectors [i].
bool reducesRows(mlir::linalg::GenericOp op);
/// A tile of i1 that depends on random bits alone: whether they reach a limit.
struct RandomMask {
  RandomBitsOp random;
  uint8_t limit;
  /// Its columns are the bits' rows.
  bool isTurned;
};
/// Matches `bits(i, j) >= limit` for bits that are made in groups.
std::optional<RandomMask> matchRandomMask(mlir::linalg::LinalgOp op);
/// Whether an operation, or one inside it, makes random bits.
bool makesRandomBits(mlir::Operation *root);
/// The value of a splat that a linalg.fill wrote.
std::optional<llvm::APFloat> matchFill(mlir::Value v);

/// Whether iterations of a grid add to tensors that they share.
bool addsUp(mlir::scf::ForallOp grid);

/// The dimension of a whole tensor to which its slice's first one belongs.
unsigned firstKeptDim(llvm::SmallBitVector dropped);

} // namespace fa

#endif // FA_DIALECT_FA_IR_MATCHERS_H
