// The input is the output of --fa-decompose: the standard algorithm.
// RUN: fa-opt %s --fa-distribute="target=sm_80" --remarks-filter=fa-distribute --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefixes=SIZES,AMPERE
// RUN: fa-opt %s --fa-distribute="target=sm_90a algorithm=standard" | FileCheck %s --check-prefix=HOPPER
// RUN: fa-opt %s --fa-distribute="rows=32 keys=16" | FileCheck %s --check-prefix=GIVEN
// RUN: fa-opt %s --fa-distribute="rows=32 keys=16" --remarks-filter=fa-distribute --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=BOTH
// RUN: fa-opt %s --fa-distribute="target=sm_80 rows=32" --remarks-filter=fa-distribute --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=ROWS
// RUN: fa-opt %s --fa-distribute="target=sm_80 keys=16" --remarks-filter=fa-distribute --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=KEYS
// RUN: not fa-opt %s --fa-distribute="target=sm_1" 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: not fa-opt %s --fa-distribute="rows=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#vec = affine_map<(i) -> (i)>

// The sizes are those that fa-tile chooses, by the target and the algorithm.
// SIZES: remark: [Passed] TileSizes {{.*}}chose 128 rows and 64 keys a tile: K and V are read {{.*}}; 1 stage fits in {{.*}} KiB of shared memory, of which a block can have 163.0 KiB
// BOTH: remark: [Passed] TileSizes {{.*}}took the 32 rows and 16 keys a tile that were asked for
// ROWS: remark: [Passed] TileSizes {{.*}}took the 32 rows that were asked for and chose 64 keys a tile, as for 128x64: K and V are read
// KEYS: remark: [Passed] TileSizes {{.*}}took the 16 keys that were asked for and chose 128 rows a tile, as for 128x64: K and V are read
// AMPERE: scf.forall {{.*}} step (1, 1, 128, 64)
// HOPPER: scf.forall {{.*}} step (1, 1, 128, 64)
// GIVEN: scf.forall {{.*}} step (1, 1, 32, 16)
// TARGET: unknown target 'sm_1'; known targets are cpu, sm_80
// NEGATIVE: expected tile sizes of at least 1, or 0 to choose, got rows=-1 keys=0
func.func @heads(%q: tensor<1x4x?x128xbf16>, %k: tensor<1x4x?x128xbf16>, %v: tensor<1x4x?x128xbf16>) -> tensor<1x4x?x128xbf16> {
  %c2 = arith.constant 2 : index
  %scale = arith.constant 0.0883883461 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %Sq = tensor.dim %q, %c2 : tensor<1x4x?x128xbf16>
  %Sk = tensor.dim %k, %c2 : tensor<1x4x?x128xbf16>
  %e0 = tensor.empty(%Sq) : tensor<1x4x?x128xbf16>
  %r = scf.forall (%b, %h) in (1, 4) shared_outs(%all = %e0) -> (tensor<1x4x?x128xbf16>) {
    %qs = tensor.extract_slice %q[%b, %h, 0, 0] [1, 1, %Sq, 128] [1, 1, 1, 1] : tensor<1x4x?x128xbf16> to tensor<?x128xbf16>
    %ks = tensor.extract_slice %k[%b, %h, 0, 0] [1, 1, %Sk, 128] [1, 1, 1, 1] : tensor<1x4x?x128xbf16> to tensor<?x128xbf16>
    %vs = tensor.extract_slice %v[%b, %h, 0, 0] [1, 1, %Sk, 128] [1, 1, 1, 1] : tensor<1x4x?x128xbf16> to tensor<?x128xbf16>
    %matrix = tensor.empty(%Sq, %Sk) : tensor<?x?xf32>
    %vector = tensor.empty(%Sq) : tensor<?xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%matrix : tensor<?x?xf32>) -> tensor<?x?xf32>
    %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qs, %ks : tensor<?x128xbf16>, tensor<?x128xbf16>) outs(%zeros : tensor<?x?xf32>) {
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
    %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
    %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%scores : tensor<?x?xf32>) outs(%m0 : tensor<?xf32>) {
    ^bb0(%x: f32, %max: f32):
      %larger = arith.maxnumf %x, %max : f32
      linalg.yield %larger : f32
    } -> tensor<?xf32>
    %shift = linalg.generic {indexing_maps = [#vec, #vec], iterator_types = ["parallel"]} ins(%m : tensor<?xf32>) outs(%vector : tensor<?xf32>) {
    ^bb0(%x: f32, %out: f32):
      %nothing = arith.cmpf oeq, %x, %none : f32
      %finite = arith.select %nothing, %zero, %x : f32
      linalg.yield %finite : f32
    } -> tensor<?xf32>
    %e = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%scores, %shift : tensor<?x?xf32>, tensor<?xf32>) outs(%matrix : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %below = arith.subf %x, %y : f32
      %exp = math.exp %below : f32
      linalg.yield %exp : f32
    } -> tensor<?x?xf32>
    %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
    %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%e : tensor<?x?xf32>) outs(%l0 : tensor<?xf32>) {
    ^bb0(%x: f32, %part: f32):
      %sum = arith.addf %x, %part : f32
      linalg.yield %sum : f32
    } -> tensor<?xf32>
    %weights = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%e, %l : tensor<?x?xf32>, tensor<?xf32>) outs(%matrix : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %empty = arith.cmpf oeq, %y, %zero : f32
      %quotient = arith.divf %x, %y : f32
      %value = arith.select %empty, %zero, %quotient : f32
      linalg.yield %value : f32
    } -> tensor<?x?xf32>
    %matrix16 = tensor.empty(%Sq, %Sk) : tensor<?x?xbf16>
    %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%weights : tensor<?x?xf32>) outs(%matrix16 : tensor<?x?xbf16>) {
    ^bb0(%x: f32, %out: bf16):
      %rounded = arith.truncf %x : f32 to bf16
      linalg.yield %rounded : bf16
    } -> tensor<?x?xbf16>
    %rows = tensor.empty(%Sq) : tensor<?x128xf32>
    %o0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?x128xf32>) -> tensor<?x128xf32>
    %o = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%p, %vs : tensor<?x?xbf16>, tensor<?x128xbf16>) outs(%o0 : tensor<?x128xf32>) {
    ^bb0(%x: bf16, %y: bf16, %acc: f32):
      %x32 = arith.extf %x : bf16 to f32
      %y32 = arith.extf %y : bf16 to f32
      %product = arith.mulf %x32, %y32 : f32
      %sum = arith.addf %acc, %product : f32
      linalg.yield %sum : f32
    } -> tensor<?x128xf32>
    %rows16 = tensor.empty(%Sq) : tensor<?x128xbf16>
    %rounded = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%o : tensor<?x128xf32>) outs(%rows16 : tensor<?x128xbf16>) {
    ^bb0(%x: f32, %out: bf16):
      %rounded = arith.truncf %x : f32 to bf16
      linalg.yield %rounded : bf16
    } -> tensor<?x128xbf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %rounded into %all[%b, %h, 0, 0] [1, 1, %Sq, 128] [1, 1, 1, 1] : tensor<?x128xbf16> into tensor<1x4x?x128xbf16>
    }
  }
  return %r : tensor<1x4x?x128xbf16>
}
