// A mask that reads what the loop carries can't be evaluated before it. Made of
// what fa-pad-tiles gives for packed documents.
// RUN: fa-opt %s --fa-list-blocks | FileCheck %s
// RUN: fa-opt %s --fa-list-blocks --remarks-filter=fa-list-blocks --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// REMARK: remark: [Missed] NotListed {{.*}}the mask depends on more than coordinates and captured tensors
// CHECK-LABEL: func @documents(
// CHECK-NOT: fa.list_blocks
#map = affine_map<(d0) -> (d0 floordiv 4)>
#map1 = affine_map<(d0)[s0] -> (-d0 + s0, 128)>
#map2 = affine_map<()[s0] -> (-s0 + 128)>
#map3 = affine_map<(d0)[s0] -> (-d0 + s0, 64)>
#map4 = affine_map<()[s0] -> (-s0 + 64)>
#map5 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map6 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map7 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map8 = affine_map<(d0, d1) -> (d0, d1)>
#map9 = affine_map<(d0)[s0] -> (d0 + s0)>
module {
  func.func @documents(%arg0: tensor<?x8x?x64xf16>, %arg1: tensor<?x2x?x64xf16>, %arg2: tensor<?x2x?x64xf16>, %arg3: tensor<?xi32>) -> tensor<?x8x?x64xf16> {
    %cst = arith.constant 0.000000e+00 : f16
    %c128 = arith.constant 128 : index
    %c64 = arith.constant 64 : index
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant 1.250000e-01 : f32
    %c1 = arith.constant 1 : index
    %cst_2 = arith.constant 0.000000e+00 : f32
    %c2 = arith.constant 2 : index
    %c0 = arith.constant 0 : index
    %dim = tensor.dim %arg3, %c0 : tensor<?xi32>
    %dim_3 = tensor.dim %arg0, %c0 : tensor<?x8x?x64xf16>
    %dim_4 = tensor.dim %arg0, %c2 : tensor<?x8x?x64xf16>
    %0 = tensor.empty(%dim_3, %dim_4) : tensor<?x8x?x64xf16>
    %1 = scf.forall (%arg4, %arg5) in (%dim_3, 8) shared_outs(%arg6 = %0) -> (tensor<?x8x?x64xf16>) {
      %2 = affine.apply #map(%arg5)
      %dim_5 = tensor.dim %arg1, %c2 : tensor<?x2x?x64xf16>
      %3 = tensor.empty(%dim_4) : tensor<?xf32>
      %4 = tensor.empty(%dim_4) : tensor<?x64xf32>
      %5 = tensor.empty() : tensor<128xf32>
      %6 = linalg.fill ins(%cst_0 : f32) outs(%5 : tensor<128xf32>) -> tensor<128xf32>
      %7 = linalg.fill ins(%cst_2 : f32) outs(%5 : tensor<128xf32>) -> tensor<128xf32>
      %8 = tensor.empty() : tensor<128x64xf32>
      %9 = linalg.fill ins(%cst_2 : f32) outs(%8 : tensor<128x64xf32>) -> tensor<128x64xf32>
      %10:3 = scf.for %arg7 = %c0 to %dim_4 step %c128 iter_args(%arg8 = %3, %arg9 = %3, %arg10 = %4) -> (tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>) {
        %13 = affine.min #map1(%arg7)[%dim_4]
        %extracted_slice = tensor.extract_slice %arg0[%arg4, %arg5, %arg7, 0] [1, 1, %13, 64] [1, 1, 1, 1] : tensor<?x8x?x64xf16> to tensor<?x64xf16>
        %14 = affine.apply #map2()[%13]
        %padded = tensor.pad %extracted_slice low[0, 0] high[%14, 0] {
        ^bb0(%arg11: index, %arg12: index):
          tensor.yield %cst : f16
        } : tensor<?x64xf16> to tensor<128x64xf16>
        %15:3 = scf.for %arg11 = %c0 to %dim_5 step %c64 iter_args(%arg12 = %6, %arg13 = %7, %arg14 = %9) -> (tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>) {
          %16 = affine.min #map3(%arg11)[%dim_5]
          %extracted_slice_11 = tensor.extract_slice %arg1[%arg4, %2, %arg11, 0] [1, 1, %16, 64] [1, 1, 1, 1] : tensor<?x2x?x64xf16> to tensor<?x64xf16>
          %17 = affine.apply #map4()[%16]
          %padded_12 = tensor.pad %extracted_slice_11 low[0, 0] high[%17, 0] {
          ^bb0(%arg15: index, %arg16: index):
            tensor.yield %cst : f16
          } : tensor<?x64xf16> to tensor<64x64xf16>
          %extracted_slice_13 = tensor.extract_slice %arg2[%arg4, %2, %arg11, 0] [1, 1, %16, 64] [1, 1, 1, 1] : tensor<?x2x?x64xf16> to tensor<?x64xf16>
          %padded_14 = tensor.pad %extracted_slice_13 low[0, 0] high[%17, 0] {
          ^bb0(%arg15: index, %arg16: index):
            tensor.yield %cst : f16
          } : tensor<?x64xf16> to tensor<64x64xf16>
          %18 = linalg.generic {indexing_maps = [#map5, #map6, #map7], iterator_types = ["parallel", "parallel", "reduction"]} ins(%padded, %padded_12 : tensor<128x64xf16>, tensor<64x64xf16>) outs(%9 : tensor<128x64xf32>) {
          ^bb0(%in: f16, %in_15: f16, %out: f32):
            %20 = arith.extf %in : f16 to f32
            %21 = arith.extf %in_15 : f16 to f32
            %22 = arith.mulf %20, %21 : f32
            %23 = arith.addf %out, %22 : f32
            linalg.yield %23 : f32
          } -> tensor<128x64xf32>
          %19 = linalg.generic {indexing_maps = [#map8, #map8], iterator_types = ["parallel", "parallel"]} ins(%18 : tensor<128x64xf32>) outs(%8 : tensor<128x64xf32>) {
          ^bb0(%in: f32, %out: f32):
            %20 = arith.mulf %in, %cst_1 : f32
            %21 = linalg.index 0 : index
            %22 = affine.apply #map9(%arg7)[%21]
            %23 = linalg.index 1 : index
            %24 = affine.apply #map9(%arg11)[%23]
            %25 = arith.subi %dim, %c1 : index
            %26 = arith.minsi %22, %25 : index
            %27 = arith.maxsi %26, %c0 : index
            %extracted = tensor.extract %arg3[%27] : tensor<?xi32>
            %28 = arith.minsi %24, %25 : index
            %29 = arith.maxsi %28, %c0 : index
            %extracted_15 = tensor.extract %arg3[%29] : tensor<?xi32>
            %zz = tensor.extract %arg12[%21] : tensor<128xf32>
            %thr = arith.constant 0.0 : f32
            %30 = arith.cmpf olt, %zz, %thr : f32
            %31 = arith.addi %23, %arg11 : index
            %32 = arith.cmpi slt, %31, %dim_5 : index
            %33 = arith.andi %30, %32 : i1
            %34 = arith.select %33, %20, %cst_0 : f32
            linalg.yield %34 : f32
          } -> tensor<128x64xf32>
          %new_max, %new_sum, %new_acc = fa.online_softmax ins(%19, %padded_14 : tensor<128x64xf32>, tensor<64x64xf16>) outs(%arg12, %arg13, %arg14 : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>)
          scf.yield %new_max, %new_sum, %new_acc : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>
        }
        %extracted_slice_6 = tensor.extract_slice %15#0[0] [%13] [1] : tensor<128xf32> to tensor<?xf32>
        %inserted_slice = tensor.insert_slice %extracted_slice_6 into %arg8[%arg7] [%13] [1] : tensor<?xf32> into tensor<?xf32>
        %extracted_slice_7 = tensor.extract_slice %15#1[0] [%13] [1] : tensor<128xf32> to tensor<?xf32>
        %inserted_slice_8 = tensor.insert_slice %extracted_slice_7 into %arg9[%arg7] [%13] [1] : tensor<?xf32> into tensor<?xf32>
        %extracted_slice_9 = tensor.extract_slice %15#2[0, 0] [%13, 64] [1, 1] : tensor<128x64xf32> to tensor<?x64xf32>
        %inserted_slice_10 = tensor.insert_slice %extracted_slice_9 into %arg10[%arg7, 0] [%13, 64] [1, 1] : tensor<?x64xf32> into tensor<?x64xf32>
        scf.yield %inserted_slice, %inserted_slice_8, %inserted_slice_10 : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>
      }
      %11 = tensor.empty(%dim_4) : tensor<?x64xf16>
      %12 = linalg.generic {indexing_maps = [#map8, #map8], iterator_types = ["parallel", "parallel"]} ins(%10#2 : tensor<?x64xf32>) outs(%11 : tensor<?x64xf16>) {
      ^bb0(%in: f32, %out: f16):
        %13 = arith.truncf %in : f32 to f16
        linalg.yield %13 : f16
      } -> tensor<?x64xf16>
      scf.forall.in_parallel {
        tensor.parallel_insert_slice %12 into %arg6[%arg4, %arg5, 0, 0] [1, 1, %dim_4, 64] [1, 1, 1, 1] : tensor<?x64xf16> into tensor<?x8x?x64xf16>
      }
    }
    return %1 : tensor<?x8x?x64xf16>
  }
}

