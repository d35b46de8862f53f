// Random bits of tiles whose rows are keys: made in words of rows of queries,
// which the threads of a warpgroup exchange. A second Philox says which they are.

// REQUIRES: numpy
// RUN: fa-opt %s --pass-pipeline="builtin.module(fa-hopper-layouts,fa-tiles-to-threads,fa-lower-to-nvvm,fa-emit-ptx{chip=sm_90a output=%t.ptx})" -o /dev/null
// RUN: FileCheck %s --input-file=%t.ptx
// RUN: %fa_python %fa_src/test/integration/emulate_exchange.py %t.ptx exchanged 128 128 | FileCheck %s --check-prefix=EMULATED
// RUN: %fa_python %fa_src/test/integration/emulate_exchange.py %t.ptx shorter 64 64 | FileCheck %s --check-prefix=EMULATED
// RUN: %fa_python %fa_src/test/integration/emulate_exchange.py %t.ptx alone 128 128 | FileCheck %s --check-prefix=EMULATED
// RUN: %fa_python %fa_src/test/integration/emulate_exchange.py %t.ptx skewed 128 128 | FileCheck %s --check-prefix=EMULATED
// EMULATED: ok

#id = affine_map<(i, j) -> (i, j)>

// CHECK-LABEL: .entry exchanged_kernel(
// CHECK: bar.sync
// CHECK: st.shared.v2.u32
// CHECK: bar.sync
// CHECK-COUNT-4: ld.shared.v4.u32
func.func @exchanged() -> tensor<128x128xbf16> {
  %e = tensor.empty() : tensor<128x128xbf16>
  %r = scf.forall (%n) in (1) shared_outs(%o = %e) -> (tensor<128x128xbf16>) {
    hopper.producer registers 24 {
    }
    %w = hopper.consumers 2 registers 240 exchange 1024 -> (tensor<128x128xbf16>) {
      %seed = arith.constant 81985529216486895 : i64
      %c3 = arith.constant 3 : index
      %c2 = arith.constant 2 : index
      %c128 = arith.constant 128 : index
      %c256 = arith.constant 256 : index
      %eb = tensor.empty() : tensor<128x128xi1>
      %kept = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%eb : tensor<128x128xi1>) {
      ^bb0(%a: i1):
        %key = linalg.index 0 : index
        %query = linalg.index 1 : index
        %i = arith.addi %query, %c128 : index
        %j = arith.addi %key, %c256 : index
        %bits = fa.random_bits %seed at [%c3, %c2, %i, %j] tile [128, 128]
        %limit = arith.constant 48 : i8
        %k = arith.cmpi uge, %bits, %limit : i8
        linalg.yield %k : i1
      } -> tensor<128x128xi1>
      %ef = tensor.empty() : tensor<128x128xbf16>
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%kept : tensor<128x128xi1>) outs(%ef : tensor<128x128xbf16>) {
      ^bb0(%k: i1, %a: bf16):
        %zero = arith.constant 0.0 : bf16
        %one = arith.constant 1.0 : bf16
        %z = arith.select %k, %one, %zero : bf16
        linalg.yield %z : bf16
      } -> tensor<128x128xbf16>
      hopper.yield %y : tensor<128x128xbf16>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %w into %o[0, 0] [128, 128] [1, 1] : tensor<128x128xbf16> into tensor<128x128xbf16>
    }
  }
  return %r : tensor<128x128xbf16>
}

// One word a thread.
// CHECK-LABEL: .entry shorter_kernel(
// CHECK: st.shared.u32
// CHECK: bar.sync
// CHECK-COUNT-2: ld.shared.v4.u32
func.func @shorter() -> tensor<64x64xbf16> {
  %e = tensor.empty() : tensor<64x64xbf16>
  %r = scf.forall (%n) in (1) shared_outs(%o = %e) -> (tensor<64x64xbf16>) {
    hopper.producer registers 24 {
    }
    %w = hopper.consumers 1 registers 240 exchange 1024 -> (tensor<64x64xbf16>) {
      %seed = arith.constant 81985529216486895 : i64
      %c3 = arith.constant 3 : index
      %c2 = arith.constant 2 : index
      %c128 = arith.constant 128 : index
      %c256 = arith.constant 256 : index
      %eb = tensor.empty() : tensor<64x64xi1>
      %kept = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%eb : tensor<64x64xi1>) {
      ^bb0(%a: i1):
        %key = linalg.index 0 : index
        %query = linalg.index 1 : index
        %i = arith.addi %query, %c128 : index
        %j = arith.addi %key, %c256 : index
        %bits = fa.random_bits %seed at [%c3, %c2, %i, %j] tile [64, 64]
        %limit = arith.constant 26 : i8
        %k = arith.cmpi uge, %bits, %limit : i8
        linalg.yield %k : i1
      } -> tensor<64x64xi1>
      %ef = tensor.empty() : tensor<64x64xbf16>
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%kept : tensor<64x64xi1>) outs(%ef : tensor<64x64xbf16>) {
      ^bb0(%k: i1, %a: bf16):
        %zero = arith.constant 0.0 : bf16
        %one = arith.constant 1.0 : bf16
        %z = arith.select %k, %one, %zero : bf16
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

// Without memory to exchange them in each element has its own.
// CHECK-LABEL: .entry alone_kernel(
// CHECK-NOT: ld.shared.v4.u32
func.func @alone() -> tensor<128x128xbf16> {
  %e = tensor.empty() : tensor<128x128xbf16>
  %r = scf.forall (%n) in (1) shared_outs(%o = %e) -> (tensor<128x128xbf16>) {
    hopper.producer registers 24 {
    }
    %w = hopper.consumers 2 registers 240 -> (tensor<128x128xbf16>) {
      %seed = arith.constant 81985529216486895 : i64
      %c3 = arith.constant 3 : index
      %c2 = arith.constant 2 : index
      %c128 = arith.constant 128 : index
      %c256 = arith.constant 256 : index
      %eb = tensor.empty() : tensor<128x128xi1>
      %kept = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%eb : tensor<128x128xi1>) {
      ^bb0(%a: i1):
        %key = linalg.index 0 : index
        %query = linalg.index 1 : index
        %i = arith.addi %query, %c128 : index
        %j = arith.addi %key, %c256 : index
        %bits = fa.random_bits %seed at [%c3, %c2, %i, %j] tile [128, 128]
        %limit = arith.constant 48 : i8
        %k = arith.cmpi uge, %bits, %limit : i8
        linalg.yield %k : i1
      } -> tensor<128x128xi1>
      %ef = tensor.empty() : tensor<128x128xbf16>
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%kept : tensor<128x128xi1>) outs(%ef : tensor<128x128xbf16>) {
      ^bb0(%k: i1, %a: bf16):
        %zero = arith.constant 0.0 : bf16
        %one = arith.constant 1.0 : bf16
        %z = arith.select %k, %one, %zero : bf16
        linalg.yield %z : bf16
      } -> tensor<128x128xbf16>
      hopper.yield %y : tensor<128x128xbf16>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %w into %o[0, 0] [128, 128] [1, 1] : tensor<128x128xbf16> into tensor<128x128xbf16>
    }
  }
  return %r : tensor<128x128xbf16>
}

// Nor where bits' rows are no rows or columns of the tile.
// CHECK-LABEL: .entry skewed_kernel(
// CHECK-NOT: ld.shared.v4.u32
func.func @skewed() -> tensor<128x128xbf16> {
  %e = tensor.empty() : tensor<128x128xbf16>
  %r = scf.forall (%n) in (1) shared_outs(%o = %e) -> (tensor<128x128xbf16>) {
    hopper.producer registers 24 {
    }
    %w = hopper.consumers 2 registers 240 exchange 1024 -> (tensor<128x128xbf16>) {
      %seed = arith.constant 81985529216486895 : i64
      %c3 = arith.constant 3 : index
      %c2 = arith.constant 2 : index
      %c128 = arith.constant 128 : index
      %c256 = arith.constant 256 : index
      %eb = tensor.empty() : tensor<128x128xi1>
      %kept = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%eb : tensor<128x128xi1>) {
      ^bb0(%a: i1):
        %key = linalg.index 0 : index
        %query = linalg.index 1 : index
        %both = arith.addi %query, %key : index
        %i = arith.addi %both, %c128 : index
        %j = arith.addi %key, %c256 : index
        %bits = fa.random_bits %seed at [%c3, %c2, %i, %j] tile [128, 128]
        %limit = arith.constant 48 : i8
        %k = arith.cmpi uge, %bits, %limit : i8
        linalg.yield %k : i1
      } -> tensor<128x128xi1>
      %ef = tensor.empty() : tensor<128x128xbf16>
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%kept : tensor<128x128xi1>) outs(%ef : tensor<128x128xbf16>) {
      ^bb0(%k: i1, %a: bf16):
        %zero = arith.constant 0.0 : bf16
        %one = arith.constant 1.0 : bf16
        %z = arith.select %k, %one, %zero : bf16
        linalg.yield %z : bf16
      } -> tensor<128x128xbf16>
      hopper.yield %y : tensor<128x128xbf16>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %w into %o[0, 0] [128, 128] [1, 1] : tensor<128x128xbf16> into tensor<128x128xbf16>
    }
  }
  return %r : tensor<128x128xbf16>
}
