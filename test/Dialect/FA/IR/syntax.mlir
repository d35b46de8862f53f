// RUN: fa-opt %s --split-input-file --verify-diagnostics

// What the parser and the op's own definition refuse.

func.func @unknown_keyword(%q: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected ':'}}
  %o = fa.attention %q, %q, %q bias %q : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @two_operands(%q: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected ','}}
  %o = fa.attention %q, %q : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @three_results(%q: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{operation defines 3 results but was provided 1 to bind}}
  %o = fa.attention %q, %q, %q : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> (tensor<1x2x8x16xf32>, tensor<1x2x8xf32>, tensor<1x2x8xf32>)
  return
}

// -----

func.func @scale_of_another_type(%q: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{invalid kind of attribute specified}}
  %o = fa.attention %q, %q, %q scale "x" : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @two_blocks(%q: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{region #1 ('mask') failed to verify constraint: region with at most 1 blocks}}
  %o = fa.attention %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c = arith.constant true
    fa.yield %c : i1
  ^bb1:
    %d = arith.constant true
    fa.yield %d : i1
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @yield_elsewhere(%x: f32) {
  // expected-error @+1 {{expects parent op to be one of 'fa.attention, fa.attention_backward, fa.list_blocks, fa.online_softmax, fa.speculated_softmax, fa.softmax_grad, fa.softmax_delta'}}
  fa.yield %x : f32
}

// -----

func.func @yield_of_another_type(%q: tensor<1x2x8x16xf32>) {
  %o = fa.attention %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    // expected-error @+1 {{operand #0 must be 32-bit float or 64-bit float or 1-bit signless integer, but got 'index'}}
    fa.yield %j : index
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @value_from_the_other_region(%q: tensor<1x2x8x16xf32>) {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    fa.yield %s : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    // expected-error @+1 {{use of undeclared SSA value name}}
    %c = arith.cmpf oeq, %s, %s : f32
    fa.yield %c : i1
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @times_before_keep(%q: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected ':'}}
  %o = fa.attention %q, %q, %q times 2.0 keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c = arith.constant true
    fa.yield %c : i1
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @keep_before_mask(%q: tensor<1x2x8x16xf32>) {
  %o = fa.attention %q, %q, %q keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c = arith.constant true
    fa.yield %c : i1
  // expected-error @+1 {{expected ':'}}
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c = arith.constant true
    fa.yield %c : i1
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @times_of_another_type(%q: tensor<1x2x8x16xf32>) {
  %o = fa.attention %q, %q, %q keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c = arith.constant true
    fa.yield %c : i1
  // expected-error @+1 {{invalid kind of attribute specified}}
  } times "x" : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @two_blocks_of_keep(%q: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{region #2 ('keep') failed to verify constraint: region with at most 1 blocks}}
  %o = fa.attention %q, %q, %q keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c = arith.constant true
    fa.yield %c : i1
  ^bb1:
    %d = arith.constant true
    fa.yield %d : i1
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @random_bits_of_three_coordinates(%seed: i64, %i: index) {
  // expected-error @+1 {{expected ','}}
  %x = fa.random_bits %seed at [%i, %i, %i]
  return
}

// -----

// expected-note @+1 {{prior use here}}
func.func @seed_of_32_bits(%seed: i32, %i: index) {
  // expected-error @+1 {{expects different type than prior uses: 'i64' vs 'i32'}}
  %x = fa.random_bits %seed at [%i, %i, %i, %i]
  return
}
