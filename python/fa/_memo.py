# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What was traced once is not traced again, where that is certain to be the same.

A function's trace is determined by its code and by what that reads. It is kept
under both if everything that the code may read is one of

- numbers, strings and None in global names, closure cells and defaults: kept by
  value, so that another number is another key;
- PyTorch's strided tensors there: by type, shape and device. Their values are not
  read, or the trace is not kept: while tracing, a mode of PyTorch's sees every
  operation on a tensor that no traced value takes part in;
- functions in Python there, which are looked into the same way, and what was
  assigned to their attributes;
- modules of arrays and mathematics, some builtins, and attributes by names known
  to be harmless.

Any other function (of attributes of an object, of arrays of NumPy, with
`import`, `nonlocal`, ...) is traced at each call, which takes a few hundred
microseconds.
"""

from __future__ import annotations

import builtins
import dis
import functools
import os
import sys
import types
from typing import Any, NamedTuple

from fa import _functions
from fa._rebind import uncompiled
from fa._scalars import PartlyIndexed, Scalar
from fa._variant import Extent, Variant

_LIMIT = 4096
"""Traces kept; then all are forgotten."""

_FORBIDDEN = {
    "DELETE_ATTR",
    "DELETE_DEREF",
    "DELETE_GLOBAL",
    "DELETE_NAME",
    "DELETE_SUBSCR",
    "IMPORT_FROM",
    "IMPORT_NAME",
    "IMPORT_STAR",
    "LOAD_BUILD_CLASS",
    "LOAD_CLASSDEREF",
    "LOAD_FROM_DICT_OR_DEREF",
    "LOAD_FROM_DICT_OR_GLOBALS",
    "LOAD_LOCALS",
    "LOAD_NAME",
    "LOAD_SUPER_ATTR",
    "SEND",
    "STORE_ATTR",
    "STORE_GLOBAL",
    "STORE_NAME",
    "YIELD_VALUE",
}
_BUILTINS = {
    name: getattr(builtins, name)
    for name in (
        *("abs", "bool", "divmod", "enumerate", "float", "int", "isinstance", "len", "list"),
        *("max", "min", "pow", "range", "reversed", "round", "sum", "tuple", "zip"),
    )
}
_ATTRIBUTES = {
    *_functions.METHODS,
    *("shape", "ndim", "dtype", "device", "size", "dim", "numel"),
    *("float16", "bfloat16", "float32", "int32", "int64", "pi", "e", "inf", "nan"),
    *("special", "nn", "functional", "math", "bit_length", "is_integer", "Tensor"),
    *("query_length", "key_length", "cast"),
}
_MODULES = ("math", "numpy", "torch", "fa", "jax")
_OWN = os.path.join(os.path.dirname(_functions.abs_.__code__.co_filename), "_")
"""How the files begin whose functions never change."""


@functools.lru_cache(_LIMIT)
def _global_names(code: types.CodeType) -> tuple[str, ...] | None:
    """What a code and those inside it look up; None if it does what no key can stand for."""
    names: dict[str, None] = {}
    for instruction in dis.get_instructions(code):
        op, argument = instruction.opname, instruction.argval
        if op in _FORBIDDEN or (op == "STORE_DEREF" and argument in code.co_freevars):
            return None
        if op == "LOAD_GLOBAL":
            names[argument] = None
        elif op in ("LOAD_ATTR", "LOAD_METHOD") and argument not in _ATTRIBUTES:
            return None
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            known = _global_names(inner)
            if known is None:
                return None
            names.update(dict.fromkeys(known))
    return tuple(names)


class _Unknown(Exception):
    """What is read can't be part of a key."""


class _Fingerprint:
    """The key of functions, and the tensors that they may read, in order."""

    def __init__(self) -> None:
        self.key: list[Any] = []
        self.tensors: list[Any] = []
        self._seen: dict[int, int] = {}
        torch = sys.modules.get("torch")
        self._tensors = () if torch is None else (torch.Tensor, torch.nn.Parameter)
        self._strided = None if torch is None else torch.strided

    def add(self, value: Any) -> None:
        """Adds a value; raises `_Unknown` if it is none of the known kinds."""
        kind = type(value)
        if kind is float:
            self.key.append(value.hex())  # tells -0.0 from 0.0; NaN equals itself
        elif value is None or kind is int or kind is bool or kind is str:
            self.key.append(kind)
            self.key.append(value)
        elif kind in self._tensors:
            self._tensor(value)
        elif kind is types.FunctionType:
            # Not by its __module__, which functools.wraps copies.
            if value.__code__.co_filename.startswith(_OWN) and not value.__dict__:
                self.key.append(value)
            else:
                self._function(value)
        elif kind is tuple or kind is list:
            self.key.append((kind, len(value)))
            for item in value:
                self.add(item)
        elif kind is types.ModuleType and value.__name__.partition(".")[0] in _MODULES:
            self.key.append(value)
        elif (
            kind is types.BuiltinFunctionType
            and value.__name__ in _functions.TABLE
            and isinstance(value.__self__, (types.ModuleType, type, type(None)))
        ):
            self.key.append(value)
        else:
            raise _Unknown

    def _tensor(self, tensor: Any) -> None:
        number = self._seen.get(id(tensor))
        if number is not None:
            self.key.append(number)
            return
        if tensor.__dict__ and not _ATTRIBUTES.isdisjoint(tensor.__dict__):
            raise _Unknown
        if tensor.layout is not self._strided:
            raise _Unknown  # of what can't be captured
        self._seen[id(tensor)] = len(self.tensors)
        self.tensors.append(tensor)
        shape = tensor.shape
        has_unit_stride = not shape or shape[-1] <= 1 or tensor.stride(-1) == 1
        self.key += [tensor.dtype, shape, tensor.device, has_unit_stride]

    def _function(self, function: types.FunctionType) -> None:
        # One that is being looked at, or was, is known by its place.
        number = self._seen.get(id(function))
        if number is not None:
            self.key.append(number)
            return
        self._seen[id(function)] = -1 - len(self._seen)
        code = function.__code__
        names = _global_names(code)
        if names is None:
            inner = uncompiled(function)
            if inner is function:
                raise _Unknown
            self.add(inner)
            return
        self.key.append(code)
        space = function.__globals__
        for name in names:
            if name in space:
                self.add(space[name])
            elif name not in _BUILTINS or vars(builtins).get(name) is not _BUILTINS[name]:
                raise _Unknown
        for cell in function.__closure__ or ():
            try:
                self.add(cell.cell_contents)
            except ValueError:
                raise _Unknown from None
        self.add(function.__defaults__)
        for named in (function.__kwdefaults__ or {}), function.__dict__:
            self.key.append(len(named))
            for name, value in named.items():
                self.key.append(name)
                self.add(value)


class Known(NamedTuple):
    """A trace that is kept."""

    variant: Variant
    order: tuple[int, ...]
    """Which of the fingerprint's tensors are captured."""
    number: int
    """As `fa._trace.Traced` has it."""
    extents: tuple[Extent, ...]
    """Likewise."""


_known: dict[tuple[Any, ...], Known] = {}


def fingerprint(*functions: Any) -> tuple[tuple[Any, ...], list[Any]] | None:
    """(key, tensors) of functions, None ones among them; None if nothing is certain."""
    result = _Fingerprint()
    try:
        for function in functions:
            result.add(function)
    except (_Unknown, RecursionError):
        return None
    return tuple(result.key), result.tensors


def get(key: tuple[Any, ...]) -> Known | None:
    """The trace of a key."""
    return _known.get(key)


def put(
    key: tuple[Any, ...],
    tensors: list[Any],
    variant: Variant,
    captured: tuple[Any, ...],
    number: int,
    extents: tuple[Extent, ...],
) -> None:
    """Keeps a trace whose captured arrays are among the fingerprint's tensors."""
    places = {id(tensor): place for place, tensor in enumerate(tensors)}
    order = tuple(places.get(id(array), -1) for array in captured)
    if -1 in order:
        return  # computed by the function
    if len(_known) >= _LIMIT:
        _known.clear()
    _known[key] = Known(variant, order, number, extents)


# --- Which tensors' values are read ------------------------------------------------

# What the key has of a tensor, and what capturing asks for.
_HARMLESS = ("size", "dim", "numel", "stride", "data_ptr", "__len__")
_HARMLESS_PROPERTIES = ("shape", "ndim", "dtype", "device")


def _has_traced(values: Any) -> bool:
    return any(
        isinstance(value, (Scalar, PartlyIndexed))
        or (isinstance(value, (tuple, list)) and _has_traced(value))
        for value in values
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
            if not harmless and not _has_traced(args) and not _has_traced(kwargs.values()):
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
