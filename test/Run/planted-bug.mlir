// Mistakes that a pass makes are found and named, with the tile and the
// element: in bf16, where rounding hides most, with a log-sum-exp and without,
// early and late. PlantBug.cpp has the mistakes.
// REQUIRES: fa-run, ci
// RUN: split-file %s %t
//
// DEFINE: %{tiled} = ,fa-online-softmax,fa-tile{rows=32 keys=32},fa-interchange
// DEFINE: %{late} = ,fa-online-softmax,fa-tile{rows=32 keys=32},fa-interchange,fa-pad-tiles,fa-split-mask-loops,fa-order-keys,fa-defer-normalization,fa-expand-steps
// DEFINE: %{last} = ,fa-online-softmax,fa-tile{rows=32 keys=32},fa-interchange,fa-pad-tiles,fa-split-mask-loops,fa-order-keys,fa-defer-normalization,fa-fuse,fa-fold-scale-exp2,fa-expand-steps
// DEFINE: %{speculated} = ,fa-online-softmax,fa-tile{rows=32 keys=32},fa-interchange,fa-pad-tiles,fa-split-mask-loops,fa-order-keys,fa-defer-normalization,fa-fuse,fa-fold-scale-exp2,fa-speculate-max,fa-expand-steps
// DEFINE: %{bug} =
// DEFINE: %{f} = f
// DEFINE: %{before} =
// DEFINE: %{after} =
// DEFINE: %{run} = not fa-run %t/%{f}.mlir --check --passes="fa-decompose%{before},test-fa-plant{bug=%{bug}}%{after}" | FileCheck %s
//
// The pass is named that made it.
// RUN: not fa-run %t/f.mlir --check --each-stage --passes="fa-decompose,fa-online-softmax,fa-tile{rows=32 keys=32},fa-interchange,fa-defer-normalization,fa-expand-steps,test-fa-plant{bug=rescale},fa-fuse" | FileCheck %s --check-prefix=STAGE
//
// The standard algorithm, and what follows from it.
// REDEFINE: %{after} = ,fa-online-softmax
// REDEFINE: %{bug} = scale
// RUN: %{run}
// REDEFINE: %{bug} = mask
// RUN: %{run}
// REDEFINE: %{bug} = lse
// RUN: %{run}
// REDEFINE: %{bug} = group
// RUN: %{run}
// REDEFINE: %{after} =
// REDEFINE: %{bug} = sum
// RUN: %{run}
// REDEFINE: %{bug} = precision
// RUN: %{run}
//
// Tiles.
// REDEFINE: %{before} = %{tiled}
// REDEFINE: %{after} = ,fa-defer-normalization,fa-fuse
// REDEFINE: %{bug} = bound
// RUN: %{run}
// REDEFINE: %{bug} = scale
// RUN: %{run}
// REDEFINE: %{bug} = mask
// RUN: %{run}
// REDEFINE: %{bug} = lse
// RUN: %{run}
//
// The merge written out.
// REDEFINE: %{before} = %{late}
// REDEFINE: %{after} = ,fa-fuse
// REDEFINE: %{bug} = rescale
// RUN: %{run}
// REDEFINE: %{bug} = sum
// RUN: %{run}
// REDEFINE: %{bug} = bound
// RUN: %{run}
// REDEFINE: %{bug} = precision
// RUN: %{run}
//
// In base 2, and with a speculated maximum.
// REDEFINE: %{before} = %{last}
// REDEFINE: %{after} =
// REDEFINE: %{bug} = scale
// RUN: %{run}
// REDEFINE: %{bug} = rescale
// RUN: %{run}
// REDEFINE: %{bug} = lse
// RUN: %{run}
// REDEFINE: %{before} = %{speculated}
// REDEFINE: %{bug} = scale
// RUN: %{run}
// REDEFINE: %{bug} = bound
// RUN: %{run}
// REDEFINE: %{bug} = lse
// RUN: %{run}
//
// Without a log-sum-exp, the output alone has to show it.
// REDEFINE: %{f} = output
// REDEFINE: %{before} = %{last}
// REDEFINE: %{bug} = scale
// RUN: %{run}
// REDEFINE: %{bug} = rescale
// RUN: %{run}
// REDEFINE: %{bug} = sum
// RUN: %{run}
// REDEFINE: %{bug} = precision
// RUN: %{run}
// REDEFINE: %{bug} = bound
// RUN: %{run}
//
// Normal values would have hidden some of these.
// RUN: fa-run %t/output.mlir --check --data=normal --seed=2 --passes="fa-decompose,test-fa-plant{bug=sum}" | FileCheck %s --check-prefix=HIDDEN
// RUN: not fa-run %t/output.mlir --check --seed=2 --passes="fa-decompose,test-fa-plant{bug=sum}" | FileCheck %s
// HIDDEN: {{ ok$}}
//
// A mistake that can't be made, and one that nobody knows.
// RUN: not fa-run %t/f.mlir --check --passes="fa-decompose,test-fa-plant{bug=bound}" 2>&1 | FileCheck %s --check-prefix=NOTHING
// RUN: not fa-run %t/f.mlir --check --passes="fa-decompose,test-fa-plant{bug=typo}" 2>&1 | FileCheck %s --check-prefix=TYPO
// NOTHING: found nothing to break by 'bound'; plant it after another pass
// TYPO: expected a bug that can be planted, got 'typo'; add it to PlantBug.cpp

// CHECK: WRONG
// CHECK: first wrong stage: {{.*}}: result {{[01]}}, tile {{[0-9]+}} (rows {{[0-9]+}} to {{[0-9]+}}) of batch 0, head {{[0-9]+}}, element [0, {{.*}}]: got {{.*}}, expected {{.*}} elements differ)

// STAGE: fa-expand-steps {{.*}} ok
// STAGE-NEXT: test-fa-plant {{.*}} WRONG
// STAGE-NEXT: fa-fuse {{.*}} WRONG
// STAGE: first wrong stage: test-fa-plant: result 0, tile 0 (rows 0 to 31) of batch 0, head 0, element [0, 0, {{[0-9]+}}, {{[0-9]+}}]: got {{.*}}, expected {{.*}} elements differ)

//--- f.mlir
func.func @f(%q: tensor<1x4x70x32xbf16>, %k: tensor<1x2x100x32xbf16>,
             %v: tensor<1x2x100x32xbf16>)
    -> (tensor<1x4x70x32xbf16>, tensor<1x4x70xf32>) {
  %o, %lse = fa.attention %q, %k, %v
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %c40 = arith.constant 40 : index
      %d = arith.subi %j, %i : index
      %seen = arith.cmpi sle, %d, %c40 : index
      fa.yield %seen : i1
    } : (tensor<1x4x70x32xbf16>, tensor<1x2x100x32xbf16>, tensor<1x2x100x32xbf16>)
    -> (tensor<1x4x70x32xbf16>, tensor<1x4x70xf32>)
  return %o, %lse : tensor<1x4x70x32xbf16>, tensor<1x4x70xf32>
}

//--- output.mlir
func.func @output(%q: tensor<1x2x100x64xbf16>, %k: tensor<1x2x300x64xbf16>,
                  %v: tensor<1x2x300x64xbf16>) -> tensor<1x2x100x64xbf16> {
  %o = fa.attention %q, %k, %v
    : (tensor<1x2x100x64xbf16>, tensor<1x2x300x64xbf16>, tensor<1x2x300x64xbf16>)
    -> tensor<1x2x100x64xbf16>
  return %o : tensor<1x2x100x64xbf16>
}
