// RUN: fa-opt %s | fa-opt | FileCheck %s
// RUN: fa-opt %s -mlir-print-op-generic | fa-opt | FileCheck %s
// RUN: fa-opt %s --emit-bytecode | fa-opt | FileCheck %s

// CHECK-LABEL: func @plain
// CHECK: fa.attention %{{.*}}, %{{.*}}, %{{.*}} : (tensor<1x2x8x16xf32>, tensor<1x2x9x16xf32>, tensor<1x2x9x24xf32>) -> tensor<1x2x8x24xf32>
func.func @plain(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x9x16xf32>, %v: tensor<1x2x9x24xf32>) -> tensor<1x2x8x24xf32> {
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x9x16xf32>, tensor<1x2x9x24xf32>) -> tensor<1x2x8x24xf32>
  return %o : tensor<1x2x8x24xf32>
}

// CHECK-LABEL: func @scale_and_lse
// CHECK: %{{.*}}, %{{.*}} = fa.attention %{{.*}}, %{{.*}}, %{{.*}} scale 1.250000e-01 : {{.*}} -> (tensor<1x2x8x16xf16>, tensor<1x2x8xf32>)
func.func @scale_and_lse(%q: tensor<1x2x8x16xf16>) -> tensor<1x2x8xf32> {
  %o, %lse = fa.attention %q, %q, %q scale 0.125 : (tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>) -> (tensor<1x2x8x16xf16>, tensor<1x2x8xf32>)
  return %lse : tensor<1x2x8xf32>
}

// CHECK-LABEL: func @negative_zero_and_tiny_scale
// CHECK: scale -0.000000e+00
// CHECK: scale 4.94{{[0-9]*}}e-324
func.func @negative_zero_and_tiny_scale(%q: tensor<1x2x8x16xf16>) -> (tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>) {
  %o = fa.attention %q, %q, %q scale -0.0 : (tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>) -> tensor<1x2x8x16xf16>
  %p = fa.attention %q, %q, %q scale 4.9406564584124654E-324 : (tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>) -> tensor<1x2x8x16xf16>
  return %o, %p : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>
}

// CHECK-LABEL: func @score_only
// CHECK: fa.attention {{.*}} score {
// CHECK-NEXT: ^bb0(%{{.*}}: f32, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index):
// CHECK: math.tanh
// CHECK: fa.yield %{{.*}} : f32
// CHECK-NEXT: } : (
func.func @score_only(%q: tensor<1x2x8x16xbf16>) -> tensor<1x2x8x16xbf16> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %t = math.tanh %s : f32
    fa.yield %t : f32
  } : (tensor<1x2x8x16xbf16>, tensor<1x2x8x16xbf16>, tensor<1x2x8x16xbf16>) -> tensor<1x2x8x16xbf16>
  return %o : tensor<1x2x8x16xbf16>
}

// CHECK-LABEL: func @mask_only
// CHECK: fa.attention {{.*}} mask {
// CHECK-NEXT: ^bb0(%{{.*}}: index, %{{.*}}: index, %[[I:.*]]: index, %[[J:.*]]: index):
// CHECK-NEXT: %[[SEEN:.*]] = arith.cmpi sle, %[[J]], %[[I]] : index
// CHECK-NEXT: fa.yield %[[SEEN]] : i1
func.func @mask_only(%q: tensor<1x2x8x16xbf16>) -> tensor<1x2x8x16xbf16> {
  %o = fa.attention %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x2x8x16xbf16>, tensor<1x2x8x16xbf16>, tensor<1x2x8x16xbf16>) -> tensor<1x2x8x16xbf16>
  return %o : tensor<1x2x8x16xbf16>
}

// Both regions, each with a captured tensor; dynamic batch and lengths; GQA.
// CHECK-LABEL: func @captures
// CHECK-SAME: %[[BIAS:[a-z0-9]+]]: tensor<8xf32>, %[[LENGTHS:[a-z0-9]+]]: tensor<?xi32>
// CHECK: fa.attention {{.*}} scale 1.000000e+00 score {
// CHECK: tensor.extract %[[BIAS]]
// CHECK: } mask {
// CHECK: tensor.extract %[[LENGTHS]]
// CHECK: -> (tensor<?x8x?x64xf32>, tensor<?x8x?xf32>)
func.func @captures(%q: tensor<?x8x?x64xf32>, %k: tensor<?x2x?x64xf32>, %bias: tensor<8xf32>, %lengths: tensor<?xi32>) -> tensor<?x8x?xf32> {
  %o, %lse = fa.attention %q, %k, %k scale 1.0 score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %bias[%h] : tensor<8xf32>
    %y = arith.addf %s, %x : f32
    fa.yield %y : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %n32 = tensor.extract %lengths[%b] : tensor<?xi32>
    %n = arith.index_cast %n32 : i32 to index
    %seen = arith.cmpi slt, %j, %n : index
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>) -> (tensor<?x8x?x64xf32>, tensor<?x8x?xf32>)
  return %lse : tensor<?x8x?xf32>
}

// What decides on weights reads a seed; the factor has a place of its own.
// CHECK-LABEL: func @keep
// CHECK-SAME: %[[SEED:[a-z0-9]+]]: tensor<i64>
// CHECK: fa.attention %{{.*}}, %{{.*}}, %{{.*}} keep {
// CHECK-NEXT: ^bb0(%[[B:.+]]: index, %[[H:.+]]: index, %[[I:.+]]: index, %[[J:.+]]: index):
// CHECK: %[[S:.+]] = tensor.extract %[[SEED]][] : tensor<i64>
// CHECK-NEXT: %[[BITS:.+]] = fa.random_bits %[[S]] at{{ ?}}[%[[B]], %[[H]], %[[I]], %[[J]]]{{$}}
// CHECK-NEXT: arith.cmpi uge, %[[BITS]], %{{.*}} : i8
// CHECK-NEXT: fa.yield %{{.*}} : i1
// CHECK-NEXT: } times 1.250000e+00 {note = "kept"} : (
func.func @keep(%q: tensor<1x2x8x16xbf16>, %seed: tensor<i64>) -> tensor<1x2x8x16xbf16> {
  %o = fa.attention %q, %q, %q keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %limit = arith.constant 51 : i8
    %s = tensor.extract %seed[] : tensor<i64>
    %bits = fa.random_bits %s at [%b, %h, %i, %j]
    %kept = arith.cmpi uge, %bits, %limit : i8
    fa.yield %kept : i1
  } times 1.25 {note = "kept"} : (tensor<1x2x8x16xbf16>, tensor<1x2x8x16xbf16>, tensor<1x2x8x16xbf16>) -> tensor<1x2x8x16xbf16>
  return %o : tensor<1x2x8x16xbf16>
}

// All three regions; no factor.
// CHECK-LABEL: func @score_mask_keep
// CHECK: fa.attention {{.*}} scale 5.000000e-01 score {
// CHECK: } mask {
// CHECK: } keep {
// CHECK: fa.yield %{{.*}} : i1
// CHECK-NEXT: } : (
func.func @score_mask_keep(%q: tensor<1x2x8x16xf32>) -> tensor<1x2x8xf32> {
  %o, %lse = fa.attention %q, %q, %q scale 0.5 score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %t = math.tanh %s : f32
    fa.yield %t : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %kept = arith.cmpi ne, %j, %h : index
    fa.yield %kept : i1
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> (tensor<1x2x8x16xf32>, tensor<1x2x8xf32>)
  return %lse : tensor<1x2x8xf32>
}

// CHECK-LABEL: func @random_bits
// CHECK: fa.random_bits %{{.*}} at{{ ?}}[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}]{{$}}
// CHECK: fa.random_bits %{{.*}} at{{ ?}}[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] tile [1, 48] {note = "kept"}
func.func @random_bits(%seed: i64, %b: index, %h: index, %i: index, %j: index) -> (i8, i8) {
  %x = fa.random_bits %seed at [%b, %h, %i, %j]
  %y = fa.random_bits %seed at [%b, %h, %i, %j] tile [1, 48] {note = "kept"}
  return %x, %y : i8, i8
}

// A static batch of the keys beside a dynamic one of the queries is allowed.
// CHECK-LABEL: func @partly_static
// CHECK: fa.attention
func.func @partly_static(%q: tensor<?x2x8x16xf32>, %k: tensor<4x2x?x16xf32>) -> tensor<?x2x8x16xf32> {
  %o = fa.attention %q, %k, %k : (tensor<?x2x8x16xf32>, tensor<4x2x?x16xf32>, tensor<4x2x?x16xf32>) -> tensor<?x2x8x16xf32>
  return %o : tensor<?x2x8x16xf32>
}

// CHECK-LABEL: func @smallest_and_largest_head_dim
// CHECK: -> tensor<1x1x4x256xf32>
func.func @smallest_and_largest_head_dim(%q: tensor<1x1x4x1xf32>, %v: tensor<1x1x4x256xf32>) -> tensor<1x1x4x256xf32> {
  %o = fa.attention %q, %q, %v : (tensor<1x1x4x1xf32>, tensor<1x1x4x1xf32>, tensor<1x1x4x256xf32>) -> tensor<1x1x4x256xf32>
  return %o : tensor<1x1x4x256xf32>
}

// CHECK-LABEL: func @empty_batch_and_lengths
// CHECK: -> tensor<0x2x0x16xf32>
func.func @empty_batch_and_lengths(%q: tensor<0x2x0x16xf32>) -> tensor<0x2x0x16xf32> {
  %o = fa.attention %q, %q, %q : (tensor<0x2x0x16xf32>, tensor<0x2x0x16xf32>, tensor<0x2x0x16xf32>) -> tensor<0x2x0x16xf32>
  return %o : tensor<0x2x0x16xf32>
}

// CHECK-LABEL: func @discardable_attribute
// CHECK: fa.attention {{.*}} {note = "kept"} :
func.func @discardable_attribute(%q: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  %o = fa.attention %q, %q, %q {note = "kept"} : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}

// CHECK-LABEL: func @online_softmax
// CHECK: fa.online_softmax ins(%{{.*}}, %{{.*}} : tensor<?x?xf32>, tensor<?x64xbf16>) outs(%{{.*}}, %{{.*}}, %{{.*}} : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>)
func.func @online_softmax(%s: tensor<?x?xf32>, %v: tensor<?x64xbf16>, %m: tensor<?xf32>, %l: tensor<?xf32>, %o: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<?x?xf32>, tensor<?x64xbf16>) outs(%m, %l, %o : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>)
  return %o1 : tensor<?x64xf32>
}

// CHECK-LABEL: func @online_softmax_keep
// CHECK: fa.online_softmax ins({{.*}}) outs({{.*}}) keep {
// CHECK-NEXT: ^bb0(%[[I:.+]]: index, %[[J:.+]]: index):
// CHECK-NEXT: %[[KEPT:.+]] = arith.cmpi ne, %[[I]], %[[J]] : index
// CHECK-NEXT: fa.yield %[[KEPT]] : i1
// CHECK-NEXT: } {note = "kept"}
func.func @online_softmax_keep(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %o: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %m, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) keep {
  ^bb0(%i: index, %j: index):
    %kept = arith.cmpi ne, %i, %j : index
    fa.yield %kept : i1
  } {note = "kept"}
  return %o1 : tensor<4x16xf32>
}

// CHECK-LABEL: func @online_softmax_in_log2
// CHECK: fa.online_softmax ins({{.*}}) outs({{.*}}) {log2_scale = 2.500000e-01 : f64, subtract_first, unnormalized}
func.func @online_softmax_in_log2(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %o: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %m, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) {log2_scale = 0.25 : f64, subtract_first, unnormalized}
  return %o1 : tensor<4x16xf32>
}

// CHECK-LABEL: func @speculated_softmax
// CHECK: %[[STATE:.*]]:4, %[[UNTIL:.*]] = fa.speculated_softmax ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8x16xf16>) outs(%{{.*}} : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>, tensor<4xf32>) at %[[J:.*]] from %[[J]] by %[[J]] until %[[J]] score {
// CHECK-NEXT: ^bb0(%[[X:.+]]: f32, %{{.+}}: index, %{{.+}}: index):
// CHECK-NEXT: fa.yield %[[X]] : f32
// CHECK-NEXT: } keep {
// CHECK-NEXT: ^bb0(%[[I:.+]]: index, %[[C:.+]]: index):
// CHECK: } {far_limit = 0.000000e+00 : f64, headroom = 0.000000e+00 : f64, limit = 3.276800e+04 : f64, log2_scale = 1.000000e+00 : f64}
// CHECK: return %[[STATE]]#2, %[[UNTIL]]
func.func @speculated_softmax(%s: tensor<4x8xf32>, %v: tensor<8x16xf16>, %m: tensor<4xf32>, %o: tensor<4x16xf32>, %j: index) -> (tensor<4x16xf32>, index) {
  %r:4, %until = fa.speculated_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf16>) outs(%m, %m, %o, %m : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>, tensor<4xf32>) at %j from %j by %j until %j score {
  ^bb0(%x: f32, %row: index, %column: index):
    fa.yield %x : f32
  } keep {
  ^bb0(%i: index, %column: index):
    %kept = arith.cmpi ne, %i, %column : index
    fa.yield %kept : i1
  } {log2_scale = 1.0 : f64, headroom = 0.0 : f64, limit = 32768.0 : f64, far_limit = 0.0 : f64}
  return %r#2, %until : tensor<4x16xf32>, index
}

// CHECK-LABEL: func @list_blocks
// CHECK-SAME: %[[IDS:[a-z0-9]+]]: tensor<?xi32>
// CHECK: %[[COUNT:.+]], %[[ENTRIES:.+]] = fa.list_blocks rows %{{.*}} keys %{{.*}} to %{{.*}} tile [128, 64] every [64, 1] outs(%{{.*}}, %{{.*}} : tensor<1xi32>, tensor<?xi32>) mask {
// CHECK-NEXT: ^bb0(%[[R:.+]]: index, %[[C:.+]]: index, %{{.+}}: index):
// CHECK: tensor.extract %[[IDS]][%[[R]]]
// CHECK: fa.yield %{{.*}} : i1
// CHECK-NEXT: } {note = "kept"}
// CHECK: return %[[COUNT]], %[[ENTRIES]]
func.func @list_blocks(%ids: tensor<?xi32>, %rows: index, %from: index, %to: index, %c: tensor<1xi32>, %e: tensor<?xi32>) -> (tensor<1xi32>, tensor<?xi32>) {
  %n, %list = fa.list_blocks rows %rows keys %from to %to tile [128, 64] every [64, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %column: index, %key: index):
    %j = arith.addi %column, %key : index
    %a = tensor.extract %ids[%r] : tensor<?xi32>
    %b = tensor.extract %ids[%j] : tensor<?xi32>
    %same = arith.cmpi eq, %a, %b : i32
    fa.yield %same : i1
  } {note = "kept"}
  return %n, %list : tensor<1xi32>, tensor<?xi32>
}

// The smallest tile; a count and a list of another size.
// CHECK-LABEL: func @list_blocks_smallest
// CHECK: fa.list_blocks {{.*}} tile [1, 2] every [1, 2] outs(%{{.*}}, %{{.*}} : tensor<?xi32>, tensor<0xi32>)
func.func @list_blocks_smallest(%i: index, %c: tensor<?xi32>, %e: tensor<0xi32>) -> tensor<0xi32> {
  %n, %list = fa.list_blocks rows %i keys %i to %i tile [1, 2] every [1, 2] outs(%c, %e : tensor<?xi32>, tensor<0xi32>) mask {
  ^bb0(%r: index, %column: index, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return %list : tensor<0xi32>
}
