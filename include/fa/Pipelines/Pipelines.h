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

/// What to compile attention for, and how far.
struct PipelineOptions {
  /// `cpu` or a row of the target table (`sm_80`, `sm_90a`, ...).
  std::string target = "cpu";
  /// `standard` (S and P written), `fa1` (keys outside, Algorithm 1 of
  /// FlashAttention) or `fa2` (queries outside, one kernel).
  std::string algorithm = "fa2";
  /// Empty, or the function's gradient in its place, by fa-differentiate, whose
  /// `wrt` this is: with respect to query, key, value and which captured
  /// tensors. `standard` writes S, P, dP and dS; `fa1` and `fa2` tile it, keys
  /// outside (FlashAttention's Algorithm 4).
  std::string backward;
  /// Name of the last pass to run; empty for the whole way.
  std::string stopAfter;
  /// Rows and keys of a tile; 0 lets the IO model choose for the target.
  int64_t rows = 0, keys = 0;
  /// Whether fa-speculate-max runs: `on`, `off`, or `auto`: on for targets
  /// whose tensor cores are wgmma. It leaves tiles as they are that the target
  /// could not schedule afterwards.
  std::string speculate = "auto";
  /// The order of a row's blocks of keys, of fa-order-keys: `ascending`,
  /// `descending`, or `auto`: descending where scores grow with the key and
  /// fa-speculate-max follows.
  std::string order = "auto";
  /// Gradients with the same bits each time: on a GPU fa-order-sums runs; on
  /// the CPU they always have.
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
