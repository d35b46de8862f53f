# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dropout of attention's weights: a probability in 256ths, and seeds as arrays.

The seed and the place of a weight decide whether it is dropped (`fa.random_bits`). The seed
is one more captured array, so another seed needs no other kernel, and a CUDA graph reads the
current seed at each replay.
"""

from __future__ import annotations

import functools
import operator
import secrets
import sys
from dataclasses import replace
from typing import Any

import numpy

from fa._run.arrays import is_torch_tensor, library_of
from fa._run.checks import number_of_argument
from fa._run.variant import Traced, Variant, number_of

STEPS = 256
"""The random number of a weight is one of so many."""
MAX_DROPOUT = 1 - 1 / STEPS
_SEED_TYPES = {"i32": "tensor<i32>", "i64": "tensor<i64>"}
_PLAIN = Variant()


def is_probability(dropout_p: float) -> bool:
    """Whether it is a probability that keeps some weights; false for NaN."""
    return 0 <= dropout_p <= MAX_DROPOUT


def probability_error(dropout_p: float) -> ValueError:
    return ValueError(
        f"expected dropout_p in [0, {MAX_DROPOUT:.3f}], got {dropout_p}; it is the share of "
        f"weights that are dropped, in steps of 1/{STEPS}: pass one that leaves some"
    )


def dropped_of(dropout_p: float) -> int:
    """Of how many of 256 random numbers a weight is dropped.

    Raises:
        ValueError: no probability, or one that leaves nothing.
    """
    if type(dropout_p) not in (int, float):
        dropout_p = number_of_argument("dropout_p", dropout_p)
    if not is_probability(dropout_p):
        raise probability_error(dropout_p)
    # A kernel has one number: of a symbol of torch.compile's, `range` makes it.
    return range(round(dropout_p * STEPS)).stop


def _check_number(seed: int) -> int:
    if not -(1 << 63) <= seed < 1 << 64:
        raise ValueError(f"expected dropout_seed of 64 bits, got {seed}; take it modulo 2**64")
    return seed - (1 << 64) if seed >= 1 << 63 else seed


def _seed_error(what: str, got: str) -> TypeError:
    return TypeError(
        f"expected dropout_seed as an integer, or one int64 or int32 in {what}, got {got}; "
        "convert it"
    )


def _as_int(seed: Any) -> int:
    """A seed that is an integer of another class, NumPy's say."""
    try:
        is_number = not isinstance(seed, (bool, float, str))
        if is_number and str(getattr(seed, "dtype", "")) != "bool":
            return operator.index(seed)
    except TypeError:
        pass
    raise _seed_error("a tensor", type(seed).__name__)


def torch_seed(torch: Any, seed: Any, device: Any) -> Any:
    """A seed as a tensor without dimensions; torch.compile traces it."""
    if seed is None:
        return torch.randint(0, (1 << 63) - 1, (), dtype=torch.int64, device=device)
    if isinstance(seed, torch.Tensor):
        if seed.numel() != 1 or seed.dtype not in (torch.int32, torch.int64):
            raise _seed_error("a tensor", f"{seed.dtype} of shape {list(seed.shape)}")
        return seed.reshape(())
    if type(seed) is not int:
        seed = _as_int(seed)
    return torch.full((), _check_number(seed), dtype=torch.int64, device=device)


def _seed_array(seed: Any, like: Any) -> Any:
    """A seed as an array without dimensions beside `like`."""
    if is_torch_tensor(like):
        return torch_seed(sys.modules["torch"], seed, like.device)
    library = library_of(like)
    if seed is None:
        seed = secrets.randbits(63)
    if isinstance(seed, (int, numpy.integer)) and not isinstance(seed, bool):
        seed = int(seed)
        number = numpy.asarray(_check_number(seed), numpy.int64)
        if library.view(like).device is None:
            return number
        if library.name == "cupy":
            return sys.modules["cupy"].asarray(number)
        raise TypeError(
            f"expected dropout_seed as an array like query ({type(like).__name__}), got a number; "
            "pass an int64 or int32 of that library on query's device"
        )
    view = library_of(seed).view(seed)
    if view.dtype not in _SEED_TYPES or any(size != 1 for size in view.shape):
        raise _seed_error("an array", f"{view.dtype} of shape {list(view.shape)}")
    return seed.reshape(())


def with_seed_type(
    variant: Variant | None, dropped: int, type: str = _SEED_TYPES["i64"]
) -> Variant:
    """A variant with dropout, by a seed of that type."""
    base = _PLAIN if variant is None else variant
    return replace(base, captured=(*base.captured, type), dropout=dropped, arrays=())


@functools.lru_cache(4096)
def _numbered(variant: Variant | None, dropped: int, type: str) -> tuple[Variant, int]:
    result = with_seed_type(variant, dropped, type)
    return result, number_of(result)


def add_dropout(traced: Traced, dropped: int, seed: Any) -> Traced:
    """The variant with so many of 256 weights dropped.

    Args:
        traced: the traced functions.
        dropped: in [1, 255].
        seed: an array without dimensions, int64 or int32.
    """
    type = _SEED_TYPES["i32" if str(seed.dtype).endswith("int32") else "i64"]
    variant, number = _numbered(traced.variant, dropped, type)
    return Traced(variant, (*traced.arrays, seed), number, traced.extents)


def with_dropout(traced: Traced, dropout_p: float, seed: Any, like: Any) -> Traced:
    """The variant with dropout.

    Args:
        traced: the traced functions.
        dropout_p: the probability of dropping a weight.
        seed: the user's seed; None for a random one.
        like: the query.
    """
    dropped = dropped_of(dropout_p)
    return add_dropout(traced, dropped, _seed_array(seed, like)) if dropped else traced


@functools.cache
def variant_text(dropped: int, is_short: bool = False) -> str:
    """The text of the variant that is dropout alone."""
    return with_seed_type(None, dropped, _SEED_TYPES["i32" if is_short else "i64"]).to_text()
