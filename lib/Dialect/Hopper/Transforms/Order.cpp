// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass hopper-order: what consumers do between a block's begin and end, in
// an order in which products run under other work and tiles fit in registers.
// By list scheduling: each time, of what is ready and fits, the first of these
// kinds,
//
//   what takes fewer registers than it frees
//   products              as early as they can start, those first that most is
//                         to follow, or before them those of what the loop
//                         carries
//   stages given back     as soon as nothing reads them
//   all else              in its own order
//   waits                 when nothing else is left
//   sums into memory      at the end: nothing waits for them, or, where those
//                         that adders add come first, at once
//
// Tiles are taken, and numbers and addresses are computed, where something
// needs them. What fits in no registers waits until products have ended whose
// operands and results took them; but not, where the role `streams`, what leads
// to a tile to be shared and to nothing else. What is computed stays before the
// next product or wait.
//
// Nothing moves into or out of a loop or branch.

#include "Delay.h"
#include "Pressure.h"

#include "fa/Dialect/Hopper/Transforms/Adders.h"
#include "fa/Dialect/Hopper/Transforms/Passes.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

namespace fa::hopper {
#define GEN_PASS_DEF_ORDERSTEPSPASS
#include "fa/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace fa::hopper

using namespace mlir;
using namespace fa::hopper;

/// Whether a region reads memory element by element.
static bool readsElements(Region &region) {
  return region.walk([](tensor::ExtractOp) { return WalkResult::interrupt(); })
      .wasInterrupted();
}

/// The elements of a tile that an operation computes in registers, or, in a
/// branch, computes with; else null.
static Type computedElements(Operation *op) {
  for (Value v : op->getResults())
    if (auto type = dyn_cast<RankedTensorType>(v.getType());
        type && type.getRank() == 2 && isInRegisters(v))
      return type.getElementType();
  Type found;
  if (op->getNumRegions() && !isa<linalg::LinalgOp>(op))
    op->walk([&](linalg::LinalgOp inner) {
      if (inner.getNumLoops() == 2)
        found = getElementTypeOrSelf(inner->getResultTypes().front());
    });
  return found;
}

/// Whether two iterations of a loop in the block begin before it, or end behind
/// it.
static bool beginsTwice(Block &block) {
  return llvm::any_of(block.getOps<scf::ForOp>(), [](scf::ForOp loop) {
    return llvm::any_of(
        loop.getBody()->getOps<AcquireOp>(),
        [](AcquireOp acquire) { return behindOf(acquire) > 1; });
  });
}

namespace {
/// Orders the operations of one block.
class BlockOrder {
public:
  BlockOrder(Block &block, ConsumersOp role)
      : block(block), pressure(block, role.getWarpgroups()),
        most(role.getRegisters() - role.getSpare() -
             (beginsTwice(block) ? spareOfTwo : 0)),
        mostComputing(role.getRegisters() -
                      std::max<int64_t>(role.getSpare(), spareComputing)),
        mostFree(role.getSpareFree()
                     ? role.getRegisters() - *role.getSpareFree() -
                           (beginsTwice(block) ? spareOfTwo : 0)
                     : 0),
        carriedFirst(role.getCarriedFirst()), sumsFirst(role.getSumsFirst()),
        streams(role.getStreams()), sharesTiles(fa::hopper::sharesTiles(role)),
        makesBits(llvm::any_of(block, [](Operation &op) {
          Type computed =
              isa<linalg::LinalgOp>(op) ? computedElements(&op) : Type();
          return computed && computed.isInteger(1);
        })) {}
  void run();

private:
  enum Kind {
    Shrinks,
    Starts,
    GivesBack,
    StartsLater,
    Other,
    Waits,
    WhereNeeded,
    Leaves
  };
  Kind kindOf(Operation *op) const;
  void collect();
  void collectRing(Operation *op);
  void dependOnEnd(Operation *release, Operation *reader);
  void collectCarried();
  void collectStreamed();
  void measure();
  void depend(Operation *op, Operation *on);
  bool isReady(Operation *op) const;
  bool fits(Operation *op) const;
  bool isOfCarried(Operation *product) const;
  Operation *next() const;
  void place(Operation *op);
  void pinComputed();

  Block &block;
  Pressure pressure;
  /// Registers a thread that tiles can have, and while tiles are computed under
  /// products.
  static constexpr int64_t spareComputing = 48;
  /// What stays free where two iterations overlap outside their loop, whose
  /// order has no say there: with none ptxas serialises all products (C7512) at
  /// D=128. As measured there
  /// (benchmarks/experiments/2026-11-26-shared-tiles-later.md).
  static constexpr int64_t spareOfTwo = 32;
  int64_t most, mostComputing;
  /// And where no product in flight reads registers; 0: the same.
  int64_t mostFree;
  /// Whether products of what the loop carries come before all others, and
  /// stages that they have read are given back before these.
  bool carriedFirst;
  /// Whether products that adders add come before others of their kind, and are
  /// handed to these at once.
  bool sumsFirst;
  /// Whether what leads to tiles to be shared, and to nothing else, takes
  /// registers for a piece of them alone.
  bool streams;
  /// Whether warpgroups share what they compute, and whether there is a tile of
  /// bits among it.
  bool sharesTiles, makesBits;
  /// What is not placed yet, in its own order.
  SmallVector<Operation *> left;
  DenseMap<Operation *, llvm::SmallSetVector<Operation *, 4>> needs;
  DenseSet<Operation *> placed;
  /// What leads to tiles to be shared, and to nothing else; none without
  /// `streams`.
  DenseSet<Operation *> streamed;
  /// Clocks of the longest chain that begins with an operation.
  DenseMap<Operation *, int64_t> toEnd;
  /// What has been seen of a ring: stages given back, and tiles in it.
  struct RingState {
    SmallVector<Operation *> releases;
    int64_t held = 0;
  };
  DenseMap<Value, RingState> rings;
};
} // namespace

bool fa::hopper::holdsSteps(Operation *op) {
  return op->getNumRegions() && op->walk([&](Operation *inner) {
                                    return inner != op && isStep(inner)
                                               ? WalkResult::interrupt()
                                               : WalkResult::advance();
                                  }).wasInterrupted();
}

bool fa::hopper::sharesTiles(ConsumersOp role) {
  return role.walk([](ShareOp) { return WalkResult::interrupt(); })
      .wasInterrupted();
}

bool fa::hopper::isView(Operation *op) {
  return isa<tensor::ExtractSliceOp, tensor::PadOp, tensor::CastOp>(op);
}

bool fa::hopper::isNumber(Operation *op) {
  return !isa<HopperDialect>(op->getDialect()) && isMemoryEffectFree(op) &&
         llvm::none_of(op->getResultTypes(), llvm::IsaPred<TensorType>);
}

/// What costs nothing but a few instructions where it is needed.
static bool isNumberOrView(Operation *op) {
  return isView(op) || isNumber(op) || isa<tensor::EmptyOp, linalg::FillOp>(op);
}

BlockOrder::Kind BlockOrder::kindOf(Operation *op) const {
  if (isa<WgmmaOp>(op))
    return Starts;
  if (isa<ReleaseOp>(op))
    return GivesBack;
  if (isa<WaitGroupOp>(op))
    return Waits;
  if (isa<AcquireOp, ReadOp>(op) || isNumberOrView(op))
    return WhereNeeded;
  // Of what is streamed, what is made of numbers alone, as bits are.
  if (streamed.contains(op) && llvm::none_of(op->getOperands(), isInRegisters))
    return WhereNeeded;
  // What goes to memory, as sums do, is a tensor that is in no registers; what
  // takes it from registers frees these.
  auto isMemory = [](Value v) {
    return isa<TensorType>(v.getType()) && !isInRegisters(v);
  };
  llvm::SetVector<Value> used(op->operand_begin(), op->operand_end());
  getUsedValuesDefinedAbove(op->getRegions(), used);
  return !isa<StageOp>(op) && llvm::any_of(op->getResults(), isMemory) &&
                 llvm::none_of(used, [](Value v) { return isInRegisters(v); })
             ? Leaves
             : Other;
}

void BlockOrder::depend(Operation *op, Operation *on) {
  if (on && on != op)
    needs[op].insert(on);
}

/// A stage that is filled, or awaited from the producer, must have been given
/// back: as many of the ring's tiles may be held as it has other stages.
void BlockOrder::collectRing(Operation *op) {
  if (auto release = dyn_cast<ReleaseOp>(op)) {
    RingState &state = rings[ringOfSlot(release.getSlot())];
    state.releases.push_back(op);
    --state.held;
    return;
  }
  RingOp ring;
  if (auto share = dyn_cast<ShareOp>(op))
    ring = share.getRing().getDefiningOp<RingOp>();
  else if (auto acquire = dyn_cast<AcquireOp>(op))
    ring = acquire.getRing().getDefiningOp<RingOp>();
  if (!ring || ring.getWith() || (isa<AcquireOp>(op) && ring.getComputed()))
    return;
  RingState &state = rings[ring];
  int64_t others = ring.getRing().getType().getStages() - 1,
          spare = std::max<int64_t>(0, others - state.held),
          first = state.releases.size() - spare;
  for (int64_t n = 0; n < first; ++n)
    depend(op, state.releases[n]);
  ++state.held;
}

/// A stage is read until products that read it have ended, and until what is
/// computed of a vector of it has been: threads need not load that at once.
/// With a tile's stage those of what comes with it are given back.
void BlockOrder::dependOnEnd(Operation *release, Operation *reader) {
  if (auto companion = dyn_cast<AcquireOp>(reader))
    for (Operation *user : companion.getSlot().getUsers())
      dependOnEnd(release, user);
  if (reader->getBlock() != &block || !isa<WgmmaOp, ReadOp>(reader))
    return;
  for (Operation *user : reader->getUsers()) {
    Operation *inBlock = block.findAncestorOpInBlock(*user);
    if (isa<WgmmaOp>(user))
      dependOnEnd(release, user);
    else if (inBlock && inBlock != block.getTerminator())
      depend(release, inBlock);
  }
}

/// Operands, also those of regions; and what operands do not say: the order in
/// which tiles are taken and in which stages are filled is that of the
/// producer, a stage is given back when all products that read it have been
/// waited for, and what has effects of another kind stays where it is among the
/// steps.
void BlockOrder::collect() {
  for (BlockArgument argument : block.getArguments())
    if (isa<SlotType>(argument.getType()))
      ++rings[ringOfSlot(argument)].held;
  // So are tiles that warpgroups have shared in iterations before.
  for (auto acquire : block.getOps<AcquireOp>())
    if (isComputed(acquire.getRing()) && isa<BlockArgument>(acquire.getTile()))
      rings[acquire.getRing().getDefiningOp<RingOp>()].held +=
          behindOf(acquire);
  Operation *lastBarrier = nullptr;
  DenseMap<int64_t, SmallVector<Operation *>> lastSums;
  DenseMap<int64_t, Operation *> lastLoaded;
  DenseMap<Value, Operation *> lastShare, lastTaken;
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
    collectRing(&op);
    if (auto acquire = dyn_cast<AcquireOp>(op)) {
      // Loaded tiles are taken in the order of the loads, but for those of
      // another iteration.
      Operation *&last = isComputed(acquire.getRing())
                             ? lastTaken[acquire.getRing()]
                             : lastLoaded[behindOf(acquire)];
      depend(&op, last);
      depend(&op, lastShare.lookup(acquire.getRing()));
      last = &op;
    } else if (auto share = dyn_cast<ShareOp>(op)) {
      depend(&op, lastShare.lookup(share.getRing()));
      lastShare[share.getRing()] = &op;
    } else if (auto release = dyn_cast<ReleaseOp>(op)) {
      for (Operation *user : release.getSlot().getUsers())
        dependOnEnd(&op, user);
    } else if (auto stage = dyn_cast<StageOp>(op); stage && stage.holdsSums()) {
      // What lies there is added first.
      for (Operation *sum : lastSums[stage.getOffset()])
        depend(&op, sum);
      lastSums[stage.getOffset()] = sumsOf(stage);
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

/// What the next iteration reads as a product's operand from registers is
/// computed when this iteration's product has ended: both lie in the same
/// registers, as far as assemblers can tell.
void BlockOrder::collectCarried() {
  auto loop = dyn_cast<scf::ForOp>(block.getParentOp());
  if (!loop || &block != loop.getBody())
    return;
  for (auto product : block.getOps<WgmmaOp>()) {
    auto carried = dyn_cast<BlockArgument>(product.getA());
    if (!carried || carried.getOwner() != &block ||
        isa<SlotType>(carried.getType()))
      continue;
    Value result = product.getResults()[0];
    while (auto chained = dyn_cast<WgmmaOp>(*result.user_begin()))
      result = chained.getResults()[0];
    Operation *wait = *result.user_begin();
    // A branch may give on what was there before it.
    llvm::SetVector<Value> next;
    next.insert(loop.getTiedLoopYieldedValue(carried)->get());
    for (size_t n = 0; n < next.size(); ++n) {
      Operation *made = next[n].getDefiningOp();
      if (!made || made->getBlock() != &block || !wait->isBeforeInBlock(made))
        continue;
      depend(made, wait);
      if (auto branch = dyn_cast<scf::IfOp>(made); branch && branch.elseBlock())
        for (Block *side : {branch.thenBlock(), branch.elseBlock()})
          next.insert(side->getTerminator()->getOperand(
              cast<OpResult>(next[n]).getResultNumber()));
    }
  }
}

/// What is computed element by element of one tile that is shared, and for
/// nothing else but to name it behind that. It comes when its stage is empty:
/// nothing that the share waits for waits for it.
void BlockOrder::collectStreamed() {
  DenseMap<Operation *, Operation *> shareOf;
  for (Operation *op : llvm::reverse(left)) {
    if (isa<ShareOp>(op))
      shareOf[op] = op;
    if (!isa<linalg::LinalgOp>(op) || !computedElements(op))
      continue;
    llvm::SmallSetVector<Operation *, 2> shares;
    for (Operation *user : op->getUsers())
      if (Operation *share = shareOf.lookup(user))
        shares.insert(share);
    if (shares.size() != 1)
      continue;
    Operation *share = shares.front();
    auto isRead = [&](OpOperand &use) {
      Operation *user = use.getOwner();
      if (isa<AcquireOp>(user))
        return user->getBlock() != &block || user->isBeforeInBlock(share);
      return !shareOf.contains(user) && !isCarriedAsName(user, use.get());
    };
    if (llvm::any_of(op->getUses(), isRead))
      continue;
    shareOf[op] = share;
    streamed.insert(op);
    for (Operation *on : llvm::to_vector(needs[share]))
      if (!streamed.contains(on))
        depend(op, on);
  }
}

/// About what an operation takes an SM, all warpgroups together: products by
/// the tensor cores' 2048 multiply-adds of 16 bits a clock on sm_90a, all else
/// by its 128 lanes. What is given back of a ring of one stage is loaded again
/// before the next iteration can begin.
static int64_t clocksOf(Operation *op) {
  constexpr int64_t macs = 2048, lanes = 128, latency = 800, loadBytes = 16;
  if (auto release = dyn_cast<ReleaseOp>(op)) {
    Value ring = ringOfSlot(release.getSlot());
    RingType type = cast<RingType>(ring.getType());
    bool isAwaited = type.getStages() == 1 && !isComputed(ring);
    return isAwaited ? latency + type.tileBytes() / loadBytes : 1;
  }
  if (auto product = dyn_cast<WgmmaOp>(op)) {
    ArrayRef<int64_t> c = cast<PendingType>(product.getResults()[0].getType())
                              .getTile()
                              .getShape();
    ArrayRef<int64_t> b = getTileType(product.getB().getType()).getShape();
    return c[0] * c[1] * b[product.getTransposed() ? 0 : 1] / macs;
  }
  int64_t clocks = 1;
  op->walk([&](linalg::LinalgOp math) {
    if (math.hasDynamicShape())
      return;
    int64_t points = 1;
    for (int64_t size : math.getStaticLoopRanges())
      points *= size;
    clocks += points * math.getBlock()->getOperations().size() / lanes;
  });
  return clocks;
}

void BlockOrder::measure() {
  for (Operation *op : llvm::reverse(left)) {
    int64_t clocks = toEnd[op] += clocksOf(op);
    for (Operation *on : needs[op]) {
      int64_t &longest = toEnd[on];
      longest = std::max(longest, clocks);
    }
  }
}

/// What comes where it is needed is not waited for.
bool BlockOrder::isReady(Operation *op) const {
  auto it = needs.find(op);
  return it == needs.end() || llvm::all_of(it->second, [&](Operation *on) {
           return placed.contains(on) ||
                  (kindOf(on) == WhereNeeded && isReady(on));
         });
}

/// What computes a tile under products, of as many registers as it frees even,
/// takes some for a moment, and more where it reads memory, of a branch on
/// either side. Bits, of which a register holds many, take few, and fill the
/// time by themselves where warpgroups share nothing. All has its place with no
/// product in flight, and what is streamed always has.
bool BlockOrder::fits(Operation *op) const {
  constexpr int64_t moment = 8, addresses = 16;
  if (streamed.contains(op))
    return true;
  // Nothing that has to stay where it is in registers but results.
  bool areFree = mostFree && !pressure.holdsOperands();
  int64_t growth = pressure.growth(op),
          room = (areFree ? mostFree : most) - pressure.live();
  Type computed = kindOf(op) == Other ? computedElements(op) : Type();
  if (!computed || growth < 0)
    return growth <= 0 || growth <= room;
  if (!pressure.pendingProducts())
    return !sharesTiles || growth <= 0 || growth <= room;
  if (computed.isInteger(1))
    return growth + moment <= room;
  if (makesBits && !sharesTiles)
    return false;
  bool reads = llvm::all_of(op->getRegions(), readsElements);
  return growth + (reads ? addresses : 0) <=
         (areFree ? mostFree : mostComputing) - pressure.live();
}

/// Whether an operand is a tile that the loop carries, or the stage that one of
/// them was put into.
bool BlockOrder::isOfCarried(Operation *product) const {
  return llvm::any_of(product->getOperands(), [&](Value v) {
    if (auto acquire = v.getDefiningOp<AcquireOp>())
      v = acquire.getTile();
    return isa<BlockArgument>(v) && v.getParentBlock() == &block;
  });
}

/// Whether an adder adds a product's result.
static bool isSum(WgmmaOp product) {
  return llvm::any_of(
      product.getResults().front().getUsers(), [](Operation *op) {
        auto wait = dyn_cast<WaitGroupOp>(op);
        return wait && llvm::any_of(wait->getUsers(), [](Operation *user) {
                 auto stage = dyn_cast<StageOp>(user);
                 return stage && stage.getAdders();
               });
      });
}

/// Of what is ready and fits, the first kind's first operation: of products the
/// one that most is to follow, of waits the one that waits for the fewest. What
/// does not fit comes when nothing is left to wait for, the smallest first.
Operation *BlockOrder::next() const {
  Operation *best = nullptr;
  std::tuple<bool, int64_t, int64_t> bestCost;
  for (Operation *op : left) {
    if (!isReady(op) ||
        (isa<WgmmaOp>(op) && pressure.pendingProducts() >= size_t(maxPending)))
      continue;
    Kind kind = kindOf(op);
    int64_t inKind = 0;
    if (auto wait = dyn_cast<WaitGroupOp>(op))
      inKind = pressure.endedBy(wait);
    else if (kind == Starts)
      inKind = -toEnd.lookup(op);
    bool tooLarge = !fits(op);
    if (kind == Other && pressure.growth(op) < 0)
      kind = Shrinks;
    if (kind == Starts && carriedFirst && !isOfCarried(op))
      kind = StartsLater;
    if (auto product = dyn_cast<WgmmaOp>(op);
        product && sumsFirst && isSum(product))
      inKind = INT64_MIN;
    // What is staged next waits for the adder.
    if (auto sum = dyn_cast<fa::AccumulateSliceOp>(op);
        sum && sumsFirst && isHanded(sum))
      kind = GivesBack;
    std::tuple<bool, int64_t, int64_t> cost(
        tooLarge, tooLarge ? pressure.growth(op) : kind, inKind);
    if (best && cost >= bestCost)
      continue;
    best = op;
    bestCost = cost;
  }
  return best;
}

void BlockOrder::place(Operation *op) {
  for (Operation *on : needs[op])
    if (!placed.contains(on))
      place(on);
  llvm::erase(left, op);
  placed.insert(op);
  op->moveBefore(&block, block.without_terminator().end());
  pressure.place(op);
  if (auto wait = dyn_cast<WaitGroupOp>(op))
    wait.setPending(pressure.pendingProducts());
}

/// What is computed is computed where it stands: an assembler would have it
/// later, under the wait, or keep what it is computed of beside the results of
/// the next product.
void BlockOrder::pinComputed() {
  SmallVector<Value> computed;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (isa<linalg::LinalgOp, scf::IfOp>(op)) {
      for (Value v : op.getResults())
        if (isInRegisters(v) &&
            cast<RankedTensorType>(v.getType()).getRank() == 2)
          computed.push_back(v);
      continue;
    }
    if (!isa<WgmmaOp, WaitGroupOp>(op))
      continue;
    auto isUsedLater = [&](Value v) {
      return llvm::any_of(v.getUsers(), [&](Operation *user) {
        Operation *at = block.findAncestorOpInBlock(*user);
        return at != &op && op.isBeforeInBlock(at) &&
               surelyUsedBy(at).contains(v);
      });
    };
    llvm::erase_if(computed, [&](Value v) {
      return !isUsedLater(v) ||
             llvm::any_of(v.getUsers(), llvm::IsaPred<PinOp>);
    });
    if (computed.empty())
      continue;
    OpBuilder b(&op);
    auto pin = PinOp::create(b, op.getLoc(), TypeRange(ValueRange(computed)),
                             computed);
    for (auto [v, pinned] : llvm::zip(computed, pin.getResults()))
      v.replaceUsesWithIf(pinned, [&](OpOperand &use) {
        Operation *at = block.findAncestorOpInBlock(*use.getOwner());
        return at != pin && pin->isBeforeInBlock(at);
      });
    computed.clear();
  }
}

void BlockOrder::run() {
  collect();
  collectCarried();
  if (streams)
    collectStreamed();
  measure();
  while (Operation *op = next())
    place(op);
  pinComputed();
}

namespace {
struct OrderSteps : public fa::hopper::impl::OrderStepsPassBase<OrderSteps> {
  void runOnOperation() override {
    getOperation().walk([](ConsumersOp role) {
      llvm::SetVector<Block *> blocks;
      role.walk([&](WgmmaOp product) { blocks.insert(product->getBlock()); });
      for (Block *block : blocks)
        BlockOrder(*block, role).run();
    });
  }
};
} // namespace
