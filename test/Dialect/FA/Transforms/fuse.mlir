// RUN: fa-opt %s --fa-decompose --fa-online-softmax --fa-tile="rows=64 keys=32" --fa-interchange --fa-pad-tiles --fa-defer-normalization --fa-fuse | FileCheck %s

// One grid over batch, head and row block; conversion and LSE are inside, and
// results are written clipped.
// CHECK-LABEL: func @causal_dynamic
// CHECK: scf.forall (%[[B:.*]], %[[H:.*]], %[[I0:.*]]) = (0, 0, 0) to (%{{.*}}, 8, %{{.*}}) step (1, 1, 64)
// CHECK: scf.for
// CHECK-NOT: scf.for
// CHECK: arith.truncf
// CHECK: math.log
// CHECK: scf.forall.in_parallel
// CHECK-NEXT: tensor.parallel_insert_slice %{{.*}} into %{{.*}}[%[[B]], %[[H]], %[[I0]], 0] [1, 1, %[[N:.*]], 64]
// CHECK-NEXT: tensor.parallel_insert_slice %{{.*}} into %{{.*}}[%[[B]], %[[H]], %[[I0]]] [1, 1, %[[N]]]
func.func @causal_dynamic(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %v: tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125 mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>)
  return %o, %lse : tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>
}

// What a score computes of the head alone is computed once for a row block.
// CHECK-LABEL: func.func @slopes(
// CHECK-SAME: %[[SLOPES:[^:]*]]: tensor<?xf32>)
// CHECK: scf.forall (%{{.*}}, %[[H:.*]], %{{.*}})
// CHECK: tensor.extract %[[SLOPES]]
// CHECK: scf.for
// CHECK-NOT: tensor.extract %
// CHECK: scf.forall.in_parallel
func.func @slopes(%q: tensor<1x2x128x64xf32>, %slopes: tensor<?xf32>) -> tensor<1x2x128x64xf32> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %slope = tensor.extract %slopes[%h] : tensor<?xf32>
    %d = arith.subi %j, %i : index
    %n = arith.index_cast %d : index to i32
    %f = arith.sitofp %n : i32 to f32
    %p = arith.mulf %slope, %f : f32
    %t = arith.addf %s, %p : f32
    fa.yield %t : f32
  } : (tensor<1x2x128x64xf32>, tensor<1x2x128x64xf32>, tensor<1x2x128x64xf32>) -> tensor<1x2x128x64xf32>
  return %o : tensor<1x2x128x64xf32>
}

// So is what decides which weights are kept: the seed.
// CHECK-LABEL: func.func @seed(
// CHECK-SAME: %[[SEED:[^:]*]]: tensor<i64>)
// CHECK: scf.forall
// CHECK: tensor.extract %[[SEED]]
// CHECK: scf.for
// CHECK-NOT: tensor.extract %
// CHECK: scf.forall.in_parallel
func.func @seed(%q: tensor<1x2x128x64xf32>, %seed: tensor<i64>) -> tensor<1x2x128x64xf32> {
  %o = fa.attention %q, %q, %q keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %limit = arith.constant 26 : i8
    %s = tensor.extract %seed[] : tensor<i64>
    %bits = fa.random_bits %s at [%b, %h, %i, %j]
    %kept = arith.cmpi uge, %bits, %limit : i8
    fa.yield %kept : i1
  } times 1.25 : (tensor<1x2x128x64xf32>, tensor<1x2x128x64xf32>, tensor<1x2x128x64xf32>) -> tensor<1x2x128x64xf32>
  return %o : tensor<1x2x128x64xf32>
}
