// Which blocks may add to the same elements, and what sums they get.
// RUN: fa-opt %s --fa-pipeline="target=sm_80 backward=all deterministic=true rows=64 keys=128" --split-input-file | FileCheck %s
// RUN: not fa-opt %s --split-input-file --fa-pipeline="target=sm_80 backward=all deterministic=maybe" 2>&1 | FileCheck %s --check-prefix=OPTION
// OPTION: deterministic

// Gradients of queries: a block of keys waits for the one before it. A slope is
// each head's: blocks of a head have 16 partial sums, by batch entry.
// CHECK-LABEL: func.func @slopes_backward
// CHECK-DAG: tensor.empty({{.*}}) : tensor<?x16x?xf32>
// CHECK: fa.accumulate %{{.*}} into %{{.*}} at {
// CHECK: fa.yield_places %{{.*}}, %{{.*}}, %{{.*}}
// CHECK: } {ordered = 16 : i64} : tensor<128x64xf32> into tensor<?x16x?xf32>
// CHECK: fa.accumulate_slice {{.*}} {ordered = 1 : i64}
// CHECK: scf.forall (%{{.*}}) = (0) to (%{{.*}}) step (256)
// CHECK: linalg.reduce {{.*}} dimensions = [0, 1]
func.func @slopes(%q: tensor<?x4x?x64xbf16>, %slopes: tensor<?xf32>) -> tensor<?x4x?x64xbf16> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %slopes[%h] : tensor<?xf32>
    %r = arith.mulf %s, %x : f32
    fa.yield %r : f32
  } : (tensor<?x4x?x64xbf16>, tensor<?x4x?x64xbf16>, tensor<?x4x?x64xbf16>) -> tensor<?x4x?x64xbf16>
  return %o : tensor<?x4x?x64xbf16>
}

// -----

// No two blocks meet: one sum, also where two query heads share a key head.
// CHECK-LABEL: func.func @bias_backward
// CHECK-NOT: linalg.reduce
// CHECK: } {ordered = 0 : i64} : tensor<128x64xf32> into tensor<?x?x?x?xf32>
// CHECK-NOT: linalg.reduce
// CHECK: return
func.func @bias(%q: tensor<?x4x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %bias: tensor<?x?x?x?xf32>) -> tensor<?x4x?x64xbf16> {
  %o = fa.attention %q, %k, %k score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %bias[%b, %h, %i, %j] : tensor<?x?x?x?xf32>
    %r = arith.addf %s, %x : f32
    fa.yield %r : f32
  } : (tensor<?x4x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>) -> tensor<?x4x?x64xbf16>
  return %o : tensor<?x4x?x64xbf16>
}

// -----

// Of a bias that heads share, those of each batch entry and key head are apart.
// CHECK-LABEL: func.func @shared_bias_backward
// CHECK: } {ordered = 0 : i64} : tensor<128x64xf32> into tensor<?x2x?x?xf32>
// CHECK: linalg.reduce {{.*}} dimensions = [0, 1, 2]
func.func @shared_bias(%q: tensor<?x4x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %bias: tensor<?x?xf32>) -> tensor<?x4x?x64xbf16> {
  %o = fa.attention %q, %k, %k score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %bias[%i, %j] : tensor<?x?xf32>
    %r = arith.addf %s, %x : f32
    fa.yield %r : f32
  } : (tensor<?x4x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>) -> tensor<?x4x?x64xbf16>
  return %o : tensor<?x4x?x64xbf16>
}

// -----

// A clamp of the user's takes several keys, of several blocks, to one place.
// CHECK-LABEL: func.func @clamped_backward
// CHECK: } {ordered = 16 : i64} : tensor<128x64xf32> into tensor<4x16x?x?xf32>
func.func @clamped(%q: tensor<?x4x?x64xbf16>, %bias: tensor<?x?xf32>) -> tensor<?x4x?x64xbf16> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %most = arith.constant 1000 : index
    %least = arith.minsi %j, %most : index
    %x = tensor.extract %bias[%b, %least] : tensor<?x?xf32>
    %hx = arith.index_cast %h : index to i32
    %hf = arith.sitofp %hx : i32 to f32
    %y = arith.mulf %x, %hf : f32
    %r = arith.addf %s, %y : f32
    fa.yield %r : f32
  } : (tensor<?x4x?x64xbf16>, tensor<?x4x?x64xbf16>, tensor<?x4x?x64xbf16>) -> tensor<?x4x?x64xbf16>
  return %o : tensor<?x4x?x64xbf16>
}

// -----

// What is read twice may meet anywhere.
// CHECK-LABEL: func.func @twice_backward
// CHECK-COUNT-2: } {ordered = 16 : i64} : tensor<128x64xf32> into tensor<?x4x16x?x?xf32>
// CHECK: linalg.reduce {{.*}} dimensions = [0, 1, 2, 3]
func.func @twice(%q: tensor<?x4x?x64xbf16>, %bias: tensor<?x?xf32>) -> tensor<?x4x?x64xbf16> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %bias[%i, %j] : tensor<?x?xf32>
    %y = tensor.extract %bias[%j, %i] : tensor<?x?xf32>
    %z = arith.mulf %x, %y : f32
    %r = arith.addf %s, %z : f32
    fa.yield %r : f32
  } : (tensor<?x4x?x64xbf16>, tensor<?x4x?x64xbf16>, tensor<?x4x?x64xbf16>) -> tensor<?x4x?x64xbf16>
  return %o : tensor<?x4x?x64xbf16>
}
