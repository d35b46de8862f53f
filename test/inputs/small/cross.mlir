// Fewer queries than keys, and values of another head dim than keys.
func.func @cross(%q: tensor<1x4x17x32xf16>, %k: tensor<1x4x333x32xf16>,
                 %v: tensor<1x4x333x80xf16>) -> tensor<1x4x17x80xf16> {
  %o = fa.attention %q, %k, %v
    : (tensor<1x4x17x32xf16>, tensor<1x4x333x32xf16>, tensor<1x4x333x80xf16>)
    -> tensor<1x4x17x80xf16>
  return %o : tensor<1x4x17x80xf16>
}
