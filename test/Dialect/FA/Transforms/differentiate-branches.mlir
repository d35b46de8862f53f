// A function of branches, in which tensors are read at other places, against
// differences in float64.
// REQUIRES: fa-run
// RUN: fa-opt %s --fa-differentiate | fa-opt | FileCheck %s
// RUN: fa-run %s --backward --check --each-stage --rows=8 --keys=8

// The places of what both branches read are results of the adjoint's branch.
// CHECK-LABEL: func @branches_backward
// CHECK: adjoint {
// CHECK: scf.if %{{.*}} -> ({{.*}}, index)
// CHECK: fa.yield_adjoint

func.func @branches(%q: tensor<1x2x17x8xf32>, %k: tensor<1x2x17x8xf32>, %v: tensor<1x2x17x8xf32>, %x: tensor<2x17xf32>) -> tensor<1x2x17x8xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h, %j] : tensor<2x17xf32>
    %zero = arith.constant 0.0 : f32
    %c = arith.cmpf ogt, %s, %zero : f32
    %before = arith.cmpi sle, %j, %i : index
    %y = arith.select %c, %a, %s : f32
    %r:2 = scf.if %before -> (f32, f32) {
      %d = arith.subi %i, %j : index
      %w = tensor.extract %x[%h, %d] : tensor<2x17xf32>
      %m = arith.mulf %w, %y : f32
      %deeper = scf.if %c -> f32 {
        %e = math.exp %m : f32
        scf.yield %e : f32
      } else {
        %e = arith.mulf %m, %s : f32
        scf.yield %e : f32
      }
      scf.yield %deeper, %s : f32, f32
    } else {
      %w = tensor.extract %x[%h, %i] : tensor<2x17xf32>
      %m = arith.addf %w, %y : f32
      scf.yield %m, %zero : f32, f32
    }
    %result = arith.addf %r#0, %r#1 : f32
    fa.yield %result : f32
  } : (tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>) -> tensor<1x2x17x8xf32>
  return %o : tensor<1x2x17x8xf32>
}
