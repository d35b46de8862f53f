# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of a score or mask function while it is traced.

fa calls a function once, with `Scalar`s for its arguments, and writes its operations as ops
of a region of `fa.attention`. There are floats (of the type of scores, f32 or f64), booleans
(i1) and integers. An integer carries the range of its values: it is an `index`, which has 32
bits on a GPU, if the range fits 32 bits, and else an i64.
"""

from __future__ import annotations

import contextlib
import functools
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fa._trace.errors import TraceError, error, no_attribute

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
I32 = (-(1 << 31), (1 << 31) - 1)
COORDINATES = (0, (1 << 30) - 1)
"""Coordinates and lengths are in it, as the compiler's mask analysis has it."""
COORDINATE_NAMES = {"%b": "b", "%h": "h", "%i": "q_idx", "%j": "kv_idx"}

FLOATS = ("f32", "f64")
"""Types of floats; all in one region have the same."""

MAX_OPERATIONS = 4096
"""Of a function: more take a compiler minutes, and a kernel longer than attention itself."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Operations on traced values, by the names of PyTorch and NumPy; `functions` and `captured`
fill it. "torch.ops" calls an operator of another namespace."""


class Region:
    """The ops of one function, each once.

    Args:
        captures: the captured arrays of score and mask function (`captured.Captures`).
        is_torch: whether the types of traced values are PyTorch's, else NumPy's.
    """

    def __init__(self, captures: Any, is_torch: bool) -> None:
        self.captures = captures
        self.real: str = captures.compute_type
        """The type of floats."""
        self.is_torch = is_torch
        self.lines: list[str] = []
        self._count = 0
        """How many names are taken."""
        self.lengths: dict[str, Any] = {}
        """The values of "query_length" and "key_length", if not the arrays' sizes."""
        self.sequences: tuple[str, int] | None = None
        """Of packed sequences: the name of a sequence's number, and how many there are."""
        self._known: dict[str, str] = {}

    def state(self) -> tuple[Any, ...]:
        """The ops and captures so far, for `reset`."""
        captures = self.captures
        return (
            *(list(self.lines), self._count, dict(self._known), list(captures.list)),
            *(set(captures.lengths), dict(captures.extents)),
        )

    def reset(self, state: tuple[Any, ...]) -> None:
        """Forgets ops and captures since `state`."""
        lines, self._count, self._known, arrays, lengths, extents = state
        self.lines[:] = lines
        self.captures.reset(arrays, lengths, extents)

    def length(self, name: str) -> Any:
        """The value of "query_length" or "key_length", of the arrays or of a packed sequence."""
        if self.lengths:
            return self.lengths[name]
        self.captures.lengths.add(name)
        return Scalar(self, f"%{name}", "index", COORDINATES)

    def op(self, text: str) -> str:
        """The name of an op's result."""
        name = self._known.get(text)
        if name is None:
            if len(self.lines) >= MAX_OPERATIONS:
                raise error(
                    f"computes more than {MAX_OPERATIONS} operations for each element",
                    "compute what does not depend on the coordinates before the call, and read "
                    "it from an array; a dot product of rows is a larger head dim of query and "
                    "key",
                )
            name = self.name()
            self._known[text] = name
            self.lines.append(f"{name} = {text}")
        return name

    def name(self) -> str:
        """A name that nothing has."""
        self._count += 1
        return f"%{self._count - 1}"

    @contextlib.contextmanager
    def inner(self) -> Iterator[list[str]]:
        """Has ops written down as those of a region of one op; gives them."""
        lines, known = self.lines, dict(self._known)
        self.lines = []
        try:
            yield self.lines
        finally:
            self.lines, self._known = lines, known

    def is_recording(self) -> bool:
        """Whether values that are computed now have a gradient: not under `torch.no_grad`."""
        return not self.is_torch or sys.modules["torch"].is_grad_enabled()

    def stopped(self, name: str) -> str:
        """The name of a float's value without its gradient."""
        return self.op(f"fa.custom_gradient {name} : {self.real}")


_state = threading.local()


def enter(region: Region | None) -> Region | None:
    """Makes a region the one whose function runs; gives the one before."""
    before = getattr(_state, "region", None)
    _state.region = region
    return before


def is_tracing() -> bool:
    """Whether a score or mask function is running."""
    return getattr(_state, "region", None) is not None


def current_region(asking: str) -> Region:
    """The region whose function is running."""
    region = getattr(_state, "region", None)
    if region is None:
        raise error(f"{asking} is known only inside a score or mask function", "ask there")
    return region


# --- Scalars ----------------------------------------------------------------------


def _refuse(kind: str, remedy: str) -> Callable[[Scalar], Any]:
    def refuse(self: Scalar, *args: Any) -> Any:
        raise error(
            f"{kind} of {self.describe()}, which is not known while the function is traced", remedy
        )

    return refuse


class Scalar:
    """A value of a traced function: a float, an integer or a boolean.

    It stands for one element of the scores. Operators, and functions of PyTorch,
    NumPy and `fa.math`, give new ones. It has no value in Python.
    """

    __slots__ = ("_region", "_name", "_type", "_range", "_constant")

    def __init__(
        self,
        region: Region,
        name: str,
        type: str,
        range: tuple[int, int] = (INT_MIN, INT_MAX),
        constant: Any = None,
    ) -> None:
        if constant is None and type in FLOATS and not region.is_recording():
            name = region.stopped(name)
        self._region = region
        self._name = name
        self._type = type
        self._range = range
        self._constant = constant

    def anew(self) -> Scalar:
        """The same value as the result of an operation, without its gradient under `torch.no_grad`."""
        return Scalar(self._region, self._name, self._type, self._range, self._constant)

    def stopped(self) -> Scalar:
        """The same value as a constant to gradients."""
        if self._type not in FLOATS or self._constant is not None:
            return self
        return Scalar(self._region, self._region.stopped(self._name), self._type)

    data = property(stopped)

    def describe(self) -> str:
        """The value in an error message."""
        kind = {"f32": "float", "f64": "float", "i1": "boolean"}.get(self._type, "integer")
        known = "score" if self._name == "%s" else COORDINATE_NAMES.get(self._name)
        return f"the traced {kind} {known}" if known else f"a traced {kind}"

    def __repr__(self) -> str:
        return f"<{self.describe()}: {self._name}>"

    # What Python asks of a value that it needs now.
    __bool__ = _refuse(
        "needs the truth (if, while, and, or, not, min, max, chained comparison, in)",
        "use & | ~ for booleans, two comparisons joined by &, torch.where or fa.math.where for a "
        "choice, fa.math.minimum or maximum for min and max",
    )
    __index__ = _refuse(
        "needs the number (an index, a slice, range or int())",
        "index a tensor of PyTorch, or wrap another array or a list in fa.array(...)",
    )
    __int__ = _refuse("needs the number (int())", "use .to(torch.int32) or fa.math.cast(x, int)")
    __float__ = _refuse(
        "needs the number (float(), a function of math)",
        "use .float(), or the function by that name of torch, numpy or fa.math",
    )
    __complex__ = _refuse("needs the number (complex())", "there are no complex scores")
    __iter__ = _refuse("iterates over the elements", "it is one number")
    __len__ = _refuse("needs the length", "it is one number")
    __hash__ = _refuse("needs the hash", "index an array, not a dictionary")
    item = _refuse("needs the number (item())", "compute with it as it is")
    tolist = _refuse("needs the number (tolist())", "compute with it as it is")
    numpy = _refuse("needs the number (numpy())", "compute with it as it is")

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise error(
            f"needs {self.describe()} as an array",
            "use functions of fa.math where NumPy's don't take it; where it indexes an array that "
            "is no tensor of PyTorch, make that one by fa.array(...)",
        )

    def __jax_array__(self) -> Any:
        raise error(
            f"needs {self.describe()} as an array of JAX", "use functions of jax.numpy alone"
        )

    def __getitem__(self, index: Any) -> Any:
        if index is Ellipsis or index == ():
            return self.anew()
        raise error(f"indexes {self.describe()}, which is one number", "leave the index out")

    # An array of one element, as far as functions ask.
    @property
    def shape(self) -> tuple[int, ...]:
        """(): one number."""
        return ()

    @property
    def ndim(self) -> int:
        """0."""
        return 0

    @property
    def dtype(self) -> Any:
        """float32 (or float64), int64 or bool: PyTorch's where the query is its tensor, else NumPy's."""
        name = {"f32": "float32", "f64": "float64", "i1": "bool"}.get(self._type, "int64")
        return getattr(sys.modules["torch"], name) if self._region.is_torch else np.dtype(name)

    @property
    def device(self) -> None:
        """None: no device in particular."""
        return None

    def __getattr__(self, name: str) -> Any:
        function = None if name.startswith("__") else FUNCTIONS.get(name)
        if function is None:
            remedy = "that can be traced; see fa.math for the functions that can"
            raise no_attribute(self.describe(), name, remedy)
        return functools.partial(function, self)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        operator = getattr(function, "_qualified_op_name", None)  # of torch.ops
        if operator is None and hasattr(function, "_overloadpacket"):
            operator = function._overloadpacket._qualified_op_name
        if operator is not None:
            space, _, name = operator.partition("::")
            if space != "aten":
                return FUNCTIONS["torch.ops"](function, args, kwargs or {})
        else:
            name = getattr(function, "__name__", str(function))
            _require_own(function, name, "torch")
        return _dispatch(name, f"torch function {name}", args, kwargs or {})

    def __array_function__(
        self, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        name = function.__name__
        _require_numpy(function, name)
        return _dispatch(name, f"NumPy function {name}", args, kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = ufunc.__name__
        _require_numpy(ufunc, name)
        if method != "__call__":
            raise error(f"NumPy's {name}.{method} can't be traced", "write the sum out")
        return _dispatch(name, f"NumPy function {name}", inputs, kwargs)


def _require_own(function: Any, name: str, library: str) -> None:
    """Raises if a function is not of the library, whatever its name is."""
    owner = getattr(function, "__objclass__", None) or function
    module = getattr(owner, "__module__", None) or library
    if module.partition(".")[0] != library:
        raise error(
            f"{module}.{name} is no function of {library} and can't be traced",
            f"write it out, with functions of {library} or fa.math",
        )


def _require_numpy(function: Any, name: str) -> None:
    """Raises if a function has the name of one of NumPy's, and is another."""
    spaces = [np, sys.modules.get("scipy.special")]
    if hasattr(np, name) and all(getattr(space, name, None) is not function for space in spaces):
        raise error(
            f"{getattr(function, '__module__', '')}.{name} is not NumPy's {name} and can't be "
            "traced",
            "write it out, with functions of NumPy or fa.math",
        )


def _dispatch(name: str, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    function = FUNCTIONS.get(name)
    if function is None:
        raise error(f"{what} can't be traced", "see fa.math for the functions that can")
    try:
        return function(*args, **kwargs)
    except TypeError as reason:
        if isinstance(reason, TraceError):
            raise
        raise error(f"{what}: {reason}", "give it fewer or other arguments") from None


# --- Python values as scalars ------------------------------------------------------


def float_text(value: float, type: str = "f32") -> str:
    """A number as a literal of a type of floats."""
    if type == "f64":
        if value - value != 0:  # NaN and infinities
            return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
        return f"{value:.17e}"
    try:
        bits = struct.pack("<f", value)
    except OverflowError:
        bits = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    (single,) = struct.unpack("<f", bits)
    if single != single or single in (float("inf"), float("-inf")):
        return f"0x{struct.unpack('<I', bits)[0]:08X}"
    return f"{single:.9e}"


def integer_type(range: tuple[int, int]) -> str:
    """The type of integers in a range."""
    return "index" if I32[0] <= range[0] and range[1] <= I32[1] else "i64"


def constant(region: Region, value: bool | int | float) -> Scalar:
    """A number of the traced function's text."""
    if isinstance(value, bool):
        name = region.op(f"arith.constant {'true' if value else 'false'}")
        return Scalar(region, name, "i1", (0, 1), value)
    if isinstance(value, int):
        value = int(value)  # of an enumeration, or a literal of JAX, which print otherwise
        if not INT_MIN <= value <= INT_MAX:
            raise error(f"the integer {value} does not fit 64 bits", "use a float")
        type = integer_type((value, value))
        name = region.op(f"arith.constant {value} : {type}")
        return Scalar(region, name, type, (value, value), value)
    text = float_text(float(value), region.real)
    name = region.op(f"arith.constant {text} : {region.real}")
    return Scalar(region, name, region.real, constant=float(value))
