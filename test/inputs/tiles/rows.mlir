// Numbers of any number of rows, in tiles of 24 x 48: sums of x * y with v, and the
// largest of x. y is cut out of a wider tensor, so that no vectors of it are aligned.

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
#rest = affine_map<(d0)[s0] -> (-d0 + s0, 24)>
#to24 = affine_map<(d0) -> (-d0 + 24)>

func.func @rows(%x: tensor<?x48xbf16>, %y: tensor<?x50xf32>, %v: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xbf16>) {
  %c0 = arith.constant 0 : index
  %zero16 = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF80 : bf16
  %rows = tensor.dim %x, %c0 : tensor<?x48xbf16>
  %empty = tensor.empty(%rows) : tensor<?xf32>
  %empty16 = tensor.empty(%rows) : tensor<?xbf16>
  %r:2 = scf.forall (%i) = (0) to (%rows) step (24) shared_outs(%out = %empty, %out16 = %empty16) -> (tensor<?xf32>, tensor<?xbf16>) {
    %m = affine.min #rest(%i)[%rows]
    %pad = affine.apply #to24(%m)
    %xs = tensor.extract_slice %x[%i, 0] [%m, 48] [1, 1] : tensor<?x48xbf16> to tensor<?x48xbf16>
    %xt = tensor.pad %xs low[0, 0] high[%pad, 0] {
    ^bb0(%a: index, %b: index):
      tensor.yield %zero16 : bf16
    } : tensor<?x48xbf16> to tensor<24x48xbf16>
    %ys = tensor.extract_slice %y[%i, 1] [%m, 48] [1, 1] : tensor<?x50xf32> to tensor<?x48xf32>
    %yt = tensor.pad %ys low[0, 0] high[%pad, 0] {
    ^bb0(%a: index, %b: index):
      tensor.yield %zero : f32
    } : tensor<?x48xf32> to tensor<24x48xf32>
    %vs = tensor.extract_slice %v[%i] [%m] [1] : tensor<?xf32> to tensor<?xf32>
    %vt = tensor.pad %vs low[0] high[%pad] {
    ^bb0(%a: index):
      tensor.yield %zero : f32
    } : tensor<?xf32> to tensor<24xf32>
    %e = tensor.empty() : tensor<24x48xf32>
    %product = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%xt, %yt : tensor<24x48xbf16>, tensor<24x48xf32>) outs(%e : tensor<24x48xf32>) {
    ^bb0(%a: bf16, %b: f32, %o: f32):
      %a32 = arith.extf %a : bf16 to f32
      %ab = arith.mulf %a32, %b : f32
      linalg.yield %ab : f32
    } -> tensor<24x48xf32>
    %ev = tensor.empty() : tensor<24xf32>
    %ev16 = tensor.empty() : tensor<24xbf16>
    %zeros = linalg.fill ins(%zero : f32) outs(%ev : tensor<24xf32>) -> tensor<24xf32>
    %leasts = linalg.fill ins(%least : bf16) outs(%ev16 : tensor<24xbf16>) -> tensor<24xbf16>
    %sums:2 = linalg.generic {indexing_maps = [#id, #id, #row, #row], iterator_types = ["parallel", "reduction"]}
        ins(%product, %xt : tensor<24x48xf32>, tensor<24x48xbf16>) outs(%zeros, %leasts : tensor<24xf32>, tensor<24xbf16>) {
    ^bb0(%a: f32, %b: bf16, %s: f32, %t: bf16):
      %sum = arith.addf %a, %s : f32
      %max = arith.maximumf %t, %b : bf16
      linalg.yield %sum, %max : f32, bf16
    } -> (tensor<24xf32>, tensor<24xbf16>)
    %less = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
        ins(%sums#0, %vt : tensor<24xf32>, tensor<24xf32>) outs(%ev : tensor<24xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %d = arith.subf %a, %b : f32
      linalg.yield %d : f32
    } -> tensor<24xf32>
    %valid = tensor.extract_slice %less[0] [%m] [1] : tensor<24xf32> to tensor<?xf32>
    %valid16 = tensor.extract_slice %sums#1[0] [%m] [1] : tensor<24xbf16> to tensor<?xbf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %valid into %out[%i] [%m] [1] : tensor<?xf32> into tensor<?xf32>
      tensor.parallel_insert_slice %valid16 into %out16[%i] [%m] [1] : tensor<?xbf16> into tensor<?xbf16>
    }
  }
  return %r#0, %r#1 : tensor<?xf32>, tensor<?xbf16>
}
