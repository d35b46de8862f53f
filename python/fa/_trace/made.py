# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that functions make, and that can be pickled: fa's named masks and scores."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any


class Made:
    """A function with its maker and the maker's arguments.

    A pickle holds the maker and its arguments; another process makes the function anew.

    Attributes:
        function: the function.
        maker: the function of a module that made it.
        args: the maker's arguments.
        options: the maker's keywords.
        traces: traces that `memo` keeps; no part of the function's identity.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        maker: Callable[..., Any],
        args: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> None:
        self.function = function
        self.maker = maker
        self.args = args
        self.options = options
        self.traces: dict[Any, Any] = {}
        self.__name__ = maker.__name__
        self.__doc__ = maker.__doc__

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.function)  # which PyTorch tells masks and scores apart by

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __reduce__(self) -> Any:
        return _make, (self.maker, self.args, self.options)

    def __repr__(self) -> str:
        given = [*map(repr, self.args), *(f"{k}={v!r}" for k, v in self.options.items())]
        return f"{self.maker.__module__}.{self.maker.__qualname__}({', '.join(given)})"


def _make(maker: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return maker(*args, **options)


def picklable(maker: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function of a module that makes functions: these can be pickled then."""

    @functools.wraps(maker)
    def make(*args: Any, **options: Any) -> Any:
        return Made(maker(*args, **options), make, args, options)

    return make


def plain(function: Any) -> Any:
    """The function itself, of one that was made."""
    return function.function if type(function) is Made else function
