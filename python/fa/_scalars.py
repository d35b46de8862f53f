# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of a score or mask function while it is traced, and what it captures.

A function is called once, with `Scalar`s for its arguments. What it does with
them is written down as ops of a region of `fa.attention`. There are floats (f32),
booleans (i1) and integers. These carry the range of their values: what fits 32
bits is an `index`, which has 32 bits on a GPU, and what may not is an i64.
"""

from __future__ import annotations

import functools
import os
import struct
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from fa._arrays import View, describe
from fa._variant import Extent

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
I32 = (-(1 << 31), (1 << 31) - 1)
COORDINATES = (0, (1 << 30) - 1)
"""Coordinates and lengths are in it, as the compiler's mask analysis has it."""
COORDINATE_NAMES = {"%b": "b", "%h": "h", "%i": "q_idx", "%j": "kv_idx"}
MAX_CAPTURES = 16
MAX_RANK = 8


class TraceError(ValueError):
    """A score or mask function does what can't be traced; names the line."""

    retry = False
    """Whether the same may work with arrays that know of traced values."""


class _NoAttribute(TraceError, AttributeError):
    """So that `hasattr` and `getattr` with a default work."""


_NAMED = ("masks.py", "scores.py")
"""Files of functions that stand for the user's."""


@functools.cache
def _is_internal(filename: str) -> bool:
    """Whether a frame of the file is machinery, not the user's."""
    here = os.path.dirname(os.path.abspath(__file__))
    folder, name = os.path.split(os.path.abspath(filename))
    if folder == here:
        return name not in _NAMED
    roots = [
        os.path.dirname(os.path.abspath(module.__file__))
        for module in (sys.modules.get(name) for name in ("torch", "numpy", "jax", "cupy"))
        if module is not None and getattr(module, "__file__", None)
    ]
    return any(folder == root or folder.startswith(root + os.sep) for root in roots)


def _user_line() -> str:
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith("<frozen") and not _is_internal(code.co_filename):
            return f"{code.co_filename}:{frame.f_lineno}: in {code.co_name}: "
        frame = frame.f_back
    return ""


def error(what: str, remedy: str, retry: bool = False) -> TraceError:
    """What is wrong at the user's line, and what to write there."""
    result = TraceError(f"{_user_line()}{what}; {remedy}")
    result.retry = retry
    _remember(result)
    return result


def _remember(raised: TraceError) -> None:
    """Keeps an error for the end of the function that runs: it may catch it."""
    region = getattr(_state, "region", None)
    if region is not None:
        region.errors.append(raised)


def is_caught_by_user(raised: TraceError) -> bool:
    """Whether an error came to the user's code, which went on.

    What a library's C code caught has no frame of the user's in its traceback,
    nor has what `hasattr` asked for.
    """
    at = raised.__traceback__
    while at is not None:
        if not _is_internal(at.tb_frame.f_code.co_filename):
            return True
        at = at.tb_next
    return False


def _no_attribute(what: str, name: str, remedy: str) -> TraceError:
    """For a `__getattr__`."""
    result = _NoAttribute(f"{_user_line()}{what} has no attribute {name!r} {remedy}")
    _remember(result)
    return result


# --- Captured arrays -------------------------------------------------------------

_FLOATS = ("f32", "f16", "bf16")


class Capture:
    """An array that a function reads: an argument of the kernel."""

    __slots__ = ("array", "view", "name", "type", "rank", "is_padded")

    def __init__(self, array: Any, name: str) -> None:
        self.array = array
        self.name = name
        try:
            self.view: View = describe(array)
        except (TypeError, ValueError) as reason:
            got, _, remedy = str(reason).rpartition("; ")
            if "float32, float16 or bfloat16, got" in got:
                got = f"got {getattr(array, 'dtype', type(array).__name__)}"
                remedy = "convert it to float32, float16, bfloat16, int32, int64 or bool"
            raise error(f"captures an array that a kernel can't read: {got}", remedy) from None
        view = self.view
        self.rank = len(view.shape)
        # A kernel wants unit stride in the last dimension: one of size 1 has it.
        self.is_padded = self.rank > 0 and view.shape[-1] > 1 and view.strides[-1] != 1
        if self.rank + self.is_padded > MAX_RANK:
            raise error(
                f"captures an array of rank {self.rank}, which is above "
                f"{MAX_RANK - self.is_padded}",
                "index some of its dimensions before the call",
            )
        sizes = "?x" * self.rank + "1x" * self.is_padded
        self.type = f"tensor<{sizes}{view.dtype}>"


class Captures:
    """The captured arrays of a score and a mask function, each once."""

    def __init__(self) -> None:
        self.list: list[Capture] = []
        self._by_id: dict[int, Capture] = {}
        self.lengths: set[str] = set()
        """Which of "query_length" and "key_length" are read."""
        self.extents: dict[Extent, None] = {}
        """What fa's own functions ask of sizes, in order."""

    def of(self, array: Any) -> Capture:
        """The capture of an array; the same one for the same object."""
        found = self._by_id.get(id(array))
        if found is None:
            if len(self.list) == MAX_CAPTURES:
                raise error(
                    f"captures more than {MAX_CAPTURES} arrays, the limit of a kernel",
                    "put some of them into one array",
                )
            found = Capture(array, f"%captured{len(self.list)}")
            self.list.append(found)
            self._by_id[id(array)] = found
        return found


class Region:
    """The ops of one function, each once."""

    def __init__(self, captures: Captures, what: str) -> None:
        self.captures = captures
        self.what = what
        self.lines: list[str] = []
        self.lengths: dict[str, Any] = {}
        """What "query_length" and "key_length" are, where not the arrays' sizes."""
        self.sequences: tuple[str, int] | None = None
        """Of packed sequences: the name of a sequence's number, and how many there are."""
        self.reader: str | None = None
        """The function of fa that runs, where its frame does not say so; "" for none."""
        self.errors: list[TraceError] = []
        """Those raised since the function was called."""
        self._known: dict[str, str] = {}

    def op(self, text: str) -> str:
        """The name of an op's result."""
        name = self._known.get(text)
        if name is None:
            name = f"%{len(self.lines)}"
            self._known[text] = name
            self.lines.append(f"{name} = {text}")
        return name


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
            f"{kind} of {self.describe()}, which is not known while the function is traced",
            remedy,
            retry=True,
        )

    return refuse


class Scalar:
    """A value of a traced function: a float32, an integer or a boolean.

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
        self._region = region
        self._name = name
        self._type = type
        self._range = range
        self._constant = constant

    def describe(self) -> str:
        """The value in an error message."""
        kind = {"f32": "float", "i1": "boolean"}.get(self._type, "integer")
        known = "score" if self._name == "%s" else COORDINATE_NAMES.get(self._name)
        return f"the traced {kind} {known}" if known else f"a traced {kind}"

    def __repr__(self) -> str:
        return f"<{self.describe()}: {self._name}>"

    # What Python asks of a value that it needs now.
    __bool__ = _refuse(
        "needs the truth (if, while, and, or, not, chained comparison, in)",
        "use & | ~ for booleans, two comparisons joined by &, and torch.where or "
        "fa.math.where for a choice",
    )
    __index__ = _refuse(
        "needs the number (an index, a slice, range or int())",
        "index an array of NumPy or PyTorch, not a list, one element at a time",
    )
    __int__ = _refuse("needs the number (int())", "use .to(torch.int32) or fa.math.cast(x, int)")
    __float__ = _refuse(
        "needs the number (float(), math.*)", "use .float(), or functions of torch or fa.math"
    )
    __complex__ = _refuse("needs the number (complex())", "there are no complex scores")
    __iter__ = _refuse("iterates over the elements", "it is one number")
    __len__ = _refuse("needs the length", "it is one number")
    __hash__ = _refuse("needs the hash", "index an array of NumPy or PyTorch, not a dictionary")
    item = _refuse("needs the number (item())", "compute with it as it is")
    tolist = _refuse("needs the number (tolist())", "compute with it as it is")
    numpy = _refuse("needs the number (numpy())", "compute with it as it is")

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise error(
            f"needs {self.describe()} as an array",
            "use functions of fa.math where NumPy's don't take it; an array that is indexed with "
            "it has to be a variable of the function, or an attribute of an object, not of a class",
            retry=True,
        )

    def __getitem__(self, index: Any) -> Any:
        if index is Ellipsis or index == ():
            return self
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
        """float32, int64 or bool, as the library has it that the code names."""
        name = {"f32": "float32", "i1": "bool"}.get(self._type, "int64")
        torch = sys.modules.get("torch")
        if torch is None or not _means_torch(sys._getframe(1)):
            return np.dtype(name)
        return getattr(torch, name)

    @property
    def device(self) -> None:
        """None: no device in particular."""
        return None

    def __getattr__(self, name: str) -> Any:
        function = None if name.startswith("__") else _method(name)
        if function is None:
            remedy = "that can be traced; see fa.math for the functions that can"
            raise _no_attribute(self.describe(), name, remedy)
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
                raise error(
                    f"torch operator {operator} is none of PyTorch's and can't be traced",
                    "write it out, with functions of torch or fa.math",
                )
        else:
            name = getattr(function, "__name__", str(function))
            _require_own(function, name, "torch")
        if name == "__getitem__":
            return get_item(*args)
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


def _means_torch(frame: Any) -> bool:
    """Whether code asks as PyTorch does: it names torch, or no other array library."""
    roots = set()
    while frame is not None and _is_internal(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return True
    code = frame.f_code
    values = [frame.f_globals.get(name) for name in code.co_names]
    for value in (*values, *frame.f_locals.values()):
        is_module = isinstance(value, types.ModuleType)
        kind = value if isinstance(value, type) else type(value)
        module = value.__name__ if is_module else getattr(kind, "__module__", "")
        roots.add(str(module).partition(".")[0])
    return "torch" in roots or roots.isdisjoint(("numpy", "jax", "jaxlib", "cupy"))


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


def _method(name: str) -> Callable[..., Any] | None:
    from fa import _functions

    return _functions.METHODS.get(name)


def _dispatch(name: str, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from fa import _functions

    function = _functions.TABLE.get(name)
    if function is None:
        # JAX asks NumPy for a shape before it refuses.
        remedy = "see fa.math for the functions that can"
        raise error(f"{what} can't be traced", remedy, retry=True)
    try:
        return function(*args, **kwargs)
    except TypeError as reason:
        if isinstance(reason, TraceError):
            raise
        raise error(f"{what}: {reason}", "give it fewer or other arguments") from None


# --- Python values as scalars ------------------------------------------------------


def float_text(value: float) -> str:
    """A number as an f32 literal."""
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
        if not INT_MIN <= value <= INT_MAX:
            raise error(f"the integer {value} does not fit 64 bits", "use a float")
        type = integer_type((value, value))
        name = region.op(f"arith.constant {value} : {type}")
        return Scalar(region, name, type, (value, value), value)
    name = region.op(f"arith.constant {float_text(value)} : f32")
    return Scalar(region, name, "f32", constant=float(value))


def is_array(value: Any) -> bool:
    """Whether a value looks like an array of some library."""
    if isinstance(value, (type, types.ModuleType)):  # numpy.float32, numpy itself
        return False
    return hasattr(value, "shape") and hasattr(value, "dtype")


def lift(region: Region, value: Any) -> Scalar:
    """A scalar of the region: numbers as constants, arrays of one element read."""
    if type(value) is Scalar:
        if value._region is not region:
            raise error(
                f"uses {value.describe()} of another function", "compute it anew in this one"
            )
        return value
    if isinstance(value, (bool, int, float)):
        return constant(region, value)
    if isinstance(value, np.generic):
        return lift(region, value.item())
    if isinstance(value, PartlyIndexed):
        value.require_scalar()
    if is_array(value):
        shape = tuple(value.shape)
        if any(size != 1 for size in shape):
            raise error(
                f"computes with a captured array of shape {list(shape)} as if it were a number",
                "index it, as in bias[h, q_idx, kv_idx]",
            )
        return read(region, region.captures.of(as_array(value)), [0] * len(shape))
    raise error(
        f"computes with a {type(value).__name__}, which is no number",
        "use numbers, traced values and elements of captured arrays",
    )


# --- Reading captured arrays ---------------------------------------------------------


def as_array(value: Any) -> Any:
    """The array in a wrapper of `fa._rebind`, or the value itself."""
    return getattr(value, "_fa_array", value)


def _index_text(region: Region, capture: Capture, dim: int, index: Any) -> str:
    """An index as Python means it, negative ones from the end."""
    size = capture.view.shape[dim]
    scalar = lift(region, index)
    if scalar._type not in ("index", "i64"):
        raise error(
            f"indexes dimension {dim} of a captured array of shape "
            f"{list(capture.view.shape)} with {scalar.describe()}",
            "use an integer: .to(torch.int32) or //",
        )
    if scalar._constant is not None and not -size <= scalar._constant < size and size:
        raise error(
            f"index {scalar._constant} is out of range for dimension {dim} of size {size} of "
            "a captured array",
            "keep it in range",
        )
    if scalar._type == "i64":  # what lies beyond 32 bits is beyond the array, too
        name, bounds = scalar._name, scalar._range
        for op, bound in (("maxsi", I32[0]), ("minsi", I32[1])):
            known = region.op(f"arith.constant {bound} : i64")
            name = region.op(f"arith.{op} {name}, {known} : i64")
        name = region.op(f"arith.index_cast {name} : i64 to index")
        bounds = tuple(min(max(bound, I32[0]), I32[1]) for bound in bounds)
        scalar = Scalar(region, name, "index", bounds)
    if scalar._range[0] >= 0:
        return scalar._name
    position = region.op(f"arith.constant {dim} : index")
    length = region.op(f"tensor.dim {capture.name}, {position} : {capture.type}")
    from_end = region.op(f"arith.addi {scalar._name}, {length} : index")
    if scalar._range[1] < 0:
        return from_end
    zero = region.op("arith.constant 0 : index")
    negative = region.op(f"arith.cmpi slt, {scalar._name}, {zero} : index")
    return region.op(f"arith.select {negative}, {from_end}, {scalar._name} : index")


def reader_at(filename: str, function: str) -> str | None:
    """Which function of fa's is at a place; "" for the user's, None for machinery."""
    folder, name = os.path.split(os.path.abspath(filename))
    module, _ = os.path.splitext(name)
    if folder == os.path.dirname(os.path.abspath(__file__)) and name in (*_NAMED, "block_masks.py"):
        # Users have fa.block_masks as part of fa.masks.
        module = module.removeprefix("block_")
        name, dot, _ = function.partition(".")
        return f"fa.{module}.{name}" if dot else f"a function of fa.{module}"
    return None if filename.startswith("<frozen") or _is_internal(filename) else ""


def _reader() -> str:
    """Which function of fa's is running; "" for the user's."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        found = reader_at(code.co_filename, getattr(code, "co_qualname", code.co_name))
        if found is not None:
            return found
        frame = frame.f_back
    return ""


def _note_extents(region: Region, capture: Capture, indices: list[Any]) -> None:
    """Notes what fa's own functions ask of the sizes of an array that they read."""
    reader = _reader() if region.reader is None else region.reader
    if not reader:
        return
    for dim, index in enumerate(indices):
        if type(index) is not Scalar:
            continue
        if region.sequences and index._name == region.sequences[0]:
            size, sequences = capture.view.shape[dim], region.sequences[1]
            if size not in (1, sequences):
                raise error(
                    f"expected dimension {dim} of the array that {reader} reads to have a size of "
                    f"{sequences} (sequences) or 1, got shape {list(capture.view.shape)}",
                    "give it an element for each sequence",
                )
        elif index._name in COORDINATE_NAMES:
            number = region.captures.list.index(capture)
            extent = Extent(reader, COORDINATE_NAMES[index._name], number, dim)
            region.captures.extents[extent] = None


def read(region: Region, capture: Capture, indices: list[Any]) -> Scalar:
    """An element of a captured array, as a type that is computed with."""
    _note_extents(region, capture, indices)
    names = [_index_text(region, capture, dim, index) for dim, index in enumerate(indices)]
    if capture.is_padded:
        names.append(region.op("arith.constant 0 : index"))
    value = region.op(f"tensor.extract {capture.name}[{', '.join(names)}] : {capture.type}")
    dtype = capture.view.dtype
    if dtype == "f32":
        return Scalar(region, value, "f32")
    if dtype in _FLOATS:
        return Scalar(region, region.op(f"arith.extf {value} : {dtype} to f32"), "f32")
    if dtype == "i1":
        return Scalar(region, value, "i1", (0, 1))
    if dtype == "i64":
        return Scalar(region, value, "i64")
    name = region.op(f"arith.index_cast {value} : {dtype} to index")
    return Scalar(region, name, "index", I32)


class PartlyIndexed:
    """A captured array of which some dimensions have an index."""

    def __init__(self, region: Region, capture: Capture, indices: list[Any]) -> None:
        self._region = region
        self._capture = capture
        self._indices = indices

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions without an index."""
        sizes = self._capture.view.shape
        return tuple(size for size, index in zip(sizes, self._indices) if index is None)

    @property
    def ndim(self) -> int:
        """How many dimensions have no index."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        return (self[n] for n in range(self.shape[0]))

    def __getattr__(self, name: str) -> Any:
        raise _no_attribute(self._describe(), name, "that can be traced; index them, too")

    def __array__(self, *args: Any, **options: Any) -> Any:
        self.require_scalar()

    def _describe(self) -> str:
        return f"a captured array of which dimensions {list(self.shape)} have no index"

    def __getitem__(self, index: Any) -> Any:
        given = index if isinstance(index, tuple) else (index,)
        free = [dim for dim, known in enumerate(self._indices) if known is None]
        dots = [at for at, item in enumerate(given) if item is Ellipsis]
        if len(dots) > 1:
            raise error("an index has more than one ...", "leave one")
        for item in given:
            if item is None or isinstance(item, (list, bool, str)):
                raise error(
                    f"indexes a captured array with {item!r}",
                    "give an integer or a traced integer for each dimension",
                )
        if len(given) - len(dots) > len(free):
            shape = list(self.shape)
            raise error(
                f"{len(given) - len(dots)} indices for a captured array of shape {shape}, "
                f"which has {len(free)} dimensions",
                f"give at most {len(free)}",
            )
        if dots:
            at = dots[0]
            missing = len(free) - len(given) + 1
            given = (*given[:at], *[slice(None)] * missing, *given[at + 1 :])
        indices = list(self._indices)
        for dim, item in zip(free, given):
            if isinstance(item, slice) and item == slice(None):
                continue
            if isinstance(item, slice):
                raise error(
                    f"indexes a captured array with {item!r}",
                    "give an integer or a traced integer, or : for a later index",
                )
            indices[dim] = item if isinstance(item, Scalar) else lift(self._region, item)
        if None in [None if index is None else 0 for index in indices]:
            return PartlyIndexed(self._region, self._capture, indices)
        return read(self._region, self._capture, indices)

    def require_scalar(self) -> None:
        """Raises that dimensions are left."""
        raise error(f"computes with {self._describe()}", "index them, too")

    def _refuse(self, *others: Any, **options: Any) -> Any:
        self.require_scalar()

    __bool__ = __float__ = __int__ = __index__ = __abs__ = __neg__ = __invert__ = _refuse
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = _refuse
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __and__ = __or__ = __xor__ = _refuse
    __rpow__ = __rand__ = __ror__ = __rxor__ = __hash__ = __pos__ = _refuse
    __matmul__ = __rmatmul__ = __lshift__ = __rshift__ = __rlshift__ = __rrshift__ = _refuse
    __divmod__ = __rdivmod__ = __round__ = __floor__ = __ceil__ = __trunc__ = _refuse
    __array_ufunc__ = __array_function__ = _refuse

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return Scalar.__torch_function__(function, types, args, kwargs)


def get_item(array: Any, index: Any) -> Any:
    """array[index], of a captured array with traced values in the index."""
    region = current_region("an element of a captured array")
    if isinstance(array, (Scalar, PartlyIndexed)):
        return array[index]
    capture = region.captures.of(as_array(array))
    return PartlyIndexed(region, capture, [None] * capture.rank)[index]
