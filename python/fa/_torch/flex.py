# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's `flex_attention` by fa: its arguments as those of `fa.attention`.

Written so that torch.compile traces it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fa._attention import attention

_said: set[str] = set()


@torch.compiler.assume_constant_result
def _say_ignored(names: str) -> None:
    """A warning for options, once for each set of them."""
    if names in _said:
        return
    _said.add(names)
    warnings.warn(
        f"fa.torch.flex_attention ignores kernel_options, got {names}: they are for PyTorch's "
        "Triton kernels; leave them out, or see schedule of fa.attention for fa's own",
        UserWarning,
        stacklevel=2,
    )


def _check_heads(query: Tensor, key: Tensor, enable_gqa: bool) -> None:
    """Raises ValueError where heads do not go together as FlexAttention has it."""
    heads, key_heads = query.shape[1], key.shape[1]
    if not enable_gqa and heads != key_heads:
        raise ValueError(
            f"expected query and key to have the same number of heads, got {heads} and "
            f"{key_heads}; pass enable_gqa=True where several query heads share one key head"
        )
    if enable_gqa and (key_heads == 0 or heads % key_heads != 0):
        raise ValueError(
            f"expected the heads of query to be a multiple of those of key, got {heads} and "
            f"{key_heads}; repeat key and value, or leave heads out"
        )


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Any] | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: dict[str, Any] | None = None,
    *,
    return_aux: Any = None,
) -> Any:
    """`torch.nn.attention.flex_attention.flex_attention`, by fa.

    Args:
        query: [B, Hq, L, E], float16, bfloat16 or float32 on the CPU or a CUDA device, or
            float64 on the CPU; E in [1, 256].
        key: [B, H, S, E] of the same type; or of one batch entry, for all.
        value: [B, H, S, Ev]; Ev in [1, 256].
        score_mod: score_mod(score, b, h, q_idx, kv_idx), of the scaled product as a
            float32, or a float64 where query is.
        block_mask: a BlockMask of `create_block_mask`; or a function mask_mod(b, h, q_idx,
            kv_idx), whose blocks fa finds in the call, so that it serves all lengths.
        scale: factor of the products; 1/sqrt(E) if None.
        enable_gqa: whether Hq may be a multiple of H, so that query heads share a key head.
        return_lse: also return the log-sum-exp, [B, Hq, L] in float32, or float64 where
            query is, of the natural logarithm as PyTorch's.
        kernel_options: ignored with one warning; they are for Triton kernels.
        return_aux: PyTorch's AuxRequest (2.9): the second result is an AuxOutput
            with the log-sum-exp, if asked for.

    Returns:
        [B, Hq, L, Ev] in query's type; or that and the log-sum-exp or AuxOutput.

    Raises:
        ValueError: heads or batch entries that do not go together, return_lse with
            return_aux, a BlockMask for other lengths; errors of `fa.attention`.
        TypeError: a block_mask that is neither a BlockMask nor a function.
        NotImplementedError: return_aux with max_scores.

    This is one kernel without torch.compile, and one operator in compiled code. The output is
    differentiable, with respect to captured tensors too. Source: Dong et al., Flex Attention
    (2024).
    """
    if return_lse and return_aux is not None:
        raise ValueError(
            "expected return_lse or return_aux, got both; leave return_lse out, and ask for "
            "AuxRequest(lse=True)"
        )
    if return_aux is not None and return_aux.max_scores:
        raise NotImplementedError(
            "expected an AuxRequest without max_scores, got max_scores=True: fa's kernels keep no "
            "maximum of the scores; leave it out, or use PyTorch's flex_attention"
        )
    if block_mask is not None and not hasattr(block_mask, "kv_num_blocks"):
        if not callable(block_mask):
            raise TypeError(
                "expected block_mask to be a BlockMask of create_block_mask or a function, got "
                f"{type(block_mask).__name__}; pass a tensor as fa.torch.sdpa's attn_mask"
            )
    if kernel_options:
        _say_ignored(", ".join(sorted(kernel_options)))
    if query.dim() == key.dim() == value.dim() == 4:  # else fa.attention says it
        _check_heads(query, key, enable_gqa)
        if key.shape[0] == value.shape[0] == 1 and query.shape[0] != 1:
            key, value = (x.expand(query.shape[0], -1, -1, -1) for x in (key, value))
    has_lse = bool(return_lse or (return_aux is not None and return_aux.lse))
    result = attention(
        query,
        key,
        value,
        score_mod=score_mod,
        mask_mod=block_mask,
        scale=scale,
        return_lse=has_lse,
    )
    if return_aux is None:
        return result
    from torch.nn.attention.flex_attention import AuxOutput

    out, lse = result if has_lse else (result, None)
    return out, AuxOutput(lse=lse, max_scores=None)
