// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_TARGET_EXPANDMATH_H
#define FA_TARGET_EXPANDMATH_H

namespace mlir {
class RewritePatternSet;
} // namespace mlir

namespace fa {

/// Operations of `math` as arithmetic, of scalars and of vectors, where no
/// target has an instruction and upstream's expansion (LLVM 22) is wrong:
/// - clampf: upstream takes the bounds for each other.
/// - sin, cos and tan of f32: upstream subtracts multiples of pi in one f32
///   step, which loses the digits of 100 and has left [-1, 1] at 1e20.
void populateExpandMath(mlir::RewritePatternSet &patterns);

} // namespace fa

#endif // FA_TARGET_EXPANDMATH_H
