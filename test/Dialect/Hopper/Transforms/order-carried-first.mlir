// With `carried_first`, products of what the loop carries, dV, dK and dQ of the
// iteration before, start before S of this one, although more is to follow S; dP
// starts before S has ended. What is computed is executed elsewhere, as in
// order.mlir.

// RUN: fa-opt %inputs/small/causal-dynamic.mlir --fa-pipeline="target=sm_90a backward=all rows=128 keys=128" --fa-hopper-place --hopper-narrow --hopper-schedule --hopper-expand --hopper-order --hopper-verify | FileCheck %s

// CHECK: hopper.consumers 2 registers {{[0-9]+}} spare 48 carried_first
// CHECK: scf.for
// CHECK: scf.for
// CHECK: hopper.wgmma {{.*}} transposed init
// CHECK: hopper.wgmma {{.*}} transposed init
// CHECK: hopper.wgmma {{.*}} transposed, {{.*}} transposed :
// CHECK: %[[S:.*]] = hopper.wgmma {{.*}} -> !hopper.pending<tensor<128x128xf32>>
// CHECK: hopper.stage
// CHECK: hopper.wgmma {{.*}} -> !hopper.pending<tensor<128x128xf32>>
// CHECK: hopper.wait_group 1, %[[S]]
// CHECK: math.exp2
