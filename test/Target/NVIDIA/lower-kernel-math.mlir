// RUN: fa-opt %s --pass-pipeline="builtin.module(gpu.module(fa-lower-kernel-math))" | FileCheck %s

// Single instructions are intrinsics of LLVM: as operations of the LLVM dialect
// the conversion to NVVM would look for a device library.
// CHECK-LABEL: func @instructions
// CHECK: llvm.call_intrinsic "llvm.fabs.f32"(%{{.+}}) : (f32) -> f32
// CHECK: llvm.call_intrinsic "llvm.sqrt.f32"(%{{.+}}) : (f32) -> f32
// CHECK: llvm.call_intrinsic "llvm.floor.f32"(%{{.+}}) : (f32) -> f32
// CHECK: llvm.call_intrinsic "llvm.ceil.f32"(%{{.+}}) : (f32) -> f32
// CHECK: llvm.call_intrinsic "llvm.roundeven.f32"(%{{.+}}) : (f32) -> f32
// CHECK: llvm.call_intrinsic "llvm.copysign.f32"(%{{.+}}, %{{.+}}) : (f32, f32) -> f32
// CHECK-NOT: math.
// CHECK: return
gpu.module @kernels {
  func.func @instructions(%x: f32, %y: f32) -> f32 {
    %0 = math.absf %x : f32
    %1 = math.sqrt %0 : f32
    %2 = math.floor %1 : f32
    %3 = math.ceil %2 : f32
    %4 = math.roundeven %3 : f32
    %5 = math.copysign %4, %y : f32
    return %5 : f32
  }

  // Series reduce their argument with floor.
  // CHECK-LABEL: func @series
  // CHECK: llvm.call_intrinsic "llvm.floor.f32"
  // CHECK-NOT: math.
  // CHECK: return
  func.func @series(%x: f32) -> f32 {
    %0 = math.sin %x : f32
    %1 = math.cos %0 : f32
    %2 = math.atan %1 : f32
    %3 = math.erf %2 : f32
    return %3 : f32
  }
}
