# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`fa.attention_backward`, the public function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fa._attention import unknown_keywords
from fa._masks.blocks import block_mask, check_block_mask, is_block_mask
from fa._masks.prepare import Prepared
from fa._run.arrays import compute_type_of, is_torch_tensor
from fa._run.backward import Results, differentiate
from fa._run.call import Call
from fa._run.dropout import with_dropout
from fa._run.variant import NOTHING, Traced
from fa._trace.errors import TraceError, users_frames
from fa._trace.trace import trace_functions


class Gradients(NamedTuple):
    """The results of `attention_backward`: arrays of q's library with the shapes and types
    of their operands."""

    q: Any
    k: Any
    v: Any
    captured: tuple[tuple[Any, Any], ...] = ()
    """(array, gradient) for each floating-point array that score_mod or mask_mod reads, in
    the order of their first reads."""


def _traced(q: Any, k: Any, score_mod: Any, mask_mod: Any) -> Traced:
    if type(mask_mod) is Prepared:
        mask_mod.check(q, k)
        mask_mod = mask_mod.value
    if is_block_mask(mask_mod):
        check_block_mask(mask_mod, q, k)
        mask_mod = block_mask(mask_mod)
    if score_mod is None and mask_mod is None:
        return NOTHING
    return trace_functions(score_mod, mask_mod, is_torch_tensor(q), compute_type_of(q))


def attention_backward(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    out_grad: Any,
    *,
    lse_grad: Any = None,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: Any = None,
    deterministic: bool | None = None,
    schedule: Mapping[str, Any] | None = None,
    **unknown: Any,
) -> Gradients:
    """Gradients of `fa.attention`, for arrays of libraries without autograd.

    Tensors of PyTorch do not need this: `fa.attention` is differentiable.

    Args:
        q: queries [B, Hq, Sq, D], the argument of `fa.attention`.
        k: keys [B, Hk, Sk, D], likewise.
        v: values [B, Hk, Sk, Dv], likewise.
        out: the output of `fa.attention(..., return_lse=True)`, [B, Hq, Sq, Dv].
        lse: its log-sum-exp, [B, Hq, Sq] in float32, or float64 if q is.
        out_grad: the gradient with respect to out, [B, Hq, Sq, Dv].
        lse_grad: the gradient with respect to lse, [B, Hq, Sq]; None if lse is not used.
        score_mod: the argument of `fa.attention`, as are the next five.
        mask_mod: the mask function or BlockMask.
        is_causal: whether query i sees only keys j <= i.
        scale: factor of the products; 1/sqrt(D) if None.
        dropout_p: the probability of dropping a weight.
        dropout_seed: the forward's seed; required with dropout_p.
        deterministic: whether gradients have the same bits each time. On a GPU that takes
            longer; on the CPU they always have. None means
            `torch.are_deterministic_algorithms_enabled()` for tensors of PyTorch, and
            False for other arrays.
        schedule: for experts, as in `fa.compile`, for the gradient's kernels.
        unknown: any other keyword is a TypeError.

    Returns:
        `Gradients` with respect to q, k, v and the captured floating-point arrays. The
        gradient of a shared key head is the sum over its query heads. Rows that see no key
        contribute 0.

    Raises:
        ValueError: shapes or types that do not fit, or no dropout_seed.
        TraceError: (a ValueError) a function that cannot be traced or has no derivative;
            names its line.

    Source: Dao et al., FlashAttention (2022), Algorithm 4.
    """
    if unknown:
        raise unknown_keywords(unknown, "fa.attention_backward")
    if dropout_p and dropout_seed is None:
        raise ValueError(
            f"expected the dropout_seed of the forward with dropout_p={dropout_p}, got None; give "
            "both calls the same one"
        )
    try:
        traced = _traced(q, k, score_mod, mask_mod)
    except TraceError as error:  # without fa's own frames
        raise error.with_traceback(users_frames(error.__traceback__)) from error.__cause__
    traced = with_dropout(traced, dropout_p, dropout_seed, q)
    wrt = () if traced.variant is None else traced.variant.floating
    gradients = differentiate(
        Call(q, k, v, traced, is_causal, scale),
        Results(out, lse, out_grad, lse_grad),
        wrt,
        deterministic=deterministic,
        schedule=schedule,
    )
    captured = [(traced.arrays[number], gradient) for number, gradient in zip(wrt, gradients[3:])]
    return Gradients(*gradients[:3], tuple(captured))
