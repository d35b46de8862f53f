// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides where tensors live before they become buffers.

#include "BufferTypes.h"
#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Target/CPU/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace fa {
#define GEN_PASS_DEF_CPUPREPAREPASS
#include "fa/Target/CPU/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-cpu-prepare"

MemRefType fa::getBoundaryBufferType(RankedTensorType type,
                                     bool unitInnerStride) {
  int64_t rank = type.getRank(), dynamic = ShapedType::kDynamic;
  SmallVector<int64_t> strides(rank, dynamic);
  if (unitInnerStride && rank > 0)
    strides.back() = 1;
  auto layout = StridedLayoutAttr::get(type.getContext(), dynamic, strides);
  return MemRefType::get(type.getShape(), type.getElementType(), layout);
}

/// Iterations that add to the same tensors run one after another: each finds
/// what those before it have added.
static void runInTurn(RewriterBase &rewriter, scf::ForallOp forall) {
  Location loc = forall.getLoc();
  rewriter.setInsertionPoint(forall);
  auto values = [&](ArrayRef<OpFoldResult> all) {
    return getValueOrCreateConstantIndexOp(rewriter, loc, all);
  };
  scf::LoopNest nest = scf::buildLoopNest(
      rewriter, loc, values(forall.getMixedLowerBound()),
      values(forall.getMixedUpperBound()), values(forall.getMixedStep()),
      forall.getOutputs(),
      [&](OpBuilder &b, Location l, ValueRange at,
          ValueRange carried) -> scf::ValueVector {
        IRMapping map;
        map.map(forall.getInductionVars(), at);
        map.map(forall.getRegionIterArgs(), carried);
        for (Operation &op : forall.getBody()->without_terminator())
          b.clone(op, map);
        scf::ValueVector results(carried.begin(), carried.end());
        for (Operation &op : forall.getTerminator().getYieldingOps()) {
          auto made = cast<ParallelCombiningOpInterface>(op);
          auto shared =
              cast<BlockArgument>(made.getUpdatedDestinations()[0].get());
          Value &result = results[shared.getArgNumber() - forall.getRank()];
          if (auto sum = dyn_cast<ParallelAccumulateOp>(op)) {
            result = map.lookupOrDefault(sum.getSum());
            continue;
          }
          auto insert = cast<tensor::ParallelInsertSliceOp>(op);
          result = tensor::InsertSliceOp::create(
              b, l, map.lookupOrDefault(insert.getSource()), result,
              lookupAll(map, insert.getMixedOffsets()),
              lookupAll(map, insert.getMixedSizes()),
              lookupAll(map, insert.getMixedStrides()));
        }
        return results;
      });
  rewriter.replaceOp(forall, nest.results);
}

static void runAccumulationsInTurn(RewriterBase &rewriter, func::FuncOp func) {
  SmallVector<scf::ForallOp> foralls;
  func.walk([&](scf::ForallOp op) {
    if (addsUp(op))
      foralls.push_back(op);
  });
  for (scf::ForallOp op : foralls)
    runInTurn(rewriter, op);
}

/// Replaces ops that have an aggregate definition by it, and random bits by
/// their arithmetic.
static LogicalResult decomposeAggregates(RewriterBase &rewriter,
                                         func::FuncOp func) {
  // A decomposition may have aggregates of its own.
  for (SmallVector<linalg::AggregatedOpInterface> ops;; ops.clear()) {
    func.walk([&](linalg::AggregatedOpInterface op) { ops.push_back(op); });
    if (ops.empty())
      break;
    for (linalg::AggregatedOpInterface op : ops) {
      rewriter.setInsertionPoint(op);
      FailureOr<SmallVector<Value>> values = op.decomposeOperation(rewriter);
      if (failed(values))
        return op.emitOpError("has no decomposition for the CPU");
      rewriter.replaceOp(op, *values);
    }
  }
  SmallVector<RandomBitsOp> randoms;
  func.walk([&](RandomBitsOp op) { randoms.push_back(op); });
  for (RandomBitsOp op : randoms) {
    rewriter.setInsertionPoint(op);
    rewriter.replaceOp(op, op.expand(rewriter));
  }
  return success();
}

/// Results become destination arguments.
static LogicalResult moveResultsToArguments(RewriterBase &rewriter,
                                            func::FuncOp func,
                                            bool unitInnerStride) {
  FunctionType type = func.getFunctionType();
  SmallVector<Type> inputs(type.getInputs());
  SmallVector<Value> destinations;
  for (auto [i, result] : llvm::enumerate(type.getResults())) {
    auto tensor = dyn_cast<RankedTensorType>(result);
    if (!tensor)
      return func.emitError()
             << "expected result " << i << " of @" << func.getName()
             << " to be a ranked tensor, got " << result
             << "; return scalars in a tensor of rank 0";
    inputs.push_back(getBoundaryBufferType(tensor, unitInnerStride));
    destinations.push_back(
        func.front().addArgument(inputs.back(), func.getLoc()));
  }
  auto ret = cast<func::ReturnOp>(func.front().getTerminator());
  rewriter.setInsertionPoint(ret);
  for (auto [value, destination] : llvm::zip(ret.getOperands(), destinations)) {
    auto write = bufferization::MaterializeInDestinationOp::create(
        rewriter, ret.getLoc(), value, destination);
    write.setWritable(true);
    write.setRestrict(true);
  }
  ret.getOperandsMutable().clear();
  func.setFunctionType(rewriter.getFunctionType(inputs, {}));
  func.setResAttrsAttr(nullptr);
  func.setArgAttrsAttr(nullptr);
  return success();
}

/// tensor.pad -> insertion into a filled tensor. Only high padding (what tiles
/// have); the others are left to upstream.
static void lowerPad(RewriterBase &rewriter, tensor::PadOp pad) {
  Value constant = pad.getConstantPaddingValue();
  auto isZero = [](OpFoldResult x) { return isConstantIntValue(x, 0); };
  if (!constant || !llvm::all_of(pad.getMixedLowPad(), isZero))
    return;
  Location loc = pad.getLoc();
  rewriter.setInsertionPoint(pad);
  SmallVector<OpFoldResult> source =
      tensor::getMixedSizes(rewriter, loc, pad.getSource());
  SmallVector<OpFoldResult> sizes;
  AffineExpr a, b;
  bindDims(rewriter.getContext(), a, b);
  RankedTensorType type = pad.getResultType();
  for (auto [dim, size, extra] : llvm::enumerate(source, pad.getMixedHighPad()))
    sizes.push_back(
        type.isDynamicDim(dim)
            ? affine::makeComposedFoldedAffineApply(rewriter, loc, a + b,
                                                    {size, extra})
            : OpFoldResult(rewriter.getIndexAttr(type.getDimSize(dim))));
  Value fresh =
      tensor::EmptyOp::create(rewriter, loc, sizes, type.getElementType());
  Value filled =
      linalg::FillOp::create(rewriter, loc, constant, fresh).getResult(0);
  SmallVector<OpFoldResult> zeros(sizes.size(), rewriter.getIndexAttr(0)),
      ones(sizes.size(), rewriter.getIndexAttr(1));
  Value result = tensor::InsertSliceOp::create(rewriter, loc, pad.getSource(),
                                               filled, zeros, source, ones);
  if (result.getType() != type)
    result = tensor::CastOp::create(rewriter, loc, type, result);
  rewriter.replaceOp(pad, result);
}

/// Fuses elementwise ops into their only user, if that is elementwise too.
/// Reductions and contractions keep the form that the schedule recognises.
static void fuseElementwise(func::FuncOp func) {
  RewritePatternSet patterns(func.getContext());
  linalg::populateElementwiseOpsFusionPatterns(
      patterns, [](OpOperand *operand) {
        auto producer = operand->get().getDefiningOp<linalg::GenericOp>();
        auto consumer = dyn_cast<linalg::GenericOp>(operand->getOwner());
        return producer && consumer && producer->hasOneUse() &&
               producer->getBlock() == consumer->getBlock() &&
               consumer.getNumParallelLoops() == consumer.getNumLoops();
      });
  (void)applyPatternsGreedily(func, std::move(patterns));
}

/// Right before an op, or before the op around it that admits no others.
static void setInsertionPointBefore(RewriterBase &rewriter, Operation *op) {
  while (isa<linalg::LinalgOp, scf::InParallelOp>(op->getParentOp()))
    op = op->getParentOp();
  rewriter.setInsertionPoint(op);
}

/// A fill for each use: cheaper than the copy of a filled buffer.
static void separateFills(RewriterBase &rewriter, func::FuncOp func) {
  SmallVector<linalg::FillOp> ops;
  func.walk([&](linalg::FillOp op) { ops.push_back(op); });
  for (linalg::FillOp op : ops) {
    auto empty = op.getDpsInits()[0].getDefiningOp<tensor::EmptyOp>();
    if (!empty || op->getNumResults() != 1)
      continue;
    for (OpOperand &use : llvm::make_early_inc_range(op->getUses())) {
      setInsertionPointBefore(rewriter, use.getOwner());
      if (isa<tensor::DimOp>(use.getOwner())) {
        use.set(empty);
        continue;
      }
      use.set(rewriter.clone(*op)->getResult(0));
    }
    if (op->use_empty())
      rewriter.eraseOp(op);
  }
}

/// A tensor.empty for each use: none is written twice.
static void separateEmptyTensors(RewriterBase &rewriter, func::FuncOp func) {
  SmallVector<tensor::EmptyOp> ops;
  func.walk([&](tensor::EmptyOp op) { ops.push_back(op); });
  for (tensor::EmptyOp op : ops) {
    for (OpOperand &use : llvm::make_early_inc_range(op->getUses())) {
      Operation *user = use.getOwner();
      if (isa<tensor::DimOp>(user))
        continue;
      setInsertionPointBefore(rewriter, user);
      use.set(rewriter.clone(*op)->getResult(0));
    }
    if (op->use_empty())
      rewriter.eraseOp(op);
  }
}

static Operation *loopAround(Block *block) {
  Operation *op = block->getParentOp();
  while (op && !isa<LoopLikeOpInterface, func::FuncOp>(op))
    op = op->getParentOp();
  return op;
}

/// Whether no op after `op` reads `value`: every other use runs before it in
/// the same iteration, or in the other branch of a condition.
static bool isLastUse(Value value, Operation *op, DominanceInfo &dominance) {
  if (loopAround(value.getParentBlock()) != loopAround(op->getBlock()))
    return false;
  for (Operation *user : value.getUsers()) {
    if (user == op || dominance.properlyDominates(user, op))
      continue;
    auto branch = op->getParentOfType<scf::IfOp>();
    bool exclusive = false;
    for (; branch && !exclusive; branch = branch->getParentOfType<scf::IfOp>())
      exclusive = branch->isProperAncestor(user) &&
                  branch.getThenRegion().isAncestor(user->getParentRegion()) !=
                      branch.getThenRegion().isAncestor(op->getParentRegion());
    if (!exclusive)
      return false;
  }
  return true;
}

/// Whether a tensor may be overwritten: the result of an op that made it, or
/// the value that a loop carries.
static bool isOwned(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return isa<scf::ForOp>(argument.getOwner()->getParentOp());
  return isa<linalg::LinalgOp, scf::IfOp, scf::ForOp>(value.getDefiningOp());
}

/// An elementwise op that fills a fresh tensor overwrites an operand that
/// nothing reads later.
static void reuseOperands(func::FuncOp func) {
  DominanceInfo dominance(func);
  func.walk([&](linalg::GenericOp op) {
    if (op.getNumParallelLoops() != op.getNumLoops() ||
        op->getNumResults() != 1)
      return;
    OpOperand *init = op.getDpsInitOperand(0);
    if (!init->get().getDefiningOp<tensor::EmptyOp>() ||
        op.payloadUsesValueFromOperand(init))
      return;
    for (OpOperand *input : op.getDpsInputOperands()) {
      Value value = input->get();
      if (value.getType() != init->get().getType() || !isOwned(value) ||
          op.getMatchingIndexingMap(input) != op.getMatchingIndexingMap(init) ||
          !isLastUse(value, op, dominance))
        continue;
      init->set(value);
      return;
    }
  });
}

/// The value that an op turns into its result by writing into it.
static Value destinationOf(OpResult value) {
  Operation *op = value.getOwner();
  if (auto insert = dyn_cast<tensor::InsertOp>(op))
    return insert.getDest();
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    return insert.getDest();
  if (auto structured = dyn_cast<DestinationStyleOpInterface>(op))
    return structured.getTiedOpOperand(value)->get();
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return loop.getInitArgs()[value.getResultNumber()];
  return Value();
}

/// Whether `value` comes from `carried` by writes of which none needs a copy.
static bool isWrittenInPlace(Value value, Value carried,
                             DominanceInfo &dominance) {
  while (value != carried) {
    auto result = dyn_cast<OpResult>(value);
    if (!result)
      return false;
    if (auto branch = dyn_cast<scf::IfOp>(result.getOwner())) {
      unsigned n = result.getResultNumber();
      return isWrittenInPlace(branch.thenYield().getOperand(n), carried,
                              dominance) &&
             isWrittenInPlace(branch.elseYield().getOperand(n), carried,
                              dominance);
    }
    Value destination = destinationOf(result);
    if (!destination || !isLastUse(destination, result.getOwner(), dominance))
      return false;
    value = destination;
  }
  return true;
}

/// What a loop carries is written back to where it came from, so that the loop
/// yields the buffer that it was given.
static void writeBackCarriedValues(RewriterBase &rewriter, func::FuncOp func) {
  DominanceInfo dominance(func);
  func.walk([&](scf::ForOp loop) {
    auto yield = cast<scf::YieldOp>(loop.getBody()->getTerminator());
    rewriter.setInsertionPoint(yield);
    for (OpOperand &operand : yield->getOpOperands()) {
      Value value = operand.get(),
            carried = loop.getRegionIterArg(operand.getOperandNumber());
      if (!isa<RankedTensorType>(value.getType()) ||
          isWrittenInPlace(value, carried, dominance))
        continue;
      operand.set(bufferization::MaterializeInDestinationOp::create(
                      rewriter, yield.getLoc(), value.getType(), value, carried)
                      .getResult());
    }
  });
}

namespace {
struct CPUPreparePass : fa::impl::CPUPreparePassBase<CPUPreparePass> {
  using CPUPreparePassBase::CPUPreparePassBase;
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (func.isExternal())
      return;
    WalkResult walk = func.walk([](Operation *op) {
      if (!isa<AttentionOp, AttentionBackwardOp>(op))
        return WalkResult::advance();
      op->emitOpError("is not lowered to linalg; run --fa-pipeline, "
                      "--fa-decompose or --fa-reference first");
      return WalkResult::interrupt();
    });
    if (walk.wasInterrupted())
      return signalPassFailure();
    IRRewriter rewriter(&getContext());
    runAccumulationsInTurn(rewriter, func);
    if (failed(verifyDims(func)) ||
        failed(decomposeAggregates(rewriter, func)) ||
        failed(moveResultsToArguments(rewriter, func, unitInnerStride)))
      return signalPassFailure();
    fuseElementwise(func);
    separateFills(rewriter, func);
    separateEmptyTensors(rewriter, func);
    SmallVector<tensor::PadOp> pads;
    func.walk([&](tensor::PadOp pad) { pads.push_back(pad); });
    for (tensor::PadOp pad : pads)
      lowerPad(rewriter, pad);
    reuseOperands(func);
    writeBackCarriedValues(rewriter, func);
  }
};
} // namespace
