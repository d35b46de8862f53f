// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass fa-normalize-coordinates: what masks and scores compute of an
// element's coordinates, as one operation an element.

#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Target/NVIDIA/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"
#include "llvm/ADT/MapVector.h"

namespace fa {
#define GEN_PASS_DEF_NORMALIZECOORDINATESPASS
#include "fa/Target/NVIDIA/Passes.h.inc"
} // namespace fa

using namespace mlir;

namespace {
/// A sum of values with signs, and a constant.
struct LinearForm {
  llvm::MapVector<Value, int64_t> terms;
  int64_t constant = 0;

  void add(Value v, int64_t sign) {
    if (std::optional<int64_t> c = getConstantIntValue(v)) {
      constant += sign * *c;
    } else if (auto sum = v.getDefiningOp<arith::AddIOp>()) {
      add(sum.getLhs(), sign);
      add(sum.getRhs(), sign);
    } else if (auto difference = v.getDefiningOp<arith::SubIOp>()) {
      add(difference.getLhs(), sign);
      add(difference.getRhs(), -sign);
    } else {
      terms[v] += sign;
    }
  }
  bool hasUnitTerms() const {
    return llvm::all_of(terms, [](auto &entry) {
      return entry.second >= -1 && entry.second <= 1;
    });
  }
  /// The sum without the constant; null where that is all.
  Value variable(OpBuilder &b, Location loc) const {
    Value sum;
    for (auto &[value, factor] : terms) {
      if (factor == 0)
        continue;
      if (!sum && factor == -1)
        sum = arith::ConstantIndexOp::create(b, loc, 0);
      if (!sum)
        sum = value;
      else if (factor == 1)
        sum = arith::AddIOp::create(b, loc, sum, value);
      else
        sum = arith::SubIOp::create(b, loc, sum, value);
    }
    return sum;
  }
};

/// Comparisons with what is a constant of each element on one side.
struct MoveToOneSide : OpRewritePattern<arith::CmpIOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::CmpIOp op,
                                PatternRewriter &b) const override {
    using P = arith::CmpIPredicate;
    if (!op.getLhs().getType().isIndex() ||
        !llvm::is_contained({P::slt, P::sle, P::sgt, P::sge, P::eq, P::ne},
                            op.getPredicate()))
      return b.notifyMatchFailure(op, "not a signed comparison of coordinates");
    if (getConstantIntValue(op.getLhs()) || getConstantIntValue(op.getRhs()))
      return b.notifyMatchFailure(op, "has a constant side already");
    LinearForm form;
    form.add(op.getRhs(), 1);
    form.add(op.getLhs(), -1);
    if (form.constant == 0 || form.terms.empty() || !form.hasUnitTerms())
      return b.notifyMatchFailure(op, "no constant to separate");
    Location loc = op.getLoc();
    Value difference = form.variable(b, loc);
    if (!difference)
      return b.notifyMatchFailure(op, "constant");
    Value constant = arith::ConstantIndexOp::create(b, loc, -form.constant);
    b.replaceOpWithNewOp<arith::CmpIOp>(op, op.getPredicate(), constant,
                                        difference);
    return success();
  }
};

/// Coordinates as floats: one conversion for all elements of a thread, and an
/// addition for each. Exact below 2^24, and beyond it within the rounding of
/// floats of that size.
struct ConvertOnce : OpRewritePattern<arith::SIToFPOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::SIToFPOp op,
                                PatternRewriter &b) const override {
    if (!op.getType().isF32())
      return b.notifyMatchFailure(op, "not to f32");
    Value from = op.getIn();
    if (auto cast = from.getDefiningOp<arith::IndexCastOp>())
      from = cast.getIn();
    if (!from.getType().isIndex())
      return b.notifyMatchFailure(op, "not of a coordinate");
    Location loc = op.getLoc();
    bool isCast = op.getIn() != from;
    auto toFloat = [&](Value v) -> Value {
      if (isCast)
        v = arith::IndexCastOp::create(b, loc, op.getIn().getType(), v);
      return arith::SIToFPOp::create(b, loc, op.getType(), v);
    };
    Value magnitude = fa::matchMagnitude(from);
    if (magnitude)
      from = magnitude;
    LinearForm form;
    form.add(from, 1);
    bool isApart = form.constant != 0 && std::abs(form.constant) <= maxExact &&
                   form.hasUnitTerms();
    Value variable = isApart ? form.variable(b, loc) : Value();
    if (!variable && !magnitude)
      return b.notifyMatchFailure(op, "no constant to separate");
    Value converted = toFloat(variable ? variable : from);
    if (variable) {
      Value constant = arith::ConstantOp::create(
          b, loc, b.getF32FloatAttr(static_cast<float>(form.constant)));
      converted = arith::AddFOp::create(b, loc, converted, constant);
    }
    if (magnitude)
      converted = math::AbsFOp::create(b, loc, converted);
    b.replaceOp(op, converted);
    return success();
  }
  static constexpr int64_t maxExact = int64_t(1) << 24;
};

/// A coordinate and a constant, if `v` is their sum: the coordinate is the same
/// for all elements of a thread.
static arith::AddFOp matchCoordinate(Value v) {
  auto sum = v.getDefiningOp<arith::AddFOp>();
  bool matches = sum && sum->hasOneUse() &&
                 sum.getLhs().getDefiningOp<arith::SIToFPOp>() &&
                 matchPattern(sum.getRhs(), m_Constant());
  return matches ? sum : arith::AddFOp();
}

/// y * (coordinate + constant) as y * constant + y * coordinate: the second
/// product is one for all elements of a thread, and the first one's addition
/// takes no operation.
struct Distribute : OpRewritePattern<arith::MulFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::MulFOp op,
                                PatternRewriter &b) const override {
    for (auto [factor, other] : {std::pair(op.getLhs(), op.getRhs()),
                                 std::pair(op.getRhs(), op.getLhs())}) {
      arith::AddFOp sum = matchCoordinate(other);
      if (!sum)
        continue;
      Value common =
          arith::MulFOp::create(b, op.getLoc(), factor, sum.getLhs());
      b.replaceOpWithNewOp<math::FmaOp>(op, factor, sum.getRhs(), common);
      return success();
    }
    return b.notifyMatchFailure(op, "not of a coordinate and a constant");
  }
};

/// The same with something added, such as a number of the row.
struct DistributeFma : OpRewritePattern<math::FmaOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::FmaOp op,
                                PatternRewriter &b) const override {
    for (auto [factor, other] :
         {std::pair(op.getA(), op.getB()), std::pair(op.getB(), op.getA())}) {
      arith::AddFOp sum = matchCoordinate(other);
      if (!sum)
        continue;
      Value common =
          math::FmaOp::create(b, op.getLoc(), factor, sum.getLhs(), op.getC());
      b.replaceOpWithNewOp<math::FmaOp>(op, factor, sum.getRhs(), common);
      return success();
    }
    return b.notifyMatchFailure(op, "not of a coordinate and a constant");
  }
};

struct NormalizeCoordinates
    : public fa::impl::NormalizeCoordinatesPassBase<NormalizeCoordinates> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    RewritePatternSet floats(context), compares(context);
    floats.add<ConvertOnce, Distribute, DistributeFma>(context);
    compares.add<MoveToOneSide>(context);
    FrozenRewritePatternSet everywhere(std::move(floats)),
        withRoles(std::move(compares));
    for (auto kernel : getOperation().getOps<gpu::GPUFuncOp>()) {
      walkAndApplyPatterns(kernel, everywhere);
      // Kernels with roles: elsewhere what is computed once for the masks takes
      // registers that the tiles need.
      if (kernel->hasAttr("fa.first_map"))
        walkAndApplyPatterns(kernel, withRoles);
    }
  }
};
} // namespace
