# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A warning where a number in Python, which is part of a kernel, makes one after the other."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Iterator
from typing import Any

from fa._run.frames import users_level
from fa._trace.made import Made, plain

_MOST = 8
"""Values of one number that are no reason to speak."""
_DEPTH = 8

_values: dict[tuple[types.CodeType, str], set[float] | None] = {}
"""The values that a name in a code had when it was traced; None once it was said."""


def _numbers(
    function: Any, depth: int = 0
) -> Iterator[tuple[types.FunctionType, str, int | float]]:
    """(function, name, number) for the numbers that a function, and those it holds, name."""
    if depth == _DEPTH:
        return
    function = plain(function)
    if isinstance(function, functools.partial):
        for name, value in function.keywords.items():
            yield from _named(function.func, name, value, depth)
        yield from _numbers(function.func, depth + 1)
        return
    if isinstance(function, types.MethodType):
        for name, value in getattr(function.__self__, "__dict__", {}).items():
            yield from _named(function.__func__, f"self.{name}", value, depth)
        function = function.__func__
    if not isinstance(function, types.FunctionType):
        return
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            yield from _named(function, name, cell.cell_contents, depth)
        except ValueError:  # not assigned yet
            continue
    for name in code.co_names:
        if name in function.__globals__:
            yield from _named(function, name, function.__globals__[name], depth)
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    for name, value in zip(names[len(names) - len(defaults) :], defaults):
        yield from _named(function, name, value, depth)
    for name, value in (function.__kwdefaults__ or {}).items():
        yield from _named(function, name, value, depth)


def _named(function: Any, name: str, value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(function, types.FunctionType):
            yield function, name, value
    elif isinstance(value, tuple):
        for item in value:
            if callable(item):
                yield from _numbers(item, depth + 1)
    elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial, Made)):
        yield from _numbers(value, depth + 1)


def note_traced(*functions: Any) -> None:
    """Notes the numbers of functions that are traced; warns once of one that changes often."""
    for given in functions:
        for function, name, value in _numbers(given):
            key = (function.__code__, name)
            seen = _values.setdefault(key, set())
            if seen is None:
                continue
            seen.add(value)
            if len(seen) > _MOST:
                _values[key] = None
                warnings.warn(
                    f"{_place(function)}: the number '{name}' had {len(seen)} values, now {value}; "
                    "a number in Python is part of the kernel, and each one compiles another: give "
                    f"torch.tensor({name.split('.')[-1]}), or an array of one element, which the "
                    "kernel reads when it runs",
                    stacklevel=users_level(),
                )


def _place(function: types.FunctionType) -> str:
    """The place of a function's source; for fa's own functions, their maker."""
    code, module = function.__code__, str(function.__globals__.get("__name__"))
    if module in ("fa.masks", "fa.scores", "fa._masks.blocks"):
        module = module.replace("_masks.blocks", "masks")
        return f"{module}.{function.__qualname__.partition('.')[0]}"
    return f"{code.co_filename}:{code.co_firstlineno}: in {code.co_name}"
