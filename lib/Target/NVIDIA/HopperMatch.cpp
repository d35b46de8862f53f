// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What fa-schedule-hopper recognises: a loop with two contractions whose
// operands TMA can load, and masks that cut only the last blocks.

#include "HopperSchedule.h"

#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

//===----------------------------------------------------------------------===//
// Contractions and their tiles
//===----------------------------------------------------------------------===//

bool fa::nvidia::canLoadByTMA(Value v, std::string &why) {
  auto type = cast<RankedTensorType>(v.getType());
  std::string name;
  llvm::raw_string_ostream(name) << type;
  if (!type.hasStaticShape() || type.getDimSize(0) > RingType::maxRows ||
      type.getDimSize(0) < 8 || type.getDimSize(0) % 8) {
    why = "expected a multiple of 8 rows, at most " +
          std::to_string(RingType::maxRows) + ", got the tile " + name;
    return false;
  }
  if (type.getDimSize(1) % 8 || type.getDimSize(1) < 8) {
    why = "rows of " + name + " are not whole chunks of 16 bytes";
    return false;
  }
  if (type.getDimSize(1) > RingType::maxCols) {
    why = "the tile " + name + " has more than " +
          std::to_string(RingType::maxCols) +
          " columns, of which 8 rows do not fit into shared memory";
    return false;
  }
  SmallVector<Operation *> chain = getLoadChain(v);
  for (Operation *op : chain)
    if (auto pad = dyn_cast<tensor::PadOp>(op)) {
      Value padding = pad.getConstantPaddingValue();
      if (!padding || !matchPattern(padding, m_AnyZeroFloat())) {
        why = "the tile " + name + " is not padded with zeros";
        return false;
      }
    }
  auto slice = cast<tensor::ExtractSliceOp>(chain.back());
  RankedTensorType base = slice.getSourceType();
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  bool last = base.getRank() <= 5 && !dropped.test(base.getRank() - 1);
  if (!last || isLoaded(slice.getSource())) {
    why = "the tile " + name +
          " is not a slice of rows along the last dimension of a tensor "
          "of rank 5 or less";
    return false;
  }
  return true;
}

/// Whether the number of steps of a loop is read from memory: that of a list.
bool fa::nvidia::followsList(scf::ForOp loop) {
  SmallVector<Value> worklist = {loop.getUpperBound()};
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val().getDefiningOp();
    if (isa_and_nonnull<tensor::ExtractOp>(op))
      return true;
    if (op)
      llvm::append_range(worklist, op->getOperands());
  }
  return false;
}

static bool matchTiles(HopperProgram &program, std::string &why) {
  const Contraction &first = program.first, &second = program.second;
  scf::ForOp loop = program.loop;
  auto inLoop = [&](Value v) {
    return loop.getRegion().isAncestor(v.getParentRegion());
  };
  Value q = first.a->get(), k = first.b->get(), v = second.b->get();
  if (!isLoaded(q) || !isLoaded(k) || !isLoaded(v) || inLoop(q) || !inLoop(k) ||
      !inLoop(v) || isLoaded(second.a->get())) {
    why = "Q is not loaded before the loop, or K and V not in it";
    return false;
  }
  if (!canLoadByTMA(q, why) || !canLoadByTMA(k, why) || !canLoadByTMA(v, why))
    return false;
  auto any = [](Operation *) { return true; };
  if (!isKnownAhead(k, loop, any) || !isKnownAhead(v, loop, any)) {
    why = "K or V are loaded from where only the step before tells";
    return false;
  }
  if (first.m % warpgroupRows || first.m > maxWarpgroups * warpgroupRows ||
      first.m != second.m) {
    why = "expected 64, 128, 192 or 256 rows a block, got " +
          std::to_string(first.m);
    return false;
  }
  if (second.k % 16 || second.n % 8 || second.n > 256 || first.n % 8) {
    why =
        "expected a multiple of 16 keys a tile and one of 8 value columns, at "
        "most 256, got " +
        std::to_string(second.k) + " and " + std::to_string(second.n);
    return false;
  }
  return true;
}

bool fa::nvidia::matchHopper(scf::ForallOp forall, HopperProgram &program,
                             std::string &why) {
  program.forall = forall;
  Contraction &first = program.first, &second = program.second;
  scf::ForOp &loop = program.loop;
  SmallVector<Contraction> found;
  forall.walk([&](linalg::LinalgOp op) {
    if (auto c = matchContraction(op))
      found.push_back(*c);
  });
  if (found.size() != 2) {
    why = "expected two contractions, got " + std::to_string(found.size());
    return false;
  }
  first = found[0], second = found[1];
  loop = first.op->getParentOfType<scf::ForOp>();
  if (!loop || second.op->getParentOp() != loop ||
      first.op->getParentOp() != loop || loop->getParentOp() != forall) {
    why = "its contractions are not both in one loop of the block";
    return false;
  }
  for (const Contraction &c : found)
    if (!c.tensorCore() || getElementTypeOrSelf(c.b->get()) != c.elementType) {
      why = "its operands are not f16 or bf16";
      return false;
    }
  if (first.aOuterK || first.bOuterK || second.aOuterK || !second.bOuterK) {
    why = "its operands are not Q [i,d], K [j,d], P [i,j] and V [j,d]";
    return false;
  }
  Value init = first.op.getDpsInits()[0];
  auto fill = init.getDefiningOp<linalg::FillOp>();
  if (!fill || !matchPattern(fill.getInputs()[0], m_AnyZeroFloat())) {
    why = "the scores do not start from zero";
    return false;
  }
  Value result = second.op->getResult(0);
  if (!result.hasOneUse() ||
      *result.getUsers().begin() != loop.getBody()->getTerminator()) {
    why = "the second contraction is not what the loop carries";
    return false;
  }
  program.outputIndex = result.getUses().begin()->getOperandNumber();
  return matchTiles(program, why);
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

void fa::nvidia::findRandomMask(HopperProgram &program) {
  scf::ForOp loop = program.loop;
  for (auto generic : loop.getBody()->getOps<linalg::GenericOp>())
    if (generic.getNumDpsInputs() == 0 && generic->getNumResults() == 1 &&
        getElementTypeOrSelf(generic.getResult(0)).isInteger(1) &&
        llvm::any_of(generic.getBody()->getOps<fa::RandomBitsOp>(),
                     [](fa::RandomBitsOp op) { return op.isInGroups(); }))
      program.mask = generic.getResult(0);
}

void fa::nvidia::findMask(HopperProgram &program) {
  scf::ForOp loop = program.loop;
  // The branch whose first side leaves the scores as they are, maybe on more
  // than the block's place.
  SmallVector<arith::CmpIOp> compares;
  auto add = [&](Value condition) {
    auto compare = condition.getDefiningOp<arith::CmpIOp>();
    if (compare && compare.getPredicate() == arith::CmpIPredicate::sle &&
        loop.isDefinedOutsideOfLoop(compare.getRhs()))
      compares.push_back(compare);
  };
  for (auto branch : loop.getBody()->getOps<scf::IfOp>()) {
    if (!branch.elseBlock() || branch.getNumResults() == 0 ||
        branch.thenBlock()->getOperations().size() != 1)
      continue;
    add(branch.getCondition());
    if (auto both = branch.getCondition().getDefiningOp<arith::AndIOp>())
      for (Value condition : both.getOperands())
        add(condition);
  }
  if (compares.size() != 1)
    return;
  arith::CmpIOp compare = compares[0];
  Value iv = loop.getInductionVar(), end = compare.getLhs();
  if (auto apply = end.getDefiningOp<affine::AffineApplyOp>()) {
    // d0 + c
    AffineExpr rest = apply.getAffineMap().getResult(0) -
                      getAffineDimExpr(0, loop.getContext());
    auto constant =
        dyn_cast<AffineConstantExpr>(simplifyAffineExpr(rest, 1, 0));
    if (!constant || apply.getMapOperands().size() != 1 ||
        apply.getMapOperands()[0] != iv || apply.getAffineMap().getNumSymbols())
      return;
    program.wholeOffset = constant.getValue();
  } else if (end != iv) {
    return;
  }
  program.wholeTile = compare;
  program.wholeBound = compare.getRhs();
}
