// A loop that carries a tensor in memory, to which each iteration adds a tile: the
// next one would read it ahead of its turn. The Ampere schedule does not.
// RUN: fa-opt %s --fa-schedule-hopper --remarks-filter=fa-hopper-place --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s
// RUN: fa-opt %s --fa-lower-to-nvidia=chip=sm_90a | FileCheck %s --check-prefix=LOWERED

// CHECK: left the kernel to the Ampere schedule: {{.*}}a loop of contractions carries a tensor of which it writes tiles
// LOWERED: gpu.module
#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (j, k)>
#c = affine_map<(i, j, k) -> (i, j)>
func.func @carried(%a: tensor<128x64xbf16>, %b: tensor<64x64xbf16>) -> tensor<128x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %empty = tensor.empty() : tensor<128x64xf32>
  %r = scf.forall (%n) in (1) shared_outs(%out = %empty) -> (tensor<128x64xf32>) {
    %bt = tensor.extract_slice %b[0, 0] [64, 64] [1, 1] : tensor<64x64xbf16> to tensor<64x64xbf16>
    %sums = scf.for %i = %c0 to %c128 step %c64 iter_args(%acc = %out) -> (tensor<128x64xf32>) {
      %at = tensor.extract_slice %a[%i, 0] [64, 64] [1, 1] : tensor<128x64xbf16> to tensor<64x64xbf16>
      %old = tensor.extract_slice %acc[%i, 0] [64, 64] [1, 1] : tensor<128x64xf32> to tensor<64x64xf32>
      %s = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%at, %bt : tensor<64x64xbf16>, tensor<64x64xbf16>) outs(%old : tensor<64x64xf32>) {
      ^bb0(%x: bf16, %y: bf16, %o: f32):
        %xx = arith.extf %x : bf16 to f32
        %yy = arith.extf %y : bf16 to f32
        %p = arith.mulf %xx, %yy : f32
        %q = arith.addf %o, %p : f32
        linalg.yield %q : f32
      } -> tensor<64x64xf32>
      %new = tensor.insert_slice %s into %acc[%i, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<128x64xf32>
      scf.yield %new : tensor<128x64xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %sums into %out[0, 0] [128, 64] [1, 1] : tensor<128x64xf32> into tensor<128x64xf32>
    }
  }
  return %r : tensor<128x64xf32>
}
