// RUN: fa-opt %s --fa-pipeline="rows=128 keys=64 speculate=on stop-after=fa-order-keys" --split-input-file | FileCheck %s --check-prefixes=CHECK,AUTO
// RUN: fa-opt %s --fa-pipeline="rows=128 keys=64 speculate=on stop-after=fa-order-keys" --split-input-file --remarks-filter=fa-order-keys --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: fa-opt %s --fa-pipeline="rows=128 keys=64 order=ascending stop-after=fa-order-keys" --split-input-file | FileCheck %s --check-prefix=UP
// RUN: fa-opt %s --fa-pipeline="rows=128 keys=64 stop-after=fa-order-keys" --split-input-file | FileCheck %s --check-prefix=UP
// RUN: not fa-opt %s --fa-pipeline="order=down" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not fa-opt %s --fa-pipeline="algorithm=fa1 order=descending" 2>&1 | FileCheck %s --check-prefix=FA1
// RUN: not fa-opt %s --fa-order-keys="order=down" --split-input-file 2>&1 | FileCheck %s --check-prefix=PASS

// UNKNOWN: unknown order 'down'; expected auto, ascending or descending
// FA1: expected order auto or ascending with algorithm fa1, got descending; only fa2 has a loop over keys in a block of rows
// PASS: error: expected order auto, ascending or descending, got down

// The last keys are the nearest, and their scores the largest: the slope is a
// power of two.
// CHECK-DAG: #[[$SUM:.*]] = affine_map<()[s0] -> (((s0 - 1) floordiv 64) * 64)>
// CHECK-LABEL: func @alibi
// CHECK: %[[SUM:.*]] = affine.apply #[[$SUM]]()[%[[END:[a-z0-9]+]]]
// CHECK: scf.for %[[N:[a-z0-9]+]] = %c0 to %[[END]] step %c64
// CHECK-NEXT: %[[J:.*]] = arith.subi %[[SUM]], %[[N]]
// CHECK: tensor.extract_slice %{{.*}}[%{{.*}}, %{{.*}}, %[[J]], 0]
// CHECK-NOT: %[[N]]
// CHECK: fa.online_softmax
// UP-LABEL: func @alibi
// UP: scf.for %
// UP: scf.for %[[N:[a-z0-9]+]] = %c0 to
// UP: tensor.extract_slice %{{.*}}[%{{.*}}, %{{.*}}, %[[N]], 0]
// REMARK: remark: [Passed] Descending {{.*}}Function=alibi{{.*}}put the last keys first: scores grow with the key
func.func @alibi(%q: tensor<1x2x512x64xf32>) -> tensor<1x2x512x64xf32> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %n = arith.index_cast %h : index to i32
    %f = arith.sitofp %n : i32 to f32
    %minus = arith.negf %f : f32
    %slope = math.exp2 %minus : f32
    %zero = arith.constant 0 : index
    %d = arith.subi %i, %j : index
    %back = arith.subi %zero, %d : index
    %size = arith.maxsi %d, %back : index
    %m = arith.index_cast %size : index to i32
    %g = arith.sitofp %m : i32 to f32
    %bias = arith.mulf %slope, %g : f32
    %y = arith.subf %s, %bias : f32
    fa.yield %y : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>) -> tensor<1x2x512x64xf32>
  return %o : tensor<1x2x512x64xf32>
}

// -----

// Nothing is known of what is read, but that the last keys are the nearest.
// CHECK-LABEL: func @captured
// CHECK: scf.for %
// CHECK: scf.for %[[N:[a-z0-9]+]] = %c0
// CHECK-NEXT: arith.subi %{{.*}}, %[[N]]
// REMARK: remark: [Passed] Descending {{.*}}Function=captured{{.*}}put the last keys first: scores change with the key, and the last ones are the nearest
func.func @captured(%q: tensor<1x2x512x64xf32>, %slopes: tensor<2xf32>) -> tensor<1x2x512x64xf32> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %slope = tensor.extract %slopes[%h] : tensor<2xf32>
    %d = arith.subi %j, %i : index
    %m = arith.index_cast %d : index to i32
    %g = arith.sitofp %m : i32 to f32
    %bias = arith.mulf %slope, %g : f32
    %y = arith.addf %s, %bias : f32
    fa.yield %y : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>) -> tensor<1x2x512x64xf32>
  return %o : tensor<1x2x512x64xf32>
}

// -----

// Without rows that bound the keys nothing is known.
// AUTO-LABEL: func @unbounded
// AUTO: scf.for %
// AUTO: scf.for %[[N:[a-z0-9]+]] = %c0 to
// AUTO: tensor.extract_slice %{{.*}}[%{{.*}}, %{{.*}}, %[[N]], 0]
// REMARK-NOT: Function=unbounded
func.func @unbounded(%q: tensor<1x2x512x64xf32>, %slopes: tensor<2xf32>) -> tensor<1x2x512x64xf32> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %slope = tensor.extract %slopes[%h] : tensor<2xf32>
    %m = arith.index_cast %j : index to i32
    %g = arith.sitofp %m : i32 to f32
    %bias = arith.mulf %slope, %g : f32
    %y = arith.addf %s, %bias : f32
    fa.yield %y : f32
  } : (tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>) -> tensor<1x2x512x64xf32>
  return %o : tensor<1x2x512x64xf32>
}

// -----

// Scores that fall, and a mask alone, leave the first keys first.
// AUTO-LABEL: func @falls
// AUTO: scf.for %
// AUTO: scf.for %[[N:[a-z0-9]+]] = %c0 to
// AUTO: tensor.extract_slice %{{.*}}[%{{.*}}, %{{.*}}, %[[N]], 0]
// REMARK-NOT: Function=falls
func.func @falls(%q: tensor<1x2x512x64xf32>) -> tensor<1x2x512x64xf32> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %m = arith.index_cast %j : index to i32
    %g = arith.sitofp %m : i32 to f32
    %y = arith.subf %s, %g : f32
    fa.yield %y : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>) -> tensor<1x2x512x64xf32>
  return %o : tensor<1x2x512x64xf32>
}

// -----

// AUTO-LABEL: func @causal
// AUTO: scf.for %
// AUTO: scf.for %[[N:[a-z0-9]+]] = %c0 to
// AUTO: tensor.extract_slice %{{.*}}[%{{.*}}, %{{.*}}, %[[N]], 0]
// REMARK-NOT: Function=causal
func.func @causal(%q: tensor<1x2x512x64xf32>) -> tensor<1x2x512x64xf32> {
  %o = fa.attention %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>) -> tensor<1x2x512x64xf32>
  return %o : tensor<1x2x512x64xf32>
}
