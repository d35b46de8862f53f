# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The error of a function that can't be traced, and whose line it is at."""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

from fa._run.frames import is_internal

_state = threading.local()


class TraceError(ValueError):
    """A score or mask function cannot be traced; the message names the line."""


class NoAttribute(TraceError, AttributeError):
    """So that `hasattr` and `getattr` with a default work."""


@contextlib.contextmanager
def at_line(place: str | None) -> Iterator[None]:
    """Errors in it are at that place ("file:line: in function: "), where one is given."""
    before = getattr(_state, "place", None)
    _state.place = place or before
    try:
        yield
    finally:
        _state.place = before


def _user_line() -> str:
    place = getattr(_state, "place", None)
    if place is not None:
        return place
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith("<frozen") and not is_internal(code.co_filename):
            return f"{code.co_filename}:{frame.f_lineno}: in {code.co_name}: "
        frame = frame.f_back
    return ""


@contextlib.contextmanager
def collected() -> Iterator[list[TraceError]]:
    """Gives the errors that are raised while a function is traced: it may catch them."""
    before = getattr(_state, "errors", None)
    _state.errors = errors = []
    try:
        yield errors
    finally:
        _state.errors = before
        errors.clear()  # their tracebacks hold frames


def _collect(error: TraceError) -> TraceError:
    errors = getattr(_state, "errors", None)
    if errors is not None:
        errors.append(error)
    return error


def error(what: str, remedy: str) -> TraceError:
    """The error at the user's line, with the remedy."""
    return _collect(TraceError(f"{_user_line()}{what}; {remedy}"))


def no_attribute(what: str, name: str, remedy: str) -> TraceError:
    """For a `__getattr__`."""
    return _collect(NoAttribute(f"{_user_line()}{what} has no attribute {name!r} {remedy}"))


def is_caught_by_user(error: TraceError) -> bool:
    """Whether an error came to the user's code, which went on.

    An error that a library's C code or `hasattr` caught has no frame of the user's in its
    traceback.
    """
    at = error.__traceback__
    while at is not None:
        if not is_internal(at.tb_frame.f_code.co_filename):
            return True
        at = at.tb_next
    return False


def users_frames(at: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the frames of machinery; None if nothing is left."""
    frames = []
    while at is not None:
        if not is_internal(at.tb_frame.f_code.co_filename):
            frames.append(at)
        at = at.tb_next
    result: Any = None
    for own in reversed(frames):
        result = types.TracebackType(result, own.tb_frame, own.tb_lasti, own.tb_lineno)
    return result
