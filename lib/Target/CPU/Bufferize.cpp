// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "BufferTypes.h"
#include "fa/Target/CPU/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotModuleBufferize.h"
#include "mlir/Dialect/Bufferization/Transforms/Transforms.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

namespace fa {
#define GEN_PASS_DEF_CPUBUFFERIZEPASS
#include "fa/Target/CPU/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-cpu-bufferize"

static bufferization::OneShotBufferizationOptions
makeOptions(bool unitInnerStride) {
  bufferization::OneShotBufferizationOptions options;
  options.bufferizeFunctionBoundaries = true;
  options.allowReturnAllocsFromLoops = false;
  options.functionArgTypeConverterFn =
      [unitInnerStride](bufferization::TensorLikeType type, Attribute,
                        func::FuncOp,
                        const bufferization::BufferizationOptions &) {
        return cast<bufferization::BufferLikeType>(Type(getBoundaryBufferType(
            cast<RankedTensorType>(type), unitInnerStride)));
      };
  options.memCpyFn = [](OpBuilder &b, Location loc, Value from, Value to) {
    if (from != to)
      linalg::CopyOp::create(b, loc, from, to);
    return success();
  };
  return options;
}

/// The layout of two, dynamic only where they differ.
static MemRefType joinLayouts(MemRefType x, MemRefType y,
                              ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides, ofY;
  int64_t offset, offsetOfY;
  if (x.getRank() != y.getRank() || x.getElementType() != y.getElementType() ||
      failed(x.getStridesAndOffset(strides, offset)) ||
      failed(y.getStridesAndOffset(ofY, offsetOfY)))
    return {};
  auto join = [](int64_t a, int64_t b) {
    return a == b ? a : ShapedType::kDynamic;
  };
  for (auto [a, b] : llvm::zip(strides, ofY))
    a = join(a, b);
  return MemRefType::get(
      shape, x.getElementType(),
      StridedLayoutAttr::get(x.getContext(), join(offset, offsetOfY), strides));
}

/// Adds the arguments of the function and the allocations that a buffer may be
/// a part of; a null value where that is not known.
static void addRoots(Value buffer, llvm::SmallPtrSetImpl<Value> &roots) {
  SmallVector<Value> worklist = {buffer};
  llvm::SmallPtrSet<Value, 8> seen;
  while (!worklist.empty()) {
    Value next = worklist.pop_back_val();
    if (!seen.insert(next).second)
      continue;
    if (auto argument = dyn_cast<BlockArgument>(next)) {
      Operation *owner = argument.getOwner()->getParentOp();
      if (auto loop = dyn_cast<scf::ForOp>(owner))
        worklist.append({loop.getTiedLoopInit(argument)->get(),
                         loop.getTiedLoopYieldedValue(argument)->get()});
      else
        roots.insert(isa<func::FuncOp>(owner) ? next : Value());
      continue;
    }
    auto result = cast<OpResult>(next);
    Operation *op = result.getOwner();
    if (isa<memref::AllocOp>(op))
      roots.insert(next);
    else if (isa<memref::SubViewOp, memref::CastOp>(op))
      worklist.push_back(op->getOperand(0));
    else if (auto loop = dyn_cast<scf::ForOp>(op))
      worklist.append({loop.getTiedLoopInit(result)->get(),
                       loop.getYieldedValues()[result.getResultNumber()]});
    else if (auto branch = dyn_cast<scf::IfOp>(op))
      worklist.append(
          {branch.thenYield().getOperand(result.getResultNumber()),
           branch.elseYield().getOperand(result.getResultNumber())});
    else
      roots.insert(Value());
  }
}

/// What a function may write to; a null value where that is not known.
static llvm::SmallPtrSet<Value, 8> findWritten(func::FuncOp func) {
  llvm::SmallPtrSet<Value, 8> written;
  func.walk([&](Operation *op) {
    if (isa<memref::SubViewOp, memref::CastOp, memref::DimOp, memref::LoadOp,
            scf::ForOp, scf::YieldOp>(op))
      return;
    auto structured = dyn_cast<linalg::LinalgOp>(op);
    for (OpOperand &operand : op->getOpOperands())
      if (isa<MemRefType>(operand.get().getType()) &&
          !(structured && structured.isDpsInput(&operand)))
        addRoots(operand.get(), written);
  });
  return written;
}

namespace {
/// A buffer that is filled, then overwritten from its start by a part of an
/// argument, and from then on read: a tile that is padded.
struct PaddedTile {
  memref::AllocOp alloc;
  linalg::FillOp fill;
  memref::SubViewOp inside;
  linalg::CopyOp copy;
};
} // namespace

static std::optional<PaddedTile> matchPaddedTile(memref::AllocOp alloc) {
  PaddedTile tile{alloc, {}, {}, {}};
  for (Operation *user : alloc->getUsers()) {
    if (auto fill = dyn_cast<linalg::FillOp>(user)) {
      if (tile.fill)
        return std::nullopt;
      tile.fill = fill;
    } else if (auto inside = dyn_cast<memref::SubViewOp>(user)) {
      if (tile.inside || !inside->hasOneUse())
        return std::nullopt;
      tile.inside = inside;
      tile.copy = dyn_cast<linalg::CopyOp>(*inside->user_begin());
    } else if (auto reader = dyn_cast<linalg::LinalgOp>(user)) {
      for (OpOperand &operand : user->getOpOperands())
        if (operand.get() == alloc && !reader.isDpsInput(&operand))
          return std::nullopt;
    } else if (!isa<memref::DimOp>(user)) {
      return std::nullopt;
    }
  }
  auto isZero = [](OpFoldResult x) { return isConstantIntValue(x, 0); };
  auto isOne = [](OpFoldResult x) { return isConstantIntValue(x, 1); };
  if (!tile.fill || !tile.copy || !alloc.getType().hasStaticShape() ||
      tile.copy.getOutputs()[0] != tile.inside.getResult() ||
      !llvm::all_of(tile.inside.getMixedOffsets(), isZero) ||
      !llvm::all_of(tile.inside.getMixedStrides(), isOne) ||
      tile.inside.getType().getRank() != alloc.getType().getRank())
    return std::nullopt;
  // All in one place and in this order, then what reads it.
  Operation *order[] = {alloc, tile.fill, tile.copy};
  for (int i = 0; i < 2; ++i)
    if (order[i]->getBlock() != order[i + 1]->getBlock() ||
        !order[i]->isBeforeInBlock(order[i + 1]))
      return std::nullopt;
  for (Operation *user : alloc->getUsers()) {
    Operation *at = alloc->getBlock()->findAncestorOpInBlock(*user);
    if (user != tile.fill && user != tile.inside &&
        at->isBeforeInBlock(tile.copy))
      return std::nullopt;
  }
  return tile;
}

/// Reads a tile where it lies if it needs no padding, which is known when it is
/// reached: copies of keys and values take as long as what few rows compute
/// with them.
static void readInPlace(RewriterBase &rewriter, PaddedTile &tile) {
  Value source = tile.copy.getInputs()[0];
  auto from = cast<MemRefType>(source.getType());
  MemRefType padded = tile.alloc.getType(),
             type = joinLayouts(from, padded, padded.getShape());
  if (!type)
    return;
  Location loc = tile.copy.getLoc();
  rewriter.setInsertionPoint(tile.copy);
  Value whole;
  for (auto [have, want] :
       llvm::zip(tile.inside.getMixedSizes(), padded.getShape())) {
    if (getConstantIntValue(have) == want)
      continue;
    if (isa<Attribute>(have))
      return; // Never whole.
    Value is = arith::CmpIOp::create(
        rewriter, loc, arith::CmpIPredicate::eq, cast<Value>(have),
        arith::ConstantIndexOp::create(rewriter, loc, want));
    whole = whole ? arith::AndIOp::create(rewriter, loc, whole, is).getResult()
                  : is;
  }
  if (!whole)
    return;
  auto choice = scf::IfOp::create(rewriter, loc, type, whole,
                                  /*withElseRegion=*/true);
  rewriter.replaceUsesWithIf(
      tile.alloc, choice.getResult(0), [&](OpOperand &use) {
        return use.getOwner() != tile.fill && use.getOwner() != tile.inside;
      });
  rewriter.setInsertionPointToEnd(choice.thenBlock());
  Value same = memref::CastOp::create(rewriter, loc, type, source);
  scf::YieldOp::create(rewriter, loc, same);
  rewriter.setInsertionPointToEnd(choice.elseBlock());
  Value copied = memref::CastOp::create(rewriter, loc, type, tile.alloc);
  auto yield = scf::YieldOp::create(rewriter, loc, copied);
  for (Operation *op : {(Operation *)tile.alloc, (Operation *)tile.fill,
                        (Operation *)tile.inside, (Operation *)tile.copy})
    rewriter.moveOpBefore(op, yield);
  rewriter.moveOpBefore(copied.getDefiningOp(), yield);
}

namespace {
struct CPUBufferizePass : fa::impl::CPUBufferizePassBase<CPUBufferizePass> {
  using CPUBufferizePassBase::CPUBufferizePassBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    IRRewriter rewriter(&getContext());
    if (failed(bufferization::eliminateEmptyTensors(rewriter, module)))
      return signalPassFailure();
    bufferization::BufferizationState state;
    if (failed(bufferization::runOneShotModuleBufferize(
            module, makeOptions(unitInnerStride), state)))
      return signalPassFailure();
    for (func::FuncOp func : module.getOps<func::FuncOp>())
      readTilesInPlace(rewriter, func);
  }

  void readTilesInPlace(RewriterBase &rewriter, func::FuncOp func) {
    llvm::SmallPtrSet<Value, 8> written = findWritten(func);
    if (written.contains(Value()))
      return;
    SmallVector<memref::AllocOp> allocs;
    func.walk([&](memref::AllocOp alloc) { allocs.push_back(alloc); });
    for (memref::AllocOp alloc : allocs) {
      std::optional<PaddedTile> tile = matchPaddedTile(alloc);
      if (!tile)
        continue;
      llvm::SmallPtrSet<Value, 8> sources;
      addRoots(tile->copy.getInputs()[0], sources);
      if (llvm::all_of(sources, [&](Value source) {
            return isa_and_nonnull<BlockArgument>(source) &&
                   !written.contains(source);
          }))
        readInPlace(rewriter, *tile);
    }
  }
};
} // namespace
