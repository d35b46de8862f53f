// Attention sinks: the first 4 keys and a window of 40. The keys seen are two
// intervals. GQA 2, bf16, dynamic lengths.
func.func @sink_window(%q: tensor<?x2x?x32xbf16>, %k: tensor<?x1x?x32xbf16>,
                       %v: tensor<?x1x?x32xbf16>)
    -> (tensor<?x2x?x32xbf16>, tensor<?x2x?xf32>) {
  %o, %lse = fa.attention %q, %k, %v
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %sinks = arith.constant 4 : index
      %width = arith.constant 40 : index
      %causal = arith.cmpi sle, %j, %i : index
      %distance = arith.subi %i, %j : index
      %near = arith.cmpi slt, %distance, %width : index
      %sink = arith.cmpi slt, %j, %sinks : index
      %either = arith.ori %sink, %near : i1
      %seen = arith.andi %causal, %either : i1
      fa.yield %seen : i1
    } : (tensor<?x2x?x32xbf16>, tensor<?x1x?x32xbf16>, tensor<?x1x?x32xbf16>)
     -> (tensor<?x2x?x32xbf16>, tensor<?x2x?xf32>)
  return %o, %lse : tensor<?x2x?x32xbf16>, tensor<?x2x?xf32>
}
