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

  // An angle is reduced by the bits of 1 / (2 pi) that matter: in integers.
  // CHECK-LABEL: func @series
  // CHECK: arith.muli %{{.*}} : i64
  // CHECK-NOT: math.
  // CHECK: return
  func.func @series(%x: f32) -> f32 {
    %0 = math.sin %x : f32
    %1 = math.cos %0 : f32
    %2 = math.atan %1 : f32
    %3 = math.erf %2 : f32
    return %3 : f32
  }

  // A maximum and a minimum, if there are two bounds.
  // CHECK-LABEL: func @clamps
  // CHECK-SAME: %[[X:.*]]: f32, %[[LEAST:.*]]: f32, %[[MOST:.*]]: f32
  // CHECK: %[[Y:.*]] = llvm.intr.maximum(%[[X]], %[[LEAST]])
  // CHECK-NEXT: %[[Z:.*]] = llvm.intr.minimum(%[[Y]], %[[MOST]])
  // CHECK-NEXT: %[[R:.*]] = llvm.intr.maximum(%[[Z]], %[[LEAST]])
  // CHECK-NEXT: return %[[R]]
  func.func @clamps(%x: f32, %least: f32, %most: f32) -> f32 {
    %infinity = arith.constant 0x7F800000 : f32
    %0 = math.clampf %x to [%least, %most] : f32
    %1 = math.clampf %0 to [%least, %infinity] : f32
    return %1 : f32
  }

  // A tanh that has to be right to the last bits is a quotient of polynomials.
  // CHECK-LABEL: func @tanh
  // CHECK-NOT: ex2
  // CHECK: llvm.call_intrinsic "llvm.nvvm.div.full"
  // CHECK: return
  func.func @tanh(%x: f32) -> f32 {
    %0 = math.tanh %x : f32
    return %0 : f32
  }

  // Constant factors are one, with those of tanh: 1 - 2 / (1 + e^2x).
  // CHECK-LABEL: func @softcap
  // CHECK-SAME: %[[X:.*]]: f32
  // CHECK-DAG: %[[IN:.*]] = arith.constant 0.144269511 : f32
  // CHECK-DAG: %[[OUT:.*]] = arith.constant -4.000000e+01 : f32
  // CHECK-DAG: %[[CAP:.*]] = arith.constant 2.000000e+01 : f32
  // CHECK: %[[Y:.*]] = arith.mulf %[[X]], %[[IN]]
  // CHECK-NEXT: %[[E:.*]] = llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%[[Y]])
  // CHECK-NEXT: %[[D:.*]] = arith.addf %[[E]],
  // CHECK-NEXT: %[[R:.*]] = nvvm.rcp.approx.ftz.f %[[D]]
  // CHECK-NEXT: %[[T:.*]] = llvm.intr.fma(%[[R]], %[[OUT]], %[[CAP]])
  // CHECK-NEXT: return %[[T]]
  func.func @softcap(%x: f32) -> f32 {
    %c20 = arith.constant 20.0 : f32
    %0 = arith.divf %x, %c20 : f32
    %1 = math.tanh %0 fastmath<afn> : f32
    %2 = arith.mulf %1, %c20 : f32
    return %2 : f32
  }

  // Into an fma too, but for products that others read.
  // CHECK-LABEL: func @factors
  // CHECK-SAME: %[[X:.*]]: f32, %[[Z:.*]]: f32
  // CHECK-DAG: %[[SIX:.*]] = arith.constant 6.000000e+00 : f32
  // CHECK-DAG: %[[TWO:.*]] = arith.constant 2.000000e+00 : f32
  // CHECK-DAG: %[[THREE:.*]] = arith.constant 3.000000e+00 : f32
  // CHECK: llvm.intr.fma(%[[X]], %[[SIX]], %[[Z]])
  // CHECK: %[[P:.*]] = arith.mulf %[[Z]], %[[TWO]]
  // CHECK: arith.mulf %[[P]], %[[THREE]]
  func.func @factors(%x: f32, %z: f32) -> (f32, f32, f32) {
    %c2 = arith.constant 2.0 : f32
    %c3 = arith.constant 3.0 : f32
    %0 = arith.mulf %x, %c2 : f32
    %1 = math.fma %c3, %0, %z : f32
    %2 = arith.mulf %z, %c2 : f32
    %3 = arith.mulf %2, %c3 : f32
    return %1, %2, %3 : f32, f32, f32
  }

  // Not where the factor would overflow or vanish, or a division has none.
  // CHECK-LABEL: func @out_of_range
  // CHECK-COUNT-4: arith.mulf
  // CHECK: llvm.nvvm.div.full
  func.func @out_of_range(%x: f32, %y: f32, %z: f32) -> (f32, f32, f32) {
    %small = arith.constant 1.0e-30 : f32
    %large = arith.constant 1.0e+30 : f32
    %zero = arith.constant 0.0 : f32
    %0 = arith.mulf %x, %small : f32
    %1 = arith.mulf %0, %small : f32
    %2 = arith.mulf %y, %large : f32
    %3 = arith.mulf %2, %large : f32
    %4 = arith.divf %z, %zero : f32
    return %1, %3, %4 : f32, f32, f32
  }

  // A reciprocal is an instruction, of numbers that are no denormal ones, and of
  // what may be divided so; a logarithm's flag spares denormal numbers, too.
  // CHECK-LABEL: func @quotients
  // CHECK: nvvm.rcp.approx.ftz.f
  // CHECK: nvvm.rcp.approx.ftz.f
  // CHECK: llvm.nvvm.div.full
  // CHECK: llvm.nvvm.lg2.approx.f"
  // CHECK: llvm.nvvm.lg2.approx.ftz.f"
  func.func @quotients(%x: f32, %y: f32) -> (f32, f32, f32, f32, f32) {
    %one = arith.constant 1.0 : f32
    %0 = arith.divf %one, %x : f32
    %1 = arith.divf %x, %y fastmath<arcp> : f32
    %2 = arith.divf %x, %y : f32
    %3 = math.log2 %x : f32
    %4 = math.log2 %x fastmath<afn> : f32
    return %0, %1, %2, %3, %4 : f32, f32, f32, f32, f32
  }

  // Each is the other's derivative.
  // CHECK-LABEL: func @hyperbolic
  // CHECK-COUNT-2: ex2.approx.ftz.f
  // CHECK-NOT: math.
  // CHECK: return
  func.func @hyperbolic(%x: f32) -> (f32, f32) {
    %0 = math.sinh %x : f32
    %1 = math.cosh %x : f32
    return %0, %1 : f32, f32
  }

  // A remainder is exact: by integers where the quotient is large.
  // CHECK-LABEL: func @remainder
  // CHECK: scf.if
  // CHECK: llvm.intr.fma
  // CHECK: scf.for
  // CHECK: arith.remui %{{.*}} : i64
  func.func @remainder(%x: f32, %y: f32) -> f32 {
    %0 = arith.remf %x, %y : f32
    return %0 : f32
  }
}
