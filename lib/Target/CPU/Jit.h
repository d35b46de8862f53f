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

namespace llvm::orc {
class LLJIT;
} // namespace llvm::orc

namespace fa {
namespace cpu {

struct MachineCode;

/// A function's machine code in memory. Calls are thread-safe.
class JitModule {
public:
  using Descriptors = std::vector<std::vector<int64_t>>;

  /// Links an object file of this machine.
  static llvm::Expected<std::unique_ptr<JitModule>>
  load(const MachineCode &code, llvm::StringRef function);
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
  JitModule();
  static llvm::Expected<int64_t> invoke(Entry entry, const Descriptors &tensors,
                                        unsigned threads);

  std::unique_ptr<llvm::orc::LLJIT> jit;
  Entry main = nullptr, shapes = nullptr;
};

} // namespace cpu
} // namespace fa

#endif // FA_LIB_TARGET_CPU_JIT_H
