// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "BufferTypes.h"
#include "fa/Target/CPU/Passes.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotModuleBufferize.h"
#include "mlir/Dialect/Bufferization/Transforms/Transforms.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace fa {
#define GEN_PASS_DEF_CPUBUFFERIZEPASS
#include "fa/Target/CPU/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-cpu-bufferize"

static bufferization::OneShotBufferizationOptions
makeOptions(bool unitInnerStride) {
  bufferization::OneShotBufferizationOptions options;
  options.bufferizeFunctionBoundaries = true;
  options.allowReturnAllocsFromLoops = false;
  options.functionArgTypeConverterFn =
      [unitInnerStride](bufferization::TensorLikeType type, Attribute,
                        func::FuncOp,
                        const bufferization::BufferizationOptions &) {
        return cast<bufferization::BufferLikeType>(Type(getBoundaryBufferType(
            cast<RankedTensorType>(type), unitInnerStride)));
      };
  options.memCpyFn = [](OpBuilder &b, Location loc, Value from, Value to) {
    if (from != to)
      linalg::CopyOp::create(b, loc, from, to);
    return success();
  };
  return options;
}

namespace {
struct CPUBufferizePass : fa::impl::CPUBufferizePassBase<CPUBufferizePass> {
  using CPUBufferizePassBase::CPUBufferizePassBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    IRRewriter rewriter(&getContext());
    if (failed(bufferization::eliminateEmptyTensors(rewriter, module)))
      return signalPassFailure();
    bufferization::BufferizationState state;
    if (failed(bufferization::runOneShotModuleBufferize(
            module, makeOptions(unitInnerStride), state)))
      return signalPassFailure();
  }
};
} // namespace
