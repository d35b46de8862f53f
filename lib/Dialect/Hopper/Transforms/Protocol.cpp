// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Protocol.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace fa::hopper;

static StringRef nameOf(Value ring) {
  return ring.getDefiningOp<RingOp>().getName();
}

//===----------------------------------------------------------------------===//
// The consumers by themselves
//===----------------------------------------------------------------------===//

namespace {
/// A product in flight.
struct Group {
  mutable WgmmaOp op; // MLIR's op classes lack const
  /// Those that it reads.
  SmallVector<int64_t, 2> slots;
  /// Which of all products of the tile it is.
  unsigned number;
};

class ConsumersChecker {
public:
  ConsumersChecker(bool stays, Describe describe)
      : stays(stays), describe(describe) {}
  LogicalResult check(const Trace &trace);

private:
  struct SlotState {
    AcquireOp acquired;
    bool held = false;
    Operation *released = nullptr;
    /// Which of its ring's tiles it is.
    int64_t position = 0;
    /// Those that are given back with it.
    SmallVector<int64_t, 2> companions = {};
  };
  /// What has to be the same where a region ends.
  struct Frame {
    Operation *op;
    size_t inFlight;
    bool hasTurn;
  };

  LogicalResult run(const Step &step);
  LogicalResult read(Operation *op, ArrayRef<int64_t> read);
  LogicalResult start(WgmmaOp op, ArrayRef<int64_t> read);
  LogicalResult wait(WaitGroupOp op);
  LogicalResult acquire(AcquireOp op, ArrayRef<int64_t> taken);
  LogicalResult release(ReleaseOp op, int64_t number);
  void giveBack(Operation *op, SlotState &slot);
  LogicalResult checkShares() const;
  LogicalResult turn(Operation *op);
  LogicalResult leave(Operation *op);
  LogicalResult finish();
  InFlightDiagnostic report(Operation *op, const Twine &message);

  bool stays;
  Describe describe;
  SmallVector<Group> inFlight;
  unsigned products = 0;
  /// The product that a pending value is of.
  DenseMap<Value, unsigned> productOf;
  llvm::MapVector<int64_t, SlotState> slots;
  /// How many slots of an operation are held at a time.
  DenseMap<Operation *, int64_t> heldOf;
  /// Of rings that the consumers fill: how often they fill a stage less how
  /// often they take one.
  llvm::MapVector<Value, int64_t> ahead;
  /// How many of a ring's tiles were taken.
  llvm::MapVector<Value, int64_t> taken;
  /// A ring that was polled and not yet acquired.
  PollOp polled;
  SmallVector<Frame> frames;
  Operation *turnBegan = nullptr;
};
} // namespace

InFlightDiagnostic ConsumersChecker::report(Operation *op,
                                            const Twine &message) {
  InFlightDiagnostic diag = op->emitOpError(message);
  describe(diag);
  return diag;
}

LogicalResult ConsumersChecker::read(Operation *op, ArrayRef<int64_t> read) {
  for (int64_t slot : read) {
    auto it = slots.find(slot);
    if (it != slots.end() && it->second.held)
      continue;
    InFlightDiagnostic diag = report(op, "reads a slot that was given back");
    if (it != slots.end() && it->second.released)
      diag.attachNote(it->second.released->getLoc()) << "here";
    return diag;
  }
  return success();
}

LogicalResult ConsumersChecker::start(WgmmaOp op, ArrayRef<int64_t> read) {
  if (failed(this->read(op, read)))
    return failure();
  for (Value result : op.getResults())
    productOf[result] = products;
  inFlight.push_back({op, SmallVector<int64_t, 2>(read), products++});
  return success();
}

LogicalResult ConsumersChecker::wait(WaitGroupOp op) {
  size_t left = std::min<size_t>(inFlight.size(), op.getPending());
  inFlight.erase(inFlight.begin(), inFlight.end() - left);
  for (Value value : op.getValues()) {
    unsigned product = productOf.lookup(value);
    for (const Group &group : inFlight)
      if (group.number == product) {
        InFlightDiagnostic diag =
            report(op, "leaves " + Twine(op.getPending()) +
                           " products in flight, among them one whose result "
                           "it gives; let fewer be pending");
        diag.attachNote(group.op.getLoc()) << "this one";
        return diag;
      }
  }
  return success();
}

LogicalResult ConsumersChecker::acquire(AcquireOp op,
                                        ArrayRef<int64_t> numbers) {
  Value ring = op.getRing();
  int64_t number = numbers[0], position = taken[ring]++;
  if (op.getWith()) {
    SlotState &leader = slots[numbers[1]];
    if (!leader.held || leader.position != position) {
      InFlightDiagnostic diag =
          report(op, "takes tile " + Twine(position) + " of ring \"" +
                         nameOf(ring) + "\" with " +
                         (leader.held ? "tile " + Twine(leader.position)
                                      : Twine("one that was given back")) +
                         " of ring \"" + nameOf(leaderOf(ring)) +
                         "\"; take it with its own, while that is held");
      if (leader.released)
        diag.attachNote(leader.released->getLoc()) << "given back here";
      return diag;
    }
    leader.companions.push_back(number);
  }
  if (polled && polled.getRing() != ring) {
    InFlightDiagnostic diag =
        report(op, "takes a tile of ring \"" + nameOf(ring) +
                       "\", and the one that was polled is the next");
    diag.attachNote(polled.getLoc()) << "polled here";
    return diag;
  }
  if (op.getPolled() && !polled)
    return report(op, "takes a stage as full that no hopper.poll waited for");
  polled = {};
  // Those that a loop carries are held beside it, each in a stage.
  if (heldOf[op] == op.getRing().getType().getStages())
    return report(op, "is reached again before its slot was given back: its "
                      "stage is lost");
  ++heldOf[op];
  SlotState &slot = slots[number];
  slot.acquired = op;
  slot.held = true;
  slot.position = position;
  if (isComputed(ring) && --ahead[ring] < 0)
    return report(op, "takes a tile of ring \"" + nameOf(ring) +
                          "\" that no hopper.share before it has filled");
  return success();
}

LogicalResult ConsumersChecker::release(ReleaseOp op, int64_t number) {
  SlotState &slot = slots[number];
  if (!slot.held) {
    InFlightDiagnostic diag = report(op, "gives a slot back twice");
    if (slot.released)
      diag.attachNote(slot.released->getLoc()) << "before, here";
    return diag;
  }
  for (const Group &group : inFlight) {
    if (llvm::is_contained(group.slots, number)) {
      InFlightDiagnostic diag =
          report(op, "gives back a slot that a product in flight reads; wait "
                     "for it first");
      diag.attachNote(group.op.getLoc()) << "this one";
      return diag;
    }
  }
  for (int64_t companion : slot.companions)
    giveBack(op, slots[companion]);
  giveBack(op, slots[number]);
  return success();
}

void ConsumersChecker::giveBack(Operation *op, SlotState &slot) {
  --heldOf[slot.acquired];
  slot.held = false;
  slot.released = op;
}

LogicalResult ConsumersChecker::turn(Operation *op) {
  bool begins = isa<TurnBeginOp>(op);
  if (begins == (turnBegan != nullptr))
    return report(op, begins ? "begins a turn in a turn"
                             : "ends a turn that was not begun");
  turnBegan = begins ? op : nullptr;
  return success();
}

LogicalResult ConsumersChecker::run(const Step &step) {
  Operation *op = step.op;
  // The assembler keeps products in flight over a branch that has nothing to
  // do with them.
  for (const Frame &frame : frames)
    if (isa<scf::IfOp>(frame.op) && frame.inFlight && !isa<PollOp>(op))
      return report(op, "is in a branch that begins while a product is in "
                        "flight; only hopper.poll may be");
  if (auto product = dyn_cast<WgmmaOp>(op))
    return start(product, step.slots);
  if (isa<ReadOp>(op))
    return read(op, step.slots);
  if (auto waiting = dyn_cast<WaitGroupOp>(op))
    return wait(waiting);
  if (auto sharing = dyn_cast<ShareOp>(op)) {
    ++ahead[sharing.getRing()];
    return success();
  }
  if (auto taking = dyn_cast<AcquireOp>(op))
    return acquire(taking, step.slots);
  if (auto giving = dyn_cast<ReleaseOp>(op))
    return step.condition ? release(giving, step.slots[0]) : success();
  if (auto poll = dyn_cast<PollOp>(op)) {
    if (polled && polled.getRing() != poll.getRing())
      return report(op, "polls ring \"" + nameOf(poll.getRing()) +
                            "\" before the tile of ring \"" +
                            nameOf(polled.getRing()) +
                            "\" that was polled is taken");
    polled = poll;
    return success();
  }
  return turn(op);
}

/// What a region began with must be there at its end. A product that it began
/// itself is awaited in its own block (the verifier of hopper.wgmma).
LogicalResult ConsumersChecker::leave(Operation *op) {
  Frame frame = frames.pop_back_val();
  if (inFlight.size() != frame.inFlight)
    return report(op, "ends with " + Twine(inFlight.size()) +
                          " products in flight and began with " +
                          Twine(frame.inFlight));
  if (frame.hasTurn != (turnBegan != nullptr))
    return report(op, "ends with another turn than it began with");
  return success();
}

/// Later tiles take up where this one ends.
LogicalResult ConsumersChecker::checkShares() const {
  for (auto &[ring, count] : ahead)
    if (count) {
      InFlightDiagnostic diag =
          ring.getDefiningOp<RingOp>()->emitOpError("is filled with ")
          << count << " tiles more than the consumers take";
      describe(diag);
      return diag;
    }
  for (auto &[leader, count] : taken)
    for (RingOp ring : companionsOf(leader))
      if (int64_t own = taken.lookup(ring.getRing()); own != count) {
        InFlightDiagnostic diag = ring.emitOpError("is with ring \"")
                                  << nameOf(leader) << "\", of which " << count
                                  << " tiles are taken, and of its own " << own
                                  << "; take one with each";
        describe(diag);
        return diag;
      }
  return success();
}

LogicalResult ConsumersChecker::finish() {
  if (failed(checkShares()))
    return failure();
  if (polled)
    return report(polled, "waits for a tile of ring \"" +
                              nameOf(polled.getRing()) +
                              "\" that is not taken afterwards");
  if (turnBegan)
    return report(turnBegan, "begins a turn that does not end");
  if (stays)
    for (auto &[slot, state] : slots)
      if (state.held)
        return report(state.acquired,
                      "gets a slot that is not given back in this tile, and "
                      "the block has others");
  return success();
}

LogicalResult ConsumersChecker::check(const Trace &trace) {
  for (const Step &step : trace) {
    LogicalResult result = success();
    if (step.kind == Step::Run) {
      result = run(step);
    } else if (step.kind == Step::Enter) {
      frames.push_back({step.op, inFlight.size(), turnBegan != nullptr});
    } else {
      result = leave(step.op);
    }
    if (failed(result))
      return failure();
  }
  return finish();
}

LogicalResult fa::hopper::checkConsumers(const Trace &trace, bool stays,
                                         Describe describe) {
  return ConsumersChecker(stays, describe).check(trace);
}

//===----------------------------------------------------------------------===//
// Both roles
//===----------------------------------------------------------------------===//

LogicalResult fa::hopper::checkLoads(const TileTrace &tile, ProducerOp producer,
                                     Describe describe) {
  using Steps = SmallVector<const Step *>;
  llvm::MapVector<Value, std::pair<Steps, Steps>> rings;
  for (const Step &step : tile.producer)
    if (auto load = dyn_cast<LoadOp>(step.op))
      rings[load.getRing()].first.push_back(&step);
  for (const Step &step : tile.consumers)
    if (auto acquire = dyn_cast<AcquireOp>(step.op);
        acquire && !isComputed(acquire.getRing()))
      rings[acquire.getRing()].second.push_back(&step);
  for (auto &[ring, steps] : rings) {
    auto &[loads, acquires] = steps;
    if (loads.size() != acquires.size()) {
      InFlightDiagnostic diag =
          producer.emitOpError("expected as many loads of ring \"")
          << nameOf(ring) << "\" as the consumers take of its tiles, "
          << acquires.size() << ", got " << loads.size();
      describe(diag);
      return diag;
    }
    for (auto [n, load] : llvm::enumerate(loads))
      if (load->tile != acquires[n]->tile) {
        InFlightDiagnostic diag =
            load->op->emitOpError("brings another tile of "
                                  "ring \"")
            << nameOf(ring) << "\" than the consumers take, as number " << n;
        diag.attachNote(acquires[n]->op->getLoc()) << "taken here";
        describe(diag);
        return diag;
      }
  }
  return success();
}

namespace {
/// A role of one warpgroup, or the producer, somewhere in its tiles.
struct Agent {
  bool produces = false;
  size_t tile = 0, step = 0;
  bool began = false, ended = false;
  /// Turns that it has begun and ended.
  int64_t begun = 0, over = 0;
  llvm::DenseMap<Value, int64_t> acquired, shared;
  /// The ring's positions that slots hold.
  llvm::DenseMap<int64_t, int64_t> held;
};

struct RingState {
  int64_t loaded = 0;
  /// How many warpgroups have given a position's stage back, and of a ring that
  /// they fill themselves how many have filled it.
  SmallVector<int64_t> given, filled;
};

class BlockRun {
public:
  BlockRun(ArrayRef<const TileTrace *> tiles, int64_t warpgroups)
      : tiles(tiles), warpgroups(warpgroups) {
    agents.resize(warpgroups + 1);
    agents.back().produces = true;
  }
  /// Runs until all have ended or nobody can go on; true if all ended.
  bool run();
  /// The operation that an agent waits at; null: a tile's coordinates.
  Operation *waitsAt(const Agent &agent) const {
    return agent.began ? traceOf(agent)[agent.step].op : nullptr;
  }
  ArrayRef<Agent> all() const { return agents; }

private:
  const Trace &traceOf(const Agent &agent) const {
    const TileTrace *tile = tiles[agent.tile];
    return agent.produces ? tile->producer : tile->consumers;
  }
  bool advance(Agent &agent, int64_t index);
  bool begin(const Agent &agent) const;
  bool isEmpty(Value ring, int64_t position);
  bool isFull(Value ring, int64_t position);
  bool load(LoadOp op);
  bool share(Agent &agent, ShareOp op);
  bool act(Agent &agent, int64_t index, const Step &step);

  ArrayRef<const TileTrace *> tiles;
  int64_t warpgroups;
  SmallVector<Agent> agents;
  llvm::DenseMap<Value, RingState> rings;
};
} // namespace

/// Coordinates go through two slots of the queue.
bool BlockRun::begin(const Agent &agent) const {
  if (!agent.produces) {
    const Agent &producer = agents.back();
    return producer.ended || producer.tile > agent.tile ||
           (producer.tile == agent.tile && producer.began);
  }
  return llvm::all_of(ArrayRef(agents).drop_back(), [&](const Agent &other) {
    return other.ended ||
           static_cast<int64_t>(other.tile) >=
               static_cast<int64_t>(agent.tile) + 1 - TileQueueOp::slots;
  });
}

/// Whether all have given back what the stage of a position held before.
bool BlockRun::isEmpty(Value ring, int64_t position) {
  int64_t before = position - cast<RingType>(ring.getType()).getStages();
  Value leader = leaderOf(ring);
  ArrayRef<int64_t> given = rings[leader ? leader : ring].given;
  return before < 0 || (before < static_cast<int64_t>(given.size()) &&
                        given[before] == warpgroups);
}

/// Of a ring, and of those that fill with it.
bool BlockRun::isFull(Value ring, int64_t position) {
  return rings[ring].loaded > position &&
         llvm::all_of(companionsOf(ring), [&](RingOp companion) {
           return rings[companion.getRing()].loaded > position;
         });
}

bool BlockRun::load(LoadOp op) {
  RingState &ring = rings[op.getRing()];
  if (!isEmpty(op.getRing(), ring.loaded))
    return false;
  ++ring.loaded;
  return true;
}

/// A stage is full when all warpgroups have filled it.
bool BlockRun::share(Agent &agent, ShareOp op) {
  int64_t &position = agent.shared[op.getRing()];
  bool isGuarded = !op.getRing().getDefiningOp<RingOp>().getUnguarded();
  if (isGuarded && !isEmpty(op.getRing(), position))
    return false;
  RingState &ring = rings[op.getRing()];
  if (position >= static_cast<int64_t>(ring.filled.size()))
    ring.filled.resize(position + 1, 0);
  if (++ring.filled[position++] == warpgroups)
    ++ring.loaded;
  return true;
}

/// Does what a step says, or returns false where it has to wait.
bool BlockRun::act(Agent &agent, int64_t index, const Step &step) {
  if (auto op = dyn_cast<LoadOp>(step.op))
    return load(op);
  if (auto op = dyn_cast<ShareOp>(step.op))
    return share(agent, op);
  if (auto op = dyn_cast<PollOp>(step.op))
    return isFull(op.getRing(), agent.acquired[op.getRing()]);
  if (auto op = dyn_cast<AcquireOp>(step.op)) {
    int64_t &position = agent.acquired[op.getRing()];
    if (!op.getWith() && !isFull(op.getRing(), position))
      return false;
    agent.held[step.slots[0]] = position++;
    return true;
  }
  if (auto op = dyn_cast<ReleaseOp>(step.op)) {
    if (!step.condition)
      return true;
    RingState &ring = rings[ringOfSlot(op.getSlot()).getRing()];
    int64_t position = agent.held[step.slots[0]];
    if (position >= static_cast<int64_t>(ring.given.size()))
      ring.given.resize(position + 1, 0);
    ++ring.given[position];
    return true;
  }
  if (isa<TurnBeginOp>(step.op)) {
    // The last warpgroup gives the first turn before it does anything.
    const Agent &before = agents[(index + warpgroups - 1) % warpgroups];
    if (before.over + (index == 0) <= agent.begun)
      return false;
    ++agent.begun;
  } else if (isa<TurnEndOp>(step.op)) {
    ++agent.over;
  }
  return true;
}

/// Goes on as far as it gets; whether it got anywhere.
bool BlockRun::advance(Agent &agent, int64_t index) {
  bool moved = false;
  while (!agent.ended) {
    if (!agent.began && !begin(agent))
      return moved;
    agent.began = true;
    const Trace &trace = traceOf(agent);
    for (; agent.step < trace.size(); ++agent.step, moved = true)
      if (const Step &step = trace[agent.step];
          step.kind == Step::Run && !act(agent, index, step))
        return moved;
    moved = true;
    agent.step = 0;
    agent.began = false;
    agent.ended = ++agent.tile == tiles.size();
  }
  return moved;
}

bool BlockRun::run() {
  bool moved = true;
  while (moved) {
    moved = false;
    for (auto [index, agent] : llvm::enumerate(agents))
      moved |= advance(agent, index);
  }
  return llvm::all_of(agents, [](const Agent &agent) { return agent.ended; });
}

namespace {
/// How far the consumers are with a ring that they fill themselves.
struct FilledRing {
  int64_t filled = 0, taken = 0;
  /// Of each position that was given back: how many had been filled by then.
  llvm::DenseMap<int64_t, int64_t> filledBefore;
};
} // namespace

/// A stage is filled again: the position that it had before was given back, by
/// all, before they filled one that was then waited for.
static bool isKnownEmpty(const FilledRing &ring, int64_t stages) {
  int64_t before = ring.filled - stages;
  if (before < 0)
    return true;
  auto given = ring.filledBefore.find(before);
  return given != ring.filledBefore.end() && ring.taken > given->second;
}

LogicalResult fa::hopper::checkUnguarded(ArrayRef<const TileTrace *> tiles,
                                         Describe describe) {
  llvm::DenseMap<Value, FilledRing> rings;
  auto unguarded = [&](Value ring) -> FilledRing * {
    return ring.getDefiningOp<RingOp>().getUnguarded() ? &rings[ring] : nullptr;
  };
  for (const TileTrace *tile : tiles) {
    llvm::DenseMap<int64_t, int64_t> positions;
    for (const Step &step : tile->consumers) {
      if (step.kind != Step::Run)
        continue;
      if (auto op = dyn_cast<ShareOp>(step.op)) {
        FilledRing *ring = unguarded(op.getRing());
        if (ring && !isKnownEmpty(*ring, op.getRing().getType().getStages())) {
          InFlightDiagnostic diag =
              op.emitOpError("fills a stage of ring \"")
              << nameOf(op.getRing())
              << "\", and nothing shows that all warpgroups have given it "
                 "back: "
                 "give it back before another one is filled and awaited, or "
                 "leave out `unguarded`";
          describe(diag);
          return diag;
        }
        if (ring)
          ++ring->filled;
      } else if (auto op = dyn_cast<AcquireOp>(step.op)) {
        if (FilledRing *ring = unguarded(op.getRing()))
          positions[step.slots[0]] = ring->taken++;
      } else if (auto op = dyn_cast<ReleaseOp>(step.op); op && step.condition) {
        Value of = ringOfSlot(op.getSlot()).getRing();
        if (FilledRing *ring = unguarded(of))
          ring->filledBefore[positions[step.slots[0]]] = ring->filled;
      }
    }
  }
  return success();
}

LogicalResult fa::hopper::checkProgress(ArrayRef<const TileTrace *> tiles,
                                        ConsumersOp consumers,
                                        ProducerOp producer,
                                        Describe describe) {
  BlockRun block(tiles, consumers.getWarpgroups());
  if (block.run())
    return success();
  // Whom the others wait for, first: one that works on rings.
  std::optional<InFlightDiagnostic> diag;
  for (const Agent &agent : block.all()) {
    if (agent.ended)
      continue;
    Operation *op = block.waitsAt(agent);
    Operation *role =
        agent.produces ? producer.getOperation() : consumers.getOperation();
    if (!diag) {
      diag.emplace(
          (op ? op : role)
              ->emitOpError(
                  "waits for ever: nothing that the other roles still do, "
                  "which "
                  "wait as well, comes before it; have both roles work on "
                  "rings in one "
                  "order, give stages back earlier, or have more of them"));
      describe(*diag);
    } else {
      diag->attachNote((op ? op : role)->getLoc())
          << (agent.produces ? "the producer" : "another warpgroup")
          << " waits here";
    }
  }
  if (llvm::all_of(block.all(), [](const Agent &agent) {
        return !agent.produces || agent.ended;
      }))
    diag->attachNote(producer.getLoc()) << "the producer has ended";
  return std::move(*diag);
}
