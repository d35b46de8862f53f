# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments of a call, looked at before anything runs."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from fa._run.arrays import View, compute_type, is_torch_tensor
from fa._run.variant import COORDINATES, Extent, Traced

MAX_SCALE = float(np.finfo(np.float32).max)


def number_of_argument(name: str, value: Any) -> float:
    """The argument, a number or an array of one element, as a float of Python.

    An integer that float64 does not hold is infinite.

    Raises:
        TypeError: anything else, and a tensor whose gradient would be lost.
    """
    if is_torch_tensor(value) and value.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise TypeError(
            f"expected {name} without a gradient, got a tensor that requires one; give "
            f"{name}.detach(), or have a score_mod multiply by the tensor, which gets its gradient "
            "then: score_mod=lambda score, b, h, q_idx, kv_idx: score * factor"
        )
    try:
        if isinstance(value, str):
            raise TypeError
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError, RuntimeError):
        shape = getattr(value, "shape", None)
        of = "" if shape is None else f" of shape {list(shape)}"
        raise TypeError(
            f"expected {name} to be a number, got {type(value).__name__}{of}; convert it"
        ) from None


def is_scale(scale: float) -> bool:
    """Whether scores, of which float32 is the narrowest type, can be multiplied with it."""
    return abs(scale) <= MAX_SCALE


def scale_error(scale: float) -> ValueError:
    """The error for a scale that `is_scale` refuses."""
    scale = number_of_argument("scale", scale)
    return ValueError(
        f"expected a finite scale, got {scale}; leave it out for 1/sqrt(head_dim), or give "
        f"one up to float32's {MAX_SCALE:.2e}"
    )


def check_scale(scale: Any) -> float | None:
    """The scale as a number; raises TypeError or ValueError beyond float32."""
    if scale is None:
        return None
    scale = number_of_argument("scale", scale)
    if not is_scale(scale):
        raise scale_error(scale)
    return scale


_EQUAL = (
    ("batch size", "expand a batch of one, or leave entries out"),
    ("number of heads", "repeat or leave out heads"),
    ("length", "give each key one value"),
    ("head dim", "project both to one, or fill the narrower up with zeros and give the scale"),
)
"""The name of each dimension that two tensors must share, and the remedy."""


def check(q: View, k: View, v: View) -> None:
    """Raises ValueError where shapes and element types do not fit."""
    if compute_type(q.dtype) != "f32" and q.device is not None:
        raise ValueError(
            f"expected query, key and value of float32, float16 or bfloat16 on a GPU, got {q.dtype} "
            f"on CUDA device {q.device}; convert them to float32, or move them to the CPU, which "
            "computes in float64"
        )
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
        (0, "query", q, "key", k),
        (0, "key", k, "value", v),
        (1, "key", k, "value", v),
        (2, "key", k, "value", v),
        (3, "query", q, "key", k),
    )
    for dim, a, x, b, y in pairs:
        if x.shape[dim] != y.shape[dim]:
            what, remedy = _EQUAL[dim]
            raise ValueError(
                f"expected {a} and {b} to have the same {what}, got {x.shape[dim]} and "
                f"{y.shape[dim]}; {remedy}"
            )


def check_captured(traced: Traced, q: View, k: View) -> None:
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


_COUNTED = {"b": "batch entries", "h": "query heads", "q_idx": "queries", "kv_idx": "keys"}


def check_extents(traced: Traced, q: View, k: View) -> None:
    """Raises ValueError where a coordinate of the call would be beyond an array that it indexes."""
    sizes = dict(zip(COORDINATES, (*q.shape[:3], k.shape[2])))
    if 0 in sizes.values():
        return  # nothing is read
    for extent in traced.extents:
        least = sizes[extent.coordinate]
        shape = () if extent.array < 0 else tuple(traced.arrays[extent.array].shape)
        size = extent.size if extent.array < 0 else shape[extent.size]
        if not extent.admits(size, least):
            raise ValueError(_extent_error(extent, shape, size, least))


def _extent_error(extent: Extent, shape: tuple[int, ...], size: int, least: int) -> str:
    reader, coordinate, array, dim = extent
    if array < 0:
        return f"expected {reader} for {least} heads like query, got {size}; make it for those"
    counted = f"{least} elements ({_COUNTED[coordinate]})"
    if not reader:
        return (
            f"expected dimension {dim} of captured array {array}, which {coordinate} indexes, to "
            f"have at least {counted}, got shape {list(shape)}; give it these, or keep the index "
            f"in range, as fa.math.minimum({coordinate}, {max(size - 1, 0)}) does"
        )
    least_text = counted if extent.is_exact() else f"at least {counted}"
    return (
        f"expected dimension {dim} of the array that {reader} reads to have {least_text} or 1, got "
        f"shape {list(shape)}; see its docstring for the dimensions' order"
    )
