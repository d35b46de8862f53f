// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A padded dimension of a tile that nothing needs padded is as long as what
// was padded.

#include "fa/Dialect/FA/Utils/CleanUp.h"
#include "fa/Target/CPU/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Dominance.h"

namespace fa {
#define GEN_PASS_DEF_CPUTRIMPADDINGPASS
#include "fa/Target/CPU/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-cpu-trim-padding"

namespace {
/// All values that share one padded dimension.
class Trimmer {
public:
  Trimmer(IRRewriter &rewriter, OpFoldResult size)
      : rewriter(rewriter), size(size) {}
  /// Follows the dimension from where it is padded; whether all that has it can
  /// do without the padding.
  bool collect(tensor::PadOp pad, int64_t dim);
  /// Whether the size is known before each of these values, or was made so.
  bool hoistSize();
  void rewrite();

private:
  using Dim = std::pair<Value, int64_t>;
  void add(Value value, int64_t dim) { dims.insert({value, dim}); }
  bool tieLoop(linalg::LinalgOp op, unsigned loop);
  bool tieOperand(OpOperand &operand, int64_t dim);
  void tieCarried(scf::ForOp loop, unsigned number, int64_t dim);
  void tieBranches(scf::IfOp branch, unsigned number, int64_t dim);
  bool visitDefinition(Value value, int64_t dim);
  bool visitUse(OpOperand &use, int64_t dim);
  void rewritePad(tensor::PadOp pad, RankedTensorType type,
                  ArrayRef<int64_t> list);

  IRRewriter &rewriter;
  /// The dimension's length without padding.
  OpFoldResult size;
  SetVector<Dim> dims;
};
} // namespace

/// The length that a padded dimension has before, if only its end is padded.
static OpFoldResult sizeBefore(tensor::PadOp pad, int64_t dim) {
  if (!pad.getConstantPaddingValue() ||
      !isConstantIntValue(pad.getMixedLowPad()[dim], 0))
    return {};
  auto slice = pad.getSource().getDefiningOp<tensor::ExtractSliceOp>();
  if (!slice)
    return {};
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  for (auto [i, size] : llvm::enumerate(slice.getMixedSizes()))
    if (!dropped.test(i) && dim-- == 0)
      return size;
  return {};
}

/// Each operand of an op that has the loop as a dimension has this one.
bool Trimmer::tieLoop(linalg::LinalgOp op, unsigned loop) {
  if (!op.hasPureTensorSemantics() ||
      op.getIteratorTypesArray()[loop] != utils::IteratorType::parallel)
    return false;
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<RankedTensorType>(operand.get().getType()))
      continue;
    AffineMap map = op.getMatchingIndexingMap(&operand);
    for (auto [i, expr] : llvm::enumerate(map.getResults())) {
      if (!expr.isFunctionOfDim(loop))
        continue;
      if (!isa<AffineDimExpr>(expr) ||
          (op.isDpsInput(&operand) &&
           operand.get().getDefiningOp<tensor::EmptyOp>()))
        return false;
      add(operand.get(), i);
      if (op.isDpsInit(&operand))
        add(op.getTiedOpResult(&operand), i);
    }
  }
  return true;
}

bool Trimmer::tieOperand(OpOperand &operand, int64_t dim) {
  auto op = cast<linalg::LinalgOp>(operand.getOwner());
  auto loop = dyn_cast<AffineDimExpr>(
      op.getMatchingIndexingMap(&operand).getResult(dim));
  return loop && tieLoop(op, loop.getPosition());
}

void Trimmer::tieCarried(scf::ForOp loop, unsigned number, int64_t dim) {
  add(loop.getInitArgs()[number], dim);
  add(loop.getRegionIterArg(number), dim);
  add(loop.getYieldedValues()[number], dim);
  add(loop.getResult(number), dim);
}

void Trimmer::tieBranches(scf::IfOp branch, unsigned number, int64_t dim) {
  add(branch.thenYield().getOperand(number), dim);
  add(branch.elseYield().getOperand(number), dim);
  add(branch.getResult(number), dim);
}

bool Trimmer::visitDefinition(Value value, int64_t dim) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    if (!loop)
      return false;
    tieCarried(loop, argument.getArgNumber() - 1, dim);
    return true;
  }
  Operation *op = value.getDefiningOp();
  unsigned number = cast<OpResult>(value).getResultNumber();
  if (auto pad = dyn_cast<tensor::PadOp>(op))
    return sizeBefore(pad, dim) == size;
  if (auto structured = dyn_cast<linalg::LinalgOp>(op))
    return tieOperand(*structured.getDpsInitOperand(number), dim);
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return tieCarried(loop, number, dim), true;
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return tieBranches(branch, number, dim), true;
  return isa<tensor::EmptyOp>(op);
}

bool Trimmer::visitUse(OpOperand &use, int64_t dim) {
  Operation *user = use.getOwner();
  if (isa<linalg::LinalgOp>(user))
    return tieOperand(use, dim);
  if (auto loop = dyn_cast<scf::ForOp>(user))
    return tieCarried(loop,
                      use.getOperandNumber() - loop.getNumControlOperands(),
                      dim),
           true;
  if (isa<scf::YieldOp>(user)) {
    if (auto loop = dyn_cast<scf::ForOp>(user->getParentOp()))
      return tieCarried(loop, use.getOperandNumber(), dim), true;
    if (auto branch = dyn_cast<scf::IfOp>(user->getParentOp()))
      return tieBranches(branch, use.getOperandNumber(), dim), true;
    return false;
  }
  // What leaves the tile is clipped.
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(user))
    return isConstantIntValue(slice.getMixedOffsets()[dim], 0) &&
           isConstantIntValue(slice.getMixedStrides()[dim], 1) &&
           slice.getMixedSizes()[dim] == size;
  return isa<tensor::DimOp>(user);
}

bool Trimmer::collect(tensor::PadOp pad, int64_t dim) {
  add(pad.getResult(), dim);
  for (size_t next = 0; next < dims.size(); ++next) {
    auto [value, d] = dims[next];
    if (!visitDefinition(value, d))
      return false;
    // One empty tensor may stand for several; each use gets its own.
    if (value.getDefiningOp<tensor::EmptyOp>())
      continue;
    for (OpOperand &use : value.getUses())
      if (!visitUse(use, d))
        return false;
  }
  return true;
}

bool Trimmer::hoistSize() {
  auto value = dyn_cast<Value>(size);
  Operation *op = value ? value.getDefiningOp() : nullptr;
  if (!op)
    return true;
  Block *block = op->getBlock();
  for (auto [value, dim] : dims)
    if (!block->getParent()->isAncestor(value.getParentRegion()))
      return false;
  DominanceInfo dominance;
  if (!isPure(op) || llvm::any_of(op->getOperands(), [&](Value operand) {
        return !dominance.properlyDominates(operand, &block->front());
      }))
    return false;
  rewriter.moveOpBefore(op, block, block->begin());
  return true;
}

void Trimmer::rewritePad(tensor::PadOp pad, RankedTensorType type,
                         ArrayRef<int64_t> list) {
  SmallVector<OpFoldResult> high = pad.getMixedHighPad();
  for (int64_t dim : list)
    high[dim] = rewriter.getIndexAttr(0);
  rewriter.setInsertionPoint(pad);
  auto isZero = [](OpFoldResult x) { return isConstantIntValue(x, 0); };
  if (pad.getSourceType() == type && llvm::all_of(high, isZero))
    return rewriter.replaceOp(pad, pad.getSource());
  rewriter.replaceOpWithNewOp<tensor::PadOp>(
      pad, type, pad.getSource(), pad.getMixedLowPad(), high,
      pad.getConstantPaddingValue(), pad.getNofold());
}

void Trimmer::rewrite() {
  llvm::MapVector<Value, SmallVector<int64_t>> byValue;
  for (auto [value, dim] : dims)
    byValue[value].push_back(dim);
  // Uses of empty tensors first, while operands still tell which these are.
  SmallVector<std::pair<OpOperand *, SmallVector<int64_t>>> fresh;
  auto note = [&](OpOperand &operand, Value becomes) {
    if (operand.get().getDefiningOp<tensor::EmptyOp>() &&
        byValue.contains(becomes))
      fresh.push_back({&operand, byValue[becomes]});
  };
  for (auto &[value, list] : byValue) {
    auto result = dyn_cast<OpResult>(value);
    if (!result)
      continue;
    Operation *op = result.getOwner();
    if (auto structured = dyn_cast<linalg::LinalgOp>(op))
      note(*structured.getDpsInitOperand(result.getResultNumber()), value);
    else if (auto loop = dyn_cast<scf::ForOp>(op))
      note(*loop.getTiedLoopInit(result), value);
    else if (auto branch = dyn_cast<scf::IfOp>(op))
      for (scf::YieldOp yield : {branch.thenYield(), branch.elseYield()})
        note(yield->getOpOperand(result.getResultNumber()), value);
  }
  for (auto &[operand, list] : fresh) {
    auto empty = operand->get().getDefiningOp<tensor::EmptyOp>();
    SmallVector<OpFoldResult> sizes = empty.getMixedSizes();
    for (int64_t dim : list)
      sizes[dim] = size;
    rewriter.setInsertionPoint(operand->getOwner());
    operand->set(tensor::EmptyOp::create(rewriter, empty.getLoc(), sizes,
                                         empty.getType().getElementType()));
  }
  for (auto &[value, list] : byValue) {
    if (value.getDefiningOp<tensor::EmptyOp>())
      continue;
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    for (int64_t dim : list)
      shape[dim] = getConstantIntValue(size).value_or(ShapedType::kDynamic);
    auto trimmed = RankedTensorType::get(shape, type.getElementType());
    if (auto pad = value.getDefiningOp<tensor::PadOp>())
      rewritePad(pad, trimmed, list);
    else
      value.setType(trimmed);
  }
}

namespace {
struct CPUTrimPaddingPass
    : fa::impl::CPUTrimPaddingPassBase<CPUTrimPaddingPass> {
  void runOnOperation() override {
    if (failed(expandSoftmaxes(getOperation())))
      return signalPassFailure();
    IRRewriter rewriter(&getContext());
    while (trimOne(rewriter)) {
    }
  }

  /// Whether a dimension was found and trimmed, with all pads that have it.
  bool trimOne(IRRewriter &rewriter) {
    WalkResult found = getOperation().walk([&](tensor::PadOp pad) {
      for (int64_t dim = 0; dim < pad.getResultType().getRank(); ++dim) {
        OpFoldResult size = sizeBefore(pad, dim);
        if (!size || isConstantIntValue(pad.getMixedHighPad()[dim], 0) ||
            pad.getResultType().isDynamicDim(dim))
          continue;
        Trimmer trimmer(rewriter, size);
        if (!trimmer.collect(pad, dim) || !trimmer.hoistSize())
          continue;
        trimmer.rewrite();
        return WalkResult::interrupt();
      }
      return WalkResult::advance();
    });
    return found.wasInterrupted();
  }
};
} // namespace
