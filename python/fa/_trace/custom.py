# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derivatives that functions give themselves, by `fa.custom_gradient`.

PyTorch's `autograd.Function` runs its forward without a gradient and asks its backward for
one. Its `apply` hands traced values to `call` while a function is traced (`intercepted`).
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fa._trace.captured import Elements, PartlyIndexed, is_array, is_traced, lift
from fa._trace.errors import TraceError, collected, error
from fa._trace.scalars import FLOATS, FUNCTIONS, Region, Scalar, current_region, is_tracing


def with_gradient(
    region: Region,
    what: str,
    values: list[np.ndarray],
    inputs: list[np.ndarray],
    gradient: Callable[[list[np.ndarray]], list[Any]],
) -> list[np.ndarray]:
    """The values, with another gradient than theirs.

    Args:
        region: the function's.
        what: the name of their function, for messages.
        values: arrays of traced values and numbers.
        inputs: the values to differentiate by, likewise.
        gradient: gives, of the gradients with respect to the values, those with respect to
            the inputs: arrays of their shapes, one for all elements, or None for 0.
    """
    floats = [x for x in _flat(values) if type(x) is Scalar and x._type in FLOATS]
    floats = list({id(x): x for x in floats if x._constant is None}.values())
    leaves = list(_flat(inputs))
    if not floats:
        return values
    real = region.real
    known: dict[int, str] = {id(x): region.name() for x in floats}
    try:
        with region.inner() as lines, collected():
            given = [_over(array, lambda x: _incoming(region, known, x)) for array in values]
            made = [_spread(x, like) for x, like in zip(gradient(given), inputs)]
            parts = [(leaf, _float(region, x)) for leaf, x in zip(leaves, _flat(made))]
            parts = [(leaf, x) for leaf, x in parts if x is not None and _has_gradient(leaf)]
            body = list(lines)
        reason = ""
    except (TraceError, NotImplementedError) as unknown:
        reason = _quoted(f"has a gradient of its own ({what}) that can't be traced: {unknown}")
        parts = [(leaf, None) for leaf in leaves if _has_gradient(leaf)]
    names = [x._name for x in floats]
    text = f"fa.custom_gradient {', '.join(names)} : {', '.join([real] * len(names))}"
    if parts:
        by = ", ".join(leaf._name for leaf, _ in parts)
        text += f" of {by} : {', '.join([real] * len(parts))}"
    result = region.name()
    head = f"{result} = " if len(names) == 1 else f"{result}:{len(names)} = "
    if not parts:
        region.lines.append(head + text)
    elif reason:
        region.lines.append(f"{head}{text} unknown {reason}")
    else:
        arguments = ", ".join(f"{name}: {real}" for name in known.values())
        ends = ", ".join(x._name for _, x in parts), ", ".join([real] * len(parts))
        region.lines += [
            *(f"{head}{text} gradient {{", f"^bb0({arguments}):"),
            *(f"  {line}" for line in body),
            *(f"  fa.yield_gradients {ends[0]} : {ends[1]}", "}"),
        ]
    own = iter(range(len(names)))
    of = {id(x): f"{result}#{n}" if len(names) > 1 else result for x, n in zip(floats, own)}
    return [
        _over(array, lambda x: Scalar(region, of[id(x)], real) if id(x) in of else x)
        for array in values
    ]


def _quoted(text: str) -> str:
    """A string of MLIR."""
    plain = [
        chr(n) if 32 <= n < 127 and chr(n) not in '"\\' else f"\\{n:02X}" for n in text.encode()
    ]
    return f'"{"".join(plain)}"'


def _flat(arrays: list[np.ndarray]) -> Iterator[Any]:
    for array in arrays:
        yield from array.flat


def _over(array: np.ndarray, function: Callable[[Any], Any]) -> np.ndarray:
    result = np.empty(array.shape, object)
    for at in np.ndindex(array.shape):
        result[at] = function(array[at])
    return result


def _incoming(region: Region, known: dict[int, str], x: Any) -> Any:
    """The gradient with respect to a value; 0 of a number."""
    name = known.get(id(x))
    return lift(region, 0.0) if name is None else Scalar(region, name, region.real)


def _spread(x: Any, like: np.ndarray) -> np.ndarray:
    """An input's gradient as an array of its shape."""
    if isinstance(x, PartlyIndexed):
        x = x.elements()
    if isinstance(x, Elements):
        x = x._values
    if not isinstance(x, np.ndarray):
        one = np.empty((), object)
        one[()] = x
        x = one
    try:
        return np.broadcast_to(x, like.shape)
    except ValueError:
        raise error(
            f"gives a gradient of shape {list(x.shape)} for an input of shape {list(like.shape)}",
            "give one of the input's shape",
        ) from None


def _float(region: Region, x: Any) -> Scalar | None:
    if x is None:
        return None
    x = lift(region, x)
    return x if x._type in FLOATS else FUNCTIONS["mul"](x, 1.0)  # type: ignore[no-any-return]


def _has_gradient(x: Any) -> bool:
    return type(x) is Scalar and x._type in FLOATS and x._constant is None


# --- autograd.Function ---------------------------------------------------------------


class Context:
    """The `ctx` of an `autograd.Function`: keeps the values that it is given."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()
        self.constants: list[Any] = []

    def save_for_backward(self, *values: Any) -> None:
        """Keeps values for the backward."""
        self.saved_tensors = values

    def save_for_forward(self, *values: Any) -> None:
        """Of forward mode, which is not used."""

    def set_materialize_grads(self, value: bool) -> None:
        """Gradients that are not there are zeros, which nothing asks to be None."""

    def mark_non_differentiable(self, *values: Any) -> None:
        """Results that have no gradient."""
        self.constants += values

    def mark_dirty(self, *values: Any) -> None:
        """Refused: a traced value can't be changed."""
        raise error("an autograd.Function changes its input in place", "give a new value")


def _array(region: Region, x: Any) -> np.ndarray | None:
    """The traced elements of an argument; None of an argument that is not traced."""
    if is_traced(x) and not isinstance(x, (tuple, list)):
        return _spread(x, np.empty(getattr(x, "shape", ()), object))
    return None


def _like(region: Region, array: np.ndarray) -> Any:
    return Elements(region, array) if array.shape else array[()]


def _argument(region: Region, what: str, x: Any) -> Any:
    """An argument of `apply`: elements in the place of arrays of them."""
    if isinstance(x, PartlyIndexed):
        return x.elements()
    if is_array(x) and not is_traced(x) and getattr(x, "requires_grad", False):
        if all(size == 1 for size in x.shape):
            return lift(region, x)
        raise error(
            f"gives {what} a captured tensor of shape {list(x.shape)} that requires a gradient",
            "give it the elements that it needs, as in table[h, q_idx, kv_idx]",
        )
    return x


def with_backward(
    what: str,
    args: tuple[Any, ...],
    forward: Callable[[Context, tuple[Any, ...]], Any],
    backward: Callable[..., Any],
) -> Any:
    """The results of a function whose gradient another function gives.

    Args:
        what: its name, for messages.
        args: its arguments, traced values among them.
        forward: gives its results, one or a tuple, of a context and the arguments.
        backward: gives the gradients with respect to all arguments, None for 0, of the
            context and the gradients with respect to the results.
    """
    region = current_region(what)
    args = tuple(_argument(region, what, x) for x in args)
    arrays = [_array(region, x) for x in args]
    context = Context(tuple(x is not None for x in arrays))
    result = forward(context, args)
    results = result if isinstance(result, tuple) else (result,)
    values = [_array(region, x) for x in results]

    def gradient(given: list[np.ndarray]) -> list[Any]:
        rest = iter(given)
        made = backward(
            context, *(None if x is None else _like(region, next(rest)) for x in values)
        )
        made = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        if len(made) < len(args):
            raise error(f"{what} gives {len(made)} gradients of {len(args)} inputs", "give all")
        return [x for x, array in zip(made, arrays) if array is not None]

    traced = [x for x in values if x is not None]
    inputs = [x for x in arrays if x is not None]
    made = iter(with_gradient(region, what, traced, inputs, gradient))
    final = [x if array is None else _like(region, next(made)) for x, array in zip(results, values)]
    for n, x in enumerate(results):
        if any(x is constant for constant in context.constants):
            final[n] = FUNCTIONS["detach"](final[n])
    return tuple(final) if isinstance(result, tuple) else final[0]


def call(function: Any, args: tuple[Any, ...]) -> Any:
    """The results of an `autograd.Function` for traced values, with its own gradient.

    Args:
        function: the class.
        args: the arguments of its `apply`, defaults included.
    """
    base = sys.modules["torch"].autograd.Function

    def forward(context: Context, args: tuple[Any, ...]) -> Any:
        if function.setup_context is base.setup_context:
            return function.forward(context, *args)
        result = function.forward(*args)
        function.setup_context(context, args, result)
        return result

    backward = function.backward
    if backward is base.backward and function.vjp is not base.vjp:
        backward = function.vjp
    return with_backward(f"autograd.Function {function.__name__}", args, forward, backward)


_lock = threading.Lock()
_depth = 0
"""How many functions are traced, in all threads."""


def _apply(cls: Any, *args: Any, **options: Any) -> Any:
    """Takes the place of `_FunctionBase.apply` while some function is traced."""
    operators = sys.modules.get("fa._trace.operators")
    if is_tracing() and operators is not None and operators.stand_for(args):
        return operators.apply(cls, args)
    if is_tracing() and is_traced(args):
        return call(cls, args)
    own = sys.modules["torch"].autograd.function._SingleLevelFunction
    return super(own, cls).apply(*args, **options)


@contextlib.contextmanager
def intercepted() -> Iterator[None]:
    """Has gradients followed, and `apply` hand traced values to `call`.

    A function may have taken `apply` of a class before, so the base that `apply` calls is
    replaced, for as long as something is traced.
    """
    global _depth
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    base = torch.autograd.function._SingleLevelFunction
    with _lock:
        if _depth == 0:
            base.apply = classmethod(_apply)
        _depth += 1
    try:
        with torch.enable_grad():
            yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                del base.apply
