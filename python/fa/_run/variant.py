# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A traced score and mask function, and dropout: its text, and the arrays of a call."""

from __future__ import annotations

import functools
import json
import threading
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple


def is_padded(type: str) -> bool:
    """Whether a captured array's type has a last dimension of size 1 of its own.

    Kernels want unit stride in the last dimension; where an array has another
    one, that dimension is appended.
    """
    return "?x1x" in type


def is_floating(type: str) -> bool:
    """Whether a captured array of that type has a gradient."""
    element = type.removesuffix(">").rpartition("x")[2].removeprefix("tensor<")
    return element in ("f64", "f32", "f16", "bf16")


COORDINATES = ("b", "h", "q_idx", "kv_idx")
"""The coordinates that score and mask functions are called with, in order."""


class Extent(NamedTuple):
    """The size that an array needs, in a call, because a coordinate indexes it.

    There must be an element for each value that the coordinate has in the call.
    Where one of fa's own functions reads (`reader`), there must be exactly as many
    for batch entries and heads, and 1 goes for all.
    """

    reader: str
    """The function: "fa.masks.documents"; "" for the user's own."""
    coordinate: str
    """Which of `COORDINATES`."""
    array: int
    """Which of the captured arrays has the size; -1 for a number in Python."""
    size: int
    """Its dimension, or that number."""

    def is_exact(self) -> bool:
        """Whether more elements than the coordinate has values are too many."""
        return self.reader != "" and self.coordinate in ("b", "h")

    def admits(self, size: int, least: int) -> bool:
        """Whether an array of that size goes with so many values of the coordinate."""
        if least == 0 or size == least or (size > least and not self.is_exact()):
            return True
        return size == 1 and self.reader != "" and self.array >= 0

    def native(self) -> tuple[int, int, int, int]:
        """(coordinate, array, size, kind) for `_native`; kind: 0 for at least as many
        elements, 1 for those or 1, 2 for exactly as many or 1."""
        kind = 0 if self.reader == "" else 2 if self.is_exact() else 1
        return (COORDINATES.index(self.coordinate), self.array, self.size, kind)


class Function(NamedTuple):
    """A traced function: the region's ops, and the value that it yields."""

    ops: tuple[str, ...]
    result: str


@dataclass(frozen=True)
class Variant:
    """The traced score and mask functions of an attention variant; hashable.

    `str(variant)` is the text of the regions.

    Attributes:
        score: the score function; None for the scaled product itself.
        mask: the mask function; None where every key is seen.
        captured: the types of the captured arrays, arguments of the kernel
            after q, k and v: ("tensor<?x?xf32>", ...).
        lengths: which of "query_length" and "key_length" the functions read.
        dropout: of how many of 256 random numbers a weight is dropped. The seed
            is then the last of the captured arrays.
        compute_type: the type of scores and of all floats that functions compute
            with: "f32", or "f64" for q, k and v of float64.
        arrays: the captured arrays themselves; no part of the variant's
            identity.
    """

    score: Function | None = None
    mask: Function | None = None
    captured: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    dropout: int = 0
    compute_type: str = "f32"
    arrays: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    @functools.cached_property
    def floating(self) -> tuple[int, ...]:
        """The numbers of the captured arrays that have gradients."""
        return tuple([n for n, type in enumerate(self.captured) if is_floating(type)])

    def computes_in(self, type: str) -> bool:
        """Whether its functions, if they compute with floats, do so in a type."""
        return type == self.compute_type or self.score is None

    def without_arrays(self) -> Variant:
        """The variant as a key: it keeps no array alive."""
        return replace(self, arrays=()) if self.arrays else self

    def to_text(self, extents: tuple[Extent, ...] = ()) -> str:
        """The variant, but for its arrays, and extents as text that `from_text` reads."""
        parts = [self.score, self.mask, self.captured, self.lengths, self.dropout]
        return json.dumps([*parts, extents, self.compute_type])

    @staticmethod
    def from_text(text: str) -> tuple[Variant, tuple[Extent, ...]]:
        """The variant and the extents of a text of `to_text`."""
        # Texts that PyTorch kept before there were extents or types have none.
        score, mask, captured, lengths, dropout, *rest = json.loads(text)
        extents, computed = (*rest, *([], "f32")[len(rest) :])
        functions = [None if f is None else Function(tuple(f[0]), f[1]) for f in (score, mask)]
        variant = Variant(*functions, tuple(captured), tuple(lengths), dropout, computed)
        return variant, tuple([Extent(*extent) for extent in extents])

    def regions(self, is_causal: bool = False) -> str:
        """The regions' text, with a causal mask too if asked for."""
        parts = []
        if self.score is not None:
            parts.append(
                _region("score", f"%s: {self.compute_type}, ", self.score, self.compute_type)
            )
        mask = self.mask
        if is_causal:
            causal = "%causal = arith.cmpi sle, %j, %i : index"
            mask = Function((causal,), "%causal")
            if self.mask is not None:
                both = f"%both = arith.andi {self.mask.result}, %causal : i1"
                mask = Function((*self.mask.ops, causal, both), "%both")
        if mask is not None:
            parts.append(_region("mask", "", mask, "i1"))
        if self.dropout:
            parts.append(_region("keep", "", self._kept(), "i1"))
            parts.append(f" times {256 / (256 - self.dropout):.17e}")
        return "".join(parts)

    def _kept(self) -> Function:
        """Which weights dropout keeps."""
        type = self.captured[-1]
        element = type.removeprefix("tensor<").removesuffix(">")
        ops = [f"%seed = tensor.extract %captured{len(self.captured) - 1}[] : {type}"]
        if element != "i64":
            ops.append(f"%wide = arith.extsi %seed : {element} to i64")
        seed = "%seed" if element == "i64" else "%wide"
        ops.append(f"%bits = fa.random_bits {seed} at [%b, %h, %i, %j]")
        # As i8 numbers from 128 on are written as negative ones.
        limit = self.dropout - 256 if self.dropout > 127 else self.dropout
        ops.append(f"%limit = arith.constant {limit} : i8")
        ops.append("%kept = arith.cmpi uge, %bits, %limit : i8")
        return Function(tuple(ops), "%kept")

    def __str__(self) -> str:
        lines = [f"%captured{n}: {type}" for n, type in enumerate(self.captured)]
        header = f"    // captured: {', '.join(lines)}" if lines else ""
        return (header + self.regions()).lstrip("\n")


class Traced(NamedTuple):
    """A variant, and the arrays that its kernel reads."""

    variant: Variant | None
    """None: neither a score nor a mask function."""
    arrays: tuple[Any, ...]
    number: int
    """The variant's own number; 0 for None, and -1 if Python must inspect the arrays before
    they are arguments."""
    extents: tuple[Extent, ...] = ()
    """The sizes that each call checks."""
    prepared: Any = None
    """Where lists of blocks are kept (`fa.prepare`); None to make them in each call."""


NOTHING = Traced(None, (), 0)
"""Neither a score nor a mask function."""

_numbers: dict[Variant, int] = {}
_lock = threading.Lock()


def number_of(variant: Variant) -> int:
    """The number of a variant, as `Traced` has it."""
    if any(map(is_padded, variant.captured)):
        return -1
    with _lock:
        return _numbers.setdefault(variant, len(_numbers) + 1)


def _region(what: str, first: str, function: Function, type: str) -> str:
    arguments = f"{first}%b: index, %h: index, %i: index, %j: index"
    ops = "".join(f"      {op}\n" for op in function.ops)
    return (
        f"\n    {what} {{\n    ^bb0({arguments}):\n{ops}"
        f"      fa.yield {function.result} : {type}\n    }}"
    )
