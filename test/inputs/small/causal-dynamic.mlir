// Dynamic batch and lengths, GQA 4, causal, bf16.
func.func @causal_dynamic(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x2x?x64xbf16>,
                          %v: tensor<?x2x?x64xbf16>)
    -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>)
     -> (tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>)
  return %o, %lse : tensor<?x8x?x64xbf16>, tensor<?x8x?xf32>
}
