// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes of the algorithm and tile levels.

#ifndef FA_DIALECT_FA_TRANSFORMS_PASSES_H
#define FA_DIALECT_FA_TRANSFORMS_PASSES_H

#include "mlir/Pass/Pass.h"

#include <limits>

namespace fa {
/// On an scf.if: any group of rows may take either side, as long as the rows
/// that the condition asks for take the first one: both give results for them.
/// So a target may decide for groups of rows, each for itself.
inline constexpr llvm::StringLiteral kRowwiseAttr = "fa.rowwise";

#define GEN_PASS_DECL
#include "fa/Dialect/FA/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

#endif // FA_DIALECT_FA_TRANSFORMS_PASSES_H
