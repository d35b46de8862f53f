// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Math on scalars, as the GPU's approximate instructions and short formulas
// over them. Nothing calls a device library.

#include "fa/Target/ExpandMath.h"
#include "fa/Target/NVIDIA/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <cmath>
#include <limits>

namespace fa {
#define GEN_PASS_DEF_LOWERKERNELMATHPASS
#include "fa/Target/NVIDIA/Passes.h.inc"
} // namespace fa

using namespace mlir;

namespace {

constexpr float log2e = 1.44269504088896340736f;
constexpr float ln2 = 0.693147180559945309417f;

Value constant(OpBuilder &b, Location loc, float v) {
  return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(v));
}

Value intrinsic(OpBuilder &b, Location loc, StringRef name, Value x) {
  return LLVM::CallIntrinsicOp::create(b, loc, b.getF32Type(),
                                       b.getStringAttr(name), ValueRange{x})
      .getResults();
}

Value ex2(OpBuilder &b, Location loc, Value x) {
  return intrinsic(b, loc, "llvm.nvvm.ex2.approx.ftz.f", x);
}
Value lg2(OpBuilder &b, Location loc, Value x) {
  return intrinsic(b, loc, "llvm.nvvm.lg2.approx.ftz.f", x);
}
Value reciprocal(OpBuilder &b, Location loc, Value x) {
  return NVVM::RcpApproxFtzF32Op::create(b, loc, b.getF32Type(), x);
}
Value times(OpBuilder &b, Location loc, Value x, float c) {
  return arith::MulFOp::create(b, loc, x, constant(b, loc, c));
}

Value absolute(OpBuilder &b, Location loc, Value x) {
  return intrinsic(b, loc, "llvm.fabs.f32", x);
}
/// x < limit, false for a NaN.
Value isLess(OpBuilder &b, Location loc, Value x, Value limit) {
  return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, x, limit);
}
/// sum c[n] x^n
Value polynomial(OpBuilder &b, Location loc, Value x,
                 ArrayRef<double> coefficients) {
  Value sum = constant(b, loc, coefficients.back());
  for (double c : llvm::reverse(coefficients.drop_back()))
    sum = LLVM::FMAOp::create(b, loc, b.getF32Type(), sum, x,
                              constant(b, loc, c));
  return sum;
}

/// e^x / 2 and e^-x / 2, numbers where their sum is: by e^(x/2).
std::pair<Value, Value> halvesOfExponentials(OpBuilder &b, Location loc,
                                             Value x) {
  Value exponent = times(b, loc, x, log2e / 2);
  auto halfSquare = [&](Value e) -> Value {
    return arith::MulFOp::create(b, loc, times(b, loc, e, 0.5f), e);
  };
  Value opposite = arith::NegFOp::create(b, loc, exponent);
  return {halfSquare(ex2(b, loc, exponent)), halfSquare(ex2(b, loc, opposite))};
}

/// Formula of one f32 operation.
using Formula = Value (*)(OpBuilder &, Location, Value);

template <typename Op> struct UnaryF32 : OpRewritePattern<Op> {
  UnaryF32(MLIRContext *context, Formula formula)
      : OpRewritePattern<Op>(context), formula(formula) {}
  LogicalResult matchAndRewrite(Op op, PatternRewriter &b) const override {
    if (!op.getType().isF32())
      return b.notifyMatchFailure(op, "not f32");
    b.replaceOp(op, formula(b, op.getLoc(), op.getOperand()));
    return success();
  }
  Formula formula;
};

/// ln, log2 and log10, of denormal numbers too but where `afn` spares that.
template <typename Op> struct Logarithm : OpRewritePattern<Op> {
  Logarithm(MLIRContext *context, float ofTwo)
      : OpRewritePattern<Op>(context), ofTwo(ofTwo) {}
  LogicalResult matchAndRewrite(Op op, PatternRewriter &b) const override {
    if (!op.getType().isF32())
      return b.notifyMatchFailure(op, "not f32");
    bool isFar =
        bitEnumContainsAll(op.getFastmath(), arith::FastMathFlags::afn);
    Value x = intrinsic(b, op.getLoc(),
                        isFar ? "llvm.nvvm.lg2.approx.ftz.f"
                              : "llvm.nvvm.lg2.approx.f",
                        op.getOperand());
    b.replaceOp(op, ofTwo == 1 ? x : times(b, op.getLoc(), x, ofTwo));
    return success();
  }
  float ofTwo;
};

/// 16-bit math is done in f32.
template <typename Op> struct Widen : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, PatternRewriter &b) const override {
    Type type = op->getResult(0).getType();
    if (!type.isF16() && !type.isBF16())
      return b.notifyMatchFailure(op, "not a 16-bit float");
    SmallVector<Value> operands;
    for (Value v : op->getOperands())
      operands.push_back(
          v.getType() == type
              ? Value(arith::ExtFOp::create(b, op.getLoc(), b.getF32Type(), v))
              : v);
    Operation *wide =
        b.create(op.getLoc(), op->getName().getIdentifier(), operands,
                 TypeRange{b.getF32Type()}, op->getAttrs());
    b.replaceOpWithNewOp<arith::TruncFOp>(op, type, wide->getResult(0));
    return success();
  }
};

/// bf16 is the upper half of f32: a shift, where the conversion instruction
/// would take the pipe of the exponentials.
struct ExtendBF16 : OpRewritePattern<arith::ExtFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::ExtFOp op,
                                PatternRewriter &b) const override {
    if (!op.getIn().getType().isBF16() || !op.getType().isF32())
      return b.notifyMatchFailure(op, "not bf16 to f32");
    Location loc = op.getLoc();
    Value bits = LLVM::BitcastOp::create(b, loc, b.getI16Type(), op.getIn());
    Value wide = LLVM::ZExtOp::create(b, loc, b.getI32Type(), bits);
    Value by = LLVM::ConstantOp::create(b, loc, b.getI32IntegerAttr(16));
    Value high = LLVM::ShlOp::create(b, loc, wide, by);
    b.replaceOpWithNewOp<LLVM::BitcastOp>(op, b.getF32Type(), high);
    return success();
  }
};

/// Comparisons of 16-bit floats too: LLVM 22 writes setp.bf16 with a modifier
/// that the assembler refuses.
struct WidenCompare : OpRewritePattern<arith::CmpFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::CmpFOp op,
                                PatternRewriter &b) const override {
    Type type = op.getLhs().getType();
    if (!type.isF16() && !type.isBF16())
      return b.notifyMatchFailure(op, "not a 16-bit float");
    auto wide = [&](Value v) -> Value {
      return arith::ExtFOp::create(b, op.getLoc(), b.getF32Type(), v);
    };
    b.replaceOpWithNewOp<arith::CmpFOp>(op, op.getPredicate(),
                                        wide(op.getLhs()), wide(op.getRhs()));
    return success();
  }
};

/// The same operation of the LLVM dialect: one instruction.
template <typename From, typename To> struct Direct : OpRewritePattern<From> {
  using OpRewritePattern<From>::OpRewritePattern;
  LogicalResult matchAndRewrite(From op, PatternRewriter &b) const override {
    if (!op.getType().isF32())
      return b.notifyMatchFailure(op, "not f32");
    b.replaceOpWithNewOp<To>(op, op.getType(), op->getOperands());
    return success();
  }
};

/// An intrinsic of LLVM that is a few instructions. Its operation in the LLVM
/// dialect would be taken for a call of a device library.
template <typename Op> struct Intrinsic : OpRewritePattern<Op> {
  Intrinsic(MLIRContext *context, StringRef name)
      : OpRewritePattern<Op>(context), name(name) {}
  LogicalResult matchAndRewrite(Op op, PatternRewriter &b) const override {
    if (!op.getType().isF32())
      return b.notifyMatchFailure(op, "not f32");
    b.replaceOpWithNewOp<LLVM::CallIntrinsicOp>(
        op, op.getType(), b.getStringAttr(name), op->getOperands());
    return success();
  }
  StringRef name;
};

std::optional<float> constantOf(Value v) {
  FloatAttr value;
  if (!v.getType().isF32() || !matchPattern(v, m_Constant(&value)))
    return std::nullopt;
  return value.getValue().convertToFloat();
}

/// x * factor, or x * factor + offset.
struct Linear {
  Value x;
  float factor = 1;
  std::optional<float> offset;

  static std::optional<Linear> match(Operation *op) {
    if (auto mul = dyn_cast_or_null<arith::MulFOp>(op))
      return matchProduct(mul.getLhs(), mul.getRhs());
    if (auto fma = dyn_cast_or_null<LLVM::FMAOp>(op)) {
      std::optional<Linear> linear = matchProduct(fma.getA(), fma.getB());
      std::optional<float> offset = constantOf(fma.getC());
      if (!linear || !offset)
        return std::nullopt;
      linear->offset = offset;
      return linear;
    }
    return std::nullopt;
  }
  static std::optional<Linear> matchProduct(Value a, Value b) {
    if (std::optional<float> factor = constantOf(b))
      return Linear{a, *factor, std::nullopt};
    if (std::optional<float> factor = constantOf(a))
      return Linear{b, *factor, std::nullopt};
    return std::nullopt;
  }
  /// Where x is of such a form itself, and nothing else reads it: this product
  /// of what that one is of. Not if a constant would overflow or lose bits.
  std::optional<Linear> throughX() const {
    std::optional<Linear> inner =
        x.hasOneUse() ? match(x.getDefiningOp()) : std::nullopt;
    if (!inner || constantOf(inner->x))
      return std::nullopt;
    inner->factor *= factor;
    if (inner->offset)
      *inner->offset *= factor;
    float added = inner->offset.value_or(0);
    if (!std::isnormal(inner->factor) || !(added == 0 || std::isnormal(added)))
      return std::nullopt;
    return inner;
  }
};

/// Products by constants, one after the other, are one; and of a linear form a
/// linear form.
struct FoldProducts : OpRewritePattern<arith::MulFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::MulFOp op,
                                PatternRewriter &b) const override {
    std::optional<Linear> product = Linear::match(op);
    if (product)
      product = product->throughX();
    if (!product)
      return b.notifyMatchFailure(op, "not by constants of one value");
    Value by = constant(b, op.getLoc(), product->factor);
    if (product->offset)
      b.replaceOpWithNewOp<LLVM::FMAOp>(
          op, op.getType(), product->x, by,
          constant(b, op.getLoc(), *product->offset));
    else
      b.replaceOpWithNewOp<arith::MulFOp>(op, product->x, by);
    return success();
  }
};

/// c - x * factor, where that is all that becomes of the product.
struct FuseDifference : OpRewritePattern<arith::SubFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::SubFOp op,
                                PatternRewriter &b) const override {
    std::optional<float> from = constantOf(op.getLhs());
    std::optional<Linear> product = Linear::match(op.getRhs().getDefiningOp());
    if (!from || !product || product->offset || !op.getRhs().hasOneUse())
      return b.notifyMatchFailure(op, "not a constant less a product");
    b.replaceOpWithNewOp<LLVM::FMAOp>(
        op, op.getType(), product->x,
        constant(b, op.getLoc(), -product->factor), op.getLhs());
    return success();
  }
};

/// The factor of a product, with that of an fma that reads it.
struct FoldIntoFMA : OpRewritePattern<LLVM::FMAOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(LLVM::FMAOp op,
                                PatternRewriter &b) const override {
    std::optional<Linear> product = Linear::matchProduct(op.getA(), op.getB());
    if (product)
      product = product->throughX();
    if (!product || product->offset)
      return b.notifyMatchFailure(op, "not by constants of one value");
    b.replaceOpWithNewOp<LLVM::FMAOp>(op, op.getType(), product->x,
                                      constant(b, op.getLoc(), product->factor),
                                      op.getC());
    return success();
  }
};

/// A product with a reciprocal where that has the digits: of 1, and where
/// `arcp` allows it. The reciprocal's instruction takes denormal numbers for 0;
/// the division's does not, and has two units in the last place.
struct Divide : OpRewritePattern<arith::DivFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::DivFOp op,
                                PatternRewriter &b) const override {
    if (!op.getType().isF32())
      return b.notifyMatchFailure(op, "not f32");
    if (std::optional<float> by = constantOf(op.getRhs());
        by && std::isnormal(1 / *by)) {
      b.replaceOpWithNewOp<arith::MulFOp>(op, op.getLhs(),
                                          constant(b, op.getLoc(), 1 / *by));
      return success();
    }
    std::optional<float> of = constantOf(op.getLhs());
    bool isReciprocal = of && std::fabs(*of) == 1;
    if (isReciprocal ||
        bitEnumContainsAll(op.getFastmath(), arith::FastMathFlags::arcp)) {
      b.replaceOpWithNewOp<arith::MulFOp>(
          op, op.getLhs(), reciprocal(b, op.getLoc(), op.getRhs()));
      return success();
    }
    b.replaceOpWithNewOp<LLVM::CallIntrinsicOp>(
        op, op.getType(), b.getStringAttr("llvm.nvvm.div.full"),
        op->getOperands());
    return success();
  }
};

/// x - trunc(x / y) y, exactly, with the sign of x. A quotient below 2^19 has
/// an integer part that is right or one too large, and what it leaves is a
/// number of f32. Others are divided as integers: x = m 2^k y's unit, of which
/// 2^k is taken in steps that fit 64 bits.
struct Remainder : OpRewritePattern<arith::RemFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::RemFOp op,
                                PatternRewriter &b) const override {
    if (!op.getType().isF32())
      return b.notifyMatchFailure(op, "not f32");
    Location loc = op.getLoc();
    Value x = absolute(b, loc, op.getLhs()), y = absolute(b, loc, op.getRhs());
    Value quotient = arith::DivFOp::create(b, loc, x, y);
    auto branch = scf::IfOp::create(
        b, loc, isLess(b, loc, quotient, constant(b, loc, 0x1p19f)),
        [&](OpBuilder &nested, Location) {
          scf::YieldOp::create(nested, loc, small(nested, loc, x, y, quotient));
        },
        [&](OpBuilder &nested, Location) {
          scf::YieldOp::create(nested, loc, large(nested, loc, x, y));
        });
    Value rest =
        LLVM::CallIntrinsicOp::create(
            b, loc, b.getF32Type(), b.getStringAttr("llvm.copysign.f32"),
            ValueRange{branch.getResult(0), op.getLhs()})
            .getResults();
    Value infinity = constant(b, loc, std::numeric_limits<float>::infinity());
    Value isNumber =
        arith::AndIOp::create(b, loc, isLess(b, loc, x, infinity),
                              isLess(b, loc, constant(b, loc, 0), y));
    rest = arith::SelectOp::create(
        b, loc, isNumber, rest,
        constant(b, loc, std::numeric_limits<float>::quiet_NaN()));
    b.replaceOpWithNewOp<arith::SelectOp>(op, isLess(b, loc, x, y), op.getLhs(),
                                          rest);
    return success();
  }
  static Value small(OpBuilder &b, Location loc, Value x, Value y,
                     Value quotient) {
    Value more = times(b, loc, quotient, 1 + 0x1p-20f);
    Value whole = intrinsic(b, loc, "llvm.floor.f32", more);
    Value rest = LLVM::FMAOp::create(
        b, loc, b.getF32Type(), arith::NegFOp::create(b, loc, whole), y, x);
    return arith::SelectOp::create(
        b, loc, isLess(b, loc, rest, constant(b, loc, 0)),
        arith::AddFOp::create(b, loc, rest, y), rest);
  }
  static Value large(OpBuilder &b, Location loc, Value x, Value y) {
    auto integer = [&](Type type, int64_t n) -> Value {
      return arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, n));
    };
    Type i32 = b.getI32Type(), i64 = b.getI64Type();
    // A number is significand * 2^(exponent - 150).
    auto split = [&](Value v) -> std::pair<Value, Value> {
      Value bits = arith::BitcastOp::create(b, loc, i32, v);
      Value field = arith::ShRUIOp::create(b, loc, bits, integer(i32, 23));
      Value low = arith::AndIOp::create(b, loc, bits, integer(i32, 0x7fffff));
      Value isNormal = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                             field, integer(i32, 0));
      Value significand = arith::SelectOp::create(
          b, loc, isNormal,
          arith::OrIOp::create(b, loc, low, integer(i32, 0x800000)), low);
      return {arith::ExtUIOp::create(b, loc, i64, significand),
              arith::MaxUIOp::create(b, loc, field, integer(i32, 1))};
    };
    std::pair<Value, Value> from = split(x);
    Value m = from.first, exponent = from.second;
    std::pair<Value, Value> of = split(y);
    Value divisor = of.first, unit = of.second;
    Value powers = arith::MaxSIOp::create(
        b, loc, arith::SubIOp::create(b, loc, exponent, unit), integer(i32, 0));
    constexpr int64_t kBits = 40;
    Value rest = arith::RemUIOp::create(b, loc, m, divisor);
    auto loop = scf::ForOp::create(
        b, loc, integer(i32, 0), powers, integer(i32, kBits), ValueRange{rest},
        [&](OpBuilder &body, Location, Value done, ValueRange carried) {
          Value left = arith::SubIOp::create(body, loc, powers, done);
          Value step = arith::ExtUIOp::create(
              body, loc, i64,
              arith::MinUIOp::create(body, loc, left, integer(i32, kBits)));
          Value shifted = arith::ShLIOp::create(body, loc, carried[0], step);
          Value rest = arith::RemUIOp::create(body, loc, shifted, divisor);
          scf::YieldOp::create(body, loc, rest);
        });
    static_assert(kBits + 24 <= 64);
    // times 2^(unit - 150), in two factors that are numbers.
    Value power = arith::SubIOp::create(b, loc, unit, integer(i32, 150));
    Value half = arith::ShRSIOp::create(b, loc, power, integer(i32, 1));
    auto scale = [&](Value n) -> Value {
      Value biased = arith::AddIOp::create(b, loc, n, integer(i32, 127));
      return arith::BitcastOp::create(
          b, loc, b.getF32Type(),
          arith::ShLIOp::create(b, loc, biased, integer(i32, 23)));
    };
    Value result =
        arith::UIToFPOp::create(b, loc, b.getF32Type(), loop.getResult(0));
    result = arith::MulFOp::create(b, loc, result, scale(half));
    return arith::MulFOp::create(
        b, loc, result, scale(arith::SubIOp::create(b, loc, power, half)));
  }
};

/// x to the power y for positive x, as the polynomial expansions want it.
struct Power : OpRewritePattern<math::PowFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::PowFOp op,
                                PatternRewriter &b) const override {
    FloatAttr exponent;
    if (!op.getType().isF32() ||
        !matchPattern(op.getRhs(), m_Constant(&exponent)))
      return b.notifyMatchFailure(op, "exponent is not a constant");
    double e = exponent.getValueAsDouble();
    if (e != std::floor(e) || std::fabs(e) > 16)
      return b.notifyMatchFailure(op, "exponent is not a small integer");
    Location loc = op.getLoc();
    Value x = op.getLhs(), power = constant(b, loc, 1);
    for (int i = 0; i < std::abs(int(e)); ++i)
      power = i ? Value(arith::MulFOp::create(b, loc, power, x)) : x;
    b.replaceOp(op, e < 0 ? reciprocal(b, loc, power) : power);
    return success();
  }
};

/// tanh x = 1 - 2 / (1 + e^2x): right at both infinities, and to 2e-6 of 1,
/// where `afn` allows that; else it is a polynomial.
struct ApproximateTanh : OpRewritePattern<math::TanhOp> {
  ApproximateTanh(MLIRContext *context)
      : OpRewritePattern<math::TanhOp>(context, /*benefit=*/2) {}
  LogicalResult matchAndRewrite(math::TanhOp op,
                                PatternRewriter &b) const override {
    if (!op.getType().isF32())
      return b.notifyMatchFailure(op, "not f32");
    if (!bitEnumContainsAll(op.getFastmath(), arith::FastMathFlags::afn))
      return b.notifyMatchFailure(op, "must be right to the last bits");
    b.replaceOp(op, formula(b, op.getLoc(), op.getOperand()));
    return success();
  }
  static Value formula(OpBuilder &b, Location loc, Value x);
};

Value ApproximateTanh::formula(OpBuilder &b, Location loc, Value x) {
  Value e = ex2(b, loc, times(b, loc, x, 2 * log2e));
  Value d = arith::AddFOp::create(b, loc, e, constant(b, loc, 1));
  Value q = times(b, loc, reciprocal(b, loc, d), 2);
  return arith::SubFOp::create(b, loc, constant(b, loc, 1), q);
}

void addFormulas(RewritePatternSet &patterns) {
  MLIRContext *c = patterns.getContext();
  patterns.add<UnaryF32<math::Exp2Op>>(c, ex2);
  patterns.add<UnaryF32<math::ExpOp>>(
      c, [](OpBuilder &b, Location loc, Value x) {
        return ex2(b, loc, times(b, loc, x, log2e));
      });
  // Near 0, where differences lose the digits, series.
  patterns.add<UnaryF32<math::ExpM1Op>>(
      c, [](OpBuilder &b, Location loc, Value x) -> Value {
        Value e = ex2(b, loc, times(b, loc, x, log2e));
        Value series = polynomial(
            b, loc, x,
            {1, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040});
        return arith::SelectOp::create(
            b, loc,
            isLess(b, loc, absolute(b, loc, x), constant(b, loc, 0.35f)),
            arith::MulFOp::create(b, loc, x, series),
            arith::SubFOp::create(b, loc, e, constant(b, loc, 1)));
      });
  patterns.add<UnaryF32<math::SinhOp>>(
      c, [](OpBuilder &b, Location loc, Value x) -> Value {
        auto [grown, fallen] = halvesOfExponentials(b, loc, x);
        Value square = arith::MulFOp::create(b, loc, x, x);
        Value series = polynomial(
            b, loc, square, {1, 1. / 6, 1. / 120, 1. / 5040, 1. / 362880});
        return arith::SelectOp::create(
            b, loc, isLess(b, loc, absolute(b, loc, x), constant(b, loc, 1)),
            arith::MulFOp::create(b, loc, x, series),
            arith::SubFOp::create(b, loc, grown, fallen));
      });
  patterns.add<UnaryF32<math::CoshOp>>(
      c, [](OpBuilder &b, Location loc, Value x) -> Value {
        auto [grown, fallen] = halvesOfExponentials(b, loc, x);
        return arith::AddFOp::create(b, loc, grown, fallen);
      });
  patterns.add<Logarithm<math::Log2Op>>(c, 1);
  patterns.add<Logarithm<math::LogOp>>(c, ln2);
  patterns.add<Logarithm<math::Log10Op>>(c, 0.30102999566f);
  patterns.add<UnaryF32<math::Log1pOp>>(
      c, [](OpBuilder &b, Location loc, Value x) -> Value {
        Value y = arith::AddFOp::create(b, loc, x, constant(b, loc, 1));
        // ln (1 + x) = 2 artanh(x / (2 + x))
        Value ratio = arith::MulFOp::create(
            b, loc, x,
            reciprocal(b, loc,
                       arith::AddFOp::create(b, loc, x, constant(b, loc, 2))));
        Value square = arith::MulFOp::create(b, loc, ratio, ratio);
        Value series =
            polynomial(b, loc, square, {2, 2. / 3, 2. / 5, 2. / 7, 2. / 9});
        return arith::SelectOp::create(
            b, loc, isLess(b, loc, absolute(b, loc, x), constant(b, loc, 0.3f)),
            arith::MulFOp::create(b, loc, ratio, series),
            times(b, loc, lg2(b, loc, y), ln2));
      });
  patterns.add<ApproximateTanh>(c);
  patterns.add<Intrinsic<math::RsqrtOp>>(c, "llvm.nvvm.rsqrt.approx.ftz.f");
  patterns.add<Intrinsic<math::AbsFOp>>(c, "llvm.fabs.f32");
  patterns.add<Intrinsic<math::SqrtOp>>(c, "llvm.sqrt.f32");
  patterns.add<Intrinsic<math::FloorOp>>(c, "llvm.floor.f32");
  patterns.add<Intrinsic<math::CeilOp>>(c, "llvm.ceil.f32");
  patterns.add<Intrinsic<math::RoundEvenOp>>(c, "llvm.roundeven.f32");
  patterns.add<Intrinsic<math::CopySignOp>>(c, "llvm.copysign.f32");
  patterns
      .add<Divide, Remainder, Power, FoldProducts, FuseDifference, FoldIntoFMA>(
          c);
  patterns.add<Direct<math::FmaOp, LLVM::FMAOp>,
               Direct<math::TruncOp, LLVM::FTruncOp>,
               Direct<arith::MaxNumFOp, LLVM::MaxNumOp>,
               Direct<arith::MinNumFOp, LLVM::MinNumOp>,
               Direct<arith::MaximumFOp, LLVM::MaximumOp>,
               Direct<arith::MinimumFOp, LLVM::MinimumOp>>(c);
  patterns.add<Widen<math::Exp2Op>, Widen<math::ExpOp>, Widen<math::LogOp>,
               Widen<math::Log2Op>, Widen<math::TanhOp>, Widen<math::RsqrtOp>,
               Widen<math::SqrtOp>, Widen<math::AbsFOp>, Widen<math::FmaOp>,
               Widen<math::SinOp>, Widen<math::CosOp>, Widen<math::ErfOp>,
               Widen<math::FloorOp>, Widen<math::CeilOp>, Widen<math::PowFOp>,
               Widen<arith::DivFOp>, Widen<arith::MaximumFOp>,
               Widen<arith::MinimumFOp>, Widen<arith::MaxNumFOp>,
               Widen<arith::MinNumFOp>, WidenCompare, ExtendBF16>(c);
}

struct LowerKernelMath
    : public fa::impl::LowerKernelMathPassBase<LowerKernelMath> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    addFormulas(patterns);
    fa::populateExpandMath(patterns);
    populateMathPolynomialApproximationPatterns(patterns, [](StringRef name) {
      return name == math::TanhOp::getOperationName() ||
             name == math::ErfOp::getOperationName() ||
             name == math::AtanOp::getOperationName() ||
             name == math::Atan2Op::getOperationName() ||
             name == math::AsinOp::getOperationName() ||
             name == math::AcosOp::getOperationName() ||
             name == math::ErfcOp::getOperationName();
    });
    GreedyRewriteConfig config;
    if (failed(
            applyPatternsGreedily(getOperation(), std::move(patterns), config)))
      return signalPassFailure();
    WalkResult walk = getOperation().walk([](Operation *op) {
      bool math = isa_and_present<math::MathDialect>(op->getDialect()) &&
                  !isa<math::AbsIOp, math::CountLeadingZerosOp,
                       math::CountTrailingZerosOp, math::CtPopOp>(op);
      if (math || isa<arith::RemFOp>(op)) {
        op->emitOpError("has no lowering for NVIDIA GPUs on ")
            << op->getResult(0).getType()
            << "; write it with exp2, log2, tanh, sqrt or arithmetic on f32";
        return WalkResult::interrupt();
      }
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
