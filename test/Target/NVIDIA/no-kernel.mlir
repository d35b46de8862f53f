// A chain without its beginning is an error that says what is there, not an
// empty file.

// RUN: fa-opt %s --verify-diagnostics --fa-lower-to-nvidia=chip=sm_90a
// RUN: not fa-opt %s --pass-pipeline="builtin.module(fa-emit-ptx{chip=sm_90a output=%t.ptx})" 2>&1 | FileCheck %s --check-prefix=EMIT
// RUN: not fa-opt %s --pass-pipeline="builtin.module(func.func(fa-decompose),fa-emit-ptx{output=%t.ptx})" 2>&1 | FileCheck %s --check-prefix=TILES
// RUN: echo "" | not fa-opt --fa-emit-ptx 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not fa-opt %s --fa-lower-to-cpu 2>&1 | FileCheck %s --check-prefix=CPU

// EMIT: error: expected a kernel (gpu.module) in the module, got 1 function with attention that is not lowered; run --fa-pipeline=target=sm_90a and --fa-lower-to-nvidia=chip=sm_90a on a module with fa.attention first
// TILES: error: expected a kernel (gpu.module) in the module, got 1 function; run --fa-pipeline=target=sm_80 and
// EMPTY: error: expected a kernel (gpu.module) in the module, got no function; run
// CPU: error: 'fa.attention' op is not lowered to linalg; run --fa-pipeline, --fa-decompose or --fa-reference first
func.func @f(%q: tensor<1x1x64x64xbf16>) -> tensor<1x1x64x64xbf16> {
  // expected-error @+1 {{'fa.attention' op is not lowered to a tile program; run --fa-pipeline=target=sm_90a first}}
  %o = fa.attention %q, %q, %q : (tensor<1x1x64x64xbf16>, tensor<1x1x64x64xbf16>, tensor<1x1x64x64xbf16>) -> tensor<1x1x64x64xbf16>
  return %o : tensor<1x1x64x64xbf16>
}
