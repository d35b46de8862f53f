// RUN: fa-opt %s --split-input-file --verify-diagnostics

// One case per diagnostic of fa.online_softmax.

// scores of rank 3
func.func @f(%s: tensor<1x4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %l: tensor<4xf32>, %o: tensor<4x16xf32>) {
  // expected-error @+1 {{expected scores of rank 2, got rank 3}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<1x4x8xf32>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>)
  return
}

// -----

// values of rank 1
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8xf32>, %m: tensor<4xf32>, %l: tensor<4xf32>, %o: tensor<4x16xf32>) {
  // expected-error @+1 {{expected values of rank 2, got rank 1}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>)
  return
}

// -----

// max of rank 2
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4x1xf32>, %l: tensor<4xf32>, %o: tensor<4x16xf32>) {
  // expected-error @+1 {{expected max of rank 1, got rank 2}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<4x1xf32>, tensor<4xf32>, tensor<4x16xf32>)
  return
}

// -----

// sum of rank 0
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %l: tensor<f32>, %o: tensor<4x16xf32>) {
  // expected-error @+1 {{expected sum of rank 1, got rank 0}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<f32>, tensor<4x16xf32>)
  return
}

// -----

// acc of rank 1
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %l: tensor<4xf32>, %o: tensor<4xf32>) {
  // expected-error @+1 {{expected acc of rank 2, got rank 1}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

// keys
func.func @f(%s: tensor<4x8xf32>, %v: tensor<9x16xf32>, %m: tensor<4xf32>, %l: tensor<4xf32>, %o: tensor<4x16xf32>) {
  // expected-error @+1 {{expected scores and values to have the same number of keys, got 8 and 9}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<9x16xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>)
  return
}

// -----

// rows of max
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<5xf32>, %l: tensor<4xf32>, %o: tensor<4x16xf32>) {
  // expected-error @+1 {{expected scores and max to have the same number of rows, got 4 and 5}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<5xf32>, tensor<4xf32>, tensor<4x16xf32>)
  return
}

// -----

// rows of sum
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %l: tensor<5xf32>, %o: tensor<4x16xf32>) {
  // expected-error @+1 {{expected scores and sum to have the same number of rows, got 4 and 5}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<5xf32>, tensor<4x16xf32>)
  return
}

// -----

// rows of acc
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %l: tensor<4xf32>, %o: tensor<5x16xf32>) {
  // expected-error @+1 {{expected scores and acc to have the same number of rows, got 4 and 5}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<4xf32>, tensor<5x16xf32>)
  return
}

// -----

// value dim
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %l: tensor<4xf32>, %o: tensor<4x32xf32>) {
  // expected-error @+1 {{expected values and acc to have the same value dim, got 16 and 32}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x32xf32>)
  return
}

// -----

// scores in 16 bits
func.func @f(%s: tensor<4x8xf16>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %l: tensor<4xf32>, %o: tensor<4x16xf32>) {
  // expected-error @+1 {{operand #0 must be ranked tensor of 32-bit float or 64-bit float values, but got 'tensor<4x8xf16>'}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf16>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>)
  return
}

// -----

// values in 64 bits
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf64>, %m: tensor<4xf32>, %l: tensor<4xf32>, %o: tensor<4x16xf32>) {
  // expected-error @+1 {{expected scores of element type 'f64', which 'f64' is computed in, got 'f32' (fa_online_softmax_c1)}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf64>) outs(%m, %l, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>)
  return
}

// -----

// keep of four coordinates
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %l: tensor<4xf32>, %o: tensor<4x16xf32>) {
  // expected-error @+1 {{expected the keep region to take two indices, row and column, got 4 arguments}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c = arith.constant true
    fa.yield %c : i1
  }
  return
}

// -----

// keep of numbers of another type
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %l: tensor<4xf32>, %o: tensor<4x16xf32>) {
  // expected-error @+1 {{expected the keep region to take two indices, row and column, got}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) keep {
  ^bb0(%i: i32, %j: i32):
    %c = arith.constant true
    fa.yield %c : i1
  }
  return
}

// -----

// keep yields a weight
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %l: tensor<4xf32>, %o: tensor<4x16xf32>) {
  // expected-error @+1 {{expected the keep region to end in fa.yield of an i1}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) keep {
  ^bb0(%i: index, %j: index):
    %c = arith.constant 1.0 : f32
    fa.yield %c : f32
  }
  return
}

// -----

// keep with a side effect
func.func private @random() -> i1
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %l: tensor<4xf32>, %o: tensor<4x16xf32>) {
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) keep {
  ^bb0(%i: index, %j: index):
    // expected-error @+1 {{has side effects or is not understood in a keep region; only pure ops may be used there}}
    %c = func.call @random() : () -> i1
    fa.yield %c : i1
  }
  return
}

// -----

// a factor that is none
func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %l: tensor<4xf32>, %o: tensor<4x16xf32>) {
  // expected-error @+1 {{expected a finite log2_scale above 0, got 0.0}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) {log2_scale = 0.0 : f64}
  return
}

// -----

func.func @f(%s: tensor<4x8xf32>, %v: tensor<8x16xf32>, %m: tensor<4xf32>, %l: tensor<4xf32>, %o: tensor<4x16xf32>) {
  // expected-error @+1 {{expected log2_scale with subtract_first}}
  %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<4x8xf32>, tensor<8x16xf32>) outs(%m, %l, %o : tensor<4xf32>, tensor<4xf32>, tensor<4x16xf32>) {subtract_first}
  return
}
