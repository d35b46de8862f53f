// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fa.list_blocks: each warp looks at the mask of one block of keys, and the
// warps of a block write the entries of one round side by side.

#include "KernelEmitter.h"

#include "fa/Dialect/FA/IR/FA.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <limits>
#include <string>

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

/// Of an element: nothing seen, seen, not seen.
static constexpr int64_t kAnySeen = 1, kAnyUnseen = 2;

/// The words of all lanes of the warp, combined.
Value KernelEmitter::warpReduce(StringRef how, Value word) {
  std::string text = ("redux.sync." + how + " $0, $1, 0xffffffff;").str();
  return ptx(text, "=r,r", word, b.getI32Type()).front();
}

/// The range of a value over samples of a block, one or a few for each lane.
std::optional<TileRange> KernelEmitter::emitRange(ListBlocksOp op, Value key,
                                                  Value what,
                                                  const TileSamples &samples) {
  Value rows = scalar(op.getRows());
  if (!rows)
    return std::nullopt;
  Block &mask = op.getMask().front();
  SmallVector<Operation *> slice = sliceInBlock(what, mask), others;
  for (Operation &inner : mask.without_terminator())
    if (!llvm::is_contained(slice, &inner))
      others.push_back(&inner);
  bool isCondition = what.getType().isInteger(1);
  int64_t least = std::numeric_limits<int32_t>::min(),
          most = std::numeric_limits<int32_t>::max();
  Type wide = b.getI64Type(), word = b.getI32Type();
  Value lo, hi;
  for (int64_t first = 0; first < samples.count(); first += 32) {
    Value sample = addC(lane(), first);
    if (first + 32 > samples.count())
      sample = arith::MinUIOp::create(b, loc, sample, i32(samples.count() - 1));
    Value row = toIndex(mulC(divC(sample, samples.keys), samples.everyRow));
    Value column = toIndex(mulC(remC(sample, samples.keys), samples.everyKey));
    // Rows that do not exist are not looked at.
    row = arith::MinSIOp::create(b, loc, row, addC(rows, -1));
    IRMapping map;
    FailureOr<SmallVector<Value>> value =
        cloneBlock(mask, {row, column, key}, what, map, others);
    if (failed(value))
      return std::nullopt;
    Value x = value->front();
    if (isCondition) {
      x = arith::ExtUIOp::create(b, loc, word, x);
    } else if (x.getType().isInteger(64)) {
      x = arith::MinSIOp::create(b, loc, x, i64(most));
      x = arith::MaxSIOp::create(b, loc, x, i64(least));
      x = arith::TruncIOp::create(b, loc, word, x);
    } else if (x.getType().isIndex()) {
      x = toI32(x);
    } else if (!x.getType().isInteger(32)) {
      x = arith::ExtSIOp::create(b, loc, word, x);
    }
    lo = lo ? arith::MinSIOp::create(b, loc, lo, x).getResult() : x;
    hi = hi ? arith::MaxSIOp::create(b, loc, hi, x).getResult() : x;
  }
  if (samples.count() > 1) {
    lo = warpReduce("min.s32", lo);
    hi = warpReduce("max.s32", hi);
  }
  auto holds = [&](arith::CmpIPredicate predicate, Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, loc, predicate, x, y);
  };
  if (isCondition)
    return TileRange{holds(arith::CmpIPredicate::ne, lo, i32(0)),
                     holds(arith::CmpIPredicate::ne, hi, i32(0))};
  bool isLimited = what.getType().isInteger(64);
  // What was limited to 32 bits may lie anywhere beyond.
  Value isLeast = holds(arith::CmpIPredicate::eq, lo, i32(least)),
        isMost = holds(arith::CmpIPredicate::eq, hi, i32(most));
  lo = arith::ExtSIOp::create(b, loc, wide, lo);
  hi = arith::ExtSIOp::create(b, loc, wide, hi);
  if (!isLimited)
    return TileRange{lo, hi};
  return TileRange{
      arith::SelectOp::create(b, loc, isLeast, i64(-TileRanges::kUnlimited),
                              lo),
      arith::SelectOp::create(b, loc, isMost, i64(TileRanges::kUnlimited), hi)};
}

/// What the lanes of a warp see of one block of keys, as bits (i32), the same
/// in all lanes; elements are looked at only where ranges do not tell. Null,
/// with a report, where the mask cannot be emitted.
Value KernelEmitter::emitSeen(ListBlocksOp op, Value key) {
  auto reduce = [&](Value what, const TileSamples &samples) {
    return emitRange(op, key, what, samples);
  };
  std::optional<TileRange> range = TileRanges(op, b, reduce).ofMask();
  if (!range)
    return emitSeenElements(op, key);
  Value isMixed = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                        range->lo, range->hi);
  auto branch = scf::IfOp::create(b, loc, b.getI32Type(), isMixed,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value seen = emitSeenElements(op, key);
  if (!seen)
    return {};
  scf::YieldOp::create(b, loc, seen);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(
      b, loc,
      arith::SelectOp::create(b, loc, range->hi, i32(kAnySeen), i32(kAnyUnseen))
          .getResult());
  return branch.getResult(0);
}

Value KernelEmitter::emitSeenElements(ListBlocksOp op, Value key) {
  int64_t everyRow = op.getEvery()[0], everyKey = op.getEvery()[1];
  int64_t columns = op.tileKeys() / everyKey;
  // Lanes lie side by side along the keys, then along the rows.
  int64_t across = std::min<int64_t>(32, llvm::PowerOf2Ceil(columns));
  int64_t down = 32 / across;
  Value rows = scalar(op.getRows()), to = scalar(op.getTo());
  if (!rows || !to)
    return {};
  Value firstRow = toIndex(mulC(divC(lane(), across), everyRow));
  Value firstColumn = toIndex(mulC(remC(lane(), across), everyKey));
  SmallVector<Value> offsets;
  for (int64_t first = 0; first < columns; first += across)
    offsets.push_back(addC(firstColumn, first * everyKey));
  auto loop = scf::ForOp::create(b, loc, firstRow, rows, index(down * everyRow),
                                 SmallVector<Value>(offsets.size(), i32(0)));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> states;
  for (auto [offset, state] : llvm::zip(offsets, loop.getRegionIterArgs())) {
    IRMapping map;
    FailureOr<SmallVector<Value>> seen =
        cloneBlock(op.getMask().front(), {loop.getInductionVar(), offset, key},
                   op.getSeen(), map);
    if (failed(seen))
      return {};
    Value bits = arith::SelectOp::create(b, loc, seen->front(), i32(kAnySeen),
                                         i32(kAnyUnseen));
    states.push_back(arith::OrIOp::create(b, loc, state, bits));
  }
  scf::YieldOp::create(b, loc, states);
  b.setInsertionPointAfter(loop);
  // Of the last block of keys not all exist, and of the last offsets.
  Value all = i32(0);
  for (auto [offset, state] : llvm::zip(offsets, loop.getResults())) {
    Value bits = arith::SelectOp::create(b, loc, less(add(key, offset), to),
                                         state, i32(kAnyUnseen));
    if (columns % across)
      bits = arith::SelectOp::create(b, loc, less(offset, index(op.tileKeys())),
                                     bits, i32(0));
    all = arith::OrIOp::create(b, loc, all, bits);
  }
  return warpReduce("or.b32", all);
}

LogicalResult KernelEmitter::emitListBlocks(ListBlocksOp op) {
  loc = op.getLoc();
  FailureOr<TileValue> count = tile(op.getCount()),
                       entries = tile(op.getEntries());
  Value from = scalar(op.getFrom()), to = scalar(op.getTo());
  if (failed(count) || failed(entries) || !from || !to)
    return failure();
  if (count->kind != TileValue::Kind::Slice ||
      entries->kind != TileValue::Kind::Slice)
    return op.emitOpError("expected to write into slices of global memory");
  auto placeIn = [&](const GlobalSlice &slice, Value i) {
    SmallVector<Value> at(slice.offsets);
    at[slice.dims[0]] = add(at[slice.dims[0]], toIndex(i));
    return elementPointer(*slice.base, at);
  };
  auto isFirst = [&](Value x) -> Value {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, x, i32(0));
  };
  auto storeIf = [&](Value condition, Value value, Value pointer) {
    OpBuilder::InsertionGuard guard(b);
    auto branch = scf::IfOp::create(b, loc, condition);
    b.setInsertionPointToStart(branch.thenBlock());
    LLVM::StoreOp::create(b, loc, value, pointer);
  };

  // A round: a block of keys a warp.
  int64_t warps = view.warps();
  auto round = scf::ForOp::create(
      b, loc, from, to, index(warps * op.tileKeys()), ValueRange{i32(0)});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(round.getBody());
    Value listed = round.getRegionIterArg(0);
    Value key =
        add(round.getInductionVar(), mulC(toIndex(warp()), op.tileKeys()));
    Value seen = emitSeen(op, key);
    if (!seen)
      return failure();
    Value mine = arith::AndIOp::create(b, loc, seen, i32(kAnySeen));
    mine = arith::SelectOp::create(b, loc, less(key, to), mine, i32(0));
    Value leads = isFirst(lane());
    storeIf(leads, mine, sharedPointer(mulC(warp(), 4)));
    barrier();
    // Lane n votes for warp n.
    Value inRange = less(lane(), i32(warps));
    Value at = arith::SelectOp::create(b, loc, inRange, lane(), i32(0));
    Value word = LLVM::LoadOp::create(b, loc, b.getI32Type(),
                                      sharedPointer(mulC(at, 4)));
    Value vote = arith::ShLIOp::create(b, loc, word, lane());
    Value bits = warpReduce(
        "or.b32", arith::SelectOp::create(b, loc, inRange, vote, i32(0)));
    Value below = arith::SubIOp::create(
        b, loc, arith::ShLIOp::create(b, loc, i32(1), warp()), i32(1));
    Value before = LLVM::CtPopOp::create(
        b, loc, arith::AndIOp::create(b, loc, bits, below));
    // All of them are seen, and exist: one element may have stood for several.
    Value all = arith::CmpIOp::create(
        b, loc, arith::CmpIPredicate::eq,
        arith::AndIOp::create(b, loc, seen, i32(kAnyUnseen)), i32(0));
    Value exist = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle,
                                        addC(key, op.tileKeys()), to);
    Value full = arith::AndIOp::create(b, loc, all, exist);
    Value entry = arith::IndexCastOp::create(b, loc, b.getI32Type(), key);
    entry = add(entry, arith::ExtUIOp::create(b, loc, b.getI32Type(), full));
    Value lists = arith::AndIOp::create(
        b, loc, leads,
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, mine, i32(0)));
    storeIf(lists, entry, placeIn(entries->slice, add(listed, before)));
    // The words are written anew in the next round.
    barrier();
    scf::YieldOp::create(
        b, loc, ValueRange{add(listed, LLVM::CtPopOp::create(b, loc, bits))});
  }
  storeIf(isFirst(threadId()), round.getResult(0),
          placeIn(count->slice, i32(0)));
  tiles[op.getNewCount()] = *count;
  tiles[op.getNewEntries()] = *entries;
  return success();
}
