// RUN: fa-opt %s --fa-decompose --fa-online-softmax --fa-tile="rows=64 keys=32" | FileCheck %s
// RUN: fa-opt %s --fa-decompose --fa-online-softmax --fa-tile="target=sm_90a" | FileCheck %s --check-prefix=HOPPER

// Keys outside, rows inside; the S block is computed in the inner loop, of
// slices clipped at the end, with the coordinates of the whole matrix; the
// state goes through memory.
// CHECK-DAG: #[[KEYS:.*]] = affine_map<(d0)[s0] -> (-d0 + s0, 32)>
// CHECK-DAG: #[[ROWS:.*]] = affine_map<(d0)[s0] -> (-d0 + s0, 64)>
// CHECK-LABEL: func @causal_dynamic
// CHECK: scf.for %[[J0:.*]] = %{{.*}} to %{{.*}} step %c32 iter_args
// CHECK: affine.min #[[KEYS]](%[[J0]])
// CHECK: scf.for %[[I0:.*]] = %{{.*}} to %{{.*}} step %c64 iter_args(%[[M:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[O:.*]] = %{{[a-z0-9]*}})
// CHECK: %[[N:.*]] = affine.min #[[ROWS]](%[[I0]])
// CHECK: affine.apply {{.*}}(%[[I0]])
// CHECK: affine.apply {{.*}}(%[[J0]])
// CHECK: tensor.extract_slice %[[M]][%[[I0]]] [%[[N]]] [1]
// CHECK: fa.online_softmax
// CHECK: tensor.insert_slice %{{.*}} into %[[M]][%[[I0]]]
// CHECK: tensor.insert_slice %{{.*}} into %[[L]][%[[I0]]]
// CHECK: tensor.insert_slice %{{.*}} into %[[O]][%[[I0]], 0]
// S of full size is gone:
// CHECK-NOT: fa.online_softmax
func.func @causal_dynamic(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %v: tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125 mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>) -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>)
  return %o, %lse : tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>
}

// Lengths that the tiles divide give static tiles.
// CHECK-LABEL: func @divisible
// CHECK: fa.online_softmax ins({{.*}} : tensor<64x32xf32>, tensor<32x16xf32>)
func.func @divisible(%q: tensor<1x1x128x16xf32>) -> tensor<1x1x128x16xf32> {
  %o = fa.attention %q, %q, %q : (tensor<1x1x128x16xf32>, tensor<1x1x128x16xf32>, tensor<1x1x128x16xf32>) -> tensor<1x1x128x16xf32>
  return %o : tensor<1x1x128x16xf32>
}

// Tiles begin at multiples of their sizes, which the random bits are told; the
// coordinates are those of the whole matrix.
// CHECK-LABEL: func @dropout
// CHECK: scf.for %[[J0:.*]] = %{{.*}} to %{{.*}} step %c32 iter_args
// CHECK: scf.for %[[I0:.*]] = %{{.*}} to %{{.*}} step %c64 iter_args
// CHECK: fa.online_softmax ins({{.*}}) outs({{.*}}) keep {
// CHECK-NEXT: ^bb0(%[[R:.*]]: index, %[[C:.*]]: index):
// CHECK-DAG: %[[I:.*]] = arith.addi %[[R]], %[[I0]] : index
// CHECK-DAG: %[[J:.*]] = arith.addi %[[C]], %[[J0]] : index
// CHECK: fa.random_bits %{{.*}} at{{ ?}}[%{{.*}}, %{{.*}}, %[[I]], %[[J]]] tile [64, 32]
func.func @dropout(%q: tensor<?x8x?x64xbf16>, %seed: tensor<i64>) -> tensor<?x8x?x64xbf16> {
  %o = fa.attention %q, %q, %q keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %limit = arith.constant 26 : i8
    %s = tensor.extract %seed[] : tensor<i64>
    %bits = fa.random_bits %s at [%b, %h, %i, %j]
    %kept = arith.cmpi uge, %bits, %limit : i8
    fa.yield %kept : i1
  } times 1.11 : (tensor<?x8x?x64xbf16>, tensor<?x8x?x64xbf16>, tensor<?x8x?x64xbf16>) -> tensor<?x8x?x64xbf16>
  return %o : tensor<?x8x?x64xbf16>
}

// What a mask reads for rows and for keys, such as documents' numbers, is no
// score function: 128x64, as for any mask.
// HOPPER-LABEL: func @documents
// HOPPER: scf.for {{.*}} step %c64 iter_args
// HOPPER: scf.for {{.*}} step %c128 iter_args
// HOPPER-LABEL: func @array
// HOPPER: scf.for {{.*}} step %c48 iter_args
// HOPPER: scf.for {{.*}} step %c128 iter_args
func.func @documents(%q: tensor<?x8x?x64xbf16>, %ids: tensor<?xi32>) -> tensor<?x8x?x64xbf16> {
  %o = fa.attention %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %ids[%i] : tensor<?xi32>
    %y = tensor.extract %ids[%j] : tensor<?xi32>
    %seen = arith.cmpi eq, %x, %y : i32
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xbf16>, tensor<?x8x?x64xbf16>, tensor<?x8x?x64xbf16>) -> tensor<?x8x?x64xbf16>
  return %o : tensor<?x8x?x64xbf16>
}

// What it reads for each element takes registers.
func.func @array(%q: tensor<?x8x?x64xbf16>, %seen: tensor<?x?xi1>) -> tensor<?x8x?x64xbf16> {
  %o = fa.attention %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %seen[%i, %j] : tensor<?x?xi1>
    fa.yield %x : i1
  } : (tensor<?x8x?x64xbf16>, tensor<?x8x?x64xbf16>, tensor<?x8x?x64xbf16>) -> tensor<?x8x?x64xbf16>
  return %o : tensor<?x8x?x64xbf16>
}
