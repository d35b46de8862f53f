// RUN: fa-opt %s --split-input-file --verify-diagnostics

func.func @no_value() {
  // expected-error @+1 {{expected at least one value, got none; give the value of the result (fa_custom_gradient_c1)}}
  "fa.custom_gradient"() <{operandSegmentSizes = array<i32: 0, 0>}> ({}) : () -> ()
  return
}

// -----

func.func @no_region(%x: f32) {
  // expected-error @+1 {{expected a gradient region, or why it is unknown, exactly where there are inputs, got 1 inputs and neither; name the inputs that the gradient is with respect to (fa_custom_gradient_c1)}}
  %0 = "fa.custom_gradient"(%x, %x) <{operandSegmentSizes = array<i32: 1, 1>}> ({}) : (f32, f32) -> f32
  return
}

// -----

func.func @reason_of_nothing(%x: f32) {
  // expected-error @+1 {{got 0 inputs and a reason; name the inputs}}
  %0 = fa.custom_gradient %x : f32 unknown "why"
  return
}

// -----

func.func @region_and_reason(%x: f32) {
  // expected-error @+1 {{got 1 inputs and both; name the inputs}}
  %0 = fa.custom_gradient %x : f32 of %x : f32 gradient {
  ^bb0(%g: f32):
    fa.yield_gradients %g : f32
  } unknown "why"
  return
}

// -----

func.func @other_arguments(%x: f32) {
  // expected-error @+1 {{expected a gradient region that takes 'f32', the values' types, got 'f64' (fa_custom_gradient_c2)}}
  %0 = fa.custom_gradient %x : f32 of %x : f32 gradient {
  ^bb0(%g: f64):
    fa.yield_gradients %x : f32
  }
  return
}

// -----

func.func @other_yields(%x: f32) {
  // expected-error @+1 {{expected a gradient region that yields 'f32', the inputs' types, got 'f32', 'f32' (fa_custom_gradient_c2)}}
  %0 = fa.custom_gradient %x : f32 of %x : f32 gradient {
  ^bb0(%g: f32):
    fa.yield_gradients %g, %g : f32, f32
  }
  return
}

// -----

func.func @side_effect(%x: f32, %m: memref<f32>) {
  %0 = fa.custom_gradient %x : f32 of %x : f32 gradient {
  ^bb0(%g: f32):
    // expected-error @+1 {{has side effects or is not understood in a gradient region; compute gradients with arithmetic alone (fa_custom_gradient_c3)}}
    memref.store %g, %m[] : memref<f32>
    fa.yield_gradients %g : f32
  }
  return
}
