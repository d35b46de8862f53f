// Loops that are almost those of attention stay as they are.
// RUN: fa-opt %s --fa-speculate-max --remarks-filter=fa-speculate-max --remark-format=emitRemark --split-input-file -o %t.mlir 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: FileCheck %s --input-file=%t.mlir

// Weights that are no powers of two yet.
// REMARK: remark: [Missed] NotSpeculated {{.*}}the weights are no powers of two {{.*}}; run fa-defer-normalization and fa-fold-scale-exp2 first
// CHECK-LABEL: func @too_early
// CHECK-NOT: fa.speculated_softmax
func.func @too_early(%s: tensor<32x32xf32>, %v: tensor<32x32xbf16>) -> tensor<32x32xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %start = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32xf32>
  %e2 = tensor.empty() : tensor<32x32xf32>
  %m0 = linalg.fill ins(%start : f32) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<32x32xf32>) -> tensor<32x32xf32>
  %r:3 = scf.for %j = %c0 to %c4 step %c1 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>) {
    %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<32x32xf32>, tensor<32x32xbf16>) outs(%m, %l, %o : tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>) {unnormalized}
    scf.yield %m1, %l1, %o1 : tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>
  }
  return %r#2 : tensor<32x32xf32>
}

// -----

// A maximum that is not carried.
// REMARK: remark: [Missed] NotSpeculated {{.*}}the loop carries something other than a maximum, a sum and an output
// CHECK-LABEL: func @not_carried
// CHECK-NOT: fa.speculated_softmax
func.func @not_carried(%s: tensor<32x32xf32>, %v: tensor<32x32xbf16>) -> tensor<32x32xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %start = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32xf32>
  %e2 = tensor.empty() : tensor<32x32xf32>
  %m0 = linalg.fill ins(%start : f32) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<32x32xf32>) -> tensor<32x32xf32>
  %r:3 = scf.for %j = %c0 to %c4 step %c1 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>) {
    %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<32x32xf32>, tensor<32x32xbf16>) outs(%m, %l, %o : tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>) {log2_scale = 1.0 : f64, unnormalized}
    scf.yield %m, %l1, %o1 : tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>
  }
  return %r#2 : tensor<32x32xf32>
}

// -----

// Another start.
// REMARK: remark: [Missed] NotSpeculated {{.*}}the running maximum does not start from -inf
// CHECK-LABEL: func @other_start
// CHECK-NOT: fa.speculated_softmax
func.func @other_start(%s: tensor<32x32xf32>, %v: tensor<32x32xbf16>) -> tensor<32x32xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %start = arith.constant 0.0 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32xf32>
  %e2 = tensor.empty() : tensor<32x32xf32>
  %m0 = linalg.fill ins(%start : f32) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<32x32xf32>) -> tensor<32x32xf32>
  %r:3 = scf.for %j = %c0 to %c4 step %c1 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>) {
    %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<32x32xf32>, tensor<32x32xbf16>) outs(%m, %l, %o : tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>) {log2_scale = 1.0 : f64, unnormalized}
    scf.yield %m1, %l1, %o1 : tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>
  }
  return %r#2 : tensor<32x32xf32>
}

// -----

// A sum that nothing is divided by: it is against the maximum.
// REMARK: remark: [Missed] NotSpeculated {{.*}}the maximum and the sum are used by more than a division and a log-sum-exp after the loop
// CHECK-LABEL: func @no_division
// CHECK-NOT: fa.speculated_softmax
func.func @no_division(%s: tensor<32x32xf32>, %v: tensor<32x32xbf16>) -> tensor<32x32xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %start = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32xf32>
  %e2 = tensor.empty() : tensor<32x32xf32>
  %m0 = linalg.fill ins(%start : f32) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<32x32xf32>) -> tensor<32x32xf32>
  %r:3 = scf.for %j = %c0 to %c4 step %c1 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>) {
    %m1, %l1, %o1 = fa.online_softmax ins(%s, %v : tensor<32x32xf32>, tensor<32x32xbf16>) outs(%m, %l, %o : tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>) {log2_scale = 1.0 : f64, unnormalized}
    scf.yield %m1, %l1, %o1 : tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>
  }
  return %r#2 : tensor<32x32xf32>
}
