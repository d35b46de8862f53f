#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks a PTX file of fa's for sm_80 without a GPU, on small shapes.

    emulate_ptx.py FILE.ptx --shape 1,40,72 [--causal] [--window N [--sinks N]] [--softcap C]

Prints the greatest error of the output and of the log-sum-exp against float64,
and the number of bank conflicts that ldmatrix met.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from ptx_emulator import Block, Kernel, Memory, bf16_to_f32, f32_to_bf16, temporary
from ptx_header import evaluate, parse_header


def encode(x, kind):
    if kind == "bf16":
        return f32_to_bf16(x)
    return x.astype({"f16": np.float16, "f32": np.float32}[kind])


def decode(x, kind):
    return (bf16_to_f32(x) if kind == "bf16" else x).astype(np.float64)


def reference(q, k, v, options):
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s = q @ k.swapaxes(2, 3) * (options.scale or q.shape[3] ** -0.5)
    if options.softcap:
        s = options.softcap * np.tanh(s / options.softcap)
    i, j = np.indices(s.shape[2:])
    if options.causal:
        s[:, :, j > i] = -np.inf
    if options.window is not None:
        s[:, :, (i - j > options.window) & (j >= options.sinks)] = -np.inf
    m = s.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(s - np.where(np.isinf(m), 0, m))
    total = e.sum(-1, keepdims=True)
    o = e @ v / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        return o, (np.where(np.isinf(m), 0, m) + np.log(total))[..., 0]


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
        arrays[index] = encode(x, arg["type"])
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
    o, lse = reference(*inputs, options)
    outs = [i for i, a in program.args.items() if a["role"] == "out"]
    got = [decode(memory.read_back(address[i], arrays[i]), kinds[i]) for i in outs]
    error = np.abs(got[0] - o).max()
    scale = {"bf16": 2.0**-7, "f16": 2.0**-10, "f32": 1e-5}[kinds[0]]
    good = bool(error <= scale * max(1, np.abs(o).max()))
    note = f"error {error:.2e}"
    if len(got) > 1:
        same = (np.isinf(lse) == np.isinf(got[1])).all()
        finite = ~np.isinf(lse)
        worst = np.abs(got[1] - lse)[finite].max(initial=0)
        good &= bool(same) and bool(worst < 1e-4)
        note += f" lse {worst:.1e}"
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
