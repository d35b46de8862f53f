// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The compiler's library, opened when something is compiled: what comes from
// the cache needs neither LLVM nor MLIR.

#ifndef FA_PYTHON_COMPILER_H
#define FA_PYTHON_COMPILER_H

#include "fa-c/fa.h"

#include <string>

namespace fa::python {

#define FA_PYTHON_COMPILER(X)                                                  \
  X(fa_version)                                                                \
  X(fa_last_error)                                                             \
  X(fa_compile_options_init)                                                   \
  X(fa_compile)                                                                \
  X(fa_kernel_free)                                                            \
  X(fa_kernel_num_args)                                                        \
  X(fa_kernel_num_results)                                                     \
  X(fa_kernel_num_stages)                                                      \
  X(fa_kernel_stage_name)                                                      \
  X(fa_kernel_stage_ir)                                                        \
  X(fa_kernel_stage_io)                                                        \
  X(fa_kernel_ptx)                                                             \
  X(fa_kernel_run)                                                             \
  X(fa_kernel_image)                                                           \
  X(fa_kernel_load)                                                            \
  X(fa_host)

/// The compiler's C API.
struct Compiler {
#define FA_PYTHON_MEMBER(name) decltype(&::name) name;
  FA_PYTHON_COMPILER(FA_PYTHON_MEMBER)
#undef FA_PYTHON_MEMBER

  /// Opens the library at the first call; a failure is tried again by the next
  /// one. Throws std::runtime_error.
  static const Compiler &get();

  /// Where the library is: beside the module.
  static std::string path();

  /// Whether it was opened.
  static bool isLoaded();
};

} // namespace fa::python

#endif // FA_PYTHON_COMPILER_H
