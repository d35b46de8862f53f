// Numbers that a mask reads from memory are limited before bounds are computed
// from them: in 64 bits, and where an index has 32 bits to what is safe there. The inputs are as
// in split-mask-loops.mlir.
// RUN: fa-opt %s --fa-split-mask-loops | FileCheck %s --check-prefixes=CHECK,WIDE
// RUN: fa-opt %s --fa-split-mask-loops=index-bits=32 | FileCheck %s --check-prefixes=CHECK,NARROW

#id = affine_map<(i, j) -> (i, j)>
#plus = affine_map<(d0)[s0] -> (d0 + s0)>
!row = tensor<128xf32>
!tile = tensor<128x64xf32>

// CHECK-LABEL: func @lengths
// CHECK: %[[LENGTH:.+]] = tensor.extract %{{.+}} : tensor<?xi64>
// WIDE: %[[MOST:.+]] = arith.constant 1099511627776 : i64
// NARROW: %[[MOST:.+]] = arith.constant 536870912 : i64
// CHECK: %[[UPPER:.+]] = arith.minsi %[[LENGTH]], %[[MOST]] : i64
// WIDE: %[[LEAST:.+]] = arith.constant -1099511627776 : i64
// NARROW: %[[LEAST:.+]] = arith.constant -536870912 : i64
// CHECK: %[[INSIDE:.+]] = arith.maxsi %[[UPPER]], %[[LEAST]] : i64
// CHECK: arith.index_cast %[[INSIDE]] : i64 to index
// CHECK: scf.for
func.func @lengths(%q: tensor<?x64xf16>, %lengths: tensor<?xi64>, %b: index, %s: !tile, %v: tensor<64x64xf16>, %max0: !row, %sum0: !row,
    %acc0: !tile) -> !tile {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant 0xFF800000 : f32
  %S = tensor.dim %q, %c0 : tensor<?x64xf16>
  %r = scf.for %i0 = %c0 to %S step %c128 iter_args(%before = %acc0) -> !tile {
    %state:3 = scf.for %j0 = %c0 to %S step %c64 iter_args(%max = %max0, %sum = %sum0, %acc = %acc0) -> (!row, !row, !tile) {
      %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : !tile) outs(%acc0 : !tile) {
      ^bb0(%score: f32, %out: f32):
        %column = linalg.index 1 : index
        %j = affine.apply #plus(%j0)[%column]
        %length = tensor.extract %lengths[%b] : tensor<?xi64>
        %j64 = arith.index_cast %j : index to i64
        %seen = arith.cmpi slt, %j64, %length : i64
        %key = arith.addi %column, %j0 : index
        %exists = arith.cmpi slt, %key, %S : index
        %masked = arith.andi %seen, %exists : i1
        %result = arith.select %masked, %score, %none : f32
        linalg.yield %result : f32
      } -> !tile
      %next:3 = fa.online_softmax ins(%scores, %v : !tile, tensor<64x64xf16>) outs(%max, %sum, %acc : !row, !row, !tile)
      scf.yield %next#0, %next#1, %next#2 : !row, !row, !tile
    }
    scf.yield %state#2 : !tile
  }
  return %r : !tile
}

// A number of 32 bits can't make bounds of 64 bits wrap.
// CHECK-LABEL: func @offset
// WIDE-NOT: arith.minsi %{{.+}} : i32
// NARROW: arith.minsi %{{.+}}, %{{.+}} : i32
// NARROW: arith.maxsi %{{.+}}, %{{.+}} : i32
// CHECK: scf.for
func.func @offset(%q: tensor<?x64xf16>, %offset: tensor<i32>, %s: !tile, %v: tensor<64x64xf16>, %max0: !row, %sum0: !row,
    %acc0: !tile) -> !tile {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant 0xFF800000 : f32
  %S = tensor.dim %q, %c0 : tensor<?x64xf16>
  %r = scf.for %i0 = %c0 to %S step %c128 iter_args(%before = %acc0) -> !tile {
    %state:3 = scf.for %j0 = %c0 to %S step %c64 iter_args(%max = %max0, %sum = %sum0, %acc = %acc0) -> (!row, !row, !tile) {
      %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : !tile) outs(%acc0 : !tile) {
      ^bb0(%score: f32, %out: f32):
        %row = linalg.index 0 : index
        %i = affine.apply #plus(%i0)[%row]
        %column = linalg.index 1 : index
        %j = affine.apply #plus(%j0)[%column]
        %x = tensor.extract %offset[] : tensor<i32>
        %xi = arith.index_cast %x : i32 to index
        %end = arith.addi %i, %xi : index
        %seen = arith.cmpi sle, %j, %end : index
        %key = arith.addi %column, %j0 : index
        %exists = arith.cmpi slt, %key, %S : index
        %masked = arith.andi %seen, %exists : i1
        %result = arith.select %masked, %score, %none : f32
        linalg.yield %result : f32
      } -> !tile
      %next:3 = fa.online_softmax ins(%scores, %v : !tile, tensor<64x64xf16>) outs(%max, %sum, %acc : !row, !row, !tile)
      scf.yield %next#0, %next#1, %next#2 : !row, !row, !tile
    }
    scf.yield %state#2 : !tile
  }
  return %r : !tile
}
