// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Target/ExpandMath.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"

#include <limits>

using namespace mlir;

namespace {

struct ExpandClamp : OpRewritePattern<math::ClampFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::ClampFOp op,
                                PatternRewriter &rewriter) const override {
    Value atLeast = rewriter.createOrFold<arith::MaximumFOp>(
        op.getLoc(), op.getValue(), op.getMin());
    rewriter.replaceOp(op, rewriter.createOrFold<arith::MinimumFOp>(
                               op.getLoc(), atLeast, op.getMax()));
    return success();
  }
};

/// Sines and cosines of an f32 or of a vector of them. An angle is reduced by
/// the bits of 1 / (2 pi) that matter to its fraction of a turn (Payne and
/// Hanek 1983, "Radian reduction for trigonometric functions"): exactly enough
/// for every f32, without a loop or a branch.
class Trigonometry {
public:
  Trigonometry(OpBuilder &b, Location loc, Value x)
      : b(b), loc(loc), x(x), real(x.getType()) {}

  Value sine() {
    reduce();
    Value odd = isSet(quarter, 0);
    return finish(select(odd, cosineOfRest(), sineOfRest()),
                  xOr(isSet(quarter, 1), isNegative(x)));
  }
  Value cosine() {
    reduce();
    Value odd = isSet(quarter, 0);
    Value next = make<arith::AddIOp>(quarter, integer(1));
    return finish(select(odd, sineOfRest(), cosineOfRest()), isSet(next, 1));
  }

private:
  /// |x| = quarter * pi / 2 + rest, modulo a turn, |rest| <= pi / 4.
  void reduce() {
    Value size = make<math::AbsFOp>(x);
    Value bits = arith::ExtUIOp::create(
        b, loc, like(b.getI64Type()),
        arith::BitcastOp::create(b, loc, like(b.getI32Type()), size));
    Value exponent = make<arith::ShRUIOp>(bits, integer(23));
    Value significand = make<arith::OrIOp>(
        make<arith::AndIOp>(bits, integer(0x7fffff)), integer(0x800000));
    // |x| / (2 pi) is the significand times 2^(exponent - 150) times these
    // bits, of which 32 zeros come first; those before `first` are whole turns
    // of it.
    static constexpr int64_t kLeast = 118;
    Value first = make<arith::MaxSIOp>(
        make<arith::SubIOp>(exponent, integer(kLeast)), integer(0));
    Value word = make<arith::ShRUIOp>(first, integer(5));
    Value shift = make<arith::AndIOp>(first, integer(31));
    static constexpr uint64_t kTurn[] = {0,          0x28be60db, 0x9391054a,
                                         0x7f09d5f4, 0x7d4d3770, 0x36d8a566,
                                         0x4f10e410, 0x7f9458ea};
    Value high = integer(kTurn[0] << 32 | kTurn[1]), low = integer(kTurn[2]),
          last = integer(kTurn[3]);
    for (int64_t n = 1; n <= 4; ++n) {
      Value reached = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge,
                                            word, integer(n));
      high = select(reached, integer(kTurn[n] << 32 | kTurn[n + 1]), high);
      low = select(reached, integer(kTurn[n + 2]), low);
      last = select(reached, integer(kTurn[n + 3]), last);
    }
    // 64 bits and 32 more: what is left of a turn may be small.
    auto shifted = [&](Value x, Value next) -> Value {
      return make<arith::OrIOp>(
          make<arith::ShLIOp>(x, shift),
          make<arith::ShRUIOp>(next, make<arith::SubIOp>(integer(32), shift)));
    };
    Value fraction = shifted(high, low);
    Value more = make<arith::AndIOp>(shifted(low, last), integer(0xffffffff));
    // A turn is 2^64, and a product wraps at whole ones.
    Value turn = make<arith::AddIOp>(
        make<arith::MulIOp>(significand, fraction),
        make<arith::ShRUIOp>(make<arith::MulIOp>(significand, more),
                             integer(32)));
    quarter = make<arith::ShRUIOp>(
        make<arith::AddIOp>(turn, integer(int64_t(1) << 61)), integer(62));
    Value left =
        make<arith::SubIOp>(turn, make<arith::ShLIOp>(quarter, integer(62)));
    rest = make<arith::MulFOp>(arith::SIToFPOp::create(b, loc, real, left),
                               number(0x1.921fb54442d18p-62));
    Value isSmall = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT,
                                          size, number(0x1.921fb6p-1));
    quarter = select(isSmall, integer(0), quarter);
    rest = select(isSmall, size, rest);
    square = make<arith::MulFOp>(rest, rest);
  }
  /// sum c[n] square^n
  Value polynomial(ArrayRef<double> coefficients) {
    Value sum = number(coefficients.back());
    for (double c : llvm::reverse(coefficients.drop_back()))
      sum = make<math::FmaOp>(sum, square, number(c));
    return sum;
  }
  Value sineOfRest() {
    Value cube = make<arith::MulFOp>(rest, square);
    return make<math::FmaOp>(
        cube, polynomial({-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880}),
        rest);
  }
  Value cosineOfRest() {
    return polynomial(
        {1, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800});
  }
  /// Its sign, and NaN where x is infinite or NaN itself.
  Value finish(Value result, Value isNegated) {
    result = select(isNegated, make<arith::NegFOp>(result), result);
    Value isFinite = arith::CmpFOp::create(
        b, loc, arith::CmpFPredicate::OLT, make<math::AbsFOp>(x),
        number(std::numeric_limits<double>::infinity()));
    return select(isFinite, result,
                  number(std::numeric_limits<double>::quiet_NaN()));
  }

  Type like(Type element) {
    auto vector = dyn_cast<VectorType>(real);
    return vector ? Type(vector.clone(element)) : element;
  }
  Value constant(Type element, TypedAttr value) {
    auto vector = dyn_cast<VectorType>(like(element));
    return arith::ConstantOp::create(
        b, loc, vector ? DenseElementsAttr::get(vector, value) : value);
  }
  Value integer(int64_t n) {
    return constant(b.getI64Type(), b.getI64IntegerAttr(n));
  }
  Value number(double n) {
    return constant(b.getF32Type(), b.getF32FloatAttr(n));
  }
  template <typename Op, typename... Operands>
  Value make(Operands... operands) {
    return Op::create(b, loc, operands...);
  }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(b, loc, condition, x, y);
  }
  Value xOr(Value x, Value y) { return make<arith::XOrIOp>(x, y); }
  Value isSet(Value n, int64_t bit) {
    Value masked = make<arith::AndIOp>(n, integer(int64_t(1) << bit));
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, masked,
                                 integer(0));
  }
  Value isNegative(Value v) {
    Value bits = arith::BitcastOp::create(b, loc, like(b.getI32Type()), v);
    Value zero = constant(b.getI32Type(), b.getI32IntegerAttr(0));
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, bits, zero);
  }

  OpBuilder &b;
  Location loc;
  Value x;
  Type real;
  Value quarter, rest, square;
};

template <typename Op, Value (Trigonometry::*function)()>
struct ExpandTrigonometry : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op,
                                PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isF32())
      return rewriter.notifyMatchFailure(op, "not of f32");
    Trigonometry t(rewriter, op.getLoc(), op.getOperand());
    rewriter.replaceOp(op, (t.*function)());
    return success();
  }
};

struct ExpandTan : OpRewritePattern<math::TanOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::TanOp op,
                                PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isF32())
      return rewriter.notifyMatchFailure(op, "not of f32");
    rewriter.replaceOpWithNewOp<arith::DivFOp>(
        op, math::SinOp::create(rewriter, op.getLoc(), op.getOperand()),
        math::CosOp::create(rewriter, op.getLoc(), op.getOperand()));
    return success();
  }
};

} // namespace

void fa::populateExpandMath(RewritePatternSet &patterns) {
  // Before upstream's own.
  patterns.add<ExpandClamp, ExpandTan,
               ExpandTrigonometry<math::SinOp, &Trigonometry::sine>,
               ExpandTrigonometry<math::CosOp, &Trigonometry::cosine>>(
      patterns.getContext(), /*benefit=*/10);
}
