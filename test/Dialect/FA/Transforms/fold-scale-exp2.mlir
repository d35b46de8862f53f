// Each input is a block of rows of what --fa-decompose --fa-online-softmax
// --fa-tile="rows=64 keys=32" --fa-interchange --fa-pad-tiles --fa-defer-normalization --fa-fuse
// makes of fa.attention. expand-steps.mlir has the instructions of the attributes that are
// checked here.
// RUN: fa-opt %s --fa-fold-scale-exp2 | FileCheck %s
// RUN: fa-opt %s --fa-fold-scale-exp2=large-products=wide | FileCheck %s --check-prefix=WIDE
// RUN: not fa-opt %s --fa-fold-scale-exp2=large-products=some 2>&1 | FileCheck %s --check-prefix=OPTION
// OPTION: expected large-products to be none, wide or all, got some

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#vec = affine_map<(i) -> (i)>
#plus = affine_map<(d0)[s0] -> (d0 + s0)>

// The step multiplies by 0.125 log2(e); the scale has left the scores; the maximum is
// scaled after the loop, for the LSE.
// CHECK-LABEL: func @causal(
// CHECK: %[[SCALE:.*]] = arith.constant 1.250000e-01 : f32
// CHECK: scf.for
// CHECK-NOT: arith.mulf %{{.*}}, %[[SCALE]] :
// CHECK: fa.online_softmax {{.*}} {log2_scale = 0.18033{{[0-9]+}} : f64, unnormalized}
// CHECK-NEXT: scf.yield
// CHECK: arith.mulf %{{.*}}, %[[SCALE]] : f32
// CHECK: math.log
func.func @causal(%q: tensor<64x64xbf16>, %k: tensor<128x64xbf16>, %v: tensor<128x64xbf16>, %i0: index) -> (tensor<64x64xf32>, tensor<64xf32>) {
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
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%products : tensor<64x32xf32>) outs(%tile : tensor<64x32xf32>) {
    ^bb0(%x: f32, %out: f32):
      %scaled = arith.mulf %x, %scale : f32
      %row = linalg.index 0 : index
      %i = affine.apply #plus(%i0)[%row]
      %column = linalg.index 1 : index
      %j = affine.apply #plus(%j0)[%column]
      %seen = arith.cmpi sle, %j, %i : index
      %score = arith.select %seen, %scaled, %none : f32
      linalg.yield %score : f32
    } -> tensor<64x32xf32>
    %next:3 = fa.online_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x64xbf16>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>) {unnormalized}
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
  %lse = linalg.generic {indexing_maps = [#vec, #vec, #vec], iterator_types = ["parallel"]}
      ins(%state#0, %state#1 : tensor<64xf32>, tensor<64xf32>) outs(%vector : tensor<64xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %log = math.log %y : f32
    %sum = arith.addf %x, %log : f32
    linalg.yield %sum : f32
  } -> tensor<64xf32>
  return %r, %lse : tensor<64x64xf32>, tensor<64xf32>
}

// A function of the score forbids folding the scale; log2(e) alone is folded.
// CHECK-LABEL: func @score_region(
// CHECK: scf.for
// CHECK: math.tanh
// CHECK: fa.online_softmax {{.*}} {log2_scale = 1.4426950408889634 : f64, unnormalized}
func.func @score_region(%q: tensor<64x16xf32>, %k: tensor<128x16xf32>, %v: tensor<128x16xf32>) -> tensor<64x16xf32> {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<64xf32>
  %tile = tensor.empty() : tensor<64x32xf32>
  %block = tensor.empty() : tensor<64x16xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<64x32xf32>) -> tensor<64x32xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<64x16xf32>) -> tensor<64x16xf32>
  %state:3 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>) {
    %kt = tensor.extract_slice %k[%j0, 0] [32, 16] [1, 1] : tensor<128x16xf32> to tensor<32x16xf32>
    %vt = tensor.extract_slice %v[%j0, 0] [32, 16] [1, 1] : tensor<128x16xf32> to tensor<32x16xf32>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<64x16xf32>, tensor<32x16xf32>) outs(%s0 : tensor<64x32xf32>) {
    ^bb0(%x: f32, %y: f32, %acc: f32):
      %product = arith.mulf %x, %y : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<64x32xf32>
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%products : tensor<64x32xf32>) outs(%tile : tensor<64x32xf32>) {
    ^bb0(%x: f32, %out: f32):
      %t = math.tanh %x : f32
      linalg.yield %t : f32
    } -> tensor<64x32xf32>
    %next:3 = fa.online_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x16xf32>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>) {unnormalized}
    scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<64x16xf32>, tensor<64xf32>) outs(%block : tensor<64x16xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<64x16xf32>
  return %r : tensor<64x16xf32>
}

// A negative scale turns the maximum into a minimum: not folded.
// CHECK-LABEL: func @negative_scale(
// CHECK: %[[SCALE:.*]] = arith.constant -1.250000e-01 : f32
// CHECK: scf.for
// CHECK: arith.mulf %{{.*}}, %[[SCALE]]
// CHECK: fa.online_softmax {{.*}} {log2_scale = 1.4426950408889634 : f64, unnormalized}
func.func @negative_scale(%q: tensor<64x16xf32>, %k: tensor<128x16xf32>, %v: tensor<128x16xf32>) -> tensor<64x16xf32> {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %scale = arith.constant -1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<64xf32>
  %tile = tensor.empty() : tensor<64x32xf32>
  %block = tensor.empty() : tensor<64x16xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<64x32xf32>) -> tensor<64x32xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<64x16xf32>) -> tensor<64x16xf32>
  %state:3 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>) {
    %kt = tensor.extract_slice %k[%j0, 0] [32, 16] [1, 1] : tensor<128x16xf32> to tensor<32x16xf32>
    %vt = tensor.extract_slice %v[%j0, 0] [32, 16] [1, 1] : tensor<128x16xf32> to tensor<32x16xf32>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<64x16xf32>, tensor<32x16xf32>) outs(%s0 : tensor<64x32xf32>) {
    ^bb0(%x: f32, %y: f32, %acc: f32):
      %product = arith.mulf %x, %y : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<64x32xf32>
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%products : tensor<64x32xf32>) outs(%tile : tensor<64x32xf32>) {
    ^bb0(%x: f32, %out: f32):
      %scaled = arith.mulf %x, %scale : f32
      linalg.yield %scaled : f32
    } -> tensor<64x32xf32>
    %next:3 = fa.online_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x16xf32>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>) {unnormalized}
    scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<64x16xf32>, tensor<64xf32>) outs(%block : tensor<64x16xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<64x16xf32>
  return %r : tensor<64x16xf32>
}

// A sum takes the factor: the scale is 0.125 log2(e), the slope times log2(e)
// is made once. The maximum is in log2 units.
// CHECK-LABEL: func @distance(
// CHECK-DAG: %[[LOG2E:.*]] = arith.constant 1.44269502 : f32
// CHECK-DAG: %[[SCALE:.*]] = arith.constant 0.18033{{.*}} : f32
// CHECK-DAG: %[[LN2:.*]] = arith.constant 0.693147182 : f32
// CHECK: %[[SLOPE:.*]] = arith.mulf %{{.*}}, %[[LOG2E]] : f32
// CHECK: scf.for
// CHECK: %[[S:.*]] = arith.mulf %{{.*}}, %[[SCALE]]
// CHECK: %[[BIAS:.*]] = arith.mulf %[[SLOPE]], %{{.*}}
// CHECK: %[[SUM:.*]] = arith.subf %[[S]], %[[BIAS]]
// CHECK: arith.select %{{.*}}, %[[SUM]],
// CHECK: fa.online_softmax {{.*}} {log2_scale = 1.000000e+00 : f64, unnormalized}
// CHECK-NEXT: scf.yield
// CHECK: arith.mulf %{{.*}}, %[[LN2]] : f32
// CHECK: math.log
func.func @distance(%q: tensor<64x16xf32>, %k: tensor<128x16xf32>, %v: tensor<128x16xf32>, %slope: f32, %i0: index) -> (tensor<64x16xf32>, tensor<64xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<64xf32>
  %tile = tensor.empty() : tensor<64x32xf32>
  %block = tensor.empty() : tensor<64x16xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<64x32xf32>) -> tensor<64x32xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<64x16xf32>) -> tensor<64x16xf32>
  %state:3 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>) {
    %kt = tensor.extract_slice %k[%j0, 0] [32, 16] [1, 1] : tensor<128x16xf32> to tensor<32x16xf32>
    %vt = tensor.extract_slice %v[%j0, 0] [32, 16] [1, 1] : tensor<128x16xf32> to tensor<32x16xf32>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<64x16xf32>, tensor<32x16xf32>) outs(%s0 : tensor<64x32xf32>) {
    ^bb0(%x: f32, %y: f32, %acc: f32):
      %product = arith.mulf %x, %y : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<64x32xf32>
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%products : tensor<64x32xf32>) outs(%tile : tensor<64x32xf32>) {
    ^bb0(%x: f32, %out: f32):
      %scaled = arith.mulf %x, %scale : f32
      %row = linalg.index 0 : index
      %i = affine.apply #plus(%i0)[%row]
      %column = linalg.index 1 : index
      %j = affine.apply #plus(%j0)[%column]
      %d = arith.subi %i, %j : index
      %n = arith.index_cast %d : index to i32
      %f = arith.sitofp %n : i32 to f32
      %bias = arith.mulf %slope, %f : f32
      %y = arith.subf %scaled, %bias : f32
      %seen = arith.cmpi sle, %j, %i : index
      %score = arith.select %seen, %y, %none : f32
      linalg.yield %score : f32
    } -> tensor<64x32xf32>
    %next:3 = fa.online_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x16xf32>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>) {unnormalized}
    scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<64x16xf32>, tensor<64xf32>) outs(%block : tensor<64x16xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<64x16xf32>
  %lse = linalg.generic {indexing_maps = [#vec, #vec, #vec], iterator_types = ["parallel"]}
      ins(%state#0, %state#1 : tensor<64xf32>, tensor<64xf32>) outs(%vector : tensor<64xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %log = math.log %y : f32
    %sum = arith.addf %x, %log : f32
    linalg.yield %sum : f32
  } -> tensor<64xf32>
  return %r, %lse : tensor<64x16xf32>, tensor<64xf32>
}

// A number that is read for each element would take a multiplication more: log2(e)
// stays where it was. And it may be large: the maximum is subtracted before.
// CHECK-LABEL: func @bias(
// CHECK: %[[SCALE:.*]] = arith.constant 1.250000e-01 : f32
// CHECK: scf.for
// CHECK: %[[S:.*]] = arith.mulf %{{.*}}, %[[SCALE]]
// CHECK: arith.addf %[[S]],
// CHECK: fa.online_softmax {{.*}} {log2_scale = 1.4426950408889634 : f64, subtract_first, unnormalized}
func.func @bias(%q: tensor<64x16xf32>, %k: tensor<128x16xf32>, %v: tensor<128x16xf32>, %table: tensor<128x128xf32>, %i0: index) -> tensor<64x16xf32> {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<64xf32>
  %tile = tensor.empty() : tensor<64x32xf32>
  %block = tensor.empty() : tensor<64x16xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<64x32xf32>) -> tensor<64x32xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<64x16xf32>) -> tensor<64x16xf32>
  %state:3 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>) {
    %kt = tensor.extract_slice %k[%j0, 0] [32, 16] [1, 1] : tensor<128x16xf32> to tensor<32x16xf32>
    %vt = tensor.extract_slice %v[%j0, 0] [32, 16] [1, 1] : tensor<128x16xf32> to tensor<32x16xf32>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<64x16xf32>, tensor<32x16xf32>) outs(%s0 : tensor<64x32xf32>) {
    ^bb0(%x: f32, %y: f32, %acc: f32):
      %product = arith.mulf %x, %y : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<64x32xf32>
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%products : tensor<64x32xf32>) outs(%tile : tensor<64x32xf32>) {
    ^bb0(%x: f32, %out: f32):
      %scaled = arith.mulf %x, %scale : f32
      %row = linalg.index 0 : index
      %i = affine.apply #plus(%i0)[%row]
      %column = linalg.index 1 : index
      %j = affine.apply #plus(%j0)[%column]
      %bias = tensor.extract %table[%i, %j] : tensor<128x128xf32>
      %y = arith.addf %scaled, %bias : f32
      linalg.yield %y : f32
    } -> tensor<64x32xf32>
    %next:3 = fa.online_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x16xf32>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>) {unnormalized}
    scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<64x16xf32>, tensor<64xf32>) outs(%block : tensor<64x16xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<64x16xf32>
  return %r : tensor<64x16xf32>
}

// A softcap's constant is folded as a scale is: 20 log2(e). Of products that may
// be beyond 2^31 nothing is, and the maximum is subtracted first.
// WIDE-LABEL: func @softcap(
// WIDE: fa.online_softmax {{.*}}subtract_first
// CHECK-LABEL: func @softcap(
// CHECK: scf.for
// CHECK: %[[T:.*]] = math.tanh
// CHECK-NEXT: linalg.yield %[[T]]
// CHECK: fa.online_softmax {{.*}} {log2_scale = {{28.85|2.885}}{{.*}} : f64, unnormalized}
func.func @softcap(%q: tensor<64x16xf32>, %k: tensor<128x16xf32>, %v: tensor<128x16xf32>) -> tensor<64x16xf32> {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %cap = arith.constant 20.0 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<64xf32>
  %tile = tensor.empty() : tensor<64x32xf32>
  %block = tensor.empty() : tensor<64x16xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<64x32xf32>) -> tensor<64x32xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<64x16xf32>) -> tensor<64x16xf32>
  %state:3 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%m = %m0, %l = %l0, %o = %o0) -> (tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>) {
    %kt = tensor.extract_slice %k[%j0, 0] [32, 16] [1, 1] : tensor<128x16xf32> to tensor<32x16xf32>
    %vt = tensor.extract_slice %v[%j0, 0] [32, 16] [1, 1] : tensor<128x16xf32> to tensor<32x16xf32>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<64x16xf32>, tensor<32x16xf32>) outs(%s0 : tensor<64x32xf32>) {
    ^bb0(%x: f32, %y: f32, %acc: f32):
      %product = arith.mulf %x, %y : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<64x32xf32>
    %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%products : tensor<64x32xf32>) outs(%tile : tensor<64x32xf32>) {
    ^bb0(%x: f32, %out: f32):
      %capped = arith.divf %x, %cap : f32
      %t = math.tanh %capped : f32
      %y = arith.mulf %t, %cap : f32
      linalg.yield %y : f32
    } -> tensor<64x32xf32>
    %next:3 = fa.online_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x16xf32>) outs(%m, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>) {unnormalized}
    scf.yield %next#0, %next#1, %next#2 : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<64x16xf32>, tensor<64xf32>) outs(%block : tensor<64x16xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<64x16xf32>
  return %r : tensor<64x16xf32>
}
