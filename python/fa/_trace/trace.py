# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Score and mask functions in Python as regions of `fa.attention`.

fa calls a function once with traced values. PyTorch's and NumPy's functions dispatch to these
(`__torch_function__`, `__array_function__`, `__array_ufunc__`). Functions of JAX do not; JAX
itself traces them (`jaxpr`).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fa._run.arrays import compute_type, compute_type_of, is_torch_tensor
from fa._run.variant import Extent, Function, Traced, Variant, is_padded, number_of
from fa._trace import functions, jaxpr, memo  # noqa: F401 (functions: operators of traced values)
from fa._trace.captured import (
    Captures,
    Elements,
    IndexableArray,
    PartlyIndexed,
    is_array,
    lift,
)
from fa._trace.custom import intercepted
from fa._trace.errors import TraceError, collected, error, is_caught_by_user, users_frames
from fa._trace.made import Made, plain
from fa._trace.numbers import note_traced
from fa._trace.scalars import (
    COORDINATE_NAMES,
    COORDINATES,
    FUNCTIONS,
    Region,
    Scalar,
    current_region,
    enter,
    is_tracing,
)


def _operator(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from fa._trace import operators  # which imports PyTorch

    return operators.call(function, args, kwargs)


FUNCTIONS["torch.ops"] = _operator

_SIGNATURES = {
    "score_mod": "(score, b, h, q_idx, kv_idx)",
    "mask_mod": "(b, h, q_idx, kv_idx)",
}


def _place(function: Any) -> str:
    """Where a function was written, for a message."""
    function = inspect.unwrap(plain(function))
    while hasattr(function, "func"):  # functools.partial
        function = inspect.unwrap(plain(function.func))
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    name = getattr(function, "__name__", type(function).__name__)
    return f"{code.co_filename}:{code.co_firstlineno}: in {name}: " if code else f"{name}: "


def _require_arguments(function: Callable[..., Any], what: str, count: int) -> None:
    """Raises TypeError if a function doesn't take as many arguments as it is given."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # not known, as of some builtins
        return
    try:
        signature.bind(*[None] * count)
    except TypeError:
        raise TypeError(
            f"{_place(function)}expected {what} to take the {count} positional arguments "
            f"{_SIGNATURES[what]}, got a function of {signature}; give it these"
            f"{_maker_hint(function, signature)}"
        ) from None


def _maker_hint(function: Any, signature: inspect.Signature) -> str:
    """A hint for a maker that was not called, such as fa.masks.sliding_window."""
    module = getattr(function, "__module__", "") or ""
    if module not in ("fa.masks", "fa.scores", "fa._masks.blocks"):
        return ""
    return f" by calling it first: {function.__name__}(...) makes one"


_stance = threading.RLock()


@contextlib.contextmanager
def _uncompiled() -> Iterator[None]:
    """Runs results of torch.compile as the original functions, whatever calls them.

    The stance is the process's: code of other threads that is compiled runs as it was
    written for as long, which gives the same results.
    """
    torch = sys.modules.get("torch")
    if "torch._dynamo.eval_frame" not in sys.modules or torch.compiler.is_compiling():
        yield
        return
    set_stance = getattr(torch.compiler, "set_stance", None)  # from PyTorch 2.6 on
    with _stance, set_stance("force_eager") if set_stance else contextlib.nullcontext():
        yield


def _is_other_array(value: Any) -> bool:
    """Whether traced values can't index it: an array, and no tensor of PyTorch."""
    if type(value) in (IndexableArray, Scalar) or not is_array(value):
        return False
    return len(value.shape) > 0 and not hasattr(value, "__torch_function__")


def with_indexable(function: Any, own: Callable[[Any], Any] = IndexableArray) -> Any:
    """The function with its own variables that are arrays as `IndexableArray`s.

    Its own variables are closure cells, globals that it names, defaults and arguments of
    functools.partial. Arrays in objects, containers and other functions stay as they are.

    Args:
        function: the user's function.
        own: converts an array that is no tensor of PyTorch.
    """
    function = plain(function)

    def made(value: Any) -> Any:
        return own(value) if _is_other_array(value) else value

    if type(function) is functools.partial:
        inner = with_indexable(function.func, own)
        keywords = {name: made(value) for name, value in function.keywords.items()}
        return functools.partial(inner, *map(made, function.args), **keywords)
    if not isinstance(function, types.FunctionType):
        return function

    def made_cell(cell: types.CellType) -> types.CellType:
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            return cell
        return types.CellType(own(value)) if _is_other_array(value) else cell

    space, cells = function.__globals__, function.__closure__ or ()
    defaults, keywords = function.__defaults__ or (), function.__kwdefaults__ or {}
    named = memo.names(function.__code__)
    globals_ = {name: own(space[name]) for name in named if _is_other_array(space.get(name))}
    closure = tuple(map(made_cell, cells))
    is_same = all(new is old for new, old in zip(closure, cells))
    if is_same and not globals_ and not any(map(_is_other_array, (*defaults, *keywords.values()))):
        return function
    result = types.FunctionType(
        function.__code__,
        {**space, **globals_} if globals_ else space,
        function.__name__,
        tuple(map(made, defaults)) or None,
        closure or None,
    )
    result.__kwdefaults__ = {name: made(value) for name, value in keywords.items()} or None
    result.__module__ = function.__module__
    return result


def call_function(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a user's function that one of fa's calls, traced if fa is tracing."""
    if is_tracing() and all(type(x) is Scalar for x in arguments):
        what = "score_mod" if len(arguments) == 5 else "mask_mod"
        return _call(function, what, arguments[0]._region, list(arguments))
    return function(*arguments)


def _undrawn() -> contextlib.AbstractContextManager[Any]:
    """Has functions of PyTorch that draw random numbers raise."""
    torch = sys.modules.get("torch")
    if torch is None or torch.compiler.is_compiling():
        return contextlib.nullcontext()
    from fa._trace.drawn import NothingDrawn

    return NothingDrawn()


def _run(function: Callable[..., Any], arguments: list[Any]) -> Any:
    """The function's result; raises also an error of tracing that the function caught."""
    with collected() as errors, _uncompiled(), _undrawn():
        result = function(*arguments)
        for caught in filter(is_caught_by_user, errors):
            caught.add_note("the function caught this error; fa did not trace how it went on")
            raise caught
        return result


def _call(function: Callable[..., Any], what: str, region: Region, arguments: list[Any]) -> Any:
    """The function's result for traced values; by JAX, where it is of JAX."""
    before = region.state() if "jax" in sys.modules else ()
    try:
        return _run(with_indexable(function), arguments)
    except Exception as first:
        if isinstance(first, TypeError) and not isinstance(first, TraceError):
            _require_arguments(function, what, len(arguments))
        # Only what JAX could not do: elsewhere its rules would be other ones.
        if "jax" in sys.modules and jaxpr.is_of_jax(first):
            region.reset(before)
            try:
                own = with_indexable(function, jaxpr.own_array)
                return jaxpr.call(own, region, arguments)
            except TraceError as second:  # which says it all
                raise second from None
        if _is_of_script(first):
            raise TraceError(
                f"{_place(function)}expected {what} without compiled code, got a call of a result of "
                "torch.jit.script in it; call the function that was given to torch.jit.script"
            ) from None
        if _is_of_dynamo(first):
            raise TraceError(
                f"{_place(function)}expected {what} without compiled code, got a call of a result of "
                "torch.compile in it; call the function that was given to torch.compile"
            ) from None
        if not isinstance(first, TraceError):
            first.add_note(f"raised while fa traced the {what} {_place(function)[:-2]}")
        raise


def _is_of_script(raised: Exception) -> bool:
    """Whether a scripted function of PyTorch refused a traced value."""
    return isinstance(raised, RuntimeError) and "but instead found type 'Scalar'" in str(raised)


def _is_of_dynamo(raised: Exception) -> bool:
    """Whether torch.compile tried to compile a function of traced values."""
    dynamo = sys.modules.get("torch._dynamo.exc")
    return dynamo is not None and isinstance(raised, dynamo.TorchDynamoException)


def _require_function(function: Any, what: str) -> None:
    jit = sys.modules.get("torch.jit")
    if jit is not None and isinstance(plain(function), (jit.ScriptFunction, jit.ScriptModule)):
        raise TypeError(
            f"expected {what} to be a function in Python, got a {type(function).__name__} of "
            "torch.jit; give the function that was given to torch.jit.script"
        )
    if callable(function):
        return
    if is_array(function):
        remedy = (
            "give a function that reads it, as fa.masks.block_sparse and "
            "lambda b, h, q_idx, kv_idx: seen[q_idx, kv_idx] do"
            if what == "mask_mod"
            else "give a function that adds it, as fa.scores.bias does"
        )
        got = f"an array of shape {list(function.shape)}"
    else:
        got, remedy = type(function).__name__, "see fa.masks and fa.scores for some"
    raise TypeError(f"expected {what} to be a function, got {got}; {remedy}")


def _trace_one(
    function: Callable[..., Any], what: str, captures: Captures, is_torch: bool
) -> Function:
    _require_function(function, what)
    region = Region(captures, is_torch)
    before = enter(region)
    try:
        with intercepted():
            arguments = [Scalar(region, name, "index", COORDINATES) for name in COORDINATE_NAMES]
            if what == "score_mod":
                arguments.insert(0, Scalar(region, "%s", region.real))
            result = _result(function, what, region, _call(function, what, region, arguments))
        return Function(tuple(region.lines), result)
    except TraceError as error:
        raise error.with_traceback(users_frames(error.__traceback__)) from error.__cause__
    finally:
        enter(before)


def _result(function: Any, what: str, region: Region, value: Any) -> str:
    """The name of what a function returned, if it has the right type."""
    wanted, kind = (region.real, "a float") if what == "score_mod" else ("i1", "a boolean")
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
    elif isinstance(value, Elements):
        got = f"an array of {list(value.shape)} traced elements"
        remedy = "index the array, or reduce it to one value, as .sum() and .any() do"
    elif callable(value):
        got = f"a function{_maker_hint(function, inspect.signature(value))}"
    else:
        got = "None" if value is None else f"a {type(value).__name__}"
    raise TraceError(f"{_place(function)}expected {what} to return {kind}, got {got}; {remedy}")


def _trace_both(
    score_mod: Any, mask_mod: Any, is_torch: bool, computed: str
) -> tuple[Traced, bool]:
    """Traces the functions that are not None; whether no array's values were read."""
    captures = Captures(computed)
    note_traced(score_mod, mask_mod)
    score = mask = None
    if score_mod is not None:
        score = _trace_one(score_mod, "score_mod", captures, is_torch)
    if mask_mod is not None:
        mask = _trace_one(mask_mod, "mask_mod", captures, is_torch)
    variant = Variant(
        score,
        mask,
        tuple(capture.type for capture in captures.list),
        tuple(sorted(captures.lengths)),
        compute_type=computed,
    )
    arrays = tuple(capture.array for capture in captures.list)
    traced = Traced(variant, arrays, number_of(variant), tuple(captures.extents))
    return traced, captures.is_certain


def trace_both(
    score_mod: Any, mask_mod: Any, is_torch: bool = True, computed: str = "f32"
) -> Traced:
    """Traces the functions that are not None.

    Args:
        score_mod: the score function.
        mask_mod: the mask function.
        is_torch: whether the types of traced values are PyTorch's, else NumPy's.
        computed: the type of scores, `compute_type` of the query's.
    """
    return _trace_both(score_mod, mask_mod, is_torch, computed)[0]


def trace_functions(
    score_mod: Any, mask_mod: Any, is_torch: bool = True, computed: str = "f32"
) -> Traced:
    """`trace_both`, if the functions were not traced before."""
    asked = (score_mod, mask_mod, is_torch, computed)
    found = memo.fingerprint(*asked)
    if found is None:
        return trace_both(*asked)
    known = memo.get(found)
    if known is not None:
        return known
    with memo.watch() as watch:
        traced, is_certain = _trace_both(*asked)
    if watch.is_certain and is_certain:
        memo.put(found, traced)
    return traced


def known_functions(score_mod: Any, mask_mod: Any, query: Any) -> Traced | None:
    """The trace of functions that were traced before; None for others."""
    of_query = is_torch_tensor(query), compute_type_of(query)
    made = mask_mod if score_mod is None else score_mod if mask_mod is None else None
    is_own = type(made) is Made
    how = (score_mod is None, *of_query)
    known = memo.get_own(made, how) if is_own else None
    if known is None:
        found = memo.fingerprint(score_mod, mask_mod, *of_query)
        known = None if found is None else memo.get(found)
        if is_own and found is not None and known is not None:
            memo.put_own(made, how, found, known)
    return known


def trace(
    *,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    dtype: str = "f32",
) -> Variant:
    """Traces a score and a mask function: `print(fa.trace(mask_mod=f))` shows their MLIR.

    Args:
        score_mod: score_mod(score, b, h, q_idx, kv_idx), as for `fa.attention`.
        mask_mod: mask_mod(b, h, q_idx, kv_idx), as for `fa.attention`.
        dtype: element type of q, k and v, as in `fa.AttentionConfig`. Scores are float64 if
            it is "f64", else float32.

    Returns:
        The variant. Its text is the MLIR of the two regions. As `variant` of a
        `fa.AttentionConfig` it can be compiled: `fa.compile(config, "sm_90a")`. Such a
        kernel takes q, k, v, the arrays in `variant.arrays`, and the results.

    Raises:
        TraceError: a function that cannot be traced.
    """
    variant, arrays, *_ = trace_both(
        score_mod, mask_mod, "torch" in sys.modules, compute_type(dtype)
    )
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
    """The result of a function of packed sequences.

    Args:
        function: score_mod or mask_mod.
        lengths: the numbers of queries and keys of the sequence.
        sequence: the number of the sequence, the function's batch entry.
        sequences: the number of sequences.
        arguments: the function's arguments.
    """
    region = current_region("a function of packed sequences")
    before = region.lengths, region.sequences
    region.lengths = dict(zip(("query_length", "key_length"), lengths))
    region.sequences = (sequence._name, sequences)
    try:
        return call_function(function, *arguments)
    finally:
        region.lengths, region.sequences = before


def _length(name: str) -> Scalar:
    if not is_tracing():
        raise error(
            f"fa.{name}() is known only where fa traces a score or mask function: PyTorch's "
            "FlexAttention and create_mask give indices and no lengths",
            "call fa.attention, or capture the length as a number or a tensor",
        )
    return current_region(f"fa.{name}()").length(name)
