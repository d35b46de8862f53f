// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums that a grid shares have the same bits each time.

#include "fa/Analysis/LinearForm.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Dialect/FA/Transforms/Utils.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

namespace fa {
#define GEN_PASS_DEF_ORDERSUMSPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

/// How many partial sums blocks of a grid's last dimension have where all of
/// them may add to the same elements: as many run at once, and memory grows
/// with it.
static constexpr int64_t kPartials = 16;

/// Elements that a block of the kernel that adds partial sums up takes.
static constexpr int64_t kSumBlock = 256;

namespace {
/// What a grid adds to one of its outputs.
struct Additions {
  SmallVector<AccumulateOp> scattered;
  SmallVector<AccumulateSliceOp> slices;
  /// Where slices lie in the output: slices of it, outermost first.
  SmallVector<tensor::ExtractSliceOp> views;

  void collect(Value output);
};

/// Gives the additions of a grid an order.
class SumOrderer {
public:
  SumOrderer(IRRewriter &rewriter, scf::ForallOp grid)
      : rewriter(rewriter), grid(grid), loc(grid.getLoc()) {}
  LogicalResult run();

private:
  LogicalResult orderSlices(Additions &additions);
  LogicalResult orderScattered(BlockArgument output, Additions &additions);
  bool separates(OpFoldResult offset, OpFoldResult size, unsigned dim);
  void addPartials(BlockArgument output, ArrayRef<unsigned> dims,
                   ArrayRef<AccumulateOp> sums);
  Value sumPartials(Value partials, Value like, unsigned numDims);
  int64_t stepOf(unsigned dim) {
    return *getConstantIntValue(grid.getMixedStep()[dim]);
  }

  IRRewriter &rewriter;
  scf::ForallOp grid;
  Location loc;
};
} // namespace

void Additions::collect(Value output) {
  for (OpOperand &use : output.getUses()) {
    Operation *user = use.getOwner();
    if (auto sum = dyn_cast<AccumulateOp>(user)) {
      scattered.push_back(sum);
    } else if (auto sum = dyn_cast<AccumulateSliceOp>(user)) {
      slices.push_back(sum);
    } else if (auto view = dyn_cast<tensor::ExtractSliceOp>(user)) {
      views.push_back(view);
    } else if (auto loop = dyn_cast<scf::ForOp>(user)) {
      if (BlockArgument carried = loop.getTiedLoopRegionIterArg(&use)) {
        collect(carried);
        collect(loop.getTiedLoopResult(&use));
      }
      continue;
    } else {
      continue;
    }
    collect(user->getResult(0));
  }
}

/// Whether iterations that differ in a dimension of the grid cut other numbers
/// out of a dimension: the offset grows with theirs by the size or more.
bool SumOrderer::separates(OpFoldResult offset, OpFoldResult size,
                           unsigned dim) {
  auto value = dyn_cast<Value>(offset);
  std::optional<int64_t> extent = getConstantIntValue(size);
  if (!value || !extent)
    return false;
  Value number = grid.getInductionVar(dim);
  std::optional<LinearForm> form = getLinearForm(value, [&](Value v) {
    return !grid.getRegion().isAncestor(v.getParentRegion());
  });
  return form && form->factors.size() == 1 &&
         std::abs(form->of(number)) * stepOf(dim) >= *extent;
}

/// Blocks of the last dimension wait for each other; others must not meet.
LogicalResult SumOrderer::orderSlices(Additions &additions) {
  AccumulateSliceOp sum = additions.slices.front();
  for (int64_t dim = 0; dim + 1 < grid.getRank(); ++dim) {
    auto isApart = [&](OffsetSizeAndStrideOpInterface op) {
      return llvm::any_of(
          llvm::zip(op.getMixedOffsets(), op.getMixedSizes()), [&](auto cut) {
            return separates(std::get<0>(cut), std::get<1>(cut), dim);
          });
    };
    if (!llvm::any_of(additions.views, isApart) && !isApart(sum))
      return sum.emitOpError(
                 "cannot be ordered: iterations that differ in dimension ")
             << dim << " of the grid may add to the same slice";
  }
  sum.setOrdered(1);
  return success();
}

LogicalResult SumOrderer::orderScattered(BlockArgument output,
                                         Additions &additions) {
  // Two operations may meet anywhere.
  bool isAlone = additions.scattered.size() == 1;
  SmallVector<unsigned> dims;
  for (int64_t dim = 0; dim < grid.getRank(); ++dim)
    if (!isAlone || !additions.scattered.front().hasOwnPlacesIn(dim))
      dims.push_back(dim);
  bool meets = llvm::is_contained(dims, grid.getRank() - 1);
  for (AccumulateOp sum : additions.scattered)
    sum.setOrdered(meets ? kPartials : 0);
  if (!dims.empty())
    addPartials(output, dims, additions.scattered);
  return success();
}

/// The type of what is carried from a tensor to the end of the grid.
static void setTypes(Value value, Type type) {
  value.setType(type);
  for (OpOperand &use : value.getUses()) {
    if (auto sum = dyn_cast<AccumulateOp>(use.getOwner())) {
      setTypes(sum.getResult(), type);
    } else if (auto loop = dyn_cast<scf::ForOp>(use.getOwner())) {
      if (BlockArgument carried = loop.getTiedLoopRegionIterArg(&use)) {
        setTypes(carried, type);
        setTypes(loop.getTiedLoopResult(&use), type);
      }
    }
  }
}

/// Iterations that may meet in some dimensions of the grid add to sums of their
/// own, which a second grid adds up.
void SumOrderer::addPartials(BlockArgument output, ArrayRef<unsigned> dims,
                             ArrayRef<AccumulateOp> sums) {
  OpBuilder::InsertionGuard guard(rewriter);
  OpOperand &init = *grid.getTiedOpOperand(output);
  OpResult result = grid.getTiedOpResult(&init);
  Value whole = init.get();
  rewriter.setInsertionPoint(grid);
  int64_t last = grid.getRank() - 1;
  SmallVector<OpFoldResult> sizes;
  for (unsigned dim : dims)
    sizes.push_back(dim == last ? rewriter.getIndexAttr(kPartials)
                                : grid.getMixedUpperBound()[dim]);
  llvm::append_range(sizes, tensor::getMixedSizes(rewriter, loc, whole));
  Value zero =
      arith::ConstantOp::create(rewriter, loc, rewriter.getF32FloatAttr(0));
  Value empty =
      tensor::EmptyOp::create(rewriter, loc, sizes, rewriter.getF32Type());
  init.set(linalg::FillOp::create(rewriter, loc, zero, empty).getResult(0));
  setTypes(output, empty.getType());
  result.setType(empty.getType());
  rewriter.setInsertionPointToStart(grid.getBody());
  SmallVector<Value> own;
  for (unsigned dim : dims) {
    OpFoldResult number = grid.getInductionVar(dim);
    if (dim == last)
      number = affine::makeComposedFoldedAffineApply(
          rewriter, loc,
          rewriter.getAffineDimExpr(0).floorDiv(stepOf(dim)) % kPartials,
          number);
    own.push_back(getValueOrCreateConstantIndexOp(rewriter, loc, number));
  }
  for (AccumulateOp sum : sums) {
    Operation *yield = sum.getPlaces().front().getTerminator();
    yield->insertOperands(0, own);
  }
  rewriter.setInsertionPointAfter(grid);
  Value total = sumPartials(result, whole, dims.size());
  Operation *sum = total.getDefiningOp();
  rewriter.replaceUsesWithIf(result, total, [&](OpOperand &use) {
    return !sum->isProperAncestor(use.getOwner());
  });
}

/// The sum of partial sums, along their first dimensions, in their order.
Value SumOrderer::sumPartials(Value partials, Value like, unsigned numDims) {
  SmallVector<OpFoldResult> extents =
      tensor::getMixedSizes(rewriter, loc, like);
  int64_t rank = extents.size();
  OpFoldResult zero = rewriter.getIndexAttr(0), one = rewriter.getIndexAttr(1);
  SmallVector<OpFoldResult> lower(rank, zero), steps(rank, one);
  if (rank)
    steps.back() = rewriter.getIndexAttr(kSumBlock);
  SmallVector<OpFoldResult> upper = extents;
  if (!rank) {
    lower = {zero}, steps = {one};
    upper = {one};
  }
  auto forall = scf::ForallOp::create(rewriter, loc, lower, upper, steps, like,
                                      /*mapping=*/std::nullopt);
  BlockArgument output = forall.getRegionIterArgs()[0];
  rewriter.setInsertionPoint(forall.getTerminator());
  SmallVector<OpFoldResult> at, size(rank, one), ones(rank, one);
  for (int64_t d = 0; d < rank; ++d)
    at.push_back(forall.getInductionVar(d));
  SmallVector<int64_t> shape;
  if (rank) {
    AffineExpr i, n;
    bindDims(rewriter.getContext(), i, n);
    size.back() = affine::makeComposedFoldedAffineMin(
        rewriter, loc,
        AffineMap::get(2, 0, {rewriter.getAffineConstantExpr(kSumBlock), n - i},
                       rewriter.getContext()),
        {at.back(), extents.back()});
    shape.push_back(
        getConstantIntValue(size.back()).value_or(ShapedType::kDynamic));
  }
  auto type = RankedTensorType::get(shape, rewriter.getF32Type());
  Value part = tensor::ExtractSliceOp::create(rewriter, loc, type, output, at,
                                              size, ones);
  SmallVector<OpFoldResult> from(numDims, zero), fromSize,
      fromOnes(numDims, one);
  for (unsigned d = 0; d < numDims; ++d)
    fromSize.push_back(tensor::getMixedSize(rewriter, loc, partials, d));
  llvm::append_range(from, at);
  llvm::append_range(fromSize, size);
  llvm::append_range(fromOnes, ones);
  // All dimensions stay: which ones of size 1 are left out could not be told.
  Value terms = tensor::ExtractSliceOp::create(rewriter, loc, partials, from,
                                               fromSize, fromOnes);
  unsigned numSummed = numDims + rank - (rank ? 1 : 0);
  auto sum = linalg::ReduceOp::create(
      rewriter, loc, terms, part,
      llvm::to_vector(llvm::seq<int64_t>(0, numSummed)),
      [](OpBuilder &b, Location loc, ValueRange args) {
        Value next = arith::AddFOp::create(b, loc, args[0], args[1]);
        linalg::YieldOp::create(b, loc, next);
      });
  rewriter.setInsertionPointToEnd(forall.getTerminator().getBody());
  tensor::ParallelInsertSliceOp::create(rewriter, loc, sum->getResult(0),
                                        output, at, size, ones);
  return forall.getResult(0);
}

LogicalResult SumOrderer::run() {
  for (ParallelAccumulateOp op : llvm::make_early_inc_range(
           grid.getTerminator().getBody()->getOps<ParallelAccumulateOp>())) {
    auto output = cast<BlockArgument>(op.getDest());
    Additions additions;
    additions.collect(output);
    bool isScattered = !additions.scattered.empty();
    if (additions.slices.size() > 1 ||
        (isScattered && !additions.slices.empty()))
      return op.emitOpError("cannot be ordered: expected one "
                            "fa.accumulate_slice, or fa.accumulate alone");
    if (!additions.slices.empty() && failed(orderSlices(additions)))
      return failure();
    if (isScattered && failed(orderScattered(output, additions)))
      return failure();
  }
  return success();
}

namespace {
struct OrderSumsPass : fa::impl::OrderSumsPassBase<OrderSumsPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    SmallVector<scf::ForallOp> grids;
    getOperation().walk([&](scf::ForallOp grid) {
      if (addsUp(grid))
        grids.push_back(grid);
    });
    for (scf::ForallOp grid : grids)
      if (failed(SumOrderer(rewriter, grid).run()))
        return signalPassFailure();
    if (!grids.empty() && failed(cleanUp(getOperation())))
      signalPassFailure();
  }
};
} // namespace
