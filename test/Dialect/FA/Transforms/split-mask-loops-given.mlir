// Numbers that a mask reads from memory are limited before bounds are computed
// from them: in 64 bits, and where an index has 32 bits to what is safe there.
// RUN: fa-opt %s --fa-pipeline="target=cpu stop-after=fa-split-mask-loops" | FileCheck %s --check-prefixes=CHECK,WIDE
// RUN: fa-opt %s --fa-pipeline="target=sm_80 stop-after=fa-split-mask-loops" | FileCheck %s --check-prefixes=CHECK,NARROW

// CHECK-LABEL: func @lengths
// CHECK: %[[LENGTH:.+]] = tensor.extract %{{.+}} : tensor<?xi64>
// WIDE: %[[MOST:.+]] = arith.constant 1099511627776 : i64
// NARROW: %[[MOST:.+]] = arith.constant 536870912 : i64
// CHECK: %[[UPPER:.+]] = arith.minsi %[[LENGTH]], %[[MOST]] : i64
// WIDE: %[[LEAST:.+]] = arith.constant -1099511627776 : i64
// NARROW: %[[LEAST:.+]] = arith.constant -536870912 : i64
// CHECK: %[[INSIDE:.+]] = arith.maxsi %[[UPPER]], %[[LEAST]] : i64
// CHECK: arith.index_cast %[[INSIDE]] : i64 to index
// CHECK: scf.for
func.func @lengths(%q: tensor<?x2x?x32xbf16>, %lengths: tensor<?xi64>) -> tensor<?x2x?x32xbf16> {
  %o = fa.attention %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %length = tensor.extract %lengths[%b] : tensor<?xi64>
    %j64 = arith.index_cast %j : index to i64
    %seen = arith.cmpi slt, %j64, %length : i64
    fa.yield %seen : i1
  } : (tensor<?x2x?x32xbf16>, tensor<?x2x?x32xbf16>, tensor<?x2x?x32xbf16>) -> tensor<?x2x?x32xbf16>
  return %o : tensor<?x2x?x32xbf16>
}

// A number of 32 bits can't make bounds of 64 bits wrap.
// CHECK-LABEL: func @offset
// WIDE-NOT: arith.minsi %{{.+}} : i32
// NARROW: arith.minsi %{{.+}}, %{{.+}} : i32
// NARROW: arith.maxsi %{{.+}}, %{{.+}} : i32
// CHECK: scf.for
func.func @offset(%q: tensor<?x2x?x32xbf16>, %offset: tensor<i32>) -> tensor<?x2x?x32xbf16> {
  %o = fa.attention %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %offset[] : tensor<i32>
    %xi = arith.index_cast %x : i32 to index
    %end = arith.addi %i, %xi : index
    %seen = arith.cmpi sle, %j, %end : index
    fa.yield %seen : i1
  } : (tensor<?x2x?x32xbf16>, tensor<?x2x?x32xbf16>, tensor<?x2x?x32xbf16>) -> tensor<?x2x?x32xbf16>
  return %o : tensor<?x2x?x32xbf16>
}
