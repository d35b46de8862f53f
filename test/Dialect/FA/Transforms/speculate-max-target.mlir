// On a GPU only where the schedule has branches on values of tiles. The inputs are blocks of rows
// of the output of --fa-pipeline="target=sm_90a speculate=off".
// RUN: fa-opt %s --fa-speculate-max="target=sm_90a" --remarks-filter=fa-speculate-max --remark-format=emitRemark 2>&1 | FileCheck %s --implicit-check-not=remark:
// RUN: fa-opt %s --fa-speculate-max="target=sm_80" --remarks-filter=fa-speculate-max --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=MMA
// RUN: not fa-opt %s --fa-speculate-max="target=sm_42" 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// MMA-NOT: [Passed]
// MMA: remark: [Missed] NotSpeculated {{.*}}the target's schedule for these tiles has no branches
// MMA-NOT: [Passed]
// UNKNOWN: unknown target 'sm_42'

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// CHECK: remark: [Passed] Speculated {{.*}}Function=whole_chunks
// CHECK: remark: [Missed] NotSpeculated {{.*}}Function=few_rows {{.*}}the target's schedule for these tiles has no branches
// CHECK: remark: [Missed] NotSpeculated {{.*}}Function=odd_head_dim {{.*}}the target's schedule for these tiles has no branches
// CHECK: remark: [Missed] NotSpeculated {{.*}}Function=f32 {{.*}}neither f16 nor bf16
// CHECK-LABEL: func @whole_chunks
// CHECK: fa.speculated_softmax
// CHECK-NOT: fa.speculated_softmax
func.func @whole_chunks(%q: tensor<128x80xbf16>, %k: tensor<128x80xbf16>, %v: tensor<128x80xbf16>) -> tensor<128x80xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<128xf32>
  %tile = tensor.empty() : tensor<128x64xf32>
  %block = tensor.empty() : tensor<128x80xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<128x64xf32>) -> tensor<128x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<128xf32>) -> tensor<128xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<128xf32>) -> tensor<128xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<128x80xf32>) -> tensor<128x80xf32>
  %state:3 = scf.for %j0 = %c0 to %c128 step %c64 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<128xf32>, tensor<128xf32>, tensor<128x80xf32>) {
    %kt = tensor.extract_slice %k[%j0, 0] [64, 80] [1, 1] : tensor<128x80xbf16> to tensor<64x80xbf16>
    %vt = tensor.extract_slice %v[%j0, 0] [64, 80] [1, 1] : tensor<128x80xbf16> to tensor<64x80xbf16>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<128x80xbf16>, tensor<64x80xbf16>) outs(%s0 : tensor<128x64xf32>) {
    ^bb0(%x: bf16, %y: bf16, %acc: f32):
      %x32 = arith.extf %x : bf16 to f32
      %y32 = arith.extf %y : bf16 to f32
      %product = arith.mulf %x32, %y32 : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<128x64xf32>
    %next:3 = fa.online_softmax ins(%products, %vt : tensor<128x64xf32>, tensor<64x80xbf16>) outs(%m, %l, %o : tensor<128xf32>, tensor<128xf32>, tensor<128x80xf32>) {log2_scale = 0.18033688011112042 : f64, unnormalized}
    scf.yield %next#0, %next#1, %next#2 : tensor<128xf32>, tensor<128xf32>, tensor<128x80xf32>
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<128x80xf32>, tensor<128xf32>) outs(%block : tensor<128x80xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<128x80xf32>
  return %r : tensor<128x80xf32>
}

// A warpgroup has 64 rows.
func.func @few_rows(%q: tensor<32x80xbf16>, %k: tensor<128x80xbf16>, %v: tensor<128x80xbf16>) -> tensor<32x80xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<32xf32>
  %tile = tensor.empty() : tensor<32x64xf32>
  %block = tensor.empty() : tensor<32x80xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<32x64xf32>) -> tensor<32x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<32xf32>) -> tensor<32xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<32xf32>) -> tensor<32xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<32x80xf32>) -> tensor<32x80xf32>
  %state:3 = scf.for %j0 = %c0 to %c128 step %c64 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<32xf32>, tensor<32xf32>, tensor<32x80xf32>) {
    %kt = tensor.extract_slice %k[%j0, 0] [64, 80] [1, 1] : tensor<128x80xbf16> to tensor<64x80xbf16>
    %vt = tensor.extract_slice %v[%j0, 0] [64, 80] [1, 1] : tensor<128x80xbf16> to tensor<64x80xbf16>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<32x80xbf16>, tensor<64x80xbf16>) outs(%s0 : tensor<32x64xf32>) {
    ^bb0(%x: bf16, %y: bf16, %acc: f32):
      %x32 = arith.extf %x : bf16 to f32
      %y32 = arith.extf %y : bf16 to f32
      %product = arith.mulf %x32, %y32 : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<32x64xf32>
    %next:3 = fa.online_softmax ins(%products, %vt : tensor<32x64xf32>, tensor<64x80xbf16>) outs(%m, %l, %o : tensor<32xf32>, tensor<32xf32>, tensor<32x80xf32>) {log2_scale = 0.18033688011112042 : f64, unnormalized}
    scf.yield %next#0, %next#1, %next#2 : tensor<32xf32>, tensor<32xf32>, tensor<32x80xf32>
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<32x80xf32>, tensor<32xf32>) outs(%block : tensor<32x80xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<32x80xf32>
  return %r : tensor<32x80xf32>
}

// Rows of 88 bytes are not whole chunks of 16.
func.func @odd_head_dim(%q: tensor<128x44xbf16>, %k: tensor<128x44xbf16>, %v: tensor<128x44xbf16>) -> tensor<128x44xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<128xf32>
  %tile = tensor.empty() : tensor<128x64xf32>
  %block = tensor.empty() : tensor<128x44xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<128x64xf32>) -> tensor<128x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<128xf32>) -> tensor<128xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<128xf32>) -> tensor<128xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<128x44xf32>) -> tensor<128x44xf32>
  %state:3 = scf.for %j0 = %c0 to %c128 step %c64 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<128xf32>, tensor<128xf32>, tensor<128x44xf32>) {
    %kt = tensor.extract_slice %k[%j0, 0] [64, 44] [1, 1] : tensor<128x44xbf16> to tensor<64x44xbf16>
    %vt = tensor.extract_slice %v[%j0, 0] [64, 44] [1, 1] : tensor<128x44xbf16> to tensor<64x44xbf16>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<128x44xbf16>, tensor<64x44xbf16>) outs(%s0 : tensor<128x64xf32>) {
    ^bb0(%x: bf16, %y: bf16, %acc: f32):
      %x32 = arith.extf %x : bf16 to f32
      %y32 = arith.extf %y : bf16 to f32
      %product = arith.mulf %x32, %y32 : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<128x64xf32>
    %next:3 = fa.online_softmax ins(%products, %vt : tensor<128x64xf32>, tensor<64x44xbf16>) outs(%m, %l, %o : tensor<128xf32>, tensor<128xf32>, tensor<128x44xf32>) {log2_scale = 0.18033688011112042 : f64, unnormalized}
    scf.yield %next#0, %next#1, %next#2 : tensor<128xf32>, tensor<128xf32>, tensor<128x44xf32>
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<128x44xf32>, tensor<128xf32>) outs(%block : tensor<128x44xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<128x44xf32>
  return %r : tensor<128x44xf32>
}

func.func @f32(%q: tensor<128x64xf32>, %k: tensor<128x64xf32>, %v: tensor<128x64xf32>) -> tensor<128x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<128xf32>
  %tile = tensor.empty() : tensor<128x64xf32>
  %block = tensor.empty() : tensor<128x64xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<128x64xf32>) -> tensor<128x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<128xf32>) -> tensor<128xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<128xf32>) -> tensor<128xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<128x64xf32>) -> tensor<128x64xf32>
  %state:3 = scf.for %j0 = %c0 to %c128 step %c64 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>) {
    %kt = tensor.extract_slice %k[%j0, 0] [64, 64] [1, 1] : tensor<128x64xf32> to tensor<64x64xf32>
    %vt = tensor.extract_slice %v[%j0, 0] [64, 64] [1, 1] : tensor<128x64xf32> to tensor<64x64xf32>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<128x64xf32>, tensor<64x64xf32>) outs(%s0 : tensor<128x64xf32>) {
    ^bb0(%x: f32, %y: f32, %acc: f32):
      %product = arith.mulf %x, %y : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<128x64xf32>
    %next:3 = fa.online_softmax ins(%products, %vt : tensor<128x64xf32>, tensor<64x64xf32>) outs(%m, %l, %o : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>) {log2_scale = 0.18033688011112042 : f64, unnormalized}
    scf.yield %next#0, %next#1, %next#2 : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<128x64xf32>, tensor<128xf32>) outs(%block : tensor<128x64xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<128x64xf32>
  return %r : tensor<128x64xf32>
}
