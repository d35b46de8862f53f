// Prefix LM: the first %prefix[b] keys are seen by all, the others causally.
func.func @prefix(%q: tensor<2x4x100x64xf32>, %k: tensor<2x4x100x64xf32>,
                  %v: tensor<2x4x100x64xf32>, %prefix: tensor<2xi32>)
    -> (tensor<2x4x100x64xf32>, tensor<2x4x100xf32>) {
  %o, %lse = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %n32 = tensor.extract %prefix[%b] : tensor<2xi32>
      %n = arith.index_cast %n32 : i32 to index
      %inside = arith.cmpi slt, %j, %n : index
      %causal = arith.cmpi sle, %j, %i : index
      %seen = arith.ori %inside, %causal : i1
      fa.yield %seen : i1
    } : (tensor<2x4x100x64xf32>, tensor<2x4x100x64xf32>, tensor<2x4x100x64xf32>)
     -> (tensor<2x4x100x64xf32>, tensor<2x4x100xf32>)
  return %o, %lse : tensor<2x4x100x64xf32>, tensor<2x4x100xf32>
}
