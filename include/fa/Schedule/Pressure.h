// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// About how many registers a thread of a block needs.

#ifndef FA_SCHEDULE_PRESSURE_H
#define FA_SCHEDULE_PRESSURE_H

#include "fa/Schedule/BlockProgram.h"

namespace fa {

/// What coordinates in every block of keys take.
inline constexpr int64_t kCoordinateRegisters = 32;

/// About how many registers a thread takes where a block has so many warps, of
/// which `warpsOf` divide a tile.
int64_t estimateRegisters(const BlockProgram &program, unsigned warps,
                          llvm::function_ref<unsigned(mlir::Value)> warpsOf);

} // namespace fa

#endif // FA_SCHEDULE_PRESSURE_H
