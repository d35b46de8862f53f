// Masks as loop bounds. The input of the pass is what the passes before it make
// of fa.attention; split-mask-loops-forms.mlir has inputs written by hand.
// RUN: fa-opt %s --fa-decompose --fa-online-softmax --fa-tile="rows=128 keys=64" --fa-interchange --fa-pad-tiles --fa-split-mask-loops --split-input-file | FileCheck %s
// RUN: fa-opt %s --fa-decompose --fa-online-softmax --fa-tile="rows=128 keys=64" --fa-interchange --fa-pad-tiles --fa-split-mask-loops --split-input-file --remarks-filter=fa-split-mask-loops --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// REMARK: remark: [Passed] Split {{.*}}Function=causal {{.*}}split the loop over keys: it ends earlier, its full tiles run without the mask (visited [0, min(%arg{{[0-9]+}} + 128, %dim{{.*}})), full [0, min(%arg{{[0-9]+}} + 1, %dim{{.*}}))
// REMARK: remark: [Missed] NotSplit {{.*}}Function=documents {{.*}}the mask cuts nothing off the loop over keys (visited [0, %dim{{.*}}), full none; part of the mask could not be decided

// CHECK-DAG: #[[$END:.+]] = affine_map<()[s0, s1] -> (s0 + 128, s1)>
// CHECK-DAG: #[[$FULL:.+]] = affine_map<()[s0, s1] -> (s0 + 1, s1)>
// CHECK-DAG: #[[$NEXT:.+]] = affine_map<(d0) -> (d0 + 64)>
// CHECK-LABEL: func @causal(
// CHECK: %[[SK:.+]] = tensor.dim %arg1, %c2
// CHECK: scf.for %[[I:.+]] = %c0
// CHECK: %[[END:.+]] = affine.min #[[$END]]()[%[[I]], %[[SK]]]
// CHECK: %[[FULL:.+]] = affine.min #[[$FULL]]()[%[[I]], %[[SK]]]
// CHECK: scf.for %[[J:.+]] = %c0 to %[[END]] step %c64
// CHECK: %[[NEXT:.+]] = affine.apply #[[$NEXT]](%[[J]])
// CHECK: %[[ISFULL:.+]] = arith.cmpi sle, %[[NEXT]], %[[FULL]] : index
// CHECK: %[[S:.+]] = scf.if %[[ISFULL]] -> (tensor<128x64xf32>)
// CHECK-NOT: arith.select
// CHECK: else
// CHECK: arith.select
// CHECK: fa.online_softmax ins(%[[S]],
func.func @causal(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x2x?x64xbf16>,
                  %v: tensor<?x2x?x64xbf16>) -> tensor<?x8x?x64xbf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>)
   -> tensor<?x8x?x64xbf16>
  return %o : tensor<?x8x?x64xbf16>
}

// -----

// Aligned at the end: the last query sees the last key. The lengths are read
// inside the mask.
// CHECK-DAG: #[[$END:.+]] = affine_map<()[s0, s1, s2] -> (s0 + s1 - s2 + 128, s1)>
// CHECK-DAG: #[[$FULL:.+]] = affine_map<()[s0, s1, s2] -> (s0 + s1 - s2 + 1, s1)>
// CHECK-LABEL: func @causal_bottom_right(
// CHECK-DAG: %[[SQ:.+]] = tensor.dim %arg0, %c2
// CHECK-DAG: %[[SK:.+]] = tensor.dim %arg1, %c2
// CHECK: scf.for %[[I:.+]] = %c0
// CHECK: %[[END:.+]] = affine.min #[[$END]]()[%[[I]], %[[SK]], %[[SQ]]]
// CHECK: affine.min #[[$FULL]]()[%[[I]], %[[SK]], %[[SQ]]]
// CHECK: scf.for %{{.+}} = %c0 to %[[END]] step %c64
// CHECK: scf.if
func.func @causal_bottom_right(%q: tensor<1x8x?x64xf16>, %k: tensor<1x8x?x64xf16>,
                               %v: tensor<1x8x?x64xf16>) -> tensor<1x8x?x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c2 = arith.constant 2 : index
    %sq = tensor.dim %q, %c2 : tensor<1x8x?x64xf16>
    %sk = tensor.dim %k, %c2 : tensor<1x8x?x64xf16>
    %shift = arith.subi %sk, %sq : index
    %last = arith.addi %i, %shift : index
    %seen = arith.cmpi sle, %j, %last : index
    fa.yield %seen : i1
  } : (tensor<1x8x?x64xf16>, tensor<1x8x?x64xf16>, tensor<1x8x?x64xf16>)
   -> tensor<1x8x?x64xf16>
  return %o : tensor<1x8x?x64xf16>
}

// -----

// The first key seen, i - 511, is rounded down to a tile. The lengths are
// static: nothing reaches past the end, which no bound needs to say.
// CHECK-DAG: #[[$BEGIN:.+]] = affine_map<()[s0] -> (((s0 - 511) floordiv 64) * 64, 0)>
// CHECK-DAG: #[[$END:.+]] = affine_map<()[s0] -> (s0 + 128, 4096)>
// CHECK-DAG: #[[$FROM:.+]] = affine_map<()[s0] -> (s0 - 384)>
// CHECK-DAG: #[[$TO:.+]] = affine_map<()[s0] -> (s0 + 1)>
// CHECK-LABEL: func @sliding_window(
// CHECK: scf.for %[[I:.+]] = %c0
// CHECK: %[[BEGIN:.+]] = affine.max #[[$BEGIN]]()[%[[I]]]
// CHECK: %[[END:.+]] = affine.min #[[$END]]()[%[[I]]]
// CHECK: %[[FROM:.+]] = affine.apply #[[$FROM]]()[%[[I]]]
// CHECK: %[[TO:.+]] = affine.apply #[[$TO]]()[%[[I]]]
// CHECK: scf.for %[[J:.+]] = %[[BEGIN]] to %[[END]] step %c64
// CHECK-DAG: %[[BEFORE:.+]] = arith.cmpi sle, %{{.+}}, %[[TO]] : index
// CHECK-DAG: %[[AFTER:.+]] = arith.cmpi sge, %[[J]], %[[FROM]] : index
// CHECK: arith.andi %[[AFTER]], %[[BEFORE]]
// CHECK: scf.if
func.func @sliding_window(%q: tensor<1x8x4096x64xf16>, %k: tensor<1x8x4096x64xf16>,
                          %v: tensor<1x8x4096x64xf16>) -> tensor<1x8x4096x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %window = arith.constant 512 : index
    %causal = arith.cmpi sle, %j, %i : index
    %distance = arith.subi %i, %j : index
    %near = arith.cmpi slt, %distance, %window : index
    %seen = arith.andi %causal, %near : i1
    fa.yield %seen : i1
  } : (tensor<1x8x4096x64xf16>, tensor<1x8x4096x64xf16>, tensor<1x8x4096x64xf16>)
   -> tensor<1x8x4096x64xf16>
  return %o : tensor<1x8x4096x64xf16>
}

// -----

// A window that no tile of 64 keys fits in, for all 128 rows: no scf.if.
// CHECK-DAG: #[[$BEGIN:.+]] = affine_map<()[s0] -> (((s0 - 63) floordiv 64) * 64, 0)>
// CHECK-LABEL: func @narrow_window(
// CHECK: affine.max #[[$BEGIN]]
// CHECK-NOT: scf.if
// CHECK: arith.select
// CHECK-NOT: scf.if
// CHECK: fa.online_softmax
func.func @narrow_window(%q: tensor<1x8x4096x64xf16>, %k: tensor<1x8x4096x64xf16>,
                         %v: tensor<1x8x4096x64xf16>) -> tensor<1x8x4096x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %window = arith.constant 64 : index
    %distance = arith.subi %i, %j : index
    %seen = arith.cmpi ult, %distance, %window : index
    fa.yield %seen : i1
  } : (tensor<1x8x4096x64xf16>, tensor<1x8x4096x64xf16>, tensor<1x8x4096x64xf16>)
   -> tensor<1x8x4096x64xf16>
  return %o : tensor<1x8x4096x64xf16>
}

// -----

// CHECK-DAG: #[[$MORE:.+]] = affine_map<()[s0, s1] -> (s0, s1 + 128)>
// CHECK-DAG: #[[$ALL:.+]] = affine_map<()[s0, s1] -> (s0, s1 + 1)>
// CHECK-DAG: #[[$MIN:.+]] = affine_map<()[s0, s1] -> (s0, s1)>
// CHECK-LABEL: func @prefix(
// CHECK: scf.for %[[I:.+]] = %c0
// CHECK: %[[P32:.+]] = tensor.extract %arg3[%{{.+}}] : tensor<2xi32>
// CHECK: %[[P:.+]] = arith.index_cast %[[P32]] : i32 to index
// CHECK: %[[MORE:.+]] = affine.max #[[$MORE]]()[%[[P]], %[[I]]]
// CHECK: %[[END:.+]] = affine.min #[[$MIN]]()[%[[MORE]], %{{.+}}]
// CHECK: %[[ALL:.+]] = affine.max #[[$ALL]]()[%[[P]], %[[I]]]
// CHECK: %[[FULL:.+]] = affine.min #[[$MIN]]()[%[[ALL]], %{{.+}}]
// CHECK: scf.for %{{.+}} = %c0 to %[[END]] step %c64
// CHECK: arith.cmpi sle, %{{.+}}, %[[FULL]] : index
// CHECK: scf.if
func.func @prefix(%q: tensor<2x8x?x64xf16>, %k: tensor<2x8x?x64xf16>,
                  %v: tensor<2x8x?x64xf16>, %prefix: tensor<2xi32>)
    -> tensor<2x8x?x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %n32 = tensor.extract %prefix[%b] : tensor<2xi32>
    %n = arith.index_cast %n32 : i32 to index
    %inside = arith.cmpi slt, %j, %n : index
    %causal = arith.cmpi sle, %j, %i : index
    %seen = arith.ori %inside, %causal : i1
    fa.yield %seen : i1
  } : (tensor<2x8x?x64xf16>, tensor<2x8x?x64xf16>, tensor<2x8x?x64xf16>)
   -> tensor<2x8x?x64xf16>
  return %o : tensor<2x8x?x64xf16>
}

// -----

// CHECK-DAG: #[[$END:.+]] = affine_map<()[s0] -> (s0, 512)>
// CHECK-LABEL: func @padding(
// CHECK: scf.for
// CHECK: %[[N32:.+]] = tensor.extract %arg3[%{{.+}}] : tensor<8xi32>
// CHECK: %[[N:.+]] = arith.index_cast %[[N32]] : i32 to index
// CHECK: %[[END:.+]] = affine.min #[[$END]]()[%[[N]]]
// CHECK: scf.for %[[J:.+]] = %c0 to %[[END]] step %c64
// CHECK: arith.cmpi sle, %{{.+}}, %[[N]] : index
// CHECK: scf.if
func.func @padding(%q: tensor<8x16x512x64xf16>, %k: tensor<8x16x512x64xf16>,
                   %v: tensor<8x16x512x64xf16>, %lengths: tensor<8xi32>)
    -> tensor<8x16x512x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %length32 = tensor.extract %lengths[%b] : tensor<8xi32>
    %length = arith.index_cast %length32 : i32 to index
    %seen = arith.cmpi slt, %j, %length : index
    fa.yield %seen : i1
  } : (tensor<8x16x512x64xf16>, tensor<8x16x512x64xf16>, tensor<8x16x512x64xf16>)
   -> tensor<8x16x512x64xf16>
  return %o : tensor<8x16x512x64xf16>
}

// -----

// CHECK-LABEL: func @causal_window_padding(
// CHECK: scf.for %[[I:.+]] = %c0
// CHECK: %[[N:.+]] = arith.index_cast
// CHECK: %[[BEGIN:.+]] = affine.max
// CHECK: %[[END:.+]] = affine.min
// CHECK: scf.for %[[J:.+]] = %[[BEGIN]] to %[[END]] step %c64
// CHECK: scf.if
func.func @causal_window_padding(%q: tensor<2x8x?x64xf16>, %k: tensor<2x8x?x64xf16>,
                                 %v: tensor<2x8x?x64xf16>, %lengths: tensor<2xi32>)
    -> tensor<2x8x?x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %length32 = tensor.extract %lengths[%b] : tensor<2xi32>
    %length = arith.index_cast %length32 : i32 to index
    %inside = arith.cmpi slt, %j, %length : index
    %window = arith.constant 512 : index
    %distance = arith.subi %i, %j : index
    %near = arith.cmpi ult, %distance, %window : index
    %seen = arith.andi %inside, %near : i1
    fa.yield %seen : i1
  } : (tensor<2x8x?x64xf16>, tensor<2x8x?x64xf16>, tensor<2x8x?x64xf16>)
   -> tensor<2x8x?x64xf16>
  return %o : tensor<2x8x?x64xf16>
}

// -----

// Data for each element: every key is visited and masked.
// CHECK-LABEL: func @documents(
// CHECK: %[[SK:.+]] = tensor.dim %arg1, %c2
// CHECK: scf.for %{{.+}} = %c0 to %[[SK]] step %c64
// CHECK-NOT: scf.if
// CHECK: arith.select
// CHECK-NOT: scf.if
// CHECK: fa.online_softmax
func.func @documents(%q: tensor<1x8x?x64xf16>, %k: tensor<1x8x?x64xf16>,
                     %v: tensor<1x8x?x64xf16>, %docs: tensor<?xi32>)
    -> tensor<1x8x?x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %docs[%i] : tensor<?xi32>
    %y = tensor.extract %docs[%j] : tensor<?xi32>
    %seen = arith.cmpi eq, %x, %y : i32
    fa.yield %seen : i1
  } : (tensor<1x8x?x64xf16>, tensor<1x8x?x64xf16>, tensor<1x8x?x64xf16>)
   -> tensor<1x8x?x64xf16>
  return %o : tensor<1x8x?x64xf16>
}

// -----

// The mask is always true: it goes away.
// CHECK-LABEL: func @always(
// CHECK-NOT: arith.select
// CHECK-NOT: scf.if
// CHECK: fa.online_softmax
func.func @always(%q: tensor<1x8x512x64xf16>, %k: tensor<1x8x512x64xf16>,
                  %v: tensor<1x8x512x64xf16>) -> tensor<1x8x512x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c512 = arith.constant 512 : index
    %seen = arith.cmpi ult, %j, %c512 : index
    fa.yield %seen : i1
  } : (tensor<1x8x512x64xf16>, tensor<1x8x512x64xf16>, tensor<1x8x512x64xf16>)
   -> tensor<1x8x512x64xf16>
  return %o : tensor<1x8x512x64xf16>
}

// -----

// The first 4 keys and a window: the loop counts the tiles of both; behind the
// first, a tile's first key is further on by the gap.
// CHECK-DAG: #[[$BEHIND:.+]] = affine_map<()[s0] -> (((s0 - 1023) floordiv 64) * 64)>
// CHECK-LABEL: func @sinks_and_window(
// CHECK: scf.for %[[I:.+]] = %c0
// CHECK: %[[TO:.+]] = affine.apply #[[$BEHIND]]()[%[[I]]]
// CHECK: %[[FROM:.+]] = arith.maxsi
// CHECK: %[[LENGTH:.+]] = arith.subi %[[TO]], %[[FROM]]
// CHECK: %[[GAP:.+]] = arith.maxsi %[[LENGTH]],
// CHECK: %[[SHORTER:.+]] = arith.subi %{{.+}}, %[[GAP]]
// CHECK: %[[END:.+]] = arith.maxsi %[[SHORTER]],
// CHECK: scf.for %[[N:.+]] = %c0 to %[[END]] step %c64
// CHECK: %[[ISBEHIND:.+]] = arith.cmpi sge, %[[N]], %[[FROM]]
// CHECK: %[[SKIP:.+]] = arith.select %[[ISBEHIND]], %[[GAP]],
// CHECK: %[[J:.+]] = arith.addi %[[N]], %[[SKIP]]
// CHECK: tensor.extract_slice %arg1[%{{.+}}, %{{.+}}, %[[J]], 0]
// CHECK: tensor.extract_slice %arg2[%{{.+}}, %{{.+}}, %[[J]], 0]
// REMARK: remark: [Passed] Split {{.*}}Function=sinks_and_window {{.*}}it leaves out keys between, {{.*}}unseen [4, %arg{{[0-9]+}} - 1023)
func.func @sinks_and_window(%q: tensor<1x1x4096x64xbf16>, %k: tensor<1x1x4096x64xbf16>,
                            %v: tensor<1x1x4096x64xbf16>) -> tensor<1x1x4096x64xbf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %sinks = arith.constant 4 : index
    %width = arith.constant 1024 : index
    %causal = arith.cmpi sle, %j, %i : index
    %distance = arith.subi %i, %j : index
    %near = arith.cmpi slt, %distance, %width : index
    %sink = arith.cmpi slt, %j, %sinks : index
    %either = arith.ori %sink, %near : i1
    %seen = arith.andi %causal, %either : i1
    fa.yield %seen : i1
  } : (tensor<1x1x4096x64xbf16>, tensor<1x1x4096x64xbf16>, tensor<1x1x4096x64xbf16>)
   -> tensor<1x1x4096x64xbf16>
  return %o : tensor<1x1x4096x64xbf16>
}

// -----

// Under a causal mask |i - j| is i - j, with the mask and without it; of the
// mask itself nothing changes.
// CHECK-LABEL: func @distance(
// CHECK: scf.for
// CHECK: scf.if
// CHECK-NOT: arith.maxsi
// CHECK: %[[D:.+]] = arith.subi
// CHECK-NEXT: arith.index_cast %[[D]]
// CHECK: else
// CHECK-NOT: arith.maxsi
// CHECK: %[[D:.+]] = arith.subi
// CHECK-NEXT: arith.index_cast %[[D]]
// CHECK-NOT: arith.maxsi
// CHECK: fa.online_softmax
// REMARK: [Passed] Split {{.*}}Function=distance
func.func @distance(%q: tensor<1x1x512x64xf32>) -> tensor<1x1x512x64xf32> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %zero = arith.constant 0 : index
    %d = arith.subi %i, %j : index
    %minus = arith.subi %zero, %d : index
    %size = arith.maxsi %d, %minus : index
    %n = arith.index_cast %size : index to i32
    %f = arith.sitofp %n : i32 to f32
    %y = arith.subf %s, %f : f32
    fa.yield %y : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x1x512x64xf32>, tensor<1x1x512x64xf32>, tensor<1x1x512x64xf32>) -> tensor<1x1x512x64xf32>
  return %o : tensor<1x1x512x64xf32>
}
