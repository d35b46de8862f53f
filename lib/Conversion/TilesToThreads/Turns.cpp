// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order in which blocks, and a block's warps and lanes, add to the same
// memory.
//
// Each block has a word in global memory: it and all blocks before it have
// added to all that lies before that place of the tensor that they share. A
// block adds to a slice when the block before it has gone past that slice.
// Blocks take their numbers when they begin, so that who is waited for runs.
//
// Where a block has roles each of its adders (Adders.cpp), or if it has
// none each of the consumers' warps, has a word, and takes turns by itself: in
// all blocks it adds to the same part of a slice.

#include "KernelEmitter.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

/// The block's word so many blocks before, or the adder's or the warp's.
Value KernelEmitter::turnWord(int64_t before) {
  Value place = i32(-before);
  if (role == Role::Consumers)
    place = addC(warp(), -before * view.warps());
  if (role == Role::Adder)
    place = addC(warpgroup(), -before * view.warps() / 4);
  return LLVM::GEPOp::create(b, loc, globalPointer(), b.getI64Type(),
                             turns.words, ArrayRef<LLVM::GEPArg>{place});
}

/// Says that this block and those before it are past a place.
void KernelEmitter::sayPast(Value place) {
  ptx("st.release.gpu.global.s64 [$0], $1;", "l,l,~{memory}",
      {turnWord(0), place}, {});
}

Value KernelEmitter::readPast(int64_t before) {
  return ptx("ld.acquire.gpu.global.s64 $0, [$1];", "=l,l,~{memory}",
             turnWord(before), b.getI64Type())
      .front();
}

/// Waits until the block, or the warp of it, that is so many before this one is
/// past a place, and meanwhile says how far this one and those before it are,
/// at most to `claim` (null: nothing). Of one thread.
void KernelEmitter::waitForBlock(int64_t before, Value until, Value claim) {
  Value has = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::uge,
                                    turns.number, index(before));
  auto branch =
      scf::IfOp::create(b, loc, has, /*withElseRegion=*/claim != nullptr);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  auto loop = scf::WhileOp::create(b, loc, TypeRange(), ValueRange());
  b.createBlock(&loop.getBefore());
  Value past = readPast(before);
  if (claim)
    sayPast(arith::MinSIOp::create(b, loc, past, claim));
  scf::ConditionOp::create(b, loc, less(past, until), ValueRange());
  b.createBlock(&loop.getAfter());
  scf::YieldOp::create(b, loc);
  if (claim) {
    b.setInsertionPointToStart(branch.elseBlock());
    sayPast(claim);
  }
}

/// A number of its own for each block, in the order in which they begin.
Value KernelEmitter::drawNumber(Value counter) {
  Value pointer = sharedPointer(i32(0));
  {
    OpBuilder::InsertionGuard guard(b);
    enterWhere(isFirstThread());
    Value drawn = ptx("atom.relaxed.gpu.global.add.u32 $0, [$1], 1;",
                      "=r,l,~{memory}", counter, b.getI32Type())
                      .front();
    LLVM::StoreOp::create(b, loc, drawn, pointer);
  }
  barrier();
  Value number = LLVM::LoadOp::create(b, loc, b.getI32Type(), pointer);
  barrier();
  return toIndex(number);
}

Value KernelEmitter::isFirstThread() {
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, threadId(),
                               i32(0));
}

void KernelEmitter::beginTurns(const Turns &given, int64_t apart) {
  turns = given;
  if (apart == 0)
    return;
  {
    OpBuilder::InsertionGuard guard(b);
    enterWhere(isFirstThread());
    waitForBlock(apart, i64(pastEnd), /*claim=*/{});
  }
  barrier();
}

/// Whether a thread is the one that waits, and says how far the others are.
Value KernelEmitter::isTurnThread() {
  return role == Role::Consumers ? less(lane(), i32(1)) : isFirstThread();
}

/// All threads that have a word together have made what was added before, or
/// may go on.
void KernelEmitter::meetForTurn() {
  if (role == Role::Consumers)
    syncWarp();
  else
    barrier();
}

/// Which row of the tensor a slice begins at, in the order in which they lie in
/// memory.
Value KernelEmitter::rowInMemory(const GlobalSlice &dest) {
  Value row = i64(0);
  for (auto [d, offset] : llvm::enumerate(ValueRange(dest.offsets).drop_back()))
    row = add(mul(row, toI64(dest.base->sizes[d])), toI64(offset));
  return row;
}

/// Before additions to a slice: those of the blocks before have been made.
void KernelEmitter::takeTurn(const GlobalSlice &dest) {
  Value row = rowInMemory(dest);
  endAdditions();
  {
    OpBuilder::InsertionGuard guard(b);
    enterWhere(isTurnThread());
    waitForBlock(1, addC(row, 1), row);
  }
  meetForTurn();
}

/// What has been added is there before a word says so: by all threads, and by
/// TMA.
void KernelEmitter::endAdditions() {
  if (role == Role::Consumers)
    ptx("cp.async.bulk.wait_group 0;", "~{memory}", {}, {});
  meetForTurn();
}

void KernelEmitter::endTurns() {
  endAdditions();
  OpBuilder::InsertionGuard guard(b);
  enterWhere(isTurnThread());
  waitForBlock(1, i64(pastEnd), i64(pastEnd));
}

/// What warps, or lanes of a warp, must do one after another.
LogicalResult KernelEmitter::inTurns(bool ofWarps, bool ofLanes,
                                     llvm::function_ref<LogicalResult()> emit) {
  OpBuilder::InsertionGuard guard(b);
  auto enterTurns = [&](int64_t count, Value mine,
                        llvm::function_ref<void()> meet) {
    auto loop = scf::ForOp::create(b, loc, index(0), index(count), index(1));
    b.setInsertionPoint(loop.getBody()->getTerminator());
    meet();
    enterWhere(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, mine,
                                     toI32(loop.getInductionVar())));
  };
  if (ofWarps)
    enterTurns(view.warps(), warp(), [&] { barrier(); });
  if (ofLanes)
    enterTurns(32, lane(),
               [&] { ptx("bar.warp.sync 0xffffffff;", "~{memory}", {}, {}); });
  return emit();
}
