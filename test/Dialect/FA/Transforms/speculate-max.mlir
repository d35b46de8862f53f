// RUN: fa-opt %s --fa-pipeline="target=cpu rows=64 keys=32 speculate=on" --split-input-file -o %t.mlir
// RUN: FileCheck %s --check-prefix=STEP --input-file=%t.mlir
// RUN: fa-opt %t.mlir --fa-expand-steps --split-input-file | FileCheck %s

// The common path has neither maximum nor rescaling. Where blocks are wary, in
// the branch that masks, the reference moves before there are weights; what was
// summed follows after them. Weights that are out of range are made again, or
// shifted by a power of two where all are below 2^63, and say how long blocks
// are wary. What is summed is what the contraction reads.
// STEP-LABEL: func @bf16
// STEP: scf.for %[[J:.*]] = %[[LB:.*]] to %{{.*}} step %[[STEP:.*]] iter_args({{.*}}, %[[UNTIL:.*]] = %[[LB]])
// STEP: %[[S:.*]] = scf.if
// STEP: %{{.*}}:3, %[[NEXT:.*]] = fa.speculated_softmax ins(%[[S]], {{.*}} at %[[J]] from %[[LB]] by %[[STEP]] until %[[UNTIL]] score {
// STEP-NEXT: ^bb0(%[[X:.*]]: f32,
// STEP-NEXT: fa.yield %[[X]]
// STEP-NEXT: } {far_limit = 9.22{{.*}}E+18 : f64, headroom = 6.300000e+01 : f64, limit = 2.000000e+00 : f64, log2_scale = 0.1803{{[0-9]+}} : f64}
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
// CHECK-NOT: math.log2
func.func @bf16(%q: tensor<1x8x?x64xbf16>, %k: tensor<1x2x?x64xbf16>, %v: tensor<1x2x?x48xbf16>) -> tensor<1x8x?x48xbf16> {
  %o = fa.attention %q, %k, %v scale 0.125 mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x8x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x48xbf16>) -> tensor<1x8x?x48xbf16>
  return %o : tensor<1x8x?x48xbf16>
}

// -----

// A log-sum-exp has a sum of the weights before rounding, which of a block
// starts where the first addition is none; the division has the other one.
// STEP-LABEL: func @log_sum_exp
// STEP: %{{.*}}:4, %{{.*}} = fa.speculated_softmax
// CHECK-LABEL: func @log_sum_exp
// CHECK-DAG: %[[LN2:.*]] = arith.constant 0.69314{{.*}} : f32
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
// CHECK: ins(%[[STATE]]#2, %[[STATE]]#1
// CHECK: arith.divf
// CHECK: ins(%[[STATE]]#0, %[[STATE]]#3
// CHECK: math.log2
// CHECK-NEXT: arith.addf
// CHECK-NEXT: arith.mulf %{{.*}}, %[[LN2]]
func.func @log_sum_exp(%q: tensor<1x1x128x64xbf16>) -> (tensor<1x1x128x64xbf16>, tensor<1x1x128xf32>) {
  %o, %lse = fa.attention %q, %q, %q : (tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>) -> (tensor<1x1x128x64xbf16>, tensor<1x1x128xf32>)
  return %o, %lse : tensor<1x1x128x64xbf16>, tensor<1x1x128xf32>
}

// -----

// f16 has no room above the maximum and little below.
// CHECK-LABEL: func @f16
// CHECK-DAG: arith.constant 3.276800e+04 : f16
// CHECK: scf.for
// CHECK: math.tanh
// CHECK: arith.maximumf
// CHECK: scf.if
func.func @f16(%q: tensor<1x1x128x64xf16>) -> tensor<1x1x128x64xf16> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %t = math.tanh %s : f32
    fa.yield %t : f32
  } : (tensor<1x1x128x64xf16>, tensor<1x1x128x64xf16>, tensor<1x1x128x64xf16>) -> tensor<1x1x128x64xf16>
  return %o : tensor<1x1x128x64xf16>
}

// -----

// Scores that are sums: the branch that masks gives products of queries and
// keys alone. The bias is added where weights are made, with the reference in
// the same fma, and where the maximum is taken.
// STEP-LABEL: func @bias
// STEP: fa.speculated_softmax {{.*}} score {
// STEP-NEXT: ^bb0(%[[X:.*]]: f32, %[[ROW:.*]]: index, %[[COLUMN:.*]]: index):
// STEP: arith.sitofp
// STEP: arith.addf
// STEP: log2_scale = 1.000000e+00 : f64
// CHECK-LABEL: func @bias
// CHECK: %[[SLOPE:.*]] = arith.mulf
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
func.func @bias(%q: tensor<1x2x128x64xbf16>, %slopes: tensor<2xf32>) -> tensor<1x2x128x64xbf16> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %slope = tensor.extract %slopes[%h] : tensor<2xf32>
    %d = arith.subi %j, %i : index
    %n = arith.index_cast %d : index to i32
    %f = arith.sitofp %n : i32 to f32
    %bias = arith.mulf %slope, %f : f32
    %y = arith.addf %s, %bias : f32
    fa.yield %y : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x2x128x64xbf16>, tensor<1x2x128x64xbf16>, tensor<1x2x128x64xbf16>) -> tensor<1x2x128x64xbf16>
  return %o : tensor<1x2x128x64xbf16>
}

// -----

// A bias that may not be finite where nothing is seen stays under the mask.
// CHECK-LABEL: func @not_finite
// CHECK: scf.for
// CHECK: scf.if
// CHECK: math.log
// CHECK: else
// CHECK: math.log
// CHECK: arith.select
// CHECK: scf.if
// CHECK-NOT: math.log
// CHECK: return
func.func @not_finite(%q: tensor<1x2x128x64xbf16>) -> tensor<1x2x128x64xbf16> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %d = arith.subi %i, %j : index
    %n = arith.index_cast %d : index to i32
    %f = arith.sitofp %n : i32 to f32
    %log = math.log %f : f32
    %two = arith.constant 2.0 : f32
    %bias = arith.mulf %log, %two : f32
    %y = arith.addf %s, %bias : f32
    fa.yield %y : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi slt, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x2x128x64xbf16>, tensor<1x2x128x64xbf16>, tensor<1x2x128x64xbf16>) -> tensor<1x2x128x64xbf16>
  return %o : tensor<1x2x128x64xbf16>
}
