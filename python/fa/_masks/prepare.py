# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`fa.prepare`: a promise that arrays keep their values, and what is kept on its word."""

from __future__ import annotations

from typing import Any

from fa._masks.blocks import block_mask, check_block_mask, is_block_mask
from fa._run.lists import Lists
from fa._trace.captured import is_array
from fa._trace.trace import call_function


class Prepared:
    """What `prepare` gives, in the place of what it was given.

    Attributes:
        origin: what `prepare` was given.
        value: that; of a BlockMask its mask function.
        lists: lists of blocks that were made of it.
        bounds: what packed sequences need of offsets.
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
    """x, of whose arrays you promise that their values stay as they are.

    What fa makes of these values for a call, which blocks of keys a block of rows
    sees, is then made once and used again in later calls on a GPU, and so is what their
    gradients need; without this it is made in each call, because the memory of an array
    can be written by what neither fa nor PyTorch sees. Other arrays, such as q, k and v,
    may change. If the values do change, call `prepare` again; results are wrong
    otherwise. A CUDA graph uses them if they were made on its stream or a call on
    another one has found them finished, and must then not outlive what this returns;
    else it makes its own.

    Args:
        x: a mask function, for `mask_mod` of `fa.attention`, with what it captures
            (`fa.masks.documents(ids)`); a BlockMask of FlexAttention; or offsets of
            packed sequences, for `fa.attention_varlen`.

    Returns:
        What takes x's place in calls. It keeps x, and lists of a few KiB each, alive.

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
    """What was prepared, or x itself."""
    return x.value if isinstance(x, Prepared) else x
