// What comes an iteration later: the products that feed no other one of theirs, with
// what follows them. What is computed is executed elsewhere
// (test/Run/Interpreter/hopper-rules-gradients.test, RulesTest.cpp).

// RUN: fa-opt %S/Inputs/gradient-placed.mlir --hopper-schedule | FileCheck %s
// RUN: fa-opt %s --hopper-schedule --remarks-filter=hopper-schedule --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=GEMM

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

// One product in one loop, as in test/inputs/tiles/gemm.mlir.

// GEMM: remark: {{.*}}left the loop's products in one iteration: {{.*}}no product feeds another one
func.func @gemm(%a: tensor<128x64xbf16>, %b: tensor<64x128xbf16>, %n: index, %zeros: tensor<128x128xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (4) {
    %a_ring = hopper.ring "a" at 1024 barriers 0 : <4, tensor<128x64xbf16>>
    %b_ring = hopper.ring "b" at 66560 barriers 64 : <4, tensor<64x128xbf16>>
    hopper.producer registers 40 {
      scf.for %k = %c0 to %n step %c64 {
        hopper.load %a into %a_ring bytes 16384 : tensor<128x64xbf16>, <4, tensor<128x64xbf16>>
        hopper.load %b into %b_ring bytes 16384 : tensor<64x128xbf16>, <4, tensor<64x128xbf16>>
      }
    }
    %r = hopper.consumers 2 registers 232 -> (tensor<128x128xf32>) {
      %sum = scf.for %k = %c0 to %n step %c64 iter_args(%acc = %zeros) -> (tensor<128x128xf32>) {
        %as = hopper.acquire %a_ring of %a : <4, tensor<128x64xbf16>> -> <tensor<128x64xbf16>>
        %bs = hopper.acquire %b_ring of %b : <4, tensor<64x128xbf16>> -> <tensor<64x128xbf16>>
        %pending = hopper.wgmma %as, %bs transposed init(%acc) : (!hopper.slot<tensor<128x64xbf16>>, !hopper.slot<tensor<64x128xbf16>>, tensor<128x128xf32>) -> !hopper.pending<tensor<128x128xf32>>
        %next = hopper.wait_group 0, %pending : !hopper.pending<tensor<128x128xf32>>
        hopper.release %bs : <tensor<64x128xbf16>>
        hopper.release %as : <tensor<128x64xbf16>>
        scf.yield %next : tensor<128x128xf32>
      }
      hopper.yield %sum : tensor<128x128xf32>
    }
  }
  return
}
