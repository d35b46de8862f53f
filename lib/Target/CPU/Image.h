// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A compiled function as bytes.

#ifndef FA_LIB_TARGET_CPU_IMAGE_H
#define FA_LIB_TARGET_CPU_IMAGE_H

#include "Codegen.h"
#include "fa/Target/CPU/TensorRef.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace fa {
namespace cpu {

/// An argument or result of the function.
struct Signature {
  std::string name;
  DType dtype;
  /// -1 where dynamic.
  std::vector<int64_t> shape;
};

/// A function's interface, IR and machine code.
struct Image {
  /// Of the IR: code for other strides is compiled from it when needed.
  std::string text, function;
  unsigned vectorBits = 0, optimize = 3;
  std::vector<Signature> inputs, results;
  /// Code for tensors whose inner stride is 1.
  MachineCode code;

  /// The image with `hostName`, its format's version and a hash.
  llvm::Expected<std::string> write() const;
  /// Fails where the bytes are damaged, or of another host or version.
  static llvm::Expected<Image> read(llvm::StringRef bytes);
};

} // namespace cpu
} // namespace fa

#endif // FA_LIB_TARGET_CPU_IMAGE_H
