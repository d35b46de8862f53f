# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`fa.attention`: functions traced, and PyTorch's machinery heard where it listens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from fa import _native
from fa._arrays import is_seen_by
from fa._attention import NOTHING, attend
from fa._checks import number_of_argument
from fa._dropout import with_dropout
from fa._trace import trace_functions
from fa.block_masks import block_mask, check_block_mask, is_block_mask


def _is_nested(x: Any) -> bool:
    return getattr(x, "is_nested", False) is True


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
) -> Any:
    """Softmax attention: softmax(scale * q k^T) v, row by row.

    Args:
        q: queries [B, Hq, Sq, D]; float32, float16 or bfloat16; any strides on
            the CPU (negative and 0, too), unit stride along D on a GPU. An
            array of NumPy, PyTorch or CuPy, or any object that exports
            `__dlpack__`, `__cuda_array_interface__` or `__array_interface__`.
            Or a nested tensor of PyTorch [B, Hq, *, D] (`attention_varlen`).
        k: keys [B, Hk, Sk, D]; Hk divides Hq (grouped-query attention).
        v: values [B, Hk, Sk, Dv].
        score_mod: score_mod(score, b, h, q_idx, kv_idx), the score of a query
            and a key from the scaled product, a float; as for PyTorch's
            FlexAttention. See docs/variants.md for what can be written, and
            fa.scores for some.
        mask_mod: mask_mod(b, h, q_idx, kv_idx), true where the query sees the
            key; see fa.masks. Or a BlockMask of FlexAttention. Both functions may
            read captured arrays (float32, float16, bfloat16, int32, int64 or
            bool; any rank up to 8, any strides) on the device of q by index; an
            index out of range is clamped to the array's ends. Other values of
            captured arrays, like other lengths, need no other kernel; other
            numbers in Python do.
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

    Returns:
        out [B, Hq, Sq, Dv] in q's element type, or (out, lse) with lse
        [B, Hq, Sq] in float32 (natural logarithm). A row with nothing to
        attend has out 0 and lse -inf. They are arrays of q's library: NumPy,
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

    Gradients: there is no backward yet. Of tensors that require a gradient the
    output requires one, too, and differentiating it is an error.

    On CUDA arrays of PyTorch and CuPy the call returns before the GPU has
    finished, like any op of theirs on their current stream; on those of other
    libraries, whose streams are not known, it waits for the GPU. The order is
    scale, score_mod, mask, softmax, dropout. Source: Dao et al., FlashAttention
    (2022) and FlashAttention-2 (2023); Dong et al., Flex Attention (2024); Salmon
    et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
    """
    torch = sys.modules.get("torch")
    is_tried = False
    is_compiling = torch is not None and torch.compiler.is_dynamo_compiling()
    if score_mod is None and mask_mod is None and not is_compiling:
        # What is known asks for nothing more.
        if schedule is None and type(dropout_p) is float and dropout_p == 0.0:
            known = _native.unseen_attention(q, k, v, is_causal, scale, return_lse, 0, ())
            if known is not None:
                return known
            is_tried = True
    if torch is not None and (_is_nested(q) or _is_nested(k) or _is_nested(v)):
        from fa import _torch_nested

        return _torch_nested.attention(
            *(q, k, v, score_mod, mask_mod, is_causal, scale, return_lse),
            *(dropout_p, dropout_seed, schedule),
        )
    if mask_mod is not None:
        if is_block_mask(mask_mod):
            check_block_mask(mask_mod, q, k)
            mask_mod = block_mask(mask_mod)
    if is_compiling:
        from fa import _torch_compile

        return _torch_compile.attention(
            *(q, k, v, score_mod, mask_mod, is_causal, scale, return_lse),
            *(dropout_p, dropout_seed, schedule),
        )
    traced = NOTHING
    if score_mod is not None or mask_mod is not None:
        traced = trace_functions(score_mod, mask_mod)
    if type(dropout_p) not in (int, float):
        dropout_p = number_of_argument("dropout_p", dropout_p)
    if dropout_p:
        traced = with_dropout(traced, dropout_p, dropout_seed, q)
    # Extents are for `attend`: sizes may be symbols here, which PyTorch has to see.
    if schedule is None and traced.number > 0 and not traced.extents:
        call = (is_causal, scale, return_lse, traced.number, traced.arrays)
        known = _native.unseen_attention(q, k, v, *call)
        if known is not None:
            return known
        is_tried = True
    if torch is not None:
        if torch._C._is_any_autocast_enabled():
            from fa import _torch_op

            q, k, v = _torch_op.autocast(q, k, v)
            is_tried = False
        if is_seen_by(torch, (q, k, v, *traced.arrays)):
            from fa import _torch_op

            _torch_op.refuse_transforms(q, k, v, *traced.arrays)
            return _torch_op.call(q, k, v, traced, is_causal, scale, return_lse, schedule)
    return attend(q, k, v, traced, is_causal, scale, return_lse, schedule, is_tried)
