// RUN: fa-opt %s --fa-differentiate --split-input-file --verify-diagnostics

!t = tensor<1x1x8x16xf32>
func.func @no_derivative(%q: !t) -> !t {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %bits = arith.bitcast %s : f32 to i32
    // expected-error @+1 {{has no derivative; write the score function with arith and math operations on floats}}
    %t = arith.bitcast %bits : i32 to f32
    fa.yield %t : f32
  } : (!t, !t, !t) -> !t
  return %o : !t
}

// -----

!t = tensor<1x1x8x16xf32>
func.func @index_of_score(%q: !t, %x: tensor<?xf32>) -> !t {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %n = arith.fptosi %s : f32 to i32
    %at = arith.index_cast %n : i32 to index
    // expected-error @+1 {{reads at an index that depends on the score or on a captured floating-point tensor}}
    %y = tensor.extract %x[%at] : tensor<?xf32>
    fa.yield %y : f32
  } : (!t, !t, !t) -> !t
  return %o : !t
}

// -----

!t = tensor<1x1x8x16xf32>
func.func @two(%q: !t) -> !t {
  %o = fa.attention %q, %q, %q : (!t, !t, !t) -> !t
  // expected-error @+1 {{is the second one in @two, and gradients are of one; use a function for each}}
  %p = fa.attention %o, %q, %q : (!t, !t, !t) -> !t
  return %p : !t
}

// -----

!t = tensor<1x1x8x16xf32>
func.func @not_an_argument(%x: !t) -> !t {
  %q = tensor.empty() : !t
  // expected-error @+1 {{expected its query to be an argument of @not_an_argument: gradients are with respect to arguments; pass it in}}
  %o = fa.attention %q, %x, %x : (!t, !t, !t) -> !t
  return %o : !t
}

// -----

!t = tensor<1x1x8x16xf32>
func.func @returns_more(%q: !t) -> (!t, !t) {
  // expected-error @+1 {{expected @returns_more to return its own results and nothing else; return other values from another function}}
  %o = fa.attention %q, %q, %q : (!t, !t, !t) -> !t
  return %o, %q : !t, !t
}

// -----

!t = tensor<1x1x8x16xf32>
// expected-error @+1 {{expected no @taken_backward beside it, whose name its gradient takes; rename one}}
func.func @taken(%q: !t) -> !t {
  %o = fa.attention %q, %q, %q : (!t, !t, !t) -> !t
  return %o : !t
}
func.func private @taken_backward()

// -----

!t = tensor<1x1x8x16xf32>
func.func @unknown(%q: !t) -> !t {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    // expected-error @+1 {{'fa.custom_gradient' op is of a table that nobody has}}
    %y = fa.custom_gradient %s : f32 of %s : f32 unknown "is of a table that nobody has"
    fa.yield %y : f32
  } : (!t, !t, !t) -> !t
  return %o : !t
}
