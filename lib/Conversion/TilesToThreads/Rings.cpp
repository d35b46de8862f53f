// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rings and their mbarriers, and what fills them: TMA, copies of vectors, the
// consumers.
//
// "Parallel Thread Execution ISA", mbarrier and cp.async.bulk.tensor.

#include "KernelEmitter.h"
#include "PTXText.h"

#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

static RingOp ringOf(Value ring) { return ring.getDefiningOp<RingOp>(); }

SmallVector<KernelEmitter::RingEnd>
KernelEmitter::ringEnds(scf::ForallOp forall) {
  SmallVector<RingEnd> ends;
  if (role == Role::Adder)
    return ends;
  for (RingOp ring : forall.getBody()->getOps<RingOp>()) {
    if (isProducer() ? isFilledHere(ring) : ring.getComputed())
      ends.push_back({ring.getRing(), Fills});
    if (!isProducer() && !ring.getWith())
      ends.push_back({ring.getRing(), Takes});
  }
  return ends;
}

SmallVector<KernelEmitter::RingEnd> KernelEmitter::ringsMovedIn(Operation *op) {
  llvm::SetVector<RingEnd> ends;
  op->walk([&](Operation *inner) {
    if (auto acquire = dyn_cast<AcquireOp>(inner);
        acquire && !acquire.getWith())
      ends.insert({acquire.getRing(), Takes});
    if (auto load = dyn_cast<LoadOp>(inner);
        load && isFilledHere(ringOf(load.getRing())))
      ends.insert({load.getRing(), Fills});
    if (auto share = dyn_cast<ShareOp>(inner))
      ends.insert({share.getRing(), Fills});
  });
  return ends.takeVector();
}

/// Whether an operation works at this end of a ring.
bool KernelEmitter::isAt(Operation *op, RingEnd end) {
  if (auto acquire = dyn_cast<AcquireOp>(op))
    return RingEnd(acquire.getRing(), Takes) == end;
  if (auto load = dyn_cast<LoadOp>(op))
    return RingEnd(load.getRing(), Fills) == end;
  auto share = dyn_cast<ShareOp>(op);
  return share && RingEnd(share.getRing(), Fills) == end;
}

/// Whether two ends move alike in an operation: as often in each block, and as
/// often before each operation in it whose regions move them.
bool KernelEmitter::moveTogether(Operation *op, RingEnd x, RingEnd y) {
  for (Region &region : op->getRegions())
    for (Block &block : region) {
      int64_t ahead = 0;
      for (Operation &inner : block) {
        ahead += int64_t(isAt(&inner, x)) - int64_t(isAt(&inner, y));
        if (!inner.getNumRegions())
          continue;
        bool moves = inner
                         .walk([&](Operation *nested) {
                           return isAt(nested, x) || isAt(nested, y)
                                      ? WalkResult::interrupt()
                                      : WalkResult::advance();
                         })
                         .wasInterrupted();
        if (moves && (ahead || !moveTogether(&inner, x, y)))
          return false;
      }
      if (ahead)
        return false;
    }
  return true;
}

SmallVector<KernelEmitter::RingGroup>
KernelEmitter::groupRings(Operation *op, ArrayRef<RingEnd> ends) {
  SmallVector<RingGroup> groups;
  for (RingEnd end : ends) {
    auto *alike = llvm::find_if(groups, [&](const RingGroup &group) {
      return sparesRegisters() &&
             ringCounts[group.front()].isSameAs(ringCounts[end]) &&
             moveTogether(op, group.front(), end);
    });
    if (alike == groups.end())
      groups.push_back({end});
    else
      alike->push_back(end);
  }
  return groups;
}

void KernelEmitter::bindRings(ArrayRef<RingGroup> groups, ValueRange counts) {
  for (auto [group, count] : llvm::zip(groups, counts))
    for (RingEnd end : group)
      ringCounts[end] = {count, count};
}

void KernelEmitter::appendCounts(ArrayRef<RingGroup> groups,
                                 SmallVectorImpl<Value> &counts) {
  for (const RingGroup &group : groups)
    counts.push_back(ringCounts[group.front()].now);
}

Value KernelEmitter::ringStage(RingEnd end) {
  RingType type = cast<RingType>(end.first.getType());
  return remC(ringCounts[end].now, type.getStages());
}

Value KernelEmitter::ringParity(RingEnd end) {
  unsigned stages = cast<RingType>(end.first.getType()).getStages();
  return remC(divC(ringCounts[end].now, stages), 2);
}

void KernelEmitter::advance(RingEnd end) {
  RingCount &count = ringCounts[end];
  count.now = addC(count.now, 1);
  ++count.more;
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
  if (!isFilledHere(ring))
    return success();
  IRMapping none;
  FailureOr<GlobalSlice> slice = resolveSlice(op.getTile(), none, {});
  if (failed(slice))
    return failure();
  if (type.isVector())
    return emitVectorLoad(op, *slice);
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
  auto loadPanels = [&](Value map, ArrayRef<Value> at, Value shared) {
    for (int64_t p = 0; p < type.panels(); ++p)
      loadBox(map, at, p * RingType::panelCols,
              addC(shared, p * type.panelBytes()), full);
  };
  if (!op.getByRows()) {
    loadPanels(*map, slice->offsets, to);
    advance(end);
    return success();
  }
  FailureOr<Value> rowMap =
      mapAddress({slice->base->buffer, slice->dims[0], 1}, op);
  if (failed(rowMap))
    return failure();
  loadByRows(*slice, type, *map, *rowMap, to, loadPanels);
  advance(end);
  return success();
}

/// A box of one panel, from coordinates in the tensor, the last of them
/// `column` further.
void KernelEmitter::loadBox(Value map, ArrayRef<Value> at, int64_t column,
                            Value to, Value barrier) {
  unsigned rank = at.size();
  std::string constraints = "r,l,r";
  repeat(constraints, "r", rank);
  std::string text =
      "cp.async.bulk.tensor." + std::to_string(rank) +
      "d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, " +
      registerList(3, rank) + "], [$2];";
  SmallVector<Value> operands{to, map, barrier};
  for (unsigned d = rank; d-- > 0;) {
    Value offset = toI32(at[d]);
    operands.push_back(d + 1 == rank ? addC(offset, column) : offset);
  }
  ptx(text, constraints + ",~{memory}", operands, {});
}

/// A whole tile where the slice ends no sooner than the tensor does, else row
/// by row. A row behind the slice's end is loaded from behind all tensors.
void KernelEmitter::loadByRows(
    const GlobalSlice &slice, RingType type, Value map, Value rowMap, Value to,
    llvm::function_ref<void(Value, ArrayRef<Value>, Value)> loadPanels) {
  constexpr int64_t outside = 1 << 30;
  unsigned dim = slice.dims[0];
  Value rows = index(type.rows());
  Value valid = slice.valid[0] ? slice.valid[0] : rows;
  Value left =
      arith::SubIOp::create(b, loc, slice.base->sizes[dim], slice.offsets[dim]);
  Value most = arith::MinSIOp::create(b, loc, rows, left);
  Value isWhole =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, valid, most);
  auto branch = scf::IfOp::create(b, loc, isWhole, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  loadPanels(map, slice.offsets, to);
  b.setInsertionPointToStart(branch.elseBlock());
  auto loop = scf::ForOp::create(b, loc, i32(0), i32(type.rows()), i32(1));
  b.setInsertionPointToStart(loop.getBody());
  Value row = loop.getInductionVar();
  Value at = toIndex(row), isInside = less(at, valid);
  SmallVector<Value> place(slice.offsets);
  place[dim] = arith::SelectOp::create(b, loc, isInside, add(place[dim], at),
                                       index(outside));
  loadPanels(rowMap, place, add(to, mulC(row, RingType::rowBytes)));
}

/// Each lane of a warp has copied its elements, or will have, when it arrives:
/// those of 4 or 8 bytes without registers, zeros past the end.
LogicalResult KernelEmitter::emitVectorLoad(LoadOp op,
                                            const GlobalSlice &slice) {
  constexpr int64_t lanes = 32;
  RingOp ring = ringOf(op.getRing());
  RingType type = ring.getRing().getType();
  Type element = type.getTile().getElementType();
  int64_t bytes = type.elementBytes();
  bool zeros = !slice.pad || matchPattern(slice.pad, m_AnyZeroFloat()) ||
               matchPattern(slice.pad, m_Zero());
  bool isAsync = zeros && (bytes == 4 || bytes == 8);
  Value pad = slice.pad ? scalar(slice.pad) : Value();
  if (slice.pad && !pad)
    return failure();
  RingEnd end{op.getRing(), Fills};
  Value stage = ringStage(end), parity = ringParity(end);
  waitBarrier(barrierAddress(ring, Barrier::Empty, stage),
              xorI(parity, i32(1)));
  Value to = add(mulC(stage, ring.stageBytes()), mulC(lane(), bytes));
  for (int64_t first = 0; first < type.rows(); first += lanes) {
    OpBuilder::InsertionGuard guard(b);
    Value at = toIndex(addC(lane(), first));
    if (first + lanes > type.rows())
      enterWhere(less(at, index(type.rows())));
    Value inside;
    if (Value limit = slice.valid[0]) {
      inside = less(at, limit);
      at = arith::SelectOp::create(b, loc, inside, at, index(0));
    }
    SmallVector<Value> indices(slice.offsets);
    indices[slice.dims[0]] = add(indices[slice.dims[0]], at);
    Value from = elementPointer(*slice.base, indices),
          place = sharedPointer(to, ring.getOffset() + first * bytes);
    if (isAsync) {
      Value size = inside ? Value(arith::SelectOp::create(b, loc, inside,
                                                          i32(bytes), i32(0)))
                          : Value();
      NVVM::CpAsyncOp::create(b, loc, place, from, bytes,
                              NVVM::LoadCacheModifierKind::CA, size);
      continue;
    }
    // At index 0 there may be no element: nothing is loaded past the end.
    Value loaded;
    if (!inside) {
      loaded = loadElement(from, element);
    } else {
      auto branch = scf::IfOp::create(b, loc, TypeRange(element), inside,
                                      /*addThenBlock=*/true,
                                      /*addElseBlock=*/true);
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPointToStart(branch.thenBlock());
      scf::YieldOp::create(b, loc, loadElement(from, element));
      b.setInsertionPointToStart(branch.elseBlock());
      if (!pad)
        pad = arith::ConstantOp::create(b, loc, b.getZeroAttr(element));
      scf::YieldOp::create(b, loc, pad);
      loaded = branch.getResult(0);
    }
    storeElement(loaded, place);
  }
  ptx(isAsync ? "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];"
              : "mbarrier.arrive.shared::cta.b64 _, [$0];",
      "r,~{memory}", {barrierAddress(ring, Barrier::Full, stage)}, {});
  advance(end);
  return success();
}

/// A register of a vector in shared memory, and the next one where both are
/// neighbours.
void KernelEmitter::loadShared(Type element, const TileValue &vector,
                               unsigned reg, MutableArrayRef<Value> regs) {
  const FragmentLayout &layout = vector.layout;
  int64_t bytes = element.getIntOrFloatBitWidth() / 8;
  bool isColumn = layout.kind() == FragmentLayout::Kind::Column;
  bool pairs = isColumn && bytes == 4 && layout.cols() % 8 == 0;
  reg = pairs ? reg / 2 * 2 : reg;
  int64_t at = isColumn ? layout.regCol(reg) : layout.regRow(reg);
  Value pointer = LLVM::GEPOp::create(
      b, loc, sharedPointerType(), b.getI8Type(), vector.shared,
      ArrayRef<LLVM::GEPArg>{int32_t(at * bytes)});
  if (!pairs) {
    regs[reg] = loadElement(pointer, element);
    return;
  }
  Value both = LLVM::LoadOp::create(b, loc, VectorType::get({2}, element),
                                    pointer, /*alignment=*/8);
  for (int e = 0; e < 2; ++e)
    regs[reg + e] = LLVM::ExtractElementOp::create(b, loc, both, i32(e));
}

/// Whether the stage is still there wherever a vector is used that was read
/// from it.
static bool isUsedBeforeRelease(ReadOp op) {
  Block *block = op->getBlock();
  Value slot = op.getSlot();
  if (ringOfSlot(slot).getWith()) {
    auto acquire = slot.getDefiningOp<AcquireOp>();
    if (!acquire)
      return false;
    slot = acquire.getWith();
  }
  return llvm::all_of(slot.getUsers(), [&](Operation *release) {
    return !isa<ReleaseOp>(release) ||
           llvm::all_of(op.getResult().getUsers(), [&](Operation *user) {
             Operation *at = block->findAncestorOpInBlock(*user);
             return release->getBlock() == block && at &&
                    at->isBeforeInBlock(release);
           });
  });
}

/// Elements are loaded where something is computed of them, if they are still
/// there, else at once.
LogicalResult KernelEmitter::emitRead(ReadOp op) {
  llvm::SaveAndRestore thread(branchThread, again(threadId()));
  const Slot &slot = slots[op.getSlot()];
  RingOp ring = slot.ring;
  RingType type = ring.getRing().getType();
  TileValue t;
  t.kind = TileValue::Kind::Shared;
  t.layout = *view.layout(op.getResult());
  bool isColumn = t.layout.kind() == FragmentLayout::Kind::Column;
  Value own = isColumn ? threadCol(t.layout) : threadRow(t.layout);
  t.shared = sharedPointer(
      add(mulC(slot.stage, ring.stageBytes()), mulC(own, type.elementBytes())),
      ring.getOffset());
  tiles[op.getResult()] = t;
  if (isUsedBeforeRelease(op))
    return success();
  auto regs = registers(op.getResult(), t.layout);
  if (failed(regs))
    return failure();
  bindRegisters(op.getResult(), *regs);
  return success();
}

/// Its warps have their parts in the stage when all have arrived.
LogicalResult KernelEmitter::emitShare(ShareOp op) {
  RingOp ring = ringOf(op.getRing());
  FragmentLayout layout = *view.layout(op.getTile());
  auto words = registers(op.getTile(), layout);
  if (failed(words))
    return failure();
  llvm::SaveAndRestore thread(branchThread, again(threadId()));
  RingEnd end{op.getRing(), Fills};
  Value stage = ringStage(end);
  if (!ring.getUnguarded())
    waitBarrier(barrierAddress(ring, Barrier::Empty, stage),
                xorI(ringParity(end), i32(1)));
  Value address = add(smemAddress, mulC(stage, ring.stageBytes()));
  if (ring.getRing().getType().getTurned())
    storeTurned(layout, *words, address, ring.getOffset());
  else
    storePanels(layout, *words, address, ring.getOffset(), 0,
                layout.colTiles());
  // One lane arrives for what all of them have written.
  syncWarp();
  emitArrival(barrierAddress(ring, Barrier::Full, stage), lane());
  advance(end);
  return success();
}

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

LogicalResult KernelEmitter::emitAcquire(AcquireOp acquire) {
  RingOp ring = ringOf(acquire.getRing());
  if (acquire.getWith()) {
    slots[acquire.getSlot()] = {ring, slots[acquire.getWith()].stage};
    return success();
  }
  RingEnd end{acquire.getRing(), Takes};
  Value stage = ringStage(end);
  if (!acquire.getPolled())
    waitBarrier(barrierAddress(ring, Barrier::Full, stage), ringParity(end));
  slots[acquire.getSlot()] = {ring, stage};
  advance(end);
  return success();
}

LogicalResult KernelEmitter::emitPoll(PollOp poll) {
  RingOp ring = ringOf(poll.getRing());
  RingEnd end{poll.getRing(), Takes};
  waitBarrier(barrierAddress(ring, Barrier::Full, ringStage(end)),
              ringParity(end));
  return success();
}

LogicalResult KernelEmitter::emitRelease(ReleaseOp release) {
  Slot &slot = slots[release.getSlot()];
  if (slot.ring.getUnguarded())
    return success();
  // One lane arrives for what all of them have read of vectors.
  if (!companionsOf(slot.ring.getRing()).empty())
    syncWarp();
  // Each lane arrives for what it has read of a vector itself.
  bool isVector = slot.ring.getRing().getType().isVector();
  Value who = isVector ? i32(0) : lane();
  if (release.getCondition()) {
    Value condition = scalar(release.getCondition());
    if (!condition)
      return failure();
    who = arith::SelectOp::create(b, loc, condition, who, i32(1));
  }
  emitArrival(barrierAddress(slot.ring, Barrier::Empty, slot.stage), who);
  return success();
}
