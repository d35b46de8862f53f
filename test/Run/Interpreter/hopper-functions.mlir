// Schedules for Hopper run with masks and functions of scores; how is in
// hopper.mlir.
// REQUIRES: fa-run
//
// DEFINE: %{rows} = 128
// DEFINE: %{keys} = 64
// DEFINE: %{options} =
// DEFINE: %{f} = causal
// DEFINE: %{shape} = Sq=150,Sk=200
// DEFINE: %{seed} = 0
// DEFINE: %{after} =
// DEFINE: %{tiles} = fa-decompose,fa-online-softmax,fa-tile{target=sm_90a algorithm=fa2 rows=%{rows} keys=%{keys}},fa-interchange,fa-pad-tiles,fa-list-blocks{index-bits=32},fa-split-mask-loops{index-bits=32},fa-order-keys{order=auto},fa-defer-normalization,fa-fuse,fa-fold-scale-exp2
// DEFINE: %{speculate} = ,fa-speculate-max{target=sm_90a}
// DEFINE: %{run} = fa-run %s --func=%{f} --check --seed=%{seed} --shape=%{shape} --passes="%{tiles}%{speculate},fa-schedule-hopper{%{options}}%{after}" | FileCheck %s
//
// Masks, one of which leaves nothing, and functions of scores.
// RUN: %{run}
// REDEFINE: %{options} = ping-pong=0
// REDEFINE: %{seed} = 2
// RUN: %{run}
// REDEFINE: %{options} =
// REDEFINE: %{f} = window
// RUN: %{run}
// REDEFINE: %{f} = nothing
// RUN: %{run}
// REDEFINE: %{f} = softcap
// RUN: %{run}
// REDEFINE: %{f} = conditional
// RUN: %{run}
// REDEFINE: %{f} = dropout
// RUN: %{run}
// REDEFINE: %{f} = documents
// REDEFINE: %{shape} = Sq=200,Sk=200,arg3.0=200
// RUN: %{run}
//
// Keys that are values, too: one slot for both products.
// REDEFINE: %{f} = same
// REDEFINE: %{shape} = Sq=150,Sk=330
// RUN: %{run}
//
// With a maximum in each step.
// REDEFINE: %{speculate} =
// REDEFINE: %{f} = causal
// REDEFINE: %{shape} = Sq=150,Sk=200
// RUN: %{run}

// CHECK-NOT: WRONG
// CHECK: {{fa-schedule-hopper|cse}} {{.*}} ok
// CHECK: interpreted, seed {{[0-9]}}

!t = tensor<1x2x?x64xbf16>
!lse = tensor<1x2x?xf32>

func.func @causal(%q: !t, %k: !t, %v: !t) -> (!t, !lse) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (!t, !t, !t) -> (!t, !lse)
  return %o, %lse : !t, !lse
}

func.func @window(%q: !t, %k: !t, %v: !t) -> (!t, !lse) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %size = arith.constant 40 : index
      %d = arith.subi %i, %j : index
      %near = arith.cmpi sle, %d, %size : index
      %past = arith.cmpi sle, %j, %i : index
      %seen = arith.andi %near, %past : i1
      fa.yield %seen : i1
    } : (!t, !t, !t) -> (!t, !lse)
  return %o, %lse : !t, !lse
}

func.func @nothing(%q: !t, %k: !t, %v: !t) -> (!t, !lse) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %far = arith.constant 100000 : index
      %seen = arith.cmpi sgt, %j, %far : index
      fa.yield %seen : i1
    } : (!t, !t, !t) -> (!t, !lse)
  return %o, %lse : !t, !lse
}

func.func @softcap(%q: !t, %k: !t, %v: !t) -> !t {
  %o = fa.attention %q, %k, %v scale 0.125
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %cap = arith.constant 5.0 : f32
      %x = arith.divf %s, %cap : f32
      %t = math.tanh %x : f32
      %r = arith.mulf %t, %cap : f32
      fa.yield %r : f32
    } : (!t, !t, !t) -> !t
  return %o : !t
}

func.func @conditional(%q: !t, %k: !t, %v: !t) -> !t {
  %o = fa.attention %q, %k, %v scale 0.125
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c = arith.constant 30 : index
      %first = arith.cmpi slt, %j, %c : index
      %r = scf.if %first -> f32 {
        %n = arith.negf %s : f32
        scf.yield %n : f32
      } else {
        scf.yield %s : f32
      }
      fa.yield %r : f32
    } : (!t, !t, !t) -> !t
  return %o : !t
}

func.func @dropout(%q: !t, %k: !t, %v: !t, %seed: tensor<i64>) -> !t {
  %o = fa.attention %q, %k, %v scale 0.125
    keep {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %limit = arith.constant 26 : i8
      %s = tensor.extract %seed[] : tensor<i64>
      %bits = fa.random_bits %s at [%b, %h, %i, %j]
      %kept = arith.cmpi uge, %bits, %limit : i8
      fa.yield %kept : i1
    } times 1.11 : (!t, !t, !t) -> !t
  return %o : !t
}

func.func @documents(%q: !t, %k: !t, %v: !t, %ids: tensor<?xi32>) -> !t {
  %o = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %x = tensor.extract %ids[%i] : tensor<?xi32>
      %y = tensor.extract %ids[%j] : tensor<?xi32>
      %seen = arith.cmpi eq, %x, %y : i32
      fa.yield %seen : i1
    } : (!t, !t, !t) -> !t
  return %o : !t
}

func.func @slopes(%q: !t, %k: !t, %v: !t, %slopes: tensor<2xf32>) -> !t {
  %o = fa.attention %q, %k, %v scale 0.125
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %slope = tensor.extract %slopes[%h] : tensor<2xf32>
      %distance = arith.subi %j, %i : index
      %integer = arith.index_cast %distance : index to i32
      %float = arith.sitofp %integer : i32 to f32
      %c = arith.constant 0.01 : f32
      %scaled = arith.mulf %float, %c : f32
      %bias = arith.mulf %slope, %scaled : f32
      %r = arith.addf %s, %bias : f32
      fa.yield %r : f32
    }
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (!t, !t, !t) -> !t
  return %o : !t
}

// Heads that share keys, some of which see nothing, as their floats say.
func.func @heads(%q: tensor<1x4x?x64xbf16>, %k: !t, %v: !t, %slopes: tensor<4xf32>) -> tensor<1x4x?x64xbf16> {
  %o = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %slope = tensor.extract %slopes[%h] : tensor<4xf32>
      %integer = arith.index_cast %h : index to i32
      %float = arith.sitofp %integer : i32 to f32
      %c = arith.constant 0.5 : f32
      %least = arith.subf %float, %c : f32
      %seen = arith.cmpf ogt, %slope, %least : f32
      fa.yield %seen : i1
    } : (tensor<1x4x?x64xbf16>, !t, !t) -> tensor<1x4x?x64xbf16>
  return %o : tensor<1x4x?x64xbf16>
}

func.func @table(%q: !t, %k: !t, %v: !t, %table: tensor<2x128xf32>) -> !t {
  %o = fa.attention %q, %k, %v scale 0.125
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c0 = arith.constant 0 : index
      %c64 = arith.constant 64 : index
      %c127 = arith.constant 127 : index
      %distance = arith.subi %j, %i : index
      %moved = arith.addi %distance, %c64 : index
      %low = arith.maxsi %moved, %c0 : index
      %at = arith.minsi %low, %c127 : index
      %bias = tensor.extract %table[%h, %at] : tensor<2x128xf32>
      %r = arith.addf %s, %bias : f32
      fa.yield %r : f32
    } : (!t, !t, !t) -> !t
  return %o : !t
}

func.func @bias(%q: !t, %k: !t, %v: !t, %bias: tensor<2x?x?xf32>) -> !t {
  %o = fa.attention %q, %k, %v scale 0.125
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %x = tensor.extract %bias[%h, %i, %j] : tensor<2x?x?xf32>
      %r = arith.addf %s, %x : f32
      fa.yield %r : f32
    } : (!t, !t, !t) -> !t
  return %o : !t
}

func.func @same(%q: !t, %k: !t) -> !t {
  %o = fa.attention %q, %k, %k scale 0.125 : (!t, !t, !t) -> !t
  return %o : !t
}

// Head dim 128: dQ's product comes two iterations behind S's.
!w = tensor<1x2x?x128xbf16>
func.func @wide(%q: !w, %k: !w, %v: !w) -> !w {
  %o = fa.attention %q, %k, %v scale 0.1
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %c10 = arith.constant 10 : index
      %last = arith.addi %i, %c10 : index
      %seen = arith.cmpi sle, %j, %last : index
      fa.yield %seen : i1
    } : (!w, !w, !w) -> !w
  return %o : !w
}

func.func @wide_dropout(%q: !w, %k: !w, %v: !w, %seed: tensor<i64>) -> !w {
  %o = fa.attention %q, %k, %v scale 0.1
    keep {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %limit = arith.constant 26 : i8
      %s = tensor.extract %seed[] : tensor<i64>
      %bits = fa.random_bits %s at [%b, %h, %i, %j]
      %kept = arith.cmpi uge, %bits, %limit : i8
      fa.yield %kept : i1
    } times 1.11 : (!w, !w, !w) -> !w
  return %o : !w
}
