// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass hopper-schedule: the products of a loop that feed no other one come
// an iteration later, with what depends on them.

#include "Delay.h"

#include "fa/Dialect/Hopper/Transforms/Passes.h"

#include "mlir/IR/Remarks.h"

namespace fa::hopper {
#define GEN_PASS_DEF_SCHEDULELOOPSPASS
#include "fa/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace fa::hopper

using namespace mlir;
using namespace fa::hopper;

namespace {
class LoopSchedule {
public:
  explicit LoopSchedule(scf::ForOp loop) : loop(loop), body(*loop.getBody()) {}
  /// Whether some of the loop's products can come later; else says in `why`
  /// what is against it.
  bool find(std::string &why);
  void annotate();

private:
  /// What directly depends on an operation in the body; of what the next
  /// iteration takes too.
  template <typename Visit>
  void forUsers(Operation *op, bool acrossIterations, Visit visit);
  bool feedsProducts(WgmmaOp product);
  bool nextNeedsLate(ArrayRef<WgmmaOp> feeding);
  void delayWhatFollows();
  bool delayTiles();
  bool canShareLater(AcquireOp acquire);
  void delayWhatShares();
  bool fitsRings(std::string &why);

  scf::ForOp loop;
  Block &body;
  llvm::SetVector<Operation *> late;
};
} // namespace

template <typename Visit>
void LoopSchedule::forUsers(Operation *op, bool acrossIterations, Visit visit) {
  for (OpOperand &use : op->getUses()) {
    Operation *user = body.findAncestorOpInBlock(*use.getOwner());
    if (!user)
      continue;
    if (user != body.getTerminator()) {
      visit(user);
      continue;
    }
    if (!acrossIterations)
      continue;
    Value next = loop.getRegionIterArg(use.getOperandNumber());
    for (Operation *later : next.getUsers())
      visit(body.findAncestorOpInBlock(*later));
  }
}

bool LoopSchedule::feedsProducts(WgmmaOp product) {
  llvm::SetVector<Operation *> follows;
  follows.insert(product);
  for (size_t n = 0; n < follows.size(); ++n)
    forUsers(follows[n], /*acrossIterations=*/false,
             [&](Operation *user) { follows.insert(user); });
  return llvm::any_of(ArrayRef(follows.getArrayRef()).drop_front(),
                      [](Operation *op) { return isa<WgmmaOp>(op); });
}

/// All that depends on what is delayed. What takes it from the iteration before
/// need not come later: then that is there.
void LoopSchedule::delayWhatFollows() {
  for (size_t n = 0; n < late.size(); ++n)
    forUsers(late[n], /*acrossIterations=*/false,
             [&](Operation *user) { late.insert(user); });
}

/// Whether a product that is not delayed depends on what is, of the iteration
/// before.
bool LoopSchedule::nextNeedsLate(ArrayRef<WgmmaOp> feeding) {
  llvm::SetVector<Operation *> follows(late.begin(), late.end());
  for (size_t n = 0; n < follows.size(); ++n)
    forUsers(follows[n], /*acrossIterations=*/true,
             [&](Operation *user) { follows.insert(user); });
  return llvm::any_of(
      feeding, [&](WgmmaOp product) { return follows.contains(product); });
}

/// A tile is taken when the first product reads it, and given back when the
/// last one has. Whether that delays more.
bool LoopSchedule::delayTiles() {
  size_t before = late.size();
  for (auto acquire : body.getOps<AcquireOp>()) {
    SmallVector<Operation *> products, releases;
    for (Operation *user : acquire.getSlot().getUsers())
      (isa<ReleaseOp>(user) ? releases : products).push_back(user);
    auto isLate = [&](Operation *op) { return late.contains(op); };
    if (llvm::any_of(products, isLate))
      late.insert(releases.begin(), releases.end());
    if (!products.empty() && llvm::all_of(products, isLate))
      late.insert(acquire);
  }
  return late.size() != before;
}

/// A stage for each iteration in which a slot is held, and one that is filled
/// while another is read.
bool LoopSchedule::fitsRings(std::string &why) {
  auto isHeld = [&](AcquireOp acquire) {
    return !late.contains(acquire) &&
           llvm::any_of(acquire.getSlot().getUsers(),
                        [&](Operation *user) { return late.contains(user); });
  };
  auto fail = [&](Value ring, StringRef what) {
    why = ("ring \"" + ring.getDefiningOp<RingOp>().getName() + "\" " + what)
              .str();
    return false;
  };
  DenseMap<Value, bool> takenLate;
  for (auto acquire : body.getOps<AcquireOp>()) {
    Value ring = acquire.getRing();
    auto [it, isFirst] = takenLate.insert({ring, late.contains(acquire)});
    if (!isFirst && it->second != late.contains(acquire))
      return fail(ring, "would give some of its tiles an iteration later");
    if (isHeld(acquire) && acquire.getRing().getType().getStages() < 2)
      return fail(ring, "has one stage, and two are expected where a tile is "
                        "held into the next iteration");
  }
  // What is filled before the last one has been read is filled as late.
  for (auto share : body.getOps<ShareOp>()) {
    auto ring = share.getRing();
    if (takenLate.lookup(ring) && ring.getType().getStages() < 2)
      late.insert(share);
  }
  return true;
}

bool LoopSchedule::find(std::string &why) {
  SmallVector<WgmmaOp> feeding;
  for (Operation &op : body.without_terminator()) {
    bool isTheirs = isa<HopperDialect>(op.getDialect());
    if (isa<TurnBeginOp, TurnEndOp, PollOp>(op) ||
        (!isTheirs && (holdsSteps(&op) || !isMemoryEffectFree(&op)))) {
      why = "it has a " + op.getName().getStringRef().str();
      return false;
    }
    if (auto product = dyn_cast<WgmmaOp>(op)) {
      if (feedsProducts(product))
        feeding.push_back(product);
      else
        late.insert(product);
    }
  }
  if (feeding.empty() || late.empty()) {
    why = feeding.empty() ? "no product feeds another one"
                          : "all products feed others";
    return false;
  }
  do
    delayWhatFollows();
  while (delayTiles());
  if (nextNeedsLate(feeding)) {
    why = "a product that feeds another one needs the result of that in the "
          "iteration before";
    return false;
  }
  for (Value v : loop.getYieldedValues())
    if (v.getParentBlock() != &body || isa<BlockArgument>(v)) {
      why = "it carries a value that it does not compute";
      return false;
    }
  return fitsRings(why);
}

/// Whether products can read a tile that warpgroups share yet an iteration
/// later: its ring has stages for those of two iterations, and they hold
/// nothing else of their own.
bool LoopSchedule::canShareLater(AcquireOp acquire) {
  int64_t ofIteration =
      llvm::count_if(body.getOps<AcquireOp>(), [&](AcquireOp other) {
        return other.getRing() == acquire.getRing();
      });
  return isComputed(acquire.getRing()) &&
         acquire.getRing().getType().getStages() >= 2 * ofIteration &&
         llvm::all_of(acquire.getSlot().getUsers(), [&](Operation *user) {
           return isa<ReleaseOp>(user) ||
                  llvm::all_of(user->getOperands(), [&](Value operand) {
                    return operand == acquire.getSlot() ||
                           !loop.getRegion().isAncestor(
                               operand.getParentRegion());
                  });
         });
}

/// Then nobody waits for another warpgroup's part.
void LoopSchedule::delayWhatShares() {
  llvm::SetVector<Operation *> later;
  for (auto acquire : body.getOps<AcquireOp>()) {
    if (!late.contains(acquire) || !canShareLater(acquire))
      continue;
    later.insert(acquire);
    later.insert(acquire.getSlot().user_begin(), acquire.getSlot().user_end());
  }
  for (size_t n = 0; n < later.size(); ++n)
    forUsers(later[n], /*acrossIterations=*/false,
             [&](Operation *user) { later.insert(user); });
  for (Operation *op : later)
    setDelay(op, 2);
}

void LoopSchedule::annotate() {
  for (Operation *op : late)
    setDelay(op, 1);
  if (loop->getParentOfType<ConsumersOp>().getSharesLater())
    delayWhatShares();
}

namespace {
struct ScheduleLoops
    : public fa::hopper::impl::ScheduleLoopsPassBase<ScheduleLoops> {
  void runOnOperation() override {
    getOperation().walk([](ConsumersOp role) {
      llvm::SetVector<scf::ForOp> loops;
      role.walk([&](WgmmaOp product) {
        if (auto loop = dyn_cast<scf::ForOp>(product->getParentOp()))
          loops.insert(loop);
      });
      for (scf::ForOp loop : loops) {
        LoopSchedule schedule(loop);
        std::string why;
        if (schedule.find(why))
          schedule.annotate();
        else
          remark::missed(
              loop.getLoc(),
              remark::RemarkOpts::name("schedule").category("hopper-schedule"))
              << "left the loop's products in one iteration: " << why;
      }
    });
  }
};
} // namespace
