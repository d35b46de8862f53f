// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Target/CPU/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <limits>

namespace fa {
#define GEN_PASS_DEF_CPUEXPANDMATHPASS
#include "fa/Target/CPU/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-cpu-expand-math"

namespace {

/// Arithmetic on f32 scalars or vectors.
struct F32 {
  OpBuilder &b;
  Location loc;
  Type type;

  Type bitsType() const {
    if (auto vector = dyn_cast<VectorType>(type))
      return vector.clone(b.getI32Type());
    return b.getI32Type();
  }
  Value constant(Type t, TypedAttr x) const {
    if (auto vector = dyn_cast<VectorType>(t))
      return arith::ConstantOp::create(b, loc,
                                       DenseElementsAttr::get(vector, x));
    return arith::ConstantOp::create(b, loc, x);
  }
  Value constant(float x) const { return constant(type, b.getF32FloatAttr(x)); }
  Value bits(int32_t x) const {
    return constant(bitsType(), b.getI32IntegerAttr(x));
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
  Value polynomial(Value x, ArrayRef<float> coefficients) const {
    Value sum = constant(coefficients.back());
    for (float c : llvm::reverse(coefficients.drop_back()))
      sum = fma(sum, x, constant(c));
    return sum;
  }
};

} // namespace

// Adding it leaves the nearest integer in the low bits of an f32.
static constexpr float kRounder = 12582912.0f; // 1.5 * 2^23

/// p * 2^n, where `shifted` is n + kRounder and n is in [-126, 128].
static Value scaleByPowerOfTwo(const F32 &f, Value p, Value shifted) {
  Value n = arith::BitcastOp::create(f.b, f.loc, f.bitsType(), shifted);
  Value biased = arith::AddIOp::create(f.b, f.loc, n, f.bits(127));
  Value exponent = arith::ShLIOp::create(f.b, f.loc, biased, f.bits(23));
  return f.mul(p, arith::BitcastOp::create(f.b, f.loc, f.type, exponent));
}

/// 2^x: n = round(x), 2^(x-n) by a polynomial on [-1/2, 1/2].
static Value expandExp2(const F32 &f, Value x) {
  Value least = f.constant(-126.0f), most = f.constant(128.0f);
  Value y = f.selectLess(most, x, most, f.selectLess(x, least, least, x));
  Value shifted = f.add(y, f.constant(kRounder));
  Value r = f.sub(y, f.sub(shifted, f.constant(kRounder)));
  // Taylor coefficients (ln 2)^k / k!; the next term is below 1.2e-7 * 2^-r.
  Value p = f.polynomial(r, {1.0f, 0.693147180559945f, 0.240226506959101f,
                             0.0555041086648216f, 0.00961812910762848f,
                             0.00133335581464284f, 0.000154035303933816f});
  Value result = scaleByPowerOfTwo(f, p, shifted);
  return f.selectLess(x, least, f.constant(0.0f), result);
}

/// e^x: n = round(x / ln 2), e^(x - n ln 2) by a polynomial; ln 2 in two parts.
static Value expandExp(const F32 &f, Value x) {
  // The first above ln 2^-126. A result below that would be denormal, which
  // takes processors a hundred times as long, and masked scores all have it.
  Value least = f.constant(-87.33654022216797f), most = f.constant(88.7228394f);
  Value infinity = f.constant(std::numeric_limits<float>::infinity());
  Value y = f.selectLess(most, x, most, f.selectLess(x, least, least, x));
  Value shifted = f.fma(y, f.constant(1.44269504088896f), f.constant(kRounder));
  Value n = f.sub(shifted, f.constant(kRounder));
  Value r = f.fma(n, f.constant(-0.693145751953125f), y);
  r = f.fma(n, f.constant(-1.428606765330187e-06f), r);
  Value p = f.polynomial(
      r, {1.0f, 1.0f, 0.5f, 1.0f / 6, 1.0f / 24, 1.0f / 120, 1.0f / 720});
  Value result = scaleByPowerOfTwo(f, p, shifted);
  result = f.selectLess(most, x, infinity, result);
  return f.selectLess(x, least, f.constant(0.0f), result);
}

namespace {

template <typename OpTy, Value (*expand)(const F32 &, Value)>
struct ExpandExponential : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op,
                                PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isF32())
      return rewriter.notifyMatchFailure(op, "not f32");
    F32 f{rewriter, op.getLoc(), op.getType()};
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

/// Upstream's own expansion (LLVM 22) takes the bounds for each other.
struct ExpandClamp : OpRewritePattern<math::ClampFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::ClampFOp op,
                                PatternRewriter &rewriter) const override {
    Value atLeast = arith::MaximumFOp::create(rewriter, op.getLoc(),
                                              op.getValue(), op.getMin());
    rewriter.replaceOpWithNewOp<arith::MinimumFOp>(op, atLeast, op.getMax());
    return success();
  }
};

struct CPUExpandMathPass : fa::impl::CPUExpandMathPassBase<CPUExpandMathPass> {
  using CPUExpandMathPassBase::CPUExpandMathPassBase;
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<ExpandExponential<math::ExpOp, expandExp>,
                 ExpandExponential<math::Exp2Op, expandExp2>>(&getContext(),
                                                              /*benefit=*/10);
    patterns.add<CompareForMaximum, ExpandClamp>(&getContext());
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
