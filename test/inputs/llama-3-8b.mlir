// Llama-3-8B: one attention layer with grouped queries, causal.
// 32 query heads, 8 key heads, head dim 128 (num_attention_heads,
// num_key_value_heads, hidden_size = 4096): Llama team 2024, "The Llama 3 Herd
// of Models", table 3, and config.json of meta-llama/Meta-Llama-3-8B. The
// model's context is 8192 (rotary embedding is applied to q and k before);
// one prompt of 2048 tokens is taken here so that a CPU runs it in seconds.
func.func @llama_3_8b(%q: tensor<1x32x2048x128xbf16>, %k: tensor<1x8x2048x128xbf16>,
                      %v: tensor<1x8x2048x128xbf16>)
    -> tensor<1x32x2048x128xbf16> {
  // 1/sqrt(128)
  %o = fa.attention %q, %k, %v scale 0.08838834764831845
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (tensor<1x32x2048x128xbf16>, tensor<1x8x2048x128xbf16>, tensor<1x8x2048x128xbf16>)
     -> tensor<1x32x2048x128xbf16>
  return %o : tensor<1x32x2048x128xbf16>
}
