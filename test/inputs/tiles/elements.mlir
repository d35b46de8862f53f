// x * y + j / 40, element by element of any number of rows, in tiles of 24 x 40:
// no tile that warps could divide. The second result is the first 33 columns of
// x * y, whose rows do not begin at multiples of 16 bytes.

#id = affine_map<(i, j) -> (i, j)>
#rest = affine_map<(d0)[s0] -> (-d0 + s0, 24)>
#to24 = affine_map<(d0) -> (-d0 + 24)>

func.func @elements(%x: tensor<?x40xbf16>, %y: tensor<?x40xf32>) -> (tensor<?x40xbf16>, tensor<?x33xf32>) {
  %c0 = arith.constant 0 : index
  %zero16 = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  %part = arith.constant 0.025 : f32
  %rows = tensor.dim %x, %c0 : tensor<?x40xbf16>
  %empty = tensor.empty(%rows) : tensor<?x40xbf16>
  %empty32 = tensor.empty(%rows) : tensor<?x33xf32>
  %r:2 = scf.forall (%i) = (0) to (%rows) step (24) shared_outs(%out = %empty, %out32 = %empty32) -> (tensor<?x40xbf16>, tensor<?x33xf32>) {
    %m = affine.min #rest(%i)[%rows]
    %pad = affine.apply #to24(%m)
    %xs = tensor.extract_slice %x[%i, 0] [%m, 40] [1, 1] : tensor<?x40xbf16> to tensor<?x40xbf16>
    %xt = tensor.pad %xs low[0, 0] high[%pad, 0] {
    ^bb0(%a: index, %b: index):
      tensor.yield %zero16 : bf16
    } : tensor<?x40xbf16> to tensor<24x40xbf16>
    %ys = tensor.extract_slice %y[%i, 0] [%m, 40] [1, 1] : tensor<?x40xf32> to tensor<?x40xf32>
    %yt = tensor.pad %ys low[0, 0] high[%pad, 0] {
    ^bb0(%a: index, %b: index):
      tensor.yield %zero : f32
    } : tensor<?x40xf32> to tensor<24x40xf32>
    %e = tensor.empty() : tensor<24x40xf32>
    %e16 = tensor.empty() : tensor<24x40xbf16>
    %product = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%xt, %yt : tensor<24x40xbf16>, tensor<24x40xf32>) outs(%e : tensor<24x40xf32>) {
    ^bb0(%a: bf16, %b: f32, %o: f32):
      %a32 = arith.extf %a : bf16 to f32
      %ab = arith.mulf %a32, %b : f32
      linalg.yield %ab : f32
    } -> tensor<24x40xf32>
    %sum = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%product : tensor<24x40xf32>) outs(%e16 : tensor<24x40xbf16>) {
    ^bb0(%a: f32, %o: bf16):
      %j = linalg.index 1 : index
      %n = arith.index_cast %j : index to i32
      %f = arith.sitofp %n : i32 to f32
      %s = math.fma %f, %part, %a : f32
      %short = arith.truncf %s : f32 to bf16
      linalg.yield %short : bf16
    } -> tensor<24x40xbf16>
    %valid = tensor.extract_slice %sum[0, 0] [%m, 40] [1, 1] : tensor<24x40xbf16> to tensor<?x40xbf16>
    %valid32 = tensor.extract_slice %product[0, 0] [%m, 33] [1, 1] : tensor<24x40xf32> to tensor<?x33xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %valid into %out[%i, 0] [%m, 40] [1, 1] : tensor<?x40xbf16> into tensor<?x40xbf16>
      tensor.parallel_insert_slice %valid32 into %out32[%i, 0] [%m, 33] [1, 1] : tensor<?x33xf32> into tensor<?x33xf32>
    }
  }
  return %r#0, %r#1 : tensor<?x40xbf16>, tensor<?x33xf32>
}
