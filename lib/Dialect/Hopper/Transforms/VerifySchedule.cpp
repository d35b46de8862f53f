// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass hopper-verify: the protocol of both roles, for chosen numbers.

#include "Protocol.h"

#include "fa/Dialect/Hopper/Transforms/Passes.h"

namespace fa::hopper {
#define GEN_PASS_DEF_VERIFYSCHEDULEPASS
#include "fa/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace fa::hopper

using namespace mlir;
using namespace fa::hopper;

/// Choices that are tried: so many at least, if there is anything to choose,
/// and at most.
static constexpr unsigned kFewestChoices = 48, kMostChoices = 256;

/// Whether loops have had no trips, one, and so on to twice the stages.
static bool haveRunEnough(const Control &control, int64_t stages) {
  return llvm::all_of(control.trips(), [&](const auto &entry) {
    for (int64_t n = 0; n <= 2 * stages; ++n)
      if (!entry.second.contains(n))
        return false;
    return true;
  });
}

LogicalResult fa::hopper::verifySchedule(scf::ForallOp forall) {
  Block &body = *forall.getBody();
  auto allConsumers = body.getOps<ConsumersOp>();
  auto producers = body.getOps<ProducerOp>();
  if (allConsumers.empty() || producers.empty())
    return success();
  ConsumersOp consumers = *allConsumers.begin();
  ProducerOp producer = *producers.begin();
  bool stays = !body.getOps<TileQueueOp>().empty();
  int64_t stages = 1;
  for (RingOp ring : body.getOps<RingOp>())
    stages = std::max<int64_t>(stages, ring.getRing().getType().getStages());

  Control control(forall);
  auto describe = [&](InFlightDiagnostic &diag) {
    control.describe(diag.attachNote(forall.getLoc()));
  };
  TileTrace before;
  for (unsigned n = 0; n < kMostChoices; ++n) {
    if (n >= kFewestChoices && haveRunEnough(control, stages))
      break;
    if (!control.choose(n))
      continue;
    auto loads = control.run(producer.getBody().front());
    if (failed(loads))
      return failure();
    auto computes = control.run(consumers.getBody().front());
    if (failed(computes))
      return failure();
    if (!*loads || !*computes)
      continue;
    TileTrace tile{std::move(**loads), std::move(**computes)};
    if (failed(checkConsumers(tile.consumers, stays, describe)) ||
        failed(checkLoads(tile, producer, describe)))
      return failure();
    // Rings go on where the tile before left them.
    SmallVector<const TileTrace *> tiles{&tile};
    if (stays)
      for (int64_t i = 0; i <= stages; ++i)
        tiles.push_back(i % 2 || !n ? &tile : &before);
    if (failed(checkProgress(tiles, consumers, producer, describe)))
      return failure();
    if (!control.hasChoices())
      break;
    before = std::move(tile);
  }
  return success();
}

namespace {
struct VerifySchedule
    : public fa::hopper::impl::VerifySchedulePassBase<VerifySchedule> {
  void runOnOperation() override {
    getOperation().walk([&](scf::ForallOp forall) {
      if (failed(verifySchedule(forall)))
        signalPassFailure();
    });
    markAllAnalysesPreserved();
  }
};
} // namespace
