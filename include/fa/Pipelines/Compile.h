// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From attention IR text to a kernel that runs: the way of the C API and the
// tools through the pipelines.

#ifndef FA_PIPELINES_COMPILE_H
#define FA_PIPELINES_COMPILE_H

#include "fa/Pipelines/Pipelines.h"
#include "fa/Target/CPU/Program.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>
#include <vector>

namespace mlir {
class DialectRegistry;
class MLIRContext;
} // namespace mlir

namespace fa {

/// A function to compile, and the options.
struct CompileRequest {
  PipelineOptions pipeline;
  /// The function; empty for the module's only public one.
  std::string function;
  /// Options of the target's schedule: "stages=2 spare=64" for
  /// fa-schedule-hopper (those of fa-hopper-place), "warps=8" for
  /// fa-schedule-ampere; "by=ampere" compiles for the row of the same chip with
  /// fewer matrix instructions. Empty to let the schedule choose.
  std::string schedule;
  /// LLVM's -O level for the CPU target, 0 to 3.
  unsigned optimize = 3;
  /// Keep the IR and the HBM traffic after each stage.
  bool keepStages = false;
};

/// One stage that was run.
struct CompiledStage {
  std::string name;
  /// Empty unless the stages were kept.
  std::string ir, io;
};

/// The result of a compilation: a CPU program or PTX.
struct CompiledKernel {
  std::vector<CompiledStage> stages;
  std::unique_ptr<cpu::Program> program;
  std::string ptx;
  /// The numbers of inputs and results together, and of results.
  int32_t numArguments = 0, numResults = 0;
};

/// Errors in the options alone: an unknown target or algorithm, bad sizes.
llvm::Error checkOptions(const CompileRequest &request);

/// After fa-differentiate: removes the function and keeps its gradient, whose
/// name `name` becomes.
llvm::Error keepGradient(mlir::ModuleOp module, std::string &name);

/// Compiles a tile program in `module` to PTX with its header, for an NVIDIA
/// target. `schedule` is that of CompileRequest. Leaves the module in the
/// target's dialects.
llvm::Expected<std::string> compileToPTX(mlir::ModuleOp module,
                                         llvm::StringRef target,
                                         llvm::StringRef schedule = "");

/// Parses, lowers and compiles. Diagnostics become the error's message.
llvm::Expected<std::unique_ptr<CompiledKernel>>
compileKernel(llvm::StringRef ir, const CompileRequest &request);

} // namespace fa

#endif // FA_PIPELINES_COMPILE_H
