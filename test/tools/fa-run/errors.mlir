// One clear message for each mistake on the command line.
// REQUIRES: fa-run
// RUN: not fa-run %s 2>&1 | FileCheck %s --check-prefix=SIZE
// RUN: not fa-run %s --shape "B=1,Sq=x" 2>&1 | FileCheck %s --check-prefix=SHAPE
// RUN: not fa-run %s --shape "B=2,Sq=3,Sk=3" 2>&1 | FileCheck %s --check-prefix=FIXED
// RUN: not fa-run %s --func=g 2>&1 | FileCheck %s --check-prefix=FUNC
// RUN: not fa-run %s --data=big 2>&1 | FileCheck %s --check-prefix=DATA
// RUN: not fa-run %s --shape "Sq=3,Sk=3" --passes=fa-nothing 2>&1 | FileCheck %s --check-prefix=PASS
// RUN: not fa-run %s --shape "Sq=3,Sk=3" --passes= 2>&1 | FileCheck %s --check-prefix=RAW
// RUN: not fa-run %t.none 2>&1 | FileCheck %s --check-prefix=FILE

// SIZE: error: dimension 2 of argument 0 is dynamic; give its size: --shape "Sq=..."
// SHAPE: error: expected --shape as "B=2,Sq=333" with sizes of at least 0, got 'Sq=x'
// FIXED: error: expected B=1, which the function fixes, got 2; make the dimension dynamic in the file
// FUNC: error: no function @g in the file; choose one that is there
// DATA: error: expected --data to be one of telling, normal, uniform, large, zero, got 'big'
// PASS: error: pass 'fa-nothing' is not known
// RAW: run fa-decompose or fa-reference first
// FILE: error: cannot open input file
func.func @f(%q: tensor<1x2x?x32xf32>, %k: tensor<1x2x?x32xf32>,
             %v: tensor<1x2x?x32xf32>) -> tensor<1x2x?x32xf32> {
  %o = fa.attention %q, %k, %v
    : (tensor<1x2x?x32xf32>, tensor<1x2x?x32xf32>, tensor<1x2x?x32xf32>)
    -> tensor<1x2x?x32xf32>
  return %o : tensor<1x2x?x32xf32>
}
