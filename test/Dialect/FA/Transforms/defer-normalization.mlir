// RUN: fa-opt %s --fa-decompose --fa-online-softmax --fa-tile="rows=64 keys=32" --fa-interchange --fa-pad-tiles --fa-defer-normalization -o %t.mlir
// RUN: FileCheck %s --input-file=%t.mlir
// RUN: fa-opt %t.mlir --fa-expand-steps | FileCheck %s --check-prefix=EXPANDED

// No division in the loop over keys, one after it.
// CHECK-LABEL: func @causal_dynamic
// CHECK: scf.for
// CHECK: scf.for
// CHECK-NOT: arith.divf
// CHECK: %[[M:.*]], %[[L:.*]], %[[O:.*]] = fa.online_softmax {{.*}} {unnormalized}
// CHECK-NEXT: scf.yield %[[M]], %[[L]], %[[O]] : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
// CHECK: arith.divf
// EXPANDED: scf.for
// EXPANDED: scf.for
// EXPANDED-NOT: arith.divf
// EXPANDED: math.exp
// EXPANDED-NOT: arith.divf
// EXPANDED: scf.yield %{{.*}}, %{{.*}}, %{{.*}} : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
// EXPANDED: arith.divf
// EXPANDED-NOT: fa.online_softmax
func.func @causal_dynamic(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %v: tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125 mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>)
  return %o, %lse : tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>
}

// A state that more than the merge reads stays normalised, and one that starts
// from an output is multiplied by its sum.
// CHECK-LABEL: func @read_in_loop
// CHECK: fa.online_softmax
// CHECK-NOT: unnormalized
// CHECK: return
func.func @read_in_loop(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>, %m0: tensor<64xf32>, %l0: tensor<64xf32>, %o0: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %r:4 = scf.for %j = %c0 to %c4 step %c1 iter_args(%m = %m0, %l = %l0, %o = %o0, %before = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
    %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>)
    scf.yield %m1, %l1, %o1, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
  }
  return %r#2, %r#3 : tensor<64x64xf32>, tensor<64x64xf32>
}

// CHECK-LABEL: func @from_an_output
// CHECK: %[[N:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<64x64xf32>, tensor<64xf32>)
// CHECK: arith.mulf
// CHECK: scf.for {{.*}} = %[[N]])
// CHECK: fa.online_softmax {{.*}} {unnormalized}
// CHECK: arith.divf
func.func @from_an_output(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>, %m0: tensor<64xf32>, %l0: tensor<64xf32>, %o0: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %r:3 = scf.for %j = %c0 to %c4 step %c1 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
    %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>)
    scf.yield %m1, %l1, %o1 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
  }
  return %r#2 : tensor<64x64xf32>
}
