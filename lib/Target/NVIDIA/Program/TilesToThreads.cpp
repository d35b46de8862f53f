// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass fa-tiles-to-threads.

#include "Program.h"

#include "fa/Schedule/BlockProgram.h"
#include "fa/Target/NVIDIA/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace fa {
#define GEN_PASS_DEF_TILESTOTHREADSPASS
#include "fa/Target/NVIDIA/Passes.h.inc"
} // namespace fa

using namespace mlir;

namespace {
struct TilesToThreads
    : public fa::impl::TilesToThreadsPassBase<TilesToThreads> {
  using TilesToThreadsPassBase::TilesToThreadsPassBase;

  void runOnOperation() override {
    for (func::FuncOp func : fa::collectPrograms(getOperation())) {
      OpBuilder builder(func);
      if (failed(fa::nvidia::buildProgram(func, builder)))
        return signalPassFailure();
      func.erase();
    }
  }
};
} // namespace
