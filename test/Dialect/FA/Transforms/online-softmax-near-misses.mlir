// A softmax over rows is a merge; what has the same bodies over columns, over
// transposed operands or over vectors along the other dimension is another
// computation, and is left as it is.

// RUN: fa-opt %s --fa-online-softmax --split-input-file | FileCheck %s

// CHECK-LABEL: func @rows(
// CHECK: fa.online_softmax
// CHECK-NOT: math.exp
// CHECK: return
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#v = affine_map<(i) -> (i)>
#ij = affine_map<(i, j, k) -> (i, j)>
#ik = affine_map<(i, j, k) -> (i, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
func.func @rows(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<64x64xf32>) outs(%m0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.maxnumf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%m : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %c = arith.cmpf oeq, %x, %none : f32
    %r = arith.select %c, %zero, %x : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %d = arith.subf %x, %y : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%w : tensor<64x64xf32>) outs(%l0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%w, %l : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %c = arith.cmpf oeq, %y, %zero : f32
    %q = arith.divf %x, %y : f32
    %r = arith.select %c, %zero, %q : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %o = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%o0 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %z = arith.mulf %x, %y : f32
    %r = arith.addf %a, %z : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  return %m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// -----

// CHECK-LABEL: func @columns(
// CHECK-NOT: fa.online_softmax
// CHECK-NOT: arith.mulf
// CHECK: arith.divf
// CHECK-NOT: fa.online_softmax
// CHECK: return
#id = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>
#v = affine_map<(i) -> (i)>
#ij = affine_map<(i, j, k) -> (i, j)>
#ik = affine_map<(i, j, k) -> (i, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
func.func @columns(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%m0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.maxnumf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%m : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %c = arith.cmpf oeq, %x, %none : f32
    %r = arith.select %c, %zero, %x : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %w = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %d = arith.subf %x, %y : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %l = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]} ins(%w : tensor<64x64xf32>) outs(%l0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %p = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%w, %l : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %c = arith.cmpf oeq, %y, %zero : f32
    %q = arith.divf %x, %y : f32
    %r = arith.select %c, %zero, %q : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %o = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%o0 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %z = arith.mulf %x, %y : f32
    %r = arith.addf %a, %z : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  return %m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// -----

// CHECK-LABEL: func @maximum_of_columns(
// CHECK-NOT: fa.online_softmax
// CHECK-NOT: arith.mulf
// CHECK: arith.divf
// CHECK-NOT: fa.online_softmax
// CHECK: return
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>
#v = affine_map<(i) -> (i)>
#ij = affine_map<(i, j, k) -> (i, j)>
#ik = affine_map<(i, j, k) -> (i, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
func.func @maximum_of_columns(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%m0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.maxnumf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%m : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %c = arith.cmpf oeq, %x, %none : f32
    %r = arith.select %c, %zero, %x : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %d = arith.subf %x, %y : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%w : tensor<64x64xf32>) outs(%l0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%w, %l : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %c = arith.cmpf oeq, %y, %zero : f32
    %q = arith.divf %x, %y : f32
    %r = arith.select %c, %zero, %q : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %o = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%o0 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %z = arith.mulf %x, %y : f32
    %r = arith.addf %a, %z : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  return %m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// -----

// CHECK-LABEL: func @maximum_of_transposed(
// CHECK-NOT: fa.online_softmax
// CHECK-NOT: arith.mulf
// CHECK: arith.divf
// CHECK-NOT: fa.online_softmax
// CHECK: return
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#transposed = affine_map<(i, j) -> (j, i)>
#v = affine_map<(i) -> (i)>
#ij = affine_map<(i, j, k) -> (i, j)>
#ik = affine_map<(i, j, k) -> (i, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
func.func @maximum_of_transposed(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = linalg.generic {indexing_maps = [#transposed, #row], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<64x64xf32>) outs(%m0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.maxnumf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%m : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %c = arith.cmpf oeq, %x, %none : f32
    %r = arith.select %c, %zero, %x : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %d = arith.subf %x, %y : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%w : tensor<64x64xf32>) outs(%l0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%w, %l : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %c = arith.cmpf oeq, %y, %zero : f32
    %q = arith.divf %x, %y : f32
    %r = arith.select %c, %zero, %q : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %o = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%o0 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %z = arith.mulf %x, %y : f32
    %r = arith.addf %a, %z : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  return %m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// -----

// CHECK-LABEL: func @shifted_along_columns(
// CHECK-NOT: fa.online_softmax
// CHECK-NOT: arith.mulf
// CHECK: arith.divf
// CHECK-NOT: fa.online_softmax
// CHECK: return
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>
#v = affine_map<(i) -> (i)>
#ij = affine_map<(i, j, k) -> (i, j)>
#ik = affine_map<(i, j, k) -> (i, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
func.func @shifted_along_columns(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<64x64xf32>) outs(%m0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.maxnumf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%m : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %c = arith.cmpf oeq, %x, %none : f32
    %r = arith.select %c, %zero, %x : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %w = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %d = arith.subf %x, %y : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%w : tensor<64x64xf32>) outs(%l0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%w, %l : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %c = arith.cmpf oeq, %y, %zero : f32
    %q = arith.divf %x, %y : f32
    %r = arith.select %c, %zero, %q : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %o = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%o0 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %z = arith.mulf %x, %y : f32
    %r = arith.addf %a, %z : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  return %m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// -----

// CHECK-LABEL: func @exponentials_of_transposed(
// CHECK-NOT: fa.online_softmax
// CHECK-NOT: arith.mulf
// CHECK: arith.divf
// CHECK-NOT: fa.online_softmax
// CHECK: return
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#transposed = affine_map<(i, j) -> (j, i)>
#v = affine_map<(i) -> (i)>
#ij = affine_map<(i, j, k) -> (i, j)>
#ik = affine_map<(i, j, k) -> (i, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
func.func @exponentials_of_transposed(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<64x64xf32>) outs(%m0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.maxnumf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%m : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %c = arith.cmpf oeq, %x, %none : f32
    %r = arith.select %c, %zero, %x : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %w = linalg.generic {indexing_maps = [#transposed, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %d = arith.subf %x, %y : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%w : tensor<64x64xf32>) outs(%l0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%w, %l : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %c = arith.cmpf oeq, %y, %zero : f32
    %q = arith.divf %x, %y : f32
    %r = arith.select %c, %zero, %q : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %o = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%o0 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %z = arith.mulf %x, %y : f32
    %r = arith.addf %a, %z : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  return %m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// -----

// CHECK-LABEL: func @sum_of_columns(
// CHECK-NOT: fa.online_softmax
// CHECK-NOT: arith.mulf
// CHECK: arith.divf
// CHECK-NOT: fa.online_softmax
// CHECK: return
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>
#v = affine_map<(i) -> (i)>
#ij = affine_map<(i, j, k) -> (i, j)>
#ik = affine_map<(i, j, k) -> (i, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
func.func @sum_of_columns(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<64x64xf32>) outs(%m0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.maxnumf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%m : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %c = arith.cmpf oeq, %x, %none : f32
    %r = arith.select %c, %zero, %x : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %d = arith.subf %x, %y : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %l = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]} ins(%w : tensor<64x64xf32>) outs(%l0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%w, %l : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %c = arith.cmpf oeq, %y, %zero : f32
    %q = arith.divf %x, %y : f32
    %r = arith.select %c, %zero, %q : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %o = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%o0 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %z = arith.mulf %x, %y : f32
    %r = arith.addf %a, %z : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  return %m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// -----

// CHECK-LABEL: func @divided_along_columns(
// CHECK: arith.mulf
// CHECK: arith.divf
// CHECK-NOT: fa.online_softmax
// CHECK: return
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>
#v = affine_map<(i) -> (i)>
#ij = affine_map<(i, j, k) -> (i, j)>
#ik = affine_map<(i, j, k) -> (i, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
func.func @divided_along_columns(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<64x64xf32>) outs(%m0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.maxnumf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%m : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %c = arith.cmpf oeq, %x, %none : f32
    %r = arith.select %c, %zero, %x : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %d = arith.subf %x, %y : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%w : tensor<64x64xf32>) outs(%l0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %p = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%w, %l : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %c = arith.cmpf oeq, %y, %zero : f32
    %q = arith.divf %x, %y : f32
    %r = arith.select %c, %zero, %q : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %o = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%o0 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %z = arith.mulf %x, %y : f32
    %r = arith.addf %a, %z : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  return %m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// -----

// CHECK-LABEL: func @product_with_transposed(
// CHECK: arith.mulf
// CHECK: arith.divf
// CHECK-NOT: fa.online_softmax
// CHECK: return
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#v = affine_map<(i) -> (i)>
#ij = affine_map<(i, j, k) -> (i, j)>
#ki = affine_map<(i, j, k) -> (k, i)>
#kj = affine_map<(i, j, k) -> (k, j)>
func.func @product_with_transposed(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<64x64xf32>) outs(%m0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.maxnumf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%m : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %c = arith.cmpf oeq, %x, %none : f32
    %r = arith.select %c, %zero, %x : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %d = arith.subf %x, %y : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%w : tensor<64x64xf32>) outs(%l0 : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %x, %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%w, %l : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %c = arith.cmpf oeq, %y, %zero : f32
    %q = arith.divf %x, %y : f32
    %r = arith.select %c, %zero, %q : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %o = linalg.generic {indexing_maps = [#ki, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%o0 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %z = arith.mulf %x, %y : f32
    %r = arith.addf %a, %z : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  return %m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// -----

// A reduction of two results that is not that of maximum and sum: of squares.
// CHECK-LABEL: func @sum_of_squares(
// CHECK-NOT: fa.online_softmax
// CHECK: return
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#v = affine_map<(i) -> (i)>
#ij = affine_map<(i, j, k) -> (i, j)>
#ik = affine_map<(i, j, k) -> (i, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
func.func @sum_of_squares(%s: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %m, %l = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<64x64xf32>) outs(%m0, %l0 : tensor<64xf32>, tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32, %c: f32):
    %r = arith.maxnumf %x, %a : f32
    %q = arith.mulf %x, %x : f32
    %n = arith.addf %c, %q : f32
    linalg.yield %r, %n : f32, f32
  } -> (tensor<64xf32>, tensor<64xf32>)
  %g = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]} ins(%m : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%x: f32, %a: f32):
    %c = arith.cmpf oeq, %x, %none : f32
    %r = arith.select %c, %zero, %x : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %g : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %d = arith.subf %x, %y : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%w, %l : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %c = arith.cmpf oeq, %y, %zero : f32
    %q = arith.divf %x, %y : f32
    %r = arith.select %c, %zero, %q : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %o = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%o0 : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %z = arith.mulf %x, %y : f32
    %r = arith.addf %a, %z : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  return %m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
}
