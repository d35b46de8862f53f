# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions whose arrays can't be indexed with traced values, made anew.

PyTorch's tensors hand an index that they don't know over to it. Arrays of NumPy,
JAX and others don't, Python's `min` and `max` ask for the truth of a
comparison, and functions of `math` and `jax.numpy` for a number. A function
that uses them is made anew around the same code, with other values for the
global names, closure cells, defaults and attributes that it reads: arrays in a
wrapper, and functions that know of traced values.
"""

from __future__ import annotations

import builtins
import functools
import math
import sys
import types
from typing import Any

from fa import _functions
from fa._scalars import PartlyIndexed, Scalar, get_item, is_array

_CONTAINERS = (tuple, list, dict)
_DEPTH = 16
"""How deep functions and containers are followed into each other."""


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_traced(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(_is_traced, value))
    return isinstance(value, (Scalar, PartlyIndexed))


class _Array:
    """An array that can be indexed with traced values; else the array itself."""

    __array_ufunc__ = None  # operators ask the traced value first

    def __init__(self, array: Any) -> None:
        self._fa_array = array

    def __getitem__(self, index: Any) -> Any:
        index = _plain(index)
        if _is_traced(index):
            return get_item(self._fa_array, index)
        return _wrapped(self._fa_array[index])

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._fa_array, name)
        if not callable(value) or name.startswith("__"):
            return _wrapped(value)
        return lambda *args, **options: _wrapped(value(*_plain(args), **options))

    def __len__(self) -> int:
        return len(self._fa_array)

    def __array__(self, *args: Any, **options: Any) -> Any:
        return self._fa_array.__array__(*args, **options)


def _operator(name: str) -> Any:
    def apply(self: _Array, *others: Any) -> Any:
        if any(map(_is_traced, others)):
            return _functions.TABLE[name](self._fa_array, *others)
        return _wrapped(getattr(self._fa_array, name)(*_plain(others)))

    return apply


for _name in _functions.TABLE:
    if _name.startswith("__"):
        setattr(_Array, _name, _operator(_name))
setattr(_Array, "__hash__", object.__hash__)  # noqa: B010 (== is an operator above)


def _wrapped(value: Any) -> Any:
    if is_array(value) and not _is_tensor(value) and not isinstance(value, (_Array, Scalar)):
        return _Array(value) if len(value.shape) else value
    return value


def _plain(value: Any) -> Any:
    """A value without wrappers."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value._fa_array if isinstance(value, _Array) else value


class _Module:
    """A module whose functions take traced values where `fa.math` has them."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._module, name)
        if isinstance(own, types.ModuleType):
            return _Module(own)
        # math's floor and ceil give integers.
        known = _functions.TABLE.get(name)
        if self._module is math and name in ("floor", "ceil", "trunc"):
            known = _functions.TABLE[f"__{name}__"]
        return own if known is None or not callable(own) else _either(known, own)


def _either(traced: Any, own: Any) -> Any:
    """The first function where a value is traced, else the second."""

    @functools.wraps(own)
    def call(*args: Any, **options: Any) -> Any:
        if any(map(_is_traced, args)) or any(map(_is_traced, options.values())):
            return traced(*_plain(args), **{k: _plain(v) for k, v in options.items()})
        return _wrapped(own(*_plain(args), **{k: _plain(v) for k, v in options.items()}))

    return call


_MODULES = ("math", "jax", "jaxlib", "numpy", "cupy", "ml_dtypes")
_LEFT = ("builtins", "torch", "fa", "functools")
_BUILTINS = {
    "min": _either(_functions.TABLE["min"], min),
    "max": _either(_functions.TABLE["max"], max),
}


class _Object:
    """An object whose attributes and elements are rebound as they are read."""

    def __init__(self, value: Any, rebind: Any) -> None:
        self._fa_value = value
        self._fa_rebind = rebind

    # What isinstance believes.
    __class__ = property(lambda self: type(self._fa_value))  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        value = self._fa_value
        own = getattr(type(value), name, None)
        if isinstance(own, types.FunctionType) and name not in getattr(value, "__dict__", ()):
            return types.MethodType(self._fa_rebind(own), self)
        if isinstance(own, property) and isinstance(own.fget, types.FunctionType):
            return self._fa_rebind(own.fget)(self)
        return self._fa_rebind(getattr(value, name))

    def __call__(self, *args: Any, **options: Any) -> Any:
        function = self._fa_rebind(type(self._fa_value).__call__)
        return types.MethodType(function, self)(*args, **options)

    def __getitem__(self, index: Any) -> Any:
        return self._fa_rebind(self._fa_value[index])

    def __iter__(self) -> Any:
        return map(self._fa_rebind, iter(self._fa_value))

    def __len__(self) -> int:
        return len(self._fa_value)

    def __bool__(self) -> bool:
        return bool(self._fa_value)

    def __contains__(self, item: Any) -> bool:
        return item in self._fa_value

    def __eq__(self, other: object) -> bool:
        return self._fa_value == getattr(other, "_fa_value", other)

    def __hash__(self) -> int:
        return hash(self._fa_value)


class _Rebinder:
    """Rebinds values, each once; `changed` if one became another."""

    def __init__(self) -> None:
        self.changed = False
        self._done: dict[int, Any] = {}
        self._depth = 0

    def __call__(self, value: Any) -> Any:
        if isinstance(value, (bool, int, float, str, type(None), Scalar, type)):
            return value
        found = self._done.get(id(value))
        if found is not None:
            return found[1]
        if self._depth == _DEPTH:
            return value
        self._depth += 1
        try:
            result = self._rebind(value)
        finally:
            self._depth -= 1
        if result is not value:
            self.changed = True
        self._done[id(value)] = (value, result)  # the first keeps the id in use
        return result

    def _rebind(self, value: Any) -> Any:
        if _is_tensor(value):
            return value
        if is_array(value):
            return _wrapped(value)
        if isinstance(value, types.ModuleType):
            root = value.__name__.partition(".")[0]
            if root in _MODULES:
                return _Module(value)
            return (
                value if root in _LEFT or root in sys.stdlib_module_names else _Object(value, self)
            )
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            owner = value.__self__
            if isinstance(owner, type) or not isinstance(value.__func__, types.FunctionType):
                return value
            return types.MethodType(self(value.__func__), _Object(owner, self))
        if isinstance(value, functools.partial):
            keywords = {name: self(item) for name, item in value.keywords.items()}
            return functools.partial(self(value.func), *map(self, value.args), **keywords)
        if type(value) in _CONTAINERS:
            if type(value) is dict:
                return {key: self(item) for key, item in value.items()}
            return type(value)(map(self, value))
        module = type(value).__module__
        if module.partition(".")[0] in _LEFT:
            return value
        if callable(value) and not isinstance(type(value).__call__, types.FunctionType):
            known = _functions.TABLE.get(getattr(value, "__name__", ""))
            return _either(known, value) if known else value
        return _Object(value, self)

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        code = function.__code__
        names = _names(code)
        space = {name: function.__globals__[name] for name in names if name in function.__globals__}
        self._done[id(function)] = (function, function)  # where it calls itself
        for name in list(space):
            space[name] = self(space[name])
        for name, replacement in _BUILTINS.items():
            if name in names and name not in space:
                space[name] = replacement
        space["__builtins__"] = builtins
        cells = None
        if function.__closure__ is not None:
            cells = tuple(map(self._cell, function.__closure__))
        defaults = function.__defaults__ and tuple(map(self, function.__defaults__))
        result = types.FunctionType(code, space, function.__name__, defaults, cells)
        result.__kwdefaults__ = function.__kwdefaults__ and {
            name: self(value) for name, value in function.__kwdefaults__.items()
        }
        return result

    def _cell(self, cell: types.CellType) -> types.CellType:
        try:
            return types.CellType(self(cell.cell_contents))
        except ValueError:  # not assigned yet
            return cell


def _names(code: types.CodeType) -> set[str]:
    """The names that a code and those inside it may look up."""
    names = set(code.co_names)
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            names |= _names(item)
    return names


def rebind(function: Any) -> Any:
    """The function with arrays, modules and builtins that know of traced values."""
    return _Rebinder()(function)
