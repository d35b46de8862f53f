# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions for use in score and mask functions, independent of array libraries.

`fa.math.where(kv_idx <= q_idx, score, -math.inf)` is an example. The names are PyTorch's;
`__all__` lists them. Inside a traced function they take traced values, numbers and
elements of captured arrays, and return traced values. PyTorch's and NumPy's own functions
do the same; these are for code that imports neither, and for JAX, whose functions take
only arrays.

Outside of a traced function they call the library of their arguments: PyTorch for tensors,
also in its FlexAttention, create_block_mask and torch.vmap; NumPy for arrays; and Python
for numbers, with a number as result. An array of NumPy is a TypeError if NumPy lacks the
function.
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
