# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The corpus: the kernels that ship, for every test that reads PTX, machine code or limits.

Plain forwards of every head dim, the masks and scores of fa.masks and fa.scores, and gradients.
An entry is a request; `Entry.ptx` has it compiled, once for all processes, by fa's own cache.
`map_parallel` does something with each entry on all processors.
"""

from __future__ import annotations

import functools
import math
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import fa
import numpy as np
import ptx_gradients
from check_ptx import Limit
from fa import masks, scores

CHIPS = ("sm_80", "sm_90a")
HEAD_DIMS = [(d, d) for d in (16, 32, 64, 80, 96, 128, 256)]
HEAD_DIMS += [(64, 128), (128, 64), (192, 128), (96, 128), (80, 128), (256, 128), (96, 24)]
HOPPER_DIMS = [(d, d) for d in (40, 64, 80, 96, 128, 192, 256)]
HOPPER_DIMS += [(64, 128), (128, 64), (192, 128), (256, 64), (96, 24)]


@dataclass(frozen=True)
class Entry:
    """One kernel that ships."""

    kind: str
    """"forward", "variant" or "gradient"."""
    chip: str
    name: str
    config: fa.AttentionConfig
    deterministic: bool = False

    def __str__(self) -> str:
        return f"{self.chip} {self.known_as}"

    @property
    def known_as(self) -> str:
        """The name among the digests of a chip."""
        return f"gradient, {self.name}" if self.kind == "gradient" else self.name

    @property
    def limit(self) -> Limit:
        """What it may spill: a few variants do, and nothing says how much."""
        if self.kind == "variant":
            return Limit(math.inf, math.inf)
        known = ptx_gradients.LIMITS[self.chip] if self.kind == "gradient" else {}
        return known.get(self.name, Limit())

    def ptx(self) -> str:
        backward = "all" if self.kind == "gradient" else ""
        kernel = fa.compile(
            self.config, self.chip, backward=backward, deterministic=self.deterministic
        )
        return kernel.asm["ptx"]


def forwards(chip: str) -> Iterator[Entry]:
    """What fa.attention compiles with default options."""
    hopper = chip == "sm_90a"
    for dims in HOPPER_DIMS if hopper else HEAD_DIMS:
        for dtype in ("f16", "bf16"):
            for causal in (False, True):
                for lse in (False, True) if hopper or dtype == "bf16" else (False,):
                    words = [dtype, "D={} Dv={}".format(*dims)]
                    words += ["causal"] * causal + ["lse"] * lse
                    config = fa.AttentionConfig(
                        dtype, 8, 2, *dims, is_causal=causal, return_lse=lse
                    )
                    yield Entry("forward", chip, " ".join(words), config)


def variants(chip: str) -> Iterator[Entry]:
    """The masks and scores in fa.masks and fa.scores, for head dim 64."""
    i32, i64 = (lambda *shape: np.zeros(shape, "i4")), (lambda *shape: np.zeros(shape, "i8"))
    f32, f16 = (lambda *shape: np.zeros(shape, "f4")), (lambda *shape: np.zeros(shape, "f2"))
    mask_mods = {
        "causal": masks.causal,
        "causal, bottom right": masks.causal_bottom_right,
        "causal, lengths": masks.causal_lengths(i32(2), i64(2)),
        "window": masks.sliding_window(1023),
        "window, read": masks.sliding_window(i32(), i64(1)),
        "prefix": masks.prefix(i64(2)),
        "documents": masks.documents(i32(2, 8)),
        "padding": masks.padding(i64(2)),
        "dilated": masks.dilated(3, 100, 100),
        "neighbourhood": masks.neighbourhood(7),
        "neighbourhood 2D": masks.neighbourhood_2d(7, 32),
        "attention sink": masks.attention_sink(1024),
    }
    score_mods = {
        "softcap": scores.softcap(20.0),
        "softcap, read": scores.softcap(f32()),
        "ALiBi": scores.alibi(8),
        "ALiBi, slopes": scores.alibi(f32(8)),
        "bias": scores.bias(f16(1, 8, 8, 8)),
        "relative position": scores.relative_position(f32(8, 255)),
        "T5": scores.t5_bias(f32(32, 8)),
    }
    for name in [*mask_mods, *score_mods]:
        variant = fa.trace(score_mod=score_mods.get(name), mask_mod=mask_mods.get(name))
        config = fa.AttentionConfig("bf16", 8, 2, 64, 64, variant=variant)
        yield Entry("variant", chip, name, config)


def gradients(chip: str) -> Iterator[Entry]:
    for gradient in ptx_gradients.GRADIENTS:
        config = ptx_gradients.config_of(gradient)
        yield Entry("gradient", chip, str(gradient), config, "deterministic" in gradient.words)


KINDS = {"forward": forwards, "variant": variants, "gradient": gradients}


@functools.cache
def entries(chip: str | None = None, kind: str | None = None) -> tuple[Entry, ...]:
    """All entries, or those of a chip and a kind."""
    return tuple(
        entry
        for own in ([chip] if chip else CHIPS)
        for make in ([KINDS[kind]] if kind else KINDS.values())
        for entry in make(own)
    )


def _apply(job: tuple[Callable[[Entry], Any], int, tuple[str | None, str | None]]) -> Any:
    function, number, chosen = job
    return function(entries(*chosen)[number])


def map_parallel(
    function: Callable[[Entry], Any], chip: str | None = None, kind: str | None = None
) -> Iterable[tuple[Entry, Any]]:
    """(entry, what the function gives) in order; shows progress where a terminal is."""
    chosen = entries(chip, kind)
    jobs = [(function, number, (chip, kind)) for number in range(len(chosen))]
    # Started anew rather than forked: the compiler's library has threads and locks.
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for entry, result in zip(chosen, pool.imap(_apply, jobs)):
            if sys.stderr.isatty():
                print(f"\r{entry!s:79.79}", end="", file=sys.stderr)
            yield entry, result
    if sys.stderr.isatty():
        print(f"\r{'':79}\r", end="", file=sys.stderr)
