// The scale goes from the scores into the merge's factor only where the merge
// alone reads the scores and their maximum, which starts from -inf.

// RUN: fa-opt %s --fa-fold-scale-exp2 --split-input-file | FileCheck %s

// 0.125 log2(e); the maximum, of scores without a scale, is scaled after the loop.
// CHECK-LABEL: func @folded(
// CHECK-DAG: %[[SCALE:.*]] = arith.constant 1.250000e-01
// CHECK-NOT: arith.mulf
// CHECK: fa.online_softmax {{.*}} {log2_scale = 0.18033{{.*}}, unnormalized}
// CHECK: arith.mulf %{{.*}}, %[[SCALE]]
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @folded(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %start = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%start : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %r:3 = scf.for %n = %c0 to %c4 step %c1 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %y = arith.mulf %x, %scale : f32
      linalg.yield %y : f32
    } -> tensor<64x64xf32>
    %m1, %l1, %o1 = fa.online_softmax ins(%scores, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {unnormalized}
    scf.yield %m1, %l1, %o1 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// -----

// Scores that something else reads, too, keep their scale.
// CHECK-LABEL: func @other_reader(
// CHECK-DAG: %[[SCALE:.*]] = arith.constant 1.250000e-01
// CHECK: arith.mulf %{{.*}}, %[[SCALE]]
// CHECK: fa.online_softmax {{.*}} {log2_scale = 1.442695{{.*}}, unnormalized}
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @other_reader(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %start = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%start : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %r:4 = scf.for %n = %c0 to %c4 step %c1 iter_args(%m = %m0, %l = %l0, %o = %o0, %before = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %y = arith.mulf %x, %scale : f32
      linalg.yield %y : f32
    } -> tensor<64x64xf32>
    %m1, %l1, %o1 = fa.online_softmax ins(%scores, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {unnormalized}
    scf.yield %m1, %l1, %o1, %scores : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
  }
  return %r#0, %r#1, %r#2, %r#3 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// So do those whose maximum something else carries on.
// CHECK-LABEL: func @maximum_that_is_read(
// CHECK-DAG: %[[SCALE:.*]] = arith.constant 1.250000e-01
// CHECK: arith.mulf %{{.*}}, %[[SCALE]]
// CHECK: fa.online_softmax {{.*}} {log2_scale = 1.442695{{.*}}, unnormalized}
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @maximum_that_is_read(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %start = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%start : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %r:4 = scf.for %n = %c0 to %c4 step %c1 iter_args(%m = %m0, %l = %l0, %o = %o0, %other = %l0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<64xf32>) {
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %y = arith.mulf %x, %scale : f32
      linalg.yield %y : f32
    } -> tensor<64x64xf32>
    %m1, %l1, %o1 = fa.online_softmax ins(%scores, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {unnormalized}
    scf.yield %m1, %l1, %o1, %m : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<64xf32>
  }
  return %r#0, %r#1, %r#2, %r#3 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<64xf32>
}

// -----

// And those whose maximum starts from another number.
// CHECK-LABEL: func @other_start(
// CHECK-DAG: %[[SCALE:.*]] = arith.constant 1.250000e-01
// CHECK: arith.mulf %{{.*}}, %[[SCALE]]
// CHECK: fa.online_softmax {{.*}} {log2_scale = 1.442695{{.*}}, unnormalized}
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @other_start(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %start = arith.constant -1.0e30 : f32
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%start : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %r:3 = scf.for %n = %c0 to %c4 step %c1 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %y = arith.mulf %x, %scale : f32
      linalg.yield %y : f32
    } -> tensor<64x64xf32>
    %m1, %l1, %o1 = fa.online_softmax ins(%scores, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {unnormalized}
    scf.yield %m1, %l1, %o1 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// -----

// Or whose maximum is not carried.
// CHECK-LABEL: func @not_carried(
// CHECK-DAG: %[[SCALE:.*]] = arith.constant 1.250000e-01
// CHECK: arith.mulf %{{.*}}, %[[SCALE]]
// CHECK: fa.online_softmax {{.*}} {log2_scale = 1.442695{{.*}}, unnormalized}
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @not_carried(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %start = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%start : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %r:3 = scf.for %n = %c0 to %c4 step %c1 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %y = arith.mulf %x, %scale : f32
      linalg.yield %y : f32
    } -> tensor<64x64xf32>
    %m1, %l1, %o1 = fa.online_softmax ins(%scores, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {unnormalized}
    scf.yield %m, %l1, %o1 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}
