// RUN: fa-opt %s --fa-decompose --fa-online-softmax --fa-tile="rows=64 keys=32" --fa-interchange | FileCheck %s

// Rows outside, keys inside; the state of a row block is carried by the inner
// loop and written once after it.
// CHECK-LABEL: func @causal_dynamic
// CHECK: scf.for %[[I0:.*]] = %{{.*}} to %{{.*}} step %c64 iter_args
// CHECK: %[[ST:.*]]:3 = scf.for %[[J0:.*]] = %{{.*}} to %{{.*}} step %c32 iter_args
// CHECK: fa.online_softmax
// CHECK-NEXT: scf.yield
// CHECK: tensor.insert_slice %[[ST]]#0 into %{{.*}}[%[[I0]]]
// CHECK: tensor.insert_slice %[[ST]]#1 into %{{.*}}[%[[I0]]]
// CHECK: tensor.insert_slice %[[ST]]#2 into %{{.*}}[%[[I0]], 0]
func.func @causal_dynamic(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %v: tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125 mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>)
  return %o, %lse : tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>
}
