// RUN: fa-opt %s --fa-schedule-ampere | FileCheck %s

// One contraction: both operands are whole tiles in shared memory, side by side; 2 of 4 warps
// divide the rows of the result. What threads do is in
// test/Conversion/TilesToThreads/emit-product.mlir.

// CHECK-DAG: #[[$RESULT:.*]] = #nvidia.fragment<tile, row_warps = 2 of 4>
// CHECK-DAG: #[[$Q:.*]] = #nvidia.shared<offset = 0>
// CHECK-DAG: #[[$K:.*]] = #nvidia.shared<offset = 8192>
// CHECK-LABEL: func.func @scores(
// CHECK: %[[QT:.*]] = tensor.pad
// CHECK: : tensor<?x64xbf16> to tensor<64x64xbf16, #[[$Q]]>
// CHECK: %[[KT:.*]] = tensor.pad
// CHECK: : tensor<?x64xbf16> to tensor<64x64xbf16, #[[$K]]>
// CHECK: linalg.generic {{.*}} ins(%[[QT]], %[[KT]] : {{.*}}) outs(%{{.*}} : tensor<64x64xf32, #[[$RESULT]]>)
// CHECK: } {nvidia.block = #nvidia.block<chip = "sm_80", warps = 4, teams = 1, shared = 16384>}
#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
func.func @scores(%q: tensor<?x64xbf16>, %k: tensor<?x64xbf16>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %zb = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  %sq = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %sk = tensor.dim %k, %c0 : tensor<?x64xbf16>
  %e = tensor.empty(%sq, %sk) : tensor<?x?xf32>
  %r = scf.forall (%i0, %j0) = (0, 0) to (%sq, %sk) step (64, 64)
      shared_outs(%out = %e) -> (tensor<?x?xf32>) {
    %nq = affine.min affine_map<(d0)[s0] -> (64, s0 - d0)>(%i0)[%sq]
    %nk = affine.min affine_map<(d0)[s0] -> (64, s0 - d0)>(%j0)[%sk]
    %pq = affine.apply affine_map<(d0) -> (64 - d0)>(%nq)
    %pk = affine.apply affine_map<(d0) -> (64 - d0)>(%nk)
    %qs = tensor.extract_slice %q[%i0, 0] [%nq, 64] [1, 1] : tensor<?x64xbf16> to tensor<?x64xbf16>
    %qt = tensor.pad %qs low[0, 0] high[%pq, 0] {
    ^bb0(%x: index, %y: index):
      tensor.yield %zb : bf16
    } : tensor<?x64xbf16> to tensor<64x64xbf16>
    %ks = tensor.extract_slice %k[%j0, 0] [%nk, 64] [1, 1] : tensor<?x64xbf16> to tensor<?x64xbf16>
    %kt = tensor.pad %ks low[0, 0] high[%pk, 0] {
    ^bb0(%x: index, %y: index):
      tensor.yield %zb : bf16
    } : tensor<?x64xbf16> to tensor<64x64xbf16>
    %se = tensor.empty() : tensor<64x64xf32>
    %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<64x64xf32>) -> tensor<64x64xf32>
    %s = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%qt, %kt : tensor<64x64xbf16>, tensor<64x64xbf16>) outs(%sz : tensor<64x64xf32>) {
    ^bb0(%a: bf16, %b: bf16, %acc: f32):
      %a32 = arith.extf %a : bf16 to f32
      %b32 = arith.extf %b : bf16 to f32
      %p = arith.mulf %a32, %b32 : f32
      %n = arith.addf %acc, %p : f32
      linalg.yield %n : f32
    } -> tensor<64x64xf32>
    %cut = tensor.extract_slice %s[0, 0] [%nq, %nk] [1, 1] : tensor<64x64xf32> to tensor<?x?xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %cut into %out[%i0, %j0] [%nq, %nk] [1, 1] : tensor<?x?xf32> into tensor<?x?xf32>
    }
  }
  return %r : tensor<?x?xf32>
}
