// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block of the hopper dialect: its roles, the tiles that they take from a
// queue, and the turns of its warpgroups.

#include "KernelEmitter.h"

#include "fa/Dialect/Hopper/Transforms/Adders.h"

#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

/// Named barriers: 0 is the block's, then one of each warpgroup for its turn,
/// one for itself, and one of each team.
static constexpr int64_t firstTurnBarrier = 1, firstWarpgroupBarrier = 5,
                         firstTeamBarrier = 9;

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

Value KernelEmitter::uniform(Value word) {
  return NVVM::ShflOp::create(b, loc, b.getI32Type(), i32(-1), word, i32(0),
                              i32(31), NVVM::ShflKind::idx, UnitAttr());
}

Value KernelEmitter::warpgroup() { return warpgroupIndex; }

Value KernelEmitter::warpgroupOfBlock(Value inTeam) {
  return team ? add(mulC(team, view.warps() / 4), inTeam) : inTeam;
}

/// From here on shared memory is that of a team.
void KernelEmitter::joinTeam(Value number) {
  team = number;
  smemAddress = add(smemAddress, mulC(team, view.teamBytes()));
}

/// A thread of TMA says that it is there, or each lane that has copied.
static int64_t arrivalsOfLoad(RingOp ring) {
  return ring.getRing().getType().isVector() ? 32 : 1;
}

/// Of all teams.
void KernelEmitter::initBarriers(scf::ForallOp forall, ConsumersOp role) {
  OpBuilder::InsertionGuard guard(b);
  Value first = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                      threadId(), i32(0));
  auto branch = scf::IfOp::create(b, loc, first);
  b.setInsertionPointToStart(branch.thenBlock());
  for (auto &[map, pointer] : maps)
    ptx("prefetch.tensormap [$0];", "l,~{memory}",
        LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), pointer).getResult(),
        {});
  auto init = [&](Value address, int64_t count) {
    ptx("mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}",
        {address, i32(count)}, {});
  };
  // One arrival of each warp empties a stage of a tile, and fills one of a tile
  // that they have computed; one of each lane empties and fills one of a
  // vector. The warp that copies vectors and adders take tiles from the queue
  // as well.
  int64_t warps = 4 * role.getWarpgroups();
  AccumulateSliceOp handed = view.handedSum();
  int64_t adders = addersOf(forall);
  for (unsigned t = 0; t < view.teams(); ++t) {
    int64_t begin = t * view.teamBytes();
    for (RingOp ring : forall.getBody()->getOps<RingOp>()) {
      if (ring.getWith())
        continue;
      bool isVector = ring.getRing().getType().isVector();
      int64_t fills = ring.getComputed() ? warps : arrivalsOfLoad(ring);
      for (RingOp companion : companionsOf(ring.getRing()))
        fills += arrivalsOfLoad(companion);
      for (unsigned s = 0; s < ring.getRing().getType().getStages(); ++s) {
        init(addC(barrierAddress(ring, Barrier::Full, i32(s)), begin), fills);
        init(addC(barrierAddress(ring, Barrier::Empty, i32(s)), begin),
             isVector ? 32 * warps : warps);
      }
    }
    for (TileQueueOp queue : forall.getBody()->getOps<TileQueueOp>())
      for (unsigned s = 0; s < TileQueueOp::slots; ++s) {
        int64_t full = begin + queue.getBarriers() + barrierBytes * s;
        init(addC(smemAddress, full), 1);
        init(addC(smemAddress, full + TileQueueOp::emptyOffset),
             warps + hasVectors(forall) + adders);
      }
  }
  for (int64_t w = 0; w < adders; ++w) {
    int64_t begin = *stageOf(handed).getAdders() + w * StageOp::adderBytes;
    init(addC(smemAddress, begin), 4);
    init(addC(smemAddress, begin + StageOp::emptyOffset), 1);
    for (int64_t warp = 0; warp < 4; ++warp)
      ptx("st.shared.u32 [$0], $1;", "r,r,~{memory}",
          {addC(smemAddress, begin + StageOp::phasesOffset + 4 * warp), i32(0)},
          {});
  }
  ptx("fence.mbarrier_init.release.cluster;", "~{memory}", {}, {});
  ptx("fence.proxy.async.shared::cta;", "~{memory}", {}, {});
}

/// Writes the panels of ones behind the stages of rings of all teams.
void KernelEmitter::fillOnes(scf::ForallOp forall) {
  for (RingOp ring : forall.getBody()->getOps<RingOp>()) {
    if (!ring.getOnes())
      continue;
    RingType type = ring.getRing().getType();
    Value one =
        i32(type.getTile().getElementType().isBF16() ? 0x3F803F80 : 0x3C003C00);
    auto fill = [&](int64_t begin) {
      OpBuilder::InsertionGuard guard(b);
      auto loop = scf::ForOp::create(b, loc, toIndex(threadId()),
                                     index(type.panelBytes() / 4),
                                     index(view.blockThreads()));
      b.setInsertionPointToStart(loop.getBody());
      Value to = sharedPointer(mulC(toI32(loop.getInductionVar()), 4), begin);
      LLVM::StoreOp::create(b, loc, one, to);
    };
    int64_t first = ring.getOffset() + type.tileBytes();
    for (unsigned t = 0; t < view.teams(); ++t)
      for (unsigned s = 0; s < type.getStages(); ++s)
        fill(t * view.teamBytes() + first + s * ring.stageBytes());
  }
  ptx("fence.proxy.async.shared::cta;", "~{memory}", {}, {});
}

bool KernelEmitter::hasVectors(scf::ForallOp forall) {
  return llvm::any_of(forall.getBody()->getOps<RingOp>(), [](RingOp ring) {
    return ring.getRing().getType().isVector();
  });
}

static bool hasOnes(scf::ForallOp forall) {
  return llvm::any_of(forall.getBody()->getOps<RingOp>(),
                      [](RingOp ring) { return ring.getOnes(); });
}

/// Whether the thread is the first of one of `count` warps. Compared with its
/// number: ptxas then knows that it is alone.
Value KernelEmitter::isFirstOfWarps(int64_t firstWarp, int64_t count) {
  Value isOne;
  for (int64_t w = firstWarp; w < firstWarp + count; ++w) {
    Value isIt = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                       threadId(), i32(32 * w));
    isOne = isOne ? arith::OrIOp::create(b, loc, isOne, isIt) : isIt;
  }
  return isOne;
}

LogicalResult KernelEmitter::emitSpecialized(scf::ForallOp forall,
                                             const TileGrid &grid) {
  ConsumersOp consumers = view.consumers();
  auto producers = forall.getBody()->getOps<ProducerOp>();
  if (producers.empty())
    return forall.emitOpError("has consumers and no producer");
  ProducerOp producer = *producers.begin();
  smemAddress = LLVM::PtrToIntOp::create(b, loc, b.getI32Type(), sharedBase);
  warpgroupIndex = uniform(divC(threadId(), warpgroupThreads));
  initBarriers(forall, consumers);
  if (hasOnes(forall))
    fillOnes(forall);
  barrier();

  int64_t groups = consumers.getWarpgroups(), teams = view.teams();
  Value isProducer = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                           warpgroup(), i32(teams * groups));
  auto roles = scf::IfOp::create(b, loc, TypeRange(), isProducer,
                                 /*addThenBlock=*/true, /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  auto setRegisters = [&](StringRef action, int64_t count) {
    ptx(("setmaxnreg." + action + ".sync.aligned.u32 " + Twine(count) + ";")
            .str(),
        "", {}, {});
  };
  {
    b.setInsertionPointToStart(roles.thenBlock());
    setRegisters("dec", producer.getRegisters());
    // One warp for each team.
    Value elected = isFirstOfWarps(4 * teams * groups, teams);
    KernelEmitter emitter = *this;
    if (teams > 1)
      emitter.joinTeam(uniform(divC(remC(threadId(), warpgroupThreads), 32)));
    auto one = scf::IfOp::create(b, loc, elected);
    b.setInsertionPointToStart(one.thenBlock());
    emitter.role = Role::Producer;
    if (failed(emitter.emitTiles(forall, grid)))
      return failure();
    alignedBuffers.insert(emitter.alignedBuffers.begin(),
                          emitter.alignedBuffers.end());
    b.setInsertionPointToEnd(roles.thenBlock());
    if (hasVectors(forall) && failed(emitVectorProducer(forall, grid)))
      return failure();
    b.setInsertionPointToEnd(roles.thenBlock());
    if (view.handedSum() && failed(emitAdders(forall, grid)))
      return failure();
    b.setInsertionPointToEnd(roles.thenBlock());
    if (grid.follower && failed(emitFollowersOfProducer(forall, grid)))
      return failure();
    b.setInsertionPointToEnd(roles.thenBlock());
    scf::YieldOp::create(b, loc);
  }
  b.setInsertionPointToStart(roles.elseBlock());
  setRegisters("inc", consumers.getRegisters());
  if (teams > 1) {
    joinTeam(divC(warpgroupIndex, groups));
    warpgroupIndex = remC(warpgroupIndex, groups);
  }
  primeTurns(consumers);
  role = Role::Consumers;
  if (failed(emitTiles(forall, grid)))
    return failure();
  bool stages = false;
  forall.walk([&](StageOp) { stages = true; });
  if (stages)
    waitStores();
  if (grid.follower && failed(emitFollowers(*grid.follower, /*scratch=*/{})))
    return failure();
  scf::YieldOp::create(b, loc);
  return success();
}

/// The warp of each team behind those whose first threads start TMA's loads.
LogicalResult KernelEmitter::emitVectorProducer(scf::ForallOp forall,
                                                const TileGrid &grid) {
  OpBuilder::InsertionGuard guard(b);
  Value teams = i32(view.teams());
  Value warp = uniform(divC(remC(threadId(), warpgroupThreads), 32));
  Value number = arith::SubIOp::create(b, loc, warp, teams);
  KernelEmitter emitter = *this;
  if (view.teams() > 1)
    emitter.joinTeam(number);
  enterWhere(
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, number, teams));
  emitter.role = Role::VectorProducer;
  return emitter.emitTiles(forall, grid);
}

LogicalResult KernelEmitter::emitConsumers(ConsumersOp role) {
  Block &body = role.getBody().front();
  if (failed(emitBlock(body)))
    return failure();
  for (auto [result, value] :
       llvm::zip(role.getResults(), body.getTerminator()->getOperands())) {
    if (isa<TensorType>(value.getType())) {
      FailureOr<TileValue> t = tile(value);
      if (failed(t))
        return failure();
      tiles[result] = TileValue(*t);
    } else {
      scalars.map(result, scalar(value));
    }
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// A team's first tile, from the launch's own counter, or else the first teams
/// of all blocks come first.
Value KernelEmitter::firstTile(const TileGrid &grid) {
  if (!grid.flag)
    return drawTile(grid, {});
  Value block = NVVM::BlockIdXOp::create(b, loc, b.getI32Type());
  if (!team)
    return block;
  Value blocks = NVVM::GridDimXOp::create(b, loc, b.getI32Type());
  return add(mul(team, blocks), block);
}

/// How many tiles are taken before the counter says which: one for each team.
Value KernelEmitter::tileStride() {
  return mulC(NVVM::GridDimXOp::create(b, loc, b.getI32Type()), view.teams());
}

/// The number of the tile after this one, from the counter of a queue.
Value KernelEmitter::drawTile(const TileGrid &grid, Value tile) {
  if (!grid.flag)
    return drawFrom(grid.counter);
  Value stride = tileStride();
  Value has = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                    grid.counter, i64(0));
  auto branch = scf::IfOp::create(b, loc, TypeRange(b.getI32Type()), has,
                                  /*addThenBlock=*/true,
                                  /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value drawn = ptx("atom.relaxed.gpu.global.add.u32 $0, [$1], 1;",
                    "=r,l,~{memory}", grid.counter, b.getI32Type())
                    .front();
  scf::YieldOp::create(b, loc, add(drawn, stride));
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, loc, add(tile, stride));
  return branch.getResult(0);
}

/// The last team to end leaves the counter as it was found and tells the host.
void KernelEmitter::returnQueue(const TileGrid &grid) {
  if (!grid.flag)
    return;
  OpBuilder::InsertionGuard guard(b);
  Value has = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                    grid.counter, i64(0));
  auto branch = scf::IfOp::create(b, loc, has);
  b.setInsertionPointToStart(branch.thenBlock());
  Value done = ptx("atom.acq_rel.gpu.global.add.u32 $0, [$1+4], 1;",
                   "=r,l,~{memory}", grid.counter, b.getI32Type())
                   .front();
  Value last = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                     addC(done, 1), tileStride());
  auto ending = scf::IfOp::create(b, loc, last);
  b.setInsertionPointToStart(ending.thenBlock());
  ptx("st.relaxed.gpu.global.v2.u32 [$0], {$1, $1};", "l,r,~{memory}",
      {grid.counter, i32(0)}, {});
  ptx("st.release.sys.global.u32 [$0], $1;", "l,r,~{memory}",
      {grid.flag, i32(0)}, {});
}

KernelEmitter::TileSlot KernelEmitter::tileSlot(TileQueueOp queue,
                                                Value count) {
  constexpr int64_t slots = TileQueueOp::slots;
  Value stage = remC(count, slots);
  Value base = addC(smemAddress, queue.getBarriers());
  Value barrier = add(base, mulC(stage, barrierBytes));
  return {barrier, addC(barrier, TileQueueOp::emptyOffset),
          addC(add(base, mulC(stage, TileQueueOp::slotBytes)),
               TileQueueOp::slotsOffset),
          remC(divC(count, slots), 2)};
}

/// Words of a slot.
SmallVector<Value> KernelEmitter::readSlot(Value words, unsigned count) {
  SmallVector<Value> values;
  for (unsigned i = 0; i < count; ++i) {
    Value word = ptx("ld.shared.u32 $0, [$1];", "=r,r,~{memory}",
                     addC(words, 4 * i), b.getI32Type())
                     .front();
    values.push_back(role == Role::Adder ? word : uniform(word));
  }
  return values;
}

void KernelEmitter::bindTile(scf::ForallOp forall, ValueRange coordinates) {
  for (auto [iv, value] : llvm::zip(forall.getInductionVars(), coordinates))
    bindScalar(iv, toIndex(value));
}

/// The body of the forall, for this block's tile or for one after the other.
LogicalResult KernelEmitter::emitTiles(scf::ForallOp forall,
                                       const TileGrid &grid) {
  auto queues = forall.getBody()->getOps<TileQueueOp>();
  if (queues.empty()) {
    for (RingEnd end : ringEnds(forall))
      ringCounts[end] = {i32(0), {}};
    Value first = NVVM::BlockIdXOp::create(b, loc, b.getI32Type());
    bindTile(forall, grid.decode(toIndex(first)));
    return emitBlock(*forall.getBody());
  }
  return role == Role::Producer
             ? emitProducerTiles(forall, *queues.begin(), grid)
             : emitConsumerTiles(forall, *queues.begin(), grid);
}

/// A loop over tiles that carries `carried` and the rings' positions. Its body
/// begins with the tile's coordinates bound.
KernelEmitter::TileLoop KernelEmitter::startTiles(scf::ForallOp forall,
                                                  ArrayRef<Value> carried) {
  TileLoop tiles;
  SmallVector<Value> inits(carried);
  for (RingEnd end : ringEnds(forall))
    ringCounts[end] = {};
  tiles.rings = groupRings(forall, ringEnds(forall));
  inits.append(tiles.rings.size(), i32(0));
  SmallVector<Type> before(inits.size(), b.getI32Type());
  SmallVector<Type> after(inits.size() + forall.getRank(), b.getI32Type());
  tiles.loop = scf::WhileOp::create(b, loc, after, inits);
  OpBuilder::InsertionGuard guard(b);
  tiles.test = b.createBlock(&tiles.loop.getBefore(), {}, before,
                             SmallVector<Location>(before.size(), loc));
  tiles.body = b.createBlock(&tiles.loop.getAfter(), {}, after,
                             SmallVector<Location>(after.size(), loc));
  bindRings(tiles.rings, tiles.body->getArguments().slice(carried.size(),
                                                          tiles.rings.size()));
  bindTile(forall, tiles.body->getArguments().take_back(forall.getRank()));
  return tiles;
}

/// Ends the loop's test: `words` of a slot are whether there is a tile, and its
/// coordinates.
void KernelEmitter::testTile(const TileLoop &tiles, Value more,
                             ArrayRef<Value> words) {
  SmallVector<Value> passed(tiles.test->getArguments());
  llvm::append_range(passed, words.drop_front());
  scf::ConditionOp::create(b, loc, more, passed);
}

/// Ends the loop's body.
void KernelEmitter::endTile(const TileLoop &tiles, ArrayRef<Value> carried) {
  SmallVector<Value> yields(carried);
  appendCounts(tiles.rings, yields);
  scf::YieldOp::create(b, loc, yields);
}

LogicalResult KernelEmitter::emitProducerTiles(scf::ForallOp forall,
                                               TileQueueOp queue,
                                               const TileGrid &grid) {
  // Carried: the tile's number, and how many came before.
  TileLoop tiles = startTiles(forall, {firstTile(grid), i32(0)});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(tiles.test);
    Value tile = tiles.test->getArgument(0);
    TileSlot slot = tileSlot(queue, tiles.test->getArgument(1));
    Value more = less(tile, toI32(grid.count));
    SmallVector<Value> words{
        arith::ExtUIOp::create(b, loc, b.getI32Type(), more)};
    for (Value v : grid.decode(toIndex(tile)))
      words.push_back(toI32(v));
    waitBarrier(slot.empty, xorI(slot.parity, i32(1)));
    for (auto [i, word] : llvm::enumerate(words))
      ptx("st.shared.u32 [$0], $1;", "r,r,~{memory}",
          {addC(slot.words, 4 * i), word}, {});
    ptx("mbarrier.arrive.shared::cta.b64 _, [$0];", "r,~{memory}", slot.full,
        {});
    testTile(tiles, more, words);

    b.setInsertionPointToEnd(tiles.body);
    llvm::SaveAndRestore inTile(iteration, Value());
    if (sparesRegisters()) {
      iteration = tiles.body->getArgument(1);
      if (failed(readNumbersAgain(forall)))
        return failure();
    }
    // Early, unless tiles wait for each other: the one whose turn comes first
    // goes to the block that is free first.
    Value own = tiles.body->getArgument(0), next;
    if (!grid.turns)
      next = drawTile(grid, own);
    if (grid.follower && grid.follower->zero) {
      SmallVector<Value> numbers;
      for (Value iv : forall.getInductionVars())
        numbers.push_back(scalar(iv));
      waitForZeros(*grid.follower, grid.follower->groupOf(numbers));
    }
    if (failed(emitBlock(*forall.getBody())))
      return failure();
    if (grid.turns)
      next = drawTile(grid, own);
    endTile(tiles, {next, addC(tiles.body->getArgument(1), 1)});
  }
  returnQueue(grid);
  return success();
}

/// Whether some loop's products read several operands from without: there are
/// so many that registers are better kept for tiles than for what can be
/// computed again, as descriptors, of which each step of a product has one.
bool KernelEmitter::sparesRegisters() const {
  return view.consumers()
      .walk([](scf::ForOp loop) {
        DenseSet<Value> outside;
        for (auto product : loop.getBody()->getOps<WgmmaOp>())
          for (Value operand : {product.getA(), Value(product.getB())})
            if (isa<SlotType>(operand.getType()) &&
                !loop.getRegion().isAncestor(operand.getParentRegion()))
              outside.insert(operand);
        return outside.size() > 1 ? WalkResult::interrupt()
                                  : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Numbers from outside, which would be kept in registers, or what is computed
/// of them.
LogicalResult KernelEmitter::readNumbersAgain(scf::ForallOp forall) {
  llvm::SetVector<Value> used;
  getUsedValuesDefinedAbove(forall.getRegion(), used);
  for (Value v : used)
    if (v.getType().isIndex() && !getConstantIntValue(v)) {
      Value number = scalar(v);
      if (!number)
        return failure();
      scalars.map(v, toIndex(again(toI32(number))));
    }
  return success();
}

LogicalResult KernelEmitter::emitConsumerTiles(scf::ForallOp forall,
                                               TileQueueOp queue,
                                               const TileGrid &grid) {
  // Carried: how many tiles came before, and how often an adder was told
  // something.
  SmallVector<Value> carried(role == Role::Adder ? 2 : 1, i32(0));
  TileLoop tiles = startTiles(forall, carried);
  OpBuilder::InsertionGuard guard(b);
  unsigned count = 1 + forall.getRank();
  {
    b.setInsertionPointToEnd(tiles.test);
    TileSlot slot = tileSlot(queue, tiles.test->getArgument(0));
    waitBarrier(slot.full, slot.parity);
    SmallVector<Value> words = readSlot(slot.words, count);
    Value more = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                       words[0], i32(0));
    testTile(tiles, more, words);
  }
  b.setInsertionPointToEnd(tiles.body);
  Value number = tiles.body->getArgument(0);
  // The coordinates are read again for the stores, from an address that is
  // computed again: no register keeps them while the loop needs all of them.
  llvm::SaveAndRestore inTile(iteration, Value());
  if (sparesRegisters()) {
    iteration = number;
    if (failed(readNumbersAgain(forall)))
      return failure();
  }
  auto slotAgain = [&] {
    Value copy = ptx("mov.u32 $0, $1;", "=r,r", number, b.getI32Type()).front();
    return tileSlot(queue, copy);
  };
  rebindTile = [&] {
    bindTile(forall, ArrayRef(readSlot(slotAgain().words, count)).drop_front());
    return success();
  };
  AccumulateSliceOp handed = view.handedSum();
  bool takesTurns =
      grid.turns && role == (handed ? Role::Adder : Role::Consumers);
  if (takesTurns) {
    SmallVector<Value> place;
    for (Value iv : forall.getInductionVars())
      place.push_back(scalar(iv));
    beginTurns(grid.turns(place), /*apart=*/0);
  }
  if (grid.follower && role == (handed ? Role::Adder : Role::Consumers))
    sayAdded = [&] { countAddition(grid, forall); };
  FailureOr<Value> told;
  if (role == Role::Adder)
    told = emitAdditions(tiles.body->getArgument(1));
  if (role == Role::Adder ? failed(told) : failed(emitBlock(*forall.getBody())))
    return failure();
  // Where a block stores results it has been said before that.
  sayOnce();
  rebindTile = nullptr;
  if (role == Role::Consumers && handed) {
    waitForAdder(stageOf(handed));
    tellAdder(stageOf(handed), {});
  } else if (role == Role::Consumers && takesTurns) {
    endTurns();
    meetForTurn();
  }
  emitArrival(slotAgain().empty, lane());
  carried = {addC(number, 1)};
  if (succeeded(told))
    carried.push_back(*told);
  endTile(tiles, carried);
  return success();
}

//===----------------------------------------------------------------------===//
// Turns
//===----------------------------------------------------------------------===//

void KernelEmitter::primeTurns(ConsumersOp role) {
  bool turns = false;
  role.walk([&](TurnBeginOp) { turns = true; });
  if (!turns)
    return;
  // The last warpgroup gives the first turn.
  OpBuilder::InsertionGuard guard(b);
  Value last =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, warpgroup(),
                            i32(role.getWarpgroups() - 1));
  auto branch = scf::IfOp::create(b, loc, last);
  b.setInsertionPointToStart(branch.thenBlock());
  emitTurn(/*begin=*/false);
}

/// One named barrier for each warpgroup's turn.
void KernelEmitter::emitTurn(bool begin) {
  unsigned groups = view.warps() / 4;
  Value id = warpgroup();
  if (!begin)
    id = remC(addC(id, 1), groups);
  ptx(begin ? "bar.sync $0, 256;" : "bar.arrive $0, 256;", "r,~{memory}",
      addC(warpgroupOfBlock(id), firstTurnBarrier), {});
}

void KernelEmitter::syncWarpgroup() {
  ptx("bar.sync $0, 128;", "r,~{memory}",
      addC(warpgroupOfBlock(warpgroup()), firstWarpgroupBarrier), {});
}

/// The consumers of a team; the producer works by itself.
void KernelEmitter::syncTeam() {
  Value id = team ? addC(team, firstTeamBarrier) : i32(firstTeamBarrier);
  ptx(("bar.sync $0, " + Twine(view.threads()) + ";").str(), "r,~{memory}", id,
      {});
}

void KernelEmitter::syncWarp() {
  ptx("bar.warp.sync 0xffffffff;", "~{memory}", {}, {});
}
