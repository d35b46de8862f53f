// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass fa-schedule-ampere.

#include "Plan.h"

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/Utils/CleanUp.h"
#include "fa/Dialect/Hopper/Transforms/Followers.h"
#include "fa/Schedule/SplitRandomMasks.h"

namespace fa {
#define GEN_PASS_DEF_SCHEDULEAMPEREPASS
#include "fa/Target/NVIDIA/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa::nvidia;

/// The blocks of a kernel that follows another are a warp's work each.
static AmpereOptions optionsOf(scf::ForallOp forall, AmpereOptions options) {
  if (fa::hopper::followedBy(forall))
    options.warps = 1;
  return options;
}

namespace {
struct ScheduleAmpere
    : public fa::impl::ScheduleAmperePassBase<ScheduleAmpere> {
  using ScheduleAmperePassBase::ScheduleAmperePassBase;

  void runOnOperation() override {
    const fa::NVIDIATarget *target = fa::lookupNVIDIATarget(chip);
    if (!target) {
      getOperation().emitError("unknown target ")
          << chip << "; known are sm_80, sm_86, sm_89, sm_90, sm_90a, sm_120";
      return signalPassFailure();
    }
    // The last schedule: what is attention still would be left without a word.
    WalkResult walk = getOperation().walk([&](fa::AttentionOp op) {
      op.emitOpError("is not lowered to a tile program; run "
                     "--fa-pipeline=target=")
          << chip << " first";
      return WalkResult::interrupt();
    });
    if (walk.wasInterrupted())
      return signalPassFailure();
    AmpereOptions options{target, stages, warps, hoistRegisters, inTurn};
    for (func::FuncOp func : fa::collectPrograms(getOperation())) {
      if (failed(fa::expandSoftmaxes(func)))
        return signalPassFailure();
      fa::splitRandomMasks(func);
      for (auto forall : func.getBody().front().getOps<scf::ForallOp>()) {
        if (forall->hasAttr(NVIDIADialect::blockName))
          continue;
        AmperePlan plan(forall, optionsOf(forall, options));
        if (failed(plan.compute()))
          return signalPassFailure();
        plan.apply();
      }
    }
  }
};
} // namespace
