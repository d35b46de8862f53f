// Options, and what is left as it is.
// RUN: fa-opt %s --fa-pipeline="rows=64 keys=32" --fa-speculate-max --remarks-filter=fa-speculate-max --remark-format=emitRemark --split-input-file -o %t.mlir 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: FileCheck %s --input-file=%t.mlir
// RUN: fa-opt %s --fa-pipeline="rows=64 keys=32" --fa-speculate-max="headroom=8 limit=16" --split-input-file | FileCheck %s --check-prefix=CHOSEN
// RUN: not fa-opt %s --fa-speculate-max="headroom=127" --split-input-file 2>&1 | FileCheck %s --check-prefix=HEADROOM
// RUN: not fa-opt %s --fa-speculate-max="limit=1" --split-input-file 2>&1 | FileCheck %s --check-prefix=LIMIT
// RUN: not fa-opt %s --fa-pipeline --fa-speculate-max="limit=131072" --split-input-file 2>&1 | FileCheck %s --check-prefix=F16LIMIT

// HEADROOM: expected headroom in [0, 126], got 127{{.*}}; leave it out to choose by the weights' type
// LIMIT: expected limit in (1, 2^60], got 1{{.*}}; leave it out to choose by the weights' type
// F16LIMIT: expected a limit that f16 weights can reach, at most 65504, got 131072

// REMARK: remark: [Passed] Speculated {{.*}}headroom 63.00 and limit 2.00"
// CHECK-LABEL: func @bf16
// CHOSEN-LABEL: func @bf16
// CHOSEN: fa.speculated_softmax
// CHOSEN: headroom = 8.000000e+00 : f64, limit = 1.600000e+01 : f64
func.func @bf16(%q: tensor<1x1x128x64xbf16>) -> tensor<1x1x128x64xbf16> {
  %o = fa.attention %q, %q, %q : (tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>) -> tensor<1x1x128x64xbf16>
  return %o : tensor<1x1x128x64xbf16>
}

// -----

// REMARK: remark: [Passed] Speculated {{.*}}headroom 0.00 and limit 32768.00, and the log-sum-exp has a sum of its own"
// CHECK-LABEL: func @f16
func.func @f16(%q: tensor<1x1x128x64xf16>) -> (tensor<1x1x128x64xf16>, tensor<1x1x128xf32>) {
  %o, %lse = fa.attention %q, %q, %q : (tensor<1x1x128x64xf16>, tensor<1x1x128x64xf16>, tensor<1x1x128x64xf16>) -> (tensor<1x1x128x64xf16>, tensor<1x1x128xf32>)
  return %o, %lse : tensor<1x1x128x64xf16>, tensor<1x1x128xf32>
}

// -----

// REMARK: remark: [Missed] NotSpeculated {{.*}}neither f16 nor bf16
// CHECK-LABEL: func @f32
// CHECK-NOT: fa.speculated_softmax
func.func @f32(%q: tensor<1x1x128x64xf32>) -> tensor<1x1x128x64xf32> {
  %o = fa.attention %q, %q, %q : (tensor<1x1x128x64xf32>, tensor<1x1x128x64xf32>, tensor<1x1x128x64xf32>) -> tensor<1x1x128x64xf32>
  return %o : tensor<1x1x128x64xf32>
}

// -----

// REMARK: remark: [Missed] NotSpeculated {{.*}}no loop carries a running maximum
// CHECK-LABEL: func @no_attention
func.func @no_attention(%q: tensor<4xf32>) -> tensor<4xf32> {
  return %q : tensor<4xf32>
}
