// One step of the softmax in instructions, by the attributes that fa-defer-normalization and
// fa-fold-scale-exp2 give it. expand-steps-speculated.mlir has those of fa-speculate-max.
// RUN: fa-opt %s --fa-expand-steps | FileCheck %s --implicit-check-not=fa.online_softmax

// A state that is normalized is divided in each step.
// CHECK-LABEL: func @normalized(
// CHECK: math.exp %
// CHECK: arith.divf
// CHECK: return
func.func @normalized(%s: tensor<64x32xf32>, %v: tensor<32x64xbf16>, %m: tensor<64xf32>, %l: tensor<64xf32>, %o: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %next:3 = fa.online_softmax ins(%s, %v : tensor<64x32xf32>, tensor<32x64xbf16>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>)
  return %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// CHECK-LABEL: func @unnormalized(
// CHECK-NOT: arith.divf
// CHECK: math.exp %
// CHECK-NOT: arith.divf
// CHECK: return %{{.*}}, %{{.*}}, %{{.*}} : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
func.func @unnormalized(%s: tensor<64x32xf32>, %v: tensor<32x64xbf16>, %m: tensor<64xf32>, %l: tensor<64xf32>, %o: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %next:3 = fa.online_softmax ins(%s, %v : tensor<64x32xf32>, tensor<32x64xbf16>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {unnormalized}
  return %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// The scale and log2(e) are in the fma before exp2.
// CHECK-LABEL: func @scaled(
// CHECK: %[[C:.*]] = arith.constant 0.18033{{.*}} : f32
// CHECK-NOT: math.exp %
// CHECK: math.fma %{{.*}}, %[[C]], %{{.*}} : f32
// CHECK-NEXT: math.exp2
// CHECK-NOT: math.exp %
// CHECK: return
func.func @scaled(%s: tensor<64x32xf32>, %v: tensor<32x64xbf16>, %m: tensor<64xf32>, %l: tensor<64xf32>, %o: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %next:3 = fa.online_softmax ins(%s, %v : tensor<64x32xf32>, tensor<32x64xbf16>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {log2_scale = 0.18033688011112042 : f64, unnormalized}
  return %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// Scores in log2 units.
// CHECK-LABEL: func @in_log2(
// CHECK: %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK: math.fma %{{.*}}, %[[ONE]], %{{.*}} : f32
// CHECK-NEXT: math.exp2
func.func @in_log2(%s: tensor<64x32xf32>, %v: tensor<32x64xbf16>, %m: tensor<64xf32>, %l: tensor<64xf32>, %o: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %next:3 = fa.online_softmax ins(%s, %v : tensor<64x32xf32>, tensor<32x64xbf16>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {log2_scale = 1.0 : f64, unnormalized}
  return %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// Scores that may be large: the maximum is subtracted before they are multiplied.
// CHECK-LABEL: func @subtract_first(
// CHECK: %[[LOG2E:.*]] = arith.constant 1.44269502 : f32
// CHECK: %[[BELOW:.*]] = arith.subf %{{.*}}, %{{.*}} : f32
// CHECK: %[[EXPONENT:.*]] = arith.mulf %[[BELOW]], %[[LOG2E]] : f32
// CHECK: math.exp2 %[[EXPONENT]] : f32
func.func @subtract_first(%s: tensor<64x32xf32>, %v: tensor<32x64xbf16>, %m: tensor<64xf32>, %l: tensor<64xf32>, %o: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %next:3 = fa.online_softmax ins(%s, %v : tensor<64x32xf32>, tensor<32x64xbf16>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {log2_scale = 1.4426950408889634 : f64, subtract_first, unnormalized}
  return %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}
