!t = tensor<1x1x?x64xf16>
func.func @f(%q: !t, %k: !t, %v: !t) -> !t {
  %c70 = arith.constant 70 : index
  %o = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %first = arith.subi %i, %c70 : index
      %near = arith.cmpi sge, %j, %first : index
      %seen = arith.cmpi sle, %j, %i : index
      %both = arith.andi %near, %seen : i1
      fa.yield %both : i1
    } : (!t, !t, !t) -> !t
  return %o : !t
}
