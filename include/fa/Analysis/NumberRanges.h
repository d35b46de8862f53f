// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Between which numbers a value is, by the table of scalar semantics.

#ifndef FA_ANALYSIS_NUMBERRANGES_H
#define FA_ANALYSIS_NUMBERRANGES_H

#include "fa/Analysis/ScalarOpInterface.h"

#include "llvm/ADT/DenseMap.h"

namespace fa {

/// The ranges of values in a body that computes scores, masks or gradients.
class NumberRanges {
public:
  /// Takes a value to be in a range.
  void assume(mlir::Value v, NumberRange range) { ranges[v] = range; }
  /// What a value can be. It is finite only where its type can hold it.
  NumberRange of(mlir::Value v);

private:
  /// What a value can be, of what its operands can be.
  NumberRange evaluate(mlir::Value v);
  NumberRange find(mlir::Value v);

  /// What was found, since values may be read many times.
  llvm::DenseMap<mlir::Value, NumberRange> ranges;
};

} // namespace fa

#endif // FA_ANALYSIS_NUMBERRANGES_H
