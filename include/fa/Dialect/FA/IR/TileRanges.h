// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Interval arithmetic in the program: the range of a mask on a whole block,
// from the ranges of the values that its rows and keys read. Packed documents
// have one number on most blocks.

#ifndef FA_DIALECT_FA_IR_TILERANGES_H
#define FA_DIALECT_FA_IR_TILERANGES_H

#include "fa/Analysis/ScalarOpInterface.h"
#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/AffineExpr.h"
#include "llvm/ADT/DenseMap.h"

namespace fa {

/// The elements of a block at which a value is evaluated: `rows` of them,
/// `everyRow` apart, by `keys`, `everyKey` apart. A value that depends on
/// neither has one sample.
struct TileSamples {
  int64_t rows = 1, everyRow = 1, keys = 1, everyKey = 1;
  int64_t count() const { return rows * keys; }
};

/// The least and the largest value: i1 for an i1, i64 otherwise. A bound of
/// 64-bit integers may be TileRanges::kUnlimited or its negative, which stand
/// for all numbers beyond 32 bits.
struct TileRange {
  mlir::Value lo, hi;
};

/// Builds code for the range of a mask on one block of `fa.list_blocks`.
class TileRanges {
public:
  /// A value is evaluated at its samples if they are at most this many. Else
  /// its range follows from those of its operands.
  static constexpr int64_t kMaxSamples = 256;
  /// Stands for a number without a limit.
  static constexpr int64_t kUnlimited = int64_t(1) << 56;
  /// Builds the range of a value over samples; none where that fails.
  using Reduce = llvm::function_ref<std::optional<TileRange>(
      mlir::Value value, const TileSamples &samples)>;

  TileRanges(ListBlocksOp op, mlir::OpBuilder &builder, Reduce reduce);
  /// The range of the yielded value over all of the block; none if nothing is
  /// known of it.
  std::optional<TileRange> ofMask() {
    std::optional<Known> known = of(op.getSeen());
    return known ? std::optional<TileRange>(known->range) : std::nullopt;
  }

private:
  /// `bits` is how many bits the numbers need, the sign included; 0 for
  /// conditions.
  struct Known {
    TileRange range;
    unsigned bits = 0;
    /// Its bounds may stand for numbers beyond: they can be compared but not
    /// computed with.
    bool mayBeUnlimited = false;
  };
  std::optional<Known> of(mlir::Value value);
  std::optional<Known> compute(mlir::Value value);
  std::optional<Known> ofOperation(mlir::Operation *op);
  std::optional<Known> ofCondition(mlir::Operation *op);
  std::optional<Known> ofCompare(mlir::arith::CmpIOp op);
  std::optional<Known> ofExpr(mlir::AffineExpr expr,
                              mlir::ArrayRef<Known> operands, unsigned numDims);
  std::optional<Known> ofForm(const IntegerForm &form,
                              mlir::ArrayRef<Known> operands);
  static bool fits(const Known &result, mlir::ArrayRef<Known> operands,
                   mlir::Operation *def);
  Known choice(const Known &x, const Known &y, IntegerForm::Kind kind);
  std::optional<Known> sum(const Known &x, const Known &y, bool subtract);
  std::optional<Known> scaled(const Known &x, int64_t factor);
  std::optional<Known> quotient(const Known &x, int64_t divisor);
  TileSamples samplesOf(mlir::Value value);
  mlir::Value constant(int64_t c);

  ListBlocksOp op;
  mlir::OpBuilder &b;
  mlir::Location loc;
  Reduce reduce;
  llvm::DenseMap<mlir::Value, int64_t> multiples;
  llvm::DenseMap<mlir::Value, std::optional<Known>> known;
};

/// The operations of a block that compute a value, in order.
llvm::SmallVector<mlir::Operation *> sliceInBlock(mlir::Value value,
                                                  mlir::Block &block);

} // namespace fa

#endif // FA_DIALECT_FA_IR_TILERANGES_H
