// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The hopper dialect as instructions of a thread: roles, rings and their
// mbarriers, TMA, wgmma.
//
// Descriptors, fragments and barriers: "Parallel Thread Execution ISA",
// asynchronous warpgroup level matrix instructions, mbarrier, and
// cp.async.bulk.tensor.

#include "KernelEmitter.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

/// Elements of a k-step of wgmma on 16-bit operands.
static constexpr int64_t stepK = 16;
static constexpr int64_t rowBytes = RingType::rowBytes;
/// Named barriers: 0 is the block's, then one of each warpgroup for its turn
/// and one for itself.
static constexpr int64_t firstTurnBarrier = 1, firstWarpgroupBarrier = 5;

//===----------------------------------------------------------------------===//
// Inline assembly
//===----------------------------------------------------------------------===//

SmallVector<Value> KernelEmitter::ptx(StringRef text, StringRef constraints,
                                      ValueRange operands, TypeRange results,
                                      bool sideEffects) {
  Type type;
  if (results.size() == 1)
    type = results[0];
  else if (results.size() > 1)
    type = LLVM::LLVMStructType::getLiteral(b.getContext(),
                                            SmallVector<Type>(results));
  auto dialect =
      LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT);
  auto tail = LLVM::tailcallkind::TailCallKind::None;
  auto op = LLVM::InlineAsmOp::create(
      b, loc, type ? TypeRange(type) : TypeRange(), operands, text, constraints,
      sideEffects,
      /*is_align_stack=*/false, tail, dialect, ArrayAttr());
  SmallVector<Value> values;
  if (results.size() == 1)
    values.push_back(op.getResult(0));
  for (unsigned i = 0; results.size() > 1 && i < results.size(); ++i)
    values.push_back(LLVM::ExtractValueOp::create(b, loc, op.getResult(0), i));
  return values;
}

static void repeat(std::string &to, StringRef what, size_t count) {
  for (size_t i = 0; i < count; ++i)
    to += (to.empty() ? "" : ",") + what.str();
}

/// Constraints that tie operands to the results, one by one.
static void tie(std::string &to, size_t count) {
  for (size_t i = 0; i < count; ++i)
    to += "," + std::to_string(i);
}

/// "{$3, $4, $5}".
static std::string registerList(size_t first, size_t count) {
  std::string list = "{";
  for (size_t i = 0; i < count; ++i)
    list += (i ? ", $" : "$") + std::to_string(first + i);
  return list + "}";
}

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

SmallVector<Value> KernelEmitter::ringsMovedIn(Operation *op) {
  llvm::SetVector<Value> rings;
  op->walk([&](Operation *inner) {
    if (auto acquire = dyn_cast<AcquireOp>(inner))
      rings.insert(acquire.getRing());
    if (auto load = dyn_cast<LoadOp>(inner))
      rings.insert(load.getRing());
  });
  return rings.takeVector();
}

Value KernelEmitter::ringStage(RingOp ring) {
  return remC(ringCounts[ring.getRing()], ring.getRing().getType().getStages());
}

Value KernelEmitter::ringParity(RingOp ring) {
  unsigned stages = ring.getRing().getType().getStages();
  return remC(divC(ringCounts[ring.getRing()], stages), 2);
}

void KernelEmitter::advance(RingOp ring) {
  Value &count = ringCounts[ring.getRing()];
  count = addC(count, 1);
}

Value KernelEmitter::barrierAddress(RingOp ring, Barrier which, Value stage) {
  int64_t first = ring.getBarriers();
  if (which == Barrier::Empty)
    first += ring.barriersBytes();
  return addC(add(smemAddress, mulC(stage, barrierBytes)), first);
}

void KernelEmitter::waitBarrier(Value address, Value parity) {
  ptx("{\n.reg .pred p;\nFULL:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;\n"
      "@p bra DONE;\nbra FULL;\nDONE:\n}",
      "r,r,~{memory}", {address, parity}, {});
}

static RingOp ringOf(Value ring) { return ring.getDefiningOp<RingOp>(); }

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

Value KernelEmitter::warpgroup() { return warpgroupIndex; }

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
  // One arrival of each warp empties a stage.
  int64_t warps = 4 * role.getWarpgroups();
  for (RingOp ring : forall.getBody()->getOps<RingOp>())
    for (unsigned s = 0; s < ring.getRing().getType().getStages(); ++s) {
      init(barrierAddress(ring, Barrier::Full, i32(s)), 1);
      init(barrierAddress(ring, Barrier::Empty, i32(s)), warps);
    }
  for (TileQueueOp queue : forall.getBody()->getOps<TileQueueOp>()) {
    for (unsigned s = 0; s < TileQueueOp::slots; ++s) {
      int64_t full = queue.getBarriers() + barrierBytes * s;
      init(addC(smemAddress, full), 1);
      init(addC(smemAddress, full + TileQueueOp::emptyOffset), warps);
    }
  }
  ptx("fence.mbarrier_init.release.cluster;", "~{memory}", {}, {});
  ptx("fence.proxy.async.shared::cta;", "~{memory}", {}, {});
}

/// Writes the panels of ones behind the stages of rings.
void KernelEmitter::fillOnes(scf::ForallOp forall) {
  for (RingOp ring : forall.getBody()->getOps<RingOp>()) {
    if (!ring.getOnes())
      continue;
    RingType type = ring.getRing().getType();
    Value one =
        i32(type.getTile().getElementType().isBF16() ? 0x3F803F80 : 0x3C003C00);
    for (unsigned s = 0; s < type.getStages(); ++s) {
      OpBuilder::InsertionGuard guard(b);
      int64_t begin =
          ring.getOffset() + s * ring.stageBytes() + type.tileBytes();
      auto loop = scf::ForOp::create(b, loc, toIndex(threadId()),
                                     index(type.panelBytes() / 4),
                                     index(plan.blockThreads()));
      b.setInsertionPointToStart(loop.getBody());
      Value to = sharedPointer(mulC(toI32(loop.getInductionVar()), 4), begin);
      LLVM::StoreOp::create(b, loc, one, to);
    }
  }
  ptx("fence.proxy.async.shared::cta;", "~{memory}", {}, {});
}

static bool hasOnes(scf::ForallOp forall) {
  return llvm::any_of(forall.getBody()->getOps<RingOp>(),
                      [](RingOp ring) { return ring.getOnes(); });
}

LogicalResult KernelEmitter::emitSpecialized(scf::ForallOp forall,
                                             const TileGrid &grid) {
  ConsumersOp consumers = plan.consumers();
  auto producers = forall.getBody()->getOps<ProducerOp>();
  if (producers.empty())
    return forall.emitOpError("has consumers and no producer");
  ProducerOp producer = *producers.begin();
  smemAddress = LLVM::PtrToIntOp::create(b, loc, b.getI32Type(), sharedBase);
  // The same in all lanes, and the compiler can see that it is.
  warpgroupIndex = NVVM::ShflOp::create(
      b, loc, b.getI32Type(), i32(-1), divC(threadId(), warpgroupThreads),
      i32(0), i32(31), NVVM::ShflKind::idx, UnitAttr());
  initBarriers(forall, consumers);
  if (hasOnes(forall))
    fillOnes(forall);
  barrier();

  int64_t groups = consumers.getWarpgroups();
  Value isProducer = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                           warpgroup(), i32(groups));
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
    Value elected =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, threadId(),
                              i32(warpgroupThreads * groups));
    auto one = scf::IfOp::create(b, loc, elected);
    b.setInsertionPointToStart(one.thenBlock());
    KernelEmitter emitter = *this;
    emitter.role = Role::Producer;
    if (failed(emitter.emitTiles(forall, grid)))
      return failure();
    alignedBuffers.insert(emitter.alignedBuffers.begin(),
                          emitter.alignedBuffers.end());
    b.setInsertionPointToEnd(roles.thenBlock());
    scf::YieldOp::create(b, loc);
  }
  b.setInsertionPointToStart(roles.elseBlock());
  setRegisters("inc", consumers.getRegisters());
  primeTurns(consumers);
  role = Role::Consumers;
  if (failed(emitTiles(forall, grid)))
    return failure();
  bool stages = false;
  forall.walk([&](StageOp) { stages = true; });
  if (stages)
    waitStores();
  scf::YieldOp::create(b, loc);
  return success();
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// The number of the tile after this one, from the counter of a queue.
Value KernelEmitter::drawTile(const TileGrid &grid, Value tile) {
  Value blocks = NVVM::GridDimXOp::create(b, loc, b.getI32Type());
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
  scf::YieldOp::create(b, loc, add(drawn, blocks));
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, loc, add(tile, blocks));
  return branch.getResult(0);
}

/// The last block to end leaves the counter as it was found and tells the host.
void KernelEmitter::returnQueue(const TileGrid &grid) {
  OpBuilder::InsertionGuard guard(b);
  Value has = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                    grid.counter, i64(0));
  auto branch = scf::IfOp::create(b, loc, has);
  b.setInsertionPointToStart(branch.thenBlock());
  Value done = ptx("atom.acq_rel.gpu.global.add.u32 $0, [$1+4], 1;",
                   "=r,l,~{memory}", grid.counter, b.getI32Type())
                   .front();
  Value blocks = NVVM::GridDimXOp::create(b, loc, b.getI32Type());
  Value last = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                     addC(done, 1), blocks);
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

/// Words of a slot; the compiler can see that they are the same in all lanes.
SmallVector<Value> KernelEmitter::readSlot(Value words, unsigned count) {
  SmallVector<Value> values;
  for (unsigned i = 0; i < count; ++i) {
    Value word = ptx("ld.shared.u32 $0, [$1];", "=r,r,~{memory}",
                     addC(words, 4 * i), b.getI32Type())
                     .front();
    values.push_back(NVVM::ShflOp::create(b, loc, b.getI32Type(), i32(-1), word,
                                          i32(0), i32(31), NVVM::ShflKind::idx,
                                          UnitAttr()));
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
    for (RingOp ring : forall.getBody()->getOps<RingOp>())
      ringCounts[ring.getRing()] = i32(0);
    Value first = NVVM::BlockIdXOp::create(b, loc, b.getI32Type());
    bindTile(forall, grid.decode(toIndex(first)));
    return emitBlock(*forall.getBody());
  }
  return role == Role::Producer
             ? emitProducerTiles(forall, *queues.begin(), grid)
             : emitConsumerTiles(forall, *queues.begin());
}

LogicalResult KernelEmitter::emitProducerTiles(scf::ForallOp forall,
                                               TileQueueOp queue,
                                               const TileGrid &grid) {
  unsigned rank = forall.getRank();
  // Carried: the tile's number, how many came before, the rings' positions.
  Value first = NVVM::BlockIdXOp::create(b, loc, b.getI32Type());
  SmallVector<Value> inits{first, i32(0)}, rings;
  for (RingOp ring : forall.getBody()->getOps<RingOp>()) {
    rings.push_back(ring.getRing());
    inits.push_back(i32(0));
  }
  SmallVector<Type> before(inits.size(), b.getI32Type());
  SmallVector<Type> after(inits.size() + rank, b.getI32Type());
  auto loop = scf::WhileOp::create(b, loc, after, inits);
  {
    OpBuilder::InsertionGuard guard(b);
    Block *test = b.createBlock(&loop.getBefore(), {}, before,
                                SmallVector<Location>(before.size(), loc));
    Value tile = test->getArgument(0);
    TileSlot slot = tileSlot(queue, test->getArgument(1));
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
    SmallVector<Value> passed(test->getArguments());
    passed.append(words.begin() + 1, words.end());
    scf::ConditionOp::create(b, loc, more, passed);

    Block *body = b.createBlock(&loop.getAfter(), {}, after,
                                SmallVector<Location>(after.size(), loc));
    for (auto [i, ring] : llvm::enumerate(rings))
      ringCounts[ring] = body->getArgument(2 + i);
    Value next = drawTile(grid, body->getArgument(0));
    bindTile(forall, body->getArguments().take_back(rank));
    if (failed(emitBlock(*forall.getBody())))
      return failure();
    SmallVector<Value> yields{next, addC(body->getArgument(1), 1)};
    for (Value ring : rings)
      yields.push_back(ringCounts[ring]);
    scf::YieldOp::create(b, loc, yields);
  }
  returnQueue(grid);
  return success();
}

LogicalResult KernelEmitter::emitConsumerTiles(scf::ForallOp forall,
                                               TileQueueOp queue) {
  unsigned rank = forall.getRank();
  SmallVector<Value> inits{i32(0)}, rings;
  for (RingOp ring : forall.getBody()->getOps<RingOp>()) {
    rings.push_back(ring.getRing());
    inits.push_back(i32(0));
  }
  SmallVector<Type> before(inits.size(), b.getI32Type());
  SmallVector<Type> after(inits.size() + rank, b.getI32Type());
  auto loop = scf::WhileOp::create(b, loc, after, inits);
  OpBuilder::InsertionGuard guard(b);
  Block *test = b.createBlock(&loop.getBefore(), {}, before,
                              SmallVector<Location>(before.size(), loc));
  {
    TileSlot slot = tileSlot(queue, test->getArgument(0));
    waitBarrier(slot.full, slot.parity);
    SmallVector<Value> words = readSlot(slot.words, 1 + rank);
    Value more = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                       words[0], i32(0));
    SmallVector<Value> passed(test->getArguments());
    passed.append(words.begin() + 1, words.end());
    scf::ConditionOp::create(b, loc, more, passed);
  }
  Block *body = b.createBlock(&loop.getAfter(), {}, after,
                              SmallVector<Location>(after.size(), loc));
  Value count = body->getArgument(0);
  for (auto [i, ring] : llvm::enumerate(rings))
    ringCounts[ring] = body->getArgument(1 + i);
  bindTile(forall, body->getArguments().take_back(rank));
  // The coordinates are read again for the stores: no register keeps them while
  // the loop needs all of them.
  rebindTile = [&] {
    bindTile(forall, ArrayRef(readSlot(tileSlot(queue, count).words, 1 + rank))
                         .drop_front());
    return success();
  };
  if (failed(emitBlock(*forall.getBody())))
    return failure();
  rebindTile = nullptr;
  emitRelease(tileSlot(queue, count).empty, lane());
  SmallVector<Value> yields{addC(count, 1)};
  for (Value ring : rings)
    yields.push_back(ringCounts[ring]);
  scf::YieldOp::create(b, loc, yields);
  return success();
}

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

/// One named barrier for each warpgroup's turn.
void KernelEmitter::emitTurn(bool begin) {
  unsigned groups = plan.warps() / 4;
  Value id = warpgroup();
  if (!begin)
    id = remC(addC(id, 1), groups);
  ptx(begin ? "bar.sync $0, 256;" : "bar.arrive $0, 256;", "r,~{memory}",
      addC(id, firstTurnBarrier), {});
}

void KernelEmitter::syncWarpgroup() {
  ptx("bar.sync $0, 128;", "r,~{memory}",
      addC(warpgroup(), firstWarpgroupBarrier), {});
}

/// Every thread waits, a no-op for those that stored nothing: no branch.
void KernelEmitter::waitStores() {
  ptx("cp.async.bulk.wait_group.read 0;", "~{memory}", {}, {});
}

//===----------------------------------------------------------------------===//
// Loads
//===----------------------------------------------------------------------===//

FailureOr<Value> KernelEmitter::mapAddress(const TensorMap &map,
                                           Operation *op) {
  for (auto &[known, pointer] : maps)
    if (known == map) {
      alignedBuffers.insert(map.buffer);
      return LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), pointer)
          .getResult();
    }
  return op->emitOpError("has no tensor map"), failure();
}

LogicalResult KernelEmitter::emitLoad(LoadOp op) {
  RingOp ring = ringOf(op.getRing());
  RingType type = ring.getRing().getType();
  IRMapping none;
  FailureOr<GlobalSlice> slice = resolveSlice(op.getTile(), none, {});
  if (failed(slice))
    return failure();
  if (slice->pad && !matchPattern(slice->pad, m_AnyZeroFloat()))
    return op.emitOpError("expected a tile that is padded with zeros");
  FailureOr<Value> map =
      mapAddress({slice->base->buffer, slice->dims[0], type.rows()}, op);
  if (failed(map))
    return failure();

  Value stage = ringStage(ring), parity = ringParity(ring);
  Value full = barrierAddress(ring, Barrier::Full, stage);
  // The first round finds all stages empty: a wait for the phase before.
  waitBarrier(barrierAddress(ring, Barrier::Empty, stage),
              xorI(parity, i32(1)));
  ptx("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r,~{memory}",
      {full, i32(op.getBytes())}, {});
  Value to =
      addC(add(smemAddress, mulC(stage, ring.stageBytes())), ring.getOffset());
  unsigned rank = slice->offsets.size();
  std::string constraints = "r,l,r";
  repeat(constraints, "r", rank);
  std::string text =
      "cp.async.bulk.tensor." + std::to_string(rank) +
      "d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, " +
      registerList(3, rank) + "], [$2];";
  for (int64_t p = 0; p < type.panels(); ++p) {
    SmallVector<Value> operands{addC(to, p * type.panelBytes()), *map, full};
    for (unsigned d = rank; d-- > 0;) {
      Value offset = toI32(slice->offsets[d]);
      operands.push_back(d + 1 == rank ? addC(offset, p * RingType::panelCols)
                                       : offset);
    }
    ptx(text, constraints + ",~{memory}", operands, {});
  }
  advance(ring);
  return success();
}

//===----------------------------------------------------------------------===//
// Stores
//===----------------------------------------------------------------------===//

/// Each warp writes its 16 rows, in the panels and the swizzle of a ring.
LogicalResult KernelEmitter::emitStage(StageOp op) {
  FragmentLayout layout = *plan.layout(op.getTile());
  auto words = registers(op.getTile(), layout);
  if (failed(words))
    return failure();
  auto panels = RingType::get(b.getContext(), 1,
                              cast<RankedTensorType>(op.getTile().getType()));
  // What was stored before must have been read. (Where a slot is reused, its
  // release has waited for that.)
  if (!op.getSlot())
    waitStores();
  syncWarpgroup();
  Value row = remC(lane(), 16), half = divC(lane(), 16),
        swizzle = remC(lane(), 8);
  Value base =
      addC(add(smemAddress, mulC(add(mulC(warp(), 16), row), rowBytes)),
           op.getOffset());
  constexpr int64_t chunksPerPanel = 8;
  for (unsigned n = 0; n < layout.colTiles(); n += 2) {
    Value chunk = xorI(addC(half, n % chunksPerPanel), swizzle);
    SmallVector<Value> operands{addC(add(base, mulC(chunk, 16)),
                                     n / chunksPerPanel * panels.panelBytes())};
    for (unsigned column : {n, n + 1})
      for (unsigned e : {0, 2})
        operands.push_back(column < layout.colTiles()
                               ? (*words)[layout.reg(0, column, e) / 2]
                               : i32(0));
    ptx("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};",
        "r,r,r,r,r,~{memory}", operands, {});
  }
  ptx("fence.proxy.async.shared::cta;", "~{memory}", {}, {});
  syncWarpgroup();
  TileValue t = *tile(op.getTile());
  t.staged = op.getOffset();
  t.reused = op.getSlot();
  tiles[op.getResult()] = t;
  return success();
}

/// One thread of each warpgroup stores its rows; TMA leaves out what lies
/// outside the tensor.
LogicalResult KernelEmitter::storeStaged(const TileValue &source,
                                         const GlobalSlice &dest) {
  Operation *op = b.getInsertionBlock()->getParentOp();
  FailureOr<Value> map =
      mapAddress({dest.base->buffer, dest.dims[0], warpgroupRows}, op);
  if (failed(map))
    return failure();
  Value leader =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                            remC(threadId(), warpgroupThreads), i32(0));
  auto branch = scf::IfOp::create(b, loc, leader);
  b.setInsertionPointToStart(branch.thenBlock());
  unsigned rank = dest.offsets.size();
  std::string constraints = "r,l";
  repeat(constraints, "r", rank);
  std::string text = "cp.async.bulk.tensor." + std::to_string(rank) +
                     "d.global.shared::cta.bulk_group [$1, " +
                     registerList(2, rank) + "], [$0];";
  Value rows = mulC(warpgroup(), warpgroupRows);
  for (int64_t first = 0; first < source.layout.cols();
       first += RingType::panelCols) {
    Value from = addC(add(smemAddress, mulC(rows, rowBytes)),
                      source.staged + first / RingType::panelCols *
                                          source.layout.rows() * rowBytes);
    SmallVector<Value> operands{from, *map};
    for (unsigned d = rank; d-- > 0;) {
      Value offset = toI32(dest.offsets[d]);
      if (d == dest.dims[0])
        offset = add(offset, rows);
      operands.push_back(d + 1 == rank ? addC(offset, first) : offset);
    }
    ptx(text, constraints + ",~{memory}", operands, {});
  }
  ptx("cp.async.bulk.commit_group;", "~{memory}", {}, {});
  if (source.reused)
    waitStores();
  b.setInsertionPointAfter(branch);
  if (!source.reused)
    return success();
  syncWarpgroup();
  const Slot &slot = slots[source.reused];
  emitRelease(barrierAddress(slot.ring, Barrier::Empty, slot.stage), lane());
  return success();
}

/// One arrival of the thread whose `who` is 0: a predicate, not a branch, since
/// products may be in flight.
void KernelEmitter::emitRelease(Value barrier, Value who) {
  ptx("{\n.reg .pred p;\nsetp.eq.s32 p, $1, 0;\n"
      "@p mbarrier.arrive.shared::cta.b64 _, [$0];\n}",
      "r,r,~{memory}", {barrier, who}, {});
}

//===----------------------------------------------------------------------===//
// Matrix products
//===----------------------------------------------------------------------===//

/// address>>4, leading and stride byte offsets >>4, 128-byte swizzle.
Value KernelEmitter::descriptor(Value address, int64_t leading,
                                int64_t stride) {
  Value low = b.createOrFold<arith::ShRUIOp>(
      loc, b.createOrFold<arith::AndIOp>(loc, address, i32(0x3FFFF)), i32(4));
  int64_t rest = (leading >> 4) << 16 | (stride >> 4) << 32 | int64_t(1) << 62;
  return b.createOrFold<arith::OrIOp>(
      loc, arith::ExtUIOp::create(b, loc, b.getI64Type(), low), i64(rest));
}

LogicalResult KernelEmitter::emitWgmma(WgmmaOp op) {
  Value c = op.getResults()[0];
  auto type = cast<RankedTensorType>(c.getType());
  int64_t n = type.getDimSize(1);
  bool sums = op.getResults().size() == 2;
  FragmentLayout layout = *plan.layout(c);
  size_t regs = layout.numRegs(), all = regs + (sums ? 4 : 0);

  Slot &bSlot = slots[op.getB()];
  RingType bType = bSlot.ring.getRing().getType();
  Value bAddress =
      addC(add(smemAddress, mulC(bSlot.stage, bSlot.ring.stageBytes())),
           bSlot.ring.getOffset());
  bool transposed = op.getTransposed();
  int64_t k = bType.getTile().getDimSize(transposed ? 0 : 1);
  int64_t steps = (k + stepK - 1) / stepK;
  constexpr int64_t groupBytes = 8 * rowBytes;
  Value bBase =
      descriptor(bAddress, transposed ? bType.panelBytes() : 16, groupBytes);
  // Steps along the columns of panels, or down their rows.
  auto stepOffset = [&](int64_t step, bool alongRows, int64_t panelBytes) {
    if (alongRows)
      return step * stepK * rowBytes;
    int64_t perPanel = RingType::panelCols / stepK;
    return step / perPanel * panelBytes + step % perPanel * stepK * 2;
  };
  auto stepped = [&](Value base, int64_t bytes) {
    return addC(base, bytes >> 4);
  };

  // Operands: accumulators (tied), then for each step those of A and B.
  SmallVector<Value> operands, a;
  std::string constraints;
  repeat(constraints, "=f", all);
  bool zero = op.getInits().empty();
  for (auto [init, result] : llvm::zip(op.getInits(), op.getResults())) {
    auto values = registers(init, *plan.layout(result));
    if (failed(values))
      return failure();
    operands.append(*values);
  }
  if (!zero)
    tie(constraints, all);
  size_t next = zero ? all : 2 * all;
  auto slot = slots.find(op.getA());
  bool fromShared = slot != slots.end();
  Value aBase;
  RingType aType;
  if (fromShared) {
    RingOp ring = slot->second.ring;
    aType = ring.getRing().getType();
    Value address = add(mulC(slot->second.stage, ring.stageBytes()),
                        mulC(warpgroup(), warpgroupRows * rowBytes));
    aBase = descriptor(addC(add(smemAddress, address), ring.getOffset()), 16,
                       groupBytes);
  } else {
    auto values = registers(op.getA(), *plan.layout(op.getA()));
    if (failed(values))
      return failure();
    a = *values;
    if (a.size() != size_t(4 * steps))
      return op.emitOpError("expected a multiple of 16 columns of a computed "
                            "operand, got ")
             << k;
  }
  bool bf16 = bType.getTile().getElementType().isBF16();
  StringRef element = bf16 ? ".bf16.bf16 " : ".f16.f16 ";
  std::string name = "wgmma.mma_async.sync.aligned.m64n" +
                     std::to_string(n + (sums ? 8 : 0)) + "k16.f32" +
                     element.str() + registerList(0, all) + ", ";
  std::string text = "wgmma.fence.sync.aligned;\n";
  for (int64_t step = 0; step < steps; ++step) {
    text += name;
    if (fromShared) {
      operands.push_back(
          stepped(aBase, stepOffset(step, false, aType.panelBytes())));
      constraints += ",l";
      text += "$" + std::to_string(next++);
    } else {
      operands.append(a.begin() + 4 * step, a.begin() + 4 * step + 4);
      constraints += ",r,r,r,r";
      text += registerList(next, 4);
      next += 4;
    }
    operands.push_back(
        stepped(bBase, stepOffset(step, transposed, bType.panelBytes())));
    constraints += ",l";
    text += ", $" + std::to_string(next++);
    text += zero && step == 0 ? ", 0" : ", 1";
    text += ", 1, 1";
    if (fromShared)
      text += ", 0";
    text += transposed ? ", 1;\n" : ", 0;\n";
  }
  text += "wgmma.commit_group.sync.aligned;";
  SmallVector<Type> types(all, b.getF32Type());
  SmallVector<Value> results = ptx(text, constraints, operands, types);
  bindRegisters(c, ArrayRef(results).take_front(regs));
  if (sums)
    bindRegisters(op.getResults()[1], ArrayRef(results).drop_front(regs));
  return success();
}

/// The wait as a data dependency: nothing reads a result before it.
LogicalResult KernelEmitter::emitWaitGroup(WaitGroupOp op) {
  SmallVector<Value> values;
  for (Value v : op.getValues()) {
    auto regs = registers(v, *plan.layout(v));
    if (failed(regs))
      return failure();
    values.append(*regs);
  }
  std::string constraints;
  repeat(constraints, "=f", values.size());
  tie(constraints, values.size());
  SmallVector<Type> types(values.size(), b.getF32Type());
  SmallVector<Value> results = ptx(
      ("wgmma.wait_group.sync.aligned " + Twine(op.getPending()) + ";").str(),
      constraints + ",~{memory}", values, types);
  size_t at = 0;
  for (Value result : op.getResults()) {
    size_t count = flatSize(result);
    bindRegisters(result, ArrayRef(results).slice(at, count));
    at += count;
  }
  return success();
}

LogicalResult KernelEmitter::emitPin(PinOp op) {
  for (auto [v, result] : llvm::zip(op.getValues(), op.getResults())) {
    auto regs = registers(v, *plan.layout(v));
    if (failed(regs))
      return failure();
    std::string constraints;
    bool words = regs->front().getType().isInteger(32);
    repeat(constraints, words ? "=r" : "=f", regs->size());
    tie(constraints, regs->size());
    SmallVector<Type> types(regs->size(), regs->front().getType());
    bindRegisters(result, ptx("// pinned", constraints, *regs, types));
  }
  return success();
}

LogicalResult KernelEmitter::emitPartialSums(PartialSumsOp op) {
  FragmentLayout from = *plan.layout(op.getTile());
  auto values = registers(op.getTile(), from);
  auto sums = registers(op.getAcc(), *plan.layout(op.getAcc()));
  if (failed(values) || failed(sums))
    return failure();
  Type type = getElementTypeOrSelf(op.getTile());
  SmallVector<Value> next = *sums;
  for (unsigned n = 0; n < from.colTiles(); ++n)
    for (unsigned e = 0; e < 4; ++e) {
      Value v = element(*values, from.reg(0, n, e), type, from);
      if (!type.isF32())
        v = arith::ExtFOp::create(b, loc, b.getF32Type(), v);
      next[e] = arith::AddFOp::create(b, loc, next[e], v);
    }
  bindRegisters(op.getResult(), next);
  return success();
}

LogicalResult KernelEmitter::emitExceeds(ExceedsOp op) {
  FragmentLayout layout = *plan.layout(op.getTile());
  auto values = registers(op.getTile(), layout);
  if (failed(values))
    return failure();
  Type type = getElementTypeOrSelf(op.getTile());
  double limit = op.getLimit().convertToDouble();
  Value top = values->front(), found;
  ArrayRef<Value> rest = ArrayRef(*values).drop_front();
  if (type.isF32()) {
    for (Value v : rest)
      top = arith::MaximumFOp::create(b, loc, top, v);
  } else if (limit == 2) {
    // In both formats the highest bit of the exponent says it. Weights have no
    // sign.
    for (Value v : rest)
      top = arith::OrIOp::create(b, loc, top, v);
    Value bits = arith::AndIOp::create(b, loc, top, i32(0x40004000));
    found =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, bits, i32(0));
  } else {
    StringRef text = type.isBF16() ? "max.NaN.bf16x2 $0, $1, $2;"
                                   : "max.NaN.f16x2 $0, $1, $2;";
    for (Value v : rest)
      top = ptx(text, "=r,r,r", {top, v}, b.getI32Type(), false).front();
  }
  if (!found) {
    Value bound =
        arith::ConstantOp::create(b, loc, b.getFloatAttr(type, limit));
    SmallVector<Value> words{top};
    for (unsigned e = 0; e < (type.isF32() ? 1 : 2); ++e) {
      Value over =
          arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UGE,
                                element(words, e, type, layout), bound);
      found = found ? Value(arith::OrIOp::create(b, loc, found, over)) : over;
    }
  }
  scalars.map(op.getResult(),
              NVVM::VoteSyncOp::create(b, loc, b.getI1Type(), i32(-1), found,
                                       NVVM::VoteSyncKind::any)
                  .getResult());
  return success();
}

//===----------------------------------------------------------------------===//
// Dispatch
//===----------------------------------------------------------------------===//

LogicalResult KernelEmitter::emitHopper(Operation *op) {
  if (isa<RingOp, TileQueueOp, YieldOp>(op))
    return success();
  if (auto stage = dyn_cast<StageOp>(op))
    return emitStage(stage);
  if (auto load = dyn_cast<LoadOp>(op))
    return emitLoad(load);
  if (auto acquire = dyn_cast<AcquireOp>(op)) {
    RingOp ring = ringOf(acquire.getRing());
    Value stage = ringStage(ring);
    if (!acquire.getPolled())
      waitBarrier(barrierAddress(ring, Barrier::Full, stage), ringParity(ring));
    slots[acquire.getSlot()] = {ring, stage};
    advance(ring);
    return success();
  }
  if (auto poll = dyn_cast<PollOp>(op)) {
    RingOp ring = ringOf(poll.getRing());
    waitBarrier(barrierAddress(ring, Barrier::Full, ringStage(ring)),
                ringParity(ring));
    return success();
  }
  if (auto release = dyn_cast<ReleaseOp>(op)) {
    Slot &slot = slots[release.getSlot()];
    Value who = lane();
    if (release.getCondition()) {
      Value condition = scalar(release.getCondition());
      if (!condition)
        return failure();
      who = arith::SelectOp::create(b, loc, condition, who, i32(1));
    }
    emitRelease(barrierAddress(slot.ring, Barrier::Empty, slot.stage), who);
    return success();
  }
  if (auto wgmma = dyn_cast<WgmmaOp>(op))
    return emitWgmma(wgmma);
  if (auto wait = dyn_cast<WaitGroupOp>(op))
    return emitWaitGroup(wait);
  if (auto pin = dyn_cast<PinOp>(op))
    return emitPin(pin);
  if (auto sums = dyn_cast<PartialSumsOp>(op))
    return emitPartialSums(sums);
  if (auto exceeds = dyn_cast<ExceedsOp>(op))
    return emitExceeds(exceeds);
  if (isa<TurnBeginOp, TurnEndOp>(op)) {
    emitTurn(isa<TurnBeginOp>(op));
    return success();
  }
  return op->emitOpError("has no lowering yet");
}
