// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Evaluates scalar integer ops, as their definitions say (wrapping).

#ifndef FA_TEST_UNIT_ANALYSIS_INTERPRETER_H
#define FA_TEST_UNIT_ANALYSIS_INTERPRETER_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"

#include <vector>

namespace fa::test {

class Interpreter {
public:
  /// Known values; a value of N bits is kept sign-extended.
  llvm::DenseMap<mlir::Value, int64_t> values;
  llvm::DenseMap<mlir::Value, std::vector<int64_t>> tensors;
  /// Sizes of one-dimensional tensors.
  llvm::DenseMap<mlir::Value, int64_t> sizes;
  /// Coordinates for linalg.index.
  int64_t index[2] = {0, 0};

  /// The value; everything it needs is computed anew.
  int64_t evaluate(mlir::Value v);

private:
  int64_t evaluateCached(mlir::Value v);
  llvm::DenseMap<mlir::Value, int64_t> cache;
  int64_t evaluateOp(mlir::Operation *op);
};

} // namespace fa::test

#endif // FA_TEST_UNIT_ANALYSIS_INTERPRETER_H
