// relu(A B + bias) of any sizes, in tiles of 128 x 128: no attention, for the
// schedules' rules.

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (j)>
#rest128 = affine_map<(d0)[s0] -> (-d0 + s0, 128)>
#rest64 = affine_map<(d0)[s0] -> (-d0 + s0, 64)>
#to128 = affine_map<(d0) -> (-d0 + 128)>
#to64 = affine_map<(d0) -> (-d0 + 64)>

func.func @gemm(%a: tensor<?x?xbf16>, %b: tensor<?x128xbf16>, %bias: tensor<128xf32>) -> tensor<?x128xbf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %zero16 = arith.constant 0.0 : bf16
  %rows = tensor.dim %a, %c0 : tensor<?x?xbf16>
  %depth = tensor.dim %a, %c1 : tensor<?x?xbf16>
  %empty = tensor.empty(%rows) : tensor<?x128xbf16>
  %r = scf.forall (%i) = (0) to (%rows) step (128) shared_outs(%out = %empty) -> (tensor<?x128xbf16>) {
    %m = affine.min #rest128(%i)[%rows]
    %mpad = affine.apply #to128(%m)
    %e = tensor.empty() : tensor<128x128xf32>
    %e16 = tensor.empty() : tensor<128x128xbf16>
    %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<128x128xf32>) -> tensor<128x128xf32>
    %biases = tensor.extract_slice %bias[0] [128] [1] : tensor<128xf32> to tensor<128xf32>
    %sum = scf.for %k = %c0 to %depth step %c64 iter_args(%acc = %zeros) -> (tensor<128x128xf32>) {
      %n = affine.min #rest64(%k)[%depth]
      %npad = affine.apply #to64(%n)
      %as = tensor.extract_slice %a[%i, %k] [%m, %n] [1, 1] : tensor<?x?xbf16> to tensor<?x?xbf16>
      %at = tensor.pad %as low[0, 0] high[%mpad, %npad] {
      ^bb0(%x: index, %y: index):
        tensor.yield %zero16 : bf16
      } : tensor<?x?xbf16> to tensor<128x64xbf16>
      %bs = tensor.extract_slice %b[%k, 0] [%n, 128] [1, 1] : tensor<?x128xbf16> to tensor<?x128xbf16>
      %bt = tensor.pad %bs low[0, 0] high[%npad, 0] {
      ^bb0(%x: index, %y: index):
        tensor.yield %zero16 : bf16
      } : tensor<?x128xbf16> to tensor<64x128xbf16>
      %next = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%at, %bt : tensor<128x64xbf16>, tensor<64x128xbf16>) outs(%acc : tensor<128x128xf32>) {
      ^bb0(%x: bf16, %y: bf16, %o: f32):
        %x32 = arith.extf %x : bf16 to f32
        %y32 = arith.extf %y : bf16 to f32
        %xy = arith.mulf %x32, %y32 : f32
        %s = arith.addf %o, %xy : f32
        linalg.yield %s : f32
      } -> tensor<128x128xf32>
      scf.yield %next : tensor<128x128xf32>
    }
    %done = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%sum, %biases : tensor<128x128xf32>, tensor<128xf32>) outs(%e16 : tensor<128x128xbf16>) {
    ^bb0(%x: f32, %y: f32, %o: bf16):
      %xy = arith.addf %x, %y : f32
      %positive = arith.maximumf %xy, %zero : f32
      %short = arith.truncf %positive : f32 to bf16
      linalg.yield %short : bf16
    } -> tensor<128x128xbf16>
    %valid = tensor.extract_slice %done[0, 0] [%m, 128] [1, 1] : tensor<128x128xbf16> to tensor<?x128xbf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %valid into %out[%i, 0] [%m, 128] [1, 1] : tensor<?x128xbf16> into tensor<?x128xbf16>
    }
  }
  return %r : tensor<?x128xbf16>
}
