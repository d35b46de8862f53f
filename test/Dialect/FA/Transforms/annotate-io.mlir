// HBM traffic at each stage, worked out by hand. One batch entry and head are
// N = 1024 rows and keys of d = 64 in 16 bits; there are 12 heads.
// RUN: fa-opt %s --pass-pipeline="builtin.module(func.func(fa-annotate-io))" | FileCheck %s --check-prefix=ATTENTION
// RUN: fa-opt %s --pass-pipeline="builtin.module(func.func(fa-decompose,fa-annotate-io))" | FileCheck %s --check-prefix=STANDARD
// RUN: fa-opt %s --pass-pipeline="builtin.module(func.func(fa-decompose,fa-annotate-io{fold-fills=true}))" | FileCheck %s --check-prefix=FOLDED
// RUN: fa-opt %s --pass-pipeline="builtin.module(func.func(fa-decompose,fa-distribute{rows=128 keys=64},fa-annotate-io))" | FileCheck %s --check-prefix=KERNELS
// RUN: fa-opt %s --pass-pipeline="builtin.module(func.func(fa-decompose,fa-online-softmax,fa-tile{rows=128 keys=64},fa-distribute{rows=128 keys=64},fa-annotate-io))" | FileCheck %s --check-prefix=FA1KERNELS
// RUN: fa-opt %s --pass-pipeline="builtin.module(func.func(fa-decompose,fa-online-softmax,fa-annotate-io))" | FileCheck %s --check-prefix=ONLINE
// RUN: fa-opt %s --pass-pipeline="builtin.module(func.func(fa-decompose,fa-online-softmax,fa-tile{rows=128 keys=64},fa-annotate-io))" | FileCheck %s --check-prefix=FA1
// RUN: fa-opt %s --pass-pipeline="builtin.module(func.func(fa-decompose,fa-online-softmax,fa-tile{rows=128 keys=64},fa-interchange,fa-annotate-io))" | FileCheck %s --check-prefix=FA2
// RUN: fa-opt %s --pass-pipeline="builtin.module(func.func(fa-decompose,fa-online-softmax,fa-tile{rows=128 keys=64},fa-interchange,fa-pad-tiles,fa-split-mask-loops,fa-defer-normalization,fa-fuse,fa-fold-scale-exp2,fa-annotate-io))" | FileCheck %s --check-prefix=FUSED
// RUN: fa-opt %s --pass-pipeline="builtin.module(func.func(fa-decompose,fa-online-softmax,fa-tile{rows=128 keys=64},fa-annotate-io,fa-interchange,fa-annotate-io))" --remarks-filter=fa-annotate-io --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=SAVED

// The least possible: each operand once. Reads 3 * 12 * 1024 * 64 * 2 bytes.
// ATTENTION: func @causal
// ATTENTION-SAME: read = "2*B*Hq*Sq*D + 2*B*Hk*Sk*D + 2*B*Hk*Sk*Dv", read_bytes = 4718592 : i64, temp = "0", temp_bytes = 0 : i64, write = "2*B*Hq*Sq*Dv + 4*B*Hq*Sq", write_bytes = 1622016 : i64

// The standard algorithm: Theta(N d + N^2). Each N x N matrix that is read:
// the zeros, S (scale and mask), S' (maximum), S' (exp), e (sum), e (division),
// p (conversion): 4 bytes each; P: 2. Sum 30. Written: zeros, S, S', e, p: 4,
// P: 2. Sum 22. N x d: q, k, v are read at 2, O's zeros and O (conversion) at 4.
//   read  12 * (30*1024^2 + 14*1024*64 + 28*1024) = 388841472
//   write 12 * (22*1024^2 + 10*1024*64 + 24*1024) = 284983296
// STANDARD: func @causal
// STANDARD-SAME: read = "30*B*Hq*Sq*Sk + 2*B*Hq*Sq*D + 8*B*Hq*Sq*Dv + 2*B*Hq*Sk*D + 2*B*Hq*Sk*Dv + 28*B*Hq*Sq"
// STANDARD-SAME: read_bytes = 388841472 : i64
// STANDARD-SAME: temp = "18*B*Hq*Sq*Sk + 4*B*Hq*Sq*Dv + 12*B*Hq*Sq"
// STANDARD-SAME: write = "22*B*Hq*Sq*Sk + 10*B*Hq*Sq*Dv + 24*B*Hq*Sq"
// STANDARD-SAME: write_bytes = 284983296 : i64

// With accumulators that start in registers, no zeros are written or read.
// FOLDED: read = "26*B*Hq*Sq*Sk + {{.*}}write = "18*B*Hq*Sq*Sk + 6*B*Hq*Sq*Dv

// One kernel per op. Blocks of Q K^T read q for each block of keys and k for
// each block of rows, those of P V all of v for each block of rows; zeros are
// not in memory. What the kernels hand on are temporaries: S, S', e, p (4
// bytes), P (2); O (4); the maximum, its guarded form and the sum (4 each).
//   temp 12 * (18*1024^2 + 4*1024*64 + 12*1024) = 229785600
// Query and key heads are as many: the heads of a grid are those of q.
// KERNELS: func @causal
// KERNELS-SAME: read = "2*B*Hq*Sq*D*ceildiv(Sk, 64) + 2*B*Hq*Sk*D*ceildiv(Sq, 128) + 2*B*Hq*Sk*Dv*ceildiv(Sq, 128) + 26*B*Hq*Sq*Sk +
// KERNELS-NOT: Hk
// KERNELS-SAME: temp = "18*B*Hq*Sq*Sk + 4*B*Hq*Sq*Dv + 12*B*Hq*Sq", temp_bytes = 229785600 : i64
// KERNELS-SAME: write = "18*B*Hq*Sq*Sk + 6*B*Hq*Sq*Dv + 16*B*Hq*Sq"

// m, l and O between the kernels.
//   temp 12 * 1024*(4*64 + 8) = 3244032
// FA1KERNELS: func @causal
// FA1KERNELS-SAME: read_bytes = 83460096 : i64, temp = "4*B*Hq*Sq*Dv + 8*B*Hq*Sq", temp_bytes = 3244032 : i64

// P is gone: zeros, S and S' are left.
// ONLINE: read = "12*B*Hq*Sq*Sk + {{.*}}write = "12*B*Hq*Sq*Sk +

// FlashAttention's order, Bc = 64: for each of N/64 blocks of keys, all of q
// (2d), m and l (8) and O (4d) are read, and m, l, O written: Theta(N^2 d / Bc),
// that is N^2 d^2 / M with Bc = M/4d. k and v are read once. Before, m, l and O
// are filled; after, O is converted and lse computed.
//   read  12 * (16*1024*(2*64 + 8 + 4*64) + 4*1024*64 + (4*64 + 8)*1024)
//         = 83460096
//   write 12 * (16*1024*(8 + 4*64) + 1024*(6*64 + 12)) = 56770560
// FA1: func @causal
// FA1-SAME: read = "2*B*Hq*Sq*D*ceildiv(Sk, 64) + 4*B*Hq*Sq*Dv*ceildiv(Sk, 64) + 4*B*Hq*Sq*Dv + 8*B*Hq*Sq*ceildiv(Sk, 64) + 2*B*Hq*Sk*D + 2*B*Hq*Sk*Dv + 8*B*Hq*Sq"
// FA1-SAME: read_bytes = 83460096 : i64
// FA1-SAME: temp = "4*B*Hq*Sq*Dv + 8*B*Hq*Sq"
// FA1-SAME: write = "4*B*Hq*Sq*Dv*ceildiv(Sk, 64) + 6*B*Hq*Sq*Dv + 8*B*Hq*Sq*ceildiv(Sk, 64) + 12*B*Hq*Sq"
// FA1-SAME: write_bytes = 56770560 : i64

// FlashAttention-2's order, Br = 128: for each of N/128 blocks of rows, all of
// k and v (2d each). q is read once; m, l, O are written once, read once.
//   read  12 * (8*1024*4*64 + 1024*2*64 + 1024*(4*64 + 8)) = 29982720
//   write 12 * 1024*(6*64 + 12) = 4866048
// FA2: func @causal
// FA2-SAME: read = "2*B*Hq*Sk*D*ceildiv(Sq, 128) + 2*B*Hq*Sk*Dv*ceildiv(Sq, 128) + 2*B*Hq*Sq*D + 4*B*Hq*Sq*Dv + 8*B*Hq*Sq", read_bytes = 29982720 : i64
// FA2-SAME: write = "6*B*Hq*Sq*Dv + 12*B*Hq*Sq", write_bytes = 4866048 : i64

// What the order saves.
// SAVED: the function reads 83460096 bytes of HBM and writes 56770560, together 140230656; its temporaries take 3244032
// SAVED: the function reads 29982720 (-64.1 %) bytes of HBM and writes 4866048 (-91.4 %), together 34848768 (-75.1 %); its temporaries take 3244032 (+0.0 %)

// One kernel; the mask's bounds count: row block n visits 2(n+1) blocks of
// keys, 72 of 8*16.
//   read  12 * (72*64*4*64 + 1024*2*64) = 15728640
//   write 12 * 1024*(2*64 + 4) = 1622016
// FUSED: func @causal
// FUSED-SAME: read = "2*B*Hq*Sk*D*ceildiv(Sq, 128) + 2*B*Hq*Sk*Dv*ceildiv(Sq, 128) + 2*B*Hq*Sq*D", read_bytes = 15728640 : i64, temp = "0", temp_bytes = 0 : i64, upper_bound, write = "2*B*Hq*Sq*Dv + 4*B*Hq*Sq", write_bytes = 1622016 : i64
func.func @causal(%q: tensor<1x12x1024x64xf16>, %k: tensor<1x12x1024x64xf16>,
                  %v: tensor<1x12x1024x64xf16>)
    -> (tensor<1x12x1024x64xf16>, tensor<1x12x1024xf32>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (tensor<1x12x1024x64xf16>, tensor<1x12x1024x64xf16>, tensor<1x12x1024x64xf16>)
     -> (tensor<1x12x1024x64xf16>, tensor<1x12x1024xf32>)
  return %o, %lse : tensor<1x12x1024x64xf16>, tensor<1x12x1024xf32>
}
