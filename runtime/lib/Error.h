// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors inside the runtime are exceptions; at the C boundary they become a
// status and the thread's message.

#ifndef FA_RUNTIME_LIB_ERROR_H
#define FA_RUNTIME_LIB_ERROR_H

#include "fa-runtime/fa_runtime.h"

#include <exception>
#include <new>
#include <string>

namespace fa::rt {

/// A failure on its way to the C boundary.
struct Error {
  fa_rt_status status;
  std::string message;
};

/// printf into a string.
std::string format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/// Throws an Error. The message names value, limit and remedy.
[[noreturn]] void fail(fa_rt_status status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/// Sets the calling thread's message; never throws.
void setLastError(const char *message) noexcept;

/// Throws INVALID_ARGUMENT if `pointer` is null.
inline void requireNonNull(const void *pointer, const char *what) {
  if (!pointer)
    fail(FA_RT_INVALID_ARGUMENT, "%s is NULL; pass a valid pointer", what);
}

/// Runs `body` and turns whatever it throws into a status.
template <typename Body> fa_rt_status guarded(Body body) noexcept {
  try {
    body();
    return FA_RT_OK;
  } catch (const Error &error) {
    setLastError(error.message.c_str());
    return error.status;
  } catch (const std::bad_alloc &) {
    setLastError("out of host memory");
    return FA_RT_OUT_OF_MEMORY;
  } catch (const std::exception &error) {
    setLastError(error.what());
    return FA_RT_INTERNAL;
  } catch (...) {
    setLastError("unknown exception inside the fa runtime");
    return FA_RT_INTERNAL;
  }
}

} // namespace fa::rt

#endif // FA_RUNTIME_LIB_ERROR_H
