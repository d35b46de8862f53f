// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scores that are a product of queries and keys and something added that knows
// nothing of it, such as a distance times a slope. For fa-speculate-max.

#ifndef FA_LIB_DIALECT_FA_TRANSFORMS_SCORESUM_H
#define FA_LIB_DIALECT_FA_TRANSFORMS_SCORESUM_H

#include "mlir/IR/PatternMatch.h"

namespace fa {

/// Moves the last sum of scores x * c + bias, with bias a function of the
/// coordinates, into a step's empty score region, and says whether they are
/// such a sum. What computed them, a linalg.generic or an scf.if between two,
/// maybe with a mask, gives the first parts `x` afterwards, and -inf where they
/// are masked. The bias is finite, so that it does not matter there.
bool moveSum(mlir::RewriterBase &rewriter, mlir::Value scores,
             mlir::Region &score);

} // namespace fa

#endif // FA_LIB_DIALECT_FA_TRANSFORMS_SCORESUM_H
