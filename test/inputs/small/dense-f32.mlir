// No mask, no score, f32, a length that no tile divides, default scale.
func.func @dense_f32(%q: tensor<2x3x33x16xf32>, %k: tensor<2x3x33x16xf32>,
                     %v: tensor<2x3x33x16xf32>)
    -> (tensor<2x3x33x16xf32>, tensor<2x3x33xf32>) {
  %o, %lse = fa.attention %q, %k, %v
    : (tensor<2x3x33x16xf32>, tensor<2x3x33x16xf32>, tensor<2x3x33x16xf32>)
    -> (tensor<2x3x33x16xf32>, tensor<2x3x33xf32>)
  return %o, %lse : tensor<2x3x33x16xf32>, tensor<2x3x33xf32>
}
