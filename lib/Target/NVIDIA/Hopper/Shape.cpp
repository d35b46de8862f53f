// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What fa-hopper-place chooses for a block: registers and teams, turns, the
// stages of rings, panels of ones, and how its result leaves.

#include "Placement.h"

#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/Hopper/Transforms/Adders.h"
#include "fa/Schedule/Pressure.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

RankedTensorType fa::nvidia::productTile(const Contraction &c) {
  return RankedTensorType::get(
      {c.m, c.n}, getElementTypeOrSelf(c.op->getResult(0).getType()));
}

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

/// A block enters with 65536 registers for all its threads, in multiples of 8
/// each, and gives them out again. Consumers that share what they compute hold
/// most tiles: their producer has what its loads need at least, others what
/// they need with lists and masks.
RoleRegisters fa::nvidia::registersOfRoles(int64_t warpgroups, bool share) {
  static constexpr RoleRegisters table[] = {
      {56, 256}, {40, 232}, {32, 160}, {32, 112}};
  if (warpgroups == 2 && share)
    return {24, 240};
  return table[warpgroups - 1];
}

/// Registers of a thread for the results of all products, where so many
/// warpgroups divide them.
int64_t Placement::registersOfResults(int64_t warpgroups) const {
  int64_t elements = 0;
  for (const Contraction &c : contractions)
    elements += c.m * c.n;
  return elements / (warpgroups * warpgroupThreads);
}

/// And for what they read from registers, and what their loops carry beside.
int64_t Placement::registersOfProducts(int64_t warpgroups) const {
  int64_t elements = 0;
  llvm::SetVector<Value> carried;
  for (const Contraction &c : contractions) {
    if (!isLoaded(c.a->get()))
      elements += c.m * c.k / 2;
    if (auto loop = dyn_cast<scf::ForOp>(c.op->getParentOp()))
      carried.insert_range(loop.getYieldedValues());
  }
  for (const Contraction &c : contractions)
    carried.remove(c.op->getResult(0));
  for (Value v : carried)
    if (auto type = dyn_cast<RankedTensorType>(v.getType());
        type && type.getRank() == 2 && type.hasStaticShape())
      elements += type.getNumElements();
  return registersOfResults(warpgroups) +
         elements / (warpgroups * warpgroupThreads);
}

/// As many as have 64 rows each of the largest result; where these have not the
/// registers for theirs, twice as many if they have, or lack half of it.
bool Placement::chooseWarpgroups(std::string &why) {
  int64_t most = 0;
  for (const Contraction &c : contractions) {
    most = std::max(most, c.m);
    if (c.m < warpgroupRows || c.m % warpgroupRows ||
        c.m > maxWarpgroups * warpgroupRows) {
      why = "expected results of 64, 128, 192 or 256 rows, got " +
            (ShapedType::isDynamic(c.m) ? "a number that is not constant"
                                        : std::to_string(c.m));
      return false;
    }
  }
  BlockProgram program(forall);
  auto registersWith = [&](unsigned warps) {
    return estimateRegisters(program, warps, [&](Value) { return warps; });
  };
  auto takes = [&](int64_t n) {
    return llvm::all_of(contractions, [&](const Contraction &c) {
      return takesProduct(productTile(c), n);
    });
  };
  int64_t leastMissing = 0;
  for (int64_t n = most / warpgroupRows; n <= maxWarpgroups; n *= 2) {
    int64_t needed = std::min<int64_t>(
        registersWith(4 * n), registersOfProducts(n) + ConsumersOp::leastSpare);
    int64_t missing = needed - registersOfRoles(n, /*share=*/true).consumers;
    // More divide columns, and have to share what they compute.
    if (!takes(n) || (warpgroups && missing > 0 && 2 * missing > leastMissing))
      continue;
    warpgroups = n;
    leastMissing = missing;
    if (missing <= 0)
      break;
  }
  if (!warpgroups)
    why = "expected results of which each warpgroup has 64 rows and a multiple "
          "of 8 columns, at most 256, got " +
          std::to_string(most / warpgroupRows) + " warpgroups";
  return warpgroups != 0;
}

//===----------------------------------------------------------------------===//
// Shared memory, teams and turns
//===----------------------------------------------------------------------===//

/// Sums of what a product reads from registers, which a loop carries.
void Placement::findRowSums() {
  forall.walk([&](PartialSumsOp sums) {
    auto loop = dyn_cast<scf::ForOp>(sums->getParentOp());
    if (!loop || !llvm::is_contained(loop.getYieldedValues(), sums.getResult()))
      return;
    Value tile = sums.getTile();
    if (Value narrow = fa::matchConvert(tile))
      tile = narrow;
    for (const Contraction &c : contractions)
      if (c.op->getParentOp() == loop && c.a->get() == tile &&
          inRegisters.contains(c.a) && c.bOuterK && isLoaded(c.b->get()))
        rowSums[c.op] = sums;
  });
}

/// Whether blocks add to memory, as gradients do.
bool Placement::addsToMemory() {
  WalkResult walk = forall.walk([](Operation *op) {
    return isa<fa::AccumulateSliceOp, fa::AccumulateOp>(op)
               ? WalkResult::interrupt()
               : WalkResult::advance();
  });
  return walk.wasInterrupted();
}

bool Placement::sharesTiles() const {
  return llvm::any_of(
      tiles, [](const auto &entry) { return entry.second.isComputed; });
}

/// Columns of the widest tile that is loaded.
int64_t Placement::mostColumns() const {
  int64_t columns = 1;
  for (auto &[tile, placed] : tiles)
    if (auto type = cast<RankedTensorType>(tile.getType());
        !placed.isComputed && type.getRank() == 2)
      columns = std::max(columns, type.getDimSize(1));
  return columns;
}

//===----------------------------------------------------------------------===//
// What was measured
//===----------------------------------------------------------------------===//

/// Of an H200 and an H100, bf16, dense and causal. Other sizes have the
/// defaults of stageSums, and barriers of their own for vectors. In
/// benchmarks/experiments: 2026-11-26-vectors-with-tiles.md,
/// 2026-11-26-panels-of-128-bytes.md, 2026-11-26-shared-tiles-later.md,
/// 2026-11-27-80-queries.md, 2026-11-28-p-in-f32.md, and with random bits
/// 2026-11-28-dropout-backward-spares.md, 2026-11-28-dropout-bit-order.md and
/// 2026-11-28-dropout-streams.md.
static constexpr MeasuredChoice kMeasured[] = {
    // columns, rows, cols, bits: companions, carried first, spare, the same
    // where free, stages of what is shared, whether it is read later, and
    // whether it is streamed
    {64, 128, 128, false, true, true, 48, 48, 2, false, false},
    {80, 64, 64, false, true, false, 40, 40, 2, false, false},
    {96, 128, 64, false, true, true, 48, 48, 2, false, false},
    {128, 128, 64, false, false, true, 32, 32, 3, true, false},
    {128, 128, 80, false, true, true, 56, 24, 2, true, false},
    {160, 64, 64, false, true, true, 72, 72, 2, false, false},
    {192, 64, 64, false, false, true, 40, 40, 2, false, false},
    {256, 64, 64, false, true, false, 56, 56, 2, false, false},
    {64, 128, 128, true, true, true, 40, 40, 2, false, false},
    {128, 64, 128, true, true, true, 40, 40, 2, false, true},
    {256, 64, 64, true, true, false, 96, 96, 2, false, false},
};

bool fa::nvidia::branchesRead(Operation *root) {
  WalkResult walk = root->walk([](scf::IfOp branch) {
    return branch.walk(
        [](tensor::ExtractOp) { return WalkResult::interrupt(); });
  });
  return walk.wasInterrupted();
}

/// Null where these tiles were not measured: other sizes, sums in an order,
/// more that is added than the gradients of queries, keys and values, masks
/// that read memory.
const MeasuredChoice *Placement::measured() {
  WalkResult others = forall.walk([](Operation *op) {
    auto sum = dyn_cast<fa::AccumulateSliceOp>(op);
    bool inOrder = sum && sum.getOrdered().value_or(0) > 0;
    return inOrder || isa<fa::AccumulateOp>(op) ? WalkResult::interrupt()
                                                : WalkResult::advance();
  });
  if (!addsToMemory() || others.wasInterrupted() || branchesRead(forall))
    return nullptr;
  for (const Contraction &c : contractions)
    for (OpOperand *operand : {c.a, c.b})
      if (isLoaded(operand->get()) &&
          cast<RankedTensorType>(operand->get().getType()).getDimSize(1) !=
              mostColumns())
        return nullptr;
  const Contraction &first = contractions.front();
  bool bits = makesRandomBits(forall);
  const auto *found =
      llvm::find_if(kMeasured, [&](const MeasuredChoice &known) {
        return known.columns == mostColumns() && known.rows == first.m &&
               known.cols == first.n && known.makesBits == bits;
      });
  return found == std::end(kMeasured) ? nullptr : found;
}

/// What a user asked for is no schedule.
bool Placement::refuse(std::string &why, const llvm::Twine &text) {
  why = text.str();
  refused = true;
  return false;
}

/// Two teams where half of a block's registers and memory do for one: while one
/// is at a tile's ends the other multiplies.
bool Placement::chooseTeams(std::string &why) {
  constexpr int64_t mostLive = 88;
  bool stays = options.persistent != 0;
  if (options.teams > 0)
    teams = options.teams;
  else if (stays && warpgroups == 2 &&
           registersOfProducts(warpgroups) <= mostLive && !sharesTiles() &&
           !addsToMemory() && options.stages <= 2 &&
           mostColumns() <= RingType::panelCols)
    teams = 2;
  if (teams * warpgroups <= maxWarpgroups && (teams == 1 || stays))
    return true;
  return refuse(why, "has " + llvm::Twine(teams) + " teams of " +
                         llvm::Twine(warpgroups) +
                         " warpgroups; a block has at most " +
                         llvm::Twine(maxWarpgroups) +
                         " warpgroups, and one team where it does not persist: "
                         "choose fewer teams or rows");
}

/// Whether warpgroups take turns at the tensor cores: where they share nothing
/// that has them meet, and teams do not drift apart by themselves. As measured
/// on an H200, not where results are so wide that a turn takes long.
bool Placement::chooseTurns(std::string &why) {
  constexpr int64_t mostColumns = 128;
  if (options.pingPong > 0 && warpgroups < 2)
    return refuse(why, "has one warpgroup, and with ping-pong=1 two or more "
                       "take turns: choose 128 rows or more, or leave "
                       "ping-pong out");
  turns = warpgroups > 1 && teams == 1 && !inRegisters.empty() &&
          !sharesTiles() &&
          llvm::all_of(contractions,
                       [](const Contraction &c) { return c.n <= mostColumns; });
  if (options.pingPong >= 0)
    turns = options.pingPong;
  return true;
}

/// Bytes of a tile's ring of so many stages, with the rings of what comes with
/// it; what does is none by itself.
int64_t Placement::ringBytes(Value tile, const PlacedTile &placed,
                             int64_t stages) const {
  if (placed.with)
    return 0;
  int64_t bytes = tileBytes(tile, placed.isTurned);
  if (placed.ones)
    bytes += cast<RankedTensorType>(tile.getType()).getDimSize(0) *
             RingType::rowBytes;
  bytes = llvm::alignTo(stages * bytes, tileAlignment);
  for (auto &[other, companion] : tiles)
    if (companion.with == tile)
      bytes += llvm::alignTo(stages * tileBytes(other), tileAlignment);
  return bytes;
}

/// Tensor cores sum rows too where the panels of ones have room.
void Placement::chooseOnes(int64_t available, int64_t &bytes) {
  constexpr int64_t mostColumns = 128;
  if (options.ones == 0)
    return;
  for (const Contraction &c : contractions) {
    if (!rowSums.contains(c.op))
      continue;
    PlacedTile &placed = tiles[c.b->get()];
    // A tile that another product reads too may be held into an iteration that
    // knows its slot alone, and not the ring.
    bool isItsOwn =
        llvm::count_if(contractions, [&](const Contraction &other) {
          return other.a->get() == c.b->get() || other.b->get() == c.b->get();
        }) == 1;
    int64_t more = placed.stages * c.k * RingType::rowBytes;
    if (c.n % RingType::panelCols || c.n > mostColumns || placed.ones ||
        !isItsOwn || bytes + more > available)
      continue;
    placed.ones = true;
    bytes += more;
  }
}

/// The result is staged where two stages leave room for it, in as few sections
/// as fit there.
void Placement::chooseStagedPanels(int64_t available, int64_t &bytes) {
  RankedTensorType result = findStageable(forall);
  if (!result)
    return;
  int64_t panels = llvm::divideCeil(result.getDimSize(1), RingType::panelCols),
          panelBytes = result.getDimSize(0) * RingType::rowBytes,
          room = (available - bytes) / panelBytes;
  if (options.stageStores >= 0)
    room = std::min<int64_t>(room, options.stageStores);
  if (room <= 0)
    return;
  stagedPanels = llvm::divideCeil(panels, llvm::divideCeil(panels, room));
  stagedBytes = stagedPanels * panelBytes;
  bytes += stagedBytes;
}

/// Loaded tiles of loops have as many stages as there is room for, up to four;
/// what warpgroups share paces them: there more gain nothing (measured).
bool Placement::chooseMoreStages(int64_t available, int64_t &bytes,
                                 std::string &why) {
  constexpr int64_t mostStages = 4, mostAsked = 8;
  int64_t ofAll = 0;
  SmallVector<PlacedTile *> rings;
  for (auto &[tile, placed] : tiles)
    if (!placed.isComputed && placed.isInLoop && !placed.with) {
      ofAll += ringBytes(tile, placed, 1);
      rings.push_back(&placed);
    }
  if (rings.empty())
    return true;
  int64_t had = rings.front()->stages, stages = had;
  bool areEqual = llvm::all_of(
      rings, [&](PlacedTile *ring) { return ring->stages == had; });
  if (options.stages > 0)
    stages = options.stages;
  else if (!areEqual || sharesTiles())
    return true;
  else
    stages = std::min(mostStages, had + (available - bytes) / ofAll);
  // Teams have a power of two, by which they find their place in a ring.
  if (options.stages <= 0 && teams > 1)
    stages = llvm::bit_floor<uint64_t>(std::max<int64_t>(0, stages));
  for (auto &[tile, placed] : tiles)
    if (!placed.isComputed && placed.isInLoop)
      bytes += ringBytes(tile, placed, stages) -
               ringBytes(tile, placed, placed.stages);
  if (stages > mostAsked || bytes > available)
    return refuse(why, "needs " + llvm::Twine(tileAlignment + bytes) +
                           " bytes of shared memory a " +
                           (teams > 1 ? "team" : "block") + " with " +
                           llvm::Twine(stages) + " stages, and " + target.chip +
                           " has " + llvm::Twine(tileAlignment + available) +
                           "; choose smaller tiles, or fewer stages, of which "
                           "there are at most " +
                           llvm::Twine(mostAsked));
  for (PlacedTile *ring : rings)
    ring->stages = stages;
  return true;
}

/// The tile that would be staged to be added, of whole rows, or, turned, of
/// whole columns; else null.
RankedTensorType Placement::stageableSum(fa::AccumulateSliceOp sum) const {
  Value added = addedTile(sum);
  auto type = cast<RankedTensorType>(added.getType());
  Operation *product = added.getDefiningOp();
  auto stage = dyn_cast_if_present<StageOp>(product);
  bool isTurned = stage ? stage.getTurned() : turned.contains(product);
  bool isWhole =
      sum.getInit().getType().getShape().back() == type.getDimSize(1);
  if (isTurned)
    type = RankedTensorType::get({type.getDimSize(1), type.getDimSize(0)},
                                 type.getElementType());
  return isWhole && StageOp::takesSums(type, warpgroups, isTurned)
             ? type
             : RankedTensorType();
}

/// A product that is turned is put right by adders alone.
bool Placement::canStageTurned(std::string &why) {
  if (turned.empty())
    return true;
  const Contraction &product =
      *llvm::find_if(contractions, [&](const Contraction &c) {
        return turned.contains(c.op);
      });
  std::string what = "has a product of " + std::to_string(product.n) +
                     " rows, no multiple of 64: it is computed transposed, and "
                     "added by adders";
  if (teams > 1 || options.persistent == 0)
    return refuse(why, what +
                           ", which a block has that persists and has one "
                           "team; choose rows in multiples of 64, or leave " +
                           (teams > 1 ? "teams" : "persistent") + " out");
  SmallVector<fa::AccumulateSliceOp> sums;
  forall.walk([&](fa::AccumulateSliceOp sum) { sums.push_back(sum); });
  if (sums.size() == 1 && stageableSum(sums.front()) &&
      warpgroups <= StageOp::maxAdders)
    return true;
  why = what + "; expected one sum of whole rows, at most " +
        std::to_string(StageOp::maxAdders) +
        " warpgroups, and 64 columns for each of them, got " +
        std::to_string(sums.size()) + ", " + std::to_string(warpgroups) +
        " and " + std::to_string(product.m);
  return false;
}

/// Bytes of what `stageSums` stages where there is room.
int64_t Placement::bytesOfSums() {
  int64_t bytes = 0;
  forall.walk([&](fa::AccumulateSliceOp sum) {
    if (RankedTensorType type = stageableSum(sum))
      bytes += llvm::alignTo(type.getNumElements() * 4, tileAlignment);
  });
  return bytes;
}

/// What warpgroups share is read another iteration later, and may have a stage
/// more for that, where it was measured to pay: a product that reads it then
/// waits for nobody (hopper-schedule). Not in a loop
/// within another: what overlaps before it and behind it would do so in each
/// iteration of the outer one (serialised, C7512).
void Placement::chooseSharedStages(int64_t available, int64_t &bytes) {
  if (!choice)
    return;
  for (auto &[tile, placed] : tiles) {
    Operation *loop = tile.getParentBlock()->getParentOp();
    if (!placed.isComputed || loop->getParentOp() != forall)
      continue;
    int64_t more = ringBytes(tile, placed, choice->sharedStages) -
                   ringBytes(tile, placed, placed.stages);
    if (bytes + more > available)
      continue;
    placed.stages = choice->sharedStages;
    bytes += more;
    sharesLater = choice->sharesLater;
  }
}

bool Placement::chooseStages(std::string &why) {
  if (!chooseTeams(why) || !chooseTurns(why) || !canStageTurned(why))
    return false;
  int64_t ofTeam = target.sharedMemory / teams;
  if (teams > 1)
    ofTeam = llvm::alignDown(ofTeam, tileAlignment);
  int64_t available = ofTeam - tileAlignment, bytes = 0;
  for (auto &[tile, placed] : tiles) {
    placed.isInLoop = tile.getParentBlock() != forall.getBody();
    bytes += ringBytes(tile, placed, 1);
  }
  if (bytes > available) {
    why = "its tiles have " + std::to_string(bytes) +
          " bytes, and shared memory " + std::to_string(available);
    return false;
  }
  // Sums come before second stages: an H200's L2 takes them from registers as
  // slowly as all products of D = 256 take
  // (benchmarks/experiments/2026-11-26-panels-of-128-bytes.md).
  int64_t kept = bytesOfSums();
  if (bytes + kept > available) {
    if (!turned.empty()) {
      why = "its tiles have " + std::to_string(bytes + kept) +
            " bytes with what is added, and shared memory " +
            std::to_string(available);
      return false;
    }
    kept = 0;
  }
  for (bool isComputed : {false, true})
    for (auto &[tile, placed] : tiles) {
      int64_t more = ringBytes(tile, placed, 2) - ringBytes(tile, placed, 1);
      if (placed.isComputed != isComputed || !placed.isInLoop || placed.with ||
          bytes + kept + more > available)
        continue;
      placed.stages = 2;
      bytes += more;
    }
  chooseSharedStages(available - kept, bytes);
  if (!sharesTiles()) {
    chooseOnes(available, bytes);
    chooseStagedPanels(available, bytes);
  }
  // What is turned is staged; other sums, where there is room.
  if (!chooseMoreStages(turned.empty() ? available : available - kept, bytes,
                        why))
    return false;
  for (auto &[tile, placed] : tiles)
    if (placed.with)
      placed.stages = tiles[placed.with].stages;
  return true;
}

/// Heads whose blocks run side by side and share what L2 holds, as measured on
/// an H200, or where blocks add to memory, when they read and add to 8 bytes an
/// element of one, on an H100
/// (benchmarks/experiments/2026-11-26-heads-of-a-section.md).
/// Else fewer leave short tiles to the end, and more do not share what L2
/// holds; of a list each tile takes a few of a head's blocks, others are to
/// find these in L2 (a density of 1/8: 15% faster at D=128).
int64_t Placement::headsOfSection() {
  if (options.heads > 0)
    return options.heads;
  int64_t columns = mostColumns();
  if (addsToMemory())
    return columns <= 128 ? 8 : std::max<int64_t>(1, 512 / columns);
  for (const Contraction &c : contractions)
    if (auto loop = dyn_cast<scf::ForOp>(c.op->getParentOp());
        loop && readsItsEnd(loop))
      return 1;
  return columns <= 64 ? 32 : 16;
}
