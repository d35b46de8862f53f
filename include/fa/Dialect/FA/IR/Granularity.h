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

/// The largest provable n so that `value` is the same for n neighbouring values
/// of `coordinate`, the first a multiple of n. 0 if `value` does not depend on
/// the coordinate. `multiples` maps other values to a number that divides them
/// (the first row of a block). These and the coordinate are at least 0 and
/// below 2^30.
int64_t getGranularity(mlir::Value value, mlir::Value coordinate,
                       const llvm::DenseMap<mlir::Value, int64_t> &multiples =
                           llvm::DenseMap<mlir::Value, int64_t>());

} // namespace fa

#endif // FA_DIALECT_FA_IR_GRANULARITY_H
