// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_TARGET_EXPANDCLAMP_H
#define FA_TARGET_EXPANDCLAMP_H

namespace mlir {
class RewritePatternSet;
} // namespace mlir

namespace fa {

/// math.clampf as a maximum and a minimum, of which those with an infinite
/// bound are folded. Upstream's own expansion (LLVM 22) takes the bounds for
/// each other.
void populateExpandClamp(mlir::RewritePatternSet &patterns);

} // namespace fa

#endif // FA_TARGET_EXPANDCLAMP_H
