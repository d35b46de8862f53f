// The inputs are the output of --fa-decompose --fa-online-softmax for one head.
// RUN: fa-opt %s --fa-tile="rows=64 keys=32" | FileCheck %s
// RUN: fa-opt %s --fa-tile="target=sm_90a" | FileCheck %s --check-prefix=HOPPER
// RUN: not fa-opt %s --fa-tile="rows=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE

// NEGATIVE: expected tile sizes of at least 1, or 0 to choose, got rows=-1 keys=0

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>

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
func.func @causal_dynamic(%q: tensor<?x64xbf16>, %k: tensor<?x64xbf16>, %v: tensor<?x64xbf16>) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %Sq = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %Sk = tensor.dim %k, %c0 : tensor<?x64xbf16>
  %matrix = tensor.empty(%Sq, %Sk) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%matrix : tensor<?x?xf32>) -> tensor<?x?xf32>
  %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<?x64xbf16>, tensor<?x64xbf16>) outs(%zeros : tensor<?x?xf32>) {
  ^bb0(%x: bf16, %y: bf16, %acc: f32):
    %x32 = arith.extf %x : bf16 to f32
    %y32 = arith.extf %y : bf16 to f32
    %product = arith.mulf %x32, %y32 : f32
    %sum = arith.addf %acc, %product : f32
    linalg.yield %sum : f32
  } -> tensor<?x?xf32>
  %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%products : tensor<?x?xf32>) outs(%matrix : tensor<?x?xf32>) {
  ^bb0(%x: f32, %out: f32):
    %scaled = arith.mulf %x, %scale : f32
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %seen = arith.cmpi sle, %j, %i : index
    %score = arith.select %seen, %scaled, %none : f32
    linalg.yield %score : f32
  } -> tensor<?x?xf32>
  %vector = tensor.empty(%Sq) : tensor<?xf32>
  %rows = tensor.empty(%Sq) : tensor<?x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?x64xf32>) -> tensor<?x64xf32>
  %r:3 = fa.online_softmax ins(%scores, %v : tensor<?x?xf32>, tensor<?x64xbf16>) outs(%m0, %l0, %o0 : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>)
  return %r#2 : tensor<?x64xf32>
}

// Lengths that the tiles divide give static tiles.
// CHECK-LABEL: func @divisible
// CHECK: fa.online_softmax ins({{.*}} : tensor<64x32xf32>, tensor<32x16xf32>)
func.func @divisible(%q: tensor<128x16xf32>) -> tensor<128x16xf32> {
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %matrix = tensor.empty() : tensor<128x128xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%matrix : tensor<128x128xf32>) -> tensor<128x128xf32>
  %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %q : tensor<128x16xf32>, tensor<128x16xf32>) outs(%zeros : tensor<128x128xf32>) {
  ^bb0(%x: f32, %y: f32, %acc: f32):
    %product = arith.mulf %x, %y : f32
    %sum = arith.addf %acc, %product : f32
    linalg.yield %sum : f32
  } -> tensor<128x128xf32>
  %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%products : tensor<128x128xf32>) outs(%matrix : tensor<128x128xf32>) {
  ^bb0(%x: f32, %out: f32):
    %score = arith.mulf %x, %scale : f32
    linalg.yield %score : f32
  } -> tensor<128x128xf32>
  %vector = tensor.empty() : tensor<128xf32>
  %rows = tensor.empty() : tensor<128x16xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<128xf32>) -> tensor<128xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<128xf32>) -> tensor<128xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<128x16xf32>) -> tensor<128x16xf32>
  %r:3 = fa.online_softmax ins(%scores, %q : tensor<128x128xf32>, tensor<128x16xf32>) outs(%m0, %l0, %o0 : tensor<128xf32>, tensor<128xf32>, tensor<128x16xf32>)
  return %r#2 : tensor<128x16xf32>
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
func.func @dropout(%q: tensor<?x64xbf16>, %seed: tensor<i64>, %b: index, %h: index) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %limit = arith.constant 26 : i8
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %Sq = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %Sk = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %matrix = tensor.empty(%Sq, %Sk) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%matrix : tensor<?x?xf32>) -> tensor<?x?xf32>
  %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %q : tensor<?x64xbf16>, tensor<?x64xbf16>) outs(%zeros : tensor<?x?xf32>) {
  ^bb0(%x: bf16, %y: bf16, %acc: f32):
    %x32 = arith.extf %x : bf16 to f32
    %y32 = arith.extf %y : bf16 to f32
    %product = arith.mulf %x32, %y32 : f32
    %sum = arith.addf %acc, %product : f32
    linalg.yield %sum : f32
  } -> tensor<?x?xf32>
  %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%products : tensor<?x?xf32>) outs(%matrix : tensor<?x?xf32>) {
  ^bb0(%x: f32, %out: f32):
    %score = arith.mulf %x, %scale : f32
    linalg.yield %score : f32
  } -> tensor<?x?xf32>
  %vector = tensor.empty(%Sq) : tensor<?xf32>
  %rows = tensor.empty(%Sq) : tensor<?x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?x64xf32>) -> tensor<?x64xf32>
  %r:3 = fa.online_softmax ins(%scores, %q : tensor<?x?xf32>, tensor<?x64xbf16>) outs(%m0, %l0, %o0 : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>) keep {
  ^bb0(%i: index, %j: index):
    %s = tensor.extract %seed[] : tensor<i64>
    %bits = fa.random_bits %s at [%b, %h, %i, %j]
    %kept = arith.cmpi uge, %bits, %limit : i8
    fa.yield %kept : i1
  }
  return %r#2 : tensor<?x64xf32>
}

// What a mask reads for rows and for keys, such as documents' numbers, is no
// score function: 128x64, as for any mask.
// HOPPER-LABEL: func @documents
// HOPPER: scf.for {{.*}} step %c64 iter_args
// HOPPER: scf.for {{.*}} step %c128 iter_args
// HOPPER-LABEL: func @array
// HOPPER: scf.for {{.*}} step %c48 iter_args
// HOPPER: scf.for {{.*}} step %c128 iter_args
func.func @documents(%q: tensor<?x64xbf16>, %ids: tensor<?xi32>) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %ids, %c0 : tensor<?xi32>
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %Sq = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %Sk = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %matrix = tensor.empty(%Sq, %Sk) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%matrix : tensor<?x?xf32>) -> tensor<?x?xf32>
  %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %q : tensor<?x64xbf16>, tensor<?x64xbf16>) outs(%zeros : tensor<?x?xf32>) {
  ^bb0(%x: bf16, %y: bf16, %acc: f32):
    %x32 = arith.extf %x : bf16 to f32
    %y32 = arith.extf %y : bf16 to f32
    %product = arith.mulf %x32, %y32 : f32
    %sum = arith.addf %acc, %product : f32
    linalg.yield %sum : f32
  } -> tensor<?x?xf32>
  %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%products : tensor<?x?xf32>) outs(%matrix : tensor<?x?xf32>) {
  ^bb0(%x: f32, %out: f32):
    %scaled = arith.mulf %x, %scale : f32
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %last = arith.subi %n, %c1 : index
    %i_low = arith.minsi %i, %last : index
    %i_in = arith.maxsi %i_low, %c0 : index
    %mine = tensor.extract %ids[%i_in] : tensor<?xi32>
    %j_low = arith.minsi %j, %last : index
    %j_in = arith.maxsi %j_low, %c0 : index
    %other = tensor.extract %ids[%j_in] : tensor<?xi32>
    %seen = arith.cmpi eq, %mine, %other : i32
    %score = arith.select %seen, %scaled, %none : f32
    linalg.yield %score : f32
  } -> tensor<?x?xf32>
  %vector = tensor.empty(%Sq) : tensor<?xf32>
  %rows = tensor.empty(%Sq) : tensor<?x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?x64xf32>) -> tensor<?x64xf32>
  %r:3 = fa.online_softmax ins(%scores, %q : tensor<?x?xf32>, tensor<?x64xbf16>) outs(%m0, %l0, %o0 : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>)
  return %r#2 : tensor<?x64xf32>
}

// What it reads for each element takes registers.
func.func @array(%q: tensor<?x64xbf16>, %mask: tensor<?x?xi1>) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %mask, %c0 : tensor<?x?xi1>
  %m = tensor.dim %mask, %c1 : tensor<?x?xi1>
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %Sq = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %Sk = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %matrix = tensor.empty(%Sq, %Sk) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%matrix : tensor<?x?xf32>) -> tensor<?x?xf32>
  %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %q : tensor<?x64xbf16>, tensor<?x64xbf16>) outs(%zeros : tensor<?x?xf32>) {
  ^bb0(%x: bf16, %y: bf16, %acc: f32):
    %x32 = arith.extf %x : bf16 to f32
    %y32 = arith.extf %y : bf16 to f32
    %product = arith.mulf %x32, %y32 : f32
    %sum = arith.addf %acc, %product : f32
    linalg.yield %sum : f32
  } -> tensor<?x?xf32>
  %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%products : tensor<?x?xf32>) outs(%matrix : tensor<?x?xf32>) {
  ^bb0(%x: f32, %out: f32):
    %scaled = arith.mulf %x, %scale : f32
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %last_i = arith.subi %n, %c1 : index
    %i_low = arith.minsi %i, %last_i : index
    %i_in = arith.maxsi %i_low, %c0 : index
    %last_j = arith.subi %m, %c1 : index
    %j_low = arith.minsi %j, %last_j : index
    %j_in = arith.maxsi %j_low, %c0 : index
    %seen = tensor.extract %mask[%i_in, %j_in] : tensor<?x?xi1>
    %score = arith.select %seen, %scaled, %none : f32
    linalg.yield %score : f32
  } -> tensor<?x?xf32>
  %vector = tensor.empty(%Sq) : tensor<?xf32>
  %rows = tensor.empty(%Sq) : tensor<?x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?x64xf32>) -> tensor<?x64xf32>
  %r:3 = fa.online_softmax ins(%scores, %q : tensor<?x?xf32>, tensor<?x64xbf16>) outs(%m0, %l0, %o0 : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>)
  return %r#2 : tensor<?x64xf32>
}
