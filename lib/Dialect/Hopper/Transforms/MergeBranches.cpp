// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Branches that one side of an earlier branch rules out, moved into its other
// side.

#include "fa/Dialect/Hopper/Transforms/Utils.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

/// The side of a branch on which its result `i` is false, or null.
static Block *falseSide(scf::IfOp branch, unsigned i) {
  for (Block *side : {branch.thenBlock(), branch.elseBlock()})
    if (matchPattern(side->getTerminator()->getOperand(i), m_Zero()))
      return side;
  return nullptr;
}

/// Whether `op` could be where `place` is, if it read what that yields.
static bool couldBeAt(Operation *op, Operation *place) {
  bool could = true;
  op->walk([&](Operation *inner) {
    for (Value v : inner->getOperands()) {
      Operation *def = v.getDefiningOp();
      could &= !def || def == place || def->getBlock() != place->getBlock() ||
               def->isBeforeInBlock(place);
    }
  });
  return could;
}

/// Moves `later` to the end of the sides of `branch`, of which one does not
/// take it.
static void mergeBranch(scf::IfOp branch, scf::IfOp later, Block *without) {
  OpBuilder b(branch);
  SmallVector<Type> types(branch.getResultTypes());
  llvm::append_range(types, later.getResultTypes());
  auto merged = scf::IfOp::create(b, branch.getLoc(), types,
                                  branch.getCondition(), /*addThenBlock=*/false,
                                  /*addElseBlock=*/false);
  merged->setDiscardableAttrs(branch->getDiscardableAttrDictionary());
  for (Block *side : {branch.thenBlock(), branch.elseBlock()}) {
    Operation *yield = side->getTerminator();
    IRMapping map;
    map.map(branch.getResults(), yield->getOperands());
    SmallVector<Value> values(yield->getOperands());
    if (side == without) {
      for (Value v : later.elseYield().getOperands())
        values.push_back(map.lookupOrDefault(v));
    } else {
      b.setInsertionPoint(yield);
      llvm::append_range(values, b.clone(*later, map)->getResults());
    }
    yield->setOperands(values);
  }
  merged.getThenRegion().takeBody(branch.getThenRegion());
  merged.getElseRegion().takeBody(branch.getElseRegion());
  unsigned count = branch.getNumResults();
  branch.replaceAllUsesWith(merged.getResults().take_front(count));
  later.replaceAllUsesWith(merged.getResults().drop_front(count));
  later.erase();
  branch.erase();
}

/// The elements of the largest tile that a branch gives or computes with.
static int64_t largestOf(scf::IfOp branch) {
  int64_t most = 0;
  auto look = [&](Type type) {
    if (auto tile = dyn_cast<RankedTensorType>(type);
        tile && tile.hasStaticShape())
      most = std::max(most, tile.getNumElements());
  };
  llvm::for_each(branch.getResultTypes(), look);
  branch.walk([&](linalg::LinalgOp op) {
    llvm::for_each(op->getOperandTypes(), look);
  });
  return most;
}

/// A tile that is wider than those of the first branch is better computed under
/// what follows that.
static bool isNoWider(scf::IfOp branch, scf::IfOp later) {
  return largestOf(later) <= largestOf(branch);
}

void fa::hopper::mergeBranches(scf::ForOp loop) {
  SmallVector<scf::IfOp> all(loop.getBody()->getOps<scf::IfOp>());
  for (scf::IfOp later : all) {
    auto branch = later.getCondition().getDefiningOp<scf::IfOp>();
    if (!branch || branch->getBlock() != later->getBlock() ||
        !branch.elseBlock() || !later.elseBlock() ||
        !llvm::hasSingleElement(*later.elseBlock()) ||
        branch->getDiscardableAttrDictionary() !=
            later->getDiscardableAttrDictionary())
      continue;
    unsigned i = cast<OpResult>(later.getCondition()).getResultNumber();
    Block *without = falseSide(branch, i);
    if (without && couldBeAt(later, branch) && isNoWider(branch, later))
      mergeBranch(branch, later, without);
  }
}
