// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass hopper-order: what consumers do between a block's begin and end, in
// an order in which products run under other work. By list scheduling: each
// time the first of what is ready, in this order of kinds,
//
//   products, and the tiles that they wait for    as early as they can start
//   stages that are given back                    as soon as nothing reads them
//   all else                                      in its own order
//   waits                                         when nothing else is left
//
// Nothing moves into or out of a loop or branch.

#include "fa/Dialect/Hopper/Transforms/Passes.h"

#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

namespace fa::hopper {
#define GEN_PASS_DEF_ORDERSTEPSPASS
#include "fa/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace fa::hopper

using namespace mlir;
using namespace fa::hopper;

namespace {
/// Orders the operations of one block.
class BlockOrder {
public:
  explicit BlockOrder(Block &block) : block(block) {}
  void run();

private:
  enum Kind { Starts, GivesBack, Other, Waits };
  Kind kindOf(Operation *op) const;
  void collect();
  void depend(Operation *op, Operation *on);
  bool isReady(Operation *op) const;
  size_t endedBy(WaitGroupOp wait) const;
  Operation *next() const;

  Block &block;
  /// What is not placed yet, in its own order.
  SmallVector<Operation *> left;
  DenseMap<Operation *, llvm::SmallSetVector<Operation *, 4>> needs;
  DenseSet<Operation *> placed;
  /// Products that nobody has waited for, in the order of their start.
  SmallVector<Operation *> inFlight;
};
} // namespace

static bool holdsSteps(Operation *op) {
  return op->getNumRegions() && op->walk([&](Operation *inner) {
                                    return inner != op && isStep(inner)
                                               ? WalkResult::interrupt()
                                               : WalkResult::advance();
                                  }).wasInterrupted();
}

BlockOrder::Kind BlockOrder::kindOf(Operation *op) const {
  if (isa<WgmmaOp, AcquireOp>(op))
    return Starts;
  if (isa<ReleaseOp>(op))
    return GivesBack;
  return isa<WaitGroupOp>(op) ? Waits : Other;
}

void BlockOrder::depend(Operation *op, Operation *on) {
  if (on && on != op)
    needs[op].insert(on);
}

/// Operands, also those of regions; and what operands do not say: the order in
/// which tiles are taken and in which stages are filled is that of the
/// producer, a stage is given back when all products that read it have been
/// waited for, and what has effects of another kind stays where it is among the
/// steps.
void BlockOrder::collect() {
  Operation *lastAcquire = nullptr, *lastBarrier = nullptr;
  DenseMap<Value, Operation *> lastShare, waitOf;
  SmallVector<Operation *> steps;
  for (Operation &op : block.without_terminator()) {
    left.push_back(&op);
    auto dependOn = [&](Value v) {
      if (v.getParentBlock() == &block)
        depend(&op, v.getDefiningOp());
    };
    llvm::for_each(op.getOperands(), dependOn);
    llvm::SetVector<Value> above;
    getUsedValuesDefinedAbove(op.getRegions(), above);
    llvm::for_each(above, dependOn);
    if (auto wait = dyn_cast<WaitGroupOp>(op))
      for (Value v : wait.getValues())
        waitOf[v] = &op;
    if (auto acquire = dyn_cast<AcquireOp>(op)) {
      depend(&op, lastAcquire);
      depend(&op, lastShare.lookup(acquire.getRing()));
      lastAcquire = &op;
    } else if (auto share = dyn_cast<ShareOp>(op)) {
      depend(&op, lastShare.lookup(share.getRing()));
      lastShare[share.getRing()] = &op;
    } else if (auto release = dyn_cast<ReleaseOp>(op)) {
      for (Operation *user : release.getSlot().getUsers())
        if (isa<WgmmaOp>(user) && user->getBlock() == &block)
          for (Value result : user->getResults())
            depend(&op, waitOf.lookup(result));
    }
    bool isBarrier =
        holdsSteps(&op) || isa<TurnBeginOp, TurnEndOp, PollOp>(op) ||
        !(isMemoryEffectFree(&op) || isa<HopperDialect>(op.getDialect()));
    depend(&op, isStep(&op) || isBarrier ? lastBarrier : nullptr);
    if (isBarrier) {
      for (Operation *step : steps)
        depend(&op, step);
      steps.clear();
      lastBarrier = &op;
    } else if (isStep(&op)) {
      steps.push_back(&op);
    }
  }
}

bool BlockOrder::isReady(Operation *op) const {
  auto it = needs.find(op);
  return it == needs.end() || llvm::all_of(it->second, [&](Operation *on) {
           return placed.contains(on);
         });
}

/// How many of the products in flight, which end in the order of their start,
/// have ended when a wait gives its results.
size_t BlockOrder::endedBy(WaitGroupOp wait) const {
  size_t count = 0;
  for (Value v : wait.getValues()) {
    const auto *it = llvm::find(inFlight, v.getDefiningOp());
    if (it != inFlight.end())
      count = std::max<size_t>(count, it - inFlight.begin() + 1);
  }
  return count;
}

/// Of what is ready, the first kind's first operation; of waits the one that
/// waits for the fewest products.
Operation *BlockOrder::next() const {
  Operation *best = nullptr;
  std::pair<Kind, size_t> bestCost;
  for (Operation *op : left) {
    if (!isReady(op) ||
        (isa<WgmmaOp>(op) && inFlight.size() >= size_t(maxPending)))
      continue;
    auto wait = dyn_cast<WaitGroupOp>(op);
    std::pair<Kind, size_t> cost(kindOf(op), wait ? endedBy(wait) : 0);
    if (best && cost >= bestCost)
      continue;
    best = op;
    bestCost = cost;
  }
  return best;
}

void BlockOrder::run() {
  collect();
  while (Operation *op = next()) {
    llvm::erase(left, op);
    placed.insert(op);
    op->moveBefore(&block, block.without_terminator().end());
    if (isa<WgmmaOp>(op))
      inFlight.push_back(op);
    if (auto wait = dyn_cast<WaitGroupOp>(op)) {
      inFlight.erase(inFlight.begin(), inFlight.begin() + endedBy(wait));
      wait.setPending(inFlight.size());
    }
  }
}

namespace {
struct OrderSteps : public fa::hopper::impl::OrderStepsPassBase<OrderSteps> {
  void runOnOperation() override {
    getOperation().walk([](ConsumersOp role) {
      llvm::SetVector<Block *> blocks;
      role.walk([&](WgmmaOp product) { blocks.insert(product->getBlock()); });
      for (Block *block : blocks)
        BlockOrder(*block).run();
    });
  }
};
} // namespace
