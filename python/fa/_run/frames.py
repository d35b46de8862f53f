# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which frames of a call are the user's, for messages that name their line."""

from __future__ import annotations

import functools
import os
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_NAMED = ("masks.py", "scores.py")
"""Files of fa whose functions stand for the user's."""


@functools.cache
def is_internal(filename: str) -> bool:
    """Whether a frame of the file is machinery, of fa or a library, not the user's."""
    folder, name = os.path.split(os.path.abspath(filename))
    if folder == _ROOT:
        return name not in _NAMED
    roots = [_ROOT]
    for module in ("torch", "numpy", "jax", "cupy"):
        file = getattr(sys.modules.get(module), "__file__", None)
        if file:
            roots.append(os.path.dirname(os.path.abspath(file)))
    return any(folder == root or folder.startswith(root + os.sep) for root in roots)


def users_level() -> int:
    """How many frames above the caller the user's is, as `warnings.warn` counts."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and is_internal(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    return level
