// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adders: threads of the producer's warpgroup, one for each of the consumers',
// that add to memory what these stage in shared memory. An adder waits for
// memory and, where blocks add in an order, for other blocks; its warpgroup
// waits only until it has read what was staged before.
//
// The two meet in the bytes that `hopper.stage` names. The consumers say where
// their part of the staged tile is to be added, or that a block has nothing
// more, and each of their warps arrives at `full`; the adder arrives at `empty`
// when it has read the part. Each warp keeps the phase of `empty` in shared
// memory, where it takes no register.

#include "KernelEmitter.h"

#include "fa/Dialect/Hopper/Transforms/Adders.h"

#include "fa/Dialect/FA/IR/Matchers.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

//===----------------------------------------------------------------------===//
// The consumers
//===----------------------------------------------------------------------===//

/// Of this warpgroup's adder, or the adder's own.
Value KernelEmitter::adderAddress(StageOp stage, int64_t offset) {
  // Of a consumer's number, which no register need keep.
  Value number = role == Role::Consumers
                     ? uniform(divC(threadId(), warpgroupThreads))
                     : warpgroup();
  return addC(add(again(smemAddress), mulC(number, StageOp::adderBytes)),
              *stage.getAdders() + offset);
}

/// What the adder was told before has been read.
void KernelEmitter::waitForAdder(StageOp stage) {
  Value place =
      add(mulC(remC(warp(), 4), 4), adderAddress(stage, StageOp::phasesOffset));
  // Where lanes could wait for different phases, for all that an assembler
  // knows, it would have products' descriptors computed by each of them, and
  // not once for a warp.
  Value phase = uniform(
      ptx("ld.shared.u32 $0, [$1];", "=r,r,~{memory}", place, b.getI32Type())
          .front());
  Value next = xorI(phase, i32(1));
  waitBarrier(adderAddress(stage, StageOp::emptyOffset), next);
  syncWarp();
  storeWhere(lane(), place, next);
}

/// The thread whose `who` is 0 stores a word in shared memory: a predicate, not
/// a branch, since products may be in flight.
void KernelEmitter::storeWhere(Value who, Value address, Value word) {
  ptx("{\n.reg .pred p;\nsetp.eq.s32 p, $2, 0;\n"
      "@p st.shared.u32 [$0], $1;\n}",
      "r,r,r,~{memory}", {address, word, who}, {});
}

/// Where the staged tile is to be added; no coordinates: the block's last one
/// was told before. Of a warp that has waited.
void KernelEmitter::tellAdder(StageOp stage, ValueRange coordinates) {
  Value words = adderAddress(stage, StageOp::wordsOffset),
        who = remC(threadId(), warpgroupThreads);
  storeWhere(who, words, i32(!coordinates.empty()));
  for (auto [i, coordinate] : llvm::enumerate(coordinates))
    storeWhere(who, addC(words, 4 * (i + 1)), toI32(coordinate));
  syncWarp();
  emitArrival(adderAddress(stage, 0), lane());
}

//===----------------------------------------------------------------------===//
// The adders
//===----------------------------------------------------------------------===//

/// In the warps behind those that load.
LogicalResult KernelEmitter::emitAdders(scf::ForallOp forall,
                                        const TileGrid &grid) {
  OpBuilder::InsertionGuard guard(b);
  int64_t before = view.warps() + (hasVectors(forall) ? 2 : 1);
  enterWhere(isFirstOfWarps(before, view.warps() / 4));
  KernelEmitter emitter = *this;
  emitter.role = Role::Adder;
  emitter.warpgroupIndex = addC(warp(), -before);
  LogicalResult result = emitter.emitTiles(forall, grid);
  alignedBuffers.insert(emitter.alignedBuffers.begin(),
                        emitter.alignedBuffers.end());
  return result;
}

/// Waits until the block before this one is past a place, of which so much is
/// known, and meanwhile says how far it and those before it are, at most to
/// `claim`. Returns what is known then.
Value KernelEmitter::waitForTurn(Value known, Value until, Value claim) {
  Type word = b.getI64Type();
  auto loop = scf::WhileOp::create(b, loc, TypeRange(word), known);
  OpBuilder::InsertionGuard guard(b);
  Block *test = b.createBlock(&loop.getBefore(), {}, word, loc);
  Value past = test->getArgument(0);
  scf::ConditionOp::create(b, loc, less(past, until), past);
  b.createBlock(&loop.getAfter(), {}, word, loc);
  Value now = readPast(1);
  {
    OpBuilder::InsertionGuard inner(b);
    enterWhere(less(now, until));
    sayPast(arith::MinSIOp::create(b, loc, now, claim));
  }
  scf::YieldOp::create(b, loc, now);
  return loop.getResult(0);
}

/// Adds what the warpgroup stages of one of the block's tiles. `told` is how
/// often it has told the adder something; returns how often then.
FailureOr<Value> KernelEmitter::emitAdditions(Value told) {
  AccumulateSliceOp sum = view.handedSum();
  StageOp stage = stageOf(sum);
  auto [memory, dim] =
      memoryOf(sum.getInit(), firstKeptDim(sum.getDroppedDims()));
  FailureOr<TileValue> to = tile(memory);
  if (failed(to))
    return failure();
  if (to->kind != TileValue::Kind::Global)
    return sum.emitOpError("expected a tensor in global memory for adders");
  GlobalSlice dest;
  dest.base = to->global;
  dest.dims = {dim, unsigned(to->global->sizes.size() - 1)};
  TileValue staged;
  staged.layout = *view.layout(stage.getTile());
  staged.stage = stage;

  Type word = b.getI32Type(), place = b.getI64Type();
  Value words = adderAddress(stage, StageOp::wordsOffset),
        empty = adderAddress(stage, StageOp::emptyOffset);
  auto read = [&](int64_t i) {
    return ptx("ld.shared.u32 $0, [$1];", "=r,r,~{memory}", addC(words, 4 * i),
               word)
        .front();
  };
  auto arrive = [&] {
    ptx("mbarrier.arrive.shared::cta.b64 _, [$0];", "r,~{memory}", empty, {});
  };
  // Carried: how often it was told something, and how far the block before is
  // known to be.
  bool inOrder = turns.words != nullptr;
  SmallVector<Value> inits{told};
  if (inOrder) {
    Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                          turns.number, index(0));
    inits.push_back(
        arith::SelectOp::create(b, loc, isFirst, i64(pastEnd), i64(0)));
  }
  SmallVector<Type> types{word};
  if (inOrder)
    types.push_back(place);
  SmallVector<Location> locs(types.size(), loc);
  auto loop = scf::WhileOp::create(b, loc, types, inits);
  OpBuilder::InsertionGuard guard(b);
  Block *test = b.createBlock(&loop.getBefore(), {}, types, locs);
  waitBarrier(adderAddress(stage, 0), remC(test->getArgument(0), 2));
  Value more =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, read(0), i32(0));
  scf::ConditionOp::create(b, loc, more, test->getArguments());

  Block *body = b.createBlock(&loop.getAfter(), {}, types, locs);
  SmallVector<Value> yields{addC(body->getArgument(0), 1)};
  for (size_t d = 0; d < dest.base->sizes.size(); ++d)
    dest.offsets.push_back(toIndex(read(d + 1)));
  // All blocks before are past the row that the slice begins at, and so with
  // what they add from there, and this one is when it has added.
  Value past;
  if (inOrder) {
    Value row = rowInMemory(dest);
    past = addC(row, 1);
    yields.push_back(waitForTurn(body->getArgument(1), past, row));
  }
  if (failed(addPart(staged, dest, warpgroup(), "", "")))
    return failure();
  waitStores();
  arrive();
  if (inOrder) {
    ptx("cp.async.bulk.wait_group 0;", "~{memory}", {}, {});
    sayPast(past);
  }
  scf::YieldOp::create(b, loc, yields);

  b.setInsertionPointAfter(loop);
  arrive();
  if (inOrder) {
    waitForTurn(loop.getResult(1), i64(pastEnd), i64(pastEnd));
    sayPast(i64(pastEnd));
  }
  return addC(loop.getResult(0), 1);
}
