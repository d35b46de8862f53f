// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "llvm/Config/llvm-config.h"

/// The LLVM that libfa.so carries, e.g. "22.1.8".
extern "C" const char *fa_llvm_version() { return LLVM_VERSION_STRING; }
