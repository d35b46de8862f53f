// dS = P * (dP - D) reads the P that dV's product reads where registers are few, as
// a product of two bf16, and P itself where there are enough: not for the results of
// all products (64 x 64 at head dim 256), but for P and dP.

// RUN: sed 's/64xbf16/128xbf16/g' %inputs/small/causal-dynamic.mlir | fa-opt --fa-pipeline="target=sm_90a backward=all rows=80 keys=128" --fa-hopper-place --hopper-narrow | FileCheck %s --check-prefix=FEW
// RUN: fa-opt %inputs/small/causal-dynamic.mlir --fa-pipeline="target=sm_90a backward=all rows=64 keys=128" --fa-hopper-place --hopper-narrow | FileCheck %s --check-prefix=MANY

// RUN: sed 's/64xbf16/256xbf16/g' %inputs/small/causal-dynamic.mlir | fa-opt --fa-pipeline="target=sm_90a backward=all" --fa-hopper-place --hopper-narrow | FileCheck %s --check-prefix=WIDE

// FEW: hopper.consumers
// FEW: math.exp2
// FEW: linalg.generic {{.*}} outs(%{{.*}} : tensor<128x80xbf16>)
// FEW: arith.truncf
// FEW: hopper.wgmma
// FEW: linalg.generic {{.*}} ins(%{{.*}} : tensor<128x80xbf16>, tensor<128x80xf32>, tensor<80xf32>)
// FEW-NEXT: ^bb0(%[[E:.*]]: bf16,
// FEW: %[[X:.*]] = arith.subf
// FEW-NEXT: %[[Y:.*]] = arith.truncf %[[X]] : f32 to bf16
// FEW-NEXT: arith.mulf %[[E]], %[[Y]] : bf16
// FEW-NOT: arith.mulf {{.*}} : f32
// FEW: hopper.wgmma

// MANY: hopper.consumers
// MANY: math.exp2
// MANY: hopper.wgmma
// MANY: linalg.generic {{.*}} ins(%{{.*}} : tensor<128x64xf32>, tensor<128x64xf32>, tensor<64xf32>)
// MANY: arith.truncf

// WIDE: hopper.consumers
// WIDE: math.exp2
// WIDE: hopper.wgmma
// WIDE: linalg.generic {{.*}} ins(%{{.*}} : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64xf32>)
// WIDE: arith.truncf
// WIDE: hopper.wgmma {{.*}} -> !hopper.pending<tensor<64x256xf32>>
