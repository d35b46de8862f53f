// Dynamic sizes: names always, numbers for a shape that is given.
// RUN: fa-opt %s --split-input-file --pass-pipeline="builtin.module(func.func(fa-decompose,fa-online-softmax,fa-tile{rows=128 keys=64},fa-interchange,fa-pad-tiles,fa-split-mask-loops,fa-defer-normalization,fa-fuse,fa-annotate-io))" | FileCheck %s
// RUN: fa-opt %s --split-input-file --pass-pipeline="builtin.module(func.func(fa-decompose,fa-online-softmax,fa-tile{rows=128 keys=64},fa-interchange,fa-pad-tiles,fa-split-mask-loops,fa-defer-normalization,fa-fuse,fa-annotate-io{shape=B=2,Sq=200,Sk=100}))" | FileCheck %s --check-prefix=SHAPE
// RUN: not fa-opt %s --split-input-file --pass-pipeline="builtin.module(func.func(fa-annotate-io{shape=B=two}))" 2>&1 | FileCheck %s --check-prefix=BAD

// BAD: expected shape=B=4,Sq=1024,... with sizes of 0 or more, got 'B=two'

// Edges are clamped: 200 rows and 100 keys are read, not 256 and 128. Eight
// query heads read two key heads: k and v count for each of them.
//   read  2*8 * (2 * 100 * 4*64 + 200 * 2*64) = 1228800
//   write 2*8 * 200 * 2*64 = 409600
// CHECK: func @dense
// CHECK-SAME: read = "2*B*Hq*Sk*D*ceildiv(Sq, 128) + 2*B*Hq*Sk*Dv*ceildiv(Sq, 128) + 2*B*Hq*Sq*D", temp = "0", write = "2*B*Hq*Sq*Dv"}
// SHAPE: func @dense
// SHAPE-SAME: read_bytes = 1228800 : i64, temp = "0", temp_bytes = 0 : i64, write = "2*B*Hq*Sq*Dv", write_bytes = 409600 : i64}
func.func @dense(%q: tensor<?x8x?x64xf16>, %k: tensor<?x2x?x64xf16>,
                 %v: tensor<?x2x?x64xf16>) -> tensor<?x8x?x64xf16> {
  %o = fa.attention %q, %k, %v
    : (tensor<?x8x?x64xf16>, tensor<?x2x?x64xf16>, tensor<?x2x?x64xf16>)
     -> tensor<?x8x?x64xf16>
  return %o : tensor<?x8x?x64xf16>
}

// -----

// Lengths come from memory: the numbers are upper bounds. The length itself is
// read once in each block: 4 bytes for 2 row blocks, 8 heads, 2 batch entries.
// CHECK: func @padding
// CHECK-SAME: read = "{{.*}} + 4*B*Hq*ceildiv(Sq, 128)"
// CHECK-SAME: upper_bound
// SHAPE: func @padding
// SHAPE-SAME: bytes_upper_bound
// SHAPE-SAME: read_bytes = 1228928 : i64
func.func @padding(%q: tensor<?x8x?x64xf16>, %k: tensor<?x2x?x64xf16>,
                   %v: tensor<?x2x?x64xf16>, %n: tensor<?xi32>) -> tensor<?x8x?x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %length32 = tensor.extract %n[%b] : tensor<?xi32>
    %length = arith.index_cast %length32 : i32 to index
    %seen = arith.cmpi slt, %j, %length : index
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xf16>, tensor<?x2x?x64xf16>, tensor<?x2x?x64xf16>)
   -> tensor<?x8x?x64xf16>
  return %o : tensor<?x8x?x64xf16>
}
