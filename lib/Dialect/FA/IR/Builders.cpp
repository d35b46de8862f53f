// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/FA/IR/Builders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

#include <limits>

using namespace mlir;
using namespace fa;

Value fa::inlineRegion(OpBuilder &b, Region &region, ValueRange arguments) {
  IRMapping map;
  map.map(region.front().getArguments(), arguments);
  for (Operation &op : region.front().without_terminator())
    b.clone(op, map);
  return map.lookupOrDefault(region.front().getTerminator()->getOperand(0));
}

Operation *fa::cloneAnew(OpBuilder &b, Operation &op, IRMapping &map) {
  op.walk([&](Block *block) {
    for (Value v : block->getArguments())
      map.erase(v);
  });
  return b.clone(op, map);
}

static unsigned rankOf(Value v) {
  return cast<RankedTensorType>(v.getType()).getRank();
}

Value fa::floatConstant(OpBuilder &b, Location loc, Type type, double value) {
  return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value));
}

SmallVector<OpFoldResult> fa::lookupAll(const IRMapping &map,
                                        ArrayRef<OpFoldResult> values) {
  SmallVector<OpFoldResult> mapped(values);
  for (OpFoldResult &value : mapped)
    if (auto v = dyn_cast<Value>(value))
      value = map.lookupOrDefault(v);
  return mapped;
}

Value SoftmaxBuilder::elementwise(ValueRange inputs, Type elementType, Body f) {
  Value shapeFrom = inputs.front();
  for (Value v : inputs)
    if (rankOf(v) > rankOf(shapeFrom))
      shapeFrom = v;
  unsigned rank = rankOf(shapeFrom);
  Value out = tensor::EmptyOp::create(
      b, loc, tensor::getMixedSizes(b, loc, shapeFrom), elementType);
  SmallVector<AffineMap> maps;
  SmallVector<AffineExpr> dims;
  for (unsigned d = 0; d < rank; ++d)
    dims.push_back(b.getAffineDimExpr(d));
  for (Value v : inputs) // getMajorSubMap has none of rank 0
    maps.push_back(AffineMap::get(rank, 0, ArrayRef(dims).take_front(rankOf(v)),
                                  b.getContext()));
  maps.push_back(b.getMultiDimIdentityMap(rank));
  SmallVector<utils::IteratorType> iterators(rank,
                                             utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             b, loc, out.getType(), inputs, out, maps, iterators,
             [&](OpBuilder &nested, Location l, ValueRange args) {
               linalg::YieldOp::create(nested, l,
                                       f(nested, l, args.drop_back()));
             })
      .getResult(0);
}

Value SoftmaxBuilder::reduceRows(Value matrix, Value init, Body combine) {
  return reduce(matrix, init, /*kept=*/0, combine);
}

Value SoftmaxBuilder::reduce(Value tensor, Value init, unsigned kept,
                             Body combine) {
  unsigned rank = rankOf(tensor);
  SmallVector<AffineExpr> out;
  SmallVector<utils::IteratorType> iterators(rank,
                                             utils::IteratorType::reduction);
  if (rankOf(init)) {
    out.push_back(b.getAffineDimExpr(kept));
    iterators[kept] = utils::IteratorType::parallel;
  }
  AffineMap maps[] = {b.getMultiDimIdentityMap(rank),
                      AffineMap::get(rank, 0, out, b.getContext())};
  return linalg::GenericOp::create(
             b, loc, init.getType(), tensor, init, maps, iterators,
             [&](OpBuilder &nested, Location l, ValueRange args) {
               linalg::YieldOp::create(nested, l, combine(nested, l, args));
             })
      .getResult(0);
}

Value SoftmaxBuilder::fill(ArrayRef<OpFoldResult> shape, Type type,
                           double value) {
  Value empty = tensor::EmptyOp::create(b, loc, shape, type);
  return linalg::FillOp::create(b, loc, floatConstant(b, loc, type, value),
                                empty)
      .getResult(0);
}

Value SoftmaxBuilder::rowMax(Value matrix, Value init) {
  return reduceRows(matrix, init,
                    [](OpBuilder &b, Location loc, ValueRange args) -> Value {
                      return arith::MaxNumFOp::create(b, loc, args[0], args[1]);
                    });
}

static Value addScalars(OpBuilder &b, Location loc, ValueRange args) {
  return arith::AddFOp::create(b, loc, args[0], args[1]);
}

Value SoftmaxBuilder::rowSum(Value matrix, Value init) {
  return reduceRows(matrix, init, addScalars);
}

Value SoftmaxBuilder::columnSum(Value matrix, Value init) {
  return reduce(matrix, init, /*kept=*/1, addScalars);
}

Value SoftmaxBuilder::total(Value vector, Value init) {
  return reduce(vector, init, /*kept=*/0, addScalars);
}

Value SoftmaxBuilder::any(Value flags) {
  Value empty =
      tensor::EmptyOp::create(b, loc, ArrayRef<OpFoldResult>(), b.getI1Type());
  Value no = arith::ConstantOp::create(b, loc, b.getBoolAttr(false));
  Value start = linalg::FillOp::create(b, loc, no, empty).getResult(0);
  Value found =
      reduce(flags, start, /*kept=*/0,
             [](OpBuilder &b, Location loc, ValueRange args) -> Value {
               return arith::OrIOp::create(b, loc, args[0], args[1]);
             });
  return tensor::ExtractOp::create(b, loc, found, ValueRange());
}

static Type elementTypeOf(Value v) {
  return cast<RankedTensorType>(v.getType()).getElementType();
}

Value SoftmaxBuilder::finiteOrZero(Value x) {
  Type type = elementTypeOf(x);
  return elementwise(
      x, type, [type](OpBuilder &b, Location loc, ValueRange args) -> Value {
        Value none = floatConstant(b, loc, type,
                                   -std::numeric_limits<double>::infinity());
        Value zero = floatConstant(b, loc, type, 0.0);
        Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ,
                                            args[0], none);
        return arith::SelectOp::create(b, loc, empty, zero, args[0]);
      });
}

Value SoftmaxBuilder::expDifference(Value x, Value shift) {
  return elementwise({x, shift}, elementTypeOf(x),
                     [](OpBuilder &b, Location loc, ValueRange args) -> Value {
                       Value difference =
                           arith::SubFOp::create(b, loc, args[0], args[1]);
                       return math::ExpOp::create(b, loc, difference);
                     });
}

Value SoftmaxBuilder::scaledExp2(Value x, Value shift, double scale) {
  Type type = elementTypeOf(x);
  return elementwise({x, shift}, type,
                     [=](OpBuilder &b, Location loc, ValueRange args) -> Value {
                       Value c = floatConstant(b, loc, type, scale);
                       Value exponent =
                           math::FmaOp::create(b, loc, args[0], c, args[1]);
                       return math::Exp2Op::create(b, loc, exponent);
                     });
}

Value SoftmaxBuilder::exp2Difference(Value x, Value shift, double scale,
                                     double offset) {
  Type type = elementTypeOf(x);
  return elementwise(
      {x, shift}, type, [=](OpBuilder &b, Location loc, ValueRange args) {
        Value c = floatConstant(b, loc, type, scale);
        Value difference = arith::SubFOp::create(b, loc, args[0], args[1]);
        Value exponent =
            offset == 0
                ? arith::MulFOp::create(b, loc, difference, c).getResult()
                : math::FmaOp::create(b, loc, difference, c,
                                      floatConstant(b, loc, type, offset));
        return math::Exp2Op::create(b, loc, exponent).getResult();
      });
}

Value SoftmaxBuilder::multiply(Value x, Value y) {
  return elementwise({x, y}, elementTypeOf(x),
                     [](OpBuilder &b, Location loc, ValueRange args) -> Value {
                       return arith::MulFOp::create(b, loc, args[0], args[1]);
                     });
}

Value SoftmaxBuilder::add(Value x, Value y) {
  return elementwise({x, y}, elementTypeOf(x), addScalars);
}

Value SoftmaxBuilder::divideOrZero(Value x, Value y) {
  Type type = elementTypeOf(x);
  return elementwise(
      {x, y}, type,
      [type](OpBuilder &b, Location loc, ValueRange args) -> Value {
        Value zero = floatConstant(b, loc, type, 0.0);
        Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ,
                                            args[1], zero);
        // Sums of weights are far from the ends of the type.
        auto flags = arith::FastMathFlagsAttr::get(b.getContext(),
                                                   arith::FastMathFlags::arcp);
        Value quotient = arith::DivFOp::create(b, loc, args[0], args[1], flags);
        return arith::SelectOp::create(b, loc, empty, zero, quotient);
      });
}

Value SoftmaxBuilder::keep(
    Value x, llvm::function_ref<Value(OpBuilder &, ValueRange)> kept) {
  Type type = elementTypeOf(x);
  return elementwise(
      x, type, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
        SmallVector<Value> at = {linalg::IndexOp::create(b, loc, 0),
                                 linalg::IndexOp::create(b, loc, 1)};
        Value condition = kept(b, at);
        return arith::SelectOp::create(b, loc, condition, args[0],
                                       floatConstant(b, loc, type, 0.0));
      });
}

Value SoftmaxBuilder::scale(Value x, double factor) {
  Type type = elementTypeOf(x);
  return elementwise(
      x, type, [=](OpBuilder &b, Location loc, ValueRange args) -> Value {
        return arith::MulFOp::create(b, loc, args[0],
                                     floatConstant(b, loc, type, factor));
      });
}

Value fa::convertFloat(OpBuilder &b, Location loc, Value x, Type to) {
  unsigned from = x.getType().getIntOrFloatBitWidth(),
           width = to.getIntOrFloatBitWidth();
  if (from < width)
    return arith::ExtFOp::create(b, loc, to, x);
  if (from > width)
    return arith::TruncFOp::create(b, loc, to, x);
  return x;
}

Value SoftmaxBuilder::convert(Value x, Type elementType) {
  if (elementTypeOf(x) == elementType)
    return x;
  return elementwise(
      x, elementType,
      [elementType](OpBuilder &b, Location loc, ValueRange args) -> Value {
        return convertFloat(b, loc, args[0], elementType);
      });
}

Value SoftmaxBuilder::contract(Value lhs, Value rhs, Value init,
                               bool lhsTransposed, bool rhsTransposed) {
  AffineExpr i = b.getAffineDimExpr(0), j = b.getAffineDimExpr(1),
             k = b.getAffineDimExpr(2);
  auto map = [&](AffineExpr row, AffineExpr column, bool transposed) {
    if (transposed)
      std::swap(row, column);
    return AffineMap::get(3, 0, {row, column}, b.getContext());
  };
  AffineMap maps[] = {map(i, k, lhsTransposed), map(k, j, rhsTransposed),
                      map(i, j, false)};
  utils::IteratorType iterators[] = {utils::IteratorType::parallel,
                                     utils::IteratorType::parallel,
                                     utils::IteratorType::reduction};
  return linalg::GenericOp::create(
             b, loc, init.getType(), ValueRange{lhs, rhs}, init, maps,
             iterators,
             [](OpBuilder &nested, Location l, ValueRange args) {
               Type type = args[2].getType();
               Value x = convertFloat(nested, l, args[0], type);
               Value y = convertFloat(nested, l, args[1], type);
               Value product = arith::MulFOp::create(nested, l, x, y);
               linalg::YieldOp::create(
                   nested, l,
                   arith::AddFOp::create(nested, l, args[2], product)
                       .getResult());
             })
      .getResult(0);
}

Value SoftmaxBuilder::contractRowsByColumns(Value lhs, Value rhs, Value init) {
  return contract(lhs, rhs, init, false, false);
}

Value SoftmaxBuilder::contractRowsByRows(Value lhs, Value rhs, Value init) {
  return contract(lhs, rhs, init, false, true);
}

Value SoftmaxBuilder::contractColumnsByColumns(Value lhs, Value rhs,
                                               Value init) {
  return contract(lhs, rhs, init, true, false);
}
