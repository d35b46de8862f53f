// A division that is the same for all keys, of those that a row sees: not the first ones.
// REQUIRES: fa-run, ci
// RUN: fa-run --optimize=3 %s --check --each-stage --seed=1 --shape=B=2,Sq=20,Sk=40,arg3.0=200 | FileCheck %s
// RUN: fa-run --optimize=3 %s --backward --check --seed=1 --shape=B=2,Sq=20,Sk=40,arg3.0=200 | FileCheck %s

// CHECK-NOT: WRONG
// CHECK: {{fa-fold-scale-exp2|fa-split-mask-loops}} {{.*}} ok
!t = tensor<?x1x?x16xf32>
func.func @attention(%q: !t, %k: !t, %v: !t, %table: tensor<?x3xf32>) -> !t {
  %o = fa.attention %q, %k, %v scale 0.25
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c1 = arith.constant 1 : index
      %n = arith.maxsi %b, %c1 : index
      %x = arith.index_cast %b : index to i32
      %y = arith.index_cast %n : index to i32
      %r = arith.remui %x, %y : i32
      %at = arith.index_cast %r : i32 to index
      %z = tensor.extract %table[%at, %c1] : tensor<?x3xf32>
      %t = arith.mulf %s, %z : f32
      fa.yield %t : f32
    }
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %i, %j : index
      fa.yield %seen : i1
    }
    : (!t, !t, !t) -> !t
  return %o : !t
}
