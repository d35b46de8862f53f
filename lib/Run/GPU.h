// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program on the GPU, for host tensors: the runtime library with what
// fa-run needs around it.

#ifndef FA_LIB_RUN_GPU_H
#define FA_LIB_RUN_GPU_H

#include "fa/Run/Run.h"

#include "llvm/ADT/ArrayRef.h"

struct fa_rt_program;

namespace fa {
namespace run {

/// A program on device 0. Errors carry the runtime's message, which names what
/// is missing (driver, device, a newer driver) and the remedy.
class GPUProgram {
public:
  /// Whether there is a driver and a device at all.
  static llvm::Error findDevice();
  static llvm::Expected<std::unique_ptr<GPUProgram>>
  load(const std::string &ptx);
  ~GPUProgram();
  GPUProgram(const GPUProgram &) = delete;
  GPUProgram &operator=(const GPUProgram &) = delete;

  /// Copies the inputs to the device, launches, copies the results into
  /// `outs`, whose elements are NaN where the kernel did not write. The time is
  /// the median of `repeat` samples between two events; a sample is as many
  /// launches as take 2 ms.
  llvm::Error run(llvm::ArrayRef<cpu::TensorRef> inputs,
                  llvm::ArrayRef<cpu::TensorRef> outs, unsigned repeat,
                  Result &result) const;
  /// The device, and of each kernel what it takes of it.
  llvm::Expected<std::string> describe() const;

private:
  explicit GPUProgram(fa_rt_program *program) : program(program) {}
  fa_rt_program *program;
};

} // namespace run
} // namespace fa

#endif // FA_LIB_RUN_GPU_H
