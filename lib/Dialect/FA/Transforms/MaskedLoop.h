// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A loop over blocks of keys whose scores have a mask, for the passes that let
// it visit fewer of them. Private to the transformations.

#ifndef FA_LIB_DIALECT_FA_TRANSFORMS_MASKEDLOOP_H
#define FA_LIB_DIALECT_FA_TRANSFORMS_MASKEDLOOP_H

#include "fa/Analysis/MaskIntervals.h"
#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace fa {

/// A loop over blocks of keys and the masked scores in it; or, transposed, one
/// over blocks of rows: then "keys" are rows here, and "rows" keys.
struct MaskedLoop {
  mlir::scf::ForOp loop;
  mlir::linalg::GenericOp scores;
  ScoreMask mask;
  /// Of a tile, at most.
  int64_t rows, keys;
  int64_t step;
  bool transposed = false;
  /// The first row of a tile (the first key, if transposed), or null.
  mlir::Value outer;

  /// Matches the loop around a step, or says why it does not match. No reason
  /// means that there is nothing to say.
  static std::optional<MaskedLoop> match(TileStepOpInterface step,
                                         llvm::StringRef &reason);
  MaskIntervals computeIntervals();
  /// The mask's conditions, in parts that must all hold: each once, with
  /// whether its negation is meant.
  llvm::SmallVector<std::pair<mlir::Value, bool>> conjuncts();
  /// The loop's end as a bound: one of the symbols, which may be added.
  Bound upperBound(llvm::SmallVectorImpl<mlir::OpFoldResult> &symbols);
  /// A copy of the scores in which nothing is masked.
  mlir::linalg::GenericOp buildUnmasked(mlir::OpBuilder &b);
  /// Takes the copy where a condition, computed before the scores, holds.
  void chooseUnmasked(mlir::OpBuilder &b, mlir::Value isFull);
};

/// Whether a coordinate is the block's first plus the element's in a dimension.
bool isPlaceIn(mlir::Value place, unsigned dim, mlir::Value first);

/// The bound, down or up to a multiple of `step`.
Bound align(const Bound &bound, int64_t step, bool up);

} // namespace fa

#endif // FA_LIB_DIALECT_FA_TRANSFORMS_MASKEDLOOP_H
