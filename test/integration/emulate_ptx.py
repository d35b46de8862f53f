#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks a PTX file of fa's for sm_80 without a GPU, on small shapes.

    emulate_ptx.py FILE.ptx --shape 1,40,72 [--causal] [--window N [--sinks N]] [--softcap C]

Prints the greatest error of the output against float64, its share and the log-sum-exp's
of what right.py allows, and the number of bank conflicts that ldmatrix met.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import naive  # noqa: E402
import right  # noqa: E402
from ptx_emulator import Block, Kernel, Memory, bf16_to_f32, f32_to_bf16, temporary
from ptx_header import evaluate, parse_header


def encode(x, kind):
    if kind == "bf16":
        return f32_to_bf16(x)
    return x.astype({"f16": np.float16, "f32": np.float32}[kind])


def decode(x, kind):
    return (bf16_to_f32(x) if kind == "bf16" else x).astype(np.float64)


def expected(q, k, v, kind, options):
    """What is right."""

    def score(s, b, h, i, j):
        return options.softcap * np.tanh(s / options.softcap)

    def mask(b, h, i, j):
        seen = (j <= i) if options.causal else (i >= 0) & (j >= 0)
        if options.window is not None:
            seen = seen & ((i - j <= options.window) | (j < options.sinks))
        return seen

    return right.attention(
        *(q, k, v),
        dtype={"bf16": "bfloat16", "f16": "float16", "f32": "float32"}[kind],
        scale=options.scale,
        score=score if options.softcap else None,
        mask=mask,
        score_error=right.approximated(options.softcap or 0.0, "cuda"),
        samples=2048,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--shape", default="1,40,72", help="B,Sq,Sk where unknown")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--window", type=int)
    parser.add_argument("--sinks", type=int, default=0, help="first keys that all rows see")
    parser.add_argument("--softcap", type=float)
    parser.add_argument("--scale", type=float)
    parser.add_argument("--heads", type=int, default=0, help="run only so many blocks")
    options = parser.parse_args()
    b, sq, sk = map(int, options.shape.split(","))
    text = open(options.file).read()
    program = parse_header(text)
    rng = np.random.default_rng(0)
    memory, arrays, address, kinds = Memory(), {}, {}, {}
    for index, arg in sorted(program.args.items()):
        rows = sq if index == 0 or arg["role"] == "out" else sk
        known = [b, None, rows, None]
        shape = [known[d] if x == "?" else int(x) for d, x in enumerate(arg["shape"].split("x"))]
        kinds[index] = arg["type"]
        x = rng.standard_normal(shape).astype(np.float32)
        if arg["role"] == "out":
            x = np.full(shape, np.nan, np.float32)
        arrays[index] = x
    naive.telling(*(arrays[index] for index in range(3)))
    arrays = {index: encode(x, kinds[index]) for index, x in arrays.items()}
    for index, temp in program.temps.items():
        shape = [evaluate(e, arrays) for e in temp["shape"].split(",")]
        arrays[index] = temporary(shape, temp["type"])
    for index in arrays:
        address[index] = memory.add(arrays[index])
    for launch in program.launches:
        kernel = Kernel(text, launch["kernel"])
        params = []
        for index in map(int, launch["args"].split(",")):
            a = arrays[index]
            params += [address[index], *a.shape]
            params += [s // a.itemsize for s in a.strides]
        for block in range(evaluate(launch["grid"], arrays)):
            kernel.run(block, int(launch["block"]), int(launch["smem"]), memory, params)
    inputs = [decode(arrays[i], kinds[i]) for i in range(3)]
    wanted = expected(*inputs, kinds[0], options)
    outs = [i for i, a in program.args.items() if a["role"] == "out"]
    got = [decode(memory.read_back(address[i], arrays[i]), kinds[i]) for i in outs]
    share = right.share(got[0], wanted.out, wanted.limit)
    good = share <= 1
    note = f"error {right.difference(got[0], wanted.out):.2e}, {share:.2f} of the limit"
    if len(got) > 1:
        share = right.share(got[1], wanted.lse, wanted.lse_limit, exact_zeros=False)
        good = good and share <= 1
        note += f", of lse {share:.2f}"
    print(
        "ok  " if good else "FAIL",
        options.file,
        options.shape,
        note,
        f"bank conflicts {Block.conflicts}",
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
