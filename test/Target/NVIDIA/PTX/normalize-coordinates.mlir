// RUN: fa-opt %s --pass-pipeline="builtin.module(gpu.module(fa-normalize-coordinates,cse))" | FileCheck %s

gpu.module @kernels {
  // Masks compare a constant of the element with what its thread has computed
  // once.
  // CHECK-LABEL: gpu.func @compare
  // CHECK-SAME: %[[I:.*]]: index, %[[J:.*]]: index
  // CHECK: %[[C:.*]] = arith.constant 3 : index
  // CHECK: %[[D:.*]] = arith.subi %[[I]], %[[J]]
  // CHECK-NEXT: arith.cmpi sle, %[[C]], %[[D]]
  gpu.func @compare(%i: index, %j: index, %out: memref<i1>) kernel attributes {fa.first_map = 0 : i64} {
    %c3 = arith.constant 3 : index
    %column = arith.addi %j, %c3 : index
    %seen = arith.cmpi sle, %column, %i : index
    memref.store %seen, %out[] : memref<i1>
    gpu.return
  }

  // A slope times a distance: one conversion and one product for both elements,
  // and one fma each.
  // CHECK-LABEL: gpu.func @distance
  // CHECK-SAME: %[[I:.*]]: index, %[[J:.*]]: index, %[[SLOPE:.*]]: f32
  // CHECK: %[[D:.*]] = arith.subi %[[J]], %[[I]]
  // CHECK: arith.index_cast %[[D]]
  // CHECK: %[[F:.*]] = arith.sitofp
  // CHECK: %[[EIGHT:.*]] = arith.constant 8.000000e+00 : f32
  // CHECK-NOT: sitofp
  // CHECK: %[[SEVEN:.*]] = arith.constant 7.000000e+00 : f32
  // CHECK-NOT: sitofp
  // CHECK: %[[COMMON:.*]] = arith.mulf %[[SLOPE]], %[[F]]
  // CHECK-NEXT: math.fma %[[SLOPE]], %[[EIGHT]], %[[COMMON]]
  // CHECK-NEXT: math.fma %[[SLOPE]], %[[SEVEN]], %[[COMMON]]
  gpu.func @distance(%i: index, %j: index, %slope: f32, %out: memref<2xf32>) kernel attributes {fa.first_map = 0 : i64} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %column = arith.addi %j, %c8 : index
    %row = arith.addi %i, %c1 : index
    %d0 = arith.subi %column, %i : index
    %d1 = arith.subi %column, %row : index
    %n0 = arith.index_cast %d0 : index to i32
    %n1 = arith.index_cast %d1 : index to i32
    %f0 = arith.sitofp %n0 : i32 to f32
    %f1 = arith.sitofp %n1 : i32 to f32
    %p0 = arith.mulf %slope, %f0 : f32
    %p1 = arith.mulf %slope, %f1 : f32
    memref.store %p0, %out[%c0] : memref<2xf32>
    memref.store %p1, %out[%c1] : memref<2xf32>
    gpu.return
  }

  // The magnitude is the float's.
  // CHECK-LABEL: gpu.func @magnitude
  // CHECK: %[[N:.*]] = arith.index_cast
  // CHECK: %[[F:.*]] = arith.sitofp %[[N]] : i32 to f32
  // CHECK: %[[S:.*]] = arith.addf %[[F]],
  // CHECK: math.absf %[[S]]
  gpu.func @magnitude(%i: index, %j: index, %out: memref<f32>) kernel attributes {fa.first_map = 0 : i64} {
    %c8 = arith.constant 8 : index
    %column = arith.addi %j, %c8 : index
    %d = arith.subi %column, %i : index
    %m = math.absi %d : index
    %n = arith.index_cast %m : index to i32
    %f = arith.sitofp %n : i32 to f32
    memref.store %f, %out[] : memref<f32>
    gpu.return
  }

  // So is one that is written as a maximum, and a number of the row joins what
  // is the same for all elements.
  // CHECK-LABEL: gpu.func @added
  // CHECK-SAME: %[[I:.*]]: index, %[[J:.*]]: index, %[[SLOPE:.*]]: f32, %[[R:.*]]: f32
  // CHECK: %[[F:.*]] = arith.sitofp
  // CHECK: %[[EIGHT:.*]] = arith.constant 8.000000e+00 : f32
  // CHECK: %[[COMMON:.*]] = math.fma %[[SLOPE]], %[[F]], %[[R]]
  // CHECK-NEXT: math.fma %[[SLOPE]], %[[EIGHT]], %[[COMMON]]
  // CHECK: math.absf
  gpu.func @added(%i: index, %j: index, %slope: f32, %r: f32, %out: memref<2xf32>) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %column = arith.addi %j, %c8 : index
    %d = arith.subi %column, %i : index
    %n = arith.index_cast %d : index to i32
    %f = arith.sitofp %n : i32 to f32
    %x = math.fma %slope, %f, %r : f32
    memref.store %x, %out[%c0] : memref<2xf32>
    %minus = arith.subi %c0, %d : index
    %size = arith.maxsi %d, %minus : index
    %n1 = arith.index_cast %size : index to i32
    %f1 = arith.sitofp %n1 : i32 to f32
    memref.store %f1, %out[%c1] : memref<2xf32>
    gpu.return
  }

  // Kernels without tensor maps keep the registers that masks would take.
  // CHECK-LABEL: gpu.func @other
  // CHECK: arith.addi
  // CHECK: arith.cmpi sle
  gpu.func @other(%i: index, %j: index, %out: memref<i1>) kernel {
    %c3 = arith.constant 3 : index
    %column = arith.addi %j, %c3 : index
    %seen = arith.cmpi sle, %column, %i : index
    memref.store %seen, %out[] : memref<i1>
    gpu.return
  }
}
