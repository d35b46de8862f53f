// A pass that drops the rescale of the state is found and named, with the tile
// and the element.
// REQUIRES: fa-run
// RUN: not fa-run %s --check --each-stage --passes="fa-decompose,fa-online-softmax,fa-tile{rows=32 keys=32},fa-interchange,fa-defer-normalization,test-fa-break-rescale,fa-fuse" | FileCheck %s

// CHECK: fa-defer-normalization {{.*}} ok
// CHECK-NEXT: test-fa-break-rescale {{.*}} WRONG
// CHECK-NEXT: fa-fuse {{.*}} WRONG
// CHECK: first wrong stage: test-fa-break-rescale: result 0, tile 0 (rows 0 to 31) of batch 0, head 0, element [0, 0, {{[0-9]+}}, {{[0-9]+}}]: got {{.*}}, expected {{.*}} elements differ)
func.func @f(%q: tensor<1x2x70x32xf32>, %k: tensor<1x2x70x32xf32>,
             %v: tensor<1x2x70x32xf32>) -> tensor<1x2x70x32xf32> {
  %o = fa.attention %q, %k, %v
    : (tensor<1x2x70x32xf32>, tensor<1x2x70x32xf32>, tensor<1x2x70x32xf32>)
    -> tensor<1x2x70x32xf32>
  return %o : tensor<1x2x70x32xf32>
}
