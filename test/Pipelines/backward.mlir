// The pipeline of a gradient with respect to captured tensors that an option names.
// RUN: fa-opt %s --fa-pipeline="backward=3" | FileCheck %s --check-prefix=TILED
// RUN: not fa-opt %s --fa-pipeline="backward=some" 2>&1 | FileCheck %s --check-prefix=PIPELINE

// PIPELINE: unknown backward 'some'; expected all, none, or the numbers of arguments that are captured tensors, joined by +

// One loop over blocks of keys, in it one over blocks of rows; what is known of
// the keys' gradients is carried.
// TILED: func.func @f_backward(
// TILED: scf.for {{.*}} step %c
// TILED: scf.for {{.*}} step %c{{.*}} iter_args({{.*}}) -> ({{.*}}tensor<{{.*}}x16xf32>
// TILED: fa.softmax_grad
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
