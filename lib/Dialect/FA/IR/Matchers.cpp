// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/TileRanges.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa;

/// The value that a one-result generic yields, or null.
static Value yieldedBy(linalg::GenericOp op) {
  if (!op || op->getNumResults() != 1)
    return {};
  return op.getBody()->getTerminator()->getOperand(0);
}

static linalg::GenericOp genericOf(Value v) {
  return v.getDefiningOp<linalg::GenericOp>();
}

static bool isConstant(Value v, double expected) {
  APFloat value(0.0f);
  return matchPattern(v, m_ConstantFloat(&value)) &&
         value.isExactlyValue(expected);
}

bool fa::isNegativeInfinity(Value v) {
  APFloat value(0.0f);
  return matchPattern(v, m_ConstantFloat(&value)) && value.isInfinity() &&
         value.isNegative();
}

bool fa::isElementwise(linalg::GenericOp op) {
  return op && op->getNumResults() == 1 &&
         op.getNumParallelLoops() == op.getNumLoops();
}

bool fa::isRowwise(linalg::GenericOp op) {
  return llvm::all_of(op.getIndexingMapsArray(), [](AffineMap map) {
    return llvm::all_of(llvm::enumerate(map.getResults()), [](auto result) {
      auto dim = dyn_cast<AffineDimExpr>(result.value());
      return dim && dim.getPosition() == result.index();
    });
  });
}

/// An elementwise generic on `inputs` inputs as SoftmaxBuilder makes it: the
/// result and the first input have the same coordinates, the others the same or
/// those of its rows. Null otherwise: a body alone says nothing of which
/// elements meet.
static linalg::GenericOp elementwiseOf(Value v, unsigned inputs) {
  linalg::GenericOp op = genericOf(v);
  if (!isElementwise(op) || op.getNumDpsInputs() != inputs || !isRowwise(op) ||
      op.payloadUsesValueFromOperand(op.getDpsInitOperand(0)) ||
      !op.getMatchingIndexingMap(op.getDpsInputOperand(0)).isIdentity() ||
      !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity())
    return {};
  return op;
}

bool fa::reducesRows(linalg::GenericOp op) {
  if (!op || op.getNumLoops() != 2 || !isRowwise(op) ||
      op.getIteratorTypesArray()[0] != utils::IteratorType::parallel ||
      op.getIteratorTypesArray()[1] != utils::IteratorType::reduction)
    return false;
  auto rankOf = [&](OpOperand &operand) {
    return op.getMatchingIndexingMap(&operand).getNumResults();
  };
  return op.getNumDpsInputs() > 0 && rankOf(*op.getDpsInputOperand(0)) == 2 &&
         llvm::all_of(op.getDpsInitsMutable(),
                      [&](OpOperand &init) { return rankOf(init) == 1; });
}

template <typename CombinerOp>
static std::optional<RowReduction> matchRowReduction(Value v) {
  linalg::GenericOp op = genericOf(v);
  if (!reducesRows(op) || op.getNumDpsInputs() != 1 || op->getNumResults() != 1)
    return std::nullopt;
  auto combiner = yieldedBy(op).getDefiningOp<CombinerOp>();
  Block *body = op.getBody();
  if (!combiner)
    return std::nullopt;
  Value x = body->getArgument(0), acc = body->getArgument(1);
  Value a = combiner->getOperand(0), b = combiner->getOperand(1);
  if (!(a == x && b == acc) && !(a == acc && b == x))
    return std::nullopt;
  return RowReduction{op.getDpsInputs()[0], op.getDpsInits()[0]};
}

std::optional<RowReduction> fa::matchRowMax(Value v) {
  return matchRowReduction<arith::MaxNumFOp>(v);
}

std::optional<RowReduction> fa::matchRowSum(Value v) {
  return matchRowReduction<arith::AddFOp>(v);
}

std::optional<MatrixProduct> fa::matchMatrixProduct(Value v) {
  linalg::GenericOp op = genericOf(v);
  if (!op || op.getNumLoops() != 3 || op.getNumReductionLoops() != 1 ||
      op.getIteratorTypesArray()[2] != utils::IteratorType::reduction ||
      op.getNumDpsInputs() != 2 || op->getNumResults() != 1)
    return std::nullopt;
  AffineExpr i, j, k;
  bindDims(op.getContext(), i, j, k);
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  auto is = [&](unsigned which, AffineExpr x, AffineExpr y) {
    return maps[which].getNumResults() == 2 && maps[which].getResult(0) == x &&
           maps[which].getResult(1) == y;
  };
  if (!is(0, i, k) || !is(2, i, j) || !(is(1, j, k) || is(1, k, j)))
    return std::nullopt;
  auto add = yieldedBy(op).getDefiningOp<arith::AddFOp>();
  if (!add)
    return std::nullopt;
  Value acc = op.getBody()->getArgument(2);
  Value product = add.getLhs() == acc   ? add.getRhs()
                  : add.getRhs() == acc ? add.getLhs()
                                        : Value();
  auto multiply = product ? product.getDefiningOp<arith::MulFOp>() : nullptr;
  if (!multiply)
    return std::nullopt;
  auto strip = [](Value x) {
    if (auto ext = x.getDefiningOp<arith::ExtFOp>())
      return ext.getIn();
    return x;
  };
  if (strip(multiply.getLhs()) != op.getBody()->getArgument(0) ||
      strip(multiply.getRhs()) != op.getBody()->getArgument(1))
    return std::nullopt;
  return MatrixProduct{op.getDpsInputs()[0], op.getDpsInputs()[1],
                       op.getDpsInits()[0], is(1, j, k)};
}

std::optional<ValuePair> fa::matchExpDifference(Value v) {
  linalg::GenericOp op = elementwiseOf(v, 2);
  if (!op)
    return std::nullopt;
  auto exp = yieldedBy(op).getDefiningOp<math::ExpOp>();
  auto sub = exp ? exp.getOperand().getDefiningOp<arith::SubFOp>() : nullptr;
  if (!sub || sub.getLhs() != op.getBody()->getArgument(0) ||
      sub.getRhs() != op.getBody()->getArgument(1) ||
      sub.getType() != getComputeType(sub.getType()))
    return std::nullopt;
  return ValuePair(op.getDpsInputs()[0], op.getDpsInputs()[1]);
}

/// The number that a scalar is, if it is a constant.
static std::optional<double> constantOf(Value v) {
  APFloat value(0.0f);
  if (!matchPattern(v, m_ConstantFloat(&value)))
    return std::nullopt;
  return value.convertToDouble();
}

std::optional<std::pair<Value, double>> fa::matchScaled(Value v) {
  linalg::GenericOp op = elementwiseOf(v, 1);
  auto mul = op ? yieldedBy(op).getDefiningOp<arith::MulFOp>() : nullptr;
  if (!mul || mul.getLhs() != op.getBody()->getArgument(0))
    return std::nullopt;
  std::optional<double> scale = constantOf(mul.getRhs());
  if (!scale)
    return std::nullopt;
  return std::make_pair(op.getDpsInputs()[0], *scale);
}

std::optional<ValuePair> fa::matchAddLog(Value v) {
  linalg::GenericOp op = elementwiseOf(v, 2);
  auto add = op ? yieldedBy(op).getDefiningOp<arith::AddFOp>() : nullptr;
  auto log = add ? add.getRhs().getDefiningOp<math::LogOp>() : nullptr;
  if (!log || add.getLhs() != op.getBody()->getArgument(0) ||
      log.getOperand() != op.getBody()->getArgument(1))
    return std::nullopt;
  return ValuePair(op.getDpsInputs()[0], op.getDpsInputs()[1]);
}

Value fa::matchFiniteOrZero(Value v) {
  linalg::GenericOp op = elementwiseOf(v, 1);
  auto select = op ? yieldedBy(op).getDefiningOp<arith::SelectOp>() : nullptr;
  if (!select)
    return {};
  auto cmp = select.getCondition().getDefiningOp<arith::CmpFOp>();
  Value x = op.getBody()->getArgument(0);
  if (!cmp || cmp.getPredicate() != arith::CmpFPredicate::OEQ ||
      cmp.getLhs() != x || !isNegativeInfinity(cmp.getRhs()) ||
      !isConstant(select.getTrueValue(), 0.0) || select.getFalseValue() != x)
    return {};
  return op.getDpsInputs()[0];
}

std::optional<ValuePair> fa::matchDivideOrZero(Value v) {
  linalg::GenericOp op = elementwiseOf(v, 2);
  auto select = op ? yieldedBy(op).getDefiningOp<arith::SelectOp>() : nullptr;
  if (!select)
    return std::nullopt;
  Value x = op.getBody()->getArgument(0), y = op.getBody()->getArgument(1);
  auto cmp = select.getCondition().getDefiningOp<arith::CmpFOp>();
  auto div = select.getFalseValue().getDefiningOp<arith::DivFOp>();
  if (!cmp || !div || cmp.getPredicate() != arith::CmpFPredicate::OEQ ||
      cmp.getLhs() != y || !isConstant(cmp.getRhs(), 0.0) ||
      !isConstant(select.getTrueValue(), 0.0) || div.getLhs() != x ||
      div.getRhs() != y)
    return std::nullopt;
  return ValuePair(op.getDpsInputs()[0], op.getDpsInputs()[1]);
}

Value fa::matchKeep(Value v) {
  linalg::GenericOp op = elementwiseOf(v, 1);
  auto select = op ? yieldedBy(op).getDefiningOp<arith::SelectOp>() : nullptr;
  Value x = op ? op.getBody()->getArgument(0) : Value();
  if (!select || select.getTrueValue() != x || !x.hasOneUse() ||
      !isConstant(select.getFalseValue(), 0.0))
    return {};
  return op.getDpsInputs()[0];
}

Value fa::matchConvert(Value v) {
  linalg::GenericOp op = elementwiseOf(v, 1);
  Operation *convert = op ? yieldedBy(op).getDefiningOp() : nullptr;
  if (!isa_and_present<arith::TruncFOp, arith::ExtFOp>(convert) ||
      convert->getOperand(0) != op.getBody()->getArgument(0))
    return {};
  return op.getDpsInputs()[0];
}

/// The dimensions of a tile that decide a coordinate, a bit each.
static unsigned dimensionsOf(Value coordinate, Block &body) {
  unsigned found = 0;
  for (Operation *op : sliceInBlock(coordinate, body))
    if (auto index = dyn_cast<linalg::IndexOp>(op))
      found |= 1u << index.getDim();
  return found;
}

std::optional<RandomMask> fa::matchRandomMask(linalg::LinalgOp op) {
  if (op.getNumDpsInputs() || op->getNumResults() != 1 || op.getNumLoops() != 2)
    return std::nullopt;
  Block &body = *op.getBlock();
  auto compare =
      body.getTerminator()->getOperand(0).getDefiningOp<arith::CmpIOp>();
  auto random =
      compare ? compare.getLhs().getDefiningOp<RandomBitsOp>() : nullptr;
  APInt limit;
  if (!random || compare.getPredicate() != arith::CmpIPredicate::uge ||
      !random.isInGroups() ||
      !matchPattern(compare.getRhs(), m_ConstantInt(&limit)) ||
      dimensionsOf(random.getBatch(), body) ||
      dimensionsOf(random.getHead(), body))
    return std::nullopt;
  // One of each, either way.
  unsigned row = dimensionsOf(random.getRow(), body),
           column = dimensionsOf(random.getColumn(), body);
  if (row + column != 3 || !row || !column)
    return std::nullopt;
  return RandomMask{random, static_cast<uint8_t>(limit.getZExtValue()),
                    /*isTurned=*/row == 2};
}

bool fa::makesRandomBits(Operation *root) {
  return root->walk([](RandomBitsOp) { return WalkResult::interrupt(); })
      .wasInterrupted();
}

std::optional<APFloat> fa::matchFill(Value v) {
  auto fill = v.getDefiningOp<linalg::FillOp>();
  APFloat value(0.0f);
  if (!fill || !matchPattern(fill.getInputs()[0], m_ConstantFloat(&value)))
    return std::nullopt;
  return value;
}

std::optional<std::pair<Value, int64_t>> fa::matchCeilQuotient(Value v) {
  auto apply = v.getDefiningOp<affine::AffineApplyOp>();
  if (!apply)
    return std::nullopt;
  auto quotient = dyn_cast<AffineBinaryOpExpr>(apply.getMap().getResult(0));
  auto divisor = quotient ? dyn_cast<AffineConstantExpr>(quotient.getRHS())
                          : AffineConstantExpr();
  if (!divisor || quotient.getKind() != AffineExprKind::CeilDiv ||
      !isa<AffineDimExpr, AffineSymbolExpr>(quotient.getLHS()) ||
      apply.getOperands().size() != 1)
    return std::nullopt;
  return std::make_pair(apply.getOperands().front(), divisor.getValue());
}

Value fa::matchMagnitude(Value v) {
  if (auto abs = v.getDefiningOp<math::AbsIOp>())
    return abs.getOperand();
  auto max = v.getDefiningOp<arith::MaxSIOp>();
  if (!max)
    return {};
  for (auto [x, y] : {std::pair(max.getLhs(), max.getRhs()),
                      std::pair(max.getRhs(), max.getLhs())}) {
    auto minus = y.getDefiningOp<arith::SubIOp>();
    if (minus && minus.getRhs() == x &&
        getConstantIntValue(minus.getLhs()) == 0)
      return x;
  }
  return {};
}

BlockArgument fa::matchCarried(scf::ForOp loop, Value before, Value after) {
  auto carried = dyn_cast<BlockArgument>(before);
  if (!loop || !carried || carried.getOwner() != loop.getBody() ||
      carried == loop.getInductionVar() ||
      loop.getTiedLoopYieldedValue(carried)->get() != after)
    return {};
  return carried;
}

bool fa::dependsOn(Value v, Value on) {
  SmallVector<Value> work{v};
  DenseSet<Value> seen;
  while (!work.empty()) {
    Value next = work.pop_back_val();
    if (next == on)
      return true;
    Operation *op = next.getDefiningOp();
    // With regions, of what these use, too.
    if (op && seen.insert(next).second)
      op->walk([&](Operation *inner) {
        llvm::append_range(work, inner->getOperands());
      });
  }
  return false;
}

/// What a value is written into, step by step, until that is `stop` or nothing.
static Value destinationOf(Value v, Value stop) {
  while (v != stop) {
    Value next;
    if (auto argument = dyn_cast<BlockArgument>(v)) {
      auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
      OpOperand *init = loop ? loop.getTiedLoopInit(argument) : nullptr;
      if (init && destinationOf(loop.getTiedLoopYieldedValue(argument)->get(),
                                argument) == argument)
        next = init->get();
    } else if (auto loop = v.getDefiningOp<scf::ForOp>()) {
      BlockArgument argument = loop.getTiedLoopRegionIterArg(cast<OpResult>(v));
      if (destinationOf(loop.getTiedLoopYieldedValue(argument)->get(),
                        argument) == argument)
        next = loop.getTiedLoopInit(argument)->get();
    } else if (auto branch = v.getDefiningOp<scf::IfOp>()) {
      unsigned n = cast<OpResult>(v).getResultNumber();
      Value a = destinationOf(branch.thenYield()->getOperand(n), stop),
            b = destinationOf(branch.elseYield()->getOperand(n), stop);
      if (a == b)
        next = a;
    } else if (auto forall = v.getDefiningOp<scf::ForallOp>()) {
      next = forall.getTiedOpOperand(cast<OpResult>(v))->get();
    } else if (auto insert = v.getDefiningOp<tensor::InsertOp>()) {
      next = insert.getDest();
    } else if (auto insert = v.getDefiningOp<tensor::InsertSliceOp>()) {
      next = insert.getDest();
    } else if (auto style = v.getDefiningOp<DestinationStyleOpInterface>()) {
      next = style.getTiedOpOperand(cast<OpResult>(v))->get();
    }
    if (!next)
      return v;
    v = next;
  }
  return v;
}

Value fa::getShapeSource(Value v) { return destinationOf(v, Value()); }

LogicalResult fa::verifyDims(func::FuncOp func) {
  WalkResult result = func.walk([](tensor::DimOp op) {
    auto type = dyn_cast<RankedTensorType>(op.getSource().getType());
    std::optional<int64_t> index = op.getConstantIndex();
    if (!type || !index || (*index >= 0 && *index < type.getRank()))
      return WalkResult::advance();
    op.emitError() << "expected a dimension in [0, " << type.getRank()
                   << "), got " << *index;
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

unsigned fa::firstKeptDim(llvm::SmallBitVector dropped) {
  return dropped.flip().find_first();
}

bool fa::addsUp(scf::ForallOp grid) {
  return !grid.getTerminator()
              .getBody()
              ->getOps<ParallelAccumulateOp>()
              .empty();
}
