# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of fa.math for whatever they are given, traced or not.

While a score or mask function is traced they are those of `fa._trace.functions`.
Elsewhere they are the function of that name of the arguments' library: the same
score function then runs in FlexAttention, under torch.vmap and on plain arrays.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from fa._trace import functions as _functions
from fa._trace.captured import is_traced
from fa._trace.scalars import is_tracing

# --- Where a library has its functions ---------------------------------------------

_SPACES = {
    "torch": ("torch", "torch.nn.functional", "torch.special"),
    "numpy": ("numpy",),
    "cupy": ("cupy",),
    "jax": ("jax.numpy",),
    "jaxlib": ("jax.numpy",),
}
"""Modules in which functions are looked for, by the package of an array's class."""

_ORDER = ("torch", "jax", "jaxlib", "cupy", "numpy")
"""Whose functions take the others' arrays, first."""


_OTHER_NAMES = {"clamp": "clip", "clamp_min": "maximum", "clamp_max": "minimum"}
"""NumPy's, where `fa._trace.functions` has another function for the same."""


@functools.cache
def _library_function(package: str, names: tuple[str, ...]) -> Callable[..., Any] | None:
    """The first function of these names that the library has, or None."""
    for space in _SPACES[package]:
        module = importlib.import_module(space)
        for name in names:
            function = getattr(module, name, None)
            if callable(function):
                return function
    return None


def _package(value: Any) -> str | None:
    """The package of an array; None if no known one has it."""
    for kind in type(value).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in _SPACES:
            return package
    return None


# --- Calls ---------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _tensors(torch: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with tensors in the place of numbers."""
    like = None
    for arg in args:
        if like is None and isinstance(arg, torch.Tensor):
            like = arg
    result = []
    for arg in args:
        if _is_number(arg):
            # Of a tensor's own type where that has it: numbers promote nothing.
            is_float = like is not None and like.is_floating_point()
            is_kept = like is not None and like.dtype != torch.bool and not isinstance(arg, bool)
            dtype = like.dtype if is_kept and (is_float or not isinstance(arg, float)) else None
            arg = torch.as_tensor(arg, dtype=dtype, device=None if like is None else like.device)
        result.append(arg)
    return tuple(result)


def _of_torch(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A function of PyTorch's, some of which want tensors where others take numbers."""
    try:
        return function(*args, **options)
    except TypeError:
        if not any(map(_is_number, args)):
            raise
    return function(*_tensors(sys.modules["torch"], args), **options)


def _of_dynamo(
    torch: Any, names: tuple[str, ...], args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """The same, where torch.compile traces this code."""
    for space in (torch, torch.nn.functional, torch.special):
        for name in names:
            function = getattr(space, name, None)
            if function is not None:
                return function(*_tensors(torch, args), **options)
    raise TypeError(f"PyTorch has no function {names[0]}")


def _of_numbers(names: tuple[str, ...], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Of numbers in Python, as a number."""
    function = _library_function("numpy", names)
    if function is not None:
        return function(*args, **options).item()
    try:
        import torch
    except ImportError:
        raise TypeError(
            f"expected an array or a traced value for fa.math.{names[0]} without PyTorch, got "
            f"{', '.join(type(arg).__name__ for arg in args)}; NumPy has no such function: write "
            "it out"
        ) from None
    numbers = [torch.as_tensor(arg, dtype=torch.float64) for arg in args]
    return _library_function("torch", names)(*numbers, **options).item()


def _of_arrays(names: tuple[str, ...], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Of arrays and numbers, by the arrays' library."""
    packages = {_package(value) for value in args} - {None}
    package = min(packages, key=_ORDER.index)
    function = _library_function(package, names)
    if function is None:
        raise TypeError(
            f"expected traced values or tensors of PyTorch for fa.math.{names[0]}, got an array of "
            f"{package}, which has no such function; convert it, or write the function out"
        )
    return _of_torch(function, args, options) if package == "torch" else function(*args, **options)


def dispatching(name: str) -> Callable[..., Any]:
    """The function of fa.math of that name."""
    own = _functions.PUBLIC[name]
    names = (
        name,
        *(other for other, same in _functions._ALIASES.items() if same is own.__wrapped__),
    )
    names += (_OTHER_NAMES[name],) if name in _OTHER_NAMES else ()
    parameters = inspect.signature(own).parameters.values()
    required = tuple([p.name for p in parameters if p.default is p.empty])
    optional = tuple([p.name for p in parameters if p.default is not p.empty])

    @functools.wraps(own)
    def apply(*args: Any, **options: Any) -> Any:
        if is_tracing() or any([is_traced(arg) for arg in args]):
            return own(*args, **options)
        # By name what may be left out: libraries have it in other places.
        named = dict(zip((*required, *optional), args))
        named.update(options)
        values = tuple([named.pop(key) for key in required if key in named])
        if len(values) == len(required) and len(args) <= len(required) + len(optional):
            torch = sys.modules.get("torch")
            if torch is not None and torch.compiler.is_dynamo_compiling():
                return _of_dynamo(torch, names, values, named)
            if all([_is_number(value) for value in values]):
                return _of_numbers(names, values, named)
            if any([_package(value) is not None for value in values]):
                return _of_arrays(names, values, named)
        return own(*args, **options)  # whose error says what it takes

    apply.__name__ = apply.__qualname__ = name
    apply.__module__ = "fa.math"
    return apply


_SIZES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long": "int64",
    "int": "int64",
}
"""The types that fa takes for types without a size."""


def _cast(x: Any, dtype: Any) -> Any:
    if is_tracing() or is_traced(x):
        return _functions.cast(x, dtype)
    name = _functions.dtype_name(dtype)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor) and name in _functions._KINDS:
        return x.to(getattr(torch, _SIZES.get(name, name)))
    if name not in _functions._KINDS:
        raise ValueError(
            f"expected float64, float32, float16, bfloat16, int32, int64 or bool to cast to, got {name}; "
            "take one of them"
        )
    kind = _functions._KINDS[name]
    if _is_number(x):
        return kind(x)
    package = _package(x)
    if package is None:
        return _functions.cast(x, dtype)
    return x.astype(_SIZES.get(name, name))


cast = functools.wraps(_functions.cast)(_cast)
cast.__module__ = "fa.math"

__all__ = ["cast", "dispatching"]
