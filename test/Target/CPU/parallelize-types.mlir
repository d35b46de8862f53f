// RUN: fa-opt %s --fa-cpu-parallelize --verify-diagnostics

// A type that LLVM does not have.
func.func @no_form_in_memory(%x: memref<4xtf32>) {
  // expected-error @+1 {{uses a value of type 'memref<4xtf32>', which has no form in memory on the CPU; use f32, f16, bf16, f64 or integers}}
  scf.forall (%i) in (4) {
    %y = memref.load %x[%i] : memref<4xtf32>
    memref.store %y, %x[%i] : memref<4xtf32>
  }
  return
}
