// Forms of loops that the pass takes or leaves alone, by themselves.
// RUN: fa-opt %s --fa-split-mask-loops --split-input-file | FileCheck %s
// RUN: fa-opt %s --fa-split-mask-loops --split-input-file --remarks-filter=fa-split-mask-loops --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

#id = affine_map<(d0, d1) -> (d0, d1)>

// Rows are a dimension of the grid, as after fa-fuse. A second select inside
// the first is one more condition; one of them is negated.
// CHECK-DAG: #[[$END:.+]] = affine_map<()[s0, s1] -> (s0, s1 + 8)>
// CHECK-DAG: #[[$FULL:.+]] = affine_map<()[s0, s1] -> (s0, s1 + 1)>
// CHECK-LABEL: func @grid(
// CHECK: scf.forall (%[[I:.+]]) = (0) to
// CHECK: %[[END:.+]] = affine.min #[[$END]]()[%[[SK:.+]], %[[I]]]
// CHECK: %[[FULL:.+]] = affine.min #[[$FULL]]()[%[[SK]], %[[I]]]
// CHECK: scf.for %{{.+}} = %c0 to %[[END]]
// CHECK: scf.if
// CHECK: linalg.generic
// CHECK-NOT: linalg.index
// CHECK: else
// CHECK: linalg.index 0
// REMARK: [Passed] Split {{.*}}Function=grid
func.func @grid(%s: tensor<8x4xf32>, %v: tensor<4x2xf32>, %out: tensor<?x2xf32>,
                %m: tensor<8xf32>, %l: tensor<8xf32>, %o: tensor<8x2xf32>,
                %k: tensor<?xf32>) -> tensor<?x2xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %none = arith.constant 0xFF800000 : f32
  %Sk = tensor.dim %k, %c0 : tensor<?xf32>
  %Sq = tensor.dim %out, %c0 : tensor<?x2xf32>
  %r = scf.forall (%i0) = (0) to (%Sq) step (8) shared_outs(%oo = %out) -> tensor<?x2xf32> {
    %st:3 = scf.for %j0 = %c0 to %Sk step %c4 iter_args(%a = %m, %b = %l, %c = %o)
        -> (tensor<8xf32>, tensor<8xf32>, tensor<8x2xf32>) {
      %sm = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<8x4xf32>) outs(%s : tensor<8x4xf32>) {
      ^bb0(%x: f32, %y: f32):
        %row = linalg.index 0 : index
        %column = linalg.index 1 : index
        %i = arith.addi %i0, %row : index
        %j = arith.addi %j0, %column : index
        %after = arith.cmpi sgt, %j, %i : index
        %inner = arith.select %after, %none, %x : f32
        %inside = arith.cmpi slt, %j, %Sk : index
        %w = arith.select %inside, %inner, %none : f32
        linalg.yield %w : f32
      } -> tensor<8x4xf32>
      %n:3 = fa.online_softmax ins(%sm, %v : tensor<8x4xf32>, tensor<4x2xf32>)
        outs(%a, %b, %c : tensor<8xf32>, tensor<8xf32>, tensor<8x2xf32>)
      scf.yield %n#0, %n#1, %n#2 : tensor<8xf32>, tensor<8xf32>, tensor<8x2xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %st#2 into %oo[%i0, 0] [8, 2] [1, 1] : tensor<8x2xf32> into tensor<?x2xf32>
    }
  }
  return %r : tensor<?x2xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>

// The state of a step that sees nothing would still be counted.
// CHECK-LABEL: func @counts_steps(
// CHECK: scf.for %{{.+}} = %c0 to %arg5 step
// CHECK-NOT: scf.if
// REMARK: [Missed] NotSplit {{.*}}Function=counts_steps {{.*}}the loop carries more than the state of one merge
func.func @counts_steps(%s: tensor<8x4xf32>, %v: tensor<4x2xf32>, %m: tensor<8xf32>,
                        %l: tensor<8xf32>, %o: tensor<8x2xf32>, %n: index) -> (tensor<8x2xf32>, index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %none = arith.constant 0xFF800000 : f32
  %st:4 = scf.for %j0 = %c0 to %n step %c4 iter_args(%a = %m, %b = %l, %c = %o, %steps = %c0)
      -> (tensor<8xf32>, tensor<8xf32>, tensor<8x2xf32>, index) {
    %sm = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x4xf32>) outs(%s : tensor<8x4xf32>) {
    ^bb0(%x: f32, %y: f32):
      %i = linalg.index 0 : index
      %column = linalg.index 1 : index
      %j = arith.addi %j0, %column : index
      %seen = arith.cmpi sle, %j, %i : index
      %w = arith.select %seen, %x, %none : f32
      linalg.yield %w : f32
    } -> tensor<8x4xf32>
    %next:3 = fa.online_softmax ins(%sm, %v : tensor<8x4xf32>, tensor<4x2xf32>)
      outs(%a, %b, %c : tensor<8xf32>, tensor<8xf32>, tensor<8x2xf32>)
    %more = arith.addi %steps, %c1 : index
    scf.yield %next#0, %next#1, %next#2, %more : tensor<8xf32>, tensor<8xf32>, tensor<8x2xf32>, index
  }
  return %st#2, %st#3 : tensor<8x2xf32>, index
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: func @dynamic_tile(
// CHECK-NOT: scf.if
// REMARK: [Missed] NotSplit {{.*}}Function=dynamic_tile {{.*}}the tiles have no static size; run fa-pad-tiles first
func.func @dynamic_tile(%s: tensor<?x4xf32>, %v: tensor<4x2xf32>, %m: tensor<?xf32>,
                        %l: tensor<?xf32>, %o: tensor<?x2xf32>, %n: index) -> tensor<?x2xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %none = arith.constant 0xFF800000 : f32
  %st:3 = scf.for %j0 = %c0 to %n step %c4 iter_args(%a = %m, %b = %l, %c = %o)
      -> (tensor<?xf32>, tensor<?xf32>, tensor<?x2xf32>) {
    %sm = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<?x4xf32>) outs(%s : tensor<?x4xf32>) {
    ^bb0(%x: f32, %y: f32):
      %i = linalg.index 0 : index
      %seen = arith.cmpi sle, %j0, %i : index
      %w = arith.select %seen, %x, %none : f32
      linalg.yield %w : f32
    } -> tensor<?x4xf32>
    %next:3 = fa.online_softmax ins(%sm, %v : tensor<?x4xf32>, tensor<4x2xf32>)
      outs(%a, %b, %c : tensor<?xf32>, tensor<?xf32>, tensor<?x2xf32>)
    scf.yield %next#0, %next#1, %next#2 : tensor<?xf32>, tensor<?xf32>, tensor<?x2xf32>
  }
  return %st#2 : tensor<?x2xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>

// The first key of the tile alone, or the column in the tile alone, is not a
// key: nothing is known of such masks. A tile's first key is not its keys.
// CHECK-LABEL: func @not_a_key(
// CHECK: scf.for %{{.+}} = %c0 to %arg5 step
// CHECK-NOT: scf.if
// REMARK: [Missed] NotSplit {{.*}}Function=not_a_key {{.*}}could not be decided
func.func @not_a_key(%s: tensor<8x4xf32>, %v: tensor<4x2xf32>, %m: tensor<8xf32>,
                     %l: tensor<8xf32>, %o: tensor<8x2xf32>, %n: index) -> tensor<8x2xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %none = arith.constant 0xFF800000 : f32
  %st:3 = scf.for %j0 = %c0 to %n step %c4 iter_args(%a = %m, %b = %l, %c = %o)
      -> (tensor<8xf32>, tensor<8xf32>, tensor<8x2xf32>) {
    %sm = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x4xf32>) outs(%s : tensor<8x4xf32>) {
    ^bb0(%x: f32, %y: f32):
      %i = linalg.index 0 : index
      %column = linalg.index 1 : index
      %seen = arith.cmpi sle, %column, %i : index
      %w = arith.select %seen, %x, %none : f32
      linalg.yield %w : f32
    } -> tensor<8x4xf32>
    %next:3 = fa.online_softmax ins(%sm, %v : tensor<8x4xf32>, tensor<4x2xf32>)
      outs(%a, %b, %c : tensor<8xf32>, tensor<8xf32>, tensor<8x2xf32>)
    scf.yield %next#0, %next#1, %next#2 : tensor<8xf32>, tensor<8xf32>, tensor<8x2xf32>
  }
  return %st#2 : tensor<8x2xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>

// The merge is expanded: that skipping a step changes nothing can't be seen.
// CHECK-LABEL: func @expanded(
// CHECK: scf.for %{{.+}} = %c0 to %arg1 step
// CHECK-NOT: scf.if
// REMARK: [Missed] NotSplit {{.*}}Function=expanded {{.*}}run this pass before fa-defer-normalization
func.func @expanded(%s: tensor<8x4xf32>, %n: index) -> tensor<8x4xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %none = arith.constant 0xFF800000 : f32
  %st = scf.for %j0 = %c0 to %n step %c4 iter_args(%a = %s) -> (tensor<8x4xf32>) {
    %sm = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x4xf32>) outs(%a : tensor<8x4xf32>) {
    ^bb0(%x: f32, %y: f32):
      %i = linalg.index 0 : index
      %column = linalg.index 1 : index
      %j = arith.addi %j0, %column : index
      %seen = arith.cmpi sle, %j, %i : index
      %w = arith.select %seen, %x, %none : f32
      linalg.yield %w : f32
    } -> tensor<8x4xf32>
    scf.yield %sm : tensor<8x4xf32>
  }
  return %st : tensor<8x4xf32>
}
