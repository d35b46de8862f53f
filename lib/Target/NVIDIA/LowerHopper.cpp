// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass fa-lower-hopper.

#include "HopperSchedule.h"
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

/// Consumers find a tile in its slot, wherever it was cut from: what computes
/// that is no part of a thread's program.
static void forgetOrigins(func::FuncOp func) {
  func.walk([](ConsumersOp role) {
    role.walk([](AcquireOp acquire) {
      OpBuilder b(acquire);
      RankedTensorType type = acquire.getRing().getType().getTile();
      acquire.getTileMutable().assign(tensor::EmptyOp::create(
          b, acquire.getLoc(), type.getShape(), type.getElementType()));
    });
    eraseDead(role.getBody().front());
  });
}

namespace {
struct LowerHopper : public fa::impl::LowerHopperPassBase<LowerHopper> {
  using LowerHopperPassBase::LowerHopperPassBase;

  void runOnOperation() override {
    ScheduleOptions options{fa::lookupNVIDIATarget("sm_90a"), 1, 0, 0};
    for (func::FuncOp func : collectPrograms(getOperation())) {
      if (!isScheduled(func))
        continue;
      forgetOrigins(func);
      OpBuilder builder(func);
      if (failed(buildProgram(func, options, builder)))
        return signalPassFailure();
      func.erase();
    }
  }
};
} // namespace
