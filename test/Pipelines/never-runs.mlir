// The mask lets nothing through, so the loop over keys never runs. Its tiles end where
// their tensors do all the same, and are TMA's to load.
// RUN: fa-opt %s --fa-pipeline="target=sm_90a stop-after=fa-schedule-hopper" | FileCheck %s

// CHECK: hopper.load

func.func @nothing_seen(%q: tensor<?x1x?x40xf16>, %k: tensor<?x1x?x40xf16>, %v: tensor<?x1x?x24xf16>) -> (tensor<?x1x?x24xf16>, tensor<?x1x?xf32>) {
    %o:2 = fa.attention %q, %k, %v score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %di = arith.index_cast %i : index to i32
        %f = arith.sitofp %di : i32 to f32
        fa.yield %f : f32
      } mask {
      ^bb0(%b: index, %h: index, %i: index, %j: index):
        %c24 = arith.constant 24 : index
        %m = arith.subi %h, %c24 : index
        %seen = arith.cmpi eq, %m, %h : index
        fa.yield %seen : i1
      } : (tensor<?x1x?x40xf16>, tensor<?x1x?x40xf16>, tensor<?x1x?x24xf16>)
       -> (tensor<?x1x?x24xf16>, tensor<?x1x?xf32>)
  return %o#0, %o#1 : tensor<?x1x?x24xf16>, tensor<?x1x?xf32>
}
