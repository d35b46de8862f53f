// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/FA/IR/StepExpansion.h"

#include "fa/Dialect/FA/IR/Builders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fa;

StepExpansion::~StepExpansion() = default;

Value StepExpansion::addRows(OpBuilder &b, Location loc, Value tile,
                             Value init) {
  return SoftmaxBuilder(b, loc).rowSum(tile, init);
}

Value StepExpansion::sumRows(OpBuilder &b, Location loc, Value tile,
                             Value like) {
  SoftmaxBuilder builder(b, loc);
  // x + -0 is x for every x, and folds; x + +0 is not, for x = -0.
  Value zeros = builder.fill(tensor::getMixedSizes(b, loc, like),
                             getElementTypeOrSelf(like), -0.0);
  return addRows(b, loc, tile, zeros);
}

Value StepExpansion::anyNotBelow(OpBuilder &b, Location loc, Value of,
                                 double limit) {
  SoftmaxBuilder builder(b, loc);
  auto type = cast<RankedTensorType>(of.getType());
  if (type.getRank() == 2) {
    Value zeros = builder.fill({tensor::getMixedSize(b, loc, of, 0)},
                               type.getElementType(), 0.0);
    of = builder.reduceRows(
        of, zeros, [](OpBuilder &nested, Location l, ValueRange args) -> Value {
          return arith::MaximumFOp::create(nested, l, args[0], args[1]);
        });
  }
  return builder.any(builder.elementwise(
      of, b.getI1Type(),
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value most = floatConstant(nested, l, type.getElementType(), limit);
        return arith::CmpFOp::create(nested, l, arith::CmpFPredicate::UGE,
                                     args[0], most);
      }));
}
