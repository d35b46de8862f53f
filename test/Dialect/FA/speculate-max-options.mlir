// Options, and what is left as it is.
// RUN: fa-opt %s --fa-pipeline="rows=64 keys=32" --fa-speculate-max --remarks-filter=fa-speculate-max --remark-format=emitRemark --split-input-file -o %t.mlir 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: FileCheck %s --input-file=%t.mlir
// RUN: fa-opt %s --fa-pipeline="rows=64 keys=32" --fa-speculate-max="headroom=8 limit=16" --split-input-file | FileCheck %s --check-prefix=CHOSEN
// RUN: not fa-opt %s --fa-speculate-max="headroom=127" --split-input-file 2>&1 | FileCheck %s --check-prefix=HEADROOM
// RUN: not fa-opt %s --fa-speculate-max="limit=1" --split-input-file 2>&1 | FileCheck %s --check-prefix=LIMIT
// RUN: not fa-opt %s --fa-pipeline --fa-speculate-max="limit=131072" --split-input-file 2>&1 | FileCheck %s --check-prefix=F16LIMIT

// HEADROOM: expected headroom in [0, 126], got 127{{.*}}; leave it out to choose by the weights' type
// LIMIT: expected limit in (1, 2^60], got 1{{.*}}; leave it out to choose by the weights' type
// F16LIMIT: expected a limit that f16 weights can reach, at most 65504, got 131072

// REMARK: remark: [Passed] Speculated {{.*}}headroom 63.00 and limit 2.00"
// CHECK-LABEL: func @bf16
// CHOSEN-LABEL: func @bf16
// CHOSEN-DAG: arith.constant 1.600000e+01 : bf16
// CHOSEN-DAG: arith.constant 8.000000e+00 : f32
func.func @bf16(%q: tensor<1x1x128x64xbf16>) -> tensor<1x1x128x64xbf16> {
  %o = fa.attention %q, %q, %q : (tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>) -> tensor<1x1x128x64xbf16>
  return %o : tensor<1x1x128x64xbf16>
}

// -----

// REMARK: remark: [Passed] Speculated {{.*}}headroom 0.00 and limit 32768.00, and the log-sum-exp has a sum of its own"
// CHECK-LABEL: func @f16
func.func @f16(%q: tensor<1x1x128x64xf16>) -> (tensor<1x1x128x64xf16>, tensor<1x1x128xf32>) {
  %o, %lse = fa.attention %q, %q, %q : (tensor<1x1x128x64xf16>, tensor<1x1x128x64xf16>, tensor<1x1x128x64xf16>) -> (tensor<1x1x128x64xf16>, tensor<1x1x128xf32>)
  return %o, %lse : tensor<1x1x128x64xf16>, tensor<1x1x128xf32>
}

// -----

// REMARK: remark: [Missed] NotSpeculated {{.*}}neither f16 nor bf16
// CHECK-LABEL: func @f32
// CHECK: arith.maxnumf
// CHECK-NOT: arith.maximumf
func.func @f32(%q: tensor<1x1x128x64xf32>) -> tensor<1x1x128x64xf32> {
  %o = fa.attention %q, %q, %q : (tensor<1x1x128x64xf32>, tensor<1x1x128x64xf32>, tensor<1x1x128x64xf32>) -> tensor<1x1x128x64xf32>
  return %o : tensor<1x1x128x64xf32>
}

// -----

// REMARK: remark: [Missed] NotSpeculated {{.*}}no loop carries a running maximum
// CHECK-LABEL: func @no_attention
func.func @no_attention(%q: tensor<4xf32>) -> tensor<4xf32> {
  return %q : tensor<4xf32>
}

// -----

// The running maximum of what is almost attention: the shift of a key, not of
// a row, is taken from its scores.
#matrix = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
#vector = affine_map<(d0) -> (d0)>
#ik = affine_map<(d0, d1, d2) -> (d0, d2)>
#kj = affine_map<(d0, d1, d2) -> (d2, d1)>
#ij = affine_map<(d0, d1, d2) -> (d0, d1)>
// REMARK: remark: [Missed] NotSpeculated {{.*}}the weights are not exp2(fma(score, c, -max * c))
// CHECK-LABEL: func @columns
// CHECK-NOT: arith.maximumf
func.func @columns(%s: tensor<32x32xf32>, %v: tensor<32x32xbf16>) -> tensor<32x32xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %minus = arith.constant -1.0 : f32
  %e = tensor.empty() : tensor<32xf32>
  %ee = tensor.empty() : tensor<32x32xf32>
  %eb = tensor.empty() : tensor<32x32xbf16>
  %m0 = linalg.fill ins(%none : f32) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%ee : tensor<32x32xf32>) -> tensor<32x32xf32>
  %r:3 = scf.for %j = %c0 to %c4 step %c1 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>) {
    %max = linalg.generic {indexing_maps = [#matrix, #row], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<32x32xf32>) outs(%m : tensor<32xf32>) {
    ^bb0(%x: f32, %a: f32):
      %y = arith.maxnumf %x, %a : f32
      linalg.yield %y : f32
    } -> tensor<32xf32>
    %g = linalg.generic {indexing_maps = [#vector, #vector], iterator_types = ["parallel"]} ins(%max : tensor<32xf32>) outs(%e : tensor<32xf32>) {
    ^bb0(%x: f32, %a: f32):
      %y = arith.cmpf oeq, %x, %none : f32
      %z = arith.select %y, %zero, %x : f32
      linalg.yield %z : f32
    } -> tensor<32xf32>
    %n = linalg.generic {indexing_maps = [#vector, #vector], iterator_types = ["parallel"]} ins(%g : tensor<32xf32>) outs(%e : tensor<32xf32>) {
    ^bb0(%x: f32, %a: f32):
      %y = arith.mulf %x, %minus : f32
      linalg.yield %y : f32
    } -> tensor<32xf32>
    %alpha = linalg.generic {indexing_maps = [#vector, #vector, #vector], iterator_types = ["parallel"]} ins(%m, %n : tensor<32xf32>, tensor<32xf32>) outs(%e : tensor<32xf32>) {
    ^bb0(%x: f32, %b: f32, %a: f32):
      %y = math.fma %x, %one, %b : f32
      %z = math.exp2 %y : f32
      linalg.yield %z : f32
    } -> tensor<32xf32>
    %p = linalg.generic {indexing_maps = [#matrix, #column, #matrix], iterator_types = ["parallel", "parallel"]} ins(%s, %n : tensor<32x32xf32>, tensor<32xf32>) outs(%ee : tensor<32x32xf32>) {
    ^bb0(%x: f32, %b: f32, %a: f32):
      %y = math.fma %x, %one, %b : f32
      %z = math.exp2 %y : f32
      linalg.yield %z : f32
    } -> tensor<32x32xf32>
    %la = linalg.generic {indexing_maps = [#vector, #vector, #vector], iterator_types = ["parallel"]} ins(%l, %alpha : tensor<32xf32>, tensor<32xf32>) outs(%e : tensor<32xf32>) {
    ^bb0(%x: f32, %b: f32, %a: f32):
      %y = arith.mulf %x, %b : f32
      linalg.yield %y : f32
    } -> tensor<32xf32>
    %l1 = linalg.generic {indexing_maps = [#matrix, #row], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<32x32xf32>) outs(%la : tensor<32xf32>) {
    ^bb0(%x: f32, %a: f32):
      %y = arith.addf %x, %a : f32
      linalg.yield %y : f32
    } -> tensor<32xf32>
    %oa = linalg.generic {indexing_maps = [#matrix, #row, #matrix], iterator_types = ["parallel", "parallel"]} ins(%o, %alpha : tensor<32x32xf32>, tensor<32xf32>) outs(%ee : tensor<32x32xf32>) {
    ^bb0(%x: f32, %b: f32, %a: f32):
      %y = arith.mulf %x, %b : f32
      linalg.yield %y : f32
    } -> tensor<32x32xf32>
    %pt = linalg.generic {indexing_maps = [#matrix, #matrix], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<32x32xf32>) outs(%eb : tensor<32x32xbf16>) {
    ^bb0(%x: f32, %a: bf16):
      %y = arith.truncf %x : f32 to bf16
      linalg.yield %y : bf16
    } -> tensor<32x32xbf16>
    %o1 = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%pt, %v : tensor<32x32xbf16>, tensor<32x32xbf16>) outs(%oa : tensor<32x32xf32>) {
    ^bb0(%x: bf16, %b: bf16, %a: f32):
      %xe = arith.extf %x : bf16 to f32
      %be = arith.extf %b : bf16 to f32
      %y = arith.mulf %xe, %be : f32
      %z = arith.addf %a, %y : f32
      linalg.yield %z : f32
    } -> tensor<32x32xf32>
    scf.yield %max, %l1, %o1 : tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>
  }
  %out = linalg.generic {indexing_maps = [#matrix, #row, #matrix], iterator_types = ["parallel", "parallel"]} ins(%r#2, %r#1 : tensor<32x32xf32>, tensor<32xf32>) outs(%ee : tensor<32x32xf32>) {
  ^bb0(%x: f32, %b: f32, %a: f32):
    %y = arith.cmpf oeq, %b, %zero : f32
    %z = arith.divf %x, %b : f32
    %w = arith.select %y, %zero, %z : f32
    linalg.yield %w : f32
  } -> tensor<32x32xf32>
  return %out : tensor<32x32xf32>
}
