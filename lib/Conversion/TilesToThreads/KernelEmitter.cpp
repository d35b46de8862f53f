// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "KernelEmitter.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

//===----------------------------------------------------------------------===//
// The thread
//===----------------------------------------------------------------------===//

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
Value KernelEmitter::chunkCol(const FragmentLayout &layout, unsigned colTile) {
  Value first = addC(mulC(remC(lane(), 4), 8), 8 * colTile);
  Value ofWarp = warpCol(layout);
  return ofWarp ? add(first, ofWarp) : first;
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

/// A tile of one value throughout, which any layout has.
LogicalResult KernelEmitter::emitFill(linalg::FillOp fill) {
  TileValue t;
  t.kind = TileValue::Kind::Splat;
  t.splat = scalar(fill.getInputs()[0]);
  tiles[fill.getResult(0)] = t;
  return success(t.splat != nullptr);
}

LogicalResult KernelEmitter::emitLinalg(linalg::LinalgOp op) {
  auto fill = dyn_cast<linalg::FillOp>(*op);
  if (fill && fill.hasPureTensorSemantics() &&
      !view.isGlobal(fill.getDpsInits()[0]))
    return emitFill(fill);
  auto reduce = dyn_cast<linalg::ReduceOp>(*op);
  if (reduce && view.isGlobal(reduce->getResult(0)))
    return emitReduce(reduce);
  if (std::optional<Contraction> c = matchContraction(op))
    return emitContraction(*c);
  if (op.getNumReductionLoops() != 0)
    return emitReduction(op);
  if (failed(emitElementwise(op)))
    return failure();
  return shareEarly(op->getResult(0));
}

LogicalResult KernelEmitter::emitOp(Operation *op) {
  if (isa<hopper::HopperDialect>(op->getDialect()))
    return emitHopper(op);
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](scf::ForOp loop) { return emitFor(loop); })
      .Case([&](scf::IfOp branch) { return emitIf(branch); })
      .Case([&](scf::InParallelOp all) { return emitInParallel(all); })
      .Case([&](tensor::EmptyOp empty) {
        tiles[empty] = TileValue();
        return success();
      })
      .Case<tensor::ExtractSliceOp, tensor::PadOp, tensor::CastOp>(
          [&](Operation *slicing) { return emitSlicing(slicing); })
      .Case([&](tensor::ExtractOp extract) -> LogicalResult {
        FailureOr<Value> v = emitExtract(extract, scalars);
        if (succeeded(v))
          scalars.map(extract.getResult(), *v);
        return v;
      })
      .Case([&](tensor::InsertSliceOp insert) { return emitInPlace(insert); })
      .Case([&](AccumulateSliceOp sum) { return emitAccumulateSlice(sum); })
      .Case([&](AccumulateOp sum) { return emitAccumulate(sum); })
      .Case([&](ListBlocksOp lists) { return emitListBlocks(lists); })
      .Case([&](ConvertLayoutOp convert) { return emitConvertLayout(convert); })
      .Case([&](linalg::LinalgOp linalgOp) { return emitLinalg(linalgOp); })
      .Default([&](Operation *other) {
        auto constant = dyn_cast<arith::ConstantOp>(other);
        if (constant && isa<RankedTensorType>(constant.getType()))
          return emitConstantTile(constant);
        return emitScalarOp(other);
      });
}

LogicalResult KernelEmitter::emitHopper(Operation *op) {
  using namespace hopper;
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case<RingOp, TileQueueOp, YieldOp>([](Operation *) { return success(); })
      .Case([&](LoadOp load) { return emitLoad(load); })
      .Case([&](ShareOp share) { return emitShare(share); })
      .Case([&](AcquireOp acquire) { return emitAcquire(acquire); })
      .Case([&](PollOp poll) { return emitPoll(poll); })
      .Case([&](ReleaseOp release) { return emitRelease(release); })
      .Case([&](ReadOp read) { return emitRead(read); })
      .Case([&](StageOp stage) { return emitStage(stage); })
      .Case([&](WgmmaOp wgmma) { return emitWgmma(wgmma); })
      .Case([&](WaitGroupOp wait) { return emitWaitGroup(wait); })
      .Case([&](PinOp pin) { return emitPin(pin); })
      .Case([&](PartialSumsOp sums) { return emitPartialSums(sums); })
      .Case([&](ExceedsOp exceeds) { return emitExceeds(exceeds); })
      .Case<TurnBeginOp, TurnEndOp>([&](Operation *turn) {
        emitTurn(isa<TurnBeginOp>(turn));
        return success();
      })
      .Default([](Operation *other) {
        return other->emitOpError("has no lowering yet");
      });
}
