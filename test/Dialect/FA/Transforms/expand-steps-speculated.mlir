// A step against a reference that earlier blocks gave, as --fa-speculate-max makes it of the
// inputs of speculate-max.mlir, in instructions.
// RUN: fa-opt %s --fa-expand-steps | FileCheck %s

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#plus = affine_map<(d0)[s0] -> (d0 + s0)>
#next = affine_map<(j) -> (j + 32)>

// The common path has neither maximum nor rescaling. Where blocks are wary, in
// the branch that masks, the reference moves before there are weights; what was
// summed follows after them. Weights that are out of range are made again, or
// shifted by a power of two where all are below 2^63, and say how long blocks
// are wary. What is summed is what the contraction reads.
// CHECK-LABEL: func @bf16
// CHECK-DAG: %[[LIMIT:.*]] = arith.constant 2.000000e+00 : bf16
// CHECK-DAG: %[[HEADROOM:.*]] = arith.constant 6.300000e+01 : f32
// CHECK-DAG: %[[FAR:.*]] = arith.constant 9.22337203E+18 : f32
// CHECK-DAG: %[[NO:.*]] = arith.constant false
// CHECK: scf.for %[[J:.*]] = %[[LB:.*]] to {{.*}} iter_args(%[[R:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[O:.*]] = %{{.*}}, %[[UNTIL:.*]] = %[[LB]])
// CHECK: %[[WARY:.*]] = arith.cmpi slt, %[[J]], %[[UNTIL]]
// CHECK: %[[CALM:.*]] = arith.cmpi sge, %[[J]], %[[UNTIL]]
// CHECK: %[[COMMON:.*]] = arith.andi %{{.*}}, %[[CALM]]
// CHECK: %[[MASKED:.*]]:4 = scf.if %[[COMMON]]
// CHECK-NEXT: scf.yield %{{.*}}, %[[R]], %[[NOTHING:.*]], %[[NO]]
// CHECK-NEXT: } else {
// CHECK: arith.cmpi sle
// CHECK: scf.if %[[WARY]]
// CHECK: arith.maxnumf
// CHECK: %[[MOVES:.*]] = tensor.extract
// CHECK: scf.if %[[MOVES]]
// CHECK: math.fma %{{.*}}, %{{.*}}, %[[HEADROOM]]
// CHECK: arith.subf
// CHECK-NEXT: math.exp2
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[R]], %[[NOTHING]]
// CHECK-NEXT: }
// CHECK: }
// CHECK: }
// CHECK-NOT: arith.max
// CHECK: ins(%[[MASKED]]#0, %{{.*}}
// CHECK: math.fma
// CHECK-NEXT: math.exp2
// CHECK: %[[P:.*]] = linalg.generic
// CHECK: arith.truncf
// CHECK: %[[SUMS:.*]]:2 = scf.if %[[MASKED]]#3
// CHECK: ins(%[[L]], %[[MASKED]]#2
// CHECK: ins(%[[O]], %[[MASKED]]#2
// CHECK: scf.yield %[[L]], %[[O]]
// CHECK: %[[TOP:.*]] = linalg.generic {{.*}} ins(%[[P]]
// CHECK: arith.maximumf
// CHECK: %[[NEED:.*]] = linalg.generic {{.*}} ins(%[[TOP]]
// CHECK: arith.cmpf uge, %{{.*}}, %[[LIMIT]] : bf16
// CHECK: %[[OR:.*]] = linalg.generic {{.*}} iterator_types = ["reduction"]} ins(%[[NEED]]
// CHECK: arith.ori
// CHECK: %[[ANY:.*]] = tensor.extract %[[OR]][]
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[J]], %[[LB]]
// CHECK: %[[GO:.*]] = arith.ori %[[FIRST]], %[[ANY]]
// CHECK: %[[NEW:.*]]:5 = scf.if %[[GO]]
// CHECK: %[[LARGEST:.*]] = linalg.generic {{.*}} ins(%[[P]]
// CHECK: arith.extf
// CHECK-NEXT: arith.maximumf
// CHECK: arith.cmpf uge, %{{.*}}, %[[FAR]] : f32
// CHECK: %[[AWAY:.*]] = arith.ori %[[FIRST]],
// CHECK: scf.if %[[AWAY]]
// CHECK: %[[MAX:.*]] = linalg.generic {{.*}} ins(%[[MASKED]]#0
// CHECK: arith.maxnumf
// CHECK: linalg.generic {{.*}} ins(%[[MAX]], %[[MASKED]]#1
// CHECK: math.fma %{{.*}}, %{{.*}}, %[[HEADROOM]]
// CHECK: ins(%[[MASKED]]#0,
// CHECK: arith.subf
// CHECK-NEXT: math.exp2
// CHECK: arith.select %[[FIRST]], %[[UNTIL]],
// CHECK: } else {
// CHECK-NOT: math.exp2
// CHECK: %[[UP:.*]] = linalg.generic {{.*}} ins(%[[LARGEST]]
// CHECK: %[[FACTOR:.*]] = linalg.generic {{.*}} ins(%[[UP]]
// CHECK: ins(%[[MASKED]]#1, %[[UP]]
// CHECK: arith.sitofp
// CHECK: ins(%[[P]], %[[FACTOR]]
// CHECK: ins(%[[SUMS]]#0, %[[FACTOR]]
// CHECK: ins(%[[SUMS]]#1, %[[FACTOR]]
// CHECK: }
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[SUMS]]#0, %[[SUMS]]#1, %[[MASKED]]#1, %[[P]], %[[UNTIL]]
// CHECK: ins(%[[NEW]]#3 : tensor<64x32xbf16>)
// CHECK: arith.extf
// CHECK: outs(%[[NEW]]#0 : tensor<64xf32>)
// CHECK: arith.addf
// CHECK: ins(%[[NEW]]#3, %{{.*}} : tensor<64x32xbf16>, {{.*}} outs(%[[NEW]]#1
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
  %ref0 = linalg.fill ins(%none : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<64x48xf32>) -> tensor<64x48xf32>
  %state:4 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%ref = %ref0, %l = %l0, %o = %o0, %until = %c0)
      -> (tensor<64xf32>, tensor<64xf32>, tensor<64x48xf32>, index) {
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
    %next:4 = fa.speculated_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x48xbf16>)
        outs(%ref, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x48xf32>)
        at %j0 from %c0 by %c32 until %until score {
    ^bb0(%score: f32, %row: index, %column: index):
      fa.yield %score : f32
    } {log2_scale = 0.18033688011112042, headroom = 6.300000e+01, limit = 2.000000e+00, far_limit = 9.2233720368547758E+18}
    scf.yield %next#0, %next#1, %next#2, %next#3 : tensor<64xf32>, tensor<64xf32>, tensor<64x48xf32>, index
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

// A step with a log-sum-exp has a sum of the weights before rounding, which of a block starts
// where the first addition is none.
// CHECK-LABEL: func @log_sum_exp
// CHECK-DAG: %[[NOTHING:.*]] = arith.constant -0.000000e+00 : f32
// CHECK: %[[PART:.*]] = linalg.fill ins(%[[NOTHING]] : f32)
// CHECK: %[[STATE:.*]]:5 = scf.for
// CHECK: math.exp2
// CHECK: linalg.generic {{.*}} outs(%[[PART]] : tensor<64xf32>)
// CHECK-NEXT: ^bb0
// CHECK-NEXT: arith.addf
// CHECK: %[[NEW:.*]]:7 = scf.if
// CHECK: ins(%[[NEW]]#5 : tensor<64x32xf32>) outs(%[[NEW]]#2 : tensor<64xf32>)
// CHECK: scf.yield
func.func @log_sum_exp(%q: tensor<64x64xbf16>, %k: tensor<128x64xbf16>, %v: tensor<128x64xbf16>) -> (tensor<64x64xf32>, tensor<64xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %vector = tensor.empty() : tensor<64xf32>
  %tile = tensor.empty() : tensor<64x32xf32>
  %block = tensor.empty() : tensor<64x64xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%tile : tensor<64x32xf32>) -> tensor<64x32xf32>
  %ref0 = linalg.fill ins(%none : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<64x64xf32>) -> tensor<64x64xf32>
  %state:5 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%ref = %ref0, %l = %l0, %o = %o0, %exact = %l0, %until = %c0)
      -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<64xf32>, index) {
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
    %next:5 = fa.speculated_softmax ins(%products, %vt : tensor<64x32xf32>, tensor<32x64xbf16>)
        outs(%ref, %l, %o, %exact : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<64xf32>)
        at %j0 from %c0 by %c32 until %until score {
    ^bb0(%score: f32, %row: index, %column: index):
      fa.yield %score : f32
    } {log2_scale = 0.18033688011112042, headroom = 6.300000e+01, limit = 2.000000e+00, far_limit = 9.2233720368547758E+18}
    scf.yield %next#0, %next#1, %next#2, %next#3, %next#4 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<64xf32>, index
  }
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%state#2, %state#1 : tensor<64x64xf32>, tensor<64xf32>) outs(%block : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<64x64xf32>
  return %r, %state#3 : tensor<64x64xf32>, tensor<64xf32>
}

// f16 has no room above the maximum and little below.
// CHECK-LABEL: func @f16
// CHECK-DAG: arith.constant 3.276800e+04 : f16
// CHECK: scf.for
// CHECK: math.tanh
// CHECK: arith.maximumf
// CHECK: scf.if
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
  %ref0 = linalg.fill ins(%none : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<64x64xf32>) -> tensor<64x64xf32>
  %state:4 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%ref = %ref0, %l = %l0, %o = %o0, %until = %c0)
      -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, index) {
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
    %next:4 = fa.speculated_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x64xf16>)
        outs(%ref, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>)
        at %j0 from %c0 by %c32 until %until score {
    ^bb0(%score: f32, %row: index, %column: index):
      fa.yield %score : f32
    } {log2_scale = 1.4426950408889634, headroom = 0.000000e+00, limit = 3.276800e+04, far_limit = 0.000000e+00}
    scf.yield %next#0, %next#1, %next#2, %next#3 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, index
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

// Scores that are sums: the branch that masks gives products of queries and
// keys alone. The bias is added where weights are made, with the reference in
// the same fma, and where the maximum is taken.
// CHECK-LABEL: func @bias
// CHECK-SAME: %[[SLOPE:[a-z0-9]+]]: f32, %{{.*}}: index)
// CHECK: scf.for
// CHECK: %[[S:.*]] = linalg.generic
// CHECK: %[[MASKED:.*]]:4 = scf.if
// CHECK-NEXT: scf.yield %[[S]], %[[R:.*]], %{{.*}}, %{{.*}}
// CHECK-NEXT: } else {
// CHECK: ^bb0(%[[X:.*]]: f32, %{{.*}}: f32):
// CHECK-NOT: arith.sitofp
// CHECK: arith.select %{{.*}}, %[[X]], %{{.*}} : f32
// CHECK: scf.if
// CHECK: arith.sitofp
// CHECK: arith.maxnumf
// CHECK: }
// CHECK: }
// CHECK: %[[SHIFT:.*]] = linalg.generic {{.*}} ins(%[[MASKED]]#1
// CHECK: arith.negf
// CHECK: ins(%[[MASKED]]#0, %[[SHIFT]]
// CHECK: ^bb0(%[[X:.*]]: f32, %[[REF:.*]]: f32, %{{.*}}: f32):
// CHECK: %[[P:.*]] = arith.mulf %[[X]],
// CHECK: %[[D:.*]] = arith.sitofp
// CHECK: %[[REST:.*]] = math.fma %[[SLOPE]], %[[D]], %[[REF]]
// CHECK: %[[E:.*]] = arith.addf %[[P]], %[[REST]]
// CHECK: math.exp2 %[[E]]
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
  %ref0 = linalg.fill ins(%none : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<64xf32>) -> tensor<64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%block : tensor<64x64xf32>) -> tensor<64x64xf32>
  %state:4 = scf.for %j0 = %c0 to %c128 step %c32 iter_args(%ref = %ref0, %l = %l0, %o = %o0, %until = %c0)
      -> (tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, index) {
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
    %next:4 = fa.speculated_softmax ins(%scores, %vt : tensor<64x32xf32>, tensor<32x64xbf16>)
        outs(%ref, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>)
        at %j0 from %c0 by %c32 until %until score {
    ^bb0(%score: f32, %row: index, %column: index):
      %scaled = arith.mulf %score, %scale : f32
      %i = affine.apply #plus(%i0)[%row]
      %j = affine.apply #plus(%j0)[%column]
      %d = arith.subi %j, %i : index
      %n = arith.index_cast %d : index to i32
      %f = arith.sitofp %n : i32 to f32
      %bias = arith.mulf %slope, %f : f32
      %y = arith.addf %scaled, %bias : f32
      fa.yield %y : f32
    } {log2_scale = 1.0, headroom = 6.300000e+01, limit = 2.000000e+00, far_limit = 9.2233720368547758E+18}
    scf.yield %next#0, %next#1, %next#2, %next#3 : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>, index
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
