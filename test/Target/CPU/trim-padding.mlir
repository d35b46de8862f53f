// RUN: fa-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(fa-cpu-trim-padding))" | FileCheck %s

#rows = affine_map<(d0)[s0] -> (-d0 + s0, 16)>
#rest = affine_map<()[s0] -> (-s0 + 16)>
#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// Rows of a tile of queries: what a loop carries, what conditions choose and
// what is only started from an empty tensor are as many as there are, and the
// size is known before all of them. Keys that a maximum reduces stay padded.
// CHECK-LABEL: func.func @rows
// CHECK: scf.forall
// CHECK-NEXT: %[[N:.*]] = affine.min
// CHECK: %[[M:.*]] = linalg.fill {{.*}} -> tensor<?xf32>
// CHECK: tensor.pad {{.*}} low[0, 0] high[{{.*}}, 0]
// CHECK: to tensor<32x64xf32>
// CHECK-NOT: tensor.pad
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %[[M]]) -> (tensor<?xf32>)
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<?x64xf32>, tensor<32x64xf32>) outs(%{{.*}} : tensor<?x32xf32>)
// CHECK: scf.if {{.*}} -> (tensor<?x32xf32>)
// CHECK: tensor.empty(%[[N]]) : tensor<?x32xf32>
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<?xf32>)
// CHECK: tensor.extract_slice %{{.*}}[0] [%[[N]]] [1] : tensor<?xf32> to tensor<?xf32>
func.func @rows(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %out: tensor<?xf32>, %c: i1) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant 0.0 : f32
  %minf = arith.constant 0xFF800000 : f32
  %n = tensor.dim %q, %c0 : tensor<?x64xf32>
  %keys = tensor.dim %k, %c0 : tensor<?x64xf32>
  %r = scf.forall (%i) = (0) to (%n) step (16) shared_outs(%o = %out) -> (tensor<?xf32>) {
    %em = tensor.empty() : tensor<16xf32>
    %m = linalg.fill ins(%minf : f32) outs(%em : tensor<16xf32>) -> tensor<16xf32>
    %es = tensor.empty() : tensor<16x32xf32>
    %s0 = linalg.fill ins(%zero : f32) outs(%es : tensor<16x32xf32>) -> tensor<16x32xf32>
    %size = affine.min #rows(%i)[%n]
    %x = tensor.extract_slice %q[%i, 0] [%size, 64] [1, 1] : tensor<?x64xf32> to tensor<?x64xf32>
    %high = affine.apply #rest()[%size]
    %p = tensor.pad %x low[0, 0] high[%high, 0] {
    ^bb0(%a: index, %b: index):
      tensor.yield %zero : f32
    } : tensor<?x64xf32> to tensor<16x64xf32>
    %y = tensor.extract_slice %k[0, 0] [%keys, 64] [1, 1] : tensor<?x64xf32> to tensor<?x64xf32>
    %more = affine.apply affine_map<()[s0] -> (-s0 + 32)>()[%keys]
    %pk = tensor.pad %y low[0, 0] high[%more, 0] {
    ^bb0(%a: index, %b: index):
      tensor.yield %zero : f32
    } : tensor<?x64xf32> to tensor<32x64xf32>
    %l = scf.for %j = %c0 to %keys step %c32 iter_args(%carried = %m) -> (tensor<16xf32>) {
      %s = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%p, %pk : tensor<16x64xf32>, tensor<32x64xf32>) outs(%s0 : tensor<16x32xf32>) {
      ^bb0(%a: f32, %b: f32, %d: f32):
        %ab = arith.mulf %a, %b : f32
        %sum = arith.addf %d, %ab : f32
        linalg.yield %sum : f32
      } -> tensor<16x32xf32>
      %t = scf.if %c -> (tensor<16x32xf32>) {
        scf.yield %s : tensor<16x32xf32>
      } else {
        %neg = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%s : tensor<16x32xf32>) outs(%es : tensor<16x32xf32>) {
        ^bb0(%a: f32, %d: f32):
          %na = arith.negf %a : f32
          linalg.yield %na : f32
        } -> tensor<16x32xf32>
        scf.yield %neg : tensor<16x32xf32>
      }
      %max = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%t : tensor<16x32xf32>) outs(%carried : tensor<16xf32>) {
      ^bb0(%a: f32, %d: f32):
        %most = arith.maxnumf %a, %d : f32
        linalg.yield %most : f32
      } -> tensor<16xf32>
      scf.yield %max : tensor<16xf32>
    }
    %valid = tensor.extract_slice %l[0] [%size] [1] : tensor<16xf32> to tensor<?xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %valid into %o[%i] [%size] [1] : tensor<?xf32> into tensor<?xf32>
    }
  }
  return %r : tensor<?xf32>
}

// -----

// A length that is known.
// CHECK-LABEL: func.func @static
// CHECK-NOT: tensor.pad
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<5x8xf32>) outs(%{{.*}} : tensor<5x8xf32>)
func.func @static(%x: tensor<1x5x8xf32>) -> tensor<5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %s = tensor.extract_slice %x[0, 0, 0] [1, 5, 8] [1, 1, 1] : tensor<1x5x8xf32> to tensor<5x8xf32>
  %p = tensor.pad %s low[0, 0] high[3, 0] {
  ^bb0(%a: index, %b: index):
    tensor.yield %zero : f32
  } : tensor<5x8xf32> to tensor<8x8xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %d: f32):
    %b = arith.addf %a, %a : f32
    linalg.yield %b : f32
  } -> tensor<8x8xf32>
  %r = tensor.extract_slice %y[0, 0] [5, 8] [1, 1] : tensor<8x8xf32> to tensor<5x8xf32>
  return %r : tensor<5x8xf32>
}

// -----

// Padding that leaves the tile, or meets a value from elsewhere, is needed.
// CHECK-LABEL: func.func @needed
// CHECK-COUNT-2: tensor.pad
func.func @needed(%x: tensor<?xf32>, %y: tensor<8xf32>, %n: index) -> (tensor<8xf32>, tensor<?xf32>) {
  %zero = arith.constant 0.0 : f32
  %high = affine.apply affine_map<()[s0] -> (-s0 + 8)>()[%n]
  %s = tensor.extract_slice %x[0] [%n] [1] : tensor<?xf32> to tensor<?xf32>
  %p = tensor.pad %s low[0] high[%high] {
  ^bb0(%a: index):
    tensor.yield %zero : f32
  } : tensor<?xf32> to tensor<8xf32>
  %q = tensor.pad %s low[0] high[%high] {
  ^bb0(%a: index):
    tensor.yield %zero : f32
  } : tensor<?xf32> to tensor<8xf32>
  %e = tensor.empty() : tensor<8xf32>
  %z = linalg.add ins(%q, %y : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %r = tensor.extract_slice %z[0] [%n] [1] : tensor<8xf32> to tensor<?xf32>
  return %p, %r : tensor<8xf32>, tensor<?xf32>
}
