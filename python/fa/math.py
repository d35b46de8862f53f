# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions for score and mask functions that belong to no array library.

`fa.math.where(kv_idx <= q_idx, score, -math.inf)` and the like: the names are
PyTorch's (`__all__` has all). They take traced values, numbers and elements of
captured arrays, and give traced values. PyTorch's functions and NumPy's do the
same for traced values; these are for code that imports neither, and for JAX,
whose functions take arrays only.
"""

from __future__ import annotations

from fa import _functions

globals().update(_functions._PUBLIC)

cast = _functions.cast

__all__ = [*_functions._PUBLIC, "cast"]


def __dir__() -> list[str]:
    return __all__
