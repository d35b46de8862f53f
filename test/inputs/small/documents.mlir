// Packed documents: a query sees the keys of its own document up to itself.
func.func @documents(%q: tensor<1x2x160x32xbf16>, %k: tensor<1x2x160x32xbf16>,
                     %v: tensor<1x2x160x32xbf16>, %document: tensor<1x160xi32>)
    -> tensor<1x2x160x32xbf16> {
  %o = fa.attention %q, %k, %v
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %di = tensor.extract %document[%b, %i] : tensor<1x160xi32>
      %dj = tensor.extract %document[%b, %j] : tensor<1x160xi32>
      %same = arith.cmpi eq, %di, %dj : i32
      %causal = arith.cmpi sle, %j, %i : index
      %seen = arith.andi %same, %causal : i1
      fa.yield %seen : i1
    } : (tensor<1x2x160x32xbf16>, tensor<1x2x160x32xbf16>, tensor<1x2x160x32xbf16>)
     -> tensor<1x2x160x32xbf16>
  return %o : tensor<1x2x160x32xbf16>
}
