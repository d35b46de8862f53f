// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copies of a program's operations for one block of keys, with what is known of
// it folded.

#include "HopperSchedule.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

void fa::nvidia::eraseDead(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
    if (isOpTriviallyDead(&op)) {
      op.erase();
      continue;
    }
    for (Region &region : op.getRegions())
      for (Block &inner : region)
        eraseDead(inner);
  }
}

static std::optional<bool> constantBool(Value v) {
  if (std::optional<int64_t> c = getConstantIntValue(v))
    return *c != 0;
  return std::nullopt;
}

/// A product with a tile of zeros is that tile: the factors of attention's
/// state are finite.
static Value foldZeroProduct(linalg::GenericOp op, IRMapping &map) {
  if (!isProduct(op) || op.getNumReductionLoops())
    return {};
  for (OpOperand *input : op.getDpsInputOperands()) {
    Value v = map.lookupOrDefault(input->get());
    auto fill = v.getDefiningOp<linalg::FillOp>();
    if (fill && v.getType() == op.getResult(0).getType() &&
        matchPattern(fill.getInputs()[0], m_AnyZeroFloat()))
      return v;
  }
  return {};
}

/// Clones an elementwise operation; values that are the same everywhere go into
/// its body, and inputs that the folded body does not read are left out.
static bool cloneFolded(OpBuilder &b, linalg::GenericOp op, IRMapping &map) {
  if (op.getNumReductionLoops())
    return false;
  SmallVector<Value> constants;
  bool any = false;
  for (Value input : op.getDpsInputs()) {
    auto fill = map.lookupOrDefault(input).getDefiningOp<linalg::FillOp>();
    Attribute value;
    bool known = fill && matchPattern(fill.getInputs()[0], m_Constant(&value));
    constants.push_back(known ? fill.getInputs()[0] : Value());
    any |= known;
  }
  if (!any)
    return false;
  auto copy = cast<linalg::GenericOp>(b.clone(*op, map));
  Block &body = *copy.getBody();
  for (auto [i, constant] : llvm::enumerate(constants))
    if (constant)
      body.getArgument(i).replaceAllUsesWith(constant);
  for (Operation &inner :
       llvm::make_early_inc_range(body.without_terminator())) {
    OpBuilder at(&inner);
    SmallVector<Value> folded;
    // A fold in place gives no values.
    if (inner.getNumResults() && succeeded(at.tryFold(&inner, folded)) &&
        !folded.empty()) {
      inner.replaceAllUsesWith(folded);
      inner.erase();
    }
  }
  eraseDead(body);
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  SmallVector<AffineMap> oldMaps = copy.getIndexingMapsArray();
  llvm::BitVector unused(body.getNumArguments());
  for (auto [i, input] : llvm::enumerate(copy.getDpsInputs())) {
    if (body.getArgument(i).use_empty()) {
      unused.set(i);
      continue;
    }
    inputs.push_back(input);
    maps.push_back(oldMaps[i]);
  }
  for (unsigned i = copy.getNumDpsInputs(); i < oldMaps.size(); ++i)
    maps.push_back(oldMaps[i]);
  auto smaller = linalg::GenericOp::create(
      b, copy.getLoc(), copy.getResultTypes(), inputs, copy.getDpsInits(), maps,
      copy.getIteratorTypesArray());
  body.eraseArguments(unused);
  smaller.getRegion().takeBody(copy.getRegion());
  map.map(op.getResults(), smaller.getResults());
  copy.erase();
  return true;
}

/// Clones a scalar operation, or maps it to what it folds to.
static bool cloneScalar(OpBuilder &b, Operation &op, IRMapping &map) {
  if (op.getNumRegions() || op.getNumResults() != 1 ||
      !op.getResult(0).getType().isIntOrIndexOrFloat())
    return false;
  Operation *copy = b.clone(op, map);
  SmallVector<Value> folded;
  if (succeeded(b.tryFold(copy, folded)) && !folded.empty()) {
    map.map(op.getResult(0), folded.front());
    copy->erase();
  }
  return true;
}

namespace {
/// Clones operations for one block of keys.
struct Cloner {
  scf::ForOp loop;
  Value isFirst;
  IRMapping &map;

  void clone(OpBuilder &b, Operation &op) {
    // Known from elsewhere.
    if (op.getNumResults() == 1 && map.contains(op.getResult(0)))
      return;
    auto compare = dyn_cast<arith::CmpIOp>(op);
    if (compare && compare.getPredicate() == arith::CmpIPredicate::eq &&
        compare.getLhs() == loop.getInductionVar() &&
        compare.getRhs() == loop.getLowerBound()) {
      map.map(compare.getResult(), isFirst);
      return;
    }
    if (auto branch = dyn_cast<scf::IfOp>(op))
      return cloneIf(b, branch);
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (Value zero = generic ? foldZeroProduct(generic, map) : Value())
      map.map(generic.getResult(0), zero);
    else if (!cloneScalar(b, op, map))
      b.clone(op, map);
  }

  /// Clones the operations of one side of a branch; gives what it yields. With
  /// `fold`, values that are the same everywhere go into what they are used by.
  SmallVector<Value> cloneSide(OpBuilder &b, Block &side, bool fold) {
    for (Operation &op : side.without_terminator()) {
      auto generic = dyn_cast<linalg::GenericOp>(op);
      if (!fold || !generic || foldZeroProduct(generic, map) ||
          !cloneFolded(b, generic, map))
        clone(b, op);
    }
    SmallVector<Value> values;
    for (Value v : side.getTerminator()->getOperands())
      values.push_back(map.lookupOrDefault(v));
    return values;
  }

  /// A branch whose side is known is that side, and what both sides yield is
  /// no result.
  void cloneIf(OpBuilder &b, scf::IfOp op) {
    if (std::optional<bool> known =
            constantBool(map.lookupOrDefault(op.getCondition()))) {
      if (Block *side = *known ? op.thenBlock() : op.elseBlock())
        map.map(op.getResults(), cloneSide(b, *side, /*fold=*/true));
      return;
    }
    if (!op.elseBlock()) {
      b.clone(*op, map);
      return;
    }
    Region thenRegion, elseRegion;
    OpBuilder thenBuilder(b.getContext()), elseBuilder(b.getContext());
    thenBuilder.setInsertionPointToEnd(&thenRegion.emplaceBlock());
    elseBuilder.setInsertionPointToEnd(&elseRegion.emplaceBlock());
    SmallVector<Value> ours, thenValues, elseValues;
    for (auto [result, x, y] :
         llvm::zip(op.getResults(),
                   cloneSide(thenBuilder, *op.thenBlock(), /*fold=*/false),
                   cloneSide(elseBuilder, *op.elseBlock(), /*fold=*/false))) {
      if (x == y) {
        map.map(result, x);
        continue;
      }
      ours.push_back(result);
      thenValues.push_back(x);
      elseValues.push_back(y);
    }
    scf::YieldOp::create(thenBuilder, op.getLoc(), thenValues);
    scf::YieldOp::create(elseBuilder, op.getLoc(), elseValues);
    auto copy = scf::IfOp::create(b, op.getLoc(), ValueRange(ours).getTypes(),
                                  map.lookupOrDefault(op.getCondition()));
    for (NamedAttribute attribute : op->getDiscardableAttrs())
      copy->setDiscardableAttr(attribute.getName(), attribute.getValue());
    copy.getThenRegion().takeBody(thenRegion);
    copy.getElseRegion().takeBody(elseRegion);
    map.map(ours, copy.getResults());
  }
};
} // namespace

void fa::nvidia::cloneBlock(OpBuilder &b, scf::ForOp loop,
                            ArrayRef<Operation *> ops, IRMapping &map,
                            Value isFirst) {
  Cloner cloner{loop, isFirst, map};
  for (Operation *op : ops)
    cloner.clone(b, *op);
}
