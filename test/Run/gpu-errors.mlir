// What a GPU target needs and this machine lacks: one message with the remedy,
// before any reference is computed.
// REQUIRES: fa-run
// RUN: env FA_CUDA_DRIVER=%t.none not fa-run %s --target=sm_80 --check 2>&1 | FileCheck %s --check-prefix=NODRIVER
// RUN: not fa-run %s --target=sm_99 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: not fa-run %s --target=sm_99 --passes=fa-decompose 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: %if fake-cuda %{ env FA_CACHE=0 FA_CUDA_DRIVER=%fake_cuda_old not fa-run %s --target=sm_80 2>&1 | FileCheck %s --check-prefix=OLD %}
// RUN: %if fake-cuda %{ env FA_CACHE=0 FA_CUDA_DRIVER=%fake_cuda FAKE_CUDA_CC=90 FAKE_CUDA_VERSION=12020 not fa-run %s --target=sm_90a 2>&1 | FileCheck %s --check-prefix=PTX %}
// RUN: %if fake-cuda %{ env FA_CACHE=0 FA_CUDA_DRIVER=%fake_cuda not fa-run %s --target=sm_90a 2>&1 | FileCheck %s --check-prefix=DEVICE %}
// RUN: %if fake-cuda %{ env FA_CACHE=0 FA_CUDA_DRIVER=%fake_cuda not fa-run %s --target=sm_80 --layout=strided 2>&1 | FileCheck %s --check-prefix=LAYOUT %}
// RUN: %if fake-cuda %{ env FA_CACHE=0 FA_CUDA_DRIVER=%fake_cuda not fa-run %s --target=sm_80 --passes= 2>&1 | FileCheck %s --check-prefix=PROGRAM %}

// NODRIVER: error: no NVIDIA driver: dlopen of {{.*}} failed {{.*}}; install the NVIDIA driver or run with target=cpu
// NODRIVER-NOT: {{.}}
// TARGET: error: unknown target 'sm_99'; {{.*}}sm_80
// OLD: error: {{.*}} has no function cuLinkCreate_v2; update the NVIDIA driver to 450 (CUDA 11.0) or later
// PTX: error: driver supports CUDA 12.2 but the image needs PTX 8.3 (CUDA 12.3); update the driver to 545 or later
// DEVICE: error: the image is for sm_90a but device 0 (Fake GPU 0) is sm_80; compile with target=sm_80 or choose another device
// LAYOUT: error: kernel (sm_80): argument 0 (arg0): expected stride 1 in dimension 3, got 2; make the tensor contiguous
// PROGRAM: error: line {{[0-9]+}}, column {{[0-9]+}}: 'fa.attention' op is not lowered to a tile program; run --fa-pipeline=target=sm_80 first
func.func @f(%q: tensor<1x2x40x32xf16>, %k: tensor<1x2x40x32xf16>,
             %v: tensor<1x2x40x32xf16>) -> tensor<1x2x40x32xf16> {
  %o = fa.attention %q, %k, %v
    : (tensor<1x2x40x32xf16>, tensor<1x2x40x32xf16>, tensor<1x2x40x32xf16>)
    -> tensor<1x2x40x32xf16>
  return %o : tensor<1x2x40x32xf16>
}
