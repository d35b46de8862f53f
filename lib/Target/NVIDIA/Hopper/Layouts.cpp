// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass fa-hopper-layouts.

#include "../Layout/Layouts.h"
#include "Schedule.h"

#include "fa/Dialect/Hopper/Transforms/Adders.h"
#include "fa/Dialect/Hopper/Transforms/Followers.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace fa {
#define GEN_PASS_DEF_HOPPERLAYOUTSPASS
#include "fa/Target/NVIDIA/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;
using namespace fa::hopper;

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

/// The schedule has decided already: its rings say where they lie.
static int64_t sharedBytesOf(scf::ForallOp forall) {
  int64_t bytes = 0;
  auto takes = [&](int64_t end) { bytes = std::max(bytes, end); };
  forall.walk([&](Operation *op) {
    if (auto ring = dyn_cast<RingOp>(op)) {
      takes(ring.getOffset() + ring.bytes());
      takes(ring.barriersEnd());
    }
    if (auto stage = dyn_cast<StageOp>(op)) {
      takes(stage.getOffset() + stage.bytes());
      if (stage.getAdders())
        takes(stage.addersEnd());
    }
    if (auto queue = dyn_cast<TileQueueOp>(op))
      takes(queue.getBarriers() + TileQueueOp::bytes);
    if (auto role = dyn_cast<ConsumersOp>(op); role && role.getExchange())
      takes(role.exchangeEnd());
  });
  int64_t teams = teamsOf(forall);
  return teams > 1 ? teams * llvm::alignTo(bytes, tileAlignment) : bytes;
}

/// Scratch of warps that compute what follows, behind all else, where shared
/// memory has room for it. Returns how many bytes the block has then.
static int64_t placeScratch(scf::ForallOp forall, int64_t bytes,
                            const NVIDIATarget &target) {
  scf::ForallOp follower = followerOf(forall);
  int64_t begin = llvm::alignTo(bytes, tileAlignment),
          end = begin + freeWarps(forall) * followerScratch;
  if (!follower || end == begin || end > target.sharedMemory)
    return bytes;
  follower->setAttr(followsName,
                    Builder(forall.getContext()).getI64IntegerAttr(begin));
  return end;
}

static LogicalResult layOut(scf::ForallOp forall, ConsumersOp consumers,
                            const NVIDIATarget &target) {
  BlockProgram program(forall);
  Layouts layouts(program);
  int64_t bytes = sharedBytesOf(forall);
  if (failed(layouts.inferVectors()) || failed(verifyAdders(forall)) ||
      failed(verifyOrder(forall)) ||
      failed(checkShared(program, target, bytes)))
    return failure();
  unsigned warps = 4 * consumers.getWarpgroups();
  layouts.setWarps(warps);
  // What vectors meet says whether warps divide columns, too.
  layouts.inferClasses({});
  layouts.divideRows();
  writeLayouts(program, layouts);
  writeBlock(program, target, warps, teamsOf(forall),
             placeScratch(forall, bytes, target));
  return success();
}

namespace {
struct HopperLayouts : public fa::impl::HopperLayoutsPassBase<HopperLayouts> {
  using HopperLayoutsPassBase::HopperLayoutsPassBase;

  void runOnOperation() override {
    const NVIDIATarget &target = *lookupNVIDIATarget("sm_90a");
    for (func::FuncOp func : collectPrograms(getOperation())) {
      forgetOrigins(func);
      for (auto forall : func.getBody().front().getOps<scf::ForallOp>())
        if (ConsumersOp consumers = consumersOf(forall);
            consumers && !forall->hasAttr(NVIDIADialect::blockName) &&
            failed(layOut(forall, consumers, target)))
          return signalPassFailure();
    }
  }
};
} // namespace
