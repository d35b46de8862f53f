# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reuse of traces, where a new trace is certain to be the same.

A function's code, globals, closure cells and defaults determine its trace. They are the
trace's key if all of them are

- numbers, strings and None: by value, so that another number is another key;
- arrays: by type, shape and device. Their values are not read, or the trace is not
  kept: while tracing, a mode of PyTorch's sees every operation on a tensor that no
  traced value takes part in, and `IndexableArray` sees it of other arrays. An array
  that is handed over as it is, because a helper function or a container has it, is
  read without notice, and nothing is kept;
- functions in Python, which are looked into the same way, and NamedTuples of such;
- modules of arrays and mathematics, and some builtins.

Every other name in the code must be one that is known to mean the same at any time:
a method or function that can be traced, or `shape` and the like. Any other function
(of attributes of an object, say) is traced at each call, which takes a few hundred
microseconds.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fa._run.variant import Extent, Traced, Variant
from fa._trace.captured import IndexableArray, is_traced
from fa._trace.made import Made
from fa._trace.scalars import FUNCTIONS

_LIMIT = 4096
"""Traces kept; then all are forgotten."""

_BUILTINS = {
    name: getattr(builtins, name)
    for name in (
        *("abs", "bool", "divmod", "enumerate", "float", "int", "isinstance", "len", "list"),
        *("max", "min", "pow", "range", "reversed", "round", "sum", "tuple", "zip"),
    )
}
_KNOWN = {
    *("shape", "ndim", "dtype", "device", "size", "dim", "numel", "T"),
    *("float16", "bfloat16", "float32", "int32", "int64", "pi", "e", "inf", "nan"),
    *("special", "nn", "functional", "math", "numpy", "torch", "jax", "fa"),
    *("bit_length", "is_integer", "Tensor", "query_length", "key_length", "cast"),
}
_MODULES = ("math", "numpy", "torch", "fa", "jax")


@functools.lru_cache(_LIMIT)
def names(code: types.CodeType) -> frozenset[str]:
    """The names of globals, attributes and modules in a code and those inside it."""
    result = set(code.co_names)
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            result |= names(item)
    return frozenset(result)


def _root(module: Any) -> str:
    return str(module).partition(".")[0]


_TENSORS = ("torch", "torch.nn.parameter")


@functools.cache
def _tensor_classes() -> tuple[type, ...]:
    torch = sys.modules["torch"]
    return torch.Tensor, torch.nn.Parameter


class _Unknown(Exception):
    """A value that is read cannot be part of a key."""


def _tensor_description(tensor: Any) -> tuple[Any, ...]:
    """The part of a key that a tensor gives."""
    # Attributes that shadow known names, and what can't be captured.
    if tensor.__dict__ and not _KNOWN.isdisjoint(tensor.__dict__):
        raise _Unknown
    if tensor.layout is not sys.modules["torch"].strided:
        raise _Unknown
    shape = tensor.shape
    has_unit_stride = not shape or shape[-1] <= 1 or tensor.stride(-1) == 1
    return tensor.dtype, shape, tensor.device, has_unit_stride


def _array_description(array: Any) -> tuple[Any, ...]:
    """Likewise of an array of NumPy."""
    if type(array) is not np.ndarray or array.ndim == 0:
        raise _Unknown  # whose value could be read without notice
    shape = array.shape
    has_unit_stride = shape[-1] <= 1 or array.strides[-1] == array.itemsize
    return array.dtype, shape, None, has_unit_stride


_Described = tuple[Any, Callable[[Any], tuple[Any, ...]], tuple[Any, ...]]
"""An array, a function that describes it, and its description."""


class _Fingerprint:
    """The key of functions, and the arrays that they may read, in order."""

    __slots__ = ("key", "described", "is_fixed", "fields", "unknown", "_seen", "_is_handed")

    def __init__(self) -> None:
        self.key: list[Any] = []
        self.described: list[_Described] = []
        self.is_fixed = True
        """Whether the key is another one only when an array is: nothing else that was added
        can change."""
        self.fields: set[str] | None = None
        """Of NamedTuples that were added."""
        self.unknown: set[str] | None = None
        """Names that are to be among them."""
        self._seen: dict[int, int] = {}
        self._is_handed = True
        """Whether arrays of NumPy are given as `IndexableArray`s where we are."""

    def add(self, value: Any) -> None:
        """Adds a value; raises `_Unknown` if it is none of the known kinds."""
        kind = type(value)
        add = _BY_KIND.get(kind)
        if add is not None:
            add(self, value)
        elif kind.__module__ in _TENSORS and kind in _tensor_classes():
            self._tensor(value)
        elif isinstance(value, tuple):
            self._named_tuple(value)
        else:
            raise _Unknown

    def _plain(self, value: Any) -> None:
        self.key.append(type(value))
        self.key.append(value)

    def _float(self, value: float) -> None:
        self.key.append(value.hex())  # tells -0.0 from 0.0; NaN equals itself

    def _sequence(self, value: Any) -> None:
        self.is_fixed = self.is_fixed and type(value) is tuple
        self.key.append((type(value), len(value)))
        for item in value:
            self.add(item)

    def _indexable(self, value: IndexableArray) -> None:
        self.key.append(IndexableArray)
        before, self._is_handed = self._is_handed, True
        self.add(value._array)
        self._is_handed = before

    def _partial(self, partial: functools.partial[Any]) -> None:
        self.is_fixed = False
        is_handed = self._is_handed
        self.key += (functools.partial, len(partial.args), len(partial.keywords))
        self.add(partial.func)
        for name, value in (*enumerate(partial.args), *partial.keywords.items()):
            self.key.append(name)
            self._is_handed = is_handed and type(value) is np.ndarray
            self.add(value)
        self._is_handed = is_handed

    def _made(self, value: Made) -> None:
        self.add(value.function)

    def _module(self, value: types.ModuleType) -> None:
        if _root(value.__name__) not in _MODULES:
            raise _Unknown
        self.key.append(value)

    def _builtin(self, value: Any) -> None:
        is_of_module = isinstance(value.__self__, (types.ModuleType, type, type(None)))
        if value.__name__ not in FUNCTIONS or not is_of_module:
            raise _Unknown
        self.key.append(value)

    def _named_tuple(self, value: Any) -> None:
        """A NamedTuple without more than its fields: these are names that mean its items."""
        kind = type(value)
        fields = getattr(kind, "_fields", None)
        if fields is None or kind.__mro__[1] is not tuple:
            raise _Unknown
        self.fields = {*fields, *(self.fields or ())}
        self.key.append(kind)
        for item in value:
            self.add(item)

    def _is_seen(self, place: int) -> bool:
        """Whether a value was added; it is known by its place then."""
        number = self._seen.get(place)
        if number is not None:
            self.key.append(number)
        return number is not None

    def _tensor(self, tensor: Any) -> None:
        if not self._is_seen(id(tensor)):
            self._keep(tensor, _tensor_description)

    def _array(self, array: Any) -> None:
        if not self._is_handed:
            raise _Unknown  # whose values could be read without notice
        if not self._is_seen(id(array)):
            self._keep(array, _array_description)

    def _keep(self, array: Any, describe: Callable[[Any], tuple[Any, ...]]) -> None:
        description = describe(array)
        self._seen[id(array)] = len(self.described)
        self.described.append((array, describe, description))
        self.key += description

    def _function(self, function: types.FunctionType) -> None:
        if function in _constant:
            self.key.append(function)
            return
        is_handed = self._is_handed
        place = id(function) | is_handed  # ids are even
        if self._is_seen(place):
            return
        self._seen[place] = -1 - len(self._seen)
        space = function.__globals__
        root = _root(space.get("__name__"))
        if function.__closure__ is None and not function.__dict__ and root in ("fa", "torch"):
            _constant.add(function)
            self.key.append(function)
            return
        code = function.__code__
        self.key.append(code)
        # fa's own functions hand all that they have over, others what is theirs.
        within = root == "fa"
        self.is_fixed = self.is_fixed and within
        add = self.add
        for name in () if within else names(code):  # nobody changes fa's globals
            if name in space:
                value = space[name]
                self._is_handed = is_handed and type(value) is np.ndarray
                add(value)
            elif name in _BUILTINS:
                if vars(builtins).get(name) is not _BUILTINS[name]:
                    raise _Unknown
            elif name not in FUNCTIONS and name not in _KNOWN:
                self.unknown = {name, *(self.unknown or ())}
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                raise _Unknown from None
            self._is_handed = within or (is_handed and type(value) is np.ndarray)
            add(value)
        for given in function.__defaults__ or ():
            self._is_handed = within or (is_handed and type(given) is np.ndarray)
            add(given)
        self.key.append(len(function.__defaults__ or ()))
        for named in (function.__kwdefaults__, function.__dict__):
            self.key.append(len(named) if named else 0)
            for name, value in (named or {}).items():
                self.key.append(name)
                # What an attribute is, is handed over by nobody.
                is_own = is_handed and named is function.__kwdefaults__
                self._is_handed = within or (is_own and type(value) is np.ndarray)
                add(value)
        self._is_handed = is_handed


_BY_KIND: dict[type, Any] = {
    float: _Fingerprint._float,
    **dict.fromkeys((int, bool, str, type(None)), _Fingerprint._plain),
    **dict.fromkeys((tuple, list), _Fingerprint._sequence),
    np.ndarray: _Fingerprint._array,
    IndexableArray: _Fingerprint._indexable,
    types.FunctionType: _Fingerprint._function,
    functools.partial: _Fingerprint._partial,
    Made: _Fingerprint._made,
    types.ModuleType: _Fingerprint._module,
    types.BuiltinFunctionType: _Fingerprint._builtin,
}

_constant: set[types.FunctionType] = set()
"""Functions of fa and PyTorch that hold nothing: nobody changes them."""


def declare_constant(*functions: types.FunctionType) -> None:
    """Says of functions of fa that nobody changes them, whatever they hold."""
    _constant.update(functions)


class Known(NamedTuple):
    """A trace that is kept."""

    variant: Variant
    order: tuple[int, ...]
    """Which of the fingerprint's arrays are captured."""
    number: int
    """As `Traced` has it."""
    extents: tuple[Extent, ...]
    """Likewise."""


_known: dict[tuple[Any, ...], Known] = {}


class Fingerprint(NamedTuple):
    """The key of a trace."""

    key: tuple[Any, ...]
    described: tuple[_Described, ...]
    """The arrays that the functions may read, which are no part of the key themselves."""
    is_fixed: bool
    """Whether the same functions have another key only when an array is another one."""


def fingerprint(*values: Any) -> Fingerprint | None:
    """That of functions and numbers; None if nothing is certain."""
    result = _Fingerprint()
    try:
        for value in values:
            result.add(value)
        if result.unknown and not result.unknown <= (result.fields or set()):
            return None
    except (_Unknown, RecursionError):
        return None
    return Fingerprint(tuple(result.key), tuple(result.described), result.is_fixed)


def get(found: Fingerprint) -> Traced | None:
    """The trace of a fingerprint, if it was kept."""
    known = _known.get(found.key)
    if known is None:
        return None
    captured = tuple([found.described[place][0] for place in known.order])
    return Traced(known.variant, captured, known.number, known.extents)


def put(found: Fingerprint, traced: Traced) -> None:
    """Keeps a trace whose captured arrays are among the fingerprint's."""
    places = {id(array): place for place, (array, *_) in enumerate(found.described)}
    order = tuple(places.get(id(array), -1) for array in traced.arrays)
    if -1 in order:
        return  # computed by the function
    if len(_known) >= _LIMIT:
        _known.clear()
    _known[found.key] = Known(traced.variant, order, traced.number, traced.extents)


class _Owned(NamedTuple):
    """The trace of a function that fa made."""

    function: Any
    described: tuple[_Described, ...]
    """The arrays that the function may read."""
    traced: Traced


def get_own(made: Made, how: tuple[Any, ...]) -> Traced | None:
    """The trace of a function that fa made, if `put_own` kept it and its arrays are described
    as they were. No fingerprint is taken: that takes the host several times as long.

    Args:
        made: the function.
        how: all else that its trace depends on.
    """
    owned = made.traces.get(how)
    if owned is None or owned.function is not made.function:
        return None
    try:
        for array, describe, description in owned.described:
            if describe(array) != description:
                return None
    except _Unknown:
        return None
    return owned.traced  # type: ignore[no-any-return]


def put_own(made: Made, how: tuple[Any, ...], found: Fingerprint, traced: Traced) -> None:
    """Keeps the trace of a function, of that fingerprint, with the function."""
    if found.is_fixed:
        made.traces[how] = _Owned(made.function, found.described, traced)


# --- Which tensors' values are read ------------------------------------------------

# What the key has of a tensor, and what capturing asks for.
_HARMLESS = ("size", "dim", "numel", "stride", "data_ptr", "is_neg", "__len__", "_set_grad_enabled")
_HARMLESS_PROPERTIES = (
    *("shape", "ndim", "dtype", "device", "layout", "is_cpu", "is_cuda", "is_meta"),
)


@functools.cache
def _watch_class(torch: Any) -> type:
    from torch.overrides import TorchFunctionMode

    class Watch(TorchFunctionMode):
        """Notices operations on tensors alone."""

        is_certain = True

        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            name = getattr(function, "__name__", "")
            if name == "__get__":
                harmless = getattr(function.__self__, "__name__", "") in _HARMLESS_PROPERTIES
            else:
                harmless = name in _HARMLESS
            if not harmless and not is_traced(args) and not is_traced(list(kwargs.values())):
                self.is_certain = False
            return function(*args, **kwargs)

    return Watch


class _NoWatch:
    """Where there is no PyTorch there are no tensors."""

    is_certain = True

    def __enter__(self) -> _NoWatch:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def watch() -> Any:
    """A context; `is_certain` afterwards: no tensor's value was read in it."""
    torch = sys.modules.get("torch")
    return _NoWatch() if torch is None else _watch_class(torch)()
