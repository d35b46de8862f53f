#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs kernels that write 1 where a warp has an element that is not below 2, else 0.

    emulate_exceeds.py FILE.ptx NAME

NAME is the function that test/Conversion/TilesToThreads/emit-exceeds.mlir has the numbers of.
A warp of the 4 of a tile of 64 x 64 has 16 rows.
"""

from __future__ import annotations

import sys

import numpy as np
from ptx_emulator import bf16_to_f32, run_function


def elements(name: str) -> np.ndarray:
    """What the tile has at (i, j), [64, 64]."""
    i, j = np.indices((64, 64))
    return {
        # Negative ones of any size; not below 2 only in the last warp's rows.
        "differences": lambda: i - 48.0 - j,
        "halves": lambda: i - 48.0 - j,
        "maxima": lambda: i - 48.0 - j,  # of rows, of which the vector is
        # 2 to the power i - 32: not below 2 from row 33 on.
        "powers": lambda: 2.0 ** (i - 32.0),
    }[name]()


def main() -> int:
    path, name = sys.argv[1:]
    bits = run_function(path, name, (64, 64))
    got = bits.view(np.float16) if name == "halves" else bf16_to_f32(bits)
    exceeds = (elements(name).reshape(4, 16 * 64) >= 2).any(axis=1)
    expected = np.repeat(exceeds, 16)[:, None] * np.ones(64)
    good = bool((got == expected).all())
    print("ok  " if good else "FAIL", name, "warps", exceeds.astype(int))
    if not good:
        print("got", got[::16, 0])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
