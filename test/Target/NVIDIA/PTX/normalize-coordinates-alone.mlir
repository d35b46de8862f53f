// RUN: fa-opt %s --pass-pipeline="builtin.module(gpu.module(fa-normalize-coordinates))" | FileCheck %s

// The pass loads the dialects of what it makes: nothing here is of math.
// CHECK-LABEL: gpu.func @product
// CHECK: math.fma
gpu.module @kernels {
  gpu.func @product(%i: index, %s: f32, %out: memref<f32>) kernel {
    %c8 = arith.constant 8 : index
    %j = arith.addi %i, %c8 : index
    %n = arith.index_cast %j : index to i32
    %f = arith.sitofp %n : i32 to f32
    %p = arith.mulf %s, %f : f32
    memref.store %p, %out[] : memref<f32>
    gpu.return
  }
}
