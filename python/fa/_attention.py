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
"""Keywords of other libraries, and the arguments that replace them here."""


def unknown_keywords(unknown: Mapping[str, Any], of: str = "fa.attention") -> TypeError:
    """The error for keywords that the function `of` does not have; names the replacement."""
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
        q: queries [B, Hq, Sq, D] in float32, float16 or bfloat16, or in float64 on the CPU.
            D is in [1, 256]. Strides may be any, also negative or 0; each call on a GPU
            copies an array that cannot be loaded in vectors of 16 bytes. q is an array of
            NumPy, PyTorch or CuPy, or an object with `__dlpack__`,
            `__cuda_array_interface__` or `__array_interface__`. It may be a nested tensor
            of PyTorch [B, Hq, *, D] (see `attention_varlen`).
        k: keys [B, Hk, Sk, D] of q's type; Hk divides Hq (grouped-query attention).
        v: values [B, Hk, Sk, Dv] of q's type; Dv is in [1, 256].
        score_mod: score_mod(score, b, h, q_idx, kv_idx) maps the scaled product of a query
            and a key, a float, to their score, a float; the signature of PyTorch's
            FlexAttention. docs/functions.md lists the operations it may use, and
            fa.scores for some.
        mask_mod: mask_mod(b, h, q_idx, kv_idx) is true where the query sees the key; see
            fa.masks. It may be a BlockMask of FlexAttention. Both functions may index
            captured arrays on the device of q: float32, float16, bfloat16, int64, int32,
            int8, uint8, bool, or float64 if q is; rank up to 8, any strides. An array
            indexed by a coordinate itself needs an element for each of its values. Any
            other index out of range is clamped to the array's ends. New values of captured
            arrays and new lengths reuse the kernel; a new number in Python compiles one.
        is_causal: query i sees only keys j <= i, in addition to mask_mod.
        scale: factor of the products q k^T; 1/sqrt(D) if None.
        return_lse: also return the log-sum-exp of the scores.
        dropout_p: the probability of dropping a normalised weight, in [0, 0.996] and steps
            of 1/256. Kept weights are divided by the probability of keeping one. The
            log-sum-exp ignores dropout.
        dropout_seed: 64 bits that decide which weights are dropped, independent of target,
            tiles, batch size and number of heads. An integer, or an int64 or int32 in an
            array on q's device, which the kernel reads. None draws a random seed; for
            tensors of PyTorch from the generator of their device (torch.manual_seed).
        schedule: for experts, as in `fa.compile`.
        unknown: any other keyword is a TypeError that names the right one.

    Returns:
        out [B, Hq, Sq, Dv] in q's type, or (out, lse) with lse [B, Hq, Sq], the natural
        logarithm, in float32 (float64 if q is). A row that sees no key has out 0 and lse
        -inf. For tensors of PyTorch whose last dimension is the innermost, the dimensions of
        out lie in memory in q's order without gaps, and those of the gradients of q, k and v
        in theirs; all else is row-major. The results are arrays of q's library: NumPy,
        PyTorch, CuPy, or one with `__array_namespace__().from_dlpack` (JAX). For another
        object they are NumPy arrays on the CPU (`fa.Array` for bfloat16 without ml_dtypes),
        and on a GPU `fa.Array`, which exports `__dlpack__` and the array interface.

    Raises:
        ValueError: shapes, types, a scale or a dropout_p that do not fit; captured arrays
            on another device.
        TraceError: (a ValueError) a function that cannot be traced; names its line.
        TypeError: no array, or one of another element type or kind of device.
        NotImplementedError: tensors with a forward gradient, or a call in a transform of
            torch.func or in torch.jit.trace.

    The order is scale, score_mod, mask, softmax, dropout.

    torch.autocast converts q, k and v as for PyTorch's own attention, but no captured
    tensors. For tensors on the device "meta" the results have shapes and types only.

    Gradients: q, k, v and arrays captured by score_mod are differentiable if they are
    tensors of PyTorch that require a gradient. For other arrays call
    `fa.attention_backward`.

    Streams: with CUDA arrays of PyTorch and CuPy the kernel runs on their current stream,
    and the call returns before the GPU has finished. Streams of other libraries are not
    known, so the call waits for the GPU.

    Source: Dao et al., FlashAttention (2022) and FlashAttention-2 (2023); Dong et al., Flex
    Attention (2024); Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
    """
    if unknown:
        raise unknown_keywords(unknown)
    prepared = mask_mod if type(mask_mod) is Prepared else None
    lists = None if prepared is None else prepared.lists
    drawn: Traced | None = None
    if schedule is None and type(dropout_p) is float and not is_compiling():
        # A known call needs nothing more.
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
