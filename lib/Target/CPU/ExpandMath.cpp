// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Target/ExpandMath.h"
#include "fa/Target/CPU/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <cmath>
#include <limits>

namespace fa {
#define GEN_PASS_DEF_CPUEXPANDMATHPASS
#include "fa/Target/CPU/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-cpu-expand-math"

namespace {

/// What exponentials need to know of a float type.
struct Format {
  /// Bits of the significand that are stored, and the exponent's bias.
  int64_t significand, bias;
  /// Exponents from which on 2^x and e^x are normal numbers, and infinite.
  /// Smaller ones are taken for 0: a denormal result takes processors a hundred
  /// times as long, and masked scores all would have it.
  double leastPower, mostPower, leastExponent, mostExponent;
  /// ln 2 in two parts, of which the first times an exponent is exact.
  double ln2High, ln2Low;
  /// Of the polynomials on [-ln 2 / 2, ln 2 / 2]; the next term of the series
  /// is 1.2e-7 and 4.1e-18.
  unsigned degree;

  static const Format *of(Type type);
};

/// Arithmetic on scalars or vectors of such a type.
struct Arithmetic {
  OpBuilder &b;
  Location loc;
  Type type;
  const Format &format;

  Value constant(Type t, TypedAttr x) const {
    if (auto vector = dyn_cast<VectorType>(t))
      return arith::ConstantOp::create(b, loc,
                                       DenseElementsAttr::get(vector, x));
    return arith::ConstantOp::create(b, loc, x);
  }
  Value constant(double x) const {
    return constant(type, b.getFloatAttr(getElementTypeOrSelf(type), x));
  }
  Type bitsType() const {
    Type bits =
        b.getIntegerType(getElementTypeOrSelf(type).getIntOrFloatBitWidth());
    if (auto vector = dyn_cast<VectorType>(type))
      return vector.clone(bits);
    return bits;
  }
  Value bits(int64_t x) const {
    return constant(bitsType(),
                    b.getIntegerAttr(getElementTypeOrSelf(bitsType()), x));
  }
  Value add(Value x, Value y) const {
    return arith::AddFOp::create(b, loc, x, y);
  }
  Value sub(Value x, Value y) const {
    return arith::SubFOp::create(b, loc, x, y);
  }
  Value mul(Value x, Value y) const {
    return arith::MulFOp::create(b, loc, x, y);
  }
  Value fma(Value x, Value y, Value z) const {
    return math::FmaOp::create(b, loc, x, y, z);
  }
  /// x < limit ? then : otherwise; a NaN takes `otherwise`.
  Value selectLess(Value x, Value limit, Value then, Value otherwise) const {
    Value less =
        arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, x, limit);
    return arith::SelectOp::create(b, loc, less, then, otherwise);
  }
  /// Added, it leaves the nearest integer in the low bits.
  Value rounder() const {
    return constant(std::ldexp(1.5, format.significand));
  }
  /// Taylor's polynomial of e^(x * rate).
  Value exponentialSeries(Value x, double rate) const {
    SmallVector<double> coefficients = {1.0};
    for (unsigned k = 1; k <= format.degree; ++k)
      coefficients.push_back(coefficients.back() * rate / k);
    Value sum = constant(coefficients.pop_back_val());
    for (double c : llvm::reverse(coefficients))
      sum = fma(sum, x, constant(c));
    return sum;
  }
};

} // namespace

static constexpr double kLn2 = 0.6931471805599453, kLog2E = 1.4426950408889634;

const Format *Format::of(Type type) {
  static constexpr Format f32 = {/*significand=*/23,
                                 /*bias=*/127,
                                 /*leastPower=*/-126,
                                 /*mostPower=*/128,
                                 /*leastExponent=*/-87.33654022216797,
                                 /*mostExponent=*/88.7228394,
                                 /*ln2High=*/0.693145751953125,
                                 /*ln2Low=*/1.428606765330187e-06,
                                 /*degree=*/6};
  static constexpr Format f64 = {/*significand=*/52,
                                 /*bias=*/1023,
                                 /*leastPower=*/-1022,
                                 /*mostPower=*/1024,
                                 /*leastExponent=*/-708.396418532264,
                                 /*mostExponent=*/709.782712893384,
                                 /*ln2High=*/6.93147180369123816490e-01,
                                 /*ln2Low=*/1.90821492927058770002e-10,
                                 /*degree=*/13};
  return type.isF32() ? &f32 : type.isF64() ? &f64 : nullptr;
}

/// p * 2^n, where `shifted` is n + rounder and n is an exponent, or infinity's.
static Value scaleByPowerOfTwo(const Arithmetic &f, Value p, Value shifted) {
  Value n = arith::BitcastOp::create(f.b, f.loc, f.bitsType(), shifted);
  Value biased = arith::AddIOp::create(f.b, f.loc, n, f.bits(f.format.bias));
  Value exponent =
      arith::ShLIOp::create(f.b, f.loc, biased, f.bits(f.format.significand));
  return f.mul(p, arith::BitcastOp::create(f.b, f.loc, f.type, exponent));
}

/// 2^x: n = round(x), 2^(x-n) by a polynomial on [-1/2, 1/2].
static Value expandExp2(const Arithmetic &f, Value x) {
  Value least = f.constant(f.format.leastPower),
        most = f.constant(f.format.mostPower);
  Value y = f.selectLess(most, x, most, f.selectLess(x, least, least, x));
  Value shifted = f.add(y, f.rounder());
  Value r = f.sub(y, f.sub(shifted, f.rounder()));
  Value p = f.exponentialSeries(r, kLn2);
  Value result = scaleByPowerOfTwo(f, p, shifted);
  return f.selectLess(x, least, f.constant(0.0), result);
}

/// e^x: n = round(x / ln 2), e^(x - n ln 2) by a polynomial; ln 2 in two parts.
static Value expandExp(const Arithmetic &f, Value x) {
  Value least = f.constant(f.format.leastExponent),
        most = f.constant(f.format.mostExponent);
  Value infinity = f.constant(std::numeric_limits<double>::infinity());
  Value y = f.selectLess(most, x, most, f.selectLess(x, least, least, x));
  Value shifted = f.fma(y, f.constant(kLog2E), f.rounder());
  Value n = f.sub(shifted, f.rounder());
  Value r = f.fma(n, f.constant(-f.format.ln2High), y);
  r = f.fma(n, f.constant(-f.format.ln2Low), r);
  Value p = f.exponentialSeries(r, 1);
  Value result = scaleByPowerOfTwo(f, p, shifted);
  result = f.selectLess(most, x, infinity, result);
  return f.selectLess(x, least, f.constant(0.0), result);
}

/// ln x of an f32, as scale * ln m + e * step: x = m 2^e, sqrt(1/2) <= m <
/// sqrt(2), ln m = 2 artanh((m - 1) / (m + 1)). Upstream's (LLVM 22) takes
/// denormal numbers for the least normal one.
static Value expandLogarithm(const Arithmetic &f, Value x, double scale,
                             double stepHigh, double stepLow) {
  OpBuilder &b = f.b;
  Location loc = f.loc;
  Value zero = f.constant(0.0), one = f.constant(1.0);
  Value least = f.constant(0x1p-126);
  constexpr int64_t kShift = 25;
  Value y = f.selectLess(x, least, f.mul(x, f.constant(0x1p25)), x);
  Value isDenormal =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, x, least);
  Value bits = arith::BitcastOp::create(b, loc, f.bitsType(), y);
  auto andBits = [&](Value v, int64_t mask) -> Value {
    return arith::AndIOp::create(b, loc, v, f.bits(mask));
  };
  Value exponent = arith::SubIOp::create(
      b, loc,
      arith::ShRUIOp::create(b, loc, bits, f.bits(f.format.significand)),
      arith::SelectOp::create(b, loc, isDenormal, f.bits(127 + kShift),
                              f.bits(127)));
  Value m = arith::BitcastOp::create(
      b, loc, f.type,
      arith::OrIOp::create(b, loc, andBits(bits, 0x7fffff),
                           f.bits(0x3f800000)));
  Value e = arith::SIToFPOp::create(b, loc, f.type, exponent);
  Value root = f.constant(1.41421356);
  e = f.selectLess(m, root, e, f.add(e, one));
  m = f.selectLess(m, root, m, f.mul(m, f.constant(0.5)));
  Value ratio = arith::DivFOp::create(b, loc, f.sub(m, one), f.add(m, one));
  Value square = f.mul(ratio, ratio);
  Value series = f.constant(2.0 / 9 * scale);
  for (double c : {2.0 / 7, 2.0 / 5, 2.0 / 3, 2.0})
    series = f.fma(series, square, f.constant(c * scale));
  Value result = f.fma(ratio, series, f.mul(e, f.constant(stepLow)));
  result = f.fma(e, f.constant(stepHigh), result);
  // Of 0, of negative numbers, and of infinity and NaN.
  Value infinity = f.constant(std::numeric_limits<double>::infinity());
  Value nan = f.constant(std::numeric_limits<double>::quiet_NaN());
  result = f.selectLess(x, infinity, result, x);
  result = f.selectLess(zero, x, result, nan);
  Value isZero =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, x, zero);
  return arith::SelectOp::create(
      b, loc, isZero, f.constant(-std::numeric_limits<double>::infinity()),
      result);
}

static Value expandLog(const Arithmetic &f, Value x) {
  return expandLogarithm(f, x, 1, f.format.ln2High, f.format.ln2Low);
}
static Value expandLog2(const Arithmetic &f, Value x) {
  return expandLogarithm(f, x, kLog2E, 1, 0);
}

namespace {

template <typename OpTy, Value (*expand)(const Arithmetic &, Value)>
struct ExpandUnary : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op,
                                PatternRewriter &rewriter) const override {
    Type type = op.getType();
    const Format *format = Format::of(getElementTypeOrSelf(type));
    if (!format)
      return rewriter.notifyMatchFailure(op, "neither f32 nor f64");
    // One f64 is the C library's, which is as fast: so fa-reference, which has
    // no vectors, computes its exponentials in another way.
    if (type.isF64())
      return rewriter.notifyMatchFailure(op, "a single f64");
    if (isa<math::LogOp, math::Log2Op>(op) && format->significand != 23)
      return rewriter.notifyMatchFailure(op, "logarithms of f64");
    Arithmetic f{rewriter, op.getLoc(), type, *format};
    rewriter.replaceOp(op, expand(f, op.getOperand()));
    return success();
  }
};

/// A comparison where the CPU's own maximum does. The left operand's NaN is
/// ignored; the right one, a running maximum, stays.
struct CompareForMaximum : OpRewritePattern<arith::MaxNumFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::MaxNumFOp op,
                                PatternRewriter &rewriter) const override {
    Value greater =
        arith::CmpFOp::create(rewriter, op.getLoc(), arith::CmpFPredicate::OGT,
                              op.getLhs(), op.getRhs());
    rewriter.replaceOpWithNewOp<arith::SelectOp>(op, greater, op.getLhs(),
                                                 op.getRhs());
    return success();
  }
};

/// A division of integers that traps on no operands: by 0 it gives some number,
/// as a GPU's does, and by -1 what is negated, which may wrap.
template <typename OpTy> struct GuardDivisor : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op,
                                PatternRewriter &rewriter) const override {
    constexpr bool isSigned =
        !llvm::is_one_of<OpTy, arith::DivUIOp, arith::RemUIOp,
                         arith::CeilDivUIOp>::value;
    constexpr bool isRemainder =
        llvm::is_one_of<OpTy, arith::RemSIOp, arith::RemUIOp>::value;
    Value divisor = op.getRhs();
    if (isSafe(divisor))
      return rewriter.notifyMatchFailure(op, "traps on nothing");
    Location loc = op.getLoc();
    auto constant = [&](int64_t x) -> Value {
      Type type = divisor.getType();
      TypedAttr value = rewriter.getIntegerAttr(getElementTypeOrSelf(type), x);
      if (auto vector = dyn_cast<VectorType>(type))
        value = DenseElementsAttr::get(vector, value);
      return arith::ConstantOp::create(rewriter, loc, value);
    };
    auto is = [&](int64_t x) -> Value {
      return arith::CmpIOp::create(rewriter, loc, arith::CmpIPredicate::eq,
                                   divisor, constant(x));
    };
    Value traps = is(0), isMinusOne = isSigned ? is(-1) : Value();
    if (isSigned)
      traps = arith::OrIOp::create(rewriter, loc, traps, isMinusOne);
    Value safe =
        arith::SelectOp::create(rewriter, loc, traps, constant(1), divisor);
    Value result = OpTy::create(rewriter, loc, op.getLhs(), safe);
    if (isSigned && !isRemainder)
      result = arith::SelectOp::create(
          rewriter, loc, isMinusOne,
          arith::SubIOp::create(rewriter, loc, constant(0), op.getLhs()),
          result);
    rewriter.replaceOp(op, result);
    return success();
  }
  /// A constant other than 0 and -1, or what is one wherever it would be one of
  /// these.
  static bool isSafe(Value divisor) {
    APInt value;
    if (matchPattern(divisor, m_ConstantInt(&value)))
      return !value.isZero() && !value.isAllOnes();
    auto select = divisor.getDefiningOp<arith::SelectOp>();
    return select && matchPattern(select.getTrueValue(), m_One()) &&
           looksAt(select.getCondition(), select.getFalseValue());
  }
  /// Whether a condition holds where a value is a constant, among others.
  static bool looksAt(Value condition, Value v) {
    if (auto either = condition.getDefiningOp<arith::OrIOp>())
      return looksAt(either.getLhs(), v) || looksAt(either.getRhs(), v);
    auto is = condition.getDefiningOp<arith::CmpIOp>();
    return is && is.getPredicate() == arith::CmpIPredicate::eq &&
           is.getLhs() == v && matchPattern(is.getRhs(), m_Constant());
  }
};

struct CPUExpandMathPass : fa::impl::CPUExpandMathPassBase<CPUExpandMathPass> {
  using CPUExpandMathPassBase::CPUExpandMathPassBase;
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<ExpandUnary<math::ExpOp, expandExp>,
                 ExpandUnary<math::Exp2Op, expandExp2>>(&getContext(),
                                                        /*benefit=*/10);
    patterns.add<ExpandUnary<math::LogOp, expandLog>,
                 ExpandUnary<math::Log2Op, expandLog2>>(&getContext(),
                                                        /*benefit=*/10);
    patterns
        .add<CompareForMaximum, GuardDivisor<arith::DivSIOp>,
             GuardDivisor<arith::DivUIOp>, GuardDivisor<arith::RemSIOp>,
             GuardDivisor<arith::RemUIOp>, GuardDivisor<arith::FloorDivSIOp>,
             GuardDivisor<arith::CeilDivSIOp>,
             GuardDivisor<arith::CeilDivUIOp>>(&getContext());
    populateExpandMath(patterns);
    // What has no lowering on vectors.
    math::populateExpansionPatterns(patterns,
                                    {"asinh", "acosh", "atanh", "fpowi"});
    MathPolynomialApproximationOptions options;
    populateMathPolynomialApproximationPatterns(patterns, options);
    if (!nativeBF16)
      arith::populateExpandBFloat16Patterns(patterns);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
