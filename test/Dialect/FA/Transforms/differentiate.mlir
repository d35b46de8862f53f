// RUN: fa-opt %s --fa-differentiate --split-input-file | FileCheck %s

// The function returns the log-sum-exp, too; its gradient takes both results
// and the output's gradient. tanh' = 1 - tanh^2.
// CHECK-LABEL: func.func @tanh(
// CHECK-SAME: -> (tensor<1x2x8x16xf32>, tensor<1x2x8xf32>)
// CHECK: return %out, %lse
// CHECK-LABEL: func.func @tanh_backward(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<1x2x8x16xf32>, %[[O:[a-z0-9]+]]: tensor<1x2x8x16xf32>, %[[L:[a-z0-9]+]]: tensor<1x2x8xf32>, %[[DO:[a-z0-9]+]]: tensor<1x2x8x16xf32>)
// CHECK-SAME: -> (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
// CHECK: fa.attention_backward %[[Q]], %[[Q]], %[[Q]] out %[[O]], %[[L]] grads %[[DO]] scale 3.0{{.*}} score {
// CHECK: } mask {
// CHECK: } adjoint {
// CHECK: ^bb0(%[[S:.*]]: f32, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %[[G:.*]]: f32):
// CHECK: %[[T:.*]] = math.tanh %[[S]]
// CHECK: %[[SQUARE:.*]] = arith.mulf %[[T]], %[[T]]
// CHECK: %[[SLOPE:.*]] = arith.subf %{{.*}}, %[[SQUARE]]
// CHECK: %[[DS:.*]] = arith.mulf %[[G]], %[[SLOPE]]
// CHECK: fa.yield_adjoint %[[DS]]
func.func @tanh(%q: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  %o = fa.attention %q, %q, %q scale 3.0 score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %t = math.tanh %s : f32
    fa.yield %t : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}

// -----

// No score function, no adjoint: dS is g. A returned log-sum-exp has a gradient.
// CHECK-LABEL: func.func @plain_backward(
// CHECK-SAME: %[[DLSE:[a-z0-9]+]]: tensor<1x2x8xf32>) ->
// CHECK: fa.attention_backward {{.*}} grads %{{.*}}, %[[DLSE]] :
func.func @plain(%q: tensor<1x2x8x16xf32>) -> (tensor<1x2x8x16xf32>, tensor<1x2x8xf32>) {
  %o, %lse = fa.attention %q, %q, %q : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> (tensor<1x2x8x16xf32>, tensor<1x2x8xf32>)
  return %o, %lse : tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
}

// -----

// Captured tensors of floats have gradients, once each and in the order of the
// arguments; to what the mask alone reads nothing is added. Integers have none.
// CHECK-LABEL: func.func @captured_backward(
// CHECK-SAME: %[[TABLE:[a-z0-9]+]]: tensor<?xbf16>, %[[IDS:[a-z0-9]+]]: tensor<8xi32>, %[[SLOPES:[a-z0-9]+]]: tensor<2xf32>, %[[LIMIT:[a-z0-9]+]]: tensor<f32>
// CHECK-SAME: -> (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<?xf32>, tensor<2xf32>, tensor<f32>)
// CHECK: wrt %[[TABLE]], %[[SLOPES]], %[[LIMIT]] score
// CHECK: adjoint {
// CHECK: ^bb0(%{{.*}}: f32, %{{.*}}: index, %[[H:.*]]: index, %[[I:.*]]: index, %[[J:.*]]: index, %[[G:.*]]: f32):
// CHECK: %[[ID:.*]] = tensor.extract %[[IDS]][%[[J]]]
// CHECK: %[[AT:.*]] = arith.index_cast %[[ID]]
// CHECK: %[[SLOPE:.*]] = arith.mulf %[[G]], %{{.*}}
// CHECK: fa.yield_adjoint %[[G]] add %[[SLOPE]], %[[G]] at %[[H]], %[[AT]] to [1, 0]
func.func @captured(%q: tensor<1x2x8x16xf32>, %table: tensor<?xbf16>, %ids: tensor<8xi32>, %slopes: tensor<2xf32>, %limit: tensor<f32>) -> tensor<1x2x8x16xf32> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %id = tensor.extract %ids[%j] : tensor<8xi32>
    %at = arith.index_cast %id : i32 to index
    %x = tensor.extract %table[%at] : tensor<?xbf16>
    %y = arith.extf %x : bf16 to f32
    %t = arith.addf %s, %y : f32
    %d = arith.subi %j, %i : index
    %w = arith.index_cast %d : index to i32
    %f = arith.sitofp %w : i32 to f32
    %slope = tensor.extract %slopes[%h] : tensor<2xf32>
    %m = arith.mulf %slope, %f : f32
    %u = arith.addf %t, %m : f32
    fa.yield %u : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %limit[] : tensor<f32>
    %w = arith.index_cast %j : index to i32
    %f = arith.sitofp %w : i32 to f32
    %seen = arith.cmpf ole, %f, %x : f32
    fa.yield %seen : i1
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}
