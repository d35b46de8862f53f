// With dV, dK and dQ an iteration later a loop begins with the products of the iteration
// before beside its own S, and carries P, dS and the slots of Q and dO.

// RUN: fa-opt %S/Inputs/gradient-scheduled.mlir --hopper-expand | FileCheck %s

// CHECK: %[[Q0:.*]] = hopper.acquire
// CHECK: hopper.share
// CHECK: scf.for %{{.*}} iter_args({{.*}}) -> (tensor<128x64xf32>, tensor<128x64xf32>, tensor<256x64xf32>, tensor<128x64xbf16>, !hopper.slot<tensor<64x64xbf16>>, tensor<128x64xbf16>, !hopper.slot<tensor<64x64xbf16>>)
// CHECK-COUNT-5: hopper.wgmma
// CHECK: scf.yield
// CHECK-COUNT-3: hopper.wgmma
// CHECK: fa.accumulate_slice
