// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How scores change from key to key.

#ifndef FA_ANALYSIS_TREND_H
#define FA_ANALYSIS_TREND_H

#include "fa/Analysis/NumberRanges.h"

#include "llvm/ADT/DenseMap.h"

namespace fa {

/// The trend of values in the body that computes a block of scores, by the
/// table of scalar semantics.
class TrendFinder {
public:
  /// `firstKey` is the first key of the block; keys also grow with the body's
  /// second coordinate (linalg.index 1).
  explicit TrendFinder(mlir::Value firstKey) : firstKey(firstKey) {}
  /// How a value changes as the key grows.
  Trend find(mlir::Value v);

private:
  Trend findOf(mlir::Operation *op);

  mlir::Value firstKey;
  /// What was found, since values may be read many times.
  llvm::DenseMap<mlir::Value, Trend> trends;
  /// For any key.
  NumberRanges ranges;
};

} // namespace fa

#endif // FA_ANALYSIS_TREND_H
