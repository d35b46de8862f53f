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

def SplitMaskLoopsPass : FA_Pass<"fa-split-mask-loops"> {
  let summary = "empty tiles are not visited, full tiles run without the mask";
  let description = [{
    In a loop over blocks of keys around `fa.online_softmax`, interval
    arithmetic over the mask (`fa/Analysis/MaskIntervals.h`) bounds the keys
    that the block of rows sees at all, and those that all of its rows see.
    The loop visits only the first; blocks within the second skip the mask.
    What the analysis can't decide stays as it is. A remark says what was
    found.

    Skipping a block is legal because `fa.online_softmax` with scores that are
    all -inf is the identity on its state.

    Before (causal):
    ```mlir
    %st:3 = scf.for %j0 = %c0 to %Sk step %c64 iter_args(...) {
      %s  = linalg.generic ...                 // 128x64 scores
      %sm = linalg.generic ... {               // j <= i ? s : -inf
      fa.online_softmax ins(%sm, %v) ...
    ```
    After:
    ```mlir
    %end  = affine.min affine_map<(d0, d1) -> (d0 + 128, d1)>(%i0, %Sk)
    %full = affine.min affine_map<(d0, d1) -> (d0 + 1, d1)>(%i0, %Sk)
    %st:3 = scf.for %j0 = %c0 to %end step %c64 iter_args(...) {
      %s = linalg.generic ...
      %j1 = affine.apply affine_map<(d0) -> (d0 + 64)>(%j0)
      %isFull = arith.cmpi sle, %j1, %full
      %sm = scf.if %isFull { /* without the mask */ } else { /* with it */ }
      fa.online_softmax ins(%sm, %v) ...
    ```
    Numeric contract: bit-identical.
  }];
}

#endif // FA_DIALECT_FA_TRANSFORMS_PASSES
