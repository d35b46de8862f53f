// Gradients that a score function gives itself, or stops, against differences of
// a function that has them.
// REQUIRES: fa-run
// RUN: fa-opt %s --fa-differentiate | fa-opt | FileCheck %s
// RUN: fa-run %s --func=custom --backward --check --each-stage --rows=8 --keys=8
// RUN: fa-run %s --func=through --backward --check --each-stage --rows=8 --keys=8
// RUN: fa-run %s --func=stopped --backward --check --each-stage --rows=8 --keys=8

// Of two values one gradient may be missing, regions use what is computed
// outside of them, and what is read through one has its gradient from it.
// CHECK-LABEL: func @custom_backward
// CHECK: adjoint {
// CHECK: fa.yield_adjoint
func.func @custom(%q: tensor<1x2x17x8xf32>, %k: tensor<1x2x17x8xf32>, %v: tensor<1x2x17x8xf32>, %x: tensor<2x17xf32>) -> tensor<1x2x17x8xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h, %j] : tensor<2x17xf32>
    %three = arith.constant 3.0 : f32
    %s3 = arith.mulf %s, %three : f32
    %round = math.roundeven %s3 : f32
    %through = fa.custom_gradient %round : f32 of %s : f32 gradient {
    ^bb1(%g: f32):
      %t = arith.mulf %a, %g : f32
      fa.yield_gradients %t : f32
    }
    %before = arith.cmpi sle, %j, %i : index
    %r = scf.if %before -> f32 {
      %product = arith.mulf %a, %s3 : f32
      %e = math.exp %a : f32
      %two:2 = fa.custom_gradient %product, %e : f32, f32 of %s3, %a, %through : f32, f32, f32 gradient {
      ^bb1(%g0: f32, %g1: f32):
        %c = arith.constant 0.25 : f32
        %d0 = arith.mulf %g0, %c : f32
        %d1 = arith.mulf %g1, %product : f32
        %d2 = arith.addf %g0, %g1 : f32
        fa.yield_gradients %d0, %d1, %d2 : f32, f32, f32
      }
      %unused:2 = fa.custom_gradient %two#0, %two#1 : f32, f32 of %two#0 : f32 gradient {
      ^bb1(%g0: f32, %g1: f32):
        fa.yield_gradients %g1 : f32
      }
      %sum = arith.addf %two#0, %two#1 : f32
      %more = arith.addf %sum, %unused#1 : f32
      scf.yield %more : f32
    } else {
      %y = arith.addf %through, %a : f32
      scf.yield %y : f32
    }
    fa.yield %r : f32
  } : (tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>) -> tensor<1x2x17x8xf32>
  return %o : tensor<1x2x17x8xf32>
}

// A constant, which may be the index of a read.
// CHECK-LABEL: func @stopped_backward
func.func @stopped(%q: tensor<1x2x17x8xf32>, %k: tensor<1x2x17x8xf32>, %v: tensor<1x2x17x8xf32>, %x: tensor<2x17xf32>) -> tensor<1x2x17x8xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h, %j] : tensor<2x17xf32>
    %still = fa.custom_gradient %a : f32
    %t = math.tanh %s : f32
    %constant = fa.custom_gradient %t : f32
    %n = arith.fptosi %constant : f32 to i32
    %at = arith.index_cast %n : i32 to index
    %read = tensor.extract %x[%h, %at] : tensor<2x17xf32>
    %scaled = arith.mulf %read, %s : f32
    %sum = arith.addf %constant, %scaled : f32
    %moved = arith.addf %s, %still : f32
    %r = arith.addf %sum, %moved : f32
    fa.yield %r : f32
  } : (tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>) -> tensor<1x2x17x8xf32>
  return %o : tensor<1x2x17x8xf32>
}

// CHECK-LABEL: func @through_backward
func.func @through(%q: tensor<1x2x17x8xf32>, %k: tensor<1x2x17x8xf32>, %v: tensor<1x2x17x8xf32>, %x: tensor<2x17xf32>) -> tensor<1x2x17x8xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h, %j] : tensor<2x17xf32>
    %r = math.roundeven %s : f32
    %y = fa.custom_gradient %r : f32 of %s : f32 gradient {
    ^bb1(%g: f32):
      %half = arith.constant 0.5 : f32
      %h0 = arith.mulf %g, %half : f32
      %inner = fa.custom_gradient %h0 : f32 of %g : f32 gradient {
      ^bb2(%gg: f32):
        fa.yield_gradients %gg : f32
      }
      fa.yield_gradients %inner : f32
    }
    %z = arith.mulf %y, %a : f32
    fa.yield %z : f32
  } : (tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>) -> tensor<1x2x17x8xf32>
  return %o : tensor<1x2x17x8xf32>
}
