func.func @twice(%q: tensor<2x1x70x32xbf16>, %k: tensor<2x1x70x32xbf16>, %v: tensor<2x1x70x16xbf16>, %bias: tensor<70x2x70xf32>, %number: tensor<f32>) -> tensor<2x1x70x16xbf16> {
  %o = fa.attention %q, %k, %v scale 0.2 score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %bias[%i, %b, %j] : tensor<70x2x70xf32>
    %y = tensor.extract %bias[%j, %b, %i] : tensor<70x2x70xf32>
    %n = tensor.extract %number[] : tensor<f32>
    %t = arith.mulf %x, %y : f32
    %z = arith.mulf %s, %n : f32
    %r = arith.addf %z, %t : f32
    fa.yield %r : f32
  } : (tensor<2x1x70x32xbf16>, tensor<2x1x70x32xbf16>, tensor<2x1x70x16xbf16>) -> tensor<2x1x70x16xbf16>
  return %o : tensor<2x1x70x16xbf16>
}
