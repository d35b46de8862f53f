// One pipeline runs the schedules that a chip has: the Hopper schedule where there
// is wgmma, and for what it leaves the Ampere schedule.

// RUN: fa-opt %s --fa-pipeline=target=sm_90a --fa-lower-to-nvidia=chip=sm_90a | FileCheck %s --check-prefix=HOPPER
// RUN: fa-opt %s --fa-pipeline=target=sm_80 --fa-lower-to-nvidia | FileCheck %s --check-prefix=AMPERE
// RUN: not fa-opt %s --fa-pipeline=target=sm_80 --fa-lower-to-nvidia=chip=sm_0 -o /dev/null 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// HOPPER-LABEL: gpu.module @bf16_gpu
// HOPPER: wgmma.mma_async
// HOPPER-LABEL: gpu.module @f32_gpu
// HOPPER-NOT: wgmma
// HOPPER: nvvm.cp.async.shared.global
// AMPERE-LABEL: gpu.module @bf16_gpu
// AMPERE-NOT: wgmma
// AMPERE: nvvm.mma.sync
// UNKNOWN: error: unknown target sm_0; known are

func.func @bf16(%q: tensor<1x1x256x64xbf16>, %k: tensor<1x1x256x64xbf16>, %v: tensor<1x1x256x64xbf16>) -> tensor<1x1x256x64xbf16> {
  %o = fa.attention %q, %k, %v scale 0.125
    : (tensor<1x1x256x64xbf16>, tensor<1x1x256x64xbf16>, tensor<1x1x256x64xbf16>) -> tensor<1x1x256x64xbf16>
  return %o : tensor<1x1x256x64xbf16>
}

func.func @f32(%q: tensor<1x1x256x64xf32>, %k: tensor<1x1x256x64xf32>, %v: tensor<1x1x256x64xf32>) -> tensor<1x1x256x64xf32> {
  %o = fa.attention %q, %k, %v scale 0.125
    : (tensor<1x1x256x64xf32>, tensor<1x1x256x64xf32>, tensor<1x1x256x64xf32>) -> tensor<1x1x256x64xf32>
  return %o : tensor<1x1x256x64xf32>
}
