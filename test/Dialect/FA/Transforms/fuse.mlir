// The inputs are the output of --fa-decompose --fa-online-softmax --fa-tile="rows=64 keys=32"
// --fa-interchange --fa-pad-tiles --fa-defer-normalization.
// RUN: fa-opt %s --fa-fuse | FileCheck %s

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#vec = affine_map<(i) -> (i)>
#plus = affine_map<(d0)[s0] -> (d0 + s0)>
#key_head = affine_map<(h) -> (h floordiv 4)>
#rows = affine_map<(i)[n] -> (n - i, 64)>
#keys = affine_map<(j)[n] -> (n - j, 32)>
#rest_rows = affine_map<()[n] -> (64 - n)>
#rest_keys = affine_map<()[n] -> (32 - n)>

// One grid over batch, head and row block; conversion and LSE are inside, and
// results are written clipped.
// CHECK-LABEL: func @causal_dynamic
// CHECK: scf.forall (%[[B:.*]], %[[H:.*]], %[[I0:.*]]) = (0, 0, 0) to (%{{.*}}, 8, %{{.*}}) step (1, 1, 64)
// CHECK: scf.for
// CHECK-NOT: scf.for
// CHECK: arith.truncf
// CHECK: math.log
// CHECK: scf.forall.in_parallel
// CHECK-NEXT: tensor.parallel_insert_slice %{{.*}} into %{{.*}}[%[[B]], %[[H]], %[[I0]], 0] [1, 1, %[[N:.*]], 64]
// CHECK-NEXT: tensor.parallel_insert_slice %{{.*}} into %{{.*}}[%[[B]], %[[H]], %[[I0]]] [1, 1, %[[N]]]
func.func @causal_dynamic(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %v: tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %zero16 = arith.constant 0.0 : bf16
  %B = tensor.dim %q, %c0 : tensor<?x8x?x64xbf16>
  %Sq = tensor.dim %q, %c2 : tensor<?x8x?x64xbf16>
  %e0 = tensor.empty(%B, %Sq) : tensor<?x8x?x64xbf16>
  %e1 = tensor.empty(%B, %Sq) : tensor<?x8x?xf32>
  %r:2 = scf.forall (%b, %h) in (%B, 8) shared_outs(%o_all = %e0, %lse_all = %e1) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>) {
    %kh = affine.apply #key_head(%h)
    %Sk = tensor.dim %k, %c2 : tensor<?x2x?x64xbf16>
    %vector = tensor.empty(%Sq) : tensor<?xf32>
    %matrix = tensor.empty(%Sq) : tensor<?x64xf32>
    %e2 = tensor.empty() : tensor<64xf32>
    %e3 = tensor.empty() : tensor<64x64xf32>
    %e4 = tensor.empty() : tensor<64x32xf32>
    %m0 = linalg.fill ins(%none : f32) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
    %l0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
    %o0 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<64x64xf32>) -> tensor<64x64xf32>
    %s0 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<64x32xf32>) -> tensor<64x32xf32>
    %rows_state:3 = scf.for %i0 = %c0 to %Sq step %c64 iter_args(%mr = %vector, %lr = %vector, %or = %matrix)
        -> (tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>) {
      %rows = affine.min #rows(%i0)[%Sq]
      %rows_rest = affine.apply #rest_rows()[%rows]
      %qs = tensor.extract_slice %q[%b, %h, %i0, 0] [1, 1, %rows, 64] [1, 1, 1, 1] : tensor<?x8x?x64xbf16> to tensor<?x64xbf16>
      %qt = tensor.pad %qs low[0, 0] high[%rows_rest, 0] {
      ^bb0(%row: index, %column: index):
        tensor.yield %zero16 : bf16
      } : tensor<?x64xbf16> to tensor<64x64xbf16>
      %state:3 = scf.for %j0 = %c0 to %Sk step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
        %keys = affine.min #keys(%j0)[%Sk]
        %keys_rest = affine.apply #rest_keys()[%keys]
        %ks = tensor.extract_slice %k[%b, %kh, %j0, 0] [1, 1, %keys, 64] [1, 1, 1, 1] : tensor<?x2x?x64xbf16> to tensor<?x64xbf16>
        %kt = tensor.pad %ks low[0, 0] high[%keys_rest, 0] {
        ^bb0(%row: index, %column: index):
          tensor.yield %zero16 : bf16
        } : tensor<?x64xbf16> to tensor<32x64xbf16>
        %vs = tensor.extract_slice %v[%b, %kh, %j0, 0] [1, 1, %keys, 64] [1, 1, 1, 1] : tensor<?x2x?x64xbf16> to tensor<?x64xbf16>
        %vt = tensor.pad %vs low[0, 0] high[%keys_rest, 0] {
        ^bb0(%row: index, %column: index):
          tensor.yield %zero16 : bf16
        } : tensor<?x64xbf16> to tensor<32x64xbf16>
        %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%qt, %kt : tensor<64x64xbf16>, tensor<32x64xbf16>) outs(%s0 : tensor<64x32xf32>) {
        ^bb0(%x: bf16, %y: bf16, %acc: f32):
          %x32 = arith.extf %x : bf16 to f32
          %y32 = arith.extf %y : bf16 to f32
          %product = arith.mulf %x32, %y32 : f32
          %sum = arith.addf %acc, %product : f32
          linalg.yield %sum : f32
        } -> tensor<64x32xf32>
        %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%products : tensor<64x32xf32>) outs(%e4 : tensor<64x32xf32>) {
        ^bb0(%x: f32, %out: f32):
          %scaled = arith.mulf %x, %scale : f32
          %row = linalg.index 0 : index
          %i = affine.apply #plus(%i0)[%row]
          %column = linalg.index 1 : index
          %j = affine.apply #plus(%j0)[%column]
          %seen = arith.cmpi sle, %j, %i : index
          %exists = arith.cmpi slt, %j, %Sk : index
          %both = arith.andi %seen, %exists : i1
          %score = arith.select %both, %scaled, %none : f32
          linalg.yield %score : f32
        } -> tensor<64x32xf32>
        %next:3 = fa.online_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x64xbf16>)
            outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {unnormalized}
        scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
      }
      %quotients = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
          ins(%state#2, %state#1 : tensor<64x64xf32>, tensor<64xf32>) outs(%e3 : tensor<64x64xf32>) {
      ^bb0(%x: f32, %y: f32, %out: f32):
        %empty = arith.cmpf oeq, %y, %zero : f32
        %quotient = arith.divf %x, %y : f32
        %value = arith.select %empty, %zero, %quotient : f32
        linalg.yield %value : f32
      } -> tensor<64x64xf32>
      %mt = tensor.extract_slice %state#0[0] [%rows] [1] : tensor<64xf32> to tensor<?xf32>
      %lt = tensor.extract_slice %state#1[0] [%rows] [1] : tensor<64xf32> to tensor<?xf32>
      %ot = tensor.extract_slice %quotients[0, 0] [%rows, 64] [1, 1] : tensor<64x64xf32> to tensor<?x64xf32>
      %m1 = tensor.insert_slice %mt into %mr[%i0] [%rows] [1] : tensor<?xf32> into tensor<?xf32>
      %l1 = tensor.insert_slice %lt into %lr[%i0] [%rows] [1] : tensor<?xf32> into tensor<?xf32>
      %o1 = tensor.insert_slice %ot into %or[%i0, 0] [%rows, 64] [1, 1] : tensor<?x64xf32> into tensor<?x64xf32>
      scf.yield %m1, %l1, %o1 : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>
    }
    %e5 = tensor.empty(%Sq) : tensor<?x64xbf16>
    %rounded_rows = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%rows_state#2 : tensor<?x64xf32>) outs(%e5 : tensor<?x64xbf16>) {
    ^bb0(%x: f32, %out: bf16):
      %rounded = arith.truncf %x : f32 to bf16
      linalg.yield %rounded : bf16
    } -> tensor<?x64xbf16>
    %lse = linalg.generic {indexing_maps = [#vec, #vec, #vec], iterator_types = ["parallel"]}
        ins(%rows_state#0, %rows_state#1 : tensor<?xf32>, tensor<?xf32>) outs(%vector : tensor<?xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %log = math.log %y : f32
      %sum = arith.addf %x, %log : f32
      linalg.yield %sum : f32
    } -> tensor<?xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %rounded_rows into %o_all[%b, %h, 0, 0] [1, 1, %Sq, 64] [1, 1, 1, 1] : tensor<?x64xbf16> into tensor<?x8x?x64xbf16>
      tensor.parallel_insert_slice %lse into %lse_all[%b, %h, 0] [1, 1, %Sq] [1, 1, 1] : tensor<?xf32> into tensor<?x8x?xf32>
    }
  }
  return %r#0, %r#1 : tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>
}

// What a score computes of the head alone is computed once for a row block.
// CHECK-LABEL: func.func @slopes(
// CHECK-SAME: %[[SLOPES:[^:]*]]: tensor<?xf32>)
// CHECK: scf.forall (%{{.*}}, %[[H:.*]], %{{.*}})
// CHECK: tensor.extract %[[SLOPES]]
// CHECK: scf.for
// CHECK-NOT: tensor.extract %
// CHECK: scf.forall.in_parallel
func.func @slopes(%q: tensor<1x2x128x64xf32>, %slopes: tensor<?xf32>) -> tensor<1x2x128x64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %heads = tensor.dim %slopes, %c0 : tensor<?xf32>
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<1x2x128x64xf32>
  %r = scf.forall (%b, %h) in (1, 2) shared_outs(%o_all = %e0) -> (tensor<1x2x128x64xf32>) {
    %vector = tensor.empty() : tensor<128xf32>
    %matrix = tensor.empty() : tensor<128x64xf32>
    %e2 = tensor.empty() : tensor<64xf32>
    %e3 = tensor.empty() : tensor<64x64xf32>
    %e4 = tensor.empty() : tensor<64x32xf32>
    %m0 = linalg.fill ins(%none : f32) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
    %l0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
    %o0 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<64x64xf32>) -> tensor<64x64xf32>
    %s0 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<64x32xf32>) -> tensor<64x32xf32>
    %rows_state:3 = scf.for %i0 = %c0 to %c128 step %c64 iter_args(%mr = %vector, %lr = %vector, %or = %matrix)
        -> (tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>) {
      %qt = tensor.extract_slice %q[%b, %h, %i0, 0] [1, 1, 64, 64] [1, 1, 1, 1] : tensor<1x2x128x64xf32> to tensor<64x64xf32>
      %state:3 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
        %kt = tensor.extract_slice %q[%b, %h, %j0, 0] [1, 1, 32, 64] [1, 1, 1, 1] : tensor<1x2x128x64xf32> to tensor<32x64xf32>
        %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%qt, %kt : tensor<64x64xf32>, tensor<32x64xf32>) outs(%s0 : tensor<64x32xf32>) {
        ^bb0(%x: f32, %y: f32, %acc: f32):
          %product = arith.mulf %x, %y : f32
          %sum = arith.addf %acc, %product : f32
          linalg.yield %sum : f32
        } -> tensor<64x32xf32>
        %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%products : tensor<64x32xf32>) outs(%e4 : tensor<64x32xf32>) {
        ^bb0(%x: f32, %out: f32):
          %scaled = arith.mulf %x, %scale : f32
          %row = linalg.index 0 : index
          %i = affine.apply #plus(%i0)[%row]
          %column = linalg.index 1 : index
          %j = affine.apply #plus(%j0)[%column]
          %last = arith.subi %heads, %c1 : index
          %h_low = arith.minsi %h, %last : index
          %h_in = arith.maxsi %h_low, %c0 : index
          %slope = tensor.extract %slopes[%h_in] : tensor<?xf32>
          %d = arith.subi %j, %i : index
          %n = arith.index_cast %d : index to i32
          %f = arith.sitofp %n : i32 to f32
          %bias = arith.mulf %slope, %f : f32
          %score = arith.addf %scaled, %bias : f32
          linalg.yield %score : f32
        } -> tensor<64x32xf32>
        %next:3 = fa.online_softmax ins(%scores, %kt : tensor<64x32xf32>, tensor<32x64xf32>)
            outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {unnormalized}
        scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
      }
      %quotients = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
          ins(%state#2, %state#1 : tensor<64x64xf32>, tensor<64xf32>) outs(%e3 : tensor<64x64xf32>) {
      ^bb0(%x: f32, %y: f32, %out: f32):
        %empty = arith.cmpf oeq, %y, %zero : f32
        %quotient = arith.divf %x, %y : f32
        %value = arith.select %empty, %zero, %quotient : f32
        linalg.yield %value : f32
      } -> tensor<64x64xf32>
      %m1 = tensor.insert_slice %state#0 into %mr[%i0] [64] [1] : tensor<64xf32> into tensor<128xf32>
      %l1 = tensor.insert_slice %state#1 into %lr[%i0] [64] [1] : tensor<64xf32> into tensor<128xf32>
      %o1 = tensor.insert_slice %quotients into %or[%i0, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<128x64xf32>
      scf.yield %m1, %l1, %o1 : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %rows_state#2 into %o_all[%b, %h, 0, 0] [1, 1, 128, 64] [1, 1, 1, 1] : tensor<128x64xf32> into tensor<1x2x128x64xf32>
    }
  }
  return %r : tensor<1x2x128x64xf32>
}

// So is what decides which weights are kept: the seed.
// CHECK-LABEL: func.func @seed(
// CHECK-SAME: %[[SEED:[^:]*]]: tensor<i64>)
// CHECK: scf.forall
// CHECK: tensor.extract %[[SEED]]
// CHECK: scf.for
// CHECK-NOT: tensor.extract %
// CHECK: scf.forall.in_parallel
func.func @seed(%q: tensor<1x2x128x64xf32>, %seed: tensor<i64>) -> tensor<1x2x128x64xf32> {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %limit = arith.constant 26 : i8
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<1x2x128x64xf32>
  %r = scf.forall (%b, %h) in (1, 2) shared_outs(%o_all = %e0) -> (tensor<1x2x128x64xf32>) {
    %vector = tensor.empty() : tensor<128xf32>
    %matrix = tensor.empty() : tensor<128x64xf32>
    %e2 = tensor.empty() : tensor<64xf32>
    %e3 = tensor.empty() : tensor<64x64xf32>
    %e4 = tensor.empty() : tensor<64x32xf32>
    %m0 = linalg.fill ins(%none : f32) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
    %l0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
    %o0 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<64x64xf32>) -> tensor<64x64xf32>
    %s0 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<64x32xf32>) -> tensor<64x32xf32>
    %rows_state:3 = scf.for %i0 = %c0 to %c128 step %c64 iter_args(%mr = %vector, %lr = %vector, %or = %matrix)
        -> (tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>) {
      %qt = tensor.extract_slice %q[%b, %h, %i0, 0] [1, 1, 64, 64] [1, 1, 1, 1] : tensor<1x2x128x64xf32> to tensor<64x64xf32>
      %state:3 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
        %kt = tensor.extract_slice %q[%b, %h, %j0, 0] [1, 1, 32, 64] [1, 1, 1, 1] : tensor<1x2x128x64xf32> to tensor<32x64xf32>
        %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%qt, %kt : tensor<64x64xf32>, tensor<32x64xf32>) outs(%s0 : tensor<64x32xf32>) {
        ^bb0(%x: f32, %y: f32, %acc: f32):
          %product = arith.mulf %x, %y : f32
          %sum = arith.addf %acc, %product : f32
          linalg.yield %sum : f32
        } -> tensor<64x32xf32>
        %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%products : tensor<64x32xf32>) outs(%e4 : tensor<64x32xf32>) {
        ^bb0(%x: f32, %out: f32):
          %score = arith.mulf %x, %scale : f32
          linalg.yield %score : f32
        } -> tensor<64x32xf32>
        %next:3 = fa.online_softmax ins(%scores, %kt : tensor<64x32xf32>, tensor<32x64xf32>)
            outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) keep {
        ^bb0(%row: index, %column: index):
          %i = arith.addi %row, %i0 : index
          %j = arith.addi %column, %j0 : index
          %s = tensor.extract %seed[] : tensor<i64>
          %bits = fa.random_bits %s at [%b, %h, %i, %j] tile [64, 32]
          %kept = arith.cmpi uge, %bits, %limit : i8
          fa.yield %kept : i1
        } {unnormalized}
        scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
      }
      %quotients = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
          ins(%state#2, %state#1 : tensor<64x64xf32>, tensor<64xf32>) outs(%e3 : tensor<64x64xf32>) {
      ^bb0(%x: f32, %y: f32, %out: f32):
        %empty = arith.cmpf oeq, %y, %zero : f32
        %quotient = arith.divf %x, %y : f32
        %value = arith.select %empty, %zero, %quotient : f32
        linalg.yield %value : f32
      } -> tensor<64x64xf32>
      %m1 = tensor.insert_slice %state#0 into %mr[%i0] [64] [1] : tensor<64xf32> into tensor<128xf32>
      %l1 = tensor.insert_slice %state#1 into %lr[%i0] [64] [1] : tensor<64xf32> into tensor<128xf32>
      %o1 = tensor.insert_slice %quotients into %or[%i0, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<128x64xf32>
      scf.yield %m1, %l1, %o1 : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %rows_state#2 into %o_all[%b, %h, 0, 0] [1, 1, 128, 64] [1, 1, 1, 1] : tensor<128x64xf32> into tensor<1x2x128x64xf32>
    }
  }
  return %r : tensor<1x2x128x64xf32>
}
