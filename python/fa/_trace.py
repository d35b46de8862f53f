# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Score and mask functions in Python as regions of `fa.attention`."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from fa import _memo
from fa._arrays import Library, View, library_of
from fa._rebind import rebind, uncompiled
from fa._scalars import (
    COORDINATES,
    Captures,
    PartlyIndexed,
    Region,
    Scalar,
    TraceError,
    current_region,
    enter,
    is_array,
    is_caught_by_user,
    is_tracing,
    lift,
)
from fa._variant import Extent, Function, Variant, is_padded

_COORDINATES = (("%b", "b"), ("%h", "h"), ("%i", "q_idx"), ("%j", "kv_idx"))


def _place(function: Any) -> str:
    """Where a function was written, for a message."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    name = getattr(function, "__name__", type(function).__name__)
    return f"{code.co_filename}:{code.co_firstlineno}: in {name}: " if code else f"{name}: "


_SIGNATURES = {
    "score_mod": "(score, b, h, q_idx, kv_idx)",
    "mask_mod": "(b, h, q_idx, kv_idx)",
}


def _require_arguments(function: Callable[..., Any], what: str, arguments: list[Scalar]) -> None:
    """Raises TypeError if a function doesn't take as many arguments as it is given."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # not known, as of some builtins
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        raise TypeError(
            f"{_place(function)}expected {what} to take the {len(arguments)} positional arguments "
            f"{_SIGNATURES[what]}, got a function of {signature}; give it these"
        ) from None


def _run(function: Callable[..., Any], region: Region, arguments: list[Scalar]) -> Any:
    """The function's result; raises also an error of tracing that the function caught."""
    region.errors = errors = []
    try:
        result = function(*arguments)
        for caught in filter(is_caught_by_user, errors):
            caught.add_note("the function caught this error; what it did then is not traced")
            raise caught
        return result
    finally:
        region.errors = []
        errors.clear()  # their tracebacks hold frames


def _call(function: Callable[..., Any], what: str, region: Region, arguments: list[Scalar]) -> Any:
    """The function's result; made anew where it can't take traced values."""
    try:
        return _run(function, region, arguments)
    except Exception as first:
        # Or whatever a library says of values that it does not know.
        if isinstance(first, TraceError) and not first.retry:
            raise
        if isinstance(first, TypeError):
            _require_arguments(function, what, arguments)
        if not isinstance(first, TraceError):
            first.add_note(f"raised while fa traced the {what} {_place(function)[:-2]}")
        try:
            return _run(rebind(function), region, arguments)
        except TraceError:
            raise
        except Exception as second:
            if _is_of_dynamo(second):
                raise TraceError(
                    f"{_place(function)}expected {what} to be traced as it is, got a call of what "
                    "torch.compile made in it; call the function that was given to torch.compile"
                ) from None
            if isinstance(first, TraceError):
                raise second from first
            raise first from second


def _is_of_dynamo(raised: Exception) -> bool:
    """Whether torch.compile tried to compile a function of traced values."""
    dynamo = sys.modules.get("torch._dynamo.exc")
    return dynamo is not None and isinstance(raised, dynamo.TorchDynamoException)


def _trace_one(function: Callable[..., Any], what: str, captures: Captures) -> Function:
    if not callable(function):
        raise TypeError(
            f"expected {what} to be a function, got {type(function).__name__}; "
            "see fa.masks and fa.scores for some"
        )
    function = uncompiled(function)
    region = Region(captures, what)
    arguments = [Scalar(region, name, "index", COORDINATES) for name, _ in _COORDINATES]
    if what == "score_mod":
        arguments.insert(0, Scalar(region, "%s", "f32"))
    before = enter(region)
    try:
        result = _result(function, what, region, _call(function, what, region, arguments))
        return Function(tuple(region.lines), result)
    finally:
        enter(before)


def _result(function: Any, what: str, region: Region, value: Any) -> str:
    """The name of what a function returned, if it has the right type."""
    wanted, kind = ("f32", "a float") if what == "score_mod" else ("i1", "a boolean")
    remedy = {
        "score_mod": "return the score, changed or not; .float() or * 1.0 makes a float",
        "mask_mod": "return a comparison, true where the key is seen",
    }[what]
    is_one = isinstance(value, (Scalar, bool, int, float)) or (
        is_array(value) and all(size == 1 for size in value.shape)
    )
    if is_one:
        scalar = lift(region, value)
        if scalar._type == wanted:
            return scalar._name
        got = scalar.describe()
    elif is_array(value):
        got = f"an array of shape {list(value.shape)}"
    elif isinstance(value, PartlyIndexed):
        got = f"a captured array of which dimensions {list(value.shape)} have no index"
    else:
        got = "None" if value is None else f"a {type(value).__name__}"
    raise TraceError(f"{_place(function)}expected {what} to return {kind}, got {got}; {remedy}")


class Traced(NamedTuple):
    """A variant, and the arrays that its kernel reads."""

    variant: Variant | None
    """None: neither a score nor a mask function."""
    arrays: tuple[Any, ...]
    number: int
    """Another one for each variant; 0 for None, -1 for what is not numbered:
    arrays that must be looked at in Python before they are arguments."""
    extents: tuple[Extent, ...] = ()
    """What is asked of sizes in each call."""


_numbers: dict[Variant, int] = {}
_lock = threading.Lock()


def number_of(variant: Variant) -> int:
    """The number of a variant, as `Traced` has it."""
    if any(map(is_padded, variant.captured)):
        return -1
    with _lock:
        return _numbers.setdefault(variant, len(_numbers) + 1)


def trace_both(score_mod: Any, mask_mod: Any) -> Traced:
    """Traces the functions that are not None."""
    captures = Captures()
    score = None if score_mod is None else _trace_one(score_mod, "score_mod", captures)
    mask = None if mask_mod is None else _trace_one(mask_mod, "mask_mod", captures)
    variant = Variant(
        score,
        mask,
        tuple(capture.type for capture in captures.list),
        tuple(sorted(captures.lengths)),
    )
    arrays = tuple(capture.array for capture in captures.list)
    return Traced(variant, arrays, number_of(variant), tuple(captures.extents))


def trace_functions(score_mod: Any, mask_mod: Any) -> Traced:
    """Traces the functions that are not None, if they were not before."""
    found = _memo.fingerprint(score_mod, mask_mod)
    if found is None:
        return trace_both(score_mod, mask_mod)
    key, tensors = found
    known = _memo.get(key)
    if known is not None:
        arrays = tuple([tensors[place] for place in known.order])
        return Traced(known.variant, arrays, known.number, known.extents)
    with _memo.watch() as watch:
        traced = trace_both(score_mod, mask_mod)
    if watch.is_certain:
        _memo.put(key, tensors, *traced)
    return traced


def trace(
    *,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
) -> Variant:
    """What a score and a mask function become: `print(fa.trace(mask_mod=f))`.

    Args:
        score_mod: score_mod(score, b, h, q_idx, kv_idx), as for `fa.attention`.
        mask_mod: mask_mod(b, h, q_idx, kv_idx), as for `fa.attention`.

    Returns:
        The variant. Its text is the MLIR of the two regions; as `variant` of a
        `fa.AttentionConfig` it can be compiled: `fa.compile(config, "sm_90a")`.
        Such a kernel takes q, k, v, the arrays in `variant.arrays`, and results.

    Raises:
        TraceError: a function does what can't be traced.
    """
    variant, arrays, *_ = trace_both(score_mod, mask_mod)
    padded = (a[..., None] if is_padded(t) else a for a, t in zip(arrays, variant.captured))
    return replace(variant, arrays=tuple(padded))


def query_length() -> Scalar:
    """The number of queries Sq, inside a score or mask function.

    Known when the kernel runs: another length is no other kernel.
    """
    return _length("query_length")


def key_length() -> Scalar:
    """The number of keys Sk, inside a score or mask function.

    Known when the kernel runs: another length is no other kernel.
    """
    return _length("key_length")


def expect_heads(h: Any, heads: int, reader: str) -> Any:
    """h, of a function that is made for so many heads: a call with others is an error.

    Args:
        h: the head.
        heads: how many query heads a call must have.
        reader: the function's name: "fa.scores.alibi".
    """
    if is_tracing():
        extent = Extent(reader, "h", -1, heads)
        current_region(reader).captures.extents[extent] = None
    return h


def call_with_lengths(
    function: Callable[..., Any],
    lengths: tuple[Scalar, Scalar],
    sequence: Scalar,
    sequences: int,
    arguments: tuple[Any, ...],
) -> Any:
    """What a function of packed sequences returns.

    Args:
        function: score_mod or mask_mod.
        lengths: of queries and keys, of the sequence.
        sequence: its number, the function's batch entry.
        sequences: how many there are.
        arguments: what it is called with.
    """
    region = current_region("a function of packed sequences")
    before = region.lengths, region.sequences
    region.lengths = dict(zip(("query_length", "key_length"), lengths))
    region.sequences = (sequence._name, sequences)
    try:
        return function(*arguments)
    finally:
        region.lengths, region.sequences = before


def _length(name: str) -> Scalar:
    region = current_region(f"fa.{name}()")
    if region.lengths:
        return region.lengths[name]
    region.captures.lengths.add(name)
    return Scalar(region, f"%{name}", "index", COORDINATES)


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
