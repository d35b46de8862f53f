// RUN: fa-opt %s -split-input-file -fa-schedule-cpu=vector-bits=512 | FileCheck %s

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
// A contraction over rows of B: packed transposed, then a register-tiled kernel
// of 8 rows and 2 vectors.
// CHECK-LABEL: func.func @contraction
// CHECK: memref.alloc() {{.*}} : memref<32x64xf32>
// CHECK-COUNT-64: vector.shuffle
// CHECK-COUNT-16: vector.fma
// CHECK-NOT: vector.fma
// CHECK-NOT: vector.maskedload
func.func @contraction(%a: memref<64x32xf32>, %b: memref<64x32xf32>, %c: memref<64x64xf32>) {
  linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : memref<64x32xf32>, memref<64x32xf32>) outs(%c : memref<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %z, %p : f32
    linalg.yield %s : f32
  }
  return
}

// -----

// A row maximum: a vector accumulator, reduced once; the edge masked.
// CHECK-LABEL: func.func @row_maximum
// CHECK: vector.load {{.*}} vector<16xf32>
// CHECK: arith.maxnumf {{.*}} vector<16xf32>
// CHECK: vector.maskedload
// CHECK: vector.reduction <maxnumf>
func.func @row_maximum(%x: memref<?x?xf32>, %m: memref<?xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
    ins(%x : memref<?x?xf32>) outs(%m : memref<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.maxnumf %a, %b : f32
    linalg.yield %s : f32
  }
  return
}

// -----

// A condition in the body: scalar loops.
// CHECK-LABEL: func.func @branch
// CHECK-NOT: vector
// CHECK: scf.if
func.func @branch(%x: memref<?xf32>, %y: memref<?xf32>, %c: i1) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    ins(%x : memref<?xf32>) outs(%y : memref<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = scf.if %c -> f32 {
      %d = arith.addf %a, %a : f32
      scf.yield %d : f32
    } else {
      scf.yield %a : f32
    }
    linalg.yield %r : f32
  }
  return
}
