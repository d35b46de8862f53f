// ViT-B/16 at 224 x 224: one attention layer, every patch sees every patch.
// 12 heads of 64; 14 x 14 patches and the class token make 197 positions, a
// length that no tile divides: Dosovitskiy et al. 2021, "An Image is Worth
// 16x16 Words", table 1, and config.json of google/vit-base-patch16-224.
// A batch of 32 images, f16.
func.func @vit_b_16(%q: tensor<32x12x197x64xf16>, %k: tensor<32x12x197x64xf16>,
                    %v: tensor<32x12x197x64xf16>)
    -> tensor<32x12x197x64xf16> {
  %o = fa.attention %q, %k, %v scale 0.125
    : (tensor<32x12x197x64xf16>, tensor<32x12x197x64xf16>, tensor<32x12x197x64xf16>)
    -> tensor<32x12x197x64xf16>
  return %o : tensor<32x12x197x64xf16>
}
