// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the references of attention and of its gradients have in common.

#ifndef FA_LIB_TARGET_CPU_REFERENCEBUILDER_H
#define FA_LIB_TARGET_CPU_REFERENCEBUILDER_H

#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"

namespace fa {

/// Builds the loops over one attention's rows.
class ReferenceBuilder {
public:
  /// `wide`: in float64; else in the compute type, and rounded to the inputs'
  /// type where the plain formula would store a matrix.
  template <typename OpTy>
  ReferenceBuilder(mlir::RewriterBase &rewriter, OpTy op, bool wide)
      : b(rewriter), loc(op.getLoc()), wide(wide), query(op.getQuery()),
        key(op.getKey()), value(op.getValue()), scoreRegion(op.getScore()),
        maskRegion(op.getMask()), keepRegion(op.getKeep()),
        group(op.getGroupSize()), headDim(op.getHeadDim()),
        valueDim(op.getValueDim()), factor(op.getScaleOrDefault()),
        element(op.getElementType()), computed(op.getComputeType()),
        real(wide ? mlir::Type(b.getF64Type()) : computed) {
    if (std::optional<llvm::APFloat> times = op.getTimes())
      keptFactor = times->convertToDouble();
  }

  virtual ~ReferenceBuilder() = default;

protected:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  Value index(int64_t x) {
    return mlir::arith::ConstantIndexOp::create(b, loc, x);
  }
  Value number(double x) {
    return mlir::arith::ConstantOp::create(b, loc, b.getFloatAttr(real, x));
  }
  Value toReal(Value x) { return convertFloat(x, real); }
  Value convertFloat(Value x, mlir::Type to) {
    return fa::convertFloat(b, loc, x, to);
  }
  /// Rounds to the inputs' type and back: what the naive formula would store.
  Value rounded(Value x) { return wide ? x : toReal(convertFloat(x, element)); }
  Value read(Value tensor, ValueRange at) {
    return mlir::tensor::ExtractOp::create(b, loc, tensor, at);
  }
  Value add(Value x, Value y);
  Value multiply(Value x, Value y) {
    return mlir::arith::MulFOp::create(b, loc, x, y);
  }
  /// for i in [0, count): carried = f(i, carried)
  Value loop(Value count, ValueRange init,
             llvm::function_ref<Value(Value, Value)> f);
  Value emptyRow(Value size);

  Value cloneFunction(mlir::Region &region, ValueRange arguments);
  void cloneBlock(mlir::Block &block, mlir::IRMapping &map);
  void cloneOp(mlir::Operation &inner, mlir::IRMapping &map);
  virtual void cloneCustom(CustomGradientOp inner, mlir::IRMapping &map);
  Value clampedRead(mlir::tensor::ExtractOp extract, mlir::IRMapping &map);

  Value keyHeadOf(Value head);
  /// sum_d x[at..., d] * y[with..., d]
  Value product(Value x, ValueRange at, Value y, ValueRange with, int64_t dims);
  /// A row's scores: scale * q.k, score, mask, as the op defines.
  Value scores(const Value at[3]);
  /// One of them, before score and mask.
  Value scaledProduct(const Value at[3], Value j);
  /// Scores -> exponentials relative to their maximum; the maximum and the sum.
  Value weigh(Value row, Value &max, Value &sum);
  /// A sum that may be divided by.
  Value divisorOf(Value sum);

  mlir::RewriterBase &b;
  mlir::Location loc;
  bool wide;
  Value query, key, value;
  mlir::Region &scoreRegion, &maskRegion, &keepRegion;
  int64_t group, headDim, valueDim;
  double factor;
  std::optional<double> keptFactor;
  mlir::Type element, computed, real;
  Value keys;
  /// A read whose result is moved by `shift`, where there is one.
  mlir::Operation *moved = nullptr;
  Value shift;
  /// Whether conversions between floats round. What is differentiated does not:
  /// a rounding's derivative is taken to be 1.
  bool smooth = false;
};

/// The gradients of an fa.attention_backward, by loops; with `wide` of type
/// f64. The score function's derivatives are differences in float64: nothing of
/// the adjoint region is used.
llvm::SmallVector<mlir::Value>
buildBackwardReference(mlir::RewriterBase &rewriter, AttentionBackwardOp op,
                       bool wide);

} // namespace fa

#endif // FA_LIB_TARGET_CPU_REFERENCEBUILDER_H
