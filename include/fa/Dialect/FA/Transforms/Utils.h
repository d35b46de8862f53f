// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_DIALECT_FA_TRANSFORMS_UTILS_H
#define FA_DIALECT_FA_TRANSFORMS_UTILS_H

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/Utils/CleanUp.h"
#include "fa/Target/TargetInfo.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"

#include <optional>

namespace fa {

/// The slice that a tile is, padded or not; null if it is no slice.
mlir::tensor::ExtractSliceOp sliceBehindPadding(mlir::Value tile);

/// Whether a tensor is written where it was read.
bool isSameSlice(mlir::tensor::ExtractSliceOp read,
                 mlir::tensor::InsertSliceOp write);

/// Reports an error if a pass's options ask for tiles of a negative size.
mlir::LogicalResult checkTileOptions(mlir::func::FuncOp func, int64_t rows,
                                     int64_t keys);

/// Whether an operation is C += A B in three loops, of any orientation.
bool isAnyProduct(mlir::Operation *op);

/// Whether a loop visits the blocks of a list, in the list's order.
bool followsList(mlir::scf::ForOp loop);

/// Reverses a loop: its body works on `first + last` less the variable, which
/// takes steps of `step`.
void reverseLoop(mlir::scf::ForOp loop, int64_t step);

/// If a loop carries a tensor whose whole its body slices and writes, the
/// slices are the tensor: the loop then carries the values that the body
/// computes.
void carryWholeTiles(mlir::RewriterBase &rewriter, mlir::scf::ForOp loop);

/// The largest constant that a tile's size can have: the constant itself, or
/// the constant result of the affine.min that clamps it at the edge.
std::optional<int64_t> getStaticBound(mlir::OpFoldResult size);

/// The generics that compute a block of scores: one, or one for each side of an
/// scf.if. Null for a side that something else computes.
llvm::SmallVector<mlir::linalg::GenericOp> scoreGenerics(mlir::Value scores);

/// The operand of such a generic that holds the score: the yielded value or, if
/// the mask comes last, the value yielded where the mask allows it. Null if the
/// generic chooses between other values.
mlir::OpOperand *scoreOperand(mlir::linalg::GenericOp op);

/// A product whose second factor is a positive finite constant; null otherwise.
mlir::arith::MulFOp matchScaling(mlir::Value v);

/// A remark's sentence: the rows and keys of tiles, and the reason. `rows` and
/// `keys` are the requested ones, or 0.
std::string describeTiles(int64_t rows, int64_t keys, const TileSizes &chosen,
                          llvm::StringRef why);

/// The needs of a step's tiles, without sizes.
TileProblem problemOf(OnlineSoftmaxOp step);
TileProblem problemOf(SoftmaxGradOp step, bool ordered);
TileProblem problemOf(SoftmaxDeltaOp step);

/// Tile sizes for one head by the target's memory, with describeTiles as their
/// reason. Given sizes that are not 0 stay. `query` is [Sq,D], `values` [Sk,Dv]
/// and `scores` [Sq,Sk]; `problem` holds all further needs, without sizes.
llvm::Expected<TileSizes> chooseTiles(mlir::Value query, mlir::Value values,
                                      mlir::RankedTensorType scores,
                                      llvm::StringRef target,
                                      llvm::StringRef algorithm, int64_t rows,
                                      int64_t keys, TileProblem problem = {});
/// Tile sizes of D's step: those of a forward whose queries are the output's
/// gradient.
llvm::Expected<TileSizes> chooseTiles(SoftmaxDeltaOp step,
                                      llvm::StringRef target, int64_t rows,
                                      int64_t keys);

} // namespace fa

#endif // FA_DIALECT_FA_TRANSFORMS_UTILS_H
