// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The way from attention to a target, on one page. fa-opt, fa-run, the C API
// and Python all build their pipelines here.

#ifndef FA_PIPELINES_PIPELINES_H
#define FA_PIPELINES_PIPELINES_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"

#include <string>

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace fa {

/// The target and the algorithm of attention, and the last stage to run.
struct PipelineOptions {
  /// `cpu` or a row of the target table (`sm_80`, `sm_90a`, ...).
  std::string target = "cpu";
  /// `standard` (S and P written), `fa1` (keys outside, Algorithm 1 of
  /// FlashAttention) or `fa2` (queries outside, one kernel).
  std::string algorithm = "fa2";
  /// Not empty: fa-differentiate replaces the function by its gradient, with
  /// respect to query, key, value and the captured tensors of this `wrt`.
  /// `standard` writes S, P, dP and dS; `fa1` and `fa2` tile the gradient, keys
  /// outside (FlashAttention's Algorithm 4).
  std::string backward;
  /// Name of the last pass to run; empty for the whole way.
  std::string stopAfter;
  /// Rows and keys of a tile; 0 lets the IO model choose for the target.
  int64_t rows = 0, keys = 0;
  /// Whether fa-speculate-max runs: `on`, `off`, or `auto`: on for targets
  /// whose tensor cores are wgmma. It skips tiles that the target could not
  /// schedule afterwards.
  std::string speculate = "auto";
  /// The order of a row's blocks of keys (fa-order-keys): `ascending`,
  /// `descending`, or `auto`: descending if scores grow with the key and
  /// fa-speculate-max follows.
  std::string order = "auto";
  /// Gradients have the same bits each time. On a GPU this runs fa-order-sums;
  /// on the CPU they always have.
  bool deterministic = false;
};

/// One pass of the algorithm and tile levels.
struct Stage {
  /// The pass's flag, e.g. `fa-tile`.
  std::string name;
  /// Its pipeline text on a module, e.g. `func.func(fa-tile{rows=64})`.
  std::string pipeline;
};

/// The stages from fa.attention to the tile program, cut after
/// `options.stopAfter`. Errors name the option, its value and what is allowed.
llvm::Expected<llvm::SmallVector<Stage>>
getStages(const PipelineOptions &options);

/// Appends the stages to a pass manager for modules.
llvm::Error buildPipeline(mlir::OpPassManager &manager,
                          const PipelineOptions &options);

/// Registers `fa-pipeline` with the options above.
void registerPipelines();

} // namespace fa

#endif // FA_PIPELINES_PIPELINES_H
