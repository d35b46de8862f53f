# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of a call whose functions are traced."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fa import _native
from fa._run.arrays import (
    Array,
    View,
    compute_type,
    is_readable,
    is_torch_tensor,
    library_of,
    readable,
    views_of,
)
from fa._run.call import Call, captured_views, lists_to_remember, target_of
from fa._run.checks import check, check_captured, check_extents, check_scale
from fa._run.config import DEFAULT_SCHEDULE, AttentionConfig, Schedule
from fa._run.kernel import Kernel
from fa._run.lists import Lists
from fa._run.variant import is_padded


class Results(NamedTuple):
    """The results of the forward, and the gradients with respect to them."""

    out: Any
    """[B, Hq, Sq, Dv]"""
    lse: Any
    """[B, Hq, Sq], float32, or float64 where q is"""
    out_grad: Any
    lse_grad: Any = None
    """None: the log-sum-exp was not used."""


@functools.cache
def _kernel(
    *config: Any, target: str, wrt: tuple[int, ...], deterministic: bool, schedule: Schedule
) -> Kernel:
    """The kernel of an `AttentionConfig` with these values."""
    first = 3  # query, key and value come before captured arrays
    numbers = "+".join(str(first + number) for number in wrt) or "none"
    ir = AttentionConfig(*config).ir()
    return Kernel(
        ir,
        target,
        schedule=schedule,
        backward=numbers,
        deterministic=deterministic,
        keep_stages=False,
    )


def _is_deterministic(array: Any) -> bool:
    """Whether PyTorch is to compute the same bits each time."""
    return is_torch_tensor(array) and sys.modules["torch"].are_deterministic_algorithms_enabled()


def _check_results(views: Sequence[View], names: Sequence[str], q: View, v: View) -> None:
    """Raises ValueError for shapes and types other than those that the forward gives."""
    lse = q.shape[:3]
    for view, name in zip(views, names):
        is_lse = name.startswith("lse")
        shape, dtype = (lse, compute_type(q.dtype)) if is_lse else ((*lse, v.shape[3]), q.dtype)
        if view.shape != shape or view.dtype != dtype:
            raise ValueError(
                f"expected {name} of shape {list(shape)} and element type {dtype}, got "
                f"{list(view.shape)} and {view.dtype}; give the results of fa.attention for these "
                "arrays with return_lse=True, and gradients of its shapes and types"
            )


def known_gradients(prepared: Lists | None, *arguments: Any) -> Any:
    """The gradients of a call that `_native` knows and nobody else has to see, else None.

    Args:
        prepared: lists of a prepared mask.
        arguments: those of `Call.key`, of `Results`, and whether bits are the same each time.
    """
    if prepared is None:
        return _native.attention_backward(*arguments)
    return _native.prepared_attention_backward(prepared.calls, *arguments)


def differentiate(
    call: Call,
    results: Results,
    wrt: Sequence[int] = (),
    has_run: bool = False,
    deterministic: bool | None = None,
    schedule: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Gradients with respect to q, k, v and captured arrays.

    Args:
        call: the forward's call.
        results: its results, and the gradients with respect to them.
        wrt: numbers of captured arrays, all of floating-point type, in order.
        has_run: these very arrays have been the forward's, and the results are its own, of
            which autograd gives gradients of their shapes and types: nothing is checked again,
            nor is `_native` asked, which whoever calls has done.
        deterministic: whether they have the same bits each time; None asks PyTorch.
        schedule: as in `fa.compile`, of the gradient's kernels.

    Raises:
        ValueError: shapes or types that do not fit.
    """
    q, k, v, traced, is_causal, scale = call[:6]
    if deterministic is None:
        deterministic = _is_deterministic(q)
    deterministic = bool(deterministic)
    is_usual = schedule is None and not wrt and call.is_usual(has_lists=True)
    if is_usual and not has_run:
        known = known_gradients(traced.prepared, *call.key(), *results, deterministic)
        if known is not None:
            return list(known)
    has_lse = results.lse_grad is not None
    names = ("out", "lse", "out_grad", "lse_grad")[: 4 if has_lse else 3]
    library, views = views_of((q, k, v), ("query", "key", "value"))
    given = [_readable(array) for array in results[: len(names)]]
    device = views[0].device
    if has_run:
        of_results = [library.view(array) for array in given]
    else:
        check(*views)
        check_captured(traced, *views[:2])
        of_results = views_of((q, *given), ("query", *names))[1][1:]
        _check_results(of_results, names, views[0], views[2])
    captured = captured_views(traced, q, library, views[0])
    made = [library.result(x, view, view.shape[-1]) for x, view in zip((q, k, v), views)]
    computed = compute_type(views[0].dtype)
    made += [library.empty(q, captured[number].shape, computed, device) for number in wrt]
    heads, dims = views[0].shape[1], views[0].shape[3]
    if heads > 0:
        if not has_run:
            check_extents(traced, *views[:2])
            scale = check_scale(scale)
        target = target_of(device)
        kernel = _kernel(
            *(views[0].dtype, heads, views[1].shape[1], dims, views[2].shape[3]),
            *(bool(is_causal), scale, has_lse, traced.variant and traced.variant.without_arrays()),
            target=target,
            wrt=tuple(wrt),
            deterministic=deterministic and target != "cpu",  # where they always have
            schedule=Schedule.of(schedule) if schedule else DEFAULT_SCHEDULE,
        )
        read = readable(library, (q, k, v), views, ("query", "key", "value"))
        arguments = [*read, *captured, *of_results, *map(library.view, made)]
        kept = kernel.run(library, arguments, traced.prepared, traced.arrays, like=q)
        reads = kernel.list_reads
        is_usual = is_usual and call.is_usual(kept is not None or reads is None)
        if is_usual and library.is_native:
            _native.remember_attention_backward(
                *call.key(),
                *(*given, None)[:4],
                deterministic,
                first=kernel.runnable(device),
                extents=[extent.native() for extent in traced.extents],
                reads=reads,
                **lists_to_remember(traced, kept),
            )
    else:
        for array in made:
            _fill_with_zeros(array)
    for place, number in enumerate(wrt):
        made[3 + place] = _shaped_like(
            made[3 + place], traced.arrays[number], traced.variant.captured[number]
        )
    made = [library.finish(q, array) for array in made]
    for place, number in enumerate(wrt):  # sums, of what is computed in
        made[3 + place] = _converted(made[3 + place], traced.arrays[number].dtype)
    return made


def _readable(array: Any) -> Any:
    """A result, or its gradient, as kernels read it: autograd's may be one number, repeated,
    and a GPU wants unit stride and rows of vectors that begin at 16 bytes."""
    if not is_torch_tensor(array) or array.dim() == 0:
        return array
    takes_all = not array.is_cuda or array.dim() != 4  # but the unit stride
    if array.stride(-1) == 1 and (takes_all or is_readable(library_of(array).view(array))):
        return array
    return array.clone(memory_format=sys.modules["torch"].contiguous_format)


def _fill_with_zeros(array: Any) -> None:
    """Writes the gradient of keys and values that no query head reads."""
    if is_torch_tensor(array):
        array.zero_()
    elif isinstance(array, Array):
        np.asarray(array)[...] = 0
    else:
        array[...] = 0


def _converted(array: Any, dtype: Any) -> Any:
    """An array of that type, by its library."""
    if array.dtype == dtype:
        return array
    return array.to(dtype) if is_torch_tensor(array) else array.astype(dtype)


def _shaped_like(gradient: Any, array: Any, type: str) -> Any:
    """A gradient without the dimension or element that the kernel's array has in addition."""
    shape = tuple(array.shape)
    if math.prod(shape) == 0:
        return gradient[:0].reshape(shape)  # of the one element in its place
    return gradient.reshape(shape) if is_padded(type) else gradient
