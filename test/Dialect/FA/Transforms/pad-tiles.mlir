// The first three inputs are a head of what --fa-decompose --fa-online-softmax
// --fa-tile="rows=64 keys=32" --fa-interchange makes of fa.attention.
// RUN: fa-opt %s --fa-pad-tiles | FileCheck %s

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#plus = affine_map<(d0)[s0] -> (d0 + s0)>
#rows = affine_map<(i)[n] -> (n - i, 64)>
#keys = affine_map<(j)[n] -> (n - j, 32)>

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
func.func @causal_dynamic(%q: tensor<?x64xbf16>, %k: tensor<?x64xbf16>, %v: tensor<?x64xbf16>) -> (tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %Sq = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %Sk = tensor.dim %k, %c0 : tensor<?x64xbf16>
  %vector = tensor.empty(%Sq) : tensor<?xf32>
  %matrix = tensor.empty(%Sq) : tensor<?x64xf32>
  %r:3 = scf.for %i0 = %c0 to %Sq step %c64 iter_args(%mr = %vector, %lr = %vector, %or = %matrix)
      -> (tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>) {
    %rows = affine.min #rows(%i0)[%Sq]
    %qt = tensor.extract_slice %q[%i0, 0] [%rows, 64] [1, 1] : tensor<?x64xbf16> to tensor<?x64xbf16>
    %block_vector = tensor.empty(%rows) : tensor<?xf32>
    %block_matrix = tensor.empty(%rows) : tensor<?x64xf32>
    %m0 = linalg.fill ins(%none : f32) outs(%block_vector : tensor<?xf32>) -> tensor<?xf32>
    %l0 = linalg.fill ins(%zero : f32) outs(%block_vector : tensor<?xf32>) -> tensor<?xf32>
    %o0 = linalg.fill ins(%zero : f32) outs(%block_matrix : tensor<?x64xf32>) -> tensor<?x64xf32>
    %state:3 = scf.for %j0 = %c0 to %Sk step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0)
        -> (tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>) {
      %keys = affine.min #keys(%j0)[%Sk]
      %kt = tensor.extract_slice %k[%j0, 0] [%keys, 64] [1, 1] : tensor<?x64xbf16> to tensor<?x64xbf16>
      %vt = tensor.extract_slice %v[%j0, 0] [%keys, 64] [1, 1] : tensor<?x64xbf16> to tensor<?x64xbf16>
      %tile = tensor.empty(%rows, %keys) : tensor<?x?xf32>
      %zeros = linalg.fill ins(%zero : f32) outs(%tile : tensor<?x?xf32>) -> tensor<?x?xf32>
      %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%qt, %kt : tensor<?x64xbf16>, tensor<?x64xbf16>) outs(%zeros : tensor<?x?xf32>) {
      ^bb0(%x: bf16, %y: bf16, %acc: f32):
        %x32 = arith.extf %x : bf16 to f32
        %y32 = arith.extf %y : bf16 to f32
        %product = arith.mulf %x32, %y32 : f32
        %sum = arith.addf %acc, %product : f32
        linalg.yield %sum : f32
      } -> tensor<?x?xf32>
      %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%products : tensor<?x?xf32>) outs(%tile : tensor<?x?xf32>) {
      ^bb0(%x: f32, %out: f32):
        %scaled = arith.mulf %x, %scale : f32
        %row = linalg.index 0 : index
        %i = affine.apply #plus(%i0)[%row]
        %column = linalg.index 1 : index
        %j = affine.apply #plus(%j0)[%column]
        %seen = arith.cmpi sle, %j, %i : index
        %score = arith.select %seen, %scaled, %none : f32
        linalg.yield %score : f32
      } -> tensor<?x?xf32>
      %next:3 = fa.online_softmax ins(%scores, %vt : tensor<?x?xf32>, tensor<?x64xbf16>)
          outs(%m, %l, %o : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>)
      scf.yield %next#0, %next#1, %next#2 : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>
    }
    %m1 = tensor.insert_slice %state#0 into %mr[%i0] [%rows] [1] : tensor<?xf32> into tensor<?xf32>
    %l1 = tensor.insert_slice %state#1 into %lr[%i0] [%rows] [1] : tensor<?xf32> into tensor<?xf32>
    %o1 = tensor.insert_slice %state#2 into %or[%i0, 0] [%rows, 64] [1, 1] : tensor<?x64xf32> into tensor<?x64xf32>
    scf.yield %m1, %l1, %o1 : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>
}

// Nothing to pad: no mask appears where there was none.
// CHECK-LABEL: func @divisible
// CHECK-NOT: tensor.pad
// CHECK-NOT: arith.select
// CHECK: fa.online_softmax
func.func @divisible(%q: tensor<128x16xf32>, %k: tensor<128x16xf32>, %v: tensor<128x16xf32>) -> (tensor<128xf32>, tensor<128xf32>, tensor<128x16xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<128xf32>
  %matrix = tensor.empty() : tensor<128x16xf32>
  %r:3 = scf.for %i0 = %c0 to %c128 step %c64 iter_args(%mr = %vector, %lr = %vector, %or = %matrix)
      -> (tensor<128xf32>, tensor<128xf32>, tensor<128x16xf32>) {
    %qt = tensor.extract_slice %q[%i0, 0] [64, 16] [1, 1] : tensor<128x16xf32> to tensor<64x16xf32>
    %block_vector = tensor.empty() : tensor<64xf32>
    %block_matrix = tensor.empty() : tensor<64x16xf32>
    %m0 = linalg.fill ins(%none : f32) outs(%block_vector : tensor<64xf32>) -> tensor<64xf32>
    %l0 = linalg.fill ins(%zero : f32) outs(%block_vector : tensor<64xf32>) -> tensor<64xf32>
    %o0 = linalg.fill ins(%zero : f32) outs(%block_matrix : tensor<64x16xf32>) -> tensor<64x16xf32>
    %state:3 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0)
        -> (tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>) {
      %kt = tensor.extract_slice %k[%j0, 0] [32, 16] [1, 1] : tensor<128x16xf32> to tensor<32x16xf32>
      %vt = tensor.extract_slice %v[%j0, 0] [32, 16] [1, 1] : tensor<128x16xf32> to tensor<32x16xf32>
      %tile = tensor.empty() : tensor<64x32xf32>
      %zeros = linalg.fill ins(%zero : f32) outs(%tile : tensor<64x32xf32>) -> tensor<64x32xf32>
      %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%qt, %kt : tensor<64x16xf32>, tensor<32x16xf32>) outs(%zeros : tensor<64x32xf32>) {
      ^bb0(%x: f32, %y: f32, %acc: f32):
        %product = arith.mulf %x, %y : f32
        %sum = arith.addf %acc, %product : f32
        linalg.yield %sum : f32
      } -> tensor<64x32xf32>
      %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%products : tensor<64x32xf32>) outs(%tile : tensor<64x32xf32>) {
      ^bb0(%x: f32, %out: f32):
        %scaled = arith.mulf %x, %scale : f32
        linalg.yield %scaled : f32
      } -> tensor<64x32xf32>
      %next:3 = fa.online_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x16xf32>)
          outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>)
      scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>
    }
    %m1 = tensor.insert_slice %state#0 into %mr[%i0] [64] [1] : tensor<64xf32> into tensor<128xf32>
    %l1 = tensor.insert_slice %state#1 into %lr[%i0] [64] [1] : tensor<64xf32> into tensor<128xf32>
    %o1 = tensor.insert_slice %state#2 into %or[%i0, 0] [64, 16] [1, 1] : tensor<64x16xf32> into tensor<128x16xf32>
    scf.yield %m1, %l1, %o1 : tensor<128xf32>, tensor<128xf32>, tensor<128x16xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<128xf32>, tensor<128xf32>, tensor<128x16xf32>
}

// No mask of the user's, but keys past the end: they get one.
// CHECK-LABEL: func @unmasked_edge
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt
// CHECK: arith.select %[[INSIDE]]
func.func @unmasked_edge(%q: tensor<100x16xf32>, %k: tensor<100x16xf32>, %v: tensor<100x16xf32>) -> (tensor<100xf32>, tensor<100xf32>, tensor<100x16xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c100 = arith.constant 100 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<100xf32>
  %matrix = tensor.empty() : tensor<100x16xf32>
  %r:3 = scf.for %i0 = %c0 to %c100 step %c64 iter_args(%mr = %vector, %lr = %vector, %or = %matrix)
      -> (tensor<100xf32>, tensor<100xf32>, tensor<100x16xf32>) {
    %rows = affine.min #rows(%i0)[%c100]
    %qt = tensor.extract_slice %q[%i0, 0] [%rows, 16] [1, 1] : tensor<100x16xf32> to tensor<?x16xf32>
    %block_vector = tensor.empty(%rows) : tensor<?xf32>
    %block_matrix = tensor.empty(%rows) : tensor<?x16xf32>
    %m0 = linalg.fill ins(%none : f32) outs(%block_vector : tensor<?xf32>) -> tensor<?xf32>
    %l0 = linalg.fill ins(%zero : f32) outs(%block_vector : tensor<?xf32>) -> tensor<?xf32>
    %o0 = linalg.fill ins(%zero : f32) outs(%block_matrix : tensor<?x16xf32>) -> tensor<?x16xf32>
    %state:3 = scf.for %j0 = %c0 to %c100 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0)
        -> (tensor<?xf32>, tensor<?xf32>, tensor<?x16xf32>) {
      %keys = affine.min #keys(%j0)[%c100]
      %kt = tensor.extract_slice %k[%j0, 0] [%keys, 16] [1, 1] : tensor<100x16xf32> to tensor<?x16xf32>
      %vt = tensor.extract_slice %v[%j0, 0] [%keys, 16] [1, 1] : tensor<100x16xf32> to tensor<?x16xf32>
      %tile = tensor.empty(%rows, %keys) : tensor<?x?xf32>
      %zeros = linalg.fill ins(%zero : f32) outs(%tile : tensor<?x?xf32>) -> tensor<?x?xf32>
      %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%qt, %kt : tensor<?x16xf32>, tensor<?x16xf32>) outs(%zeros : tensor<?x?xf32>) {
      ^bb0(%x: f32, %y: f32, %acc: f32):
        %product = arith.mulf %x, %y : f32
        %sum = arith.addf %acc, %product : f32
        linalg.yield %sum : f32
      } -> tensor<?x?xf32>
      %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%products : tensor<?x?xf32>) outs(%tile : tensor<?x?xf32>) {
      ^bb0(%x: f32, %out: f32):
        %scaled = arith.mulf %x, %scale : f32
        linalg.yield %scaled : f32
      } -> tensor<?x?xf32>
      %next:3 = fa.online_softmax ins(%scores, %vt : tensor<?x?xf32>, tensor<?x16xf32>)
          outs(%m, %l, %o : tensor<?xf32>, tensor<?xf32>, tensor<?x16xf32>)
      scf.yield %next#0, %next#1, %next#2 : tensor<?xf32>, tensor<?xf32>, tensor<?x16xf32>
    }
    %m1 = tensor.insert_slice %state#0 into %mr[%i0] [%rows] [1] : tensor<?xf32> into tensor<100xf32>
    %l1 = tensor.insert_slice %state#1 into %lr[%i0] [%rows] [1] : tensor<?xf32> into tensor<100xf32>
    %o1 = tensor.insert_slice %state#2 into %or[%i0, 0] [%rows, 16] [1, 1] : tensor<?x16xf32> into tensor<100x16xf32>
    scf.yield %m1, %l1, %o1 : tensor<100xf32>, tensor<100xf32>, tensor<100x16xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<100xf32>, tensor<100xf32>, tensor<100x16xf32>
}

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
