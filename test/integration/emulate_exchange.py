#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs kernels that write 1 where random bits keep a weight, keys by queries, else 0.

    emulate_exchange.py FILE.ptx NAME KEYS QUERIES

NAME is a function of test/Conversion/TilesToThreads/emit-exchange.mlir, which has the seed
and where the tile begins. naive.py says which weights are kept.
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np
from ptx_emulator import bf16_to_f32, run_function

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import naive

SEED, BATCH, HEAD, FIRST_QUERY, FIRST_KEY = 0x0123456789ABCDEF, 3, 2, 128, 256
LIMITS = {"exchanged": 48, "shorter": 26, "alone": 48, "skewed": 48}


def main() -> int:
    path, name, keys, queries = sys.argv[1:]
    shape = int(keys), int(queries)
    got = bf16_to_f32(run_function(path, name, shape))
    key, query = np.indices(shape)
    # The function says in which row and column of the weights an element is.
    row = FIRST_QUERY + query + (key if name == "skewed" else 0)
    column = FIRST_KEY + key
    whole = BATCH + 1, HEAD + 1, row.max() + 1, column.max() + 1
    kept = naive.kept(SEED, whole, LIMITS[name])[BATCH, HEAD, row, column]
    good = bool((got == kept).all())
    print("ok  " if good else "FAIL", name, "kept", got.mean())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
