// What LLVM has no instructions for is an error at the operation; what else is a
// fatal error in LLVM is an error too. fa-opt goes on to the last part.

// RUN: fa-opt %s --split-input-file --verify-diagnostics --pass-pipeline="builtin.module(fa-emit-ptx{output=%t.ptx})" -o /dev/null
// RUN: FileCheck %s --input-file=%t.ptx

// expected-error@+1 {{the module has operations that NVIDIA GPUs do not}}
gpu.module @m {
  llvm.func @k(%p: !llvm.ptr<1>) attributes {gpu.kernel, nvvm.kernel} {
    %x = llvm.load %p : !llvm.ptr<1> -> f32
    // expected-error@+1 {{'llvm.intr.log' op has no instruction on NVIDIA GPUs for 'f32'; write it with operations of the math dialect before fa-lower-to-nvvm, which has formulas for them}}
    %y = llvm.intr.log(%x) : (f32) -> f32
    llvm.store %y, %p : f32, !llvm.ptr<1>
    llvm.return
  }
}

// -----

// expected-error@+1 {{the module has operations that NVIDIA GPUs do not}}
gpu.module @m {
  llvm.func @k(%p: !llvm.ptr<1>) attributes {gpu.kernel, nvvm.kernel} {
    %x = llvm.load %p : !llvm.ptr<1> -> f32
    // expected-error@+1 {{'llvm.call_intrinsic' op has no instruction on NVIDIA GPUs for 'f32'}}
    %y = llvm.call_intrinsic "llvm.cos.f32"(%x) : (f32) -> f32
    llvm.store %y, %p : f32, !llvm.ptr<1>
    llvm.return
  }
}

// -----

// expected-error@+1 {{the module has operations that NVIDIA GPUs do not}}
gpu.module @m {
  llvm.func @k(%p: !llvm.ptr<1>) attributes {gpu.kernel, nvvm.kernel} {
    %x = llvm.load %p : !llvm.ptr<1> -> f64
    // expected-error@+1 {{'llvm.frem' op has no instruction on NVIDIA GPUs for 'f64'}}
    %y = llvm.frem %x, %x : f64
    llvm.store %y, %p : f64, !llvm.ptr<1>
    llvm.return
  }
}

// -----

// expected-error@+1 {{the module has operations that NVIDIA GPUs do not}}
gpu.module @m {
  llvm.func @k(%p: !llvm.ptr<1>) attributes {gpu.kernel, nvvm.kernel} {
    %x = llvm.load %p : !llvm.ptr<1> -> f64
    // expected-error@+1 {{'llvm.intr.exp2' op has no instruction on NVIDIA GPUs for 'f64'}}
    %y = llvm.intr.exp2(%x) : (f64) -> f64
    llvm.store %y, %p : f64, !llvm.ptr<1>
    llvm.return
  }
}

// -----

// expected-error@+1 {{LLVM cannot generate code for sm_80: Cannot select}}
gpu.module @m {
  llvm.func @k(%p: !llvm.ptr<1>) attributes {gpu.kernel, nvvm.kernel} {
    %y = llvm.call_intrinsic "llvm.x86.rdtsc"() : () -> i64
    llvm.store %y, %p : i64, !llvm.ptr<1>
    llvm.return
  }
}

// -----

// CHECK: fma.rn
// CHECK: sqrt.rn
// CHECK: ex2.approx
// CHECK: lg2.approx.ftz
gpu.module @m {
  llvm.func @k(%p: !llvm.ptr<1>) attributes {gpu.kernel, nvvm.kernel} {
    %x = llvm.load %p : !llvm.ptr<1> -> f32
    %a = llvm.intr.fma(%x, %x, %x) : (f32, f32, f32) -> f32
    %b = llvm.intr.sqrt(%a) : (f32) -> f32
    %c = llvm.intr.floor(%b) : (f32) -> f32
    %d = llvm.intr.maximum(%c, %x) : (f32, f32) -> f32
    %e = llvm.intr.exp2(%d) : (f32) -> f32
    %f = llvm.call_intrinsic "llvm.nvvm.lg2.approx.ftz.f"(%e) : (f32) -> f32
    %g = llvm.intr.copysign(%f, %x) : (f32, f32) -> f32
    llvm.store %g, %p : f32, !llvm.ptr<1>
    llvm.return
  }
}
