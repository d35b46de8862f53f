// Roles, rings and products by rules: one slot for all uses of a tile, held from
// the first product to behind the last. What is computed is executed elsewhere
// (test/Run/Interpreter/hopper-rules.test, RulesTest.cpp).

// RUN: fa-opt %s --fa-hopper-place --split-input-file | FileCheck %s
// RUN: fa-opt %s --fa-hopper-place --split-input-file --remarks-filter=fa-hopper-place --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=LEFT
// RUN: fa-opt %inputs/tiles/gemm.mlir --fa-hopper-place --hopper-verify | FileCheck %s --check-prefix=GEMM

// GEMM: %[[A:.*]] = hopper.ring "tile0" at 1024 barriers 0 : <4, tensor<128x64xbf16>>
// GEMM: %[[B:.*]] = hopper.ring "tile1" at 66560 barriers 64 : <4, tensor<64x128xbf16>>
// GEMM: hopper.tile_queue barriers 128{{$}}
// GEMM: hopper.producer registers 40 {
// GEMM-NEXT: scf.for
// GEMM: hopper.load %{{.*}} into %[[A]]
// GEMM: hopper.load %{{.*}} into %[[B]]
// GEMM: hopper.consumers 2 registers 232 -> (tensor<?x128xbf16>) {
// GEMM: scf.for {{.*}} iter_args(%[[ACC:.*]] =
// GEMM: %[[AS:.*]] = hopper.acquire %[[A]] of
// GEMM: %[[BS:.*]] = hopper.acquire %[[B]] of
// GEMM: %[[P:.*]] = hopper.wgmma %[[AS]], %[[BS]] transposed init(%[[ACC]])
// GEMM-NEXT: %[[D:.*]] = hopper.wait_group 0, %[[P]]
// GEMM: hopper.release %[[BS]]
// GEMM-NEXT: hopper.release %[[AS]]
// GEMM-NEXT: scf.yield %[[D]]
// GEMM: arith.maximumf
// GEMM: hopper.yield

// The gradients of attention, by 64 queries and 128 keys: five products, of which
// dQ takes dS from where both warpgroups have written it, and has 64 rows, of which
// each computes half of the columns.

// RUN: fa-opt %S/Inputs/gradient.mlir --fa-hopper-place --hopper-verify | FileCheck %s --check-prefix=GRADIENT

// GRADIENT-LABEL: func.func @gradient(
// GRADIENT: %[[K:.*]] = hopper.ring "tile0" at {{.*}} : <1, tensor<128x64xbf16>>
// GRADIENT: %[[Q:.*]] = hopper.ring "tile1" at {{.*}} : <2, tensor<64x64xbf16>>
// GRADIENT: %[[V:.*]] = hopper.ring "tile2" at {{.*}} : <1, tensor<128x64xbf16>>
// GRADIENT: %[[G:.*]] = hopper.ring "tile3" at {{.*}} : <2, tensor<64x64xbf16>>
// GRADIENT: %[[DS:.*]] = hopper.ring "tile4" at {{.*}} computed : <2, tensor<128x64xbf16>>
// GRADIENT: %[[LSE:.*]] = hopper.ring "tile5" at {{.*}} : <2, tensor<64xf32>>
// GRADIENT: %[[D:.*]] = hopper.ring "tile6" at {{.*}} : <2, tensor<64xf32>>
// GRADIENT: hopper.consumers 2 registers
// GRADIENT: %[[KS:.*]] = hopper.acquire %[[K]]
// GRADIENT: scf.for
// GRADIENT: scf.for
// GRADIENT: hopper.wgmma %[[KS]], %{{.*}} : {{.*}} -> !hopper.pending<tensor<128x64xf32>>
// GRADIENT: hopper.wgmma {{.*}} -> !hopper.pending<tensor<128x64xf32>>
// GRADIENT: hopper.wgmma {{.*}} transposed init
// GRADIENT: hopper.wgmma {{.*}} transposed init
// GRADIENT: hopper.share %{{.*}} into %[[DS]]
// GRADIENT-NEXT: %[[DSS:.*]] = hopper.acquire %[[DS]]
// GRADIENT: hopper.wgmma %[[DSS]] transposed, %[[KS]] transposed : {{.*}} -> !hopper.pending<tensor<64x64xf32>>
// GRADIENT: hopper.release %[[DSS]]
// GRADIENT: hopper.stage {{.*}} : tensor<64x64xf32>
// GRADIENT: fa.accumulate_slice

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#bt = affine_map<(i, j, k) -> (j, k)>
#at = affine_map<(i, j, k) -> (k, i)>
#c = affine_map<(i, j, k) -> (i, j)>
!g = tensor<64x64xf16>
!s = tensor<64x64xf32>

// K-major by one product and MN-major by the other, of one slot; the second one
// goes on from the first.

// CHECK-LABEL: func.func @both_ways(
// CHECK: %[[X:.*]] = hopper.ring "tile0"
// CHECK: %[[Y:.*]] = hopper.ring "tile1"
// CHECK-NOT: hopper.ring
// CHECK: %[[XS:.*]] = hopper.acquire %[[X]]
// CHECK: %[[YS:.*]] = hopper.acquire %[[Y]]
// CHECK: %[[P:.*]] = hopper.wgmma %[[XS]], %[[YS]] :
// CHECK-NEXT: %[[S:.*]] = hopper.wait_group 0, %[[P]]
// CHECK: hopper.wgmma %[[XS]], %[[YS]] transposed init(%[[S]])
// CHECK-NEXT: hopper.wait_group 0
// CHECK: hopper.release %[[YS]]
// CHECK: hopper.release %[[XS]]
func.func @both_ways(%x: !g, %y: !g) -> !s {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : !s
  %r = scf.forall (%i) = (0) to (64) step (64) shared_outs(%out = %e) -> (!s) {
    %z = linalg.fill ins(%zero : f32) outs(%e : !s) -> !s
    %xt = tensor.extract_slice %x[%i, 0] [64, 64] [1, 1] : !g to !g
    %yt = tensor.extract_slice %y[%i, 0] [64, 64] [1, 1] : !g to !g
    %p = linalg.generic {indexing_maps = [#a, #bt, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%xt, %yt : !g, !g) outs(%z : !s) {
    ^bb0(%u: f16, %v: f16, %o: f32):
      %u32 = arith.extf %u : f16 to f32
      %v32 = arith.extf %v : f16 to f32
      %uv = arith.mulf %u32, %v32 : f32
      %n = arith.addf %o, %uv : f32
      linalg.yield %n : f32
    } -> !s
    %q = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%xt, %yt : !g, !g) outs(%p : !s) {
    ^bb0(%u: f16, %v: f16, %o: f32):
      %u32 = arith.extf %u : f16 to f32
      %v32 = arith.extf %v : f16 to f32
      %uv = arith.mulf %u32, %v32 : f32
      %n = arith.addf %o, %uv : f32
      linalg.yield %n : f32
    } -> !s
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %q into %out[%i, 0] [64, 64] [1, 1] : !s into !s
    }
  }
  return %r : !s
}

// -----

// What a product wants as its second operand, or turned, goes through shared
// memory, also where registers have it for another product.

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
!g = tensor<64x64xf16>
!s = tensor<64x64xf32>

// CHECK-LABEL: func.func @computed_second(
// CHECK: %[[X:.*]] = hopper.ring "tile0" at 1024 barriers 0 : <1, tensor<64x64xf16>>
// CHECK: %[[R:.*]] = hopper.ring "tile1" at 9216 barriers 16 computed : <1, tensor<64x64xf16>>
// CHECK: hopper.producer
// CHECK-NEXT: hopper.load %{{.*}} into %[[X]]
// CHECK-NEXT: }
// CHECK: hopper.consumers 1
// CHECK: %[[TWICE:.*]] = linalg.generic
// CHECK: hopper.share %[[TWICE]] into %[[R]]
// CHECK-NEXT: %[[S:.*]] = hopper.acquire %[[R]] of %[[TWICE]]
// CHECK: hopper.wgmma %{{.*}}, %[[S]] transposed
// CHECK: hopper.release %[[S]]
func.func @computed_second(%x: !g, %y: !g) -> !s {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : !s
  %e16 = tensor.empty() : !g
  %r = scf.forall (%i) = (0) to (64) step (64) shared_outs(%out = %e) -> (!s) {
    %z = linalg.fill ins(%zero : f32) outs(%e : !s) -> !s
    %xt = tensor.extract_slice %x[%i, 0] [64, 64] [1, 1] : !g to !g
    %yt = tensor.extract_slice %y[%i, 0] [64, 64] [1, 1] : !g to !g
    %twice = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%yt : !g) outs(%e16 : !g) {
    ^bb0(%u: f16, %o: f16):
      %n = arith.addf %u, %u : f16
      linalg.yield %n : f16
    } -> !g
    %q = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%xt, %twice : !g, !g) outs(%z : !s) {
    ^bb0(%u: f16, %v: f16, %o: f32):
      %u32 = arith.extf %u : f16 to f32
      %v32 = arith.extf %v : f16 to f32
      %uv = arith.mulf %u32, %v32 : f32
      %n = arith.addf %o, %uv : f32
      linalg.yield %n : f32
    } -> !s
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %q into %out[%i, 0] [64, 64] [1, 1] : !s into !s
    }
  }
  return %r : !s
}

// -----

// LEFT-NOT: it has no contraction

func.func @nothing(%x: tensor<64xf32>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64xf32>
  %r = scf.forall (%i) = (0) to (64) step (64) shared_outs(%out = %e) -> (tensor<64xf32>) {
    %t = tensor.extract_slice %x[%i] [64] [1] : tensor<64xf32> to tensor<64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %out[%i] [64] [1] : tensor<64xf32> into tensor<64xf32>
    }
  }
  return %r : tensor<64xf32>
}

// -----

// LEFT: left the kernel to the Ampere schedule: {{.*}}a contraction is in a loop or branch that computed tiles decide

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
!g = tensor<64x64xf16>
!s = tensor<64x64xf32>

// CHECK-LABEL: func.func @branch_by_tiles(
// CHECK-NOT: hopper.
func.func @branch_by_tiles(%x: !g, %y: !g) -> !s {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : !s
  %r = scf.forall (%i) = (0) to (64) step (64) shared_outs(%out = %e) -> (!s) {
    %z = linalg.fill ins(%zero : f32) outs(%e : !s) -> !s
    %xt = tensor.extract_slice %x[%i, 0] [64, 64] [1, 1] : !g to !g
    %yt = tensor.extract_slice %y[%i, 0] [64, 64] [1, 1] : !g to !g
    %wide = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%yt : !g) outs(%e : !s) {
    ^bb0(%u: f16, %o: f32):
      %n = arith.extf %u : f16 to f32
      linalg.yield %n : f32
    } -> !s
    %first = tensor.extract %wide[%c0, %c0] : !s
    %some = arith.cmpf ogt, %first, %zero : f32
    %q = scf.if %some -> (!s) {
      %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%xt, %yt : !g, !g) outs(%z : !s) {
      ^bb0(%u: f16, %v: f16, %o: f32):
        %u32 = arith.extf %u : f16 to f32
        %v32 = arith.extf %v : f16 to f32
        %uv = arith.mulf %u32, %v32 : f32
        %n = arith.addf %o, %uv : f32
        linalg.yield %n : f32
      } -> !s
      scf.yield %p : !s
    } else {
      scf.yield %z : !s
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %q into %out[%i, 0] [64, 64] [1, 1] : !s into !s
    }
  }
  return %r : !s
}

// -----

// LEFT: left the kernel to the Ampere schedule: {{.*}}warpgroups would have to share a computed operand of 32 x 64, of which each of 1 is expected to have 64 rows and a multiple of 16 columns

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
!x = tensor<64x32xf16>
!y = tensor<32x64xf16>
!s = tensor<64x64xf32>

// CHECK-LABEL: func.func @few_rows(
// CHECK-NOT: hopper.
func.func @few_rows(%x: !x, %y: !y) -> !s {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : !s
  %e16 = tensor.empty() : !y
  %r = scf.forall (%i) = (0) to (64) step (64) shared_outs(%out = %e) -> (!s) {
    %z = linalg.fill ins(%zero : f32) outs(%e : !s) -> !s
    %xt = tensor.extract_slice %x[%i, 0] [64, 32] [1, 1] : !x to !x
    %yt = tensor.extract_slice %y[%i, 0] [32, 64] [1, 1] : !y to !y
    %twice = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%yt : !y) outs(%e16 : !y) {
    ^bb0(%u: f16, %o: f16):
      %n = arith.addf %u, %u : f16
      linalg.yield %n : f16
    } -> !y
    %q = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%xt, %twice : !x, !y) outs(%z : !s) {
    ^bb0(%u: f16, %v: f16, %o: f32):
      %u32 = arith.extf %u : f16 to f32
      %v32 = arith.extf %v : f16 to f32
      %uv = arith.mulf %u32, %v32 : f32
      %n = arith.addf %o, %uv : f32
      linalg.yield %n : f32
    } -> !s
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %q into %out[%i, 0] [64, 64] [1, 1] : !s into !s
    }
  }
  return %r : !s
}

// -----

// A tile of 1024 columns that blocks add products of: one head at a time.

// CHECK-LABEL: func.func @wide_rows(
// CHECK: hopper.tile_queue barriers {{[0-9]+}} longest_first section 1{{$}}
// CHECK: hopper.wgmma
// CHECK: fa.accumulate_slice
#a = affine_map<(i, j, k) -> (i, k)>
#bt = affine_map<(i, j, k) -> (j, k)>
#c = affine_map<(i, j, k) -> (i, j)>
func.func @wide_rows(%a: tensor<256x1024xbf16>, %b: tensor<16x1024xbf16>) -> tensor<64x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x16xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<64x16xf32>) -> tensor<64x16xf32>
  %r = scf.forall (%i) = (0) to (256) step (64) shared_outs(%o = %zeros) -> (tensor<64x16xf32>) {
    %t = tensor.extract_slice %a[%i, 0] [64, 1024] [1, 1] : tensor<256x1024xbf16> to tensor<64x1024xbf16>
    %u = tensor.extract_slice %b[0, 0] [16, 1024] [1, 1] : tensor<16x1024xbf16> to tensor<16x1024xbf16>
    %n = tensor.empty() : tensor<64x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%n : tensor<64x16xf32>) -> tensor<64x16xf32>
    %p = linalg.generic {indexing_maps = [#a, #bt, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%t, %u : tensor<64x1024xbf16>, tensor<16x1024xbf16>) outs(%z : tensor<64x16xf32>) {
    ^bb0(%x: bf16, %y: bf16, %acc: f32):
      %x32 = arith.extf %x : bf16 to f32
      %y32 = arith.extf %y : bf16 to f32
      %xy = arith.mulf %x32, %y32 : f32
      %s = arith.addf %acc, %xy : f32
      linalg.yield %s : f32
    } -> tensor<64x16xf32>
    %sum = fa.accumulate_slice %p into %o[0, 0] [64, 16] [1, 1] : tensor<64x16xf32> into tensor<64x16xf32>
    scf.forall.in_parallel {
      fa.parallel_accumulate %sum into %o : tensor<64x16xf32>
    }
  }
  return %r : tensor<64x16xf32>
}
