// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Analysis/MaskIntervals.h"
#include "MaskFormula.h"
#include "fa/Dialect/FA/IR/Matchers.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa;

/// Where 64-bit values read from memory are limited.
static constexpr int64_t kWideLimit = int64_t(1) << 40;
/// Where an index has 32 bits: sums with a few lengths don't wrap.
static constexpr int64_t kNarrowLimit = int64_t(1) << 29;

std::optional<ScoreMask> fa::matchScoreMask(linalg::GenericOp op) {
  ScoreMask mask;
  Operation *yield = op.getBody()->getTerminator();
  if (yield->getNumOperands() != 1)
    return std::nullopt;
  mask.unmasked = yield->getOperand(0);
  while (auto select = mask.unmasked.getDefiningOp<arith::SelectOp>()) {
    bool negated = isNegativeInfinity(select.getTrueValue());
    if (select->getBlock() != op.getBody() ||
        (!negated && !isNegativeInfinity(select.getFalseValue())) ||
        !select.getCondition().getType().isInteger(1))
      break;
    mask.conditions.push_back({select.getCondition(), negated});
    mask.unmasked = negated ? select.getFalseValue() : select.getTrueValue();
  }
  if (mask.conditions.empty())
    return std::nullopt;
  return mask;
}

//===----------------------------------------------------------------------===//
// Intervals of a formula
//===----------------------------------------------------------------------===//

namespace {
/// What one formula says about a block of rows.
struct Intervals {
  KeyInterval visited, full, unseen = KeyInterval::nothing();
};

class IntervalSolver {
public:
  IntervalSolver(int64_t rows, MLIRContext *ctx) : rows(rows), ctx(ctx) {}
  Intervals solve(const Formula &formula);
  bool decided = true;

private:
  Intervals unknown() {
    decided = false;
    return {KeyInterval::everything(), KeyInterval::nothing()};
  }
  Intervals solveAtLeastZero(AffineExpr expr);
  Intervals solveTerm(const AffineSum &rest, AffineExpr base, int64_t factor);
  /// The largest or smallest value over the block's rows.
  std::optional<AffineExpr> extreme(AffineExpr expr, bool largest);
  int64_t rows;
  MLIRContext *ctx;
};
} // namespace

/// An interval of keys that neither of two formulas lets any row see.
static KeyInterval unseenByBoth(const Intervals &a, const Intervals &b) {
  auto before = [](const Intervals &x) {
    return KeyInterval::get(Bound::negInf(), x.visited.lo);
  };
  auto after = [](const Intervals &x) {
    return KeyInterval::get(x.visited.hi, Bound::posInf());
  };
  // What lies beyond both is no gap.
  std::pair<KeyInterval, KeyInterval> outsideBoth[] = {
      {after(a), before(b)}, {after(b), before(a)}, {a.unseen, b.unseen},
      {a.unseen, before(b)}, {a.unseen, after(b)},  {b.unseen, before(a)},
      {b.unseen, after(a)}};
  // Of everything or nothing there is no end between.
  bool isWhole = a.visited.getWholeIf() || b.visited.getWholeIf();
  KeyInterval unseen = KeyInterval::nothing();
  for (auto &[x, y] : ArrayRef(outsideBoth).drop_front(isWhole ? 2 : 0))
    unseen = KeyInterval::insideUnion(unseen, KeyInterval::intersect(x, y));
  return unseen;
}

static bool mentions(AffineExpr expr, unsigned dim) {
  return expr.isFunctionOfDim(dim);
}

std::optional<AffineExpr> IntervalSolver::extreme(AffineExpr expr,
                                                  bool largest) {
  AffineSum sum = AffineSum::get(expr);
  AffineExpr result = getAffineConstantExpr(sum.constant, ctx);
  for (auto &[base, factor] : sum.terms) {
    if (!mentions(base, MaskDim::Row)) {
      result = result + base * factor;
      continue;
    }
    bool largestBase = (factor > 0) == largest;
    if (isa<AffineDimExpr>(base)) {
      result = result + factor * (largestBase ? rows - 1 : 0);
      continue;
    }
    auto binary = cast<AffineBinaryOpExpr>(base);
    auto divisor = dyn_cast<AffineConstantExpr>(binary.getRHS());
    if (!divisor || divisor.getValue() <= 0)
      return std::nullopt;
    if (base.getKind() == AffineExprKind::Mod) {
      result = result + factor * (largestBase ? divisor.getValue() - 1 : 0);
      continue;
    }
    std::optional<AffineExpr> dividend = extreme(binary.getLHS(), largestBase);
    if (!dividend)
      return std::nullopt;
    result = result + getAffineBinaryOpExpr(base.getKind(),
                                            canonicalSum(*dividend), divisor) *
                          factor;
  }
  return canonicalSum(result);
}

/// factor * base + rest >= 0, where only base depends on the key.
Intervals IntervalSolver::solveTerm(const AffineSum &rest, AffineExpr base,
                                    int64_t factor) {
  AffineExpr r = rest.toExpr(ctx);
  // base >= limit where the factor is positive, else base <= limit.
  AffineExpr limit =
      factor > 0 ? canonicalSum(-r).ceilDiv(factor) : r.floorDiv(-factor);
  if (!isa<AffineDimExpr>(base)) {
    auto binary = dyn_cast<AffineBinaryOpExpr>(base);
    auto c = binary ? dyn_cast<AffineConstantExpr>(binary.getRHS())
                    : AffineConstantExpr();
    if (!c || c.getValue() <= 0)
      return unknown();
    int64_t divisor = c.getValue();
    AffineExpr x = binary.getLHS();
    // Quotient >= limit and quotient <= limit, as a condition on the dividend.
    if (base.getKind() == AffineExprKind::FloorDiv)
      return solveAtLeastZero(factor > 0 ? x - limit * divisor
                                         : limit * divisor + (divisor - 1) - x);
    if (base.getKind() == AffineExprKind::CeilDiv)
      return solveAtLeastZero(factor > 0 ? x - (limit - 1) * divisor - 1
                                         : limit * divisor - x);
    return unknown();
  }
  std::optional<AffineExpr> least = extreme(limit, false),
                            most = extreme(limit, true);
  if (!least || !most)
    return unknown();
  // Seen by some row: the loosest limit; by every row: the strictest.
  if (factor > 0)
    return {KeyInterval::get(Bound::affine(*least), Bound::posInf()),
            KeyInterval::get(Bound::affine(*most), Bound::posInf())};
  return {KeyInterval::get(Bound::negInf(), Bound::affine(*most + 1)),
          KeyInterval::get(Bound::negInf(), Bound::affine(*least + 1))};
}

Intervals IntervalSolver::solveAtLeastZero(AffineExpr expr) {
  expr = canonicalSum(expr);
  AffineSum rest = AffineSum::get(expr);
  SmallVector<std::pair<AffineExpr, int64_t>> ofKey;
  llvm::erase_if(rest.terms, [&](auto &term) {
    if (!mentions(term.first, MaskDim::Key))
      return false;
    ofKey.push_back(term);
    return true;
  });
  if (ofKey.size() > 1 || mentions(expr, MaskDim::Column) ||
      mentions(expr, MaskDim::KeyOffset))
    return unknown();
  if (ofKey.size() == 1)
    return solveTerm(rest, ofKey[0].first, ofKey[0].second);
  // The same for all keys.
  std::optional<AffineExpr> least = extreme(expr, false),
                            most = extreme(expr, true);
  if (!least || !most)
    return unknown();
  auto where = [&](AffineExpr x) {
    Bound minusOne = Bound::affine(getAffineConstantExpr(-1, ctx));
    return KeyInterval::select(Condition::less(minusOne, Bound::affine(x)),
                               KeyInterval::everything(),
                               KeyInterval::nothing());
  };
  return {where(*most), where(*least)};
}

Intervals IntervalSolver::solve(const Formula &formula) {
  KeyInterval all = KeyInterval::everything(), none = KeyInterval::nothing();
  switch (formula.kind) {
  case Formula::Kind::True:
    return {all, all};
  case Formula::Kind::False:
    return {none, none};
  case Formula::Kind::Unknown:
    return unknown();
  case Formula::Kind::AtLeastZero: {
    // j0 = j - column: what is left of the column depends on the tile.
    AffineExpr key = getAffineDimExpr(MaskDim::Key, ctx),
               column = getAffineDimExpr(MaskDim::Column, ctx);
    return solveAtLeastZero(formula.expr.replace(
        getAffineDimExpr(MaskDim::KeyOffset, ctx), key - column));
  }
  case Formula::Kind::Flag: {
    Condition flag = {
        Condition::Kind::Flag, {}, formula.flag, formula.negated, {}};
    KeyInterval where = KeyInterval::select(flag, all, none);
    return {where, where};
  }
  case Formula::Kind::And:
  case Formula::Kind::Or:
    break;
  }
  bool isAnd = formula.kind == Formula::Kind::And;
  Intervals result = solve(formula.operands.front());
  for (const Formula &operand : ArrayRef(formula.operands).drop_front()) {
    Intervals next = solve(operand);
    if (isAnd) {
      result.visited = KeyInterval::intersect(result.visited, next.visited);
      result.full = KeyInterval::intersect(result.full, next.full);
      result.unseen = KeyInterval::insideUnion(result.unseen, next.unseen);
    } else {
      result.unseen = unseenByBoth(result, next);
      result.visited = KeyInterval::hull(result.visited, next.visited);
      result.full = KeyInterval::insideUnion(result.full, next.full);
    }
  }
  return result;
}

//===----------------------------------------------------------------------===//
// The analysis
//===----------------------------------------------------------------------===//

/// Whether a value may be a number from memory or from the caller, of any size
/// that its type has.
static bool isGiven(Value value, unsigned depth = 0) {
  Operation *op = value.getDefiningOp();
  if (!op) {
    auto argument = cast<BlockArgument>(value);
    Operation *owner = argument.getOwner()->getParentOp();
    return !isa_and_nonnull<scf::ForOp, scf::ForallOp>(owner);
  }
  if (isa<tensor::DimOp>(op) || matchPattern(op, m_Constant()))
    return false;
  if (depth > 8 ||
      !isa<arith::ArithDialect, affine::AffineDialect>(op->getDialect()))
    return true;
  return llvm::any_of(op->getOperands(),
                      [&](Value x) { return isGiven(x, depth + 1); });
}

/// Whether a type has 64 bits, or may have.
static bool isWide(Type type) {
  auto integer = dyn_cast<IntegerType>(type);
  return !integer || integer.getWidth() >= 64;
}

MaskIntervals MaskIntervals::compute(const ScoreMask &mask,
                                     const MaskBlock &block) {
  FormulaBuilder builder(block);
  SmallVector<Formula> parts;
  for (auto &[condition, negated] : mask.conditions)
    parts.push_back(builder.build(condition, negated));
  IntervalSolver solver(block.rows, block.keyLoop->getContext());
  Intervals intervals = solver.solve(Formula::conjunction(parts));
  MaskIntervals result;
  result.visited = intervals.visited;
  result.full = intervals.full;
  result.unseen = intervals.unseen;
  result.decided = solver.decided;
  result.keyLoop = block.keyLoop;
  for (Value symbol : builder.symbols)
    result.uniforms.push_back({symbol, isGiven(symbol)});
  result.flagValues = builder.flags;
  return result;
}

/// Clones what computes a value inside the loop to the insertion point.
static Value cloneOut(OpBuilder &b, Operation *loop, Value value,
                      IRMapping &map) {
  if (map.contains(value) ||
      !loop->isAncestor(value.getParentRegion()->getParentOp()))
    return map.lookupOrDefault(value);
  Operation *op = value.getDefiningOp();
  for (Value operand : op->getOperands())
    map.map(operand, cloneOut(b, loop, operand, map));
  b.clone(*op, map);
  return map.lookup(value);
}

/// Marks the symbols and flags that bounds refer to.
static void collectUses(const Bound &bound, llvm::SmallBitVector &symbols,
                        llvm::SmallBitVector &flags);
static void collectUses(const Condition &condition,
                        llvm::SmallBitVector &symbols,
                        llvm::SmallBitVector &flags) {
  if (condition.kind == Condition::Kind::Flag)
    flags.set(condition.flag);
  for (const Bound &bound : condition.bounds)
    collectUses(bound, symbols, flags);
  for (const Condition &part : condition.all)
    collectUses(part, symbols, flags);
}
static void collectUses(const Bound &bound, llvm::SmallBitVector &symbols,
                        llvm::SmallBitVector &flags) {
  if (bound.getKind() == Bound::Kind::Affine)
    bound.getExpr().walk([&](AffineExpr expr) {
      if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
        symbols.set(symbol.getPosition());
    });
  if (bound.getKind() == Bound::Kind::Select)
    collectUses(bound.getCondition(), symbols, flags);
  for (const Bound &operand : bound.getOperands())
    collectUses(operand, symbols, flags);
}

/// Limits a number to what bounds can be computed from: in its own type, if
/// that is wider than an index may be.
static Value limit(OpBuilder &b, Location loc, Value value, int64_t most) {
  Type type = value.getType();
  if (type.isIndex()) {
    type = b.getI64Type();
    value = arith::IndexCastOp::create(b, loc, type, value);
  }
  auto constant = [&](int64_t x) -> Value {
    return arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, x));
  };
  value = arith::MinSIOp::create(b, loc, value, constant(most));
  return arith::MaxSIOp::create(b, loc, value, constant(-most));
}

void MaskIntervals::materializeUniforms(OpBuilder &b,
                                        SmallVectorImpl<OpFoldResult> &symbols,
                                        SmallVectorImpl<Value> &flags,
                                        unsigned indexBits) const {
  IRMapping map;
  llvm::SmallBitVector usedSymbols(uniforms.size()),
      usedFlags(flagValues.size());
  for (const Bound *bound :
       {&visited.lo, &visited.hi, &full.lo, &full.hi, &unseen.lo, &unseen.hi})
    collectUses(*bound, usedSymbols, usedFlags);
  for (auto [i, uniform] : llvm::enumerate(uniforms)) {
    if (!usedSymbols.test(i)) {
      symbols.push_back(b.getIndexAttr(0));
      continue;
    }
    Value value = cloneOut(b, keyLoop, uniform.value, map);
    Location loc = value.getLoc();
    bool isNarrow = indexBits < 64;
    if (uniform.isGiven && (isNarrow || isWide(value.getType())) &&
        (value.getType().isIndex() ||
         value.getType().getIntOrFloatBitWidth() >= 32))
      value = limit(b, loc, value, isNarrow ? kNarrowLimit : kWideLimit);
    if (!value.getType().isIndex())
      value = arith::IndexCastOp::create(b, loc, b.getIndexType(), value);
    symbols.push_back(value);
  }
  for (auto [i, flag] : llvm::enumerate(flagValues))
    flags.push_back(usedFlags.test(i) ? cloneOut(b, keyLoop, flag, map)
                                      : Value());
}

void MaskIntervals::print(raw_ostream &os) const {
  auto printSymbol = [&](unsigned i) {
    std::string name;
    llvm::raw_string_ostream stream(name);
    uniforms[i].value.printAsOperand(stream, OpPrintingFlags().useLocalScope());
    os << name;
  };
  auto printInterval = [&](StringRef name, const KeyInterval &interval) {
    os << name;
    if (interval.isNothing()) {
      os << " none";
      return;
    }
    if (interval.isEverything()) {
      os << " all";
      return;
    }
    os << " [";
    interval.lo.print(os, printSymbol);
    os << ", ";
    interval.hi.print(os, printSymbol);
    os << ")";
  };
  printInterval("visited", visited);
  printInterval(", full", full);
  if (!unseen.isNothing())
    printInterval(", unseen", unseen);
  if (!decided)
    os << "; part of the mask could not be decided";
}
