// Inputs that once ended the process, or were judged wrong.
// REQUIRES: fa-run

// Gradients that cancel to 0, of one key: roundings of their terms are right.
// RUN: fa-run %s --func=plain --backward --check --shape=B=1,Sq=50,Sk=1 | FileCheck %s --check-prefix=OK
// RUN: not fa-run %s --func=plain --shape=B=1,Sq=4294967296,Sk=4 2>&1 | FileCheck %s --check-prefix=SIZE
// RUN: not fa-run %s --func=plain --shape=B=1,Sq=4,Sk=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not fa-run %s --func=plain --shape=B=1073741823,Sq=1073741823,Sk=4 2>&1 | FileCheck %s --check-prefix=MEMORY
// RUN: not fa-run %s --func=plain --vector-bits=64 --shape=B=1,Sq=4,Sk=4 2>&1 | FileCheck %s --check-prefix=BITS
// RUN: fa-run %s --func=divided --check --shape=B=1,Sq=40,Sk=40 | FileCheck %s --check-prefix=OK

// OK: ok
// OK-NOT: WRONG
// SIZE: expected Sq in [0, 1073741823], got 4294967296; kernels count with 32 bits
// NEGATIVE: expected --shape as "B=2,Sq=333" with sizes of at least 0
// MEMORY: argument 0 has {{[0-9.]+}} GiB, and this machine takes {{[0-9.]+}} GiB of one: choose smaller sizes
// BITS: expected vector-bits to be 128, 256 or 512, got 64{{$}}

!t = tensor<?x2x?x16xf32>
func.func @plain(%q: !t, %k: !t, %v: !t) -> !t {
  %o = fa.attention %q, %k, %v : (!t, !t, !t) -> !t
  return %o : !t
}

// By 0, by a number that is -1, and the remainders of both.
func.func @divided(%q: !t, %k: !t, %v: !t) -> !t {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c7 = arith.constant 7 : index
    %c1 = arith.constant 1 : index
    %less = arith.subi %h, %c1 : index
    %p = arith.floordivsi %c7, %h : index
    %r = arith.remsi %c7, %less : index
    %m = arith.divsi %c7, %less : index
    %u = arith.divui %c7, %h : index
    %n = arith.ceildivsi %c7, %less : index
    %w = arith.remui %c7, %h : index
    %parts = arith.addi %r, %w : index
    %more = arith.addi %m, %n : index
    %all = arith.addi %parts, %more : index
    %sum = arith.addi %p, %u : index
    %end = arith.addi %all, %sum : index
    %x = arith.cmpi sle, %j, %end : index
    %y = arith.cmpi sle, %j, %i : index
    %seen = arith.ori %x, %y : i1
    fa.yield %seen : i1
  } : (!t, !t, !t) -> !t
  return %o : !t
}
