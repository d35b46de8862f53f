// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows of S and P as a warp has them: sums that each thread keeps of its own
// columns until after the loop, and branches that a warp takes for its rows.

#include "HopperSchedule.h"

#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

/// The generic op whose body is one commutative operation of type Op on its two
/// block arguments, or null. Which elements these are the caller asks.
template <typename Op> static linalg::GenericOp matchCombination(Value v) {
  auto generic = v.getDefiningOp<linalg::GenericOp>();
  if (!generic || generic->getNumResults() != 1 ||
      generic.getBody()->getNumArguments() != 2)
    return {};
  Block &body = *generic.getBody();
  auto op = body.getTerminator()->getOperand(0).getDefiningOp<Op>();
  Value x = body.getArgument(0), y = body.getArgument(1);
  if (!op || !llvm::hasSingleElement(body.without_terminator()) ||
      !((op.getLhs() == x && op.getRhs() == y) ||
        (op.getLhs() == y && op.getRhs() == x)))
    return {};
  return generic;
}

/// The constant that a tensor was filled with.
static Attribute filledWith(Value v) {
  auto fill = v.getDefiningOp<linalg::FillOp>();
  Attribute value;
  if (!fill || !matchPattern(fill.getInputs()[0], m_Constant(&value)))
    return {};
  return value;
}

//===----------------------------------------------------------------------===//
// Sums of rows
//===----------------------------------------------------------------------===//

/// The body is yield(x * y) of two values.
static bool isProduct(linalg::GenericOp op) {
  auto yield = op.getBody()->getTerminator();
  auto mul = yield->getOperand(0).getDefiningOp<arith::MulFOp>();
  if (!mul || op->getNumResults() != 1 || op.getNumDpsInputs() != 2)
    return false;
  Value x = op.getBody()->getArgument(0), y = op.getBody()->getArgument(1);
  return (mul.getLhs() == x && mul.getRhs() == y) ||
         (mul.getLhs() == y && mul.getRhs() == x);
}

/// yield(acc + x) or yield(acc + ext x).
static bool isRowSum(linalg::GenericOp op) {
  if (!fa::reducesRows(op) || op.getNumDpsInputs() != 1 ||
      op->getNumResults() != 1)
    return false;
  Block &body = *op.getBody();
  auto add = body.getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!add)
    return false;
  Value acc = body.getArgument(1);
  Value other = add.getLhs() == acc   ? add.getRhs()
                : add.getRhs() == acc ? add.getLhs()
                                      : Value();
  if (!other)
    return false;
  if (auto ext = other.getDefiningOp<arith::ExtFOp>())
    other = ext.getIn();
  return other == body.getArgument(0);
}

/// Whether `v` is the carried row vector, scaled or chosen between scaled
/// versions, and nothing else sees what is on the way: `chain` are the
/// operations on it.
static bool collectSums(Value v, Value carried, DenseSet<Operation *> &chain) {
  if (v == carried)
    return true;
  Operation *op = v.getDefiningOp();
  if (!op)
    return false;
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    unsigned i = cast<OpResult>(v).getResultNumber();
    if (!branch.elseBlock())
      return false;
    chain.insert(op);
    chain.insert(branch.thenYield());
    chain.insert(branch.elseYield());
    return collectSums(branch.thenYield().getOperand(i), carried, chain) &&
           collectSums(branch.elseYield().getOperand(i), carried, chain);
  }
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic || generic.getNumLoops() != 1 || !isProduct(generic) ||
      !fa::isElementwise(generic) || !fa::isRowwise(generic))
    return false;
  chain.insert(op);
  for (Value input : generic.getDpsInputs())
    if (collectSums(input, carried, chain))
      return true;
  return false;
}

static AffineMap rowMap(MLIRContext *context) {
  return AffineMap::get(2, 0, getAffineDimExpr(0, context));
}

void fa::nvidia::splitRowSums(scf::ForOp loop) {
  MLIRContext *context = loop.getContext();
  for (unsigned i = 0; i < loop.getNumRegionIterArgs(); ++i) {
    Value carried = loop.getRegionIterArg(i);
    auto type = dyn_cast<RankedTensorType>(carried.getType());
    auto sum = loop.getYieldedValues()[i].getDefiningOp<linalg::GenericOp>();
    auto init = loop.getInitArgs()[i].getDefiningOp<linalg::FillOp>();
    if (!type || type.getRank() != 1 || !sum || !isRowSum(sum) || !init ||
        !matchPattern(init.getInputs()[0], m_AnyZeroFloat()) ||
        !sum->hasOneUse())
      continue;
    DenseSet<Operation *> chain;
    if (!collectSums(sum.getDpsInits()[0], carried, chain))
      continue;
    chain.insert(sum);
    // Nothing else may see the carried value or what is made of it.
    auto onlyChain = [&](Value v) {
      return llvm::all_of(
          v.getUsers(), [&](Operation *user) { return chain.contains(user); });
    };
    bool alone = onlyChain(carried);
    for (Operation *op : chain)
      if (auto generic = dyn_cast<linalg::GenericOp>(op); generic && op != sum)
        alone &= onlyChain(op->getResult(0));
    if (!alone)
      continue;

    auto wide =
        RankedTensorType::get({type.getDimSize(0), 8}, type.getElementType());
    OpBuilder b(loop);
    Location loc = sum.getLoc();
    Value zero = init.getInputs()[0];
    Value empty = tensor::EmptyOp::create(b, loc, wide, ValueRange());
    Value start = linalg::FillOp::create(b, loc, zero, empty).getResult(0);
    // From the carried value to the sum, in order.
    std::function<void(Value)> widen = [&](Value v) {
      v.setType(wide);
      for (Operation *user : llvm::make_early_inc_range(v.getUsers())) {
        if (user == sum)
          continue;
        if (auto yield = dyn_cast<scf::YieldOp>(user)) {
          for (OpOperand &operand : yield->getOpOperands())
            if (operand.get() == v && yield->getParentOp() != loop) {
              Value result =
                  yield->getParentOp()->getResult(operand.getOperandNumber());
              if (result.getType() != wide)
                widen(result);
            }
          continue;
        }
        auto generic = cast<linalg::GenericOp>(user);
        OpBuilder inner(generic);
        SmallVector<AffineMap> maps;
        for (Value input : generic.getDpsInputs())
          maps.push_back(input.getType() == wide
                             ? AffineMap::getMultiDimIdentityMap(2, context)
                             : rowMap(context));
        maps.push_back(AffineMap::getMultiDimIdentityMap(2, context));
        SmallVector<utils::IteratorType> loops(2,
                                               utils::IteratorType::parallel);
        auto scaled = linalg::GenericOp::create(
            inner, generic.getLoc(), TypeRange(wide), generic.getDpsInputs(),
            ValueRange(empty), maps, loops);
        IRMapping map;
        generic.getRegion().cloneInto(&scaled.getRegion(), map);
        Value before = generic.getResult(0), after = scaled.getResult(0);
        before.replaceAllUsesWith(after);
        generic.erase();
        widen(after);
      }
    };
    loop.getInitArgsMutable()[i].set(start);
    widen(carried);
    b.setInsertionPoint(sum);
    Value partial = PartialSumsOp::create(b, loc, wide, sum.getDpsInputs()[0],
                                          sum.getDpsInits()[0]);
    sum.getResult(0).replaceAllUsesWith(partial);
    sum.erase();
    Value result = loop.getResult(i);
    result.setType(wide);
    b.setInsertionPointAfter(loop);
    Value narrow = tensor::EmptyOp::create(b, loc, type, ValueRange());
    Value from = linalg::FillOp::create(b, loc, zero, narrow).getResult(0);
    auto total = linalg::GenericOp::create(
        b, loc, TypeRange(type), ValueRange(result), ValueRange(from),
        ArrayRef<AffineMap>{AffineMap::getMultiDimIdentityMap(2, context),
                            rowMap(context)},
        ArrayRef<utils::IteratorType>{utils::IteratorType::parallel,
                                      utils::IteratorType::reduction},
        [](OpBuilder &b, Location loc, ValueRange args) {
          Value next = arith::AddFOp::create(b, loc, args[0], args[1]);
          linalg::YieldOp::create(b, loc, next);
        });
    result.replaceAllUsesExcept(total.getResult(0), total);
  }
}

void fa::nvidia::takeWholeSums(Value sums) {
  for (Operation *user : llvm::make_early_inc_range(sums.getUsers())) {
    auto total = cast<linalg::GenericOp>(user);
    OpBuilder b(total);
    auto type = cast<RankedTensorType>(total.getResult(0).getType());
    SmallVector<OpFoldResult> zero(2, b.getIndexAttr(0)),
        one(2, b.getIndexAttr(1)),
        sizes{b.getIndexAttr(type.getDimSize(0)), b.getIndexAttr(1)};
    Value column = tensor::ExtractSliceOp::create(b, total.getLoc(), type, sums,
                                                  zero, sizes, one);
    total.getResult(0).replaceAllUsesWith(column);
    total.erase();
  }
}

void fa::nvidia::sinkSums(scf::ForOp loop) {
  SmallVector<PartialSumsOp> all(loop.getBody()->getOps<PartialSumsOp>());
  for (PartialSumsOp op : all) {
    auto branch = op.getTile().getDefiningOp<scf::IfOp>();
    if (!branch || op.getAcc().getDefiningOp() != branch ||
        !op.getAcc().hasOneUse() || !op.getTile().hasOneUse() ||
        !branch.elseBlock())
      continue;
    unsigned tile = cast<OpResult>(op.getTile()).getResultNumber(),
             acc = cast<OpResult>(op.getAcc()).getResultNumber();
    Type type = op.getResult().getType();
    Location loc = op.getLoc();
    for (Block *side : {branch.thenBlock(), branch.elseBlock()}) {
      Operation *yield = side->getTerminator();
      OpBuilder b(yield);
      Value weights = yield->getOperand(tile);
      if (weights.getParentBlock() != loop.getBody()) {
        yield->setOperand(acc, PartialSumsOp::create(b, loc, type, weights,
                                                     yield->getOperand(acc)));
        continue;
      }
      OpBuilder before(branch);
      before.setInsertionPointAfterValue(weights);
      auto zero =
          arith::ConstantOp::create(before, loc, before.getF32FloatAttr(0));
      Value empty = tensor::EmptyOp::create(
          before, loc, cast<RankedTensorType>(type), ValueRange());
      Value start = linalg::FillOp::create(before, loc, ValueRange(zero),
                                           ValueRange(empty))
                        .getResult(0);
      Value part = PartialSumsOp::create(before, loc, type, weights, start);
      // Here: in the branch that reads it the weights would be kept for it.
      part = PinOp::create(before, loc, TypeRange(type), part).getResults()[0];
      AffineMap identity =
          AffineMap::getMultiDimIdentityMap(2, loop.getContext());
      SmallVector<AffineMap> maps(3, identity);
      SmallVector<utils::IteratorType> loops(2, utils::IteratorType::parallel);
      auto sum = linalg::GenericOp::create(
          b, loc, TypeRange(type), ValueRange{yield->getOperand(acc), part},
          ValueRange(empty), maps, loops,
          [](OpBuilder &b, Location loc, ValueRange args) {
            Value next = arith::AddFOp::create(b, loc, args[0], args[1]);
            linalg::YieldOp::create(b, loc, next);
          });
      yield->setOperand(acc, sum.getResult(0));
    }
    op.getResult().replaceAllUsesWith(op.getAcc());
    op.erase();
  }
}

//===----------------------------------------------------------------------===//
// Branches of rows
//===----------------------------------------------------------------------===//

/// Of "some element of a vector is not below a limit": the vector, and the
/// comparison with the limit.
static std::optional<std::pair<Value, arith::CmpFOp>>
matchAnyNotBelow(tensor::ExtractOp extract) {
  auto any = matchCombination<arith::OrIOp>(extract.getTensor());
  if (!any || any.getNumLoops() != 1 || any.getNumReductionLoops() != 1 ||
      any.getNumDpsInputs() != 1 || !fa::isRowwise(any))
    return std::nullopt;
  auto start = dyn_cast_or_null<IntegerAttr>(filledWith(any.getDpsInits()[0]));
  auto need = any.getDpsInputs()[0].getDefiningOp<linalg::GenericOp>();
  if (!start || !start.getValue().isZero() || !need ||
      need.getNumLoops() != 1 || need.getNumDpsInputs() != 1 ||
      !fa::isElementwise(need) || !fa::isRowwise(need) ||
      !llvm::hasSingleElement(need.getBody()->without_terminator()))
    return std::nullopt;
  auto compare = need.getBody()
                     ->getTerminator()
                     ->getOperand(0)
                     .getDefiningOp<arith::CmpFOp>();
  if (!compare || compare.getPredicate() != arith::CmpFPredicate::UGE ||
      compare.getLhs() != need.getBody()->getArgument(0))
    return std::nullopt;
  return std::make_pair(need.getDpsInputs()[0], compare);
}

/// The tile whose rows' largest elements a vector is: it has an element that is
/// not below `limit`, or not a number, where the vector has one.
static Value matchLargest(Value vector, const APFloat &limit) {
  auto top = matchCombination<arith::MaximumFOp>(vector);
  if (!fa::reducesRows(top) || top.getNumDpsInputs() != 1)
    return {};
  auto start = dyn_cast_or_null<FloatAttr>(filledWith(top.getDpsInits()[0]));
  return start && start.getValue() < limit ? top.getDpsInputs()[0] : Value();
}

void fa::nvidia::decideByWarp(scf::ForOp loop) {
  SmallVector<tensor::ExtractOp> extracts;
  loop.walk([&](tensor::ExtractOp op) { extracts.push_back(op); });
  for (tensor::ExtractOp extract : extracts) {
    auto match = matchAnyNotBelow(extract);
    FloatAttr limit;
    if (!match || !matchPattern(match->second.getRhs(), m_Constant(&limit)))
      continue;
    Value vector = match->first;
    Value tile = matchLargest(vector, limit.getValue());
    OpBuilder b(extract);
    Value exceeds = ExceedsOp::create(
        b, extract.getLoc(), b.getI1Type(), tile ? tile : vector,
        b.getF64FloatAttr(limit.getValueAsDouble()));
    Operation *any = extract.getTensor().getDefiningOp(),
              *need = any->getOperand(0).getDefiningOp();
    extract.replaceAllUsesWith(exceeds);
    for (Operation *op : {extract.getOperation(), any, need,
                          tile ? vector.getDefiningOp() : nullptr})
      if (op && op->use_empty())
        op->erase();
  }
}
