// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/Hopper/IR/Hopper.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

#include <numeric>

using namespace mlir;
using namespace fa::hopper;

#include "fa/Dialect/Hopper/IR/HopperDialect.cpp.inc"

/// `, turned`, or nothing.
static ParseResult parseTurned(AsmParser &parser, bool &turned) {
  turned = succeeded(parser.parseOptionalComma());
  return turned ? parser.parseKeyword("turned") : success();
}

static void printTurned(AsmPrinter &printer, bool turned) {
  if (turned)
    printer << ", turned";
}

#define GET_TYPEDEF_CLASSES
#include "fa/Dialect/Hopper/IR/HopperTypes.cpp.inc"

void HopperDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "fa/Dialect/Hopper/IR/HopperTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "fa/Dialect/Hopper/IR/HopperOps.cpp.inc"
      >();
}

#define GET_OP_CLASSES
#include "fa/Dialect/Hopper/IR/HopperOps.cpp.inc"

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

/// A tile as it lies in shared memory.
static LogicalResult
verifySharedTile(function_ref<InFlightDiagnostic()> emitError,
                 RankedTensorType tile) {
  Type element = tile.getElementType();
  if (tile.getRank() == 1) {
    unsigned bits =
        element.isIntOrFloat() ? element.getIntOrFloatBitWidth() : 0;
    if (!tile.hasStaticShape() || tile.getDimSize(0) < 1 ||
        tile.getDimSize(0) > RingType::maxElements ||
        !llvm::is_contained({8, 16, 32, 64}, bits))
      return emitError() << "expected a static vector of at most "
                         << RingType::maxElements
                         << " numbers of 8, 16, 32 or 64 bits, got " << tile;
    return success();
  }
  if (tile.getRank() != 2 || !tile.hasStaticShape() ||
      !(element.isF16() || element.isBF16()))
    return emitError() << "expected a static tile of rank 2 with elements f16 "
                          "or bf16, got "
                       << tile;
  int64_t rows = tile.getDimSize(0), cols = tile.getDimSize(1);
  if (rows % 8 || rows < 8 || rows > RingType::maxRows)
    return emitError() << "expected a multiple of 8 rows, at most "
                       << RingType::maxRows << " (the largest box of TMA), got "
                       << rows;
  if (cols % 8 || cols < 8 || cols > RingType::maxCols)
    return emitError() << "expected a multiple of 8 columns (16 bytes), at "
                          "most "
                       << RingType::maxCols << ", got " << cols;
  return success();
}

bool RingType::takes(RankedTensorType tile) {
  auto ignore = [&] {
    InFlightDiagnostic diag = emitError(UnknownLoc::get(tile.getContext()));
    diag.abandon();
    return diag;
  };
  return succeeded(verifySharedTile(ignore, tile));
}

LogicalResult RingType::verify(function_ref<InFlightDiagnostic()> emitError,
                               unsigned stages, RankedTensorType tile,
                               bool turned) {
  if (stages < 1 || stages > 8)
    return emitError() << "expected 1 to 8 stages, got " << stages;
  if (!turned)
    return verifySharedTile(emitError, tile);
  if (tile.getRank() != 2)
    return emitError() << "expected a tile of rank 2 to be turned, got "
                       << tile;
  ArrayRef<int64_t> shape = tile.getShape();
  return verifySharedTile(
      emitError,
      RankedTensorType::get({shape[1], shape[0]}, tile.getElementType()));
}

LogicalResult SlotType::verify(function_ref<InFlightDiagnostic()> emitError,
                               RankedTensorType tile) {
  return verifySharedTile(emitError, tile);
}

LogicalResult PendingType::verify(function_ref<InFlightDiagnostic()> emitError,
                                  RankedTensorType tile) {
  if (tile.getRank() != 2 || !tile.hasStaticShape() ||
      !tile.getElementType().isF32())
    return emitError() << "expected a static tile of rank 2 with elements f32, "
                          "as products are, got "
                       << tile;
  return success();
}

/// The ring that a role's operation works on must be one of the role's block:
/// its position is counted there.
template <typename RoleOp>
static LogicalResult verifyRole(Operation *op, Value ring) {
  auto role = op->getParentOfType<RoleOp>();
  if (!role)
    return op->emitOpError("expected to be in ") << RoleOp::getOperationName();
  auto def = ring.getDefiningOp<RingOp>();
  if (!def || def->getBlock() != role->getBlock())
    return op->emitOpError("expected a hopper.ring beside the role");
  return success();
}

RingOp fa::hopper::ringOfSlot(Value slot) {
  llvm::SetVector<Value> slots;
  slots.insert(slot);
  RingOp ring;
  for (size_t n = 0; n < slots.size(); ++n) {
    Value v = slots[n];
    if (auto acquire = v.getDefiningOp<AcquireOp>()) {
      auto its = acquire.getRing().getDefiningOp<RingOp>();
      if (!its || (ring && its != ring))
        return {};
      ring = its;
      continue;
    }
    auto argument = dyn_cast<BlockArgument>(v);
    auto loop = dyn_cast_if_present<scf::ForOp>(
        argument ? argument.getOwner()->getParentOp() : v.getDefiningOp());
    if (!loop)
      return {};
    unsigned number = argument
                          ? argument.getArgNumber() - loop.getNumInductionVars()
                          : cast<OpResult>(v).getResultNumber();
    // The loop may not have been verified yet.
    if (number >= loop.getInitArgs().size() ||
        number >= loop.getYieldedValues().size())
      return {};
    slots.insert(loop.getInitArgs()[number]);
    slots.insert(loop.getYieldedValues()[number]);
  }
  return ring;
}

/// A slot's ring is known where it is used.
static LogicalResult verifySlot(Operation *op, Value slot) {
  if (!ringOfSlot(slot))
    return op->emitOpError("expected slots that are results of hopper.acquire "
                           "of one ring, or carried by an scf.for from there");
  return success();
}

/// Bytes of shared memory, from and to.
using Interval = std::pair<int64_t, int64_t>;

/// What an operation takes of a block's shared memory.
static SmallVector<Interval, 2> takenBy(Operation *op) {
  if (auto ring = dyn_cast<RingOp>(op)) {
    int64_t tiles = ring.getOffset(), barriers = ring.getBarriers();
    SmallVector<Interval, 2> taken{{tiles, tiles + ring.bytes()}};
    if (!ring.getWith())
      taken.push_back({barriers, ring.barriersEnd()});
    return taken;
  }
  if (auto queue = dyn_cast<TileQueueOp>(op)) {
    int64_t begin = queue.getBarriers();
    return {{begin, begin + TileQueueOp::bytes}};
  }
  if (auto stage = dyn_cast<StageOp>(op)) {
    int64_t begin = stage.getOffset();
    SmallVector<Interval, 2> taken{{begin, begin + stage.bytes()}};
    if (std::optional<int64_t> adders = stage.getAdders())
      taken.push_back({*adders, stage.addersEnd()});
    return taken;
  }
  if (auto role = dyn_cast<ConsumersOp>(op); role && role.getExchange())
    return {{*role.getExchange(), role.exchangeEnd()}};
  return {};
}

/// Rings, the queue, staged results and what is exchanged do not lie in each
/// other. `op` is compared with what comes before it: up to `place`, the
/// operation of the block's body that it is or is in.
static LogicalResult verifyApart(Operation *op, Operation *place) {
  for (Operation &other : *place->getBlock()) {
    if (&other == op)
      break;
    for (auto [begin, end] : takenBy(op))
      for (auto [otherBegin, otherEnd] : takenBy(&other))
        if (begin < otherEnd && otherBegin < end) {
          InFlightDiagnostic diag =
              op->emitOpError("takes bytes ")
              << begin << " to " << end
              << " of shared memory, some of which are taken; choose another "
                 "offset";
          diag.attachNote(other.getLoc())
              << "by this, from " << otherBegin << " to " << otherEnd;
          return diag;
        }
    if (&other == place)
      break;
  }
  return success();
}

/// What a ring with another one shares.
static LogicalResult verifyCompanion(RingOp op) {
  auto leader = op.getWith().getDefiningOp<RingOp>();
  if (!leader || leader->getBlock() != op->getBlock() || leader.getWith() ||
      leader.getComputed() || op.getComputed())
    return op.emitOpError("expected to be with a ring of the block that the "
                          "producer fills, as this one, and that is with no "
                          "other");
  unsigned stages = leader.getRing().getType().getStages();
  if (op.getRing().getType().getStages() != stages ||
      op.getBarriers() != leader.getBarriers())
    return op.emitOpError("expected the ")
           << stages << " stages and the barriers at " << leader.getBarriers()
           << " of ring \"" << leader.getName() << "\", got "
           << op.getRing().getType().getStages() << " and " << op.getBarriers();
  return success();
}

SmallVector<RingOp> fa::hopper::companionsOf(Value leader) {
  SmallVector<RingOp> rings;
  for (Operation *user : leader.getUsers())
    if (auto ring = dyn_cast<RingOp>(user))
      rings.push_back(ring);
  return rings;
}

LogicalResult RingOp::verify() {
  int64_t offset = getOffset(), barriers = getBarriers();
  if (offset < 0 || offset % tileAlignment || offset > sharedBytes)
    return emitOpError("expected an offset that is a multiple of ")
           << tileAlignment << " (the descriptors' alignment), at most "
           << sharedBytes << ", got " << offset;
  if (barriers < 0 || barriers % barrierBytes || barriers > sharedBytes)
    return emitOpError("expected barriers at a multiple of 8, at most ")
           << sharedBytes << ", got " << barriers;
  if (barriers < offset + bytes() && offset < barriersEnd())
    return emitOpError("has barriers inside its tiles: ") << barriers;
  int64_t end = std::max(offset + bytes(), barriersEnd());
  if (getRing().getType().isVector() && (getOnes() || getComputed()))
    return emitOpError("has ") << (getOnes() ? "ones" : "`computed`")
                               << ", which rings of vectors do not; leave it "
                                  "out, the producer fills them";
  if (getRing().getType().getTurned() && !getComputed())
    return emitOpError("has turned tiles, and TMA loads them as they lie in "
                       "memory; have it `computed`, or not `turned`");
  if (getRing().getType().getTurned() && getOnes())
    return emitOpError("has turned tiles, beside which a panel of ones is no "
                       "further columns of theirs; leave out `ones`");
  if (end > sharedBytes)
    return emitOpError("ends at byte ")
           << end << " of shared memory, and a block has " << sharedBytes
           << "; choose fewer stages or smaller tiles";
  if (getUnguarded() && !getComputed())
    return emitOpError(
        "expected `computed` with `unguarded`: the producer waits "
        "for empty stages");
  if (getWith() && failed(verifyCompanion(*this)))
    return failure();
  return verifyApart(*this, *this);
}

LogicalResult TileQueueOp::verify() {
  int64_t barriers = getBarriers(), section = getSection();
  if (barriers < 0 || barriers % barrierBytes || barriers > sharedBytes - bytes)
    return emitOpError("expected barriers at a multiple of 8, at most ")
           << sharedBytes - bytes << ", got " << barriers;
  if (section < 1)
    return emitOpError("expected sections of at least 1, got ") << section;
  if (int64_t teams = getTeams(); teams < 1 || teams > maxWarpgroups)
    return emitOpError("expected 1 to ")
           << maxWarpgroups << " teams, got " << teams;
  auto queues = (*this)->getBlock()->getOps<TileQueueOp>();
  if (!llvm::hasSingleElement(queues))
    return emitOpError("expected one hopper.tile_queue in a block");
  return verifyApart(*this, *this);
}

/// A computed tile's type may say where it lives; a ring's does not.
static RankedTensorType withoutLayout(Type type) {
  return cast<RankedTensorType>(type).dropEncoding();
}

LogicalResult LoadOp::verify() {
  RingType ring = getRing().getType();
  if (ring.getTile() != getTile().getType())
    return emitOpError("expected a tile of the ring's type ")
           << ring.getTile() << ", got " << getTile().getType();
  if (static_cast<int64_t>(getBytes()) != ring.tileBytes())
    return emitOpError("expects ")
           << getBytes() << " bytes, but the panels of the tile have "
           << ring.tileBytes();
  if (failed(verifyRole<ProducerOp>(*this, getRing())))
    return failure();
  if (isComputed(getRing()))
    return emitOpError("expected a ring that is not computed: the consumers "
                       "fill \"")
           << getRing().getDefiningOp<RingOp>().getName()
           << "\"; load into another ring, or let them hopper.share the tile";
  return success();
}

LogicalResult ShareOp::verify() {
  RingType ring = getRing().getType();
  if (ring.getTile() != withoutLayout(getTile().getType()))
    return emitOpError("expected a tile of the ring's type ")
           << ring.getTile() << ", got " << getTile().getType();
  if (failed(verifyRole<ConsumersOp>(*this, getRing())))
    return failure();
  if (!isComputed(getRing()))
    return emitOpError("expected a computed ring: the producer fills \"")
           << getRing().getDefiningOp<RingOp>().getName()
           << "\"; give a ring of its own `computed`";
  int64_t warpgroups = (*this)->getParentOfType<ConsumersOp>().getWarpgroups();
  if (!takesShare(ring.getTile(), warpgroups, ring.getTurned()))
    return emitOpError("expected a tile of 64 rows for each warpgroup, or of "
                       "columns in parts of ")
           << (ring.getTurned() ? "a multiple of 16"
                                : "16, 32 or a multiple of 64")
           << ", got " << ring.getTile() << " in " << warpgroups
           << " warpgroups";
  return success();
}

LogicalResult AcquireOp::verify() {
  if (getSlot().getType().getTile() != getRing().getType().getTile())
    return emitOpError("expected a slot of the ring's tile ")
           << getRing().getType().getTile() << ", got "
           << getSlot().getType().getTile();
  if (failed(verifyRole<ConsumersOp>(*this, getRing())))
    return failure();
  Value leader = leaderOf(getRing());
  if (!leader != !getWith())
    return emitOpError(leader
                           ? "expected the slot that the tile comes with: that "
                             "of the ring that its ring is with"
                           : "has a slot that the tile comes with, and its "
                             "ring is with no other; leave it out");
  if (!leader)
    return success();
  RingOp ring = ringOfSlot(getWith());
  if (!ring || ring.getRing() != leader)
    return emitOpError("expected a slot of ring \"")
           << leader.getDefiningOp<RingOp>().getName()
           << "\", which its ring is with";
  if (getPolled())
    return emitOpError("has a ring that is with another one, which alone is "
                       "polled; leave `polled` out");
  return success();
}

LogicalResult PollOp::verify() {
  if (failed(verifyRole<ConsumersOp>(*this, getRing())))
    return failure();
  if (leaderOf(getRing()))
    return emitOpError("polls a ring that is with another one; poll that");
  return success();
}

LogicalResult ReadOp::verify() {
  if (failed(verifySlot(*this, getSlot())))
    return failure();
  if (getSlot().getType().getTile() != withoutLayout(getResult().getType()))
    return emitOpError("expected the slot's vector ")
           << getSlot().getType().getTile() << ", got "
           << getResult().getType();
  return success();
}

LogicalResult ReleaseOp::verify() {
  if (failed(verifySlot(*this, getSlot())))
    return failure();
  if (ringOfSlot(getSlot()).getWith())
    return emitOpError("gives back a slot of a ring that is with another one, "
                       "with whose slots its own are given back; leave it out");
  return success();
}

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

static LogicalResult verifyRegisters(Operation *op, int64_t registers) {
  if (registers < 24 || registers > 256 || registers % 8)
    return op->emitOpError("expected registers to be a multiple of 8 from 24 "
                           "to 256 (setmaxnreg), got ")
           << registers;
  return success();
}

bool fa::hopper::isComputed(Value ring) {
  auto def = ring.getDefiningOp<RingOp>();
  return def && def.getComputed();
}

Value fa::hopper::leaderOf(Value ring) {
  auto def = ring.getDefiningOp<RingOp>();
  return def ? def.getWith() : Value();
}

bool fa::hopper::isStep(Operation *op) {
  return isa<LoadOp, ShareOp, AcquireOp, PollOp, ReadOp, ReleaseOp, WgmmaOp,
             WaitGroupOp, TurnBeginOp, TurnEndOp>(op);
}

Division Division::of(ArrayRef<int64_t> shape, int64_t warpgroups) {
  int64_t rows = std::gcd(warpgroups, shape[0] / warpgroupRows);
  return {rows, warpgroups / rows};
}

/// Of a vector along the rows all that divide columns have the same.
Division::Part Division::part(ArrayRef<int64_t> shape,
                              int64_t warpgroup) const {
  int64_t i = warpgroup % rows, j = warpgroup / rows;
  int64_t row = shape[0] / rows, col = shape.size() > 1 ? shape[1] / cols : 0;
  return {i * row, (i + 1) * row, j * col, (j + 1) * col};
}

bool fa::hopper::fitsPanels(int64_t cols) {
  return cols % RingType::panelCols == 0 || RingType::panelCols % cols == 0;
}

bool fa::hopper::takesProduct(RankedTensorType result, int64_t warpgroups) {
  int64_t rows = result.getDimSize(0), cols = result.getDimSize(1);
  if (rows < warpgroupRows || rows % warpgroupRows)
    return false;
  Division d = Division::of(result.getShape(), warpgroups);
  int64_t part = cols / d.cols;
  return rows == d.rows * warpgroupRows && cols % d.cols == 0 &&
         part % 8 == 0 && part >= 8 && part <= 256 &&
         (d.cols == 1 || fitsPanels(part) || part % 16 == 0);
}

bool fa::hopper::takesShare(RankedTensorType tile, int64_t warpgroups,
                            bool turned) {
  if (!takesProduct(tile, warpgroups))
    return false;
  // Warps write pairs of tiles of 8 columns, of which one may be padding.
  int64_t cols = Division::of(tile.getShape(), warpgroups).cols,
          part = tile.getDimSize(1) / cols;
  if (turned)
    return part % 16 == 0;
  return cols == 1 || (part % 16 == 0 && fitsPanels(part));
}

ConsumersOp fa::hopper::consumersOf(scf::ForallOp forall) {
  auto roles = forall.getBody()->getOps<ConsumersOp>();
  return roles.empty() ? ConsumersOp() : *roles.begin();
}

int64_t fa::hopper::teamsOf(scf::ForallOp forall) {
  for (auto queue : forall.getBody()->getOps<TileQueueOp>())
    return queue.getTeams();
  return 1;
}

LogicalResult ProducerOp::verify() {
  return verifyRegisters(*this, getRegisters());
}

LogicalResult ConsumersOp::verify() {
  if (failed(verifyRegisters(*this, getRegisters())))
    return failure();
  if (int64_t spare = getSpare(); spare < 0)
    return emitOpError("expected to spare 0 registers or more, got ") << spare;
  if (std::optional<int64_t> free = getSpareFree();
      free && (*free < 0 || *free > int64_t(getSpare())))
    return emitOpError("expected to spare 0 to ")
           << getSpare() << " registers where no product reads registers, got "
           << *free;
  if (std::optional<int64_t> offset = getExchange()) {
    constexpr int64_t alignment = 16; // of what a thread reads at once
    if (*offset < 0 || *offset % alignment || exchangeEnd() > sharedBytes)
      return emitOpError("expected to exchange at a multiple of ")
             << alignment << ", up to byte " << sharedBytes
             << " of shared memory, got bytes " << *offset << " to "
             << exchangeEnd() << "; choose another offset";
    if (failed(verifyApart(*this, *this)))
      return failure();
  }
  int64_t teams = teamsOf(cast<scf::ForallOp>((*this)->getParentOp()));
  int64_t groups = getWarpgroups() * teams;
  if (getWarpgroups() < 1 || groups < 1 || groups > maxWarpgroups)
    return emitOpError("expected 1 to 4 warpgroups, got ")
           << getWarpgroups() << " in " << teams << " team"
           << (teams == 1 ? "" : "s");
  ProducerOp producer;
  for (Operation &op : *(*this)->getBlock()) {
    if (&op == getOperation())
      continue;
    if (isa<ConsumersOp>(op) || (producer && isa<ProducerOp>(op)))
      return emitOpError("expected one hopper.producer and one "
                         "hopper.consumers in a block");
    if (auto found = dyn_cast<ProducerOp>(op))
      producer = found;
  }
  if (!producer || !producer->isBeforeInBlock(*this))
    return emitOpError("expected a hopper.producer before it");
  if (failed(verifyRegisters(producer, producer.getRegisters())))
    return failure();
  // What a block enters with: a multiple of 8 for each thread, of 65536.
  int64_t threads = warpgroupThreads * (groups + 1);
  int64_t has = 65536 / threads / 8 * 8 * threads;
  int64_t total =
      warpgroupThreads * (groups * getRegisters() + producer.getRegisters());
  if (total > has)
    return emitOpError("asks with its producer for ")
           << total << " registers, and a block of " << threads
           << " threads has " << has;
  if (getBody().front().getTerminator()->getOperandTypes() != getResultTypes())
    return emitOpError("expected to yield values of its results' types");
  return success();
}

//===----------------------------------------------------------------------===//
// Matrix products
//===----------------------------------------------------------------------===//

RankedTensorType fa::hopper::getTileType(Type type) {
  if (auto slot = dyn_cast<SlotType>(type))
    return slot.getTile();
  if (auto pending = dyn_cast<PendingType>(type))
    return pending.getTile();
  return dyn_cast<RankedTensorType>(type);
}

static RankedTensorType tileOf(Value v) { return getTileType(v.getType()); }

/// What a product is to give: known once, where the product is, so that no
/// other path can read it early or wait for it again.
static LogicalResult verifyPending(WgmmaOp op, Value result) {
  if (!result.hasOneUse())
    return op.emitOpError(
               "expected one use of a pending result, by a "
               "hopper.wait_group or as another product's init, got ")
           << std::distance(result.use_begin(), result.use_end());
  OpOperand &use = *result.use_begin();
  auto next = dyn_cast<WgmmaOp>(use.getOwner());
  bool isInit = next && llvm::is_contained(next.getInits(), result);
  if (!isInit && !isa<WaitGroupOp>(use.getOwner()))
    return op.emitOpError("expected a pending result to be awaited or another "
                          "product's init, got ")
           << use.getOwner()->getName();
  if (use.getOwner()->getBlock() != op->getBlock()) {
    InFlightDiagnostic diag =
        op.emitOpError("expected its result to be awaited in its own block");
    diag.attachNote(use.getOwner()->getLoc()) << "and not here";
    return diag;
  }
  return success();
}

LogicalResult WgmmaOp::verify() {
  if (failed(verifySlot(*this, getB())) ||
      (isa<SlotType>(getA().getType()) && failed(verifySlot(*this, getA()))))
    return failure();
  RankedTensorType a = tileOf(getA()), b = tileOf(getB());
  size_t count = getResults().size();
  if (count != 1 && count != 2)
    return emitOpError("expected one or two results, got ") << count;
  bool hasInits = getInits().size() == count;
  for (auto [init, result] : llvm::zip(getInits(), getResults()))
    hasInits &= tileOf(init) == tileOf(result);
  if (!getInits().empty() && !hasInits)
    return emitOpError("expected an init of each result's type, or none");
  if (getCondition() && getInits().empty())
    return emitOpError("expected inits where it has a condition, which says "
                       "whether they count");
  RankedTensorType c = tileOf(getResults()[0]);
  if (a.getRank() != 2 || !a.hasStaticShape() || b.getRank() != 2)
    return emitOpError("expected static tiles of rank 2");
  if (a.getElementType() != b.getElementType() ||
      a.getElementTypeBitWidth() != 16)
    return emitOpError("expected f16 or bf16 operands alike, got ")
           << a.getElementType() << " and " << b.getElementType();
  bool isATurned = getATransposed();
  if (isATurned && !isa<SlotType>(getA().getType()))
    return emitOpError(
        "expected a slot as a transposed first operand; registers "
        "hold rows");
  int64_t m = c.getDimSize(0), n = c.getDimSize(1);
  int64_t am = a.getDimSize(isATurned ? 1 : 0),
          k = a.getDimSize(isATurned ? 0 : 1);
  int64_t bn = b.getDimSize(getTransposed() ? 1 : 0),
          bk = b.getDimSize(getTransposed() ? 0 : 1);
  if (am != m || bn != n || bk != k)
    return emitOpError("operands of ")
           << a << " and " << b << " do not make " << c;
  auto role = (*this)->getParentOfType<ConsumersOp>();
  int64_t warpgroups = role ? role.getWarpgroups() : m / warpgroupRows;
  if (m % warpgroupRows || n % 8 || n < 8 || !takesProduct(c, warpgroups))
    return emitOpError("expected rows in multiples of 64 and 8 to 256 columns "
                       "in multiples of 8 for each warpgroup, got ")
           << m << " and " << n << " for " << warpgroups;
  if ((getTransposed() || isATurned) && k % 16)
    return emitOpError("expected a multiple of 16 keys, got ") << k;
  if (Division d = Division::of(c.getShape(), warpgroups);
      d.cols > 1 && (count == 2 || !isa<SlotType>(getA().getType())))
    return emitOpError("expected a first operand in shared memory and no sums "
                       "where warpgroups divide columns");
  if (count == 2) {
    RankedTensorType sums = tileOf(getResults()[1]);
    if (sums.getShape() != ArrayRef<int64_t>{m, 8})
      return emitOpError("expected sums of ") << m << "x8 f32, got " << sums;
    auto acquire = getB().getDefiningOp<AcquireOp>();
    auto ring = acquire ? acquire.getRing().getDefiningOp<RingOp>() : RingOp();
    if (!getTransposed() || !ring || !ring.getOnes())
      return emitOpError("expected b transposed, from a ring with ones, for a "
                         "second result");
  }
  for (Value result : getResults())
    if (failed(verifyPending(*this, result)))
      return failure();
  return success();
}

/// What registers can hold of tiles that warpgroups share.
static LogicalResult verifyTiles(Operation *op, ValueRange values) {
  if (values.empty())
    return op->emitOpError("expected at least one tile");
  for (Value v : values) {
    auto type = cast<RankedTensorType>(v.getType());
    if (type.getRank() != 2 || !type.hasStaticShape())
      return op->emitOpError("expected static tiles of rank 2, got ") << type;
  }
  return success();
}

LogicalResult WaitGroupOp::inferReturnTypes(MLIRContext *,
                                            std::optional<Location>,
                                            ValueRange operands, DictionaryAttr,
                                            OpaqueProperties, RegionRange,
                                            SmallVectorImpl<Type> &types) {
  for (Value v : operands) {
    auto pending = dyn_cast<PendingType>(v.getType());
    if (!pending)
      return failure();
    types.push_back(pending.getTile());
  }
  return success();
}

LogicalResult WaitGroupOp::verify() {
  int64_t pending = getPending();
  if (pending < 0 || pending > maxPending)
    return emitOpError("expected 0 to ")
           << maxPending << " groups in flight, got " << pending;
  if (getValues().empty())
    return emitOpError("expected at least one tile");
  return success();
}

LogicalResult PinOp::verify() { return verifyTiles(*this, getValues()); }

LogicalResult ExceedsOp::verify() {
  RankedTensorType type = getTile().getType();
  if (!type.hasStaticShape() || type.getRank() < 1 || type.getRank() > 2)
    return emitOpError("expected a static tile or vector, got ") << type;
  return success();
}

static LogicalResult verifyTurn(Operation *op) {
  auto role = op->getParentOfType<ConsumersOp>();
  if (!role)
    return op->emitOpError("expected to be in hopper.consumers");
  if (role.getWarpgroups() < 2)
    return op->emitOpError("expected at least 2 warpgroups to take turns");
  return success();
}

LogicalResult TurnBeginOp::verify() { return verifyTurn(*this); }

LogicalResult TurnEndOp::verify() { return verifyTurn(*this); }

LogicalResult PartialSumsOp::verify() {
  auto tile = cast<RankedTensorType>(getTile().getType()),
       acc = cast<RankedTensorType>(getAcc().getType());
  if (tile.getRank() != 2 || !tile.hasStaticShape() ||
      !acc.getElementType().isF32() ||
      acc.getShape() != ArrayRef<int64_t>{tile.getDimSize(0), 8} ||
      getResult().getType() != acc || tile.getDimSize(1) % 8)
    return emitOpError("expected a tile whose columns are a multiple of 8 and "
                       "sums of 8 f32 for each row, got ")
           << tile << " and " << acc;
  return success();
}

int64_t StageOp::sectionCols() {
  return getColumns().value_or(getTile().getType().getDimSize(1));
}

bool StageOp::takesSums(RankedTensorType tile, int64_t warpgroups,
                        bool turned) {
  if (tile.getRank() != 2 || !tile.hasStaticShape() ||
      !tile.getElementType().isF32() || !takesProduct(tile, warpgroups))
    return false;
  Division own = Division::of(tile.getShape(), warpgroups);
  return tile.getDimSize(0) == own.rows * warpgroupRows &&
         (turned ? own.cols == 1
                 : tile.getDimSize(1) % (own.cols * leastSumCols) == 0);
}

int64_t StageOp::sumCols() {
  if (getTurned())
    return mostSumCols;
  auto role = (*this)->getParentOfType<ConsumersOp>();
  ArrayRef<int64_t> shape = getTile().getType().getShape();
  Division own = Division::of(shape, role.getWarpgroups());
  return shape[1] % (own.cols * mostSumCols) ? leastSumCols : mostSumCols;
}

int64_t StageOp::addedRows() {
  if (getTurned())
    return getResult().getType().getDimSize(0);
  return getAdders() ? warpgroupRows : sumRows;
}

LogicalResult StageOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                        ValueRange operands,
                                        DictionaryAttr attributes,
                                        OpaqueProperties properties,
                                        RegionRange,
                                        SmallVectorImpl<Type> &types) {
  auto tile = dyn_cast<RankedTensorType>(operands[0].getType());
  if (!tile)
    return failure();
  auto *own = properties.as<Properties *>();
  if (own && own->turned) {
    // No thread holds it.
    if (tile.getRank() != 2)
      return failure();
    tile = RankedTensorType::get({tile.getDimSize(1), tile.getDimSize(0)},
                                 tile.getElementType());
  }
  types.push_back(tile);
  return success();
}

int64_t StageOp::addersEnd() {
  auto role = (*this)->getParentOfType<ConsumersOp>();
  return *getAdders() + adderBytes * role.getWarpgroups();
}

int64_t StageOp::bytes() {
  RankedTensorType tile = getTile().getType();
  if (holdsSums())
    return tile.getNumElements() * 4;
  auto section = RankedTensorType::get({tile.getDimSize(0), sectionCols()},
                                       tile.getElementType());
  return RingType::get(getContext(), 1, section).tileBytes();
}

SmallVector<Operation *> fa::hopper::sumsOf(StageOp stage) {
  llvm::SetVector<Operation *> users(stage->user_begin(), stage->user_end());
  for (size_t n = 0; n < users.size(); ++n)
    if (isa<tensor::ExtractSliceOp>(users[n]))
      users.insert(users[n]->user_begin(), users[n]->user_end());
  users.remove_if(llvm::IsaPred<tensor::ExtractSliceOp>);
  return users.takeVector();
}

/// What lies where a tile is staged has been added to memory.
static LogicalResult verifyPlaceIsFree(StageOp op) {
  auto [begin, end] = takenBy(op).front();
  for (Operation *before = op->getPrevNode(); before;
       before = before->getPrevNode()) {
    auto other = dyn_cast<StageOp>(before);
    if (!other || !other.holdsSums())
      continue;
    auto [otherBegin, otherEnd] = takenBy(other).front();
    if (begin >= otherEnd || otherBegin >= end)
      continue;
    for (Operation *sum : sumsOf(other)) {
      if (sum->getBlock() != op->getBlock() || sum->isBeforeInBlock(op))
        continue;
      InFlightDiagnostic diag = op.emitOpError("stages a tile from byte ")
                                << begin << " to " << end
                                << ", where another one, from " << otherBegin
                                << " to " << otherEnd
                                << ", is added later; add that before, or "
                                   "choose another offset";
      diag.attachNote(sum->getLoc()) << "added here";
      return diag;
    }
  }
  return success();
}

LogicalResult StageOp::verify() {
  auto tile = cast<RankedTensorType>(getTile().getType());
  auto role = (*this)->getParentOfType<ConsumersOp>();
  if (!role)
    return emitOpError("expected to be in hopper.consumers");
  bool isSum = holdsSums();
  if (tile.getRank() != 2 || !tile.hasStaticShape())
    return emitOpError("expected a static tile of rank 2, got ") << tile;
  if (getTurned() && (!isSum || !getAdders()))
    return emitOpError("expected a turned tile to be of f32, with adders, got ")
           << tile << (getAdders() ? "" : " without");
  if (getTurned() &&
      (getColumns() || !takesSums(tile, role.getWarpgroups(), /*turned=*/true)))
    return emitOpError("expected a turned tile of 64 rows and a multiple of 8 "
                       "columns for each of ")
           << role.getWarpgroups() << " warpgroups, and no `by`, got " << tile;
  if (isSum && !getTurned() &&
      (getColumns() || !takesSums(tile, role.getWarpgroups(), false)))
    return emitOpError("expected a tile of f32 of 64 rows and a multiple of 16 "
                       "columns for each of ")
           << role.getWarpgroups() << " warpgroups, and no `by`, got " << tile;
  if (!isSum && failed(verifySharedTile([&] { return emitOpError(); }, tile)))
    return failure();
  if (tile.getDimSize(0) % warpgroupRows)
    return emitOpError("expected rows in multiples of ")
           << warpgroupRows << ", got " << tile.getDimSize(0);
  int64_t offset = getOffset(), cols = tile.getDimSize(1);
  if (getColumns() && (sectionCols() <= 0 || sectionCols() >= cols ||
                       sectionCols() % RingType::panelCols))
    return emitOpError("expected columns in multiples of ")
           << RingType::panelCols << ", fewer than the tile's " << cols
           << ", got " << sectionCols();
  int64_t bytes = this->bytes();
  if (offset < 0 || offset % tileAlignment || offset > sharedBytes - bytes)
    return emitOpError("expected an offset that is a multiple of ")
           << tileAlignment << ", at most " << sharedBytes - bytes << ", got "
           << offset;
  if (isSum && failed(verifyPlaceIsFree(*this)))
    return failure();
  if (std::optional<int64_t> adders = getAdders()) {
    if (!isSum)
      return emitOpError("expected a tile of f32 for adders, got ") << tile;
    if (role.getWarpgroups() > maxAdders)
      return emitOpError("expected at most ")
             << maxAdders << " warpgroups where each has an adder, got "
             << role.getWarpgroups();
    int64_t bytesOfAll = adderBytes * role.getWarpgroups();
    if (*adders < 0 || *adders % barrierBytes ||
        *adders > sharedBytes - bytesOfAll)
      return emitOpError("expected the adders' bytes at a multiple of ")
             << barrierBytes << ", at most " << sharedBytes - bytesOfAll
             << ", got " << *adders;
    if (*adders < offset + bytes && offset < addersEnd())
      return emitOpError("takes bytes ")
             << *adders << " to " << addersEnd()
             << " of shared memory for adders, where its tile lies; choose "
                "another offset";
    auto block = role->getParentOfType<scf::ForallOp>();
    if (block.getBody()->getOps<TileQueueOp>().empty() || teamsOf(block) > 1)
      return emitOpError("expected a block with adders to take tiles from a "
                         "hopper.tile_queue without teams");
  }
  return verifyApart(*this, role);
}
