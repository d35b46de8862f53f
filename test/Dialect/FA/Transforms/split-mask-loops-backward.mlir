// The backward's loop over blocks of rows follows the mask, from the same proof
// as the forward's over keys, with rows and keys in each other's place.
// RUN: fa-opt %s --fa-pipeline="backward=none rows=128 keys=64" --split-input-file --remarks-filter=fa-split-mask-loops --remark-format=emitRemark 2>&1 | FileCheck %s

// Rows from the first key of the block on; from its last key on all of it is seen.
// CHECK: remark: {{.*}}split the loop over rows: it starts later, its full tiles run without the mask (visited [%[[J:.*]], end), full [%[[J]] + 63, end))
func.func @causal(%q: tensor<1x2x1024x64xf32>) -> tensor<1x2x1024x64xf32> {
  %o = fa.attention %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } : (tensor<1x2x1024x64xf32>, tensor<1x2x1024x64xf32>, tensor<1x2x1024x64xf32>) -> tensor<1x2x1024x64xf32>
  return %o : tensor<1x2x1024x64xf32>
}

// -----

// A window on both sides, and lengths that no tile divides.
// CHECK: remark: {{.*}}split the loop over rows: it starts later, it ends earlier, {{.*}}(visited [%[[J:.*]] - 100, %[[J]] + 264)
func.func @window(%q: tensor<1x2x1000x64xf32>, %k: tensor<1x2x?x64xf32>) -> tensor<1x2x1000x64xf32> {
  %o = fa.attention %q, %k, %k mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c200 = arith.constant 200 : index
    %c100 = arith.constant 100 : index
    %from = arith.subi %i, %c200 : index
    %to = arith.addi %i, %c100 : index
    %above = arith.cmpi sge, %j, %from : index
    %below = arith.cmpi sle, %j, %to : index
    %seen = arith.andi %above, %below : i1
    fa.yield %seen : i1
  } : (tensor<1x2x1000x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>) -> tensor<1x2x1000x64xf32>
  return %o : tensor<1x2x1000x64xf32>
}

// -----

// What keys alone decide leaves blocks of keys without any row.
// CHECK: remark: {{.*}}split the loop over rows: {{.*}}(visited [(-1 < -%[[J:.*]] + 299 ? 0 : end), (-1 < -%[[J]] + 299 ? end : 0)), full
func.func @prefix(%q: tensor<1x2x1024x64xf32>) -> tensor<1x2x1024x64xf32> {
  %o = fa.attention %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c300 = arith.constant 300 : index
    %seen = arith.cmpi slt, %j, %c300 : index
    fa.yield %seen : i1
  } : (tensor<1x2x1024x64xf32>, tensor<1x2x1024x64xf32>, tensor<1x2x1024x64xf32>) -> tensor<1x2x1024x64xf32>
  return %o : tensor<1x2x1024x64xf32>
}
