// Products start as early as their operands are there, and are awaited when nothing
// else is left: dP under the exponentials, dV under dS, all of a step's products
// before its end. What is computed is executed elsewhere
// (test/Run/Interpreter/hopper-rules-gradients.test, RulesTest.cpp).

// RUN: fa-opt %S/Inputs/gradient-placed.mlir --hopper-order --hopper-verify -o %t.mlir
// RUN: FileCheck %s --input-file=%t.mlir
// An ordered loop is an input, too.
// RUN: fa-opt %t.mlir --hopper-order --hopper-verify -o /dev/null

// CHECK: hopper.consumers 2
// CHECK: scf.for
// CHECK: hopper.acquire
// CHECK: %[[S:.*]] = hopper.wgmma
// CHECK: %[[GS:.*]] = hopper.acquire {{.*}} -> <tensor<64x64xbf16>>
// CHECK-NEXT: %[[DP:.*]] = hopper.wgmma
// CHECK: hopper.wait_group 1, %[[S]]
// CHECK: math.exp2
// CHECK: arith.truncf
// CHECK: hopper.pin %{{.*}} : tensor<128x64xf32>
// CHECK-NEXT: %[[DV:.*]] = hopper.wgmma {{.*}} transposed init
// CHECK-NEXT: hopper.wait_group 1, %[[DP]]
// CHECK: %[[DK:.*]] = hopper.wgmma {{.*}} transposed init
// CHECK: hopper.share
// CHECK-NEXT: %[[DSS:.*]] = hopper.acquire
// CHECK-NEXT: %[[DQ:.*]] = hopper.wgmma %[[DSS]] transposed
// CHECK: hopper.wait_group 2, %[[DV]]
// CHECK-NEXT: hopper.release %[[GS]]
// CHECK: hopper.wait_group 1, %[[DK]]
// CHECK: hopper.wait_group 0, %[[DQ]]
// CHECK: hopper.stage
// CHECK: fa.accumulate_slice
// CHECK: scf.yield
