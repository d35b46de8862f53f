// One query against a dynamic number of keys, MQA (one key head), f16.
func.func @decode(%q: tensor<?x8x1x128xf16>, %k: tensor<?x1x?x128xf16>,
                  %v: tensor<?x1x?x128xf16>) -> tensor<?x8x1x128xf16> {
  %o = fa.attention %q, %k, %v
    : (tensor<?x8x1x128xf16>, tensor<?x1x?x128xf16>, tensor<?x1x?x128xf16>)
    -> tensor<?x8x1x128xf16>
  return %o : tensor<?x8x1x128xf16>
}
