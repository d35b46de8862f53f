// Lists of blocks. The input of the pass is what the passes before it make of
// fa.attention.
// RUN: fa-opt %s --fa-decompose --fa-online-softmax --fa-tile="rows=128 keys=64" --fa-interchange --fa-pad-tiles --fa-list-blocks --split-input-file | FileCheck %s
// RUN: fa-opt %s --fa-decompose --fa-online-softmax --fa-tile="rows=128 keys=64" --fa-interchange --fa-pad-tiles --fa-list-blocks --split-input-file --remarks-filter=fa-list-blocks --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// One list serves all batch entries and heads.
// REMARK: remark: [Passed] Listed {{.*}}Function=documents {{.*}}the loop over keys follows a list of blocks that is made of the mask, which depends on data
// CHECK-LABEL: func @documents(
// CHECK-SAME: %[[IDS:[a-z0-9]+]]: tensor<?xi32>
// CHECK: %[[LISTS:.+]]:2 = scf.forall (%{{.+}}, %{{.+}}, %[[I0:.+]]) = (0, 0, 0) to (1, 1, %[[SQ:.+]]) step (1, 1, 128)
// CHECK-SAME: -> (tensor<1x1x?x1xi32>, tensor<1x1x?x?xi32>)
// CHECK: fa.list_blocks rows %{{.+}} keys %c0 to %{{.+}} tile [128, 64] every [1, 1]
// CHECK: ^bb0(%[[ROW:.+]]: index, %[[COLUMN:.+]]: index, %[[KEY:.+]]: index):
// CHECK: %[[X:.+]] = tensor.extract %[[IDS]]
// CHECK: %[[Y:.+]] = tensor.extract %[[IDS]]
// CHECK: %[[SAME:.+]] = arith.cmpi eq, %[[X]], %[[Y]]
// CHECK: fa.yield %[[SAME]] : i1
// CHECK: tensor.parallel_insert_slice
// CHECK: scf.forall (%[[B:.+]], %[[H:.+]]) in
// CHECK: scf.for
// CHECK: %[[COUNT32:.+]] = tensor.extract %[[LISTS]]#0[%c0, %c0, %[[BLOCK:.+]], %c0]
// CHECK: %[[COUNT:.+]] = arith.index_cast %[[COUNT32]]
// CHECK: scf.for %[[N:.+]] = %c0 to %[[COUNT]] step %c1
// CHECK: %[[ENTRY:.+]] = tensor.extract %[[LISTS]]#1[%c0, %c0, %[[BLOCK]], %[[N]]]
// CHECK: %[[FIRST:.+]] = arith.andi %[[ENTRY]], %c-2_i32
// CHECK: %[[J:.+]] = arith.index_cast %[[FIRST]]
// CHECK: tensor.extract_slice %arg1[%{{.+}}, %{{.+}}, %[[J]], 0]
// CHECK: %[[ISFULL:.+]] = arith.trunci %[[ENTRY]] : i32 to i1
// CHECK: %[[S:.+]] = scf.if %[[ISFULL]] -> (tensor<128x64xf32>)
// CHECK-NOT: arith.select
// CHECK: else
// CHECK: tensor.extract %[[IDS]]
// CHECK: arith.select
// CHECK: fa.online_softmax ins(%[[S]],
func.func @documents(%q: tensor<?x8x?x64xf16>, %k: tensor<?x2x?x64xf16>,
                     %v: tensor<?x2x?x64xf16>, %ids: tensor<?xi32>)
    -> tensor<?x8x?x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %ids[%i] : tensor<?xi32>
    %y = tensor.extract %ids[%j] : tensor<?xi32>
    %seen = arith.cmpi eq, %x, %y : i32
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xf16>, tensor<?x2x?x64xf16>, tensor<?x2x?x64xf16>)
   -> tensor<?x8x?x64xf16>
  return %o : tensor<?x8x?x64xf16>
}

// -----

// A list for each batch entry, one for all heads.
// REMARK: [Passed] Listed {{.*}}Function=documents_by_batch
// CHECK-LABEL: func @documents_by_batch(
// CHECK: %[[BATCH:.+]] = tensor.dim %arg0, %c0
// CHECK: %[[LISTS:.+]]:2 = scf.forall ({{.*}}) = (0, 0, 0) to (%[[BATCH]], 1, %{{.+}}) step (1, 1, 128)
// CHECK-SAME: -> (tensor<?x1x?x1xi32>, tensor<?x1x?x?xi32>)
// CHECK: scf.forall (%[[B:.+]], %[[H:.+]]) in
// CHECK: tensor.extract %[[LISTS]]#0[%[[B]], %c0, %{{.+}}, %c0]
// CHECK: tensor.extract %[[LISTS]]#1[%[[B]], %c0, %{{.+}}, %{{.+}}]
func.func @documents_by_batch(%q: tensor<?x8x?x64xf16>, %k: tensor<?x2x?x64xf16>,
                              %v: tensor<?x2x?x64xf16>, %ids: tensor<?x?xi64>)
    -> tensor<?x8x?x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %ids[%b, %i] : tensor<?x?xi64>
    %y = tensor.extract %ids[%b, %j] : tensor<?x?xi64>
    %seen = arith.cmpi eq, %x, %y : i64
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xf16>, tensor<?x2x?x64xf16>, tensor<?x2x?x64xf16>)
   -> tensor<?x8x?x64xf16>
  return %o : tensor<?x8x?x64xf16>
}

// -----

// Blocks of 64 in tiles of 128 x 64: two elements of a tile are looked at. Each
// head has its list. The matrix stays in the scores: half of a tile may be seen.
// CHECK-LABEL: func @blocks_of_64(
// CHECK-SAME: %[[BLOCKS:[a-z0-9]+]]: tensor<8x?x?xi1>
// CHECK: %[[LISTS:.+]]:2 = scf.forall ({{.*}}) = (0, 0, 0) to (1, 8, %{{.+}}) step (1, 1, 128)
// CHECK: fa.list_blocks {{.*}} tile [128, 64] every [64, 64]
// CHECK: scf.forall (%{{.+}}, %[[H:.+]]) in
// CHECK: tensor.extract %[[LISTS]]#0[%c0, %[[H]], %{{.+}}, %c0]
// CHECK: scf.if
// CHECK-NOT: tensor.extract
// CHECK: else
// CHECK: tensor.extract %[[BLOCKS]]
// CHECK: fa.online_softmax
func.func @blocks_of_64(%q: tensor<?x8x?x64xf16>, %k: tensor<?x2x?x64xf16>,
                        %v: tensor<?x2x?x64xf16>, %blocks: tensor<8x?x?xi1>)
    -> tensor<?x8x?x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c64 = arith.constant 64 : index
    %n = arith.floordivsi %i, %c64 : index
    %m = arith.floordivsi %j, %c64 : index
    %seen = tensor.extract %blocks[%h, %n, %m] : tensor<8x?x?xi1>
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xf16>, tensor<?x2x?x64xf16>, tensor<?x2x?x64xf16>)
   -> tensor<?x8x?x64xf16>
  return %o : tensor<?x8x?x64xf16>
}

// -----

// Blocks that hold whole tiles: what is listed is seen. The scores are masked
// by causal order alone, but in full blocks.
// CHECK-LABEL: func @blocks_of_tiles(
// CHECK-SAME: %[[BLOCKS:[a-z0-9]+]]: tensor<8x?x?xi1>
// CHECK: fa.list_blocks {{.*}} tile [128, 64] every [1, 1]
// CHECK: tensor.extract %[[BLOCKS]]
// CHECK: fa.yield
// CHECK-NOT: tensor.extract %[[BLOCKS]]
// CHECK: scf.if
// CHECK-NOT: tensor.extract %[[BLOCKS]]
// CHECK: else
// CHECK: %[[CAUSAL:.+]] = arith.cmpi sle
// CHECK: %[[EXISTS:.+]] = arith.cmpi slt
// CHECK: %[[SEEN:.+]] = arith.andi %[[CAUSAL]], %[[EXISTS]]
// CHECK: arith.select %[[SEEN]],
// CHECK-NOT: tensor.extract %[[BLOCKS]]
// CHECK: return
func.func @blocks_of_tiles(%q: tensor<?x8x?x64xf16>, %k: tensor<?x2x?x64xf16>,
                           %v: tensor<?x2x?x64xf16>, %blocks: tensor<8x?x?xi1>)
    -> tensor<?x8x?x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c128 = arith.constant 128 : index
    %n = arith.floordivsi %i, %c128 : index
    %m = arith.floordivsi %j, %c128 : index
    %listed = tensor.extract %blocks[%h, %n, %m] : tensor<8x?x?xi1>
    %causal = arith.cmpi sle, %j, %i : index
    %seen = arith.andi %listed, %causal : i1
    fa.yield %seen : i1
  } : (tensor<?x8x?x64xf16>, tensor<?x2x?x64xf16>, tensor<?x2x?x64xf16>)
   -> tensor<?x8x?x64xf16>
  return %o : tensor<?x8x?x64xf16>
}

// -----

// Blocks behind the diagonal, and before the window, are not looked at.
// CHECK-DAG: #[[$BEGIN:.+]] = affine_map<()[s0] -> (((s0 - 511) floordiv 64) * 64, 0)>
// CHECK-DAG: #[[$END:.+]] = affine_map<()[s0] -> (4096, s0 + 128)>
// CHECK-LABEL: func @causal_window_documents(
// CHECK: scf.forall (%{{.+}}, %{{.+}}, %[[I0:.+]]) = (0, 0, 0) to (1, 1, 4096)
// CHECK: %[[BEGIN:.+]] = affine.max #[[$BEGIN]]()[%[[I0]]]
// CHECK: %[[END:.+]] = affine.min #[[$END]]()[%[[I0]]]
// CHECK: fa.list_blocks rows %{{.+}} keys %[[BEGIN]] to %[[END]]
func.func @causal_window_documents(%q: tensor<1x8x4096x64xf16>, %k: tensor<1x8x4096x64xf16>,
                                   %v: tensor<1x8x4096x64xf16>, %ids: tensor<4096xi32>)
    -> tensor<1x8x4096x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %window = arith.constant 512 : index
    %distance = arith.subi %i, %j : index
    %near = arith.cmpi ult, %distance, %window : index
    %x = tensor.extract %ids[%i] : tensor<4096xi32>
    %y = tensor.extract %ids[%j] : tensor<4096xi32>
    %same = arith.cmpi eq, %x, %y : i32
    %seen = arith.andi %same, %near : i1
    fa.yield %seen : i1
  } : (tensor<1x8x4096x64xf16>, tensor<1x8x4096x64xf16>, tensor<1x8x4096x64xf16>)
   -> tensor<1x8x4096x64xf16>
  return %o : tensor<1x8x4096x64xf16>
}

// -----

// A length for each batch entry ends the list, and makes it one for each.
// CHECK-LABEL: func @documents_padding(
// CHECK: scf.forall (%[[B:.+]], %{{.+}}, %{{.+}}) = (0, 0, 0) to (2, 1, %{{.+}}) step
// CHECK: %[[N32:.+]] = tensor.extract %{{.+}}[%{{.+}}] : tensor<2xi32>
// CHECK: %[[N:.+]] = arith.index_cast %[[N32]]
// CHECK: %[[END:.+]] = affine.min #{{.+}}[%[[N]]
// CHECK: fa.list_blocks rows %{{.+}} keys %c0 to %[[END]]
func.func @documents_padding(%q: tensor<2x8x?x64xf16>, %k: tensor<2x8x?x64xf16>,
                             %v: tensor<2x8x?x64xf16>, %ids: tensor<?xi32>,
                             %lengths: tensor<2xi32>) -> tensor<2x8x?x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %n32 = tensor.extract %lengths[%b] : tensor<2xi32>
    %n = arith.index_cast %n32 : i32 to index
    %inside = arith.cmpi slt, %j, %n : index
    %x = tensor.extract %ids[%i] : tensor<?xi32>
    %y = tensor.extract %ids[%j] : tensor<?xi32>
    %same = arith.cmpi eq, %x, %y : i32
    %seen = arith.andi %same, %inside : i1
    fa.yield %seen : i1
  } : (tensor<2x8x?x64xf16>, tensor<2x8x?x64xf16>, tensor<2x8x?x64xf16>)
   -> tensor<2x8x?x64xf16>
  return %o : tensor<2x8x?x64xf16>
}

// -----

// What interval arithmetic decides has no list, and nothing is said.
// REMARK-NOT: Function=causal_prefix
// CHECK-LABEL: func @causal_prefix(
// CHECK-NOT: fa.list_blocks
// CHECK: scf.for %{{.+}} = %c0 to %{{.+}} step %c64
// CHECK-NOT: fa.list_blocks
// CHECK: return
func.func @causal_prefix(%q: tensor<2x8x?x64xf16>, %k: tensor<2x8x?x64xf16>,
                         %v: tensor<2x8x?x64xf16>, %prefix: tensor<2xi32>)
    -> tensor<2x8x?x64xf16> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %n32 = tensor.extract %prefix[%b] : tensor<2xi32>
    %n = arith.index_cast %n32 : i32 to index
    %inside = arith.cmpi slt, %j, %n : index
    %causal = arith.cmpi sle, %j, %i : index
    %seen = arith.ori %inside, %causal : i1
    fa.yield %seen : i1
  } : (tensor<2x8x?x64xf16>, tensor<2x8x?x64xf16>, tensor<2x8x?x64xf16>)
   -> tensor<2x8x?x64xf16>
  return %o : tensor<2x8x?x64xf16>
}

// -----

// The score function masks, too, by the score: a list of documents is made,
// but no block is known to be full.
// REMARK: [Passed] Listed {{.*}}Function=positive_scores_of_documents
// CHECK-LABEL: func @positive_scores_of_documents(
// CHECK: fa.list_blocks
// CHECK-NOT: cmpf
// CHECK: fa.yield
// CHECK: scf.for
// CHECK-NOT: scf.if
// CHECK: arith.cmpf ogt
// CHECK-NOT: scf.if
// CHECK: fa.online_softmax
func.func @positive_scores_of_documents(%q: tensor<1x8x?x64xf16>, %k: tensor<1x8x?x64xf16>,
                                        %v: tensor<1x8x?x64xf16>, %ids: tensor<?xi32>)
    -> tensor<1x8x?x64xf16> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %zero = arith.constant 0.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %positive = arith.cmpf ogt, %s, %zero : f32
    %kept = arith.select %positive, %s, %none : f32
    fa.yield %kept : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %ids[%i] : tensor<?xi32>
    %y = tensor.extract %ids[%j] : tensor<?xi32>
    %seen = arith.cmpi eq, %x, %y : i32
    fa.yield %seen : i1
  } : (tensor<1x8x?x64xf16>, tensor<1x8x?x64xf16>, tensor<1x8x?x64xf16>)
   -> tensor<1x8x?x64xf16>
  return %o : tensor<1x8x?x64xf16>
}

// -----

// By the score alone: nothing can be listed before it.
// REMARK: [Missed] NotListed {{.*}}Function=positive_scores {{.*}}no part of the mask depends on coordinates alone
// CHECK-LABEL: func @positive_scores(
// CHECK-NOT: fa.list_blocks
// CHECK: fa.online_softmax
func.func @positive_scores(%q: tensor<1x8x?x64xf16>, %k: tensor<1x8x?x64xf16>,
                           %v: tensor<1x8x?x64xf16>) -> tensor<1x8x?x64xf16> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %zero = arith.constant 0.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %positive = arith.cmpf ogt, %s, %zero : f32
    %kept = arith.select %positive, %s, %none : f32
    fa.yield %kept : f32
  } : (tensor<1x8x?x64xf16>, tensor<1x8x?x64xf16>, tensor<1x8x?x64xf16>)
   -> tensor<1x8x?x64xf16>
  return %o : tensor<1x8x?x64xf16>
}
