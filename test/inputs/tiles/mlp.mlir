// relu(X U) W, 64 hidden columns at a time: two products with something between
// them, and no attention.

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>

func.func @mlp(%x: tensor<256x64xf16>, %u: tensor<64x512xf16>, %w: tensor<512x128xf16>) -> tensor<256x128xf16> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c512 = arith.constant 512 : index
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<256x128xf16>
  %r = scf.forall (%i) = (0) to (256) step (64) shared_outs(%out = %empty) -> (tensor<256x128xf16>) {
    %eh = tensor.empty() : tensor<64x64xf32>
    %eh16 = tensor.empty() : tensor<64x64xf16>
    %eo = tensor.empty() : tensor<64x128xf32>
    %eo16 = tensor.empty() : tensor<64x128xf16>
    %zh = linalg.fill ins(%zero : f32) outs(%eh : tensor<64x64xf32>) -> tensor<64x64xf32>
    %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<64x128xf32>) -> tensor<64x128xf32>
    %xt = tensor.extract_slice %x[%i, 0] [64, 64] [1, 1] : tensor<256x64xf16> to tensor<64x64xf16>
    %sum = scf.for %j = %c0 to %c512 step %c64 iter_args(%acc = %zo) -> (tensor<64x128xf32>) {
      %ut = tensor.extract_slice %u[0, %j] [64, 64] [1, 1] : tensor<64x512xf16> to tensor<64x64xf16>
      %wt = tensor.extract_slice %w[%j, 0] [64, 128] [1, 1] : tensor<512x128xf16> to tensor<64x128xf16>
      %h = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%xt, %ut : tensor<64x64xf16>, tensor<64x64xf16>) outs(%zh : tensor<64x64xf32>) {
      ^bb0(%p: f16, %q: f16, %o: f32):
        %p32 = arith.extf %p : f16 to f32
        %q32 = arith.extf %q : f16 to f32
        %pq = arith.mulf %p32, %q32 : f32
        %s = arith.addf %o, %pq : f32
        linalg.yield %s : f32
      } -> tensor<64x64xf32>
      %relu = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%h : tensor<64x64xf32>) outs(%eh16 : tensor<64x64xf16>) {
      ^bb0(%p: f32, %o: f16):
        %positive = arith.maximumf %p, %zero : f32
        %short = arith.truncf %positive : f32 to f16
        linalg.yield %short : f16
      } -> tensor<64x64xf16>
      %next = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%relu, %wt : tensor<64x64xf16>, tensor<64x128xf16>) outs(%acc : tensor<64x128xf32>) {
      ^bb0(%p: f16, %q: f16, %o: f32):
        %p32 = arith.extf %p : f16 to f32
        %q32 = arith.extf %q : f16 to f32
        %pq = arith.mulf %p32, %q32 : f32
        %s = arith.addf %o, %pq : f32
        linalg.yield %s : f32
      } -> tensor<64x128xf32>
      scf.yield %next : tensor<64x128xf32>
    }
    %done = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%sum : tensor<64x128xf32>) outs(%eo16 : tensor<64x128xf16>) {
    ^bb0(%p: f32, %o: f16):
      %short = arith.truncf %p : f32 to f16
      linalg.yield %short : f16
    } -> tensor<64x128xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %done into %out[%i, 0] [64, 128] [1, 1] : tensor<64x128xf16> into tensor<256x128xf16>
    }
  }
  return %r : tensor<256x128xf16>
}
