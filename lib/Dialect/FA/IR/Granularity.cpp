// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/FA/IR/Granularity.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
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
  Shape ofExpr(AffineExpr expr, ArrayRef<Shape> operands, unsigned numDims);
  static Shape sum(Shape x, Shape y);
  static Shape difference(Shape x, Shape y);
  static Shape quotient(Shape x, int64_t divisor);
  static Shape converted(Shape x, Type from, Type to, bool isUnsigned);
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

Shape GranularityFinder::difference(Shape x, Shape y) {
  if (y.kind != Kind::Uniform)
    return merged({x, y});
  y.isNonNegative = false;
  return sum(x, y);
}

/// Coordinates and lengths fit 32 bits.
Shape GranularityFinder::converted(Shape x, Type from, Type to,
                                   bool isUnsigned) {
  auto width = [](Type type) {
    return type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  };
  bool wraps = width(to) < 32 || (isUnsigned && !x.isNonNegative);
  return wraps && width(from) != width(to) ? merged({x}) : x;
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
  if (c && expr.getKind() == AffineExprKind::FloorDiv)
    return quotient(x, c.getValue());
  return merged({x, y});
}

/// The constant by which an operation divides, rounding down; 0 where it does
/// not.
static int64_t divisorOf(Operation *op, bool isNonNegative) {
  APInt c;
  if (op->getNumOperands() != 2 ||
      !matchPattern(op->getOperand(1), m_ConstantInt(&c)) ||
      c.getSignificantBits() > 32)
    return 0;
  int64_t value = c.getSExtValue();
  if (isa<arith::FloorDivSIOp>(op) ||
      (isNonNegative && isa<arith::DivSIOp, arith::DivUIOp>(op)))
    return std::max<int64_t>(value, 0);
  if ((isa<arith::ShRSIOp>(op) || (isNonNegative && isa<arith::ShRUIOp>(op))) &&
      value >= 0 && value < 31)
    return int64_t(1) << value;
  return 0;
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
  if (isa<arith::IndexCastOp, arith::IndexCastUIOp, arith::ExtSIOp,
          arith::ExtUIOp, arith::TruncIOp>(op))
    return converted(operands[0], op->getOperand(0).getType(), value.getType(),
                     isa<arith::IndexCastUIOp, arith::ExtUIOp>(op));
  if (isa<arith::AddIOp>(op))
    return sum(operands[0], operands[1]);
  if (isa<arith::SubIOp>(op))
    return difference(operands[0], operands[1]);
  if (auto apply = dyn_cast<affine::AffineApplyOp>(op))
    return ofExpr(apply.getAffineMap().getResult(0), operands,
                  apply.getAffineMap().getNumDims());
  if (int64_t divisor =
          operands.size() == 2 ? divisorOf(op, operands[0].isNonNegative) : 0)
    return quotient(operands[0], divisor);
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
