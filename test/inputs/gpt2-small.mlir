// GPT-2 small: one attention layer over a full context, causal.
// 12 heads of 64, 1024 positions (n_head, n_embd = 768, n_positions): Radford
// et al. 2019, "Language Models are Unsupervised Multitask Learners", and
// config.json of openai-community/gpt2. One sequence, f16; LSE as training
// would keep it.
func.func @gpt2_small(%q: tensor<1x12x1024x64xf16>, %k: tensor<1x12x1024x64xf16>,
                      %v: tensor<1x12x1024x64xf16>)
    -> (tensor<1x12x1024x64xf16>, tensor<1x12x1024xf32>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (tensor<1x12x1024x64xf16>, tensor<1x12x1024x64xf16>, tensor<1x12x1024x64xf16>)
     -> (tensor<1x12x1024x64xf16>, tensor<1x12x1024xf32>)
  return %o, %lse : tensor<1x12x1024x64xf16>, tensor<1x12x1024xf32>
}
