// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a step of softmax becomes operations on tiles and rows.

#ifndef FA_DIALECT_FA_IR_STEPEXPANSION_H
#define FA_DIALECT_FA_IR_STEPEXPANSION_H

#include "mlir/IR/Builders.h"

namespace fa {

/// The parts of a step (`fa.online_softmax`, `fa.speculated_softmax`) for which
/// a target may have operations of its own. The defaults are linalg's.
class StepExpansion {
public:
  virtual ~StepExpansion();

  /// init + the sum of each row of a tile [M,N]; `init` is the state's sum, in
  /// the form in which the target carries it.
  virtual mlir::Value addRows(mlir::OpBuilder &b, mlir::Location loc,
                              mlir::Value tile, mlir::Value init);
  /// The sum of each row, in the form of `like`, computed here and not where it
  /// is read.
  virtual mlir::Value sumRows(mlir::OpBuilder &b, mlir::Location loc,
                              mlir::Value tile, mlir::Value like);
  /// Whether some element of a tile or vector is not below a limit, or is a
  /// NaN: an i1.
  virtual mlir::Value anyNotBelow(mlir::OpBuilder &b, mlir::Location loc,
                                  mlir::Value of, double limit);
};

} // namespace fa

#endif // FA_DIALECT_FA_IR_STEPEXPANSION_H
