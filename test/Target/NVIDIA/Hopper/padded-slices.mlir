// TMA takes a whole tile and pads it where its tensor ends. A slice that may end
// before is loaded by rows where it does.
// RUN: fa-opt %s --fa-schedule-hopper | FileCheck %s
// RUN: fa-opt %s --fa-lower-to-nvidia=chip=sm_90a | FileCheck %s --check-prefix=LOWERED

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (j, k)>
#c = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#end = affine_map<(d0)[s0] -> (-d0 + s0, 64)>
#before = affine_map<(d0)[s0] -> (-d0 + s0 - 8, 64)>
#short = affine_map<(d0)[s0] -> (-d0 + s0, 56)>
#pad = affine_map<(d0) -> (-d0 + 64)>

// CHECK-LABEL: func @ends(
// CHECK: hopper.load %{{.*}} bytes 8192 : tensor<64x64xbf16>
// CHECK: hopper.load %{{.*}} bytes 8192 : tensor<64x64xbf16>
// CHECK-LABEL: func @ends_before(
// CHECK: hopper.load %{{.*}} bytes 8192 by_rows : tensor<64x64xbf16>
// CHECK: hopper.load %{{.*}} bytes 8192 : tensor<64x64xbf16>
// CHECK-LABEL: func @is_short(
// CHECK: hopper.load %{{.*}} bytes 8192 by_rows : tensor<64x64xbf16>
// A map of boxes of one row stands beside that of the tile's.
// LOWERED: gpu.module @ends_gpu
// LOWERED-NOT: rows=1"
// LOWERED: gpu.module @ends_before_gpu {{.*}}tensor=0 dim=0 rows=64"{{.*}}tensor=0 dim=0 rows=1"
// LOWERED: gpu.module @is_short_gpu {{.*}}tensor=0 dim=0 rows=64"{{.*}}tensor=0 dim=0 rows=1"

func.func @ends(%a: tensor<?x64xbf16>, %b: tensor<64x64xbf16>) -> tensor<?x64xbf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %zero16 = arith.constant 0.0 : bf16
  %rows = tensor.dim %a, %c0 : tensor<?x64xbf16>
  %empty = tensor.empty(%rows) : tensor<?x64xbf16>
  %r = scf.forall (%i) = (0) to (%rows) step (64) shared_outs(%out = %empty) -> (tensor<?x64xbf16>) {
    %m = affine.min #end(%i)[%rows]
    %pad = affine.apply #pad(%m)
    %e = tensor.empty() : tensor<64x64xf32>
    %e16 = tensor.empty() : tensor<64x64xbf16>
    %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
    %as = tensor.extract_slice %a[%i, 0] [%m, 64] [1, 1] : tensor<?x64xbf16> to tensor<?x64xbf16>
    %at = tensor.pad %as low[0, 0] high[%pad, 0] {
    ^bb0(%x: index, %y: index):
      tensor.yield %zero16 : bf16
    } : tensor<?x64xbf16> to tensor<64x64xbf16>
    %bt = tensor.extract_slice %b[0, 0] [64, 64] [1, 1] : tensor<64x64xbf16> to tensor<64x64xbf16>
    %s = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%at, %bt : tensor<64x64xbf16>, tensor<64x64xbf16>) outs(%zeros : tensor<64x64xf32>) {
    ^bb0(%x: bf16, %y: bf16, %o: f32):
      %xx = arith.extf %x : bf16 to f32
      %yy = arith.extf %y : bf16 to f32
      %p = arith.mulf %xx, %yy : f32
      %n = arith.addf %o, %p : f32
      linalg.yield %n : f32
    } -> tensor<64x64xf32>
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e16 : tensor<64x64xbf16>) {
    ^bb0(%x: f32, %o: bf16):
      %n = arith.truncf %x : f32 to bf16
      linalg.yield %n : bf16
    } -> tensor<64x64xbf16>
    %part = tensor.extract_slice %t[0, 0] [%m, 64] [1, 1] : tensor<64x64xbf16> to tensor<?x64xbf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %part into %out[%i, 0] [%m, 64] [1, 1] : tensor<?x64xbf16> into tensor<?x64xbf16>
    }
  }
  return %r : tensor<?x64xbf16>
}

func.func @ends_before(%a: tensor<?x64xbf16>, %b: tensor<64x64xbf16>) -> tensor<?x64xbf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %zero16 = arith.constant 0.0 : bf16
  %rows = tensor.dim %a, %c0 : tensor<?x64xbf16>
  %empty = tensor.empty(%rows) : tensor<?x64xbf16>
  %r = scf.forall (%i) = (0) to (%rows) step (64) shared_outs(%out = %empty) -> (tensor<?x64xbf16>) {
    %m = affine.min #before(%i)[%rows]
    %pad = affine.apply #pad(%m)
    %e = tensor.empty() : tensor<64x64xf32>
    %e16 = tensor.empty() : tensor<64x64xbf16>
    %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
    %as = tensor.extract_slice %a[%i, 0] [%m, 64] [1, 1] : tensor<?x64xbf16> to tensor<?x64xbf16>
    %at = tensor.pad %as low[0, 0] high[%pad, 0] {
    ^bb0(%x: index, %y: index):
      tensor.yield %zero16 : bf16
    } : tensor<?x64xbf16> to tensor<64x64xbf16>
    %bt = tensor.extract_slice %b[0, 0] [64, 64] [1, 1] : tensor<64x64xbf16> to tensor<64x64xbf16>
    %s = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%at, %bt : tensor<64x64xbf16>, tensor<64x64xbf16>) outs(%zeros : tensor<64x64xf32>) {
    ^bb0(%x: bf16, %y: bf16, %o: f32):
      %xx = arith.extf %x : bf16 to f32
      %yy = arith.extf %y : bf16 to f32
      %p = arith.mulf %xx, %yy : f32
      %n = arith.addf %o, %p : f32
      linalg.yield %n : f32
    } -> tensor<64x64xf32>
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e16 : tensor<64x64xbf16>) {
    ^bb0(%x: f32, %o: bf16):
      %n = arith.truncf %x : f32 to bf16
      linalg.yield %n : bf16
    } -> tensor<64x64xbf16>
    %part = tensor.extract_slice %t[0, 0] [%m, 64] [1, 1] : tensor<64x64xbf16> to tensor<?x64xbf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %part into %out[%i, 0] [%m, 64] [1, 1] : tensor<?x64xbf16> into tensor<?x64xbf16>
    }
  }
  return %r : tensor<?x64xbf16>
}

func.func @is_short(%a: tensor<?x64xbf16>, %b: tensor<64x64xbf16>) -> tensor<?x64xbf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %zero16 = arith.constant 0.0 : bf16
  %rows = tensor.dim %a, %c0 : tensor<?x64xbf16>
  %empty = tensor.empty(%rows) : tensor<?x64xbf16>
  %r = scf.forall (%i) = (0) to (%rows) step (64) shared_outs(%out = %empty) -> (tensor<?x64xbf16>) {
    %m = affine.min #short(%i)[%rows]
    %pad = affine.apply #pad(%m)
    %e = tensor.empty() : tensor<64x64xf32>
    %e16 = tensor.empty() : tensor<64x64xbf16>
    %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
    %as = tensor.extract_slice %a[%i, 0] [%m, 64] [1, 1] : tensor<?x64xbf16> to tensor<?x64xbf16>
    %at = tensor.pad %as low[0, 0] high[%pad, 0] {
    ^bb0(%x: index, %y: index):
      tensor.yield %zero16 : bf16
    } : tensor<?x64xbf16> to tensor<64x64xbf16>
    %bt = tensor.extract_slice %b[0, 0] [64, 64] [1, 1] : tensor<64x64xbf16> to tensor<64x64xbf16>
    %s = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%at, %bt : tensor<64x64xbf16>, tensor<64x64xbf16>) outs(%zeros : tensor<64x64xf32>) {
    ^bb0(%x: bf16, %y: bf16, %o: f32):
      %xx = arith.extf %x : bf16 to f32
      %yy = arith.extf %y : bf16 to f32
      %p = arith.mulf %xx, %yy : f32
      %n = arith.addf %o, %p : f32
      linalg.yield %n : f32
    } -> tensor<64x64xf32>
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e16 : tensor<64x64xbf16>) {
    ^bb0(%x: f32, %o: bf16):
      %n = arith.truncf %x : f32 to bf16
      linalg.yield %n : bf16
    } -> tensor<64x64xbf16>
    %part = tensor.extract_slice %t[0, 0] [%m, 64] [1, 1] : tensor<64x64xbf16> to tensor<?x64xbf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %part into %out[%i, 0] [%m, 64] [1, 1] : tensor<?x64xbf16> into tensor<?x64xbf16>
    }
  }
  return %r : tensor<?x64xbf16>
}
