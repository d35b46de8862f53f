// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Queries outside, keys inside: the state becomes loop-carried.

#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Dialect/FA/Transforms/Utils.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

namespace fa {
#define GEN_PASS_DEF_INTERCHANGEPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-interchange"

namespace {
/// One tensor that both loops carry, and the slice of it that a step of the
/// inner loop reads and writes.
struct CarriedSlice {
  tensor::ExtractSliceOp read;
  tensor::InsertSliceOp write;
};

/// The loops to interchange and what they carry.
struct Nest {
  scf::ForOp outer, inner;
  SmallVector<CarriedSlice> slices;
};
} // namespace

/// True where a value is the same in each step of the loop.
static bool isInvariant(scf::ForOp loop, OpFoldResult value) {
  auto v = dyn_cast<Value>(value);
  return !v || loop.isDefinedOutsideOfLoop(v);
}

/// True where the slices of different steps of `loop` can't overlap: some
/// dimension starts at the induction variable and is at most one step long.
static bool isDisjointAcross(scf::ForOp loop, tensor::ExtractSliceOp slice) {
  std::optional<int64_t> step =
      getConstantIntValue(OpFoldResult(loop.getStep()));
  if (!step)
    return false;
  for (auto [offset, size] :
       llvm::zip(slice.getMixedOffsets(), slice.getMixedSizes())) {
    std::optional<int64_t> bound = getStaticBound(size);
    if (dyn_cast<Value>(offset) == loop.getInductionVar() && bound &&
        *bound <= *step)
      return true;
  }
  return false;
}

/// The slice of the inner loop's i-th carried tensor, if that is all that the
/// step does with it.
static FailureOr<CarriedSlice> matchCarriedSlice(Nest &nest, unsigned i) {
  BlockArgument carried = nest.inner.getRegionIterArg(i);
  CarriedSlice slice;
  for (Operation *user : carried.getUsers()) {
    if (auto read = dyn_cast<tensor::ExtractSliceOp>(user); read && !slice.read)
      slice.read = read;
    else if (auto write = dyn_cast<tensor::InsertSliceOp>(user);
             write && write.getDest() == carried && !slice.write)
      slice.write = write;
    else
      return failure();
  }
  if (!slice.read || !slice.write ||
      slice.read->getBlock() != nest.inner.getBody() ||
      nest.inner.getYieldedValues()[i] != slice.write.getResult() ||
      !isSameSlice(slice.read, slice.write))
    return failure();
  for (OpFoldResult value : llvm::concat<OpFoldResult>(
           slice.read.getMixedOffsets(), slice.read.getMixedSizes()))
    if (!isInvariant(nest.outer, value)) {
      // Defined in the nest: must not depend on the outer loop's variable.
      SmallVector<Value> worklist = {cast<Value>(value)};
      while (!worklist.empty()) {
        Value v = worklist.pop_back_val();
        if (v == nest.outer.getInductionVar())
          return failure();
        if (Operation *def = v.getDefiningOp();
            def && nest.outer->isAncestor(def))
          llvm::append_range(worklist, def->getOperands());
      }
    }
  if (!isDisjointAcross(nest.inner, slice.read))
    return failure();
  return slice;
}

static FailureOr<Nest> matchNest(scf::ForOp outer) {
  Nest nest;
  nest.outer = outer;
  for (Operation &op : outer.getBody()->without_terminator()) {
    if (auto inner = dyn_cast<scf::ForOp>(op)) {
      if (nest.inner)
        return failure();
      nest.inner = inner;
    } else if (!isMemoryEffectFree(&op)) {
      return failure();
    }
  }
  scf::ForOp inner = nest.inner;
  if (!inner || inner.getNumRegionIterArgs() == 0 ||
      !llvm::equal(inner.getInitArgs(), outer.getRegionIterArgs()) ||
      !llvm::equal(outer.getYieldedValues(), inner.getResults()))
    return failure();
  for (Value bound :
       {inner.getLowerBound(), inner.getUpperBound(), inner.getStep()})
    if (!outer.isDefinedOutsideOfLoop(bound))
      return failure();
  for (BlockArgument carried : outer.getRegionIterArgs())
    if (!carried.hasOneUse())
      return failure();
  for (unsigned i = 0, e = inner.getNumRegionIterArgs(); i < e; ++i) {
    FailureOr<CarriedSlice> slice = matchCarriedSlice(nest, i);
    if (failed(slice))
      return failure();
    nest.slices.push_back(*slice);
  }
  return nest;
}

/// Clones what a value needs that the nest defines.
static void cloneBackwardSlice(OpBuilder &b, Operation *op, Nest &nest,
                               IRMapping &map) {
  for (Value operand : op->getOperands()) {
    Operation *def = operand.getDefiningOp();
    if (def && nest.outer->isProperAncestor(def) && !map.contains(operand))
      cloneBackwardSlice(b, def, nest, map);
  }
  b.clone(*op, map);
}

/// What the rows' loop carries at first: where its steps write every row, what
/// was there before does not matter.
static Value startOf(CarriedSlice slice, scf::ForOp inner, Value init) {
  auto fill = init.getDefiningOp<linalg::FillOp>();
  auto empty =
      fill ? fill.getOutputs()[0].getDefiningOp<tensor::EmptyOp>() : nullptr;
  if (!empty || !isConstantIntValue(inner.getLowerBound(), 0))
    return init;
  for (auto [offset, size] :
       llvm::zip(slice.read.getMixedOffsets(), empty.getMixedSizes()))
    if (dyn_cast<Value>(offset) == inner.getInductionVar() &&
        isEqualConstantIntOrValue(size,
                                  getAsOpFoldResult(inner.getUpperBound())))
      return empty;
  return init;
}

static void interchange(IRRewriter &rewriter, Nest &nest) {
  scf::ForOp outer = nest.outer, inner = nest.inner;
  Location loc = outer.getLoc();
  rewriter.setInsertionPoint(outer);
  SmallVector<Value> start;
  for (auto [slice, init] : llvm::zip(nest.slices, outer.getInitArgs()))
    start.push_back(startOf(slice, inner, init));
  auto rowLoop = scf::ForOp::create(
      rewriter, loc, inner.getLowerBound(), inner.getUpperBound(),
      inner.getStep(), start,
      [&](OpBuilder &b, Location l, Value row, ValueRange carried) {
        IRMapping map;
        map.map(inner.getInductionVar(), row);
        // A row block is read before any step has written it: read the start.
        for (auto [slice, init] : llvm::zip(nest.slices, outer.getInitArgs()))
          map.map(slice.read.getSource(), init);
        SmallVector<Value> state;
        for (CarriedSlice &slice : nest.slices) {
          if (!map.contains(slice.read.getResult()))
            cloneBackwardSlice(b, slice.read, nest, map);
          state.push_back(map.lookup(slice.read.getResult()));
        }
        auto keyLoop = scf::ForOp::create(
            b, l, outer.getLowerBound(), outer.getUpperBound(), outer.getStep(),
            state,
            [&](OpBuilder &nested, Location nl, Value key, ValueRange blocks) {
              IRMapping body(map);
              body.map(outer.getInductionVar(), key);
              for (auto [slice, block] : llvm::zip(nest.slices, blocks))
                body.map(slice.read.getResult(), block);
              for (Operation &op : outer.getBody()->without_terminator())
                if (&op != inner.getOperation())
                  nested.clone(op, body);
              for (Operation &op : inner.getBody()->without_terminator()) {
                bool isState = llvm::any_of(nest.slices, [&](auto &slice) {
                  return slice.read == &op || slice.write == &op;
                });
                if (!isState)
                  nested.clone(op, body);
              }
              SmallVector<Value> updated;
              for (CarriedSlice &slice : nest.slices)
                updated.push_back(
                    body.lookupOrDefault(slice.write.getSource()));
              scf::YieldOp::create(nested, nl, updated);
            });
        SmallVector<Value> written;
        for (auto [i, slice] : llvm::enumerate(nest.slices)) {
          auto read = map.lookup(slice.read.getResult())
                          .getDefiningOp<tensor::ExtractSliceOp>();
          written.push_back(tensor::InsertSliceOp::create(
              b, l, keyLoop.getResult(i), carried[i], read.getMixedOffsets(),
              read.getMixedSizes(), read.getMixedStrides()));
        }
        scf::YieldOp::create(b, l, written);
      });
  rewriter.replaceOp(outer, rowLoop.getResults());
}

namespace {
struct InterchangePass : fa::impl::InterchangePassBase<InterchangePass> {
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    SmallVector<Nest> nests;
    func.walk([&](scf::ForOp loop) {
      if (FailureOr<Nest> nest = matchNest(loop); succeeded(nest))
        nests.push_back(*nest);
    });
    IRRewriter rewriter(&getContext());
    for (Nest &nest : nests)
      interchange(rewriter, nest);
    if (failed(cleanUp(func)))
      signalPassFailure();
  }
};
} // namespace
