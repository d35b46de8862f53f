// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// exp -> exp2, with the scale folded into one fma, or the fma's factor folded
// into the score function.

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
#include "mlir/IR/Matchers.h"

namespace fa {
#define GEN_PASS_DEF_FOLDSCALEEXP2PASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-fold-scale-exp2"

static constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;

namespace {
/// What a block's scores can be divided by without an operation more, so that
/// the fma before exp2 multiplies by it.
struct ScoreUnit {
  double size;
  /// A sum: what is added takes the factor, and the scores are in log2 units.
  bool isSum;
  bool operator!=(const ScoreUnit &other) const {
    return size != other.size || isSum != other.isSum;
  }
};

/// Multiplies by a constant in a score generic's body, where that costs least.
class Multiplier {
public:
  Multiplier(IRRewriter &rewriter, linalg::GenericOp op, double factor)
      : rewriter(rewriter), op(op), loop(op->getParentOfType<scf::ForOp>()),
        factor(factor) {}
  /// The operations more that `v` times the factor takes than `v`.
  int extraCost(Value v);
  Value multiply(Value v);

private:
  bool isUniform(Value v);
  Operation *linearOp(Value v);
  Value times(Value v);

  IRRewriter &rewriter;
  linalg::GenericOp op;
  scf::ForOp loop;
  double factor;
};
} // namespace

/// Whether `v` is the same for all blocks of keys: its product is made once.
bool Multiplier::isUniform(Value v) {
  return loop ? loop.isDefinedOutsideOfLoop(v) : matchPattern(v, m_Constant());
}

/// The operation that makes `v`, if a factor of some of its operands is one of
/// it, and nothing else reads it.
Operation *Multiplier::linearOp(Value v) {
  Operation *def = v.getDefiningOp();
  bool isLinear = isa_and_nonnull<arith::NegFOp, arith::DivFOp, arith::MulFOp,
                                  arith::AddFOp, arith::SubFOp>(def) &&
                  def->getBlock() == op.getBody() && v.hasOneUse();
  return isLinear ? def : nullptr;
}

int Multiplier::extraCost(Value v) {
  if (isUniform(v))
    return 0;
  Operation *def = linearOp(v);
  if (!def)
    return 1;
  Value x = def->getOperand(0);
  if (isa<arith::NegFOp, arith::DivFOp>(def))
    return extraCost(x);
  Value y = def->getOperand(1);
  if (isa<arith::MulFOp>(def))
    return std::min(extraCost(x), extraCost(y));
  // A sum and one of two products are an fma.
  auto isProduct = [](Value v) { return v.getDefiningOp<arith::MulFOp>(); };
  bool newFma =
      !isProduct(x) && !isProduct(y) &&
      ((!isUniform(x) && !linearOp(x)) || (!isUniform(y) && !linearOp(y)));
  return extraCost(x) + extraCost(y) - newFma;
}

Value Multiplier::times(Value v) {
  Value c = arith::ConstantOp::create(
      rewriter, v.getLoc(), rewriter.getFloatAttr(v.getType(), factor));
  return arith::MulFOp::create(rewriter, v.getLoc(), v, c);
}

Value Multiplier::multiply(Value v) {
  if (isUniform(v) && loop) {
    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPoint(loop);
    return times(v);
  }
  Operation *def = linearOp(v);
  if (!def)
    return times(v);
  SmallVector<Value> operands(def->getOperands());
  if (isa<arith::AddFOp, arith::SubFOp>(def)) {
    for (Value &operand : operands)
      operand = multiply(operand);
  } else {
    bool second = isa<arith::MulFOp>(def) &&
                  extraCost(operands[1]) < extraCost(operands[0]);
    operands[second] = multiply(operands[second]);
  }
  Operation *copy = rewriter.clone(*def);
  copy->setOperands(operands);
  return copy->getResult(0);
}

/// What the scores of a generic can be divided by.
static std::optional<ScoreUnit> matchUnit(IRRewriter &rewriter,
                                          linalg::GenericOp op) {
  if (!isElementwise(op) || op.getNumDpsInputs() != 1)
    return std::nullopt;
  OpOperand *score = scoreOperand(op);
  if (!score || !score->get().hasOneUse())
    return std::nullopt;
  Value value = score->get();
  if (arith::MulFOp mul = matchScaling(value)) {
    APFloat factor(0.0f);
    matchPattern(mul.getRhs(), m_ConstantFloat(&factor));
    return ScoreUnit{factor.convertToDouble(), false};
  }
  Operation *sum = value.getDefiningOp();
  if (isa_and_nonnull<arith::AddFOp, arith::SubFOp>(sum) &&
      Multiplier(rewriter, op, kLog2E).extraCost(value) <= 0)
    return ScoreUnit{kLn2, true};
  return std::nullopt;
}

/// The unit that all of a score block's generics have.
static std::optional<ScoreUnit> commonUnit(IRRewriter &rewriter, Value scores) {
  std::optional<ScoreUnit> common;
  for (linalg::GenericOp op : scoreGenerics(scores)) {
    std::optional<ScoreUnit> unit = op ? matchUnit(rewriter, op) : std::nullopt;
    if (!unit || (common && *common != *unit))
      return std::nullopt;
    common = unit;
  }
  return common;
}

/// Divides a block's scores by their unit.
static void divideScores(IRRewriter &rewriter, Value scores, ScoreUnit unit) {
  for (linalg::GenericOp op : scoreGenerics(scores)) {
    OpOperand *score = scoreOperand(op);
    Value value = score->get();
    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPointAfterValue(value);
    Value divided = unit.isSum
                        ? Multiplier(rewriter, op, kLog2E).multiply(value)
                        : value.getDefiningOp<arith::MulFOp>().getLhs();
    rewriter.modifyOpInPlace(score->getOwner(), [&] { score->set(divided); });
  }
}

/// Constants up to this one leave products of queries and keys what they are.
static constexpr double kModerate = 1 << 16;

/// Whether a score generic can make its scores as large as it likes: of numbers
/// that are read for each element, of large constants, of exponentials.
static bool mayEnlarge(linalg::GenericOp op) {
  for (Operation &inner : op.getBody()->without_terminator()) {
    if (isa<math::ExpOp, math::Exp2Op, math::ExpM1Op, math::PowFOp>(inner))
      return true;
    if (isa<tensor::ExtractOp>(inner) &&
        isa<FloatType>(inner.getResult(0).getType()))
      return true;
    for (Value operand : inner.getOperands()) {
      APFloat constant(0.0f);
      if (matchPattern(operand, m_ConstantFloat(&constant)) &&
          constant.isFinite() &&
          std::abs(constant.convertToDouble()) > kModerate)
        return true;
    }
  }
  return false;
}

/// Whether scores may be so large that their products with a constant differ by
/// more than they do.
static bool mayBeLarge(Value scores) {
  if (auto branch = scores.getDefiningOp<scf::IfOp>()) {
    unsigned i = cast<OpResult>(scores).getResultNumber();
    return llvm::any_of(branch->getRegions(), [&](Region &side) {
      return !side.empty() &&
             mayBeLarge(side.front().getTerminator()->getOperand(i));
    });
  }
  auto op = scores.getDefiningOp<linalg::GenericOp>();
  return op && op.getNumReductionLoops() == 0 &&
         (mayEnlarge(op) || llvm::any_of(op.getDpsInputs(), mayBeLarge));
}

/// Whether scores are made of products that the option `large-products` names.
static bool areOfLargeProducts(Value scores, StringRef products) {
  return llvm::any_of(scoreGenerics(scores), [&](linalg::GenericOp op) {
    return op && llvm::any_of(op.getDpsInputs(), [&](Value v) {
             auto made = v.getDefiningOp<linalg::GenericOp>();
             if (!made || made.getNumReductionLoops() == 0)
               return made && areOfLargeProducts(v, products);
             Type type = getElementTypeOrSelf(made.getDpsInputs().front());
             return products == "all" ||
                    (products == "wide" && type.getIntOrFloatBitWidth() >= 32);
           });
  });
}

/// exp(x * scale - shift) as exp2(fma(x, c * scale, -(shift * c))), c being
/// log2(e) times the unit of both. Where x may be large that is no 1 for
/// x = shift, and where it is a maximum of a row, once a step, it should be:
/// there, where the scale is 1, as exp2((x - shift) * c). Whether it is the
/// first of the two.
static bool isScaledExp2(linalg::GenericOp op) {
  return op.getNumLoops() != 1 &&
         !mayBeLarge(matchExpDifference(op.getResult(0))->first);
}

/// Writes it so; `isMade` where -(shift * c) is what the shift has become.
static void foldExp(IRRewriter &rewriter, linalg::GenericOp op, double scale,
                    bool isMade) {
  auto [x, shift] = *matchExpDifference(op.getResult(0));
  rewriter.setInsertionPoint(op);
  SoftmaxBuilder b(rewriter, op.getLoc());
  if (!isMade && !isScaledExp2(op)) {
    rewriter.replaceOp(op, b.exp2Difference(x, shift, kLog2E));
    return;
  }
  if (!isMade)
    shift = b.scale(shift, -kLog2E);
  rewriter.replaceOp(op, b.scaledExp2(x, shift, kLog2E * scale));
}

/// Whether an operation cuts a slice, or pads one with zeros: factors of what
/// it reads are factors of what it gives.
static bool isSliceOrPadding(Operation *op) {
  auto pad = dyn_cast_if_present<tensor::PadOp>(op);
  Value padding = pad ? pad.getConstantPaddingValue() : Value();
  return isa_and_nonnull<tensor::ExtractSliceOp>(op) ||
         (padding && matchPattern(padding, m_AnyZeroFloat()));
}

/// What slices, padded or not, are cut from.
static Value sourceOfSlices(Value v) {
  while (isSliceOrPadding(v.getDefiningOp()))
    v = v.getDefiningOp()->getOperand(0);
  return v;
}

/// Whether slices of `whole` are read as nothing but shifts of `exponentials`.
static bool areShifts(Value whole,
                      const llvm::SetVector<Operation *> &exponentials) {
  return llvm::all_of(whole.getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (isSliceOrPadding(user))
      return areShifts(user->getResult(0), exponentials);
    return isa<tensor::DimOp>(user) ||
           (exponentials.contains(user) && use.getOperandNumber() == 1);
  });
}

/// Multiplies what each iteration of a forall inserts into one of its results;
/// false where it is not one insertion.
static bool scaleWhereMade(IRRewriter &rewriter, Value whole, double c) {
  auto forall = whole.getDefiningOp<scf::ForallOp>();
  if (!forall)
    return false;
  SmallVector<Operation *> writes = forall.getCombiningOps(
      forall.getTiedBlockArgument(cast<OpResult>(whole)));
  auto insert = llvm::hasSingleElement(writes)
                    ? dyn_cast<tensor::ParallelInsertSliceOp>(writes[0])
                    : tensor::ParallelInsertSliceOp();
  if (!insert)
    return false;
  // Whole tiles, and not what of them lies within the matrix.
  OpOperand *made = &insert.getSourceMutable();
  auto slice = made->get().getDefiningOp<tensor::ExtractSliceOp>();
  if (slice && slice->hasOneUse())
    made = &slice.getSourceMutable();
  rewriter.setInsertionPointAfterValue(made->get());
  SoftmaxBuilder b(rewriter, forall.getLoc());
  Value scaled = b.scale(made->get(), c);
  rewriter.modifyOpInPlace(made->getOwner(), [&] { made->set(scaled); });
  return true;
}

/// The exponentials whose shifts are rows that a grid has made for them alone,
/// a gradient's log-sum-exp: those rows are multiplied there, once, and not in
/// each block of keys that meets them.
static llvm::SetVector<Operation *>
scaleShifts(IRRewriter &rewriter, ArrayRef<linalg::GenericOp> exponentials) {
  llvm::SetVector<Operation *> folded;
  for (linalg::GenericOp op : exponentials)
    if (isScaledExp2(op))
      folded.insert(op);
  llvm::MapVector<Value, SmallVector<Operation *>> bySource;
  for (Operation *op : folded)
    bySource[sourceOfSlices(op->getOperand(1))].push_back(op);
  llvm::SetVector<Operation *> scaled;
  for (auto &[whole, readers] : bySource)
    if (areShifts(whole, folded) && scaleWhereMade(rewriter, whole, -kLog2E))
      scaled.insert_range(readers);
  return scaled;
}

/// The unit that a merge's scores can be divided by: where a loop carries their
/// maximum from -inf, which alone is the same number in both units, and nothing
/// but the merge reads them.
static std::optional<ScoreUnit> unitOf(IRRewriter &rewriter,
                                       OnlineSoftmaxOp merge, bool isLarge) {
  auto loop = dyn_cast<scf::ForOp>(merge->getParentOp());
  BlockArgument max = matchCarried(loop, merge.getMax(), merge.getNewMax());
  if (!max || isLarge)
    return std::nullopt;
  auto areAllowed = [&](Value v, Operation *other) {
    return llvm::all_of(v.getUsers(), [&](Operation *user) {
      return user == other || isa<tensor::DimOp>(user);
    });
  };
  std::optional<APFloat> start = matchFill(loop.getTiedLoopInit(max)->get());
  if (!start || !start->isInfinity() || !start->isNegative() ||
      !areAllowed(max, merge) ||
      !areAllowed(merge.getNewMax(), loop.getBody()->getTerminator()) ||
      !areAllowed(merge.getScores(), merge))
    return std::nullopt;
  return commonUnit(rewriter, merge.getScores());
}

/// Takes the maximum of the divided scores and scales it after the loop.
static void unscaleMaximum(IRRewriter &rewriter, OnlineSoftmaxOp merge,
                           ScoreUnit unit) {
  divideScores(rewriter, merge.getScores(), unit);
  auto loop = cast<scf::ForOp>(merge->getParentOp());
  Value max = loop.getTiedLoopResult(cast<BlockArgument>(merge.getMax()));
  if (max.use_empty())
    return;
  // Not the uses made below: of the maximum, and of its size if dynamic.
  SmallVector<OpOperand *> uses;
  for (OpOperand &use : max.getUses())
    uses.push_back(&use);
  rewriter.setInsertionPointAfter(loop);
  SoftmaxBuilder b(rewriter, loop.getLoc());
  Value scaled = b.scale(max, unit.size);
  for (OpOperand *use : uses)
    rewriter.modifyOpInPlace(use->getOwner(), [&] { use->set(scaled); });
}

/// A merge's exponentials are powers of two, and its scores in a unit that
/// costs nothing.
static void foldMerge(IRRewriter &rewriter, OnlineSoftmaxOp merge,
                      StringRef products) {
  bool isLarge = mayBeLarge(merge.getScores()) ||
                 areOfLargeProducts(merge.getScores(), products);
  std::optional<ScoreUnit> unit = unitOf(rewriter, merge, isLarge);
  if (unit)
    unscaleMaximum(rewriter, merge, *unit);
  rewriter.modifyOpInPlace(merge, [&] {
    // A sum is in log2 units itself.
    merge.setLog2Scale(APFloat(!unit         ? kLog2E
                               : unit->isSum ? 1.0
                                             : kLog2E * unit->size));
    merge.setSubtractFirst(isLarge);
  });
}

/// Takes the scale out of scores that are used for nothing but one exponential,
/// which is to multiply by it: of a gradient's weights, exp(s - lse).
static std::optional<double> takeScale(IRRewriter &rewriter,
                                       linalg::GenericOp exponential) {
  Value scores = matchExpDifference(exponential.getResult(0))->first;
  if (exponential.getNumLoops() != 2 || !scores.hasOneUse() ||
      mayBeLarge(scores))
    return std::nullopt;
  std::optional<ScoreUnit> unit = commonUnit(rewriter, scores);
  if (!unit || unit->isSum)
    return std::nullopt;
  divideScores(rewriter, scores, *unit);
  return unit->size;
}

namespace {
struct FoldScaleExp2Pass : fa::impl::FoldScaleExp2PassBase<FoldScaleExp2Pass> {
  using FoldScaleExp2PassBase::FoldScaleExp2PassBase;
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (largeProducts != "none" && largeProducts != "wide" &&
        largeProducts != "all") {
      func.emitError()
          << "expected large-products to be none, wide or all, got "
          << largeProducts.getValue();
      return signalPassFailure();
    }
    IRRewriter rewriter(&getContext());
    SmallVector<OnlineSoftmaxOp> merges;
    func.walk([&](OnlineSoftmaxOp op) { merges.push_back(op); });
    for (OnlineSoftmaxOp merge : merges)
      if (!merge.getLog2Scale())
        foldMerge(rewriter, merge, largeProducts);
    SmallVector<linalg::GenericOp> exponentials;
    func.walk([&](linalg::GenericOp op) {
      if (op->getNumResults() == 1 && matchExpDifference(op.getResult(0)))
        exponentials.push_back(op);
    });
    llvm::SetVector<Operation *> scaled = scaleShifts(rewriter, exponentials);
    for (linalg::GenericOp op : exponentials)
      foldExp(rewriter, op, takeScale(rewriter, op).value_or(1.0),
              scaled.contains(op));
    if (failed(cleanUp(func)))
      signalPassFailure();
  }
};
} // namespace
