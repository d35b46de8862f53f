// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The consumers: the loop over blocks of keys, rotated before its second
// contraction, with the softmax of one block under the second contraction of
// the block before, and warpgroups that take turns.

#include "HopperSchedule.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

namespace {
/// Builds the role; each step appends at its builder.
class ConsumersBuilder {
public:
  ConsumersBuilder(HopperProgram &program, const HopperShape &shape,
                   const HopperRings &rings)
      : program(program), shape(shape), rings(rings), loop(program.loop),
        loc(program.loop.getLoc()) {}
  HopperConsumers build(OpBuilder &b);

private:
  void sortOps();

  void guardedPipeline(OpBuilder &b, IRMapping &results);
  void pipeline(OpBuilder &b, IRMapping &results);
  SmallVector<Value> firstBlock(OpBuilder &b, Value &next);
  SmallVector<Value> steadyLoop(OpBuilder &b, Value from, Value to,
                                ValueRange state, std::optional<bool> whole);
  void overlapped(OpBuilder &b, IRMapping &map, Value kSlot, Value vSlot,
                  Value scores, ValueRange output);
  void inTurn(OpBuilder &b, IRMapping &map, Value kSlot, Value vSlot,
              Value scores, ValueRange output);
  void lastBlock(OpBuilder &b, Value iv, ValueRange state, IRMapping &results);

  Value acquire(OpBuilder &b, RingOp ring, Value tile, bool polled = false);
  Value cloneTile(OpBuilder &b, Value tile, Value iv);
  Value releaseQ(OpBuilder &b, Value iv);
  void pollNextK(OpBuilder &b, Value next);
  Value startScores(OpBuilder &b, Value k);
  SmallVector<Value> startOutput(OpBuilder &b, ValueRange state, Value v,
                                 Value hasOutput);
  bool leaveOutZeros(OpBuilder &b, SmallVector<Value> &state);
  ValueRange waitFor(OpBuilder &b, int64_t pending, ValueRange values);
  void readList(OpBuilder &b, IRMapping &map);
  void makeAhead(OpBuilder &b, IRMapping &map);
  void pin(OpBuilder &b, ArrayRef<Value> tiles, IRMapping &map);
  Value splitPoint(OpBuilder &b, Value from);
  SmallVector<Value> carry(IRMapping &map);
  void bindOutput(IRMapping &map, ValueRange values);

  Value q() { return program.first.a->get(); }
  Value k() { return program.first.b->get(); }
  Value v() { return program.second.b->get(); }
  Value s() { return program.first.op->getResult(0); }
  Value p() { return program.second.a->get(); }

  HopperProgram &program;
  const HopperShape &shape;
  const HopperRings &rings;
  scf::ForOp loop;
  Location loc;
  HopperConsumers made;
  /// The body without its contractions and loads, and what of it runs before
  /// and after the wait for the second contraction.
  SmallVector<Operation *> ops, earlyOps, lateOps;
  /// Tiles that are computed early for the late operations.
  SetVector<Value> pinned;
  Value isFirst, isLater;
  /// Where the steady blocks begin; the sums of the first of them, or of the
  /// last block where there are none, start from zero.
  Value second;
  bool fromZero = false;
};
} // namespace

//===----------------------------------------------------------------------===//
// Early and late
//===----------------------------------------------------------------------===//

void ConsumersBuilder::sortOps() {
  DenseSet<Operation *> loads;
  for (Value tile : {k(), v()})
    loads.insert_range(getLoadChain(tile));
  for (Operation &op : loop.getBody()->without_terminator())
    if (&op != program.first.op && &op != program.second.op &&
        &op != program.sums && !loads.contains(&op))
      ops.push_back(&op);
  if (!shape.overlap) {
    earlyOps = ops;
    return;
  }

  // What must wait for the second contraction: what reads its result, and what
  // makes its next operand.
  DenseSet<Value> late;
  for (unsigned i = 0; i < loop.getNumRegionIterArgs(); ++i)
    if (program.isAccumulated(i))
      late.insert(loop.getRegionIterArg(i));
  for (Operation *op : ops) {
    bool isLate = false;
    op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        isLate |= late.contains(operand);
    });
    for (Value result : op->getResults()) {
      auto type = dyn_cast<RankedTensorType>(result.getType());
      isLate |= type && type.getRank() == 2 &&
                type.getElementType() == program.first.elementType;
    }
    if (isLate)
      late.insert(op->result_begin(), op->result_end());
    (isLate ? lateOps : earlyOps).push_back(op);
  }
  for (Operation *op : lateOps)
    if (auto generic = dyn_cast<linalg::GenericOp>(op))
      for (Value input : generic.getDpsInputs()) {
        auto type = dyn_cast<RankedTensorType>(input.getType());
        auto from = input.getDefiningOp<linalg::GenericOp>();
        if (type && type.getRank() == 2 && from &&
            from->getParentOp() == loop && !late.contains(input) &&
            input != program.mask)
          pinned.insert(input);
      }
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

Value ConsumersBuilder::acquire(OpBuilder &b, RingOp ring, Value tile,
                                bool polled) {
  auto type = SlotType::get(b.getContext(), ring.getRing().getType().getTile());
  return AcquireOp::create(b, tile.getLoc(), type, ring.getRing(), tile, polled)
      .getSlot();
}

/// The slice that a tile is, for another value of the induction variable.
Value ConsumersBuilder::cloneTile(OpBuilder &b, Value tile, Value iv) {
  IRMapping map;
  map.map(loop.getInductionVar(), iv);
  return cloneSlice(b, tile, loop.getRegion(), map);
}

/// Q is free for the next tile after the last block's scores. Returns where the
/// next block begins.
Value ConsumersBuilder::releaseQ(OpBuilder &b, Value iv) {
  Value next = arith::AddIOp::create(b, loc, iv, loop.getStep());
  if (!shape.persistent)
    return next;
  Value isLast = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, next,
                                       loop.getUpperBound());
  ReleaseOp::create(b, loc, made.qSlot, isLast);
  return next;
}

/// Waits for the next K tile, if there is one. Between the softmax and the wait
/// for the second product it keeps the assembler from moving the latter up.
void ConsumersBuilder::pollNextK(OpBuilder &b, Value next) {
  Value more = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, next,
                                     loop.getUpperBound());
  auto poll = scf::IfOp::create(b, loc, more);
  OpBuilder inner = OpBuilder::atBlockBegin(poll.thenBlock());
  RingOp ring = rings.k;
  PollOp::create(inner, loc, ring.getRing());
}

Value ConsumersBuilder::startScores(OpBuilder &b, Value k) {
  auto type =
      PendingType::get(b.getContext(), cast<RankedTensorType>(s().getType()));
  return WgmmaOp::create(b, program.first.op.getLoc(), type, made.qSlot, k,
                         ValueRange(), /*condition=*/Value(),
                         /*aTransposed=*/false, /*transposed=*/false)
      .getResults()[0];
}

/// The second contraction on what the rotated loop carries, which is nothing
/// yet where `hasOutput` is false.
SmallVector<Value> ConsumersBuilder::startOutput(OpBuilder &b, ValueRange state,
                                                 Value v, Value hasOutput) {
  SmallVector<Value> inits{state[program.outputIndex]};
  if (program.sums)
    inits.push_back(state[program.sumsIndex]);
  SmallVector<Type> types;
  for (Value init : inits)
    types.push_back(PendingType::get(b.getContext(),
                                     cast<RankedTensorType>(init.getType())));
  return WgmmaOp::create(b, program.second.op.getLoc(), types, state.back(), v,
                         inits, fromZero ? hasOutput : Value(),
                         /*aTransposed=*/false, /*transposed=*/true)
      .getResults();
}

ValueRange ConsumersBuilder::waitFor(OpBuilder &b, int64_t pending,
                                     ValueRange values) {
  return WaitGroupOp::create(b, loc, pending, values).getResults();
}

/// Has tiles computed here.
void ConsumersBuilder::pin(OpBuilder &b, ArrayRef<Value> tiles,
                           IRMapping &map) {
  if (tiles.empty())
    return;
  SmallVector<Value> values;
  for (Value tile : tiles)
    values.push_back(map.lookup(tile));
  auto pinned = PinOp::create(b, loc, TypeRange(ValueRange(values)), values);
  for (auto [tile, result] : llvm::zip(tiles, pinned.getResults()))
    map.map(tile, result);
}

/// What a block's entry in a list says: on its way while the scores are made.
void ConsumersBuilder::readList(OpBuilder &b, IRMapping &map) {
  for (Operation *op : ops)
    if (auto extract = dyn_cast<tensor::ExtractOp>(op);
        extract && canPrefetch(extract, loop))
      cloneSlice(b, extract, loop.getRegion(), map);
}

/// What needs no scores, while they are made; but where four warpgroups divide
/// the registers, there are none for random bits beside the products'.
void ConsumersBuilder::makeAhead(OpBuilder &b, IRMapping &map) {
  readList(b, map);
  if (!program.mask || shape.warpgroups * shape.teams == maxWarpgroups)
    return;
  cloneSlice(b, program.mask, loop.getRegion(), map);
  pin(b, program.mask, map);
}

/// What the rotated loop carries: O (and the sums) before it is added to, and P
/// at the end.
SmallVector<Value> ConsumersBuilder::carry(IRMapping &map) {
  SmallVector<Value> values;
  for (auto [i, yielded] : llvm::enumerate(loop.getYieldedValues())) {
    if (program.sums && i == program.sumsIndex)
      values.push_back(map.lookupOrDefault(program.sums.getAcc()));
    else
      values.push_back(map.lookupOrDefault(
          i == program.outputIndex ? program.second.op.getDpsInits()[0]
                                   : yielded));
  }
  values.push_back(map.lookupOrDefault(p()));
  return values;
}

void ConsumersBuilder::bindOutput(IRMapping &map, ValueRange values) {
  map.map(loop.getRegionIterArg(program.outputIndex), values[0]);
  if (program.sums)
    map.map(loop.getRegionIterArg(program.sumsIndex), values[1]);
}

//===----------------------------------------------------------------------===//
// The rotated loop
//===----------------------------------------------------------------------===//

/// The first block's scores and softmax; what the loop then carries.
SmallVector<Value> ConsumersBuilder::firstBlock(OpBuilder &b, Value &next) {
  IRMapping map;
  for (auto [arg, init] :
       llvm::zip(loop.getRegionIterArgs(), loop.getInitArgs()))
    map.map(arg, init);
  Value lower = loop.getLowerBound();
  map.map(loop.getInductionVar(), lower);
  Value slot = acquire(b, rings.k, cloneTile(b, k(), lower));
  Value scores = startScores(b, slot);
  makeAhead(b, map);
  map.map(s(), waitFor(b, 0, scores)[0]);
  ReleaseOp::create(b, loc, slot, Value());
  next = releaseQ(b, lower);
  cloneBlock(b, loop, ops, map, isFirst);
  return carry(map);
}

/// One loop for a range of blocks whose scores stay as they are or not, where
/// that is known.
SmallVector<Value> ConsumersBuilder::steadyLoop(OpBuilder &b, Value from,
                                                Value to, ValueRange state,
                                                std::optional<bool> whole) {
  OpBuilder::InsertionGuard guard(b);
  auto steady = scf::ForOp::create(b, loc, from, to, loop.getStep(), state);
  b.setInsertionPointToStart(steady.getBody());
  Value iv = steady.getInductionVar();
  Value kSlot = acquire(b, rings.k, cloneTile(b, k(), iv),
                        /*polled=*/shape.overlap);
  if (shape.pingPong)
    TurnBeginOp::create(b, loc);
  Value scores = startScores(b, kSlot);
  Value before = arith::SubIOp::create(b, loc, iv, loop.getStep());
  Value vSlot = acquire(b, rings.v, cloneTile(b, v(), before));
  Value hasOutput =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, iv, second);
  SmallVector<Value> output =
      startOutput(b, steady.getRegionIterArgs(), vSlot, hasOutput);
  if (shape.pingPong)
    TurnEndOp::create(b, loc);

  IRMapping map;
  if (whole)
    map.map(program.wholeTile,
            Value(arith::ConstantOp::create(b, loc, b.getBoolAttr(*whole))));
  map.map(loop.getInductionVar(), iv);
  for (auto [i, arg] : llvm::enumerate(loop.getRegionIterArgs()))
    if (!program.isAccumulated(i))
      map.map(arg, steady.getRegionIterArg(i));
  makeAhead(b, map);
  if (shape.overlap)
    overlapped(b, map, kSlot, vSlot, scores, output);
  else
    inTurn(b, map, kSlot, vSlot, scores, output);
  scf::YieldOp::create(b, loc, carry(map));
  return steady.getResults();
}

/// The softmax under the second contraction.
void ConsumersBuilder::overlapped(OpBuilder &b, IRMapping &map, Value kSlot,
                                  Value vSlot, Value scores,
                                  ValueRange output) {
  map.map(s(), waitFor(b, 1, scores)[0]);
  ReleaseOp::create(b, loc, kSlot, Value());
  Value next = releaseQ(b, map.lookup(loop.getInductionVar()));
  cloneBlock(b, loop, earlyOps, map, isLater);
  pin(b, pinned.getArrayRef(), map);
  pollNextK(b, next);
  bindOutput(map, waitFor(b, 0, output));
  ReleaseOp::create(b, loc, vSlot, Value());
  cloneBlock(b, loop, lateOps, map, isLater);
}

/// The softmax after both contractions.
void ConsumersBuilder::inTurn(OpBuilder &b, IRMapping &map, Value kSlot,
                              Value vSlot, Value scores, ValueRange output) {
  SmallVector<Value> pending{scores};
  pending.append(output.begin(), output.end());
  ValueRange done = waitFor(b, 0, pending);
  map.map(s(), done[0]);
  bindOutput(map, done.drop_front());
  ReleaseOp::create(b, loc, kSlot, Value());
  ReleaseOp::create(b, loc, vSlot, Value());
  releaseQ(b, map.lookup(loop.getInductionVar()));
  cloneBlock(b, loop, earlyOps, map, isLater);
}

/// The last block's second contraction; with it the loop's results.
void ConsumersBuilder::lastBlock(OpBuilder &b, Value iv, ValueRange state,
                                 IRMapping &results) {
  Value slot = acquire(b, rings.v, cloneTile(b, v(), iv));
  Value hasOutput = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, iv,
                                          loop.getLowerBound());
  ValueRange done = waitFor(b, 0, startOutput(b, state, slot, hasOutput));
  ReleaseOp::create(b, loc, slot, Value());
  for (unsigned i = 0; i < loop.getNumResults(); ++i)
    results.map(loop.getResult(i), i == program.outputIndex   ? done[0]
                                   : program.isAccumulated(i) ? done[1]
                                                              : state[i]);
}

/// The first block, counted in steps from `from`, that the mask may cut; at
/// most the loop's end.
Value ConsumersBuilder::splitPoint(OpBuilder &b, Value from) {
  auto index = [&](int64_t c) -> Value {
    return arith::ConstantIndexOp::create(b, loc, c);
  };
  Value step = loop.getStep();
  // Blocks with from + n * step + offset <= bound.
  Value room = arith::SubIOp::create(b, loc, program.wholeBound, from);
  room = arith::SubIOp::create(b, loc, room, index(program.wholeOffset));
  room = arith::AddIOp::create(b, loc, room, step);
  room = arith::MaxSIOp::create(b, loc, room, index(0));
  Value count = arith::DivUIOp::create(b, loc, room, step);
  Value split = arith::AddIOp::create(
      b, loc, from, arith::MulIOp::create(b, loc, count, step));
  return arith::MinSIOp::create(b, loc, split, loop.getUpperBound());
}

/// Zeros that the second contraction starts from need no registers.
bool ConsumersBuilder::leaveOutZeros(OpBuilder &b, SmallVector<Value> &state) {
  SmallVector<Value *> values{&state[program.outputIndex]};
  if (program.sums)
    values.push_back(&state[program.sumsIndex]);
  for (Value *v : values) {
    auto fill = v->getDefiningOp<linalg::FillOp>();
    if (!fill || !matchPattern(fill.getInputs()[0], m_AnyZeroFloat()))
      return false;
  }
  for (Value *v : values) {
    auto type = cast<RankedTensorType>(v->getType());
    *v =
        tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType());
  }
  return true;
}

/// The loop, which visits at least one block.
void ConsumersBuilder::pipeline(OpBuilder &b, IRMapping &results) {
  isFirst = arith::ConstantOp::create(b, loc, b.getBoolAttr(true));
  isLater = arith::ConstantOp::create(b, loc, b.getBoolAttr(false));
  if (!made.qSlot)
    made.qSlot = acquire(b, rings.q, q());
  Value lower = loop.getLowerBound(), upper = loop.getUpperBound(),
        step = loop.getStep();
  Value length = arith::SubIOp::create(b, loc, upper, lower);
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  Value whole = arith::DivUIOp::create(
      b, loc, arith::SubIOp::create(b, loc, length, one), step);
  Value last = arith::AddIOp::create(
      b, loc, lower, arith::MulIOp::create(b, loc, whole, step));

  SmallVector<Value> state = firstBlock(b, second);
  if (shape.overlap)
    pollNextK(b, second);
  fromZero = leaveOutZeros(b, state);
  if (program.wholeTile) {
    Value split = splitPoint(b, second);
    state = steadyLoop(b, second, split, state, true);
    state = steadyLoop(b, split, upper, state, false);
  } else {
    state = steadyLoop(b, second, upper, state, std::nullopt);
  }
  lastBlock(b, last, state, results);
}

/// A block may have nothing to visit.
void ConsumersBuilder::guardedPipeline(OpBuilder &b, IRMapping &results) {
  Value some =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt,
                            loop.getLowerBound(), loop.getUpperBound());
  auto guarded = scf::IfOp::create(b, loc, loop.getResultTypes(), some,
                                   /*addThenBlock=*/true,
                                   /*addElseBlock=*/true);
  results.map(loop.getResults(), guarded.getResults());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(guarded.thenBlock());
  IRMapping inner;
  pipeline(b, inner);
  SmallVector<Value> values;
  for (Value result : loop.getResults())
    values.push_back(inner.lookup(result));
  scf::YieldOp::create(b, loc, values);
  b.setInsertionPointToStart(guarded.elseBlock());
  scf::YieldOp::create(b, loc, loop.getInitArgs());
}

//===----------------------------------------------------------------------===//
// The role
//===----------------------------------------------------------------------===//

HopperConsumers ConsumersBuilder::build(OpBuilder &b) {
  sortOps();
  scf::ForallOp forall = program.forall;
  // The loop and what follows it.
  SmallVector<Operation *> rest;
  for (Operation *op = loop->getNextNode(); op != forall.getTerminator();
       op = op->getNextNode())
    rest.push_back(op);
  SetVector<Value> wanted;
  forall.getTerminator()->walk([&](Operation *op) {
    for (Value v : op->getOperands())
      if (Operation *def = v.getDefiningOp())
        if (def == loop || llvm::is_contained(rest, def))
          wanted.insert(v);
  });
  SmallVector<Value> results = wanted.takeVector();
  made.role = ConsumersOp::create(b, loc, TypeRange(ValueRange(results)),
                                  shape.warpgroups, shape.consumerRegisters);
  b.setInsertionPointToStart(&made.role.getBody().emplaceBlock());
  IRMapping map;
  std::optional<int64_t> low = getConstantIntValue(loop.getLowerBound()),
                         high = getConstantIntValue(loop.getUpperBound());
  if (low && high && *low < *high)
    pipeline(b, map);
  else
    guardedPipeline(b, map);
  for (Operation *op : rest)
    b.clone(*op, map);
  SmallVector<Value> yielded;
  for (Value v : results)
    yielded.push_back(map.lookupOrDefault(v));
  fa::hopper::YieldOp::create(b, loc, yielded);
  for (auto [from, to] : llvm::zip(results, made.role.getResults()))
    from.replaceUsesWithIf(to, [&](OpOperand &use) {
      return forall.getTerminator()->isAncestor(use.getOwner());
    });
  for (Operation *op : llvm::reverse(rest))
    op->erase();
  loop.erase();
  program.loop = {};
  return std::move(made);
}

HopperConsumers fa::nvidia::buildConsumers(OpBuilder &b, HopperProgram &program,
                                           const HopperShape &shape,
                                           const HopperRings &rings) {
  return ConsumersBuilder(program, shape, rings).build(b);
}
