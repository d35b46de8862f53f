// Keys come in descending order where the maximum is speculated, and in ascending order
// where it is not or where that is asked for. Additions of a gradient have an order where
// it is deterministic.
// RUN: fa-opt %s --fa-pipeline="rows=128 keys=64 speculate=on stop-after=fa-order-keys" | FileCheck %s --check-prefix=DOWN
// RUN: fa-opt %s --fa-pipeline="rows=128 keys=64 order=ascending speculate=on stop-after=fa-order-keys" | FileCheck %s --check-prefix=UP
// RUN: fa-opt %s --fa-pipeline="rows=128 keys=64 order=ascending stop-after=fa-order-keys" | FileCheck %s --check-prefix=UP
// RUN: fa-opt %s --fa-pipeline="rows=128 keys=64 stop-after=fa-order-keys" | FileCheck %s --check-prefix=UP
// RUN: fa-opt %s --fa-pipeline="target=sm_80 backward=all deterministic=true" | FileCheck %s --check-prefix=ORDERED
// RUN: fa-opt %s --fa-pipeline="target=sm_80 backward=all" | FileCheck %s --check-prefix=UNORDERED

// DOWN: scf.for %
// DOWN: scf.for %[[N:[a-z0-9]+]] = %c0 to
// DOWN-NEXT: %[[J:.*]] = arith.subi %{{.*}}, %[[N]]
// DOWN: tensor.extract_slice %{{.*}}[%{{.*}}, %{{.*}}, %[[J]], 0]
// UP: scf.for %
// UP: scf.for %[[N:[a-z0-9]+]] = %c0 to
// UP: tensor.extract_slice %{{.*}}[%{{.*}}, %{{.*}}, %[[N]], 0]
// ORDERED: fa.accumulate_slice {{.*}} {ordered =
// UNORDERED: fa.accumulate_slice
// UNORDERED-NOT: ordered =
func.func @alibi(%q: tensor<1x2x512x64xf32>) -> tensor<1x2x512x64xf32> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %n = arith.index_cast %h : index to i32
    %f = arith.sitofp %n : i32 to f32
    %minus = arith.negf %f : f32
    %slope = math.exp2 %minus : f32
    %d = arith.subi %j, %i : index
    %m = arith.index_cast %d : index to i32
    %g = arith.sitofp %m : i32 to f32
    %bias = arith.mulf %slope, %g : f32
    %y = arith.addf %s, %bias : f32
    fa.yield %y : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>) -> tensor<1x2x512x64xf32>
  return %o : tensor<1x2x512x64xf32>
}
