// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rings and their mbarriers, TMA's loads and stores, and the dispatch over the
// operations of the hopper dialect.
//
// "Parallel Thread Execution ISA", mbarrier and cp.async.bulk.tensor.

#include "KernelEmitter.h"
#include "PTXText.h"

#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

/// Bytes of a row of a panel.
static constexpr int64_t rowBytes = RingType::rowBytes;

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

static RingOp ringOf(Value ring) { return ring.getDefiningOp<RingOp>(); }

SmallVector<KernelEmitter::RingEnd>
KernelEmitter::ringEnds(scf::ForallOp forall) {
  SmallVector<RingEnd> ends;
  for (RingOp ring : forall.getBody()->getOps<RingOp>()) {
    if ((role == Role::Producer) != ring.getComputed())
      ends.push_back({ring.getRing(), Fills});
    if (role != Role::Producer)
      ends.push_back({ring.getRing(), Takes});
  }
  return ends;
}

SmallVector<KernelEmitter::RingEnd> KernelEmitter::ringsMovedIn(Operation *op) {
  llvm::SetVector<RingEnd> ends;
  op->walk([&](Operation *inner) {
    if (auto acquire = dyn_cast<AcquireOp>(inner))
      ends.insert({acquire.getRing(), Takes});
    if (auto load = dyn_cast<LoadOp>(inner))
      ends.insert({load.getRing(), Fills});
    if (auto share = dyn_cast<ShareOp>(inner))
      ends.insert({share.getRing(), Fills});
  });
  return ends.takeVector();
}

Value KernelEmitter::ringStage(RingEnd end) {
  RingType type = cast<RingType>(end.first.getType());
  return remC(ringCounts[end], type.getStages());
}

Value KernelEmitter::ringParity(RingEnd end) {
  unsigned stages = cast<RingType>(end.first.getType()).getStages();
  return remC(divC(ringCounts[end], stages), 2);
}

void KernelEmitter::advance(RingEnd end) {
  Value &count = ringCounts[end];
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

  RingEnd end{op.getRing(), Fills};
  Value stage = ringStage(end), parity = ringParity(end);
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
  advance(end);
  return success();
}

/// Its warps have their parts in the stage when all have arrived.
LogicalResult KernelEmitter::emitShare(ShareOp op) {
  RingOp ring = ringOf(op.getRing());
  FragmentLayout layout = *plan.layout(op.getTile());
  auto words = registers(op.getTile(), layout);
  if (failed(words))
    return failure();
  RingEnd end{op.getRing(), Fills};
  Value stage = ringStage(end);
  waitBarrier(barrierAddress(ring, Barrier::Empty, stage),
              xorI(ringParity(end), i32(1)));
  storePanels(layout, *words, add(smemAddress, mulC(stage, ring.stageBytes())),
              ring.getOffset(), 0, layout.colTiles());
  // One lane arrives for what all of them have written.
  syncWarp();
  emitArrival(barrierAddress(ring, Barrier::Full, stage), lane());
  advance(end);
  return success();
}

//===----------------------------------------------------------------------===//
// Stores
//===----------------------------------------------------------------------===//

/// Every thread waits, a no-op for those that stored nothing: no branch.
void KernelEmitter::waitStores() {
  ptx("cp.async.bulk.wait_group.read 0;", "~{memory}", {}, {});
}

/// The tile stays in registers until it is stored.
LogicalResult KernelEmitter::emitStage(StageOp op) {
  TileValue t;
  t.kind = TileValue::Kind::Registers;
  t.layout = *plan.layout(op.getTile());
  auto words = registers(op.getTile(), t.layout);
  if (failed(words))
    return failure();
  t.regs = *words;
  t.valid.assign(2, Value());
  t.stage = op;
  tiles[op.getResult()] = t;
  return success();
}

/// Each warp writes 16 rows of a tile, of its columns those from 8 `firstTile`
/// to before 8 `endTile`, in the panels and the swizzle of a ring.
void KernelEmitter::storePanels(const FragmentLayout &layout,
                                ArrayRef<Value> words, Value address,
                                int64_t offset, unsigned firstTile,
                                unsigned endTile) {
  Value row = remC(lane(), 16), half = divC(lane(), 16),
        swizzle = remC(lane(), 8);
  Value base =
      addC(add(address, mulC(add(mulC(rowWarp(layout), 16), row), rowBytes)),
           offset);
  constexpr int64_t chunksPerPanel = 8;
  int64_t panelBytes = layout.rows() * rowBytes;
  if (Value col = warpCol(layout)) {
    base = add(base, mulC(divC(col, RingType::panelCols), panelBytes));
    half = add(half, remC(divC(col, 8), chunksPerPanel));
  }
  for (unsigned n = firstTile; n < endTile; n += 2) {
    Value chunk = xorI(addC(half, n % chunksPerPanel), swizzle);
    SmallVector<Value> operands{
        addC(add(base, mulC(chunk, 16)),
             (n - firstTile) / chunksPerPanel * panelBytes)};
    for (unsigned column : {n, n + 1})
      for (unsigned e : {0, 2})
        operands.push_back(column < layout.colTiles()
                               ? words[layout.reg(0, column, e) / 2]
                               : i32(0));
    ptx("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};",
        "r,r,r,r,r,~{memory}", operands, {});
  }
  ptx("fence.proxy.async.shared::cta;", "~{memory}", {}, {});
}

/// Section by section, one thread of each warpgroup stores its rows; TMA leaves
/// out what lies outside the tensor.
LogicalResult KernelEmitter::storeStaged(const TileValue &source,
                                         const GlobalSlice &dest) {
  llvm::SaveAndRestore thread(branchThread, readThread());
  Operation *op = b.getInsertionBlock()->getParentOp();
  FailureOr<Value> map =
      mapAddress({dest.base->buffer, dest.dims[0], warpgroupRows}, op);
  if (failed(map))
    return failure();
  unsigned rank = dest.offsets.size();
  std::string constraints = "r,l";
  repeat(constraints, "r", rank);
  std::string text = "cp.async.bulk.tensor." + std::to_string(rank) +
                     "d.global.shared::cta.bulk_group [$1, " +
                     registerList(2, rank) + "], [$0];";
  Value rows = mulC(divC(threadId(), warpgroupThreads), warpgroupRows);
  Value leader =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                            remC(threadId(), warpgroupThreads), i32(0));
  StageOp stage = source.stage;
  int64_t cols = source.layout.cols(), section = stage.sectionCols();
  for (int64_t begin = 0; begin < cols; begin += section) {
    // What was stored before must have been read.
    waitStores();
    syncWarpgroup();
    storePanels(
        source.layout, source.regs, smemAddress, stage.getOffset(), begin / 8,
        std::min<int64_t>(source.layout.colTiles(), (begin + section) / 8));
    syncWarpgroup();
    auto branch = scf::IfOp::create(b, loc, leader);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    for (int64_t first = begin; first < std::min(cols, begin + section);
         first += RingType::panelCols) {
      Value from =
          addC(add(smemAddress, mulC(rows, rowBytes)),
               stage.getOffset() + (first - begin) / RingType::panelCols *
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
  }
  return success();
}

/// One arrival of the thread whose `who` is 0: a predicate, not a branch, since
/// products may be in flight.
void KernelEmitter::emitArrival(Value barrier, Value who) {
  ptx("{\n.reg .pred p;\nsetp.eq.s32 p, $1, 0;\n"
      "@p mbarrier.arrive.shared::cta.b64 _, [$0];\n}",
      "r,r,~{memory}", {barrier, who}, {});
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
  if (auto share = dyn_cast<ShareOp>(op))
    return emitShare(share);
  if (auto acquire = dyn_cast<AcquireOp>(op)) {
    RingOp ring = ringOf(acquire.getRing());
    RingEnd end{acquire.getRing(), Takes};
    Value stage = ringStage(end);
    if (!acquire.getPolled())
      waitBarrier(barrierAddress(ring, Barrier::Full, stage), ringParity(end));
    slots[acquire.getSlot()] = {ring, stage};
    advance(end);
    return success();
  }
  if (auto poll = dyn_cast<PollOp>(op)) {
    RingOp ring = ringOf(poll.getRing());
    RingEnd end{poll.getRing(), Takes};
    waitBarrier(barrierAddress(ring, Barrier::Full, ringStage(end)),
                ringParity(end));
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
    emitArrival(barrierAddress(slot.ring, Barrier::Empty, slot.stage), who);
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
