// Tiles end where a number in memory says that the mask ends for all.
// RUN: fa-opt %s --fa-clip-loads | FileCheck %s

#left = affine_map<(d0)[s0] -> (-d0 + s0, 32)>
#pad = affine_map<()[s0] -> (-s0 + 32)>
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d1, d2)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#sum = affine_map<(d0)[s0] -> (d0 + s0)>

// The values of a forward end at the length; the keys need not, since the mask
// chooses among their scores.
// CHECK-LABEL: func @values(
// CHECK: %[[N:.*]] = tensor.extract %{{.*}}[%c0] : tensor<1xi32>
// CHECK: %[[END:.*]] = arith.index_cast %[[N]] : i32 to index
// CHECK: scf.for %[[J:.*]] = %c0
// CHECK: %[[SIZE:.*]] = affine.min
// CHECK: tensor.extract_slice %arg1[%[[J]], 0] [%[[SIZE]], 16]
// CHECK: %[[D:.*]] = arith.subi %[[END]], %[[J]] : index
// CHECK: %[[LEFT:.*]] = arith.maxsi %[[D]], %c0 : index
// CHECK: %[[CUT:.*]] = arith.minsi %[[SIZE]], %[[LEFT]] : index
// CHECK: tensor.extract_slice %arg2[%[[J]], 0] [%[[CUT]], 16]
func.func @values(%q: tensor<64x16xbf16>, %k: tensor<?x16xbf16>, %v: tensor<?x16xbf16>, %length: tensor<1xi32>, %m: tensor<64xf32>, %o: tensor<64x16xf32>) -> tensor<64x16xf32> {
  %zero = arith.constant 0.0 : bf16
  %none = arith.constant 0xFF800000 : f32
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %keys = tensor.dim %k, %c0 : tensor<?x16xbf16>
  %e = tensor.empty() : tensor<64x32xf32>
  %r:3 = scf.for %j = %c0 to %keys step %c32 iter_args(%m0 = %m, %l0 = %m, %o0 = %o) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>) {
    %n = affine.min #left(%j)[%keys]
    %p = affine.apply #pad()[%n]
    %ks = tensor.extract_slice %k[%j, 0] [%n, 16] [1, 1] : tensor<?x16xbf16> to tensor<?x16xbf16>
    %kt = tensor.pad %ks low[0, 0] high[%p, 0] {
    ^bb0(%x: index, %y: index):
      tensor.yield %zero : bf16
    } : tensor<?x16xbf16> to tensor<32x16xbf16>
    %vs = tensor.extract_slice %v[%j, 0] [%n, 16] [1, 1] : tensor<?x16xbf16> to tensor<?x16xbf16>
    %vt = tensor.pad %vs low[0, 0] high[%p, 0] {
    ^bb0(%x: index, %y: index):
      tensor.yield %zero : bf16
    } : tensor<?x16xbf16> to tensor<32x16xbf16>
    %s = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%q, %kt : tensor<64x16xbf16>, tensor<32x16xbf16>) outs(%e : tensor<64x32xf32>) {
    ^bb0(%x: bf16, %y: bf16, %z: f32):
      %xx = arith.extf %x : bf16 to f32
      %yy = arith.extf %y : bf16 to f32
      %xy = arith.mulf %xx, %yy : f32
      %t = arith.addf %z, %xy : f32
      linalg.yield %t : f32
    } -> tensor<64x32xf32>
    %masked = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x32xf32>) outs(%e : tensor<64x32xf32>) {
    ^bb0(%x: f32, %z: f32):
      %column = linalg.index 1 : index
      %at = affine.apply #sum(%j)[%column]
      %read = tensor.extract %length[%c0] : tensor<1xi32>
      %end = arith.index_cast %read : i32 to index
      %below = arith.cmpi slt, %at, %end : index
      %inside = arith.cmpi slt, %at, %keys : index
      %seen = arith.andi %below, %inside : i1
      %t = arith.select %seen, %x, %none : f32
      linalg.yield %t : f32
    } -> tensor<64x32xf32>
    %next:3 = fa.online_softmax ins(%masked, %vt : tensor<64x32xf32>, tensor<32x16xbf16>) outs(%m0, %l0, %o0 : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>)
    scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>
  }
  return %r#2 : tensor<64x16xf32>
}

// A length that differs from row to row ends no tile; nor does a constant, behind
// which the tensor is the caller's.
// CHECK-LABEL: func @of_rows(
// CHECK-NOT: arith.minsi
func.func @of_rows(%s: tensor<64x32xf32>, %v: tensor<?x16xbf16>, %lengths: tensor<64xi32>, %m: tensor<64xf32>, %o: tensor<64x16xf32>) -> tensor<64x16xf32> {
  %zero = arith.constant 0.0 : bf16
  %none = arith.constant 0xFF800000 : f32
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c100 = arith.constant 100 : index
  %keys = tensor.dim %v, %c0 : tensor<?x16xbf16>
  %e = tensor.empty() : tensor<64x32xf32>
  %r:3 = scf.for %j = %c0 to %keys step %c32 iter_args(%m0 = %m, %l0 = %m, %o0 = %o) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>) {
    %n = affine.min #left(%j)[%keys]
    %p = affine.apply #pad()[%n]
    %vs = tensor.extract_slice %v[%j, 0] [%n, 16] [1, 1] : tensor<?x16xbf16> to tensor<?x16xbf16>
    %vt = tensor.pad %vs low[0, 0] high[%p, 0] {
    ^bb0(%x: index, %y: index):
      tensor.yield %zero : bf16
    } : tensor<?x16xbf16> to tensor<32x16xbf16>
    %masked = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x32xf32>) outs(%e : tensor<64x32xf32>) {
    ^bb0(%x: f32, %z: f32):
      %row = linalg.index 0 : index
      %column = linalg.index 1 : index
      %at = affine.apply #sum(%j)[%column]
      %read = tensor.extract %lengths[%row] : tensor<64xi32>
      %end = arith.index_cast %read : i32 to index
      %below = arith.cmpi slt, %at, %end : index
      %inside = arith.cmpi slt, %at, %c100 : index
      %seen = arith.andi %below, %inside : i1
      %t = arith.select %seen, %x, %none : f32
      linalg.yield %t : f32
    } -> tensor<64x32xf32>
    %next:3 = fa.online_softmax ins(%masked, %vt : tensor<64x32xf32>, tensor<32x16xbf16>) outs(%m0, %l0, %o0 : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>)
    scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>
  }
  return %r#2 : tensor<64x16xf32>
}
