// RUN: fa-opt %s --fa-decompose --fa-online-softmax --fa-tile="rows=64 keys=32" --fa-interchange --fa-pad-tiles --split-input-file | FileCheck %s

// Tiles are static; keys past the end are masked beside the user's mask.
// CHECK-LABEL: func @causal_dynamic
// CHECK: tensor.pad {{.*}} high
// CHECK: : tensor<?x64xbf16> to tensor<64x64xbf16>
// CHECK: scf.for %[[J0:.*]] =
// CHECK: tensor.pad
// CHECK: : tensor<?x64xbf16> to tensor<32x64xbf16>
// CHECK: %[[SEEN:.*]] = arith.cmpi sle
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt
// CHECK: %[[BOTH:.*]] = arith.andi %[[SEEN]], %[[INSIDE]]
// CHECK: arith.select %[[BOTH]]
// CHECK: fa.online_softmax ins({{.*}} : tensor<64x32xf32>, tensor<32x64xbf16>) outs({{.*}} : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>)
// CHECK: tensor.extract_slice {{.*}} : tensor<64x64xf32> to tensor<?x64xf32>
func.func @causal_dynamic(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %v: tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125 mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>)
  return %o, %lse : tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>
}

// -----

// Nothing to pad: no mask appears where there was none.
// CHECK-LABEL: func @divisible
// CHECK-NOT: tensor.pad
// CHECK-NOT: arith.select
// CHECK: fa.online_softmax
func.func @divisible(%q: tensor<1x1x128x16xf32>) -> tensor<1x1x128x16xf32> {
  %o = fa.attention %q, %q, %q : (tensor<1x1x128x16xf32>, tensor<1x1x128x16xf32>, tensor<1x1x128x16xf32>) -> tensor<1x1x128x16xf32>
  return %o : tensor<1x1x128x16xf32>
}

// -----

// No mask of the user's, but keys past the end: they get one.
// CHECK-LABEL: func @unmasked_edge
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt
// CHECK: arith.select %[[INSIDE]]
func.func @unmasked_edge(%q: tensor<1x1x100x16xf32>) -> tensor<1x1x100x16xf32> {
  %o = fa.attention %q, %q, %q : (tensor<1x1x100x16xf32>, tensor<1x1x100x16xf32>, tensor<1x1x100x16xf32>) -> tensor<1x1x100x16xf32>
  return %o : tensor<1x1x100x16xf32>
}

// -----

// Padding is neutral for the reduction that reads it, along columns, too.
// CHECK-LABEL: func @column_maximum
// CHECK-DAG: %[[NONE:.*]] = arith.constant 0xFF800000 : f32
// CHECK: scf.for
// CHECK: tensor.pad
// CHECK: tensor.yield %[[NONE]]
func.func @column_maximum(%s: tensor<?x32xf32>) -> tensor<32xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %none = arith.constant 0xFF800000 : f32
  %n = tensor.dim %s, %c0 : tensor<?x32xf32>
  %e = tensor.empty() : tensor<32xf32>
  %start = linalg.fill ins(%none : f32) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %r = scf.for %i = %c0 to %n step %c64 iter_args(%m = %start) -> tensor<32xf32> {
    %rows = affine.min affine_map<(i)[n] -> (64, n - i)>(%i)[%n]
    %t = tensor.extract_slice %s[%i, 0] [%rows, 32] [1, 1] : tensor<?x32xf32> to tensor<?x32xf32>
    %next = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>], iterator_types = ["reduction", "parallel"]}
      ins(%t : tensor<?x32xf32>) outs(%m : tensor<32xf32>) {
    ^bb0(%x: f32, %a: f32):
      %y = arith.maxnumf %x, %a : f32
      linalg.yield %y : f32
    } -> tensor<32xf32>
    scf.yield %next : tensor<32xf32>
  }
  return %r : tensor<32xf32>
}
