// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass fa-lower-hopper.

#include "Program.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace fa {
#define GEN_PASS_DEF_LOWERHOPPERPASS
#include "fa/Target/NVIDIA/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

static bool isScheduled(func::FuncOp func) {
  bool found = false;
  func.walk([&](ConsumersOp) { found = true; });
  return found;
}

namespace {
struct LowerHopper : public fa::impl::LowerHopperPassBase<LowerHopper> {
  using LowerHopperPassBase::LowerHopperPassBase;

  void runOnOperation() override {
    ScheduleOptions options{fa::lookupNVIDIATarget("sm_90a"), 1, 0, 0};
    for (func::FuncOp func : collectPrograms(getOperation())) {
      if (!isScheduled(func))
        continue;
      OpBuilder builder(func);
      if (failed(buildProgram(func, options, builder)))
        return signalPassFailure();
      func.erase();
    }
  }
};
} // namespace
