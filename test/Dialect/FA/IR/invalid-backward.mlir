// RUN: fa-opt %s --split-input-file --verify-diagnostics

!t = tensor<1x1x8x16xf32>
!l = tensor<1x1x8xf32>
func.func @lse_grad(%q: !t, %l: !l, %m: tensor<1x1x9xf32>) {
  // expected-error @+1 {{expected lse_grad of type 'tensor<1x1x8xf32>' like lse, got 'tensor<1x1x9xf32>' (fa_attention_backward_c2)}}
  %0:3 = fa.attention_backward %q, %q, %q out %q, %l grads %q, %m : (!t, !t, !t, !t, !l, !t, tensor<1x1x9xf32>) -> (!t, !t, !t)
  return
}

// -----

!t = tensor<1x1x8x16xf32>
!l = tensor<1x1x8xf32>
func.func @captured_types(%q: !t, %l: !l, %x: tensor<8xf32>) {
  // expected-error @+1 {{expected gradients of captured tensors of types ('tensor<8xf32>'), got () (fa_attention_backward_c1)}}
  %0:3 = fa.attention_backward %q, %q, %q out %q, %l grads %q wrt %x : (!t, !t, !t, !t, !l, !t, tensor<8xf32>) -> (!t, !t, !t)
  return
}

// -----

!t = tensor<1x1x8x16xf32>
!l = tensor<1x1x8xf32>
func.func @shapes(%q: !t, %k: tensor<1x1x9x16xf32>, %l: !l) {
  // expected-error @+1 {{expected key and value to have the same length, got 9 and 8 (fa_attention_c4)}}
  %0:3 = fa.attention_backward %q, %k, %q out %q, %l grads %q : (!t, tensor<1x1x9x16xf32>, !t, !t, !l, !t) -> (!t, tensor<1x1x9x16xf32>, !t)
  return
}

// -----

!t = tensor<1x1x8x16xf32>
!l = tensor<1x1x8xf32>
func.func @no_adjoint(%q: !t, %l: !l) {
  // expected-error @+1 {{expected an adjoint region beside the score region; run fa-differentiate on the forward (fa_attention_backward_c3)}}
  %0:3 = fa.attention_backward %q, %q, %q out %q, %l grads %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    fa.yield %s : f32
  } : (!t, !t, !t, !t, !l, !t) -> (!t, !t, !t)
  return
}

// -----

!t = tensor<1x1x8x16xf32>
!l = tensor<1x1x8xf32>
func.func @adjoint_arguments(%q: !t, %l: !l) {
  // expected-error @+1 {{expected the adjoint region to take ('f32', 'index', 'index', 'index', 'index', 'f32'), got ('f32') (fa_attention_c6)}}
  %0:3 = fa.attention_backward %q, %q, %q out %q, %l grads %q adjoint {
  ^bb0(%s: f32):
    fa.yield_adjoint %s : f32
  } : (!t, !t, !t, !t, !l, !t) -> (!t, !t, !t)
  return
}

// -----

!t = tensor<1x1x8x16xf32>
!l = tensor<1x1x8xf32>
func.func @no_such_tensor(%q: !t, %l: !l, %x: tensor<8xf32>) {
  %0:4 = fa.attention_backward %q, %q, %q out %q, %l grads %q wrt %x adjoint {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %g: f32):
    // expected-error @+1 {{expected the number of one of 1 captured tensors, got 1 (fa_attention_backward_c3)}}
    fa.yield_adjoint %g add %g at %i to [1] : f32
  } : (!t, !t, !t, !t, !l, !t, tensor<8xf32>) -> (!t, !t, !t, tensor<8xf32>)
  return
}

// -----

!t = tensor<1x1x8x16xf32>
!l = tensor<1x1x8xf32>
func.func @no_place(%q: !t, %l: !l, %x: tensor<8xf32>) {
  %0:4 = fa.attention_backward %q, %q, %q out %q, %l grads %q wrt %x adjoint {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %g: f32):
    // expected-error @+1 {{expected 1 indices, one for each dimension of the tensor that is added to, got 2 (fa_attention_backward_c3)}}
    fa.yield_adjoint %g add %g at %i, %j to [0] : f32
  } : (!t, !t, !t, !t, !l, !t, tensor<8xf32>) -> (!t, !t, !t, tensor<8xf32>)
  return
}

// -----

!m = tensor<8x8xf32>
!x = tensor<8x16xf32>
!v = tensor<8xf32>
func.func @step_sizes(%m: !m, %x: !x, %y: tensor<9x16xf32>, %v: !v) {
  // expected-error @+1 {{expected scores and key to have the same keys, got 8 and 9 (fa_softmax_grad_c1)}}
  %0:3 = fa.softmax_grad ins(%m, %m, %x, %y, %x, %x, %v, %v : !m, !m, !x, tensor<9x16xf32>, !x, !x, !v, !v) outs(%x, %x, %x : !x, !x, !x) keep {
  ^bb0(%i: index, %j: index):
    %true = arith.constant true
    fa.yield %true : i1
  } adjoint {
  ^bb0(%s: f32, %i: index, %j: index, %g: f32):
    fa.yield_adjoint %g : f32
  }
  return
}

// -----

!m = tensor<8x8xf32>
!x = tensor<8x16xf32>
!v = tensor<8xf32>
func.func @step_keep(%m: !m, %x: !x, %v: !v) {
  // expected-error @+1 {{expected the keep region to take ('index', 'index') (fa_softmax_grad_c2)}}
  %0:3 = fa.softmax_grad ins(%m, %m, %x, %x, %x, %x, %v, %v : !m, !m, !x, !x, !x, !x, !v, !v) outs(%x, %x, %x : !x, !x, !x) keep {
  ^bb0(%i: index):
    %true = arith.constant true
    fa.yield %true : i1
  } adjoint {
  ^bb0(%s: f32, %i: index, %j: index, %g: f32):
    fa.yield_adjoint %g : f32
  }
  return
}

// -----

!m = tensor<8x8xf64>
!x = tensor<8x16xf64>
!v = tensor<8xf64>
func.func @step_types(%m: !m, %x: !x, %d: tensor<8xf32>, %v: !v) {
  // expected-error @+1 {{expected delta of element type 'f64', which 'f64' is computed in, got 'f32' (fa_softmax_grad_c1)}}
  %0:3 = fa.softmax_grad ins(%m, %m, %x, %x, %x, %x, %v, %d : !m, !m, !x, !x, !x, !x, !v, tensor<8xf32>) outs(%x, %x, %x : !x, !x, !x) keep {
  ^bb0(%i: index, %j: index):
    %true = arith.constant true
    fa.yield %true : i1
  } adjoint {
  ^bb0(%s: f64, %i: index, %j: index, %g: f64):
    fa.yield_adjoint %g : f64
  }
  return
}

// -----

!m = tensor<8x8xf64>
!x = tensor<8x16xf64>
!v = tensor<8xf64>
func.func @step_yields(%m: !m, %x: !x, %z: f32, %v: !v) {
  %0:3 = fa.softmax_grad ins(%m, %m, %x, %x, %x, %x, %v, %v : !m, !m, !x, !x, !x, !x, !v, !v) outs(%x, %x, %x : !x, !x, !x) keep {
  ^bb0(%i: index, %j: index):
    %true = arith.constant true
    fa.yield %true : i1
  } adjoint {
  ^bb0(%s: f64, %i: index, %j: index, %g: f64):
    // expected-error @+1 {{expected 'f64', which is computed in, got 'f32' (fa_softmax_grad_c2)}}
    fa.yield_adjoint %z : f32
  }
  return
}

// -----

func.func @places(%x: tensor<8x8xf32>, %y: tensor<8xf32>) {
  // expected-error @+1 {{expected the region to take 2 indices, one for each dimension of terms, got 1 arguments (fa_accumulate_c1)}}
  %0 = fa.accumulate %x into %y at {
  ^bb0(%i: index):
    fa.yield_places %i
  } : tensor<8x8xf32> into tensor<8xf32>
  return
}

// -----

func.func @yielded_places(%x: tensor<8x8xf32>, %y: tensor<8xf32>) {
  // expected-error @+1 {{expected the region to end in fa.yield_places of 1 indices, one for each dimension of the result (fa_accumulate_c1)}}
  %0 = fa.accumulate %x into %y at {
  ^bb0(%i: index, %j: index):
    fa.yield_places %i, %j
  } : tensor<8x8xf32> into tensor<8xf32>
  return
}

// -----

func.func @order(%x: tensor<8x8xf32>, %y: tensor<8xf32>) {
  // expected-error @+1 {{expected iterations that may meet to be 0 to 2147483647 apart, got ordered = -1 (fa_accumulate_c2)}}
  %0 = fa.accumulate %x into %y at {
  ^bb0(%i: index, %j: index):
    fa.yield_places %i
  } {ordered = -1 : i64} : tensor<8x8xf32> into tensor<8xf32>
  return
}

// -----

func.func @order_of_slices(%x: tensor<4xf32>, %y: tensor<8xf32>) {
  // expected-error @+1 {{got ordered = 4294967296 (fa_accumulate_slice_c2)}}
  %0 = fa.accumulate_slice %x into %y[2] [4] [1] {ordered = 4294967296 : i64} : tensor<4xf32> into tensor<8xf32>
  return
}

// -----

!m = tensor<8x8xf32>
!x = tensor<8x16xf16>
!v = tensor<8xf32>
func.func @delta_sizes(%m: !m, %x: !x, %y: tensor<9x16xf16>, %v: !v) {
  // expected-error @+1 {{expected scores and value to have the same keys, got 8 and 9 (fa_softmax_delta_c1)}}
  %0:2 = fa.softmax_delta ins(%m, %y, %x, %v : !m, tensor<9x16xf16>, !x, !v) outs(%v, %v : !v, !v) keep {
  ^bb0(%i: index, %j: index):
    %true = arith.constant true
    fa.yield %true : i1
  }
  return
}

// -----

!m = tensor<8x8xf32>
!x = tensor<8x16xf16>
!v = tensor<8xf32>
func.func @delta_rank(%m: !m, %x: !x, %v: !v) {
  // expected-error @+1 {{expected lse of rank 1, got rank 2 (fa_softmax_delta_c1)}}
  %0:2 = fa.softmax_delta ins(%m, %x, %x, %m : !m, !x, !x, !m) outs(%v, %v : !v, !v) keep {
  ^bb0(%i: index, %j: index):
    %true = arith.constant true
    fa.yield %true : i1
  }
  return
}

// -----

!m = tensor<8x8xf32>
!x = tensor<8x16xf16>
!v = tensor<8xf32>
func.func @delta_types(%m: !m, %x: !x, %v: !v, %w: tensor<8xf64>) {
  // expected-error @+1 {{expected sum of element type 'f32', which 'f16' is computed in, got 'f64' (fa_softmax_delta_c1)}}
  %0:2 = fa.softmax_delta ins(%m, %x, %x, %v : !m, !x, !x, !v) outs(%v, %w : !v, tensor<8xf64>) keep {
  ^bb0(%i: index, %j: index):
    %true = arith.constant true
    fa.yield %true : i1
  }
  return
}

// -----

!m = tensor<8x8xf32>
!x = tensor<8x16xf16>
!v = tensor<8xf32>
func.func @delta_keep(%m: !m, %x: !x, %v: !v) {
  // expected-error @+1 {{expected the keep region to take two indices, row and column, got 1 arguments}}
  %0:2 = fa.softmax_delta ins(%m, %x, %x, %v : !m, !x, !x, !v) outs(%v, %v : !v, !v) keep {
  ^bb0(%i: index):
    %true = arith.constant true
    fa.yield %true : i1
  }
  return
}
