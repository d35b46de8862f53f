// The gradients of one head, five products in a loop over blocks of queries:
// P^T = exp2(K Q^T - lse), dV = P^T dO, dS^T = P^T (V dO^T - D), dK = dS^T Q, and
// dQ = dS K, to which all blocks of keys add. Scores in base 2 without a scale.

#nt = affine_map<(i, j, k) -> (i, k)>
#t = affine_map<(i, j, k) -> (j, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>
#tt = affine_map<(i, j, k) -> (k, i)>
#id = affine_map<(i, j) -> (i, j)>
#col = affine_map<(i, j) -> (j)>

!all = tensor<256x64xbf16>
!keys = tensor<128x64xbf16>
!rows = tensor<64x64xbf16>
!scores = tensor<128x64xf32>
!short = tensor<128x64xbf16>
!sums = tensor<256x64xf32>
!part = tensor<64x64xf32>

func.func @backward(%q: !all, %k: !all, %v: !all, %do: !all,
                    %lse: tensor<256xf32>, %d: tensor<256xf32>) -> (!all, !all, !sums) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : !all
  %esums = tensor.empty() : !sums
  %zsums = linalg.fill ins(%zero : f32) outs(%esums : !sums) -> !sums
  %r:3 = scf.forall (%j) = (0) to (256) step (128) shared_outs(%dk = %empty, %dv = %empty, %dq = %zsums) -> (!all, !all, !sums) {
    %e = tensor.empty() : !scores
    %e16 = tensor.empty() : !short
    %z = linalg.fill ins(%zero : f32) outs(%e : !scores) -> !scores
    %ep = tensor.empty() : !part
    %zp = linalg.fill ins(%zero : f32) outs(%ep : !part) -> !part
    %kt = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : !all to !keys
    %vt = tensor.extract_slice %v[%j, 0] [128, 64] [1, 1] : !all to !keys
    %sums:3 = scf.for %i = %c0 to %c256 step %c64 iter_args(%dks = %z, %dvs = %z, %dqs = %dq) -> (!scores, !scores, !sums) {
      %qt = tensor.extract_slice %q[%i, 0] [64, 64] [1, 1] : !all to !rows
      %dot = tensor.extract_slice %do[%i, 0] [64, 64] [1, 1] : !all to !rows
      %lt = tensor.extract_slice %lse[%i] [64] [1] : tensor<256xf32> to tensor<64xf32>
      %dt = tensor.extract_slice %d[%i] [64] [1] : tensor<256xf32> to tensor<64xf32>
      %s = linalg.generic {indexing_maps = [#nt, #t, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%kt, %qt : !keys, !rows) outs(%z : !scores) {
      ^bb0(%x: bf16, %y: bf16, %o: f32):
        %x32 = arith.extf %x : bf16 to f32
        %y32 = arith.extf %y : bf16 to f32
        %xy = arith.mulf %x32, %y32 : f32
        %a = arith.addf %o, %xy : f32
        linalg.yield %a : f32
      } -> !scores
      %p = linalg.generic {indexing_maps = [#id, #col, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s, %lt : !scores, tensor<64xf32>) outs(%e : !scores) {
      ^bb0(%x: f32, %l: f32, %o: f32):
        %below = arith.subf %x, %l : f32
        %w = math.exp2 %below : f32
        linalg.yield %w : f32
      } -> !scores
      %p16 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%p : !scores) outs(%e16 : !short) {
      ^bb0(%x: f32, %o: bf16):
        %w = arith.truncf %x : f32 to bf16
        linalg.yield %w : bf16
      } -> !short
      %dvnext = linalg.generic {indexing_maps = [#nt, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%p16, %dot : !short, !rows) outs(%dvs : !scores) {
      ^bb0(%x: bf16, %y: bf16, %o: f32):
        %x32 = arith.extf %x : bf16 to f32
        %y32 = arith.extf %y : bf16 to f32
        %xy = arith.mulf %x32, %y32 : f32
        %a = arith.addf %o, %xy : f32
        linalg.yield %a : f32
      } -> !scores
      %dp = linalg.generic {indexing_maps = [#nt, #t, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%vt, %dot : !keys, !rows) outs(%z : !scores) {
      ^bb0(%x: bf16, %y: bf16, %o: f32):
        %x32 = arith.extf %x : bf16 to f32
        %y32 = arith.extf %y : bf16 to f32
        %xy = arith.mulf %x32, %y32 : f32
        %a = arith.addf %o, %xy : f32
        linalg.yield %a : f32
      } -> !scores
      %ds = linalg.generic {indexing_maps = [#id, #id, #col, #id], iterator_types = ["parallel", "parallel"]}
          ins(%p, %dp, %dt : !scores, !scores, tensor<64xf32>) outs(%e16 : !short) {
      ^bb0(%w: f32, %x: f32, %m: f32, %o: bf16):
        %apart = arith.subf %x, %m : f32
        %g = arith.mulf %w, %apart : f32
        %g16 = arith.truncf %g : f32 to bf16
        linalg.yield %g16 : bf16
      } -> !short
      %dknext = linalg.generic {indexing_maps = [#nt, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%ds, %qt : !short, !rows) outs(%dks : !scores) {
      ^bb0(%x: bf16, %y: bf16, %o: f32):
        %x32 = arith.extf %x : bf16 to f32
        %y32 = arith.extf %y : bf16 to f32
        %xy = arith.mulf %x32, %y32 : f32
        %a = arith.addf %o, %xy : f32
        linalg.yield %a : f32
      } -> !scores
      %dqpart = linalg.generic {indexing_maps = [#tt, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%ds, %kt : !short, !keys) outs(%zp : !part) {
      ^bb0(%x: bf16, %y: bf16, %o: f32):
        %x32 = arith.extf %x : bf16 to f32
        %y32 = arith.extf %y : bf16 to f32
        %xy = arith.mulf %x32, %y32 : f32
        %a = arith.addf %o, %xy : f32
        linalg.yield %a : f32
      } -> !part
      %dqnext = fa.accumulate_slice %dqpart into %dqs[%i, 0] [64, 64] [1, 1] : !part into !sums
      scf.yield %dknext, %dvnext, %dqnext : !scores, !scores, !sums
    }
    %dk16 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%sums#0 : !scores) outs(%e16 : !short) {
    ^bb0(%x: f32, %o: bf16):
      %w = arith.truncf %x : f32 to bf16
      linalg.yield %w : bf16
    } -> !short
    %dv16 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%sums#1 : !scores) outs(%e16 : !short) {
    ^bb0(%x: f32, %o: bf16):
      %w = arith.truncf %x : f32 to bf16
      linalg.yield %w : bf16
    } -> !short
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %dk16 into %dk[%j, 0] [128, 64] [1, 1] : !short into !all
      tensor.parallel_insert_slice %dv16 into %dv[%j, 0] [128, 64] [1, 1] : !short into !all
      fa.parallel_accumulate %sums#2 into %dq : !sums
    }
  }
  return %r#0, %r#1, %r#2 : !all, !all, !sums
}
