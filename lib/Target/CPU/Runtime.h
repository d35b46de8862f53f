// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What compiled code calls: threads and memory.

#ifndef FA_LIB_TARGET_CPU_RUNTIME_H
#define FA_LIB_TARGET_CPU_RUNTIME_H

#include "fa/Target/CPU/Program.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace fa {
namespace cpu {

/// Calls compiled code on this thread: its loops use up to `threads` threads.
/// Returns the peak of temporary bytes, or OutOfMemoryError where the code got
/// no memory for one; it has ended then wherever it was.
llvm::Expected<int64_t> runWithThreads(unsigned threads, void (*entry)(void **),
                                       void **arguments);

/// Name and address of the functions that compiled code calls.
std::vector<std::pair<const char *, void *>> runtimeSymbols();

/// Threads that the machine runs at once.
unsigned hardwareThreads();

} // namespace cpu
} // namespace fa

#endif // FA_LIB_TARGET_CPU_RUNTIME_H
