// Gemma-2-9B: one of its local layers: logits capped by 50 tanh(s / 50),
// causal within a window of 4096 keys, grouped queries.
// 16 query heads, 8 key heads, head dim 256 (num_attention_heads,
// num_key_value_heads, head_dim), attn_logit_softcapping 50, sliding_window
// 4096, query_pre_attn_scalar 256 (scale 1/16): Gemma team 2024, "Gemma 2:
// Improving Open Language Models at a Practical Size", table 1, and
// config.json of google/gemma-2-9b. 5120 of the context's 8192 tokens: more than
// the window, and all stages with a float64 reference in a minute or two; bf16.
func.func @gemma_2_9b(%q: tensor<1x16x5120x256xbf16>, %k: tensor<1x8x5120x256xbf16>,
                      %v: tensor<1x8x5120x256xbf16>)
    -> tensor<1x16x5120x256xbf16> {
  %o = fa.attention %q, %k, %v scale 0.0625
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %cap = arith.constant 50.0 : f32
      %x = arith.divf %s, %cap : f32
      %t = math.tanh %x : f32
      %y = arith.mulf %t, %cap : f32
      fa.yield %y : f32
    }
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %window = arith.constant 4096 : index
      %causal = arith.cmpi sle, %j, %i : index
      %distance = arith.subi %i, %j : index
      %near = arith.cmpi slt, %distance, %window : index
      %seen = arith.andi %causal, %near : i1
      fa.yield %seen : i1
    } : (tensor<1x16x5120x256xbf16>, tensor<1x8x5120x256xbf16>, tensor<1x8x5120x256xbf16>)
     -> tensor<1x16x5120x256xbf16>
  return %o : tensor<1x16x5120x256xbf16>
}
