# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A call whose functions are traced: shapes checked, kernel found or compiled, run."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from fa import _native
from fa._run.arrays import Library, View, compute_type, library_of, readable, views_of
from fa._run.checks import check, check_captured, check_extents, check_scale
from fa._run.config import DEFAULT_SCHEDULE, AttentionConfig, Schedule
from fa._run.environment import gpu_target
from fa._run.kernel import Kernel
from fa._run.variant import NOTHING, Traced, is_padded


class Call(NamedTuple):
    """A call whose functions are traced; immutable.

    The arguments are those of `fa.attention`, but for `traced`, which stands for
    score_mod, mask_mod and dropout.
    """

    q: Any
    k: Any
    v: Any
    traced: Traced = NOTHING
    is_causal: bool = False
    scale: float | None = None
    return_lse: bool = False
    schedule: Mapping[str, Any] | None = None

    def key(self) -> tuple[Any, ...]:
        """The arguments as `_native` takes them."""
        traced = self.traced
        return (*self[:3], *self[4:7], traced.number, traced.arrays)

    def is_usual(self, has_lists: bool = False) -> bool:
        """Whether `_native` may know it: a variant with a number, and nothing of a call's own.

        Args:
            has_lists: whether lists are there that go with it.
        """
        traced = self.traced
        is_plain = traced.prepared is None or has_lists
        return self.schedule is None and traced.number >= 0 and is_plain


@functools.cache
def _kernel(config: AttentionConfig, target: str, schedule: Schedule) -> Kernel:
    return Kernel(config.ir(), target, schedule=schedule, keep_stages=False)


@functools.cache
def target_of(device: int | None) -> str:
    if device is None:
        return "cpu"
    return gpu_target() or _native.target_of_device(device)


def _run(
    config: AttentionConfig,
    schedule: Schedule,
    library: Library,
    views: list[View],
    traced: Traced,
) -> tuple[Kernel, Kernel | None, tuple[int, int] | None]:
    """Runs a kernel, or a second one where the first one refuses; gives both, and lists."""
    device = views[0].device
    target = target_of(device)
    kernel = _kernel(config, target, schedule)
    if device is not None and gpu_target() is not None:
        own = _native.target_of_device(device)
        if target != own:
            kernel.note(f"compiled for {target}, as FA_TARGET says, on a device of {own}")
    try:
        return kernel, None, kernel.run(library, views, traced.prepared, traced.arrays)
    except ValueError as reason:
        # Kernels without TMA take strides that it cannot express. What is wrong
        # in itself they refuse again.
        if target != "sm_90a" or schedule.options:
            raise
        second = _kernel(config, "sm_90", schedule)
        kept = second.run(library, views, traced.prepared, traced.arrays)
        second.note(f"compiled beside the kernel of sm_90a, which refused: {reason}")
        return kernel, second, kept


def lists_to_remember(traced: Traced, kept: tuple[int, int] | None) -> dict[str, Any]:
    """The arguments that tell `_native` of kept lists.

    Args:
        traced: the call's variant, with the mask's `Lists`.
        kept: where they are, and the stream that they were made on.
    """
    if kept is None:
        return {}
    return {"prepared": traced.prepared.calls, "buffer": kept[0], "stream": kept[1]}


def captured_views(traced: Traced, query: Any, library: Library, to: View) -> list[View]:
    """The captured arrays as arguments of a kernel that runs where `to` is.

    Args:
        traced: the variant and its arrays.
        query: an array of `library` there.
        library: the library of q, k and v.
        to: the query's view.

    Raises:
        ValueError: an array on another device, or of another library on a GPU.
    """
    views: list[View] = []
    if traced.variant is None:
        return views
    for number, (array, type) in enumerate(zip(traced.arrays, traced.variant.captured)):
        own = library_of(array)
        view = own.view(array)
        if view.device != to.device or (view.device is not None and own is not library):
            if view.device is not None or view.shape or library.name != "torch":
                raise ValueError(
                    f"expected captured array {number} ({array.__class__.__name__} of shape "
                    f"{list(view.shape)}) to be of the same library and device as query, got "
                    f"{_device(view)} and {_device(to)}; move it to where query is"
                )
            # A number of the CPU, as PyTorch lets them meet tensors of a GPU.
            moved = sys.modules["torch"].as_tensor(array).to(query.device)
            view = library.view(moved)._replace(owner=moved)
        if 0 in view.shape:
            view = _placeholder(view, query, library)
        if is_padded(type):
            view = view._replace(shape=(*view.shape, 1), strides=(*view.strides, 1))
        views.append(view)
    return views


def _device(view: View) -> str:
    return "the CPU" if view.device is None else f"CUDA device {view.device}"


def _placeholder(view: View, query: Any, library: Library) -> View:
    """An array of one element for an empty one, for a call without elements."""
    ones = (1,) * len(view.shape)
    array = library.empty(query, ones, view.dtype, view.device)
    return library.view(array)._replace(owner=array)


def attend(call: Call) -> Any:
    """The result of `fa.attention`: (out, lse) or out.

    Reads the arrays' memory and ignores gradients. Code that records or replays operations
    on arrays must come before it.
    """
    q, k, v, traced, is_causal, scale, return_lse, schedule = call
    if call.is_usual():
        known = _native.attention(*call.key())
        if known is not None:
            return known
    library, views = views_of((q, k, v), ("query", "key", "value"))
    check(*views)
    check_captured(traced, *views[:2])
    scale = check_scale(scale)
    (batch, query_heads, rows, head_dim), value_dim = views[0].shape, views[2].shape[3]
    device = views[0].device
    sizes = (batch, query_heads, rows, value_dim)
    results = [library.result(q, views[0], value_dim)]
    if return_lse:
        results.append(library.empty(q, sizes[:3], compute_type(views[0].dtype), device))
    if query_heads > 0:
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
        views = readable(library, (q, k, v), views, ("query", "key", "value"))
        views += captured_views(traced, q, library, views[0])
        check_extents(traced, *views[:2])
        views += map(library.view, results)
        wanted = Schedule.of(schedule) if schedule else DEFAULT_SCHEDULE
        first, second, kept = _run(config, wanted, library, views, traced)
        reads = (second or first).list_reads
        if library.is_native and call.is_usual(kept is not None or reads is None):
            programs = [first.runnable(device), second and second.runnable(device)]
            if kept is not None and second is not None:
                programs = [programs[1], None]  # whose lists they are
            _native.remember_attention(
                *call.key(),
                first=programs[0],
                second=programs[1],
                extents=[extent.native() for extent in traced.extents],
                reads=reads,
                **lists_to_remember(traced, kept),
            )
    out = [library.finish(q, result) for result in results]
    return tuple(out) if return_lse else out[0]
