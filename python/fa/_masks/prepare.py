# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`fa.prepare`: a promise that arrays keep their values, and the lists that fa then keeps."""

from __future__ import annotations

from typing import Any

from fa._masks.blocks import block_mask, check_block_mask, is_block_mask
from fa._run.lists import Lists
from fa._trace.captured import is_array
from fa._trace.trace import call_function


class Prepared:
    """The result of `prepare`, which replaces its argument in calls.

    Attributes:
        origin: the argument of `prepare`.
        value: the same, or the mask function of a BlockMask.
        lists: the lists of blocks made from it.
        bounds: the bounds of packed sequences, computed from offsets.
    """

    __slots__ = ("origin", "value", "lists", "bounds", "__weakref__")

    def __init__(self, origin: Any) -> None:
        self.origin = origin
        self.value = block_mask(origin, True) if is_block_mask(origin) else origin
        self.lists = Lists()
        self.bounds: dict[Any, Any] = {}

    def check(self, q: Any, k: Any) -> None:
        """Raises ValueError if it is of a BlockMask for other sizes."""
        if is_block_mask(self.origin):
            check_block_mask(self.origin, q, k)

    def __call__(self, *arguments: Any) -> Any:
        return call_function(self.value, *arguments)

    def __reduce__(self) -> Any:
        return Prepared, (self.origin,)

    def __repr__(self) -> str:
        return f"fa.prepare({self.origin!r})"


def prepare(x: Any) -> Prepared:
    """Promises that the arrays of x keep their values.

    On a GPU fa then makes the lists of the blocks of keys that each block of rows sees once,
    for outputs and for gradients, and reuses them in later calls. Without the promise each
    call makes them, because code that neither fa nor PyTorch sees may write the arrays.
    Other arrays, such as q, k and v, may change. If the arrays of x do change, call `prepare`
    again; otherwise results are wrong.

    A CUDA graph uses the lists if they were made on its stream, or if a call on another
    stream has found them finished. The graph must then not outlive the result of `prepare`.
    Otherwise the graph makes lists of its own.

    Args:
        x: a mask function for `mask_mod` of `fa.attention`, with its captured arrays
            (`fa.masks.documents(ids)`); a BlockMask of FlexAttention; or offsets of packed
            sequences for `fa.attention_varlen`.

    Returns:
        A replacement of x for calls. It keeps x, and lists of a few KiB each, alive.

    Raises:
        TypeError: anything else.
        ValueError: a BlockMask whose lists name blocks that there are none of.
    """
    if isinstance(x, Prepared):
        return x
    if not callable(x) and not is_block_mask(x) and not is_array(x):
        raise TypeError(
            "expected a mask function, a BlockMask or an array of offsets, got "
            f"{type(x).__name__}; give the argument mask_mod or cu_seqlens_q of a call"
        )
    return Prepared(x)


def unprepared(x: Any) -> Any:
    """The argument of `prepare` that gave x, or x itself."""
    return x.value if isinstance(x, Prepared) else x
