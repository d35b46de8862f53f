// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Interval arithmetic over a mask: which keys a block of rows sees at all, and
// which ones every row of it sees.

#ifndef FA_ANALYSIS_MASKINTERVALS_H
#define FA_ANALYSIS_MASKINTERVALS_H

#include "fa/Analysis/Bound.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace fa {

/// A mask found in the body of an elementwise op that writes scores: what is
/// yielded is `unmasked` where all of `conditions` hold and -inf elsewhere.
struct ScoreMask {
  /// Each with whether its negation is meant.
  llvm::SmallVector<std::pair<mlir::Value, bool>> conditions;
  mlir::Value unmasked;
};
/// The mask of a generic that yields `arith.select cond, score, -inf` (nested
/// or negated selects too), if it has one.
std::optional<ScoreMask> matchScoreMask(mlir::linalg::GenericOp op);

/// The block of scores that a mask belongs to.
struct MaskBlock {
  /// Writes the scores [rows, keys]; its linalg.index 0 and 1 are coordinates
  /// within the block.
  mlir::linalg::GenericOp scores;
  /// The first key of the block, an induction variable.
  mlir::Value keyOffset;
  /// The loop over blocks of keys: values defined outside it are uniform.
  mlir::Operation *keyLoop;
  /// Rows of the block, at most.
  int64_t rows;
  /// Keys and rows have changed places: the loop is over blocks of rows, and
  /// everything that is said of keys here holds of rows.
  bool transposed = false;
};

/// What a mask does to a block of rows, symbolically in whatever is the same
/// for all of its elements ("uniform": lengths, offsets of the block, scalars
/// read from captured tensors).
///
/// Always sound: `visited` contains every key that any row sees, `full` only
/// keys that every row sees, `unseen` only keys that no row sees. A part of the
/// mask that is not understood counts as unknown: it widens `visited` and
/// narrows `full` and `unseen`.
///
/// `visited` is one interval. Where the keys seen are two (the first few keys
/// and a sliding window), it is their hull and `unseen` what lies between. Of
/// several gaps `unseen` is one, the longest where that can be told.
///
/// Decided: comparisons (signed, and unsigned of what can't be negative) of
/// sums of i, j, uniform values and their constant multiples, quotients by
/// positive constants, minima, maxima, absolute values and selections of
/// these; and, or, not, exclusive or and selection of conditions.
///
/// Arithmetic on `index` and 64-bit integers is taken not to wrap; narrower
/// arithmetic must be shown not to (by `nsw` or by ranges: lengths are below
/// 2^30), else it counts as unknown. 64-bit values read from memory are taken
/// as if limited to +-2^40, and all of them to +-2^29 where an index has 32
/// bits, so that the largest integer serves as "no limit".
class MaskIntervals {
public:
  static MaskIntervals compute(const ScoreMask &mask, const MaskBlock &block);

  KeyInterval visited = KeyInterval::everything();
  KeyInterval full = KeyInterval::nothing();
  KeyInterval unseen = KeyInterval::nothing();
  /// False where some part of the mask was not understood.
  bool decided = true;

  /// Computes `symbols` and `flags` at the builder's insertion point, which
  /// must be outside the loop over keys. Ops inside it are cloned. `indexBits`
  /// is the width of an index where they will run.
  void materializeUniforms(mlir::OpBuilder &builder,
                           llvm::SmallVectorImpl<mlir::OpFoldResult> &symbols,
                           llvm::SmallVectorImpl<mlir::Value> &flags,
                           unsigned indexBits = 64) const;
  void print(llvm::raw_ostream &os) const;

private:
  friend class MaskAnalysis;
  struct Uniform {
    mlir::Value value;
    /// Read from memory or given by the caller.
    bool isGiven = false;
  };
  llvm::SmallVector<Uniform> uniforms;
  llvm::SmallVector<mlir::Value> flagValues;
  mlir::Operation *keyLoop = nullptr;
};

} // namespace fa

#endif // FA_ANALYSIS_MASKINTERVALS_H
