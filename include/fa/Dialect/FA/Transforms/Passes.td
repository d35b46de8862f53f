// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_DIALECT_FA_TRANSFORMS_PASSES
#define FA_DIALECT_FA_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

class FA_Pass<string flag> : Pass<flag, "::mlir::func::FuncOp"> {
  let dependentDialects = [
    "::fa::FADialect", "::mlir::affine::AffineDialect",
    "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect"
  ];
}

def DifferentiatePass : Pass<"fa-differentiate", "::mlir::ModuleOp"> {
  let summary = "a function's gradient beside it";
  let description = [{
    Of each function with an `fa.attention` makes another one, `NAME_backward`,
    with `fa.attention_backward`. What it takes are the function's arguments,
    then `out`, `lse`, `out_grad` and, where the function returns the
    log-sum-exp, `lse_grad`; what it returns are the gradients with respect to
    query, key, value and, in the order of the arguments, to its other tensors of
    floats (f64 only where it is computed in), or to those of them that `wrt` names. The function itself
    returns the log-sum-exp, too, if it did not.

    The adjoint of the score function is made by reverse mode: its operations
    are computed again, and the rules of `ScalarOpInterface` are applied from the
    last one to the first. An `scf.if` becomes an `scf.if`. Where a function has
    no derivative, at a kink or a tie, it is PyTorch's choice. Integers and
    booleans have none; with respect to what mask and keep regions read it is 0.

    Before:
    ```mlir
    func.func @f(%q, %k, %v) -> (tensor<...>) {
      %o = fa.attention %q, %k, %v score {
      ^bb0(%s: f32, ...):
        %t = math.tanh %s : f32
        fa.yield %t : f32
      } : ...
    ```
    After:
    ```mlir
    func.func @f(%q, %k, %v) -> (tensor<...>, tensor<...xf32>) { ... }
    func.func @f_backward(%q, %k, %v, %o, %lse, %do) -> (...) {
      %dq, %dk, %dv = fa.attention_backward %q, %k, %v out %o, %lse grads %do
        score { ... } adjoint {
      ^bb0(%s: f32, ..., %g: f32):
        %t = math.tanh %s : f32
        ...
        %ds = arith.mulf %g, %slope : f32        // g * (1 - t * t)
        fa.yield_adjoint %ds : f32
      } : ...
    ```
    Numeric contract: defines the gradients.
  }];
  let dependentDialects = [
    "::fa::FADialect", "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect"
  ];
  let options = [
    Option<"wrt", "wrt", "std::string", /*default=*/"\"all\"",
           "captured tensors to differentiate by: all, none, or the numbers of "
           "arguments, as 3+5">,
    Option<"replace", "replace", "bool", /*default=*/"false",
           "the gradient takes the function's place">
  ];
}

def DecomposePass : FA_Pass<"fa-decompose"> {
  let summary = "attention as the standard algorithm: S and P written";
  let description = [{
    Rewrites `fa.attention` as the standard algorithm (FlashAttention,
    Algorithm 0; three-pass safe softmax), on matrices, for every batch entry
    and head: scores, row maximum, exponentials, row sum, weights, output. The
    matrices S and P are values of full size. `fa.attention_backward` becomes
    scores and `fa.softmax_grad` on whole matrices, for every key head and the
    query heads that share it.

    Before:
    ```mlir
    %o = fa.attention %q, %k, %v : ...
    ```
    After:
    ```mlir
    %o = scf.forall (%b, %h) in (...) shared_outs(...) {
      %qk = linalg.generic ...      // Q K^T, [Sq,Sk]
      %s  = linalg.generic ...      // scale, score, mask
      %m  = linalg.generic ...      // row maximum
      %e  = linalg.generic ...      // exp(S - m)
      %l  = linalg.generic ...      // row sum
      %p  = linalg.generic ...      // e / l
      %o  = linalg.generic ...      // P V
      scf.forall.in_parallel { ... }
    }
    ```
    Numeric contract: defines the numbers. S and sums are in the compute type
    (f64 of f64, else f32), P has V's element type.
  }];
}

def OnlineSoftmaxPass : FA_Pass<"fa-online-softmax"> {
  let summary = "softmax in fewer passes over the scores: P is gone";
  let description = [{
    Fuses the standard algorithm's reductions over the keys.

    With `passes=2`, maximum and sum become one reduction with the state
    (m, l), as in Milakov and Gimelshein 2018; P is still written. With
    `passes=1` (the default), maximum, sum, division and the product with V
    become `fa.online_softmax`: one pass, and P is gone.

    Numeric contract: reassociated. The weights are rounded to V's element type
    before they are divided by the sum, not after.
  }];
  let options = [
    Option<"passes", "passes", "unsigned", "1",
           "passes over the scores: 2 or 1">
  ];
}

def TilePass : FA_Pass<"fa-tile"> {
  let summary = "blocks of keys outside, blocks of queries inside: S is gone";
  let description = [{
    Tiles every `fa.online_softmax` into blocks of Br rows and Bc keys, the
    keys outside, and fuses what produces its scores into the tiles: the score
    matrix is gone. The state (m, l, o) goes through memory each step. This is
    FlashAttention's Algorithm 1. `fa.softmax_grad` is tiled in the same way; the
    gradients of a block of keys stay on chip: Algorithm 4.

    Before:
    ```mlir
    %qk = linalg.generic ...                    // [Sq,Sk]
    %s  = linalg.generic ...
    %st:3 = fa.online_softmax ins(%s, %v) outs(%m, %l, %o)
    ```
    After:
    ```mlir
    %st:3 = scf.for %j0 = ... step Bc iter_args(%m, %l, %o) {
      // K and V blocks
      scf.for %i0 = ... step Br iter_args(...) {
        // Q block, state slices, S block
        fa.online_softmax ...
        tensor.insert_slice ...
      }
    }
    ```
    Numeric contract: reassociated (the merge is associative).
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target whose memory decides on the sizes">,
    Option<"algorithm", "algorithm", "std::string", "\"fa2\"",
           "fa1 or fa2: whose rule decides on the sizes">,
    Option<"rows", "rows", "int64_t", "0", "Br, rows of a block, 0 to choose">,
    Option<"keys", "keys", "int64_t", "0", "Bc, keys of a block, 0 to choose">,
    Option<"ordered", "ordered", "bool", "false",
           "what gradients' blocks share is to be added in an order">
  ];
}

def ParallelizePass : FA_Pass<"fa-parallelize"> {
  let summary = "gradients: blocks of keys and of rows are a grid's iterations";
  let description = [{
    In a function with `fa.softmax_grad` makes each `scf.forall` over batch and
    heads one over blocks of keys, too, where it holds such a step, and over
    blocks of rows elsewhere (D, and the scale of the queries' gradients). A
    block of keys keeps their gradients; those of queries and of captured
    tensors it adds to what all blocks share, `fa.parallel_accumulate`: the order
    of FlashAttention-2's backward.

    Before:
    ```mlir
    scf.forall (%b, %h) in (B, Hk) shared_outs(%dq, %dk, %dv) {
      %s = ...                                            // [Sq,Sk]
      %r:3 = fa.softmax_grad ins(%s, ...) outs(%zero, ...)
      scf.forall.in_parallel { tensor.parallel_insert_slice ... }
    }
    ```
    After:
    ```mlir
    %zeros = linalg.fill ...
    scf.forall (%b, %h, %j) = ... step (1, 1, Bc) shared_outs(%dq = %zeros, ...) {
      %s = ...                                            // [Sq,Bc]
      %r:3 = fa.softmax_grad ins(%s, ...) outs(%dq_of_head, ...)
      scf.forall.in_parallel {
        fa.parallel_accumulate ...
        tensor.parallel_insert_slice ...
      }
    }
    ```
    Numeric contract: reassociated (sums for queries and captured tensors).
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target whose memory decides on the sizes">,
    Option<"rows", "rows", "int64_t", "0", "Br, rows of a block, 0 to choose">,
    Option<"keys", "keys", "int64_t", "0", "Bc, keys of a block, 0 to choose">,
    Option<"ordered", "ordered", "bool", "false",
           "what gradients' blocks share is to be added in an order">
  ];
}

def ExpandStepsPass : FA_Pass<"fa-expand-steps"> {
  let summary = "steps of softmax and of its gradient as products";
  let description = [{
    `fa.softmax_grad` becomes five products and what is computed between them.
    Sums that blocks of a grid share are added to by `fa.accumulate_slice`.
    `fa.online_softmax` and `fa.speculated_softmax` become a product and what is
    computed before it. These keep their identity to the end of the tile level:
    each target's schedule expands them, with operations of its own where it has
    some; this pass is for a look at what they stand for, and for programs that
    go on in linalg.

    Before:
    ```mlir
    %r:3 = fa.softmax_grad ins(%s, ...) outs(%dq_tile, %dk, %dv)
    %all = tensor.insert_slice %r#0 into %dq[%i, 0] ...
    ```
    After:
    ```mlir
    %dp = linalg.generic ... ins(%do, %v)                 // dO V^T
    ...
    %part = linalg.generic ... ins(%ds, %k)               // dS K
    %all = fa.accumulate_slice %part into %dq[%i, 0] ...
    ```
    Numeric contract: reassociated (a part is summed before it is added).
  }];
}

def OrientProductsPass : FA_Pass<"fa-orient-products"> {
  let summary = "which of C and C^T each product computes";
  let description = [{
    Tensor cores take the first operand of a product from registers where it was
    computed as rows of the result; what lies the other way, and the second
    operand, goes through shared memory. Matrices that elementwise operations
    hang together, from the results of products to the operands of others, are
    transposed together where more of these operands then come from registers:
    S^T and dP^T of a gradient. Random bits are made for rows of queries: what
    they decide stays as it is, or is transposed too where all products with it
    have at most `random-columns` other columns, in whole groups of bits, of 16-bit
    floats, and nothing is summed for places in memory: threads then exchange
    bits, which pays off where products are short.

    Before:
    ```mlir
    %s = linalg.generic ... ins(%q, %k) -> tensor<64x128xf32>
    %p = linalg.generic ... ins(%s, %lse) ...
    %dv = linalg.generic ... ins(%p, %do) ...             // P^T dO
    ```
    After:
    ```mlir
    %s = linalg.generic ... ins(%q, %k) -> tensor<128x64xf32>
    %p = linalg.generic ... ins(%s, %lse) ...
    %dv = linalg.generic ... ins(%p, %do) ...             // P dO
    ```
    Numeric contract: bit-identical.
  }];
  let options = [
    Option<"randomColumns", "random-columns", "int64_t", "0",
           "columns of products up to which random bits are exchanged">,
  ];
}

def OrderRowsPass : FA_Pass<"fa-order-rows"> {
  let summary = "the last rows come first, where blocks of keys begin at different ones";
  let description = [{
    Under a causal mask a block of keys begins at its own rows, and all end at the
    last ones: blocks that run at the same time read other rows, and add to
    others, than their neighbours do. From the last rows to the first they go
    together, through what L2 holds. Short rows, of less than 1 KiB of what is read
    and added to, stay as they are: what L2 is asked for then does not bound a
    block.

    The loop keeps its bounds, and its body works on another row: `first + last`
    less the variable, as fa-order-keys does it. Loops that follow a list stay as
    they are.

    Numeric contract: reassociated.
  }];
}

def OrderSumsPass : FA_Pass<"fa-order-sums"> {
  let summary = "sums that a grid shares have the same bits each time";
  let description = [{
    Floating-point sums depend on the order of their terms, and atomic additions
    come in any. What blocks of a grid add to tensors that they share gets an
    order (`ordered`, of `fa.accumulate_slice` and `fa.accumulate`): a block of
    keys adds to the gradients of rows after the blocks of keys before it.

    What a block adds to captured tensors comes at no time of the others' choice:
    blocks that may meet add to partial sums of their own, which a second grid
    adds up. Partial sums have a dimension for each dimension of the grid that
    may meet, of 16 for the last one: blocks that are 16 apart share one, and
    those wait for each other. Where the place of an addition tells iterations
    apart, as in `bias[b, h, i, j]`, there is one sum: a tensor that a coordinate
    indexes is taken to have an element for each.

    Before:
    ```mlir
    %1 = scf.forall (%b, %h, %j) ... shared_outs(%all = %zeros) {
      %r = fa.accumulate %ds into %all at { ... fa.yield_places %h }
    ```
    After:
    ```mlir
    %1 = scf.forall (%b, %h, %j) ... shared_outs(%all = %more_zeros) {
      %n = ... // %j / 128 mod 16
      %r = fa.accumulate %ds into %all at { ... fa.yield_places %b, %n, %h }
          {ordered = 16 : i64}
    ...
    %2 = scf.forall ... linalg.reduce ins(%1) dimensions = [0, 1]
    ```
    Numeric contract: reassociated.
  }];
}

def InterchangePass : FA_Pass<"fa-interchange"> {
  let summary = "blocks of queries outside: the state stays on chip";
  let description = [{
    Interchanges a loop over keys with the loop over rows inside it, where the
    carried tensors are read and written only in slices that belong to one row
    block. The slices become the loop-carried values of the loop over keys and
    are written once. This is FlashAttention-2's order; row blocks are
    independent now.

    Before:
    ```mlir
    scf.for %j0 ... iter_args(%M) {
      scf.for %i0 ... iter_args(%N = %M) {
        %m = tensor.extract_slice %N[%i0] ...
        ...
        tensor.insert_slice %m1 into %N[%i0]
    ```
    After:
    ```mlir
    scf.for %i0 ... iter_args(%N) {
      %m = tensor.extract_slice ...
      scf.for %j0 ... iter_args(%m) { ... }
      tensor.insert_slice
    ```
    Numeric contract: bit-identical.
  }];
}

def PadTilesPass : FA_Pass<"fa-pad-tiles"> {
  let summary = "tiles at the edge become full tiles";
  let description = [{
    Gives every tile its full, static size. A block that reaches past the end
    of a tensor is padded with zeros as it is read and clipped as it is
    written; keys past the end are masked: their scores become -inf, which is
    the neutral element of `fa.online_softmax`.

    Before:
    ```mlir
    %n = affine.min affine_map<(d0)[s0] -> (64, s0 - d0)>(%j0)[%Sk]
    %k = tensor.extract_slice %key[%b, %h, %j0, 0] [1, 1, %n, 64] ...
    ```
    After:
    ```mlir
    %n = affine.min ...
    %s = tensor.extract_slice %key[%b, %h, %j0, 0] [1, 1, %n, 64] ...
    %k = tensor.pad %s low[0, 0] high[%p, 0] {...} : ... to tensor<64x64xbf16>
    ```
    Numeric contract: bit-identical.
  }];
}

def ClipLoadsPass : FA_Pass<"fa-clip-loads"> {
  let summary = "tiles are loaded up to where the mask ends for all";
  let description = [{
    Memory behind the last sequence of a packed batch, or behind the length of a
    cache, belongs to nobody and may hold NaN. A mask gives it the weight 0, and
    the product of 0 and NaN is NaN. Where a condition of the mask is `j < e` or
    `i < e`, and e is read from memory and the same for the whole tile, this pass
    ends the tiles of values (in the backward all tiles) of these keys or rows
    at e. `tensor.pad` makes zeros of the rest.

    Before:
    ```mlir
    %n = affine.min affine_map<(d0)[s0] -> (64, s0 - d0)>(%j0)[%Sk]
    %s = tensor.extract_slice %value[%b, %h, %j0, 0] [1, 1, %n, 64] ...
    ```
    After:
    ```mlir
    %left = arith.maxsi (%e - %j0), %c0
    %m = arith.minsi %n, %left
    %s = tensor.extract_slice %value[%b, %h, %j0, 0] [1, 1, %m, 64] ...
    ```
    Numeric contract: bit-identical where the memory behind e is finite.
  }];
}

def DistributePass : FA_Pass<"fa-distribute"> {
  let summary = "one kernel per op: intermediates of all heads in memory";
  let description = [{
    Splits an `scf.forall` over batch and head into a sequence of them, one per
    linalg op, each tiled into blocks; a matrix of one head that passes from
    one to the next becomes a tensor of all heads in memory. A loop that
    carries matrices of a head (FlashAttention's Algorithm 1) becomes a kernel
    with one block per head. This is how the standard algorithm and Algorithm 1
    run on a GPU: the baselines.

    Before:
    ```mlir
    scf.forall (%b, %h) in (B, H) {
      %s = linalg.generic ...      // [Sq,Sk]
      %m = linalg.generic ...      // [Sq]
    ```
    After:
    ```mlir
    %S = scf.forall (%b, %h, %i0, %j0) = ... step (1, 1, Br, Bc) { ... }
    %M = scf.forall (%b, %h, %i0) = ... step (1, 1, Br) {
      scf.for %j0 ... { ... }
    ```
    Numeric contract: reassociated.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target, as in fa-tile">,
    Option<"algorithm", "algorithm", "std::string", "\"fa2\"",
           "the algorithm, as in fa-tile">,
    Option<"rows", "rows", "int64_t", "0", "rows of a block, 0 to choose">,
    Option<"keys", "keys", "int64_t", "0", "keys of a block, 0 to choose">
  ];
}

def ListBlocksPass : FA_Pass<"fa-list-blocks"> {
  let summary = "where data decide what is seen, visit a list of blocks";
  let description = [{
    A mask that reads captured tensors (packed documents, a block-sparse
    matrix) or that interval arithmetic does not understand is evaluated before
    attention: an `scf.forall` over blocks of rows writes which blocks of keys
    have something to see (`fa.list_blocks`), and the loop over keys runs over
    that list. Entries say too whether all of a block is seen: such blocks skip
    the mask. Where the mask does not depend on the batch entry or the head, one
    list serves all. What interval arithmetic does know (`j <= i`) limits the
    blocks that are looked at. Masks that it decides have no list:
    fa-split-mask-loops gives their loops bounds.
    A loop over rows, as in gradients, follows a list of blocks of rows.

    Before:
    ```mlir
    %st:3 = scf.for %j0 = %c0 to %Sk step %c64 iter_args(...) {
      %sm = linalg.generic ... {               // ids[i] == ids[j] ? s : -inf
    ```
    After:
    ```mlir
    %lists:2 = scf.forall (%b, %h, %i0) = (0, 0, 0) to (1, 1, %Sq) step (1, 1, 128) ... {
      fa.list_blocks rows %rows keys %from to %to tile [128, 64] every [1, 1] ...
    }
    ...
    %n = tensor.extract %lists#0[...]
    %st:3 = scf.for %at = %c0 to %n step %c1 iter_args(...) {
      %entry = tensor.extract %lists#1[..., %at]
      %j0 = ...                                // entry & -2
      %isFull = arith.trunci %entry : i32 to i1
      %sm = scf.if %isFull { /* without the mask */ } else { /* with it */ }
    ```
    Numeric contract: bit-identical.
  }];
  let options = [
    Option<"indexBits", "index-bits", "unsigned", "64",
           "bits of an index on the target, as in fa-split-mask-loops">
  ];
}

def SplitMaskLoopsPass : FA_Pass<"fa-split-mask-loops"> {
  let summary = "empty tiles are not visited, full tiles run without the mask";
  let description = [{
    In a loop over blocks of keys around `fa.online_softmax`, interval
    arithmetic over the mask (`fa/Analysis/MaskIntervals.h`) bounds the keys
    that the block of rows sees at all, and those that all of its rows see.
    The loop visits only the first; blocks within the second skip the mask.
    Where the keys seen are two intervals (`j < 4 || i - j < 1024`, the first
    keys and a window), the loop counts the blocks of both and adds the length
    of the gap to a block's first key once it is past the first interval. One
    gap is left out so; further ones are visited. What the analysis can't
    decide stays as it is. A remark says what was found.

    Skipping a block is legal because `fa.online_softmax` with scores that are
    all -inf is the identity on its state. `fa.softmax_grad` is, too: its loop
    over blocks of rows is bounded by the same proof, with rows and keys in each
    other's place.

    What the mask says holds in the score function, too, whose value is not
    seen elsewhere: under a causal mask, `|i - j|` in it (`max(d, 0 - d)`) is
    `i - j`.

    Before (causal):
    ```mlir
    %st:3 = scf.for %j0 = %c0 to %Sk step %c64 iter_args(...) {
      %s  = linalg.generic ...                 // 128x64 scores
      %sm = linalg.generic ... {               // j <= i ? s : -inf
      fa.online_softmax ins(%sm, %v) ...
    ```
    After:
    ```mlir
    %end  = affine.min affine_map<(d0, d1) -> (d0 + 128, d1)>(%i0, %Sk)
    %full = affine.min affine_map<(d0, d1) -> (d0 + 1, d1)>(%i0, %Sk)
    %st:3 = scf.for %j0 = %c0 to %end step %c64 iter_args(...) {
      %s = linalg.generic ...
      %j1 = affine.apply affine_map<(d0) -> (d0 + 64)>(%j0)
      %isFull = arith.cmpi sle, %j1, %full
      %sm = scf.if %isFull { /* without the mask */ } else { /* with it */ }
      fa.online_softmax ins(%sm, %v) ...
    ```
    Numeric contract: bit-identical.
  }];
  let options = [
    Option<"indexBits", "index-bits", "unsigned", "64",
           "bits of an index on the target, 32 or 64: what masks read from "
           "memory is limited so that bounds do not wrap">
  ];
}

def OrderKeysPass : FA_Pass<"fa-order-keys"> {
  let summary = "the last keys come first, where their scores are the largest";
  let description = [{
    Where scores grow with the key, a loop that begins at the first key finds a
    new maximum in each block: what was summed is rescaled every time, or, where
    the maximum is speculated, the reference is too small every time. From the
    last block to the first, the largest scores come first.

    The loop keeps its bounds, and its body works on another key: `first + last`
    less the variable.

    Before:
    ```mlir
    scf.for %j0 = %lb to %ub step %c64 iter_args(...) { ... %j0 ... }
    ```
    After:
    ```mlir
    %sum = ...                         // lb + lb + (ub - lb - 1) / 64 * 64
    scf.for %n = %lb to %ub step %c64 iter_args(...) {
      %j0 = arith.subi %sum, %n
      ... %j0 ...
    ```
    With `order=auto` that is done where the score function is known to grow with
    the key (signs of differences, through sums, products with what has a known
    sign, and monotone functions), and where it changes with the key in a way that
    is not known, such as by a captured slope, and the rows bound the keys from
    above: under a causal mask the last keys are the nearest. Loops that follow
    a list of blocks stay as they are. A remark says why. Where fa-speculate-max
    does not follow, fa-pipeline takes `auto` as `ascending`: the running maximum
    is then taken in each block, in whatever order.

    Numeric contract: reassociated.
  }];
  let options = [
    Option<"order", "order", "std::string", "\"auto\"",
           "auto, ascending or descending">
  ];
}

def DeferNormalizationPass : FA_Pass<"fa-defer-normalization"> {
  let summary = "divide by the sum once, after the loop";
  let description = [{
    A loop that carries the state of an `fa.online_softmax` for it alone carries
    the numerator `l * o` in place of the normalised output `o`: one division
    after the loop in place of one in each step. The op says so (`unnormalized`).

    Before (per step): `o' = (l * alpha * o + P V) / l'`.
    After (per step): `n' = alpha * n + P V`; after the loop: `o = n / l`.

    Numeric contract: reassociated.
  }];
}

def FusePass : FA_Pass<"fa-fuse"> {
  let summary = "one kernel: a grid over batch, head and row block";
  let description = [{
    Makes the loop over row blocks a third dimension of the `scf.forall` over
    batch and head, and pulls what is done with its results (normalisation,
    conversion, log-sum-exp) into it: one kernel, no intermediate in memory.
    What scores and masks compute of batch and head alone leaves the loop over
    key blocks.

    Before:
    ```mlir
    scf.forall (%b, %h) in (B, H) {
      %st:3 = scf.for %i0 ... { ... tensor.insert_slice ... }
      %o = linalg.generic ...
      scf.forall.in_parallel { tensor.parallel_insert_slice %o ... }
    ```
    After:
    ```mlir
    scf.forall (%b, %h, %i0) = (0, 0, 0) to (B, H, Sq) step (1, 1, Br) {
      ...
      scf.forall.in_parallel { tensor.parallel_insert_slice %block ... }
    ```
    Numeric contract: bit-identical.
  }];
}

def FoldScaleExp2Pass : FA_Pass<"fa-fold-scale-exp2"> {
  let summary = "exp as exp2 with the scale folded into one fma";
  let description = [{
    Rewrites `exp(x - shift)` as `exp2(fma(x, c, -shift * c))` with
    `c = log2(e)`; an `fa.online_softmax` says so by its `log2_scale` c. Where
    all scores of a block are a positive constant times
    something, with nothing but the mask after it (the scale, or the `c` of a
    softcap `c tanh(s / c)`), the constant moves into `c`. Where they are a sum
    whose parts take the factor log2(e) without an operation more, they do, and
    `c` is 1: in `s scale + slope (j - i)` it joins the scale and the slope,
    which is multiplied once, before the loop. Of a sum with something that is
    read for each element it would be one more multiplication, and nothing is
    done.

    Where scores may be large (`subtract_first`), `fma(x, c, -shift * c)` is far from 0 for
    `x = shift`, and beyond 2^31 no weight: there it is `exp2((x - shift) * c)`,
    one operation more, and no constant moves. They may be where a float is read
    for each element, where a finite constant is beyond 2^16, and after an
    exponential or a power. Products of queries and keys may be those that
    `large-products` names, for the merge; others are taken to be below 10^9. The factor of what a step before summed, of two maxima, is always of
    that kind: 1 where the maximum stays.

    The maximum is then of scores in other units; what uses it after the loop
    gets it scaled. Nothing that may be negative moves: it would turn the
    maximum into a minimum.

    Before:
    ```mlir
    %x = linalg.generic ... { yield %s * %scale + %slope * %d }
    %p = linalg.generic ... { yield exp(%x - %m) }
    ```
    After:
    ```mlir
    %slope2 = arith.mulf %slope, %log2e
    %x = linalg.generic ... { yield %s * (%scale * %log2e) + %slope2 * %d }
    %p = linalg.generic ... { yield exp2(fma(%x, 1, -%m)) }
    ```

    Numeric contract: approximate, within rounding of one f32 operation, of
    each part of a sum.
  }];
  let options = [
    Option<"largeProducts", "large-products", "std::string", "\"none\"",
           "products of queries and keys that may be beyond 2^31: none, wide "
           "(of f32 and f64) or all">
  ];
}

def SpeculateMaxPass : FA_Pass<"fa-speculate-max"> {
  let summary = "the running maximum leaves the common path of the loop";
  let description = [{
    Online softmax (Milakov and Gimelshein 2018; FlashAttention, Dao et al.
    2022) takes the maximum of each block of scores, and rescales the sum and
    the output, before the block's weights can be computed. The subtraction of
    the maximum only keeps the weights in range, and any number near it does
    as well. So the loop carries a reference R for each row, in log2 units,
    and computes the weights with the reference of the blocks before. Whether
    they are in range is checked afterwards, on the weights themselves. Only
    where one is not (the scores grew past the limit, a NaN, a row's first
    block) a branch takes the maximum, moves the reference, and computes the
    weights again.

    Before, what an unnormalised `fa.online_softmax` stands for (per step, `c` =
    scale * log2(e)):
    ```mlir
    %m1 = linalg.generic ...         // max(m, rowmax s)
    %g  = linalg.generic ...         // m1, 0 where it is -inf
    %gc = linalg.generic ...         // -g c
    %a  = linalg.generic ...         // exp2((m - g) c)
    %p  = linalg.generic ...         // exp2(s c + gc)
    %l1 = linalg.generic ...         // l a + rowsum p
    %o1 = linalg.generic ...         // o a
    %pt = linalg.generic ...         // p as bf16
    %o2 = linalg.generic ...         // o1 + pt V
    ```
    After, `fa.speculated_softmax`, which stands for:
    ```mlir
    %wary = arith.cmpi slt, %j0, %until
    %Rw, %a, %moved = scf.if %wary {
      %mx = linalg.generic ...       // rowmax s
      %any = ...                     // a row with mx c - R >= log2 limit
      ...                            // then max(R, mx c + headroom), exp2(R - Rw)
    } else { scf.yield %R, %nothing, %false }
    %p    = linalg.generic ...       // exp2(s c - Rw)
    %pt   = linalg.generic ...       // p as bf16
    %l1, %o1 = scf.if %moved ...     // l a; o a
    %top  = linalg.generic ...       // rowmax pt
    %any  = ...                      // a row with !(top < limit)
    %first = arith.cmpi eq, %j0, %c0
    %go   = arith.ori %first, %any
    %R1, %pt1, %l2, %o2, %until1 = scf.if %go {
      %far = ...                     // %first, or a row with !(top < 2^(126 - headroom))
      ... = scf.if %far {
        %mx = linalg.generic ...     // rowmax s
        %R1 = linalg.generic ...     // max(Rw, mx c + headroom)
        %b  = linalg.generic ...     // exp2(Rw - R1)
        ...                          // weights again; l1 b; o1 b; until
      } else {
        %e  = linalg.generic ...     // max(0, floor(log2 top) + headroom)
        ...                          // R1 = Rw + e; pt, l1, o1 times 2^-e; until
      }
    } else { scf.yield %Rw, %pt, %l1, %o1, %until }
    %l3 = linalg.generic ...         // l2 + rowsum pt1
    %o3 = linalg.generic ...         // o2 + pt1 V
    ```
    Where scores may be large, the weights before are `exp2((s - g) c)`. Then R
    is in the scores' units and without headroom, which is added later:
    `exp2((s - R) c - headroom)`, and weights out of range are always made again.
    Where scores are already in log2 units and the sum of a product of queries
    and keys and a bias of coordinates (`s c + slope (j - i)`), the branch that
    masks gives the products, and each reader adds the bias. For the weights it
    is `exp2(s c + (slope (j - i) - R))`, where the reference is in the fma of
    the distance: the bias takes one operation of an element. It has to be
    finite where nothing is seen, so it may only be made of sums, products,
    magnitudes, minima and maxima of coordinates and of scalars from before the
    loop (which are taken to be finite).

    Weights that are too large, but finite, are shifted by a power of two:
    exactly, without an exponential. (f16 has no room for such weights; there
    they are made again, and a few blocks are wary afterwards.)

    Where weights are out of range twice within a few blocks, the blocks that
    follow are wary: they take the maximum before there are weights, as online
    softmax does, but move the reference only where it has to. So data that
    outgrow the reference again and again cost little more than with the
    running maximum. A block that masks may cut is in a branch already; wary
    ones share it.

    In a branch all rows move that can: rows may take it in groups, each for
    itself, as long as those that need it do. On Hopper each warp does.

    Numeric contract: approximate, and not bit-identical to the running
    maximum; the error of the output is of the same size.

    - *Exact*: the output is normalised by the sum of the rounded weights, the
      very ones that the contraction reads. What rounding of R, or of the
      weights of a row that one key dominates, does to a row's weights, it does
      to their sum too. A log-sum-exp is formed from a second sum, of the
      weights before rounding, within 1e-4; it costs one more addition a score
      and is there only if the function returns it.
    - *Range of the weights*: bf16 has f32's range. R is the maximum plus
      `headroom` = 63, so that a new row's weights are at most 2^-63 and the
      maximum can grow by 64 before a weight reaches `limit` = 2. Weights below
      2^-63 of the row's largest can vanish; the sum does not notice. f16 ends
      at 65504 and has no normal number below 2^-14: `headroom` = 0 and `limit`
      = 32768. The maximum can grow by 15; a weight below 2^-25 of the row's
      largest is lost, as with the running maximum.
    - *Range of V*: the products that are summed are up to 2^-headroom of
      those of the running maximum. Entries of V below about
      2^(-126 + headroom + 8), 2^-55 for bf16, lose accuracy where f32 has no
      subnormal numbers, and products below 2^-126 vanish. Large entries are
      safer than with the running maximum, unless a row's maximum has grown by
      more than `headroom`: then weights are up to `limit`, and sums overflow
      at 1/limit of what they could be.
    - *NaN and infinity* are out of range, take the branch, and end up in the
      rows in which they do with the running maximum. Rows with nothing to
      attend: R stays -inf, output 0, log-sum-exp -inf.

    Weights in f32 have no rounding to make good, and f32 attention is not
    what tensor cores limit: there the pass changes nothing. Where the loop is
    not the one above it changes nothing either, nor on a GPU whose
    warpgroup-wide instructions do not take the tiles: the schedule for those
    has no branches on values of tiles. Remarks say why.
  }];
  let options = [
    Option<"headroom", "headroom", "double",
           "std::numeric_limits<double>::quiet_NaN()",
           "log2 of what a row's largest weight may grow by before it is 1, in "
           "[0, 126]; NaN to choose by the weights' type">,
    Option<"limit", "limit", "double", "0",
           "the weight from which on the reference is moved, in (1, 2^60]; 0 "
           "to choose by the weights' type">,
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target, as in fa-tile">
  ];
}

def AnnotateIOPass : FA_Pass<"fa-annotate-io"> {
  let summary = "HBM traffic and temporary memory, from the IR of any stage";
  let description = [{
    Sets the attribute `fa.io` on a function: bytes read from and written to
    HBM and bytes of temporaries, as polynomials in the sizes of query, key and
    value and, where all sizes are known, as numbers. The rules are those of
    `fa/Analysis/IOModel.h`. `upper_bound` says that loop bounds depend on a
    mask and the polynomials count all keys; the numbers follow the bounds of
    each block, unless `bytes_upper_bound` says that they are read from memory.

    Where the function has the attribute already, a remark says what changed.

    Before:
    ```mlir
    func.func @f(%q: tensor<?x8x?x64xf16>, ...) {
    ```
    After (the standard algorithm):
    ```mlir
    func.func @f(%q: tensor<?x8x?x64xf16>, ...) attributes {fa.io = {
      read = "30*B*Hq*Sq*Sk + ...", write = "22*B*Hq*Sq*Sk + ...",
      temp = "18*B*Hq*Sq*Sk + ..."}} {
    ```
    Numeric contract: changes no number.
  }];
  let options = [
    Option<"shape", "shape", "std::string", "",
           "values of dynamic sizes for the numbers: B=4,Sq=1024,Sk=1024">,
    Option<"foldFills", "fold-fills", "bool", "false",
           "a fill that starts an accumulation costs nothing">
  ];
}

#endif // FA_DIALECT_FA_TRANSFORMS_PASSES
