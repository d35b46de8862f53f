// ALiBi (Press et al. 2022): s - slope(h) * (i - j) with the slopes
// 2^(-8 (h + 1) / H) captured, causal.
func.func @alibi(%q: tensor<1x8x128x64xf16>, %k: tensor<1x8x128x64xf16>,
                 %v: tensor<1x8x128x64xf16>, %slopes: tensor<8xf32>)
    -> tensor<1x8x128x64xf16> {
  %o = fa.attention %q, %k, %v scale 0.125
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %slope = tensor.extract %slopes[%h] : tensor<8xf32>
      %distance = arith.subi %j, %i : index
      %distance64 = arith.index_cast %distance : index to i64
      %distancef = arith.sitofp %distance64 : i64 to f32
      %bias = arith.mulf %slope, %distancef : f32
      %y = arith.addf %s, %bias : f32
      fa.yield %y : f32
    }
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (tensor<1x8x128x64xf16>, tensor<1x8x128x64xf16>, tensor<1x8x128x64xf16>)
     -> tensor<1x8x128x64xf16>
  return %o : tensor<1x8x128x64xf16>
}
