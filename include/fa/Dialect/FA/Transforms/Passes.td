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
  let summary = "add each function's gradient as a function of its own";
  let description = [{
    For each function with an `fa.attention` the pass makes a second one,
    `NAME_backward`, with `fa.attention_backward`. Its arguments are those of
    the function, then `out`, `lse`, `out_grad` and, if the function returns the
    log-sum-exp, `lse_grad`. Its results are the gradients with respect to
    query, key and value. The gradients of the function's other tensors of
    floats follow in the order of the arguments; `wrt` can select some of them.
    Tensors of f64 count only where the compute type is f64. If the function did
    not return the log-sum-exp, it does now.

    Reverse mode makes the adjoint of the score function: it repeats the
    function's operations and applies the rules of `ScalarOpInterface` from the
    last one to the first. An `scf.if` becomes an `scf.if`. At a kink or a tie,
    where a function has no derivative, the rules take PyTorch's choice.
    Integers and booleans have no derivative. With respect to values that mask
    and keep regions read the derivative is 0.

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
           "replace the function by its gradient">
  ];
}

def DecomposePass : FA_Pass<"fa-decompose"> {
  let summary = "attention as the standard algorithm: S and P in memory";
  let description = [{
    Rewrites `fa.attention` as the standard algorithm (FlashAttention,
    Algorithm 0; three-pass safe softmax): scores, row maximum, exponentials,
    row sum, weights, output. Each batch entry and head has its own matrices; S
    and P are values of full size. `fa.attention_backward` becomes scores and
    `fa.softmax_grad` on whole matrices, for each key head and the query heads
    that share it.

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
    (f64 for f64, f32 otherwise), P has V's element type.
  }];
}

def OnlineSoftmaxPass : FA_Pass<"fa-online-softmax"> {
  let summary = "softmax in fewer passes over the scores: P is gone";
  let description = [{
    Fuses the standard algorithm's reductions over the keys.

    With `passes=2`, maximum and sum become one reduction with the state
    (m, l), as in Milakov and Gimelshein 2018; P stays in memory. With
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
    keys outside. The ops that produce its scores are fused into the tiles, so
    the score matrix is gone. The state (m, l, o) goes through memory each step.
    This is FlashAttention's Algorithm 1. `fa.softmax_grad` is tiled in the same
    way. The gradients of a block of keys stay on chip: Algorithm 4.

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
           "the target whose memory the sizes have to fit">,
    Option<"algorithm", "algorithm", "std::string", "\"fa2\"",
           "fa1 or fa2: the algorithm whose rule gives the sizes">,
    Option<"rows", "rows", "int64_t", "0", "Br, rows of a block, 0 to choose">,
    Option<"keys", "keys", "int64_t", "0", "Bc, keys of a block, 0 to choose">,
    Option<"ordered", "ordered", "bool", "false",
           "blocks add to shared gradients in a fixed order (fa-order-sums)">
  ];
}

def ParallelizePass : FA_Pass<"fa-parallelize"> {
  let summary = "gradients: a grid over blocks of keys and blocks of rows";
  let description = [{
    Adds a dimension to each `scf.forall` over batch and heads of a function
    with `fa.softmax_grad`. A grid with such a step gets blocks of keys. Other
    grids (D, the scale of the queries' gradients) get blocks of rows. A block
    of keys keeps the gradients of its keys and values. It adds the gradients of
    queries and captured tensors to tensors that all blocks share, by
    `fa.parallel_accumulate`. This is the order of FlashAttention-2's backward.

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
           "the target whose memory the sizes have to fit">,
    Option<"rows", "rows", "int64_t", "0", "Br, rows of a block, 0 to choose">,
    Option<"keys", "keys", "int64_t", "0", "Bc, keys of a block, 0 to choose">,
    Option<"ordered", "ordered", "bool", "false",
           "blocks add to shared gradients in a fixed order (fa-order-sums)">
  ];
}

def ExpandStepsPass : FA_Pass<"fa-expand-steps"> {
  let summary = "expand steps of softmax and of its gradient into products";
  let description = [{
    `fa.softmax_grad` becomes four products (dP, dV, dK, dQ) and the elementwise
    operations between them. `fa.softmax_delta` becomes a product and two sums.
    `fa.online_softmax` and `fa.speculated_softmax` become a product and the
    operations before it. Sums that the blocks of a grid share get their terms
    by `fa.accumulate_slice`.

    These ops keep their identity to the end of the tile level. Each target's
    schedule expands them, with ops of its own where it has some. This pass
    shows their meaning, and serves programs that continue in linalg.

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
  let summary = "choose C or C^T as the result of each product";
  let description = [{
    Tensor cores can take the first operand of a product from registers if it
    was computed as rows of the result. An operand in the other orientation, and
    every second operand, goes through shared memory. Elementwise operations
    connect the results of products with the operands of others. The pass
    transposes connected matrices together if more of these operands then come
    from registers: S^T and dP^T of a gradient.

    Random bits are made for rows of queries, so matrices that depend on them
    keep their orientation. If the products are short enough, the matrices are
    transposed, too, and threads exchange bits. The exchange requires that all
    products with these matrices have at most `random-columns` other columns, in
    whole groups of bits, of 16-bit floats, and that no `fa.accumulate` sums the
    matrices' elements.

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
           "threads exchange random bits for products of at most so many "
           "columns">,
  ];
}

def OrderRowsPass : FA_Pass<"fa-order-rows"> {
  let summary = "reverse loops over rows that begin at different rows";
  let description = [{
    Under a causal mask the loop of a block of keys begins at the block's own
    rows, and all loops end at the last rows. Blocks that run at the same time
    thus read, and add to, different rows. In reverse order they start with the
    same rows and share them in L2.

    The loop keeps its bounds. Its body works on row `first + last` less the
    variable, as in fa-order-keys. A loop stays as it is if

    - its rows are short: a step reads and adds to less than 1 KiB a row, and L2
      traffic does not limit a block;
    - it lies in another loop, over query heads;
    - it follows a list.

    Numeric contract: reassociated.
  }];
}

def OrderSumsPass : FA_Pass<"fa-order-sums"> {
  let summary = "give the sums that a grid shares the same bits each time";
  let description = [{
    Floating-point sums depend on the order of their terms, and atomic additions
    come in any order. This pass orders the additions of a grid's blocks to
    shared tensors (`ordered` of `fa.accumulate_slice` and `fa.accumulate`). A
    block of keys adds to the gradients of rows after the blocks of keys before
    it.

    A block reaches its additions to captured tensors at no fixed time. So
    blocks whose places may be the same add to partial sums, and a second grid
    adds those up. A partial sum has one more dimension for each dimension of
    the grid in which blocks may meet. For the grid's last dimension that size
    is 16: blocks that are 16 apart share a partial sum and wait for each other.
    One sum is enough if places differ between iterations, as in
    `bias[b, h, i, j]`. The pass assumes that a tensor has an element for each
    value of a coordinate that indexes it.

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
    Interchanges a loop over keys with the loop over rows inside it. The loop
    over rows must read and write the carried tensors only in slices that belong
    to one row block. The slices become the loop-carried values of the loop over
    keys and are written once. This is FlashAttention-2's order; row blocks are
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
    of a tensor is padded with zeros at its read and clipped at its write. Keys
    past the end are masked: their scores become -inf, the neutral element of
    `fa.online_softmax`.

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
    linalg op, each tiled into blocks. A matrix of one head that passes from one
    op to the next becomes a tensor of all heads in memory. A loop that carries
    matrices of a head (FlashAttention's Algorithm 1) becomes a kernel with one
    block per head. These are the baselines: the standard algorithm and
    Algorithm 1 on a GPU.

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
  let summary = "visit a list of blocks where the mask depends on data";
  let description = [{
    A mask may read captured tensors (packed documents, a block-sparse matrix),
    and interval arithmetic may not understand a mask. Such a mask is evaluated
    before attention. An `scf.forall` over blocks of rows lists the blocks of
    keys that hold a seen element (`fa.list_blocks`), and the loop over keys
    follows the list. An entry also says whether the rows see all of the block:
    such blocks skip the mask. One list serves all batch entries, or heads, that
    the mask does not depend on.

    Interval arithmetic bounds the blocks that the listing evaluates (`j <= i`).
    A mask that it decides completely has no list: fa-split-mask-loops gives its
    loop bounds. A loop over rows, as in gradients, follows a list of blocks of
    rows.

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
  let summary = "skip empty tiles, and the mask of full tiles";
  let description = [{
    In a loop over blocks of keys around `fa.online_softmax`, interval
    arithmetic over the mask (`fa/Analysis/MaskIntervals.h`) finds two bounds:
    of the keys that some row of the block sees, and of those that all rows see.
    The loop visits only the first; blocks within the second skip the mask.

    The keys seen may be two intervals: `j < 4 || i - j < 1024`, the first keys
    and a window. Then the loop counts the blocks of both, and adds the length
    of the gap to a block's first key once it is past the first interval. The
    loop leaves out one gap and visits further ones. It stays as it is where the
    analysis cannot decide. A remark gives the result.

    Skipping a block is legal because `fa.online_softmax` with scores that are
    all -inf is the identity on its state. So is `fa.softmax_grad`: the same
    proof bounds its loop over blocks of rows, with rows and keys exchanged.

    The score function's value is used only where the mask holds, so it may
    assume the mask: under a causal mask, `|i - j|` in it (`max(d, 0 - d)`)
    becomes `i - j`.

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
           "bits of an index on the target, 32 or 64: numbers that masks read "
           "from memory are clamped so that bounds do not wrap">
  ];
}

def OrderKeysPass : FA_Pass<"fa-order-keys"> {
  let summary = "reverse loops over keys whose scores grow with the key";
  let description = [{
    If scores grow with the key, a loop that begins at the first key finds a new
    maximum in each block. Each time it rescales its sums or, with a speculated
    maximum, finds the reference too small. In reverse order the largest scores
    come first.

    The loop keeps its bounds. Its body works on key `first + last` less the
    variable.

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
    `order=auto` reverses a loop in two cases:

    - The score function is known to grow with the key. The proof follows the
      signs of differences through sums, monotone functions and products with
      factors of known sign.
    - The score function changes with the key in an unknown way, for example by
      a captured slope, and the rows bound the keys from above. Under a causal
      mask the last keys are the nearest.

    Loops that follow a list of blocks stay as they are. A remark gives the
    reason. If fa-speculate-max does not follow, fa-pipeline takes `auto` as
    `ascending`, because each block then takes the running maximum in any order.

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
    The loop around an `fa.online_softmax` carries the numerator `l * o` instead
    of the normalised output `o`, and divides once after the loop instead of in
    each step. The state must serve that op alone. The op gets the attribute
    `unnormalized`.

    Before (per step): `o' = (l * alpha * o + P V) / l'`.
    After (per step): `n' = alpha * n + P V`; after the loop: `o = n / l`.

    Numeric contract: reassociated.
  }];
}

def FusePass : FA_Pass<"fa-fuse"> {
  let summary = "one kernel: a grid over batch, head and row block";
  let description = [{
    Makes the loop over row blocks a third dimension of the `scf.forall` over
    batch and head. The operations on its results (normalisation, conversion,
    log-sum-exp) move into it: one kernel, no intermediate in memory. Parts of
    scores and masks that depend on batch and head alone leave the loop over key
    blocks.

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
    `c = log2(e)`. An `fa.online_softmax` records c as its `log2_scale`. Two
    kinds of scores change their unit as well:

    - All scores of a block are a positive constant times a value, and only the
      mask follows: the scale, or the `c` of a softcap `c tanh(s / c)`. The
      constant moves into `c`.
    - They are a sum whose parts can take the factor log2(e) at no cost. Then
      the parts take it, and `c` is 1. In `s scale + slope (j - i)` the factor
      joins the scale and the slope, whose product is computed before the loop.
      A value that is read for each element would cost one more multiplication,
      so a sum with such a value stays as it is.
    done.

    Large scores need `subtract_first`. For them `fma(x, c, -shift * c)` is far
    from 0 at `x = shift`; beyond 2^31 its power is no weight at all. They
    become `exp2((x - shift) * c)`, which costs one operation more, and no
    constant moves. Scores may be large if they contain

    - a float that is read for each element;
    - a finite constant beyond 2^16;
    - an exponential or a power;
    - for the merge, products of queries and keys that `large-products` names.
      Other products are taken to be below 10^9.

    The factor that rescales earlier sums, a difference of two maxima, always
    has this form: it is 1 if the maximum stays.

    The maximum is then one of scores in other units, and is scaled for its uses
    after the loop. A factor that may be negative never moves: it would turn the
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

    Numeric contract: approximate, within the rounding of one f32 operation for
    each part of a sum.
  }];
  let options = [
    Option<"largeProducts", "large-products", "std::string", "\"none\"",
           "products of queries and keys that may be beyond 2^31: none, wide "
           "(of f32 and f64) or all">
  ];
}

def SpeculateMaxPass : FA_Pass<"fa-speculate-max"> {
  let summary = "take the running maximum off the loop's common path";
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

    Before, the meaning of an unnormalised `fa.online_softmax` (per step, `c` =
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
    After, the meaning of `fa.speculated_softmax`:
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
    For scores that may be large, the weights before the pass are
    `exp2((s - g) c)`. Then R is in the scores' units and has no headroom, which
    is added later: `exp2((s - R) c - headroom)`. Weights out of range are
    always computed again.

    Scores may also be in log2 units already, as the sum of a product of queries
    and keys and a bias of coordinates: `s c + slope (j - i)`. Then the branch
    that masks gives the products, and each reader adds the bias. A weight is
    `exp2(s c + (slope (j - i) - R))`. The reference joins the fma of the
    distance, so the bias takes one operation for each element. The bias must be
    finite for masked elements, too. So it may only consist of sums, products,
    magnitudes, minima and maxima of coordinates and of scalars from before the
    loop (which are taken to be finite).

    Weights that are too large, but finite, are shifted by a power of two. The
    shift is exact and needs no exponential. (f16 has no room for such weights:
    they are computed again, and a few blocks are wary afterwards.)

    If weights are out of range twice within a few blocks, the next blocks are
    wary: they take the maximum before they compute weights, as online softmax
    does, but move the reference only if they have to. So data that outgrow the
    reference again and again cost little more than with the running maximum. A
    block that the mask may cut is in a branch already; wary blocks share that
    branch.

    In a branch all rows move that can. Groups of rows may take it separately,
    as long as the groups that need it do. On Hopper each warp is a group.

    Numeric contract: approximate, and not bit-identical to the running
    maximum; the error of the output is of the same size.

    - *Exact*: the output is normalised by the sum of the rounded weights, the
      same weights that the contraction reads. The rounding of R, or of the
      weights of a row that one key dominates, changes a row's weights and their
      sum alike. A log-sum-exp is formed from a second sum, of the weights
      before rounding, within 1e-4. This sum costs one more addition a score and
      is there only if the function returns the log-sum-exp.
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
    - *NaN and infinity* are out of range, take the branch, and reach the same
      rows as with the running maximum. Rows with nothing to attend: R stays
      -inf, output 0, log-sum-exp -inf.

    The pass changes nothing, and a remark gives the reason, in three cases:

    - Weights are f32. They have no rounding to make good, and tensor cores do
      not limit f32 attention.
    - The loop is not the one above.
    - The GPU's warpgroup-wide instructions do not take the tiles. The schedule
      for such tiles has no branches on values of tiles.
  }];
  let options = [
    Option<"headroom", "headroom", "double",
           "std::numeric_limits<double>::quiet_NaN()",
           "log2 of the factor by which a row's largest weight may grow before "
           "it is 1, in [0, 126]; NaN to choose by the weights' type">,
    Option<"limit", "limit", "double", "0",
           "the reference moves for a weight of at least this, in (1, 2^60]; 0 "
           "to choose by the weights' type">,
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target, as in fa-tile">
  ];
}

def AnnotateIOPass : FA_Pass<"fa-annotate-io"> {
  let summary = "compute HBM traffic and temporaries from the IR of any stage";
  let description = [{
    Sets the attribute `fa.io` on a function: bytes read from and written to
    HBM, and bytes of temporaries. They are polynomials in the sizes of query,
    key and value and, if all sizes are known, also numbers. The rules are those
    of `fa/Analysis/IOModel.h`. `upper_bound` says that loop bounds depend on a
    mask and the polynomials count all keys. The numbers follow the bounds of
    each block, unless `bytes_upper_bound` says that bounds are read from
    memory.

    If the function has the attribute already, a remark gives the change.

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
           "count no traffic for a fill that starts an accumulation">
  ];
}

#endif // FA_DIALECT_FA_TRANSFORMS_PASSES
