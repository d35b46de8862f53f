// Which blocks may add to the same elements, and what sums they get. The inputs are the grid of
// a gradient without its products, as --fa-pipeline="target=sm_80 backward=all rows=64 keys=128"
// makes it.
// RUN: fa-opt %s --fa-order-sums | FileCheck %s

#head = affine_map<(h, n) -> (h * 2 + n)>
#first = affine_map<(h) -> (h * 2)>

// Gradients of queries: a block of keys waits for the one before it. A slope is
// each head's: blocks of a head have 16 partial sums, by batch entry.
// CHECK-LABEL: func.func @slopes(
// CHECK-DAG: tensor.empty({{.*}}) : tensor<?x16x?xf32>
// CHECK: fa.accumulate %{{.*}} into %{{.*}} at {
// CHECK: fa.yield_places %{{.*}}, %{{.*}}, %{{.*}}
// CHECK: } {ordered = 16 : i64} : tensor<128x64xf32> into tensor<?x16x?xf32>
// CHECK: fa.accumulate_slice {{.*}} {ordered = 1 : i64}
// CHECK: scf.forall (%{{.*}}) = (0) to (%{{.*}}) step (256)
// CHECK: linalg.reduce {{.*}} dimensions = [0, 1]
func.func @slopes(%rows: tensor<?x4x?x64xf32>, %captured: tensor<?xf32>, %terms: tensor<128x64xf32>, %part: tensor<64x64xf32>) -> (tensor<?x4x?x64xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %B = tensor.dim %rows, %c0 : tensor<?x4x?x64xf32>
  %S = tensor.dim %rows, %c2 : tensor<?x4x?x64xf32>
  %n0 = tensor.dim %captured, %c0 : tensor<?xf32>
  %e0 = tensor.empty(%B, %S) : tensor<?x4x?x64xf32>
  %e1 = tensor.empty(%n0) : tensor<?xf32>
  %dq0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?x4x?x64xf32>) -> tensor<?x4x?x64xf32>
  %g0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %r:2 = scf.forall (%b, %h, %j0) = (0, 0, 0) to (%B, 4, %S) step (1, 1, 128) shared_outs(%dq_all = %dq0, %g_all = %g0) -> (tensor<?x4x?x64xf32>, tensor<?xf32>) {
    %dq_head = tensor.extract_slice %dq_all[%b, %h, 0, 0] [1, 1, %S, 64] [1, 1, 1, 1] : tensor<?x4x?x64xf32> to tensor<?x64xf32>
    %sums:2 = scf.for %i0 = %c0 to %S step %c64 iter_args(%dq = %dq_head, %g = %g_all) -> (tensor<?x64xf32>, tensor<?xf32>) {
      %g1 = fa.accumulate %terms into %g at {
      ^bb0(%column: index, %row: index):
        %at0_last = arith.subi %n0, %c1 : index
        %at0_low = arith.minsi %h, %at0_last : index
        %at0 = arith.maxsi %at0_low, %c0 : index
        fa.yield_places %at0
      } : tensor<128x64xf32> into tensor<?xf32>
      %dq1 = fa.accumulate_slice %part into %dq[%i0, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<?x64xf32>
      scf.yield %dq1, %g1 : tensor<?x64xf32>, tensor<?xf32>
    }
    %dq2 = tensor.insert_slice %sums#0 into %dq_all[%b, %h, 0, 0] [1, 1, %S, 64] [1, 1, 1, 1] : tensor<?x64xf32> into tensor<?x4x?x64xf32>
    scf.forall.in_parallel {
      fa.parallel_accumulate %dq2 into %dq_all : tensor<?x4x?x64xf32>
      fa.parallel_accumulate %sums#1 into %g_all : tensor<?xf32>
    }
  }
  return %r#0, %r#1 : tensor<?x4x?x64xf32>, tensor<?xf32>
}

// No two blocks meet: one sum, also where two query heads share a key head.
// CHECK-LABEL: func.func @bias(
// CHECK-NOT: linalg.reduce
// CHECK: } {ordered = 0 : i64} : tensor<128x64xf32> into tensor<?x?x?x?xf32>
// CHECK-NOT: linalg.reduce
// CHECK: return
func.func @bias(%rows: tensor<?x4x?x64xf32>, %captured: tensor<?x?x?x?xf32>, %terms: tensor<128x64xf32>, %part: tensor<64x64xf32>) -> (tensor<?x4x?x64xf32>, tensor<?x?x?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %B = tensor.dim %rows, %c0 : tensor<?x4x?x64xf32>
  %S = tensor.dim %rows, %c2 : tensor<?x4x?x64xf32>
  %n0 = tensor.dim %captured, %c0 : tensor<?x?x?x?xf32>
  %n1 = tensor.dim %captured, %c1 : tensor<?x?x?x?xf32>
  %n2 = tensor.dim %captured, %c2 : tensor<?x?x?x?xf32>
  %n3 = tensor.dim %captured, %c3 : tensor<?x?x?x?xf32>
  %e0 = tensor.empty(%B, %S) : tensor<?x4x?x64xf32>
  %e1 = tensor.empty(%n0, %n1, %n2, %n3) : tensor<?x?x?x?xf32>
  %dq0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?x4x?x64xf32>) -> tensor<?x4x?x64xf32>
  %g0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?x?x?x?xf32>) -> tensor<?x?x?x?xf32>
  %r:2 = scf.forall (%b, %h, %j0) = (0, 0, 0) to (%B, 2, %S) step (1, 1, 128) shared_outs(%dq_all = %dq0, %g_all = %g0) -> (tensor<?x4x?x64xf32>, tensor<?x?x?x?xf32>) {
    %first = affine.apply #first(%h)
    %dq_group = tensor.extract_slice %dq_all[%b, %first, 0, 0] [1, 2, %S, 64] [1, 1, 1, 1] : tensor<?x4x?x64xf32> to tensor<2x?x64xf32>
    %heads:2 = scf.for %n = %c0 to %c2 step %c1 iter_args(%dq_heads = %dq_group, %g_heads = %g_all) -> (tensor<2x?x64xf32>, tensor<?x?x?x?xf32>) {
      %hq = affine.apply #head(%h, %n)
      %dq_head = tensor.extract_slice %dq_heads[%n, 0, 0] [1, %S, 64] [1, 1, 1] : tensor<2x?x64xf32> to tensor<?x64xf32>
      %sums:2 = scf.for %i0 = %c0 to %S step %c64 iter_args(%dq = %dq_head, %g = %g_heads) -> (tensor<?x64xf32>, tensor<?x?x?x?xf32>) {
        %g1 = fa.accumulate %terms into %g at {
        ^bb0(%column: index, %row: index):
          %i = arith.addi %row, %i0 : index
          %j = arith.addi %column, %j0 : index
          %at0_last = arith.subi %n0, %c1 : index
          %at0_low = arith.minsi %b, %at0_last : index
          %at0 = arith.maxsi %at0_low, %c0 : index
          %at1_last = arith.subi %n1, %c1 : index
          %at1_low = arith.minsi %hq, %at1_last : index
          %at1 = arith.maxsi %at1_low, %c0 : index
          %at2_last = arith.subi %n2, %c1 : index
          %at2_low = arith.minsi %i, %at2_last : index
          %at2 = arith.maxsi %at2_low, %c0 : index
          %at3_last = arith.subi %n3, %c1 : index
          %at3_low = arith.minsi %j, %at3_last : index
          %at3 = arith.maxsi %at3_low, %c0 : index
          fa.yield_places %at0, %at1, %at2, %at3
        } : tensor<128x64xf32> into tensor<?x?x?x?xf32>
        %dq1 = fa.accumulate_slice %part into %dq[%i0, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<?x64xf32>
        scf.yield %dq1, %g1 : tensor<?x64xf32>, tensor<?x?x?x?xf32>
      }
      %dq2 = tensor.insert_slice %sums#0 into %dq_heads[%n, 0, 0] [1, %S, 64] [1, 1, 1] : tensor<?x64xf32> into tensor<2x?x64xf32>
      scf.yield %dq2, %sums#1 : tensor<2x?x64xf32>, tensor<?x?x?x?xf32>
    }
    %dq3 = tensor.insert_slice %heads#0 into %dq_all[%b, %first, 0, 0] [1, 2, %S, 64] [1, 1, 1, 1] : tensor<2x?x64xf32> into tensor<?x4x?x64xf32>
    scf.forall.in_parallel {
      fa.parallel_accumulate %dq3 into %dq_all : tensor<?x4x?x64xf32>
      fa.parallel_accumulate %heads#1 into %g_all : tensor<?x?x?x?xf32>
    }
  }
  return %r#0, %r#1 : tensor<?x4x?x64xf32>, tensor<?x?x?x?xf32>
}

// Of a bias that heads share, those of each batch entry and key head are apart.
// CHECK-LABEL: func.func @shared_bias(
// CHECK: } {ordered = 0 : i64} : tensor<128x64xf32> into tensor<?x2x?x?xf32>
// CHECK: linalg.reduce {{.*}} dimensions = [0, 1, 2]
func.func @shared_bias(%rows: tensor<?x4x?x64xf32>, %captured: tensor<?x?xf32>, %terms: tensor<128x64xf32>, %part: tensor<64x64xf32>) -> (tensor<?x4x?x64xf32>, tensor<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %B = tensor.dim %rows, %c0 : tensor<?x4x?x64xf32>
  %S = tensor.dim %rows, %c2 : tensor<?x4x?x64xf32>
  %n0 = tensor.dim %captured, %c0 : tensor<?x?xf32>
  %n1 = tensor.dim %captured, %c1 : tensor<?x?xf32>
  %e0 = tensor.empty(%B, %S) : tensor<?x4x?x64xf32>
  %e1 = tensor.empty(%n0, %n1) : tensor<?x?xf32>
  %dq0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?x4x?x64xf32>) -> tensor<?x4x?x64xf32>
  %g0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %r:2 = scf.forall (%b, %h, %j0) = (0, 0, 0) to (%B, 2, %S) step (1, 1, 128) shared_outs(%dq_all = %dq0, %g_all = %g0) -> (tensor<?x4x?x64xf32>, tensor<?x?xf32>) {
    %first = affine.apply #first(%h)
    %dq_group = tensor.extract_slice %dq_all[%b, %first, 0, 0] [1, 2, %S, 64] [1, 1, 1, 1] : tensor<?x4x?x64xf32> to tensor<2x?x64xf32>
    %heads:2 = scf.for %n = %c0 to %c2 step %c1 iter_args(%dq_heads = %dq_group, %g_heads = %g_all) -> (tensor<2x?x64xf32>, tensor<?x?xf32>) {
      %hq = affine.apply #head(%h, %n)
      %dq_head = tensor.extract_slice %dq_heads[%n, 0, 0] [1, %S, 64] [1, 1, 1] : tensor<2x?x64xf32> to tensor<?x64xf32>
      %sums:2 = scf.for %i0 = %c0 to %S step %c64 iter_args(%dq = %dq_head, %g = %g_heads) -> (tensor<?x64xf32>, tensor<?x?xf32>) {
        %g1 = fa.accumulate %terms into %g at {
        ^bb0(%column: index, %row: index):
          %i = arith.addi %row, %i0 : index
          %j = arith.addi %column, %j0 : index
          %at0_last = arith.subi %n0, %c1 : index
          %at0_low = arith.minsi %i, %at0_last : index
          %at0 = arith.maxsi %at0_low, %c0 : index
          %at1_last = arith.subi %n1, %c1 : index
          %at1_low = arith.minsi %j, %at1_last : index
          %at1 = arith.maxsi %at1_low, %c0 : index
          fa.yield_places %at0, %at1
        } : tensor<128x64xf32> into tensor<?x?xf32>
        %dq1 = fa.accumulate_slice %part into %dq[%i0, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<?x64xf32>
        scf.yield %dq1, %g1 : tensor<?x64xf32>, tensor<?x?xf32>
      }
      %dq2 = tensor.insert_slice %sums#0 into %dq_heads[%n, 0, 0] [1, %S, 64] [1, 1, 1] : tensor<?x64xf32> into tensor<2x?x64xf32>
      scf.yield %dq2, %sums#1 : tensor<2x?x64xf32>, tensor<?x?xf32>
    }
    %dq3 = tensor.insert_slice %heads#0 into %dq_all[%b, %first, 0, 0] [1, 2, %S, 64] [1, 1, 1, 1] : tensor<2x?x64xf32> into tensor<?x4x?x64xf32>
    scf.forall.in_parallel {
      fa.parallel_accumulate %dq3 into %dq_all : tensor<?x4x?x64xf32>
      fa.parallel_accumulate %heads#1 into %g_all : tensor<?x?xf32>
    }
  }
  return %r#0, %r#1 : tensor<?x4x?x64xf32>, tensor<?x?xf32>
}

// A clamp of the user's takes several keys, of several blocks, to one place.
// CHECK-LABEL: func.func @clamped(
// CHECK: } {ordered = 16 : i64} : tensor<128x64xf32> into tensor<4x16x?x?xf32>
func.func @clamped(%rows: tensor<?x4x?x64xf32>, %captured: tensor<?x?xf32>, %terms: tensor<128x64xf32>, %part: tensor<64x64xf32>) -> (tensor<?x4x?x64xf32>, tensor<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c64 = arith.constant 64 : index
  %most = arith.constant 1000 : index
  %zero = arith.constant 0.0 : f32
  %B = tensor.dim %rows, %c0 : tensor<?x4x?x64xf32>
  %S = tensor.dim %rows, %c2 : tensor<?x4x?x64xf32>
  %n0 = tensor.dim %captured, %c0 : tensor<?x?xf32>
  %n1 = tensor.dim %captured, %c1 : tensor<?x?xf32>
  %e0 = tensor.empty(%B, %S) : tensor<?x4x?x64xf32>
  %e1 = tensor.empty(%n0, %n1) : tensor<?x?xf32>
  %dq0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?x4x?x64xf32>) -> tensor<?x4x?x64xf32>
  %g0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %r:2 = scf.forall (%b, %h, %j0) = (0, 0, 0) to (%B, 4, %S) step (1, 1, 128) shared_outs(%dq_all = %dq0, %g_all = %g0) -> (tensor<?x4x?x64xf32>, tensor<?x?xf32>) {
    %dq_head = tensor.extract_slice %dq_all[%b, %h, 0, 0] [1, 1, %S, 64] [1, 1, 1, 1] : tensor<?x4x?x64xf32> to tensor<?x64xf32>
    %sums:2 = scf.for %i0 = %c0 to %S step %c64 iter_args(%dq = %dq_head, %g = %g_all) -> (tensor<?x64xf32>, tensor<?x?xf32>) {
      %g1 = fa.accumulate %terms into %g at {
      ^bb0(%column: index, %row: index):
        %j = arith.addi %column, %j0 : index
        %least = arith.minsi %j, %most : index
        %at0_last = arith.subi %n0, %c1 : index
        %at0_low = arith.minsi %b, %at0_last : index
        %at0 = arith.maxsi %at0_low, %c0 : index
        %at1_last = arith.subi %n1, %c1 : index
        %at1_low = arith.minsi %least, %at1_last : index
        %at1 = arith.maxsi %at1_low, %c0 : index
        fa.yield_places %at0, %at1
      } : tensor<128x64xf32> into tensor<?x?xf32>
      %dq1 = fa.accumulate_slice %part into %dq[%i0, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<?x64xf32>
      scf.yield %dq1, %g1 : tensor<?x64xf32>, tensor<?x?xf32>
    }
    %dq2 = tensor.insert_slice %sums#0 into %dq_all[%b, %h, 0, 0] [1, 1, %S, 64] [1, 1, 1, 1] : tensor<?x64xf32> into tensor<?x4x?x64xf32>
    scf.forall.in_parallel {
      fa.parallel_accumulate %dq2 into %dq_all : tensor<?x4x?x64xf32>
      fa.parallel_accumulate %sums#1 into %g_all : tensor<?x?xf32>
    }
  }
  return %r#0, %r#1 : tensor<?x4x?x64xf32>, tensor<?x?xf32>
}

// What is read twice may meet anywhere.
// CHECK-LABEL: func.func @twice(
// CHECK-COUNT-2: } {ordered = 16 : i64} : tensor<128x64xf32> into tensor<?x4x16x?x?xf32>
// CHECK: linalg.reduce {{.*}} dimensions = [0, 1, 2, 3]
func.func @twice(%rows: tensor<?x4x?x64xf32>, %captured: tensor<?x?xf32>, %terms: tensor<128x64xf32>, %part: tensor<64x64xf32>) -> (tensor<?x4x?x64xf32>, tensor<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %B = tensor.dim %rows, %c0 : tensor<?x4x?x64xf32>
  %S = tensor.dim %rows, %c2 : tensor<?x4x?x64xf32>
  %n0 = tensor.dim %captured, %c0 : tensor<?x?xf32>
  %n1 = tensor.dim %captured, %c1 : tensor<?x?xf32>
  %e0 = tensor.empty(%B, %S) : tensor<?x4x?x64xf32>
  %e1 = tensor.empty(%n0, %n1) : tensor<?x?xf32>
  %dq0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?x4x?x64xf32>) -> tensor<?x4x?x64xf32>
  %g0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %r:2 = scf.forall (%b, %h, %j0) = (0, 0, 0) to (%B, 4, %S) step (1, 1, 128) shared_outs(%dq_all = %dq0, %g_all = %g0) -> (tensor<?x4x?x64xf32>, tensor<?x?xf32>) {
    %dq_head = tensor.extract_slice %dq_all[%b, %h, 0, 0] [1, 1, %S, 64] [1, 1, 1, 1] : tensor<?x4x?x64xf32> to tensor<?x64xf32>
    %sums:2 = scf.for %i0 = %c0 to %S step %c64 iter_args(%dq = %dq_head, %g = %g_all) -> (tensor<?x64xf32>, tensor<?x?xf32>) {
      %g1 = fa.accumulate %terms into %g at {
      ^bb0(%column: index, %row: index):
        %i = arith.addi %row, %i0 : index
        %j = arith.addi %column, %j0 : index
        %at0_last = arith.subi %n0, %c1 : index
        %at0_low = arith.minsi %i, %at0_last : index
        %at0 = arith.maxsi %at0_low, %c0 : index
        %at1_last = arith.subi %n1, %c1 : index
        %at1_low = arith.minsi %j, %at1_last : index
        %at1 = arith.maxsi %at1_low, %c0 : index
        fa.yield_places %at0, %at1
      } : tensor<128x64xf32> into tensor<?x?xf32>
      %g2 = fa.accumulate %terms into %g1 at {
      ^bb0(%column: index, %row: index):
        %i = arith.addi %row, %i0 : index
        %j = arith.addi %column, %j0 : index
        %at0_last = arith.subi %n0, %c1 : index
        %at0_low = arith.minsi %j, %at0_last : index
        %at0 = arith.maxsi %at0_low, %c0 : index
        %at1_last = arith.subi %n1, %c1 : index
        %at1_low = arith.minsi %i, %at1_last : index
        %at1 = arith.maxsi %at1_low, %c0 : index
        fa.yield_places %at0, %at1
      } : tensor<128x64xf32> into tensor<?x?xf32>
      %dq1 = fa.accumulate_slice %part into %dq[%i0, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<?x64xf32>
      scf.yield %dq1, %g2 : tensor<?x64xf32>, tensor<?x?xf32>
    }
    %dq2 = tensor.insert_slice %sums#0 into %dq_all[%b, %h, 0, 0] [1, 1, %S, 64] [1, 1, 1, 1] : tensor<?x64xf32> into tensor<?x4x?x64xf32>
    scf.forall.in_parallel {
      fa.parallel_accumulate %dq2 into %dq_all : tensor<?x4x?x64xf32>
      fa.parallel_accumulate %sums#1 into %g_all : tensor<?x?xf32>
    }
  }
  return %r#0, %r#1 : tensor<?x4x?x64xf32>, tensor<?x?xf32>
}
