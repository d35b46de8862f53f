// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients with the last rows first are the same numbers.
//
// REQUIRES: fa-run
// RUN: fa-run %s --backward --check --each-stage --target=sm_80 --stop-after=fa-order-rows --shape="Sq=333,Sk=333" | FileCheck %s

// CHECK: fa-order-rows {{.*}} ok

!t = tensor<1x2x?x128xbf16>
func.func @causal(%q: !t, %k: !t, %v: !t) -> !t {
  %o = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (!t, !t, !t) -> !t
  return %o : !t
}
