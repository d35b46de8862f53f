// A tile program that no pass makes: what the schedule does not take it leaves.
// RUN: fa-opt %s --fa-schedule-hopper --remarks-filter=fa-hopper-place --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s

// Where K lies depends on what the step before computed: no producer can run
// ahead.
// CHECK: left the kernel to the Ampere schedule: {{.*}}a tile is loaded from where only computed tiles tell
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
#map4 = affine_map<(d0, d1) -> (d0)>
#map5 = affine_map<(d0) -> (d0)>
#map6 = affine_map<(d0, d1, d2) -> (d2, d1)>
module {
  func.func @bf16(%arg0: tensor<1x1x256x64xbf16>, %arg1: tensor<1x1x256x64xbf16>, %arg2: tensor<1x1x256x64xbf16>) -> tensor<1x1x256x64xbf16> {
    %cst = arith.constant 0.180336878 : f32
    %cst_0 = arith.constant -0.180336878 : f32
    %c64 = arith.constant 64 : index
    %c256 = arith.constant 256 : index
    %c0 = arith.constant 0 : index
    %cst_1 = arith.constant 0xFF800000 : f32
    %cst_2 = arith.constant 0.000000e+00 : f32
    %0 = tensor.empty() : tensor<1x1x256x64xbf16>
    %1 = scf.forall (%arg3) = (0) to (256) step (128) shared_outs(%arg4 = %0) -> (tensor<1x1x256x64xbf16>) {
      %2 = tensor.empty() : tensor<128x64xf32>
      %3 = linalg.fill ins(%cst_2 : f32) outs(%2 : tensor<128x64xf32>) -> tensor<128x64xf32>
      %4 = tensor.empty() : tensor<128xf32>
      %5 = linalg.fill ins(%cst_1 : f32) outs(%4 : tensor<128xf32>) -> tensor<128xf32>
      %6 = linalg.fill ins(%cst_2 : f32) outs(%4 : tensor<128xf32>) -> tensor<128xf32>
      %7 = tensor.empty() : tensor<128x64xbf16>
      %extracted_slice = tensor.extract_slice %arg0[0, 0, %arg3, 0] [1, 1, 128, 64] [1, 1, 1, 1] : tensor<1x1x256x64xbf16> to tensor<128x64xbf16>
      %8:4 = scf.for %arg5 = %c0 to %c256 step %c64 iter_args(%arg6 = %5, %arg7 = %6, %arg8 = %3, %arg99 = %c0) -> (tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>, index) {
        %extracted_slice_3 = tensor.extract_slice %arg1[0, 0, %arg99, 0] [1, 1, 64, 64] [1, 1, 1, 1] : tensor<1x1x256x64xbf16> to tensor<64x64xbf16>
        %extracted_slice_4 = tensor.extract_slice %arg2[0, 0, %arg5, 0] [1, 1, 64, 64] [1, 1, 1, 1] : tensor<1x1x256x64xbf16> to tensor<64x64xbf16>
        %11 = linalg.generic {indexing_maps = [#map, #map1, #map2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%extracted_slice, %extracted_slice_3 : tensor<128x64xbf16>, tensor<64x64xbf16>) outs(%3 : tensor<128x64xf32>) {
        ^bb0(%in: bf16, %in_5: bf16, %out: f32):
          %22 = arith.extf %in : bf16 to f32
          %23 = arith.extf %in_5 : bf16 to f32
          %24 = arith.mulf %22, %23 : f32
          %25 = arith.addf %out, %24 : f32
          linalg.yield %25 : f32
        } -> tensor<128x64xf32>
        %12 = linalg.generic {indexing_maps = [#map3, #map4], iterator_types = ["parallel", "reduction"]} ins(%11 : tensor<128x64xf32>) outs(%arg6 : tensor<128xf32>) {
        ^bb0(%in: f32, %out: f32):
          %22 = arith.maxnumf %in, %out : f32
          linalg.yield %22 : f32
        } -> tensor<128xf32>
        %13 = linalg.generic {indexing_maps = [#map5, #map5], iterator_types = ["parallel"]} ins(%12 : tensor<128xf32>) outs(%4 : tensor<128xf32>) {
        ^bb0(%in: f32, %out: f32):
          %22 = arith.cmpf oeq, %in, %cst_1 : f32
          %23 = arith.select %22, %cst_2, %in : f32
          linalg.yield %23 : f32
        } -> tensor<128xf32>
        %14 = linalg.generic {indexing_maps = [#map5, #map5], iterator_types = ["parallel"]} ins(%13 : tensor<128xf32>) outs(%4 : tensor<128xf32>) {
        ^bb0(%in: f32, %out: f32):
          %22 = arith.mulf %in, %cst_0 : f32
          linalg.yield %22 : f32
        } -> tensor<128xf32>
        %15 = linalg.generic {indexing_maps = [#map5, #map5, #map5], iterator_types = ["parallel"]} ins(%arg6, %14 : tensor<128xf32>, tensor<128xf32>) outs(%4 : tensor<128xf32>) {
        ^bb0(%in: f32, %in_5: f32, %out: f32):
          %22 = math.fma %in, %cst, %in_5 : f32
          %23 = math.exp2 %22 : f32
          linalg.yield %23 : f32
        } -> tensor<128xf32>
        %16 = linalg.generic {indexing_maps = [#map3, #map4, #map3], iterator_types = ["parallel", "parallel"]} ins(%11, %14 : tensor<128x64xf32>, tensor<128xf32>) outs(%2 : tensor<128x64xf32>) {
        ^bb0(%in: f32, %in_5: f32, %out: f32):
          %22 = math.fma %in, %cst, %in_5 : f32
          %23 = math.exp2 %22 : f32
          linalg.yield %23 : f32
        } -> tensor<128x64xf32>
        %17 = linalg.generic {indexing_maps = [#map5, #map5, #map5], iterator_types = ["parallel"]} ins(%arg7, %15 : tensor<128xf32>, tensor<128xf32>) outs(%4 : tensor<128xf32>) {
        ^bb0(%in: f32, %in_5: f32, %out: f32):
          %22 = arith.mulf %in, %in_5 : f32
          linalg.yield %22 : f32
        } -> tensor<128xf32>
        %18 = linalg.generic {indexing_maps = [#map3, #map4], iterator_types = ["parallel", "reduction"]} ins(%16 : tensor<128x64xf32>) outs(%17 : tensor<128xf32>) {
        ^bb0(%in: f32, %out: f32):
          %22 = arith.addf %in, %out : f32
          linalg.yield %22 : f32
        } -> tensor<128xf32>
        %19 = linalg.generic {indexing_maps = [#map3, #map4, #map3], iterator_types = ["parallel", "parallel"]} ins(%arg8, %15 : tensor<128x64xf32>, tensor<128xf32>) outs(%2 : tensor<128x64xf32>) {
        ^bb0(%in: f32, %in_5: f32, %out: f32):
          %22 = arith.mulf %in, %in_5 : f32
          linalg.yield %22 : f32
        } -> tensor<128x64xf32>
        %20 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%16 : tensor<128x64xf32>) outs(%7 : tensor<128x64xbf16>) {
        ^bb0(%in: f32, %out: bf16):
          %22 = arith.truncf %in : f32 to bf16
          linalg.yield %22 : bf16
        } -> tensor<128x64xbf16>
        %21 = linalg.generic {indexing_maps = [#map, #map6, #map2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%20, %extracted_slice_4 : tensor<128x64xbf16>, tensor<64x64xbf16>) outs(%19 : tensor<128x64xf32>) {
        ^bb0(%in: bf16, %in_5: bf16, %out: f32):
          %22 = arith.extf %in : bf16 to f32
          %23 = arith.extf %in_5 : bf16 to f32
          %24 = arith.mulf %22, %23 : f32
          %25 = arith.addf %out, %24 : f32
          linalg.yield %25 : f32
        } -> tensor<128x64xf32>
        %nx = arith.addi %arg99, %c64 : index
        scf.yield %12, %18, %21, %nx : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>, index
      }
      %9 = linalg.generic {indexing_maps = [#map3, #map4, #map3], iterator_types = ["parallel", "parallel"]} ins(%8#2, %8#1 : tensor<128x64xf32>, tensor<128xf32>) outs(%2 : tensor<128x64xf32>) {
      ^bb0(%in: f32, %in_3: f32, %out: f32):
        %11 = arith.cmpf oeq, %in_3, %cst_2 : f32
        %12 = arith.divf %in, %in_3 : f32
        %13 = arith.select %11, %cst_2, %12 : f32
        linalg.yield %13 : f32
      } -> tensor<128x64xf32>
      %10 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%9 : tensor<128x64xf32>) outs(%7 : tensor<128x64xbf16>) {
      ^bb0(%in: f32, %out: bf16):
        %11 = arith.truncf %in : f32 to bf16
        linalg.yield %11 : bf16
      } -> tensor<128x64xbf16>
      scf.forall.in_parallel {
        tensor.parallel_insert_slice %10 into %arg4[0, 0, %arg3, 0] [1, 1, 128, 64] [1, 1, 1, 1] : tensor<128x64xbf16> into tensor<1x1x256x64xbf16>
      }
    }
    return %1 : tensor<1x1x256x64xbf16>
  }
}
