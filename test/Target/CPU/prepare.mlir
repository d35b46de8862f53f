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
