// RUN: fa-opt %s --fa-fold-scale-exp2 | FileCheck %s

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#vec = affine_map<(i) -> (i)>
#plus = affine_map<(d0)[s0] -> (d0 + s0)>

// Row blocks of dynamic size, as without --fa-pad-tiles: the maximum is scaled after the loop,
// its size is not taken from the scaled one.
// CHECK-LABEL: func @causal_dynamic
// CHECK: scf.for
// CHECK: fa.online_softmax {{.*}} {log2_scale = 0.18033
// CHECK: arith.mulf
// CHECK: math.log
func.func @causal_dynamic(%q: tensor<?x64xbf16>, %k: tensor<128x64xbf16>, %v: tensor<128x64xbf16>, %i0: index) -> (tensor<?x64xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %rows = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %vector = tensor.empty(%rows) : tensor<?xf32>
  %tile = tensor.empty(%rows) : tensor<?x32xf32>
  %block = tensor.empty(%rows) : tensor<?x64xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<?x32xf32>) -> tensor<?x32xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<?x64xf32>) -> tensor<?x64xf32>
  %state:3 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>) {
    %kt = tensor.extract_slice %k[%j0, 0] [32, 64] [1, 1] : tensor<128x64xbf16> to tensor<32x64xbf16>
    %vt = tensor.extract_slice %v[%j0, 0] [32, 64] [1, 1] : tensor<128x64xbf16> to tensor<32x64xbf16>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<?x64xbf16>, tensor<32x64xbf16>) outs(%s0 : tensor<?x32xf32>) {
    ^bb0(%x: bf16, %y: bf16, %acc: f32):
      %x32 = arith.extf %x : bf16 to f32
      %y32 = arith.extf %y : bf16 to f32
      %product = arith.mulf %x32, %y32 : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<?x32xf32>
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%products : tensor<?x32xf32>) outs(%tile : tensor<?x32xf32>) {
    ^bb0(%x: f32, %out: f32):
      %scaled = arith.mulf %x, %scale : f32
      %row = linalg.index 0 : index
      %i = affine.apply #plus(%i0)[%row]
      %column = linalg.index 1 : index
      %j = affine.apply #plus(%j0)[%column]
      %seen = arith.cmpi sle, %j, %i : index
      %score = arith.select %seen, %scaled, %none : f32
      linalg.yield %score : f32
    } -> tensor<?x32xf32>
    %next:3 = fa.online_softmax ins(%scores, %vt : tensor<?x32xf32>, tensor<32x64xbf16>) outs(%m, %l, %o : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>) {unnormalized}
    scf.yield %next#0, %next#1, %next#2 : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<?x64xf32>, tensor<?xf32>) outs(%block : tensor<?x64xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<?x64xf32>
  %lse = linalg.generic {indexing_maps = [#vec, #vec, #vec], iterator_types = ["parallel"]}
      ins(%state#0, %state#1 : tensor<?xf32>, tensor<?xf32>) outs(%vector : tensor<?xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %log = math.log %y : f32
    %sum = arith.addf %x, %log : f32
    linalg.yield %sum : f32
  } -> tensor<?xf32>
  return %r, %lse : tensor<?x64xf32>, tensor<?xf32>
}
