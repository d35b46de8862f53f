// BERT-large: one attention layer with its padding mask.
// 16 heads of 64, 512 positions (num_attention_heads, hidden_size = 1024,
// max_position_embeddings): Devlin et al. 2019, "BERT: Pre-training of Deep
// Bidirectional Transformers", table 1, and config.json of
// google-bert/bert-large-uncased. A
// batch of 8 is this file's choice; f16. Sequences shorter than 512 are
// padded: %lengths holds how many positions of each are real.
func.func @bert_large(%q: tensor<8x16x512x64xf16>, %k: tensor<8x16x512x64xf16>,
                      %v: tensor<8x16x512x64xf16>, %lengths: tensor<8xi32>)
    -> tensor<8x16x512x64xf16> {
  %o = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %length32 = tensor.extract %lengths[%b] : tensor<8xi32>
      %length = arith.index_cast %length32 : i32 to index
      %seen = arith.cmpi slt, %j, %length : index
      fa.yield %seen : i1
    } : (tensor<8x16x512x64xf16>, tensor<8x16x512x64xf16>, tensor<8x16x512x64xf16>)
     -> tensor<8x16x512x64xf16>
  return %o : tensor<8x16x512x64xf16>
}
