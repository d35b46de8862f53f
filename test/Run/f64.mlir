// Attention over f64 computes in f64, at every stage; its tensors have 8 bytes an element.

// REQUIRES: fa-run, ci
// RUN: fa-run %s --check --each-stage --io --shape=Sq=67,Sk=131 | FileCheck %s
// RUN: fa-run %s --check --each-stage --algorithm=fa1 --shape=Sq=67,Sk=131 | FileCheck %s --check-prefix=FA1
// RUN: fa-run %s --check --each-stage --algorithm=standard --shape=Sq=67,Sk=131 | FileCheck %s --check-prefix=FA1
// RUN: fa-run %s --check --each-stage --backward --shape=Sq=67,Sk=131 | FileCheck %s --check-prefix=BACKWARD
// RUN: fa-run %s --check --backward --algorithm=standard --shape=Sq=67,Sk=131 | FileCheck %s --check-prefix=FA1
// RUN: not fa-opt %s --fa-pipeline="target=sm_80" 2>&1 | FileCheck %s --check-prefix=GPU
// RUN: not fa-opt %s --fa-pipeline="target=sm_80 rows=64 keys=64" 2>&1 | FileCheck %s --check-prefix=GPU
// RUN: not fa-opt %s --fa-pipeline="target=sm_80 algorithm=standard" 2>&1 | FileCheck %s --check-prefix=GPU
// RUN: not fa-opt %s --fa-pipeline="target=sm_80 backward=all" 2>&1 | FileCheck %s --check-prefix=GPU

// CHECK: fa-decompose {{.*e-1[4-6] .*e-12 .*e-1[4-6]  *ok}}
// CHECK: fa-tile {{.*e-1[4-6] .*e-12 .*e-1[4-6]  *ok}}
// 2 * 4 * 67 rows of 24 outputs and one log-sum-exp.
// CHECK: fa-fuse {{.*e-1[4-6] .*e-12 .*e-1[4-6]  *ok .* 104.7 KiB  *0 B}}
// CHECK: fa-fold-scale-exp2 {{.*e-1[4-6] .*e-12 .*e-1[4-6]  *ok}}
// FA1-NOT: WRONG
// FA1: ok
// BACKWARD: fa-decompose {{.*}} ok
// BACKWARD: fa-split-mask-loops {{.*}} ok
// GPU: expected query, key and value of at most 32 bits on sm_80, got f64; convert them to f32, or compile for cpu, which computes in f64

func.func @a(%q: tensor<2x4x?x40xf64>, %k: tensor<2x2x?x40xf64>, %v: tensor<2x2x?x24xf64>, %bias: tensor<4xf64>) -> (tensor<2x4x?x24xf64>, tensor<2x4x?xf64>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.17
    score {
    ^bb0(%s: f64, %b: index, %h: index, %i: index, %j: index):
      %x = tensor.extract %bias[%h] : tensor<4xf64>
      %c = arith.constant 0.1 : f64
      %m = arith.mulf %s, %c : f64
      %t = math.tanh %m : f64
      %y = arith.addf %t, %x : f64
      %z = arith.addf %y, %s : f64
      fa.yield %z : f64
    }
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (tensor<2x4x?x40xf64>, tensor<2x2x?x40xf64>, tensor<2x2x?x24xf64>) -> (tensor<2x4x?x24xf64>, tensor<2x4x?xf64>)
  return %o, %lse : tensor<2x4x?x24xf64>, tensor<2x4x?xf64>
}
