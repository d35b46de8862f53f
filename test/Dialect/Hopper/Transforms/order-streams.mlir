// With `streams`, P is rounded, loses what dropout drops and is shared before dP
// is awaited, though P in f32, dP and what the loop carries leave no registers
// for it; its bits are made where it needs them. Without, all of that comes
// after dS. Before dP, dQ and S are of its shape. What is computed is executed
// elsewhere (test/Run/Interpreter/hopper-rules-gradients.test, wide_dropout).

// RUN: fa-opt %S/Inputs/dropout-expanded.mlir --hopper-order --hopper-verify | FileCheck %s
// RUN: sed "s/carried_first streams/carried_first/" %S/Inputs/dropout-expanded.mlir | fa-opt --hopper-order --hopper-verify | FileCheck %s --check-prefix=WHOLE

// CHECK: hopper.consumers 2 registers 240 spare 40 carried_first streams
// CHECK: scf.for
// CHECK-COUNT-2: hopper.wgmma {{.*}} -> !hopper.pending<tensor<64x128xf32>>
// CHECK: %[[DP:.*]] = hopper.wgmma {{.*}} -> !hopper.pending<tensor<64x128xf32>>
// CHECK: hopper.wait_group 1,
// CHECK: math.exp2
// CHECK: arith.truncf
// CHECK: fa.random_bits
// CHECK: hopper.share
// CHECK: hopper.wait_group 0, %[[DP]]
// CHECK: fa.random_bits

// WHOLE: hopper.consumers 2 registers 240 spare 40 carried_first ->
// WHOLE: scf.for
// WHOLE-COUNT-2: hopper.wgmma {{.*}} -> !hopper.pending<tensor<64x128xf32>>
// WHOLE: %[[DP:.*]] = hopper.wgmma {{.*}} -> !hopper.pending<tensor<64x128xf32>>
// WHOLE: hopper.wait_group 1,
// WHOLE: math.exp2
// WHOLE-NOT: hopper.share
// WHOLE: hopper.wait_group 0, %[[DP]]
// WHOLE: fa.random_bits
// WHOLE: hopper.share
