// Each input is a block of rows of the output of --fa-pipeline="target=cpu rows=64 keys=32
// speculate=on stop-after=fa-fold-scale-exp2". expand-steps-speculated.mlir has the instructions
// of the steps.
// RUN: fa-opt %s --fa-speculate-max | FileCheck %s

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#vec = affine_map<(i) -> (i)>
#plus = affine_map<(d0)[s0] -> (d0 + s0)>
#next = affine_map<(j) -> (j + 32)>

// The loop carries a reference in the place of the maximum, and until when blocks are wary:
// none at first. In bf16 weights have headroom above the maximum, and far weights are shifted.
// CHECK-LABEL: func @bf16
// CHECK: scf.for %[[J:.*]] = %[[LB:.*]] to %{{.*}} step %[[STEP:.*]] iter_args({{.*}}, %[[UNTIL:.*]] = %[[LB]])
// CHECK: %[[S:.*]] = scf.if
// CHECK: %{{.*}}:3, %[[NEXT:.*]] = fa.speculated_softmax ins(%[[S]], {{.*}} at %[[J]] from %[[LB]] by %[[STEP]] until %[[UNTIL]] score {
// CHECK-NEXT: ^bb0(%[[X:.*]]: f32,
// CHECK-NEXT: fa.yield %[[X]]
// CHECK-NEXT: } {far_limit = 9.22{{.*}}E+18 : f64, headroom = 6.300000e+01 : f64, limit = 2.000000e+00 : f64, log2_scale = 0.1803{{[0-9]+}} : f64}
// CHECK-NOT: math.log2
func.func @bf16(%q: tensor<64x64xbf16>, %k: tensor<128x64xbf16>, %v: tensor<128x48xbf16>, %i0: index) -> tensor<64x48xf32> {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<64xf32>
  %tile = tensor.empty() : tensor<64x32xf32>
  %block = tensor.empty() : tensor<64x48xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<64x32xf32>) -> tensor<64x32xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<64x48xf32>) -> tensor<64x48xf32>
  %state:3 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x48xf32>) {
    %kt = tensor.extract_slice %k[%j0, 0] [32, 64] [1, 1] : tensor<128x64xbf16> to tensor<32x64xbf16>
    %vt = tensor.extract_slice %v[%j0, 0] [32, 48] [1, 1] : tensor<128x48xbf16> to tensor<32x48xbf16>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<64x64xbf16>, tensor<32x64xbf16>) outs(%s0 : tensor<64x32xf32>) {
    ^bb0(%x: bf16, %y: bf16, %acc: f32):
      %x32 = arith.extf %x : bf16 to f32
      %y32 = arith.extf %y : bf16 to f32
      %product = arith.mulf %x32, %y32 : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<64x32xf32>
    %end = affine.apply #next(%j0)
    %isfull = arith.cmpi sle, %end, %i0 : index
    %scores = scf.if %isfull -> (tensor<64x32xf32>) {
      scf.yield %products : tensor<64x32xf32>
    } else {
      %part = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%products : tensor<64x32xf32>) outs(%tile : tensor<64x32xf32>) {
      ^bb0(%x: f32, %out: f32):
        %row = linalg.index 0 : index
        %i = affine.apply #plus(%i0)[%row]
        %column = linalg.index 1 : index
        %j = affine.apply #plus(%j0)[%column]
        %seen = arith.cmpi sle, %j, %i : index
        %score = arith.select %seen, %x, %none : f32
        linalg.yield %score : f32
      } -> tensor<64x32xf32>
      scf.yield %part : tensor<64x32xf32>
    }
    %next:3 = fa.online_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x48xbf16>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x48xf32>) {log2_scale = 0.18033688011112042 : f64, unnormalized}
    scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x48xf32>
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<64x48xf32>, tensor<64xf32>) outs(%block : tensor<64x48xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<64x48xf32>
  return %r : tensor<64x48xf32>
}

// A log-sum-exp has a sum of the weights before rounding; the division has the other one.
// CHECK-LABEL: func @log_sum_exp
// CHECK-DAG: %[[LN2:.*]] = arith.constant 0.69314{{.*}} : f32
// CHECK: %[[STATE:.*]]:5 = scf.for
// CHECK: %{{.*}}:4, %{{.*}} = fa.speculated_softmax
// CHECK: scf.yield
// CHECK: ins(%[[STATE]]#2, %[[STATE]]#1
// CHECK: arith.divf
// CHECK: ins(%[[STATE]]#0, %[[STATE]]#3
// CHECK: math.log2
// CHECK-NEXT: arith.addf
// CHECK-NEXT: arith.mulf %{{.*}}, %[[LN2]]
func.func @log_sum_exp(%q: tensor<64x64xbf16>, %k: tensor<128x64xbf16>, %v: tensor<128x64xbf16>) -> (tensor<64x64xf32>, tensor<64xf32>) {
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

// f16 has no room above the maximum and little below.
// CHECK-LABEL: func @f16
// CHECK: math.tanh
// CHECK: fa.speculated_softmax
// CHECK: {far_limit = 0.000000e+00 : f64, headroom = 0.000000e+00 : f64, limit = 3.276800e+04 : f64,
func.func @f16(%q: tensor<64x64xf16>, %k: tensor<128x64xf16>, %v: tensor<128x64xf16>) -> tensor<64x64xf32> {
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
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%products : tensor<64x32xf32>) outs(%tile : tensor<64x32xf32>) {
    ^bb0(%x: f32, %out: f32):
      %t = math.tanh %x : f32
      linalg.yield %t : f32
    } -> tensor<64x32xf32>
    %next:3 = fa.online_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x64xf16>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {log2_scale = 1.4426950408889634 : f64, unnormalized}
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

// Scores that are sums: the branch that masks gives products of queries and keys alone. The
// bias is added where weights are made, by the step's region.
// CHECK-LABEL: func @bias
// CHECK: %[[S:.*]] = linalg.generic
// CHECK: %[[MASKED:.*]] = scf.if
// CHECK-NEXT: scf.yield %[[S]]
// CHECK-NEXT: } else {
// CHECK: ^bb0(%[[X:.*]]: f32, %{{.*}}: f32):
// CHECK-NOT: arith.sitofp
// CHECK: arith.select %{{.*}}, %[[X]], %{{.*}} : f32
// CHECK-NOT: arith.sitofp
// CHECK: fa.speculated_softmax ins(%[[MASKED]], {{.*}} score {
// CHECK-NEXT: ^bb0(%[[X:.*]]: f32, %[[ROW:.*]]: index, %[[COLUMN:.*]]: index):
// CHECK: arith.sitofp
// CHECK: %[[Y:.*]] = arith.addf
// CHECK: fa.yield %[[Y]]
// CHECK: log2_scale = 1.000000e+00 : f64
func.func @bias(%q: tensor<64x64xbf16>, %k: tensor<128x64xbf16>, %v: tensor<128x64xbf16>, %slope: f32, %i0: index) -> tensor<64x64xf32> {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %scale = arith.constant 0.180336878 : f32
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
    %end = affine.apply #next(%j0)
    %isfull = arith.cmpi sle, %end, %i0 : index
    %scores = scf.if %isfull -> (tensor<64x32xf32>) {
      %full = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%products : tensor<64x32xf32>) outs(%tile : tensor<64x32xf32>) {
      ^bb0(%x: f32, %out: f32):
        %row = linalg.index 0 : index
        %i = affine.apply #plus(%i0)[%row]
        %column = linalg.index 1 : index
        %j = affine.apply #plus(%j0)[%column]
        %d = arith.subi %j, %i : index
        %n = arith.index_cast %d : index to i32
        %f = arith.sitofp %n : i32 to f32
        %scaled = arith.mulf %x, %scale : f32
        %bias = arith.mulf %slope, %f : f32
        %y = arith.addf %scaled, %bias : f32
        linalg.yield %y : f32
      } -> tensor<64x32xf32>
      scf.yield %full : tensor<64x32xf32>
    } else {
      %part = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%products : tensor<64x32xf32>) outs(%tile : tensor<64x32xf32>) {
      ^bb0(%x: f32, %out: f32):
        %row = linalg.index 0 : index
        %i = affine.apply #plus(%i0)[%row]
        %column = linalg.index 1 : index
        %j = affine.apply #plus(%j0)[%column]
        %d = arith.subi %j, %i : index
        %n = arith.index_cast %d : index to i32
        %f = arith.sitofp %n : i32 to f32
        %scaled = arith.mulf %x, %scale : f32
        %bias = arith.mulf %slope, %f : f32
        %y = arith.addf %scaled, %bias : f32
        %seen = arith.cmpi sle, %j, %i : index
        %score = arith.select %seen, %y, %none : f32
        linalg.yield %score : f32
      } -> tensor<64x32xf32>
      scf.yield %part : tensor<64x32xf32>
    }
    %next:3 = fa.online_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x64xbf16>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {log2_scale = 1.000000e+00 : f64, unnormalized}
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

// A bias that may not be finite where nothing is seen stays under the mask.
// CHECK-LABEL: func @not_finite
// CHECK: scf.for
// CHECK: scf.if
// CHECK: math.log
// CHECK: else
// CHECK: math.log
// CHECK: arith.select
// CHECK: fa.speculated_softmax
// CHECK-NEXT: ^bb0(%[[X:.*]]: f32,
// CHECK-NEXT: fa.yield %[[X]]
// CHECK-NOT: math.log
// CHECK: return
func.func @not_finite(%q: tensor<64x64xbf16>, %k: tensor<128x64xbf16>, %v: tensor<128x64xbf16>, %i0: index) -> tensor<64x64xf32> {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %two_log2e = arith.constant 2.885390e+00 : f32
  %scale = arith.constant 0.180336878 : f32
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
    %end = affine.apply #next(%j0)
    %isfull = arith.cmpi sle, %end, %i0 : index
    %scores = scf.if %isfull -> (tensor<64x32xf32>) {
      %full = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%products : tensor<64x32xf32>) outs(%tile : tensor<64x32xf32>) {
      ^bb0(%x: f32, %out: f32):
        %row = linalg.index 0 : index
        %i = affine.apply #plus(%i0)[%row]
        %column = linalg.index 1 : index
        %j = affine.apply #plus(%j0)[%column]
        %d = arith.subi %i, %j : index
        %n = arith.index_cast %d : index to i32
        %f = arith.sitofp %n : i32 to f32
        %log = math.log %f : f32
        %scaled = arith.mulf %x, %scale : f32
        %bias = arith.mulf %log, %two_log2e : f32
        %y = arith.addf %scaled, %bias : f32
        linalg.yield %y : f32
      } -> tensor<64x32xf32>
      scf.yield %full : tensor<64x32xf32>
    } else {
      %part = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%products : tensor<64x32xf32>) outs(%tile : tensor<64x32xf32>) {
      ^bb0(%x: f32, %out: f32):
        %row = linalg.index 0 : index
        %i = affine.apply #plus(%i0)[%row]
        %column = linalg.index 1 : index
        %j = affine.apply #plus(%j0)[%column]
        %d = arith.subi %i, %j : index
        %n = arith.index_cast %d : index to i32
        %f = arith.sitofp %n : i32 to f32
        %log = math.log %f : f32
        %scaled = arith.mulf %x, %scale : f32
        %bias = arith.mulf %log, %two_log2e : f32
        %y = arith.addf %scaled, %bias : f32
        %seen = arith.cmpi slt, %j, %i : index
        %score = arith.select %seen, %y, %none : f32
        linalg.yield %score : f32
      } -> tensor<64x32xf32>
      scf.yield %part : tensor<64x32xf32>
    }
    %next:3 = fa.online_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x64xbf16>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {log2_scale = 1.000000e+00 : f64, unnormalized}
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
