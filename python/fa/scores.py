# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Named score functions for `fa.attention(..., score_mod=...)`.

A score function score(score, b, h, q_idx, kv_idx) replaces the scaled product of query
`q_idx` and key `kv_idx`, a float, by another score. Each function here makes one from
numbers and arrays. Arrays must be on the device of q, k and v. A dimension for batch
entries or heads has the size that q has, or 1 for all. A dimension for queries or keys has
at least the size that q or k has, or 1. Other arrays are a TypeError or a ValueError.

PyTorch's FlexAttention takes these functions too. There an array that holds one number
must have rank 0, and a dimension of size 1 that stands for all must be expanded with
`.expand(...)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fa import math as _math
from fa._masks.checks import expect_array, expect_number
from fa._trace.captured import element
from fa._trace.made import picklable
from fa._trace.trace import call_function, expect_heads

Score = Callable[[Any, Any, Any, Any, Any], Any]


@picklable
def compose(*scores: Score) -> Score:
    """Applies score functions one after the other, the first one first."""

    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        for function in scores:
            score = call_function(function, score, b, h, q_idx, kv_idx)
        return score

    return score_mod


@picklable
def softcap(cap: Any) -> Score:
    """cap * tanh(score / cap): keeps scores within +-cap.

    Source: Gemma Team 2024, "Gemma 2", 2.

    Args:
        cap: a number > 0, or an array of one element.
    """
    expect_number("cap", cap, 0, is_above=True)

    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return cap * _math.tanh(score / cap)

    return score_mod


@picklable
def alibi(slopes: Any) -> Score:
    """score - slope(h) * |i - j|: a penalty that grows with the distance.

    For n heads, n a power of 2, slope h is 2^(-8 (h + 1) / n). For another n the first m
    heads, m the largest power of 2 below n, have the slopes of m heads, and the others have
    every other slope of 2 m heads. Source: Press et al. 2022, "Train Short, Test Long:
    Attention with Linear Biases" (ALiBi), 3.

    Args:
        slopes: the number of query heads n, or the slopes, floats [Hq].

    Raises:
        ValueError: a number of heads below 1, slopes of another rank, or, in the call,
            another number of heads than q has.
        TypeError: slopes that are neither a number nor an array.
    """
    is_count = isinstance(slopes, (int, np.integer)) and not isinstance(slopes, bool)
    if is_count and slopes < 1:
        raise ValueError(f"expected a number of heads >= 1, got {slopes}; give that of q")
    if not is_count:
        expect_array("slopes", slopes, "floats [Hq] (or the number of query heads)", 1)
    count = int(slopes) if is_count else 0

    def slope(h: Any) -> Any:
        if not count:
            return element(slopes, h, "fa.scores.alibi")
        heads = 1 << (count.bit_length() - 1)
        step = -8.0 / heads
        exponent = step * (expect_heads(h, count, "fa.scores.alibi") + 1)
        if heads != count:
            exponent = _math.where(h < heads, exponent, step * (h - heads) + step / 2)
        return _math.exp2(exponent)

    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score - slope(h) * abs(q_idx - kv_idx)

    return score_mod


@picklable
def bias(values: Any) -> Score:
    """score + values[b, h, i, j].

    Args:
        values: floats [B, Hq, Sq, Sk], [Hq, Sq, Sk] or [Sq, Sk]; a dimension of size 1
            stands for all.
    """
    expect_array("values", values, "floats [B, Hq, Sq, Sk], [Hq, Sq, Sk] or [Sq, Sk]", 2, 3, 4)

    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        at = (b, h, q_idx, kv_idx)[-values.ndim :]
        return score + element(values, at, "fa.scores.bias")

    return score_mod


@picklable
def relative_position(table: Any) -> Score:
    """score + table[h, clip(j - i, -M, M) + M]: one learned number for each distance.

    Source: Shaw et al. 2018, "Self-Attention with Relative Position
    Representations", equation 4, as a scalar for each head.

    Args:
        table: floats [Hq, 2 M + 1].
    """
    expect_array("table", table, "floats [Hq, 2 M + 1]", 2)
    heads, size = table.shape
    if size % 2 == 0:
        raise ValueError(
            f"expected a table [Hq, 2 M + 1], got [{heads}, {size}]; distances go from -M to M"
        )
    most = size // 2

    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        distance = _math.clamp(kv_idx - q_idx, -most, most)
        return score + element(table, (h, distance + most), "fa.scores.relative_position")

    return score_mod


def _t5_thresholds(exact: int, buckets: int, max_distance: int) -> tuple[int, ...]:
    """Distances at which the logarithmic buckets begin, without the first bucket."""
    thresholds: tuple[int, ...] = ()
    ratio = max_distance / exact
    for k in range(1, buckets - exact):
        least = exact * ratio ** (k / (buckets - exact))
        # Rounding must not miss a distance that is an integer in exact arithmetic.
        near = round(least)
        thresholds += (near if abs(least - near) < 1e-9 * near else math.ceil(least),)
    return thresholds


@picklable
def t5_bias(table: Any, *, bidirectional: bool = True, max_distance: int = 128) -> Score:
    """score + table[bucket(j - i), h]: exact buckets near by, logarithmic ones far off.

    A bidirectional table uses half of its n buckets for keys after the query. Of the m
    buckets of a direction the first m / 2 hold one distance each. A distance d >= m / 2 is
    in bucket m/2 + floor(log(d / (m/2)) / log(max_distance / (m/2)) * m/2), but at most
    m - 1; floor ignores rounding errors. Source: Raffel et al. 2020, "Exploring the Limits of
    Transfer Learning" (T5), 2.1. T5's scores have scale 1.

    Args:
        table: floats [n, Hq].
        bidirectional: False for a decoder, whose keys after the query are in bucket 0.
        max_distance: a distance, in tokens, from which on all keys are in the last bucket.

    Raises:
        ValueError: too few buckets, or a max_distance below the number of exact ones.
    """
    expect_array("table", table, "floats [n, Hq]", 2)
    buckets = table.shape[0] // 2 if bidirectional else table.shape[0]
    exact = buckets // 2
    if exact < 1 or max_distance <= exact:
        raise ValueError(
            f"expected at least {4 if bidirectional else 2} buckets and a max_distance "
            f"above {exact}, got {table.shape[0]} and {max_distance}; see T5's configuration"
        )
    thresholds = _t5_thresholds(exact, buckets, max_distance)

    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        relative = kv_idx - q_idx
        distance = abs(relative) if bidirectional else _math.maximum(-relative, 0)
        bucket = _math.minimum(distance, exact)
        for threshold in thresholds:
            bucket = bucket + (distance >= threshold)
        if bidirectional:
            bucket = bucket + _math.where(relative > 0, buckets, 0)
        return score + element(table, (bucket, h), "fa.scores.t5_bias")

    return score_mod


__all__ = ["alibi", "bias", "compose", "relative_position", "softcap", "t5_bias"]
