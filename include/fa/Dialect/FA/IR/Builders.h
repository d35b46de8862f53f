// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The few linalg ops that softmax consists of, on matrices and their rows.
// One definition, used by the standard algorithm and by the merge.

#ifndef FA_DIALECT_FA_IR_BUILDERS_H
#define FA_DIALECT_FA_IR_BUILDERS_H

#include "mlir/Dialect/Utils/StructuredOpsUtils.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

namespace fa {

/// Copies the operations of a region's one block; returns the yielded value.
mlir::Value inlineRegion(mlir::OpBuilder &b, mlir::Region &region,
                         mlir::ValueRange arguments);

/// Clones an operation that may have been cloned with this map before: the
/// operations in its regions are copied anew.
mlir::Operation *cloneAnew(mlir::OpBuilder &b, mlir::Operation &op,
                           mlir::IRMapping &map);

/// A scalar converted to a float type; the scalar itself if it has that type.
mlir::Value convertFloat(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x,
                         mlir::Type to);

/// A constant scalar of a float type.
mlir::Value floatConstant(mlir::OpBuilder &b, mlir::Location loc,
                          mlir::Type type, double value);

/// The counterparts of mixed values in a copy.
llvm::SmallVector<mlir::OpFoldResult>
lookupAll(const mlir::IRMapping &map,
          llvm::ArrayRef<mlir::OpFoldResult> values);

/// Builds softmax's ops as `linalg.generic` on tensors: matrices [M,N] and row
/// vectors [M]. A row vector broadcasts along the columns of a matrix.
class SoftmaxBuilder {
public:
  using Body = llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Location,
                                              mlir::ValueRange)>;

  SoftmaxBuilder(mlir::OpBuilder &builder, mlir::Location loc)
      : b(builder), loc(loc) {}

  /// f applied to each element; inputs are matrices or row vectors, the result
  /// has the shape of the first input of the highest rank.
  mlir::Value elementwise(mlir::ValueRange inputs, mlir::Type elementType,
                          Body f);
  /// combine(element, accumulator) along the columns of a matrix.
  mlir::Value reduceRows(mlir::Value matrix, mlir::Value init, Body combine);
  /// A tensor of that shape, filled with a constant.
  mlir::Value fill(llvm::ArrayRef<mlir::OpFoldResult> shape, mlir::Type type,
                   double value);

  mlir::Value rowMax(mlir::Value matrix, mlir::Value init);
  mlir::Value rowSum(mlir::Value matrix, mlir::Value init);
  /// The sums of a matrix's columns: [M,N] -> [N].
  mlir::Value columnSum(mlir::Value matrix, mlir::Value init);
  /// The sum of a vector, of rank 0.
  mlir::Value total(mlir::Value vector, mlir::Value init);
  /// Whether some element of a vector of i1 is true, an i1.
  mlir::Value any(mlir::Value flags);
  /// x, with -inf replaced by 0: a maximum that may be subtracted.
  mlir::Value finiteOrZero(mlir::Value x);
  /// exp(x - shift).
  mlir::Value expDifference(mlir::Value x, mlir::Value shift);
  /// exp2(x * scale + shift).
  mlir::Value scaledExp2(mlir::Value x, mlir::Value shift, double scale);
  /// exp2((x - shift) * scale + offset): exact differences, whatever the size
  /// of x.
  mlir::Value exp2Difference(mlir::Value x, mlir::Value shift, double scale,
                             double offset = 0);
  mlir::Value multiply(mlir::Value x, mlir::Value y);
  mlir::Value add(mlir::Value x, mlir::Value y);
  /// x / y, and 0 where y is 0.
  mlir::Value divideOrZero(mlir::Value x, mlir::Value y);
  /// x where `kept` of its coordinates (i, j) is true, 0 elsewhere.
  mlir::Value
  keep(mlir::Value x,
       llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::ValueRange)>
           kept);
  /// x times a constant.
  mlir::Value scale(mlir::Value x, double factor);
  /// Float conversion; x itself if it has the type.
  mlir::Value convert(mlir::Value x, mlir::Type elementType);
  /// init + a [M,K] * b [K,N], accumulated in init's element type.
  mlir::Value contractRowsByColumns(mlir::Value a, mlir::Value b,
                                    mlir::Value init);
  /// init + a [M,K] * b [N,K] transposed.
  mlir::Value contractRowsByRows(mlir::Value a, mlir::Value b,
                                 mlir::Value init);
  /// init + a [K,M] transposed * b [K,N].
  mlir::Value contractColumnsByColumns(mlir::Value a, mlir::Value b,
                                       mlir::Value init);

private:
  mlir::Value contract(mlir::Value lhs, mlir::Value rhs, mlir::Value init,
                       bool lhsTransposed, bool rhsTransposed);
  /// combine(element, accumulator) along all dimensions but `kept`. That is the
  /// dimension of `init`, if it has one.
  mlir::Value reduce(mlir::Value tensor, mlir::Value init, unsigned kept,
                     Body combine);
  mlir::OpBuilder &b;
  mlir::Location loc;
};

} // namespace fa

#endif // FA_DIALECT_FA_IR_BUILDERS_H
