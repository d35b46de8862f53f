// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Analysis/Bound.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

using namespace mlir;
using namespace fa;

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

static void addTerms(AffineExpr expr, int64_t factor, AffineSum &sum) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr)) {
    sum.constant += factor * constant.getValue();
    return;
  }
  if (auto binary = dyn_cast<AffineBinaryOpExpr>(expr)) {
    AffineExpr lhs = binary.getLHS(), rhs = binary.getRHS();
    if (expr.getKind() == AffineExprKind::Add) {
      addTerms(lhs, factor, sum);
      addTerms(rhs, factor, sum);
      return;
    }
    if (expr.getKind() == AffineExprKind::Mul) {
      if (auto c = dyn_cast<AffineConstantExpr>(rhs))
        return addTerms(lhs, factor * c.getValue(), sum);
      if (auto c = dyn_cast<AffineConstantExpr>(lhs))
        return addTerms(rhs, factor * c.getValue(), sum);
    } else {
      // floordiv, ceildiv, mod: a base, with a canonical operand.
      expr = getAffineBinaryOpExpr(expr.getKind(), canonicalSum(lhs), rhs);
      if (auto constant = dyn_cast<AffineConstantExpr>(expr)) {
        sum.constant += factor * constant.getValue();
        return;
      }
    }
  }
  for (auto &[base, coefficient] : sum.terms)
    if (base == expr) {
      coefficient += factor;
      return;
    }
  sum.terms.push_back({expr, factor});
}

/// An order of expressions that does not depend on addresses.
static bool isBefore(AffineExpr a, AffineExpr b) {
  if (a.getKind() != b.getKind())
    return a.getKind() > b.getKind();
  if (auto d = dyn_cast<AffineDimExpr>(a))
    return d.getPosition() < cast<AffineDimExpr>(b).getPosition();
  if (auto s = dyn_cast<AffineSymbolExpr>(a))
    return s.getPosition() < cast<AffineSymbolExpr>(b).getPosition();
  if (auto c = dyn_cast<AffineConstantExpr>(a))
    return c.getValue() < cast<AffineConstantExpr>(b).getValue();
  auto x = cast<AffineBinaryOpExpr>(a), y = cast<AffineBinaryOpExpr>(b);
  if (x.getLHS() != y.getLHS())
    return isBefore(x.getLHS(), y.getLHS());
  return x.getRHS() != y.getRHS() && isBefore(x.getRHS(), y.getRHS());
}

AffineSum AffineSum::get(AffineExpr expr) {
  AffineSum sum;
  addTerms(expr, 1, sum);
  llvm::erase_if(sum.terms, [](auto &term) { return term.second == 0; });
  llvm::sort(sum.terms,
             [](auto &a, auto &b) { return isBefore(a.first, b.first); });
  return sum;
}

AffineExpr AffineSum::toExpr(MLIRContext *ctx) const {
  AffineExpr expr = getAffineConstantExpr(0, ctx);
  for (auto &[base, coefficient] : terms)
    expr = expr + base * coefficient;
  return expr + constant;
}

AffineExpr fa::canonicalSum(AffineExpr expr) {
  return AffineSum::get(expr).toExpr(expr.getContext());
}

/// a - b, where that is a number.
static std::optional<int64_t> constantDifference(const Bound &a,
                                                 const Bound &b) {
  if (a.getKind() != Bound::Kind::Affine || b.getKind() != Bound::Kind::Affine)
    return std::nullopt;
  AffineSum sum = AffineSum::get(a.getExpr() - b.getExpr());
  if (!sum.terms.empty())
    return std::nullopt;
  return sum.constant;
}

//===----------------------------------------------------------------------===//
// Bounds
//===----------------------------------------------------------------------===//

Bound Bound::affine(AffineExpr expr) {
  Bound bound(Kind::Affine);
  bound.expr = canonicalSum(expr);
  return bound;
}

std::optional<int64_t> Bound::getConstant() const {
  if (kind == Kind::Affine)
    if (auto constant = dyn_cast<AffineConstantExpr>(expr))
      return constant.getValue();
  return std::nullopt;
}

bool Bound::operator==(const Bound &other) const {
  if (kind != other.kind || expr != other.expr ||
      operands.size() != other.operands.size())
    return false;
  for (auto [a, b] : llvm::zip(operands, other.operands))
    if (!(a == b))
      return false;
  return kind != Kind::Select || *condition == *other.condition;
}

bool Condition::operator==(const Condition &other) const {
  if (kind != other.kind || flag != other.flag || negated != other.negated ||
      bounds.size() != other.bounds.size() || all.size() != other.all.size())
    return false;
  for (auto [a, b] : llvm::zip(bounds, other.bounds))
    if (!(a == b))
      return false;
  for (auto [a, b] : llvm::zip(all, other.all))
    if (!(a == b))
      return false;
  return true;
}

Bound Bound::minOrMax(Kind kind, const Bound &a, const Bound &b) {
  bool isMin = kind == Kind::Min;
  // The neutral and the absorbing element.
  Kind neutral = isMin ? Kind::PosInf : Kind::NegInf,
       absorbing = isMin ? Kind::NegInf : Kind::PosInf;
  if (a.kind == neutral || b.kind == absorbing)
    return b;
  if (b.kind == neutral || a.kind == absorbing)
    return a;
  Bound result(kind);
  auto append = [&](const Bound &x) {
    for (Bound &y : result.operands) {
      if (x == y)
        return;
      if (std::optional<int64_t> difference = constantDifference(x, y)) {
        if ((*difference < 0) == isMin)
          y = x;
        return;
      }
    }
    result.operands.push_back(x);
  };
  for (const Bound *x : {&a, &b})
    if (x->kind == kind)
      llvm::for_each(x->operands, append);
    else
      append(*x);
  if (result.operands.size() == 1)
    return Bound(result.operands.front());
  for (const Bound &operand : result.operands)
    result.size += operand.size;
  return result;
}

unsigned Condition::getSize() const {
  unsigned size = 1;
  for (const Bound &bound : bounds)
    size += bound.getSize();
  for (const Condition &part : all)
    size += part.getSize();
  return size;
}

Bound Bound::min(const Bound &a, const Bound &b) {
  return minOrMax(Kind::Min, a, b);
}
Bound Bound::max(const Bound &a, const Bound &b) {
  return minOrMax(Kind::Max, a, b);
}

/// The condition's value, where it is known.
static std::optional<bool> evaluate(const Condition &c) {
  if (c.kind == Condition::Kind::All) {
    bool known = true;
    for (const Condition &x : c.all) {
      std::optional<bool> value = evaluate(x);
      if (value && !*value)
        return false;
      known &= value.has_value();
    }
    return known ? std::optional<bool>(true) : std::nullopt;
  }
  if (c.kind != Condition::Kind::Less)
    return std::nullopt;
  if (c.negated) {
    std::optional<bool> value =
        evaluate(Condition::less(c.bounds[0], c.bounds[1]));
    return value ? std::optional<bool>(!*value) : std::nullopt;
  }
  // Without a bound, a lower end is 0; an upper one is more than any key.
  const Bound &a = c.bounds[0], &b = c.bounds[1];
  if (a.isPosInf() || b.isNegInf())
    return false;
  if (a.isNegInf() && b.isPosInf())
    return true;
  if (a.isNegInf() && b.getConstant())
    return *b.getConstant() > 0;
  if (std::optional<int64_t> difference = constantDifference(b, a))
    return *difference > 0;
  return std::nullopt;
}

Bound Bound::select(const Condition &c, const Bound &a, const Bound &b) {
  if (a == b)
    return a;
  if (std::optional<bool> known = evaluate(c))
    return *known ? a : b;
  Bound result(Kind::Select);
  result.operands = {a, b};
  result.condition = std::make_shared<Condition>(c);
  result.size += a.size + b.size + c.getSize();
  return result;
}

static void printCondition(raw_ostream &os, const Condition &c,
                           llvm::function_ref<void(unsigned)> printSymbol) {
  switch (c.kind) {
  case Condition::Kind::Less:
    c.bounds[0].print(os, printSymbol);
    os << " < ";
    c.bounds[1].print(os, printSymbol);
    return;
  case Condition::Kind::NotShorter:
    os << "longer";
    return;
  case Condition::Kind::Flag:
    os << (c.negated ? "not " : "");
    os << "flag " << c.flag;
    return;
  case Condition::Kind::All:
    llvm::interleave(
        c.all, os,
        [&](const Condition &x) { printCondition(os, x, printSymbol); },
        " and ");
    return;
  }
}

static void printSum(raw_ostream &os, AffineExpr expr,
                     llvm::function_ref<void(unsigned)> printSymbol) {
  AffineSum sum = AffineSum::get(expr);
  bool first = true;
  auto sign = [&](int64_t x) {
    os << (first ? (x < 0 ? "-" : "") : (x < 0 ? " - " : " + "));
    first = false;
    return x < 0 ? -x : x;
  };
  for (auto &[base, coefficient] : sum.terms) {
    int64_t magnitude = sign(coefficient);
    if (magnitude != 1)
      os << magnitude << "*";
    if (auto symbol = dyn_cast<AffineSymbolExpr>(base)) {
      printSymbol(symbol.getPosition());
      continue;
    }
    auto binary = cast<AffineBinaryOpExpr>(base);
    os << "(";
    printSum(os, binary.getLHS(), printSymbol);
    os << (base.getKind() == AffineExprKind::Mod        ? ") mod "
           : base.getKind() == AffineExprKind::FloorDiv ? ") floordiv "
           : base.getKind() == AffineExprKind::CeilDiv  ? ") ceildiv "
                                                        : ") * ");
    printSum(os, binary.getRHS(), printSymbol);
  }
  if (sum.constant != 0 || first)
    os << sign(sum.constant);
}

void Bound::print(raw_ostream &os,
                  llvm::function_ref<void(unsigned)> printSymbol) const {
  switch (kind) {
  case Kind::NegInf:
    os << "0";
    return;
  case Kind::PosInf:
    os << "end";
    return;
  case Kind::Affine:
    return printSum(os, expr, printSymbol);
  case Kind::Min:
  case Kind::Max:
    os << (kind == Kind::Min ? "min(" : "max(");
    llvm::interleaveComma(operands, os,
                          [&](const Bound &x) { x.print(os, printSymbol); });
    os << ")";
    return;
  case Kind::Select:
    os << "(";
    printCondition(os, *condition, printSymbol);
    os << " ? ";
    operands[0].print(os, printSymbol);
    os << " : ";
    operands[1].print(os, printSymbol);
    os << ")";
    return;
  }
}

//===----------------------------------------------------------------------===//
// Intervals
//===----------------------------------------------------------------------===//

KeyInterval KeyInterval::get(const Bound &lo, const Bound &hi) {
  KeyInterval result = {lo, hi};
  if (std::optional<int64_t> c = lo.getConstant(); c && *c <= 0)
    result.lo = Bound::negInf();
  if (std::optional<bool> some = evaluate(Condition::less(result.lo, hi));
      some && !*some)
    return nothing();
  if (std::optional<int64_t> length = result.getMaxLength();
      length && *length <= 0)
    return nothing();
  return result;
}

KeyInterval KeyInterval::select(const Condition &c, const KeyInterval &a,
                                const KeyInterval &b) {
  return get(Bound::select(c, a.lo, b.lo), Bound::select(c, a.hi, b.hi));
}

const Condition *KeyInterval::getWholeIf() const {
  if (lo.getKind() != Bound::Kind::Select ||
      hi.getKind() != Bound::Kind::Select ||
      !(lo.getCondition() == hi.getCondition()))
    return nullptr;
  ArrayRef<Bound> first = lo.getOperands(), last = hi.getOperands();
  bool isWhole = first[0].isNegInf() && first[1].isPosInf() &&
                 last[0].isPosInf() && last[1].isNegInf();
  return isWhole ? &lo.getCondition() : nullptr;
}

std::optional<int64_t> KeyInterval::getMaxLength() const {
  auto parts = [](const Bound &bound, Bound::Kind kind) {
    return bound.getKind() == kind ? bound.getOperands() : ArrayRef(bound);
  };
  std::optional<int64_t> length;
  // hi is at most each operand of a minimum, lo at least each of a maximum.
  for (const Bound &h : parts(hi, Bound::Kind::Min)) {
    if (lo.isNegInf() && h.getConstant())
      length = std::min(length.value_or(INT64_MAX), *h.getConstant());
    for (const Bound &l : parts(lo, Bound::Kind::Max))
      if (std::optional<int64_t> difference = constantDifference(h, l))
        length = std::min(length.value_or(INT64_MAX), *difference);
  }
  return length;
}

KeyInterval KeyInterval::intersect(const KeyInterval &a, const KeyInterval &b) {
  if (a.isNothing() || b.isNothing())
    return nothing();
  return get(Bound::max(a.lo, b.lo), Bound::min(a.hi, b.hi));
}

/// Choices repeat their operands: nested, they would grow exponentially.
static bool isUnwieldy(const KeyInterval &a, const KeyInterval &b) {
  constexpr unsigned kMaxSize = 24;
  return a.lo.getSize() + a.hi.getSize() + b.lo.getSize() + b.hi.getSize() >
         kMaxSize;
}

/// The union, where one of the two is everything or nothing: the ends of the
/// other one stay as they are in the second case.
static std::optional<KeyInterval> uniteWithWhole(const KeyInterval &a,
                                                 const KeyInterval &b) {
  const Condition *ofA = a.getWholeIf(), *ofB = b.getWholeIf();
  if (!ofA && !ofB)
    return std::nullopt;
  return KeyInterval::select(ofB ? *ofB : *ofA, KeyInterval::everything(),
                             ofB ? a : b);
}

KeyInterval KeyInterval::hull(const KeyInterval &a, const KeyInterval &b) {
  if (a.isNothing())
    return b;
  if (b.isNothing())
    return a;
  if (std::optional<KeyInterval> both = uniteWithWhole(a, b))
    return *both;
  // With a common end, an empty one does no harm.
  if (a.lo == b.lo || a.hi == b.hi || isUnwieldy(a, b))
    return get(Bound::min(a.lo, b.lo), Bound::max(a.hi, b.hi));
  auto unlessEmpty = [](const KeyInterval &x) {
    return select(Condition::less(x.lo, x.hi), x, nothing());
  };
  KeyInterval x = unlessEmpty(a), y = unlessEmpty(b);
  return get(Bound::min(x.lo, y.lo), Bound::max(x.hi, y.hi));
}

KeyInterval KeyInterval::insideUnion(const KeyInterval &a,
                                     const KeyInterval &b) {
  if (a.isNothing())
    return b;
  if (b.isNothing())
    return a;
  if (std::optional<KeyInterval> both = uniteWithWhole(a, b))
    return *both;
  if (a.lo == b.lo || a.hi == b.hi)
    return get(Bound::min(a.lo, b.lo), Bound::max(a.hi, b.hi));
  if (isUnwieldy(a, b))
    return a;
  Condition touch = {Condition::Kind::All, {}, 0, false, {}};
  auto notAfter = [](const Bound &x, const Bound &y) {
    // x <= y, as not (y < x): no bound has a successor to compare with.
    Condition c = Condition::less(y, x);
    c.negated = true;
    return c;
  };
  touch.all = {Condition::less(a.lo, a.hi), Condition::less(b.lo, b.hi),
               notAfter(b.lo, a.hi), notAfter(a.lo, b.hi)};
  Condition longer = {
      Condition::Kind::NotShorter, {a.lo, a.hi, b.lo, b.hi}, 0, false, {}};
  KeyInterval both = {Bound::min(a.lo, b.lo), Bound::max(a.hi, b.hi)};
  return select(touch, both, select(longer, a, b));
}

//===----------------------------------------------------------------------===//
// Bounds as values
//===----------------------------------------------------------------------===//

Value BoundBuilder::value(const Bound &bound) {
  return getValueOrCreateConstantIndexOp(b, loc, build(bound));
}

OpFoldResult BoundBuilder::buildMinOrMax(const Bound &bound) {
  SmallVector<OpFoldResult> operands(symbols);
  SmallVector<AffineExpr> results;
  for (const Bound &x : bound.getOperands()) {
    if (x.getKind() == Bound::Kind::Affine) {
      results.push_back(x.getExpr());
      continue;
    }
    results.push_back(b.getAffineSymbolExpr(operands.size()));
    operands.push_back(build(x));
  }
  auto map = AffineMap::get(0, operands.size(), results, b.getContext());
  return bound.getKind() == Bound::Kind::Min
             ? affine::makeComposedFoldedAffineMin(b, loc, map, operands)
             : affine::makeComposedFoldedAffineMax(b, loc, map, operands);
}

OpFoldResult BoundBuilder::build(const Bound &bound) {
  switch (bound.getKind()) {
  case Bound::Kind::NegInf:
    return b.getIndexAttr(0);
  case Bound::Kind::PosInf:
    return unbounded;
  case Bound::Kind::Affine:
    return affine::makeComposedFoldedAffineApply(
        b, loc, AffineMap::get(0, symbols.size(), bound.getExpr()), symbols);
  case Bound::Kind::Min:
  case Bound::Kind::Max:
    return buildMinOrMax(bound);
  case Bound::Kind::Select: {
    Value condition = build(bound.getCondition());
    return b.createOrFold<arith::SelectOp>(loc, condition,
                                           value(bound.getOperands()[0]),
                                           value(bound.getOperands()[1]));
  }
  }
  llvm_unreachable("all kinds are handled");
}

/// Whether x < y holds for all values that symbols can have: an induction
/// variable stays below the upper bound of its loop.
static bool isAlwaysLess(const Bound &x, const Bound &y,
                         ArrayRef<OpFoldResult> symbols) {
  if (x.getKind() != Bound::Kind::Affine || y.getKind() != Bound::Kind::Affine)
    return false;
  AffineSum difference = AffineSum::get(y.getExpr() - x.getExpr());
  // bound - variable + constant
  OpFoldResult variable, bound;
  for (auto [expr, coefficient] : difference.terms) {
    auto symbol = dyn_cast<AffineSymbolExpr>(expr);
    if (!symbol || (coefficient != 1 && coefficient != -1))
      return false;
    OpFoldResult &of = coefficient == 1 ? bound : variable;
    if (of)
      return false;
    of = symbols[symbol.getPosition()];
  }
  auto argument =
      dyn_cast_if_present<BlockArgument>(dyn_cast_if_present<Value>(variable));
  auto loop =
      argument
          ? dyn_cast<LoopLikeOpInterface>(argument.getOwner()->getParentOp())
          : LoopLikeOpInterface();
  if (!loop || !loop.getLoopInductionVars() || !loop.getLoopUpperBounds())
    return false;
  for (auto [iv, upper] :
       llvm::zip(*loop.getLoopInductionVars(), *loop.getLoopUpperBounds())) {
    if (iv != argument)
      continue;
    if (bound)
      return difference.constant >= 0 &&
             isEqualConstantIntOrValue(upper, bound);
    std::optional<int64_t> last = getConstantIntValue(upper);
    return last && difference.constant >= *last;
  }
  return false;
}

Value BoundBuilder::build(const Condition &c) {
  auto compare = [&](arith::CmpIPredicate predicate, Value x, Value y) {
    return b.createOrFold<arith::CmpIOp>(loc, predicate, x, y);
  };
  switch (c.kind) {
  case Condition::Kind::Less:
    if (usesLoops && isAlwaysLess(c.bounds[0], c.bounds[1], symbols))
      return arith::ConstantOp::create(b, loc, b.getBoolAttr(!c.negated));
    return compare(c.negated ? arith::CmpIPredicate::sge
                             : arith::CmpIPredicate::slt,
                   value(c.bounds[0]), value(c.bounds[1]));
  case Condition::Kind::NotShorter: {
    auto length = [&](unsigned i) {
      return b.createOrFold<arith::SubIOp>(loc, value(c.bounds[i + 1]),
                                           value(c.bounds[i]));
    };
    return compare(arith::CmpIPredicate::sge, length(0), length(2));
  }
  case Condition::Kind::Flag: {
    Value flag = flags[c.flag];
    if (!c.negated)
      return flag;
    Value yes = arith::ConstantOp::create(b, loc, b.getBoolAttr(true));
    return b.createOrFold<arith::XOrIOp>(loc, flag, yes);
  }
  case Condition::Kind::All: {
    Value result;
    for (const Condition &x : c.all) {
      Value next = build(x);
      result = result ? b.createOrFold<arith::AndIOp>(loc, result, next) : next;
    }
    return result;
  }
  }
  llvm_unreachable("all kinds are handled");
}
