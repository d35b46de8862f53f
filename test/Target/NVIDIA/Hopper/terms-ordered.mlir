// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Captured tensors' gradients in an order, of blocks that wait for each other's
// end: fa-hopper-place leaves them, and a block with roles is an error.
//
// RUN: fa-opt %s --fa-pipeline="target=sm_90a backward=3 rows=64 keys=128" --fa-schedule-hopper | sed -E 's/^( *\}) (: tensor<128x64xf32> into tensor<8xf32>)/\1 {ordered = 16 : i64} \2/' > %t.mlir
// RUN: not fa-opt %t.mlir --fa-hopper-layouts -o /dev/null 2>&1 | FileCheck %s
// CHECK: error: 'scf.forall' op has roles, and an fa.accumulate for which blocks wait for the end of that 16 before; 0 is expected there, or no roles

!t = tensor<1x8x512x64xbf16>
func.func @slopes(%q: !t, %k: !t, %v: !t, %slopes: tensor<8xf32>) -> !t {
  %o = fa.attention %q, %k, %v scale 0.125
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %slope = tensor.extract %slopes[%h] : tensor<8xf32>
      %distance = arith.subi %j, %i : index
      %d32 = arith.index_cast %distance : index to i32
      %d = arith.sitofp %d32 : i32 to f32
      %added = arith.mulf %slope, %d : f32
      %r = arith.addf %s, %added : f32
      fa.yield %r : f32
    } : (!t, !t, !t) -> !t
  return %o : !t
}
