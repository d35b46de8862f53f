// Where data decide what is seen, the bytes are those of lists that name every
// block: an upper bound, known before it runs.
// RUN: fa-opt %s --pass-pipeline="builtin.module(func.func(fa-decompose,fa-online-softmax,fa-tile{rows=128 keys=32},fa-interchange,fa-pad-tiles,fa-list-blocks,fa-split-mask-loops,fa-defer-normalization,fa-fuse,fa-annotate-io{shape=B=2,Sq=200,Sk=100}))" | FileCheck %s

// The lists, of two blocks of rows and four of keys, once for all heads: 200 ids
// of rows, and 100 of keys for each block of rows, 4 bytes each: 1600 read. A
// count and four entries for each block of rows: 40 written, and held.
// Attention, in 2*8 heads: Q 200*64*2 bytes; in each of 32 blocks of rows its
// count, four entries, and with each of them 32 rows of K and V, and 128 + 32
// ids for the mask.
//   read  1600 + 16*25600 + 32*(4 + 4*(4 + 2*32*128 + 160*4)) = 1542336
//   write 40 + 16*25600 = 409640
// CHECK: func @documents
// CHECK-SAME: bytes_upper_bound
// CHECK-SAME: read_bytes = 1542336 : i64
// CHECK-SAME: temp_bytes = 40 : i64
// CHECK-SAME: write_bytes = 409640 : i64
func.func @documents(%q: tensor<?x8x?x64xf16>, %k: tensor<?x2x?x64xf16>,
                     %v: tensor<?x2x?x64xf16>, %ids: tensor<?xi32>)
    -> tensor<?x8x?x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %mine = tensor.extract %ids[%i] : tensor<?xi32>
    %other = tensor.extract %ids[%j] : tensor<?xi32>
    %same = arith.cmpi eq, %mine, %other : i32
    fa.yield %same : i1
  } : (tensor<?x8x?x64xf16>, tensor<?x2x?x64xf16>, tensor<?x2x?x64xf16>)
   -> tensor<?x8x?x64xf16>
  return %o : tensor<?x8x?x64xf16>
}
