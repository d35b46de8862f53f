// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "MaskFormula.h"
#include "fa/Analysis/ScalarOpInterface.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fa;

/// Lengths and coordinates are below this in narrow arithmetic.
static constexpr int64_t kMaxLength = int64_t(1) << 30;
/// Coordinates within a tile.
static constexpr int64_t kMaxTile = int64_t(1) << 20;
/// Larger constants and coefficients are not reasoned about.
static constexpr int64_t kMaxConstant = int64_t(1) << 36;
static constexpr int64_t kMaxFactor = int64_t(1) << 16;

//===----------------------------------------------------------------------===//
// Formulas
//===----------------------------------------------------------------------===//

static Formula junction(Formula::Kind kind, ArrayRef<Formula> operands) {
  bool isAnd = kind == Formula::Kind::And;
  Formula::Kind neutral = isAnd ? Formula::Kind::True : Formula::Kind::False,
                absorbing = isAnd ? Formula::Kind::False : Formula::Kind::True;
  Formula result = {kind};
  for (const Formula &x : operands) {
    if (x.kind == absorbing)
      return {absorbing};
    if (x.kind == kind)
      llvm::append_range(result.operands, x.operands);
    else if (x.kind != neutral)
      result.operands.push_back(x);
  }
  if (result.operands.empty())
    return {neutral};
  return result.operands.size() == 1 ? Formula(result.operands[0]) : result;
}

Formula Formula::conjunction(ArrayRef<Formula> operands) {
  return junction(Kind::And, operands);
}
Formula Formula::disjunction(ArrayRef<Formula> operands) {
  return junction(Kind::Or, operands);
}

//===----------------------------------------------------------------------===//
// Uniform values
//===----------------------------------------------------------------------===//

bool fa::isUniformIn(Operation *loop, Value value) {
  SmallVector<Value> worklist = {value};
  llvm::DenseSet<Value> seen;
  while (!worklist.empty()) {
    Value next = worklist.pop_back_val();
    if (!seen.insert(next).second ||
        !loop->isAncestor(next.getParentRegion()->getParentOp()))
      continue;
    Operation *op = next.getDefiningOp();
    if (!op || isa<linalg::IndexOp>(op) || op->getNumRegions() != 0 ||
        !isPure(op) ||
        !isa<arith::ArithDialect, affine::AffineDialect, tensor::TensorDialect>(
            op->getDialect()))
      return false;
    llvm::append_range(worklist, op->getOperands());
  }
  return true;
}

bool FormulaBuilder::isUniform(Value value) {
  return isUniformIn(block.keyLoop, value);
}

static unsigned widthOf(Type type) {
  auto integer = dyn_cast<IntegerType>(type);
  return integer ? integer.getWidth() : 64;
}

/// The range of a type's values.
static std::pair<int64_t, int64_t> rangeOf(Type type) {
  unsigned width = std::min(widthOf(type), 64u);
  return {llvm::minIntN(width), llvm::maxIntN(width)};
}

/// Induction variables of loops that count up from 0 or more.
static bool isNonNegativeInduction(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument)
    return false;
  auto atLeastZero = [](OpFoldResult bound) {
    std::optional<int64_t> constant = getConstantIntValue(bound);
    return constant && *constant >= 0;
  };
  Operation *owner = argument.getOwner()->getParentOp();
  if (auto loop = dyn_cast<scf::ForOp>(owner))
    return value == loop.getInductionVar() &&
           atLeastZero(OpFoldResult(loop.getLowerBound()));
  if (auto loop = dyn_cast<scf::ForallOp>(owner)) {
    unsigned i = argument.getArgNumber();
    return i < loop.getRank() && atLeastZero(loop.getMixedLowerBound()[i]);
  }
  return false;
}

std::optional<Term> FormulaBuilder::uniformTerm(Value value) {
  if (!value.getType().isIntOrIndex() || widthOf(value.getType()) > 64 ||
      !isUniform(value))
    return std::nullopt;
  Term result;
  auto dim = value.getDefiningOp<tensor::DimOp>();
  bool positive = dim || isNonNegativeInduction(value);
  std::tie(result.lo, result.hi) = positive
                                       ? std::make_pair(int64_t(0), kMaxLength)
                                       : rangeOf(value.getType());
  for (auto [i, symbol] : llvm::enumerate(symbols)) {
    auto other = symbol.getDefiningOp<tensor::DimOp>();
    bool sameDim = dim && other && dim.getSource() == other.getSource() &&
                   dim.getConstantIndex() && other.getConstantIndex() &&
                   *dim.getConstantIndex() == *other.getConstantIndex();
    if (symbol == value || sameDim) {
      result.expr = getAffineSymbolExpr(i, ctx);
      return result;
    }
  }
  result.expr = getAffineSymbolExpr(symbols.size(), ctx);
  symbols.push_back(value);
  nonNegative.push_back(positive);
  return result;
}

//===----------------------------------------------------------------------===//
// Terms
//===----------------------------------------------------------------------===//

bool FormulaBuilder::isNonNegative(AffineExpr expr) const {
  AffineSum sum = AffineSum::get(expr);
  if (sum.constant < 0)
    return false;
  for (auto &[base, coefficient] : sum.terms) {
    if (coefficient < 0)
      return false;
    if (isa<AffineDimExpr>(base))
      continue;
    if (auto symbol = dyn_cast<AffineSymbolExpr>(base)) {
      if (!nonNegative[symbol.getPosition()])
        return false;
    } else if (base.getKind() != AffineExprKind::Mod &&
               !isNonNegative(llvm::cast<AffineBinaryOpExpr>(base).getLHS())) {
      return false;
    }
  }
  return true;
}

bool FormulaBuilder::isNonNegative(const Term &x) const {
  auto check = [&](const Term &y) { return isNonNegative(y); };
  if (x.lo >= 0)
    return true;
  if (x.kind == Term::Kind::Affine)
    return isNonNegative(x.expr);
  return x.kind == Term::Kind::Max ? llvm::any_of(x.operands, check)
                                   : llvm::all_of(x.operands, check);
}

/// Keeps what does not wrap in `type`, and is of a size that can be handled.
static std::optional<Term> checked(std::optional<Term> x, Type type,
                                   bool noWrap) {
  if (!x)
    return std::nullopt;
  auto [lo, hi] = rangeOf(type);
  if (widthOf(type) < 64 && !noWrap && (x->lo < lo || x->hi > hi))
    return std::nullopt;
  x->lo = std::max(x->lo, lo);
  x->hi = std::min(x->hi, hi);
  return x;
}

/// Limits coefficients and constants, so that nothing overflows later.
static bool isReasonable(AffineExpr expr) {
  bool ok = true;
  expr.walk([&](AffineExpr e) {
    if (auto c = dyn_cast<AffineConstantExpr>(e))
      ok &= std::abs(c.getValue()) <= kMaxConstant;
    if (e.getKind() == AffineExprKind::Mul) {
      auto c =
          dyn_cast<AffineConstantExpr>(cast<AffineBinaryOpExpr>(e).getRHS());
      ok &= c && std::abs(c.getValue()) <= kMaxFactor;
    }
  });
  return ok;
}

static int64_t saturatingAdd(int64_t a, int64_t b) {
  int64_t sum;
  if (!llvm::AddOverflow(a, b, sum))
    return sum;
  return a < 0 ? INT64_MIN : INT64_MAX;
}

static int64_t saturatingMultiply(int64_t a, int64_t b) {
  int64_t product;
  if (!llvm::MulOverflow(a, b, product))
    return product;
  return (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
}

static Term leaf(AffineExpr expr, int64_t lo, int64_t hi) {
  Term result;
  result.expr = canonicalSum(expr);
  result.lo = lo;
  result.hi = hi;
  return result;
}

static std::optional<Term> leafIfReasonable(AffineExpr expr, int64_t lo,
                                            int64_t hi) {
  Term result = leaf(expr, lo, hi);
  return isReasonable(result.expr) ? std::optional<Term>(result) : std::nullopt;
}

std::optional<Term> FormulaBuilder::choice(Term::Kind kind,
                                           const std::optional<Term> &x,
                                           const std::optional<Term> &y,
                                           Value condition) {
  if (!x || !y || --budget < 0)
    return std::nullopt;
  Term result;
  result.kind = kind;
  result.operands = {*x, *y};
  result.condition = condition;
  bool isMin = kind == Term::Kind::Min, isMax = kind == Term::Kind::Max;
  result.lo = isMax ? std::max(x->lo, y->lo) : std::min(x->lo, y->lo);
  result.hi = isMin ? std::min(x->hi, y->hi) : std::max(x->hi, y->hi);
  return result;
}

std::optional<Term> FormulaBuilder::add(const std::optional<Term> &x,
                                        const std::optional<Term> &y) {
  if (!x || !y)
    return std::nullopt;
  if (x->kind == Term::Kind::Affine && y->kind == Term::Kind::Affine)
    return leafIfReasonable(x->expr + y->expr, saturatingAdd(x->lo, y->lo),
                            saturatingAdd(x->hi, y->hi));
  if (x->kind == Term::Kind::Affine)
    return add(y, x);
  return choice(x->kind, add(x->operands[0], y), add(x->operands[1], y),
                x->condition);
}

std::optional<Term> FormulaBuilder::scale(const std::optional<Term> &x,
                                          int64_t factor) {
  if (!x || std::abs(factor) > kMaxFactor)
    return std::nullopt;
  if (x->kind == Term::Kind::Affine) {
    int64_t a = saturatingMultiply(x->lo, factor),
            b = saturatingMultiply(x->hi, factor);
    return leafIfReasonable(x->expr * factor, std::min(a, b), std::max(a, b));
  }
  Term::Kind kind = x->kind;
  if (factor < 0 && kind != Term::Kind::Select)
    kind = kind == Term::Kind::Min ? Term::Kind::Max : Term::Kind::Min;
  return choice(kind, scale(x->operands[0], factor),
                scale(x->operands[1], factor), x->condition);
}

std::optional<Term> FormulaBuilder::divide(const std::optional<Term> &x,
                                           int64_t c, AffineExprKind kind) {
  if (!x || c <= 0 || c > kMaxConstant)
    return std::nullopt;
  if (x->kind == Term::Kind::Affine) {
    AffineExpr expr =
        getAffineBinaryOpExpr(kind, x->expr, getAffineConstantExpr(c, ctx));
    if (kind == AffineExprKind::Mod)
      return leafIfReasonable(expr, 0, c - 1);
    // Quotients are no further from 0 than dividends.
    return leafIfReasonable(expr, std::min<int64_t>(x->lo, 0),
                            std::max<int64_t>(x->hi, 0));
  }
  if (kind == AffineExprKind::Mod)
    return std::nullopt; // Not monotone.
  return choice(x->kind, divide(x->operands[0], c, kind),
                divide(x->operands[1], c, kind), x->condition);
}

std::optional<Term> FormulaBuilder::substitute(AffineExpr expr,
                                               ArrayRef<Term> dims,
                                               ArrayRef<Term> symbols) {
  if (auto d = dyn_cast<AffineDimExpr>(expr))
    return dims[d.getPosition()];
  if (auto s = dyn_cast<AffineSymbolExpr>(expr))
    return symbols[s.getPosition()];
  if (auto c = dyn_cast<AffineConstantExpr>(expr))
    return leafIfReasonable(c, c.getValue(), c.getValue());
  auto binary = llvm::cast<AffineBinaryOpExpr>(expr);
  std::optional<Term> lhs = substitute(binary.getLHS(), dims, symbols);
  if (expr.getKind() == AffineExprKind::Add)
    return add(lhs, substitute(binary.getRHS(), dims, symbols));
  auto c = dyn_cast<AffineConstantExpr>(binary.getRHS());
  if (!c)
    return std::nullopt;
  if (expr.getKind() == AffineExprKind::Mul)
    return scale(lhs, c.getValue());
  return divide(lhs, c.getValue(), expr.getKind());
}

std::optional<Term> FormulaBuilder::termOfForm(const IntegerForm &form,
                                               ArrayRef<Term> operands) {
  Term::Kind kind = form.kind == IntegerForm::Kind::Minimum ? Term::Kind::Min
                                                            : Term::Kind::Max;
  unsigned numDims = form.map.getNumDims();
  std::optional<Term> result;
  for (auto [i, expr] : llvm::enumerate(form.map.getResults())) {
    std::optional<Term> x = substitute(expr, operands.take_front(numDims),
                                       operands.drop_front(numDims));
    result = i == 0 ? x : choice(kind, result, x);
  }
  return result;
}

/// An operand's constant.
static std::optional<int64_t> constantOf(Value value) {
  APInt constant;
  if (!matchPattern(value, m_ConstantInt(&constant)) ||
      constant.getBitWidth() > 64)
    return std::nullopt;
  return constant.getSExtValue();
}

std::optional<Term> FormulaBuilder::termOfOp(Operation *op) {
  if (auto select = dyn_cast<arith::SelectOp>(op))
    return choice(Term::Kind::Select, term(select.getTrueValue()),
                  term(select.getFalseValue()), select.getCondition());
  IntegerForm form = getIntegerForm(op);
  if (!form.isKnown())
    return std::nullopt;
  SmallVector<Term> operands(op->getNumOperands());
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    if (!form.reads(i))
      continue;
    std::optional<Term> x = term(operand);
    if (!x)
      return std::nullopt;
    operands[i] = *x;
  }
  for (unsigned i : form.nonNegative)
    if (!isNonNegative(operands[i]))
      return std::nullopt;
  return checked(termOfForm(form, operands), op->getResult(0).getType(),
                 !mayWrap(op));
}

std::optional<Term> FormulaBuilder::term(Value value) {
  if (--budget < 0 || !value.getType().isIntOrIndex())
    return std::nullopt;
  if (value == block.keyOffset)
    return leaf(getAffineDimExpr(MaskDim::KeyOffset, ctx), 0, kMaxLength);
  if (APInt constant; matchPattern(value, m_ConstantInt(&constant))) {
    if (constant.getBitWidth() > 64)
      return std::nullopt;
    int64_t c = constant.getSExtValue();
    return leafIfReasonable(getAffineConstantExpr(c, ctx), c, c);
  }
  Operation *op = value.getDefiningOp();
  if (auto index = dyn_cast_or_null<linalg::IndexOp>(op)) {
    if (op->getBlock() != block.scores.getBody() || index.getDim() > 1)
      return std::nullopt;
    unsigned dim = block.transposed ? 1 - index.getDim() : index.getDim();
    return leaf(getAffineDimExpr(dim, ctx), 0, kMaxTile);
  }
  if (op && block.keyLoop->isProperAncestor(op))
    if (std::optional<Term> x = termOfOp(op))
      return x;
  return uniformTerm(value);
}

//===----------------------------------------------------------------------===//
// Conditions
//===----------------------------------------------------------------------===//

Formula FormulaBuilder::lessOrEqual(const Term &x, const Term &y,
                                    int64_t offset) {
  if (--budget < 0)
    return Formula::unknown();
  auto each = [&](const Term &choice, bool isLhs) {
    Formula parts[2];
    for (auto [part, operand] : llvm::zip(parts, choice.operands))
      part = isLhs ? lessOrEqual(operand, y, offset)
                   : lessOrEqual(x, operand, offset);
    if (choice.kind == Term::Kind::Select)
      return Formula::disjunction(
          {Formula::conjunction({build(choice.condition, false), parts[0]}),
           Formula::conjunction({build(choice.condition, true), parts[1]})});
    // max(a, b) <= y means both; x <= min(a, b) too.
    bool isAnd = (choice.kind == Term::Kind::Max) == isLhs;
    return isAnd ? Formula::conjunction(parts) : Formula::disjunction(parts);
  };
  if (x.kind != Term::Kind::Affine)
    return each(x, true);
  if (y.kind != Term::Kind::Affine)
    return each(y, false);
  Formula atom = {Formula::Kind::AtLeastZero};
  atom.expr = canonicalSum(y.expr - x.expr - offset);
  if (auto constant = dyn_cast<AffineConstantExpr>(atom.expr))
    return Formula::constant(constant.getValue() >= 0);
  return atom;
}

Formula FormulaBuilder::compare(arith::CmpIPredicate predicate, Value lhs,
                                Value rhs) {
  using P = arith::CmpIPredicate;
  std::optional<Term> x = term(lhs), y = term(rhs);
  if (!x || !y)
    return Formula::unknown();
  Term zero = leaf(getAffineConstantExpr(0, ctx), 0, 0);
  auto le = [&](const Term &a, const Term &b, int64_t offset = 0) {
    return lessOrEqual(a, b, offset);
  };
  bool positiveX = isNonNegative(*x), positiveY = isNonNegative(*y);
  switch (predicate) {
  case P::eq:
    return Formula::conjunction({le(*x, *y), le(*y, *x)});
  case P::ne:
    return Formula::disjunction({le(*x, *y, 1), le(*y, *x, 1)});
  case P::sle:
    return le(*x, *y);
  case P::slt:
    return le(*x, *y, 1);
  case P::sge:
    return le(*y, *x);
  case P::sgt:
    return le(*y, *x, 1);
  // Unsigned: a negative number is larger than every other.
  case P::ule:
  case P::ult: {
    int64_t offset = predicate == P::ult;
    if (positiveY)
      return Formula::conjunction({le(zero, *x), le(*x, *y, offset)});
    if (positiveX)
      return Formula::disjunction({le(*y, zero, 1), le(*x, *y, offset)});
    return Formula::unknown();
  }
  case P::uge:
  case P::ugt: {
    int64_t offset = predicate == P::ugt;
    if (positiveX)
      return Formula::conjunction({le(zero, *y), le(*y, *x, offset)});
    if (positiveY)
      return Formula::disjunction({le(*x, zero, 1), le(*y, *x, offset)});
    return Formula::unknown();
  }
  }
  return Formula::unknown();
}

Formula FormulaBuilder::both(Value x, bool notX, Value y, bool notY) {
  return Formula::conjunction({build(x, notX), build(y, notY)});
}

Formula FormulaBuilder::build(Value condition, bool negated) {
  if (--budget < 0)
    return Formula::unknown();
  APInt constant;
  if (matchPattern(condition, m_ConstantInt(&constant)))
    return Formula::constant(constant.isZero() == negated);
  Operation *op = condition.getDefiningOp();
  Formula result = Formula::unknown();
  if (op && block.keyLoop->isProperAncestor(op)) {
    auto operand = [&](unsigned i) { return op->getOperand(i); };
    auto xorOf = [&](Value x, Value y, bool n) {
      return Formula::disjunction({both(x, false, y, !n), both(x, true, y, n)});
    };
    if (isa<arith::AndIOp, arith::OrIOp>(op)) {
      Formula parts[] = {build(operand(0), negated),
                         build(operand(1), negated)};
      result = isa<arith::AndIOp>(op) != negated ? Formula::conjunction(parts)
                                                 : Formula::disjunction(parts);
    } else if (isa<arith::XOrIOp>(op)) {
      for (unsigned i : {0, 1})
        if (std::optional<int64_t> c = constantOf(operand(i)))
          return build(operand(1 - i), negated != (*c != 0));
      result = xorOf(operand(0), operand(1), negated);
    } else if (isa<arith::SelectOp>(op)) {
      result =
          Formula::disjunction({both(operand(0), false, operand(1), negated),
                                both(operand(0), true, operand(2), negated)});
    } else if (auto cmp = dyn_cast<arith::CmpIOp>(op)) {
      arith::CmpIPredicate predicate = cmp.getPredicate();
      bool isBool = operand(0).getType().isInteger(1);
      if (isBool && (predicate == arith::CmpIPredicate::eq ||
                     predicate == arith::CmpIPredicate::ne))
        result = xorOf(operand(0), operand(1),
                       negated != (predicate == arith::CmpIPredicate::eq));
      else if (!isBool)
        result =
            compare(negated ? arith::invertPredicate(predicate) : predicate,
                    operand(0), operand(1));
    }
  }
  if (result.kind != Formula::Kind::Unknown || !isUniform(condition))
    return result;
  result = {Formula::Kind::Flag};
  result.negated = negated;
  result.flag = llvm::find(flags, condition) - flags.begin();
  if (result.flag == flags.size())
    flags.push_back(condition);
  return result;
}
