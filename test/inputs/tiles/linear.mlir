// Linear attention of one head, for blocks of queries: a running sum of outer
// products, S = sum of K^T V over the blocks of keys up to the queries' own, and
// O = Q S. No scores, no softmax; K is read turned, and S, which is computed, is a
// second operand.

#t = affine_map<(i, j, k) -> (k, i)>
#n = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>

!all = tensor<?x64xbf16>
!rows = tensor<128x64xbf16>
!state = tensor<64x64xf32>
!state16 = tensor<64x64xbf16>

func.func @linear(%q: !all, %k: !all, %v: !all) -> !all {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : f32
  %zero16 = arith.constant 0.0 : bf16
  %s = tensor.dim %q, %c0 : !all
  %empty = tensor.empty(%s) : !all
  %r = scf.forall (%i) = (0) to (%s) step (128) shared_outs(%out = %empty) -> (!all) {
    %here = affine.min affine_map<(i)[s] -> (s - i, 128)>(%i)[%s]
    %lacks = affine.apply affine_map<()[n] -> (128 - n)>()[%here]
    %qs = tensor.extract_slice %q[%i, 0] [%here, 64] [1, 1] : !all to tensor<?x64xbf16>
    %qt = tensor.pad %qs low[0, 0] high[%lacks, 0] {
    ^bb0(%x: index, %y: index):
      tensor.yield %zero16 : bf16
    } : tensor<?x64xbf16> to !rows
    %e = tensor.empty() : !state
    %z = linalg.fill ins(%zero : f32) outs(%e : !state) -> !state
    %end = arith.addi %i, %c128 : index
    %sum = scf.for %j = %c0 to %end step %c128 iter_args(%acc = %z) -> (!state) {
      %count = affine.min affine_map<(j)[s] -> (s - j, 128)>(%j)[%s]
      %rest = affine.apply affine_map<()[n] -> (128 - n)>()[%count]
      %ks = tensor.extract_slice %k[%j, 0] [%count, 64] [1, 1] : !all to tensor<?x64xbf16>
      %kt = tensor.pad %ks low[0, 0] high[%rest, 0] {
      ^bb0(%x: index, %y: index):
        tensor.yield %zero16 : bf16
      } : tensor<?x64xbf16> to !rows
      %vs = tensor.extract_slice %v[%j, 0] [%count, 64] [1, 1] : !all to tensor<?x64xbf16>
      %vt = tensor.pad %vs low[0, 0] high[%rest, 0] {
      ^bb0(%x: index, %y: index):
        tensor.yield %zero16 : bf16
      } : tensor<?x64xbf16> to !rows
      %next = linalg.generic {indexing_maps = [#t, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%kt, %vt : !rows, !rows) outs(%acc : !state) {
      ^bb0(%x: bf16, %y: bf16, %o: f32):
        %x32 = arith.extf %x : bf16 to f32
        %y32 = arith.extf %y : bf16 to f32
        %xy = arith.mulf %x32, %y32 : f32
        %a = arith.addf %o, %xy : f32
        linalg.yield %a : f32
      } -> !state
      scf.yield %next : !state
    }
    %e16 = tensor.empty() : !state16
    %sum16 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%sum : !state) outs(%e16 : !state16) {
    ^bb0(%x: f32, %o: bf16):
      %w = arith.truncf %x : f32 to bf16
      linalg.yield %w : bf16
    } -> !state16
    %eo = tensor.empty() : tensor<128x64xf32>
    %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<128x64xf32>) -> tensor<128x64xf32>
    %o = linalg.generic {indexing_maps = [#n, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %sum16 : !rows, !state16) outs(%zo : tensor<128x64xf32>) {
    ^bb0(%x: bf16, %y: bf16, %w: f32):
      %x32 = arith.extf %x : bf16 to f32
      %y32 = arith.extf %y : bf16 to f32
      %xy = arith.mulf %x32, %y32 : f32
      %a = arith.addf %w, %xy : f32
      linalg.yield %a : f32
    } -> tensor<128x64xf32>
    %eo16 = tensor.empty() : !rows
    %o16 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%o : tensor<128x64xf32>) outs(%eo16 : !rows) {
    ^bb0(%x: f32, %w: bf16):
      %n16 = arith.truncf %x : f32 to bf16
      linalg.yield %n16 : bf16
    } -> !rows
    %part = tensor.extract_slice %o16[0, 0] [%here, 64] [1, 1] : !rows to tensor<?x64xbf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %part into %out[%i, 0] [%here, 64] [1, 1] : tensor<?x64xbf16> into !all
    }
  }
  return %r : !all
}
