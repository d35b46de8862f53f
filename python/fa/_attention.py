# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`fa.attention`: shapes checked, kernel found or compiled, run."""

from __future__ import annotations

import functools
from typing import Any

from fa import _native
from fa._arrays import View, library_of
from fa._config import AttentionConfig
from fa._kernel import Kernel


@functools.cache
def _kernel(config: AttentionConfig, target: str) -> Kernel:
    return Kernel(config.ir(), target, keep_stages=False)


@functools.cache
def _target(device: int | None) -> str:
    return "cpu" if device is None else _native.target_of_device(device)


def _check(q: View, k: View, v: View) -> None:
    for name, view in (("query", q), ("key", k), ("value", v)):
        if len(view.shape) != 4:
            raise ValueError(
                f"expected {name} of rank 4 [B, H, S, D], got shape "
                f"{list(view.shape)}; add the missing dimensions"
            )
        if view.dtype != q.dtype:
            raise ValueError(
                f"expected {name} of element type {q.dtype} like query, got "
                f"{view.dtype}; convert it"
            )
    pairs = (
        ("batch size", "query", q, 0, "key", k, 0),
        ("batch size", "key", k, 0, "value", v, 0),
        ("number of heads", "key", k, 1, "value", v, 1),
        ("length", "key", k, 2, "value", v, 2),
        ("head dim", "query", q, 3, "key", k, 3),
    )
    for what, a, x, i, b, y, j in pairs:
        if x.shape[i] != y.shape[j]:
            raise ValueError(
                f"expected {a} and {b} to have the same {what}, got {x.shape[i]} and {y.shape[j]}"
            )


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
) -> Any:
    """Softmax attention: softmax(scale * q k^T) v, row by row.

    Args:
        q: queries [B, Hq, Sq, D]; float32, float16 or bfloat16; any strides.
        k: keys [B, Hk, Sk, D]; Hk divides Hq (grouped-query attention).
        v: values [B, Hk, Sk, Dv].
        is_causal: query i sees keys j <= i.
        scale: factor of the scores; 1/sqrt(D) if None.
        return_lse: also return the log-sum-exp of the scores.

    Returns:
        out [B, Hq, Sq, Dv] in q's element type, or (out, lse) with lse
        [B, Hq, Sq] in float32 (natural logarithm). A row with nothing to
        attend has out 0 and lse -inf.

    Raises:
        ValueError: shapes, types or a scale that do not fit.
        TypeError: arrays of a library or element type that is not known.

    On CUDA arrays the call returns before the GPU has finished, like any op of
    the array's library. Source: Dao et al., FlashAttention (2022) and
    FlashAttention-2 (2023).
    """
    library = library_of(q)
    for name, array in (("key", k), ("value", v)):
        if library_of(array) is not library or library.device(array) != library.device(q):
            raise ValueError(
                f"expected {name} of the same library and device as query, "
                f"got {type(array).__name__}; move it to where query is"
            )
    views = [library.view(array) for array in (q, k, v)]
    _check(*views)
    (batch, query_heads, rows, head_dim), value_dim = (
        views[0].shape,
        views[2].shape[3],
    )
    config = AttentionConfig(
        views[0].dtype,
        query_heads,
        views[1].shape[1],
        head_dim,
        value_dim,
        bool(is_causal),
        None if scale is None else float(scale),
        bool(return_lse),
    )
    device = library.device(q)
    out = library.empty(q, (batch, query_heads, rows, value_dim), config.dtype)
    results = [out]
    if return_lse:
        results.append(library.empty(q, (batch, query_heads, rows), "f32"))
    _kernel(config, _target(device))(q, k, v, *results)
    return (out, results[1]) if return_lse else out
