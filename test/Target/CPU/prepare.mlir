// RUN: fa-opt %s -fa-cpu-prepare | FileCheck %s --check-prefix=TENSOR
// RUN: fa-opt %s -pass-pipeline="builtin.module(func.func(fa-cpu-prepare),fa-cpu-bufferize,canonicalize,cse)" | FileCheck %s

// Results become destinations; a carried accumulator stays in one buffer.
// TENSOR: func.func @accumulate(%{{.*}}: tensor<8x64xf32>, %[[OUT:.*]]: memref<8x64xf32, strided<[?, 1], offset: ?>>)
// TENSOR: bufferization.materialize_in_destination %{{.*}} in restrict writable %[[OUT]]
// TENSOR-NEXT: return{{$}}
// CHECK-LABEL: func.func @accumulate
// CHECK-NOT: memref.alloc
// CHECK: linalg.fill {{.*}} outs(%[[OUT:.*]] :
// CHECK: scf.for
// CHECK-NEXT: linalg.generic {{.*}} ins(%{{.*}}, %[[OUT]] : {{.*}}) outs(%[[OUT]] :
// CHECK-NOT: linalg.copy
func.func @accumulate(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%e : tensor<8x64xf32>) -> tensor<8x64xf32>
  %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%acc = %init) -> tensor<8x64xf32> {
    %fresh = tensor.empty() : tensor<8x64xf32>
    %sum = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>,
        affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
        iterator_types = ["parallel", "parallel"]}
        ins(%x, %acc : tensor<8x64xf32>, tensor<8x64xf32>)
        outs(%fresh : tensor<8x64xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %s = arith.addf %a, %b : f32
      linalg.yield %s : f32
    } -> tensor<8x64xf32>
    scf.yield %sum : tensor<8x64xf32>
  }
  return %r : tensor<8x64xf32>
}

// A tile that is whole is read where it lies, with the unit stride that both
// sides have; one that is not is copied once, into what was filled.
// CHECK-LABEL: func.func @tile
// CHECK: %[[WHOLE:.*]] = arith.cmpi eq
// CHECK: %[[TILE:.*]] = scf.if %[[WHOLE]] -> (memref<8x64xf32, strided<[?, 1], offset: ?>>) {
// CHECK-NEXT: memref.cast
// CHECK-NEXT: scf.yield
// CHECK: memref.alloc
// CHECK-NEXT: linalg.fill
// CHECK-NEXT: memref.subview
// CHECK-NEXT: linalg.copy
// CHECK-NEXT: memref.cast
// CHECK-NEXT: scf.yield
// CHECK: linalg.generic {{.*}} ins(%[[TILE]] :
func.func @tile(%k: tensor<?x64xf32>, %n: index) -> tensor<8x64xf32> {
  %zero = arith.constant 0.0 : f32
  %high = affine.apply affine_map<()[s0] -> (-s0 + 8)>()[%n]
  %s = tensor.extract_slice %k[0, 0] [%n, 64] [1, 1] : tensor<?x64xf32> to tensor<?x64xf32>
  %p = tensor.pad %s low[0, 0] high[%high, 0] {
  ^bb0(%a: index, %b: index):
    tensor.yield %zero : f32
  } : tensor<?x64xf32> to tensor<8x64xf32>
  %e = tensor.empty() : tensor<8x64xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<8x64xf32>) outs(%e : tensor<8x64xf32>) {
  ^bb0(%a: f32, %d: f32):
    %b = arith.addf %a, %a : f32
    linalg.yield %b : f32
  } -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}

// Rows whose places are neighbours are added at once, unless a bound is met; in
// place.
// CHECK-LABEL: func.func @accumulate_rows
// CHECK-NOT: linalg.copy
// CHECK: scf.for
// CHECK: scf.if
// CHECK: %[[ROW:.*]] = memref.subview %{{.*}}[%{{.*}}, %{{.*}}] [1, 40] [1, 1]
// CHECK: linalg.generic {{.*}} outs(%[[ROW]] :
// CHECK: } else {
// CHECK: scf.for
// CHECK: memref.store
// CHECK-NOT: linalg.copy
// CHECK: return
func.func @accumulate_rows(%x: tensor<8x40xf32>, %last: index) -> tensor<8x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%e : tensor<8x64xf32>) -> tensor<8x64xf32>
  %r = fa.accumulate %x into %init at {
  ^bb0(%i: index, %j: index):
    %within = arith.minsi %j, %last : index
    fa.yield_places %i, %within
  } : tensor<8x40xf32> into tensor<8x64xf32>
  return %r : tensor<8x64xf32>
}
