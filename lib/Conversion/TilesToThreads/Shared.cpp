// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles in shared memory: copies from global memory, rings of stages that are
// filled ahead of a loop, and computed operands.

#include "KernelEmitter.h"

#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fa::nvidia;

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

Value KernelEmitter::sharedPointer(Value offset, int64_t constant) {
  Value p = LLVM::GEPOp::create(b, loc, sharedPointerType(), b.getI8Type(),
                                sharedBase, ArrayRef<LLVM::GEPArg>{offset});
  if (constant)
    p = LLVM::GEPOp::create(b, loc, sharedPointerType(), b.getI8Type(), p,
                            ArrayRef<LLVM::GEPArg>{int32_t(constant)});
  return p;
}

/// The byte offset of an element of a tile, for coordinates known at run time.
Value KernelEmitter::sharedOffset(const SharedLayout &layout, Value row,
                                  Value col) {
  unsigned group = layout.group(), per = layout.elementsPerChunk();
  Value swizzle = remC(divC(row, 8 / group), group);
  Value chunk = xorI(divC(col, per), swizzle);
  Value offset = add(mulC(row, layout.pitch()), mulC(chunk, 16));
  return add(offset, mulC(remC(col, per), layout.elementBytes()));
}

/// Where a stage of a tile begins; the one that there is for a null stage. In
/// what adds tiles the tile's own offset is left to the instructions: added to
/// a thread's, it would be one more number kept for each tile.
KernelEmitter::SharedPlace KernelEmitter::sharedStage(const SharedTile &load,
                                                      Value stage) {
  Value offset = stage ? mulC(stage, load.layout.size()) : i32(0);
  if (view.addsTiles())
    return {offset, load.offset};
  return {addC(offset, load.offset), 0};
}

/// Where a tile lies as a loop's current iteration reads it.
KernelEmitter::SharedPlace KernelEmitter::sharedTile(const SharedTile &load) {
  if (load.ringIndex >= 0)
    for (LoopFrame &frame : llvm::reverse(frames))
      if (frame.source == load.loop)
        return sharedStage(load, frame.stage);
  return sharedStage(load, {});
}

LogicalResult KernelEmitter::issueLoad(const SharedTile &load, IRMapping &map,
                                       Value stage) {
  bool ring = load.ringIndex >= 0;
  FailureOr<GlobalSlice> slice =
      resolveSlice(load.tile, map, ring ? load.loop : scf::ForOp());
  if (failed(slice))
    return failure();
  SharedPlace base = sharedStage(load, ring ? stage : Value());
  if (slice->pad && !matchPattern(slice->pad, m_AnyZeroFloat()))
    return mlir::emitError(load.tile.getLoc(),
                           "expected a contraction's operand to be padded "
                           "with zeros");
  if (load.layout.isVector()) {
    copyVector(load, *slice, base);
    return success();
  }
  bool chunks = load.layout.cols() * load.layout.elementBytes() % 16 == 0 &&
                !slice->valid[1] &&
                slice->dims[1] + 1 == slice->offsets.size() &&
                isConstantIntValue(slice->offsets.back(), 0);
  if (chunks) {
    alignedBuffers.insert(slice->base->buffer);
    copyChunks(load, *slice, base);
  } else {
    copyElements(load, *slice, base);
  }
  return success();
}

/// cp.async of 16-byte chunks: consecutive threads take consecutive chunks of
/// a row, so that a thread's place in the swizzle is the same in every pass.
void KernelEmitter::copyChunks(const SharedTile &load, const GlobalSlice &slice,
                               SharedPlace base) {
  const SharedLayout &layout = load.layout;
  unsigned group = layout.group(), threads = view.threads();
  unsigned rowsPerPass = threads / group;
  Value chunk = remC(threadId(), group), row = divC(threadId(), group);
  const GlobalTensor &tensor = *slice.base;
  Value rowStride = tensor.strides[slice.dims[0]];

  Value offset;
  for (auto [d, o] : llvm::enumerate(slice.offsets)) {
    if (d == slice.dims[0] || d + 1 == slice.offsets.size())
      continue;
    Value term = mul(toI64(o), tensor.strides[d]);
    offset = offset ? add(offset, term) : term;
  }
  auto wide = [&](Value v) {
    return arith::ExtUIOp::create(b, loc, b.getI64Type(), v);
  };
  Value own = add(mul(wide(row), rowStride),
                  wide(mulC(chunk, layout.elementsPerChunk())));
  offset = offset ? add(offset, own) : own;
  auto step = [&](Value p, LLVM::GEPArg by) -> Value {
    return LLVM::GEPOp::create(b, loc, globalPointer(), load.elementType, p,
                               ArrayRef<LLVM::GEPArg>{by});
  };
  Value pointer = step(tensor.pointer, offset);
  pointer = step(pointer, mul(toI64(slice.offsets[slice.dims[0]]), rowStride));

  Value limit = slice.valid[0] ? toI32(slice.valid[0]) : Value();
  if (!limit && layout.paddedRows() != layout.rows())
    limit = i32(layout.rows());
  Value passStride = mulC(rowStride, rowsPerPass);
  int64_t wholeChunks = layout.cols() / layout.elementsPerChunk();
  for (int64_t first = 0; first < layout.paddedRows(); first += rowsPerPass) {
    OpBuilder::InsertionGuard guard(b);
    if (first)
      pointer = step(pointer, passStride);
    Value thisRow = addC(row, first);
    Value swizzled = xorI(
        chunk, remC(divC(rowsPerPass % 8 ? thisRow : row, 8 / group), group));
    Value to =
        add(add(mulC(row, layout.pitch()), mulC(swizzled, 16)), base.offset);
    if (first + rowsPerPass > layout.paddedRows()) {
      auto guarded =
          scf::IfOp::create(b, loc, less(thisRow, i32(layout.paddedRows())));
      b.setInsertionPointToStart(guarded.thenBlock());
    }
    Value rowIn = limit ? less(thisRow, limit) : Value();
    for (unsigned c = 0; c < layout.chunksPerRow(); c += group) {
      Value inside = rowIn;
      if (c + group > wholeChunks) {
        Value in = less(chunk, i32(wholeChunks - c));
        inside = inside ? b.createOrFold<arith::AndIOp>(loc, inside, in) : in;
      }
      Value bytes =
          inside
              ? Value(arith::SelectOp::create(b, loc, inside, i32(16), i32(0)))
              : Value();
      Value from =
          c ? step(pointer, int32_t(c * layout.elementsPerChunk())) : pointer;
      NVVM::CpAsyncOp::create(
          b, loc,
          sharedPointer(to, base.constant + first * layout.pitch() + c * 16),
          from, 16, NVVM::LoadCacheModifierKind::CG, bytes);
    }
  }
}

/// cp.async of 4 bytes by each of the first threads; zeros past the end.
void KernelEmitter::copyVector(const SharedTile &load, const GlobalSlice &slice,
                               SharedPlace base) {
  OpBuilder::InsertionGuard guard(b);
  unsigned threads = view.threads();
  for (int64_t first = 0; first < load.layout.cols(); first += threads) {
    OpBuilder::InsertionGuard inner(b);
    Value at = addC(threadId(), first);
    if (first + threads > load.layout.cols()) {
      auto guarded =
          scf::IfOp::create(b, loc, less(at, i32(load.layout.cols())));
      b.setInsertionPointToStart(guarded.thenBlock());
    }
    Value bytes, from = toIndex(at);
    if (Value limit = slice.valid[0]) {
      Value inside = less(from, limit);
      bytes = arith::SelectOp::create(b, loc, inside, i32(4), i32(0));
      from = arith::SelectOp::create(b, loc, inside, from, index(0));
    }
    SmallVector<Value> indices(slice.offsets);
    indices[slice.dims[0]] = add(indices[slice.dims[0]], from);
    NVVM::CpAsyncOp::create(
        b, loc, sharedPointer(add(base.offset, mulC(at, 4)), base.constant),
        elementPointer(*slice.base, indices), 4,
        NVVM::LoadCacheModifierKind::CA, bytes);
  }
}

/// The elements of a vector that go with the columns of a thread.
SmallVector<Value> KernelEmitter::loadVector(const SharedTile &load,
                                             const FragmentLayout &layout) {
  SharedPlace tile = sharedTile(load);
  Value first = sharedPointer(add(tile.offset, mulC(threadCol(layout), 4)),
                              tile.constant);
  auto pair = VectorType::get({2}, load.elementType);
  SmallVector<Value> regs;
  for (unsigned r = 0; r < layout.numRegs(); r += 2) {
    Value pointer = LLVM::GEPOp::create(
        b, loc, sharedPointerType(), b.getI8Type(), first,
        ArrayRef<LLVM::GEPArg>{int32_t(4 * layout.regCol(r))});
    Value both = LLVM::LoadOp::create(b, loc, pair, pointer, /*alignment=*/8);
    for (int e = 0; e < 2; ++e)
      regs.push_back(LLVM::ExtractElementOp::create(b, loc, both, i32(e)));
  }
  return regs;
}

/// Element by element, where rows are not whole chunks.
void KernelEmitter::copyElements(const SharedTile &load,
                                 const GlobalSlice &slice, SharedPlace base) {
  const SharedLayout &layout = load.layout;
  int64_t cols = layout.paddedCols(), count = layout.paddedRows() * cols;
  OpBuilder::InsertionGuard guard(b);
  auto loop = scf::ForOp::create(b, loc, toIndex(threadId()), index(count),
                                 index(view.threads()));
  b.setInsertionPointToStart(loop.getBody());
  Value at = toI32(loop.getInductionVar());
  Value row = divC(at, cols), col = remC(at, cols);
  Value rowLimit = slice.valid[0] ? toI32(slice.valid[0]) : i32(layout.rows());
  Value colLimit = slice.valid[1] ? toI32(slice.valid[1]) : i32(layout.cols());
  Value inside = b.createOrFold<arith::AndIOp>(loc, less(row, rowLimit),
                                               less(col, colLimit));
  auto branch = scf::IfOp::create(b, loc, TypeRange{load.elementType}, inside,
                                  /*addThenBlock=*/true,
                                  /*addElseBlock=*/true);
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToEnd(&branch.getThenRegion().front());
    SmallVector<Value> indices(slice.offsets);
    indices[slice.dims[0]] = add(indices[slice.dims[0]], toIndex(row));
    indices[slice.dims[1]] = add(indices[slice.dims[1]], toIndex(col));
    Value v =
        loadElement(elementPointer(*slice.base, indices), load.elementType);
    scf::YieldOp::create(b, loc, v);
    b.setInsertionPointToEnd(&branch.getElseRegion().front());
    Value zero =
        arith::ConstantOp::create(b, loc, b.getZeroAttr(load.elementType));
    scf::YieldOp::create(b, loc, zero);
  }
  storeElement(branch.getResult(0),
               sharedPointer(add(sharedOffset(layout, row, col), base.offset),
                             base.constant));
}

/// Whether the chunk's number in its group is that of the thread's first column
/// xor the register's. A warp's part begins at a multiple of its chunks: with
/// one warp that is 0, with a power of two of chunks the register's are the
/// bits below, and with whole groups the beginning has no bit in the group.
static bool areApart(const SharedLayout &layout, const FragmentLayout &from) {
  unsigned inWarp = 8 * from.colTiles() / layout.elementsPerChunk();
  return layout.elementsPerChunk() <= 8 &&
         (from.colWarps() == 1 || llvm::isPowerOf2_32(inWarp) ||
          inWarp % layout.group() == 0);
}

/// Where a register's element lies in a tile. Registers whose columns are the
/// same in a group of chunks differ in the constant: rows are a multiple of 8
/// apart, where the permutation repeats.
KernelEmitter::SharedPlace
KernelEmitter::sharedPlace(const SharedLayout &layout,
                           const FragmentLayout &from, unsigned reg) {
  unsigned per = layout.elementsPerChunk(), group = layout.group();
  if (!areApart(layout, from))
    return {
        sharedOffset(layout, toI32(rowOf(from, reg)), toI32(colOf(from, reg))),
        0};
  int64_t col = from.regCol(reg), chunk = col / per, inGroup = chunk % group;
  Value first = sharedOffset(layout, threadRow(from), threadCol(from));
  return {inGroup ? xorI(first, i32(inGroup * 16)) : first,
          from.regRow(reg) * layout.pitch() + (chunk - inGroup) * 16 +
              col % per * layout.elementBytes()};
}

/// Registers to shared memory, for a computed operand that no instruction
/// takes from registers.
void KernelEmitter::storeShared(const SharedTile &to, const TileValue &source) {
  const FragmentLayout &from = source.layout;
  const SharedLayout &layout = to.layout;
  OpBuilder::InsertionGuard guard(b);
  enterWhere(isFirstCopy(from));
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(to.elementType));
  bool packed = isPacked(to.elementType, from) && layout.elementBytes() == 2 &&
                layout.cols() % 8 == 0;
  for (unsigned r = 0; r < from.numRegs(); r += packed ? 2 : 1) {
    Value v = packed ? source.regs[r / 2]
                     : element(source.regs, r, to.elementType, from);
    if (from.regCol(r) + 8 > layout.cols())
      v = arith::SelectOp::create(
          b, loc, less(toI32(colOf(from, r)), i32(layout.cols())), v, zero);
    SharedPlace place = sharedPlace(layout, from, r);
    storeElement(v, sharedPointer(place.offset, to.offset + place.constant));
  }
  if (layout.paddedCols() <= 8 * from.colTiles() * from.colWarps())
    return;
  FragmentLayout rows = from.alongRows();
  for (unsigned v = 0; v < rows.numRegs(); ++v)
    for (unsigned e = 0; e < 2; ++e)
      storeElement(zero,
                   sharedPointer(sharedOffset(layout, toI32(rowOf(rows, v)),
                                              addC(threadCol(from),
                                                   8 * from.colTiles() + e)),
                                 to.offset));
}

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

void KernelEmitter::barrier() {
  if (role == Role::Consumers)
    return syncTeam();
  NVVM::Barrier0Op::create(b, loc);
  if (!frames.empty() && frames.back().iv &&
      b.getInsertionBlock() == frames.back().iv.getParentBlock()) {
    frames.back().hasMet = true;
    shared.clear();
  }
}

void KernelEmitter::wait(int64_t pending) {
  NVVM::CpAsyncWaitGroupOp::create(b, loc, std::max<int64_t>(0, pending));
}

/// Each load is a group of its own.
LogicalResult KernelEmitter::prefetch(const LoopFrame &frame,
                                      ArrayRef<const SharedTile *> loads,
                                      Value iv, Value stage) {
  Value condition = iv == frame.iv ? Value() : less(iv, frame.upper);
  for (const SharedTile *load : loads) {
    {
      OpBuilder::InsertionGuard guard(b);
      if (condition) {
        auto guarded = scf::IfOp::create(b, loc, condition);
        b.setInsertionPointToStart(guarded.thenBlock());
      }
      IRMapping map;
      map.map(load->loop.getInductionVar(), iv);
      if (failed(issueLoad(*load, map, stage)))
        return failure();
    }
    commit();
  }
  return success();
}

/// Fills stages that every warp has read for an iteration that many ahead of
/// the current one.
LogicalResult KernelEmitter::refill(const LoopFrame &frame,
                                    ArrayRef<const SharedTile *> loads,
                                    unsigned ahead) {
  scf::ForOp source = frame.source;
  unsigned stages = loads[0]->stages;
  Value iv = frame.iv, stage = frame.stage;
  if (ahead)
    iv = add(iv, mul(scalar(source.getStep()), index(ahead)));
  if (ahead < stages && stages > 1) {
    Value first =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, stage, i32(0));
    stage = arith::SelectOp::create(b, loc, first, i32(stages - 1),
                                    addC(stage, -1));
  }
  return prefetch(frame, loads, iv, stage);
}

LogicalResult KernelEmitter::ensureReady(Operation *op) {
  for (const SharedTile *load : view.loadsReadIn(op)) {
    if (load->ringIndex < 0) {
      auto it = inFlight.find(load);
      if (it == inFlight.end())
        continue;
      int64_t group = it->second;
      wait(committed - group - 1);
      barrier();
      SmallVector<const SharedTile *> done;
      for (auto &entry : inFlight)
        if (entry.second <= group)
          done.push_back(entry.first);
      for (const SharedTile *l : done)
        inFlight.erase(l);
      continue;
    }
    LoopFrame *frame = nullptr;
    for (LoopFrame &f : frames)
      if (f.source == load->loop)
        frame = &f;
    if (!frame || frame->ready >= load->ringIndex)
      continue;
    int64_t inStage = frame->ring.size(), stages = load->stages;
    bool first = frame->ready < 0;
    // Many loads of a stage are waited for at once: they were issued a step
    // ago, and each wait is a barrier.
    int upTo = inStage > 2 && !load->inTurn && stages > 1 ? inStage - 1
                                                          : load->ringIndex;
    // Groups issued after this load's, as emitFor and refill do it.
    int64_t pending = (stages - 1) * inStage - 1 - upTo;
    if (load->inTurn)
      pending = stages * inStage - 2;
    else if (!first)
      pending += inStage;
    wait(pending);
    barrier();
    frame->ready = upTo;
    // Every warp has passed what came before: stages read there are free. In
    // turn, that is the load before this one; else those of the previous
    // iteration.
    ArrayRef<const SharedTile *> free = frame->ring;
    if (load->inTurn)
      free = free.slice((load->ringIndex + inStage - 1) % inStage, 1);
    else if (!first)
      continue;
    if (failed(refill(*frame, free, first ? stages - 1 : stages)))
      return failure();
  }
  return success();
}
