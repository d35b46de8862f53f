// RUN: fa-opt %s --fa-defer-normalization | FileCheck %s

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#plus = affine_map<(d0)[s0] -> (d0 + s0)>

// No division in the loop over keys, one after it. The input is a head of what --fa-decompose
// --fa-online-softmax --fa-tile="rows=64 keys=32" --fa-interchange --fa-pad-tiles makes of
// fa.attention.
// CHECK-LABEL: func @causal
// CHECK: scf.for
// CHECK: scf.for
// CHECK-NOT: arith.divf
// CHECK: %[[M:.*]], %[[L:.*]], %[[O:.*]] = fa.online_softmax {{.*}} {unnormalized}
// CHECK-NEXT: scf.yield %[[M]], %[[L]], %[[O]] : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
// CHECK: arith.divf
func.func @causal(%q: tensor<128x64xbf16>, %k: tensor<128x64xbf16>, %v: tensor<128x64xbf16>) -> (tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<128xf32>
  %matrix = tensor.empty() : tensor<128x64xf32>
  %r:3 = scf.for %i0 = %c0 to %c128 step %c64 iter_args(%mr = %vector, %lr = %vector, %or = %matrix)
      -> (tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>) {
    %qt = tensor.extract_slice %q[%i0, 0] [64, 64] [1, 1] : tensor<128x64xbf16> to tensor<64x64xbf16>
    %block_vector = tensor.empty() : tensor<64xf32>
    %block_matrix = tensor.empty() : tensor<64x64xf32>
    %m0 = linalg.fill ins(%none : f32) outs(%block_vector : tensor<64xf32>) -> tensor<64xf32>
    %l0 = linalg.fill ins(%zero : f32) outs(%block_vector : tensor<64xf32>) -> tensor<64xf32>
    %o0 = linalg.fill ins(%zero : f32) outs(%block_matrix : tensor<64x64xf32>) -> tensor<64x64xf32>
    %state:3 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0)
        -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
      %kt = tensor.extract_slice %k[%j0, 0] [32, 64] [1, 1] : tensor<128x64xbf16> to tensor<32x64xbf16>
      %vt = tensor.extract_slice %v[%j0, 0] [32, 64] [1, 1] : tensor<128x64xbf16> to tensor<32x64xbf16>
      %tile = tensor.empty() : tensor<64x32xf32>
      %zeros = linalg.fill ins(%zero : f32) outs(%tile : tensor<64x32xf32>) -> tensor<64x32xf32>
      %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%qt, %kt : tensor<64x64xbf16>, tensor<32x64xbf16>) outs(%zeros : tensor<64x32xf32>) {
      ^bb0(%x: bf16, %y: bf16, %acc: f32):
        %x32 = arith.extf %x : bf16 to f32
        %y32 = arith.extf %y : bf16 to f32
        %product = arith.mulf %x32, %y32 : f32
        %sum = arith.addf %acc, %product : f32
        linalg.yield %sum : f32
      } -> tensor<64x32xf32>
      %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%products : tensor<64x32xf32>) outs(%tile : tensor<64x32xf32>) {
      ^bb0(%x: f32, %out: f32):
        %scaled = arith.mulf %x, %scale : f32
        %row = linalg.index 0 : index
        %i = affine.apply #plus(%i0)[%row]
        %column = linalg.index 1 : index
        %j = affine.apply #plus(%j0)[%column]
        %seen = arith.cmpi sle, %j, %i : index
        %score = arith.select %seen, %scaled, %none : f32
        linalg.yield %score : f32
      } -> tensor<64x32xf32>
      %next:3 = fa.online_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x64xbf16>)
          outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>)
      scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
    }
    %m1 = tensor.insert_slice %state#0 into %mr[%i0] [64] [1] : tensor<64xf32> into tensor<128xf32>
    %l1 = tensor.insert_slice %state#1 into %lr[%i0] [64] [1] : tensor<64xf32> into tensor<128xf32>
    %o1 = tensor.insert_slice %state#2 into %or[%i0, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<128x64xf32>
    scf.yield %m1, %l1, %o1 : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>
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
