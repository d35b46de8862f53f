// A GPU target: the stages run on the CPU, the kernel goes through the runtime,
// here to a driver made of host memory. It shows what the kernel would get
// (pointers with the bytes behind them, sizes, strides) and writes nothing,
// which the check must find.
// REQUIRES: fa-run, fake-cuda
// RUN: env FA_CACHE=0 FA_CUDA_DRIVER=%fake_cuda FAKE_CUDA_LOG=1 fa-run %s --func=f --target=sm_80 --shape "B=2,Sq=200,Sk=300" --layout=bshd 2>&1 | FileCheck %s --check-prefix=LAUNCH
// RUN: env FA_CACHE=0 FA_CUDA_DRIVER=%fake_cuda FAKE_CUDA_LOG=1 fa-run %s --func=f --target=sm_80 --algorithm=fa1 --shape "B=1,Sq=64,Sk=64" 2>&1 | FileCheck %s --check-prefix=MANY
// RUN: env FA_CACHE=0 FA_CUDA_DRIVER=%fake_cuda not fa-run %s --func=f --target=sm_80 --check --each-stage --io --shape "B=1,Sq=70,Sk=70" | FileCheck %s --check-prefix=CHECK
// RUN: env FA_CACHE=0 FA_CUDA_DRIVER=%fake_cuda fa-run %s --func=f --target=sm_80 --check --shape "B=0,Sq=70,Sk=70" | FileCheck %s --check-prefix=EMPTY
// RUN: fa-run %s --func=f --target=sm_80 --stop-after=fa-fuse --check --shape "B=1,Sq=70,Sk=70" | FileCheck %s --check-prefix=STOP

// q, k, v: strides of a [B, S, H, D] tensor; grid: 2 row blocks x 4 heads x 2.
// LAUNCH: fake launch f_kernel grid=16 block={{[0-9]+}} smem={{[0-9]+}}:
// LAUNCH-SAME: &204800 2 4 200 64 51200 64 256 1
// LAUNCH-SAME: &153600 2 2 300 64 38400 64 128 1
// LAUNCH-SAME: &153600 2 2 300 64 38400 64 128 1
// LAUNCH-SAME: &204800 2 4 200 64 51200 12800 64 1
// LAUNCH-SAME: &6400 2 4 200 800 200 1
// LAUNCH: kernel (sm_80) 10.000
// LAUNCH: kernel (sm_80): median of 10 on Fake GPU 0
// LAUNCH-NEXT: f_kernel: {{[0-9]+}} threads, {{[0-9]+}} bytes of shared memory, 128 registers, 0 bytes local

// MANY: fake launch f_kernel0
// MANY: fake launch f_kernel1
// MANY: kernel (sm_80): median of 10 on Fake GPU 0
// MANY-NEXT: f_kernel0:
// MANY-NEXT: f_kernel1:

// CHECK: fa-decompose {{.*}} ok
// CHECK: fa-fold-scale-exp2 {{.*}} ok [[IO:.*]]
// CHECK-NEXT: kernel (sm_80) {{.*}} WRONG [[IO]]
// CHECK: first wrong stage: kernel (sm_80): result 0, tile 0 (rows 0 to 69) of batch 0, head 0, element [0, 0, 0, 0]: got {{-?}}nan

// EMPTY: kernel (sm_80) {{.*}} ok

// STOP-NOT: kernel
// STOP: fa-fuse {{.*}} ok
// STOP-NOT: kernel
func.func @f(%q: tensor<?x4x?x64xf16>, %k: tensor<?x2x?x64xf16>,
             %v: tensor<?x2x?x64xf16>)
    -> (tensor<?x4x?x64xf16>, tensor<?x4x?xf32>) {
  %o, %lse = fa.attention %q, %k, %v
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (tensor<?x4x?x64xf16>, tensor<?x2x?x64xf16>, tensor<?x2x?x64xf16>)
     -> (tensor<?x4x?x64xf16>, tensor<?x4x?xf32>)
  return %o, %lse : tensor<?x4x?x64xf16>, tensor<?x4x?xf32>
}

// Another function beside it: the kernel must be f's.
func.func @g(%q: tensor<?x4x?x32xf16>) -> tensor<?x4x?x32xf16> {
  %o = fa.attention %q, %q, %q
    : (tensor<?x4x?x32xf16>, tensor<?x4x?x32xf16>, tensor<?x4x?x32xf16>)
    -> tensor<?x4x?x32xf16>
  return %o : tensor<?x4x?x32xf16>
}
