// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass hopper-finish: what depends on the order of the consumers' steps.
//
//   Turns     where the role has them, warpgroups start the products with which
//             an iteration begins one after the other
//   Polls     where something is computed under an iteration's last product,
//             the first tile of the next iteration is waited for before that
//             product is
//   Branches  those that follow each other, where one side of the first rules
//             the second out, are one
//   Producer  loads come in the order in which the consumers take their tiles,
//             where some are taken an iteration later than others

#include "Delay.h"

#include "fa/Dialect/Hopper/Transforms/Passes.h"
#include "fa/Dialect/Hopper/Transforms/Utils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace fa::hopper {
#define GEN_PASS_DEF_FINISHSCHEDULEPASS
#include "fa/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace fa::hopper

using namespace mlir;
using namespace fa::hopper;

namespace {
/// The steps with which an iteration begins, and the last wait of its products.
struct Batch {
  WgmmaOp first, last;
  WaitGroupOp end;
  /// Whether tiles are computed before the end, while products are in flight.
  bool isComputedUnder = false;

  explicit Batch(scf::ForOp loop) {
    bool hasWaited = false, computes = false;
    for (Operation &op : *loop.getBody()) {
      if (auto product = dyn_cast<WgmmaOp>(op); product && !hasWaited) {
        last = product;
        first = first ? first : product;
      }
      if (auto wait = dyn_cast<WaitGroupOp>(op)) {
        end = wait;
        hasWaited = true;
        isComputedUnder = computes;
      }
      computes |= hasWaited && isa<linalg::LinalgOp>(op);
    }
  }
};
} // namespace

static void placeTurns(const Batch &batch) {
  OpBuilder b(batch.first);
  TurnBeginOp::create(b, batch.first->getLoc());
  b.setInsertionPointAfter(batch.last);
  TurnEndOp::create(b, batch.last->getLoc());
}

static void pollIf(OpBuilder &b, Value condition, RingOp ring) {
  auto branch = scf::IfOp::create(b, condition.getLoc(), condition);
  OpBuilder inner = OpBuilder::atBlockBegin(branch.thenBlock());
  PollOp::create(inner, condition.getLoc(), ring.getRing());
}

/// Before the last wait it keeps an assembler from moving that up, above what
/// is computed under the product.
static void placePolls(scf::ForOp loop, const Batch &batch) {
  auto acquires = loop.getBody()->getOps<AcquireOp>();
  if (acquires.empty())
    return;
  AcquireOp acquire = *acquires.begin();
  auto ring = acquire.getRing().getDefiningOp<RingOp>();
  bool isOnlyOne = llvm::hasSingleElement(
      llvm::make_filter_range(acquires, [&](AcquireOp other) {
        return other.getRing() == acquire.getRing();
      }));
  if (!ring || ring.getComputed() || ring.getRing().getType().isVector() ||
      !isOnlyOne)
    return;
  Location loc = loop.getLoc();
  Value upper = loop.getUpperBound();
  auto isLess = [&](OpBuilder &b, Value x) -> Value {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, upper);
  };
  OpBuilder b(batch.end);
  Value next =
      arith::AddIOp::create(b, loc, loop.getInductionVar(), loop.getStep());
  pollIf(b, isLess(b, next), ring);
  b.setInsertionPoint(loop);
  pollIf(b, isLess(b, loop.getLowerBound()), ring);
  acquire.setPolled(true);
}

/// Whether loaded tiles are taken in another iteration than those before them.
static bool takesTilesLater(ConsumersOp role) {
  return role
      .walk([](AcquireOp acquire) {
        return behindOf(acquire) && !isComputed(acquire.getRing())
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

namespace {
struct FinishSchedule
    : public fa::hopper::impl::FinishSchedulePassBase<FinishSchedule> {
  void runOnOperation() override {
    SmallVector<ConsumersOp> roles;
    getOperation().walk([&](ConsumersOp role) { roles.push_back(role); });
    for (ConsumersOp role : roles) {
      llvm::SetVector<scf::ForOp> loops;
      role.walk([&](WgmmaOp product) {
        if (auto loop = dyn_cast<scf::ForOp>(product->getParentOp()))
          loops.insert(loop);
      });
      for (scf::ForOp loop : loops) {
        mergeBranches(loop);
        Batch batch(loop);
        // Where warpgroups share tiles they wait for each other there.
        if (batch.isComputedUnder && !sharesTiles(role))
          placePolls(loop, batch);
        if (role.getTurns())
          placeTurns(batch);
      }
      // Else loads are in the order of the loop that it has.
      if (takesTilesLater(role))
        for (auto producer : role->getBlock()->getOps<ProducerOp>())
          buildProducer(producer, role);
      leaveUnguarded(cast<scf::ForallOp>(role->getParentOp()));
    }
  }
};
} // namespace
