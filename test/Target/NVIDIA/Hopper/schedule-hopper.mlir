// The structure of the schedule: two roles, the rotated loop, the order of its
// products, waits and releases. What is computed is executed elsewhere.

// RUN: fa-opt %s --fa-pipeline="target=sm_90a" --fa-schedule-hopper="persistent=0 stage-stores=0 ones=0" --canonicalize --cse | FileCheck %s
// RUN: fa-opt %s --fa-pipeline="target=sm_90a speculate=off" --fa-schedule-hopper="persistent=0 stage-stores=0 ones=0" --canonicalize --cse | FileCheck %s --check-prefix=ONLINE
// RUN: fa-opt %s --fa-pipeline="target=sm_90a" --fa-schedule-hopper="persistent=0 stage-stores=0 ones=0 ping-pong=0" --canonicalize --cse | FileCheck %s --check-prefix=FREE
// RUN: fa-opt %s --fa-pipeline="target=sm_90a" --fa-schedule-hopper="persistent=0 stage-stores=0 ones=0 ping-pong=1" --canonicalize --cse | FileCheck %s --check-prefix=TURNS
// RUN: fa-opt %s --fa-pipeline="target=sm_90a" --fa-schedule-hopper="persistent=0 stage-stores=0 ones=0 stages=1" --canonicalize --cse | FileCheck %s --check-prefix=STAGES
// RUN: fa-opt %s --fa-pipeline="target=sm_90a" --fa-schedule-hopper="persistent=1 ones=1" --canonicalize --cse | FileCheck %s --check-prefix=STAY

// The canonical case: all sizes known, D=128.

// CHECK-LABEL: func.func @dense(
// CHECK: %[[NONE:.*]] = tensor.empty() : tensor<128x128xf32>
// CHECK: %[[QT:.*]] = tensor.extract_slice %arg0
// CHECK: %[[Q:.*]] = hopper.ring "tile0" at 1024 barriers 0 : <1, tensor<128x128xbf16>>
// CHECK: %[[K:.*]] = hopper.ring "tile1" at 33792 barriers 16 : <3, tensor<128x128xbf16>>
// CHECK: %[[V:.*]] = hopper.ring "tile2" at 132096 barriers 64 : <3, tensor<128x128xbf16>>
// CHECK-NOT: hopper.tile_queue
// The producer loads what the consumers acquire, in their order, and nothing
// else.
// CHECK: hopper.producer registers 40 {
// CHECK-NEXT: hopper.load %[[QT]] into %[[Q]]
// CHECK-NEXT: %[[K0:.*]] = tensor.extract_slice %arg1
// CHECK-NEXT: hopper.load %[[K0]] into %[[K]]
// CHECK-NEXT: scf.for %[[N:.*]] = %c128 to %c1024 step %c128 {
// CHECK-NEXT: %[[KN:.*]] = tensor.extract_slice %arg1[{{.*}}, %[[N]], 0]
// CHECK-NEXT: hopper.load %[[KN]] into %[[K]]
// CHECK-NEXT: %[[P:.*]] = arith.subi %[[N]], %c128
// CHECK-NEXT: %[[VP:.*]] = tensor.extract_slice %arg2[{{.*}}, %[[P]], 0]
// CHECK-NEXT: hopper.load %[[VP]] into %[[V]]
// CHECK-NEXT: }
// CHECK-NEXT: %[[VL:.*]] = tensor.extract_slice %arg2[{{.*}}, 896, 0]
// CHECK-NEXT: hopper.load %[[VL]] into %[[V]]
// CHECK-NEXT: }
// The first block: its scores and its weights, by its own maximum. Nothing was
// assumed, so nothing is computed again.
// CHECK: hopper.consumers 2 registers 232 turns -> (tensor<128x128xbf16>) {
// CHECK-NEXT: %[[QS:.*]] = hopper.acquire %[[Q]]
// CHECK: %[[KS:.*]] = hopper.acquire %[[K]] of %{{.*}} :
// CHECK-NEXT: %[[S0:.*]] = hopper.wgmma %[[QS]], %[[KS]] :
// CHECK-NEXT: hopper.wait_group 0, %[[S0]]
// CHECK-NEXT: hopper.release %[[KS]]
// CHECK: arith.maxnumf
// CHECK: math.exp2
// CHECK-NOT: math.exp2
// CHECK-NOT: scf.if
// CHECK: hopper.partial_sums
// CHECK-NEXT: hopper.poll %[[K]]
// The rotated loop carries O before it is added to, and P. Of O there is nothing
// before the second step.
// CHECK-NEXT: %[[R:.*]]:5 = scf.for %[[J:.*]] = %c128 to %c1024 step %c128 iter_args(%[[M:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[UNTIL:.*]] = %c0, %[[PP:.*]] = %{{.*}}, %[[O:.*]] = %[[NONE]]) -> (tensor<128xf32>, tensor<128x8xf32>, index, tensor<128x128xbf16>, tensor<128x128xf32>)
// CHECK-NEXT: %[[KT:.*]] = tensor.extract_slice %arg1[{{.*}}, %[[J]], 0]
// CHECK-NEXT: %[[KS:.*]] = hopper.acquire %[[K]] of %[[KT]] polled
// CHECK-NEXT: hopper.turn_begin
// CHECK-NEXT: %[[SN:.*]] = hopper.wgmma %[[QS]], %[[KS]] :
// CHECK: %[[VS:.*]] = hopper.acquire %[[V]] of %{{.*}} :
// CHECK-NEXT: %[[LATER:.*]] = arith.cmpi ne, %[[J]], %c128 : index
// CHECK-NEXT: %[[ON:.*]] = hopper.wgmma %[[PP]], %[[VS]] transposed init(%[[O]]) if %[[LATER]] :
// CHECK-NEXT: hopper.turn_end
// CHECK-NEXT: %[[S:.*]] = hopper.wait_group 1, %[[SN]]
// CHECK-NEXT: hopper.release %[[KS]]
// The softmax under the second product, with a maximum for wary blocks only;
// these touch nothing of what the second product adds to.
// CHECK: %[[WARY:.*]] = arith.cmpi slt, %[[J]], %[[UNTIL]]
// CHECK-NEXT: %[[MOVED:.*]]:3 = scf.if %[[WARY]] -> (tensor<128xf32>, tensor<128xf32>, i1)
// CHECK: arith.maxnumf
// CHECK: hopper.exceeds %{{.*}} limit 1.000000e+00 : tensor<128xf32>
// CHECK: } else {
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[M]], %{{.*}}, %false
// CHECK-NOT: arith.max
// CHECK: ins(%[[S]], %{{.*}} : tensor<128x128xf32>, tensor<128xf32>)
// CHECK: math.exp2
// CHECK-NOT: arith.max
// CHECK: hopper.pin
// CHECK: scf.if
// CHECK-NEXT: hopper.poll %[[K]]
// CHECK-NEXT: }
// CHECK-NEXT: hopper.wait_group 0, %[[ON]]
// CHECK: arith.truncf
// CHECK: hopper.release %[[VS]]
// CHECK: scf.if %[[MOVED]]#2
// CHECK: arith.mulf
// CHECK: %[[LARGE:.*]] = hopper.exceeds %{{.*}} limit 2.000000e+00 : tensor<128x128xbf16>
// CHECK: scf.if %[[LARGE]]
// CHECK: %[[FAR:.*]] = hopper.exceeds %{{.*}} limit 9.2233720368547758E+18 : tensor<128xf32>
// CHECK: scf.if %[[FAR]]
// CHECK: } else {
// CHECK: arith.shli
// CHECK: } else {
// CHECK-NEXT: scf.yield %{{.*}}, %{{.*}}, %[[MOVED]]#0, %{{.*}}, %[[UNTIL]] :
// CHECK-NEXT: }
// CHECK: hopper.partial_sums
// CHECK: scf.yield
// The last product; sums of rows are complete only now.
// CHECK: %[[VS:.*]] = hopper.acquire %[[V]] of %{{.*}} :
// CHECK-NEXT: %[[OL:.*]] = hopper.wgmma %[[R]]#3, %[[VS]] transposed init(%[[R]]#4) if %true :
// CHECK-NEXT: hopper.release %[[QS]]
// CHECK: %[[OD:.*]] = hopper.wait_group 0, %[[OL]]
// CHECK: arith.divf
// CHECK: %[[OUT:.*]] = linalg.generic
// CHECK: arith.truncf
// CHECK: hopper.yield %[[OUT]]
// CHECK: scf.forall.in_parallel

// Blocks that stay take tiles from a queue; Q is given back after the last
// block's scores; the sums of rows are a panel of ones beside V; the result is
// staged for TMA.
// STAY-LABEL: func.func @dense(
// STAY: %[[Q:.*]] = hopper.ring "tile0"
// STAY: %[[V:.*]] = hopper.ring "tile2" at {{.*}} ones :
// STAY: hopper.tile_queue barriers {{[0-9]+$}}
// STAY: hopper.consumers
// STAY-NEXT: %[[QS:.*]] = hopper.acquire %[[Q]]
// STAY-NOT: hopper.partial_sums
// STAY: scf.for
// STAY: %[[O:.*]]:2 = hopper.wgmma %{{.*}}, %{{.*}} transposed init(%{{.*}}, %{{.*}}) if %{{.*}} :
// STAY: hopper.wait_group 1
// STAY-NEXT: hopper.release
// STAY: %[[LAST:.*]] = arith.cmpi sge
// STAY-NEXT: hopper.release %[[QS]] if %[[LAST]]
// STAY: hopper.wait_group 0, %[[O]]#0, %[[O]]#1
// STAY-NOT: hopper.partial_sums
// STAY: %[[OUT:.*]] = hopper.stage %{{.*}} at {{[0-9]+}} : tensor<128x128xbf16>
// STAY-NEXT: hopper.yield %[[OUT]]
// Tiles of different length: the longest first.
// STAY-LABEL: func.func @causal(
// STAY: hopper.tile_queue barriers {{[0-9]+}} longest_first section {{[0-9]+}}
// Beside the rings there is room for half of the result.
// STAY-LABEL: func.func @wide(
// STAY: %[[Q:.*]] = hopper.ring "tile0"
// STAY: %[[QS:.*]] = hopper.acquire %[[Q]]
// STAY: hopper.release %[[QS]] if
// STAY: hopper.stage %{{.*}} at 197632 by 128 : tensor<128x256xbf16>

// Without speculation every block has its maximum, and O is scaled after its
// product.
// ONLINE-LABEL: func.func @dense(
// ONLINE: hopper.consumers 2
// ONLINE: scf.for
// ONLINE: hopper.wait_group 1
// ONLINE: arith.maxnumf
// ONLINE: math.exp2
// ONLINE: hopper.pin
// ONLINE: hopper.poll
// ONLINE: %[[O:.*]] = hopper.wait_group 0
// ONLINE: hopper.release
// ONLINE-NOT: hopper.exceeds
// ONLINE: ins(%[[O]],
// ONLINE: arith.mulf
// ONLINE: scf.yield

// FREE-LABEL: func.func @dense(
// FREE-NOT: hopper.turn_
// FREE: hopper.yield

// One stage is enough, and the rings take what they need.
// STAGES-LABEL: func.func @dense(
// STAGES: hopper.ring "tile1" at 33792 barriers 16 : <1,
// STAGES: hopper.ring "tile2" at 66560 barriers 32 : <1,
func.func @dense(%q: tensor<2x4x512x128xbf16>, %k: tensor<2x4x1024x128xbf16>, %v: tensor<2x4x1024x128xbf16>) -> tensor<2x4x512x128xbf16> {
  %o = fa.attention %q, %k, %v scale 0.088388346
    : (tensor<2x4x512x128xbf16>, tensor<2x4x1024x128xbf16>, tensor<2x4x1024x128xbf16>) -> tensor<2x4x512x128xbf16>
  return %o : tensor<2x4x512x128xbf16>
}

// Sizes that are not known: a block may have nothing to visit, and both roles
// agree on it. Tiles are padded; TMA pads by itself.

// CHECK-LABEL: func.func @dynamic(
// CHECK: hopper.producer
// CHECK-NEXT: hopper.load
// CHECK-NEXT: %[[SOME:.*]] = arith.cmpi sgt, %[[SK:.*]], %c0
// CHECK-NEXT: scf.if %[[SOME]] {
// CHECK: hopper.load
// CHECK: hopper.consumers
// CHECK-NEXT: hopper.acquire
// CHECK-NEXT: %[[SOME:.*]] = arith.cmpi sgt, %[[SK]], %c0
// CHECK-NEXT: scf.if %[[SOME]]
// CHECK: hopper.acquire
// CHECK: hopper.wgmma {{.*}} transposed
// CHECK: hopper.wgmma {{.*}} transposed
// CHECK-NEXT: hopper.wait_group 0
// CHECK-NEXT: hopper.release
// CHECK-NEXT: scf.yield
// CHECK-NEXT: } else {
// CHECK-NEXT: scf.yield
// CHECK: hopper.yield

// At D=64 four warpgroups take turns, each with both its products and the sums of
// its rows: no room for the softmax of one block beside the product of another.
// CHECK-LABEL: func.func @short(
// CHECK: hopper.consumers 4 registers 112 spare 20 turns
// CHECK: hopper.turn_begin
// CHECK: hopper.turn_end
// CHECK-NEXT: hopper.wait_group 1, %{{.*}} :
// CHECK-NEXT: hopper.release
// CHECK-NEXT: hopper.wait_group 0, %{{.*}} :
// CHECK-NEXT: hopper.release
// The branch of wary blocks rescales what was summed: no other one does.
// CHECK-NOT: hopper.pin
// CHECK-NOT: hopper.poll
// CHECK: scf.if %{{.*}} -> (tensor<256xf32>, tensor<256x8xf32>, tensor<256x64xf32>)
// CHECK: %[[INNER:.*]]:3 = scf.if %{{.*}} -> (tensor<256xf32>, tensor<256x8xf32>, tensor<256x64xf32>)
// CHECK: scf.yield %[[INNER]]#0, %[[INNER]]#1, %[[INNER]]#2
// CHECK-NOT: scf.if
// CHECK: math.exp2
func.func @dynamic(%q: tensor<?x4x?x64xf16>, %k: tensor<?x4x?x64xf16>, %v: tensor<?x4x?x64xf16>) -> tensor<?x4x?x64xf16> {
  %o = fa.attention %q, %k, %v scale 0.125
    : (tensor<?x4x?x64xf16>, tensor<?x4x?x64xf16>, tensor<?x4x?x64xf16>) -> tensor<?x4x?x64xf16>
  return %o : tensor<?x4x?x64xf16>
}
func.func @short(%q: tensor<2x4x384x64xf16>, %k: tensor<2x4x512x64xf16>, %v: tensor<2x4x512x64xf16>) -> tensor<2x4x384x64xf16> {
  %o = fa.attention %q, %k, %v scale 0.125
    : (tensor<2x4x384x64xf16>, tensor<2x4x512x64xf16>, tensor<2x4x512x64xf16>) -> tensor<2x4x384x64xf16>
  return %o : tensor<2x4x384x64xf16>
}

// Causal: the loop ends where the block's rows end, in both roles, and full
// tiles take the scores without the mask.

// CHECK-LABEL: func.func @causal(
// CHECK: %[[END:.*]] = affine.min
// CHECK: hopper.producer
// CHECK: scf.for %{{.*}} = %c128 to %[[END]] step %c128
// CHECK-NOT: linalg.generic
// CHECK: hopper.consumers 2
// CHECK: scf.for %{{.*}} = %c128 to %[[END]] step %c128
// CHECK: %[[S:.*]] = hopper.wait_group 1
// CHECK: hopper.release
// CHECK: scf.if
// CHECK-NEXT: scf.yield %[[S]]
// CHECK-NEXT: } else {
// CHECK: arith.select
// CHECK: }
// CHECK: math.exp2
// CHECK: hopper.wait_group 0
func.func @causal(%q: tensor<1x4x512x128xbf16>, %k: tensor<1x4x512x128xbf16>, %v: tensor<1x4x512x128xbf16>) -> tensor<1x4x512x128xbf16> {
  %o = fa.attention %q, %k, %v scale 0.088388346
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (tensor<1x4x512x128xbf16>, tensor<1x4x512x128xbf16>, tensor<1x4x512x128xbf16>) -> tensor<1x4x512x128xbf16>
  return %o : tensor<1x4x512x128xbf16>
}

// Two results: the log-sum-exp is the consumers' second one. Its sum is of the
// weights before they are rounded, so there are two sums where the weights'
// reference is not the maximum.

// CHECK-LABEL: func.func @lse(
// CHECK: %[[R:.*]]:2 = hopper.consumers 2 registers {{[0-9]+}} turns -> (tensor<128x128xbf16>, tensor<128xf32>) {
// CHECK: math.log
// CHECK: hopper.yield %{{.*}}, %{{.*}} : tensor<128x128xbf16>, tensor<128xf32>
// CHECK: tensor.parallel_insert_slice %[[R]]#0
// CHECK: tensor.parallel_insert_slice %[[R]]#1
func.func @lse(%q: tensor<2x4x512x128xbf16>, %k: tensor<2x4x512x128xbf16>, %v: tensor<2x4x512x128xbf16>) -> (tensor<2x4x512x128xbf16>, tensor<2x4x512xf32>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.088388346
    : (tensor<2x4x512x128xbf16>, tensor<2x4x512x128xbf16>, tensor<2x4x512x128xbf16>) -> (tensor<2x4x512x128xbf16>, tensor<2x4x512xf32>)
  return %o, %lse : tensor<2x4x512x128xbf16>, tensor<2x4x512xf32>
}

// D=256: one stage of K and V at a time fits twice; results so wide take no
// turns.

// CHECK-LABEL: func.func @wide(
// CHECK: hopper.ring "tile1" at {{.*}} : <2, tensor<{{[0-9]+}}x256xbf16>>
// CHECK: hopper.consumers 2 registers 232 spare 24
// CHECK-NOT: hopper.turn_
// CHECK: hopper.wait_group 1
// CHECK: hopper.pin
// CHECK: hopper.poll
// CHECK: hopper.wait_group 0
// CHECK: hopper.yield
// TURNS-LABEL: func.func @wide(
// TURNS: hopper.turn_begin
// TURNS-NEXT: hopper.wgmma
// TURNS: hopper.wgmma
// TURNS-NEXT: hopper.turn_end
func.func @wide(%q: tensor<2x4x512x256xbf16>, %k: tensor<2x4x512x256xbf16>, %v: tensor<2x4x512x256xbf16>) -> tensor<2x4x512x256xbf16> {
  %o = fa.attention %q, %k, %v scale 0.0625
    : (tensor<2x4x512x256xbf16>, tensor<2x4x512x256xbf16>, tensor<2x4x512x256xbf16>) -> tensor<2x4x512x256xbf16>
  return %o : tensor<2x4x512x256xbf16>
}
