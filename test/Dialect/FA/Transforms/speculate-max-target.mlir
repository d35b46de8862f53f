// On a GPU only where the schedule has branches on values of tiles.
// RUN: fa-opt %s --fa-pipeline="target=sm_90a" --remarks-filter=fa-speculate-max --remark-format=emitRemark --split-input-file 2>&1 | FileCheck %s
// RUN: fa-opt %s --fa-pipeline="target=sm_80 speculate=on" --remarks-filter=fa-speculate-max --remark-format=emitRemark --split-input-file 2>&1 | FileCheck %s --check-prefix=MMA
// RUN: fa-opt %s --fa-pipeline="target=sm_90a rows=32" --remarks-filter=fa-speculate-max --remark-format=emitRemark --split-input-file 2>&1 | FileCheck %s --check-prefix=MMA
// RUN: not fa-opt %s --fa-speculate-max="target=sm_42" 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// MMA-NOT: [Passed]
// MMA: remark: [Missed] NotSpeculated {{.*}}the target's schedule for these tiles has no branches
// MMA-NOT: [Passed]
// UNKNOWN: unknown target 'sm_42'

// CHECK: remark: [Passed] Speculated
// CHECK-LABEL: func @whole_chunks
func.func @whole_chunks(%q: tensor<?x8x?x80xbf16>) -> tensor<?x8x?x80xbf16> {
  %o = fa.attention %q, %q, %q : (tensor<?x8x?x80xbf16>, tensor<?x8x?x80xbf16>, tensor<?x8x?x80xbf16>) -> tensor<?x8x?x80xbf16>
  return %o : tensor<?x8x?x80xbf16>
}

// -----

// Rows of 88 bytes are not whole chunks of 16.
// CHECK: remark: [Missed] NotSpeculated {{.*}}the target's schedule for these tiles has no branches
// CHECK-LABEL: func @odd_head_dim
func.func @odd_head_dim(%q: tensor<?x8x?x44xbf16>) -> tensor<?x8x?x44xbf16> {
  %o = fa.attention %q, %q, %q : (tensor<?x8x?x44xbf16>, tensor<?x8x?x44xbf16>, tensor<?x8x?x44xbf16>) -> tensor<?x8x?x44xbf16>
  return %o : tensor<?x8x?x44xbf16>
}

// -----

// CHECK: remark: [Missed] NotSpeculated {{.*}}neither f16 nor bf16
// CHECK-LABEL: func @f32
func.func @f32(%q: tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32> {
  %o = fa.attention %q, %q, %q : (tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32>
  return %o : tensor<?x8x?x64xf32>
}
