// Mistakes in gradients are found and named. PlantBug.cpp has the mistakes.
// REQUIRES: fa-run, ci
//
// DEFINE: %{bug} =
// DEFINE: %{before} =
// DEFINE: %{after} =
// DEFINE: %{run} = not fa-run %s --backward --check --passes="%{before}test-fa-plant{bug=%{bug}}%{after}" | FileCheck %s
//
// In the derivative, which is made of rules.
// REDEFINE: %{after} = ,fa-decompose
// REDEFINE: %{bug} = adjoint
// RUN: %{run}
// REDEFINE: %{bug} = place
// RUN: %{run}
//
// In the standard algorithm.
// REDEFINE: %{before} = fa-decompose,
// REDEFINE: %{after} =
// REDEFINE: %{bug} = scale
// RUN: %{run}
// REDEFINE: %{bug} = mask
// RUN: %{run}
// REDEFINE: %{bug} = delta
// RUN: %{run}
// REDEFINE: %{bug} = sum
// RUN: %{run}
//
// In tiles.
// REDEFINE: %{before} = fa-decompose,fa-tile{rows=32 keys=32},
// REDEFINE: %{bug} = bound
// RUN: %{run}
// REDEFINE: %{bug} = delta
// RUN: %{run}
//
// The pass is named that made it.
// RUN: not fa-run %s --backward --check --each-stage --passes="fa-decompose,test-fa-plant{bug=delta},fa-tile{rows=32 keys=32}" | FileCheck %s --check-prefix=STAGE
// STAGE: fa-decompose {{.*}} ok
// STAGE-NEXT: test-fa-plant {{.*}} WRONG
// STAGE: first wrong stage: test-fa-plant: result {{.*}}: got {{.*}}, expected {{.*}} elements differ)
//
// CHECK: WRONG

func.func @f(%q: tensor<1x2x70x32xbf16>, %k: tensor<1x2x70x32xbf16>, %v: tensor<1x2x70x32xbf16>, %bias: tensor<2x70xf32>) -> tensor<1x2x70x32xbf16> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %t = math.tanh %s : f32
    %x = tensor.extract %bias[%h, %j] : tensor<2x70xf32>
    %y = arith.addf %t, %x : f32
    fa.yield %y : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x2x70x32xbf16>, tensor<1x2x70x32xbf16>, tensor<1x2x70x32xbf16>) -> tensor<1x2x70x32xbf16>
  return %o : tensor<1x2x70x32xbf16>
}
