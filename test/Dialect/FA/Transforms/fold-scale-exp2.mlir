// RUN: fa-opt %s --fa-decompose --fa-online-softmax --fa-tile="rows=64 keys=32" --fa-interchange --fa-pad-tiles --fa-defer-normalization --fa-fuse --fa-fold-scale-exp2 --fa-expand-steps --split-input-file | FileCheck %s

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

// A function of the score forbids folding the scale; log2(e) alone is folded.
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

// -----

// A sum takes the factor: the scale is 0.125 log2(e), the slope times log2(e)
// is made once. The maximum is in log2 units.
// CHECK-LABEL: func @distance
// CHECK-DAG: %[[LOG2E:.*]] = arith.constant 1.44269502 : f32
// CHECK-DAG: %[[SCALE:.*]] = arith.constant 0.18033{{.*}} : f32
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK-DAG: %[[LN2:.*]] = arith.constant 0.693147182 : f32
// CHECK: %[[SLOPE:.*]] = arith.mulf %{{.*}}, %[[LOG2E]] : f32
// CHECK: scf.for
// CHECK: %[[S:.*]] = arith.mulf %{{.*}}, %[[SCALE]]
// CHECK: %[[BIAS:.*]] = arith.mulf %[[SLOPE]], %{{.*}}
// CHECK: %[[SUM:.*]] = arith.subf %[[S]], %[[BIAS]]
// CHECK: arith.select %{{.*}}, %[[SUM]],
// CHECK: math.fma %{{.*}}, %[[ONE]], %{{.*}} : f32
// CHECK: math.exp2
// CHECK: scf.yield
// CHECK: arith.mulf %{{.*}}, %[[LN2]] : f32
// CHECK: math.log
func.func @distance(%q: tensor<1x2x128x16xf32>, %slopes: tensor<2xf32>) -> (tensor<1x2x128x16xf32>, tensor<1x2x128xf32>) {
  %o, %lse = fa.attention %q, %q, %q scale 0.125 score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %slope = tensor.extract %slopes[%h] : tensor<2xf32>
    %d = arith.subi %i, %j : index
    %n = arith.index_cast %d : index to i32
    %f = arith.sitofp %n : i32 to f32
    %bias = arith.mulf %slope, %f : f32
    %y = arith.subf %s, %bias : f32
    fa.yield %y : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>) -> (tensor<1x2x128x16xf32>, tensor<1x2x128xf32>)
  return %o, %lse : tensor<1x2x128x16xf32>, tensor<1x2x128xf32>
}

// -----

// What is read for each element would take a multiplication more: log2(e)
// stays where it was. And it may be large: the maximum is subtracted before.
// CHECK-LABEL: func @bias
// CHECK-DAG: %[[LOG2E:.*]] = arith.constant 1.44269502 : f32
// CHECK-DAG: %[[SCALE:.*]] = arith.constant 1.250000e-01 : f32
// CHECK: scf.for
// CHECK: %[[S:.*]] = arith.mulf %{{.*}}, %[[SCALE]]
// CHECK: arith.addf %[[S]],
// CHECK: %[[BELOW:.*]] = arith.subf %{{.*}}, %{{.*}} : f32
// CHECK: %[[EXPONENT:.*]] = arith.mulf %[[BELOW]], %[[LOG2E]] : f32
// CHECK: math.exp2 %[[EXPONENT]] : f32
func.func @bias(%q: tensor<1x1x128x16xf32>, %table: tensor<128x128xf32>) -> tensor<1x1x128x16xf32> {
  %o = fa.attention %q, %q, %q scale 0.125 score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %bias = tensor.extract %table[%i, %j] : tensor<128x128xf32>
    %y = arith.addf %s, %bias : f32
    fa.yield %y : f32
  } : (tensor<1x1x128x16xf32>, tensor<1x1x128x16xf32>, tensor<1x1x128x16xf32>) -> tensor<1x1x128x16xf32>
  return %o : tensor<1x1x128x16xf32>
}

// -----

// A softcap's constant is folded as a scale is: 20 log2(e).
// CHECK-LABEL: func @softcap
// CHECK-DAG: %[[C:.*]] = arith.constant {{28.85|2.885}}{{.*}} : f32
// CHECK: scf.for
// CHECK: %[[T:.*]] = math.tanh
// CHECK-NEXT: linalg.yield %[[T]]
// CHECK: math.fma %{{.*}}, %[[C]], %{{.*}} : f32
func.func @softcap(%q: tensor<1x1x128x16xf32>) -> tensor<1x1x128x16xf32> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %cap = arith.constant 20.0 : f32
    %x = arith.divf %s, %cap : f32
    %t = math.tanh %x : f32
    %y = arith.mulf %cap, %t : f32
    fa.yield %y : f32
  } : (tensor<1x1x128x16xf32>, tensor<1x1x128x16xf32>, tensor<1x1x128x16xf32>) -> tensor<1x1x128x16xf32>
  return %o : tensor<1x1x128x16xf32>
}
