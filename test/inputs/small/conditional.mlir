// A score with a branch: a bonus on the diagonal through scf.if.
func.func @conditional(%q: tensor<1x2x70x32xf32>, %k: tensor<1x2x70x32xf32>,
                       %v: tensor<1x2x70x32xf32>) -> tensor<1x2x70x32xf32> {
  %o = fa.attention %q, %k, %v
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %near = arith.cmpi eq, %i, %j : index
      %y = scf.if %near -> f32 {
        %one = arith.constant 1.0 : f32
        %sum = arith.addf %s, %one : f32
        scf.yield %sum : f32
      } else {
        scf.yield %s : f32
      }
      fa.yield %y : f32
    } : (tensor<1x2x70x32xf32>, tensor<1x2x70x32xf32>, tensor<1x2x70x32xf32>)
     -> tensor<1x2x70x32xf32>
  return %o : tensor<1x2x70x32xf32>
}
