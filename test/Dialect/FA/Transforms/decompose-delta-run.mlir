// Gradients with D from the scores, after each stage: under a mask, in groups of
// heads, with dropout, a gradient of the log-sum-exp, and rows that see nothing.
// REQUIRES: fa-run, ci
// RUN: fa-run %s --func=causal --backward --check --each-stage --rows=8 --keys=8
// RUN: fa-run %s --func=dropout --backward --check --each-stage --rows=8 --keys=8
// RUN: fa-run %s --func=causal --backward --check --each-stage --rows=64 --keys=64 --target=sm_90a --stop-after=fa-orient-products
// RUN: fa-run %s --func=dropout --backward --check --each-stage --rows=64 --keys=64 --target=sm_90a --stop-after=fa-orient-products

!q = tensor<1x4x21x8xbf16>
!k = tensor<1x2x17x8xbf16>
func.func @causal(%q: !q, %k: !k, %v: !k, %x: tensor<4xf32>) -> (!q, tensor<1x4x21xf32>) {
  %o, %lse = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h] : tensor<4xf32>
    %n = arith.index_cast %j : index to i32
    %y = arith.sitofp %n : i32 to f32
    %m = arith.mulf %a, %y : f32
    %t = arith.addf %s, %m : f32
    fa.yield %t : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %three = arith.constant 3 : index
    %n = arith.addi %j, %three : index
    %seen = arith.cmpi sle, %n, %i : index
    fa.yield %seen : i1
  } : (!q, !k, !k) -> (!q, tensor<1x4x21xf32>)
  return %o, %lse : !q, tensor<1x4x21xf32>
}

func.func @dropout(%q: !q, %k: !k, %v: !k, %x: tensor<4xf32>) -> !q {
  %seed = arith.constant 42 : i64
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h] : tensor<4xf32>
    %t = arith.mulf %s, %a : f32
    fa.yield %t : f32
  } keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %bits = fa.random_bits %seed at [%b, %h, %i, %j]
    %c = arith.constant 64 : i8
    %kept = arith.cmpi uge, %bits, %c : i8
    fa.yield %kept : i1
  } times 1.3333333333333333 : (!q, !k, !k) -> !q
  return %o : !q
}
