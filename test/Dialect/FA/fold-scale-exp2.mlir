// RUN: fa-opt %s --fa-decompose --fa-online-softmax --fa-tile="rows=64 keys=32" --fa-interchange --fa-pad-tiles --fa-defer-normalization --fa-fuse --fa-fold-scale-exp2 --split-input-file | FileCheck %s

// 0.125 log2(e) in the fma; the scale has left the scores; the maximum is
// scaled after the loop, for the LSE.
// CHECK-LABEL: func @causal_dynamic
// CHECK-DAG: %[[C:.*]] = arith.constant 0.18033{{.*}} : f32
// CHECK-DAG: %[[SCALE:.*]] = arith.constant 1.250000e-01 : f32
// CHECK-NOT: math.exp %
// CHECK: scf.for
// CHECK-NOT: %[[SCALE]]
// CHECK: math.fma %{{.*}}, %[[C]], %{{.*}} : f32
// CHECK: math.exp2
// CHECK: scf.yield
// CHECK: arith.mulf %{{.*}}, %[[SCALE]] : f32
// CHECK: math.log
func.func @causal_dynamic(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %v: tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125 mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>)
  return %o, %lse : tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>
}

// -----

// A score region between the scale and the exponential forbids folding the
// scale; log2(e) alone is folded.
// CHECK-LABEL: func @score_region
// CHECK-DAG: arith.constant 1.442695{{.*}} : f32
// CHECK: scf.for
// CHECK: math.tanh
// CHECK: math.exp2
func.func @score_region(%q: tensor<1x1x128x16xf32>) -> tensor<1x1x128x16xf32> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %t = math.tanh %s : f32
    fa.yield %t : f32
  } : (tensor<1x1x128x16xf32>, tensor<1x1x128x16xf32>, tensor<1x1x128x16xf32>) -> tensor<1x1x128x16xf32>
  return %o : tensor<1x1x128x16xf32>
}

// -----

// A negative scale turns the maximum into a minimum: not folded.
// CHECK-LABEL: func @negative_scale
// CHECK-DAG: arith.constant 1.442695{{.*}} : f32
// CHECK-DAG: %[[SCALE:.*]] = arith.constant -1.250000e-01 : f32
// CHECK: scf.for
// CHECK: arith.mulf %{{.*}}, %[[SCALE]]
// CHECK: math.exp2
func.func @negative_scale(%q: tensor<1x1x128x16xf32>) -> tensor<1x1x128x16xf32> {
  %o = fa.attention %q, %q, %q scale -0.125 : (tensor<1x1x128x16xf32>, tensor<1x1x128x16xf32>, tensor<1x1x128x16xf32>) -> tensor<1x1x128x16xf32>
  return %o : tensor<1x1x128x16xf32>
}
