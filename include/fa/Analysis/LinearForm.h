// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Integers as sums of values with constant factors.

#ifndef FA_ANALYSIS_LINEARFORM_H
#define FA_ANALYSIS_LINEARFORM_H

#include "mlir/IR/Value.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <optional>

namespace fa {

/// Something fixed plus values times constants: of `h * 4 + g - 1` with h and g
/// not fixed, 4 of h and 1 of g.
struct LinearForm {
  llvm::SmallMapVector<mlir::Value, int64_t, 4> factors;
  /// Whether what is fixed is 0.
  bool isExact = true;

  int64_t of(mlir::Value value) const { return factors.lookup(value); }
};

/// The form of an integer or index; none where it has none, or may wrap. Block
/// arguments that are not fixed are its values.
std::optional<LinearForm>
getLinearForm(mlir::Value value, llvm::function_ref<bool(mlir::Value)> isFixed);

} // namespace fa

#endif // FA_ANALYSIS_LINEARFORM_H
