// RUN: fa-opt %s --split-input-file --verify-diagnostics

// One case per diagnostic of fa.speculated_softmax.

// the state
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xbf16>, %m: tensor<4xf32>, %o: tensor<4x16xf32>, %j: index) {
  // expected-error @+1 {{expected a state of a reference, a sum, an output and maybe an exact sum, got 2 tensors (fa_speculated_softmax_c1)}}
  %r:2, %until = fa.speculated_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xbf16>) outs(%m, %m : tensor<4xf32>, tensor<4xf32>) at %j from %j by %j until %j score {
  ^bb0(%x: f32, %row: index, %column: index):
    fa.yield %x : f32
  } {log2_scale = 1.0 : f64, headroom = 63.0 : f64, limit = 2.0 : f64, far_limit = 0.0 : f64}
  return
}

// -----

// values that are not rounded
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %o: tensor<4x16xf32>, %j: index) {
  // expected-error @+1 {{expected values of f16 or bf16, by whose rounding weights are checked, got 'f32'}}
  %r:3, %until = fa.speculated_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %m, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) at %j from %j by %j until %j score {
  ^bb0(%x: f32, %row: index, %column: index):
    fa.yield %x : f32
  } {log2_scale = 1.0 : f64, headroom = 63.0 : f64, limit = 2.0 : f64, far_limit = 0.0 : f64}
  return
}

// -----

// keys
func.func @f(%s: tensor<4x9xf32>, %v: tensor<8x16xbf16>, %m: tensor<4xf32>, %o: tensor<4x16xf32>, %j: index) {
  // expected-error @+1 {{expected f32 scores [M,N] and values [N,Dv], got 'tensor<4x9xf32>' and 'tensor<8x16xbf16>'}}
  %r:3, %until = fa.speculated_softmax ins(%s, %v : tensor<4x9xf32>, tensor<8x16xbf16>) outs(%m, %m, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) at %j from %j by %j until %j score {
  ^bb0(%x: f32, %row: index, %column: index):
    fa.yield %x : f32
  } {log2_scale = 1.0 : f64, headroom = 63.0 : f64, limit = 2.0 : f64, far_limit = 0.0 : f64}
  return
}

// -----

// the output
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xbf16>, %m: tensor<4xf32>, %o: tensor<4x16xf32>, %j: index) {
  // expected-error @+1 {{expected the output to be f32 [M,Dv] of scores 'tensor<4x8xf32>' and values 'tensor<8x16xbf16>', got 'tensor<4x8xf32>'}}
  %r:3, %until = fa.speculated_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xbf16>) outs(%m, %m, %s : tensor<4xf32>, tensor<4xf32>, tensor<4x8xf32>) at %j from %j by %j until %j score {
  ^bb0(%x: f32, %row: index, %column: index):
    fa.yield %x : f32
  } {log2_scale = 1.0 : f64, headroom = 63.0 : f64, limit = 2.0 : f64, far_limit = 0.0 : f64}
  return
}

// -----

// the exact sum
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xbf16>, %m: tensor<4xf32>, %o: tensor<4x16xf32>, %j: index) {
  // expected-error @+1 {{expected the exact sum to be f32 [M]}}
  %r:4, %until = fa.speculated_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xbf16>) outs(%m, %m, %o, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>, tensor<4x16xf32>) at %j from %j by %j until %j score {
  ^bb0(%x: f32, %row: index, %column: index):
    fa.yield %x : f32
  } {log2_scale = 1.0 : f64, headroom = 63.0 : f64, limit = 2.0 : f64, far_limit = 0.0 : f64}
  return
}

// -----

// the factor
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xbf16>, %m: tensor<4xf32>, %o: tensor<4x16xf32>, %j: index) {
  // expected-error @+1 {{expected a finite log2_scale above 0, got -1.0}}
  %r:3, %until = fa.speculated_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xbf16>) outs(%m, %m, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) at %j from %j by %j until %j score {
  ^bb0(%x: f32, %row: index, %column: index):
    fa.yield %x : f32
  } {log2_scale = -1.0 : f64, headroom = 63.0 : f64, limit = 2.0 : f64, far_limit = 0.0 : f64}
  return
}

// -----

// headroom
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xbf16>, %m: tensor<4xf32>, %o: tensor<4x16xf32>, %j: index) {
  // expected-error @+1 {{expected headroom in [0, 126], got 1.27}}
  %r:3, %until = fa.speculated_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xbf16>) outs(%m, %m, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) at %j from %j by %j until %j score {
  ^bb0(%x: f32, %row: index, %column: index):
    fa.yield %x : f32
  } {log2_scale = 1.0 : f64, headroom = 127.0 : f64, limit = 2.0 : f64, far_limit = 0.0 : f64}
  return
}

// -----

// limit
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xbf16>, %m: tensor<4xf32>, %o: tensor<4x16xf32>, %j: index) {
  // expected-error @+1 {{expected limit in (1, 2^60], got 1.0}}
  %r:3, %until = fa.speculated_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xbf16>) outs(%m, %m, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) at %j from %j by %j until %j score {
  ^bb0(%x: f32, %row: index, %column: index):
    fa.yield %x : f32
  } {log2_scale = 1.0 : f64, headroom = 63.0 : f64, limit = 1.0 : f64, far_limit = 0.0 : f64}
  return
}

// -----

// far limit
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xbf16>, %m: tensor<4xf32>, %o: tensor<4x16xf32>, %j: index) {
  // expected-error @+1 {{expected far_limit 0, or finite and above limit 2.0}}
  %r:3, %until = fa.speculated_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xbf16>) outs(%m, %m, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) at %j from %j by %j until %j score {
  ^bb0(%x: f32, %row: index, %column: index):
    fa.yield %x : f32
  } {log2_scale = 1.0 : f64, headroom = 63.0 : f64, limit = 2.0 : f64, far_limit = 1.5 : f64}
  return
}

// -----

// the score region's arguments
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xbf16>, %m: tensor<4xf32>, %o: tensor<4x16xf32>, %j: index) {
  // expected-error @+1 {{expected the score region to take an f32 and two indices, row and column}}
  %r:3, %until = fa.speculated_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xbf16>) outs(%m, %m, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) at %j from %j by %j until %j score {
  ^bb0(%x: f32, %row: index):
    fa.yield %x : f32
  } {log2_scale = 1.0 : f64, headroom = 63.0 : f64, limit = 2.0 : f64, far_limit = 0.0 : f64}
  return
}

// -----

// what it yields
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xbf16>, %m: tensor<4xf32>, %o: tensor<4x16xf32>, %j: index) {
  // expected-error @+1 {{expected the score region to end in fa.yield of an f32}}
  %r:3, %until = fa.speculated_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xbf16>) outs(%m, %m, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) at %j from %j by %j until %j score {
  ^bb0(%x: f32, %row: index, %column: index):
    %y = arith.cmpi slt, %row, %column : index
    fa.yield %y : i1
  } {log2_scale = 1.0 : f64, headroom = 63.0 : f64, limit = 2.0 : f64, far_limit = 0.0 : f64}
  return
}

// -----

// what it keeps
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xbf16>, %m: tensor<4xf32>, %o: tensor<4x16xf32>, %j: index) {
  // expected-error @+1 {{expected the keep region to take two indices, row and column, got 1 arguments}}
  %r:3, %until = fa.speculated_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xbf16>) outs(%m, %m, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) at %j from %j by %j until %j score {
  ^bb0(%x: f32, %row: index, %column: index):
    fa.yield %x : f32
  } keep {
  ^bb0(%row: index):
    %y = arith.cmpi slt, %row, %row : index
    fa.yield %y : i1
  } {log2_scale = 1.0 : f64, headroom = 63.0 : f64, limit = 2.0 : f64, far_limit = 0.0 : f64}
  return
}
