// Gemma-2's layer made small: softcap, causal window of 24 keys, GQA 2.
func.func @softcap_window(%q: tensor<1x4x100x64xf32>, %k: tensor<1x2x100x64xf32>,
                          %v: tensor<1x2x100x64xf32>)
    -> (tensor<1x4x100x64xf32>, tensor<1x4x100xf32>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.0625
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
      %window = arith.constant 24 : index
      %causal = arith.cmpi sle, %j, %i : index
      %distance = arith.subi %i, %j : index
      %near = arith.cmpi slt, %distance, %window : index
      %seen = arith.andi %causal, %near : i1
      fa.yield %seen : i1
    } : (tensor<1x4x100x64xf32>, tensor<1x2x100x64xf32>, tensor<1x2x100x64xf32>)
     -> (tensor<1x4x100x64xf32>, tensor<1x4x100xf32>)
  return %o, %lse : tensor<1x4x100x64xf32>, tensor<1x4x100xf32>
}
