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

/// The slice that a tile is, padded or not; null where it is none.
mlir::tensor::ExtractSliceOp sliceBehindPadding(mlir::Value tile);

/// Whether a tensor is written where it was read.
bool isSameSlice(mlir::tensor::ExtractSliceOp read,
                 mlir::tensor::InsertSliceOp write);

/// An error where a pass is asked for tiles of a negative size.
mlir::LogicalResult checkTileOptions(mlir::func::FuncOp func, int64_t rows,
                                     int64_t keys);

/// Whether an operation is C += A B in three loops, of any orientation.
bool isAnyProduct(mlir::Operation *op);

/// Whether the blocks that a loop visits are named by a list, and come in its
/// order.
bool followsList(mlir::scf::ForOp loop);

/// The loop's body works on `first + last` less the variable, which takes steps
/// of `step`.
void reverseLoop(mlir::scf::ForOp loop, int64_t step);

/// Where a loop carries a tensor that its body slices all of, and writes all
/// of, it carries what the body computes: the slices are the tensor.
void carryWholeTiles(mlir::RewriterBase &rewriter, mlir::scf::ForOp loop);

/// The largest constant that a tile's size can have: the constant itself, or
/// the constant result of the affine.min that clamps it at the edge.
std::optional<int64_t> getStaticBound(mlir::OpFoldResult size);

/// The generics that compute a block of scores: one, or one for each side of an
/// scf.if. Null where something else does.
llvm::SmallVector<mlir::linalg::GenericOp> scoreGenerics(mlir::Value scores);

/// Where such a generic has its score: what it yields, or what it yields where
/// the mask, if that comes last, does not forbid it. Null where it chooses
/// between other values.
mlir::OpOperand *scoreOperand(mlir::linalg::GenericOp op);

/// A product whose second factor is a positive finite constant; null otherwise.
mlir::arith::MulFOp matchScaling(mlir::Value v);

/// A remark's sentence: of how many rows and keys tiles are, and why. `rows`
/// and `keys` are those that were asked for, or 0.
std::string describeTiles(int64_t rows, int64_t keys, const TileSizes &chosen,
                          llvm::StringRef why);

/// What tiles of a step must have room for, but for sizes.
TileProblem problemOf(OnlineSoftmaxOp step);
TileProblem problemOf(SoftmaxGradOp step, bool ordered);
TileProblem problemOf(SoftmaxDeltaOp step);

/// Tile sizes for one head by the target's memory, the given ones where they
/// are not 0, with describeTiles as their reason. `query` is [Sq,D], `values`
/// [Sk,Dv], `scores` their [Sq,Sk]; `problem` says what else is asked, but for
/// sizes.
llvm::Expected<TileSizes> chooseTiles(mlir::Value query, mlir::Value values,
                                      mlir::RankedTensorType scores,
                                      llvm::StringRef target,
                                      llvm::StringRef algorithm, int64_t rows,
                                      int64_t keys, TileProblem problem = {});
/// Those of D's step: as of a forward whose queries are the output's gradient.
llvm::Expected<TileSizes> chooseTiles(SoftmaxDeltaOp step,
                                      llvm::StringRef target, int64_t rows,
                                      int64_t keys);

} // namespace fa

#endif // FA_DIALECT_FA_TRANSFORMS_UTILS_H
