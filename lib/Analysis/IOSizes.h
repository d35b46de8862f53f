// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sizes of tensors, by name and by number. Private to the IO model.

#ifndef FA_LIB_ANALYSIS_IOSIZES_H
#define FA_LIB_ANALYSIS_IOSIZES_H

#include "fa/Analysis/IOModel.h"

#include "mlir/Dialect/Utils/StaticValueUtils.h"

namespace fa {

/// One dimension of what is read or written.
struct Size {
  std::optional<int64_t> constant;
  /// The index value that gives a dynamic size.
  mlir::Value value;
  /// The argument's dimension that it was traced to, or empty.
  std::string symbol;
  /// Where it starts, if that is a value: maybe an induction variable.
  mlir::Value offset;
};

/// The induction variable that an offset is, or is something less of (a loop
/// that visits the last tile first), or is ahead of by a choice of values (a
/// gap that the loop leaves out); else the offset.
mlir::Value walkerOf(mlir::OpFoldResult offset);

/// The values that an integer can have.
struct ValueRange64 {
  int64_t lo = INT64_MIN, hi = INT64_MAX;
  bool isPoint() const { return lo == hi; }
};
using RangeMap = llvm::DenseMap<mlir::Value, ValueRange64>;

/// Traces sizes to the function's arguments and evaluates index values.
class SizeTracer {
public:
  SizeTracer(mlir::func::FuncOp func, const IOOptions &options);

  Size getSize(mlir::Value tensor, unsigned dim);
  llvm::SmallVector<Size> getSizes(mlir::Value tensor);
  /// An upper bound of an index value that loops' variables are not part of.
  std::optional<Polynomial> getSymbolic(mlir::Value index, unsigned depth = 0);
  Polynomial getSymbolic(const Size &size);
  ValueRange64 evaluate(mlir::Value value, const RangeMap &known);
  ValueRange64 evaluate(const Size &size, const RangeMap &known);
  /// The value of a named size, where it is known.
  std::optional<int64_t> getNumber(llvm::StringRef symbol);

private:
  ValueRange64 evaluateStep(mlir::Value value, const RangeMap &known);
  std::optional<ValueRange64> evaluateForm(mlir::Operation *op,
                                           const RangeMap &known);
  ValueRange64 evaluateSize(const Size &size, const RangeMap &known);
  /// Values left before an evaluation gives up.
  int64_t budget = 0;
  Size trace(mlir::Value tensor, unsigned dim, unsigned depth);
  using Visited = llvm::DenseSet<std::pair<mlir::Value, unsigned>>;
  std::string traceSymbol(mlir::Value tensor, unsigned dim, Visited &seen);
  void nameDims(mlir::Value tensor, llvm::ArrayRef<llvm::StringRef> names);
  void nameResults(mlir::func::FuncOp func);
  llvm::DenseMap<std::pair<mlir::Value, unsigned>, std::string> names;
  llvm::StringMap<int64_t> numbers;
};

} // namespace fa

#endif // FA_LIB_ANALYSIS_IOSIZES_H
