// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_DIALECT_FA_TRANSFORMS_PASSES
#define FA_DIALECT_FA_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

class FA_Pass<string flag> : Pass<flag, "::mlir::func::FuncOp"> {
  let dependentDialects = [
    "::fa::FADialect", "::mlir::affine::AffineDialect",
    "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect"
  ];
}

def DecomposePass : FA_Pass<"fa-decompose"> {
  let summary = "attention as the standard algorithm: S and P written";
  let description = [{
    Rewrites `fa.attention` as the standard algorithm (FlashAttention,
    Algorithm 0; three-pass safe softmax), on matrices, for every batch entry
    and head: scores, row maximum, exponentials, row sum, weights, output. The
    matrices S and P are values of full size.

    Before:
    ```mlir
    %o = fa.attention %q, %k, %v : ...
    ```
    After:
    ```mlir
    %o = scf.forall (%b, %h) in (...) shared_outs(...) {
      %qk = linalg.generic ...      // Q K^T, [Sq,Sk]
      %s  = linalg.generic ...      // scale, score, mask
      %m  = linalg.generic ...      // row maximum
      %e  = linalg.generic ...      // exp(S - m)
      %l  = linalg.generic ...      // row sum
      %p  = linalg.generic ...      // e / l
      %o  = linalg.generic ...      // P V
      scf.forall.in_parallel { ... }
    }
    ```
    Numeric contract: defines the numbers. S and sums are f32, P has V's
    element type.
  }];
}

#endif // FA_DIALECT_FA_TRANSFORMS_PASSES
