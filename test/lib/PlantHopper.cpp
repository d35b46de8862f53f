// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A pass that makes one mistake in a schedule for Hopper: races and stops that
// the interpreter must find.

#include "fa/Dialect/Hopper/IR/Hopper.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

#include <functional>

using namespace mlir;
using namespace fa::hopper;

namespace {

/// What makes a mistake at an operation; null where it cannot be made.
using Change = std::function<void()>;
using Mistake = Change (*)(Operation *);

/// A wait for all but one product more.
Change breakWait(Operation *op) {
  auto wait = dyn_cast<WaitGroupOp>(op);
  if (!wait)
    return {};
  return [=]() mutable { wait.setPending(wait.getPending() + 1); };
}

template <typename OpTy> Change dropOp(Operation *op) {
  if (!isa<OpTy>(op))
    return {};
  return [=] { op->erase(); };
}

/// A stage is given back before the wait for the product that reads it.
Change breakReleaseEarly(Operation *op) {
  auto release = dyn_cast<ReleaseOp>(op);
  if (!release || release.getCondition() ||
      release.getSlot().getDefiningOp()->getBlock() != op->getBlock())
    return {};
  Operation *before = op->getPrevNode();
  while (before && !isa<WaitGroupOp>(before))
    before = before->getPrevNode();
  if (!before || before->isBeforeInBlock(release.getSlot().getDefiningOp()))
    return {};
  return [=] { op->moveBefore(before); };
}

/// A stage is given back twice.
Change breakReleaseTwice(Operation *op) {
  if (!isa<ReleaseOp>(op))
    return {};
  return [=] { OpBuilder(op).clone(*op); };
}

/// A stage is taken to be full.
Change breakPolled(Operation *op) {
  auto acquire = dyn_cast<AcquireOp>(op);
  if (!acquire || acquire.getPolled())
    return {};
  return [=]() mutable { acquire.setPolled(true); };
}

/// A sum goes on from what nobody computed.
Change breakCondition(Operation *op) {
  auto product = dyn_cast<WgmmaOp>(op);
  if (!product || !product.getCondition())
    return {};
  return [=]() mutable { product.getConditionMutable().clear(); };
}

struct PlantHopperPass
    : PassWrapper<PlantHopperPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PlantHopperPass)
  PlantHopperPass() = default;
  PlantHopperPass(const PlantHopperPass &other) : PassWrapper(other) {}
  StringRef getArgument() const final { return "test-fa-plant-hopper"; }
  StringRef getDescription() const final { return "wrong on purpose"; }
  void runOnOperation() override {
    std::pair<StringRef, Mistake> mistakes[] = {
        {"wait", breakWait},
        {"load", dropOp<LoadOp>},
        {"release", dropOp<ReleaseOp>},
        {"release-early", breakReleaseEarly},
        {"release-twice", breakReleaseTwice},
        {"poll", dropOp<PollOp>},
        {"polled", breakPolled},
        {"turn", dropOp<TurnEndOp>},
        {"condition", breakCondition}};
    for (auto [name, mistake] : mistakes) {
      if (name != bug)
        continue;
      Mistake made = mistake;
      SmallVector<Change> changes;
      getOperation().walk([&](Operation *op) {
        if (Change change = made(op))
          changes.push_back(std::move(change));
      });
      if (number < changes.size())
        return changes[number]();
      getOperation().emitError()
          << "found " << changes.size() << " places to break by '" << bug
          << "', not " << number + 1;
      return signalPassFailure();
    }
    getOperation().emitError() << "expected a bug that can be planted, got '"
                               << bug << "'; add it to PlantHopper.cpp";
    signalPassFailure();
  }
  Option<std::string> bug{*this, "bug", llvm::cl::desc("what to do wrong")};
  Option<unsigned> number{*this, "number", llvm::cl::desc("at which place"),
                          llvm::cl::init(0)};
};
} // namespace

namespace fa {
void registerPlantHopper();
} // namespace fa

void fa::registerPlantHopper() { PassRegistration<PlantHopperPass>(); }
