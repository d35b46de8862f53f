// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/FA/IR/Granularity.h"
#include "fa/Analysis/ScalarOpInterface.h"

#include "mlir/IR/Matchers.h"

#include <numeric>

using namespace mlir;
using namespace fa;

namespace {
/// What is known of a value.
struct Shape {
  enum class Kind {
    /// Does not depend on the coordinate: a multiple of `n`.
    Uniform,
    /// The coordinate plus a multiple of `n`.
    Shifted,
    /// The same for groups of `n`.
    Groups
  };
  Kind kind = Kind::Uniform;
  int64_t n = 1;
  /// Known not to be negative: rounding to 0 is rounding down.
  bool isNonNegative = false;
  int64_t groups() const {
    return kind == Kind::Uniform ? 0 : kind == Kind::Shifted ? 1 : n;
  }
};

class GranularityFinder {
public:
  GranularityFinder(Value coordinate, const DenseMap<Value, int64_t> &multiples)
      : coordinate(coordinate), multiples(multiples) {}
  Shape shapeOf(Value value);

private:
  using Kind = Shape::Kind;
  Shape compute(Value value);
  std::optional<Shape> ofForm(Operation *op, ArrayRef<Shape> operands);
  Shape ofExpr(AffineExpr expr, ArrayRef<Shape> operands, unsigned numDims);
  static Shape sum(Shape x, Shape y);
  static Shape negated(Shape x);
  static Shape quotient(Shape x, int64_t divisor);
  static Shape merged(ArrayRef<Shape> operands);
  Value coordinate;
  const DenseMap<Value, int64_t> &multiples;
  DenseMap<Value, Shape> known;
};
} // namespace

Shape GranularityFinder::merged(ArrayRef<Shape> operands) {
  int64_t groups = 0;
  for (Shape x : operands)
    groups = std::gcd(groups, x.groups());
  return groups ? Shape{Kind::Groups, groups} : Shape();
}

Shape GranularityFinder::sum(Shape x, Shape y) {
  if (x.kind == Kind::Groups || y.kind == Kind::Groups ||
      (x.kind == Kind::Shifted && y.kind == Kind::Shifted))
    return merged({x, y});
  bool isShifted = x.kind == Kind::Shifted || y.kind == Kind::Shifted;
  return {isShifted ? Kind::Shifted : Kind::Uniform, std::gcd(x.n, y.n),
          x.isNonNegative && y.isNonNegative};
}

/// -x: a product with another number may wrap, and then it is no multiple.
Shape GranularityFinder::negated(Shape x) {
  return x.kind == Kind::Uniform ? Shape{Kind::Uniform, x.n} : merged({x});
}

Shape GranularityFinder::quotient(Shape x, int64_t divisor) {
  if (x.kind == Kind::Shifted && divisor > 0)
    return {Kind::Groups, std::gcd(x.n, divisor)};
  return merged({x});
}

Shape GranularityFinder::ofExpr(AffineExpr expr, ArrayRef<Shape> operands,
                                unsigned numDims) {
  if (auto c = dyn_cast<AffineConstantExpr>(expr))
    return {Kind::Uniform, std::abs(c.getValue()), c.getValue() >= 0};
  if (auto d = dyn_cast<AffineDimExpr>(expr))
    return operands[d.getPosition()];
  if (auto s = dyn_cast<AffineSymbolExpr>(expr))
    return operands[numDims + s.getPosition()];
  auto binary = cast<AffineBinaryOpExpr>(expr);
  Shape x = ofExpr(binary.getLHS(), operands, numDims),
        y = ofExpr(binary.getRHS(), operands, numDims);
  if (expr.getKind() == AffineExprKind::Add)
    return sum(x, y);
  auto c = dyn_cast<AffineConstantExpr>(binary.getRHS());
  if (c && expr.getKind() == AffineExprKind::Mul && c.getValue() == -1)
    return negated(x);
  if (c && expr.getKind() == AffineExprKind::FloorDiv)
    return quotient(x, c.getValue());
  return merged({x, y});
}

/// By the operation's integer form, where that holds.
std::optional<Shape> GranularityFinder::ofForm(Operation *op,
                                               ArrayRef<Shape> operands) {
  IntegerForm form = getIntegerForm(op);
  if (!form.isKnown() || !llvm::all_of(form.nonNegative, [&](unsigned i) {
        return operands[i].isNonNegative;
      }))
    return std::nullopt;
  // Coordinates and lengths fit 32 bits, and not fewer.
  auto width = [](Value v) {
    return v.getType().isIndex() ? 64 : v.getType().getIntOrFloatBitWidth();
  };
  if (width(op->getResult(0)) < 32 &&
      width(op->getResult(0)) != width(op->getOperand(0)))
    return std::nullopt;
  SmallVector<Shape> results;
  for (AffineExpr expr : form.map.getResults())
    results.push_back(ofExpr(expr, operands, form.map.getNumDims()));
  return results.size() == 1 ? results[0] : merged(results);
}

Shape GranularityFinder::compute(Value value) {
  if (value == coordinate)
    return {Kind::Shifted, 0, true};
  if (auto it = multiples.find(value); it != multiples.end())
    return {Kind::Uniform, it->second, true};
  if (APInt c;
      matchPattern(value, m_ConstantInt(&c)) && c.getSignificantBits() <= 32)
    return {Kind::Uniform, std::abs(c.getSExtValue()), !c.isNegative()};
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumRegions())
    return op ? Shape{Kind::Groups, 1} : Shape();
  SmallVector<Shape> operands;
  for (Value operand : op->getOperands())
    operands.push_back(shapeOf(operand));
  if (std::optional<Shape> shape = ofForm(op, operands))
    return *shape;
  return merged(operands);
}

Shape GranularityFinder::shapeOf(Value value) {
  if (auto it = known.find(value); it != known.end())
    return it->second;
  Shape result = compute(value);
  known[value] = result;
  return result;
}

int64_t fa::getGranularity(Value value, Value coordinate,
                           const DenseMap<Value, int64_t> &multiples) {
  return GranularityFinder(coordinate, multiples).shapeOf(value).groups();
}
