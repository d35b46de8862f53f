// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is known of the operations of arith and math: a row of the table an
// operation. Derivatives are those of a calculus book; where there is none
// (a kink, a tie), PyTorch's (tools/autograd/derivatives.yaml): 0 for |x| at 0,
// half for each of two equal operands of a maximum.

#include "fa/Analysis/ScalarOpInterface.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <cmath>
#include <limits>

#include "fa/Analysis/ScalarOpInterface.cpp.inc"

using namespace mlir;
using namespace fa;

namespace {

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
/// The value has it at its bounds, too; a bound where it is beyond.
Number adjoint(math::ClampFOp, const Application &a) {
  if (a.operand == 1)
    return a.where(P::OLT, a.x(0), a.x(1), a.g, a.zero());
  if (a.operand == 2)
    return a.where(P::OGT, a.x(0), a.x(2), a.g, a.zero());
  Number below = a.where(P::OGT, a.x(0), a.x(2), a.zero(), a.g);
  return a.where(P::OLT, a.x(0), a.x(1), a.zero(), below);
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

/// The interface, by the overload of `adjoint`.
template <typename OpTy>
struct Model : ScalarOpInterface::ExternalModel<Model<OpTy>, OpTy> {
  Value buildAdjoint(Operation *op, OpBuilder &builder, unsigned operand,
                     ValueRange operands, Value result, Value g) const {
    ImplicitLocOpBuilder b(op->getLoc(), builder);
    Application application = {b, operand, operands, {&b, result}, {&b, g}};
    return adjoint(cast<OpTy>(op), application).value;
  }
};

template <typename... Ops> void attach(MLIRContext *context) {
  (Ops::template attachInterface<Model<Ops>>(*context), ...);
}

} // namespace

void fa::registerScalarModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *) {
    attach<arith::AddFOp, arith::SubFOp, arith::NegFOp, arith::MulFOp,
           arith::DivFOp, arith::RemFOp, arith::ExtFOp, arith::TruncFOp,
           arith::SelectOp, arith::MaximumFOp, arith::MinimumFOp,
           arith::MaxNumFOp, arith::MinNumFOp>(context);
  });
  registry.addExtension(+[](MLIRContext *context, math::MathDialect *) {
    attach<math::FmaOp, math::ClampFOp, math::AbsFOp, math::CopySignOp,
           math::ExpOp, math::Exp2Op, math::ExpM1Op, math::LogOp, math::Log2Op,
           math::Log10Op, math::Log1pOp, math::SqrtOp, math::RsqrtOp,
           math::CbrtOp, math::TanhOp, math::SinOp, math::CosOp, math::TanOp,
           math::SinhOp, math::CoshOp, math::AsinOp, math::AcosOp, math::AtanOp,
           math::AsinhOp, math::AcoshOp, math::AtanhOp, math::Atan2Op,
           math::ErfOp, math::ErfcOp, math::PowFOp, math::FPowIOp,
           math::FloorOp, math::CeilOp, math::TruncOp, math::RoundOp,
           math::RoundEvenOp>(context);
  });
}
