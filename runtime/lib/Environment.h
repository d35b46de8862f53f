// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The only place where the runtime reads environment variables.

#ifndef FA_RUNTIME_LIB_ENVIRONMENT_H
#define FA_RUNTIME_LIB_ENVIRONMENT_H

#include <string>

namespace fa::rt::env {

/// FA_CUDA_DRIVER, else libcuda.so.1.
std::string driverPath();

/// The cache's directory, empty if there is none (FA_CACHE=0, or no home).
std::string cacheDirectory();

/// FA_VERBOSE is set and not 0.
bool verbose();

/// FA_CHECK_POINTERS is set and not 0.
bool checkPointers();

} // namespace fa::rt::env

#endif // FA_RUNTIME_LIB_ENVIRONMENT_H
