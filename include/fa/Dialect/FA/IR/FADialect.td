// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_DIALECT_FA_IR_FADIALECT
#define FA_DIALECT_FA_IR_FADIALECT

include "mlir/IR/OpBase.td"

def FA_Dialect : Dialect {
  let name = "fa";
  let cppNamespace = "::fa";
  let summary = "Attention as a definition, without a schedule";
  let description = [{
    The `fa` dialect defines attention and leaves its schedule open.
    `fa.attention` has regions for the score, the mask and dropout, and
    `fa.attention_backward` its gradients. `fa.online_softmax` and
    `fa.softmax_grad` are the reductions that they become. All other operations
    of the algorithm and tile levels are upstream's `linalg`, `tensor`, `scf`,
    `arith` and `math`.
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
    "::mlir::tensor::TensorDialect"
  ];
}

#endif // FA_DIALECT_FA_IR_FADIALECT
