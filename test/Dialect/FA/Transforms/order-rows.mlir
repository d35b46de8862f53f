// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocks of keys that begin at different rows and end at the same go from the last rows to the
// first, where rows are long; others go from the first. Each input is the grid over blocks of keys
// of what --fa-pipeline="target=sm_90a backward=all stop-after=fa-split-mask-loops" makes, without
// the scores.
//
// RUN: fa-opt %s --fa-order-rows | FileCheck %s --implicit-check-not=arith.subi

#from = affine_map<(j) -> ((j floordiv 64) * 64, 0)>

// CHECK-LABEL: func.func @causal(
// CHECK: %[[FROM:.*]] = affine.max
// CHECK: scf.for %[[N:[a-z0-9]+]] = %[[FROM]] to %[[END:.*]] step {{.*}} iter_args
// CHECK-NEXT: %[[I:.*]] = arith.subi %{{.*}}, %[[N]] : index
// CHECK: tensor.extract_slice %{{.*}}[%[[I]], 0]
func.func @causal(%s: tensor<64x128xf32>, %q: tensor<1024x128xbf16>, %kt: tensor<128x128xbf16>, %grad: tensor<1024x128xbf16>, %lse: tensor<64xf32>,
    %delta: tensor<64xf32>, %dk0: tensor<128x128xf32>, %dq0: tensor<1024x128xf32>) -> tensor<1024x128xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %true = arith.constant true
  %r = scf.forall (%j0) = (0) to (1024) step (128) shared_outs(%all = %dq0) -> (tensor<1024x128xf32>) {
    %from = affine.max #from(%j0)
    %sums:3 = scf.for %i0 = %from to %c1024 step %c64 iter_args(%dq = %all, %dk = %dk0, %dv = %dk0)
        -> (tensor<1024x128xf32>, tensor<128x128xf32>, tensor<128x128xf32>) {
      %qt = tensor.extract_slice %q[%i0, 0] [64, 128] [1, 1] : tensor<1024x128xbf16> to tensor<64x128xbf16>
      %gt = tensor.extract_slice %grad[%i0, 0] [64, 128] [1, 1] : tensor<1024x128xbf16> to tensor<64x128xbf16>
      %dqt = tensor.extract_slice %dq[%i0, 0] [64, 128] [1, 1] : tensor<1024x128xf32> to tensor<64x128xf32>
      %next:3 = fa.softmax_grad ins(%s, %s, %qt, %kt, %kt, %gt, %lse, %delta
          : tensor<64x128xf32>, tensor<64x128xf32>, tensor<64x128xbf16>, tensor<128x128xbf16>, tensor<128x128xbf16>, tensor<64x128xbf16>, tensor<64xf32>, tensor<64xf32>)
          outs(%dqt, %dk, %dv : tensor<64x128xf32>, tensor<128x128xf32>, tensor<128x128xf32>) keep {
      ^bb0(%row: index, %column: index):
        fa.yield %true : i1
      } adjoint {
      ^bb0(%x: f32, %row: index, %column: index, %d: f32):
        fa.yield_adjoint %d : f32
      }
      %dq1 = tensor.insert_slice %next#0 into %dq[%i0, 0] [64, 128] [1, 1] : tensor<64x128xf32> into tensor<1024x128xf32>
      scf.yield %dq1, %next#1, %next#2 : tensor<1024x128xf32>, tensor<128x128xf32>, tensor<128x128xf32>
    }
    scf.forall.in_parallel {
      fa.parallel_accumulate %sums#0 into %all : tensor<1024x128xf32>
    }
  }
  return %r : tensor<1024x128xf32>
}

// Rows of 512 bytes are short.
// CHECK-LABEL: func.func @short(
// CHECK: scf.for %[[I:[a-z0-9]+]] =
// CHECK: tensor.extract_slice %{{.*}}[%[[I]], 0]
func.func @short(%s: tensor<64x128xf32>, %q: tensor<1024x64xbf16>, %kt: tensor<128x64xbf16>, %grad: tensor<1024x64xbf16>, %lse: tensor<64xf32>,
    %delta: tensor<64xf32>, %dk0: tensor<128x64xf32>, %dq0: tensor<1024x64xf32>) -> tensor<1024x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %true = arith.constant true
  %r = scf.forall (%j0) = (0) to (1024) step (128) shared_outs(%all = %dq0) -> (tensor<1024x64xf32>) {
    %from = affine.max #from(%j0)
    %sums:3 = scf.for %i0 = %from to %c1024 step %c64 iter_args(%dq = %all, %dk = %dk0, %dv = %dk0)
        -> (tensor<1024x64xf32>, tensor<128x64xf32>, tensor<128x64xf32>) {
      %qt = tensor.extract_slice %q[%i0, 0] [64, 64] [1, 1] : tensor<1024x64xbf16> to tensor<64x64xbf16>
      %gt = tensor.extract_slice %grad[%i0, 0] [64, 64] [1, 1] : tensor<1024x64xbf16> to tensor<64x64xbf16>
      %dqt = tensor.extract_slice %dq[%i0, 0] [64, 64] [1, 1] : tensor<1024x64xf32> to tensor<64x64xf32>
      %next:3 = fa.softmax_grad ins(%s, %s, %qt, %kt, %kt, %gt, %lse, %delta
          : tensor<64x128xf32>, tensor<64x128xf32>, tensor<64x64xbf16>, tensor<128x64xbf16>, tensor<128x64xbf16>, tensor<64x64xbf16>, tensor<64xf32>, tensor<64xf32>)
          outs(%dqt, %dk, %dv : tensor<64x64xf32>, tensor<128x64xf32>, tensor<128x64xf32>) keep {
      ^bb0(%row: index, %column: index):
        fa.yield %true : i1
      } adjoint {
      ^bb0(%x: f32, %row: index, %column: index, %d: f32):
        fa.yield_adjoint %d : f32
      }
      %dq1 = tensor.insert_slice %next#0 into %dq[%i0, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<1024x64xf32>
      scf.yield %dq1, %next#1, %next#2 : tensor<1024x64xf32>, tensor<128x64xf32>, tensor<128x64xf32>
    }
    scf.forall.in_parallel {
      fa.parallel_accumulate %sums#0 into %all : tensor<1024x64xf32>
    }
  }
  return %r : tensor<1024x64xf32>
}

// CHECK-LABEL: func.func @dense(
// CHECK: scf.for %[[I:[a-z0-9]+]] =
// CHECK: tensor.extract_slice %{{.*}}[%[[I]], 0]
func.func @dense(%s: tensor<64x128xf32>, %q: tensor<1024x128xbf16>, %kt: tensor<128x128xbf16>, %grad: tensor<1024x128xbf16>, %lse: tensor<64xf32>,
    %delta: tensor<64xf32>, %dk0: tensor<128x128xf32>, %dq0: tensor<1024x128xf32>) -> tensor<1024x128xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %true = arith.constant true
  %r = scf.forall (%j0) = (0) to (1024) step (128) shared_outs(%all = %dq0) -> (tensor<1024x128xf32>) {
    %sums:3 = scf.for %i0 = %c0 to %c1024 step %c64 iter_args(%dq = %all, %dk = %dk0, %dv = %dk0)
        -> (tensor<1024x128xf32>, tensor<128x128xf32>, tensor<128x128xf32>) {
      %qt = tensor.extract_slice %q[%i0, 0] [64, 128] [1, 1] : tensor<1024x128xbf16> to tensor<64x128xbf16>
      %gt = tensor.extract_slice %grad[%i0, 0] [64, 128] [1, 1] : tensor<1024x128xbf16> to tensor<64x128xbf16>
      %dqt = tensor.extract_slice %dq[%i0, 0] [64, 128] [1, 1] : tensor<1024x128xf32> to tensor<64x128xf32>
      %next:3 = fa.softmax_grad ins(%s, %s, %qt, %kt, %kt, %gt, %lse, %delta
          : tensor<64x128xf32>, tensor<64x128xf32>, tensor<64x128xbf16>, tensor<128x128xbf16>, tensor<128x128xbf16>, tensor<64x128xbf16>, tensor<64xf32>, tensor<64xf32>)
          outs(%dqt, %dk, %dv : tensor<64x128xf32>, tensor<128x128xf32>, tensor<128x128xf32>) keep {
      ^bb0(%row: index, %column: index):
        fa.yield %true : i1
      } adjoint {
      ^bb0(%x: f32, %row: index, %column: index, %d: f32):
        fa.yield_adjoint %d : f32
      }
      %dq1 = tensor.insert_slice %next#0 into %dq[%i0, 0] [64, 128] [1, 1] : tensor<64x128xf32> into tensor<1024x128xf32>
      scf.yield %dq1, %next#1, %next#2 : tensor<1024x128xf32>, tensor<128x128xf32>, tensor<128x128xf32>
    }
    scf.forall.in_parallel {
      fa.parallel_accumulate %sums#0 into %all : tensor<1024x128xf32>
    }
  }
  return %r : tensor<1024x128xf32>
}
