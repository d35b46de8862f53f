# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa's CPU target against PyTorch's scaled_dot_product_attention, interleaved.

One process, the same threads, order rotated, medians; f32 by default.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import time

import fa
import torch
import torch.nn.functional as F


def main() -> int:
    """Races both at one shape, dense and causal."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("B", 1), ("H", 8), ("S", 2048), ("D", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", default="")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    threads = int(os.environ.get("FA_NUM_THREADS", "0")) or os.cpu_count()
    torch.set_num_threads(threads)
    shape = (args.B, args.H, args.S, args.D)
    q, k, v = (torch.randn(shape, dtype=getattr(torch, args.dtype)) for _ in range(3))
    rows = []
    for causal in (False, True):
        contenders = {
            "fa": lambda c=causal: fa.attention(q, k, v, is_causal=c),
            "torch": lambda c=causal: F.scaled_dot_product_attention(q, k, v, is_causal=c),
        }
        times = {name: [] for name in contenders}
        names = list(contenders)
        for name in names:
            contenders[name]()
        for turn in range(args.repeats):
            for name in names if turn % 2 else names[::-1]:
                start = time.perf_counter()
                contenders[name]()
                times[name].append(time.perf_counter() - start)
        median = {name: statistics.median(t) for name, t in times.items()}
        flops = 4 * args.B * args.H * args.S**2 * args.D * (0.5 if causal else 1)
        error = (contenders["fa"]() - contenders["torch"]()).abs().max().item()
        row = dict(
            causal=causal,
            seconds=median,
            gflops={name: flops / t / 1e9 for name, t in median.items()},
            ratio=median["torch"] / median["fa"],
            difference=error,
        )
        rows.append(row)
        print(
            f"{shape} {args.dtype} {'causal' if causal else 'dense '} "
            f"{threads} threads: fa {row['gflops']['fa']:.0f} GFLOP/s, torch "
            f"{row['gflops']['torch']:.0f}, ratio {row['ratio']:.2f}, "
            f"difference {error:.1e}"
        )
    if args.out:
        with open(args.out, "w") as file:
            json.dump(
                dict(
                    benchmark="cpu_forward",
                    machine=platform.processor() or platform.machine(),
                    torch=torch.__version__,
                    threads=threads,
                    shape=shape,
                    dtype=args.dtype,
                    date=datetime.date.today().isoformat(),
                    commit=args.commit,
                    rows=rows,
                ),
                file,
                indent=1,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
