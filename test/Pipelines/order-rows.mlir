// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The last rows come first where nothing is said of the order of sums; a deterministic gradient
// goes from the first.
//
// RUN: fa-opt %s --fa-pipeline="target=sm_90a backward=all stop-after=fa-order-rows" | FileCheck %s
// RUN: fa-opt %s --fa-pipeline="target=sm_90a backward=all deterministic=1" | FileCheck %s --check-prefix=ORDERED

// CHECK-LABEL: func.func @causal_backward
// CHECK: scf.for %[[N:[a-z0-9]+]] = %{{.*}} to %{{.*}} step {{.*}} iter_args
// CHECK-NEXT: arith.subi %{{.*}}, %[[N]] : index
// Beside what all rows see, or none, it ends where it does without.
// CHECK-LABEL: func.func @prefix_backward
// CHECK: scf.for %[[M:[a-z0-9]+]] = %{{.*}} to %{{.*}} step {{.*}} iter_args
// CHECK-NEXT: arith.subi %{{.*}}, %[[M]] : index
// ORDERED-LABEL: func.func @causal_backward
// ORDERED: scf.for %[[I:[a-z0-9]+]]
// ORDERED-NOT: arith.subi %{{.*}}, %[[I]]
// ORDERED-LABEL: func.func @short_backward

!t = tensor<1x2x?x128xbf16>
!s = tensor<1x2x?x64xbf16>
func.func @causal(%q: !t, %k: !t, %v: !t) -> !t {
  %o = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (!t, !t, !t) -> !t
  return %o : !t
}
func.func @prefix(%q: !t, %k: !t, %v: !t, %n: index) -> !t {
  %o = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %before = arith.cmpi sle, %j, %i : index
      %first = arith.cmpi slt, %j, %n : index
      %seen = arith.ori %before, %first : i1
      fa.yield %seen : i1
    } : (!t, !t, !t) -> !t
  return %o : !t
}
func.func @short(%q: !s, %k: !s, %v: !s) -> !s {
  %o = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (!s, !s, !s) -> !s
  return %o : !s
}
