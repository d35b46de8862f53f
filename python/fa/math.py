# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions for score and mask functions that belong to no array library.

`fa.math.where(kv_idx <= q_idx, score, -math.inf)` and the like: the names are
PyTorch's (`__all__` has all). In a function that fa traces they take traced
values, numbers and elements of captured arrays, and give traced values. PyTorch's
functions and NumPy's do the same for traced values; these are for code that
imports neither, and for JAX, whose functions take arrays only.

Elsewhere they are the functions of their arguments' library: of tensors PyTorch's,
also in its FlexAttention, create_block_mask and torch.vmap; of arrays NumPy's; and
of numbers in Python a number. What NumPy has no function for is a TypeError for
its arrays.
"""

from __future__ import annotations

from fa._trace import functions as _functions
from fa._trace.dispatch import cast, dispatching
from fa._trace.memo import declare_constant as _declare_constant

_own = {name: dispatching(name) for name in _functions.PUBLIC}
_declare_constant(cast, *_own.values())
globals().update(_own)

__all__ = [*_functions.PUBLIC, "cast"]


def __dir__() -> list[str]:
    return __all__
