# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions whose arrays can't be indexed with traced values, made anew.

PyTorch's tensors hand an index that they don't know over to it. Arrays of NumPy,
JAX and others don't, Python's `min` and `max` ask for the truth of a
comparison, and functions of `math` and `jax.numpy` for a number. A function
that uses them is made anew around the same code, with other values for the
global names, closure cells, defaults and attributes that it reads: arrays in a
wrapper, and functions that know of traced values.

`is`, `type` and `isinstance` must find the same as before. Classes, members of
enumerations, numbers, and objects that hold only such are left as they are; of
another value there is one wrapper, and it has the value's class.
"""

from __future__ import annotations

import builtins
import enum
import functools
import inspect
import numbers
import sys
import types
from typing import Any

from fa import _functions
from fa._scalars import PartlyIndexed, Scalar, get_item, is_array

_CONTAINERS = (tuple, list, dict, set, frozenset)
_DEPTH = 16
"""How deep functions and containers are followed into each other."""


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def uncompiled(function: Any) -> Any:
    """What torch.compile or torch.compiler.disable was given, of what it gave."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if frames is None:
        return function
    if isinstance(function, types.FunctionType):
        # Whose code it is: functools.wraps copies attributes.
        is_own = function.__globals__ is not vars(frames)
        inner = None if is_own else function.__dict__.get("_torchdynamo_orig_callable")
        return function if inner is None else uncompiled(inner)
    if isinstance(function, types.MethodType):
        own = function.__func__
        inner = uncompiled(own)
        return function if inner is own else types.MethodType(inner, function.__self__)
    if isinstance(function, frames.OptimizedModule):
        return uncompiled(function._orig_mod)
    is_module = isinstance(function, sys.modules["torch"].nn.Module)
    return function._call_impl if is_module and function._compiled_call_impl else function


def _is_traced(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_is_traced, value))
    return isinstance(value, (Scalar, PartlyIndexed))


class _Array:
    """An array that can be indexed with traced values; else the array itself."""

    __array_ufunc__ = None  # operators ask the traced value first
    __class__ = property(lambda self: type(self._fa_array))  # type: ignore[assignment]

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


_MODULES = ("math", "jax", "jaxlib", "numpy", "cupy", "ml_dtypes")
_LEFT = ("builtins", "torch", "fa", "functools")


def _jax_gelu(x: Any, approximate: bool = True) -> Any:
    return _functions.gelu(x, "tanh" if approximate else "none")


_OF_JAX = {
    "gelu": _jax_gelu,
    "hard_tanh": _functions.hardtanh,
    "hard_sigmoid": _functions.hardsigmoid,
    "hard_silu": _functions.hardswish,
    "hard_swish": _functions.hardswish,
    "soft_sign": _functions.softsign,
    "swish": _functions.silu,
}
"""What jax.nn calls or takes to be something else than PyTorch."""
_OF_LAX = {
    "clamp": lambda least, x, most: _functions.clamp(x, least, most),
    "div": lambda x, y: _functions.div(
        x, y, rounding_mode=None if "f32" in (_type_of(x), _type_of(y)) else "trunc"
    ),
    "round": None,
}
"""What jax.lax takes to be something else than PyTorch; None can't be traced."""


def _type_of(x: Any) -> str:
    return x._type if isinstance(x, Scalar) else "f32" if isinstance(x, float) else ""


def _math_isclose(x: Any, y: Any, *, rel_tol: float = 1e-9, abs_tol: float = 0.0) -> Any:
    f = _functions
    size = f.maximum(f.abs_(x), f.abs_(y))
    near = f.le(f.abs_(f.sub(x, y)), f.maximum(f.mul(size, rel_tol), abs_tol))
    return f.or_(f.and_(near, f.isfinite(size)), f.eq(x, y))


def _math_remainder(x: Any, y: Any) -> Any:
    f = _functions
    return f.sub(x, f.mul(y, f.round_(f.true_divide(x, y))))


_OF_MATH = {"isclose": _math_isclose, "remainder": _math_remainder}
"""What Python's math takes to be something else than PyTorch."""


def _known(module: Any, name: str) -> Any:
    """The function for traced values, of a module's function; None if there is none."""
    module = module if isinstance(module, str) else ""
    root = module.partition(".")[0]
    # What NumPy's other modules have by these names is something else: numpy.random.power.
    if root not in _MODULES or module.startswith(("numpy.random", "numpy.lib", "numpy.emath")):
        return None
    if module.startswith(("jax.lax", "jax._src.lax")) and name in _OF_LAX:
        return _OF_LAX[name]
    if module.startswith("jax") and name in _OF_JAX:
        return _OF_JAX[name]
    if module == "math" and name in _OF_MATH:
        return _OF_MATH[name]
    if module == "math" and name in ("floor", "ceil", "trunc"):
        return _functions.TABLE[f"__{name}__"]  # integers
    return None if name.startswith("__") else _functions.TABLE.get(name)


class _Module:
    """A module whose functions take traced values where `fa.math` has them."""

    __class__ = types.ModuleType  # type: ignore[assignment]

    def __init__(self, module: Any, rebind: _Rebinder) -> None:
        self._module = module
        self._fa_rebind = rebind

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._module, name)
        if isinstance(own, types.ModuleType):
            return self._fa_rebind(own)
        known = _known(self._module.__name__, name)
        if isinstance(own, type) or not callable(own):
            return own
        # Of another function it is the result that may be an array.
        return self._fa_rebind.either(own if known is None else known, own)


class _Either:
    """A function that is another one where a value is traced; equal to its own."""

    def __init__(self, traced: Any, own: Any) -> None:
        self._fa_traced = traced
        self._fa_own = own

    __class__ = property(lambda self: type(self._fa_own))  # type: ignore[assignment]

    def __call__(self, *args: Any, **options: Any) -> Any:
        plain = {name: _plain(value) for name, value in options.items()}
        if any(map(_is_traced, args)) or any(map(_is_traced, options.values())):
            return self._fa_traced(*_plain(args), **plain)
        return _wrapped(self._fa_own(*_plain(args), **plain))

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._fa_own, name)
        if name.startswith("__") or isinstance(own, type) or not callable(own):
            return own
        return _Either(own, own)  # numpy.add.outer

    def __eq__(self, other: object) -> bool:
        return self._fa_own == getattr(other, "_fa_own", other)

    def __hash__(self) -> int:
        return hash(self._fa_own)


class _TypeOfType(type):
    """Makes `_Type` behave as `type`."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        if len(args) != 1 or options:
            return type(*args, **options)
        found = type(args[0])
        if found in (_Array, _Either, _Module, _Object):
            return args[0].__class__
        return cls if found is type else found

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, type)

    def __subclasscheck__(cls, value: Any) -> bool:
        return issubclass(value, type)


class _Type(metaclass=_TypeOfType):
    """`type`, which finds the class of what is wrapped."""


_OF_PYTHON = {min: _functions.min_, max: _functions.max_}


class _Object:
    """An object whose attributes and elements are rebound as they are read."""

    def __init__(self, value: Any, rebind: Any) -> None:
        self._fa_value = value
        self._fa_rebind = rebind

    # What isinstance believes.
    __class__ = property(lambda self: type(self._fa_value))  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        value = self._fa_value
        own = inspect.getattr_static(type(value), name, None)
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


_ATOMS = (bool, str, bytes, type(None), type(...), type, Scalar, enum.Enum, numbers.Number)
_UNREAD = {
    *("__init__", "__post_init__", "__new__", "__repr__", "__str__", "__eq__", "__hash__"),
    *(
        "__setattr__",
        "__delattr__",
        "__replace__",
        "__annotations__",
        "__lt__",
        "__le__",
        "__gt__",
        "__ge__",
    ),
}
"""Methods that every dataclass has, and that read no more than its fields."""


def _is_plain(value: Any) -> bool:
    """Whether an object and its classes hold nothing that is rebound."""
    held = list(getattr(value, "__dict__", {}).values())
    for kind in type(value).__mro__[:-1]:
        if "__slots__" in vars(kind):
            return False
        for name, item in vars(kind).items():
            is_read = name not in _UNREAD and not name.startswith("__dataclass")
            if is_read and not isinstance(item, types.GetSetDescriptorType):
                held.append(item)
    return all(isinstance(item, _ATOMS) and not is_array(item) for item in held)


class _Rebinder:
    """Rebinds values, each once."""

    def __init__(self) -> None:
        self._done: dict[int, Any] = {}
        self._eithers: dict[tuple[int, int], _Either] = {}
        self._depth = 0

    def either(self, traced: Any, own: Any) -> _Either:
        """The one wrapper of a function of a library."""
        return self._eithers.setdefault((id(traced), id(own)), _Either(traced, own))

    def __call__(self, value: Any) -> Any:
        if isinstance(value, _ATOMS) or type(value) in (_Array, _Either, _Module, _Object):
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
        self._done[id(value)] = (value, result)  # the first keeps the id in use
        return result

    def _rebind(self, value: Any) -> Any:
        if _is_tensor(value):
            return value
        if is_array(value):
            return _wrapped(value)
        inner = uncompiled(value)
        if inner is not value:
            return self(inner)
        if isinstance(value, types.ModuleType):
            root = value.__name__.partition(".")[0]
            if root in _MODULES:
                return _Module(value, self)
            return (
                value if root in _LEFT or root in sys.stdlib_module_names else _Object(value, self)
            )
        known = self._library_function(value)
        if known is not None:
            return self.either(known, value)
        if isinstance(value, types.FunctionType):
            root = str(value.__globals__.get("__name__")).partition(".")[0]
            # Nothing of the user's is in it, and `is` finds it in its module.
            is_left = value.__closure__ is None and root in ("torch", "fa")
            return value if is_left else self._function(value)
        if isinstance(value, types.MethodType):
            owner = value.__self__
            if not isinstance(value.__func__, types.FunctionType):
                return value
            own = owner if isinstance(owner, type) else _Object(owner, self)
            return types.MethodType(self(value.__func__), own)
        if isinstance(value, functools.partial):
            keywords = {name: self(item) for name, item in value.keywords.items()}
            return functools.partial(self(value.func), *map(self, value.args), **keywords)
        if type(value) in _CONTAINERS:
            if type(value) is dict:
                return {self(key): self(item) for key, item in value.items()}
            return type(value)(map(self, value))
        module = type(value).__module__
        if module.partition(".")[0] in _LEFT:
            return value
        if callable(value) and not isinstance(type(value).__call__, types.FunctionType):
            return value
        return value if _is_plain(value) else _Object(value, self)

    @staticmethod
    def _library_function(value: Any) -> Any:
        """What traced values want instead of a function of a library, or of min and max."""
        if isinstance(value, types.BuiltinFunctionType):
            if value in _OF_PYTHON:
                return _OF_PYTHON[value]
            if not isinstance(value.__self__, (types.ModuleType, type(None))):
                return None
        elif isinstance(value, types.MethodType) or not callable(value):
            return None
        module = getattr(value, "__module__", "")
        if isinstance(value, types.FunctionType):  # functools.wraps copies __module__
            module = value.__globals__.get("__name__")
        return _known(module, getattr(value, "__name__", ""))

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        code = function.__code__
        names = _names(code)
        space: dict[str, Any] = {"__builtins__": builtins}
        empty = tuple(types.CellType() for _ in code.co_freevars)
        result = types.FunctionType(code, space, function.__name__, None, empty or None)
        self._done[id(function)] = (function, result)  # where it calls itself
        own = function.__globals__
        for name in names:
            if name in own:
                space[name] = self(own[name])
            elif name in ("min", "max"):
                space[name] = self(getattr(builtins, name))
            elif name == "type":
                space[name] = _Type
        for cell, given in zip(empty, function.__closure__ or ()):
            try:
                cell.cell_contents = self(given.cell_contents)
            except ValueError:  # not assigned yet
                pass
        result.__defaults__ = function.__defaults__ and tuple(map(self, function.__defaults__))
        result.__kwdefaults__ = function.__kwdefaults__ and {
            name: self(value) for name, value in function.__kwdefaults__.items()
        }
        for name, value in function.__dict__.items():
            setattr(result, name, self(value))
        return result


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
