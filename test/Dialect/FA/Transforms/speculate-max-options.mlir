// Options, and loops that stay as they are. The first three inputs are a block of rows of the
// output of --fa-pipeline="rows=64 keys=32".
// RUN: fa-opt %s --fa-speculate-max --remarks-filter=fa-speculate-max --remark-format=emitRemark -o %t.mlir 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: FileCheck %s --input-file=%t.mlir
// RUN: fa-opt %s --fa-speculate-max="headroom=8 limit=16" | FileCheck %s --check-prefix=CHOSEN
// RUN: not fa-opt %s --fa-speculate-max="headroom=127" 2>&1 | FileCheck %s --check-prefix=HEADROOM
// RUN: not fa-opt %s --fa-speculate-max="limit=1" 2>&1 | FileCheck %s --check-prefix=LIMIT
// RUN: not fa-opt %s --fa-speculate-max="limit=131072" 2>&1 | FileCheck %s --check-prefix=F16LIMIT

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#vec = affine_map<(i) -> (i)>

// HEADROOM: expected headroom in [0, 126], got 127{{.*}}; leave it out to choose by the weights' type
// LIMIT: expected limit in (1, 2^60], got 1{{.*}}; leave it out to choose by the weights' type
// F16LIMIT: expected a limit that f16 weights can reach, at most 65504, got 131072

// REMARK: remark: [Passed] Speculated {{.*}}headroom 63.00 and limit 2.00"
// CHECK-LABEL: func @bf16
// CHECK: fa.speculated_softmax
// CHOSEN-LABEL: func @bf16
// CHOSEN: fa.speculated_softmax
// CHOSEN: headroom = 8.000000e+00 : f64, limit = 1.600000e+01 : f64
func.func @bf16(%q: tensor<64x64xbf16>, %k: tensor<128x64xbf16>, %v: tensor<128x64xbf16>) -> tensor<64x64xf32> {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<64xf32>
  %tile = tensor.empty() : tensor<64x32xf32>
  %block = tensor.empty() : tensor<64x64xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<64x32xf32>) -> tensor<64x32xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<64x64xf32>) -> tensor<64x64xf32>
  %state:3 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
    %kt = tensor.extract_slice %k[%j0, 0] [32, 64] [1, 1] : tensor<128x64xbf16> to tensor<32x64xbf16>
    %vt = tensor.extract_slice %v[%j0, 0] [32, 64] [1, 1] : tensor<128x64xbf16> to tensor<32x64xbf16>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<64x64xbf16>, tensor<32x64xbf16>) outs(%s0 : tensor<64x32xf32>) {
    ^bb0(%x: bf16, %y: bf16, %acc: f32):
      %x32 = arith.extf %x : bf16 to f32
      %y32 = arith.extf %y : bf16 to f32
      %product = arith.mulf %x32, %y32 : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<64x32xf32>
    %next:3 = fa.online_softmax ins(%products, %vt : tensor<64x32xf32>, tensor<32x64xbf16>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {log2_scale = 0.18033688011112042 : f64, unnormalized}
    scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<64x64xf32>, tensor<64xf32>) outs(%block : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<64x64xf32>
  return %r : tensor<64x64xf32>
}

// REMARK: remark: [Passed] Speculated {{.*}}headroom 0.00 and limit 32768.00, and the log-sum-exp has a sum of its own"
// CHECK-LABEL: func @f16
// CHECK: fa.speculated_softmax
func.func @f16(%q: tensor<64x64xf16>, %k: tensor<128x64xf16>, %v: tensor<128x64xf16>) -> (tensor<64x64xf32>, tensor<64xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<64xf32>
  %tile = tensor.empty() : tensor<64x32xf32>
  %block = tensor.empty() : tensor<64x64xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<64x32xf32>) -> tensor<64x32xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<64x64xf32>) -> tensor<64x64xf32>
  %state:3 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
    %kt = tensor.extract_slice %k[%j0, 0] [32, 64] [1, 1] : tensor<128x64xf16> to tensor<32x64xf16>
    %vt = tensor.extract_slice %v[%j0, 0] [32, 64] [1, 1] : tensor<128x64xf16> to tensor<32x64xf16>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<64x64xf16>, tensor<32x64xf16>) outs(%s0 : tensor<64x32xf32>) {
    ^bb0(%x: f16, %y: f16, %acc: f32):
      %x32 = arith.extf %x : f16 to f32
      %y32 = arith.extf %y : f16 to f32
      %product = arith.mulf %x32, %y32 : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<64x32xf32>
    %next:3 = fa.online_softmax ins(%products, %vt : tensor<64x32xf32>, tensor<32x64xf16>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {log2_scale = 0.18033688011112042 : f64, unnormalized}
    scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<64x64xf32>, tensor<64xf32>) outs(%block : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<64x64xf32>
  %max = linalg.generic {indexing_maps = [#vec, #vec], iterator_types = ["parallel"]} ins(%state#0 : tensor<64xf32>) outs(%vector : tensor<64xf32>) {
  ^bb0(%x: f32, %out: f32):
    %scaled = arith.mulf %x, %scale : f32
    linalg.yield %scaled : f32
  } -> tensor<64xf32>
  %lse = linalg.generic {indexing_maps = [#vec, #vec, #vec], iterator_types = ["parallel"]}
      ins(%max, %state#1 : tensor<64xf32>, tensor<64xf32>) outs(%vector : tensor<64xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %log = math.log %y : f32
    %sum = arith.addf %x, %log : f32
    linalg.yield %sum : f32
  } -> tensor<64xf32>
  return %r, %lse : tensor<64x64xf32>, tensor<64xf32>
}

// REMARK: remark: [Missed] NotSpeculated {{.*}}neither f16 nor bf16
// CHECK-LABEL: func @f32
// CHECK-NOT: fa.speculated_softmax
func.func @f32(%q: tensor<64x64xf32>, %k: tensor<128x64xf32>, %v: tensor<128x64xf32>) -> tensor<64x64xf32> {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<64xf32>
  %tile = tensor.empty() : tensor<64x32xf32>
  %block = tensor.empty() : tensor<64x64xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<64x32xf32>) -> tensor<64x32xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<64x64xf32>) -> tensor<64x64xf32>
  %state:3 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {
    %kt = tensor.extract_slice %k[%j0, 0] [32, 64] [1, 1] : tensor<128x64xf32> to tensor<32x64xf32>
    %vt = tensor.extract_slice %v[%j0, 0] [32, 64] [1, 1] : tensor<128x64xf32> to tensor<32x64xf32>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<64x64xf32>, tensor<32x64xf32>) outs(%s0 : tensor<64x32xf32>) {
    ^bb0(%x: f32, %y: f32, %acc: f32):
      %product = arith.mulf %x, %y : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<64x32xf32>
    %next:3 = fa.online_softmax ins(%products, %vt : tensor<64x32xf32>, tensor<32x64xf32>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {log2_scale = 0.18033688011112042 : f64, unnormalized}
    scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<64x64xf32>, tensor<64xf32>) outs(%block : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<64x64xf32>
  return %r : tensor<64x64xf32>
}

// REMARK: remark: [Missed] NotSpeculated {{.*}}no loop carries a running maximum
// CHECK-LABEL: func @no_attention
func.func @no_attention(%q: tensor<4xf32>) -> tensor<4xf32> {
  return %q : tensor<4xf32>
}
