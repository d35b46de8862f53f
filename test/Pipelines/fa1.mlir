// Tiles of FlashAttention's first order fill the on-chip memory, and the kernels around them have
// their rows.
// RUN: fa-opt %s --fa-pipeline="target=sm_80 algorithm=fa1" | FileCheck %s

// CHECK: scf.forall {{.*}} step (1, 1, 64)
// CHECK: scf.for {{.*}} step %c144
// CHECK: scf.for {{.*}} step %c64
func.func @heads(%q: tensor<1x4x?x128xbf16>, %k: tensor<1x4x?x128xbf16>, %v: tensor<1x4x?x128xbf16>) -> tensor<1x4x?x128xbf16> {
  %o = fa.attention %q, %k, %v : (tensor<1x4x?x128xbf16>, tensor<1x4x?x128xbf16>, tensor<1x4x?x128xbf16>) -> tensor<1x4x?x128xbf16>
  return %o : tensor<1x4x?x128xbf16>
}
