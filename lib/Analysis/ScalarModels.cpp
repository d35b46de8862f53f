// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is known of the operations of affine, arith and math: an overload for
// each question that has an answer (`form`, `range`, `trend`, `adjoint`), and a
// name in the list at the end. docs/adding-a-scalar-function.md shows it by
// example. Derivatives are those of a calculus book; where there is none
// (a kink, a tie), PyTorch's (tools/autograd/derivatives.yaml): 0 for |x| at 0,
// half for each of two equal operands of a maximum.

#include "fa/Analysis/ScalarOpInterface.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace fa;

namespace {

//===----------------------------------------------------------------------===//
// Integers, an overload of `form` an operation
//===----------------------------------------------------------------------===//

/// An operation's integer operands, as the dimensions of its form.
struct Integers {
  Operation *op;

  AffineExpr operator[](unsigned i) const {
    return getAffineDimExpr(i, op->getContext());
  }
  /// An operand's constant.
  std::optional<int64_t> constant(unsigned i) const {
    APInt c;
    if (!matchPattern(op->getOperand(i), m_ConstantInt(&c)) ||
        c.getSignificantBits() > 62)
      return std::nullopt;
    return c.getSExtValue();
  }
  /// The first operand divided by the constant that the second is.
  AffineExpr divided(AffineExprKind kind) const {
    std::optional<int64_t> c = constant(1);
    return divided(kind, c ? *c : 0);
  }
  AffineExpr divided(AffineExprKind kind, int64_t divisor) const {
    if (divisor < 1)
      return {};
    return getAffineBinaryOpExpr(
        kind, (*this)[0], getAffineConstantExpr(divisor, op->getContext()));
  }
  /// Two to the power of the second operand; 0 where it is no constant.
  int64_t powerOfTwo() const {
    std::optional<int64_t> c = constant(1);
    return c && *c >= 0 && *c <= 36 ? int64_t(1) << *c : 0;
  }

  IntegerForm choice(IntegerForm::Kind kind, ArrayRef<AffineExpr> exprs,
                     ArrayRef<unsigned> nonNegative = {}) const {
    auto map = AffineMap::get(op->getNumOperands(), 0, exprs, op->getContext());
    return {kind, map, llvm::SmallVector<unsigned, 2>(nonNegative)};
  }
  /// An expression, unknown where it is null.
  IntegerForm exactly(AffineExpr expr,
                      ArrayRef<unsigned> nonNegative = {}) const {
    return expr ? choice(IntegerForm::Kind::Minimum, expr, nonNegative)
                : IntegerForm();
  }
  IntegerForm least(AffineExpr a, AffineExpr b,
                    ArrayRef<unsigned> nonNegative = {}) const {
    return choice(IntegerForm::Kind::Minimum, {a, b}, nonNegative);
  }
  IntegerForm largest(AffineExpr a, AffineExpr b,
                      ArrayRef<unsigned> nonNegative = {}) const {
    return choice(IntegerForm::Kind::Maximum, {a, b}, nonNegative);
  }
};

constexpr auto kFloorDiv = AffineExprKind::FloorDiv;

/// Of every other operation.
IntegerForm form(Operation *, Integers) { return {}; }

IntegerForm form(affine::AffineApplyOp op, Integers) {
  return {IntegerForm::Kind::Minimum, op.getAffineMap()};
}
IntegerForm form(affine::AffineMinOp op, Integers) {
  return {IntegerForm::Kind::Minimum, op.getAffineMap()};
}
IntegerForm form(affine::AffineMaxOp op, Integers) {
  return {IntegerForm::Kind::Maximum, op.getAffineMap()};
}

IntegerForm form(arith::AddIOp, Integers x) { return x.exactly(x[0] + x[1]); }
IntegerForm form(arith::SubIOp, Integers x) { return x.exactly(x[0] - x[1]); }
IntegerForm form(arith::MulIOp, Integers x) {
  for (unsigned i : {0, 1})
    if (std::optional<int64_t> c = x.constant(i))
      return x.exactly(x[1 - i] * *c);
  return {};
}
IntegerForm form(arith::ShLIOp, Integers x) {
  int64_t c = x.powerOfTwo();
  return c ? x.exactly(x[0] * c) : IntegerForm();
}

// Rounding to 0 and unsigned division are floor division where the dividend is
// not negative.
IntegerForm form(arith::FloorDivSIOp, Integers x) {
  return x.exactly(x.divided(kFloorDiv));
}
IntegerForm form(arith::CeilDivSIOp, Integers x) {
  return x.exactly(x.divided(AffineExprKind::CeilDiv));
}
IntegerForm form(arith::DivSIOp, Integers x) {
  return x.exactly(x.divided(kFloorDiv), 0u);
}
IntegerForm form(arith::DivUIOp, Integers x) {
  return x.exactly(x.divided(kFloorDiv), 0u);
}
IntegerForm form(arith::RemSIOp, Integers x) {
  return x.exactly(x.divided(AffineExprKind::Mod), 0u);
}
IntegerForm form(arith::RemUIOp, Integers x) {
  return x.exactly(x.divided(AffineExprKind::Mod), 0u);
}
IntegerForm form(arith::ShRSIOp, Integers x) {
  return x.exactly(x.divided(kFloorDiv, x.powerOfTwo()));
}
IntegerForm form(arith::ShRUIOp, Integers x) {
  return x.exactly(x.divided(kFloorDiv, x.powerOfTwo()), 0u);
}

IntegerForm form(arith::MinSIOp, Integers x) { return x.least(x[0], x[1]); }
IntegerForm form(arith::MaxSIOp, Integers x) { return x.largest(x[0], x[1]); }
IntegerForm form(arith::MinUIOp, Integers x) {
  return x.least(x[0], x[1], {0, 1});
}
IntegerForm form(arith::MaxUIOp, Integers x) {
  return x.largest(x[0], x[1], {0, 1});
}
IntegerForm form(math::AbsIOp, Integers x) { return x.largest(x[0], -x[0]); }

IntegerForm form(arith::IndexCastOp, Integers x) { return x.exactly(x[0]); }
IntegerForm form(arith::ExtSIOp, Integers x) { return x.exactly(x[0]); }
IntegerForm form(arith::TruncIOp, Integers x) { return x.exactly(x[0]); }
IntegerForm form(arith::ExtUIOp, Integers x) { return x.exactly(x[0], 0u); }
IntegerForm form(arith::IndexCastUIOp op, Integers x) {
  auto width = [](Type type) {
    return type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  };
  bool extends = width(op.getType()) > width(op.getIn().getType());
  return extends ? x.exactly(x[0], 0u) : x.exactly(x[0]);
}

//===----------------------------------------------------------------------===//
// Ranges, an overload an operation
//===----------------------------------------------------------------------===//

using Ranges = ArrayRef<NumberRange>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kPi = 3.141592653589793;

/// From lo to hi; a NaN is no bound.
NumberRange between(double lo, double hi, bool isFinite = false) {
  return {std::isnan(lo) ? -kInf : lo, std::isnan(hi) ? kInf : hi,
          isFinite && std::isfinite(lo) && std::isfinite(hi)};
}
NumberRange operator+(NumberRange x, NumberRange y) {
  return between(x.lo + y.lo, x.hi + y.hi, x.isFinite && y.isFinite);
}
NumberRange operator-(NumberRange x) { return {-x.hi, -x.lo, x.isFinite}; }
NumberRange operator*(NumberRange x, NumberRange y) {
  // Infinities are bounds that no number reaches: 0 times one of them is 0.
  auto times = [](double a, double b) { return a == 0 || b == 0 ? 0 : a * b; };
  double products[] = {times(x.lo, y.lo), times(x.lo, y.hi), times(x.hi, y.lo),
                       times(x.hi, y.hi)};
  return {*llvm::min_element(products), *llvm::max_element(products),
          x.isFinite && y.isFinite};
}
/// Of 1 / x.
NumberRange reciprocal(NumberRange x) {
  if (x.lo >= 0)
    return {1 / x.hi, x.lo > 0 ? 1 / x.lo : kInf, x.isFinite && x.lo > 0};
  return x.hi <= 0 ? -reciprocal(-x) : NumberRange();
}
NumberRange maximum(NumberRange x, NumberRange y) {
  return {std::max(x.lo, y.lo), std::max(x.hi, y.hi), x.isFinite && y.isFinite};
}
NumberRange minimum(NumberRange x, NumberRange y) {
  return {std::min(x.lo, y.lo), std::min(x.hi, y.hi), x.isFinite && y.isFinite};
}
/// Of one or the other.
NumberRange either(NumberRange x, NumberRange y) {
  return {std::min(x.lo, y.lo), std::max(x.hi, y.hi), x.isFinite && y.isFinite};
}
NumberRange magnitude(NumberRange x) {
  return {std::max({x.lo, -x.hi, 0.0}), std::max(-x.lo, x.hi), x.isFinite};
}
/// Of a function that grows with x, which is limited to where it is defined.
NumberRange growing(double (*f)(double), NumberRange x, double least = -kInf,
                    double most = kInf) {
  return between(f(std::max(x.lo, least)), f(std::min(x.hi, most)),
                 x.isFinite && x.lo >= least && x.hi <= most);
}

/// Of every other operation.
NumberRange range(Operation *, Ranges) { return {}; }

NumberRange range(arith::AddFOp, Ranges x) { return x[0] + x[1]; }
NumberRange range(arith::SubFOp, Ranges x) { return x[0] + -x[1]; }
NumberRange range(arith::NegFOp, Ranges x) { return -x[0]; }
NumberRange range(arith::MulFOp, Ranges x) { return x[0] * x[1]; }
NumberRange range(arith::DivFOp, Ranges x) { return x[0] * reciprocal(x[1]); }
/// The sign is the dividend's, and the size no larger.
NumberRange range(arith::RemFOp, Ranges x) {
  return {std::min(x[0].lo, 0.0), std::max(x[0].hi, 0.0)};
}
NumberRange range(math::FmaOp, Ranges x) { return x[0] * x[1] + x[2]; }
NumberRange range(arith::ExtFOp, Ranges x) { return x[0]; }
NumberRange range(arith::TruncFOp, Ranges x) { return x[0]; }
/// No integer is past its type, an index not past 64 bits.
double mostIntegers(Type type) {
  return std::ldexp(1, type.isIndex() ? 64 : type.getIntOrFloatBitWidth());
}
NumberRange range(arith::SIToFPOp op, Ranges x) {
  double most = mostIntegers(op.getIn().getType()) / 2;
  return {std::max(x[0].lo, -most), std::min(x[0].hi, most), true};
}
NumberRange range(arith::UIToFPOp op, Ranges x) {
  double most = mostIntegers(op.getIn().getType());
  if (!x[0].isNonNegative())
    return {0, most, true};
  return {x[0].lo, std::min(x[0].hi, most), true};
}
NumberRange range(arith::SelectOp, Ranges x) { return either(x[1], x[2]); }
NumberRange range(arith::MaximumFOp, Ranges x) { return maximum(x[0], x[1]); }
NumberRange range(arith::MinimumFOp, Ranges x) { return minimum(x[0], x[1]); }
/// A NaN is not chosen, and the result may be any of the other's.
NumberRange range(arith::MaxNumFOp, Ranges x) { return either(x[0], x[1]); }
NumberRange range(arith::MinNumFOp, Ranges x) { return either(x[0], x[1]); }
NumberRange range(math::ClampFOp, Ranges x) {
  return minimum(maximum(x[0], x[1]), x[2]);
}
NumberRange range(math::AbsFOp, Ranges x) { return magnitude(x[0]); }
NumberRange range(math::AbsIOp, Ranges x) { return magnitude(x[0]); }
NumberRange range(math::CopySignOp, Ranges x) {
  return {-magnitude(x[0]).hi, magnitude(x[0]).hi};
}

NumberRange range(math::ExpOp, Ranges x) { return growing(std::exp, x[0]); }
NumberRange range(math::Exp2Op, Ranges x) { return growing(std::exp2, x[0]); }
NumberRange range(math::ExpM1Op, Ranges x) { return growing(std::expm1, x[0]); }
NumberRange range(math::LogOp, Ranges x) { return growing(std::log, x[0], 0); }
NumberRange range(math::Log2Op, Ranges x) {
  return growing(std::log2, x[0], 0);
}
NumberRange range(math::Log10Op, Ranges x) {
  return growing(std::log10, x[0], 0);
}
NumberRange range(math::Log1pOp, Ranges x) {
  return growing(std::log1p, x[0], -1);
}
NumberRange range(math::SqrtOp, Ranges x) {
  return growing(std::sqrt, x[0], 0);
}
NumberRange range(math::RsqrtOp, Ranges x) {
  return reciprocal(growing(std::sqrt, x[0], 0));
}
NumberRange range(math::CbrtOp, Ranges x) { return growing(std::cbrt, x[0]); }
NumberRange range(math::TanhOp, Ranges x) { return growing(std::tanh, x[0]); }
NumberRange range(math::SinOp, Ranges x) { return {-1, 1, x[0].isFinite}; }
NumberRange range(math::CosOp, Ranges x) { return {-1, 1, x[0].isFinite}; }
NumberRange range(math::SinhOp, Ranges x) { return growing(std::sinh, x[0]); }
NumberRange range(math::CoshOp, Ranges x) {
  return growing(std::cosh, magnitude(x[0]));
}
NumberRange range(math::AsinOp, Ranges x) {
  return growing(std::asin, x[0], -1, 1);
}
NumberRange range(math::AcosOp, Ranges) { return {0, kPi}; }
NumberRange range(math::AtanOp, Ranges x) { return growing(std::atan, x[0]); }
NumberRange range(math::AsinhOp, Ranges x) { return growing(std::asinh, x[0]); }
NumberRange range(math::AcoshOp, Ranges x) {
  return growing(std::acosh, x[0], 1);
}
NumberRange range(math::AtanhOp, Ranges x) {
  return growing(std::atanh, x[0], -1, 1);
}
NumberRange range(math::Atan2Op, Ranges) { return {-kPi, kPi}; }
NumberRange range(math::ErfOp, Ranges x) { return growing(std::erf, x[0]); }
NumberRange range(math::ErfcOp, Ranges) { return {0, 2}; }
NumberRange range(math::PowFOp, Ranges x) {
  return x[0].isNonNegative() ? NumberRange{0, kInf} : NumberRange();
}
NumberRange range(math::FPowIOp, Ranges x) {
  return x[0].isNonNegative() ? NumberRange{0, kInf} : NumberRange();
}
NumberRange range(math::FloorOp, Ranges x) { return growing(std::floor, x[0]); }
NumberRange range(math::CeilOp, Ranges x) { return growing(std::ceil, x[0]); }
NumberRange range(math::TruncOp, Ranges x) { return growing(std::trunc, x[0]); }
NumberRange range(math::RoundOp, Ranges x) { return growing(std::round, x[0]); }
NumberRange range(math::RoundEvenOp, Ranges x) {
  return growing(std::nearbyint, x[0]);
}

//===----------------------------------------------------------------------===//
// Trends, an overload an operation
//===----------------------------------------------------------------------===//

/// Of a product with a factor in this range.
Trend timesFactor(NumberRange factor) {
  return factor.isNonNegative()   ? Trend::Grows
         : factor.isNonPositive() ? Trend::Falls
                                  : Trend::Unknown;
}

/// Of every other operation: that of its integer form.
Trend trend(Operation *op, unsigned i, Ranges x) {
  return getIntegerForm(op).getTrend(i, x);
}

Trend trend(arith::AddFOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(arith::SubFOp, unsigned i, Ranges) {
  return i == 0 ? Trend::Grows : Trend::Falls;
}
Trend trend(arith::NegFOp, unsigned, Ranges) { return Trend::Falls; }
Trend trend(arith::MulFOp, unsigned i, Ranges x) {
  return timesFactor(x[1 - i]);
}
Trend trend(arith::MulIOp, unsigned i, Ranges x) {
  return timesFactor(x[1 - i]);
}
Trend trend(arith::DivFOp, unsigned i, Ranges x) {
  Trend ofDividend = timesFactor(x[1]);
  if (i == 0 || ofDividend == Trend::Unknown)
    return ofDividend;
  return negate(timesFactor(x[0]));
}
Trend trend(math::FmaOp, unsigned i, Ranges x) {
  return i == 2 ? Trend::Grows : timesFactor(x[1 - i]);
}
Trend trend(arith::ExtFOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(arith::TruncFOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(arith::SIToFPOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(arith::UIToFPOp, unsigned, Ranges x) {
  return x[0].isNonNegative() ? Trend::Grows : Trend::Unknown;
}
Trend trend(arith::SelectOp, unsigned i, Ranges) {
  return i == 0 ? Trend::Unknown : Trend::Grows;
}
Trend trend(arith::MaximumFOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(arith::MinimumFOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(arith::MaxNumFOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(arith::MinNumFOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::ClampFOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::AbsFOp, unsigned, Ranges x) { return timesFactor(x[0]); }
Trend trend(math::AbsIOp, unsigned, Ranges x) { return timesFactor(x[0]); }

Trend trend(math::ExpOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::Exp2Op, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::ExpM1Op, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::LogOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::Log2Op, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::Log10Op, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::Log1pOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::SqrtOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::RsqrtOp, unsigned, Ranges) { return Trend::Falls; }
Trend trend(math::CbrtOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::TanhOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::SinhOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::CoshOp, unsigned, Ranges x) { return timesFactor(x[0]); }
Trend trend(math::AsinOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::AcosOp, unsigned, Ranges) { return Trend::Falls; }
Trend trend(math::AtanOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::AsinhOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::AcoshOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::AtanhOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::ErfOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::ErfcOp, unsigned, Ranges) { return Trend::Falls; }
Trend trend(math::FloorOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::CeilOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::TruncOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::RoundOp, unsigned, Ranges) { return Trend::Grows; }
Trend trend(math::RoundEvenOp, unsigned, Ranges) { return Trend::Grows; }

//===----------------------------------------------------------------------===//
// Derivatives as code
//===----------------------------------------------------------------------===//

/// An f32 that is written like a number.
struct Number {
  ImplicitLocOpBuilder *b;
  Value value;

  Number constant(double x) const {
    Type type = value.getType();
    return {b, arith::ConstantOp::create(*b, b->getFloatAttr(type, x))};
  }
  template <typename OpTy> Number unary() const {
    return {b, OpTy::create(*b, value)};
  }
  template <typename OpTy> Number binary(Number y) const {
    return {b, OpTy::create(*b, value, y.value)};
  }
};

Number operator+(Number x, Number y) { return x.binary<arith::AddFOp>(y); }
Number operator-(Number x, Number y) { return x.binary<arith::SubFOp>(y); }
Number operator*(Number x, Number y) { return x.binary<arith::MulFOp>(y); }
Number operator/(Number x, Number y) { return x.binary<arith::DivFOp>(y); }
Number operator-(Number x) { return x.unary<arith::NegFOp>(); }
Number operator+(Number x, double y) { return x + x.constant(y); }
Number operator-(double x, Number y) { return y.constant(x) - y; }
Number operator*(Number x, double y) { return x * x.constant(y); }

/// One application of an operation: its operands, its result and the result's
/// adjoint.
struct Application {
  ImplicitLocOpBuilder &b;
  unsigned operand;
  ValueRange operands;
  Number y, g;

  Number x(unsigned n = 0) const { return {&b, operands[n]}; }
  /// `value` where x ? y, `otherwise` elsewhere.
  Number where(arith::CmpFPredicate is, Number x, Number y, Number value,
               Number otherwise) const {
    return choose(arith::CmpFOp::create(b, is, x.value, y.value), value,
                  otherwise);
  }
  Number choose(Value condition, Number value, Number otherwise) const {
    return {&b, arith::SelectOp::create(b, condition, value.value,
                                        otherwise.value)};
  }
  Number zero() const { return g.constant(0); }
  Number none() const { return {&b, Value()}; }
  /// Of a function of one operand whose sign is that of `like`; 0 at 0.
  Number signOf(Number like) const {
    using P = arith::CmpFPredicate;
    Number one = g.constant(1);
    return where(P::OGT, like, zero(), one,
                 where(P::OLT, like, zero(), -one, zero()));
  }
};

using P = arith::CmpFPredicate;
constexpr double kLn2 = 0.6931471805599453, kLn10 = 2.302585092994046;

//===----------------------------------------------------------------------===//
// Adjoints, an overload an operation
//===----------------------------------------------------------------------===//

/// Of every other operation.
std::nullopt_t adjoint(Operation *, const Application &) {
  return std::nullopt;
}

Number adjoint(arith::AddFOp, const Application &a) { return a.g; }
Number adjoint(arith::SubFOp, const Application &a) {
  return a.operand == 0 ? a.g : -a.g;
}
Number adjoint(arith::NegFOp, const Application &a) { return -a.g; }
Number adjoint(arith::MulFOp, const Application &a) {
  return a.g * a.x(1 - a.operand);
}
Number adjoint(arith::DivFOp, const Application &a) {
  return a.operand == 0 ? a.g / a.x(1) : -a.g * (a.y / a.x(1));
}
/// x - trunc(x / y) * y
Number adjoint(arith::RemFOp, const Application &a) {
  return a.operand == 0 ? a.g : -a.g * (a.x(0) / a.x(1)).unary<math::TruncOp>();
}
Number adjoint(math::FmaOp, const Application &a) {
  return a.operand == 2 ? a.g : a.g * a.x(1 - a.operand);
}
Number adjoint(arith::ExtFOp, const Application &a) { return a.g; }
Number adjoint(arith::TruncFOp, const Application &a) { return a.g; }
Number adjoint(arith::SelectOp, const Application &a) {
  if (a.operand == 0)
    return a.none();
  Value condition = a.operands[0];
  return a.operand == 1 ? a.choose(condition, a.g, a.zero())
                        : a.choose(condition, a.zero(), a.g);
}

/// Of the operand that is chosen; half where both are equal.
Number ofChosen(const Application &a, P better) {
  Number x = a.x(a.operand), other = a.x(1 - a.operand);
  return a.where(P::OEQ, x, other, a.g * 0.5,
                 a.where(better, x, other, a.g, a.zero()));
}
// Of a NaN both have a share, as in PyTorch: neither is worse.
Number adjoint(arith::MaximumFOp, const Application &a) {
  return ofChosen(a, P::UGT);
}
Number adjoint(arith::MinimumFOp, const Application &a) {
  return ofChosen(a, P::ULT);
}
/// Of the operand that is chosen, of equal ones the first; a NaN is not chosen.
Number ofFirstChosen(const Application &a, P better) {
  Value first = arith::OrIOp::create(
      a.b, arith::CmpFOp::create(a.b, better, a.operands[0], a.operands[1]),
      arith::CmpFOp::create(a.b, P::UNO, a.operands[1], a.operands[1]));
  return a.operand == 0 ? a.choose(first, a.g, a.zero())
                        : a.choose(first, a.zero(), a.g);
}
Number adjoint(arith::MaxNumFOp, const Application &a) {
  return ofFirstChosen(a, P::OGE);
}
Number adjoint(arith::MinNumFOp, const Application &a) {
  return ofFirstChosen(a, P::OLE);
}
/// The value has it at its bounds, too; a bound where it is beyond. Of bounds
/// the wrong way round the upper one is the result; of equal ones neither is.
Number adjoint(math::ClampFOp, const Application &a) {
  Number x = a.x(0), least = a.x(1), most = a.x(2);
  if (a.operand == 1)
    return a.where(P::OLT, x, least,
                   a.where(P::OLT, least, most, a.g, a.zero()), a.zero());
  if (a.operand == 2)
    return a.where(P::OGT, x, most, a.g,
                   a.where(P::OGT, least, most, a.g, a.zero()));
  Number below = a.where(P::OGT, x, most, a.zero(), a.g);
  return a.where(P::OLT, x, least, a.zero(), below);
}
Number adjoint(math::AbsFOp, const Application &a) {
  return a.g * a.signOf(a.x());
}
/// |x| with the sign of y: +-1 by whether the signs agree, 0 at 0.
Number adjoint(math::CopySignOp, const Application &a) {
  return a.operand == 0 ? a.g * a.signOf(a.x(0)) * a.signOf(a.y) : a.none();
}

/// The result, a number where it is beyond all numbers: what does not depend on
/// it any more (1 / (1 + exp(-x)) far below 0) has an adjoint of 0, not NaN.
Number finite(Number y) {
  double most = std::numeric_limits<float>::max();
  return y.binary<arith::MinimumFOp>(y.constant(most));
}
Number adjoint(math::ExpOp, const Application &a) { return a.g * finite(a.y); }
Number adjoint(math::Exp2Op, const Application &a) {
  return a.g * (finite(a.y) * kLn2);
}
Number adjoint(math::ExpM1Op, const Application &a) {
  return a.g * (a.y + 1.0);
}
Number adjoint(math::LogOp, const Application &a) { return a.g / a.x(); }
Number adjoint(math::Log2Op, const Application &a) {
  return a.g / (a.x() * kLn2);
}
Number adjoint(math::Log10Op, const Application &a) {
  return a.g / (a.x() * kLn10);
}
Number adjoint(math::Log1pOp, const Application &a) {
  return a.g / (a.x() + 1.0);
}
Number adjoint(math::SqrtOp, const Application &a) { return a.g / (a.y * 2.0); }
Number adjoint(math::RsqrtOp, const Application &a) {
  return a.g * -0.5 * (a.y * a.y * a.y);
}
Number adjoint(math::CbrtOp, const Application &a) {
  return a.g / (a.y * a.y * 3.0);
}
Number adjoint(math::TanhOp, const Application &a) {
  return a.g * (1.0 - a.y * a.y);
}
Number adjoint(math::SinOp, const Application &a) {
  return a.g * a.x().unary<math::CosOp>();
}
Number adjoint(math::CosOp, const Application &a) {
  return -a.g * a.x().unary<math::SinOp>();
}
Number adjoint(math::TanOp, const Application &a) {
  return a.g * (a.y * a.y + 1.0);
}
Number adjoint(math::SinhOp, const Application &a) {
  return a.g * a.x().unary<math::CoshOp>();
}
Number adjoint(math::CoshOp, const Application &a) {
  return a.g * a.x().unary<math::SinhOp>();
}
Number adjoint(math::AsinOp, const Application &a) {
  return a.g * (1.0 - a.x() * a.x()).unary<math::RsqrtOp>();
}
Number adjoint(math::AcosOp, const Application &a) {
  return -a.g * (1.0 - a.x() * a.x()).unary<math::RsqrtOp>();
}
Number adjoint(math::AtanOp, const Application &a) {
  return a.g / (a.x() * a.x() + 1.0);
}
Number adjoint(math::AsinhOp, const Application &a) {
  return a.g * (a.x() * a.x() + 1.0).unary<math::RsqrtOp>();
}
Number adjoint(math::AcoshOp, const Application &a) {
  return a.g * (a.x() * a.x() + -1.0).unary<math::RsqrtOp>();
}
Number adjoint(math::AtanhOp, const Application &a) {
  return a.g / (1.0 - a.x() * a.x());
}
/// atan2(x0, x1); 0 at the origin.
Number adjoint(math::Atan2Op, const Application &a) {
  Number square = a.x(0) * a.x(0) + a.x(1) * a.x(1);
  Number slope = a.operand == 0 ? a.x(1) / square : -a.x(0) / square;
  return a.g * a.where(P::OEQ, square, a.zero(), a.zero(), slope);
}
Number adjoint(math::ErfOp, const Application &a) {
  return a.g * (-(a.x() * a.x())).unary<math::ExpOp>() * (2 / std::sqrt(M_PI));
}
Number adjoint(math::ErfcOp, const Application &a) {
  return a.g * (-(a.x() * a.x())).unary<math::ExpOp>() * (-2 / std::sqrt(M_PI));
}
/// x^y: the base's is 0 where y is, the exponent's where x is 0 and y >= 0.
Number adjoint(math::PowFOp, const Application &a) {
  Number x = a.x(0), y = a.x(1);
  if (a.operand == 0)
    return a.g * a.where(P::OEQ, y, a.zero(), a.zero(),
                         y * x.binary<math::PowFOp>(y + -1.0));
  Number slope = a.y * x.unary<math::LogOp>();
  Number atZero = a.where(P::OGE, y, a.zero(), a.zero(), slope);
  return a.g * a.where(P::OEQ, x, a.zero(), atZero, slope);
}
Number adjoint(math::FPowIOp op, const Application &a) {
  if (a.operand != 0)
    return a.none();
  Type type = op.getRhs().getType();
  Value one = arith::ConstantOp::create(a.b, a.b.getIntegerAttr(type, 1));
  Value less = arith::SubIOp::create(a.b, a.operands[1], one);
  Number power = {&a.b, math::FPowIOp::create(a.b, a.operands[0], less)};
  Number exponent = {
      &a.b, arith::SIToFPOp::create(a.b, a.g.value.getType(), a.operands[1])};
  return a.g * (exponent * power);
}

// Steps: flat wherever they have a slope.
Number adjoint(math::FloorOp, const Application &a) { return a.none(); }
Number adjoint(math::CeilOp, const Application &a) { return a.none(); }
Number adjoint(math::TruncOp, const Application &a) { return a.none(); }
Number adjoint(math::RoundOp, const Application &a) { return a.none(); }
Number adjoint(math::RoundEvenOp, const Application &a) { return a.none(); }

/// The interface, by the overloads.
template <typename OpTy>
struct Model : ScalarOpInterface::ExternalModel<Model<OpTy>, OpTy> {
  IntegerForm getIntegerForm(Operation *op) const {
    return form(cast<OpTy>(op), Integers{op});
  }
  NumberRange inferRange(Operation *op, Ranges operands) const {
    return range(cast<OpTy>(op), operands);
  }
  Trend getTrend(Operation *op, unsigned operand, Ranges ranges) const {
    return trend(cast<OpTy>(op), operand, ranges);
  }
  FailureOr<Value> buildAdjoint(Operation *op, OpBuilder &builder,
                                unsigned operand, ValueRange operands,
                                Value result, Value g) const {
    ImplicitLocOpBuilder b(op->getLoc(), builder);
    Application application = {b, operand, operands, {&b, result}, {&b, g}};
    std::optional<Number> found = adjoint(cast<OpTy>(op), application);
    if (!found)
      return failure();
    return found->value;
  }
};

template <typename... Ops> void attach(MLIRContext *context) {
  (Ops::template attachInterface<Model<Ops>>(*context), ...);
}

} // namespace

void fa::registerScalarModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, affine::AffineDialect *) {
    attach<affine::AffineApplyOp, affine::AffineMinOp, affine::AffineMaxOp>(
        context);
  });
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *) {
    attach<arith::AddIOp, arith::SubIOp, arith::MulIOp, arith::ShLIOp,
           arith::FloorDivSIOp, arith::CeilDivSIOp, arith::DivSIOp,
           arith::DivUIOp, arith::RemSIOp, arith::RemUIOp, arith::ShRSIOp,
           arith::ShRUIOp, arith::MinSIOp, arith::MaxSIOp, arith::MinUIOp,
           arith::MaxUIOp, arith::IndexCastOp, arith::IndexCastUIOp,
           arith::ExtSIOp, arith::ExtUIOp, arith::TruncIOp, arith::SIToFPOp,
           arith::UIToFPOp>(context);
    attach<arith::AddFOp, arith::SubFOp, arith::NegFOp, arith::MulFOp,
           arith::DivFOp, arith::RemFOp, arith::ExtFOp, arith::TruncFOp,
           arith::SelectOp, arith::MaximumFOp, arith::MinimumFOp,
           arith::MaxNumFOp, arith::MinNumFOp>(context);
  });
  registry.addExtension(+[](MLIRContext *context, math::MathDialect *) {
    attach<math::AbsIOp, math::FmaOp, math::ClampFOp, math::AbsFOp,
           math::CopySignOp, math::ExpOp, math::Exp2Op, math::ExpM1Op,
           math::LogOp, math::Log2Op, math::Log10Op, math::Log1pOp,
           math::SqrtOp, math::RsqrtOp, math::CbrtOp, math::TanhOp, math::SinOp,
           math::CosOp, math::TanOp, math::SinhOp, math::CoshOp, math::AsinOp,
           math::AcosOp, math::AtanOp, math::AsinhOp, math::AcoshOp,
           math::AtanhOp, math::Atan2Op, math::ErfOp, math::ErfcOp,
           math::PowFOp, math::FPowIOp, math::FloorOp, math::CeilOp,
           math::TruncOp, math::RoundOp, math::RoundEvenOp>(context);
  });
}
