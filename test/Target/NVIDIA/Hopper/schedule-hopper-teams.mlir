// Tiles of 128 rows and few columns, here because of the mask: two teams divide
// a block's registers and its shared memory. They have no turns.

// RUN: fa-opt %s --fa-pipeline="target=sm_90a" --fa-schedule-hopper --canonicalize --cse | FileCheck %s
// RUN: fa-opt %s --fa-pipeline="target=sm_90a" --fa-schedule-hopper="teams=1" --canonicalize --cse | FileCheck %s --check-prefix=ONE
// RUN: fa-opt %s --fa-pipeline="target=sm_90a" --fa-schedule-hopper="stages=8" --canonicalize --cse | FileCheck %s --check-prefix=DEEP
// RUN: fa-opt %s --fa-pipeline="target=sm_90a" --fa-schedule-hopper="persistent=0" --canonicalize --cse | FileCheck %s --check-prefix=SHORT

// CHECK: hopper.ring "tile2" at {{[0-9]+}} barriers 48 ones : <2, tensor<64x64xbf16>>
// CHECK: hopper.tile_queue barriers 80 longest_first section {{[0-9]+}} teams 2
// CHECK: hopper.producer registers 32
// CHECK: hopper.consumers 2 registers 112
// CHECK-NOT: hopper.turn_begin
// CHECK: hopper.yield

// ONE: hopper.tile_queue barriers {{[0-9]+}} longest_first section {{[0-9]+$}}
// ONE: hopper.consumers 2 registers 232
// ONE: hopper.turn_begin

// What does not fit twice is there once.
// DEEP: hopper.ring "tile2" at {{[0-9]+}} barriers {{[0-9]+}} ones : <8,
// DEEP: hopper.consumers 2 registers 232

// SHORT-NOT: hopper.tile_queue
// SHORT: hopper.consumers 2 registers 232
func.func @causal(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x8x?x64xbf16>, %v: tensor<?x8x?x64xbf16>) -> tensor<?x8x?x64xbf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sge, %i, %j : index
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xbf16>, tensor<?x8x?x64xbf16>, tensor<?x8x?x64xbf16>) -> tensor<?x8x?x64xbf16>
  return %o : tensor<?x8x?x64xbf16>
}
