// With `streams`, P is rounded, loses what dropout drops and is shared before dP
// is awaited, though P in f32, dP and what the loop carries leave no registers
// for it; its bits are made where it needs them. Without, all of that comes
// after dS. Before dP, dQ and S are of its shape. What is computed is executed
// elsewhere (test/Run/Interpreter/hopper-rules-gradients.test, wide_dropout).

// RUN: fa-opt %s --fa-pipeline="target=sm_90a backward=all" --fa-hopper-place -o %t
// RUN: fa-opt %t --hopper-narrow --hopper-schedule --hopper-expand --hopper-order --hopper-verify | FileCheck %s
// RUN: sed "s/carried_first streams/carried_first/" %t | fa-opt --hopper-narrow --hopper-schedule --hopper-expand --hopper-order --hopper-verify | FileCheck %s --check-prefix=WHOLE

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
func.func @dropout(%q: tensor<1x2x?x128xbf16>, %k: tensor<1x2x?x128xbf16>, %v: tensor<1x2x?x128xbf16>, %seed: tensor<i64>) -> tensor<1x2x?x128xbf16> {
  %o = fa.attention %q, %k, %v
    keep {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %s = tensor.extract %seed[] : tensor<i64>
      %bits = fa.random_bits %s at [%b, %h, %i, %j]
      %limit = arith.constant 26 : i8
      %kept = arith.cmpi uge, %bits, %limit : i8
      fa.yield %kept : i1
    } times 1.11304347826086958e+00 : (tensor<1x2x?x128xbf16>, tensor<1x2x?x128xbf16>, tensor<1x2x?x128xbf16>) -> tensor<1x2x?x128xbf16>
  return %o : tensor<1x2x?x128xbf16>
}
