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
//   Bits       threads of a warpgroup exchange random bits of tiles whose rows
//              are keys
//   Rings      two stages where the tile is loaded or computed in a loop and
//              memory allows it, loaded ones first, and up to four where
//              nothing is shared; else one
//   Results    one of 16 bits leaves by TMA where two stages leave room for it
//   Grid       a block for each multiprocessor takes tiles from a queue, maybe
//              two at a time

#include "Placement.h"

#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Utils/CleanUp.h"
#include "fa/Dialect/Hopper/Transforms/Adders.h"
#include "fa/Dialect/Hopper/Transforms/Followers.h"
#include "fa/Schedule/SplitRandomMasks.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/RegionUtils.h"

namespace fa {
#define GEN_PASS_DEF_HOPPERPLACEPASS
#include "fa/Target/NVIDIA/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;
using namespace fa::hopper;

//===----------------------------------------------------------------------===//
// The two roles
//===----------------------------------------------------------------------===//

void Placement::placeRings(OpBuilder &b) {
  for (auto [n, entry] : llvm::enumerate(tiles)) {
    auto &[tile, placed] = entry;
    auto type =
        RingType::get(b.getContext(), placed.stages,
                      cast<RankedTensorType>(tile.getType()), placed.isTurned);
    RingOp with = placed.with ? tiles[placed.with].ring : RingOp();
    placed.ring = RingOp::create(
        b, tile.getLoc(), type, with ? with.getRing() : Value(),
        "tile" + std::to_string(n), tilesEnd,
        with ? with.getBarriers() : barriersEnd, placed.ones, placed.isComputed,
        /*unguarded=*/false);
    tilesEnd += llvm::alignTo(placed.ring.bytes(), tileAlignment);
    if (!with)
      barriersEnd = placed.ring.barriersEnd();
  }
  placeQueue(b);
}

/// Blocks stay and take tiles from a queue, the longest first where their
/// lengths differ, some heads at a time there and where they add to memory; if
/// barriers leave it room before the first tile.
void Placement::placeQueue(OpBuilder &b) {
  if (options.persistent == 0 ||
      barriersEnd + TileQueueOp::bytes > tileAlignment)
    return;
  bool longestFirst =
      boundsDependOn(forall, forall.getInductionVars().back()) ||
      addsToMemory();
  TileQueueOp::create(b, forall.getLoc(), barriersEnd, longestFirst,
                      longestFirst ? headsOfSection() : 1, teams);
  barriersEnd += TileQueueOp::bytes;
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
  ConsumersOp::Properties properties;
  properties.setWarpgroups(b.getI64IntegerAttr(warpgroups));
  properties.setRegisters(b.getI64IntegerAttr(registers.consumers));
  consumers =
      ConsumersOp::create(b, forall.getLoc(), TypeRange(ValueRange(values)),
                          ValueRange(), properties);
  consumers.setTurns(turns);
  // Where the products leave no room to compute under them, all of them start,
  // beside vectors that a loop carries and sums by a panel of ones; for these
  // addresses and counters may have less than leastSpare.
  constexpr int64_t beside = 8;
  int64_t room = registers.consumers - registersOfProducts(warpgroups);
  if (!sharesTiles() && !addsToMemory() && int64_t(consumers.getSpare()) > room)
    consumers.setSpare(
        std::clamp<int64_t>(room - beside, 0, ConsumersOp::leastSpare));
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

/// What computes with a vector reads it from its slot.
static void readVector(Value slot, ArrayRef<Operation *> users, Value vector) {
  for (Operation *user : users) {
    OpBuilder before(user);
    auto read = ReadOp::create(before, user->getLoc(), vector.getType(), slot);
    user->replaceUsesOfWith(vector, read.getResult());
  }
}

/// The slot of what comes with a tile is there when the tile's is, and goes
/// with it.
void Placement::placeCompanion(Value tile, PlacedTile &placed) {
  SmallVector<Operation *> users = usersInShared(tile);
  Value leader = tiles[placed.with].slot;
  Operation *after = leader.getDefiningOp();
  IRRewriter b(tile.getContext());
  (void)moveValueDefinitions(b, tile, after);
  b.setInsertionPointAfter(after);
  RingType ring = placed.ring.getRing().getType();
  placed.slot =
      AcquireOp::create(b, tile.getLoc(),
                        SlotType::get(b.getContext(), ring.getTile()),
                        placed.ring.getRing(), tile, leader, /*polled=*/false)
          .getSlot();
  readVector(placed.slot, users, tile);
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
                                  placed.ring.getRing(), tile,
                                  /*with=*/Value(), /*polled=*/false)
                    .getSlot();
  if (ring.isVector())
    readVector(placed.slot, users, tile);
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
  SmallVector<Type> types{PendingType::get(b.getContext(), productTile(c))};
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
  Value result = wait.getResults()[0];
  // Where it is staged is chosen when all are (stageSums).
  if (turned.contains(c.op))
    result = StageOp::create(b, c.op.getLoc(), result, /*turned=*/true,
                             /*offset=*/0, IntegerAttr(), IntegerAttr())
                 .getResult();
  c.op->getResult(0).replaceAllUsesWith(result);
  if (!sums)
    return;
  auto loop = cast<scf::ForOp>(sums->getParentOp());
  for (auto [i, value] : llvm::enumerate(loop.getYieldedValues()))
    if (value == sums.getResult())
      takeWholeSums(loop.getResult(i));
  sums.getResult().replaceAllUsesWith(wait.getResults()[1]);
  sums.erase();
}

/// Each warp's part of what is added lies in shared memory until TMA has read
/// it. Adders add it where blocks add in an order, so that the consumers need
/// not wait for turns, and where a warp's part is of so many panels that its
/// instructions take longer than to wait for the adder
/// (benchmarks/experiments/2026-11-25-adders.md).
void Placement::stageSums() {
  constexpr int64_t fewPanels = 2;
  SmallVector<fa::AccumulateSliceOp> sums;
  consumers.walk([&](fa::AccumulateSliceOp sum) { sums.push_back(sum); });
  bool inOrder = llvm::any_of(sums, [](fa::AccumulateSliceOp sum) {
    return sum.getOrdered().value_or(0) > 0;
  });
  bool hasQueue = !forall.getBody()->getOps<TileQueueOp>().empty();
  int64_t adderBytes = warpgroups * StageOp::adderBytes;
  bool canHaveAdders = hasQueue && teams == 1 && sums.size() == 1 &&
                       warpgroups <= StageOp::maxAdders &&
                       barriersEnd + adderBytes <= tileAlignment;
  bool areStaged = false, haveAdders = false;
  for (fa::AccumulateSliceOp sum : sums) {
    Value part = addedTile(sum);
    RankedTensorType type = stageableSum(sum);
    auto stage = part.getDefiningOp<StageOp>();
    if (!type || !(stage || part.getDefiningOp<WaitGroupOp>()) ||
        tilesEnd + type.getNumElements() * 4 > target.sharedMemory)
      continue;
    if (stage) {
      stage.setOffset(tilesEnd);
    } else {
      // It stands before what takes the tile, the sum or its slice.
      Operation *taker = sum;
      if (part != sum.getPart())
        taker = sum.getPart().getDefiningOp();
      OpBuilder b(taker);
      stage = StageOp::create(b, sum.getLoc(), part, /*turned=*/false, tilesEnd,
                              IntegerAttr(), IntegerAttr());
      taker->replaceUsesOfWith(part, stage.getResult());
    }
    int64_t ownCols =
        type.getDimSize(1) / Division::of(type.getShape(), warpgroups).cols;
    if (canHaveAdders && (inOrder || stage.getTurned() ||
                          ownCols / stage.sumCols() > fewPanels)) {
      stage.setAdders(barriersEnd);
      barriersEnd += adderBytes;
      haveAdders = true;
    }
    tilesEnd += llvm::alignTo(stage.bytes(), tileAlignment);
    areStaged = true;
  }
  if (sums.empty())
    return;
  // As measured (benchmarks/experiments/2026-11-25-gradient-spare-registers.md,
  // 2026-11-25-gradient-orders.md): fewer products at a time, where their
  // results do not need most registers anyway or sums are added from there, and
  // where a mask's own addresses would not fit; more, but first those of the
  // iteration before, where warps add what they have staged themselves; with
  // adders fewer again where random bits are made meanwhile.
  constexpr int64_t mostRegisters = 200, moreSpare = 96, lessSpare = 48;
  if (choice) {
    consumers.setSpare(choice->spare);
    consumers.setCarriedFirst(choice->carriedFirst);
    // What is staged turned takes a thread more instructions than other sums:
    // they are to run under other products.
    consumers.setSumsFirst(!turned.empty());
    if (choice->spareFree < choice->spare)
      consumers.setSpareFree(choice->spareFree);
    consumers.setSharesLater(sharesLater);
    consumers.setStreams(choice->streams);
    return;
  }
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

/// Random bits of tiles whose rows are keys are made by threads that have rows
/// of queries, and exchanged in a warpgroup, where shared memory has room.
void Placement::placeExchange() {
  int64_t rows = warpgroups * warpgroupRows;
  WalkResult walk = consumers.walk([&](linalg::GenericOp op) {
    std::optional<RandomMask> mask = matchRandomMask(op);
    return mask && mask->isTurned &&
                   cast<RankedTensorType>(op.getResult(0).getType())
                           .getDimSize(0) == rows
               ? WalkResult::interrupt()
               : WalkResult::advance();
  });
  int64_t end = tilesEnd + warpgroups * ConsumersOp::exchangeBytes;
  if (!walk.wasInterrupted() || end > target.sharedMemory)
    return;
  consumers.setExchange(tilesEnd);
  tilesEnd = llvm::alignTo(end, tileAlignment);
  // What of two tiles decides alike is exchanged once.
  IRRewriter rewriter(consumers.getContext());
  DominanceInfo dominance(forall);
  eliminateCommonSubExpressions(rewriter, dominance, consumers);
}

void Placement::apply() {
  OpBuilder b(forall.getBody()->getTerminator());
  placeRings(b);
  RoleRegisters registers = registersOfRoles(teams * warpgroups, sharesTiles());
  auto producer = ProducerOp::create(b, forall.getLoc(), registers.producer);
  producer.getBody().emplaceBlock();
  moveIntoConsumers(b);
  for (auto &[tile, placed] : tiles) {
    if (placed.with)
      placeCompanion(tile, placed);
    else
      placeSlot(tile, placed);
  }
  for (const Contraction &c : contractions)
    startProduct(c);
  for (const Contraction &c : contractions)
    c.op->erase();
  stageStores(forall, consumers, tilesEnd, stagedPanels);
  tilesEnd += stagedBytes;
  placeExchange();
  stageSums();
  if (options.spare >= 0) {
    consumers.setSpare(options.spare);
    if (consumers.getSpareFree().value_or(0) > uint64_t(options.spare))
      consumers.removeSpareFreeAttr();
  }
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

/// Schedules a block's program, if the rules take it, and says whether they do:
/// then it is made ready first, and looked at again. Else it stays as it is.
static LogicalResult place(scf::ForallOp forall, const fa::NVIDIATarget &target,
                           const PlaceOptions &options, bool &isTaken) {
  std::string why;
  Placement look(forall, target, options);
  isTaken = look.match(why);
  bool isRefused = look.isRefused();
  if (isTaken) {
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

/// Kernels that compute of what the one before adds up, element by element,
/// have no launch of their own.
static void followSums(func::FuncOp func) {
  for (auto forall : func.getBody().front().getOps<scf::ForallOp>()) {
    std::string why;
    if (canFollow(forall, why))
      forall->setAttr(followsName,
                      Builder(func.getContext()).getI64IntegerAttr(-1));
  }
}

/// A function's kernels. Steps of softmax are expanded for warps, in a copy,
/// which is dropped where the rules do not take what has them.
static LogicalResult place(func::FuncOp func, const fa::NVIDIATarget &target,
                           const PlaceOptions &options) {
  func::FuncOp original = func;
  SmallVector<Operation *> steps = fa::collectSoftmaxes(func);
  if (!steps.empty()) {
    func = func.clone();
    OpBuilder(original).insert(func);
    if (failed(expandForWarps(func)))
      return failure();
  }
  splitRandomMasks(func);
  auto kernelsOf = [](func::FuncOp f) {
    return llvm::to_vector(f.getBody().front().getOps<scf::ForallOp>());
  };
  bool areTaken = true;
  for (auto [before, forall] :
       llvm::zip_equal(kernelsOf(original), kernelsOf(func))) {
    bool isTaken = false, hasSteps = !fa::collectSoftmaxes(before).empty();
    if (failed(place(forall, target, options, isTaken)))
      return failure();
    areTaken &= isTaken || !hasSteps;
  }
  followSums(func);
  if (func == original)
    return success();
  (areTaken ? original : func).erase();
  return success();
}

/// Whether the options of the pass are what they can be; else says in `why`
/// which is not.
static bool areOptions(const PlaceOptions &options, std::string &why) {
  struct {
    StringRef name;
    int64_t value, least, most;
  } known[] = {{"stages", options.stages, 0, INT32_MAX},
               {"persistent", options.persistent, 0, 1},
               {"stage-stores", options.stageStores, 0, INT32_MAX},
               {"ones", options.ones, 0, 1},
               {"ping-pong", options.pingPong, 0, 1},
               {"companions", options.companions, 0, 1},
               {"carried-first", options.carriedFirst, 0, 1},
               {"heads", options.heads, 1, INT32_MAX},
               {"teams", options.teams, 1, INT32_MAX},
               {"spare", options.spare, 0, INT32_MAX}};
  for (auto &option : known) {
    if (option.value == -1 ||
        (option.value >= option.least && option.value <= option.most))
      continue;
    std::string range = "at least " + std::to_string(option.least);
    if (option.most == 1)
      range = "0 or 1";
    why = ("expected " + option.name + " to be " + range +
           ", or -1 to choose, got " + Twine(option.value))
              .str();
    return false;
  }
  return true;
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
    PlaceOptions options{stages,     persistent,   stageStores, ones,  pingPong,
                         companions, carriedFirst, heads,       teams, spare};
    std::string why;
    if (!areOptions(options, why)) {
      getOperation().emitError() << why;
      return signalPassFailure();
    }
    for (func::FuncOp func : collectPrograms(getOperation()))
      if (failed(place(func, *target, options)))
        return signalPassFailure();
  }
};
} // namespace
