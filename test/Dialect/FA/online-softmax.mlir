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
