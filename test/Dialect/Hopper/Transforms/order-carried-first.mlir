// With `carried_first`, products of what the loop carries, dV, dK and dQ of the
// iteration before, start before S of this one, although more is to follow S; dP
// starts before S has ended. What is computed is executed elsewhere, as in
// order.mlir.

// The input is the output of --fa-hopper-place --hopper-narrow --hopper-schedule --hopper-expand for
// test/inputs/tiles/backward.mlir with blocks of 128 queries.
// RUN: fa-opt %s --hopper-order --hopper-verify | FileCheck %s

// CHECK: hopper.consumers 2 registers {{[0-9]+}} spare 48 carried_first
// CHECK: scf.for
// CHECK: hopper.wgmma {{.*}} transposed init
// CHECK: hopper.wgmma {{.*}} transposed init
// CHECK: hopper.wgmma {{.*}} transposed, {{.*}} transposed :
// CHECK: %[[S:.*]] = hopper.wgmma {{.*}} -> !hopper.pending<tensor<128x128xf32>>
// CHECK: hopper.stage
// CHECK: hopper.wgmma {{.*}} -> !hopper.pending<tensor<128x128xf32>>
// CHECK: hopper.wait_group 1, %[[S]]
// CHECK: math.exp2

#id = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>
!rows = tensor<128x64xbf16>
!scores = tensor<128x128xf32>
!probs = tensor<128x128xbf16>
!sums = tensor<128x64xf32>
!row = tensor<128xf32>

func.func @backward(%q: tensor<512x64xbf16>, %k: tensor<256x64xbf16>, %v: tensor<256x64xbf16>, %do: tensor<512x64xbf16>, %lse: tensor<512xf32>, %d: tensor<512xf32>) -> (tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<512x64xf32>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %zero = arith.constant 0.000000e+00 : f32
  %e = tensor.empty() : tensor<256x64xbf16>
  %e2 = tensor.empty() : tensor<512x64xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e2 : tensor<512x64xf32>) -> tensor<512x64xf32>
  %r:3 = scf.forall (%j0) = (0) to (256) step (128) shared_outs(%dk_all = %e, %dv_all = %e, %dq_all = %zeros) -> (tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<512x64xf32>) {
    %e3 = tensor.empty() : !scores
    %e4 = tensor.empty() : !probs
    %e5 = tensor.empty() : !sums
    %zeros2 = linalg.fill ins(%zero : f32) outs(%e5 : !sums) -> !sums
    %e6 = tensor.empty() : !rows
    %kt = tensor.extract_slice %k[%j0, 0] [128, 64] [1, 1] : tensor<256x64xbf16> to !rows
    %vt = tensor.extract_slice %v[%j0, 0] [128, 64] [1, 1] : tensor<256x64xbf16> to !rows
    %k_ring = hopper.ring "tile0" at 1024 barriers 0 : <1, !rows>
    %q_ring = hopper.ring "tile1" at 17408 barriers 16 : <2, !rows>
    %do_ring = hopper.ring "tile2" at 50176 barriers 48 : <2, !rows>
    %v_ring = hopper.ring "tile3" at 82944 barriers 80 : <1, !rows>
    %shared_ring = hopper.ring "tile4" at 99328 barriers 96 computed : <2, !probs>
    %lse_ring = hopper.ring "tile5" at 164864 barriers 16 with %q_ring : !hopper.ring<2, !rows> in : <2, !row>
    %d_ring = hopper.ring "tile6" at 165888 barriers 16 with %q_ring : !hopper.ring<2, !rows> in : <2, !row>
    hopper.tile_queue barriers 128 longest_first section 8
    hopper.producer registers 24 {
      hopper.load %kt into %k_ring bytes 16384 : !rows, <1, !rows>
      hopper.load %vt into %v_ring bytes 16384 : !rows, <1, !rows>
      scf.for %i0 = %c0 to %c512 step %c128 {
        %qt = tensor.extract_slice %q[%i0, 0] [128, 64] [1, 1] : tensor<512x64xbf16> to !rows
        hopper.load %qt into %q_ring bytes 16384 : !rows, <2, !rows>
        %dt = tensor.extract_slice %d[%i0] [128] [1] : tensor<512xf32> to !row
        hopper.load %dt into %d_ring bytes 512 : !row, <2, !row>
        %lset = tensor.extract_slice %lse[%i0] [128] [1] : tensor<512xf32> to !row
        hopper.load %lset into %lse_ring bytes 512 : !row, <2, !row>
        %dot = tensor.extract_slice %do[%i0, 0] [128, 64] [1, 1] : tensor<512x64xbf16> to !rows
        hopper.load %dot into %do_ring bytes 16384 : !rows, <2, !rows>
      }
    }
    %results:3 = hopper.consumers 2 registers 240 spare 48 carried_first -> (!rows, !rows, tensor<512x64xf32>) {
      %k_slot = hopper.acquire %k_ring of %kt : <1, !rows> -> <!rows>
      %v_slot = hopper.acquire %v_ring of %vt : <1, !rows> -> <!rows>
      %muli = arith.muli %c128, %c0 : index
      %next = arith.addi %c0, %muli : index
      %qt2 = tensor.extract_slice %q[%next, 0] [128, 64] [1, 1] : tensor<512x64xbf16> to !rows
      %dot2 = tensor.extract_slice %do[%next, 0] [128, 64] [1, 1] : tensor<512x64xbf16> to !rows
      %lset2 = tensor.extract_slice %lse[%next] [128] [1] : tensor<512xf32> to !row
      %dt2 = tensor.extract_slice %d[%next] [128] [1] : tensor<512xf32> to !row
      %q_slot = hopper.acquire %q_ring of %qt2 : <2, !rows> -> <!rows>
      %d_slot = hopper.acquire %d_ring of %dt2 with %q_slot : !hopper.slot<!rows> in : <2, !row> -> <!row>
      %lse_slot = hopper.acquire %lse_ring of %lset2 with %q_slot : !hopper.slot<!rows> in : <2, !row> -> <!row>
      %s_pending = hopper.wgmma %k_slot, %q_slot : (!hopper.slot<!rows>, !hopper.slot<!rows>) -> !hopper.pending<!scores>
      %s = hopper.wait_group 0, %s_pending : !hopper.pending<!scores>
      %lse_rows = hopper.read %lse_slot : <!row> -> !row
      %p = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %lse_rows : !scores, !row) outs(%e3 : !scores) {
      ^bb0(%x: f32, %y: f32, %out: f32):
        %below = arith.subf %x, %y : f32
        %exp = math.exp2 %below : f32
        linalg.yield %exp : f32
      } -> !scores
      %rounded = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p : !scores) outs(%e4 : !probs) {
      ^bb0(%x: f32, %out: bf16):
        %rounded2 = arith.truncf %x : f32 to bf16
        linalg.yield %rounded2 : bf16
      } -> !probs
      %do_slot = hopper.acquire %do_ring of %dot2 : <2, !rows> -> <!rows>
      %dp_pending = hopper.wgmma %v_slot, %do_slot : (!hopper.slot<!rows>, !hopper.slot<!rows>) -> !hopper.pending<!scores>
      %dp = hopper.wait_group 0, %dp_pending : !hopper.pending<!scores>
      %d_rows = hopper.read %d_slot : <!row> -> !row
      %ds = linalg.generic {indexing_maps = [#id, #id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %dp, %d_rows : !scores, !scores, !row) outs(%e4 : !probs) {
      ^bb0(%x: f32, %y: f32, %z: f32, %out: bf16):
        %below2 = arith.subf %y, %z : f32
        %product = arith.mulf %x, %below2 : f32
        %rounded3 = arith.truncf %product : f32 to bf16
        linalg.yield %rounded3 : bf16
      } -> !probs
      hopper.share %ds into %shared_ring : !probs, <2, !probs>
      %c1 = arith.constant 1 : index
      %muli2 = arith.muli %c128, %c1 : index
      %before = arith.subi %c512, %muli2 : index
      %loop:7 = scf.for %i = %c0 to %before step %c128 iter_args(%dk_sum = %zeros2, %dv_sum = %zeros2, %dq_sum = %dq_all, %rounded_c = %rounded, %do_slot_c = %do_slot, %ds_c = %ds, %q_slot_c = %q_slot) -> (!sums, !sums, tensor<512x64xf32>, !probs, !hopper.slot<!rows>, !probs, !hopper.slot<!rows>) {
        %dv_pending = hopper.wgmma %rounded_c, %do_slot_c transposed init(%dv_sum) : (!probs, !hopper.slot<!rows>, !sums) -> !hopper.pending<!sums>
        %dv = hopper.wait_group 0, %dv_pending : !hopper.pending<!sums>
        hopper.release %do_slot_c : <!rows>
        %dk_pending = hopper.wgmma %ds_c, %q_slot_c transposed init(%dk_sum) : (!probs, !hopper.slot<!rows>, !sums) -> !hopper.pending<!sums>
        %dk = hopper.wait_group 0, %dk_pending : !hopper.pending<!sums>
        hopper.release %q_slot_c : <!rows>
        %shared_slot = hopper.acquire %shared_ring of %ds_c {hopper.behind = 1 : i64} : <2, !probs> -> <!probs>
        %dq_pending = hopper.wgmma %shared_slot transposed, %k_slot transposed : (!hopper.slot<!probs>, !hopper.slot<!rows>) -> !hopper.pending<!sums>
        %dq = hopper.wait_group 0, %dq_pending : !hopper.pending<!sums>
        hopper.release %shared_slot : <!probs>
        %dq_staged = hopper.stage %dq at 166912 : !sums
        %next2 = arith.addi %i, %muli : index
        %sum = fa.accumulate_slice %dq_staged into %dq_sum[%next2, 0] [128, 64] [1, 1] : !sums into tensor<512x64xf32>
        %next3 = arith.addi %i, %muli2 : index
        %qt3 = tensor.extract_slice %q[%next3, 0] [128, 64] [1, 1] : tensor<512x64xbf16> to !rows
        %dot3 = tensor.extract_slice %do[%next3, 0] [128, 64] [1, 1] : tensor<512x64xbf16> to !rows
        %lset3 = tensor.extract_slice %lse[%next3] [128] [1] : tensor<512xf32> to !row
        %dt3 = tensor.extract_slice %d[%next3] [128] [1] : tensor<512xf32> to !row
        %q_slot2 = hopper.acquire %q_ring of %qt3 : <2, !rows> -> <!rows>
        %d_slot2 = hopper.acquire %d_ring of %dt3 with %q_slot2 : !hopper.slot<!rows> in : <2, !row> -> <!row>
        %lse_slot2 = hopper.acquire %lse_ring of %lset3 with %q_slot2 : !hopper.slot<!rows> in : <2, !row> -> <!row>
        %s_pending2 = hopper.wgmma %k_slot, %q_slot2 : (!hopper.slot<!rows>, !hopper.slot<!rows>) -> !hopper.pending<!scores>
        %s2 = hopper.wait_group 0, %s_pending2 : !hopper.pending<!scores>
        %lse_rows2 = hopper.read %lse_slot2 : <!row> -> !row
        %p2 = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%s2, %lse_rows2 : !scores, !row) outs(%e3 : !scores) {
        ^bb0(%x: f32, %y: f32, %out: f32):
          %below3 = arith.subf %x, %y : f32
          %exp2 = math.exp2 %below3 : f32
          linalg.yield %exp2 : f32
        } -> !scores
        %rounded4 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p2 : !scores) outs(%e4 : !probs) {
        ^bb0(%x: f32, %out: bf16):
          %rounded5 = arith.truncf %x : f32 to bf16
          linalg.yield %rounded5 : bf16
        } -> !probs
        %do_slot2 = hopper.acquire %do_ring of %dot3 : <2, !rows> -> <!rows>
        %dp_pending2 = hopper.wgmma %v_slot, %do_slot2 : (!hopper.slot<!rows>, !hopper.slot<!rows>) -> !hopper.pending<!scores>
        %dp2 = hopper.wait_group 0, %dp_pending2 : !hopper.pending<!scores>
        %d_rows2 = hopper.read %d_slot2 : <!row> -> !row
        %ds2 = linalg.generic {indexing_maps = [#id, #id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%p2, %dp2, %d_rows2 : !scores, !scores, !row) outs(%e4 : !probs) {
        ^bb0(%x: f32, %y: f32, %z: f32, %out: bf16):
          %below4 = arith.subf %y, %z : f32
          %product2 = arith.mulf %x, %below4 : f32
          %rounded6 = arith.truncf %product2 : f32 to bf16
          linalg.yield %rounded6 : bf16
        } -> !probs
        hopper.share %ds2 into %shared_ring : !probs, <2, !probs>
        scf.yield %dk, %dv, %sum, %rounded4, %do_slot2, %ds2, %q_slot2 : !sums, !sums, tensor<512x64xf32>, !probs, !hopper.slot<!rows>, !probs, !hopper.slot<!rows>
      }
      %some = arith.cmpi slt, %c128, %c0 : index
      %cm1 = arith.constant -1 : index
      %select = arith.select %some, %c1, %cm1 : index
      %before2 = arith.subi %c512, %c0 : index
      %next4 = arith.addi %before2, %c128 : index
      %next5 = arith.addi %next4, %select : index
      %divsi = arith.divsi %next5, %c128 : index
      %before3 = arith.subi %divsi, %c1 : index
      %maxsi = arith.maxsi %c0, %before3 : index
      %muli3 = arith.muli %c128, %maxsi : index
      %next6 = arith.addi %c0, %muli3 : index
      %dv_pending2 = hopper.wgmma %loop#3, %loop#4 transposed init(%loop#1) : (!probs, !hopper.slot<!rows>, !sums) -> !hopper.pending<!sums>
      %dv2 = hopper.wait_group 0, %dv_pending2 : !hopper.pending<!sums>
      hopper.release %loop#4 : <!rows>
      %dk_pending2 = hopper.wgmma %loop#5, %loop#6 transposed init(%loop#0) : (!probs, !hopper.slot<!rows>, !sums) -> !hopper.pending<!sums>
      %dk2 = hopper.wait_group 0, %dk_pending2 : !hopper.pending<!sums>
      hopper.release %loop#6 : <!rows>
      %shared_slot2 = hopper.acquire %shared_ring of %loop#5 : <2, !probs> -> <!probs>
      %dq_pending2 = hopper.wgmma %shared_slot2 transposed, %k_slot transposed : (!hopper.slot<!probs>, !hopper.slot<!rows>) -> !hopper.pending<!sums>
      %dq2 = hopper.wait_group 0, %dq_pending2 : !hopper.pending<!sums>
      hopper.release %shared_slot2 : <!probs>
      %dq_staged2 = hopper.stage %dq2 at 166912 : !sums
      %sum2 = fa.accumulate_slice %dq_staged2 into %loop#2[%next6, 0] [128, 64] [1, 1] : !sums into tensor<512x64xf32>
      hopper.release %v_slot : <!rows>
      hopper.release %k_slot : <!rows>
      %rounded7 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%dk2 : !sums) outs(%e6 : !rows) {
      ^bb0(%x: f32, %out: bf16):
        %rounded8 = arith.truncf %x : f32 to bf16
        linalg.yield %rounded8 : bf16
      } -> !rows
      %rounded9 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%dv2 : !sums) outs(%e6 : !rows) {
      ^bb0(%x: f32, %out: bf16):
        %rounded10 = arith.truncf %x : f32 to bf16
        linalg.yield %rounded10 : bf16
      } -> !rows
      hopper.yield %rounded7, %rounded9, %sum2 : !rows, !rows, tensor<512x64xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %results#0 into %dk_all[%j0, 0] [128, 64] [1, 1] : !rows into tensor<256x64xbf16>
      tensor.parallel_insert_slice %results#1 into %dv_all[%j0, 0] [128, 64] [1, 1] : !rows into tensor<256x64xbf16>
      fa.parallel_accumulate %results#2 into %dq_all : tensor<512x64xf32>
    }
  }
  return %r#0, %r#1, %r#2 : tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<512x64xf32>
}

