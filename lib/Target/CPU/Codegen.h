// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From a function's IR to machine code of this machine.

#ifndef FA_LIB_TARGET_CPU_CODEGEN_H
#define FA_LIB_TARGET_CPU_CODEGEN_H

#include "llvm/ADT/StringRef.h"
#include "llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h"
#include "llvm/Support/Error.h"

#include <string>

namespace fa {
namespace cpu {

/// An object file with a function's entries.
struct MachineCode {
  std::string object;
  /// Whether the function that computes the results' dimensions is there.
  bool hasShapes = false;

  /// The function that computes the dimensions of a function's results.
  static std::string shapesOf(llvm::StringRef function) {
    return (function + "__shapes").str();
  }
  /// The symbol that takes a function's arguments as an array of pointers to
  /// descriptors.
  static std::string entryName(llvm::StringRef function) {
    return ("fa_entry_" + function).str();
  }
};

struct CodegenOptions {
  /// 0: this machine's; else 128, 256 or 512.
  unsigned vectorBits = 0;
  /// LLVM's -O level. 0 compiles in a third of the time of 3.
  unsigned optimize = 3;
  /// Whether all tensors' inner strides are 1.
  bool unitInnerStride = true;
};

/// This machine's processor and features.
llvm::Expected<llvm::orc::JITTargetMachineBuilder> hostMachine();

/// Parses, lowers and compiles `text`, in a context of its own.
llvm::Expected<MachineCode> generateCode(llvm::StringRef text,
                                         const std::string &function,
                                         const CodegenOptions &options);

} // namespace cpu
} // namespace fa

#endif // FA_LIB_TARGET_CPU_CODEGEN_H
