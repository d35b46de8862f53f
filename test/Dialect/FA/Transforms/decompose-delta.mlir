// Which gradients have D from the scores: those of 16-bit elements where a captured
// tensor's gradient adds elements of one row up in one place.
// RUN: fa-opt %s --pass-pipeline='builtin.module(fa-differentiate{wrt=3 replace=1},func.func(fa-decompose))' | FileCheck %s

// CHECK-LABEL: func @number_of_heads_backward(
// CHECK: fa.softmax_delta
// CHECK: arith.divf
// CHECK: fa.softmax_grad
!q = tensor<1x2x8x16xbf16>
func.func @number_of_heads(%q: !q, %k: !q, %v: !q, %x: tensor<2xf32>) -> !q {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h] : tensor<2xf32>
    %t = arith.addf %s, %a : f32
    fa.yield %t : f32
  } : (!q, !q, !q) -> !q
  return %o : !q
}

// Two columns have one bucket.
// CHECK-LABEL: func @buckets_backward(
// CHECK: fa.softmax_delta
// CHECK: fa.softmax_grad
func.func @buckets(%q: !q, %k: !q, %v: !q, %x: tensor<4xf32>) -> !q {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %two = arith.constant 2 : index
    %n = arith.divui %j, %two : index
    %a = tensor.extract %x[%n] : tensor<4xf32>
    %t = arith.addf %s, %a : f32
    fa.yield %t : f32
  } : (!q, !q, !q) -> !q
  return %o : !q
}

// Columns of one row have places of their own, counted from the end or not.
// CHECK-LABEL: func @differences_backward(
// CHECK-NOT: fa.softmax_delta
// CHECK: fa.softmax_grad
func.func @differences(%q: !q, %k: !q, %v: !q, %x: tensor<15xf32>) -> !q {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %seven = arith.constant 7 : index
    %zero = arith.constant 0 : index
    %size = arith.constant 15 : index
    %d = arith.subi %i, %j : index
    %n0 = arith.addi %d, %seven : index
    %wrapped = arith.addi %n0, %size : index
    %negative = arith.cmpi slt, %n0, %zero : index
    %n = arith.select %negative, %wrapped, %n0 : index
    %a = tensor.extract %x[%n] : tensor<15xf32>
    %t = arith.addf %s, %a : f32
    fa.yield %t : f32
  } : (!q, !q, !q) -> !q
  return %o : !q
}

// Another index that the column moves may bring two columns to one place.
// CHECK-LABEL: func @moved_backward(
// CHECK: fa.softmax_delta
// CHECK: fa.softmax_grad
func.func @moved(%q: !q, %k: !q, %v: !q, %x: tensor<15xf32>, %at: tensor<8xi32>) -> !q {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %m = tensor.extract %at[%j] : tensor<8xi32>
    %n0 = arith.index_cast %m : i32 to index
    %n = arith.addi %n0, %j : index
    %a = tensor.extract %x[%n] : tensor<15xf32>
    %t = arith.addf %s, %a : f32
    fa.yield %t : f32
  } : (!q, !q, !q) -> !q
  return %o : !q
}

// An output in float32 is not rounded.
// CHECK-LABEL: func @float32_backward(
// CHECK-NOT: fa.softmax_delta
// CHECK: fa.softmax_grad
!f = tensor<1x2x8x16xf32>
func.func @float32(%q: !f, %k: !f, %v: !f, %x: tensor<2xf32>) -> !f {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h] : tensor<2xf32>
    %t = arith.addf %s, %a : f32
    fa.yield %t : f32
  } : (!f, !f, !f) -> !f
  return %o : !f
}
