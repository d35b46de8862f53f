// Every stage computes the same: dynamic sizes that no tile divides, grouped
// heads, a row that sees nothing, a value dim other than the head dim.
// REQUIRES: fa-run
// RUN: fa-run %s --func=grouped --check --each-stage --threads=2 --shape "B=1,Sq=333,Sk=130" | FileCheck %s
// RUN: fa-run %s --func=grouped --check --each-stage --shape "B=2,Sq=17,Sk=33" --layout=strided --rows=16 --keys=16 | FileCheck %s
// RUN: fa-run %s --func=grouped --check --shape "B=1,Sq=1,Sk=1" | FileCheck %s --check-prefix=ONE
// RUN: fa-run %s --func=grouped --check --shape "B=0,Sq=5,Sk=5" | FileCheck %s --check-prefix=ONE
// RUN: fa-run %s --func=grouped --check --shape "B=1,Sq=3,Sk=0" | FileCheck %s --check-prefix=ONE
// RUN: fa-run %s --func=grouped --check --each-stage --vector-bits=128 --shape "B=1,Sq=37,Sk=70" | FileCheck %s
// RUN: fa-run %s --func=wide --check --each-stage --vector-bits=256 --shape "B=1,Sq=70,Sk=100" | FileCheck %s
// RUN: fa-run %s --func=wide --check --each-stage --shape "B=1,Sq=70,Sk=100" --layout=bshd | FileCheck %s
// RUN: fa-run %s --func=narrow --check --each-stage --shape "B=1,Sq=33,Sk=70" --data=large | FileCheck %s

// One query takes the memory of one row, and no copy of a whole tile of keys.
// RUN: fa-run %s --func=wide --check --threads=1 --shape "B=1,Sq=1,Sk=1024" | FileCheck %s --check-prefix=ROW

// ROW: fa-fold-scale-exp2 {{.* [0-9]\.[0-9] KiB .* ok}}
// CHECK-NOT: WRONG
// CHECK: fa-decompose {{.*}} ok
// CHECK: fa-tile {{.*}} ok
// CHECK: fa-fuse {{.*}} ok
// CHECK-NOT: WRONG
// ONE: {{ ok$}}

func.func @grouped(%q: tensor<?x4x?x64xf32>, %k: tensor<?x2x?x64xf32>,
                   %v: tensor<?x2x?x40xf32>)
    -> (tensor<?x4x?x40xf32>, tensor<?x4x?xf32>) {
  %o, %lse = fa.attention %q, %k, %v
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi slt, %j, %i : index
      fa.yield %seen : i1
    } : (tensor<?x4x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x40xf32>)
     -> (tensor<?x4x?x40xf32>, tensor<?x4x?xf32>)
  return %o, %lse : tensor<?x4x?x40xf32>, tensor<?x4x?xf32>
}

func.func @wide(%q: tensor<?x2x?x128xbf16>, %k: tensor<?x2x?x128xbf16>,
                %v: tensor<?x2x?x128xbf16>) -> tensor<?x2x?x128xbf16> {
  %o = fa.attention %q, %k, %v
    : (tensor<?x2x?x128xbf16>, tensor<?x2x?x128xbf16>, tensor<?x2x?x128xbf16>)
    -> tensor<?x2x?x128xbf16>
  return %o : tensor<?x2x?x128xbf16>
}

func.func @narrow(%q: tensor<?x2x?x16xf16>, %k: tensor<?x2x?x16xf16>,
                  %v: tensor<?x2x?x80xf16>) -> tensor<?x2x?x80xf16> {
  %o = fa.attention %q, %k, %v
    : (tensor<?x2x?x16xf16>, tensor<?x2x?x16xf16>, tensor<?x2x?x80xf16>)
    -> tensor<?x2x?x80xf16>
  return %o : tensor<?x2x?x80xf16>
}
