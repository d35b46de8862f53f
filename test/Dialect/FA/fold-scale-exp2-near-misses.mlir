// The scale goes from the scores into the exponentials' fma only where all that
// reads the scores and their maximum are exponentials of their differences, and
// only into these.

// RUN: fa-opt %s --fa-fold-scale-exp2 --split-input-file | FileCheck %s

// 0.125 log2(e).
// CHECK-LABEL: func @folded(
// CHECK-DAG: %[[C:.*]] = arith.constant 0.180
// CHECK-NOT: arith.constant 1.44
// CHECK: math.fma %{{.*}}, %[[C]]
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#v = affine_map<(i) -> (i)>
func.func @folded(%s: tensor<64x64xf32>, %other: tensor<64x64xf32>, %u: tensor<64xf32>) -> (tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %l:3 = scf.for %n = %c0 to %c4 step %c1 iter_args(%m = %m0, %o = %o0, %q = %o0) -> (tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %r = arith.mulf %x, %scale : f32
      linalg.yield %r : f32
    } -> tensor<64x64xf32>
    %next = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%scores : tensor<64x64xf32>) outs(%m : tensor<64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %r = arith.maxnumf %x, %a : f32
      linalg.yield %r : f32
    } -> tensor<64xf32>
    %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%next : tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %c = arith.cmpf oeq, %x, %none : f32
      %r = arith.select %c, %zero, %x : f32
      linalg.yield %r : f32
    } -> tensor<64xf32>
    %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%scores, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %y: f32, %a: f32):
      %d = arith.subf %x, %y : f32
      %r = math.exp %d : f32
      linalg.yield %r : f32
    } -> tensor<64x64xf32>
    scf.yield %next, %w, %q : tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
  }
  return %l#0, %l#1, %l#2 : tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// An exponential of something else in the same loop is not of the scores' unit.
// CHECK-LABEL: func @other_exponential(
// CHECK-DAG: %[[LOG2E:.*]] = arith.constant 1.44269502
// CHECK-DAG: %[[C:.*]] = arith.constant 0.180
// CHECK: math.fma %{{.*}}, %[[LOG2E]]
// CHECK: math.fma %{{.*}}, %[[C]]
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#v = affine_map<(i) -> (i)>
func.func @other_exponential(%s: tensor<64x64xf32>, %other: tensor<64x64xf32>, %u: tensor<64xf32>) -> (tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %l:3 = scf.for %n = %c0 to %c4 step %c1 iter_args(%m = %m0, %o = %o0, %q = %o0) -> (tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %r = arith.mulf %x, %scale : f32
      linalg.yield %r : f32
    } -> tensor<64x64xf32>
    %next = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%scores : tensor<64x64xf32>) outs(%m : tensor<64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %r = arith.maxnumf %x, %a : f32
      linalg.yield %r : f32
    } -> tensor<64xf32>
    %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%next : tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %c = arith.cmpf oeq, %x, %none : f32
      %r = arith.select %c, %zero, %x : f32
      linalg.yield %r : f32
    } -> tensor<64xf32>
    %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%scores, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %y: f32, %a: f32):
      %d = arith.subf %x, %y : f32
      %r = math.exp %d : f32
      linalg.yield %r : f32
    } -> tensor<64x64xf32>
    %z = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%other, %u : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %y: f32, %a: f32):
      %d = arith.subf %x, %y : f32
      %r = math.exp %d : f32
      linalg.yield %r : f32
    } -> tensor<64x64xf32>
    scf.yield %next, %w, %z : tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
  }
  return %l#0, %l#1, %l#2 : tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// Scores that are shifted by something else, too, keep their scale.
// CHECK-LABEL: func @other_shift(
// CHECK-NOT: arith.constant 0.180
// CHECK-DAG: %[[SCALE:.*]] = arith.constant 1.250000e-01
// CHECK: arith.mulf %{{.*}}, %[[SCALE]]
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#v = affine_map<(i) -> (i)>
func.func @other_shift(%s: tensor<64x64xf32>, %other: tensor<64x64xf32>, %u: tensor<64xf32>) -> (tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %l:3 = scf.for %n = %c0 to %c4 step %c1 iter_args(%m = %m0, %o = %o0, %q = %o0) -> (tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %r = arith.mulf %x, %scale : f32
      linalg.yield %r : f32
    } -> tensor<64x64xf32>
    %next = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%scores : tensor<64x64xf32>) outs(%m : tensor<64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %r = arith.maxnumf %x, %a : f32
      linalg.yield %r : f32
    } -> tensor<64xf32>
    %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%next : tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %c = arith.cmpf oeq, %x, %none : f32
      %r = arith.select %c, %zero, %x : f32
      linalg.yield %r : f32
    } -> tensor<64xf32>
    %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%scores, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %y: f32, %a: f32):
      %d = arith.subf %x, %y : f32
      %r = math.exp %d : f32
      linalg.yield %r : f32
    } -> tensor<64x64xf32>
    %z = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%scores, %u : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %y: f32, %a: f32):
      %d = arith.subf %x, %y : f32
      %r = math.exp %d : f32
      linalg.yield %r : f32
    } -> tensor<64x64xf32>
    scf.yield %next, %w, %z : tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
  }
  return %l#0, %l#1, %l#2 : tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// So do those whose shift is read otherwise.
// CHECK-LABEL: func @shift_that_is_read(
// CHECK-NOT: arith.constant 0.180
// CHECK-DAG: %[[SCALE:.*]] = arith.constant 1.250000e-01
// CHECK: arith.mulf %{{.*}}, %[[SCALE]]
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#v = affine_map<(i) -> (i)>
func.func @shift_that_is_read(%s: tensor<64x64xf32>, %other: tensor<64x64xf32>, %u: tensor<64xf32>) -> (tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %l:3 = scf.for %n = %c0 to %c4 step %c1 iter_args(%m = %m0, %o = %o0, %q = %o0) -> (tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %r = arith.mulf %x, %scale : f32
      linalg.yield %r : f32
    } -> tensor<64x64xf32>
    %next = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%scores : tensor<64x64xf32>) outs(%m : tensor<64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %r = arith.maxnumf %x, %a : f32
      linalg.yield %r : f32
    } -> tensor<64xf32>
    %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%next : tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %c = arith.cmpf oeq, %x, %none : f32
      %r = arith.select %c, %zero, %x : f32
      linalg.yield %r : f32
    } -> tensor<64xf32>
    %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%scores, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %y: f32, %a: f32):
      %d = arith.subf %x, %y : f32
      %r = math.exp %d : f32
      linalg.yield %r : f32
    } -> tensor<64x64xf32>
    %z = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%other, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %y: f32, %a: f32):
      %r = arith.addf %x, %y : f32
      linalg.yield %r : f32
    } -> tensor<64x64xf32>
    scf.yield %next, %w, %z : tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
  }
  return %l#0, %l#1, %l#2 : tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// A maximum of rows along the columns is not a softmax's.
// CHECK-LABEL: func @shift_along_columns(
// CHECK-NOT: arith.constant 0.180
// CHECK-DAG: %[[SCALE:.*]] = arith.constant 1.250000e-01
// CHECK: arith.mulf %{{.*}}, %[[SCALE]]
// CHECK: math.exp %
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>
#v = affine_map<(i) -> (i)>
func.func @shift_along_columns(%s: tensor<64x64xf32>, %other: tensor<64x64xf32>, %u: tensor<64xf32>) -> (tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %l:3 = scf.for %n = %c0 to %c4 step %c1 iter_args(%m = %m0, %o = %o0, %q = %o0) -> (tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %r = arith.mulf %x, %scale : f32
      linalg.yield %r : f32
    } -> tensor<64x64xf32>
    %next = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%scores : tensor<64x64xf32>) outs(%m : tensor<64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %r = arith.maxnumf %x, %a : f32
      linalg.yield %r : f32
    } -> tensor<64xf32>
    %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%next : tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%x: f32, %a: f32):
      %c = arith.cmpf oeq, %x, %none : f32
      %r = arith.select %c, %zero, %x : f32
      linalg.yield %r : f32
    } -> tensor<64xf32>
    %w = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%scores, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
    ^bb0(%x: f32, %y: f32, %a: f32):
      %d = arith.subf %x, %y : f32
      %r = math.exp %d : f32
      linalg.yield %r : f32
    } -> tensor<64x64xf32>
    scf.yield %next, %w, %q : tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
  }
  return %l#0, %l#1, %l#2 : tensor<64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}
