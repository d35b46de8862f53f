# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`fa.attention`, the public function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fa._masks.prepare import Prepared
from fa._run.arrays import is_compiling, is_one_tensor
from fa._run.call import Call
from fa._run.dropout import with_dropout
from fa._run.request import Request
from fa._run.variant import NOTHING, Traced
from fa._trace.errors import TraceError, users_frames
from fa._trace.trace import known_functions
from fa._ways import answer, short

_MASK = "mask_mod=, a function of indices (fa.masks has some) or a BlockMask"
_KEYWORDS = {
    **dict.fromkeys(
        ("attn_mask", "mask", "attention_mask"),
        f"{_MASK}, and score_mod=fa.scores.bias(mask) for floats that are added",
    ),
    **dict.fromkeys(("block_mask", "key_padding_mask"), _MASK),
    **dict.fromkeys(("attn_bias", "bias"), "score_mod=fa.scores.bias(values)"),
    **dict.fromkeys(("causal", "use_causal_mask"), "is_causal="),
    **dict.fromkeys(("softmax_scale", "sm_scale"), "scale="),
    "enable_gqa": "no keyword: q may have a multiple of the heads of k and v",
    **dict.fromkeys(
        ("window_size", "sliding_window", "local_window_size"),
        "mask_mod=fa.masks.sliding_window(left, right)",
    ),
    **dict.fromkeys(("dropout", "dropout_rate", "attn_dropout", "p"), "dropout_p="),
    **dict.fromkeys(("softcap", "soft_cap"), "score_mod=fa.scores.softcap(cap)"),
    "alibi_slopes": "score_mod=fa.scores.alibi(slopes)",
    **dict.fromkeys(("return_softmax_lse", "return_attn_probs", "return_aux"), "return_lse="),
    **dict.fromkeys(("kernel_options", "options"), "schedule="),
    **dict.fromkeys(
        ("cu_seqlens", "cu_seqlens_q", "cu_seqlens_k"),
        "fa.attention_varlen(q, k, v, cu_seqlens_q)",
    ),
    **dict.fromkeys(
        ("max_seqlen_q", "max_seqlen_k", "max_seqlen"),
        "no keyword: fa.attention_varlen reads lengths from cu_seqlens_q",
    ),
    **dict.fromkeys(("query", "key", "value"), "q, k and v, by their place"),
}
"""What keywords of other libraries are here."""


def unknown_keywords(unknown: Mapping[str, Any], of: str = "fa.attention") -> TypeError:
    """The error of keywords that a function of fa, `attention` or another, does not have."""
    name = next(iter(unknown))
    known = _KEYWORDS.get(name)
    if known is None:
        known = f"one of those in help({of})"
    return TypeError(f"expected a keyword of {of}, got {name}=; give {known}")


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    dropout_p: float = 0.0,
    dropout_seed: Any = None,
    schedule: Mapping[str, Any] | None = None,
    **unknown: Any,
) -> Any:
    """Softmax attention: softmax(scale * q k^T) v, row by row.

    Args:
        q: queries [B, Hq, Sq, D]; float32, float16, bfloat16, or on the CPU
            float64, which is computed in throughout; any strides, negative and 0, too. What
            a GPU cannot load in vectors of 16 bytes is copied in each call. An
            array of NumPy, PyTorch or CuPy, or any object that exports
            `__dlpack__`, `__cuda_array_interface__` or `__array_interface__`.
            Or a nested tensor of PyTorch [B, Hq, *, D] (`attention_varlen`).
        k: keys [B, Hk, Sk, D]; Hk divides Hq (grouped-query attention).
        v: values [B, Hk, Sk, Dv].
        score_mod: score_mod(score, b, h, q_idx, kv_idx), the score of a query
            and a key from the scaled product, a float; as for PyTorch's
            FlexAttention. docs/functions.md lists the operations it may use, and
            fa.scores for some.
        mask_mod: mask_mod(b, h, q_idx, kv_idx), true where the query sees the
            key; see fa.masks. Or a BlockMask of FlexAttention. Both functions may
            read captured arrays (float32, float16, bfloat16, int64, int32, int8,
            uint8, bool, or float64 where q is; any rank up to 8, any strides) on the device of q by
            index. What indexes an array by a coordinate itself needs an element for
            each of its values; another index that is out of range is clamped to the
            array's ends. Other values of captured arrays, like other lengths, need
            no other kernel; other numbers in Python do.
        is_causal: query i sees keys j <= i, of those that mask_mod shows.
        scale: factor of the scores; 1/sqrt(D) if None.
        return_lse: also return the log-sum-exp of the scores.
        dropout_p: the share of normalised weights that are dropped, in
            [0, 0.996] and steps of 1/256; those that are kept are divided by the
            share of them. The log-sum-exp knows nothing of it.
        dropout_seed: of 64 bits; the same weights are dropped for the same seed,
            whatever the target, the tiles and the other batch entries and heads.
            An integer, or an int64 or int32 in an array on q's device, which is
            read when the kernel runs. None: a random one, of PyTorch's tensors
            from its generator for their device (torch.manual_seed).
        schedule: for experts, as in `fa.compile`.
        unknown: any other keyword is a TypeError, which names the one that is meant.

    Returns:
        out [B, Hq, Sq, Dv] in q's element type, or (out, lse) with lse
        [B, Hq, Sq] in float32, or float64 where q is (natural logarithm). A row with nothing to
        attend has out 0 and lse -inf. Of tensors of PyTorch the dimensions of out lie in
        memory in the order of q's, and those of q's, k's and v's gradients in theirs, without
        gaps, where the last one is the innermost; all else is row-major. They are arrays of
        q's library: NumPy,
        PyTorch, CuPy, or one with `__array_namespace__().from_dlpack` (JAX). For
        another object they are NumPy arrays on the CPU (`fa.Array` for
        bfloat16 without ml_dtypes) and `fa.Array` on a GPU, which exports
        `__dlpack__` and the array interface.

    Raises:
        ValueError: shapes, types, a scale or a dropout_p that do not fit;
            captured arrays on another device.
        TraceError: (a ValueError) a function does what can't be traced; names
            its line.
        TypeError: no array, or one of another element type or kind of device.
        NotImplementedError: tensors with a forward gradient, or a call in a
            transform of torch.func or in torch.jit.trace.

    torch.autocast, where it is on, converts q, k and v as for PyTorch's own
    attention, not what is captured. Of tensors on the device "meta" the output has
    its shape and type alone.

    Gradients: tensors of PyTorch are differentiable, q, k, v and those that score_mod
    captures, where they require a gradient. Of other arrays `fa.attention_backward`
    gives them.

    On CUDA arrays of PyTorch and CuPy the call returns before the GPU has
    finished, like any op of theirs on their current stream; on those of other
    libraries, whose streams are not known, it waits for the GPU. The order is
    scale, score_mod, mask, softmax, dropout. Source: Dao et al., FlashAttention
    (2022) and FlashAttention-2 (2023); Dong et al., Flex Attention (2024); Salmon
    et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
    """
    if unknown:
        raise unknown_keywords(unknown)
    prepared = mask_mod if type(mask_mod) is Prepared else None
    lists = None if prepared is None else prepared.lists
    drawn: Traced | None = None
    if schedule is None and type(dropout_p) is float and not is_compiling():
        # What is known asks for nothing more.
        traced: Traced | None = NOTHING
        check = None if prepared is None else prepared.check
        if score_mod is not None or mask_mod is not None:
            mask = mask_mod if prepared is None else prepared.value
            traced = known_functions(score_mod, mask, q)
        if dropout_p != 0.0 and traced is not None:
            if check is not None:  # before a seed is drawn
                check(q, k)
                check = None
            traced = with_dropout(traced, dropout_p, dropout_seed, q) if is_one_tensor(q) else None
            drawn = traced
        if traced is not None and traced.number >= 0:
            call = Call(q, k, v, traced, is_causal, scale, return_lse)
            known = short(call, lists, check)
            if known is not None:
                return known
    request = Request(
        *(q, k, v, score_mod, mask_mod, is_causal, scale, return_lse),
        *(dropout_p, dropout_seed, schedule),
    )
    if drawn is not None:  # a seed is drawn once
        request = request.with_traced(drawn)._replace(prepared=lists)
    try:
        return answer(request)
    except TraceError as error:  # without fa's own frames
        raise error.with_traceback(users_frames(error.__traceback__)) from error.__cause__
