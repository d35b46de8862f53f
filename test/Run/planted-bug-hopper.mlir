// Mistakes in a schedule for Hopper are found on the CPU. PlantHopper.cpp has
// the mistakes. Where one shows with some orders only, the seed is one of those.
// REQUIRES: fa-run
//
// DEFINE: %{bug} =
// DEFINE: %{number} = 0
// DEFINE: %{seed} = 0
// DEFINE: %{options} = teams=1 ping-pong=1 stages=2
// DEFINE: %{tiles} = fa-decompose,fa-online-softmax,fa-tile{target=sm_90a algorithm=fa2 rows=128 keys=64},fa-interchange,fa-pad-tiles,fa-split-mask-loops{index-bits=32},fa-order-keys{order=auto},fa-defer-normalization,fa-fuse,fa-fold-scale-exp2,fa-speculate-max{target=sm_90a}
// DEFINE: %{run} = not fa-run %s --check --seed=%{seed} --shape=Sq=300,Sk=330 --passes="%{tiles},fa-schedule-hopper{%{options}},test-fa-plant-hopper{bug=%{bug} number=%{number}}" 2>&1 | FileCheck %s
//
// A wait leaves one product more in flight than it may: of the first scores, of
// those in the loop, of the sums there and at the end.
// REDEFINE: %{bug} = wait
// RUN: %{run} --check-prefix=WAIT
// REDEFINE: %{number} = 1
// RUN: %{run} --check-prefix=WAIT
// REDEFINE: %{number} = 2
// RUN: %{run} --check-prefix=WAIT
// REDEFINE: %{number} = 3
// RUN: %{run} --check-prefix=WAIT
//
// A stage is given back before the wait, for K and for V.
// REDEFINE: %{bug} = release-early
// REDEFINE: %{number} = 0
// RUN: %{run} --check-prefix=EARLY
// REDEFINE: %{number} = 3
// RUN: %{run} --check-prefix=EARLY
//
// A stage is given back twice, or never; V's of the last block never, which
// matters to a block's next tile.
// REDEFINE: %{bug} = release-twice
// REDEFINE: %{number} = 3
// RUN: %{run} --check-prefix=TWICE
// REDEFINE: %{bug} = release
// RUN: %{run} --check-prefix=STUCK
// REDEFINE: %{number} = 6
// RUN: %{run} --check-prefix=STUCK
//
// One load fewer: K's first, V's last.
// REDEFINE: %{bug} = load
// REDEFINE: %{number} = 1
// RUN: %{run} --check-prefix=STUCK
// REDEFINE: %{number} = 4
// RUN: %{run} --check-prefix=STUCK
//
// A tile is taken that has not been waited for.
// REDEFINE: %{bug} = poll
// REDEFINE: %{number} = 0
// RUN: %{run} --check-prefix=POLL
// REDEFINE: %{bug} = polled
// REDEFINE: %{number} = 1
// RUN: %{run} --check-prefix=POLL
//
// A turn is not handed on; a sum begins with what nobody computed.
// REDEFINE: %{bug} = turn
// REDEFINE: %{number} = 0
// RUN: %{run} --check-prefix=TURN
// REDEFINE: %{bug} = condition
// RUN: %{run} --check-prefix=WRONG
//
// A mistake that can't be made.
// REDEFINE: %{number} = 7
// RUN: %{run} --check-prefix=NOWHERE

// WAIT: error: after test-fa-plant-hopper: hopper.wait_group ({{.*}}): gives a result of hopper.wgmma ({{.*}}), which it leaves in flight
// EARLY: hopper.release ({{.*}}): gives back ring "tile{{[12]}}", stage {{[01]}}, which hopper.wgmma ({{.*}}) reads, and warpgroup {{[01]}} has not waited for that
// TWICE: hopper.release ({{.*}}): gives ring "tile1", stage {{[01]}} back twice
// STUCK: the block is stuck: nobody can go on
// STUCK-NEXT: the producer
// STUCK-NEXT: warpgroup 0
// STUCK-NEXT: warpgroup 1
// POLL: hopper.acquire ({{.*}}): takes ring "tile1", stage {{[01]}} as full, for which warpgroup {{[01]}} has not polled
// TURN: hopper.turn_begin ({{.*}}): begins a turn in a turn of warpgroup 0
// WRONG: WRONG
// WRONG: got {{-?}}nan, expected
// NOWHERE: found 2 places to break by 'condition', not 8

func.func @f(%q: tensor<1x2x?x64xbf16>, %k: tensor<1x2x?x64xbf16>,
             %v: tensor<1x2x?x64xbf16>) -> tensor<1x2x?x64xbf16> {
  %o = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>)
    -> tensor<1x2x?x64xbf16>
  return %o : tensor<1x2x?x64xbf16>
}
