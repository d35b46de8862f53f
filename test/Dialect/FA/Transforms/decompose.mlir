// RUN: fa-opt %s --fa-decompose --split-input-file | FileCheck %s

// The standard algorithm: S and P are values of full size, P in V's type.
// CHECK-LABEL: func @standard
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<2x3x33x16xf16>, %[[K:[a-z0-9]+]]: tensor<2x3x40x16xf16>, %[[V:[a-z0-9]+]]: tensor<2x3x40x24xf16>
// CHECK: scf.forall (%[[B:.*]], %[[H:.*]]) in (2, 3) shared_outs(%[[O:.*]] = %{{.*}})
// CHECK-DAG: tensor.extract_slice %[[Q]][%[[B]], %[[H]], 0, 0] [1, 1, 33, 16]
// CHECK-DAG: tensor.extract_slice %[[K]][%[[B]], %[[H]], 0, 0] [1, 1, 40, 16]
// CHECK-DAG: tensor.extract_slice %[[V]][%[[B]], %[[H]], 0, 0] [1, 1, 40, 24]
// QK^T, accumulated in f32:
// CHECK: linalg.generic {{.*}}"reduction"
// CHECK: arith.addf %{{.*}} : f32
// CHECK: -> tensor<33x40xf32>
// scale 1/sqrt(16):
// CHECK: arith.constant 2.500000e-01 : f32
// row maximum, exponentials, row sum:
// CHECK: arith.maxnumf
// CHECK: math.exp
// CHECK: arith.addf
// CHECK: arith.divf
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK: -> tensor<33x40xf16>
// PV:
// CHECK: linalg.generic {{.*}}"reduction"
// CHECK: -> tensor<33x24xf32>
// CHECK: scf.forall.in_parallel
// CHECK-NEXT: tensor.parallel_insert_slice %{{.*}} into %[[O]][%[[B]], %[[H]], 0, 0] [1, 1, 33, 24]
// CHECK-NOT: math.log
func.func @standard(%q: tensor<2x3x33x16xf16>, %k: tensor<2x3x40x16xf16>, %v: tensor<2x3x40x24xf16>) -> tensor<2x3x33x24xf16> {
  %o = fa.attention %q, %k, %v : (tensor<2x3x33x16xf16>, tensor<2x3x40x16xf16>, tensor<2x3x40x24xf16>) -> tensor<2x3x33x24xf16>
  return %o : tensor<2x3x33x24xf16>
}

// -----

// Scale before score before mask; the mask's select comes last.
// CHECK-LABEL: func @order_scale_score_mask
// CHECK: %[[SCALE:.*]] = arith.constant 3.000000e+00 : f32
// CHECK: %[[SCALED:.*]] = arith.mulf %{{.*}}, %[[SCALE]] : f32
// CHECK: %[[I:.*]] = linalg.index 0
// CHECK: %[[J:.*]] = linalg.index 1
// CHECK: %[[SCORE:.*]] = math.tanh %[[SCALED]] : f32
// CHECK: %[[SEEN:.*]] = arith.cmpi sle, %[[J]], %[[I]] : index
// CHECK: %[[NONE:.*]] = arith.constant 0xFF800000 : f32
// CHECK: %[[MASKED:.*]] = arith.select %[[SEEN]], %[[SCORE]], %[[NONE]] : f32
// CHECK: linalg.yield %[[MASKED]]
func.func @order_scale_score_mask(%q: tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32> {
  %o = fa.attention %q, %q, %q scale 3.0 score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %t = math.tanh %s : f32
    fa.yield %t : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32>
  return %o : tensor<1x1x8x16xf32>
}

// -----

// Four query heads read one key head; the LSE is stored; sizes come from the
// operands.
// CHECK-DAG: #[[GROUP:.*]] = affine_map<(d0) -> (d0 floordiv 4)>
// CHECK-LABEL: func @gqa_dynamic_lse
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<?x8x?x64xbf16>, %[[K:[a-z0-9]+]]: tensor<?x2x?x64xbf16>
// CHECK: scf.forall (%[[B:.*]], %[[H:.*]]) in (%{{.*}}, 8)
// CHECK: %[[HK:.*]] = affine.apply #[[GROUP]](%[[H]])
// CHECK: tensor.extract_slice %[[K]][%[[B]], %[[HK]], 0, 0]
// CHECK: math.log
// CHECK: scf.forall.in_parallel
// CHECK-NEXT: tensor.parallel_insert_slice {{.*}} into tensor<?x8x?x64xbf16>
// CHECK-NEXT: tensor.parallel_insert_slice {{.*}} into tensor<?x8x?xf32>
func.func @gqa_dynamic_lse(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>) {
  %o, %lse = fa.attention %q, %k, %k : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>)
  return %o, %lse : tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>
}

// -----

// A region may yield a value from above, or its own argument.
// CHECK-LABEL: func @yields_from_above
// CHECK-SAME: %{{.*}}: tensor<1x1x8x16xf32>, %[[BIAS:[a-z0-9]+]]: f32, %[[ALL:[a-z0-9]+]]: i1
// CHECK: arith.select %[[ALL]], %[[BIAS]], %{{.*}} : f32
func.func @yields_from_above(%q: tensor<1x1x8x16xf32>, %bias: f32, %all: i1) -> tensor<1x1x8x16xf32> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    fa.yield %bias : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    fa.yield %all : i1
  } : (tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32>
  return %o : tensor<1x1x8x16xf32>
}

// -----

// Two attentions, the second of which reads the first's result.
// CHECK-LABEL: func @chained
// CHECK: %[[O:.*]] = scf.forall
// CHECK: scf.forall
// CHECK: tensor.extract_slice %[[O]]
// CHECK-NOT: fa.attention
func.func @chained(%q: tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32> {
  %o = fa.attention %q, %q, %q : (tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32>
  %p = fa.attention %o, %q, %q : (tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32>
  return %p : tensor<1x1x8x16xf32>
}

// -----

// CHECK-LABEL: func @empty_batch
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in (0, 2)
func.func @empty_batch(%q: tensor<0x2x8x16xf32>) -> tensor<0x2x8x16xf32> {
  %o = fa.attention %q, %q, %q : (tensor<0x2x8x16xf32>, tensor<0x2x8x16xf32>, tensor<0x2x8x16xf32>) -> tensor<0x2x8x16xf32>
  return %o : tensor<0x2x8x16xf32>
}

// -----

// Sizes of captured tensors are computed once, before the loops, for the
// clamping of indices and for a region that asks for one.
// CHECK-LABEL: func @sizes_of_captured
// CHECK-SAME: %[[BIAS:[a-z0-9]+]]: tensor<?xf32>
// CHECK: tensor.dim %[[BIAS]]
// CHECK: tensor.dim %[[BIAS]]
// CHECK: scf.forall
// CHECK-NOT: tensor.dim %[[BIAS]]
// CHECK: tensor.extract %[[BIAS]]
func.func @sizes_of_captured(%q: tensor<1x1x8x16xf32>, %bias: tensor<?xf32>) -> tensor<1x1x8x16xf32> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %c0 = arith.constant 0 : index
    %size = tensor.dim %bias, %c0 : tensor<?xf32>
    %from_end = arith.subi %size, %j : index
    %x = tensor.extract %bias[%from_end] : tensor<?xf32>
    fa.yield %x : f32
  } : (tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32>
  return %o : tensor<1x1x8x16xf32>
}

// -----

// An index from 64 bits is saturated before it is one of 32, which would wrap.
// CHECK-LABEL: func @wide_index
// CHECK: %[[WIDE:.*]] = arith.addi %{{.*}}, %{{.*}} : i64
// CHECK: %[[MOST:.*]] = arith.constant 2147483647 : i64
// CHECK: %[[UPPER:.*]] = arith.minsi %[[WIDE]], %[[MOST]] : i64
// CHECK: %[[LEAST:.*]] = arith.constant -2147483648 : i64
// CHECK: %[[SATURATED:.*]] = arith.maxsi %[[UPPER]], %[[LEAST]] : i64
// CHECK: arith.index_cast %[[SATURATED]] : i64 to index
// CHECK: arith.minsi
// CHECK: arith.maxsi
// CHECK: tensor.extract
func.func @wide_index(%q: tensor<1x1x8x16xf32>, %table: tensor<?xi1>) -> tensor<1x1x8x16xf32> {
  %o = fa.attention %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %far = arith.constant 4294967296 : i64
    %wide = arith.index_cast %j : index to i64
    %sum = arith.addi %wide, %far : i64
    %at = arith.index_cast %sum : i64 to index
    %seen = tensor.extract %table[%at] : tensor<?xi1>
    fa.yield %seen : i1
  } : (tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32>
  return %o : tensor<1x1x8x16xf32>
}

// -----

// A bound on one side leaves the other one open: both are made.
// CHECK-LABEL: func @wide_index_bounded_below
// CHECK: %[[BELOW:.*]] = arith.maxsi %{{.*}}, %{{.*}} : i64
// CHECK: %[[MOST:.*]] = arith.constant 2147483647 : i64
// CHECK: %[[UPPER:.*]] = arith.minsi %[[BELOW]], %[[MOST]] : i64
// CHECK: %[[SATURATED:.*]] = arith.maxsi %[[UPPER]], %{{.*}} : i64
// CHECK: arith.index_cast %[[SATURATED]] : i64 to index
func.func @wide_index_bounded_below(%q: tensor<1x1x8x16xf32>, %table: tensor<?xi1>) -> tensor<1x1x8x16xf32> {
  %o = fa.attention %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %far = arith.constant 4294967296 : i64
    %zero = arith.constant 0 : i64
    %wide = arith.index_cast %j : index to i64
    %sum = arith.addi %wide, %far : i64
    %inside = arith.maxsi %sum, %zero : i64
    %at = arith.index_cast %inside : i64 to index
    %seen = tensor.extract %table[%at] : tensor<?xi1>
    fa.yield %seen : i1
  } : (tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32>
  return %o : tensor<1x1x8x16xf32>
}

// -----

// Of a value with a gradient of its own the value: nothing is differentiated any
// more, in a mask neither.
// CHECK-LABEL: func @values
// CHECK-NOT: fa.custom_gradient
// CHECK: math.roundeven
// CHECK-NOT: fa.custom_gradient
// CHECK: return
func.func @values(%q: tensor<1x1x8x16xf32>, %x: tensor<8xf32>) -> tensor<1x1x8x16xf32> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %r = math.roundeven %s : f32
    %y = fa.custom_gradient %r : f32 of %s : f32 gradient {
    ^bb1(%g: f32):
      fa.yield_gradients %g : f32
    }
    fa.yield %y : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%j] : tensor<8xf32>
    %c = fa.custom_gradient %a : f32
    %zero = arith.constant 0.0 : f32
    %seen = arith.cmpf ogt, %c, %zero : f32
    fa.yield %seen : i1
  } : (tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32>
  return %o : tensor<1x1x8x16xf32>
}
