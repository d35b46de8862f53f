// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Heads whose gradients' blocks run side by side: as many as have Q, dO (512
// bytes a row each at D=256) and the sums of dQ (1024) in 50 MiB, at most four.
//
// RUN: fa-opt %s --split-input-file --fa-pipeline="target=sm_90a backward=none" --fa-hopper-place --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @four_backward
// CHECK: %[[C4:.*]] = arith.constant 4 : index
// CHECK: hopper.tile_queue {{.*}} section 4 most %[[C4]]{{$}}
!s = tensor<1x8x6400x256xbf16>
func.func @four(%q: !s, %k: !s, %v: !s) -> !s {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (!s, !s, !s) -> (!s)
  return %o : !s
}

// -----

// CHECK-LABEL: func.func @three_backward
// CHECK: %[[C3:.*]] = arith.constant 3 : index
// CHECK: hopper.tile_queue {{.*}} section 4 most %[[C3]]{{$}}
!s = tensor<1x8x8192x256xbf16>
func.func @three(%q: !s, %k: !s, %v: !s) -> !s {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (!s, !s, !s) -> (!s)
  return %o : !s
}

// -----

// CHECK-LABEL: func.func @one_backward
// CHECK: %[[C1:.*]] = arith.constant 1 : index
// CHECK: hopper.tile_queue {{.*}} section 4 most %[[C1]]{{$}}
!s = tensor<1x8x16384x256xbf16>
func.func @one(%q: !s, %k: !s, %v: !s) -> !s {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (!s, !s, !s) -> (!s)
  return %o : !s
}
