// RUN: fa-opt %s -fa-cpu-parallelize | FileCheck %s

// CHECK-LABEL: func.func @f(
// CHECK: llvm.alloca
// CHECK: call @fa_cpu_parallel_for(
// CHECK: func.func private @f_range0(%{{.*}}: !llvm.ptr, %[[BEGIN:.*]]: i64, %[[END:.*]]: i64)
// CHECK: scf.for
// CHECK-NEXT: %[[MARK:.*]] = func.call @fa_cpu_mark
// CHECK: memref.alloc
// CHECK: func.call @fa_cpu_release(%[[MARK]])
// CHECK-NOT: scf.forall
func.func @f(%x: memref<?xf32>, %n: index) {
  scf.forall (%i, %j) in (%n, 4) {
    scf.forall (%k) in (2) {
      %t = memref.alloc() : memref<8xf32>
      %c0 = arith.constant 0 : index
      %v = memref.load %x[%i] : memref<?xf32>
      memref.store %v, %t[%c0] : memref<8xf32>
      %w = memref.load %t[%c0] : memref<8xf32>
      memref.store %w, %x[%i] : memref<?xf32>
    }
  }
  return
}
