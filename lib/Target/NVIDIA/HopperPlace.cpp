// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass fa-hopper-place: a tile program of any contractions as two roles, by
// rules that each look at one thing. Nothing overlaps yet: every product is
// awaited where it is started.
//
//   Roles      what loads is a slice of what computes, and the producer's; all
//              else is the consumers', a warpgroup for 64 rows of the products
//              that have most; of others warpgroups divide the columns
//   Residency  a loaded tile that products read is one slot of a ring of its
//              own, with all its uses; a computed operand stays in registers
//              where these hold its rows, else the warpgroups share it: in a
//              ring that they fill themselves; a vector that is loaded in a
//              loop and computed with has a ring too
//   Sums       what is added to memory goes there by TMA, where shared memory
//              has room for it
//   Rings      two stages where the tile is loaded or computed in a loop and
//              memory allows it, loaded ones first, else one
//   Grid       a block for each multiprocessor takes tiles from a queue

#include "HopperSchedule.h"
#include "Program.h"

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"

namespace fa {
#define GEN_PASS_DEF_HOPPERPLACEPASS
#include "fa/Target/NVIDIA/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

namespace {
/// Registers a thread, by role.
struct RoleRegisters {
  int64_t producer, consumers;
};

/// What a user asks of the schedule; -1: chosen.
struct Options {
  int stages = -1, persistent = -1, stageStores = -1, ones = -1, pingPong = -1,
      carriedFirst = -1;
  int64_t heads = -1, teams = -1, spare = -1;
};
} // namespace

/// A block enters with 65536 registers for all its threads, in multiples of 8
/// each, and gives them out again.
static RoleRegisters roleRegisters(int64_t warpgroups) {
  static constexpr RoleRegisters table[] = {
      {56, 256}, {40, 232}, {32, 160}, {32, 112}};
  return table[warpgroups - 1];
}

/// Consumers that share what they compute hold most tiles. The producer has
/// then what its loads need at least, else what they need with lists and masks.
static RoleRegisters registersOfRoles(int64_t warpgroups, bool share) {
  return warpgroups == 2 && share ? RoleRegisters{24, 240}
                                  : roleRegisters(warpgroups);
}

namespace {
/// A tile that is in shared memory because products read it, or a vector that
/// is loaded early, and its place.
struct PlacedTile {
  /// The consumers compute it; else it is loaded.
  bool isComputed = false;
  /// A loop loads or computes it.
  bool isInLoop = false;
  /// Beside it lies a panel of ones, to sum rows with.
  bool ones = false;
  RingOp ring;
  Value slot;
  unsigned stages = 1;
};

class Placement {
public:
  Placement(scf::ForallOp forall, const fa::NVIDIATarget &target,
            const Options &options)
      : forall(forall), target(target), options(options) {}
  /// Whether the rules take the block's program; else says in `why` what they
  /// do not.
  bool match(std::string &why);
  /// Whether what a user asked for is against it.
  bool isRefused() const { return refused; }
  bool hasContractions() const { return !contractions.empty(); }
  void apply();

private:
  bool matchContractions(std::string &why);
  bool chooseWarpgroups(std::string &why);
  bool matchOperand(const Contraction &c, OpOperand &operand, bool isFirst,
                    std::string &why);
  bool matchRest(std::string &why);
  bool isVectorForRing(Value vector);
  void matchVectors();
  void findRowSums();
  bool addsToMemory();
  bool sharesTiles() const;
  int64_t mostColumns() const;
  bool chooseTeams(std::string &why);
  bool chooseTurns(std::string &why);
  bool chooseMoreStages(int64_t available, int64_t &bytes, std::string &why);
  void chooseOnes(int64_t available, int64_t &bytes);
  void chooseStagedPanels(int64_t available, int64_t &bytes);
  bool chooseStages(std::string &why);

  int64_t registersOfResults(int64_t warpgroups) const;
  int64_t registersOfProducts(int64_t warpgroups) const;
  void stageSums();
  void placeRings(OpBuilder &b);
  void placeQueue(OpBuilder &b);
  int64_t headsOfSection();
  void moveIntoConsumers(OpBuilder &b);
  void startProduct(const Contraction &c);
  void placeSlot(Value tile, PlacedTile &placed);
  scf::ForOp loopOfUsers(Value tile, ArrayRef<Operation *> users);
  SmallVector<Operation *> usersInShared(Value tile);

  bool refuse(std::string &why, const llvm::Twine &text);

  scf::ForallOp forall;
  const fa::NVIDIATarget &target;
  const Options &options;
  bool refused = false;
  SmallVector<Contraction> contractions;
  int64_t warpgroups = 0, teams = 1;
  bool turns = false;
  llvm::MapVector<Value, PlacedTile> tiles;
  /// By product: the sums of the rows of its first operand, which a loop
  /// carries, and which the product makes too where its ring has ones.
  llvm::MapVector<Operation *, PartialSumsOp> rowSums;
  /// Panels of the block's result that leave through shared memory at a time,
  /// and their bytes.
  int64_t stagedPanels = 0, stagedBytes = 0;
  /// Where shared memory is free: for tiles, and before them.
  int64_t tilesEnd = tileAlignment, barriersEnd = 0;
  /// Operands of products in registers.
  DenseSet<OpOperand *> inRegisters;
  ConsumersOp consumers;
};
} // namespace

//===----------------------------------------------------------------------===//
// What the rules take
//===----------------------------------------------------------------------===//

/// Whether both roles can tell a number, or where a tile is cut from: it
/// depends on nothing that is computed of tiles.
static bool isKnownToBoth(Value value, scf::ForallOp forall) {
  SmallVector<Value> work{value};
  DenseSet<Value> seen;
  while (!work.empty()) {
    Value v = work.pop_back_val();
    if (!seen.insert(v).second ||
        !forall.getRegion().isAncestor(v.getParentRegion()))
      continue;
    if (auto argument = dyn_cast<BlockArgument>(v)) {
      Operation *parent = argument.getOwner()->getParentOp();
      auto loop = dyn_cast<scf::ForOp>(parent);
      if (parent != forall && !(loop && v == loop.getInductionVar()))
        return false;
      continue;
    }
    Operation *op = v.getDefiningOp();
    bool isView =
        isa<tensor::ExtractSliceOp, tensor::PadOp, tensor::CastOp>(op);
    if (!isView && (op->getNumRegions() || !isMemoryEffectFree(op)))
      return false;
    work.append(op->operand_begin(), op->operand_end());
  }
  return true;
}

/// Whether both roles can tell how often an operation runs.
static bool isUnderKnownControl(Operation *op, scf::ForallOp forall) {
  for (Operation *parent = op->getParentOp(); parent != forall;
       parent = parent->getParentOp()) {
    SmallVector<Value> numbers;
    if (auto loop = dyn_cast<scf::ForOp>(parent))
      numbers = {loop.getLowerBound(), loop.getUpperBound(), loop.getStep()};
    else if (auto branch = dyn_cast<scf::IfOp>(parent))
      numbers = {branch.getCondition()};
    else
      return false;
    for (Value number : numbers)
      if (!isKnownToBoth(number, forall))
        return false;
  }
  return true;
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
  BlockPlan plan(forall, {&target, 0, 0, 0});
  auto takes = [&](int64_t n) {
    return llvm::all_of(contractions, [&](const Contraction &c) {
      return takesProduct(cast<RankedTensorType>(c.op->getResult(0).getType()),
                          n);
    });
  };
  int64_t leastMissing = 0;
  for (int64_t n = most / warpgroupRows; n <= maxWarpgroups; n *= 2) {
    int64_t needed =
        std::min<int64_t>(plan.estimateRegisters(4 * n),
                          registersOfProducts(n) + ConsumersOp::leastSpare);
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

/// What is in shared memory lies there as it is loaded or computed; products
/// read it either way round. From registers they take the rows that a warpgroup
/// has, which are its own ones where warpgroups divide nothing else.
bool Placement::matchOperand(const Contraction &c, OpOperand &operand,
                             bool isFirst, std::string &why) {
  Value v = operand.get();
  auto type = cast<RankedTensorType>(v.getType());
  if (isLoaded(v)) {
    if (!canLoadByTMA(v, why))
      return false;
    if (!isKnownToBoth(v, forall)) {
      why = "a tile is loaded from where only computed tiles tell";
      return false;
    }
    tiles.insert({v, {}});
    return true;
  }
  if (c.k % 16) {
    why = "a computed operand has " + std::to_string(c.k) +
          " columns, and a multiple of 16 is expected";
    return false;
  }
  Division own = Division::of(type.getShape(), warpgroups);
  if (isFirst && !c.aOuterK && own.cols == 1) {
    inRegisters.insert(&operand);
    return true;
  }
  if (!takesShare(type, warpgroups)) {
    why = "warpgroups would have to share a computed operand of " +
          std::to_string(type.getDimSize(0)) + " x " +
          std::to_string(type.getDimSize(1)) + ", of which each of " +
          std::to_string(warpgroups) +
          " is expected to have 64 rows and a multiple of 16 columns";
    return false;
  }
  tiles[v].isComputed = true;
  return true;
}

bool Placement::matchContractions(std::string &why) {
  for (const Contraction &c : contractions) {
    if (!c.tensorCore() || getElementTypeOrSelf(c.b->get()) != c.elementType) {
      why = "its operands are not f16 or bf16";
      return false;
    }
    if ((c.aOuterK || c.bOuterK) && c.k % 16) {
      why = "expected a transposed operand's sums over a multiple of 16, got " +
            std::to_string(c.k);
      return false;
    }
    if (!isUnderKnownControl(c.op, forall)) {
      why = "a contraction is in a loop or branch that computed tiles decide";
      return false;
    }
  }
  if (!chooseWarpgroups(why))
    return false;
  return llvm::all_of(contractions, [&](const Contraction &c) {
    return matchOperand(c, *c.a, true, why) &&
           matchOperand(c, *c.b, false, why);
  });
}

/// Terms of captured tensors' gradients in an order: warps and lanes would take
/// turns while products are in flight.
static bool isOrderedSum(Operation *op) {
  auto sum = dyn_cast<fa::AccumulateOp>(op);
  return sum && sum.getOrdered();
}

/// Operations that the consumers run as they are.
bool Placement::matchRest(std::string &why) {
  WalkResult walk = forall.getBody()->walk([&](Operation *op) {
    bool isKnown = isa<linalg::LinalgOp, scf::ForOp, scf::IfOp, scf::YieldOp,
                       scf::InParallelOp, linalg::YieldOp, linalg::IndexOp,
                       fa::ParallelAccumulateOp, fa::AccumulateOp,
                       fa::YieldPlacesOp, PinOp>(op) ||
                   op->getDialect()->getNamespace() == "tensor" ||
                   (!op->getNumRegions() && isMemoryEffectFree(op));
    isKnown &= !isOrderedSum(op);
    if (!isKnown)
      why = (isOrderedSum(op) ? "it has an ordered " : "it has a ") +
            op->getName().getStringRef().str();
    return isKnown ? WalkResult::advance() : WalkResult::interrupt();
  });
  return !walk.wasInterrupted();
}

/// Loaded in a loop, from where both roles can tell, for operations beside it;
/// in branches few blocks have them.
bool Placement::isVectorForRing(Value vector) {
  auto type = dyn_cast<RankedTensorType>(vector.getType());
  if (!type || type.getRank() != 1 || !isLoaded(vector) ||
      vector.getParentBlock() == forall.getBody() ||
      !isKnownToBoth(vector, forall) ||
      !isUnderKnownControl(vector.getDefiningOp(), forall))
    return false;
  for (Operation *op : getLoadChain(vector))
    if (auto pad = dyn_cast<tensor::PadOp>(op);
        pad && !pad.getConstantPaddingValue())
      return false;
  bool areBeside = llvm::all_of(vector.getUsers(), [&](Operation *user) {
    return isa<linalg::LinalgOp>(user) &&
           user->getBlock() == vector.getParentBlock();
  });
  return areBeside && RingType::takes(type);
}

void Placement::matchVectors() {
  forall.walk([&](linalg::LinalgOp op) {
    for (Value operand : op->getOperands())
      if (isVectorForRing(operand))
        tiles.insert({operand, {}});
  });
}

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

static int64_t stageBytes(Value tile, const PlacedTile &placed) {
  int64_t ones = placed.ones
                     ? cast<RankedTensorType>(tile.getType()).getDimSize(0) *
                           RingType::rowBytes
                     : 0;
  return llvm::alignTo(tileBytes(tile) + ones, tileAlignment);
}

/// Tensor cores sum rows too where the panels of ones have room.
void Placement::chooseOnes(int64_t available, int64_t &bytes) {
  constexpr int64_t mostColumns = 128;
  if (options.ones == 0)
    return;
  for (auto &[op, sums] : rowSums) {
    const Contraction &c = *llvm::find_if(
        contractions, [&](const Contraction &c) { return c.op == op; });
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
    if (!placed.isComputed && placed.isInLoop) {
      ofAll += stageBytes(tile, placed);
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
      bytes += (stages - int64_t(placed.stages)) * stageBytes(tile, placed);
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

bool Placement::chooseStages(std::string &why) {
  if (!chooseTeams(why) || !chooseTurns(why))
    return false;
  int64_t ofTeam = target.sharedMemory / teams;
  if (teams > 1)
    ofTeam = llvm::alignDown(ofTeam, tileAlignment);
  int64_t available = ofTeam - tileAlignment, bytes = 0;
  for (auto &[tile, placed] : tiles) {
    placed.isInLoop = tile.getParentBlock() != forall.getBody();
    bytes += stageBytes(tile, placed);
  }
  if (bytes > available) {
    why = "its tiles have " + std::to_string(bytes) +
          " bytes, and shared memory " + std::to_string(available);
    return false;
  }
  for (bool isComputed : {false, true})
    for (auto &[tile, placed] : tiles) {
      int64_t more = stageBytes(tile, placed);
      if (placed.isComputed != isComputed || !placed.isInLoop ||
          bytes + more > available)
        continue;
      placed.stages = 2;
      bytes += more;
    }
  if (!sharesTiles()) {
    chooseOnes(available, bytes);
    chooseStagedPanels(available, bytes);
  }
  return chooseMoreStages(available, bytes, why);
}

bool Placement::match(std::string &why) {
  forall.walk([&](linalg::LinalgOp op) {
    if (auto c = matchContraction(op))
      contractions.push_back(*c);
  });
  if (contractions.empty()) {
    why = "it has no contraction";
    return false;
  }
  if (!matchRest(why) || !matchContractions(why))
    return false;
  matchVectors();
  findRowSums();
  return chooseStages(why);
}

//===----------------------------------------------------------------------===//
// The two roles
//===----------------------------------------------------------------------===//

void Placement::placeRings(OpBuilder &b) {
  for (auto [n, entry] : llvm::enumerate(tiles)) {
    auto &[tile, placed] = entry;
    auto type = RingType::get(b.getContext(), placed.stages,
                              cast<RankedTensorType>(tile.getType()));
    placed.ring =
        RingOp::create(b, tile.getLoc(), type, "tile" + std::to_string(n),
                       tilesEnd, barriersEnd, placed.ones, placed.isComputed);
    tilesEnd += llvm::alignTo(placed.ring.bytes(), tileAlignment);
    barriersEnd = placed.ring.barriersEnd();
  }
  placeQueue(b);
}

/// Blocks stay and take tiles from a queue, the longest first where their
/// lengths differ; if barriers leave it room before the first tile.
void Placement::placeQueue(OpBuilder &b) {
  if (options.persistent == 0 ||
      barriersEnd + TileQueueOp::bytes > tileAlignment)
    return;
  bool longestFirst = boundsDependOn(forall, forall.getInductionVars().back());
  TileQueueOp::create(b, forall.getLoc(), barriersEnd, longestFirst,
                      longestFirst ? headsOfSection() : 1, teams);
  barriersEnd += TileQueueOp::bytes;
}

/// Heads whose blocks run side by side and share what L2 holds, as measured on
/// an H200. Where blocks add to memory (benchmarks/HISTORY.md) they read and
/// add to 8 bytes an element of one. Else fewer leave short tiles to the end,
/// and more do not share what L2 holds; of a list each tile takes a few of a
/// head's blocks, others are to find these in L2 (a density of 1/8: 15% faster
/// at D=128).
int64_t Placement::headsOfSection() {
  if (options.heads > 0)
    return options.heads;
  int64_t columns = mostColumns();
  if (addsToMemory())
    return std::clamp<int64_t>(512 / columns, 1, 4);
  for (const Contraction &c : contractions)
    if (auto loop = dyn_cast<scf::ForOp>(c.op->getParentOp());
        loop && followsList(loop))
      return 1;
  return columns <= 64 ? 32 : 16;
}

/// Numbers, slices of memory and what is one number throughout: both roles can
/// have them, where nothing that is computed of tiles decides them.
static bool isOfBoth(Operation *op) {
  if (isa<tensor::EmptyOp, tensor::ExtractSliceOp, tensor::PadOp,
          tensor::CastOp, linalg::FillOp>(op))
    return true;
  return !op->getNumRegions() && isMemoryEffectFree(op) &&
         llvm::none_of(op->getResultTypes(),
                       [](Type type) { return isa<TensorType>(type); });
}

void Placement::moveIntoConsumers(OpBuilder &b) {
  SetVector<Operation *> moved;
  for (Operation &op : forall.getBody()->without_terminator()) {
    bool computes = llvm::any_of(op.getOperands(), [&](Value v) {
      return moved.contains(v.getDefiningOp());
    });
    if (computes ||
        !(isOfBoth(&op) || isa<RingOp, TileQueueOp, ProducerOp>(op)))
      moved.insert(&op);
  }
  // What the block stores.
  SetVector<Value> results;
  forall.getTerminator()->walk([&](Operation *op) {
    for (Value v : op->getOperands())
      if (moved.contains(v.getDefiningOp()))
        results.insert(v);
  });
  RoleRegisters registers = registersOfRoles(teams * warpgroups, sharesTiles());
  SmallVector<Value> values = results.takeVector();
  consumers =
      ConsumersOp::create(b, forall.getLoc(), TypeRange(ValueRange(values)),
                          warpgroups, registers.consumers);
  consumers.setTurns(turns);
  // Where the products leave no room to compute under them, all of them start.
  if (!sharesTiles() && !addsToMemory() &&
      registersOfProducts(warpgroups) + consumers.getSpare() >
          registers.consumers)
    consumers.setSpare(ConsumersOp::leastSpare);
  Block &body = consumers.getBody().emplaceBlock();
  for (Operation *op : moved)
    op->moveBefore(&body, body.end());
  OpBuilder end = OpBuilder::atBlockEnd(&body);
  fa::hopper::YieldOp::create(end, forall.getLoc(), values);
  for (auto [value, result] : llvm::zip(values, consumers.getResults()))
    value.replaceUsesWithIf(result, [&](OpOperand &use) {
      return forall.getTerminator()->isAncestor(use.getOwner());
    });
}

/// What reads a tile from shared memory.
SmallVector<Operation *> Placement::usersInShared(Value tile) {
  if (cast<RankedTensorType>(tile.getType()).getRank() == 1)
    return llvm::to_vector(tile.getUsers());
  SmallVector<Operation *> users;
  for (const Contraction &c : contractions)
    for (OpOperand *operand : {c.a, c.b})
      if (operand->get() == tile && !inRegisters.contains(operand))
        users.push_back(c.op);
  return users;
}

/// A slot from before the first operation that reads the tile to behind the
/// last one, in the block of the tile.
void Placement::placeSlot(Value tile, PlacedTile &placed) {
  Block *block = tile.getParentBlock();
  if (block == forall.getBody())
    block = &consumers.getBody().front();
  Operation *first = nullptr, *last = nullptr;
  SmallVector<Operation *> users = usersInShared(tile);
  for (Operation *op : users) {
    Operation *user = block->findAncestorOpInBlock(*op);
    if (!first || user->isBeforeInBlock(first))
      first = user;
    if (!last || last->isBeforeInBlock(user))
      last = user;
  }
  OpBuilder b(first);
  RingType ring = placed.ring.getRing().getType();
  if (placed.isComputed)
    ShareOp::create(b, tile.getLoc(), tile, placed.ring.getRing());
  placed.slot = AcquireOp::create(b, tile.getLoc(),
                                  SlotType::get(b.getContext(), ring.getTile()),
                                  placed.ring.getRing(), tile, /*polled=*/false)
                    .getSlot();
  if (ring.isVector())
    for (Operation *user : users) {
      OpBuilder before(user);
      auto read =
          ReadOp::create(before, user->getLoc(), tile.getType(), placed.slot);
      user->replaceUsesOfWith(tile, read.getResult());
    }
  scf::ForOp loop = loopOfUsers(tile, users);
  if (!loop) {
    b.setInsertionPointAfter(last);
    ReleaseOp::create(b, tile.getLoc(), placed.slot, Value());
    return;
  }
  // In the loop's last iteration, or, where it has none, before it.
  Location loc = tile.getLoc();
  auto low = getConstantIntValue(loop.getLowerBound()),
       high = getConstantIntValue(loop.getUpperBound());
  if (!low || !high || *low >= *high) {
    b.setInsertionPoint(loop);
    Value hasNone =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge,
                              loop.getLowerBound(), loop.getUpperBound());
    ReleaseOp::create(b, loc, placed.slot, hasNone);
  }
  Operation *lastInLoop = *llvm::max_element(
      users, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  b.setInsertionPointAfter(lastInLoop);
  Value next =
      arith::AddIOp::create(b, loc, loop.getInductionVar(), loop.getStep());
  Value isLast = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, next,
                                       loop.getUpperBound());
  ReleaseOp::create(b, loc, placed.slot, isLast);
}

/// The loop in whose body all that reads a block's tile is, so that the next
/// block's can come when the last iteration has read it.
scf::ForOp Placement::loopOfUsers(Value tile, ArrayRef<Operation *> users) {
  auto loop = dyn_cast<scf::ForOp>(users.front()->getParentOp());
  bool isOfBlock = tile.getParentBlock() == forall.getBody() &&
                   !forall.getBody()->getOps<TileQueueOp>().empty();
  if (!loop || !isOfBlock || loop->getParentOp() != consumers || addsToMemory())
    return {};
  return llvm::all_of(users,
                      [&](Operation *user) {
                        return user->getBlock() == loop.getBody();
                      })
             ? loop
             : scf::ForOp();
}

/// A contraction is a product that is waited for.
void Placement::startProduct(const Contraction &c) {
  OpBuilder b(c.op);
  auto placeOf = [&](OpOperand *operand) {
    return tiles.find(operand->get())->second;
  };
  auto read = [&](OpOperand *operand) {
    return inRegisters.contains(operand) ? operand->get()
                                         : placeOf(operand).slot;
  };
  Value init = c.op.getDpsInits()[0];
  auto fill = init.getDefiningOp<linalg::FillOp>();
  SmallVector<Value> inits;
  if (!fill || !matchPattern(fill.getInputs()[0], m_AnyZeroFloat()))
    inits.push_back(init);
  SmallVector<Type> types{
      PendingType::get(b.getContext(), cast<RankedTensorType>(init.getType()))};
  PartialSumsOp sums = rowSums.lookup(c.op);
  if (sums && placeOf(c.b).ones) {
    IRRewriter rewriter(b.getContext());
    (void)moveValueDefinitions(rewriter, sums.getAcc(), c.op);
    inits.assign({init, sums.getAcc()});
    types.push_back(PendingType::get(
        b.getContext(), cast<RankedTensorType>(sums.getResult().getType())));
  } else {
    sums = {};
  }
  auto product =
      WgmmaOp::create(b, c.op.getLoc(), types, read(c.a), read(c.b), inits,
                      /*condition=*/Value(), c.aOuterK, c.bOuterK);
  auto wait = WaitGroupOp::create(b, c.op.getLoc(), 0, product.getResults());
  c.op->getResult(0).replaceAllUsesWith(wait.getResults()[0]);
  if (!sums)
    return;
  auto loop = cast<scf::ForOp>(sums->getParentOp());
  for (auto [i, value] : llvm::enumerate(loop.getYieldedValues()))
    if (value == sums.getResult())
      takeWholeSums(loop.getResult(i));
  sums.getResult().replaceAllUsesWith(wait.getResults()[1]);
  sums.erase();
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

static bool makesRandomBits(ConsumersOp role) {
  WalkResult walk =
      role.walk([](fa::RandomBitsOp) { return WalkResult::interrupt(); });
  return walk.wasInterrupted();
}

/// Whether a branch, such as that of blocks that a mask cuts, reads memory
/// element by element.
static bool branchesRead(ConsumersOp role) {
  WalkResult walk = role.walk([](scf::IfOp branch) {
    return branch.walk(
        [](tensor::ExtractOp) { return WalkResult::interrupt(); });
  });
  return walk.wasInterrupted();
}

/// Each warp's part of what is added lies in shared memory until TMA has read
/// it. Adders add it where blocks add in an order, so that the consumers need
/// not wait for turns, and where a row is so long that the instructions take
/// longer than to wait for the adder (an H200, benchmarks/README.md, "What
/// adders give").
void Placement::stageSums() {
  constexpr int64_t shortRow = 64;
  SmallVector<fa::AccumulateSliceOp> sums;
  consumers.walk([&](fa::AccumulateSliceOp sum) { sums.push_back(sum); });
  bool inOrder = llvm::any_of(sums, [](fa::AccumulateSliceOp sum) {
    return sum.getOrdered().value_or(0) > 0;
  });
  bool hasQueue = !forall.getBody()->getOps<TileQueueOp>().empty();
  int64_t adderBytes = warpgroups * StageOp::adderBytes;
  bool canHaveAdders = hasQueue && sums.size() == 1 &&
                       warpgroups <= StageOp::maxAdders &&
                       barriersEnd + adderBytes <= tileAlignment;
  bool areStaged = false, haveAdders = false;
  for (fa::AccumulateSliceOp sum : sums) {
    Value part = sum.getPart();
    auto slice = part.getDefiningOp<tensor::ExtractSliceOp>();
    if (slice)
      part = slice.getSource();
    auto type = cast<RankedTensorType>(part.getType());
    if (!part.getDefiningOp<WaitGroupOp>() ||
        !StageOp::takesSums(type, warpgroups) ||
        sum.getInit().getType().getShape().back() != type.getDimSize(1) ||
        tilesEnd + type.getNumElements() * 4 > target.sharedMemory)
      continue;
    OpBuilder b(slice ? slice.getOperation() : sum.getOperation());
    IntegerAttr adders;
    if (canHaveAdders && (inOrder || type.getDimSize(1) > shortRow)) {
      adders = b.getI64IntegerAttr(barriersEnd);
      barriersEnd += adderBytes;
      haveAdders = true;
    }
    auto stage = StageOp::create(b, sum.getLoc(), type, part, tilesEnd,
                                 IntegerAttr(), adders);
    (slice ? slice.getOperation() : sum.getOperation())
        ->replaceUsesOfWith(part, stage.getResult());
    tilesEnd += llvm::alignTo(stage.bytes(), tileAlignment);
    areStaged = true;
  }
  if (sums.empty())
    return;
  // As measured (benchmarks/HISTORY.md): fewer products at a time, where their
  // results do not need most registers anyway or sums are added from there, and
  // where a mask's own addresses would not fit; more, but first those of the
  // iteration before, where warps add what they have staged themselves; with
  // adders fewer again where random bits are made meanwhile.
  constexpr int64_t mostRegisters = 200, moreSpare = 96, lessSpare = 48;
  if (!areStaged || branchesRead(consumers) ||
      registersOfResults(warpgroups) <= mostRegisters) {
    consumers.setSpare(moreSpare);
  } else if (!haveAdders) {
    consumers.setSpare(lessSpare);
    consumers.setCarriedFirst(true);
  } else if (makesRandomBits(consumers)) {
    consumers.setSpare(moreSpare);
  }
}

void Placement::apply() {
  OpBuilder b(forall.getBody()->getTerminator());
  placeRings(b);
  RoleRegisters registers = registersOfRoles(teams * warpgroups, sharesTiles());
  auto producer = ProducerOp::create(b, forall.getLoc(), registers.producer);
  producer.getBody().emplaceBlock();
  moveIntoConsumers(b);
  for (auto &[tile, placed] : tiles)
    placeSlot(tile, placed);
  for (const Contraction &c : contractions)
    startProduct(c);
  for (const Contraction &c : contractions)
    c.op->erase();
  stageStores(forall, consumers, tilesEnd, stagedPanels);
  tilesEnd += stagedBytes;
  stageSums();
  if (options.spare >= 0)
    consumers.setSpare(options.spare);
  if (options.carriedFirst >= 0)
    consumers.setCarriedFirst(options.carriedFirst);
  buildProducer(producer, consumers);
  eraseDead(*forall.getBody());
}

/// What is computed, element by element, of a vector along the columns of tiles
/// is computed where a tile uses it: a thread has a column for a moment, not
/// all of its columns.
static void fuseVectors(scf::ForallOp forall) {
  auto isOfVector = [](OpOperand *operand) {
    auto user = cast<linalg::GenericOp>(operand->getOwner());
    AffineMap map = user.getMatchingIndexingMap(operand);
    return user.getNumLoops() == 2 && map.getNumResults() == 1 &&
           map.isFunctionOfDim(1) && operand->get().hasOneUse() &&
           linalg::areElementwiseOpsFusable(operand);
  };
  IRRewriter b(forall.getContext());
  bool changed = true;
  while (changed) {
    changed = false;
    SmallVector<linalg::GenericOp> users;
    forall.walk([&](linalg::GenericOp op) { users.push_back(op); });
    for (linalg::GenericOp user : users) {
      OpOperand *found = nullptr;
      for (OpOperand *operand : user.getDpsInputOperands())
        if (isOfVector(operand))
          found = operand;
      if (!found)
        continue;
      b.setInsertionPoint(user);
      auto fused = linalg::fuseElementwiseOps(b, found);
      if (failed(fused))
        continue;
      for (auto [from, to] : fused->replacements)
        from.replaceUsesWithIf(to, [&](OpOperand &use) {
          return use.getOwner() != fused->fusedOp;
        });
      Operation *producer = found->get().getDefiningOp();
      b.eraseOp(user);
      if (producer->use_empty())
        b.eraseOp(producer);
      changed = true;
      break;
    }
  }
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// Schedules a block's program, if the rules take it: then it is made ready
/// first, and looked at again. Else it stays as it is.
static LogicalResult place(scf::ForallOp forall, const fa::NVIDIATarget &target,
                           const Options &options) {
  std::string why;
  Placement look(forall, target, options);
  bool isTaken = look.match(why);
  bool isRefused = look.isRefused();
  if (isTaken) {
    forall.walk([](scf::ForOp loop) {
      decideByWarp(loop);
      splitRowSums(loop);
      sinkSums(loop);
    });
    fuseVectors(forall);
    Placement placement(forall, target, options);
    isTaken = placement.match(why);
    isRefused = placement.isRefused();
    if (isTaken)
      placement.apply();
  }
  if (isRefused)
    return forall.emitOpError() << why;
  if (!isTaken && look.hasContractions())
    remark::missed(forall.getLoc(), remark::RemarkOpts::name("place").category(
                                        "fa-hopper-place"))
        << "left the kernel to the Ampere schedule: " << why;
  return success();
}

namespace {
struct HopperPlace : public fa::impl::HopperPlacePassBase<HopperPlace> {
  using HopperPlacePassBase::HopperPlacePassBase;

  void runOnOperation() override {
    const fa::NVIDIATarget *target = fa::lookupNVIDIATarget(chip);
    if (!target || !target->wgmma) {
      getOperation().emitError("expected the target sm_90a, got ") << chip;
      return signalPassFailure();
    }
    Options options{stages,       persistent, stageStores, ones, pingPong,
                    carriedFirst, heads,      teams,       spare};
    for (func::FuncOp func : collectPrograms(getOperation())) {
      splitRandomMasks(func);
      for (auto forall : func.getBody().front().getOps<scf::ForallOp>())
        if (failed(place(forall, *target, options)))
          return signalPassFailure();
    }
  }
};
} // namespace
