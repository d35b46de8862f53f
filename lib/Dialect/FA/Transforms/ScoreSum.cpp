// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ScoreSum.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/IR/TileRanges.h"
#include "fa/Dialect/FA/Transforms/Utils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fa;

namespace {
/// A score in a generic's body, factor * first + bias or with one of them
/// subtracted.
struct Parts {
  /// What reads the score.
  OpOperand *score;
  Operation *sum;
  /// Which operand of the sum the bias is.
  unsigned biasAt;
  /// The other one, without its factor, which may be missing.
  Value first, factor;
  Value bias() const { return sum->getOperand(biasAt); }
};
} // namespace

//===----------------------------------------------------------------------===//
// What is matched
//===----------------------------------------------------------------------===//

/// Whether `v` is computed of an argument of the body.
static bool readsArgument(Value v, Block *body) {
  auto isArgument = [&](Value x) {
    auto argument = dyn_cast<BlockArgument>(x);
    return argument && argument.getOwner() == body;
  };
  return isArgument(v) ||
         llvm::any_of(sliceInBlock(v, *body), [&](Operation *op) {
           return op->getNumRegions() ||
                  llvm::any_of(op->getOperands(), isArgument);
         });
}

/// Whether `v` knows nothing of a product of queries and keys, and is finite
/// where what is read outside of the body is, also where nothing is seen: sums
/// and products of coordinates.
static bool isFiniteBias(Value v, Block *body) {
  if (readsArgument(v, body))
    return false;
  SmallVector<Value> work{v};
  DenseSet<Value> seen;
  while (!work.empty()) {
    Value next = work.pop_back_val();
    Operation *def = next.getDefiningOp();
    if (!def || def->getBlock() != body ||
        isa<arith::SIToFPOp, arith::UIToFPOp>(def) || !seen.insert(next).second)
      continue;
    if (!isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::NegFOp,
             arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp,
             arith::MinNumFOp, math::AbsFOp, math::ClampFOp>(def))
      return false;
    llvm::append_range(work, def->getOperands());
  }
  return true;
}

static std::optional<Parts> matchParts(linalg::GenericOp op) {
  if (!op || !isElementwise(op) || op.getNumDpsInputs() != 1 ||
      op.getNumLoops() != 2 ||
      !llvm::all_of(op.getIndexingMapsArray(),
                    [](AffineMap map) { return map.isIdentity(); }))
    return std::nullopt;
  Block *body = op.getBody();
  Parts parts;
  parts.score = scoreOperand(op);
  if (!parts.score)
    return std::nullopt;
  parts.sum = parts.score->get().getDefiningOp();
  if (!isa_and_nonnull<arith::AddFOp, arith::SubFOp>(parts.sum) ||
      parts.sum->getBlock() != body)
    return std::nullopt;
  auto isBias = [&](unsigned i) {
    return isFiniteBias(parts.sum->getOperand(i), body);
  };
  // bias - x would be -inf where x is inf.
  if (!isBias(1) && !(isa<arith::AddFOp>(parts.sum) && isBias(0)))
    return std::nullopt;
  parts.biasAt = isBias(1);
  parts.first = parts.sum->getOperand(1 - parts.biasAt);
  if (arith::MulFOp mul = matchScaling(parts.first)) {
    parts.first = mul.getLhs();
    parts.factor = mul.getRhs();
  }
  return parts;
}

/// Whether two operations are the same but for their operands.
static bool isAlike(Operation *a, Operation *b) {
  return a && b && a->getName() == b->getName() && !a->getNumRegions() &&
         !b->getNumRegions() && isPure(a) &&
         a->getAttrDictionary() == b->getAttrDictionary() &&
         a->getResultTypes() == b->getResultTypes() &&
         a->getNumOperands() == b->getNumOperands();
}

/// Whether two bodies compute the same.
static bool isSame(Value first, Value second) {
  SmallVector<std::pair<Value, Value>> work{{first, second}};
  DenseSet<std::pair<Value, Value>> seen;
  while (!work.empty()) {
    auto [a, b] = work.pop_back_val();
    if (a == b || !seen.insert({a, b}).second)
      continue;
    auto ofA = dyn_cast<BlockArgument>(a), ofB = dyn_cast<BlockArgument>(b);
    if (ofA || ofB) {
      if (ofA && ofB && ofA.getArgNumber() == ofB.getArgNumber() &&
          isa<linalg::GenericOp>(ofA.getOwner()->getParentOp()) &&
          isa<linalg::GenericOp>(ofB.getOwner()->getParentOp()))
        continue;
      return false;
    }
    Operation *defA = a.getDefiningOp(), *defB = b.getDefiningOp();
    if (!isAlike(defA, defB) || cast<OpResult>(a).getResultNumber() !=
                                    cast<OpResult>(b).getResultNumber())
      return false;
    for (auto [x, y] : llvm::zip(defA->getOperands(), defB->getOperands()))
      work.push_back({x, y});
  }
  return true;
}

//===----------------------------------------------------------------------===//
// The rewrite
//===----------------------------------------------------------------------===//

bool fa::moveSum(RewriterBase &rewriter, Value scores, Region &score) {
  SmallVector<linalg::GenericOp> generics = scoreGenerics(scores);
  SmallVector<Parts> all;
  for (linalg::GenericOp op : generics) {
    std::optional<Parts> parts = matchParts(op);
    if (!parts || (!all.empty() && (all[0].biasAt != parts->biasAt ||
                                    !isSame(all[0].sum->getResult(0),
                                            parts->sum->getResult(0)))))
      return false;
    all.push_back(*parts);
  }
  const Parts &parts = all.front();
  Block *body = generics.front().getBody();
  OpBuilder::InsertionGuard guard(rewriter);
  Location loc = scores.getLoc();
  Type real = getElementTypeOrSelf(scores), index = rewriter.getIndexType();
  Block *block = rewriter.createBlock(&score, score.end(), {real, index, index},
                                      {loc, loc, loc});
  Value x = block->getArgument(0);
  if (parts.factor)
    x = arith::MulFOp::create(rewriter, loc, x, parts.factor);
  IRMapping map;
  for (Operation *op : sliceInBlock(parts.bias(), *body)) {
    if (auto coordinate = dyn_cast<linalg::IndexOp>(op))
      map.map(coordinate.getResult(),
              block->getArgument(1 + coordinate.getDim()));
    else
      rewriter.clone(*op, map);
  }
  Value operands[2];
  operands[parts.biasAt] = map.lookupOrDefault(parts.bias());
  operands[1 - parts.biasAt] = x;
  Operation *sum = rewriter.clone(*parts.sum);
  sum->setOperands(operands);
  YieldOp::create(rewriter, loc, sum->getResult(0));
  for (const Parts &parts : all)
    rewriter.modifyOpInPlace(parts.score->getOwner(),
                             [&] { parts.score->set(parts.first); });
  return true;
}
