// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps whose weights are made against a reference from earlier blocks.

#include "ScoreSum.h"
#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Dialect/FA/Transforms/Utils.h"
#include "fa/Target/TargetInfo.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

namespace fa {
#define GEN_PASS_DEF_SPECULATEMAXPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-speculate-max"

static constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;

namespace {
/// A loop's merge, whose state it carries, and what is made of that afterwards.
struct Recurrence {
  scf::ForOp loop;
  OnlineSoftmaxOp merge;
  /// Which carried values the state is.
  unsigned max = 0, sum = 0, output = 0;
  /// The log-sum-exp after the loop, if there is one.
  linalg::GenericOp logSumExp;

  double scale() { return merge.getLog2Scale()->convertToDouble(); }
  Type weightType() { return getElementTypeOrSelf(merge.getValues()); }
};

/// Where the reference lies and how far the weights may go.
struct WeightRange {
  double headroom, limit;
  /// Weights below this can be shifted back by a power of two.
  double farLimit = 0;
};
} // namespace

//===----------------------------------------------------------------------===//
// What is matched
//===----------------------------------------------------------------------===//

/// Whether all users of a value are among those given.
static bool onlyUsedBy(Value value, ArrayRef<Operation *> users) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    return llvm::is_contained(users, user);
  });
}

/// The state that the loop carries for the merge, and nothing else.
static LogicalResult matchState(Recurrence &r, StringRef &reason) {
  reason = "the loop carries something other than a maximum, a sum and an "
           "output that are rescaled together";
  Operation *yield = r.loop.getBody()->getTerminator();
  unsigned *places[] = {&r.max, &r.sum, &r.output};
  if (r.loop.getNumRegionIterArgs() != std::size(places))
    return failure();
  for (auto [before, after, place] :
       llvm::zip(r.merge.getDpsInits(), r.merge->getResults(), places)) {
    BlockArgument carried = matchCarried(r.loop, before, after);
    if (!carried || !onlyUsedBy(carried, {r.merge}) ||
        !onlyUsedBy(after, {yield}))
      return failure();
    *place = carried.getArgNumber() - r.loop.getNumInductionVars();
  }
  return success();
}

/// What is made of the state: the output over the sum, and m + ln l.
static LogicalResult matchResults(Recurrence &r, StringRef &reason) {
  reason = "the maximum and the sum are used by more than a division and a "
           "log-sum-exp after the loop";
  Value max = r.loop.getResult(r.max), sum = r.loop.getResult(r.sum),
        output = r.loop.getResult(r.output);
  Operation *division = nullptr;
  for (Operation *user : sum.getUsers()) {
    auto generic = dyn_cast<linalg::GenericOp>(user);
    Value value = generic && generic->getNumResults() == 1
                      ? generic.getResult(0)
                      : Value();
    if (value && matchDivideOrZero(value) == ValuePair(output, sum)) {
      division = user;
      continue;
    }
    std::optional<ValuePair> lse = value ? matchAddLog(value) : std::nullopt;
    if (!lse || lse->second != sum || r.logSumExp)
      return failure();
    r.logSumExp = generic;
  }
  if (!division)
    return failure();
  if (!r.logSumExp)
    return success(max.use_empty());
  Value shift = matchAddLog(r.logSumExp.getResult(0))->first;
  auto areEqual = [](double x, double y) {
    return static_cast<float>(x) == static_cast<float>(y);
  };
  if (auto scaled = matchScaled(shift)) {
    if (!shift.hasOneUse())
      return failure();
    Operation *multiply = shift.getDefiningOp();
    return success(scaled->first == max && onlyUsedBy(max, {multiply}) &&
                   areEqual(kLog2E * scaled->second, r.scale()));
  }
  return success(shift == max && onlyUsedBy(max, {r.logSumExp}) &&
                 areEqual(kLog2E, r.scale()));
}

/// Matches a merge and the loop around it; else says what is against it.
static std::optional<Recurrence> matchRecurrence(OnlineSoftmaxOp merge,
                                                 StringRef &reason) {
  Recurrence r;
  r.merge = merge;
  r.loop = dyn_cast<scf::ForOp>(merge->getParentOp());
  if (!merge.getLog2Scale() || !merge.getUnnormalized()) {
    reason = "the weights are no powers of two of an output that is divided "
             "after the loop; run fa-defer-normalization and "
             "fa-fold-scale-exp2 first";
    return std::nullopt;
  }
  if (!r.loop || failed(matchState(r, reason)))
    return std::nullopt;
  if (!r.weightType().isF16() && !r.weightType().isBF16()) {
    reason = "the contraction reads weights in a type that is neither f16 nor "
             "bf16: there is no rounding to check them by";
    return std::nullopt;
  }
  std::optional<APFloat> start = matchFill(r.loop.getInitArgs()[r.max]);
  if (!start || !start->isInfinity() || !start->isNegative()) {
    reason = "the running maximum does not start from -inf";
    return std::nullopt;
  }
  if (failed(matchResults(r, reason)))
    return std::nullopt;
  return r;
}

/// Whether the schedule of the target has branches on values of tiles: on a
/// GPU only the one with warpgroup-wide products.
static bool canBranch(const TargetInfo &target, Recurrence &r) {
  if (target.kind != TargetInfo::Kind::NVIDIA)
    return true;
  RankedTensorType scores = r.merge.getScores().getType(),
                   values = r.merge.getValues().getType();
  TileProblem problem;
  problem.valueDim = values.getDimSize(1);
  problem.elementBits = values.getElementTypeBitWidth();
  WalkResult others = r.loop.walk([&](linalg::GenericOp op) {
    std::optional<MatrixProduct> product =
        op->getNumResults() == 1 ? matchMatrixProduct(op->getResult(0))
                                 : std::nullopt;
    if (!product)
      return WalkResult::advance();
    auto query = cast<RankedTensorType>(product->lhs.getType());
    // One product makes the scores, of the same type as the weights.
    if (problem.headDim || op->getParentOp() != r.loop ||
        query.getElementType() != values.getElementType())
      return WalkResult::interrupt();
    problem.headDim = query.getDimSize(1);
    return WalkResult::advance();
  });
  return !others.wasInterrupted() && problem.headDim > 0 &&
         takesWgmma(target, problem, scores.getDimSize(0),
                    scores.getDimSize(1));
}

//===----------------------------------------------------------------------===//
// The rewrite
//===----------------------------------------------------------------------===//

/// The loop carries one value more, as it is; which one it is.
static unsigned carry(IRRewriter &rewriter, scf::ForOp &loop, Value init) {
  unsigned number = loop.getNumRegionIterArgs();
  rewriter.setInsertionPoint(loop);
  FailureOr<LoopLikeOpInterface> replaced = loop.replaceWithAdditionalYields(
      rewriter, init,
      /*replaceInitOperandUsesInLoop=*/false,
      [](OpBuilder &, Location, ArrayRef<BlockArgument> added) {
        return SmallVector<Value>(added.begin(), added.end());
      });
  loop = cast<scf::ForOp>(replaced->getOperation());
  return number;
}

/// (R + log2 l) ln 2, or R + (headroom + log2 l) ln 2.
static void finishLogSumExp(IRRewriter &rewriter, Recurrence &r, Value sum,
                            bool subtractFirst, double headroom) {
  rewriter.setInsertionPoint(r.logSumExp);
  SoftmaxBuilder b(rewriter, r.loop.getLoc());
  Value lse = b.elementwise(
      {r.loop.getResult(r.max), sum}, rewriter.getF32Type(),
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        // A sum of weights is no denormal number.
        Value log = math::Log2Op::create(
            nested, l, args[1],
            arith::FastMathFlagsAttr::get(nested.getContext(),
                                          arith::FastMathFlags::afn));
        if (subtractFirst) {
          Value up = arith::AddFOp::create(
              nested, l, log,
              floatConstant(nested, l, nested.getF32Type(), headroom));
          return math::FmaOp::create(
              nested, l, up,
              floatConstant(nested, l, nested.getF32Type(), kLn2), args[0]);
        }
        Value sum = arith::AddFOp::create(nested, l, args[0], log);
        return arith::MulFOp::create(
            nested, l, sum,
            floatConstant(nested, l, nested.getF32Type(), kLn2));
      });
  rewriter.replaceOp(r.logSumExp, lse);
}

static void speculate(IRRewriter &rewriter, Recurrence &r,
                      const WeightRange &range) {
  OnlineSoftmaxOp merge = r.merge;
  bool keeps = !merge.getKeep().empty(), subtracts = merge.getSubtractFirst();
  SmallVector<unsigned> state = {r.max, r.sum, r.output};
  // Where weights are dropped the sum is of exact ones anyway.
  if (r.logSumExp && !keeps)
    state.push_back(carry(rewriter, r.loop, r.loop.getInitArgs()[r.sum]));
  // Blocks before this one are wary.
  unsigned until = carry(rewriter, r.loop, r.loop.getLowerBound());
  SmallVector<Value> carried;
  for (unsigned i : state)
    carried.push_back(r.loop.getRegionIterArg(i));
  rewriter.setInsertionPoint(merge);
  Location loc = merge.getLoc();
  auto step = SpeculatedSoftmaxOp::create(
      rewriter, loc, merge.getScores(), merge.getValues(), carried,
      r.loop.getInductionVar(), r.loop.getLowerBound(), r.loop.getStep(),
      r.loop.getRegionIterArg(until), APFloat(r.scale()), subtracts,
      APFloat(range.headroom), APFloat(range.limit), APFloat(range.farLimit),
      merge.getKeep().size());
  for (auto [from, to] : llvm::zip(merge.getKeep(), step.getKeep()))
    to.takeBody(from);
  // Of scores in log2 units a sum's last term is added where they are read.
  if (static_cast<float>(r.scale()) != 1 ||
      !moveSum(rewriter, merge.getScores(), step.getScore())) {
    OpBuilder::InsertionGuard guard(rewriter);
    Type index = rewriter.getIndexType();
    Block *block = rewriter.createBlock(&step.getScore(), {},
                                        {rewriter.getF32Type(), index, index},
                                        {loc, loc, loc});
    YieldOp::create(rewriter, loc, block->getArgument(0));
  }
  Operation *yield = r.loop.getBody()->getTerminator();
  rewriter.modifyOpInPlace(yield, [&] {
    for (auto [i, value] : llvm::zip(state, step.getNewState()))
      yield->setOperand(i, value);
    yield->setOperand(until, step.getNewUntil());
  });
  rewriter.eraseOp(merge);
  if (r.logSumExp)
    finishLogSumExp(rewriter, r, r.loop.getResult(keeps ? r.sum : state.back()),
                    subtracts, range.headroom);
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
struct SpeculateMaxPass : fa::impl::SpeculateMaxPassBase<SpeculateMaxPass> {
  using SpeculateMaxPassBase::SpeculateMaxPassBase;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    llvm::Expected<TargetInfo> info = lookupTarget(target);
    if (!info) {
      func.emitError(llvm::toString(info.takeError()));
      return signalPassFailure();
    }
    if (failed(checkOptions()))
      return signalPassFailure();
    SmallVector<OnlineSoftmaxOp> merges;
    func.walk([&](OnlineSoftmaxOp op) {
      if (isa<scf::ForOp>(op->getParentOp()))
        merges.push_back(op);
    });
    IRRewriter rewriter(&getContext());
    for (OnlineSoftmaxOp merge : merges) {
      StringRef reason;
      std::optional<Recurrence> r = matchRecurrence(merge, reason);
      if (r && !canBranch(*info, *r)) {
        r = std::nullopt;
        reason = "the target's schedule for these tiles has no branches on "
                 "their values";
      }
      if (!r)
        remark::missed(merge.getLoc(), remarkOptions("NotSpeculated"))
            << reason;
      else if (failed(rewrite(rewriter, *r)))
        return signalPassFailure();
    }
    if (merges.empty())
      remark::missed(func.getLoc(), remarkOptions("NotSpeculated"))
          << "no loop carries a running maximum";
    if (failed(cleanUp(func)))
      signalPassFailure();
  }

  remark::RemarkOpts remarkOptions(StringRef name) {
    return remark::RemarkOpts::name(name)
        .category(DEBUG_TYPE)
        .function(getOperation().getName());
  }

  LogicalResult checkOptions() {
    if (!std::isnan(headroom) && !(headroom >= 0 && headroom <= 126))
      return getOperation().emitError()
             << "expected headroom in [0, 126], got "
             << llvm::formatv("{0}", double(headroom)).str()
             << "; leave it out to choose by the weights' type";
    if (limit != 0 && !(limit > 1 && limit <= 0x1p60))
      return getOperation().emitError()
             << "expected limit in (1, 2^60], got "
             << llvm::formatv("{0}", double(limit)).str()
             << "; leave it out to choose by the weights' type";
    return success();
  }

  LogicalResult rewrite(IRRewriter &rewriter, Recurrence &r) {
    Type type = r.weightType();
    WeightRange range =
        type.isF16() ? WeightRange{0, 32768} : WeightRange{63, 2};
    if (!std::isnan(headroom))
      range.headroom = headroom;
    if (limit != 0)
      range.limit = limit;
    if (type.isF16() && range.limit > 65504)
      return r.loop.emitError("expected a limit that f16 weights can reach, at "
                              "most 65504, got ")
             << llvm::formatv("{0}", range.limit).str()
             << "; leave it out to choose by the weights' type";
    // f16 ends where its weights' limit is; and a large reference does not
    // move by a little.
    if (!type.isF16() && !r.merge.getSubtractFirst())
      range.farLimit = std::exp2(126 - std::ceil(range.headroom));
    if (range.farLimit <= range.limit)
      range.farLimit = 0;
    remark::passed(r.loop.getLoc(), remarkOptions("Speculated"))
        << llvm::formatv(
               "weights are computed with a reference that the loop "
               "carries, with headroom {0} and limit {1}{2}",
               range.headroom, range.limit,
               r.logSumExp ? ", and the log-sum-exp has a sum of its own" : "")
               .str();
    speculate(rewriter, r, range);
    return success();
  }
};
} // namespace
