// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_DIALECT_FA_IR_FADIALECT
#define FA_DIALECT_FA_IR_FADIALECT

include "mlir/IR/OpBase.td"

def FA_Dialect : Dialect {
  let name = "fa";
  let cppNamespace = "::fa";
  let summary = "What attention computes, before how";
  let description = [{
    The `fa` dialect says *what* attention computes: `fa.attention` with a
    score and a mask region, and `fa.online_softmax`, the associative reduction
    that it becomes. Everything else on the algorithm and tile levels is said
    with upstream's `linalg`, `tensor`, `scf`, `arith` and `math`.
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
    "::mlir::tensor::TensorDialect"
  ];
}

#endif // FA_DIALECT_FA_IR_FADIALECT
