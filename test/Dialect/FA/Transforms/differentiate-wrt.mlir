// RUN: fa-opt %s --fa-differentiate="wrt=none" | FileCheck %s --check-prefix=NONE
// RUN: fa-opt %s --fa-differentiate="wrt=5+3" | FileCheck %s --check-prefix=SOME
// RUN: not fa-opt %s --fa-differentiate="wrt=4" 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not fa-opt %s --fa-differentiate="wrt=3+x" 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not fa-opt %s --fa-differentiate="wrt=0" 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not fa-opt %s --fa-differentiate="wrt=7" 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: fa-opt %s --fa-differentiate="wrt=none replace=1" | FileCheck %s --check-prefix=ALONE
// ALONE-NOT: func.func @f(
// ALONE: func.func @f_backward(
// ALONE-NOT: fa.attention %
// ERROR: expected wrt to be all, none, or the numbers of arguments that are captured tensors of floats of at most 32 bits, joined by +; got '

// NONE: fa.attention_backward
// NONE-NOT: wrt
// NONE: fa.yield_adjoint %{{[a-z0-9]+}} : f32

// What is read by the mask alone has a gradient of 0.
// SOME: func.func @f_backward(
// SOME-SAME: %[[X:[a-z0-9]+]]: tensor<8xf32>, %[[N:[a-z0-9]+]]: tensor<8xi32>, %[[Y:[a-z0-9]+]]: tensor<f16>
// SOME-SAME: -> (tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<8xf32>, tensor<f32>)
// SOME: wrt %[[X]], %[[Y]]
// SOME: fa.yield_adjoint %{{.*}} add %{{.*}} at %{{.*}} to [0]
func.func @f(%q: tensor<1x1x8x16xf32>, %k: tensor<1x1x8x16xf32>, %v: tensor<1x1x8x16xf32>, %x: tensor<8xf32>, %n: tensor<8xi32>, %y: tensor<f16>) -> tensor<1x1x8x16xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %n0 = tensor.extract %n[%j] : tensor<8xi32>
    %at = arith.index_cast %n0 : i32 to index
    %a = tensor.extract %x[%at] : tensor<8xf32>
    %t = arith.addf %s, %a : f32
    fa.yield %t : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %y0 = tensor.extract %y[] : tensor<f16>
    %zero = arith.constant 0.0 : f16
    %seen = arith.cmpf oge, %y0, %zero : f16
    fa.yield %seen : i1
  } : (tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32>
  return %o : tensor<1x1x8x16xf32>
}
