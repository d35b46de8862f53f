# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`fa.attention`: shapes checked, kernel found or compiled, run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from fa import _native
from fa._arrays import Library, View, views_of
from fa._config import AttentionConfig, Schedule
from fa._kernel import Kernel
from fa._trace import Traced, captured_views, trace_functions


@functools.cache
def _kernel(config: AttentionConfig, target: str, schedule: Schedule) -> Kernel:
    return Kernel(config.ir(), target, schedule=schedule, keep_stages=False)


@functools.cache
def _target(device: int | None) -> str:
    return "cpu" if device is None else _native.target_of_device(device)


_DEFAULT = Schedule()
_NOTHING = Traced(None, (), 0)


def _run(
    config: AttentionConfig, schedule: Schedule, library: Library, views: list[View]
) -> tuple[Kernel, Kernel | None]:
    """Runs a kernel, or a second one where the first one refuses; gives both."""
    target = _target(views[0].device)
    kernel = _kernel(config, target, schedule)
    try:
        kernel.run(library, views)
        return kernel, None
    except ValueError:
        # Kernels without TMA take strides that it cannot express. What is wrong
        # in itself they refuse again.
        if target != "sm_90a" or schedule.options:
            raise
        second = _kernel(config, "sm_90", schedule)
        second.run(library, views)
        return kernel, second


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
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    schedule: Mapping[str, Any] | None = None,
) -> Any:
    """Softmax attention: softmax(scale * q k^T) v, row by row.

    Args:
        q: queries [B, Hq, Sq, D]; float32, float16 or bfloat16; any strides on
            the CPU (negative and 0, too), unit stride along D on a GPU. An
            array of NumPy, PyTorch or CuPy, or any object that exports
            `__dlpack__`, `__cuda_array_interface__` or `__array_interface__`.
        k: keys [B, Hk, Sk, D]; Hk divides Hq (grouped-query attention).
        v: values [B, Hk, Sk, Dv].
        score_mod: score_mod(score, b, h, q_idx, kv_idx), the score of a query
            and a key from the scaled product, a float; as for PyTorch's
            FlexAttention. See docs/variants.md for what can be written, and
            fa.scores for some.
        mask_mod: mask_mod(b, h, q_idx, kv_idx), true where the query sees the
            key; see fa.masks. Both may read captured arrays (float32, float16,
            bfloat16, int32, int64 or bool; any rank up to 8, any strides) on
            the device of q by index; an index out of range is clamped to the
            array's ends. Other values of captured arrays, like other lengths,
            need no other kernel; other numbers in Python do.
        is_causal: query i sees keys j <= i, of those that mask_mod shows.
        scale: factor of the scores; 1/sqrt(D) if None.
        return_lse: also return the log-sum-exp of the scores.
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
        ValueError: shapes, types or a scale that do not fit; captured arrays
            on another device.
        TraceError: (a ValueError) a function does what can't be traced; names
            its line.
        TypeError: no array, or one of another element type or kind of device.

    On CUDA arrays of PyTorch and CuPy the call returns before the GPU has
    finished, like any op of theirs on their current stream; on those of other
    libraries, whose streams are not known, it waits for the GPU. The order is
    scale, score_mod, mask, softmax. Source: Dao et al., FlashAttention (2022) and
    FlashAttention-2 (2023); Dong et al., Flex Attention (2024).
    """
    traced = _NOTHING
    if score_mod is not None or mask_mod is not None:
        traced = trace_functions(score_mod, mask_mod)
    call = (q, k, v, is_causal, scale, return_lse, traced.number, traced.arrays)
    if schedule is None:
        known = _native.attention(*call)
        if known is not None:
            return known
    library, views = views_of((q, k, v), ("query", "key", "value"))
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
        traced.variant,
    )
    views += captured_views(traced, q, library, views[0])
    device = views[0].device
    results = [library.empty(q, (batch, query_heads, rows, value_dim), config.dtype, device)]
    if return_lse:
        results.append(library.empty(q, (batch, query_heads, rows), "f32", device))
    views += map(library.view, results)
    first, second = _run(config, Schedule.of(schedule) if schedule else _DEFAULT, library, views)
    if library.is_native and device is not None and not schedule and traced.number >= 0:
        _native.remember_attention(
            *call,
            first=first._program(device),
            second=second and second._program(device),
        )
    out = [library.finish(q, result) for result in results]
    return tuple(out) if return_lse else out[0]
