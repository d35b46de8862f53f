// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "KernelEmitter.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

//===----------------------------------------------------------------------===//
// Small things
//===----------------------------------------------------------------------===//

Value KernelEmitter::once(const OnceKey &key,
                          llvm::function_ref<Value()> create) {
  Block *block = b.getInsertionBlock();
  Block::iterator point = b.getInsertionPoint();
  auto known = made.find(key);
  if (known != made.end()) {
    // What is computed of operands elsewhere is as far up as they are.
    Operation *op = known->second.getDefiningOp();
    bool isAhead = !op || op->getBlock() != block || point == block->end() ||
                   op->isBeforeInBlock(&*point);
    if (isAhead)
      return known->second;
  }
  Value value = create();
  made[key] = value;
  return value;
}
Value KernelEmitter::constant(IntegerAttr value) {
  return once(
      {b.getInsertionBlock(), TypeID::get<arith::ConstantOp>(),
       value.getAsOpaquePointer(), nullptr},
      [&]() -> Value { return arith::ConstantOp::create(b, loc, value); });
}

Value KernelEmitter::addC(Value x, int64_t c) {
  if (c == 0)
    return x;
  Value v = x.getType().isIndex()       ? index(c)
            : x.getType().isInteger(64) ? i64(c)
                                        : i32(c);
  return add(x, v);
}
Value KernelEmitter::mulC(Value x, int64_t c) {
  if (c == 1)
    return x;
  Value v = x.getType().isIndex()       ? index(c)
            : x.getType().isInteger(64) ? i64(c)
                                        : i32(c);
  return mul(x, v);
}
Value KernelEmitter::divC(Value x, int64_t c) {
  return c == 1 ? x : once<arith::DivUIOp>(x, i32(c));
}
Value KernelEmitter::remC(Value x, int64_t c) {
  return once<arith::RemUIOp>(x, i32(c));
}
Value KernelEmitter::threadId() {
  if (branchThread)
    return branchThread;
  Value thread =
      once({b.getInsertionBlock(), TypeID::get<NVVM::ThreadIdXOp>(), nullptr,
            nullptr},
           [&] { return NVVM::ThreadIdXOp::create(b, loc, b.getI32Type()); });
  return threadInTeam(thread);
}

/// Threads of a team count from 0; teams have a power of two of them.
Value KernelEmitter::threadInTeam(Value thread) {
  return team ? remC(thread, view.threads()) : thread;
}

/// Nothing of the thread's coordinates that is computed from this is kept in
/// registers elsewhere: for a branch in a loop, and for what follows a loop.
Value KernelEmitter::again(Value word) {
  if (!iteration)
    return word;
  return ptx("mov.u32 $0, $1;", "=r,r,r", {word, iteration}, b.getI32Type(),
             /*hasSideEffects=*/false)
      .front();
}
Value KernelEmitter::readThread() {
  return threadInTeam(
      ptx("mov.u32 $0, %tid.x;", "=r", {}, b.getI32Type()).front());
}

Value KernelEmitter::rowWarp(const FragmentLayout &layout) {
  return layout.rowWarps() == view.warps() ? warp()
                                           : remC(warp(), layout.rowWarps());
}
Value KernelEmitter::isFirstCopy(const FragmentLayout &layout) {
  unsigned warps = layout.rowWarps() * layout.colWarps();
  if (warps >= view.warps())
    return {};
  return less(warp(), i32(warps));
}
Value KernelEmitter::warpCol(const FragmentLayout &layout) {
  if (layout.colWarps() == 1)
    return {};
  return mulC(divC(warp(), layout.rowWarps()), 8 * layout.colTiles());
}
Value KernelEmitter::threadRow(const FragmentLayout &layout) {
  return add(mulC(rowWarp(layout), 16 * layout.rowTiles()), divC(lane(), 4));
}
Value KernelEmitter::threadCol(const FragmentLayout &layout) {
  Value inTile = mulC(remC(lane(), 4), 2), first = warpCol(layout);
  return first ? add(first, inTile) : inTile;
}

Value KernelEmitter::rowOf(const FragmentLayout &layout, unsigned reg) {
  if (layout.kind() == FragmentLayout::Kind::Column)
    return {};
  return addC(toIndex(threadRow(layout)), layout.regRow(reg));
}
Value KernelEmitter::colOf(const FragmentLayout &layout, unsigned reg) {
  if (layout.kind() == FragmentLayout::Kind::Row)
    return {};
  return addC(toIndex(threadCol(layout)), layout.regCol(reg));
}

SmallVector<Value> KernelEmitter::ptx(StringRef text, StringRef constraints,
                                      ValueRange operands, TypeRange results,
                                      bool sideEffects) {
  Type type;
  if (results.size() == 1)
    type = results[0];
  else if (results.size() > 1)
    type = LLVM::LLVMStructType::getLiteral(b.getContext(),
                                            SmallVector<Type>(results));
  auto dialect =
      LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT);
  auto tail = LLVM::tailcallkind::TailCallKind::None;
  auto op = LLVM::InlineAsmOp::create(
      b, loc, type ? TypeRange(type) : TypeRange(), operands, text, constraints,
      sideEffects,
      /*is_align_stack=*/false, tail, dialect, ArrayAttr());
  SmallVector<Value> values;
  if (results.size() == 1)
    values.push_back(op.getResult(0));
  for (unsigned i = 0; results.size() > 1 && i < results.size(); ++i)
    values.push_back(LLVM::ExtractValueOp::create(b, loc, op.getResult(0), i));
  return values;
}

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

Value KernelEmitter::scalar(Value v) {
  if (Value known = scalars.lookupOrNull(v))
    return known;
  Operation *op = v.getDefiningOp();
  if (op && isPure(op) && op->getNumRegions() == 0) {
    if (succeeded(emitScalarOp(op)))
      return scalars.lookupOrNull(v);
    return {};
  }
  mlir::emitError(v.getLoc(),
                  "value is not available to a thread of the kernel: it is "
                  "neither a parameter nor computed by pure operations");
  return {};
}

LogicalResult KernelEmitter::emitScalarOp(Operation *op) {
  if (auto dim = dyn_cast<tensor::DimOp>(op)) {
    std::optional<int64_t> d = dim.getConstantIndex();
    FailureOr<TileValue> source = tile(dim.getSource());
    auto type = dyn_cast<RankedTensorType>(dim.getSource().getType());
    if (!d || failed(source) || !type || *d < 0 || *d >= type.getRank())
      return op->emitOpError(
          "expected a constant dimension of a ranked tensor");
    Value size;
    if (!type.isDynamicDim(*d))
      size = index(type.getDimSize(*d));
    else if (source->kind == TileValue::Kind::Global)
      size = source->global->sizes[*d];
    else if (source->kind == TileValue::Kind::Slice)
      size = source->slice.valid[*d];
    else if (source->kind == TileValue::Kind::Registers)
      size = source->valid[*d];
    if (!size)
      return op->emitOpError("cannot tell this dimension in a kernel");
    scalars.map(dim.getResult(), size);
    return success();
  }
  if (op->getNumRegions() ||
      llvm::any_of(op->getOperandTypes(),
                   [](Type t) { return isa<ShapedType>(t); }) ||
      llvm::any_of(op->getResultTypes(),
                   [](Type t) { return isa<ShapedType>(t); }))
    return op->emitOpError("cannot be distributed over the threads of a block");
  for (Value operand : op->getOperands())
    if (!scalar(operand))
      return failure();
  b.clone(*op, scalars);
  return success();
}

//===----------------------------------------------------------------------===//
// The walk
//===----------------------------------------------------------------------===//

LogicalResult KernelEmitter::emitBlock(Block &block) {
  for (Operation &op : block) {
    loc = op.getLoc();
    if (auto producer = dyn_cast<hopper::ProducerOp>(op)) {
      if (isProducer() && failed(emitBlock(producer.getBody().front())))
        return failure();
      continue;
    }
    if (auto consumers = dyn_cast<hopper::ConsumersOp>(op)) {
      if (role == Role::Consumers && failed(emitConsumers(consumers)))
        return failure();
      continue;
    }
    if (isProducer() && isa<scf::InParallelOp>(op))
      continue;
    if (rebindTile && isa<scf::InParallelOp>(op) && failed(rebindTile()))
      return failure();
    if (op.hasTrait<OpTrait::IsTerminator>() && !isa<scf::InParallelOp>(op))
      continue;
    if (!isa<scf::ForOp>(op) && failed(ensureReady(&op)))
      return failure();
    if (failed(emitOp(&op)))
      return failure();
    for (Value result : op.getResults())
      if (const SharedTile *load = view.load(result);
          load && load->ringIndex < 0) {
        if (!frames.empty())
          barrier();
        IRMapping map;
        if (failed(issueLoad(*load, map, Value())))
          return failure();
        inFlight[load] = committed;
        commit();
      }
  }
  return success();
}

LogicalResult KernelEmitter::emitConstantTile(arith::ConstantOp op) {
  auto dense = dyn_cast<SplatElementsAttr>(op.getValue());
  if (!dense)
    return op.emitOpError(
        "expected a constant tile to have one value throughout");
  TileValue t;
  t.kind = TileValue::Kind::Splat;
  t.splat = arith::ConstantOp::create(
      b, loc, cast<TypedAttr>(dense.getSplatValue<Attribute>()));
  tiles[op.getResult()] = t;
  return success();
}

LogicalResult KernelEmitter::emitOp(Operation *op) {
  if (isa<hopper::HopperDialect>(op->getDialect()))
    return emitHopper(op);
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return emitFor(loop);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return emitIf(branch);
  if (isa<tensor::EmptyOp>(op)) {
    tiles[op->getResult(0)] = TileValue();
    return success();
  }
  if (auto fill = dyn_cast<linalg::FillOp>(op);
      fill && fill.hasPureTensorSemantics() &&
      !view.isGlobal(fill.getDpsInits()[0])) {
    TileValue t;
    t.kind = TileValue::Kind::Splat;
    t.splat = scalar(fill.getInputs()[0]);
    tiles[op->getResult(0)] = t;
    return success(t.splat != nullptr);
  }
  if (auto constant = dyn_cast<arith::ConstantOp>(op);
      constant && isa<RankedTensorType>(constant.getType()))
    return emitConstantTile(constant);
  if (isa<tensor::ExtractSliceOp, tensor::PadOp, tensor::CastOp>(op))
    return emitSlicing(op);
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    FailureOr<Value> v = emitExtract(extract, scalars);
    if (succeeded(v))
      scalars.map(extract.getResult(), *v);
    return v;
  }
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
    if (!view.isGlobal(insert.getDest()))
      return op->emitOpError("cannot be distributed: only a tensor in global "
                             "memory can take a slice");
    if (failed(emitInsert(insert, insert.getSource(), insert.getDest(),
                          insert.getDroppedDims())))
      return failure();
    tiles[insert.getResult()] = tiles[insert.getDest()];
    if (!frames.empty())
      barrier();
    return success();
  }
  if (auto sum = dyn_cast<AccumulateSliceOp>(op))
    return emitAccumulateSlice(sum);
  if (auto sum = dyn_cast<AccumulateOp>(op))
    return emitAccumulate(sum);
  if (auto parallel = dyn_cast<scf::InParallelOp>(op)) {
    for (Operation &inner : parallel.getYieldingOps()) {
      if (isa<ParallelAccumulateOp>(inner))
        continue; // added where it lies
      auto insert = dyn_cast<tensor::ParallelInsertSliceOp>(inner);
      if (!insert ||
          failed(emitInsert(insert, insert.getSource(), insert.getDest(),
                            insert.getDroppedDims())))
        return failure();
    }
    return success();
  }
  if (auto lists = dyn_cast<ListBlocksOp>(op))
    return emitListBlocks(lists);
  if (auto convert = dyn_cast<ConvertLayoutOp>(op))
    return emitConvertLayout(convert);
  if (auto reduce = dyn_cast<linalg::ReduceOp>(op);
      reduce && view.isGlobal(reduce->getResult(0)))
    return emitReduce(reduce);
  if (std::optional<Contraction> c = matchContraction(op))
    return emitContraction(*c);
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
    if (linalgOp.getNumReductionLoops() != 0)
      return emitReduction(linalgOp);
    if (failed(emitElementwise(linalgOp)))
      return failure();
    return shareEarly(op->getResult(0));
  }
  return emitScalarOp(op);
}

//===----------------------------------------------------------------------===//
// Loops and branches
//===----------------------------------------------------------------------===//

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
