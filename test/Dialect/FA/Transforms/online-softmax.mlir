// RUN: fa-opt %s --fa-decompose --fa-online-softmax | FileCheck %s --check-prefix=ONE
// RUN: fa-opt %s --fa-decompose --fa-online-softmax=passes=2 | FileCheck %s --check-prefix=TWO

// One pass over the scores: the merge takes S and V, no exponential is left.
// ONE-LABEL: func @causal_dynamic
// ONE: scf.forall
// ONE: arith.select
// ONE: %[[NEG:.*]] = linalg.fill {{.*}} -> tensor<?xf32>
// ONE: %[[M:.*]], %[[L:.*]], %[[O:.*]] = fa.online_softmax ins(%{{.*}}, %{{.*}} : tensor<?x?xf32>, tensor<?x64xbf16>)
// ONE-NOT: math.exp
// ONE: math.log
// ONE-NOT: arith.maxnumf

// Two passes: maximum and sum in one reduction; P is still written.
// TWO-LABEL: func @causal_dynamic
// TWO: arith.maxnumf
// TWO: arith.truncf {{.*}} to bf16
// TWO: -> tensor<?x?xbf16>
// TWO-NOT: fa.online_softmax
func.func @causal_dynamic(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %v: tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125 mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>)
  return %o, %lse : tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>
}

// The pass takes what it finds: without the standard algorithm, nothing.
// ONE-LABEL: func @nothing_to_do
// ONE-NEXT: return
func.func @nothing_to_do(%x: f32) -> f32 {
  return %x : f32
}

// What decides on weights becomes the merge's region; the factor stays outside.
// Two passes keep it on P.
// ONE-LABEL: func @dropout
// ONE: fa.online_softmax ins({{.*}}) outs({{.*}}) keep {
// ONE-NEXT: ^bb0(%[[I:.*]]: index, %[[J:.*]]: index):
// ONE: fa.random_bits %{{.*}} at{{ ?}}[%{{.*}}, %{{.*}}, %[[I]], %[[J]]]
// ONE: fa.yield %{{.*}} : i1
// ONE: arith.mulf %{{.*}}, %cst
// TWO-LABEL: func @dropout
// TWO: fa.random_bits
// TWO: arith.select
// TWO-NOT: fa.online_softmax
func.func @dropout(%q: tensor<?x8x?x64xbf16>, %seed: tensor<i64>) -> tensor<?x8x?x64xbf16> {
  %o = fa.attention %q, %q, %q keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %limit = arith.constant 26 : i8
    %s = tensor.extract %seed[] : tensor<i64>
    %bits = fa.random_bits %s at [%b, %h, %i, %j]
    %kept = arith.cmpi uge, %bits, %limit : i8
    fa.yield %kept : i1
  } times 1.11 : (tensor<?x8x?x64xbf16>, tensor<?x8x?x64xbf16>, tensor<?x8x?x64xbf16>) -> tensor<?x8x?x64xbf16>
  return %o : tensor<?x8x?x64xbf16>
}
