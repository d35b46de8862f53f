#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs kernels that write 1 where a warp has an element that is not below 2, else 0.

    emulate_exceeds.py FILE.ptx NAME

NAME is the function that test/Target/NVIDIA/emit-exceeds.mlir has the numbers of.
A warp of the 4 of a tile of 64 x 64 has 16 rows.
"""

from __future__ import annotations

import sys

import numpy as np
from ptx_emulator import Kernel, Memory, bf16_to_f32
from ptx_header import parse_header


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
    text = open(path).read()
    # The kernels of a file stand one after the other, each with its header.
    start = text.index(f"//!fa.program version=1 name={name} ")
    end = text.find("//!fa.program", start + 1)
    text = text[start : end if end > 0 else None]
    program = parse_header(text)
    (launch,) = program.launches
    memory, out = Memory(), np.full((64, 64), 0xFFFF, np.uint16)
    address = memory.add(out)
    kernel = Kernel(text, launch["kernel"])
    params = [address, *out.shape, *(s // out.itemsize for s in out.strides)]
    kernel.run(0, int(launch["block"]), int(launch["smem"]), memory, params)
    bits = memory.read_back(address, out)
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
