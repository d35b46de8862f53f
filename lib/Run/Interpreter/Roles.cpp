// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The operations of the hopper dialect, as a role does them.

#include "Team.h"

#include <cmath>

using namespace mlir;
using namespace fa;
using namespace fa::run;
using namespace fa::run::interpreter;

std::string RoleAgent::name() const {
  return isProducer() ? "the producer"
                      : "warpgroup " + std::to_string(warpgroup);
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

Progress RoleAgent::advance() { return frames.empty() ? nextTile() : step(); }

/// Without a queue a block has one tile. With one the producer is at most as
/// many tiles ahead as the queue has slots.
Progress RoleAgent::nextTile() {
  int64_t count = team.tiles.size();
  bool persistent = team.isPersistent();
  if (persistent && isProducer()) {
    if (tile - hopper::TileQueueOp::slots >= team.leastEnded())
      return Progress::Blocked;
    team.published = tile + 1;
  } else if (persistent && team.published <= tile) {
    return Progress::Blocked;
  }
  if (tile == count)
    return Progress::Ended;
  for (auto [iv, i] : llvm::zip(team.op.getInductionVars(), team.tiles[tile]))
    set(iv, Cell::ofInt(i));
  enter(team.op, *team.op.getBody());
  return Progress::Met;
}

/// A warpgroup's part of a tile, as far as a slice of it reaches.
Agent::Part RoleAgent::partOf(Value v, ArrayRef<int64_t> shape) {
  if (auto role = v.getDefiningOp<hopper::ConsumersOp>())
    v = role.getBody().front().getTerminator()->getOperand(
        cast<OpResult>(v).getResultNumber());
  while (auto slice = v.getDefiningOp<tensor::ExtractSliceOp>())
    v = slice.getSource();
  ArrayRef<int64_t> whole = cast<RankedTensorType>(v.getType()).getShape();
  Part part = Agent::partOf(v, shape);
  if (isProducer() || shape.empty() || shape.size() > 2 || whole.size() > 2 ||
      ShapedType::isDynamicShape(whole))
    return part;
  auto own =
      hopper::Division::of(whole, team.warpgroups).part(whole, warpgroup);
  if (auto stage = v.getDefiningOp<hopper::StageOp>();
      stage && stage.getTurned()) {
    ArrayRef<int64_t> tile = stage.getTile().getType().getShape();
    auto turned =
        hopper::Division::of(tile, team.warpgroups).part(tile, warpgroup);
    own = {turned.firstCol, turned.endCol, turned.firstRow, turned.endRow};
  }
  auto cut = [&](unsigned d, int64_t first, int64_t end) {
    part.offsets[d] = std::min(first, shape[d]);
    part.sizes[d] = std::min(end, shape[d]) - part.offsets[d];
  };
  cut(0, own.firstRow, own.endRow);
  if (shape.size() == 2)
    cut(1, own.firstCol, own.endCol);
  return part;
}

/// The tile's end: this warpgroup's part is stored.
Progress RoleAgent::leaveForall(Operation *terminator) {
  if (frames.back().op != team.op)
    return Agent::leaveForall(terminator);
  if (!isProducer())
    for (Operation &inner : *team.op.getTerminator().getBody()) {
      // It has been added already, part by part.
      if (isa<ParallelAccumulateOp>(inner))
        continue;
      auto part = dyn_cast<tensor::ParallelInsertSliceOp>(inner);
      if (!part)
        return fail(&inner, "is not interpreted in a block with roles");
      if (failed(insert(part)))
        return Progress::Failed;
    }
  frames.pop_back();
  ++tile;
  return Progress::Met;
}

Progress RoleAgent::leaveRole(Operation *terminator) {
  Operation *op = frames.back().op;
  if (isa<hopper::ProducerOp>(op)) {
    frames.pop_back();
    // What follows is the consumers'.
    frames.pop_back();
    ++tile;
    return Progress::Met;
  }
  if (!isa<hopper::ConsumersOp>(op))
    return fail(op, "is not interpreted");
  if (!groups.empty())
    return fail(groups.front()->op,
                "is in flight at the end of the consumers; " + name() +
                    " does not wait for it");
  if (isInTurn)
    return fail(op, "ends in a turn of " + name());
  return leaveInto(terminator, op->getResults());
}

//===----------------------------------------------------------------------===//
// Dispatch
//===----------------------------------------------------------------------===//

Progress RoleAgent::runHopper(Operation *op) {
  if (isa<hopper::RingOp, hopper::TileQueueOp>(op))
    return Progress::Moved;
  if (isa<hopper::ProducerOp, hopper::ConsumersOp>(op) &&
      op->getParentOp() == team.op) {
    if (isa<hopper::ProducerOp>(op) == isProducer())
      enter(op, op->getRegion(0).front());
    return Progress::Moved;
  }
  if (auto load = dyn_cast<hopper::LoadOp>(op))
    return this->load(load);
  if (auto share = dyn_cast<hopper::ShareOp>(op))
    return this->share(share);
  if (auto acquire = dyn_cast<hopper::AcquireOp>(op))
    return this->acquire(acquire);
  if (auto poll = dyn_cast<hopper::PollOp>(op))
    return this->poll(poll);
  if (auto release = dyn_cast<hopper::ReleaseOp>(op))
    return this->release(release);
  if (auto read = dyn_cast<hopper::ReadOp>(op))
    return readVector(read);
  if (auto product = dyn_cast<hopper::WgmmaOp>(op))
    return this->product(product);
  if (auto wait = dyn_cast<hopper::WaitGroupOp>(op))
    return this->wait(wait);
  if (auto begin = dyn_cast<hopper::TurnBeginOp>(op))
    return beginTurn(begin);
  if (auto end = dyn_cast<hopper::TurnEndOp>(op))
    return endTurn(end);
  if (auto sums = dyn_cast<hopper::PartialSumsOp>(op))
    return partialSums(sums);
  if (auto exceeds = dyn_cast<hopper::ExceedsOp>(op))
    return this->exceeds(exceeds);
  if (auto pin = dyn_cast<hopper::PinOp>(op))
    return same(pin.getValues(), pin.getResults());
  if (auto stage = dyn_cast<hopper::StageOp>(op))
    return this->stage(stage);
  return fail(op, "is not interpreted");
}

/// A product that is pinned or staged while it is in flight is read.
Progress RoleAgent::same(ValueRange values, ValueRange results) {
  for (auto [v, result] : llvm::zip(values, results)) {
    FailureOr<Tensor> t = tensor(v);
    if (failed(t))
      return Progress::Failed;
    set(result, Cell::of(*t));
  }
  return Progress::Moved;
}

/// A turned tile is the transpose of the result.
Progress RoleAgent::stage(hopper::StageOp op) {
  if (!op.getTurned())
    return same(op.getTile(), op.getResult());
  FailureOr<Tensor> t = tensor(op.getTile());
  if (failed(t))
    return Progress::Failed;
  set(op.getResult(), Cell::of(t->transposed()));
  return Progress::Moved;
}

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

static Stage &stageAt(Ring &ring, uint64_t position) {
  return ring.stages[position % ring.stages.size()];
}

static uint64_t parityAt(Ring &ring, uint64_t position) {
  return position / ring.stages.size() % 2;
}

/// Whether a phase of this parity has ended.
static bool hasEnded(uint64_t phases, uint64_t parity) {
  return phases % 2 != parity;
}

std::string Hold::name() const {
  return "ring \"" + ring->op.getName().str() + "\", stage " +
         std::to_string(position % ring->stages.size());
}

bool RoleAgent::isFull(Ring &ring, uint64_t position) {
  return hasEnded(stageAt(ring, position).fullPhases,
                  parityAt(ring, position)) &&
         llvm::all_of(ring.companions,
                      [&](Ring *other) { return isFull(*other, position); });
}

/// Takes the next stage of a ring, once it is empty, for a tile.
Progress RoleAgent::fill(Operation *op, Value of, Value content, Stage *&stage,
                         Tensor &tile) {
  Ring *ring = team.ring(of);
  if (!ring)
    return fail(op, "has a ring that is not one of the block's");
  uint64_t &position = fills[ring];
  Stage &next = stageAt(*ring, position);
  // The first round finds all stages empty: a wait for the phase before.
  if (!ring->op.getUnguarded() &&
      !hasEnded(next.emptyPhases, parityAt(*ring, position) ^ 1))
    return Progress::Blocked;
  FailureOr<Tensor> t = tensor(content);
  if (failed(t))
    return Progress::Failed;
  stage = &next;
  tile = *t;
  ++position;
  return Progress::Met;
}

Progress RoleAgent::load(hopper::LoadOp op) {
  Stage *stage;
  Tensor tile;
  Progress progress = fill(op, op.getRing(), op.getTile(), stage, tile);
  if (progress == Progress::Met)
    team.startLoad(*stage, tile.contiguous());
  return progress;
}

/// Until all have filled it, the stage has parts of the tile, which nobody
/// waits for.
Progress RoleAgent::share(hopper::ShareOp op) {
  Stage *stage;
  Tensor tile;
  Progress progress = fill(op, op.getRing(), op.getTile(), stage, tile);
  if (progress != Progress::Met)
    return progress;
  if (!stage->content.isValid())
    stage->content = Tensor::makePoison(tile.kind(), tile.shape());
  viewPart(stage->content, warpgroup, team.warpgroups)
      .assign(viewPart(tile, warpgroup, team.warpgroups));
  ++stage->version;
  if (++stage->filled == team.warpgroups) {
    stage->filled = 0;
    ++stage->fullPhases;
  }
  return progress;
}

Progress RoleAgent::acquire(hopper::AcquireOp op) {
  Ring *ring = team.ring(op.getRing());
  if (!ring)
    return fail(op, "has a ring that is not one of the block's");
  uint64_t &position = positions[ring];
  Cell slot;
  slot.kind = Cell::Kind::Slot;
  slot.hold =
      std::make_shared<Hold>(Hold{ring, &stageAt(*ring, position), position});
  if (op.getWith()) {
    FailureOr<Cell> leader = cell(op.getWith());
    if (failed(leader))
      return Progress::Failed;
    slot.hold->with = leader->hold;
    if (leader->hold->isReleased || leader->hold->position != position)
      return fail(op, "takes " + slot.hold->name() + " with " +
                          leader->hold->name() +
                          ", which is not held, or another tile's");
  }
  auto poll = polled.find(ring);
  if (op.getPolled() && (poll == polled.end() || poll->second != position))
    return fail(op, "takes " + slot.hold->name() + " as full, for which " +
                        name() + " has not polled");
  if (!op.getPolled() && !isFull(*ring, position))
    return Progress::Blocked;
  set(op.getSlot(), slot);
  ++position;
  return Progress::Met;
}

Progress RoleAgent::poll(hopper::PollOp op) {
  Ring *ring = team.ring(op.getRing());
  if (!ring)
    return fail(op, "has a ring that is not one of the block's");
  if (!isFull(*ring, position(ring)))
    return Progress::Blocked;
  polled[ring] = position(ring);
  return Progress::Met;
}

Progress RoleAgent::readVector(hopper::ReadOp op) {
  FailureOr<Cell> slot = cell(op.getSlot());
  if (failed(slot))
    return Progress::Failed;
  SharedOperand vector;
  if (failed(readSlot(op, *slot, vector)))
    return Progress::Failed;
  set(op.getResult(), Cell::of(slot->hold->stage->content.contiguous()));
  return Progress::Moved;
}

/// Once all warpgroups have arrived, the tile is gone.
Progress RoleAgent::release(hopper::ReleaseOp op) {
  if (op.getCondition()) {
    FailureOr<Number> condition = number(op.getCondition());
    if (failed(condition))
      return Progress::Failed;
    if (!condition->i)
      return Progress::Moved;
  }
  FailureOr<Cell> slot = cell(op.getSlot());
  if (failed(slot))
    return Progress::Failed;
  Hold &hold = *slot->hold;
  if (hold.isReleased)
    return fail(op, "gives " + hold.name() + " back twice");
  for (auto &group : groups)
    if (group->aShared.hold == slot->hold || group->bShared.hold == slot->hold)
      return fail(op, "gives back " + hold.name() + ", which " +
                          describe(group->op) + " reads, and " + name() +
                          " has not waited for that");
  hold.isReleased = true;
  Stage &stage = *hold.stage;
  if (++stage.arrivals == team.warpgroups) {
    stage.arrivals = 0;
    auto empty = [](Stage &emptied) {
      ++emptied.emptyPhases;
      emptied.content = Tensor();
      ++emptied.version;
    };
    empty(stage);
    for (Ring *other : hold.ring->companions)
      empty(stageAt(*other, hold.position));
  }
  return Progress::Met;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

Group *RoleAgent::running() {
  for (auto &group : groups)
    if (!group->isDone)
      return group.get();
  return nullptr;
}

LogicalResult RoleAgent::readSlot(Operation *op, const Cell &slot,
                                  SharedOperand &operand) {
  operand.hold = slot.hold;
  operand.wasThere = slot.hold->stage->content.isValid();
  operand.version = slot.hold->stage->version;
  const Hold &hold = slot.hold->with ? *slot.hold->with : *slot.hold;
  if (!hold.isReleased)
    return success();
  return shared.failure.at(op, "reads " + slot.hold->name() + ", which " +
                                   name() + " has given back");
}

/// Whether an operand was there from a product's start to its end.
LogicalResult RoleAgent::stayed(Group &group, const SharedOperand &operand) {
  if (!operand.hold)
    return success();
  if (!operand.wasThere)
    return shared.failure.at(group.op, "reads " + operand.hold->name() +
                                           ", in which there was no tile when "
                                           "it began in " +
                                           name());
  if (operand.hold->stage->version != operand.version)
    return shared.failure.at(group.op, "reads " + operand.hold->name() +
                                           ", which has changed while it was "
                                           "in flight in " +
                                           name());
  return success();
}

LogicalResult RoleAgent::endProduct() {
  Group *group = running();
  if (!group)
    return success();
  if (failed(stayed(*group, group->aShared)) ||
      failed(stayed(*group, group->bShared)))
    return failure();
  computeProduct(*group, warpgroup, team.warpgroups);
  group->isDone = true;
  return success();
}

Progress RoleAgent::product(hopper::WgmmaOp op) {
  RankedTensorType type = tileTypeOf(op.getResults()[0]);
  if (!type || !hopper::takesProduct(type, team.warpgroups))
    return fail(op, "expected a result that " + Twine(team.warpgroups) +
                        " warpgroups can divide");
  auto group = std::make_shared<Group>();
  group->op = op;
  FailureOr<Cell> b = cell(op.getB()), a = cell(op.getA());
  if (failed(a) || failed(b))
    return Progress::Failed;
  if (failed(readSlot(op, *b, group->bShared)))
    return Progress::Failed;
  if (a->kind == Cell::Kind::Slot) {
    if (failed(readSlot(op, *a, group->aShared)))
      return Progress::Failed;
  } else {
    FailureOr<Tensor> tile = tensor(op.getA());
    if (failed(tile))
      return Progress::Failed;
    group->a = tile->contiguous();
  }
  bool adds = !op.getInits().empty();
  if (op.getCondition()) {
    FailureOr<Number> condition = number(op.getCondition());
    if (failed(condition))
      return Progress::Failed;
    adds = adds && condition->i;
  }
  if (adds && failed(read(op.getInits(), group->inits)))
    return Progress::Failed;
  for (auto [n, result] : llvm::enumerate(op.getResults())) {
    Cell pending;
    pending.kind = Cell::Kind::Pending;
    pending.group = group;
    pending.result = n;
    set(result, pending);
  }
  groups.push_back(std::move(group));
  return Progress::Met;
}

/// What it names is there if its product is among those that it waits for; what
/// has ended by chance is not.
Progress RoleAgent::wait(hopper::WaitGroupOp op) {
  int64_t count = static_cast<int64_t>(groups.size()) -
                  static_cast<int64_t>(op.getPending());
  for (int64_t i = 0; i < count; ++i)
    if (!groups[i]->isDone)
      return Progress::Blocked;
  if (count > 0) {
    for (int64_t i = 0; i < count; ++i)
      groups[i]->isWaitedFor = true;
    groups.erase(groups.begin(), groups.begin() + count);
  }
  for (auto [v, result] : llvm::zip(op.getValues(), op.getResults())) {
    FailureOr<Cell> x = cell(v);
    if (failed(x))
      return Progress::Failed;
    if (x->kind == Cell::Kind::Pending && x->group->isWaitedFor) {
      set(result, Cell::of(x->group->results[x->result]));
      continue;
    }
    if (x->kind == Cell::Kind::Pending)
      return fail(op, "gives a result of " + describe(x->group->op) +
                          ", which it leaves in flight");
    FailureOr<Tensor> t = tensor(v);
    if (failed(t))
      return Progress::Failed;
    set(result, Cell::of(*t));
  }
  return Progress::Met;
}

Progress RoleAgent::beginTurn(hopper::TurnBeginOp op) {
  if (isInTurn)
    return fail(op, "begins a turn in a turn of " + name());
  Turn &turn = team.turns[warpgroup];
  if (!turnPhase) {
    turnPhase = turn.phases;
    turn.arrive();
    if (turn.phases == *turnPhase)
      return Progress::Blocked;
  }
  if (turn.phases == *turnPhase)
    return Progress::Blocked;
  turnPhase.reset();
  isInTurn = true;
  return Progress::Met;
}

Progress RoleAgent::endTurn(hopper::TurnEndOp op) {
  if (!isInTurn)
    return fail(op, "ends a turn that " + name() + " has not begun");
  isInTurn = false;
  team.turns[(warpgroup + 1) % team.warpgroups].arrive();
  return Progress::Met;
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Of a tile or vector of the block's rows those of this warpgroup, else all.
std::pair<int64_t, int64_t> RoleAgent::ownRows(const Tensor &t) {
  int64_t rows = hopper::warpgroupRows;
  if (isProducer() || t.shape()[0] != rows * team.warpgroups)
    return {0, t.shape()[0]};
  return {rows * warpgroup, rows * (warpgroup + 1)};
}

Progress RoleAgent::partialSums(hopper::PartialSumsOp op) {
  FailureOr<Tensor> from = tensor(op.getTile()), acc = tensor(op.getAcc());
  if (failed(from) || failed(acc))
    return Progress::Failed;
  Tensor tile = from->contiguous(), sums = acc->clone();
  int64_t rows = tile.shape()[0], cols = tile.shape()[1];
  for (int64_t i = 0; i < rows; ++i) {
    const float *row = tile.floats() + i * cols;
    float *sum = sums.floats() + i * 8;
    for (int64_t j = 0; j < cols; j += 8)
      for (int64_t c = 0; c < 8; ++c)
        sum[c] += row[j + c];
  }
  set(op.getResult(), Cell::of(sums));
  return Progress::Moved;
}

Progress RoleAgent::exceeds(hopper::ExceedsOp op) {
  FailureOr<Tensor> tile = tensor(op.getTile());
  if (failed(tile))
    return Progress::Failed;
  Tensor t = tile->contiguous();
  auto [first, end] = ownRows(t);
  int64_t width = t.size() / std::max<int64_t>(1, t.shape()[0]);
  double limit = op.getLimit().convertToDouble();
  bool found = false;
  for (int64_t i = first * width; i < end * width; ++i)
    found |= !(t.floats()[i] < limit);
  using Rare = InterpreterOptions::Rare;
  Rare rare = shared.options.rare;
  if (rare == Rare::Always || (rare == Rare::Random && shared.draw(4) == 0))
    found = true;
  set(op.getResult(), Cell::ofInt(found));
  return Progress::Moved;
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

std::string RoleAgent::waitsFor() {
  Operation *op = place();
  if (!op)
    return isProducer() ? "waits for a slot of the queue of tiles"
                        : "waits for the next tile of the queue";
  std::string text = "waits at " + describe(op);
  Value v;
  bool fills = isa<hopper::LoadOp, hopper::ShareOp>(op);
  if (auto load = dyn_cast<hopper::LoadOp>(op))
    v = load.getRing();
  if (auto share = dyn_cast<hopper::ShareOp>(op))
    v = share.getRing();
  if (auto acquire = dyn_cast<hopper::AcquireOp>(op))
    v = acquire.getRing();
  if (auto poll = dyn_cast<hopper::PollOp>(op))
    v = poll.getRing();
  if (v) {
    Ring *ring = team.ring(v);
    uint64_t at = fills ? filled(ring) : position(ring);
    text += " for ring \"" + ring->op.getName().str() + "\", position " +
            std::to_string(at) + ", stage " +
            std::to_string(at % ring->stages.size()) + ", to be " +
            (fills ? "empty" : "full");
    if (fills)
      text += ", which " + std::to_string(stageAt(*ring, at).arrivals) +
              " of " + std::to_string(team.warpgroups) +
              " warpgroups have released";
    return text;
  }
  if (isa<hopper::TurnBeginOp>(op))
    return text + " for its turn";
  return text;
}
