// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What tiles must have room for, read off the program around a step.

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Granularity.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Transforms/Utils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa;

namespace {
/// The coordinates that a block's body reads; null where it does not.
struct Coordinates {
  Value row, column;
  explicit Coordinates(linalg::GenericOp op) {
    for (auto index : op.getBody()->getOps<linalg::IndexOp>())
      (index.getDim() ? column : row) = index;
  }
};
} // namespace

/// Whether something is read for each element, not for rows and for keys, nor
/// for blocks of both.
static bool isReadByElement(tensor::ExtractOp read, const Coordinates &at) {
  if (!at.row || !at.column)
    return false;
  auto row = getGranularity(read, at.row),
       column = getGranularity(read, at.column);
  return row && column && (row == 1 || column == 1);
}

/// The operations between the products and the scores.
static void visitTheWay(Value scores,
                        llvm::function_ref<void(linalg::GenericOp)> visit) {
  auto generic = scores.getDefiningOp<linalg::GenericOp>();
  if (!generic || generic.getNumReductionLoops())
    return;
  visit(generic);
  for (Value input : generic.getDpsInputs())
    visitTheWay(input, visit);
}

/// Whether something holds of one of them.
static bool anyOnTheWay(Value scores,
                        llvm::function_ref<bool(linalg::GenericOp)> holds) {
  bool any = false;
  visitTheWay(scores,
              [&](linalg::GenericOp generic) { any |= holds(generic); });
  return any;
}

/// Whether it needs something that is read for each element.
static bool readsElements(linalg::GenericOp generic) {
  Coordinates at(generic);
  return llvm::any_of(
      generic.getBody()->getOps<tensor::ExtractOp>(),
      [&](tensor::ExtractOp read) { return isReadByElement(read, at); });
}

/// Whether it does more than scale and mask by coordinates and by what is read
/// for rows and for keys.
static bool computesScores(linalg::GenericOp generic) {
  for (Operation &op : generic.getBody()->without_terminator()) {
    if (isa<math::MathDialect>(op.getDialect()))
      return true;
    auto multiply = dyn_cast<arith::MulFOp>(op);
    bool scales = multiply && llvm::any_of(op.getOperands(), [](Value v) {
                    return matchPattern(v, m_Constant());
                  });
    bool computes = isa<arith::AddFOp, arith::SubFOp, arith::MulFOp,
                        arith::DivFOp, arith::SIToFPOp, arith::UIToFPOp>(op);
    if (computes && !scales)
      return true;
  }
  return false;
}

/// Whether it depends on the places of rows and of keys: where no score
/// function reads these, a mask does.
static bool readsPlaces(linalg::GenericOp generic) {
  Coordinates at(generic);
  return at.row && at.column;
}

/// Comparisons of an element's places, and what is read at these.
static int64_t testsOfPlaces(linalg::GenericOp generic) {
  if (!readsPlaces(generic))
    return 0;
  int64_t tests = llvm::count_if(
      *generic.getBody(), llvm::IsaPred<arith::CmpIOp, tensor::ExtractOp>);
  return std::max<int64_t>(tests, 1);
}

/// Whether scores are computed from something that is read once for a block of
/// rows and keys: blocks[i / 128, j / 128].
static bool hasBlockMask(Value scores) {
  auto generic = scores.getDefiningOp<linalg::GenericOp>();
  if (!generic || generic.getNumLoops() != 2 || generic.getNumReductionLoops())
    return false;
  Coordinates at(generic);
  if (!at.row || !at.column)
    return false;
  auto reads = generic.getBody()->getOps<tensor::ExtractOp>();
  return llvm::any_of(reads, [&](tensor::ExtractOp read) {
    return getGranularity(read, at.row) > 1 &&
           getGranularity(read, at.column) > 1;
  });
}

/// What scores of either step are computed from.
static TileProblem problemOfScores(Value scores) {
  TileProblem problem;
  problem.elementReads = anyOnTheWay(scores, readsElements);
  problem.scoreFunction =
      problem.elementReads || anyOnTheWay(scores, computesScores);
  visitTheWay(scores, [&](linalg::GenericOp generic) {
    problem.maskTests += testsOfPlaces(generic);
  });
  return problem;
}

TileProblem fa::problemOf(OnlineSoftmaxOp step) {
  TileProblem problem = problemOfScores(step.getScores());
  // The maximum is used for nothing else.
  problem.logSumExp = !step.getNewMax().use_empty();
  problem.blockMask = hasBlockMask(step.getScores());
  problem.dropout = !step.getKeep().empty();
  return problem;
}

TileProblem fa::problemOf(SoftmaxDeltaOp step) {
  TileProblem problem = problemOfScores(step.getScores());
  problem.dropout = !step.keepsAll();
  return problem;
}

TileProblem fa::problemOf(SoftmaxGradOp step, bool ordered) {
  TileProblem problem = problemOfScores(step.getScores());
  problem.orderedTerms = ordered && !step.getCapturedGrads().empty();
  problem.gradients = true;
  problem.dropout = !step.keepsAll();
  problem.sharesKeys = isa<scf::ForOp>(step->getParentOp());
  Value given = step.getAdjoint().front().getArgument(3);
  YieldAdjointOp yield = step.getAdjointYield();
  problem.otherTerms =
      llvm::any_of(yield.getTerms(), [&](Value term) { return term != given; });
  problem.keepsProducts = llvm::any_of(
      yield->getOperands(), [&](Value v) { return step.readsProduct(v); });
  return problem;
}
