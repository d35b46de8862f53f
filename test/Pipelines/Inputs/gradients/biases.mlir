func.func @biases(%q: tensor<2x4x70x32xf32>, %k: tensor<2x2x70x32xf32>, %v: tensor<2x2x70x16xf32>, %dense: tensor<4x70x70xf32>, %slopes: tensor<4xf32>, %table: tensor<?xf32>, %rows: tensor<2x70xf32>, %keys: tensor<70xf32>, %cap: tensor<f32>, %buckets: tensor<70x70xi32> {fa.range = [0, 7]}, %small: tensor<8x4xf32>) -> tensor<2x4x70x16xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %c69 = arith.constant 69 : index
    %c = tensor.extract %cap[] : tensor<f32>
    %t = math.tanh %s : f32
    %s0 = arith.mulf %t, %c : f32
    %x0 = tensor.extract %dense[%h, %i, %j] : tensor<4x70x70xf32>
    %s1 = arith.addf %s0, %x0 : f32
    %d = arith.subi %i, %j : index
    %at = arith.addi %d, %c69 : index
    %x1 = tensor.extract %table[%at] : tensor<?xf32>
    %s2 = arith.addf %s1, %x1 : f32
    %x2 = tensor.extract %rows[%b, %i] : tensor<2x70xf32>
    %x3 = tensor.extract %keys[%j] : tensor<70xf32>
    %p = arith.mulf %x2, %x3 : f32
    %s3 = arith.addf %s2, %p : f32
    %n = tensor.extract %buckets[%i, %j] : tensor<70x70xi32>
    %bucket = arith.index_cast %n : i32 to index
    %x4 = tensor.extract %small[%bucket, %h] : tensor<8x4xf32>
    %s4 = arith.addf %s3, %x4 : f32
    %slope = tensor.extract %slopes[%h] : tensor<4xf32>
    %s5 = arith.mulf %s4, %slope : f32
    fa.yield %s5 : f32
  } : (tensor<2x4x70x32xf32>, tensor<2x2x70x32xf32>, tensor<2x2x70x16xf32>) -> tensor<2x4x70x16xf32>
  return %o : tensor<2x4x70x16xf32>
}
