// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass hopper-verify: the protocol of both roles, for chosen numbers.

#include "Delay.h"
#include "Protocol.h"

#include "fa/Dialect/Hopper/Transforms/Passes.h"

#include <set>

namespace fa::hopper {
#define GEN_PASS_DEF_VERIFYSCHEDULEPASS
#include "fa/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace fa::hopper

using namespace mlir;
using namespace fa::hopper;

/// Rounds of choices that are tried: so many at least, and at most.
static constexpr unsigned kFewestRounds = 3, kMostRounds = 6;

namespace {
/// What a role does, without the tiles that it does it with.
using Outline = std::vector<std::pair<Operation *, int>>;

class ScheduleVerifier {
public:
  ScheduleVerifier(scf::ForallOp forall, ProducerOp producer,
                   ConsumersOp consumers);
  LogicalResult verify();
  /// Only that stages that nobody waits for are empty.
  LogicalResult verifyUnguarded() {
    onlyUnguarded = true;
    return verify();
  }

private:
  LogicalResult check(unsigned choice);
  bool hasRunEnough() const;

  scf::ForallOp forall;
  ProducerOp producer;
  ConsumersOp consumers;
  /// Blocks take further tiles.
  bool stays, onlyUnguarded = false;
  /// Of the largest ring.
  int64_t stages = 1;
  Control control;
  std::set<std::pair<Outline, Outline>> seen;
  TileTrace before;
};
} // namespace

ScheduleVerifier::ScheduleVerifier(scf::ForallOp forall, ProducerOp producer,
                                   ConsumersOp consumers)
    : forall(forall), producer(producer), consumers(consumers),
      stays(!forall.getBody()->getOps<TileQueueOp>().empty()), control(forall) {
  for (RingOp ring : forall.getBody()->getOps<RingOp>())
    stages = std::max<int64_t>(stages, ring.getRing().getType().getStages());
}

static Outline outlineOf(const Trace &trace) {
  Outline outline;
  for (const Step &step : trace)
    outline.push_back({step.op, step.kind * 2 + step.condition});
  return outline;
}

/// Loops have had no trips, one, and so on to twice the stages.
bool ScheduleVerifier::hasRunEnough() const {
  return llvm::all_of(control.trips(), [&](const auto &entry) {
    for (int64_t n = 0; n <= 2 * stages; ++n)
      if (!entry.second.contains(n))
        return false;
    return true;
  });
}

LogicalResult ScheduleVerifier::check(unsigned choice) {
  if (!control.choose(choice))
    return success();
  auto loads = control.run(producer.getBody().front());
  if (failed(loads))
    return failure();
  auto computes = control.run(consumers.getBody().front());
  if (failed(computes))
    return failure();
  if (!*loads || !*computes)
    return success();
  TileTrace tile{std::move(**loads), std::move(**computes)};
  auto describe = [&](InFlightDiagnostic &diag) {
    control.describe(diag.attachNote(forall.getLoc()));
  };
  if (!onlyUnguarded && failed(checkLoads(tile, producer, describe)))
    return failure();
  // Most sizes differ in the tiles alone.
  if (!seen.insert({outlineOf(tile.producer), outlineOf(tile.consumers)})
           .second)
    return success();
  if (!onlyUnguarded && failed(checkConsumers(tile.consumers, stays, describe)))
    return failure();
  // Rings go on where the tile before left them.
  SmallVector<const TileTrace *> tiles{&tile};
  for (int64_t i = 0; stays && i <= stages; ++i)
    tiles.push_back(i % 2 ? &tile : &before);
  if (failed(checkUnguarded(tiles, describe)) ||
      (!onlyUnguarded &&
       failed(checkProgress(tiles, consumers, producer, describe))))
    return failure();
  before = std::move(tile);
  return success();
}

LogicalResult ScheduleVerifier::verify() {
  for (unsigned n = 0; n < kMostRounds * control.round(); ++n) {
    if (n >= kFewestRounds * control.round() && hasRunEnough())
      break;
    if (failed(check(n)))
      return failure();
    if (!control.hasChoices())
      break;
  }
  return success();
}

LogicalResult fa::hopper::verifySchedule(scf::ForallOp forall) {
  auto consumers = forall.getBody()->getOps<ConsumersOp>();
  auto producers = forall.getBody()->getOps<ProducerOp>();
  if (consumers.empty() || producers.empty())
    return success();
  return ScheduleVerifier(forall, *producers.begin(), *consumers.begin())
      .verify();
}

void fa::hopper::leaveUnguarded(scf::ForallOp forall) {
  auto consumers = forall.getBody()->getOps<ConsumersOp>();
  auto producers = forall.getBody()->getOps<ProducerOp>();
  if (consumers.empty() || producers.empty())
    return;
  ScopedDiagnosticHandler silent(forall.getContext(),
                                 [](Diagnostic &) { return success(); });
  for (RingOp ring : forall.getBody()->getOps<RingOp>()) {
    if (!ring.getComputed() || ring.getRing().getType().getStages() < 2)
      continue;
    ring.setUnguarded(true);
    ScheduleVerifier verifier(forall, *producers.begin(), *consumers.begin());
    if (failed(verifier.verifyUnguarded()))
      ring.setUnguarded(false);
  }
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
