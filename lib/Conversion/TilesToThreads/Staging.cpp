// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Results and sums that leave through shared memory by TMA.
//
// "Parallel Thread Execution ISA", cp.async.bulk.tensor and
// cp.reduce.async.bulk.

#include "KernelEmitter.h"
#include "PTXText.h"

#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

/// Bytes of a row of a panel.
static constexpr int64_t rowBytes = RingType::rowBytes;

/// Every thread waits, a no-op for those that stored nothing: no branch.
void KernelEmitter::waitStores() {
  ptx("cp.async.bulk.wait_group.read 0;", "~{memory}", {}, {});
}

/// The tile stays in registers until it is stored; sums are put into shared
/// memory at once, which frees theirs.
LogicalResult KernelEmitter::emitStage(StageOp op) {
  TileValue t;
  t.kind = TileValue::Kind::Registers;
  t.layout = *view.layout(op.getTile());
  auto words = registers(op.getTile(), t.layout);
  if (failed(words))
    return failure();
  t.regs = *words;
  t.valid.assign(2, Value());
  t.stage = op;
  if (op.holdsSums()) {
    stageSums(t);
    unfenced[op] = b.getInsertionBlock();
  }
  tiles[op.getResult()] = t;
  return success();
}

/// What the thread has written is there for TMA and products from here on; sums
/// too that it staged before in the same block.
void KernelEmitter::fenceShared() {
  ptx("fence.proxy.async.shared::cta;", "~{memory}", {}, {});
  Block *block = b.getInsertionBlock();
  unfenced.remove_if([&](auto &staged) { return staged.second == block; });
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
  fenceShared();
}

/// The same with rows and columns exchanged: each warp writes 16 columns.
void KernelEmitter::storeTurned(const FragmentLayout &layout,
                                ArrayRef<Value> words, Value address,
                                int64_t offset) {
  constexpr int64_t chunksPerPanel = 8;
  Value row = add(remC(lane(), 8), mulC(divC(lane(), 16), 8)),
        half = remC(divC(lane(), 8), 2), own = rowWarp(layout);
  if (Value col = warpCol(layout))
    row = add(row, col);
  Value chunk =
      xorI(add(mulC(remC(own, chunksPerPanel / 2), 2), half), remC(lane(), 8));
  Value panel = mulC(divC(own, chunksPerPanel / 2), layout.cols() * rowBytes);
  Value base =
      addC(add(address, add(panel, add(mulC(row, rowBytes), mulC(chunk, 16)))),
           offset);
  for (unsigned n = 0; n < layout.colTiles(); n += 2) {
    SmallVector<Value> operands{addC(base, n * 8 * rowBytes)};
    for (unsigned column : {n, n + 1})
      for (unsigned e : {0, 2})
        operands.push_back(words[layout.reg(0, column, e) / 2]);
    ptx("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [$0], {$1, $2, $3, "
        "$4};",
        "r,r,r,r,r,~{memory}", operands, {});
  }
  fenceShared();
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
    // What was added has had the time meanwhile to come to memory.
    sayOnce();
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

/// How many warps have one part of staged sums: those of a warpgroup where it
/// has an adder, which adds a panel of theirs at once.
static int64_t warpsOfPart(const TileValue &source) {
  StageOp stage = source.stage;
  return stage.getAdders() ? 4 : 1;
}

/// Where a part of staged sums lies, of a number that is the same in all lanes.
Value KernelEmitter::stagedPart(const TileValue &source, Value number) {
  StageOp stage = source.stage;
  int64_t warpBytes = source.layout.numRegs() * 32 * 4;
  return addC(add(smemAddress, mulC(number, warpsOfPart(source) * warpBytes)),
              stage.getOffset());
}

/// A warp stores two columns a lane, of 8 rows: half of a warp those of 4,
/// whose 128 bytes lie in different banks where half of the rows store the
/// other half of a panel first: every other row of 128 bytes, which the swizzle
/// has in other places of 32 bytes; of 64 bytes every other two rows.
void KernelEmitter::stageSums(const TileValue &source) {
  StageOp stage = source.stage;
  const int64_t sumRowBytes = 4 * stage.sumCols(),
                panelTiles = stage.sumCols() / 8;
  const bool isSwizzled = sumRowBytes == rowBytes;
  llvm::SaveAndRestore thread(branchThread, again(threadId()));
  const FragmentLayout &layout = source.layout;
  // What was reduced before must have been read.
  if (stage.getAdders()) {
    waitForAdder(stage);
  } else {
    waitStores();
    syncWarp();
  }
  Value number = uniform(warp()),
        part = stagedPart(source, divC(number, warpsOfPart(source)));
  if (stage.getTurned())
    return stageTurnedSums(source, part);
  if (warpsOfPart(source) > 1)
    part = add(part,
               mulC(remC(number, warpsOfPart(source)), stage.sumPanelBytes()));
  Value row = divC(lane(), 4), place = mulC(remC(lane(), 4), 8);
  // Whether the other half of a panel comes first.
  Value other = remC(isSwizzled ? row : divC(row, 2), 2);
  place = xorI(place, mulC(other, sumRowBytes / 2));
  if (isSwizzled)
    place = xorI(place, mulC(remC(row, 8), 16));
  Value own = add(add(part, mulC(row, sumRowBytes)), place);
  Value isOther =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, other, i32(0));
  int64_t panelStride = warpsOfPart(source) * stage.sumPanelBytes();
  for (int64_t t = 0; t < panelTiles; ++t) {
    Value address = xorI(own, i32(32 * t));
    for (int64_t p = 0; p < layout.colTiles() / panelTiles; ++p)
      for (unsigned half : {0, 1}) {
        auto at = [&](int64_t tile, unsigned e) {
          return source
              .regs[layout.reg(0, p * panelTiles + tile, 2 * half + e)];
        };
        SmallVector<Value> operands{
            addC(address, p * panelStride + half * 8 * sumRowBytes)};
        for (unsigned e : {0, 1})
          operands.push_back(arith::SelectOp::create(
              b, loc, isOther, at(t ^ panelTiles / 2, e), at(t, e)));
        ptx("st.shared.v2.f32 [$0], {$1, $2};", "r,f,f,~{memory}", operands,
            {});
      }
  }
}

/// A warp has 16 columns of the result, half of a panel: a lane stores one
/// element at a time, of 8 columns and every other row, whose 128 bytes the
/// swizzle has in different banks.
void KernelEmitter::stageTurnedSums(const TileValue &source, Value part) {
  StageOp stage = source.stage;
  const FragmentLayout &layout = source.layout;
  constexpr int64_t chunkBytes = 16, panelChunks = rowBytes / chunkBytes;
  Value own = remC(warp(), 4), col = divC(lane(), 4),
        row = mulC(remC(lane(), 4), 2);
  Value chunk =
      xorI(add(mulC(remC(own, 2), panelChunks / 2), divC(col, 4)), row);
  Value first = add(add(part, mulC(divC(own, 2), stage.addedRows() * rowBytes)),
                    add(mulC(row, rowBytes),
                        add(mulC(chunk, chunkBytes), mulC(remC(col, 4), 4))));
  for (unsigned e = 0; e < 4; ++e) {
    // The next row; 8 columns on.
    Value address = xorI(
        first, i32(e % 2 * (rowBytes + chunkBytes) + e / 2 * 2 * chunkBytes));
    for (unsigned n = 0; n < layout.colTiles(); ++n)
      ptx(("st.shared.f32 [$0+" + Twine(n * 8 * rowBytes) + "], $1;").str(),
          "r,f,~{memory}", {address, source.regs[layout.reg(0, n, e)]}, {});
  }
}

/// Adds a part of staged sums by TMA, which leaves out what lies outside the
/// tensor. Its number is the same in all lanes. One thread does it, of a warp
/// the one that `before` and `after` each instruction choose.
LogicalResult KernelEmitter::addPart(const TileValue &source,
                                     const GlobalSlice &dest, Value number,
                                     StringRef before, StringRef after) {
  const FragmentLayout &layout = source.layout;
  StageOp stage = source.stage;
  int64_t rows = stage.addedRows(), cols = stage.sumCols(),
          rowParts = layout.rowWarps() / warpsOfPart(source),
          parts = view.warps() / warpsOfPart(source),
          partCols = 8 * layout.colTiles();
  Operation *op = b.getInsertionBlock()->getParentOp();
  FailureOr<Value> map =
      mapAddress({dest.base->buffer, dest.dims[0], rows, cols}, op);
  if (failed(map))
    return failure();
  Value part = stagedPart(source, number);
  Value row, col;
  if (stage.getTurned()) {
    partCols = warpgroupRows;
    col = mulC(number, partCols);
  } else {
    row = mulC(rowParts == parts ? number : remC(number, rowParts), rows);
    if (layout.colWarps() > 1)
      col = mulC(divC(number, rowParts), partCols);
  }
  unsigned rank = dest.offsets.size();
  std::string constraints = "r,l";
  repeat(constraints, "r", rank);
  std::string text = (before + "cp.reduce.async.bulk.tensor." + Twine(rank) +
                      "d.global.shared::cta.add.tile.bulk_group [$1, " +
                      registerList(2, rank) + "], [$0];" + after)
                         .str();
  for (int64_t p = 0; p < partCols / cols; ++p) {
    SmallVector<Value> operands{addC(part, p * rows * cols * 4), *map};
    for (unsigned d = rank; d-- > 0;) {
      Value offset = toI32(dest.offsets[d]);
      if (d == dest.dims[0] && row)
        offset = add(offset, row);
      if (d + 1 == rank) {
        offset = addC(offset, p * cols);
        offset = col ? add(offset, col) : offset;
      }
      operands.push_back(offset);
    }
    ptx(text, constraints + ",~{memory}", operands, {});
  }
  ptx((before + "cp.async.bulk.commit_group;" + after).str(), "~{memory}", {},
      {});
  return success();
}

/// What a warp has staged: it adds it, or tells its adder where.
LogicalResult KernelEmitter::addStaged(const TileValue &source,
                                       const GlobalSlice &dest) {
  llvm::SaveAndRestore thread(branchThread, again(threadId()));
  if (unfenced.contains(source.stage))
    fenceShared();
  if (StageOp stage = source.stage; stage.getAdders()) {
    tellAdder(stage, dest.offsets);
    return success();
  }
  syncWarp();
  return addPart(source, dest, uniform(warp()),
                 "{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n@p ", "\n}");
}

/// One arrival of the thread whose `who` is 0: a predicate, not a branch, since
/// products may be in flight.
void KernelEmitter::emitArrival(Value barrier, Value who) {
  ptx("{\n.reg .pred p;\nsetp.eq.s32 p, $1, 0;\n"
      "@p mbarrier.arrive.shared::cta.b64 _, [$0];\n}",
      "r,r,~{memory}", {barrier, who}, {});
}
