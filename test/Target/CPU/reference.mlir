// RUN: fa-opt %s -fa-reference | FileCheck %s
// RUN: fa-opt %s -fa-reference=precision=same | FileCheck %s --check-prefix=SAME
// RUN: not fa-opt %s -fa-reference=precision=f8 2>&1 | FileCheck %s --check-prefix=BAD
// BAD: expected precision to be f64 or same, got f8

// CHECK: func.func @f({{.*}}) -> (tensor<1x2x?x8xf64>, tensor<1x2x?xf64>)
// CHECK: scf.forall
// CHECK: arith.extf {{.*}} : f16 to f64
// CHECK: math.tanh {{.*}} : f64
// CHECK: math.exp {{.*}} : f64
// SAME: func.func @f({{.*}}) -> (tensor<1x2x?x8xf16>, tensor<1x2x?xf32>)
// SAME: arith.truncf {{.*}} : f32 to f16
func.func @f(%q: tensor<1x2x?x8xf16>, %k: tensor<1x1x?x8xf16>, %v: tensor<1x1x?x8xf16>)
    -> (tensor<1x2x?x8xf16>, tensor<1x2x?xf32>) {
  %o, %lse = fa.attention %q, %k, %v
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %t = math.tanh %s : f32
      fa.yield %t : f32
    } : (tensor<1x2x?x8xf16>, tensor<1x1x?x8xf16>, tensor<1x1x?x8xf16>)
     -> (tensor<1x2x?x8xf16>, tensor<1x2x?xf32>)
  return %o, %lse : tensor<1x2x?x8xf16>, tensor<1x2x?xf32>
}

// Masked scores are not computed, weights of 0 not added.
// CHECK-LABEL: func.func @masked
// CHECK: %[[SEEN:.*]] = arith.cmpi sle
// CHECK: scf.if %[[SEEN]] -> (f64)
// CHECK: arith.cmpf une
func.func @masked(%q: tensor<1x1x4x8xf16>) -> tensor<1x1x4x8xf16> {
  %o = fa.attention %q, %q, %q
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (tensor<1x1x4x8xf16>, tensor<1x1x4x8xf16>, tensor<1x1x4x8xf16>)
     -> tensor<1x1x4x8xf16>
  return %o : tensor<1x1x4x8xf16>
}
