// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Linked into self-contained programs and libraries only (FA_STATIC_LLVM).
// LLVM's archives and libstdc++'s ask for arc4random, which glibc has
// since 2.36; with this definition in the same link nothing asks for a glibc
// younger than 2.35, which is what Ubuntu 22.04 has.

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <sys/random.h>

/// Random bits as the system has them. LLVM names temporary files with them and
/// seeds no secrets, so where the system refuses (a sandbox) the clock will do.
extern "C" __attribute__((visibility("hidden"))) uint32_t arc4random() {
  uint32_t bits = 0;
  ssize_t got = 0;
  do
    got = getrandom(&bits, sizeof(bits), 0);
  while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof(bits)))
    return bits;
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (static_cast<uint32_t>(now.tv_nsec) ^
          static_cast<uint32_t>(reinterpret_cast<uintptr_t>(&now) >> 4)) *
         2654435761u;
}
