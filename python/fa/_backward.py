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
    """What `attention_backward` gives: arrays of q's library, of their operands' shapes
    and types."""

    q: Any
    k: Any
    v: Any
    captured: tuple[tuple[Any, Any], ...] = ()
    """(array, gradient) of each floating-point array that score_mod or mask_mod read, in
    the order in which they did."""


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
    """Gradients of `fa.attention`, for arrays that no library differentiates.

    Tensors of PyTorch need none of it: `fa.attention` is differentiable.

    Args:
        q: queries [B, Hq, Sq, D], as they were given to `fa.attention`.
        k: keys [B, Hk, Sk, D].
        v: values [B, Hk, Sk, Dv].
        out: what `fa.attention(..., return_lse=True)` gave, [B, Hq, Sq, Dv].
        lse: and the log-sum-exp, [B, Hq, Sq] in float32, or float64 where q is.
        out_grad: the gradient of what is differentiated with respect to out.
        lse_grad: and with respect to lse; None where lse is not used.
        score_mod: as it was given to `fa.attention`, and so are
        mask_mod: the mask,
        is_causal: whether keys after a query are hidden,
        scale: the factor of the scores,
        dropout_p: the share of weights that are dropped, and
        dropout_seed: the seed that says which; with dropout_p it is required.
        deterministic: whether gradients have the same bits each time; None asks
            `torch.are_deterministic_algorithms_enabled` for tensors of PyTorch, and is
            False for others. On the CPU they always have; on a GPU it takes longer.
        schedule: for experts, as in `fa.compile`, of the gradient's kernels.
        unknown: any other keyword is a TypeError.

    Returns:
        `Gradients`: those with respect to q, k, v and to the captured arrays of
        floating-point numbers. Gradients of key heads that query heads share are the
        sums of theirs. Rows with nothing to attend have no part in them.

    Raises:
        ValueError: shapes or types that do not fit, or no dropout_seed.
        TraceError: (a ValueError) a function does what can't be traced, or has no
            derivative; names its line.

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
