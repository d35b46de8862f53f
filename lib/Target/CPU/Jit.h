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
class ModuleOp;
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

  /// Runs it; see runWithThreads.
  llvm::Expected<int64_t> call(const Descriptors &tensors,
                               unsigned threads) const {
    return invoke(main, tensors, threads);
  }
  /// Computes the results' dimensions from the inputs.
  bool hasShapeFunction() const { return shapes != nullptr; }
  llvm::Error callShapes(const Descriptors &tensors) const {
    return invoke(shapes, tensors, 1).takeError();
  }

private:
  using Entry = void (*)(void **);
  JitModule() = default;
  /// Compiles what `create` has lowered; `errors` takes LLVM's diagnostics.
  llvm::Error load(mlir::ModuleOp module, const std::string &function,
                   bool hasShapes, std::shared_ptr<std::string> errors);
  static llvm::Expected<int64_t> invoke(Entry entry, const Descriptors &tensors,
                                        unsigned threads);

  std::unique_ptr<mlir::ExecutionEngine> engine;
  Entry main = nullptr, shapes = nullptr;
};

} // namespace cpu
} // namespace fa

#endif // FA_LIB_TARGET_CPU_JIT_H
