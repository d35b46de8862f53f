!t = tensor<1x1x?x64xbf16>
func.func @f(%q: !t, %k: !t, %v: !t) -> !t {
  %o = fa.attention %q, %k, %v scale 0.125 : (!t, !t, !t) -> !t
  return %o : !t
}
