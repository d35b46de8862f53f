// A block-sparse matrix for each head, blocks of 32 queries and 16 keys, with
// causal order and a length for each batch entry. Queries and keys beyond the
// matrix are those of its last row and column. --shape needs all sizes, as in
// "B=2,Sq=333,Sk=333,arg3.1=11,arg3.2=21".
func.func @block_sparse(%q: tensor<?x4x?x32xbf16>, %k: tensor<?x2x?x32xbf16>,
                        %v: tensor<?x2x?x32xbf16>, %blocks: tensor<4x?x?xi1>,
                        %lengths: tensor<2xi32>)
    -> (tensor<?x4x?x32xbf16>, tensor<?x4x?xf32>) {
  %o, %lse = fa.attention %q, %k, %v
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %c16 = arith.constant 16 : index
      %c32 = arith.constant 32 : index
      %n = arith.floordivsi %i, %c32 : index
      %m = arith.floordivsi %j, %c16 : index
      %listed = tensor.extract %blocks[%h, %n, %m] : tensor<4x?x?xi1>
      %causal = arith.cmpi sle, %j, %i : index
      %length32 = tensor.extract %lengths[%b] : tensor<2xi32>
      %length = arith.index_cast %length32 : i32 to index
      %inside = arith.cmpi slt, %j, %length : index
      %both = arith.andi %listed, %causal : i1
      %seen = arith.andi %both, %inside : i1
      fa.yield %seen : i1
    } : (tensor<?x4x?x32xbf16>, tensor<?x2x?x32xbf16>, tensor<?x2x?x32xbf16>)
     -> (tensor<?x4x?x32xbf16>, tensor<?x4x?xf32>)
  return %o, %lse : tensor<?x4x?x32xbf16>, tensor<?x4x?xf32>
}
