func.func @dropout(%q: tensor<2x4x70x32xbf16>, %k: tensor<2x2x70x32xbf16>, %v: tensor<2x2x70x16xbf16>) -> (tensor<2x4x70x16xbf16>, tensor<2x4x70xf32>) {
  %seed = arith.constant 12345 : i64
  %c64 = arith.constant 64 : i8
  %o, %lse = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %c = arith.constant 0.1 : f32
    %x = arith.mulf %s, %c : f32
    %t = math.tanh %x : f32
    %ten = arith.constant 10.0 : f32
    %y = arith.mulf %t, %ten : f32
    fa.yield %y : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  } keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %bits = fa.random_bits %seed at [%b, %h, %i, %j]
    %kept = arith.cmpi uge, %bits, %c64 : i8
    fa.yield %kept : i1
  } times 1.3333333 : (tensor<2x4x70x32xbf16>, tensor<2x2x70x32xbf16>, tensor<2x2x70x16xbf16>) -> (tensor<2x4x70x16xbf16>, tensor<2x4x70xf32>)
  return %o, %lse : tensor<2x4x70x16xbf16>, tensor<2x4x70xf32>
}
