// The schedule as a kernel: roles, barriers, tensor maps, products; then PTX.

// RUN: fa-opt %s --fa-pipeline="target=sm_90a" --fa-schedule-hopper --fa-hopper-layouts --fa-tiles-to-threads | FileCheck %s
// RUN: fa-opt %s --pass-pipeline="builtin.module(fa-pipeline{target=sm_90a},fa-schedule-hopper,fa-hopper-layouts,fa-tiles-to-threads,fa-lower-to-nvvm,fa-emit-ptx{chip=sm_90a output=%t.ptx})" -o /dev/null
// RUN: FileCheck %s --input-file=%t.ptx --check-prefix=PTX

// CHECK-LABEL: gpu.module @dynamic_gpu
// CHECK-SAME: "//!fa.program version=2 name=dynamic target=sm_90a"
// TMA wants 16 bytes of whatever it loads.
// CHECK-SAME: "//!fa.require a0.align=16"
// CHECK-SAME: "//!fa.require a1.align=16"
// CHECK-SAME: "//!fa.require a2.align=16"
// CHECK-SAME: "//!fa.require a3.align=16"
// Results are stored by each warpgroup alone, 64 rows; a tile is loaded whole.
// CHECK-SAME: "//!fa.map index=0 tensor=3 dim=2 rows=64"
// CHECK-SAME: "//!fa.map index=1 tensor=0 dim=2 rows=128", "//!fa.map index=2 tensor=1 dim=2 rows=128", "//!fa.map index=3 tensor=2 dim=2 rows=128"
// CHECK-SAME: "//!fa.launch kernel=dynamic_kernel block=384 smem={{[0-9]+}} grid=a0.d0*4*a0.d2/128 args=0,1,2,3 maps=0,1,2,3 waves=1 queue=1"
// CHECK: llvm.mlir.global external @fa_smem() {addr_space = 3 : i32, alignment = 1024
// CHECK: gpu.func @dynamic_kernel(
// CHECK-SAME: fa.first_map = 38
// CHECK: prefetch.tensormap
// 1 stage of Q, 2 of K and V and of the queue: a barrier full and one empty each.
// CHECK-COUNT-14: mbarrier.init.shared::cta.b64
// CHECK-NOT: mbarrier.init
// CHECK: fence.mbarrier_init
// CHECK: setmaxnreg.dec.sync.aligned.u32 40;
// CHECK-NOT: wgmma
// CHECK: mbarrier.arrive.expect_tx
// CHECK: cp.async.bulk.tensor.4d
// CHECK: setmaxnreg.inc.sync.aligned.u32 232;
// CHECK-NOT: cp.async.bulk
// CHECK: wgmma.mma_async
// CHECK: stmatrix
// CHECK: cp.async.bulk.tensor.4d.global

// PTX: //!fa.program version=2 name=dynamic target=sm_90a
// PTX: .target sm_90a
// PTX: .visible .entry dynamic_kernel(
// PTX: .param .align 64 .b8 dynamic_kernel_param_38[128]
// PTX: .param .align 64 .b8 dynamic_kernel_param_41[128]
// setmaxnreg counts on the registers at entry.
// PTX: .maxntid 384
// PTX: .minnctapersm 1
// PTX: setmaxnreg.dec.sync.aligned.u32 40;
// PTX: setmaxnreg.inc.sync.aligned.u32 232;
// PTX: wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16
func.func @dynamic(%q: tensor<?x4x?x128xbf16>, %k: tensor<?x4x?x128xbf16>, %v: tensor<?x4x?x128xbf16>) -> tensor<?x4x?x128xbf16> {
  %o = fa.attention %q, %k, %v scale 0.088388346
    : (tensor<?x4x?x128xbf16>, tensor<?x4x?x128xbf16>, tensor<?x4x?x128xbf16>) -> tensor<?x4x?x128xbf16>
  return %o : tensor<?x4x?x128xbf16>
}
