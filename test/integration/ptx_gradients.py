# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gradients that are assembled, and what each may spill.

The rule of the design: nothing that is serialised, no local memory in a steady loop, and
outside loops 32 bytes at most, recorded and justified. `LIMITS` says what is beyond it, or
within it and not 0, as numbers of today's ptxas: a configuration that takes more fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import fa
import numpy as np
from check_ptx import Limit
from fa import masks, scores
from fa._run.dropout import with_seed_type
from fa._run.variant import Variant

RELEASE = "13.0"
"""Of CUDA, whose ptxas the limits are of."""
BYTES = 32
"""What the rule allows outside loops."""


HEAD_DIMS = [(d, d) for d in (16, 32, 64, 80, 96, 128, 192, 256)]
OTHER_DIMS = [(64, 128), (128, 64), (192, 128), (96, 24)]


@dataclass(frozen=True)
class Gradient:
    """One configuration: eight heads, gradients of all that has one."""

    dims: tuple[int, int]
    dtype: str = "bf16"
    words: tuple[str, ...] = ()
    """"causal", "documents", "dropout", "deterministic" (of the same bits each time), "grouped"
    (four query heads share a key head) and score functions' names."""

    def __str__(self) -> str:
        return " ".join([self.dtype, "D={} Dv={}".format(*self.dims), *self.words])


def of(dims: Iterable[tuple[int, int]], *several: str, dtype: str = "bf16") -> list[Gradient]:
    """Configurations of all these dims with each of these words."""
    return [Gradient(own, dtype, tuple(words.split())) for words in several for own in dims]


def square(*dims: int) -> list[tuple[int, int]]:
    """Head dims of query, key and value alike."""
    return [(d, d) for d in dims]


ALL = "slopes table bias"
"""Three captured tensors at once."""
GRADIENTS = [
    *of([*HEAD_DIMS, *OTHER_DIMS], ""),
    *of([dims for dims in square(*range(136, 256, 8)) if dims not in HEAD_DIMS], ""),
    *of(square(32, 64, 96, 128, 256), "causal"),
    *of([*square(32, 64, 128, 256), (128, 64)], "grouped"),
    *of([*square(64, 128, 256), (128, 64)], "deterministic"),
    *of(square(64, 128, 256), "dropout"),
    *of(square(128), "slopes", "bias"),
    *of(square(64, 128), "softcap", "table"),
    *of(square(64, 96, 128, 256), ALL, ALL + " deterministic"),
    *of(square(64), "causal documents"),
    *of(square(128), "causal", dtype="f16"),
    *of([*square(16, 32, 64, 128, 256), (192, 128)], "", dtype="f32"),
]


def config_of(gradient: Gradient) -> fa.AttentionConfig:
    """What is compiled of a configuration."""
    functions = {
        "softcap": scores.softcap(20.0),
        "slopes": scores.alibi(np.zeros(8, "f4")),
        "table": scores.relative_position(np.zeros((8, 255), "f4")),
        "bias": scores.bias(np.zeros((1, 8, 8, 8), "f4")),
    }
    words = gradient.words
    chosen = [functions[word] for word in words if word in functions]

    def score_mod(score: Any, *at: Any) -> Any:
        for function in chosen:
            score = function(score, *at)
        return score

    mask = masks.documents(np.zeros((2, 8), "i4")) if "documents" in words else None
    made = None
    if chosen or mask is not None:
        made = fa.trace(score_mod=score_mod if chosen else None, mask_mod=mask)
    return fa.AttentionConfig(
        gradient.dtype,
        8,
        2 if "grouped" in words else 8,
        *gradient.dims,
        is_causal="causal" in words,
        variant=with_seed_type(made or Variant(), 26) if "dropout" in words else made,
    )


# In steady loops most of it are loads of numbers that the loop does not change, addresses and
# strides for the most part, which were stored before it. Steps store, too, at D=128 with
# softcap and with three captured tensors, at D=256 with these in order and, on sm_90a, in f32
# from 192 on.
LIMITS = {
    "sm_80": {
        # Head dims beyond 128 that are no multiples of 32: few warps can divide the columns of
        # dK, dV and dQ, and no tile fits (`chooseGradientsOnGPU`).
        "bf16 D=136 Dv=136": Limit(8, 1),
        "bf16 D=144 Dv=144": Limit(56, 13),
        "bf16 D=152 Dv=152": Limit(24, 5),
        "bf16 D=168 Dv=168": Limit(112, 28),
        "bf16 D=176 Dv=176": Limit(96, 25),
        "bf16 D=184 Dv=184": Limit(232, 90),
        "bf16 D=200 Dv=200": Limit(368, 139),
        "bf16 D=208 Dv=208": Limit(16, 3),
        "bf16 D=216 Dv=216": Limit(472, 182),
        "bf16 D=232 Dv=232": Limit(584, 234),
        "bf16 D=240 Dv=240": Limit(128, 34),
        "bf16 D=248 Dv=248": Limit(672, 261),
        # Within the rule: loaded once for each query head.
        "bf16 D=32 Dv=32 grouped": Limit(16, 0),
        "bf16 D=128 Dv=128 grouped": Limit(24, 0),
        # More than the rule allows, though not in steady loops: loaded for each query head.
        "bf16 D=64 Dv=64 grouped": Limit(40, 0),
        "bf16 D=128 Dv=64 grouped": Limit(64, 0),
        # In steady loops.
        "bf16 D=64 Dv=64": Limit(8, 2),
        "bf16 D=32 Dv=32 causal": Limit(24, 5),
        "bf16 D=64 Dv=64 deterministic": Limit(16, 3),
        "bf16 D=128 Dv=128 dropout": Limit(32, 8),
        "bf16 D=128 Dv=128 softcap": Limit(56, 19),
        "bf16 D=128 Dv=128 slopes table bias": Limit(64, 16),
        "bf16 D=128 Dv=128 slopes table bias deterministic": Limit(56, 15),
    },
    "sm_90a": {
        # Head dims beyond 128 that are no multiples of 32: few warps can divide the columns of
        # dK, dV and dQ, and no tile fits (`chooseGradientsOnGPU`).
        "bf16 D=136 Dv=136": Limit(264, 72),
        "bf16 D=144 Dv=144": Limit(24, 6),
        "bf16 D=152 Dv=152": Limit(72, 23),
        "bf16 D=168 Dv=168": Limit(176, 51),
        "bf16 D=176 Dv=176": Limit(88, 22),
        "bf16 D=184 Dv=184": Limit(352, 117),
        "bf16 D=200 Dv=200": Limit(464, 143),
        "bf16 D=208 Dv=208": Limit(32, 7),
        "bf16 D=216 Dv=216": Limit(552, 170),
        "bf16 D=232 Dv=232": Limit(672, 202),
        "bf16 D=240 Dv=240": Limit(208, 70),
        "bf16 D=248 Dv=248": Limit(768, 229),
        # Within the rule: once for a tile or for each query head, or behind the loop. The first
        # two are 1.00 and 1.04 times as fast as with the sums' panels of 64 bytes, which
        # left them 32 and 16 bytes (benchmarks/experiments/2026-11-26-panels-of-128-bytes.md).
        "bf16 D=64 Dv=64 grouped": Limit(32, 0),
        "bf16 D=128 Dv=128 grouped": Limit(24, 0),
        "bf16 D=128 Dv=64 grouped": Limit(24, 0),
        "bf16 D=256 Dv=256 grouped": Limit(16, 0),
        # Where two iterations overlap before the loop and behind it.
        "bf16 D=128 Dv=128": Limit(8, 0),
        # What the producer's 24 registers do not hold while its warps zero and compute what
        # follows.
        "bf16 D=16 Dv=16": Limit(8, 0),
        "bf16 D=32 Dv=32": Limit(16, 0),
        "bf16 D=32 Dv=32 causal": Limit(16, 0),
        "bf16 D=64 Dv=128": Limit(16, 0),
        "bf16 D=64 Dv=64": Limit(8, 0),
        "bf16 D=64 Dv=64 dropout": Limit(8, 0),
        "bf16 D=64 Dv=64 causal": Limit(8, 0),
        "bf16 D=64 Dv=64 softcap": Limit(8, 0),
        "bf16 D=64 Dv=64 causal documents": Limit(8, 0),
        # More than the rule allows, though not in steady loops: loaded for each query head.
        "bf16 D=32 Dv=32 grouped": Limit(40, 0),
        # In steady loops. The first is 1.03 times as fast as where it spills nothing. The second
        # has its like, whose sums have no order, 1.00 to 1.03 times as fast since descriptors
        # are uniform (benchmarks/experiments/2026-11-27-uniform-descriptors.md); itself not
        # measured.
        "bf16 D=96 Dv=96": Limit(8, 1),
        "bf16 D=256 Dv=256 deterministic": Limit(8, 3),
        # Weights stay in f32 where a captured tensor's gradient sums a row's or a column's
        # elements (hopper-narrow); at D=96 D's loop has two of these loads, too.
        "bf16 D=64 Dv=64 table": Limit(8, 2),
        "bf16 D=96 Dv=96 slopes table bias": Limit(32, 2),
        "bf16 D=96 Dv=96 slopes table bias deterministic": Limit(8, 2),
        "bf16 D=128 Dv=128 slopes table bias": Limit(32, 9),
        # These two are 1.03 times as fast as with 24 bytes outside the loop and none in it
        # (benchmarks/experiments/2026-11-28-p-in-f32.md).
        "bf16 D=128 Dv=128 causal": Limit(8, 2),
        "f16 D=128 Dv=128 causal": Limit(8, 2),
        # In steady loops, by the Ampere schedule.
        "bf16 D=128 Dv=128 slopes table bias deterministic": Limit(112, 30),
        "bf16 D=256 Dv=256 slopes table bias deterministic": Limit(256, 77),
        "f32 D=256 Dv=256": Limit(40, 15),
        "f32 D=192 Dv=128": Limit(56, 24),
    },
}
