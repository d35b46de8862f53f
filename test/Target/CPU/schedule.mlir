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

// -----

// One row: nothing is packed. Sixteen dot products side by side, whose vectors
// of sums 15 additions reduce to one vector.
// CHECK-LABEL: func.func @one_row
// CHECK-NOT: memref.alloc
// CHECK-COUNT-16: vector.fma
// CHECK-NOT: vector.fma
// CHECK-COUNT-30: vector.shuffle
// CHECK-NOT: vector.shuffle
// CHECK: vector.store {{.*}} vector<16xf32>
#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
#ij = affine_map<(i, j, k) -> (i, j)>
func.func @one_row(%a: memref<1x64xf32>, %b: memref<64x64xf32>, %c: memref<1x64xf32>) {
  linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : memref<1x64xf32>, memref<64x64xf32>) outs(%c : memref<1x64xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %z, %p : f32
    linalg.yield %s : f32
  }
  return
}

// -----

// Up to 16 rows, of which a bound is known: no packed copy.
// CHECK-LABEL: func.func @at_most_16_rows
// CHECK-NOT: memref<64x64xf32>
// CHECK: vector.fma
#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
#ij = affine_map<(i, j, k) -> (i, j)>
func.func @at_most_16_rows(%b: memref<64x64xbf16>, %n: index) {
  %rows = affine.min affine_map<()[s0] -> (s0, 16)>()[%n]
  %a = memref.alloc(%rows) : memref<?x64xbf16>
  %c = memref.alloc(%rows) : memref<?x64xf32>
  linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : memref<?x64xbf16>, memref<64x64xbf16>) outs(%c : memref<?x64xf32>) {
  ^bb0(%x: bf16, %y: bf16, %z: f32):
    %xf = arith.extf %x : bf16 to f32
    %yf = arith.extf %y : bf16 to f32
    %p = arith.mulf %xf, %yf : f32
    %s = arith.addf %z, %p : f32
    linalg.yield %s : f32
  }
  return
}

// -----

// Any number of rows: what few rows and what many rows want, in one program.
// CHECK-LABEL: func.func @any_rows
// CHECK: arith.cmpi ule, {{.*}}, %c16
// CHECK: scf.if
// CHECK-NOT: memref.alloc
// CHECK: } else {
// CHECK: memref.alloc() {{.*}} : memref<64x64xf32>
#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
#ij = affine_map<(i, j, k) -> (i, j)>
func.func @any_rows(%a: memref<?x64xf32>, %b: memref<64x64xf32>, %c: memref<?x64xf32>) {
  linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : memref<?x64xf32>, memref<64x64xf32>) outs(%c : memref<?x64xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %z, %p : f32
    linalg.yield %s : f32
  }
  return
}

// -----

// One row of weights and 16-bit values: four vectors of columns, the sums of
// two steps apart, and the values widened in registers.
// CHECK-LABEL: func.func @one_row_of_weights
// CHECK-NOT: memref.alloc
// CHECK: scf.for {{.*}} step %c2{{.*}} iter_args
// CHECK-COUNT-4: arith.extf {{.*}} vector<16xbf16> to vector<16xf32>
// CHECK-COUNT-4: vector.fma
// CHECK-COUNT-4: arith.extf {{.*}} vector<16xbf16> to vector<16xf32>
// CHECK-COUNT-4: vector.fma
// CHECK-NOT: vector.fma
#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
#ij = affine_map<(i, j, k) -> (i, j)>
func.func @one_row_of_weights(%a: memref<1x64xf32>, %b: memref<64x64xbf16>, %c: memref<1x64xf32>) {
  linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : memref<1x64xf32>, memref<64x64xbf16>) outs(%c : memref<1x64xf32>) {
  ^bb0(%x: f32, %y: bf16, %z: f32):
    %yf = arith.extf %y : bf16 to f32
    %p = arith.mulf %x, %yf : f32
    %s = arith.addf %z, %p : f32
    linalg.yield %s : f32
  }
  return
}
