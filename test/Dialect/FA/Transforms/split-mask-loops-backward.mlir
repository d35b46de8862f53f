// The backward's loop over blocks of rows follows the mask, from the same proof
// as the forward's over keys, with rows and keys in each other's place. Each input is the loop
// over rows for one block of keys, as --fa-pipeline="backward=none rows=128 keys=64
// stop-after=fa-list-blocks" makes it.
// RUN: fa-opt %s --fa-split-mask-loops --remarks-filter=fa-split-mask-loops --remark-format=emitRemark 2>&1 | FileCheck %s

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#plus = affine_map<(d0)[s0] -> (d0 + s0)>
#rows = affine_map<(i) -> (1000 - i, 128)>
#keys = affine_map<(j)[n] -> (n - j, 64)>

// Rows from the first key of the block on; from its last key on all of it is seen.
// CHECK: remark: {{.*}}split the loop over rows: it starts later, its full tiles run without the mask (visited [%[[J:.*]], end), full [%[[J]] + 63, end))
func.func @causal(%q: tensor<1024x64xf32>, %k: tensor<1024x64xf32>, %grad: tensor<1024x64xf32>, %lse: tensor<1024xf32>, %delta: tensor<1024xf32>, %j0: index,
    %dq0: tensor<1024x64xf32>, %dk0: tensor<64x64xf32>, %dv0: tensor<64x64xf32>) -> (tensor<1024x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  %true = arith.constant true
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %kt = tensor.extract_slice %k[%j0, 0] [64, 64] [1, 1] : tensor<1024x64xf32> to tensor<64x64xf32>
  %r:3 = scf.for %i0 = %c0 to %c1024 step %c128 iter_args(%dq = %dq0, %dk = %dk0, %dv = %dv0) -> (tensor<1024x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
    %qt = tensor.extract_slice %q[%i0, 0] [128, 64] [1, 1] : tensor<1024x64xf32> to tensor<128x64xf32>
    %tile = tensor.empty() : tensor<128x64xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%tile : tensor<128x64xf32>) -> tensor<128x64xf32>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %kt : tensor<128x64xf32>, tensor<64x64xf32>) outs(%zeros : tensor<128x64xf32>) {
    ^bb0(%x: f32, %y: f32, %acc: f32):
      %product = arith.mulf %x, %y : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<128x64xf32>
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%products : tensor<128x64xf32>) outs(%tile : tensor<128x64xf32>) {
    ^bb0(%x: f32, %out: f32):
      %scaled = arith.mulf %x, %scale : f32
      %row = linalg.index 0 : index
      %i = affine.apply #plus(%i0)[%row]
      %column = linalg.index 1 : index
      %j = affine.apply #plus(%j0)[%column]
      %seen = arith.cmpi sle, %j, %i : index
      %score = arith.select %seen, %scaled, %none : f32
      linalg.yield %score : f32
    } -> tensor<128x64xf32>
    %gt = tensor.extract_slice %grad[%i0, 0] [128, 64] [1, 1] : tensor<1024x64xf32> to tensor<128x64xf32>
    %lt = tensor.extract_slice %lse[%i0] [128] [1] : tensor<1024xf32> to tensor<128xf32>
    %dt = tensor.extract_slice %delta[%i0] [128] [1] : tensor<1024xf32> to tensor<128xf32>
    %dqt = tensor.extract_slice %dq[%i0, 0] [128, 64] [1, 1] : tensor<1024x64xf32> to tensor<128x64xf32>
    %next:3 = fa.softmax_grad ins(%scores, %products, %qt, %kt, %kt, %gt, %lt, %dt
        : tensor<128x64xf32>, tensor<128x64xf32>, tensor<128x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<128x64xf32>, tensor<128xf32>, tensor<128xf32>)
        outs(%dqt, %dk, %dv : tensor<128x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) keep {
    ^bb0(%row: index, %column: index):
      fa.yield %true : i1
    } adjoint {
    ^bb0(%s: f32, %row: index, %column: index, %d: f32):
      fa.yield_adjoint %d : f32
    }
    %dq1 = tensor.insert_slice %next#0 into %dq[%i0, 0] [128, 64] [1, 1] : tensor<128x64xf32> into tensor<1024x64xf32>
    scf.yield %dq1, %next#1, %next#2 : tensor<1024x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<1024x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}

// A window on both sides, and lengths that no tile divides.
// CHECK: remark: {{.*}}split the loop over rows: it starts later, it ends earlier, {{.*}}(visited [%[[J:.*]] - 100, %[[J]] + 264)
func.func @window(%q: tensor<1000x64xf32>, %k: tensor<?x64xf32>, %grad: tensor<1000x64xf32>, %lse: tensor<1000xf32>, %delta: tensor<1000xf32>, %j0: index,
    %dq0: tensor<1000x64xf32>, %dk0: tensor<?x64xf32>, %dv0: tensor<?x64xf32>) -> (tensor<1000x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1000 = arith.constant 1000 : index
  %true = arith.constant true
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %Sk = tensor.dim %k, %c0 : tensor<?x64xf32>
  %keys = affine.min #keys(%j0)[%Sk]
  %kt = tensor.extract_slice %k[%j0, 0] [%keys, 64] [1, 1] : tensor<?x64xf32> to tensor<?x64xf32>
  %r:3 = scf.for %i0 = %c0 to %c1000 step %c128 iter_args(%dq = %dq0, %dk = %dk0, %dv = %dv0) -> (tensor<1000x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) {
    %rows = affine.min #rows(%i0)
    %qt = tensor.extract_slice %q[%i0, 0] [%rows, 64] [1, 1] : tensor<1000x64xf32> to tensor<?x64xf32>
    %tile = tensor.empty(%rows, %keys) : tensor<?x?xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%tile : tensor<?x?xf32>) -> tensor<?x?xf32>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %kt : tensor<?x64xf32>, tensor<?x64xf32>) outs(%zeros : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %acc: f32):
      %product = arith.mulf %x, %y : f32
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
      %c200 = arith.constant 200 : index
      %c100 = arith.constant 100 : index
      %from = arith.subi %i, %c200 : index
      %to = arith.addi %i, %c100 : index
      %above = arith.cmpi sge, %j, %from : index
      %below = arith.cmpi sle, %j, %to : index
      %seen = arith.andi %above, %below : i1
      %score = arith.select %seen, %scaled, %none : f32
      linalg.yield %score : f32
    } -> tensor<?x?xf32>
    %gt = tensor.extract_slice %grad[%i0, 0] [%rows, 64] [1, 1] : tensor<1000x64xf32> to tensor<?x64xf32>
    %lt = tensor.extract_slice %lse[%i0] [%rows] [1] : tensor<1000xf32> to tensor<?xf32>
    %dt = tensor.extract_slice %delta[%i0] [%rows] [1] : tensor<1000xf32> to tensor<?xf32>
    %dqt = tensor.extract_slice %dq[%i0, 0] [%rows, 64] [1, 1] : tensor<1000x64xf32> to tensor<?x64xf32>
    %next:3 = fa.softmax_grad ins(%scores, %products, %qt, %kt, %kt, %gt, %lt, %dt
        : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>, tensor<?xf32>, tensor<?xf32>)
        outs(%dqt, %dk, %dv : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) keep {
    ^bb0(%row: index, %column: index):
      fa.yield %true : i1
    } adjoint {
    ^bb0(%s: f32, %row: index, %column: index, %d: f32):
      fa.yield_adjoint %d : f32
    }
    %dq1 = tensor.insert_slice %next#0 into %dq[%i0, 0] [%rows, 64] [1, 1] : tensor<?x64xf32> into tensor<1000x64xf32>
    scf.yield %dq1, %next#1, %next#2 : tensor<1000x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<1000x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>
}

// What keys alone decide leaves blocks of keys without any row.
// CHECK: remark: {{.*}}split the loop over rows: {{.*}}(visited [(-1 < -%[[J:.*]] + 299 ? 0 : end), (-1 < -%[[J]] + 299 ? end : 0)), full
func.func @prefix(%q: tensor<1024x64xf32>, %k: tensor<1024x64xf32>, %grad: tensor<1024x64xf32>, %lse: tensor<1024xf32>, %delta: tensor<1024xf32>, %j0: index,
    %dq0: tensor<1024x64xf32>, %dk0: tensor<64x64xf32>, %dv0: tensor<64x64xf32>) -> (tensor<1024x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  %true = arith.constant true
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %kt = tensor.extract_slice %k[%j0, 0] [64, 64] [1, 1] : tensor<1024x64xf32> to tensor<64x64xf32>
  %r:3 = scf.for %i0 = %c0 to %c1024 step %c128 iter_args(%dq = %dq0, %dk = %dk0, %dv = %dv0) -> (tensor<1024x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
    %qt = tensor.extract_slice %q[%i0, 0] [128, 64] [1, 1] : tensor<1024x64xf32> to tensor<128x64xf32>
    %tile = tensor.empty() : tensor<128x64xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%tile : tensor<128x64xf32>) -> tensor<128x64xf32>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %kt : tensor<128x64xf32>, tensor<64x64xf32>) outs(%zeros : tensor<128x64xf32>) {
    ^bb0(%x: f32, %y: f32, %acc: f32):
      %product = arith.mulf %x, %y : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<128x64xf32>
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%products : tensor<128x64xf32>) outs(%tile : tensor<128x64xf32>) {
    ^bb0(%x: f32, %out: f32):
      %scaled = arith.mulf %x, %scale : f32
      %column = linalg.index 1 : index
      %j = affine.apply #plus(%j0)[%column]
      %c300 = arith.constant 300 : index
      %seen = arith.cmpi slt, %j, %c300 : index
      %score = arith.select %seen, %scaled, %none : f32
      linalg.yield %score : f32
    } -> tensor<128x64xf32>
    %gt = tensor.extract_slice %grad[%i0, 0] [128, 64] [1, 1] : tensor<1024x64xf32> to tensor<128x64xf32>
    %lt = tensor.extract_slice %lse[%i0] [128] [1] : tensor<1024xf32> to tensor<128xf32>
    %dt = tensor.extract_slice %delta[%i0] [128] [1] : tensor<1024xf32> to tensor<128xf32>
    %dqt = tensor.extract_slice %dq[%i0, 0] [128, 64] [1, 1] : tensor<1024x64xf32> to tensor<128x64xf32>
    %next:3 = fa.softmax_grad ins(%scores, %products, %qt, %kt, %kt, %gt, %lt, %dt
        : tensor<128x64xf32>, tensor<128x64xf32>, tensor<128x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<128x64xf32>, tensor<128xf32>, tensor<128xf32>)
        outs(%dqt, %dk, %dv : tensor<128x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) keep {
    ^bb0(%row: index, %column: index):
      fa.yield %true : i1
    } adjoint {
    ^bb0(%s: f32, %row: index, %column: index, %d: f32):
      fa.yield_adjoint %d : f32
    }
    %dq1 = tensor.insert_slice %next#0 into %dq[%i0, 0] [128, 64] [1, 1] : tensor<128x64xf32> into tensor<1024x64xf32>
    scf.yield %dq1, %next#1, %next#2 : tensor<1024x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<1024x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}
