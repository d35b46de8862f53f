// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loops and branches: what they carry, as registers.

#include "KernelEmitter.h"

#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

unsigned fa::nvidia::perWord(Type elementType, const FragmentLayout &layout) {
  if (layout.kind() != FragmentLayout::Kind::Accumulator)
    return 1;
  if (elementType.isInteger(1))
    return 32;
  return elementType.isBF16() || elementType.isF16() ? 2 : 1;
}

unsigned KernelEmitter::flatSize(Value v) {
  if (!isa<TensorType>(v.getType()))
    return 1;
  if (view.isGlobal(v))
    return 0;
  std::optional<FragmentLayout> layout = view.layout(v);
  if (!layout)
    return 0;
  return numWords(getElementTypeOrSelf(v.getType()), *layout);
}

Type KernelEmitter::flatType(Value v) {
  Type type = getElementTypeOrSelf(v.getType());
  std::optional<FragmentLayout> layout = view.layout(v);
  return layout && isPacked(type, *layout) ? b.getI32Type() : type;
}

FailureOr<SmallVector<Value>> KernelEmitter::flatten(Value v, Value like) {
  if (isa<hopper::SlotType>(v.getType()))
    return SmallVector<Value>{slots[v].stage};
  if (!isa<TensorType>(v.getType())) {
    Value s = scalar(v);
    if (!s)
      return failure();
    return SmallVector<Value>{s};
  }
  if (view.isGlobal(like))
    return SmallVector<Value>{};
  std::optional<FragmentLayout> layout = view.layout(like);
  if (!layout)
    return mlir::emitError(v.getLoc(), "expected a tile of static shape, got ")
           << v.getType();
  return registers(v, *layout);
}

unsigned KernelEmitter::bindFlat(Value v, ValueRange values, Value origin) {
  if (isa<hopper::SlotType>(v.getType())) {
    slots[v] = {slots[origin].ring, values[0]};
    return 1;
  }
  if (!isa<TensorType>(v.getType())) {
    scalars.map(v, values[0]);
    return 1;
  }
  if (view.isGlobal(v)) {
    tiles[v] = TileValue(tiles[origin]);
    return 0;
  }
  SmallVector<Value> regs(values.take_front(flatSize(v)));
  bindRegisters(v, regs);
  return regs.size();
}

LogicalResult KernelEmitter::emitFor(scf::ForOp op) {
  LoopFrame frame;
  frame.source = op;
  frame.ring = view.ring(op);
  Value lower = scalar(op.getLowerBound()), step = scalar(op.getStep());
  frame.upper = scalar(op.getUpperBound());
  if (!lower || !step || !frame.upper)
    return failure();
  unsigned stages = frame.ring.empty() ? 1 : frame.ring[0]->stages;
  if (!frame.ring.empty() && !frames.empty())
    barrier();
  for (unsigned p = 0; p < stages; ++p) {
    ArrayRef<const SharedTile *> loads = frame.ring;
    if (p + 1 == stages)
      loads = loads.empty() || !loads[0]->inTurn
                  ? ArrayRef<const SharedTile *>()
                  : loads.drop_back();
    Value iv = add(lower, mul(index(p), step));
    if (failed(prefetch(frame, loads, iv, i32(p))))
      return failure();
  }
  frame.stage = i32(0);
  if (failed(ensureReady(op)) || failed(hoistFragments(op)))
    return failure();

  SmallVector<Value> inits;
  for (auto [init, arg] : llvm::zip(op.getInitArgs(), op.getRegionIterArgs())) {
    auto flat = flatten(init, arg);
    if (failed(flat))
      return failure();
    inits.append(*flat);
  }
  SmallVector<RingGroup> rings = groupRings(op, ringsMovedIn(op));
  appendCounts(rings, inits);
  SmallVector<AccumulateOp> sums = sumsCarriedBy(op);
  startSums(sums, inits);
  if (stages > 1)
    inits.push_back(i32(0));
  auto loop = scf::ForOp::create(b, loc, lower, frame.upper, step, inits);
  frame.iv = loop.getInductionVar();
  scalars.map(op.getInductionVar(), frame.iv);
  ValueRange args = loop.getRegionIterArgs();
  unsigned at = 0;
  for (auto [init, arg] : llvm::zip(op.getInitArgs(), op.getRegionIterArgs()))
    at += bindFlat(arg, args.drop_front(at), init);
  bindRings(rings, args.slice(at, rings.size()));
  at += rings.size();
  for (AccumulateOp sum : sums)
    for (auto &held : carriedSums[sum].sums)
      held.second = args[at++];
  if (stages > 1)
    frame.stage = args.back();

  int64_t committedBefore = committed;
  auto inFlightBefore = inFlight;
  {
    llvm::SaveAndRestore inLoop(iteration);
    OpBuilder::InsertionGuard guard(b);
    if (loop.getBody()->empty())
      b.setInsertionPointToStart(loop.getBody());
    else
      b.setInsertionPoint(loop.getBody()->getTerminator());
    frames.push_back(frame);
    if (iteration)
      iteration = toI32(frame.iv);
    if (failed(emitBlock(*op.getBody())))
      return failure();
    SmallVector<Value> yields;
    for (auto [v, arg] :
         llvm::zip(op.getYieldedValues(), op.getRegionIterArgs())) {
      auto flat = flatten(v, arg);
      if (failed(flat))
        return failure();
      yields.append(*flat);
    }
    appendCounts(rings, yields);
    for (AccumulateOp sum : sums)
      for (auto &held : carriedSums[sum].sums)
        yields.push_back(held.second);
    if (stages > 1) {
      Value next = addC(frame.stage, 1);
      Value wrap = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, next,
                                         i32(stages));
      yields.push_back(arith::SelectOp::create(b, loc, wrap, i32(0), next));
    }
    if (!inits.empty())
      scf::YieldOp::create(b, loc, yields);
    frames.pop_back();
  }
  committed = committedBefore;
  inFlight = inFlightBefore;
  at = 0;
  for (auto [init, result] : llvm::zip(op.getInitArgs(), op.getResults()))
    at += bindFlat(result, loop.getResults().drop_front(at), init);
  bindRings(rings, loop.getResults().slice(at, rings.size()));
  at += rings.size();
  for (AccumulateOp sum : sums) {
    PlaceSums held = carriedSums[sum];
    carriedSums.erase(sum);
    for (auto &[reg, value] : held.sums)
      value = loop.getResult(at++);
    if (failed(addSums(sum, held)))
      return failure();
  }
  return success();
}

/// Whether a block gives only what is there, or one value throughout.
static bool doesNothing(Block &block) {
  return llvm::all_of(block.without_terminator(), [](Operation &op) {
    return isa<tensor::EmptyOp, linalg::FillOp, arith::ConstantOp,
               ConvertLayoutOp>(op);
  });
}

LogicalResult KernelEmitter::emitBranch(Block &from, scf::IfOp source,
                                        Block *to, ArrayRef<RingGroup> rings) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(to);
  int64_t committedBefore = committed;
  auto inFlightBefore = inFlight;
  auto countsBefore = ringCounts;
  {
    llvm::SaveAndRestore thread(branchThread);
    // Not where all blocks go but a few: what coordinates are computed from
    // would be waited for in each. Addresses would take too many registers.
    bool isCommon = source.elseBlock() && &from == source.thenBlock();
    bool reads =
        from.walk([](tensor::ExtractOp) { return WalkResult::interrupt(); })
            .wasInterrupted();
    // Where the other side does nothing, this one is the exception: what it
    // shared with the common way would take registers all along it.
    bool isException =
        isCommon && doesNothing(*source.elseBlock()) &&
        from.walk([](linalg::IndexOp) { return WalkResult::interrupt(); })
            .wasInterrupted();
    if (ringsMovedIn(source).empty() && (!isCommon || reads || isException))
      branchThread = readThread();
    if (failed(emitBlock(from)))
      return failure();
  }
  SmallVector<Value> yields;
  for (auto [v, result] :
       llvm::zip(from.getTerminator()->getOperands(), source.getResults())) {
    auto flat = flatten(v, result);
    if (failed(flat))
      return failure();
    yields.append(*flat);
  }
  appendCounts(rings, yields);
  ringCounts = countsBefore;
  scf::YieldOp::create(b, loc, yields);
  committed = committedBefore;
  inFlight = inFlightBefore;
  return success();
}

LogicalResult KernelEmitter::emitIf(scf::IfOp op) {
  Value condition = scalar(op.getCondition());
  if (!condition)
    return failure();
  SmallVector<Type> types;
  for (Value result : op.getResults())
    types.append(flatSize(result), flatType(result));
  SmallVector<RingGroup> rings = groupRings(op, ringsMovedIn(op));
  if (!rings.empty() && !op.elseBlock())
    return op.emitOpError("moves rings on one side only: it needs an else");
  types.append(rings.size(), b.getI32Type());
  auto branch = scf::IfOp::create(b, loc, types, condition,
                                  /*addThenBlock=*/true,
                                  /*addElseBlock=*/op.elseBlock() != nullptr);
  if (failed(emitBranch(*op.thenBlock(), op, &branch.getThenRegion().front(),
                        rings)))
    return failure();
  if (op.elseBlock() &&
      failed(emitBranch(*op.elseBlock(), op, &branch.getElseRegion().front(),
                        rings)))
    return failure();
  unsigned at = 0;
  for (auto [i, result] : llvm::enumerate(op.getResults()))
    at += bindFlat(result, branch.getResults().drop_front(at),
                   op.thenYield().getOperand(i));
  bindRings(rings, branch.getResults().slice(at, rings.size()));
  return success();
}
