// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "IOEvents.h"

#include "fa/Analysis/ScalarOpInterface.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa;

static RankedTensorType tensorType(Value value) {
  return dyn_cast<RankedTensorType>(value.getType());
}

Value fa::walkerOf(OpFoldResult offset) {
  auto value = dyn_cast_if_present<Value>(offset);
  auto difference =
      value ? value.getDefiningOp<arith::SubIOp>() : arith::SubIOp();
  if (difference && isa<BlockArgument>(difference.getRhs()))
    return difference.getRhs();
  auto sum = value ? value.getDefiningOp<arith::AddIOp>() : arith::AddIOp();
  if (sum && sum.getRhs().getDefiningOp<arith::SelectOp>())
    return walkerOf(sum.getLhs());
  return value;
}

SizeTracer::SizeTracer(func::FuncOp func, const IOOptions &options) {
  for (auto &entry : options.shape)
    numbers[entry.getKey()] = entry.getValue();
  SmallVector<Value> operands;
  func.walk([&](AttentionOp op) {
    if (operands.empty())
      operands = {op.getQuery(), op.getKey(), op.getValue()};
    nameDims(op.getOut(), {"B", "Hq", "Sq", "Dv"});
    if (op.getLse())
      nameDims(op.getLse(), {"B", "Hq", "Sq"});
  });
  if (operands.empty())
    for (Value argument : func.getArguments())
      if (auto type = tensorType(argument);
          type && type.getRank() == 4 && operands.size() < 3)
        operands.push_back(argument);
  if (operands.size() < 3)
    return;
  nameDims(operands[0], {"B", "Hq", "Sq", "D"});
  nameDims(operands[1], {"B", "Hk", "Sk", "D"});
  nameDims(operands[2], {"B", "Hk", "Sk", "Dv"});
  nameResults(func);
}

/// What is returned in the shape of outputs or log-sum-exps.
void SizeTracer::nameResults(func::FuncOp func) {
  func.walk([&](func::ReturnOp op) {
    for (Value value : op.getOperands()) {
      auto type = tensorType(value);
      if (!type || (type.getRank() != 3 && type.getRank() != 4))
        continue;
      static const StringRef kDims[] = {"B", "Hq", "Sq", "Dv"};
      ArrayRef<StringRef> dims(kDims);
      bool matches = true;
      for (auto [i, size] : llvm::enumerate(type.getShape())) {
        std::optional<int64_t> number = getNumber(dims[i]);
        matches &= ShapedType::isDynamic(size) || number == size;
      }
      if (matches)
        nameDims(value, dims.take_front(type.getRank()));
    }
  });
}

void SizeTracer::nameDims(Value tensor, ArrayRef<StringRef> dims) {
  auto type = tensorType(tensor);
  for (auto [i, name] : llvm::enumerate(dims)) {
    names.try_emplace({tensor, unsigned(i)}, name.str());
    if (!type.isDynamicDim(i))
      numbers[name] = type.getDimSize(i);
  }
}

std::optional<int64_t> SizeTracer::getNumber(StringRef symbol) {
  auto number = numbers.find(symbol);
  return number == numbers.end() ? std::nullopt
                                 : std::optional<int64_t>(number->second);
}

/// The dimensions of a slice's source that its result has.
static SmallVector<unsigned> keptDims(ArrayRef<OpFoldResult> sizes,
                                      const llvm::SmallBitVector &dropped) {
  SmallVector<unsigned> kept;
  for (unsigned i = 0; i < sizes.size(); ++i)
    if (!dropped.test(i))
      kept.push_back(i);
  return kept;
}

using TensorDims = SmallVectorImpl<std::pair<Value, unsigned>>;

/// The dimensions, of the same length, that an induction variable walks
/// through elsewhere.
static void walkedDims(OpFoldResult offset, int64_t length,
                       TensorDims &others) {
  auto iv = dyn_cast<Value>(offset);
  if (!iv || ShapedType::isDynamic(length))
    return;
  for (Operation *user : iv.getUsers())
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(user))
      for (auto [i, other] : llvm::enumerate(slice.getMixedOffsets()))
        if (other == offset && slice.getSourceType().getDimSize(i) == length)
          others.push_back({slice.getSource(), i});
}

/// What an insertion says of a dimension that it writes.
template <typename InsertOp>
static void insertedDims(InsertOp insert, unsigned dim, TensorDims &others,
                         TensorDims &walked) {
  std::optional<int64_t> size =
      getConstantIntValue(insert.getMixedSizes()[dim]);
  SmallVector<unsigned> kept =
      keptDims(insert.getMixedSizes(), insert.getDroppedDims());
  int64_t length = insert.getDestType().getDimSize(dim);
  if (isZeroInteger(insert.getMixedOffsets()[dim]) && size && *size == length)
    if (auto i = llvm::find(kept, dim); i != kept.end())
      others.push_back({insert.getSource(), i - kept.begin()});
  walkedDims(insert.getMixedOffsets()[dim], length, walked);
}

/// Other tensors' dimensions that are as long as one of an op's result, and
/// those of the same length that a loop walks through along with it: query and
/// key heads may be among these.
static void sameDims(OpResult result, unsigned dim, TensorDims &others,
                     TensorDims &walked) {
  Operation *op = result.getOwner();
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
    OpOperand *init = linalgOp.getDpsInitOperand(result.getResultNumber());
    AffineExpr loop = linalgOp.getMatchingIndexingMap(init).getResult(dim);
    for (OpOperand *input : linalgOp.getDpsInputOperands())
      for (auto [i, expr] :
           llvm::enumerate(linalgOp.getMatchingIndexingMap(input).getResults()))
        if (expr == loop && tensorType(input->get()))
          others.push_back({input->get(), i});
    others.push_back({init->get(), dim});
  } else if (auto merge = dyn_cast<OnlineSoftmaxOp>(op)) {
    if (dim == 0)
      others.push_back({merge.getScores(), 0});
    else
      others.push_back({merge.getValues(), 1});
    others.push_back({merge.getDpsInits()[result.getResultNumber()], dim});
  } else if (auto step = dyn_cast<SpeculatedSoftmaxOp>(op)) {
    others.push_back({step.getState()[result.getResultNumber()], dim});
  } else if (auto loop = dyn_cast<scf::ForOp>(op)) {
    others.push_back({loop.getYieldedValues()[result.getResultNumber()], dim});
    others.push_back({loop.getInitArgs()[result.getResultNumber()], dim});
  } else if (auto forall = dyn_cast<scf::ForallOp>(op)) {
    BlockArgument out = forall.getRegionIterArgs()[result.getResultNumber()];
    for (Operation &inner : forall.getTerminator().getBody()->getOperations())
      if (auto insert = dyn_cast<tensor::ParallelInsertSliceOp>(inner);
          insert && insert.getDest() == out)
        insertedDims(insert, dim, others, walked);
    others.push_back({forall.getOutputs()[result.getResultNumber()], dim});
  } else if (auto choice = dyn_cast<scf::IfOp>(op)) {
    others.push_back(
        {choice.thenYield().getOperand(result.getResultNumber()), dim});
  } else if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
    insertedDims(insert, dim, others, walked);
    others.push_back({insert.getDest(), dim});
  } else if (auto cast = dyn_cast<tensor::CastOp>(op)) {
    others.push_back({cast.getSource(), dim});
  } else if (auto pad = dyn_cast<tensor::PadOp>(op)) {
    if (isZeroInteger(pad.getMixedLowPad()[dim]) &&
        isZeroInteger(pad.getMixedHighPad()[dim]))
      others.push_back({pad.getSource(), dim});
  } else if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    unsigned from =
        keptDims(slice.getMixedSizes(), slice.getDroppedDims())[dim];
    std::optional<int64_t> size =
        getConstantIntValue(slice.getMixedSizes()[from]);
    if (isZeroInteger(slice.getMixedOffsets()[from]) && size &&
        *size == slice.getSourceType().getDimSize(from))
      others.push_back({slice.getSource(), from});
  }
}

/// What an empty or constant tensor, or a kernel's result, becomes has its
/// size, and maybe a name.
static void laterDims(Value tensor, unsigned dim, TensorDims &others) {
  if (!isa<linalg::FillOp, tensor::EmptyOp, scf::ForallOp>(
          tensor.getDefiningOp()))
    return;
  for (OpOperand &use : tensor.getUses()) {
    auto style = dyn_cast<DestinationStyleOpInterface>(use.getOwner());
    if (style && style.isDpsInit(&use) && style->getNumResults() != 0)
      others.push_back({style.getTiedOpResult(&use), dim});
    else if (auto loop = dyn_cast<scf::ForOp>(use.getOwner()))
      others.push_back({loop.getTiedLoopResult(&use), dim});
    else if (auto forall = dyn_cast<scf::ForallOp>(use.getOwner()))
      others.push_back({forall.getTiedOpResult(&use), dim});
  }
}

std::string SizeTracer::traceSymbol(Value tensor, unsigned dim, Visited &seen) {
  if (auto name = names.find({tensor, dim}); name != names.end())
    return name->second;
  if (!seen.insert({tensor, dim}).second)
    return "";
  SmallVector<std::pair<Value, unsigned>> others, walked;
  if (auto result = dyn_cast<OpResult>(tensor)) {
    sameDims(result, dim, others, walked);
    laterDims(result, dim, others);
  } else {
    auto argument = cast<BlockArgument>(tensor);
    Operation *owner = argument.getOwner()->getParentOp();
    if (auto loop = dyn_cast<scf::ForOp>(owner)) {
      unsigned i = argument.getArgNumber() - loop.getNumInductionVars();
      others.push_back({loop.getYieldedValues()[i], dim});
      others.push_back({loop.getInitArgs()[i], dim});
    } else if (auto forall = dyn_cast<scf::ForallOp>(owner)) {
      unsigned i = argument.getArgNumber() - forall.getRank();
      others.push_back({forall.getResult(i), dim});
      others.push_back({forall.getOutputs()[i], dim});
    }
  }
  std::string symbol;
  for (auto &[other, i] : others)
    if (symbol.empty())
      symbol = traceSymbol(other, i, seen);
  if (symbol.empty())
    for (auto &[other, i] : walked) {
      std::string next = traceSymbol(other, i, seen);
      // Query heads rather than key heads, where they are as many.
      if (!next.empty() &&
          (symbol.empty() || Polynomial::nameLess(next, symbol)))
        symbol = next;
    }
  if (!symbol.empty())
    names[{tensor, dim}] = symbol;
  return symbol;
}

Size SizeTracer::trace(Value tensor, unsigned dim, unsigned depth) {
  Size size;
  auto type = tensorType(tensor);
  if (!type.isDynamicDim(dim)) {
    size.constant = type.getDimSize(dim);
    Visited seen;
    size.symbol = traceSymbol(tensor, dim, seen);
    return size;
  }
  if (auto name = names.find({tensor, dim});
      name != names.end() && !tensor.getDefiningOp<tensor::ExtractSliceOp>()) {
    size.symbol = name->second;
    size.constant = getNumber(size.symbol);
    return size;
  }
  auto fold = [&](OpFoldResult x) {
    if (auto value = dyn_cast<Value>(x))
      size.value = value;
    else
      size.constant = getConstantIntValue(x);
  };
  if (depth > 24)
    return size;
  if (auto slice = tensor.getDefiningOp<tensor::ExtractSliceOp>()) {
    unsigned from =
        keptDims(slice.getMixedSizes(), slice.getDroppedDims())[dim];
    fold(slice.getMixedSizes()[from]);
    return size;
  }
  if (auto empty = tensor.getDefiningOp<tensor::EmptyOp>()) {
    fold(empty.getMixedSizes()[dim]);
    return size;
  }
  // Inits first: they say the size, other operands only its name.
  if (auto style = tensor.getDefiningOp<DestinationStyleOpInterface>())
    return trace(style.getDpsInits()[cast<OpResult>(tensor).getResultNumber()],
                 dim, depth + 1);
  SmallVector<std::pair<Value, unsigned>> others, walked;
  if (auto forall = tensor.getDefiningOp<scf::ForallOp>()) {
    unsigned i = cast<OpResult>(tensor).getResultNumber();
    return trace(forall.getOutputs()[i], dim, depth + 1);
  }
  if (auto result = dyn_cast<OpResult>(tensor)) {
    sameDims(result, dim, others, walked);
    llvm::append_range(others, walked);
  } else {
    auto argument = cast<BlockArgument>(tensor);
    Operation *owner = argument.getOwner()->getParentOp();
    if (auto loop = dyn_cast<scf::ForOp>(owner))
      others.push_back({loop.getInitArgs()[argument.getArgNumber() - 1], dim});
    else if (auto forall = dyn_cast<scf::ForallOp>(owner))
      others.push_back(
          {forall.getOutputs()[argument.getArgNumber() - forall.getRank()],
           dim});
  }
  return others.empty() ? size
                        : trace(others[0].first, others[0].second, depth + 1);
}

Size SizeTracer::getSize(Value tensor, unsigned dim) {
  return trace(tensor, dim, 0);
}

SmallVector<Size> SizeTracer::getSizes(Value tensor) {
  SmallVector<Size> sizes;
  for (unsigned i = 0, e = tensorType(tensor).getRank(); i < e; ++i)
    sizes.push_back(getSize(tensor, i));
  return sizes;
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

Polynomial SizeTracer::getSymbolic(const Size &size) {
  if (!size.symbol.empty())
    return Polynomial::symbol(size.symbol);
  if (size.constant)
    return *size.constant;
  if (size.value)
    if (std::optional<Polynomial> x = getSymbolic(size.value))
      return *x;
  return Polynomial::symbol("?");
}

/// The dimension that is asked for, if the tensor has it.
static std::optional<unsigned> dimensionOf(tensor::DimOp dim) {
  auto type = tensorType(dim.getSource());
  std::optional<int64_t> index = dim.getConstantIndex();
  if (!type || !index || *index < 0 || *index >= type.getRank())
    return std::nullopt;
  return *index;
}

std::optional<Polynomial> SizeTracer::getSymbolic(Value index, unsigned depth) {
  if (depth > 6)
    return std::nullopt;
  if (std::optional<int64_t> constant =
          getConstantIntValue(OpFoldResult(index)))
    return Polynomial(*constant);
  if (auto dim = index.getDefiningOp<tensor::DimOp>()) {
    std::optional<unsigned> i = dimensionOf(dim);
    if (!i)
      return std::nullopt;
    return getSymbolic(getSize(dim.getSource(), *i));
  }
  if (auto blocks = matchCeilQuotient(index)) {
    std::optional<Polynomial> x = getSymbolic(blocks->first, depth + 1);
    if (!x)
      return std::nullopt;
    return Polynomial::ceilDiv(*x, blocks->second);
  }
  // The smallest of several bounds: any of them will do.
  if (auto min = index.getDefiningOp<affine::AffineMinOp>()) {
    AffineMap map = min.getMap();
    for (AffineExpr expr : map.getResults()) {
      if (auto constant = dyn_cast<AffineConstantExpr>(expr))
        return Polynomial(constant.getValue());
      unsigned position = 0;
      if (auto d = dyn_cast<AffineDimExpr>(expr))
        position = d.getPosition();
      else if (auto s = dyn_cast<AffineSymbolExpr>(expr))
        position = map.getNumDims() + s.getPosition();
      else
        continue;
      if (std::optional<Polynomial> x =
              getSymbolic(min.getOperands()[position], depth + 1))
        return x;
    }
  }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

static ValueRange64 add(ValueRange64 a, ValueRange64 b) {
  return {clampedAdd(a.lo, b.lo), clampedAdd(a.hi, b.hi)};
}

static ValueRange64 multiply(ValueRange64 a, int64_t c) {
  int64_t x = clampedMul(a.lo, c), y = clampedMul(a.hi, c);
  return {std::min(x, y), std::max(x, y)};
}

static ValueRange64 evaluateExpr(AffineExpr expr,
                                 ArrayRef<ValueRange64> operands,
                                 unsigned numDims) {
  if (auto c = dyn_cast<AffineConstantExpr>(expr))
    return {c.getValue(), c.getValue()};
  if (auto d = dyn_cast<AffineDimExpr>(expr))
    return operands[d.getPosition()];
  if (auto s = dyn_cast<AffineSymbolExpr>(expr))
    return operands[numDims + s.getPosition()];
  auto binary = cast<AffineBinaryOpExpr>(expr);
  ValueRange64 lhs = evaluateExpr(binary.getLHS(), operands, numDims),
               rhs = evaluateExpr(binary.getRHS(), operands, numDims);
  if (expr.getKind() == AffineExprKind::Add)
    return add(lhs, rhs);
  if (!rhs.isPoint())
    return {};
  if (expr.getKind() == AffineExprKind::Mul)
    return multiply(lhs, rhs.lo);
  if (rhs.lo <= 0)
    return {};
  auto floorDiv = [&](int64_t x) {
    return x / rhs.lo - (x % rhs.lo < 0 ? 1 : 0);
  };
  switch (expr.getKind()) {
  case AffineExprKind::FloorDiv:
    return {floorDiv(lhs.lo), floorDiv(lhs.hi)};
  case AffineExprKind::CeilDiv:
    return {-floorDiv(-std::max(lhs.lo, -INT64_MAX)),
            -floorDiv(-std::max(lhs.hi, -INT64_MAX))};
  default:
    if (lhs.isPoint()) {
      int64_t rest = lhs.lo - floorDiv(lhs.lo) * rhs.lo;
      return {rest, rest};
    }
    return {0, rhs.lo - 1};
  }
}

ValueRange64 SizeTracer::evaluate(const Size &size, const RangeMap &known) {
  budget = 10'000;
  return evaluateSize(size, known);
}

ValueRange64 SizeTracer::evaluateSize(const Size &size, const RangeMap &known) {
  if (size.constant)
    return {*size.constant, *size.constant};
  if (size.value)
    return evaluateStep(size.value, known);
  if (std::optional<int64_t> number = getNumber(size.symbol))
    return {*number, *number};
  return {0, INT64_MAX};
}

ValueRange64 SizeTracer::evaluate(Value value, const RangeMap &known) {
  budget = 10'000;
  return evaluateStep(value, known);
}

/// By an operation's integer form, if it has one.
std::optional<ValueRange64> SizeTracer::evaluateForm(Operation *op,
                                                     const RangeMap &known) {
  IntegerForm form = getIntegerForm(op);
  bool ofConditions = llvm::any_of(op->getOperandTypes(),
                                   [](Type type) { return type.isInteger(1); });
  if (!form.isKnown() || ofConditions)
    return std::nullopt;
  SmallVector<ValueRange64> operands;
  for (Value operand : op->getOperands())
    operands.push_back(evaluateStep(operand, known));
  for (unsigned i : form.nonNegative)
    if (operands[i].lo < 0)
      return std::nullopt;
  bool isMin = form.kind == IntegerForm::Kind::Minimum;
  std::optional<ValueRange64> result;
  for (AffineExpr expr : form.map.getResults()) {
    ValueRange64 x = evaluateExpr(expr, operands, form.map.getNumDims());
    if (!result)
      result = x;
    else if (isMin)
      result = {std::min(result->lo, x.lo), std::min(result->hi, x.hi)};
    else
      result = {std::max(result->lo, x.lo), std::max(result->hi, x.hi)};
  }
  auto type = dyn_cast<IntegerType>(op->getResult(0).getType());
  bool wraps = type && (!llvm::isIntN(type.getWidth(), result->lo) ||
                        !llvm::isIntN(type.getWidth(), result->hi));
  return wraps ? ValueRange64() : result;
}

ValueRange64 SizeTracer::evaluateStep(Value value, const RangeMap &known) {
  if (--budget < 0)
    return {};
  if (auto x = known.find(value); x != known.end())
    return x->second;
  if (std::optional<int64_t> c = getConstantIntValue(OpFoldResult(value)))
    return {*c, *c};
  Operation *op = value.getDefiningOp();
  if (!op)
    return {};
  if (auto dim = dyn_cast<tensor::DimOp>(op)) {
    std::optional<unsigned> i = dimensionOf(dim);
    return i ? evaluateSize(getSize(dim.getSource(), *i), known)
             : ValueRange64();
  }
  auto operand = [&](unsigned i) {
    return evaluateStep(op->getOperand(i), known);
  };
  if (std::optional<ValueRange64> range = evaluateForm(op, known))
    return *range;
  if (isa<arith::AndIOp>(op) && value.getType().isInteger(1)) {
    ValueRange64 a = operand(0), b = operand(1);
    if ((a.isPoint() && a.lo == 0) || (b.isPoint() && b.lo == 0))
      return {0, 0};
    return a.isPoint() && b.isPoint() ? ValueRange64{1, 1} : ValueRange64();
  }
  if (isa<arith::SelectOp>(op)) {
    ValueRange64 c = operand(0), a = operand(1), b = operand(2);
    if (c.isPoint())
      return c.lo != 0 ? a : b;
    return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)};
  }
  if (auto cmp = dyn_cast<arith::CmpIOp>(op)) {
    ValueRange64 a = operand(0), b = operand(1);
    if (!a.isPoint() || !b.isPoint())
      return {};
    bool holds = arith::applyCmpPredicate(
        cmp.getPredicate(), APInt(64, a.lo, true), APInt(64, b.lo, true));
    return {holds, holds};
  }
  return {};
}
