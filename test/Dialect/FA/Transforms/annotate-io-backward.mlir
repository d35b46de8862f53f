// HBM traffic of a gradient's tiles, worked out by hand: N = 1024 rows and keys
// of d = 64 in f32, 8 heads, blocks of Bc keys. FlashAttention's Theorem 5:
// N^2 d / Bc in place of the standard algorithm's N^2.
// RUN: fa-opt %s --fa-pipeline="backward=none rows=64 keys=64" --fa-annotate-io | FileCheck %s --check-prefix=BC64
// RUN: fa-opt %s --fa-pipeline="backward=none rows=64 keys=128" --fa-annotate-io | FileCheck %s --check-prefix=BC128
// RUN: fa-opt %s --fa-pipeline="backward=none rows=32 keys=256" --fa-annotate-io | FileCheck %s --check-prefix=BC256
// RUN: fa-opt %s --fa-pipeline="backward=none algorithm=standard" --fa-annotate-io | FileCheck %s --check-prefix=STANDARD
//
// Every block of keys reads Q, dO, dQ (4 N d bytes each), the log-sum-exp and D
// (4 N each). Once: K, V; dO and O for D, their product, and a zero for each of
// its sums; the log-sum-exp as it is given; dK and dV as they begin; dQ and dK
// to be scaled.
//   read  8 * (N/Bc * (3 * 4 N d + 2 * 4 N) + 9 * 4 N d + 2 * 4 N)
// Every block writes dQ. Once: the zeros of dQ, and those that dK, dV and the
// product begin with; the product, D and its zeros; the log-sum-exp where it is
// finite; dK and dV; dQ and dK scaled.
//   write 8 * (N/Bc * 4 N d + 7 * 4 N d + 3 * 4 N)
// BC64: func.func @f_backward
// BC64-SAME: read_bytes = 120651776 : i64
// BC64-SAME: write_bytes = 48332800 : i64
// BC128: func.func @f_backward
// BC128-SAME: read_bytes = 69795840 : i64
// BC128-SAME: write_bytes = 31555584 : i64
// BC256: func.func @f_backward
// BC256-SAME: read_bytes = 44367872 : i64
// BC256-SAME: write_bytes = 23166976 : i64
//
// With S and the products in memory: 4 bytes each for zeros, products and S.
// STANDARD: func.func @f_backward
// STANDARD-SAME: read = "{{[0-9]+}}*B*Hq*Sq*Sk
// STANDARD-SAME: write = "12*B*Hq*Sq*Sk
func.func @f(%q: tensor<1x8x1024x64xf32>, %k: tensor<1x8x1024x64xf32>, %v: tensor<1x8x1024x64xf32>) -> tensor<1x8x1024x64xf32> {
  %o = fa.attention %q, %k, %v : (tensor<1x8x1024x64xf32>, tensor<1x8x1024x64xf32>, tensor<1x8x1024x64xf32>) -> tensor<1x8x1024x64xf32>
  return %o : tensor<1x8x1024x64xf32>
}
