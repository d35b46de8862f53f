// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Environment.h"

#include <cstdlib>
#include <cstring>

using namespace fa::rt;

/// The variable's value, or null if it is unset or empty.
static const char *get(const char *name) {
  const char *value = std::getenv(name);
  return value && *value ? value : nullptr;
}

static bool isOn(const char *name) {
  const char *value = get(name);
  return value && std::strcmp(value, "0") != 0;
}

std::string env::driverPath() {
  const char *path = get("FA_CUDA_DRIVER");
  return path ? path : "libcuda.so.1";
}

std::string env::cacheDirectory() {
  const char *cache = get("FA_CACHE");
  if (cache && std::strcmp(cache, "0") == 0)
    return std::string();
  if (const char *directory = get("FA_CACHE_DIR"))
    return directory;
  // The XDG specification: a relative path is to be ignored.
  const char *xdg = get("XDG_CACHE_HOME");
  if (xdg && xdg[0] == '/')
    return std::string(xdg) + "/fa";
  if (const char *home = get("HOME"))
    return std::string(home) + "/.cache/fa";
  return std::string();
}

bool env::verbose() { return isOn("FA_VERBOSE"); }

bool env::checkPointers() { return isOn("FA_CHECK_POINTERS"); }
