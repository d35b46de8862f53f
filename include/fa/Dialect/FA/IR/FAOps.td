// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_DIALECT_FA_IR_FAOPS
#define FA_DIALECT_FA_IR_FAOPS

include "fa/Dialect/FA/IR/FADialect.td"
include "fa/Dialect/FA/IR/FAInterfaces.td"
include "mlir/Dialect/Linalg/IR/LinalgInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/DestinationStyleOpInterface.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/ParallelCombiningOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/TilingInterface.td"
include "mlir/Interfaces/ViewLikeInterface.td"

class FA_Op<string mnemonic, list<Trait> traits = []>
    : Op<FA_Dialect, mnemonic, traits>;

def FA_QKVTensor : RankedTensorOf<[F16, BF16, F32, F64]>;
/// Scores, weights and sums have one of these types (getComputeType).
def FA_ComputeType : AnyTypeOf<[F32, F64]>;
def FA_StateTensor : RankedTensorOf<[F32, F64]>;

def FA_AttentionOp : FA_Op<"attention", [Pure]> {
  let summary = "softmax-weighted sum of values, with any score and any mask";
  let description = [{
    For every batch entry `b`, query head `h` and query row `i`, with
    `g = Hq / Hk` query heads sharing one key head:

    ```
    s(j)  = score(scale * sum_d query[b,h,i,d] * key[b,h/g,j,d], b, h, i, j)
    p(j)  = exp(s(j)) where mask(b, h, i, j), 0 elsewhere
    out[b,h,i,:] = times * sum_{j kept} p(j) * value[b,h/g,j,:] / sum_j p(j)
    lse[b,h,i]   = ln sum_j p(j)
    ```

    The order scale, score, mask, softmax is part of the definition: a score
    function never sees a masked value, and it never softens a mask. A row with
    nothing to attend has `out = 0` and `lse = -inf`.

    Scores, weights and sums are in the compute type c: f64 if the elements are
    f64, f32 otherwise.

    - The `score` region takes `(s : c, b, h, i, j : index)` and yields a c.
      Without it the score is the scaled product.
    - The `mask` region takes `(b, h, i, j : index)` and yields an i1, true
      where the row sees the key. Without it a row sees every key.
    - The `keep` region is dropout (Srivastava et al. 2014) by
      `fa.random_bits`. It takes the mask's arguments and yields an i1, true
      where the normalised weight is kept. `times` makes up for the dropped
      weights; a missing `times` means 1.

    Regions must be free of side effects. They may use values from above and
    read captured tensors by `tensor.extract`. The index of such a read is
    clamped to the tensor, because a region may be evaluated for coordinates
    whose result is thrown away (masked keys, the padding of an edge tile). A
    missing `scale` means `1/sqrt(D)`.

    Shapes: query [B,Hq,Sq,D], key [B,Hk,Sk,D], value [B,Hk,Sk,Dv],
    out [B,Hq,Sq,Dv], lse [B,Hq,Sq] of the compute type. B, Sq and Sk may be
    dynamic.

    Constraints:
    - `fa_attention_c1`: query, key, value and out have rank 4 and one element
      type; lse has rank 3 and its compute type.
    - `fa_attention_c2`: Hq, Hk, D and Dv are static; Hk divides Hq.
    - `fa_attention_c3`: D and Dv are in [1, 256]; tensors have at most 2^47
      elements and sizes below 2^30, captured tensors included.
    - `fa_attention_c4`: batch, head, length and head dim agree between
      operands and results.
    - `fa_attention_c5`: the scale and `times` are finite; `times` comes with
      a `keep` region.
    - `fa_attention_c6`: the regions have the arguments and yields given above
      and no side effects.

    It exists because no op upstream says "softmax over these scores, with this
    function of them" so that every algorithm can be derived from it.
    `fa-decompose` turns it into the standard algorithm.

    Example (causal):

    ```mlir
    %o, %lse = fa.attention %q, %k, %v scale 0.125
      mask {
      ^bb0(%b: index, %h: index, %i: index, %j: index):
        %seen = arith.cmpi sle, %j, %i : index
        fa.yield %seen : i1
      } : (tensor<1x12x1024x64xf16>, tensor<1x12x1024x64xf16>,
           tensor<1x12x1024x64xf16>)
       -> (tensor<1x12x1024x64xf16>, tensor<1x12x1024xf32>)
    ```
  }];
  let arguments = (ins
    Arg<FA_QKVTensor, "queries, [B,Hq,Sq,D]">:$query,
    Arg<FA_QKVTensor, "keys, [B,Hk,Sk,D]">:$key,
    Arg<FA_QKVTensor, "values, [B,Hk,Sk,Dv]">:$value,
    OptionalAttr<F64Attr>:$scale,
    OptionalAttr<F64Attr>:$times
  );
  let results = (outs
    Res<FA_QKVTensor, "outputs, [B,Hq,Sq,Dv]">:$out,
    Res<Optional<FA_StateTensor>, "log-sum-exp, natural log, [B,Hq,Sq]">:$lse
  );
  let regions = (region MaxSizedRegion<1>:$score, MaxSizedRegion<1>:$mask,
    MaxSizedRegion<1>:$keep);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// Largest head dim that any target takes.
    static constexpr int64_t kMaxHeadDim = 256;
    /// Most elements of a tensor, as far as its sizes are static.
    static constexpr int64_t kMaxElements = int64_t(1) << 47;
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
    /// Makes the clamping of captured tensors' indices explicit in the regions,
    /// and computes the tensors' sizes before the op. A pass that evaluates the
    /// regions calls this first.
    void clampCapturedIndices(::mlir::OpBuilder &builder);
    /// The scale given, or 1/sqrt(D).
    double getScaleOrDefault();
  }];
}

def FA_YieldOp : FA_Op<"yield", [Pure, Terminator, ReturnLike,
    ParentOneOf<["AttentionOp", "AttentionBackwardOp", "ListBlocksOp",
      "OnlineSoftmaxOp", "SpeculatedSoftmaxOp", "SoftmaxGradOp",
      "SoftmaxDeltaOp"]>]> {
  let summary = "result of a score, mask or keep region";
  let arguments = (ins AnyTypeOf<[F32, F64, I1]>:$result);
  let assemblyFormat = "$result attr-dict `:` type($result)";
}

def FA_RandomBitsOp : FA_Op<"random_bits", [Pure]> {
  let summary = "eight random bits of an element, always the same";
  let description = [{
    A counter-based generator gives each element (b, h, i, j) one of 256
    numbers. For a seed the number is the same wherever, and in whichever order,
    elements are computed. Coordinates count modulo 2^32.

    ```
    words[4..7] = Philox4x32-7(key, counter), words[0..3] = Philox4x32-9(same),
        key = seed, counter = (8 * (i / 16) + i % 8, 8 * (j / 64) + j % 8 / 2 * 2, h, b)
    bit n of the result = bit 8 * (2 * (i / 8 % 2) + j % 2) + 7 - j / 8 % 8
        of words[n]
    ```

    Eight words thus serve 2 rows of 16 columns each. A thread holds these
    elements of a 16 x 64 tile in the layout of NVIDIA's matrix instructions.
    To compare all 32 numbers with a constant takes one operation on words for
    each bit of the constant, from its lowest 1 on.

    The lower half of a number decides a comparison once in 16 times. Its words
    continue the upper half's words by two rounds; after one round, words would
    repeat. Source: Salmon, Moraes, Dror and Shaw 2011, "Parallel random
    numbers: as easy as 1, 2, 3".

    `tile` is a promise that fa-tile makes: elements are computed in tiles that
    begin at multiples of these sizes.

    Constraint `fa_random_bits_c1`: `tile` has two sizes of at least 1.

    It exists because the generator makes bits for many elements at once, and
    the arithmetic of one element cannot say so. `expand` gives the arithmetic
    of one element.

    Example (dropout of a tenth):

    ```mlir
    %bits = fa.random_bits %seed at [%b, %h, %i, %j]
    %kept = arith.cmpi uge, %bits, %c26 : i8
    ```
  }];
  let arguments = (ins
    Arg<I64, "seed, the generator's key">:$seed,
    Arg<Index, "batch entry b">:$batch,
    Arg<Index, "query head h">:$head,
    Arg<Index, "query row i">:$row,
    Arg<Index, "key j">:$column,
    OptionalAttr<DenseI64ArrayAttr>:$tile
  );
  let results = (outs I8:$bits);
  let assemblyFormat = [{
    $seed `at` `[` $batch `,` $head `,` $row `,` $column `]` (`tile` $tile^)?
    attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Rows and columns of the tile that eight words of each of 32 threads
    /// serve.
    static constexpr int64_t kGroupRows = 16, kGroupColumns = 64;
    /// Whether a tile is whole groups, or an aligned part of one.
    bool isInGroups();
    /// The words of (row, column) for bits `first` to 7, as i32.
    ::llvm::SmallVector<::mlir::Value>
    buildWords(::mlir::OpBuilder &builder, unsigned first);
    /// The result as arithmetic of this element alone.
    ::mlir::Value expand(::mlir::OpBuilder &builder);
  }];
}

def FA_OnlineSoftmaxOp : FA_Op<"online_softmax", [
    Pure, DestinationStyleOpInterface, AllTypesMatch<["max", "new_max"]>,
    AllTypesMatch<["sum", "new_sum"]>, AllTypesMatch<["acc", "new_acc"]>,
    AggregatedOpInterface, DeclareOpInterfaceMethods<FA_TileStepOpInterface>,
    DeclareOpInterfaceMethods<TilingInterface, ["getLoopIteratorTypes",
      "getIterationDomain", "getTiledImplementation",
      "getResultTilePosition"]>
  ]> {
  let summary = "merge a block of scores and values into a softmax state";
  let description = [{
    One reduction over the keys `j`. Its state `(m, l, o)` is the running
    maximum, the sum of exponentials relative to the maximum, and the normalised
    output of the keys seen so far. For the block's scores s [M,N] and values v
    [N,Dv] (Milakov and Gimelshein 2018; FlashAttention, Algorithm 1):

    ```
    m'   = max(m, max_j s(j))
    l'   = l * exp(m - m') + sum_j exp(s(j) - m')
    o'   = (l * exp(m - m') * o + sum_{j kept} exp(s(j) - m') * v(j,:)) / l'
    ```

    The `keep` region takes `(row, column : index)` within the block and yields
    an i1; without it every weight is kept. It must be free of side effects.

    A score of `-inf` contributes nothing. A row that has seen nothing has
    `m = -inf`, `l = 0`, `o = 0`. The merge is associative, so the reduction
    may be tiled along `j` in any order, and split.

    Passes set attributes that say how to compute it:
    - `unnormalized`: the state holds `n = l * o` instead of `o`. A division
      follows the last block (fa-defer-normalization).
    - `log2_scale = c`: one unit of the scores is `c` in log2, so `exp(x - y)`
      above means `2^((x - y) c)` (fa-fold-scale-exp2). It is computed as
      `exp2(fma(s, c, -m' c))`.
    - `subtract_first`: it is computed as `exp2((s - m') c)` instead. Large
      scores need this: there the difference of two products is not the product
      of their difference.

    Constraints:
    - `fa_online_softmax_c1`: scores and state have the compute type of
      the values' elements.
    - `fa_online_softmax_c2`: `log2_scale` is finite and above 0;
      `subtract_first` comes with it.

    It exists because `linalg.generic` has no reduction whose state has parts of
    different rank (m and l per row, o per row and column).
    Tiling: `TilingInterface` over (i, j). `decomposeOperation` gives the
    merge as `linalg.generic` ops.

    Example:

    ```mlir
    %m1, %l1, %o1 = fa.online_softmax
      ins(%s, %v : tensor<?x?xf32>, tensor<?x64xbf16>)
      outs(%m, %l, %o : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>)
    ```
  }];
  let arguments = (ins
    Arg<FA_StateTensor, "scores, masked ones -inf, [M,N]">:$scores,
    Arg<FA_QKVTensor, "values, [N,Dv]">:$values,
    Arg<FA_StateTensor, "running maximum, [M]">:$max,
    Arg<FA_StateTensor, "running sum, [M]">:$sum,
    Arg<FA_StateTensor, "output so far, [M,Dv]">:$acc,
    UnitAttr:$unnormalized,
    OptionalAttr<F64Attr>:$log2_scale,
    UnitAttr:$subtract_first
  );
  let results = (outs FA_StateTensor:$new_max, FA_StateTensor:$new_sum,
    FA_StateTensor:$new_acc);
  // One or none: upstream's patterns do not expect a region without a block.
  let regions = (region VariadicRegion<SizedRegion<1>>:$keep);
  let assemblyFormat = [{
    `ins` `(` $scores `,` $values `:` type($scores) `,` type($values) `)`
    `outs` `(` $max `,` $sum `,` $acc `:` type($max) `,` type($sum) `,`
    type($acc) `)` (`keep` $keep^)? attr-dict
  }];
  let builders = [OpBuilder<(ins "::mlir::Value":$scores,
    "::mlir::Value":$values, "::mlir::ValueRange":$state,
    CArg<"bool", "false">:$keeps), [{
      build($_builder, $_state,
            ::mlir::TypeRange(state), scores, values, state[0], state[1],
            state[2], /*unnormalized=*/false, /*log2_scale=*/nullptr,
            /*subtract_first=*/false, /*keepCount=*/keeps);
    }]>];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return ::mlir::MutableOperandRange(*this, 2, 3);
    }
    /// Fills the keep region of an op that was built with one. `body` makes the
    /// yielded value from (row, column).
    void buildKeep(::mlir::OpBuilder &builder,
                   ::llvm::function_ref<::mlir::Value(
                       ::mlir::OpBuilder &, ::mlir::ValueRange)> body);
    /// The merge as `linalg.generic` ops, or as the target's own ops where it
    /// has some.
    ::mlir::SmallVector<::mlir::Value> expand(::mlir::OpBuilder &builder,
                                              ::fa::StepExpansion &target);
    /// AggregatedOpInterface: the merge as `linalg.generic` ops.
    ::mlir::FailureOr<::mlir::SmallVector<::mlir::Value>>
    decomposeOperation(::mlir::OpBuilder &builder);
  }];
}

def FA_SpeculatedSoftmaxOp : FA_Op<"speculated_softmax", [
    Pure, AggregatedOpInterface,
    DeclareOpInterfaceMethods<InferTypeOpInterface>
  ]> {
  let summary = "merge a block into a softmax state, with a speculated maximum";
  let description = [{
    `fa.online_softmax`, unnormalised, whose common path does not take the
    running maximum. A step computes its weights against a reference `R` from
    earlier blocks and checks them afterwards. The weights for scores s [M,N]
    and values v [N,Dv] are

    ```
    p(j) = 2^(score(s(j)) c - R)                      or, with subtract_first,
    p(j) = 2^((score(s(j)) - R) c - headroom)
    ```

    rounded to the values' type. The new state is

    ```
    l' = l a + sum_j p(j)        o' = o a + sum_{j kept} p(j) v(j,:)
    ```

    If all weights are below `limit`, a = 1 and R' = R. If a weight is not, or
    is NaN, or the step is the loop's first, the references of rows move to
    `headroom` (in log2) above their largest scores, and a makes up for the
    move. Weights below `far_limit` are shifted by a power of two instead, which
    is exact; `far_limit = 0` shifts none. A step at a position below `until` is
    wary: it takes the maximum before it computes weights. fa-speculate-max
    gives the reasons and the error.

    The state is `R`, `l` and `o`. A fourth tensor, where there is one, is the
    sum of the weights before rounding, for a log-sum-exp. With `keep`, the
    first sum is of the weights before rounding, too. Groups of rows may take a
    step's branches separately, as long as the groups that need one take it.

    The `score` region takes `(s, row, column : index)`, row and column within
    the step, and yields the score. It is cheaper to add a term where the score
    is read than in the tile. The `keep` region is that of `fa.online_softmax`.
    Both must be free of side effects.

    Constraints:
    - `fa_speculated_softmax_c1`: scores and state are f32, values f16 or bf16,
      and their shapes agree; the state has three or four tensors.
    - `fa_speculated_softmax_c2`: `log2_scale` is finite and above 0, `headroom`
      in [0, 126], `limit` in (1, 2^60], `far_limit` 0 or above `limit`.
    - `fa_speculated_softmax_c3`: the regions have the arguments and yields given
      above and no side effects.

    Example:

    ```mlir
    %r1, %l1, %o1, %until1 = fa.speculated_softmax
      ins(%s, %v : tensor<64x32xf32>, tensor<32x64xbf16>)
      outs(%r, %l, %o : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>)
      at %j from %first by %step until %until score {
    ^bb0(%x: f32, %row: index, %column: index):
      fa.yield %x : f32
    } {log2_scale = 0.18, headroom = 63.0, limit = 2.0, far_limit = 9.2e18}
    ```
  }];
  let arguments = (ins
    Arg<FA_StateTensor, "the score region's input, masked ones -inf, [M,N]">
      :$scores,
    Arg<FA_QKVTensor, "values, [N,Dv]">:$values,
    Arg<Variadic<FA_StateTensor>,
      "reference, sum, output so far; or also the exact sum">:$state,
    Arg<Index, "the step's first key">:$position,
    Arg<Index, "the first step's first key">:$first,
    Arg<Index, "keys of a step">:$step,
    Arg<Index, "steps before this position are wary">:$until,
    F64Attr:$log2_scale,
    UnitAttr:$subtract_first,
    F64Attr:$headroom,
    F64Attr:$limit,
    F64Attr:$far_limit
  );
  let results = (outs Variadic<FA_StateTensor>:$new_state, Index:$new_until);
  let regions = (region SizedRegion<1>:$score,
    VariadicRegion<SizedRegion<1>>:$keep);
  let assemblyFormat = [{
    `ins` `(` $scores `,` $values `:` type($scores) `,` type($values) `)`
    `outs` `(` $state `:` type($state) `)`
    `at` $position `from` $first `by` $step `until` $until
    `score` $score (`keep` $keep^)? attr-dict
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// Positions of the state's tensors.
    static constexpr unsigned kReference = 0, kSum = 1, kAcc = 2, kExactSum = 3;
    /// The step as `linalg.generic` ops and branches on them, or as the target's
    /// own ops where it has some.
    ::mlir::SmallVector<::mlir::Value> expand(::mlir::OpBuilder &builder,
                                              ::fa::StepExpansion &target);
    /// AggregatedOpInterface: the step as `linalg.generic` ops and branches.
    ::mlir::FailureOr<::mlir::SmallVector<::mlir::Value>>
    decomposeOperation(::mlir::OpBuilder &builder);
  }];
}

def FA_List : 1DTensorOf<[I32]>;

def FA_ListBlocksOp : FA_Op<"list_blocks", [
    Pure, DestinationStyleOpInterface, AggregatedOpInterface, SingleBlock,
    AllTypesMatch<["count", "new_count"]>,
    AllTypesMatch<["entries", "new_entries"]>
  ]> {
  let summary = "list the blocks of keys that a block of rows sees";
  let description = [{
    Lists, in ascending order, the blocks of keys that hold an element which the
    block of rows sees. Blocks begin at `from`, `from + keys`, ... below `to`;
    elements at `to` and beyond count as not seen. `count` takes the number of
    listed blocks. `entries` takes the first key of each, plus 1 where the rows
    see all of the block. Further entries are not specified.

    ```
    n = 0
    for key = from to to step keys:
      seen(r, c) = key + c < to and mask(r, c, key)
      if any(seen(r, c) for r < rows, c < keys):
        entries[n++] = key + (all(seen(r, c)) ? 1 : 0)
    count[0] = n
    ```

    The `mask` region takes `(row, column, key : index)` and yields an i1. Row
    and column count within the block, and `key` is the block's first key. The
    region must be free of side effects. `every [r, c]` promises that the mask
    is the same for r rows and c columns that begin at multiples of r and c, so
    one of these elements is evaluated (block-sparse masks; Dao et al. 2022,
    Algorithm 5).

    In gradients a block of keys has a list of blocks of rows: there rows and
    keys change places.

    It exists because a loop's bounds can follow a mask only if they are known
    before the loop. `decomposeOperation` gives loops over elements; on a GPU a
    warp evaluates one block of keys.

    Constraints:
    - `fa_list_blocks_c1`: `tile` has two sizes of at least 1; the keys' is even.
    - `fa_list_blocks_c2`: `every` has two sizes of at least 1 that divide those
      of `tile`.
    - `fa_list_blocks_c3`: `count` has one element or an unknown number.
    - `fa_list_blocks_c4`: `from` is a multiple of the tile's keys and not
      negative, and there is a row. (Checked where they are constants.)

    Example (documents):

    ```mlir
    %n, %list = fa.list_blocks rows %rows keys %from to %to tile [128, 64]
        every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
    ^bb0(%r: index, %c: index, %j0: index):
      %i = arith.addi %r, %i0 : index
      %j = arith.addi %c, %j0 : index
      %a = tensor.extract %ids[%i] : tensor<?xi32>
      %b = tensor.extract %ids[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %a, %b : i32
      fa.yield %same : i1
    }
    ```
  }];
  let arguments = (ins
    Arg<Index, "rows of the block that exist, at least 1">:$rows,
    Arg<Index, "first key, a multiple of the tile's keys">:$from,
    Arg<Index, "keys end here">:$to,
    Arg<FA_List, "takes the number of listed blocks, [1]">:$count,
    Arg<FA_List, "takes the list; has an element for each block">:$entries,
    DenseI64ArrayAttr:$tile,
    DenseI64ArrayAttr:$every
  );
  let results = (outs FA_List:$new_count, FA_List:$new_entries);
  let regions = (region SizedRegion<1>:$mask);
  let assemblyFormat = [{
    `rows` $rows `keys` $from `to` $to `tile` $tile `every` $every
    `outs` `(` $count `,` $entries `:` type($count) `,` type($entries) `)`
    `mask` $mask attr-dict
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return ::mlir::MutableOperandRange(*this, 3, 2);
    }
    int64_t tileRows() { return getTile()[0]; }
    int64_t tileKeys() { return getTile()[1]; }
    /// The yielded value: whether the element is seen.
    ::mlir::Value getSeen() {
      return getMask().front().getTerminator()->getOperand(0);
    }
    /// AggregatedOpInterface: loops over the elements.
    ::mlir::FailureOr<::mlir::SmallVector<::mlir::Value>>
    decomposeOperation(::mlir::OpBuilder &builder);
  }];
}

include "fa/Dialect/FA/IR/FABackward.td"

#endif // FA_DIALECT_FA_IR_FAOPS
