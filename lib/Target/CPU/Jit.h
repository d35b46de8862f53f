// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_LIB_TARGET_CPU_JIT_H
#define FA_LIB_TARGET_CPU_JIT_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mlir {
class ExecutionEngine;
} // namespace mlir

namespace fa {
namespace cpu {

/// A module's function as machine code. Calls are thread-safe.
class JitModule {
public:
  using Descriptors = std::vector<std::vector<int64_t>>;

  /// Parses, lowers and compiles `text`, in a context of its own.
  static llvm::Expected<std::unique_ptr<JitModule>>
  create(llvm::StringRef text, const std::string &function, unsigned vectorBits,
         bool unitInnerStride);
  ~JitModule();

  void call(const Descriptors &tensors) const { invoke(main, tensors); }
  /// Computes the results' dimensions from the inputs.
  bool hasShapeFunction() const { return shapes != nullptr; }
  void callShapes(const Descriptors &tensors) const { invoke(shapes, tensors); }

private:
  using Entry = void (*)(void **);
  JitModule() = default;
  static void invoke(Entry entry, const Descriptors &tensors);

  std::unique_ptr<mlir::ExecutionEngine> engine;
  Entry main = nullptr, shapes = nullptr;
};

} // namespace cpu
} // namespace fa

#endif // FA_LIB_TARGET_CPU_JIT_H
