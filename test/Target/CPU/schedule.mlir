// RUN: fa-opt %s -split-input-file -fa-schedule-cpu=vector-bits=512 | FileCheck %s

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
// A contraction over rows of B: packed transposed, then a register-tiled kernel
// of 8 rows and 2 vectors, four steps an iteration.
// CHECK-LABEL: func.func @contraction
// CHECK: memref.alloc() {{.*}} : memref<32x64xf32>
// CHECK-COUNT-64: vector.shuffle
// CHECK-COUNT-64: vector.fma
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
// Half of the lanes with the other half, four times.
// CHECK: vector.shuffle {{.*}} [8, 9, 10, 11, 12, 13, 14, 15]
// CHECK: vector.shuffle {{.*}} [0, 1, 2, 3, 4, 5, 6, 7]
// CHECK: arith.maxnumf {{.*}} vector<8xf32>
// CHECK: arith.maxnumf {{.*}} vector<1xf32>
// CHECK: arith.maxnumf {{.*}} : f32
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

// What a mask reads for each element, within bounds: where no bound is met a
// vector of bytes, and what a later row has there is fetched; else element by
// element, at the end of a row one by one.
// CHECK-LABEL: func.func @read_row
// CHECK: scf.for
// CHECK: scf.for {{.*}} step %c16
// CHECK: %[[FIRST:.*]] = arith.minsi {{.*}} : index
// CHECK: %[[LAST:.*]] = arith.minsi {{.*}} : index
// CHECK: %[[DISTANCE:.*]] = arith.subi %[[LAST]], %[[FIRST]]
// CHECK: %[[SAME:.*]] = arith.cmpi eq, %[[DISTANCE]], %c15
// CHECK: scf.if %[[SAME]] -> (vector<16xi1>) {
// CHECK:   memref.prefetch {{.*}}, read, locality<3>, data : memref<?x?xi1>
// CHECK:   vector.load {{.*}}[%{{.*}}, %[[FIRST]]] : memref<?x?xi8>, vector<16xi8>
// CHECK:   arith.trunci {{.*}} vector<16xi8> to vector<16xi1>
// CHECK: } else {
// CHECK-COUNT-16: memref.load {{.*}} memref<?x?xi1>
// CHECK: }
// CHECK: scf.for {{.*}} step %c1
// CHECK: memref.load {{.*}} memref<?x?xi1>
func.func @read_row(%x: memref<?x?xf32>, %y: memref<?x?xf32>, %mask: memref<?x?xi1>, %from: index, %last: index) {
  %none = arith.constant 0xFF800000 : f32
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%x : memref<?x?xf32>) outs(%y : memref<?x?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %key = affine.apply affine_map<(j)[from] -> (j + from)>(%j)[%from]
    %within = arith.minsi %key, %last : index
    %seen = memref.load %mask[%i, %within] : memref<?x?xi1>
    %r = arith.select %seen, %a, %none : f32
    linalg.yield %r : f32
  }
  return
}

// -----

// A table of i - j is read backwards.
// CHECK-LABEL: func.func @read_differences
// CHECK: scf.if {{.*}} -> (vector<16xf32>) {
// CHECK:   %[[ROW:.*]] = vector.load {{.*}} memref<?xf32>, vector<16xf32>
// CHECK:   vector.shuffle %[[ROW]], %[[ROW]] [15, 14, {{.*}} 1, 0]
// CHECK: } else {
func.func @read_differences(%x: memref<?x?xf32>, %y: memref<?x?xf32>, %table: memref<?xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%x : memref<?x?xf32>) outs(%y : memref<?x?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %at = arith.subi %i, %j : index
    %t = memref.load %table[%at] : memref<?xf32>
    %r = arith.addf %a, %t : f32
    linalg.yield %r : f32
  }
  return
}

// -----

// An index that jumps is no run.
// CHECK-LABEL: func.func @read_column
// CHECK-NOT: scf.if
// CHECK-COUNT-16: vector.insert
func.func @read_column(%x: memref<?x?xf32>, %y: memref<?x?xf32>, %table: memref<?x?xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%x : memref<?x?xf32>) outs(%y : memref<?x?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %t = memref.load %table[%j, %i] : memref<?x?xf32>
    %r = arith.addf %a, %t : f32
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

// -----

// What a loop does not change is packed once, in the first iteration, unless
// that is the only one and has few rows. The sums of a fresh result start at 0
// and not in memory.
// CHECK-LABEL: func.func @packed_once
// CHECK: %[[PACKED:.*]] = memref.alloc() {{.*}} : memref<64x64xf32>
// CHECK: scf.for %[[AT:.*]] = %c0{{.*}} to %{{.*}} step
// CHECK: %[[FEW:.*]] = arith.cmpi ule, {{.*}}, %c16
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[AT]], %c0
// CHECK: %[[MORE:.*]] = arith.cmpi slt
// CHECK: %[[NEEDED:.*]] = arith.select %[[FEW]], %[[MORE]], %[[FIRST]]
// CHECK: arith.andi %[[FIRST]], %[[NEEDED]]
// CHECK: scf.if
// CHECK: vector.store {{.*}}, %[[PACKED]]
// CHECK: scf.if %[[FEW]] {
// CHECK: } else {
// CHECK-NOT: memref.alloc
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %cst
#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
func.func @packed_once(%a: memref<?x64xf32>, %b: memref<64x64xf32>, %c: memref<?x64xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  scf.for %i = %c0 to %n step %c64 {
    %rows = affine.min affine_map<(i)[s] -> (64, s - i)>(%i)[%n]
    %part = memref.subview %a[%i, 0] [%rows, 64] [1, 1] : memref<?x64xf32> to memref<?x64xf32, strided<[64, 1], offset: ?>>
    %to = memref.subview %c[%i, 0] [%rows, 64] [1, 1] : memref<?x64xf32> to memref<?x64xf32, strided<[64, 1], offset: ?>>
    %sum = memref.alloc(%rows) : memref<?x64xf32>
    linalg.fill ins(%zero : f32) outs(%sum : memref<?x64xf32>)
    linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%part, %b : memref<?x64xf32, strided<[64, 1], offset: ?>>, memref<64x64xf32>) outs(%sum : memref<?x64xf32>) {
    ^bb0(%x: f32, %y: f32, %z: f32):
      %p = arith.mulf %x, %y : f32
      %s = arith.addf %z, %p : f32
      linalg.yield %s : f32
    }
    linalg.copy ins(%sum : memref<?x64xf32>) outs(%to : memref<?x64xf32, strided<[64, 1], offset: ?>>)
  }
  return
}

// -----

// What a loop writes to is packed each time.
// CHECK-LABEL: func.func @packed_anew
// CHECK: scf.for
// CHECK: memref.alloc() {{.*}} : memref<64x64xf32>
#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
func.func @packed_anew(%a: memref<64x64xf32>, %b: memref<64x64xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %sum = memref.alloc() : memref<64x64xf32>
    linalg.copy ins(%a : memref<64x64xf32>) outs(%sum : memref<64x64xf32>)
    linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<64x64xf32>, memref<64x64xf32>) outs(%sum : memref<64x64xf32>) {
    ^bb0(%x: f32, %y: f32, %z: f32):
      %p = arith.mulf %x, %y : f32
      %s = arith.addf %z, %p : f32
      linalg.yield %s : f32
    }
    linalg.copy ins(%sum : memref<64x64xf32>) outs(%b : memref<64x64xf32>)
  }
  return
}
