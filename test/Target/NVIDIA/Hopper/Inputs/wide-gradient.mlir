// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The gradient of attention with rows of 128 bf16 and whole tiles of 64 queries and 128 keys: its
// grid over blocks of keys as --fa-pipeline="target=sm_90a backward=all rows=64 keys=128" makes it,
// with names.

#jk = affine_map<(i, j, k) -> (j, k)>
#ik = affine_map<(i, j, k) -> (i, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>
#kj = affine_map<(i, j, k) -> (k, j)>
#ki = affine_map<(i, j, k) -> (k, i)>
!keys = tensor<128x128xbf16>
!rows = tensor<64x128xbf16>
!scores = tensor<128x64xf32>
!rounded = tensor<128x64xbf16>
!sums = tensor<128x128xf32>
!part = tensor<64x128xf32>
!row = tensor<64xf32>
!all = tensor<1x2x640x128xbf16>

func.func @wide(%q: !all, %k: !all, %v: !all, %do: !all, %d: tensor<1x2x640xf32>, %lse: tensor<1x2x640xf32>) -> (tensor<1x2x640x128xf32>, !all, !all) {
  %constant = arith.constant 0.144269511 : f32
  %c64 = arith.constant 64 : index
  %c640 = arith.constant 640 : index
  %c0 = arith.constant 0 : index
  %constant2 = arith.constant 1.000000e-01 : f32
  %zero = arith.constant 0.000000e+00 : f32
  %e = tensor.empty() : tensor<1x2x640x128xf32>
  %e2 = tensor.empty() : !all
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<1x2x640x128xf32>) -> tensor<1x2x640x128xf32>
  %r:3 = scf.forall (%b, %h, %j0) = (0, 0, 0) to (1, 2, 640) step (1, 1, 128) shared_outs(%dq_all = %zeros, %dk_all = %e2, %dv_all = %e2) -> (tensor<1x2x640x128xf32>, !all, !all) {
    %partt = tensor.extract_slice %dq_all[%b, %h, 0, 0] [1, 1, 640, 128] [1, 1, 1, 1] : tensor<1x2x640x128xf32> to tensor<640x128xf32>
    %kt = tensor.extract_slice %k[%b, %h, %j0, 0] [1, 1, 128, 128] [1, 1, 1, 1] : !all to !keys
    %vt = tensor.extract_slice %v[%b, %h, %j0, 0] [1, 1, 128, 128] [1, 1, 1, 1] : !all to !keys
    %e3 = tensor.empty() : !sums
    %zeros2 = linalg.fill ins(%zero : f32) outs(%e3 : !sums) -> !sums
    %e4 = tensor.empty() : !part
    %e5 = tensor.empty() : !scores
    %zeros3 = linalg.fill ins(%zero : f32) outs(%e4 : !part) -> !part
    %zeros4 = linalg.fill ins(%zero : f32) outs(%e5 : !scores) -> !scores
    %e6 = tensor.empty() : !rounded
    %loop:3 = scf.for %i0 = %c0 to %c640 step %c64 iter_args(%dq_sum = %partt, %dk_sum = %zeros2, %dv_sum = %zeros2) -> (tensor<640x128xf32>, !sums, !sums) {
      %qt = tensor.extract_slice %q[%b, %h, %i0, 0] [1, 1, 64, 128] [1, 1, 1, 1] : !all to !rows
      %s = linalg.generic {indexing_maps = [#jk, #ik, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%qt, %kt : !rows, !keys) outs(%zeros4 : !scores) {
      ^bb0(%x: bf16, %y: bf16, %out: f32):
        %extf = arith.extf %x : bf16 to f32
        %extf2 = arith.extf %y : bf16 to f32
        %product = arith.mulf %extf, %extf2 : f32
        %addf = arith.addf %out, %product : f32
        linalg.yield %addf : f32
      } -> !scores
      %dot = tensor.extract_slice %do[%b, %h, %i0, 0] [1, 1, 64, 128] [1, 1, 1, 1] : !all to !rows
      %lset = tensor.extract_slice %lse[%b, %h, %i0] [1, 1, 64] [1, 1, 1] : tensor<1x2x640xf32> to !row
      %dt = tensor.extract_slice %d[%b, %h, %i0] [1, 1, 64] [1, 1, 1] : tensor<1x2x640xf32> to !row
      %p = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %lset : !scores, !row) outs(%e5 : !scores) {
      ^bb0(%x: f32, %y: f32, %out: f32):
        %fma = math.fma %x, %constant, %y : f32
        %exp = math.exp2 %fma : f32
        linalg.yield %exp : f32
      } -> !scores
      %dp = linalg.generic {indexing_maps = [#jk, #ik, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%dot, %vt : !rows, !keys) outs(%zeros4 : !scores) {
      ^bb0(%x: bf16, %y: bf16, %out: f32):
        %extf3 = arith.extf %x : bf16 to f32
        %extf4 = arith.extf %y : bf16 to f32
        %product2 = arith.mulf %extf3, %extf4 : f32
        %addf2 = arith.addf %out, %product2 : f32
        linalg.yield %addf2 : f32
      } -> !scores
      %ds = linalg.generic {indexing_maps = [#id, #id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %dp, %dt : !scores, !scores, !row) outs(%e5 : !scores) {
      ^bb0(%x: f32, %y: f32, %z: f32, %out: f32):
        %below = arith.subf %y, %z : f32
        %product3 = arith.mulf %x, %below : f32
        linalg.yield %product3 : f32
      } -> !scores
      %rounded = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%ds : !scores) outs(%e6 : !rounded) {
      ^bb0(%x: f32, %out: bf16):
        %rounded2 = arith.truncf %x : f32 to bf16
        linalg.yield %rounded2 : bf16
      } -> !rounded
      %rounded3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p : !scores) outs(%e6 : !rounded) {
      ^bb0(%x: f32, %out: bf16):
        %rounded4 = arith.truncf %x : f32 to bf16
        linalg.yield %rounded4 : bf16
      } -> !rounded
      %dv = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%rounded3, %dot : !rounded, !rows) outs(%dv_sum : !sums) {
      ^bb0(%x: bf16, %y: bf16, %out: f32):
        %extf5 = arith.extf %x : bf16 to f32
        %extf6 = arith.extf %y : bf16 to f32
        %product4 = arith.mulf %extf5, %extf6 : f32
        %addf3 = arith.addf %out, %product4 : f32
        linalg.yield %addf3 : f32
      } -> !sums
      %dk = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%rounded, %qt : !rounded, !rows) outs(%dk_sum : !sums) {
      ^bb0(%x: bf16, %y: bf16, %out: f32):
        %extf7 = arith.extf %x : bf16 to f32
        %extf8 = arith.extf %y : bf16 to f32
        %product5 = arith.mulf %extf7, %extf8 : f32
        %addf4 = arith.addf %out, %product5 : f32
        linalg.yield %addf4 : f32
      } -> !sums
      %dq = linalg.generic {indexing_maps = [#ki, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%rounded, %kt : !rounded, !keys) outs(%zeros3 : !part) {
      ^bb0(%x: bf16, %y: bf16, %out: f32):
        %extf9 = arith.extf %x : bf16 to f32
        %extf10 = arith.extf %y : bf16 to f32
        %product6 = arith.mulf %extf9, %extf10 : f32
        %addf5 = arith.addf %out, %product6 : f32
        linalg.yield %addf5 : f32
      } -> !part
      %sum = fa.accumulate_slice %dq into %dq_sum[%i0, 0] [64, 128] [1, 1] : !part into tensor<640x128xf32>
      scf.yield %sum, %dk, %dv : tensor<640x128xf32>, !sums, !sums
    }
    %inserted = tensor.insert_slice %loop#0 into %dq_all[%b, %h, 0, 0] [1, 1, 640, 128] [1, 1, 1, 1] : tensor<640x128xf32> into tensor<1x2x640x128xf32>
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%loop#1 : !sums) outs(%e3 : !sums) {
    ^bb0(%x: f32, %out: f32):
      %product7 = arith.mulf %x, %constant2 : f32
      linalg.yield %product7 : f32
    } -> !sums
    %e7 = tensor.empty() : !keys
    %rounded5 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t : !sums) outs(%e7 : !keys) {
    ^bb0(%x: f32, %out: bf16):
      %rounded6 = arith.truncf %x : f32 to bf16
      linalg.yield %rounded6 : bf16
    } -> !keys
    %rounded7 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%loop#2 : !sums) outs(%e7 : !keys) {
    ^bb0(%x: f32, %out: bf16):
      %rounded8 = arith.truncf %x : f32 to bf16
      linalg.yield %rounded8 : bf16
    } -> !keys
    scf.forall.in_parallel {
      fa.parallel_accumulate %inserted into %dq_all : tensor<1x2x640x128xf32>
      tensor.parallel_insert_slice %rounded5 into %dk_all[%b, %h, %j0, 0] [1, 1, 128, 128] [1, 1, 1, 1] : !keys into !all
      tensor.parallel_insert_slice %rounded7 into %dv_all[%b, %h, %j0, 0] [1, 1, 128, 128] [1, 1, 1, 1] : !keys into !all
    }
  }
  return %r#0, %r#1, %r#2 : tensor<1x2x640x128xf32>, !all, !all
}

