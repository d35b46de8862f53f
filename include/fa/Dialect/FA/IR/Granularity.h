// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How coarse a mask is: block-sparse masks are the same for whole groups of
// rows and keys.

#ifndef FA_DIALECT_FA_IR_GRANULARITY_H
#define FA_DIALECT_FA_IR_GRANULARITY_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"

namespace fa {

/// The largest n that this can show: `value` is the same for n neighbouring
/// values of `coordinate`, of which the first is a multiple of n; 0 where it
/// does not depend on the coordinate at all. `multiples` says what other values
/// that are not negative are multiples of (the first row of a block); nor is
/// the coordinate negative, and all of them are below 2^30.
int64_t getGranularity(mlir::Value value, mlir::Value coordinate,
                       const llvm::DenseMap<mlir::Value, int64_t> &multiples =
                           llvm::DenseMap<mlir::Value, int64_t>());

} // namespace fa

#endif // FA_DIALECT_FA_IR_GRANULARITY_H
