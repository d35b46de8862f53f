// Schedules for Hopper run: by one to three warpgroups, with a queue and
// without, with turns and without, for any number of blocks of keys, in an
// order and with delays that a seed gives.
// REQUIRES: fa-run
//
// The schedule is a stage where it is asked for, and only on its target.
// RUN: fa-run %s --func=plain --check --each-stage --target=sm_90a --stop-after=fa-schedule-hopper --shape="Sq=150,Sk=200" | FileCheck %s --check-prefixes=CHECK,EACH
// RUN: not fa-run %s --func=plain --target=sm_80 --stop-after=fa-schedule-hopper 2>&1 | FileCheck %s --check-prefix=TARGET
// EACH: fa-fuse {{.*}} ok
// EACH: fa-speculate-max {{.*}} ok
// TARGET: no stage 'fa-schedule-hopper' to stop after
//
// DEFINE: %{rows} = 0
// DEFINE: %{keys} = 64
// DEFINE: %{options} =
// DEFINE: %{f} = plain
// DEFINE: %{shape} = Sq=150,Sk=330
// DEFINE: %{seed} = 0
// DEFINE: %{after} =
// DEFINE: %{tiles} = fa-decompose,fa-online-softmax,fa-tile{target=sm_90a algorithm=fa2 rows=%{rows} keys=%{keys}},fa-interchange,fa-pad-tiles,fa-list-blocks{index-bits=32},fa-split-mask-loops{index-bits=32},fa-order-keys{order=auto},fa-defer-normalization,fa-fuse,fa-fold-scale-exp2
// DEFINE: %{speculate} = ,fa-speculate-max{target=sm_90a}
// DEFINE: %{run} = fa-run %s --func=%{f} --check --seed=%{seed} --shape=%{shape} --passes="%{tiles}%{speculate},fa-schedule-hopper{%{options}}%{after}" | FileCheck %s
//
// No block of keys, one, as many as stages, and more.
// REDEFINE: %{rows} = 128
// REDEFINE: %{options} = stages=2
// REDEFINE: %{shape} = Sq=70,Sk=0
// RUN: %{run}
// REDEFINE: %{shape} = Sq=70,Sk=1
// RUN: %{run}
// REDEFINE: %{shape} = Sq=70,Sk=65
// RUN: %{run}
// REDEFINE: %{shape} = Sq=200,Sk=129
// RUN: %{run}
// REDEFINE: %{shape} = Sq=300,Sk=257
// RUN: %{run}
//
// Warpgroups and how they go on.
// REDEFINE: %{shape} = Sq=300,Sk=200
// REDEFINE: %{rows} = 64
// REDEFINE: %{options} = persistent=1 stages=1
// RUN: %{run}
// REDEFINE: %{options} = persistent=0
// RUN: %{run}
// REDEFINE: %{rows} = 128
// REDEFINE: %{options} = persistent=1 ping-pong=1
// RUN: %{run}
// REDEFINE: %{options} = persistent=0 ping-pong=0 ones=0
// RUN: %{run}
// REDEFINE: %{options} = persistent=0 ping-pong=1 ones=1
// RUN: %{run}
// REDEFINE: %{rows} = 192
// REDEFINE: %{options} = ping-pong=1
// REDEFINE: %{seed} = 1
// RUN: %{run}
// REDEFINE: %{options} = ping-pong=1 stages=1 ones=0
// REDEFINE: %{after} = ,canonicalize,cse
// RUN: %{run}

// CHECK-NOT: WRONG
// CHECK: {{fa-schedule-hopper|cse}} {{.*}} ok
// CHECK: interpreted, seed {{[0-9]}}

!t = tensor<1x2x?x64xbf16>
!lse = tensor<1x2x?xf32>

func.func @plain(%q: !t, %k: tensor<1x1x?x64xbf16>, %v: tensor<1x1x?x128xbf16>)
    -> (tensor<1x2x?x128xbf16>, !lse) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125
    : (!t, tensor<1x1x?x64xbf16>, tensor<1x1x?x128xbf16>)
    -> (tensor<1x2x?x128xbf16>, !lse)
  return %o, %lse : tensor<1x2x?x128xbf16>, !lse
}
