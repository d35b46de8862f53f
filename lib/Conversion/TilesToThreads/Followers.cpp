// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The blocks of a kernel that follow another's (Dialect/Hopper: Followers.h).
//
// They are a warp's work each: of the warps that the producer's warpgroup does
// not need, while the consumers go on, and in the end of the consumers'. A warp
// draws a number, waits until all blocks of its group have added what they add,
// which a word in global memory counts, and computes. Numbers are drawn in the
// order of groups, and whoever is waited for runs or comes to it without
// waiting for a follower: only warps that have nothing else to do wait.
//
// The sums that followers read are zeroed in the launch as well, where nothing
// else reads them: who draws a number writes zeros to what that block reads,
// and waits for one and computes it that was drawn so long before that its
// group's blocks have come. So L2 holds zeros until they are added to. The
// producer starts a tile when its group's are written, which another word
// counts.

#include "KernelEmitter.h"

#include "fa/Dialect/Hopper/Transforms/Adders.h"
#include "fa/Dialect/Hopper/Transforms/Followers.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

/// For how many steps a thread loads elements before it computes: as many as
/// the registers of the producer's warpgroup hold, where it has no scratch in
/// shared memory, or those of the consumers.
static constexpr unsigned stepsOfProducer = 1, stepsOfConsumers = 8;

/// How often a block counts itself: once for each adder, or each warp.
static int64_t additionsOfBlock(const BlockView &view) {
  fa::AccumulateSliceOp handed = view.handedSum();
  return handed ? addersOf(handed->getParentOfType<scf::ForallOp>())
                : view.warps();
}

/// A word of global memory counts what has been done so far, by the thread with
/// number 0.
void KernelEmitter::countBy(Value word, Value number) {
  ptx("{\n.reg .pred p;\nsetp.eq.s32 p, $1, 0;\n"
      "@p red.release.gpu.global.add.u32 [$0], 1;\n}",
      "l,r,~{memory}", {word, number}, {});
}

/// What this warp, or the adder, has added to its group's sums is in memory,
/// and counted.
void KernelEmitter::countAddition(const TileGrid &grid, scf::ForallOp forall) {
  SmallVector<Value> numbers;
  for (Value iv : forall.getInductionVars())
    numbers.push_back(scalar(iv));
  Value word = addC(grid.follower->wordsOf(grid.follower->groupOf(numbers)),
                    FollowerGrid::countOffset);
  if (role == Role::Adder)
    ptx("cp.async.bulk.wait_group 0;", "~{memory}", {}, {});
  else
    endAdditions();
  countBy(word, role == Role::Adder ? i32(0) : lane());
}

/// Until a word of global memory has counted so much, with a look at it every
/// `sleep` ns: others have the memory meanwhile. Of a thread.
void KernelEmitter::waitForCount(Value word, Value expected, int64_t sleep) {
  OpBuilder::InsertionGuard guard(b);
  auto loop = scf::WhileOp::create(b, loc, TypeRange(), ValueRange());
  b.createBlock(&loop.getBefore());
  Value count = ptx("ld.acquire.gpu.global.u32 $0, [$1];", "=r,l,~{memory}",
                    word, b.getI32Type())
                    .front();
  scf::ConditionOp::create(b, loc, less(count, expected), ValueRange());
  b.createBlock(&loop.getAfter());
  ptx(("nanosleep.u32 " + Twine(sleep) + ";").str(), "~{memory}", {}, {});
  scf::YieldOp::create(b, loc);
}

/// What a group's followers read is zero. Of a thread.
void KernelEmitter::waitForZeros(const FollowerGrid &follower, Value group) {
  waitForCount(addC(follower.wordsOf(group), FollowerGrid::zeroCountOffset),
               toI32(follower.followersOfGroup()), /*sleep=*/100);
}

/// All of a group's blocks have added what they add. Of a warp.
void KernelEmitter::waitForGroup(const FollowerGrid &follower, Value group) {
  Value word = addC(follower.wordsOf(group), FollowerGrid::countOffset);
  Value expected = arith::MulIOp::create(
      b, loc, toI32(follower.blocksOfGroup()), i32(additionsOfBlock(view)));
  {
    OpBuilder::InsertionGuard guard(b);
    enterWhere(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, lane(),
                                     i32(0)));
    waitForCount(word, expected, /*sleep=*/1000);
    if (follower.zero) {
      // Where no block adds, none has waited for these.
      enterWhere(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                       expected, i32(0)));
      waitForZeros(follower, group);
    }
  }
  syncWarp();
}

/// The number that a word has, which has the next one then. Such words lie
/// where a kernel's parameter says: no register keeps their address.
Value KernelEmitter::drawFrom(Value address) {
  return ptx("atom.relaxed.gpu.global.add.u32 $0, [$1], 1;", "=r,l,~{memory}",
             address, b.getI32Type())
      .front();
}

/// Writes zeros to what a block reads, and counts it. Of a warp.
LogicalResult KernelEmitter::emitZeros(const FollowerGrid &follower,
                                       Value number) {
  auto [group, numbers] = follower.decode(toIndex(number));
  if (failed(follower.zero(numbers, lane())))
    return failure();
  // What is added to them comes from shared memory, by TMA.
  ptx("fence.proxy.async.global;", "~{memory}", {}, {});
  syncWarp();
  countBy(addC(follower.wordsOf(group), FollowerGrid::zeroCountOffset), lane());
  return success();
}

/// Draws blocks of the follower and computes them, until there are none; before
/// it waits for one it zeroes what another, so far ahead, will read. Of a warp,
/// with its scratch or null.
LogicalResult KernelEmitter::emitFollowers(const FollowerGrid &follower,
                                           Value scratch) {
  Type word = b.getI32Type();
  auto draw = [&] {
    OpBuilder::InsertionGuard guard(b);
    Value isFirst =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, lane(), i32(0));
    auto branch = scf::IfOp::create(b, loc, TypeRange(word), isFirst,
                                    /*addThenBlock=*/true,
                                    /*addElseBlock=*/true);
    b.setInsertionPointToStart(branch.thenBlock());
    Value drawn = drawFrom(follower.wordsOf(index(0)));
    scf::YieldOp::create(b, loc, drawn);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, loc, i32(0));
    b.setInsertionPointAfter(branch);
    return uniform(branch.getResult(0));
  };
  auto loop = scf::WhileOp::create(b, loc, word, ValueRange(draw()));
  OpBuilder::InsertionGuard guard(b);
  Block *test = b.createBlock(&loop.getBefore(), {}, word, loc);
  Value number = test->getArgument(0), end = toI32(follower.count());
  if (follower.zero)
    end = add(end, toI32(follower.ahead()));
  scf::ConditionOp::create(b, loc, less(number, end), number);
  Block *body = b.createBlock(&loop.getAfter(), {}, word, loc);
  number = body->getArgument(0);
  if (follower.zero) {
    OpBuilder::InsertionGuard inner(b);
    enterWhere(less(number, toI32(follower.count())));
    if (failed(emitZeros(follower, number)))
      return failure();
  }
  {
    OpBuilder::InsertionGuard inner(b);
    if (follower.zero) {
      number = arith::SubIOp::create(b, loc, number, toI32(follower.ahead()));
      enterWhere(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge,
                                       number, i32(0)));
    }
    auto [group, numbers] = follower.decode(toIndex(number));
    waitForGroup(follower, group);
    bool isConsumer = role == Role::Consumers;
    if (failed(follower.emit(numbers, lane(),
                             isConsumer ? stepsOfConsumers : stepsOfProducer,
                             scratch)))
      return failure();
  }
  scf::YieldOp::create(b, loc, draw());
  return success();
}

/// In the warps of the producer's warpgroup that have no work.
LogicalResult KernelEmitter::emitFollowersOfProducer(scf::ForallOp forall,
                                                     const TileGrid &grid) {
  OpBuilder::InsertionGuard guard(b);
  int64_t count = freeWarps(forall);
  if (count == 0)
    return success();
  Value warp = uniform(divC(remC(threadId(), warpgroupThreads), 32));
  Value number = addC(warp, count - 4);
  enterWhere(
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, number, i32(0)));
  KernelEmitter emitter = *this;
  emitter.role = Role::Producer;
  Value scratch;
  if (grid.follower->scratch >= 0)
    scratch = addC(mulC(number, followerScratch), grid.follower->scratch);
  return emitter.emitFollowers(*grid.follower, scratch);
}
