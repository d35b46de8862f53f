// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The gradient of attention with dropout, rows of 128 bf16 and whole tiles: its grid over blocks of
// keys as --fa-pipeline="target=sm_90a backward=all" --fa-hopper-place --hopper-narrow
// --hopper-schedule --hopper-expand makes it, with names.

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
!rows = tensor<64x128xbf16>
!keys = tensor<128x128xbf16>
!scores = tensor<64x128xf32>
!sums = tensor<128x128xf32>
!all = tensor<1x2x256x128xbf16>
!row = tensor<64xf32>

func.func @dropout(%q: !all, %k: !all, %v: !all, %do: !all, %lse: tensor<1x2x256xf32>, %d: tensor<1x2x256xf32>, %seed: tensor<i64>) -> (tensor<1x2x256x128xf32>, !all, !all) {
  %constant = arith.constant 0.127517432 : f32
  %zero = arith.constant 0.000000e+00 : bf16
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  %c0 = arith.constant 0 : index
  %constant2 = arith.constant 1.11304343 : f32
  %constant3 = arith.constant 0.0883883461 : f32
  %zero2 = arith.constant 0.000000e+00 : f32
  %constant4 = arith.constant 26 : i8
  %e = tensor.empty() : tensor<1x2x256x128xf32>
  %e2 = tensor.empty() : !all
  %zeros = linalg.fill ins(%zero2 : f32) outs(%e : tensor<1x2x256x128xf32>) -> tensor<1x2x256x128xf32>
  %r:3 = scf.forall (%b, %h, %j0) = (0, 0, 0) to (1, 2, 256) step (1, 1, 128) shared_outs(%dq_all = %zeros, %dk_all = %e2, %dv_all = %e2) -> (tensor<1x2x256x128xf32>, !all, !all) {
    %partt = tensor.extract_slice %dq_all[%b, %h, 0, 0] [1, 1, 256, 128] [1, 1, 1, 1] : tensor<1x2x256x128xf32> to tensor<256x128xf32>
    %kt = tensor.extract_slice %k[%b, %h, %j0, 0] [1, 1, 128, 128] [1, 1, 1, 1] : !all to !keys
    %vt = tensor.extract_slice %v[%b, %h, %j0, 0] [1, 1, 128, 128] [1, 1, 1, 1] : !all to !keys
    %e3 = tensor.empty() : !sums
    %zeros2 = linalg.fill ins(%zero2 : f32) outs(%e3 : !sums) -> !sums
    %e4 = tensor.empty() : !scores
    %e5 = tensor.empty() : !rows
    %e6 = tensor.empty() : !keys
    %q_ring = hopper.ring "tile0" at 1024 barriers 0 : <2, !rows>
    %k_ring = hopper.ring "tile1" at 33792 barriers 32 : <1, !keys>
    %do_ring = hopper.ring "tile2" at 66560 barriers 48 : <2, !rows>
    %v_ring = hopper.ring "tile3" at 99328 barriers 80 : <1, !keys>
    %shared_ring = hopper.ring "tile4" at 132096 barriers 96 computed : <2, !rows>
    %shared_ring2 = hopper.ring "tile5" at 164864 barriers 128 computed : <2, !rows>
    %lse_ring = hopper.ring "tile6" at 197632 barriers 0 with %q_ring : !hopper.ring<2, !rows> in : <2, !row>
    %d_ring = hopper.ring "tile7" at 198656 barriers 0 with %q_ring : !hopper.ring<2, !rows> in : <2, !row>
    hopper.tile_queue barriers 160 longest_first section 8
    hopper.producer registers 24 {
      hopper.load %kt into %k_ring bytes 32768 : !keys, <1, !keys>
      hopper.load %vt into %v_ring bytes 32768 : !keys, <1, !keys>
      scf.for %i0 = %c0 to %c256 step %c64 {
        %qt = tensor.extract_slice %q[%b, %h, %i0, 0] [1, 1, 64, 128] [1, 1, 1, 1] : !all to !rows
        hopper.load %qt into %q_ring bytes 16384 : !rows, <2, !rows>
        %dt = tensor.extract_slice %d[%b, %h, %i0] [1, 1, 64] [1, 1, 1] : tensor<1x2x256xf32> to !row
        hopper.load %dt into %d_ring bytes 256 : !row, <2, !row>
        %lset = tensor.extract_slice %lse[%b, %h, %i0] [1, 1, 64] [1, 1, 1] : tensor<1x2x256xf32> to !row
        hopper.load %lset into %lse_ring bytes 256 : !row, <2, !row>
        %dot = tensor.extract_slice %do[%b, %h, %i0, 0] [1, 1, 64, 128] [1, 1, 1, 1] : !all to !rows
        hopper.load %dot into %do_ring bytes 16384 : !rows, <2, !rows>
      }
    }
    %results:3 = hopper.consumers 2 registers 240 spare 40 carried_first streams -> (tensor<1x2x256x128xf32>, !keys, !keys) {
      %k_slot = hopper.acquire %k_ring of %kt : <1, !keys> -> <!keys>
      %v_slot = hopper.acquire %v_ring of %vt : <1, !keys> -> <!keys>
      %muli = arith.muli %c64, %c0 : index
      %next = arith.addi %c0, %muli : index
      %qt2 = tensor.extract_slice %q[%b, %h, %next, 0] [1, 1, 64, 128] [1, 1, 1, 1] : !all to !rows
      %lset2 = tensor.extract_slice %lse[%b, %h, %next] [1, 1, 64] [1, 1, 1] : tensor<1x2x256xf32> to !row
      %dt2 = tensor.extract_slice %d[%b, %h, %next] [1, 1, 64] [1, 1, 1] : tensor<1x2x256xf32> to !row
      %q_slot = hopper.acquire %q_ring of %qt2 : <2, !rows> -> <!rows>
      %d_slot = hopper.acquire %d_ring of %dt2 with %q_slot : !hopper.slot<!rows> in : <2, !row> -> <!row>
      %lse_slot = hopper.acquire %lse_ring of %lset2 with %q_slot : !hopper.slot<!rows> in : <2, !row> -> <!row>
      %s_pending = hopper.wgmma %q_slot, %k_slot : (!hopper.slot<!rows>, !hopper.slot<!keys>) -> !hopper.pending<!scores>
      %s = hopper.wait_group 0, %s_pending : !hopper.pending<!scores>
      %dot2 = tensor.extract_slice %do[%b, %h, %next, 0] [1, 1, 64, 128] [1, 1, 1, 1] : !all to !rows
      %lse_rows = hopper.read %lse_slot : <!row> -> !row
      %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %lse_rows : !scores, !row) outs(%e4 : !scores) {
      ^bb0(%x: f32, %y: f32, %out: f32):
        %fma = math.fma %x, %constant, %y : f32
        %exp = math.exp2 %fma : f32
        linalg.yield %exp : f32
      } -> !scores
      %do_slot = hopper.acquire %do_ring of %dot2 : <2, !rows> -> <!rows>
      %dp_pending = hopper.wgmma %do_slot, %v_slot : (!hopper.slot<!rows>, !hopper.slot<!keys>) -> !hopper.pending<!scores>
      %dp = hopper.wait_group 0, %dp_pending : !hopper.pending<!scores>
      %e7 = tensor.empty() : tensor<64x128xi1>
      %t = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e7 : tensor<64x128xi1>) {
      ^bb0(%out: i1):
        %v2 = linalg.index 0 : index
        %v3 = linalg.index 1 : index
        %next2 = arith.addi %v2, %next : index
        %next3 = arith.addi %v3, %j0 : index
        %value = tensor.extract %seed[] : tensor<i64>
        %bits = fa.random_bits %value at[%b, %h, %next2, %next3] tile [64, 128]
        %some = arith.cmpi uge, %bits, %constant4 : i8
        linalg.yield %some : i1
      } -> tensor<64x128xi1>
      %t2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%dp, %t : !scores, tensor<64x128xi1>) outs(%e4 : !scores) {
      ^bb0(%x: f32, %y: i1, %out: f32):
        %select = arith.select %y, %x, %zero2 : f32
        linalg.yield %select : f32
      } -> !scores
      %d_rows = hopper.read %d_slot : <!row> -> !row
      %t3 = linalg.generic {indexing_maps = [#id, #id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %t2, %d_rows : !scores, !scores, !row) outs(%e4 : !scores) {
      ^bb0(%x: f32, %y: f32, %z: f32, %out: f32):
        %negf = arith.negf %z : f32
        %fma2 = math.fma %y, %constant2, %negf : f32
        %product = arith.mulf %x, %fma2 : f32
        linalg.yield %product : f32
      } -> !scores
      %rounded = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t3 : !scores) outs(%e5 : !rows) {
      ^bb0(%x: f32, %out: bf16):
        %rounded2 = arith.truncf %x : f32 to bf16
        linalg.yield %rounded2 : bf16
      } -> !rows
      %rounded3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p : !scores) outs(%e5 : !rows) {
      ^bb0(%x: f32, %out: bf16):
        %rounded4 = arith.truncf %x : f32 to bf16
        linalg.yield %rounded4 : bf16
      } -> !rows
      %e8 = tensor.empty() : tensor<64x128xi1>
      %t4 = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e8 : tensor<64x128xi1>) {
      ^bb0(%out: i1):
        %v4 = linalg.index 0 : index
        %v5 = linalg.index 1 : index
        %next4 = arith.addi %v4, %next : index
        %next5 = arith.addi %v5, %j0 : index
        %value2 = tensor.extract %seed[] : tensor<i64>
        %bits2 = fa.random_bits %value2 at[%b, %h, %next4, %next5] tile [64, 128]
        %some2 = arith.cmpi uge, %bits2, %constant4 : i8
        linalg.yield %some2 : i1
      } -> tensor<64x128xi1>
      %t5 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%rounded3, %t4 : !rows, tensor<64x128xi1>) outs(%e5 : !rows) {
      ^bb0(%x: bf16, %y: i1, %out: bf16):
        %select2 = arith.select %y, %x, %zero : bf16
        linalg.yield %select2 : bf16
      } -> !rows
      hopper.share %t5 into %shared_ring : !rows, <2, !rows>
      hopper.share %rounded into %shared_ring2 : !rows, <2, !rows>
      %c1 = arith.constant 1 : index
      %muli2 = arith.muli %c64, %c1 : index
      %before = arith.subi %c256, %muli2 : index
      %loop:7 = scf.for %i = %c0 to %before step %c64 iter_args(%dq_sum = %partt, %dk_sum = %zeros2, %dv_sum = %zeros2, %t_c = %t5, %do_slot_c = %do_slot, %rounded_c = %rounded, %q_slot_c = %q_slot) -> (tensor<256x128xf32>, !sums, !sums, !rows, !hopper.slot<!rows>, !rows, !hopper.slot<!rows>) {
        %shared_slot = hopper.acquire %shared_ring of %t_c {hopper.behind = 1 : i64} : <2, !rows> -> <!rows>
        %dv_pending = hopper.wgmma %shared_slot transposed, %do_slot_c transposed init(%dv_sum) : (!hopper.slot<!rows>, !hopper.slot<!rows>, !sums) -> !hopper.pending<!sums>
        %dv = hopper.wait_group 0, %dv_pending : !hopper.pending<!sums>
        hopper.release %shared_slot : <!rows>
        hopper.release %do_slot_c : <!rows>
        %shared_slot2 = hopper.acquire %shared_ring2 of %rounded_c {hopper.behind = 1 : i64} : <2, !rows> -> <!rows>
        %dk_pending = hopper.wgmma %shared_slot2 transposed, %q_slot_c transposed init(%dk_sum) : (!hopper.slot<!rows>, !hopper.slot<!rows>, !sums) -> !hopper.pending<!sums>
        %dk = hopper.wait_group 0, %dk_pending : !hopper.pending<!sums>
        hopper.release %q_slot_c : <!rows>
        %dq_pending = hopper.wgmma %shared_slot2, %k_slot transposed : (!hopper.slot<!rows>, !hopper.slot<!keys>) -> !hopper.pending<!scores>
        %dq = hopper.wait_group 0, %dq_pending : !hopper.pending<!scores>
        hopper.release %shared_slot2 : <!rows>
        %dq_staged = hopper.stage %dq at 199680 : !scores
        %next6 = arith.addi %i, %muli : index
        %sum = fa.accumulate_slice %dq_staged into %dq_sum[%next6, 0] [64, 128] [1, 1] : !scores into tensor<256x128xf32>
        %next7 = arith.addi %i, %muli2 : index
        %qt3 = tensor.extract_slice %q[%b, %h, %next7, 0] [1, 1, 64, 128] [1, 1, 1, 1] : !all to !rows
        %next8 = arith.addi %i, %muli2 : index
        %lset3 = tensor.extract_slice %lse[%b, %h, %next8] [1, 1, 64] [1, 1, 1] : tensor<1x2x256xf32> to !row
        %next9 = arith.addi %i, %muli2 : index
        %dt3 = tensor.extract_slice %d[%b, %h, %next9] [1, 1, 64] [1, 1, 1] : tensor<1x2x256xf32> to !row
        %q_slot2 = hopper.acquire %q_ring of %qt3 : <2, !rows> -> <!rows>
        %d_slot2 = hopper.acquire %d_ring of %dt3 with %q_slot2 : !hopper.slot<!rows> in : <2, !row> -> <!row>
        %lse_slot2 = hopper.acquire %lse_ring of %lset3 with %q_slot2 : !hopper.slot<!rows> in : <2, !row> -> <!row>
        %s_pending2 = hopper.wgmma %q_slot2, %k_slot : (!hopper.slot<!rows>, !hopper.slot<!keys>) -> !hopper.pending<!scores>
        %s2 = hopper.wait_group 0, %s_pending2 : !hopper.pending<!scores>
        %next10 = arith.addi %i, %muli2 : index
        %dot3 = tensor.extract_slice %do[%b, %h, %next10, 0] [1, 1, 64, 128] [1, 1, 1, 1] : !all to !rows
        %lse_rows2 = hopper.read %lse_slot2 : <!row> -> !row
        %p2 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%s2, %lse_rows2 : !scores, !row) outs(%e4 : !scores) {
        ^bb0(%x: f32, %y: f32, %out: f32):
          %fma3 = math.fma %x, %constant, %y : f32
          %exp2 = math.exp2 %fma3 : f32
          linalg.yield %exp2 : f32
        } -> !scores
        %do_slot2 = hopper.acquire %do_ring of %dot3 : <2, !rows> -> <!rows>
        %dp_pending2 = hopper.wgmma %do_slot2, %v_slot : (!hopper.slot<!rows>, !hopper.slot<!keys>) -> !hopper.pending<!scores>
        %dp2 = hopper.wait_group 0, %dp_pending2 : !hopper.pending<!scores>
        %e9 = tensor.empty() : tensor<64x128xi1>
        %next11 = arith.addi %i, %muli2 : index
        %t6 = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e9 : tensor<64x128xi1>) {
        ^bb0(%out: i1):
          %v6 = linalg.index 0 : index
          %v7 = linalg.index 1 : index
          %next12 = arith.addi %v6, %next11 : index
          %next13 = arith.addi %v7, %j0 : index
          %value3 = tensor.extract %seed[] : tensor<i64>
          %bits3 = fa.random_bits %value3 at[%b, %h, %next12, %next13] tile [64, 128]
          %some3 = arith.cmpi uge, %bits3, %constant4 : i8
          linalg.yield %some3 : i1
        } -> tensor<64x128xi1>
        %t7 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%dp2, %t6 : !scores, tensor<64x128xi1>) outs(%e4 : !scores) {
        ^bb0(%x: f32, %y: i1, %out: f32):
          %select3 = arith.select %y, %x, %zero2 : f32
          linalg.yield %select3 : f32
        } -> !scores
        %d_rows2 = hopper.read %d_slot2 : <!row> -> !row
        %t8 = linalg.generic {indexing_maps = [#id, #id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%p2, %t7, %d_rows2 : !scores, !scores, !row) outs(%e4 : !scores) {
        ^bb0(%x: f32, %y: f32, %z: f32, %out: f32):
          %negf2 = arith.negf %z : f32
          %fma4 = math.fma %y, %constant2, %negf2 : f32
          %product2 = arith.mulf %x, %fma4 : f32
          linalg.yield %product2 : f32
        } -> !scores
        %rounded5 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t8 : !scores) outs(%e5 : !rows) {
        ^bb0(%x: f32, %out: bf16):
          %rounded6 = arith.truncf %x : f32 to bf16
          linalg.yield %rounded6 : bf16
        } -> !rows
        %rounded7 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p2 : !scores) outs(%e5 : !rows) {
        ^bb0(%x: f32, %out: bf16):
          %rounded8 = arith.truncf %x : f32 to bf16
          linalg.yield %rounded8 : bf16
        } -> !rows
        %e10 = tensor.empty() : tensor<64x128xi1>
        %next14 = arith.addi %i, %muli2 : index
        %t9 = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e10 : tensor<64x128xi1>) {
        ^bb0(%out: i1):
          %v8 = linalg.index 0 : index
          %v9 = linalg.index 1 : index
          %next15 = arith.addi %v8, %next14 : index
          %next16 = arith.addi %v9, %j0 : index
          %value4 = tensor.extract %seed[] : tensor<i64>
          %bits4 = fa.random_bits %value4 at[%b, %h, %next15, %next16] tile [64, 128]
          %some4 = arith.cmpi uge, %bits4, %constant4 : i8
          linalg.yield %some4 : i1
        } -> tensor<64x128xi1>
        %t10 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%rounded7, %t9 : !rows, tensor<64x128xi1>) outs(%e5 : !rows) {
        ^bb0(%x: bf16, %y: i1, %out: bf16):
          %select4 = arith.select %y, %x, %zero : bf16
          linalg.yield %select4 : bf16
        } -> !rows
        hopper.share %t10 into %shared_ring : !rows, <2, !rows>
        hopper.share %rounded5 into %shared_ring2 : !rows, <2, !rows>
        scf.yield %sum, %dk, %dv, %t10, %do_slot2, %rounded5, %q_slot2 : tensor<256x128xf32>, !sums, !sums, !rows, !hopper.slot<!rows>, !rows, !hopper.slot<!rows>
      }
      %some5 = arith.cmpi slt, %c64, %c0 : index
      %cm1 = arith.constant -1 : index
      %select5 = arith.select %some5, %c1, %cm1 : index
      %before2 = arith.subi %c256, %c0 : index
      %next17 = arith.addi %before2, %c64 : index
      %next18 = arith.addi %next17, %select5 : index
      %divsi = arith.divsi %next18, %c64 : index
      %before3 = arith.subi %divsi, %c1 : index
      %maxsi = arith.maxsi %c0, %before3 : index
      %muli10 = arith.muli %c64, %maxsi : index
      %next19 = arith.addi %c0, %muli10 : index
      %next20 = arith.addi %maxsi, %c1 : index
      %shared_slot3 = hopper.acquire %shared_ring of %loop#3 : <2, !rows> -> <!rows>
      %dv_pending2 = hopper.wgmma %shared_slot3 transposed, %loop#4 transposed init(%loop#2) : (!hopper.slot<!rows>, !hopper.slot<!rows>, !sums) -> !hopper.pending<!sums>
      %dv2 = hopper.wait_group 0, %dv_pending2 : !hopper.pending<!sums>
      hopper.release %shared_slot3 : <!rows>
      hopper.release %loop#4 : <!rows>
      %shared_slot4 = hopper.acquire %shared_ring2 of %loop#5 : <2, !rows> -> <!rows>
      %dk_pending2 = hopper.wgmma %shared_slot4 transposed, %loop#6 transposed init(%loop#1) : (!hopper.slot<!rows>, !hopper.slot<!rows>, !sums) -> !hopper.pending<!sums>
      %dk2 = hopper.wait_group 0, %dk_pending2 : !hopper.pending<!sums>
      hopper.release %loop#6 : <!rows>
      %dq_pending2 = hopper.wgmma %shared_slot4, %k_slot transposed : (!hopper.slot<!rows>, !hopper.slot<!keys>) -> !hopper.pending<!scores>
      %dq2 = hopper.wait_group 0, %dq_pending2 : !hopper.pending<!scores>
      hopper.release %shared_slot4 : <!rows>
      %dq_staged2 = hopper.stage %dq2 at 199680 : !scores
      %sum2 = fa.accumulate_slice %dq_staged2 into %loop#0[%next19, 0] [64, 128] [1, 1] : !scores into tensor<256x128xf32>
      hopper.release %v_slot : <!keys>
      hopper.release %k_slot : <!keys>
      %v10 = tensor.insert_slice %sum2 into %dq_all[%b, %h, 0, 0] [1, 1, 256, 128] [1, 1, 1, 1] : tensor<256x128xf32> into tensor<1x2x256x128xf32>
      %t11 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%dk2 : !sums) outs(%e3 : !sums) {
      ^bb0(%x: f32, %out: f32):
        %product3 = arith.mulf %x, %constant3 : f32
        linalg.yield %product3 : f32
      } -> !sums
      %rounded9 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t11 : !sums) outs(%e6 : !keys) {
      ^bb0(%x: f32, %out: bf16):
        %rounded10 = arith.truncf %x : f32 to bf16
        linalg.yield %rounded10 : bf16
      } -> !keys
      %t12 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%dv2 : !sums) outs(%e3 : !sums) {
      ^bb0(%x: f32, %out: f32):
        %product4 = arith.mulf %x, %constant2 : f32
        linalg.yield %product4 : f32
      } -> !sums
      %rounded11 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t12 : !sums) outs(%e6 : !keys) {
      ^bb0(%x: f32, %out: bf16):
        %rounded12 = arith.truncf %x : f32 to bf16
        linalg.yield %rounded12 : bf16
      } -> !keys
      hopper.yield %v10, %rounded9, %rounded11 : tensor<1x2x256x128xf32>, !keys, !keys
    }
    scf.forall.in_parallel {
      fa.parallel_accumulate %results#0 into %dq_all : tensor<1x2x256x128xf32>
      tensor.parallel_insert_slice %results#1 into %dk_all[%b, %h, %j0, 0] [1, 1, 128, 128] [1, 1, 1, 1] : !keys into !all
      tensor.parallel_insert_slice %results#2 into %dv_all[%b, %h, %j0, 0] [1, 1, 128, 128] [1, 1, 1, 1] : !keys into !all
    }
  }
  return %r#0, %r#1, %r#2 : tensor<1x2x256x128xf32>, !all, !all
}

