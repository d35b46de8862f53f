// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What happens next in a block, by chance; and blocks with their tiles.

#include "Team.h"

#include <array>
#include <limits>

using namespace mlir;
using namespace fa;
using namespace fa::run;
using namespace fa::run::interpreter;

Team::Team(scf::ForallOp op, Agent &outer, Shared &shared,
           std::vector<SmallVector<int64_t>> tiles, ArrayRef<Tensor> outs)
    : op(op), consumers(*op.getBody()->getOps<hopper::ConsumersOp>().begin()),
      warpgroups(consumers.getWarpgroups()), turns(warpgroups),
      tiles(std::move(tiles)), shared(shared) {
  persistent = !op.getBody()->getOps<hopper::TileQueueOp>().empty();
  for (auto ring : op.getBody()->getOps<hopper::RingOp>()) {
    auto made = std::make_unique<Ring>();
    made->op = ring;
    made->stages.resize(ring.getRing().getType().getStages());
    if (ring.getWith())
      rings[ring.getWith()]->companions.push_back(made.get());
    rings[ring.getRing()] = std::move(made);
  }
  for (int64_t w = -1; w < warpgroups; ++w) {
    agents.push_back(std::make_unique<RoleAgent>(shared, &outer, *this, w));
    for (auto [argument, out] : llvm::zip(op.getRegionIterArgs(), outs))
      agents.back()->set(argument, Cell::of(out));
  }
  states.assign(agents.size(), Progress::Moved);
  // Some are much slower than others, in each run other ones. Products are
  // seldom fast: what is wrong shows while they are in flight.
  auto speed = [&](std::array<uint64_t, 3> speeds) {
    return speeds[shared.draw(speeds.size())];
  };
  for (size_t i = 0; i < agents.size(); ++i) {
    agentWeights.push_back(speed({1, 8, 64}));
    productWeights.push_back(speed({1, 1, 16}));
  }
  loadWeight = speed({1, 8, 64});
  // The last warpgroup gives the first turn.
  bool takesTurns = false;
  consumers.walk([&](hopper::TurnBeginOp) { takesTurns = true; });
  if (takesTurns)
    turns[0].arrive();
}

int64_t Team::leastEnded() {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (auto &agent : agents)
    if (!agent->isProducer())
      least = std::min(least, agent->tilesEnded());
  return least;
}

/// Until it arrives, the stage has neither the old nor the new tile.
void Team::startLoad(Stage &stage, Tensor tile) {
  stage.content = Tensor();
  ++stage.version;
  loads.push_back({&stage, std::move(tile)});
}

void Team::collect(SmallVectorImpl<Event> &events) {
  for (unsigned i = 0; i < loads.size(); ++i)
    events.push_back({Event::Kind::Arrival, i, loadWeight});
  for (unsigned i = 0; i < agents.size(); ++i)
    if (agents[i]->running())
      events.push_back({Event::Kind::Product, i, productWeights[i]});
  for (unsigned i = 0; i < agents.size(); ++i)
    if (states[i] == Progress::Moved)
      events.push_back({Event::Kind::Step, i, agentWeights[i]});
}

const Team::Event &Team::choose(ArrayRef<Event> events) {
  if (!shared.options.adversarial)
    return events.front();
  uint64_t total = 0;
  for (const Event &event : events)
    total += event.weight;
  uint64_t drawn = shared.draw(total);
  for (const Event &event : events) {
    if (drawn < event.weight)
      return event;
    drawn -= event.weight;
  }
  return events.back();
}

LogicalResult Team::happen(const Event &event) {
  bool changed = true;
  switch (event.kind) {
  case Event::Kind::Arrival: {
    Load load = std::move(loads[event.number]);
    loads.erase(loads.begin() + event.number);
    load.stage->content = std::move(load.tile);
    ++load.stage->version;
    ++load.stage->fullPhases;
    break;
  }
  case Event::Kind::Product:
    if (failed(agents[event.number]->endProduct()))
      return failure();
    break;
  case Event::Kind::Step: {
    // What nobody else notices takes no time.
    Progress progress;
    do
      progress = agents[event.number]->advance();
    while (progress == Progress::Moved);
    if (progress == Progress::Failed)
      return failure();
    changed = progress != Progress::Blocked;
    states[event.number] =
        progress == Progress::Met ? Progress::Moved : progress;
    break;
  }
  }
  if (changed)
    for (Progress &state : states)
      if (state == Progress::Blocked)
        state = Progress::Moved;
  return success();
}

LogicalResult Team::stuck() {
  std::string text = "the block is stuck: nobody can go on";
  for (auto [agent, state] : llvm::zip(agents, states))
    text += "\n  " + agent->name() + " " +
            (state == Progress::Ended ? "has ended" : agent->waitsFor());
  return shared.failure.at(consumers, text);
}

/// All that was loaded was taken. (Products are checked where roles end.)
LogicalResult Team::checkEnd() {
  for (auto &entry : rings) {
    Ring *ring = entry.second.get();
    // What the consumers fill each of them fills with its part.
    bool isComputed = ring->op.getComputed();
    for (auto &agent : llvm::drop_begin(agents))
      if (uint64_t loaded = (isComputed ? agent : agents.front())->filled(ring);
          agent->position(ring) != loaded)
        return shared.failure.at(
            ring->op, "ring \"" + ring->op.getName() + "\" has " +
                          Twine(loaded) + " loads, and " + agent->name() +
                          " has acquired " + Twine(agent->position(ring)));
  }
  return success();
}

LogicalResult Team::run() {
  SmallVector<Event> events;
  while (true) {
    events.clear();
    collect(events);
    if (events.empty())
      break;
    if (failed(happen(choose(events))))
      return failure();
  }
  if (!llvm::all_of(states,
                    [](Progress state) { return state == Progress::Ended; }))
    return stuck();
  return checkEnd();
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

/// The tiles of each block, or of each team, in the order in which it takes
/// them.
static std::vector<std::vector<SmallVector<int64_t>>>
distribute(std::vector<SmallVector<int64_t>> tiles, scf::ForallOp op,
           Shared &shared) {
  std::vector<std::vector<SmallVector<int64_t>>> blocks;
  auto queues = op.getBody()->getOps<hopper::TileQueueOp>();
  if (queues.empty()) {
    for (auto &tile : tiles)
      blocks.push_back({std::move(tile)});
    return blocks;
  }
  // Few blocks, so that each takes several tiles. The first is a block's own;
  // others are drawn, or lie apart by the number of blocks.
  int64_t count = 1;
  bool draws = false;
  if (shared.options.adversarial) {
    count += shared.draw(3);
    draws = shared.draw(2);
  }
  count *= std::max<int64_t>(1, hopper::teamsOf(op));
  blocks.resize(count);
  for (auto [n, tile] : llvm::enumerate(tiles)) {
    int64_t number = static_cast<int64_t>(n);
    int64_t block =
        number < count || !draws ? number % count : shared.draw(count);
    blocks[block].push_back(std::move(tile));
  }
  return blocks;
}

LogicalResult interpreter::runRoles(scf::ForallOp op, Agent &outer,
                                    Shared &shared, ArrayRef<Tensor> outs) {
  SmallVector<int64_t> lower, steps, counts;
  if (failed(forallSizes(op, outer, shared.failure, lower, steps, counts)))
    return failure();
  if (counts.empty())
    return shared.failure.at(op, "expected a grid of at least one dimension");
  int64_t iterations = 1;
  for (int64_t n : counts)
    iterations *= n;
  bool longestFirst = false;
  for (auto queue : op.getBody()->getOps<hopper::TileQueueOp>())
    longestFirst = queue.getLongestFirst();
  // The last dimension goes fastest or, where it has the longest tiles at its
  // end, slowest and backwards.
  std::vector<SmallVector<int64_t>> tiles;
  unsigned last = counts.size() - 1;
  for (int64_t i = 0; i < iterations; ++i) {
    SmallVector<int64_t> tile(counts.size());
    int64_t rest = i, others = iterations / counts[last];
    if (longestFirst) {
      tile[last] = lower[last] + (counts[last] - 1 - i / others) * steps[last];
      rest = i % others;
    }
    for (unsigned d = last + !longestFirst; d-- > 0;) {
      tile[d] = lower[d] + rest % counts[d] * steps[d];
      rest /= counts[d];
    }
    tiles.push_back(std::move(tile));
  }
  for (auto &block : distribute(std::move(tiles), op, shared)) {
    Team team(op, outer, shared, std::move(block), outs);
    if (failed(team.run()))
      return failure();
  }
  return success();
}
