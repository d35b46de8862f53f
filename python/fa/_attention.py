# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of arrays: shapes checked, kernel found or compiled, run."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from fa import _native
from fa._arrays import Library, View, library_of, views_of
from fa._checks import number_of_argument
from fa._config import AttentionConfig, Schedule, gpu_target
from fa._kernel import Kernel
from fa._prepared import may_reuse
from fa._trace import Traced, captured_views


@functools.cache
def _kernel(config: AttentionConfig, target: str, schedule: Schedule) -> Kernel:
    return Kernel(config.ir(), target, schedule=schedule, keep_stages=False)


@functools.cache
def _target(device: int | None) -> str:
    if device is None:
        return "cpu"
    return gpu_target() or _native.target_of_device(device)


_DEFAULT = Schedule()
MAX_SCALE = float(np.finfo(np.float32).max)
NOTHING = Traced(None, (), 0)
"""Neither a score nor a mask function."""


def _run(
    config: AttentionConfig,
    schedule: Schedule,
    library: Library,
    views: list[View],
    arrays: tuple[Any, ...],
) -> tuple[Kernel, Kernel | None]:
    """Runs a kernel, or a second one where the first one refuses; gives both."""
    target = _target(views[0].device)
    kernel = _kernel(config, target, schedule)
    try:
        kernel.run(library, views, arrays)
        return kernel, None
    except ValueError:
        # Kernels without TMA take strides that it cannot express. What is wrong
        # in itself they refuse again.
        if target != "sm_90a" or schedule.options:
            raise
        second = _kernel(config, "sm_90", schedule)
        second.run(library, views, arrays)
        return kernel, second


def check(q: View, k: View, v: View) -> None:
    """Raises ValueError where shapes and element types do not fit."""
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


def _check_captured(traced: Traced, q: View, k: View) -> None:
    """Raises ValueError where scores would be made of arrays without elements."""
    if 0 in (*q.shape[:3], k.shape[2]):
        return  # nothing is read
    for number, array in enumerate(traced.arrays):
        if 0 in array.shape:
            raise ValueError(
                f"expected captured array {number} to have elements, got shape "
                f"{list(array.shape)} for {q.shape[2]} queries and {k.shape[2]} keys; give it the "
                "elements that are read"
            )


def _check_extents(traced: Traced, q: Any, k: Any) -> None:
    """Raises ValueError where a function of fa's is not made for arrays of these sizes."""
    shapes = [x.shape if hasattr(x, "shape") else library_of(x).view(x).shape for x in (q, k)]
    if any([len(shape) != 4 for shape in shapes]):
        return  # which is an error of its own
    (batch, heads, queries, _), (_, _, keys, _) = shapes
    wanted = {"b": batch, "h": heads, "q_idx": queries, "kv_idx": keys}
    for reader, coordinate, array, at in traced.extents:
        least, is_exact = wanted[coordinate], coordinate == "b" or coordinate == "h"
        shape = () if array < 0 else traced.arrays[array].shape
        size = at if array < 0 else shape[at]
        if (
            least == 0
            or size == least
            or (size == 1 and array >= 0)
            or (size > least and not is_exact)
        ):
            continue
        if array < 0:
            raise ValueError(
                f"expected {reader} for {least} heads like query, got {size}; make it for those"
            )
        what = {"b": "batch entries", "h": "query heads", "q_idx": "queries", "kv_idx": "keys"}
        raise ValueError(
            f"expected dimension {at} of the array that {reader} reads to have "
            f"{'' if is_exact else 'at least '}{least} elements ({what[coordinate]}) or 1, got "
            f"shape {list(shape)}; see its docstring for the dimensions' order"
        )


def attend(
    q: Any,
    k: Any,
    v: Any,
    traced: Traced = NOTHING,
    is_causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    schedule: Mapping[str, Any] | None = None,
    is_new: bool = False,
) -> Any:
    """`fa.attention` once its functions are traced; `is_new`: `_native` does not know it.

    Reads the arrays' memory and knows nothing of gradients: what records or
    replays operations on arrays has to stand before it.
    """
    if traced.extents:
        _check_extents(traced, q, k)
    call = (q, k, v, is_causal, scale, return_lse, traced.number, traced.arrays)
    if schedule is None and not is_new:
        known = _native.attention(*call)
        if known is not None:
            return known
    if getattr(q, "is_meta", False) is True:
        from fa import _torch_op

        return _torch_op.call(q, k, v, traced, is_causal, scale, return_lse, schedule)
    library, views = views_of((q, k, v), ("query", "key", "value"))
    check(*views)
    _check_captured(traced, *views[:2])
    if scale is not None:
        scale = number_of_argument("scale", scale)
    if scale is not None and not abs(scale) <= MAX_SCALE:
        raise ValueError(
            f"expected a finite scale, got {scale}; leave it out for 1/sqrt(head_dim), or give one "
            f"up to float32's {MAX_SCALE:.2e}"
        )
    (batch, query_heads, rows, head_dim), value_dim = (
        views[0].shape,
        views[2].shape[3],
    )
    device = views[0].device
    sizes = (batch, query_heads, rows, value_dim)
    if query_heads == 0:
        empty = [library.empty(q, sizes, views[0].dtype, device)]
        if return_lse:
            empty.append(library.empty(q, sizes[:3], "f32", device))
        empty = [library.finish(q, result) for result in empty]
        return tuple(empty) if return_lse else empty[0]
    config = AttentionConfig(
        views[0].dtype,
        query_heads,
        views[1].shape[1],
        head_dim,
        value_dim,
        bool(is_causal),
        scale,
        bool(return_lse),
        traced.variant,
    )
    views += captured_views(traced, q, library, views[0])
    results = [library.empty(q, sizes, config.dtype, device)]
    if return_lse:
        results.append(library.empty(q, sizes[:3], "f32", device))
    views += map(library.view, results)
    inputs = (q, k, v, *traced.arrays)
    wanted = Schedule.of(schedule) if schedule else _DEFAULT
    first, second = _run(config, wanted, library, views, inputs)
    # Whether lists of blocks can be used again is asked in each call.
    asks = may_reuse(first.list_reads, library.name)
    if (
        library.is_native
        and not asks
        and device is not None
        and not schedule
        and traced.number >= 0
    ):
        _native.remember_attention(
            *call,
            first=first._program(device),
            second=second and second._program(device),
        )
    out = [library.finish(q, result) for result in results]
    return tuple(out) if return_lse else out[0]
