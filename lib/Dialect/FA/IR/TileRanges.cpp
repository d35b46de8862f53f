// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/FA/IR/TileRanges.h"
#include "fa/Dialect/FA/IR/Granularity.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <numeric>

using namespace mlir;
using namespace fa;

/// What fits 64 bits with a sign.
static constexpr unsigned kMaxBits = 62;
static constexpr unsigned kUnlimitedBits = 57;

SmallVector<Operation *> fa::sliceInBlock(Value value, Block &block) {
  DenseSet<Operation *> needed;
  SmallVector<Value> worklist = {value};
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val().getDefiningOp();
    if (op && op->getBlock() == &block && needed.insert(op).second)
      llvm::append_range(worklist, op->getOperands());
  }
  SmallVector<Operation *> slice;
  for (Operation &op : block)
    if (needed.contains(&op))
      slice.push_back(&op);
  return slice;
}

TileRanges::TileRanges(ListBlocksOp op, OpBuilder &builder, Reduce reduce)
    : op(op), b(builder), loc(op.getLoc()), reduce(reduce) {
  multiples[op.getMask().front().getArgument(2)] = op.tileKeys();
  // The first row of the block: what a grid counts in steps.
  if (auto grid = op->getParentOfType<scf::ForallOp>())
    for (auto [iv, lower, step] :
         llvm::zip(grid.getInductionVars(), grid.getMixedLowerBound(),
                   grid.getMixedStep()))
      if (std::optional<int64_t> c = getConstantIntValue(step);
          c && isConstantIntValue(lower, 0))
        multiples[iv] = *c;
}

Value TileRanges::constant(int64_t c) {
  return arith::ConstantIntOp::create(b, loc, c, 64);
}

TileSamples TileRanges::samplesOf(Value value) {
  TileSamples samples;
  Block &mask = op.getMask().front();
  auto along = [&](unsigned dim, int64_t size, int64_t &count, int64_t &every) {
    int64_t n = getGranularity(value, mask.getArgument(dim), multiples);
    every = std::gcd(n, size);
    count = size / every;
  };
  along(0, op.tileRows(), samples.rows, samples.everyRow);
  along(1, op.tileKeys(), samples.keys, samples.everyKey);
  return samples;
}

std::optional<TileRanges::Known> TileRanges::of(Value value) {
  if (auto it = known.find(value); it != known.end())
    return it->second;
  std::optional<Known> result = compute(value);
  known[value] = result;
  return result;
}

std::optional<TileRanges::Known> TileRanges::compute(Value value) {
  Type type = value.getType();
  if (!type.isIntOrIndex() ||
      (type.isInteger() && type.getIntOrFloatBitWidth() > 64))
    return std::nullopt;
  if (APInt c; !type.isInteger(1) && matchPattern(value, m_ConstantInt(&c)) &&
               c.getSignificantBits() <= kUnlimitedBits) {
    Value number = constant(c.getSExtValue());
    return Known{{number, number}, c.getSignificantBits()};
  }
  TileSamples samples = samplesOf(value);
  if (samples.count() <= kMaxSamples) {
    std::optional<TileRange> range = reduce(value, samples);
    unsigned bits = type.isInteger(1) ? 0
                    : type.isInteger() && type.getIntOrFloatBitWidth() <= 32
                        ? 32
                        : kUnlimitedBits;
    if (range)
      return Known{*range, bits, type.isInteger(64)};
  }
  Operation *def = value.getDefiningOp();
  if (!def || def->getBlock() != &op.getMask().front())
    return std::nullopt;
  return type.isInteger(1) ? ofCondition(def) : ofOperation(def);
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

std::optional<TileRanges::Known> TileRanges::sum(const Known &x, const Known &y,
                                                 bool subtract) {
  unsigned bits = std::max(x.bits, y.bits) + 1;
  if (bits > kMaxBits || x.mayBeUnlimited || y.mayBeUnlimited)
    return std::nullopt;
  if (subtract)
    return Known{{arith::SubIOp::create(b, loc, x.range.lo, y.range.hi),
                  arith::SubIOp::create(b, loc, x.range.hi, y.range.lo)},
                 bits};
  return Known{{arith::AddIOp::create(b, loc, x.range.lo, y.range.lo),
                arith::AddIOp::create(b, loc, x.range.hi, y.range.hi)},
               bits};
}

std::optional<TileRanges::Known> TileRanges::scaled(const Known &x,
                                                    int64_t factor) {
  unsigned bits = x.bits + llvm::Log2_64_Ceil(std::abs(factor) + 1) + 1;
  if (std::abs(factor) > kUnlimited || bits > kMaxBits || x.mayBeUnlimited)
    return std::nullopt;
  Value c = constant(factor);
  Value lo = arith::MulIOp::create(b, loc, x.range.lo, c),
        hi = arith::MulIOp::create(b, loc, x.range.hi, c);
  if (factor < 0)
    std::swap(lo, hi);
  return Known{{lo, hi}, bits};
}

std::optional<TileRanges::Known> TileRanges::quotient(const Known &x,
                                                      int64_t divisor) {
  if (divisor < 1 || x.mayBeUnlimited)
    return std::nullopt;
  Value c = constant(divisor);
  return Known{{arith::FloorDivSIOp::create(b, loc, x.range.lo, c),
                arith::FloorDivSIOp::create(b, loc, x.range.hi, c)},
               x.bits};
}

TileRanges::Known TileRanges::choice(const Known &x, const Known &y,
                                     IntegerForm::Kind kind) {
  auto create = [&](Value a, Value c) -> Value {
    if (kind == IntegerForm::Kind::Minimum)
      return arith::MinSIOp::create(b, loc, a, c);
    return arith::MaxSIOp::create(b, loc, a, c);
  };
  return {{create(x.range.lo, y.range.lo), create(x.range.hi, y.range.hi)},
          std::max(x.bits, y.bits),
          x.mayBeUnlimited || y.mayBeUnlimited};
}

/// The y of -y; null in other expressions.
static AffineExpr negatedIn(AffineExpr expr) {
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  bool isNegated =
      binary && expr.getKind() == AffineExprKind::Mul &&
      binary.getRHS() == getAffineConstantExpr(-1, expr.getContext());
  return isNegated ? binary.getLHS() : AffineExpr();
}

std::optional<TileRanges::Known> TileRanges::ofExpr(AffineExpr expr,
                                                    ArrayRef<Known> operands,
                                                    unsigned numDims) {
  if (auto c = dyn_cast<AffineConstantExpr>(expr)) {
    if (std::abs(c.getValue()) > kUnlimited)
      return std::nullopt;
    Value number = constant(c.getValue());
    return Known{{number, number},
                 llvm::Log2_64_Ceil(std::abs(c.getValue()) + 1) + 1};
  }
  if (auto d = dyn_cast<AffineDimExpr>(expr))
    return operands[d.getPosition()];
  if (auto s = dyn_cast<AffineSymbolExpr>(expr))
    return operands[numDims + s.getPosition()];
  auto binary = cast<AffineBinaryOpExpr>(expr);
  std::optional<Known> x = ofExpr(binary.getLHS(), operands, numDims);
  if (!x)
    return std::nullopt;
  if (expr.getKind() == AffineExprKind::Add) {
    AffineExpr rhs = binary.getRHS(), subtracted = negatedIn(rhs);
    std::optional<Known> y =
        ofExpr(subtracted ? subtracted : rhs, operands, numDims);
    return y ? sum(*x, *y, bool(subtracted)) : std::nullopt;
  }
  auto c = dyn_cast<AffineConstantExpr>(binary.getRHS());
  if (c && expr.getKind() == AffineExprKind::Mul)
    return scaled(*x, c.getValue());
  if (c && expr.getKind() == AffineExprKind::FloorDiv)
    return quotient(*x, c.getValue());
  return std::nullopt;
}

std::optional<TileRanges::Known> TileRanges::ofForm(const IntegerForm &form,
                                                    ArrayRef<Known> operands) {
  std::optional<Known> result;
  for (AffineExpr expr : form.map.getResults()) {
    std::optional<Known> next = ofExpr(expr, operands, form.map.getNumDims());
    if (!next)
      return std::nullopt;
    result = result ? choice(*result, *next, form.kind) : *next;
  }
  return result;
}

std::optional<TileRanges::Known> TileRanges::ofOperation(Operation *def) {
  if (def->getNumRegions() || !isPure(def))
    return std::nullopt;
  SmallVector<Known> operands;
  for (Value operand : def->getOperands()) {
    std::optional<Known> x =
        operand.getType().isIntOrIndex() ? of(operand) : std::nullopt;
    if (!x)
      return std::nullopt;
    operands.push_back(*x);
  }
  IntegerForm form = getIntegerForm(def);
  // Of conditions there are no numbers, and of no number is it known that it is
  // not negative.
  if (!form.isKnown() || !form.nonNegative.empty() ||
      llvm::any_of(def->getOperandTypes(),
                   [](Type type) { return type.isInteger(1); }))
    return std::nullopt;
  std::optional<Known> result = ofForm(form, operands);
  return result && fits(*result, operands, def) ? result : std::nullopt;
}

/// Whether a result is what its form says. As in the mask analysis, arithmetic
/// on indices and 64-bit integers is taken not to wrap; narrower arithmetic
/// must be shown not to.
bool TileRanges::fits(const Known &result, ArrayRef<Known> operands,
                      Operation *def) {
  Type type = def->getResult(0).getType();
  // An index may have 32 bits.
  if (type.isIndex())
    return !result.mayBeUnlimited;
  bool isLarger = llvm::none_of(
      llvm::zip(operands, def->getOperandTypes()), [&](auto operand) {
        auto [known, from] = operand;
        return from == type && known.bits >= result.bits;
      });
  return !isLarger || !mayWrap(def) ||
         result.bits <= type.getIntOrFloatBitWidth();
}

//===----------------------------------------------------------------------===//
// Conditions: `lo` holds if all do, `hi` if any may
//===----------------------------------------------------------------------===//

std::optional<TileRanges::Known> TileRanges::ofCompare(arith::CmpIOp compare) {
  using P = arith::CmpIPredicate;
  if (compare.getLhs().getType().isInteger(1))
    return std::nullopt;
  std::optional<Known> x = of(compare.getLhs()), y = of(compare.getRhs());
  if (!x || !y)
    return std::nullopt;
  auto holds = [&](P predicate, Value a, Value c) -> Value {
    return arith::CmpIOp::create(b, loc, predicate, a, c);
  };
  auto both = [&](Value a, Value c) -> Value {
    return arith::AndIOp::create(b, loc, a, c);
  };
  TileRange p = x->range, q = y->range;
  P predicate = compare.getPredicate();
  if (predicate == P::sge || predicate == P::sgt) {
    std::swap(p, q);
    predicate = predicate == P::sge ? P::sle : P::slt;
  }
  if (predicate == P::sle || predicate == P::slt)
    return Known{{holds(predicate, p.hi, q.lo), holds(predicate, p.lo, q.hi)}};
  if (predicate != P::eq && predicate != P::ne)
    return std::nullopt;
  // All equal: one number on both sides. Some may be: the ranges overlap.
  Value all = both(holds(P::sle, p.hi, q.lo), holds(P::sle, q.hi, p.lo));
  Value any = both(holds(P::sle, p.lo, q.hi), holds(P::sle, q.lo, p.hi));
  if (predicate == P::eq)
    return Known{{all, any}};
  Value yes = arith::ConstantIntOp::create(b, loc, 1, 1);
  return Known{{arith::XOrIOp::create(b, loc, any, yes),
                arith::XOrIOp::create(b, loc, all, yes)}};
}

std::optional<TileRanges::Known> TileRanges::ofCondition(Operation *def) {
  if (auto compare = dyn_cast<arith::CmpIOp>(def))
    return ofCompare(compare);
  Value no = arith::ConstantIntOp::create(b, loc, 0, 1),
        yes = arith::ConstantIntOp::create(b, loc, 1, 1);
  if (isa<arith::AndIOp, arith::OrIOp>(def)) {
    std::optional<Known> x = of(def->getOperand(0)), y = of(def->getOperand(1));
    if (!x && !y)
      return std::nullopt;
    TileRange p = x ? x->range : TileRange{no, yes},
              q = y ? y->range : TileRange{no, yes};
    auto create = [&](Value a, Value c) -> Value {
      if (isa<arith::AndIOp>(def))
        return arith::AndIOp::create(b, loc, a, c);
      return arith::OrIOp::create(b, loc, a, c);
    };
    return Known{{create(p.lo, q.lo), create(p.hi, q.hi)}};
  }
  if (isa<arith::XOrIOp>(def)) {
    APInt c;
    bool isNot =
        matchPattern(def->getOperand(1), m_ConstantInt(&c)) && !c.isZero();
    std::optional<Known> x = isNot ? of(def->getOperand(0)) : std::nullopt;
    if (!x)
      return std::nullopt;
    return Known{{arith::XOrIOp::create(b, loc, x->range.hi, yes),
                  arith::XOrIOp::create(b, loc, x->range.lo, yes)}};
  }
  return std::nullopt;
}
