// What the schedule leaves to that of sm_80, and why.

// RUN: fa-opt %s --fa-pipeline="target=sm_90a" --fa-schedule-hopper --remarks-filter=fa-hopper-place --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s
// RUN: fa-opt %s --fa-pipeline="target=sm_90a rows=32" --fa-schedule-hopper --remarks-filter=fa-hopper-place --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=FEW
// RUN: fa-opt %s --fa-pipeline="target=sm_90a rows=320" --fa-schedule-hopper --remarks-filter=fa-hopper-place --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=MANY
// RUN: fa-opt %s --fa-pipeline="target=sm_90a keys=24" --fa-schedule-hopper --remarks-filter=fa-hopper-place --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=KEYS
// RUN: fa-opt %s --fa-pipeline="target=sm_90a algorithm=fa1" --fa-schedule-hopper --remarks-filter=fa-hopper-place --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=FA1
// RUN: fa-opt %s --fa-pipeline="target=sm_90a algorithm=standard" --fa-schedule-hopper --remarks-filter=fa-hopper-place --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=STANDARD
// RUN: not fa-opt %s --fa-pipeline="target=sm_90a" --fa-schedule-hopper="chip=sm_80" -o /dev/null 2>&1 | FileCheck %s --check-prefix=CHIP
// RUN: not fa-opt %s --fa-pipeline="target=sm_90a" --fa-schedule-hopper="stages=9" -o /dev/null 2>&1 | FileCheck %s --check-prefix=STAGES
// RUN: not fa-opt %s --fa-pipeline="target=sm_90a rows=64" --fa-schedule-hopper="ping-pong=1" -o /dev/null 2>&1 | FileCheck %s --check-prefix=TURNS
// RUN: not fa-opt %s --fa-pipeline="target=sm_90a rows=128" --fa-schedule-hopper="teams=3" -o /dev/null 2>&1 | FileCheck %s --check-prefix=TEAMS
// RUN: not fa-opt %s --fa-pipeline="target=sm_90a rows=64" --fa-schedule-hopper="teams=2 persistent=0" -o /dev/null 2>&1 | FileCheck %s --check-prefix=STAY

// FEW: left the kernel to the Ampere schedule: {{.*}}expected results of 64, 128, 192 or 256 rows, got 32
// MANY: expected results of 64, 128, 192 or 256 rows, got 320
// KEYS: expected a transposed operand's sums over a multiple of 16, got 24
// FA1: expected results of 64, 128, 192 or 256 rows, got 16
// STANDARD: rows of tensor<128x20xbf16> are not whole chunks of 16 bytes
// CHIP: error: expected the target sm_90a, got sm_80
// STAGES: needs {{[0-9]+}} bytes of shared memory a block with 9 stages, and sm_90a has 232448; choose smaller tiles
// TEAMS: has 3 teams of 2 warpgroups; a block has at most 4 warpgroups, and one team where it does not persist: choose fewer teams or rows
// STAY: has 2 teams of 1 warpgroups; {{.*}} one team where it does not persist
// TURNS: has one warpgroup, and with ping-pong=1 two or more take turns: choose 128 rows or more, or leave ping-pong out

// CHECK: remark: [Missed] place {{.*}}left the kernel to the Ampere schedule: {{.*}}its operands are not f16 or bf16
func.func @f32(%q: tensor<1x2x256x64xf32>, %k: tensor<1x2x256x64xf32>, %v: tensor<1x2x256x64xf32>) -> tensor<1x2x256x64xf32> {
  %o = fa.attention %q, %k, %v scale 0.125
    : (tensor<1x2x256x64xf32>, tensor<1x2x256x64xf32>, tensor<1x2x256x64xf32>) -> tensor<1x2x256x64xf32>
  return %o : tensor<1x2x256x64xf32>
}

// A result has columns in groups of 8.
// CHECK: remark: [Missed] place {{.*}}expected results of which each warpgroup has 64 rows and a multiple of 8 columns
func.func @head_dim_20(%q: tensor<1x2x256x20xbf16>, %k: tensor<1x2x256x20xbf16>, %v: tensor<1x2x256x20xbf16>) -> tensor<1x2x256x20xbf16> {
  %o = fa.attention %q, %k, %v scale 0.125
    : (tensor<1x2x256x20xbf16>, tensor<1x2x256x20xbf16>, tensor<1x2x256x20xbf16>) -> tensor<1x2x256x20xbf16>
  return %o : tensor<1x2x256x20xbf16>
}

// CHECK: remark: [Missed] place {{.*}}expected results of which each warpgroup has 64 rows and a multiple of 8 columns
func.func @value_dim_20(%q: tensor<1x2x256x64xbf16>, %k: tensor<1x2x256x64xbf16>, %v: tensor<1x2x256x20xbf16>) -> tensor<1x2x256x20xbf16> {
  %o = fa.attention %q, %k, %v scale 0.125
    : (tensor<1x2x256x64xbf16>, tensor<1x2x256x64xbf16>, tensor<1x2x256x20xbf16>) -> tensor<1x2x256x20xbf16>
  return %o : tensor<1x2x256x20xbf16>
}

// No remark for what is scheduled.
// CHECK-NOT: remark: [Missed]
func.func @good(%q: tensor<1x2x256x64xbf16>, %k: tensor<1x2x256x64xbf16>, %v: tensor<1x2x256x64xbf16>) -> tensor<1x2x256x64xbf16> {
  %o = fa.attention %q, %k, %v scale 0.125
    : (tensor<1x2x256x64xbf16>, tensor<1x2x256x64xbf16>, tensor<1x2x256x64xbf16>) -> tensor<1x2x256x64xbf16>
  return %o : tensor<1x2x256x64xbf16>
}
