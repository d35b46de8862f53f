// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Error.h"

#include <cstdarg>
#include <cstdio>

using namespace fa::rt;

#define FA_RT_STRING_IMPL(x) #x
#define FA_RT_STRING(x) FA_RT_STRING_IMPL(x)

static std::string &threadMessage() {
  static thread_local std::string message;
  return message;
}

static std::string formatList(const char *fmt, va_list list) {
  va_list copy;
  va_copy(copy, list);
  int length = std::vsnprintf(nullptr, 0, fmt, copy);
  va_end(copy);
  if (length <= 0)
    return std::string();
  std::string result(static_cast<size_t>(length), '\0');
  std::vsnprintf(&result[0], result.size() + 1, fmt, list);
  return result;
}

std::string fa::rt::format(const char *fmt, ...) {
  va_list list;
  va_start(list, fmt);
  std::string result = formatList(fmt, list);
  va_end(list);
  return result;
}

void fa::rt::fail(fa_rt_status status, const char *fmt, ...) {
  va_list list;
  va_start(list, fmt);
  std::string message = formatList(fmt, list);
  va_end(list);
  throw Error{status, std::move(message)};
}

void fa::rt::setLastError(const char *message) noexcept {
  try {
    threadMessage() = message;
  } catch (...) {
    // No memory for the text: the status alone has to do.
    threadMessage().clear();
  }
}

const char *fa_rt_last_error(void) { return threadMessage().c_str(); }

const char *fa_rt_version(void) {
  return FA_RT_STRING(FA_RT_VERSION_MAJOR) "." FA_RT_STRING(
      FA_RT_VERSION_MINOR) "." FA_RT_STRING(FA_RT_VERSION_PATCH);
}

const char *fa_rt_status_name(fa_rt_status status) {
  switch (status) {
  case FA_RT_OK:
    return "FA_RT_OK";
  case FA_RT_INVALID_ARGUMENT:
    return "FA_RT_INVALID_ARGUMENT";
  case FA_RT_NO_DRIVER:
    return "FA_RT_NO_DRIVER";
  case FA_RT_NO_DEVICE:
    return "FA_RT_NO_DEVICE";
  case FA_RT_DRIVER_TOO_OLD:
    return "FA_RT_DRIVER_TOO_OLD";
  case FA_RT_BAD_IMAGE:
    return "FA_RT_BAD_IMAGE";
  case FA_RT_DRIVER_REJECTED:
    return "FA_RT_DRIVER_REJECTED";
  case FA_RT_OUT_OF_MEMORY:
    return "FA_RT_OUT_OF_MEMORY";
  case FA_RT_LAUNCH_FAILED:
    return "FA_RT_LAUNCH_FAILED";
  case FA_RT_IO_ERROR:
    return "FA_RT_IO_ERROR";
  case FA_RT_INTERNAL:
    return "FA_RT_INTERNAL";
  }
  return "FA_RT_UNKNOWN";
}
