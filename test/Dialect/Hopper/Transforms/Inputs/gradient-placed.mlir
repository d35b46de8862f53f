// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The output of --fa-hopper-place for test/inputs/tiles/backward.mlir, with names.

#id = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>
!keys = tensor<128x64xbf16>
!rows = tensor<64x64xbf16>
!scores = tensor<128x64xf32>
!part = tensor<64x64xf32>
!all = tensor<256x64xbf16>
!row = tensor<64xf32>

func.func @backward(%q: !all, %k: !all, %v: !all, %do: !all, %lse: tensor<256xf32>, %d: tensor<256xf32>) -> (!all, !all, tensor<256x64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  %zero = arith.constant 0.000000e+00 : f32
  %e = tensor.empty() : !all
  %e2 = tensor.empty() : tensor<256x64xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e2 : tensor<256x64xf32>) -> tensor<256x64xf32>
  %r:3 = scf.forall (%j0) = (0) to (256) step (128) shared_outs(%dk_all = %e, %dv_all = %e, %dq_all = %zeros) -> (!all, !all, tensor<256x64xf32>) {
    %e3 = tensor.empty() : !scores
    %e4 = tensor.empty() : !keys
    %zeros2 = linalg.fill ins(%zero : f32) outs(%e3 : !scores) -> !scores
    %kt = tensor.extract_slice %k[%j0, 0] [128, 64] [1, 1] : !all to !keys
    %vt = tensor.extract_slice %v[%j0, 0] [128, 64] [1, 1] : !all to !keys
    %k_ring = hopper.ring "tile0" at 1024 barriers 0 : <1, !keys>
    %q_ring = hopper.ring "tile1" at 17408 barriers 16 : <2, !rows>
    %do_ring = hopper.ring "tile2" at 33792 barriers 48 : <2, !rows>
    %v_ring = hopper.ring "tile3" at 50176 barriers 80 : <1, !keys>
    %shared_ring = hopper.ring "tile4" at 66560 barriers 96 computed : <2, !keys>
    %lse_ring = hopper.ring "tile5" at 99328 barriers 128 : <2, !row>
    %d_ring = hopper.ring "tile6" at 100352 barriers 160 : <2, !row>
    hopper.tile_queue barriers 192 longest_first section 8
    hopper.producer registers 24 {
      hopper.load %kt into %k_ring bytes 16384 : !keys, <1, !keys>
      hopper.load %vt into %v_ring bytes 16384 : !keys, <1, !keys>
      scf.for %i0 = %c0 to %c256 step %c64 {
        %qt = tensor.extract_slice %q[%i0, 0] [64, 64] [1, 1] : !all to !rows
        hopper.load %qt into %q_ring bytes 8192 : !rows, <2, !rows>
        %lset = tensor.extract_slice %lse[%i0] [64] [1] : tensor<256xf32> to !row
        hopper.load %lset into %lse_ring bytes 256 : !row, <2, !row>
        %dot = tensor.extract_slice %do[%i0, 0] [64, 64] [1, 1] : !all to !rows
        hopper.load %dot into %do_ring bytes 8192 : !rows, <2, !rows>
        %dt = tensor.extract_slice %d[%i0] [64] [1] : tensor<256xf32> to !row
        hopper.load %dt into %d_ring bytes 256 : !row, <2, !row>
      }
    }
    %results:3 = hopper.consumers 2 registers 240 spare 96 -> (!keys, !keys, tensor<256x64xf32>) {
      %k_slot = hopper.acquire %k_ring of %kt : <1, !keys> -> <!keys>
      %v_slot = hopper.acquire %v_ring of %vt : <1, !keys> -> <!keys>
      %loop:3 = scf.for %i = %c0 to %c256 step %c64 iter_args(%dk_sum = %zeros2, %dv_sum = %zeros2, %dq_sum = %dq_all) -> (!scores, !scores, tensor<256x64xf32>) {
        %qt2 = tensor.extract_slice %q[%i, 0] [64, 64] [1, 1] : !all to !rows
        %dot2 = tensor.extract_slice %do[%i, 0] [64, 64] [1, 1] : !all to !rows
        %lset2 = tensor.extract_slice %lse[%i] [64] [1] : tensor<256xf32> to !row
        %dt2 = tensor.extract_slice %d[%i] [64] [1] : tensor<256xf32> to !row
        %q_slot = hopper.acquire %q_ring of %qt2 : <2, !rows> -> <!rows>
        %s_pending = hopper.wgmma %k_slot, %q_slot : (!hopper.slot<!keys>, !hopper.slot<!rows>) -> !hopper.pending<!scores>
        %s = hopper.wait_group 0, %s_pending : !hopper.pending<!scores>
        %lse_slot = hopper.acquire %lse_ring of %lset2 : <2, !row> -> <!row>
        %lse_rows = hopper.read %lse_slot : <!row> -> !row
        %p = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %lse_rows : !scores, !row) outs(%e3 : !scores) {
        ^bb0(%x: f32, %y: f32, %out: f32):
          %below = arith.subf %x, %y : f32
          %exp = math.exp2 %below : f32
          linalg.yield %exp : f32
        } -> !scores
        hopper.release %lse_slot : <!row>
        %rounded = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p : !scores) outs(%e4 : !keys) {
        ^bb0(%x: f32, %out: bf16):
          %rounded2 = arith.truncf %x : f32 to bf16
          linalg.yield %rounded2 : bf16
        } -> !keys
        %do_slot = hopper.acquire %do_ring of %dot2 : <2, !rows> -> <!rows>
        %dv_pending = hopper.wgmma %rounded, %do_slot transposed init(%dv_sum) : (!keys, !hopper.slot<!rows>, !scores) -> !hopper.pending<!scores>
        %dv = hopper.wait_group 0, %dv_pending : !hopper.pending<!scores>
        %dp_pending = hopper.wgmma %v_slot, %do_slot : (!hopper.slot<!keys>, !hopper.slot<!rows>) -> !hopper.pending<!scores>
        %dp = hopper.wait_group 0, %dp_pending : !hopper.pending<!scores>
        hopper.release %do_slot : <!rows>
        %d_slot = hopper.acquire %d_ring of %dt2 : <2, !row> -> <!row>
        %d_rows = hopper.read %d_slot : <!row> -> !row
        %ds = linalg.generic {indexing_maps = [#id, #id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %dp, %d_rows : !scores, !scores, !row) outs(%e4 : !keys) {
        ^bb0(%x: f32, %y: f32, %z: f32, %out: bf16):
          %below2 = arith.subf %y, %z : f32
          %product = arith.mulf %x, %below2 : f32
          %rounded3 = arith.truncf %product : f32 to bf16
          linalg.yield %rounded3 : bf16
        } -> !keys
        hopper.release %d_slot : <!row>
        %dk_pending = hopper.wgmma %ds, %q_slot transposed init(%dk_sum) : (!keys, !hopper.slot<!rows>, !scores) -> !hopper.pending<!scores>
        %dk = hopper.wait_group 0, %dk_pending : !hopper.pending<!scores>
        hopper.release %q_slot : <!rows>
        hopper.share %ds into %shared_ring : !keys, <2, !keys>
        %shared_slot = hopper.acquire %shared_ring of %ds : <2, !keys> -> <!keys>
        %dq_pending = hopper.wgmma %shared_slot transposed, %k_slot transposed : (!hopper.slot<!keys>, !hopper.slot<!keys>) -> !hopper.pending<!part>
        %dq = hopper.wait_group 0, %dq_pending : !hopper.pending<!part>
        hopper.release %shared_slot : <!keys>
        %dq_staged = hopper.stage %dq at 101376 : !part
        %sum = fa.accumulate_slice %dq_staged into %dq_sum[%i, 0] [64, 64] [1, 1] : !part into tensor<256x64xf32>
        scf.yield %dk, %dv, %sum : !scores, !scores, tensor<256x64xf32>
      }
      hopper.release %v_slot : <!keys>
      hopper.release %k_slot : <!keys>
      %rounded4 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%loop#0 : !scores) outs(%e4 : !keys) {
      ^bb0(%x: f32, %out: bf16):
        %rounded5 = arith.truncf %x : f32 to bf16
        linalg.yield %rounded5 : bf16
      } -> !keys
      %rounded6 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%loop#1 : !scores) outs(%e4 : !keys) {
      ^bb0(%x: f32, %out: bf16):
        %rounded7 = arith.truncf %x : f32 to bf16
        linalg.yield %rounded7 : bf16
      } -> !keys
      hopper.yield %rounded4, %rounded6, %loop#2 : !keys, !keys, tensor<256x64xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %results#0 into %dk_all[%j0, 0] [128, 64] [1, 1] : !keys into !all
      tensor.parallel_insert_slice %results#1 into %dv_all[%j0, 0] [128, 64] [1, 1] : !keys into !all
      fa.parallel_accumulate %results#2 into %dq_all : tensor<256x64xf32>
    }
  }
  return %r#0, %r#1, %r#2 : !all, !all, tensor<256x64xf32>
}

