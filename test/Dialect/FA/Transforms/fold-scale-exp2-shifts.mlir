// What a gradient's exponentials are less by, the rows' log-sum-exp, is
// multiplied where a grid makes it, if nothing else reads it: once, and not in
// each block of keys.
// RUN: fa-opt %s --fa-fold-scale-exp2 --split-input-file | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>

// CHECK-LABEL: func @made_for_exponentials(
// CHECK: scf.forall
// CHECK: arith.mulf %{{.*}}, %{{.*}} : f32
// CHECK: scf.forall
// CHECK-NOT: arith.mulf
// CHECK: math.fma
// CHECK-NEXT: math.exp2
// CHECK-NOT: arith.mulf
// CHECK: return
func.func @made_for_exponentials(%lse: tensor<128xf32>, %s: tensor<128x64xf32>) -> tensor<128x64xf32> {
  %e1 = tensor.empty() : tensor<128xf32>
  %rows = scf.forall (%i) = (0) to (128) step (64) shared_outs(%o = %e1) -> tensor<128xf32> {
    %part = tensor.extract_slice %lse[%i] [64] [1] : tensor<128xf32> to tensor<64xf32>
    %e = tensor.empty() : tensor<64xf32>
    %made = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%part : tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%x: f32, %y: f32):
      %a = math.absf %x : f32
      linalg.yield %a : f32
    } -> tensor<64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %made into %o[%i] [64] [1] : tensor<64xf32> into tensor<128xf32>
    }
  }
  %e2 = tensor.empty() : tensor<128x64xf32>
  %p = scf.forall (%i) = (0) to (128) step (64) shared_outs(%o = %e2) -> tensor<128x64xf32> {
    %tile = tensor.extract_slice %s[%i, 0] [64, 64] [1, 1] : tensor<128x64xf32> to tensor<64x64xf32>
    %shift = tensor.extract_slice %rows[%i] [64] [1] : tensor<128xf32> to tensor<64xf32>
    %e = tensor.empty() : tensor<64x64xf32>
    %made = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%tile, %shift : tensor<64x64xf32>, tensor<64xf32>) outs(%e : tensor<64x64xf32>) {
    ^bb0(%x: f32, %l: f32, %y: f32):
      %d = arith.subf %x, %l : f32
      %x2 = math.exp %d : f32
      linalg.yield %x2 : f32
    } -> tensor<64x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %made into %o[%i, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<128x64xf32>
    }
  }
  return %p : tensor<128x64xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>

// The rows are a result, too: they stay what they are.
// CHECK-LABEL: func @read_elsewhere(
// CHECK: scf.forall
// CHECK-NOT: arith.mulf
// CHECK: scf.forall
// CHECK: arith.mulf
// CHECK: math.fma
// CHECK-NEXT: math.exp2
func.func @read_elsewhere(%lse: tensor<128xf32>, %s: tensor<128x64xf32>) -> (tensor<128x64xf32>, tensor<128xf32>) {
  %e1 = tensor.empty() : tensor<128xf32>
  %rows = scf.forall (%i) = (0) to (128) step (64) shared_outs(%o = %e1) -> tensor<128xf32> {
    %part = tensor.extract_slice %lse[%i] [64] [1] : tensor<128xf32> to tensor<64xf32>
    %e = tensor.empty() : tensor<64xf32>
    %made = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%part : tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%x: f32, %y: f32):
      %a = math.absf %x : f32
      linalg.yield %a : f32
    } -> tensor<64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %made into %o[%i] [64] [1] : tensor<64xf32> into tensor<128xf32>
    }
  }
  %e2 = tensor.empty() : tensor<128x64xf32>
  %p = scf.forall (%i) = (0) to (128) step (64) shared_outs(%o = %e2) -> tensor<128x64xf32> {
    %tile = tensor.extract_slice %s[%i, 0] [64, 64] [1, 1] : tensor<128x64xf32> to tensor<64x64xf32>
    %shift = tensor.extract_slice %rows[%i] [64] [1] : tensor<128xf32> to tensor<64xf32>
    %e = tensor.empty() : tensor<64x64xf32>
    %made = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%tile, %shift : tensor<64x64xf32>, tensor<64xf32>) outs(%e : tensor<64x64xf32>) {
    ^bb0(%x: f32, %l: f32, %y: f32):
      %d = arith.subf %x, %l : f32
      %x2 = math.exp %d : f32
      linalg.yield %x2 : f32
    } -> tensor<64x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %made into %o[%i, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<128x64xf32>
    }
  }
  return %p, %rows : tensor<128x64xf32>, tensor<128xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>

// What is padded with something else has another factor.
// CHECK-LABEL: func @padded_with_one(
// CHECK: scf.forall
// CHECK-NOT: arith.mulf
// CHECK: scf.forall
// CHECK: arith.mulf
// CHECK: math.fma
// CHECK-NEXT: math.exp2
func.func @padded_with_one(%lse: tensor<128xf32>, %s: tensor<128x64xf32>) -> tensor<128x64xf32> {
  %c1 = arith.constant 1.0 : f32
  %e1 = tensor.empty() : tensor<128xf32>
  %rows = scf.forall (%i) = (0) to (128) step (64) shared_outs(%o = %e1) -> tensor<128xf32> {
    %part = tensor.extract_slice %lse[%i] [64] [1] : tensor<128xf32> to tensor<64xf32>
    %e = tensor.empty() : tensor<64xf32>
    %made = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%part : tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%x: f32, %y: f32):
      %a = math.absf %x : f32
      linalg.yield %a : f32
    } -> tensor<64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %made into %o[%i] [64] [1] : tensor<64xf32> into tensor<128xf32>
    }
  }
  %e2 = tensor.empty() : tensor<128x64xf32>
  %p = scf.forall (%i) = (0) to (128) step (64) shared_outs(%o = %e2) -> tensor<128x64xf32> {
    %tile = tensor.extract_slice %s[%i, 0] [64, 64] [1, 1] : tensor<128x64xf32> to tensor<64x64xf32>
    %few = tensor.extract_slice %rows[%i] [60] [1] : tensor<128xf32> to tensor<60xf32>
    %shift = tensor.pad %few low[0] high[4] {
    ^bb0(%k: index):
      tensor.yield %c1 : f32
    } : tensor<60xf32> to tensor<64xf32>
    %e = tensor.empty() : tensor<64x64xf32>
    %made = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%tile, %shift : tensor<64x64xf32>, tensor<64xf32>) outs(%e : tensor<64x64xf32>) {
    ^bb0(%x: f32, %l: f32, %y: f32):
      %d = arith.subf %x, %l : f32
      %x2 = math.exp %d : f32
      linalg.yield %x2 : f32
    } -> tensor<64x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %made into %o[%i, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<128x64xf32>
    }
  }
  return %p : tensor<128x64xf32>
}
