!t = tensor<1x1x?x64xbf16>
func.func @f(%q: !t, %k: !t, %v: !t) -> !t {
  %o = fa.attention %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (!t, !t, !t) -> !t
  return %o : !t
}
