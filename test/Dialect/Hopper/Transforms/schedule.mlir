// What comes an iteration later: the products that feed no other one of theirs, with
// what follows them. What is computed is executed elsewhere
// (test/Run/Interpreter/hopper-rules-gradients.test, RulesTest.cpp).

// RUN: fa-opt %inputs/tiles/backward.mlir --fa-hopper-place --hopper-schedule | FileCheck %s
// RUN: fa-opt %inputs/tiles/backward.mlir --fa-schedule-hopper | FileCheck %s --check-prefix=LOOP
// RUN: fa-opt %inputs/tiles/gemm.mlir --fa-hopper-place --hopper-schedule --remarks-filter=hopper-schedule --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=GEMM

// S and dP stay; dV, dK and dQ come later, and so do the ends of the tiles that they
// read, and the acquisition of the one that only they read.

// CHECK: scf.for %
// CHECK: scf.for %
// CHECK: %[[QS:.*]] = hopper.acquire
// CHECK: hopper.wgmma {{%[0-9]+}}, %[[QS]] :
// CHECK: %[[GS:.*]] = hopper.acquire {{.*}} -> <tensor<64x64xbf16>>
// CHECK: %[[DV:.*]] = hopper.wgmma {{.*}}, %[[GS]] transposed init({{.*}}) {hopper.delay = 1 : i64}
// CHECK: hopper.wait_group 0, %[[DV]] {hopper.delay = 1 : i64}
// CHECK: hopper.wgmma {{%[0-9]+}}, %[[GS]] :
// CHECK: hopper.release %[[GS]] {hopper.delay = 1 : i64}
// CHECK: hopper.wgmma {{.*}}, %[[QS]] transposed init({{.*}}) {hopper.delay = 1 : i64}
// CHECK: hopper.release %[[QS]] {hopper.delay = 1 : i64}
// CHECK: hopper.share {{[^{]*$}}
// CHECK: %[[SS:.*]] = hopper.acquire {{.*}} {hopper.delay = 1 : i64}
// CHECK: hopper.wgmma %[[SS]] transposed, {{.*}} {hopper.delay = 1 : i64}
// CHECK: fa.accumulate_slice {{.*}} {hopper.delay = 1 : i64}

// So a loop begins with the products of the iteration before beside its own S, and
// carries P, dS and the slots of Q and dO.

// LOOP: %[[Q0:.*]] = hopper.acquire
// LOOP: hopper.share
// LOOP: scf.for %{{.*}} iter_args({{.*}}) -> (tensor<128x64xf32>, tensor<128x64xf32>, tensor<256x64xf32>, tensor<128x64xbf16>, !hopper.slot<tensor<64x64xbf16>>, tensor<128x64xbf16>, !hopper.slot<tensor<64x64xbf16>>)
// LOOP-COUNT-5: hopper.wgmma
// LOOP: scf.yield
// LOOP-COUNT-3: hopper.wgmma
// LOOP: fa.accumulate_slice

// GEMM: remark: {{.*}}left the loop's products in one iteration: {{.*}}no product feeds another one
