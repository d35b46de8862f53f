// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients of attention.

#ifndef FA_DIALECT_FA_IR_FABACKWARD
#define FA_DIALECT_FA_IR_FABACKWARD

def FA_FloatTensor : RankedTensorOf<[F16, BF16, F32, F64]>;

def FA_AttentionBackwardOp : FA_Op<"attention_backward", [Pure,
    AttrSizedOperandSegments,
    AllTypesMatch<["query", "query_grad"]>, AllTypesMatch<["key", "key_grad"]>,
    AllTypesMatch<["value", "value_grad"]>, AllTypesMatch<["out", "out_grad"]>
  ]> {
  let summary = "gradients of fa.attention";
  let description = [{
    The chain rule through `fa.attention`. The op takes the gradients of a
    scalar function with respect to the forward's results (`out_grad` and,
    optionally, `lse_grad`). It gives the gradients with respect to the
    forward's operands and to captured tensors. Scale, regions and `times` are
    the forward's, `out` and `lse` its results. `P` are the weights, `s` the
    scaled products, and `kept` is 1 where the `keep` region holds (Dao et al.
    2022, Algorithm 4):

    ```
    P(i,j)   = exp(score(s(i,j), b, h, i, j) - lse(i)) where mask, 0 elsewhere
    dP(i,j)  = times * kept(i,j) * sum_d out_grad(i,d) * value(j,d)
    D(i)     = sum_d out_grad(i,d) * out(i,d) - lse_grad(i)
             = sum_j P(i,j) * dP(i,j) - lse_grad(i)
    g(i,j)   = P(i,j) * (dP(i,j) - D(i))
    dS, adds = adjoint(s(i,j), b, h, i, j, g(i,j)) where mask, 0 elsewhere
    value_grad(j,:) = sum_i times * kept(i,j) * P(i,j) * out_grad(i,:)
    query_grad(i,:) = scale * sum_j dS(i,j) * key(j,:)
    key_grad(j,:)   = scale * sum_i dS(i,j) * query(i,:)
    ```

    Query heads that share a key head add up in its gradients.

    The `adjoint` region takes `(s : c, b, h, i, j : index, g : c)`: the score
    function's arguments, c the compute type, and the gradient with respect to
    the score. It ends in `fa.yield_adjoint`, which gives dS and the terms of
    the gradients of the captured tensors `wrt`. `fa-differentiate` makes it
    from the `score` region. Without it the score function is the identity.
    Gradients of captured tensors are summed in the compute type, whatever the
    tensors' types. The terms' indices are clamped like those of the reads that
    they come from.

    A row with nothing to attend has no part in any gradient.

    D is computed by the first of its two sums. The second is used for 16-bit
    elements if a gradient of a captured tensor sums elements of one row in one
    place (slopes, scales, buckets): it has no rounding of the output
    (`fa.softmax_delta`).

    Constraints: those of `fa.attention`, by its labels, and
    - `fa_attention_backward_c1`: the fourth and further results are as many as
      the tensors of `wrt`, of their shapes and the compute type.
    - `fa_attention_backward_c2`: `lse` and `lse_grad` have the shape [B,Hq,Sq]
      and the compute type.
    - `fa_attention_backward_c3`: the adjoint region has the arguments and the
      terminator given above and no side effects; its terms go to tensors of
      `wrt`, with an index for each of their dimensions.

    It exists so that the forward's regions give the gradients, too, for every
    mask, score function and dropout that `fa.attention` takes.
    `fa-decompose` turns it into the standard algorithm.

    Example (a bias for each head):

    ```mlir
    %dq, %dk, %dv, %dbias = fa.attention_backward %q, %k, %v out %o, %lse
      grads %do wrt %bias score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %x = tensor.extract %bias[%h] : tensor<8xf32>
        %t = arith.addf %s, %x : f32
        fa.yield %t : f32
      } adjoint {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %g: f32):
        fa.yield_adjoint %g add %g at %h to [0] : f32
      } : (tensor<1x8x64x64xf32>, tensor<1x8x64x64xf32>,
           tensor<1x8x64x64xf32>, tensor<1x8x64x64xf32>, tensor<1x8x64xf32>,
           tensor<1x8x64x64xf32>, tensor<8xf32>)
       -> (tensor<1x8x64x64xf32>, tensor<1x8x64x64xf32>,
           tensor<1x8x64x64xf32>, tensor<8xf32>)
    ```
  }];
  let arguments = (ins
    Arg<FA_QKVTensor, "queries, [B,Hq,Sq,D]">:$query,
    Arg<FA_QKVTensor, "keys, [B,Hk,Sk,D]">:$key,
    Arg<FA_QKVTensor, "values, [B,Hk,Sk,Dv]">:$value,
    Arg<FA_QKVTensor, "the forward's output, [B,Hq,Sq,Dv]">:$out,
    Arg<FA_StateTensor, "the forward's log-sum-exp, [B,Hq,Sq]">:$lse,
    Arg<FA_QKVTensor, "gradient with respect to out">:$out_grad,
    Arg<Optional<FA_StateTensor>, "gradient with respect to lse">:$lse_grad,
    Arg<Variadic<FA_FloatTensor>, "captured tensors to differentiate by">:$wrt,
    OptionalAttr<F64Attr>:$scale,
    OptionalAttr<F64Attr>:$times
  );
  let results = (outs
    Res<FA_QKVTensor, "gradient with respect to query">:$query_grad,
    Res<FA_QKVTensor, "gradient with respect to key">:$key_grad,
    Res<FA_QKVTensor, "gradient with respect to value">:$value_grad,
    Res<Variadic<FA_StateTensor>, "gradients of captured tensors">:$wrt_grads
  );
  let regions = (region MaxSizedRegion<1>:$score, MaxSizedRegion<1>:$mask,
    MaxSizedRegion<1>:$keep, MaxSizedRegion<1>:$adjoint);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    int64_t getNumQueryHeads() { return getQuery().getType().getDimSize(1); }
    int64_t getNumKeyHeads() { return getKey().getType().getDimSize(1); }
    /// Query heads that share one key head.
    int64_t getGroupSize() { return getNumQueryHeads() / getNumKeyHeads(); }
    int64_t getHeadDim() { return getQuery().getType().getDimSize(3); }
    int64_t getValueDim() { return getValue().getType().getDimSize(3); }
    ::mlir::Type getElementType() {
      return getQuery().getType().getElementType();
    }
    ::mlir::Type getComputeType() {
      return ::fa::getComputeType(getElementType());
    }
    /// As AttentionOp's.
    void clampCapturedIndices(::mlir::OpBuilder &builder);
    /// The scale given, or 1/sqrt(D).
    double getScaleOrDefault();
    /// The adjoint region's terminator; null without a region.
    YieldAdjointOp getAdjointYield();
    /// Whether a captured tensor's gradient sums elements of one row in one
    /// place, as far as the place's indices tell.
    bool addsRowsUp();
  }];
}

def FA_YieldAdjointOp : FA_Op<"yield_adjoint", [Pure, Terminator, ReturnLike,
    AttrSizedOperandSegments,
    ParentOneOf<["AttentionBackwardOp", "SoftmaxGradOp"]>]> {
  let summary = "gradient with respect to the scaled product, and further terms";
  let description = [{
    Ends an adjoint region. `grad` is the gradient with respect to the product
    that the region takes. The n-th of `terms` is added to gradient number
    `to[n]` of the captured tensors. Its place are the next indices of `at`, one
    for each of that tensor's dimensions.

    `grad` and all terms have the compute type.

    Example: `fa.yield_adjoint %ds add %x, %y at %h, %i, %j to [0, 1] : f32` adds
    %x to an element of a vector and %y to one of a matrix.
  }];
  let arguments = (ins
    FA_ComputeType:$grad,
    Variadic<FA_ComputeType>:$terms,
    Variadic<Index>:$at,
    DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$to
  );
  let assemblyFormat = [{
    $grad (`add` $terms^ `at` $at `to` $to)? attr-dict `:`
    custom<AdjointTypes>(type($grad), type($terms), ref($terms))
  }];
  let extraClassDeclaration = [{
    /// Indices of the n-th term.
    ::mlir::OperandRange getIndicesOf(unsigned n);
  }];
}

def FA_CustomGradientOp : FA_Op<"custom_gradient", [Pure,
    AttrSizedOperandSegments,
    TypesMatchWith<"results have the values' types", "values", "results",
      "$_self">]> {
  let summary = "values with a gradient that is given, or with none";
  let description = [{
    In a score function: the results are the `values`, and their gradient is not
    the values' own. The `gradient` region takes the gradients with respect to
    the results and gives those with respect to `inputs`. No other path is
    differentiated. Without inputs there is no region: the gradient is 0, and
    the values count as constants. The region may use values from above and must
    be free of side effects. As a chain rule it is linear in its arguments.

    `unknown` replaces the region if the gradient cannot be expressed. It holds
    the reason, and differentiating the op is an error.

    `fa-differentiate` puts the region into the adjoint. Everything else takes
    the values, and `fa-decompose` removes the op.

    Constraints:
    - `fa_custom_gradient_c1`: there is a value; an op with inputs has either a
      region or `unknown`, an op without inputs has neither.
    - `fa_custom_gradient_c2`: the region takes a gradient for each value, of its
      type, and ends in `fa.yield_gradients` with one for each input, of its
      type.
    - `fa_custom_gradient_c3`: the region is free of side effects.

    It exists because no arithmetic gives a value a derivative other than its
    own: `detach`, `no_grad` and `autograd.Function` of PyTorch,
    `stop_gradient`, `custom_jvp` and `custom_vjp` of JAX.

    Example (rounding that lets gradients through; a constant):

    ```mlir
    %r = math.roundeven %s : f32
    %y = fa.custom_gradient %r : f32 of %s : f32 gradient {
    ^bb0(%g: f32):
      fa.yield_gradients %g : f32
    }
    %c = fa.custom_gradient %y : f32
    ```
  }];
  let arguments = (ins
    Arg<Variadic<FA_ComputeType>, "values of the results">:$values,
    Arg<Variadic<FA_ComputeType>, "values to differentiate by">:$inputs,
    OptionalAttr<StrAttr>:$unknown
  );
  let results = (outs Variadic<FA_ComputeType>:$results);
  let regions = (region MaxSizedRegion<1>:$gradient);
  let assemblyFormat = [{
    $values `:` type($values) (`of` $inputs^ `:` type($inputs))?
    (`gradient` $gradient^)? (`unknown` $unknown^)? attr-dict
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// Replaces each of these ops in an op's regions by its values, once
    /// nothing is differentiated any more.
    static void takeValues(::mlir::RewriterBase &rewriter,
                           ::mlir::Operation *op);
    /// Builds the gradients with respect to the inputs from those with respect
    /// to the results. `map` leads to the values that the region uses from
    /// above.
    ::llvm::SmallVector<::mlir::Value>
    buildGradients(::mlir::OpBuilder &builder, ::mlir::IRMapping map,
                   ::mlir::ValueRange gradients);
  }];
}

def FA_YieldGradientsOp : FA_Op<"yield_gradients", [Pure, Terminator,
    ReturnLike, HasParent<"CustomGradientOp">]> {
  let summary = "gradients with respect to the inputs of fa.custom_gradient";
  let arguments = (ins Variadic<FA_ComputeType>:$gradients);
  let assemblyFormat = "$gradients attr-dict `:` type($gradients)";
}

def FA_SoftmaxGradOp : FA_Op<"softmax_grad", [
    Pure, DestinationStyleOpInterface, AggregatedOpInterface,
    DeclareOpInterfaceMethods<FA_TileStepOpInterface>,
    AllTypesMatch<["query_grad", "new_query_grad"]>,
    AllTypesMatch<["key_grad", "new_key_grad"]>,
    AllTypesMatch<["value_grad", "new_value_grad"]>,
    AllElementTypesMatch<["query", "key", "value", "out_grad"]>,
    TypesMatchWith<"captured gradients keep their types", "captured_grads",
      "new_captured_grads", "$_self">,
    DeclareOpInterfaceMethods<TilingInterface, ["getLoopIteratorTypes",
      "getIterationDomain", "getTiledImplementation",
      "getResultTilePosition"]>
  ]> {
  let summary = "add a block of scores' part to the gradients";
  let description = [{
    The backward's step, as `fa.online_softmax` is the forward's. A block of
    scores S [M,N] adds its part to the gradients with respect to its queries,
    keys and values, and to captured tensors (Dao et al. 2022, Algorithm 4,
    lines 11 to 22). With the log-sum-exp and D of the rows:

    ```
    P(i,j)  = exp(S(i,j) - lse(i))
    dP(i,j) = times * kept(i,j) * sum_d out_grad(i,d) * value(j,d)
    g(i,j)  = P(i,j) * (dP(i,j) - D(i))
    dS, adds = adjoint(products(i,j), i, j, g(i,j)) where g(i,j) is not 0, else 0
    value_grad' = value_grad + (kept * P)^T out_grad
    query_grad' = query_grad + dS key
    key_grad'   = key_grad + dS^T query
    captured'   = captured + adds
    ```

    P and dS are rounded to the queries' type before their products. Products
    are summed in the compute type c (`fa.attention`). These sums contain
    neither the scale of the products nor `times`: the user of the results
    applies both.

    The `adjoint` region takes `(product : c, row, column : index, g : c)`,
    row and column within the block, and ends in `fa.yield_adjoint`. The `keep`
    region takes `(row, column : index)` and yields an i1. Both must be free of
    side effects.

    The elements of the block may be added in any order, so the op may be tiled
    along i and j. Padding rows and keys have `lse = +inf` or `S = -inf`: they
    add 0. A row with nothing to attend has S = -inf, and any lse that is
    not -inf (fa-decompose: 0).

    It exists for the same reason as `fa.online_softmax`: `linalg.generic` has
    no reductions along different dimensions in one op. Tiling:
    `TilingInterface` over (i, j). `decomposeOperation` gives `linalg.generic`
    ops; on whole matrices they are the standard algorithm (Algorithm 3).

    Constraints:
    - `fa_softmax_grad_c1`: sizes agree between operands; query, key, value and
      out_grad have one element type, the others its compute type.
    - `fa_softmax_grad_c2`: the regions have the arguments and terminators given
      above; each term of the adjoint goes to one of the captured tensors'
      gradients, with an index for each of their dimensions.

    Example:

    ```mlir
    %dq1, %dk1, %dv1 = fa.softmax_grad ins(%s, %qk, %q, %k, %v, %do, %lse, %d :
        tensor<64x128xf32>, tensor<64x128xf32>, tensor<64x32xf16>,
        tensor<128x32xf16>, tensor<128x16xf16>, tensor<64x16xf16>,
        tensor<64xf32>, tensor<64xf32>)
      outs(%dq, %dk, %dv :
        tensor<64x32xf32>, tensor<128x32xf32>, tensor<128x16xf32>)
      keep {
      ^bb0(%i: index, %j: index):
        fa.yield %true : i1
      } adjoint {
      ^bb0(%x: f32, %i: index, %j: index, %g: f32):
        fa.yield_adjoint %g : f32
      }
    ```
  }];
  let arguments = (ins
    Arg<FA_StateTensor, "scores, masked ones -inf, [M,N]">:$scores,
    Arg<FA_StateTensor, "products, not scaled, [M,N]">:$products,
    Arg<FA_QKVTensor, "queries, [M,D]">:$query,
    Arg<FA_QKVTensor, "keys, [N,D]">:$key,
    Arg<FA_QKVTensor, "values, [N,Dv]">:$value,
    Arg<FA_QKVTensor, "gradient with respect to the output, [M,Dv]">:$out_grad,
    Arg<FA_StateTensor, "log-sum-exp, [M]">:$lse,
    Arg<FA_StateTensor, "D, [M]">:$delta,
    Arg<FA_StateTensor, "gradient so far, [M,D]">:$query_grad,
    Arg<FA_StateTensor, "gradient so far, [N,D]">:$key_grad,
    Arg<FA_StateTensor, "gradient so far, [N,Dv]">:$value_grad,
    Arg<Variadic<FA_StateTensor>, "gradients so far">:$captured_grads,
    OptionalAttr<F64Attr>:$times
  );
  let results = (outs FA_StateTensor:$new_query_grad,
    FA_StateTensor:$new_key_grad, FA_StateTensor:$new_value_grad,
    Variadic<FA_StateTensor>:$new_captured_grads);
  let regions = (region SizedRegion<1>:$keep, SizedRegion<1>:$adjoint);
  let assemblyFormat = [{
    `ins` `(` $scores `,` $products `,` $query `,` $key `,` $value `,` $out_grad
    `,` $lse `,` $delta `:` type($scores) `,` type($products) `,` type($query)
    `,` type($key) `,` type($value) `,` type($out_grad) `,` type($lse) `,`
    type($delta) `)`
    `outs` `(` $query_grad `,` $key_grad `,` $value_grad
    (`,` $captured_grads^)? `:` type($query_grad) `,` type($key_grad) `,`
    type($value_grad) (`,` type($captured_grads)^)? `)`
    (`times` $times^)? `keep` $keep `adjoint` $adjoint attr-dict
  }];
  let builders = [OpBuilder<(ins "::mlir::ValueRange":$inputs,
    "::mlir::ValueRange":$grads, "::mlir::FloatAttr":$times)>];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    static constexpr unsigned kNumInputs = 8;
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return ::mlir::MutableOperandRange(*this, kNumInputs,
                                         3 + getCapturedGrads().size());
    }
    ::mlir::Type getComputeType() {
      return ::fa::getComputeType(getQuery().getType().getElementType());
    }
    /// Whether every weight is kept.
    bool keepsAll();
    YieldAdjointOp getAdjointYield();
    /// Whether a yielded value of the adjoint depends on the product.
    bool readsProduct(::mlir::Value yielded);
    /// AggregatedOpInterface: `linalg.generic` and `fa.accumulate` ops.
    ::mlir::FailureOr<::mlir::SmallVector<::mlir::Value>>
    decomposeOperation(::mlir::OpBuilder &builder);
  }];
}

def FA_SoftmaxDeltaOp : FA_Op<"softmax_delta", [
    Pure, DestinationStyleOpInterface, AggregatedOpInterface,
    DeclareOpInterfaceMethods<FA_TileStepOpInterface>,
    AllTypesMatch<["delta", "new_delta"]>, AllTypesMatch<["sum", "new_sum"]>,
    AllElementTypesMatch<["value", "out_grad"]>,
    DeclareOpInterfaceMethods<TilingInterface, ["getLoopIteratorTypes",
      "getIterationDomain", "getTiledImplementation",
      "getResultTilePosition", "generateResultTileValue"]>
  ]> {
  let summary = "add a block of scores' part to D";
  let description = [{
    The backward subtracts D from a row's gradients of weights. This op computes
    D = delta / sum by two sums over the keys. With a block of scores S [M,N]
    and the log-sum-exp of the rows:

    ```
    P(i,j)    = exp(S(i,j) - lse(i))
    dP(i,j)   = times * kept(i,j) * sum_d out_grad(i,d) * value(j,d)
    delta'(i) = delta(i) + sum_j P(i,j) * dP(i,j)
    sum'(i)   = sum(i) + sum_j P(i,j)
    ```

    In exact arithmetic D is rowsum(out_grad * out) (Dao et al. 2022, appendix
    B.2, equation 4), and the sum is 1. An output of 16 bits has two roundings:
    its own, and that of the weights before their product with the values. The
    rounding of the lse multiplies a row's weights by a factor; the division by
    the sum removes the factor.

    A row's elements sum to 0. A gradient that sums them in one place thus keeps
    the error of D and cancels the rest. For such gradients `fa-decompose`
    builds this op, whose numbers all have the compute type.

    The `keep` region takes `(row, column : index)` within the block and yields
    an i1. It must be free of side effects. A score of -inf adds nothing, and
    the lse is not -inf. The op may be tiled along rows and, in any order, along
    keys.

    It exists because the mask of the scores bounds the loop over keys that
    tiling makes (`TileStepOpInterface`). Tiling: `TilingInterface` over (i, j).
    `decomposeOperation` gives `linalg.generic` ops.

    Constraint `fa_softmax_delta_c1`: sizes agree between operands; scores, lse,
    delta and sum have the compute type of the values' elements.
    Constraint `fa_softmax_delta_c2`: the keep region takes two indices and
    yields an i1.

    Example:

    ```mlir
    %d1, %l1 = fa.softmax_delta ins(%s, %v, %do, %lse : tensor<64x128xf32>,
        tensor<128x16xf16>, tensor<64x16xf16>, tensor<64xf32>)
      outs(%d, %l : tensor<64xf32>, tensor<64xf32>) keep {
      ^bb0(%i: index, %j: index):
        fa.yield %true : i1
      }
    ```
  }];
  let arguments = (ins
    Arg<FA_StateTensor, "scores, masked ones -inf, [M,N]">:$scores,
    Arg<FA_QKVTensor, "values, [N,Dv]">:$value,
    Arg<FA_QKVTensor, "gradient with respect to the output, [M,Dv]">:$out_grad,
    Arg<FA_StateTensor, "log-sum-exp, [M]">:$lse,
    Arg<FA_StateTensor, "sum of P * dP so far, [M]">:$delta,
    Arg<FA_StateTensor, "sum of P so far, [M]">:$sum,
    OptionalAttr<F64Attr>:$times
  );
  let results = (outs FA_StateTensor:$new_delta, FA_StateTensor:$new_sum);
  let regions = (region SizedRegion<1>:$keep);
  let assemblyFormat = [{
    `ins` `(` $scores `,` $value `,` $out_grad `,` $lse `:` type($scores) `,`
    type($value) `,` type($out_grad) `,` type($lse) `)`
    `outs` `(` $delta `,` $sum `:` type($delta) `,` type($sum) `)`
    (`times` $times^)? `keep` $keep attr-dict
  }];
  let builders = [OpBuilder<(ins "::mlir::ValueRange":$inputs,
    "::mlir::ValueRange":$sums, "::mlir::FloatAttr":$times)>];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    static constexpr unsigned kNumInputs = 4;
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return ::mlir::MutableOperandRange(*this, kNumInputs, 2);
    }
    /// Whether every weight is kept.
    bool keepsAll();
    /// AggregatedOpInterface: `linalg.generic` ops.
    ::mlir::FailureOr<::mlir::SmallVector<::mlir::Value>>
    decomposeOperation(::mlir::OpBuilder &builder);
  }];
}

def FA_AccumulateOp : FA_Op<"accumulate", [Pure, DestinationStyleOpInterface,
    AggregatedOpInterface, AllElementTypesMatch<["terms", "init"]>,
    AllTypesMatch<["init", "result"]>]> {
  let summary = "add each element of a tensor at a place of another";
  let description = [{
    ```
    result = init
    for each place x of terms: result[places(x)...] += terms[x...]
    ```

    The `places` region takes the coordinates of an element of `terms`, and
    yields its place in the result, an index for each dimension. It must be free
    of side effects. A place outside the result is undefined behaviour.
    `decomposeOperation` gives loops over the elements.

    It exists because `linalg.generic` writes where an affine map of its loops
    leads, while the gradient of a captured tensor goes wherever the score
    function read it: `bias[h, i, j]`, `table[i - j]`, `table[bucket[i, j]]`.

    With `ordered = n`, additions to an element come one after another, in the
    same order each time, so sums have the same bits. An iteration of an
    `scf.forall` adds after the iterations that are n, 2 n, ... before it in the
    last dimension. Other iterations never add to the same element; if n is 0,
    no two iterations do.

    Constraint `fa_accumulate_c1`: the region takes an index for each dimension
    of `terms` and yields one for each of `init`.
    Constraint `fa_accumulate_c2`: `ordered` is at least 0 and fits 32 bits.

    Example (slopes of heads from [B,H,S]):

    ```mlir
    %r = fa.accumulate %terms into %zero at {
      ^bb0(%b: index, %h: index, %i: index):
        fa.yield_places %h
      } : tensor<2x8x64xf32> into tensor<8xf32>
    ```
  }];
  let arguments = (ins
    Arg<FA_StateTensor, "terms to add">:$terms,
    Arg<FA_StateTensor, "the sums so far">:$init,
    OptionalAttr<I64Attr>:$ordered
  );
  let results = (outs FA_StateTensor:$result);
  let regions = (region SizedRegion<1>:$places);
  let assemblyFormat = [{
    $terms `into` $init `at` $places attr-dict `:`
    type($terms) `into` type($init)
  }];
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return getInitMutable();
    }
    /// Whether terms that differ in this coordinate may have different places.
    bool placeDependsOn(unsigned dim);
    /// Whether two terms of a matrix have the same place if their coordinates
    /// have the same difference: `table[i - j]`, `table[bucket[i - j]]`.
    bool placeIsOfDifference();
    /// Whether terms have different places exactly if they differ in one of
    /// these coordinates.
    bool hasOwnPlaces(::llvm::ArrayRef<unsigned> dims);
    /// Whether iterations of the enclosing scf.forall that differ in this
    /// dimension have different places.
    bool hasOwnPlacesIn(unsigned gridDim);
    /// AggregatedOpInterface: sums along dimensions that places do not depend
    /// on, then loops over the elements.
    ::mlir::FailureOr<::mlir::SmallVector<::mlir::Value>>
    decomposeOperation(::mlir::OpBuilder &builder);
  }];
}

def FA_YieldPlacesOp : FA_Op<"yield_places", [Pure, Terminator, ReturnLike,
    HasParent<"AccumulateOp">]> {
  let summary = "place at which fa.accumulate adds an element";
  let arguments = (ins Variadic<Index>:$places);
  let assemblyFormat = "($places^)? attr-dict";
}

def FA_AccumulateSliceOp : FA_Op<"accumulate_slice", [Pure,
    DestinationStyleOpInterface, AttrSizedOperandSegments,
    OffsetSizeAndStrideOpInterface, AggregatedOpInterface,
    AllTypesMatch<["init", "result"]>]> {
  let summary = "add a tile to a slice of a tensor";
  let description = [{
    `result` is `init` with `part` added to the slice at `offsets`, of `sizes`
    and `strides`, as `tensor.insert_slice` would write it. Sizes of 1 that
    `part` lacks are dropped. Additions by other iterations of an `scf.forall`
    to the same element are not lost: on a GPU each addition is atomic.

    With `ordered = n`, sums have the same bits each time, as `fa.accumulate`
    defines it. An iteration then visits its slices in the order in which they
    lie in memory.

    It exists because the blocks of a grid add to the same rows: each block of
    keys adds to the gradients of all queries. `decomposeOperation` gives a
    slice, a sum and an insertion, for programs whose iterations run one after
    another.

    Constraint `fa_accumulate_slice_c1`: `part` has the slice's sizes.
    Constraint `fa_accumulate_slice_c2`: `ordered` is at least 0 and fits 32 bits.

    Example:

    ```mlir
    %1 = fa.accumulate_slice %part into %dq[%b, %h, %i, 0] [1, 1, 64, 128]
        [1, 1, 1, 1] : tensor<64x128xf32> into tensor<2x8x?x128xf32>
    ```
  }];
  let arguments = (ins
    Arg<FA_StateTensor, "tile to add">:$part,
    Arg<FA_StateTensor, "the sums so far">:$init,
    Variadic<Index>:$offsets, Variadic<Index>:$sizes, Variadic<Index>:$strides,
    DenseI64ArrayAttr:$static_offsets, DenseI64ArrayAttr:$static_sizes,
    DenseI64ArrayAttr:$static_strides, OptionalAttr<I64Attr>:$ordered
  );
  let results = (outs FA_StateTensor:$result);
  let assemblyFormat = [{
    $part `into` $init ``
    custom<DynamicIndexList>($offsets, $static_offsets)
    custom<DynamicIndexList>($sizes, $static_sizes)
    custom<DynamicIndexList>($strides, $static_strides)
    attr-dict `:` type($part) `into` type($init)
  }];
  let builders = [OpBuilder<(ins "::mlir::Value":$part, "::mlir::Value":$init,
    "::llvm::ArrayRef<::mlir::OpFoldResult>":$offsets,
    "::llvm::ArrayRef<::mlir::OpFoldResult>":$sizes,
    "::llvm::ArrayRef<::mlir::OpFoldResult>":$strides)>];
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return getInitMutable();
    }
    /// OffsetSizeAndStrideOpInterface.
    std::array<unsigned, 3> getArrayAttrMaxRanks() {
      unsigned rank = getInit().getType().getRank();
      return {rank, rank, rank};
    }
    static unsigned getOffsetSizeAndStrideStartOperandIndex() { return 2; }
    /// The dimensions of the slice that the part lacks.
    ::llvm::SmallBitVector getDroppedDims();
    /// AggregatedOpInterface: a slice, a sum and an insertion.
    ::mlir::FailureOr<::mlir::SmallVector<::mlir::Value>>
    decomposeOperation(::mlir::OpBuilder &builder);
  }];
}

def FA_ParallelAccumulateOp : FA_Op<"parallel_accumulate", [
    DeclareOpInterfaceMethods<ParallelCombiningOpInterface>,
    AllTypesMatch<["sum", "dest"]>]> {
  let summary = "sum of the additions of a grid's iterations";
  let description = [{
    In `scf.forall.in_parallel`. The iterations share the tensor `dest`. `sum`
    is `dest` after the additions of one iteration: `fa.accumulate_slice`,
    `fa.accumulate` and `fa.softmax_grad`. The loop's result is the initial
    tensor plus the additions of all iterations, in any order that these
    operations leave open.

    It exists because `tensor.parallel_insert_slice` is for parts that do not
    overlap. If iterations run one after another, `sum` is the next one's
    `dest`.

    Example:

    ```mlir
    scf.forall.in_parallel {
      fa.parallel_accumulate %sum into %dq : tensor<2x8x512x64xf32>
    }
    ```
  }];
  let arguments = (ins
    Arg<FA_StateTensor, "the shared tensor after this iteration's additions">
      :$sum,
    Arg<FA_StateTensor, "tensor that the iterations share">:$dest
  );
  let assemblyFormat = "$sum `into` $dest attr-dict `:` type($dest)";
}

#endif // FA_DIALECT_FA_IR_FABACKWARD
