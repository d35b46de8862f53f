// Tiles that end at lengths in memory give the same numbers: forward, and a
// gradient in the order of a GPU, whose blocks of keys and rows both end.
// REQUIRES: fa-run, ci
// RUN: fa-run %s --check --each-stage --rows=16 --keys=16 | FileCheck %s
// RUN: fa-run %s --backward --check --each-stage --rows=64 --keys=64 --target=sm_90a --stop-after=fa-orient-products | FileCheck %s

// CHECK: fa-clip-loads {{.*}} ok
func.func @ends(%q: tensor<2x2x75x16xbf16>, %k: tensor<2x2x70x16xbf16>, %v: tensor<2x2x70x16xbf16>, %keys: tensor<2xi32> {fa.range = [3, 70]}, %rows: tensor<2xi32> {fa.range = [3, 75]}) -> (tensor<2x2x75x16xbf16>, tensor<2x2x75xf32>) {
  %o, %lse = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %n = tensor.extract %keys[%b] : tensor<2xi32>
    %end = arith.index_cast %n : i32 to index
    %m = tensor.extract %rows[%b] : tensor<2xi32>
    %last = arith.index_cast %m : i32 to index
    %below = arith.cmpi slt, %j, %end : index
    %above = arith.cmpi slt, %i, %last : index
    %seen = arith.andi %below, %above : i1
    fa.yield %seen : i1
  } : (tensor<2x2x75x16xbf16>, tensor<2x2x70x16xbf16>, tensor<2x2x70x16xbf16>) -> (tensor<2x2x75x16xbf16>, tensor<2x2x75xf32>)
  return %o, %lse : tensor<2x2x75x16xbf16>, tensor<2x2x75xf32>
}
