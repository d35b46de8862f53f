// What warpgroups share has a third stage at head dim 128: dQ's product, which reads it,
// comes two iterations behind S's, and waits for nobody's part. What is computed is
// executed elsewhere (test/Run/Interpreter/hopper-rules-gradients.test).

// RUN: fa-opt %S/Inputs/wide-gradient.mlir --fa-schedule-hopper | FileCheck %s
// RUN: fa-opt %S/Inputs/wide-gradient-80.mlir --fa-schedule-hopper | FileCheck %s --check-prefix=TURNED

// 80 rows, which are no multiple of 64, have dQ computed transposed, of dS that lies
// turned and in two stages. Its product comes first and is handed to the adders before S
// starts.

// TURNED: %[[RING:.*]] = hopper.ring {{.*}} computed : <2, tensor<128x80xbf16>, turned>
// TURNED: hopper.consumers 2 registers 240 free 24 carried_first sums_first shares_later
// TURNED: scf.for %
// TURNED: %[[DST:.*]] = hopper.acquire %[[RING]] {{.*}} {hopper.behind = 2 : i64}
// TURNED-NEXT: %[[P:.*]] = hopper.wgmma %{{.*}} transposed, %[[DST]] transposed : {{.*}} -> !hopper.pending<tensor<128x80xf32>>
// TURNED: %[[DQT:.*]] = hopper.wait_group 2, %[[P]]
// TURNED-NEXT: %[[DQ:.*]] = hopper.stage %[[DQT]] turned at {{[0-9]+}} adders {{[0-9]+}} : tensor<128x80xf32>
// TURNED: fa.accumulate_slice
// TURNED: hopper.wgmma {{.*}} -> !hopper.pending<tensor<128x80xf32>>
// TURNED: hopper.share {{.*}} into %[[RING]] : tensor<128x80xbf16>, <2, tensor<128x80xbf16>, turned>

// CHECK: hopper.ring {{.*}} computed : <3, tensor<128x64xbf16>>
// CHECK: scf.for %
// CHECK: scf.for %
// CHECK: %[[DS:.*]] = hopper.acquire {{.*}} {hopper.behind = 2 : i64}
// CHECK-NEXT: hopper.wgmma %[[DS]] transposed

// Each tile that is staged is added before the next one lies there, behind the loop, too.

// CHECK: hopper.stage {{.*}} at [[PLACE:[0-9]+]] : tensor<64x128xf32>
// CHECK: fa.accumulate_slice
// CHECK: hopper.stage {{.*}} at [[PLACE]] : tensor<64x128xf32>
// CHECK: fa.accumulate_slice
// CHECK: hopper.stage {{.*}} at [[PLACE]] : tensor<64x128xf32>
// CHECK: fa.accumulate_slice
