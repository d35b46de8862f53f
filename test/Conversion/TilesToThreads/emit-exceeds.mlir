// Whether a warp has an element that is not below a limit. Where no element can
// be negative, as exponentials, one bit of both formats says it of 2; the same
// bit is set in -2.

// REQUIRES: numpy
// RUN: fa-opt %s --pass-pipeline="builtin.module(fa-hopper-layouts,fa-tiles-to-threads,fa-lower-to-nvvm,fa-emit-ptx{chip=sm_90a output=%t.ptx})" -o /dev/null
// RUN: FileCheck %s --input-file=%t.ptx
// RUN: %fa_python %fa_src/test/integration/emulate_exceeds.py %t.ptx differences | FileCheck %s --check-prefix=EMULATED
// RUN: %fa_python %fa_src/test/integration/emulate_exceeds.py %t.ptx halves | FileCheck %s --check-prefix=EMULATED
// RUN: %fa_python %fa_src/test/integration/emulate_exceeds.py %t.ptx powers | FileCheck %s --check-prefix=EMULATED
// RUN: %fa_python %fa_src/test/integration/emulate_exceeds.py %t.ptx maxima | FileCheck %s --check-prefix=EMULATED
// EMULATED: ok

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// CHECK-LABEL: .entry differences_kernel(
// CHECK-NOT: 1073758208
// CHECK: max.NaN.bf16x2
// CHECK-NOT: 1073758208
// CHECK: vote.sync.any
func.func @differences() -> tensor<64x64xbf16> {
  %e = tensor.empty() : tensor<64x64xbf16>
  %r = scf.forall (%n) in (1) shared_outs(%o = %e) -> (tensor<64x64xbf16>) {
    hopper.producer registers 24 {
    }
    %w = hopper.consumers 1 registers 240 -> (tensor<64x64xbf16>) {
      %e2 = tensor.empty() : tensor<64x64xbf16>
      %s = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e2 : tensor<64x64xbf16>) {
      ^bb0(%a: bf16):
        %i = linalg.index 0 : index
        %j = linalg.index 1 : index
        %c48 = arith.constant 48 : index
        %d = arith.subi %i, %j : index
        %k = arith.subi %d, %c48 : index
        %n32 = arith.index_cast %k : index to i32
        %f = arith.sitofp %n32 : i32 to f32
        %t = arith.truncf %f : f32 to bf16
        linalg.yield %t : bf16
      } -> tensor<64x64xbf16>
      %large = hopper.exceeds %s limit 2.0 : tensor<64x64xbf16>
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xbf16>) outs(%e2 : tensor<64x64xbf16>) {
      ^bb0(%v: bf16, %a: bf16):
        %zero = arith.constant 0.0 : bf16
        %one = arith.constant 1.0 : bf16
        %z = arith.select %large, %one, %zero : bf16
        linalg.yield %z : bf16
      } -> tensor<64x64xbf16>
      hopper.yield %y : tensor<64x64xbf16>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %w into %o[0, 0] [64, 64] [1, 1] : tensor<64x64xbf16> into tensor<64x64xbf16>
    }
  }
  return %r : tensor<64x64xbf16>
}

// CHECK-LABEL: .entry halves_kernel(
// CHECK: max.NaN.f16x2
// CHECK: setp.geu
// CHECK: vote.sync.any
func.func @halves() -> tensor<64x64xf16> {
  %e = tensor.empty() : tensor<64x64xf16>
  %r = scf.forall (%n) in (1) shared_outs(%o = %e) -> (tensor<64x64xf16>) {
    hopper.producer registers 24 {
    }
    %w = hopper.consumers 1 registers 240 -> (tensor<64x64xf16>) {
      %e2 = tensor.empty() : tensor<64x64xf16>
      %s = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e2 : tensor<64x64xf16>) {
      ^bb0(%a: f16):
        %i = linalg.index 0 : index
        %j = linalg.index 1 : index
        %c48 = arith.constant 48 : index
        %d = arith.subi %i, %j : index
        %k = arith.subi %d, %c48 : index
        %n32 = arith.index_cast %k : index to i32
        %f = arith.sitofp %n32 : i32 to f32
        %t = arith.truncf %f : f32 to f16
        linalg.yield %t : f16
      } -> tensor<64x64xf16>
      %large = hopper.exceeds %s limit 2.0 : tensor<64x64xf16>
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf16>) outs(%e2 : tensor<64x64xf16>) {
      ^bb0(%v: f16, %a: f16):
        %zero = arith.constant 0.0 : f16
        %one = arith.constant 1.0 : f16
        %z = arith.select %large, %one, %zero : f16
        linalg.yield %z : f16
      } -> tensor<64x64xf16>
      hopper.yield %y : tensor<64x64xf16>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %w into %o[0, 0] [64, 64] [1, 1] : tensor<64x64xf16> into tensor<64x64xf16>
    }
  }
  return %r : tensor<64x64xf16>
}

// CHECK-LABEL: .entry powers_kernel(
// CHECK-NOT: max.NaN
// CHECK: 1073758208
// CHECK: vote.sync.any
func.func @powers() -> tensor<64x64xbf16> {
  %e = tensor.empty() : tensor<64x64xbf16>
  %r = scf.forall (%n) in (1) shared_outs(%o = %e) -> (tensor<64x64xbf16>) {
    hopper.producer registers 24 {
    }
    %w = hopper.consumers 1 registers 240 -> (tensor<64x64xbf16>) {
      %e2 = tensor.empty() : tensor<64x64xbf16>
      %s = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e2 : tensor<64x64xbf16>) {
      ^bb0(%a: bf16):
        %i = linalg.index 0 : index
        %c32 = arith.constant 32 : index
        %k = arith.subi %i, %c32 : index
        %n32 = arith.index_cast %k : index to i32
        %x = arith.sitofp %n32 : i32 to f32
        %f = math.exp2 %x : f32
        %t = arith.truncf %f : f32 to bf16
        linalg.yield %t : bf16
      } -> tensor<64x64xbf16>
      %large = hopper.exceeds %s limit 2.0 : tensor<64x64xbf16>
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xbf16>) outs(%e2 : tensor<64x64xbf16>) {
      ^bb0(%v: bf16, %a: bf16):
        %zero = arith.constant 0.0 : bf16
        %one = arith.constant 1.0 : bf16
        %z = arith.select %large, %one, %zero : bf16
        linalg.yield %z : bf16
      } -> tensor<64x64xbf16>
      hopper.yield %y : tensor<64x64xbf16>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %w into %o[0, 0] [64, 64] [1, 1] : tensor<64x64xbf16> into tensor<64x64xbf16>
    }
  }
  return %r : tensor<64x64xbf16>
}

// A vector has one number a register, whatever its type.
// CHECK-LABEL: .entry maxima_kernel(
// CHECK: vote.sync.any
func.func @maxima() -> tensor<64x64xbf16> {
  %e = tensor.empty() : tensor<64x64xbf16>
  %r = scf.forall (%n) in (1) shared_outs(%o = %e) -> (tensor<64x64xbf16>) {
    hopper.producer registers 24 {
    }
    %w = hopper.consumers 1 registers 240 -> (tensor<64x64xbf16>) {
      %e2 = tensor.empty() : tensor<64x64xbf16>
      %s = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e2 : tensor<64x64xbf16>) {
      ^bb0(%a: bf16):
        %i = linalg.index 0 : index
        %j = linalg.index 1 : index
        %c48 = arith.constant 48 : index
        %d = arith.subi %i, %j : index
        %k = arith.subi %d, %c48 : index
        %n32 = arith.index_cast %k : index to i32
        %f = arith.sitofp %n32 : i32 to f32
        %t = arith.truncf %f : f32 to bf16
        linalg.yield %t : bf16
      } -> tensor<64x64xbf16>
      %least = arith.constant 0xFF80 : bf16
      %ev = tensor.empty() : tensor<64xbf16>
      %lowest = linalg.fill ins(%least : bf16) outs(%ev : tensor<64xbf16>) -> tensor<64xbf16>
      %most = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<64x64xbf16>) outs(%lowest : tensor<64xbf16>) {
      ^bb0(%v: bf16, %a: bf16):
        %m = arith.maximumf %v, %a : bf16
        linalg.yield %m : bf16
      } -> tensor<64xbf16>
      %large = hopper.exceeds %most limit 2.0 : tensor<64xbf16>
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xbf16>) outs(%e2 : tensor<64x64xbf16>) {
      ^bb0(%v: bf16, %a: bf16):
        %zero = arith.constant 0.0 : bf16
        %one = arith.constant 1.0 : bf16
        %z = arith.select %large, %one, %zero : bf16
        linalg.yield %z : bf16
      } -> tensor<64x64xbf16>
      hopper.yield %y : tensor<64x64xbf16>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %w into %o[0, 0] [64, 64] [1, 1] : tensor<64x64xbf16> into tensor<64x64xbf16>
    }
  }
  return %r : tensor<64x64xbf16>
}
