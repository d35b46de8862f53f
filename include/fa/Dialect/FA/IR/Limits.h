// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The largest numbers that kernels and analyses count with.

#ifndef FA_DIALECT_FA_IR_LIMITS_H
#define FA_DIALECT_FA_IR_LIMITS_H

#include <cstdint>

namespace fa {

/// Largest size of a dimension, captured tensors included. Coordinates have 32
/// bits on a GPU, and analyses assume that sums of a few of them do not wrap. A
/// run or a launch refuses larger dynamic sizes (FA_RT_MAX_EXTENT).
constexpr int64_t kMaxExtent = (int64_t(1) << 30) - 1;

} // namespace fa

#endif // FA_DIALECT_FA_IR_LIMITS_H
