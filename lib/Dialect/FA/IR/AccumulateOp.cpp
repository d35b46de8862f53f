// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AttentionCommon.h"

#include "fa/Analysis/LinearForm.h"
#include "fa/Analysis/ScalarOpInterface.h"
#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fa;

/// Constraint c2 of both operations.
static LogicalResult verifyOrder(Operation *op, std::optional<int64_t> ordered,
                                 StringRef constraint) {
  if (!ordered || (*ordered >= 0 && llvm::isInt<32>(*ordered)))
    return success();
  return op->emitOpError()
         << "expected iterations that may meet to be 0 to 2147483647 apart, "
            "got ordered = "
         << *ordered << " (" << constraint << ")";
}

LogicalResult AccumulateOp::verifyRegions() {
  if (failed(verifyOrder(*this, getOrdered(), "fa_accumulate_c2")))
    return failure();
  Block &block = getPlaces().front();
  Type index = IndexType::get(getContext());
  unsigned rank = getTerms().getType().getRank(),
           places = getInit().getType().getRank();
  if (!llvm::equal(block.getArgumentTypes(), SmallVector<Type>(rank, index)))
    return emitOpError() << "expected the region to take " << rank
                         << " indices, one for each dimension of terms, got "
                         << block.getNumArguments()
                         << " arguments (fa_accumulate_c1)";
  auto yield =
      block.empty() ? YieldPlacesOp() : dyn_cast<YieldPlacesOp>(block.back());
  if (!yield || yield.getPlaces().size() != places)
    return emitOpError() << "expected the region to end in fa.yield_places of "
                         << places
                         << " indices, one for each dimension of the result"
                            " (fa_accumulate_c1)";
  return verifyRegionIsPure(getPlaces(), "places");
}

bool AccumulateOp::placeDependsOn(unsigned dim) {
  Block &block = getPlaces().front();
  return llvm::any_of(block.getTerminator()->getOperands(), [&](Value place) {
    return dependsOn(place, block.getArgument(dim));
  });
}

/// By how much a value of the region changes if the coordinates that `grow`
/// names grow by 1.
static std::optional<StepRange>
stepOf(Value value, Block &block,
       llvm::function_ref<bool(BlockArgument)> grows) {
  return getStepRange(value, [&](Value v) -> std::optional<StepRange> {
    auto argument = dyn_cast<BlockArgument>(v);
    if (argument && argument.getOwner() == &block && grows(argument))
      return StepRange{1, 1};
    if (argument || v.getDefiningOp()->getBlock() != &block)
      return StepRange{};
    return std::nullopt;
  });
}

bool AccumulateOp::placeIsOfDifference() {
  Block &block = getPlaces().front();
  return block.getNumArguments() == 2 &&
         llvm::all_of(block.getTerminator()->getOperands(), [&](Value place) {
           auto step = stepOf(place, block, [](BlockArgument) { return true; });
           return step && step->isZero();
         });
}

/// Whether from term to term of a row places go on by one or stay:
/// `bias[h, i, j]`, also within bounds.
static bool placesAreRuns(AccumulateOp op) {
  Block &block = op.getPlaces().front();
  OperandRange places = block.getTerminator()->getOperands();
  if (block.getNumArguments() == 0 || places.empty())
    return false;
  auto last = [&](BlockArgument argument) {
    return argument == block.getArguments().back();
  };
  auto step = stepOf(places.back(), block, last);
  return step && step->lo >= 0 && step->hi == 1 &&
         llvm::all_of(places.drop_back(), [&](Value place) {
           auto other = stepOf(place, block, last);
           return other && other->isZero();
         });
}

namespace {
/// The numbers that a value takes: so many, each larger by the step.
struct Steps {
  int64_t step;
  std::optional<int64_t> count;
};
} // namespace

/// Those of a coordinate of terms, or of an iteration; none of others.
static std::optional<Steps> stepsOf(Value leaf) {
  auto argument = cast<BlockArgument>(leaf);
  Operation *parent = argument.getOwner()->getParentOp();
  auto count = [](std::optional<int64_t> lower, std::optional<int64_t> upper,
                  int64_t step) -> std::optional<int64_t> {
    if (!lower || !upper)
      return std::nullopt;
    return std::max<int64_t>(1, llvm::divideCeil(*upper - *lower, step));
  };
  if (auto sum = dyn_cast<AccumulateOp>(parent)) {
    int64_t size = sum.getTerms().getType().getDimSize(argument.getArgNumber());
    if (ShapedType::isDynamic(size))
      return Steps{1, std::nullopt};
    return Steps{1, size};
  }
  if (auto loop = dyn_cast<scf::ForOp>(parent);
      loop && leaf == loop.getInductionVar())
    if (std::optional<int64_t> step = getConstantIntValue(loop.getStep()))
      return Steps{*step,
                   count(getConstantIntValue(loop.getLowerBound()),
                         getConstantIntValue(loop.getUpperBound()), *step)};
  if (auto grid = dyn_cast<scf::ForallOp>(parent);
      grid && argument.getArgNumber() < grid.getRank()) {
    unsigned dim = argument.getArgNumber();
    if (auto step = getConstantIntValue(grid.getMixedStep()[dim]))
      return Steps{*step,
                   count(getConstantIntValue(grid.getMixedLowerBound()[dim]),
                         getConstantIntValue(grid.getMixedUpperBound()[dim]),
                         *step)};
  }
  return std::nullopt;
}

/// Whether a form takes each number from 0 to some other once, like the digits
/// of a number: `first row + row`, `key head * group + head of the group`.
static bool isCoordinate(const LinearForm &form) {
  SmallVector<Steps> digits;
  for (auto [leaf, factor] : form.factors) {
    std::optional<Steps> steps = stepsOf(leaf);
    if (!steps || factor < 0)
      return false;
    digits.push_back({factor * steps->step, steps->count});
  }
  llvm::sort(digits, [](Steps x, Steps y) { return x.step < y.step; });
  std::optional<int64_t> next = 1;
  for (Steps digit : digits) {
    if (digit.step != next)
      return false;
    next = digit.count ? std::optional(*next * *digit.count) : std::nullopt;
  }
  return form.isExact && !digits.empty();
}

/// The number that a place's clamp to a dimension of unknown size begins with:
/// max(min(x, dim - 1), 0).
static Value withoutClamp(Value place) {
  auto atLeast = place.getDefiningOp<arith::MaxSIOp>();
  if (!atLeast || !matchPattern(atLeast.getRhs(), m_Zero()))
    return place;
  auto atMost = atLeast.getLhs().getDefiningOp<arith::MinSIOp>();
  auto last =
      atMost ? atMost.getRhs().getDefiningOp<arith::SubIOp>() : arith::SubIOp();
  if (!last || !matchPattern(last.getRhs(), m_One()) ||
      !last.getLhs().getDefiningOp<tensor::DimOp>())
    return place;
  return atMost.getLhs();
}

/// A place as a sum over coordinates of terms and numbers of iterations. A
/// tensor that a coordinate indexes has an element for each, and a coordinate
/// is not clamped.
static std::optional<LinearForm> formOf(Value place, AccumulateOp op) {
  auto grid = op->getParentOfType<scf::ForallOp>();
  Region &varying = grid ? grid.getRegion() : op.getPlaces();
  auto isFixed = [&](Value v) {
    return !varying.isAncestor(v.getParentRegion());
  };
  std::optional<LinearForm> free = getLinearForm(withoutClamp(place), isFixed);
  if (free && isCoordinate(*free))
    return free;
  return getLinearForm(place, isFixed);
}

bool AccumulateOp::hasOwnPlaces(ArrayRef<unsigned> dims) {
  Block &block = getPlaces().front();
  // One place moves with each of them alone.
  return llvm::all_of(dims, [&](unsigned dim) {
    return llvm::any_of(block.getTerminator()->getOperands(), [&](Value place) {
      std::optional<LinearForm> form = formOf(place, *this);
      return form && form->of(block.getArgument(dim)) != 0 &&
             llvm::all_of(dims, [&](unsigned other) {
               return other == dim || form->of(block.getArgument(other)) == 0;
             });
    });
  });
}

bool AccumulateOp::hasOwnPlacesIn(unsigned gridDim) {
  auto grid = getOperation()->getParentOfType<scf::ForallOp>();
  Value number = grid.getInductionVar(gridDim);
  auto isApart = [&](Value place) {
    std::optional<LinearForm> form = formOf(place, *this);
    if (!form || form->of(number) == 0)
      return false;
    // What else moves it stays within a step.
    int64_t spread = 0;
    for (auto [leaf, factor] : form->factors) {
      std::optional<Steps> steps = stepsOf(leaf);
      if (leaf == number)
        continue;
      if (!steps || !steps->count)
        return false;
      spread += std::abs(factor) * steps->step * (*steps->count - 1);
    }
    return std::abs(form->of(number)) * stepsOf(number)->step > spread;
  };
  return llvm::any_of(getPlaces().front().getTerminator()->getOperands(),
                      isApart);
}

/// The same with terms that are summed along a dimension that their places do
/// not depend on.
static AccumulateOp sumAlong(OpBuilder &b, AccumulateOp op, unsigned dim) {
  Location loc = op.getLoc();
  SoftmaxBuilder softmax(b, loc);
  SmallVector<OpFoldResult> sizes =
      tensor::getMixedSizes(b, loc, op.getTerms());
  unsigned rank = sizes.size();
  sizes.erase(sizes.begin() + dim);
  Value zero =
      softmax.fill(sizes, op.getTerms().getType().getElementType(), 0.0);
  Value terms = rank == 1  ? softmax.total(op.getTerms(), zero)
                : dim == 0 ? softmax.columnSum(op.getTerms(), zero)
                           : softmax.rowSum(op.getTerms(), zero);
  auto made = AccumulateOp::create(b, loc, op.getInit().getType(), terms,
                                   op.getInit(), op.getOrderedAttr());
  OpBuilder::InsertionGuard guard(b);
  Block &places = op.getPlaces().front();
  Block *body = b.createBlock(&made.getPlaces(), {},
                              SmallVector<Type>(rank - 1, b.getIndexType()),
                              SmallVector<Location>(rank - 1, loc));
  SmallVector<Value> at(body->getArguments());
  at.insert(at.begin() + dim, arith::ConstantIndexOp::create(b, loc, 0));
  IRMapping map;
  map.map(places.getArguments(), at);
  for (Operation &inner : places)
    b.clone(inner, map);
  return made;
}

namespace {
/// The op as loops over elements, or over runs of them.
class AccumulateBuilder {
public:
  explicit AccumulateBuilder(AccumulateOp op) : op(op), loc(op.getLoc()) {}
  Value build(OpBuilder &b);

private:
  Value index(OpBuilder &b, int64_t c) {
    return arith::ConstantIndexOp::create(b, loc, c);
  }
  SmallVector<Value> placeOf(OpBuilder &b, ValueRange at);
  Value addElement(OpBuilder &b, ValueRange at, Value into);
  Value addRow(OpBuilder &b, ValueRange at, Value size, Value into);
  Value addRun(OpBuilder &b, ValueRange at, Value size, ValueRange place,
               Value into);
  Value loopOver(OpBuilder &b, ValueRange sizes, Value into,
                 llvm::function_ref<Value(OpBuilder &, ValueRange, Value)> add);

  AccumulateOp op;
  Location loc;
};
} // namespace

SmallVector<Value> AccumulateBuilder::placeOf(OpBuilder &b, ValueRange at) {
  Block &places = op.getPlaces().front();
  IRMapping map;
  map.map(places.getArguments(), at);
  for (Operation &inner : places.without_terminator())
    b.clone(inner, map);
  SmallVector<Value> place;
  for (Value index : places.getTerminator()->getOperands())
    place.push_back(map.lookupOrDefault(index));
  return place;
}

Value AccumulateBuilder::addElement(OpBuilder &b, ValueRange at, Value into) {
  SmallVector<Value> place = placeOf(b, at);
  Value term = tensor::ExtractOp::create(b, loc, op.getTerms(), at);
  Value old = tensor::ExtractOp::create(b, loc, into, place);
  Value sum = arith::AddFOp::create(b, loc, old, term);
  return tensor::InsertOp::create(b, loc, sum, into, place);
}

Value AccumulateBuilder::loopOver(
    OpBuilder &b, ValueRange sizes, Value into,
    llvm::function_ref<Value(OpBuilder &, ValueRange, Value)> add) {
  SmallVector<Value> zeros(sizes.size(), index(b, 0)),
      ones(sizes.size(), index(b, 1));
  if (sizes.empty())
    return add(b, {}, into);
  return scf::buildLoopNest(b, loc, zeros, sizes, ones, into,
                            [&](OpBuilder &in, Location, ValueRange at,
                                ValueRange carried) -> scf::ValueVector {
                              return {add(in, at, carried[0])};
                            })
      .results.front();
}

/// A row of terms, whose places are neighbours.
Value AccumulateBuilder::addRun(OpBuilder &b, ValueRange at, Value size,
                                ValueRange place, Value into) {
  OpFoldResult one = b.getIndexAttr(1);
  auto sliceOf = [&](Value of, ArrayRef<OpFoldResult> offsets) {
    SmallVector<OpFoldResult> sizes(offsets.size(), one),
        ones(offsets.size(), one);
    sizes.back() = size;
    auto type = RankedTensorType::get({ShapedType::kDynamic},
                                      getElementTypeOrSelf(of.getType()));
    return tensor::ExtractSliceOp::create(b, loc, type, of, offsets, sizes,
                                          ones);
  };
  SmallVector<OpFoldResult> from = getAsOpFoldResult(at);
  from.push_back(b.getIndexAttr(0));
  Value terms = sliceOf(op.getTerms(), from);
  tensor::ExtractSliceOp before = sliceOf(into, getAsOpFoldResult(place));
  AffineMap maps[] = {b.getMultiDimIdentityMap(1), b.getMultiDimIdentityMap(1)};
  Value sum = linalg::GenericOp::create(
                  b, loc, before.getType(), terms, before.getResult(), maps,
                  utils::IteratorType::parallel,
                  [](OpBuilder &nested, Location l, ValueRange args) {
                    Value x =
                        arith::AddFOp::create(nested, l, args[1], args[0]);
                    linalg::YieldOp::create(nested, l, x);
                  })
                  .getResult(0);
  return tensor::InsertSliceOp::create(
      b, loc, sum, into, before.getMixedOffsets(), before.getMixedSizes(),
      before.getMixedStrides());
}

/// A row of terms: at once where no bound is met between the first place and
/// the last.
Value AccumulateBuilder::addRow(OpBuilder &b, ValueRange at, Value size,
                                Value into) {
  Value distance = arith::SubIOp::create(b, loc, size, index(b, 1));
  SmallVector<Value> first(at), last(at);
  first.push_back(index(b, 0));
  last.push_back(distance);
  first = placeOf(b, first);
  last = placeOf(b, last);
  Value isRun = arith::CmpIOp::create(
      b, loc, arith::CmpIPredicate::eq,
      arith::SubIOp::create(b, loc, last.back(), first.back()), distance);
  return scf::IfOp::create(
             b, loc, isRun,
             [&](OpBuilder &in, Location) {
               scf::YieldOp::create(in, loc, addRun(in, at, size, first, into));
             },
             [&](OpBuilder &in, Location) {
               Value sum = loopOver(
                   in, size, into,
                   [&](OpBuilder &nested, ValueRange column, Value carried) {
                     SmallVector<Value> all(at);
                     llvm::append_range(all, column);
                     return addElement(nested, all, carried);
                   });
               scf::YieldOp::create(in, loc, sum);
             })
      .getResult(0);
}

Value AccumulateBuilder::build(OpBuilder &b) {
  SmallVector<Value> sizes;
  for (OpFoldResult size : tensor::getMixedSizes(b, loc, op.getTerms()))
    sizes.push_back(getValueOrCreateConstantIndexOp(b, loc, size));
  if (!placesAreRuns(op))
    return loopOver(b, sizes, op.getInit(),
                    [&](OpBuilder &in, ValueRange at, Value carried) {
                      return addElement(in, at, carried);
                    });
  return loopOver(b, ArrayRef(sizes).drop_back(), op.getInit(),
                  [&](OpBuilder &in, ValueRange at, Value carried) {
                    return addRow(in, at, sizes.back(), carried);
                  });
}

FailureOr<SmallVector<Value>> AccumulateOp::decomposeOperation(OpBuilder &b) {
  // Sums before memory.
  for (int64_t d = getTerms().getType().getRank() - 1; d >= 0; --d)
    if (getTerms().getType().getRank() <= 2 && !placeDependsOn(d))
      return SmallVector<Value>{sumAlong(b, *this, d).getResult()};
  return SmallVector<Value>{AccumulateBuilder(*this).build(b)};
}

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

void AccumulateSliceOp::build(OpBuilder &builder, OperationState &state,
                              Value part, Value init,
                              ArrayRef<OpFoldResult> offsets,
                              ArrayRef<OpFoldResult> sizes,
                              ArrayRef<OpFoldResult> strides) {
  SmallVector<int64_t> staticOffsets, staticSizes, staticStrides;
  SmallVector<Value> dynamicOffsets, dynamicSizes, dynamicStrides;
  dispatchIndexOpFoldResults(offsets, dynamicOffsets, staticOffsets);
  dispatchIndexOpFoldResults(sizes, dynamicSizes, staticSizes);
  dispatchIndexOpFoldResults(strides, dynamicStrides, staticStrides);
  build(builder, state, init.getType(), part, init, dynamicOffsets,
        dynamicSizes, dynamicStrides,
        builder.getDenseI64ArrayAttr(staticOffsets),
        builder.getDenseI64ArrayAttr(staticSizes),
        builder.getDenseI64ArrayAttr(staticStrides), /*ordered=*/nullptr);
}

llvm::SmallBitVector AccumulateSliceOp::getDroppedDims() {
  SmallVector<OpFoldResult> sizes = getMixedSizes();
  ArrayRef<int64_t> kept = getPart().getType().getShape();
  llvm::SmallBitVector dropped(sizes.size());
  for (int64_t d = sizes.size() - 1; d >= 0; --d)
    if (isConstantIntValue(sizes[d], 1) && (kept.empty() || kept.back() != 1))
      dropped.set(d);
    else if (!kept.empty())
      kept = kept.drop_back();
  return dropped;
}

LogicalResult AccumulateSliceOp::verify() {
  if (failed(verifyOrder(*this, getOrdered(), "fa_accumulate_slice_c2")))
    return failure();
  RankedTensorType slice = tensor::ExtractSliceOp::inferResultType(
      getInit().getType(), getMixedSizes());
  if (isRankReducedType(slice, getPart().getType()) !=
      SliceVerificationResult::Success)
    return emitOpError() << "expected a part of the slice's type " << slice
                         << ", or without its dimensions of size 1, got "
                         << getPart().getType() << " (fa_accumulate_slice_c1)";
  return success();
}

namespace {
/// Sizes that the part's type knows are constants of the slice, too: a cast
/// that knew less of the part may have been folded away.
struct SizesOfPart : OpRewritePattern<AccumulateSliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AccumulateSliceOp op,
                                PatternRewriter &rewriter) const override {
    SmallVector<OpFoldResult> sizes = op.getMixedSizes();
    llvm::SmallBitVector dropped = op.getDroppedDims();
    ArrayRef<int64_t> part = op.getPart().getType().getShape();
    if (sizes.size() - dropped.count() != part.size())
      return failure();
    bool isChanged = false;
    for (auto [d, size] : llvm::enumerate(sizes)) {
      if (dropped.test(d))
        continue;
      int64_t known = part.front();
      part = part.drop_front();
      if (ShapedType::isDynamic(known) || !isa<Value>(size))
        continue;
      size = rewriter.getIndexAttr(known);
      isChanged = true;
    }
    if (!isChanged)
      return failure();
    auto replacement = AccumulateSliceOp::create(
        rewriter, op.getLoc(), op.getPart(), op.getInit(), op.getMixedOffsets(),
        sizes, op.getMixedStrides());
    replacement.setOrderedAttr(op.getOrderedAttr());
    rewriter.replaceOp(op, replacement);
    return success();
  }
};
} // namespace

void AccumulateSliceOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                    MLIRContext *context) {
  patterns.add<SizesOfPart>(context);
}

FailureOr<SmallVector<Value>>
AccumulateSliceOp::decomposeOperation(OpBuilder &builder) {
  Location loc = getLoc();
  SmallVector<OpFoldResult> offsets = getMixedOffsets(),
                            sizes = getMixedSizes(),
                            strides = getMixedStrides();
  Value before = tensor::ExtractSliceOp::create(
      builder, loc, getPart().getType(), getInit(), offsets, sizes, strides);
  Value sum =
      SoftmaxBuilder(builder, loc)
          .elementwise(
              {before, getPart()}, getPart().getType().getElementType(),
              [](OpBuilder &nested, Location l, ValueRange args) -> Value {
                return arith::AddFOp::create(nested, l, args[0], args[1]);
              });
  return SmallVector<Value>{tensor::InsertSliceOp::create(
      builder, loc, sum, getInit(), offsets, sizes, strides)};
}

MutableOperandRange ParallelAccumulateOp::getUpdatedDestinations() {
  return getDestMutable();
}

Operation *ParallelAccumulateOp::getIteratingParent() {
  auto parallel =
      dyn_cast<InParallelOpInterface>(getOperation()->getParentOp());
  return parallel ? parallel->getParentOp() : nullptr;
}
