// RUN: fa-opt %s --fa-tiles-to-threads | FileCheck %s
// RUN: fa-opt %s --fa-tiles-to-threads --canonicalize --cse | FileCheck %s --check-prefix=COUNT

// One contraction: both operands by cp.async, ldmatrix, mma.sync; the result is
// stored for the rows and columns that exist.
// 4 warps of 16 rows: 8 tiles of 8 columns, 4 steps of 16.

// CHECK-LABEL: gpu.module @scores_gpu
// CHECK-SAME: fa.program = ["//!fa.program version=1 name=scores target=sm_80"
// CHECK-SAME: "//!fa.arg index=0 name=arg0 role=in type=bf16 shape=?x64"
// CHECK-SAME: "//!fa.same a2.d0=a0.d0", "//!fa.same a2.d1=a1.d0"
// CHECK-SAME: "//!fa.require a0.align=16"
// CHECK-SAME: "//!fa.launch kernel=scores_kernel block=128 smem=16384 grid=a0.d0/64*a1.d0/64 args=0,1,2"
// CHECK: llvm.mlir.global external @fa_smem() {addr_space = 3 : i32, alignment = 1024
// CHECK: gpu.func @scores_kernel(%{{.*}}: !llvm.ptr<1> {llvm.noalias}, %{{.*}}: i64
// CHECK-SAME: known_block_size = array<i32: 128, 1, 1>
// CHECK: nvvm.cp.async.commit.group
// CHECK: nvvm.cp.async.commit.group
// CHECK: nvvm.cp.async.wait.group 1
// CHECK-NEXT: nvvm.barrier0
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-NEXT: nvvm.barrier0

// COUNT-LABEL: gpu.func @scores_kernel
// COUNT-COUNT-8: nvvm.cp.async.shared.global
// COUNT-NOT: nvvm.cp.async.shared.global
// COUNT: nvvm.ldmatrix
// COUNT-COUNT-32: nvvm.mma.sync
// COUNT-NOT: nvvm.mma.sync

// The input is the output of --fa-schedule-ampere for the function of schedule-ampere.mlir.
#fragment = #nvidia.fragment<tile, row_warps = 2 of 4>
#tile = affine_map<(d0)[s0] -> (64, -d0 + s0)>
#rest = affine_map<(d0) -> (-d0 + 64)>
#ik = affine_map<(d0, d1, d2) -> (d0, d2)>
#jk = affine_map<(d0, d1, d2) -> (d1, d2)>
#ij = affine_map<(d0, d1, d2) -> (d0, d1)>
#q_tile = #nvidia.shared<offset = 0>
#k_tile = #nvidia.shared<offset = 8192>
func.func @scores(%q: tensor<?x64xbf16>, %k: tensor<?x64xbf16>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %zb = arith.constant 0.000000e+00 : bf16
  %zero = arith.constant 0.000000e+00 : f32
  %sq = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %sk = tensor.dim %k, %c0 : tensor<?x64xbf16>
  %e = tensor.empty(%sq, %sk) : tensor<?x?xf32>
  %r = scf.forall (%i0, %j0) = (0, 0) to (%sq, %sk) step (64, 64) shared_outs(%out = %e) -> (tensor<?x?xf32>) {
    %nq = affine.min #tile(%i0)[%sq]
    %nk = affine.min #tile(%j0)[%sk]
    %pq = affine.apply #rest(%nq)
    %pk = affine.apply #rest(%nk)
    %qs = tensor.extract_slice %q[%i0, 0] [%nq, 64] [1, 1] : tensor<?x64xbf16> to tensor<?x64xbf16>
    %qt = tensor.pad %qs low[0, 0] high[%pq, 0] {
    ^bb0(%x: index, %y: index):
      tensor.yield %zb : bf16
    } : tensor<?x64xbf16> to tensor<64x64xbf16, #q_tile>
    %ks = tensor.extract_slice %k[%j0, 0] [%nk, 64] [1, 1] : tensor<?x64xbf16> to tensor<?x64xbf16>
    %kt = tensor.pad %ks low[0, 0] high[%pk, 0] {
    ^bb0(%x: index, %y: index):
      tensor.yield %zb : bf16
    } : tensor<?x64xbf16> to tensor<64x64xbf16, #k_tile>
    %se = tensor.empty() : tensor<64x64xf32, #fragment>
    %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<64x64xf32, #fragment>) -> tensor<64x64xf32, #fragment>
    %s = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%qt, %kt : tensor<64x64xbf16, #q_tile>, tensor<64x64xbf16, #k_tile>) outs(%sz : tensor<64x64xf32, #fragment>) {
    ^bb0(%a: bf16, %b: bf16, %acc: f32):
      %a32 = arith.extf %a : bf16 to f32
      %b32 = arith.extf %b : bf16 to f32
      %p = arith.mulf %a32, %b32 : f32
      %n = arith.addf %acc, %p : f32
      linalg.yield %n : f32
    } -> tensor<64x64xf32, #fragment>
    %cut = tensor.extract_slice %s[0, 0] [%nq, %nk] [1, 1] : tensor<64x64xf32, #fragment> to tensor<?x?xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %cut into %out[%i0, %j0] [%nq, %nk] [1, 1] : tensor<?x?xf32> into tensor<?x?xf32>
    }
  } {nvidia.block = #nvidia.block<chip = "sm_80", warps = 4, teams = 1, shared = 16384>}
  return %r : tensor<?x?xf32>
}
