// RUN: fa-opt %s --fa-pipeline="target=cpu" | FileCheck %s --check-prefix=WHOLE
// RUN: fa-opt %s --fa-pipeline="target=sm_90a stop-after=fa-decompose" | FileCheck %s --check-prefix=DECOMPOSE
// RUN: fa-opt %s --fa-pipeline="target=sm_80 stop-after=fa-interchange rows=64 keys=32" | FileCheck %s --check-prefix=INTERCHANGE
// RUN: fa-opt %s --fa-pipeline="target=sm_80 algorithm=standard" | FileCheck %s --check-prefix=STANDARD
// RUN: fa-opt %s --fa-pipeline="target=sm_80 algorithm=fa1" | FileCheck %s --check-prefix=FA1
// RUN: not fa-opt %s --fa-pipeline="target=sm_80 stop-after=fa-nothing" 2>&1 | FileCheck %s --check-prefix=NOSTAGE
// RUN: not fa-opt %s --fa-pipeline="target=sm_80 algorithm=fa7" 2>&1 | FileCheck %s --check-prefix=NOALGORITHM
// RUN: not fa-opt %s --fa-pipeline="target=cpu rows=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: fa-opt %s --fa-pipeline="target=sm_90a" | FileCheck %s --check-prefix=SPECULATES
// RUN: fa-opt %s --fa-pipeline="target=sm_90a speculate=off" | FileCheck %s --check-prefix=CLASSIC
// RUN: fa-opt %s --fa-pipeline="target=sm_90a algorithm=fa1" | FileCheck %s --check-prefix=CLASSIC
// RUN: fa-opt %s --fa-pipeline="target=sm_80" | FileCheck %s --check-prefix=CLASSIC
// RUN: not fa-opt %s --fa-pipeline="speculate=maybe" 2>&1 | FileCheck %s --check-prefix=NOSPECULATE
// RUN: not fa-opt %s --fa-pipeline="algorithm=fa1 speculate=on" 2>&1 | FileCheck %s --check-prefix=FA1SPECULATE
// RUN: not fa-opt %s --fa-pipeline="order=down" 2>&1 | FileCheck %s --check-prefix=NOORDER
// RUN: not fa-opt %s --fa-pipeline="algorithm=fa1 order=descending" 2>&1 | FileCheck %s --check-prefix=FA1ORDER
// RUN: not fa-opt %s --fa-pipeline="target=sm_80 backward=all deterministic=maybe" 2>&1 | FileCheck %s --check-prefix=NODETERMINISTIC

// WHOLE: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) =
// WHOLE: fa.online_softmax {{.*}} {log2_scale =
// DECOMPOSE: scf.forall (%{{.*}}, %{{.*}}) in
// DECOMPOSE: -> tensor<?x?xf32>
// DECOMPOSE-NOT: fa.online_softmax
// INTERCHANGE: step %c64
// INTERCHANGE: step %c32
// INTERCHANGE: fa.online_softmax
// STANDARD: scf.forall
// STANDARD: scf.forall
// FA1: scf.forall
// NOSTAGE: no stage 'fa-nothing' to stop after; the stages of algorithm fa2 are fa-decompose
// NOALGORITHM: unknown algorithm 'fa7'; expected standard, fa1 or fa2
// NEGATIVE: expected tile sizes of at least 1, or 0 to choose, got rows=-1 keys=0
// SPECULATES: fa.speculated_softmax
// CLASSIC-NOT: fa.speculated_softmax
// NOSPECULATE: unknown speculate 'maybe'; expected auto, on or off
// FA1SPECULATE: expected speculate auto or off with algorithm fa1, got on
// NOORDER: unknown order 'down'; expected auto, ascending or descending
// FA1ORDER: expected order auto or ascending with algorithm fa1, got descending; only fa2 has a loop over keys in a block of rows
// NODETERMINISTIC: deterministic
func.func @causal_dynamic(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %v: tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125 mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>)
  return %o, %lse : tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>
}
