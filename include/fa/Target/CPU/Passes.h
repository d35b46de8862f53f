// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From any stage's tensor program to the LLVM dialect for this CPU.

#ifndef FA_TARGET_CPU_PASSES_H
#define FA_TARGET_CPU_PASSES_H

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

namespace fa {
#define GEN_PASS_DECL
#include "fa/Target/CPU/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "fa/Target/CPU/Passes.h.inc"

/// What the code generator has to know of a CPU.
struct CPUOptions {
  /// Bits of a vector register: 128, 256 or 512.
  unsigned vectorBits = 256;
  /// The CPU converts f32 to bf16.
  bool nativeBF16 = false;
  /// Tensors have unit stride in their last dimension. False makes code for
  /// any strides, which is slow where a vector would be read along it.
  bool unitInnerStride = true;

  /// What this machine has.
  static CPUOptions host();
};

/// Lowers a module of functions on tensors to the LLVM dialect. Results become
/// destination arguments after the inputs.
void buildCPULoweringPipeline(mlir::OpPassManager &pm,
                              const CPUOptions &options);

/// Registers `fa-lower-to-cpu` for fa-opt.
void registerCPUPipelines();

/// The dialects, interfaces and translations that the pipeline needs.
void registerCPUDialects(mlir::DialectRegistry &registry);

} // namespace fa

#endif // FA_TARGET_CPU_PASSES_H
