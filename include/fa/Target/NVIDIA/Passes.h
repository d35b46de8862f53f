// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The NVIDIA target: from tile programs to PTX.

#ifndef FA_TARGET_NVIDIA_PASSES_H
#define FA_TARGET_NVIDIA_PASSES_H

#include "fa/Dialect/Hopper/IR/Hopper.h"
#include "fa/Dialect/NVIDIA/IR/NVIDIA.h"
#include "fa/Target/TargetInfo.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/Support/Error.h"

#include <string>

namespace fa {
#define GEN_PASS_DECL
#include "fa/Target/NVIDIA/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "fa/Target/NVIDIA/Passes.h.inc"

/// Options of the way from a tile program to PTX.
struct NVIDIAOptions {
  std::string chip = "sm_80";
  /// The Hopper schedule where the chip and the program allow it.
  bool hopper = true;
};

/// What a chip has, as far as the schedules ask.
struct NVIDIATarget {
  const char *chip;
  /// Bytes of shared memory that one block may use.
  int64_t sharedMemory;
  /// 32-bit registers that one thread may use.
  unsigned registers;
  /// The row of the target table that this is of.
  TargetInfo info;
  /// The PTX version that the emitted text asks for.
  const char *ptxFeature;
  /// It has warpgroup-wide matrix instructions and TMA.
  bool wgmma;
};

/// The row of the target table for a chip, or null.
const NVIDIATarget *lookupNVIDIATarget(llvm::StringRef chip);

/// The passes that schedule tile programs for sm_90a: who does what, which
/// steps of a loop come an iteration later, and in which order. The first of
/// them is `place`, or, if null, fa-hopper-place without options.
void buildHopperSchedule(mlir::OpPassManager &pm,
                         std::unique_ptr<mlir::Pass> place = nullptr);

/// Every pass, and the pipelines `fa-lower-to-nvidia`, `fa-lower-to-nvvm` and
/// `fa-schedule-hopper`.
void registerNVIDIAPasses();

/// Registers the dialects that the NVIDIA passes make, and the interfaces that
/// their translation needs.
void registerNVIDIADialects(mlir::DialectRegistry &registry);

/// Kernels made by a schedule -> the LLVM and NVVM dialects.
void buildNVIDIALoweringPipeline(mlir::OpPassManager &pm);

/// Tile programs -> kernels in the LLVM and NVVM dialects, ready for emitPTX.
void buildNVIDIAPipeline(mlir::OpPassManager &pm, const NVIDIAOptions &options);

/// The PTX of a gpu.module in the LLVM and NVVM dialects, beginning with the
/// lines of its `fa.program` attribute.
llvm::Expected<std::string> emitPTX(mlir::gpu::GPUModuleOp module,
                                    llvm::StringRef chip,
                                    bool llvmInstead = false);

} // namespace fa

#endif // FA_TARGET_NVIDIA_PASSES_H
