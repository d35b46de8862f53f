# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa's CPU target against PyTorch's scaled_dot_product_attention, interleaved.

One process, the same threads, order rotated, medians; f32 by default. With
--few-queries a table of query and key lengths, element types and head dims: where
fa is faster, and where it is not.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import itertools
import json
import os
import pathlib
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import fa
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "test/python"))
import right  # noqa: E402

QUERIES = (1, 2, 4, 8, 16, 32, 64, 128, 512, 2048)
KEYS = (128, 1024, 8192)
DTYPES = ("float32", "bfloat16", "float16")
HEAD_DIMS = (64, 128)


def race(
    contenders: dict[str, Callable[[], Any]],
    repeats: int,
    seconds: float = float("inf"),
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each, one call of each a turn, in an order that alternates.

    Args:
        contenders: what to call.
        repeats: turns.
        seconds: after so long no turn is begun, from the fifth on.
        clock: what times a call.
    """
    names = list(contenders)
    times: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        contenders[name]()
    end = time.perf_counter() + seconds
    for turn in range(repeats):
        if turn > 3 and time.perf_counter() > end:
            break
        for name in names if turn % 2 else names[::-1]:
            start = clock()
            contenders[name]()
            times[name].append(clock() - start)
    # The first turn is a warm one more.
    return {name: statistics.median(t[1:] or t) for name, t in times.items()}


def processor() -> str:
    """The processor's name, vendor's number and vector instructions."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    known = {key.strip(): value.strip() for key, value in facts.items()}
    flags = {"avx2": "AVX2", "avx512f": "AVX-512", "amx_bf16": "AMX bf16"}
    has = [name for flag, name in flags.items() if flag in known.get("flags", "").split()]
    return ", ".join([known.get("model name", platform.machine()), *has])


def few_queries(args: argparse.Namespace, threads: int) -> dict[str, Any]:
    """The table, a row for each element type, head dim and pair of lengths.

    One thread's own time is what it ran, not what it waited for others.
    """
    clock = time.thread_time if threads == 1 else time.perf_counter
    rows = []
    heads = args.H
    for dtype, dim, sk, sq in itertools.product(DTYPES, HEAD_DIMS, KEYS, QUERIES):
        kind = getattr(torch, dtype)
        q = torch.randn(args.B, heads, sq, dim, dtype=kind)
        k, v = (torch.randn(args.B, args.Hk or heads, sk, dim, dtype=kind) for _ in range(2))
        median = race(
            {
                "fa": functools.partial(fa.attention, q, k, v),
                "torch": functools.partial(
                    F.scaled_dot_product_attention, q, k, v, enable_gqa=bool(args.Hk)
                ),
            },
            args.repeats,
            args.seconds,
            clock,
        )
        ratio = median["torch"] / median["fa"]
        rows.append(dict(dtype=dtype, dim=dim, queries=sq, keys=sk, seconds=median, ratio=ratio))
        print(
            f"{dtype:8} D={dim:3} Sk={sk:4} Sq={sq:4}: fa {1e6 * median['fa']:9.0f} us, "
            f"torch {1e6 * median['torch']:9.0f} us, ratio {ratio:.2f}",
            flush=True,
        )
    return dict(
        benchmark="cpu_few_queries",
        machine=processor(),
        torch=torch.__version__,
        threads=threads,
        clock=clock.__name__,
        shape=[args.B, heads, args.Hk or heads],
        date=datetime.date.today().isoformat(),
        commit=args.commit,
        rows=rows,
    )


def main() -> int:
    """Races both at one shape, dense and causal, or at many."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("B", 1), ("H", 8), ("S", 2048), ("D", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", default="")
    parser.add_argument("--commit", default="")
    parser.add_argument("--few-queries", action="store_true", help="the table; D and S are its")
    parser.add_argument("--Hk", type=int, default=0, help="key heads of the table, 0: as many")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each row of the table")
    args = parser.parse_args()
    threads = int(os.environ.get("FA_NUM_THREADS", "0")) or os.cpu_count()
    torch.set_num_threads(threads)
    if args.few_queries:
        result = few_queries(args, threads)
        if args.out:
            pathlib.Path(args.out).write_text(json.dumps(result, indent=1) + "\n")
        return 0
    shape = (args.B, args.H, args.S, args.D)
    q, k, v = (torch.randn(shape, dtype=getattr(torch, args.dtype)) for _ in range(3))
    rows = []
    for causal in (False, True):
        contenders = {
            "fa": lambda c=causal: fa.attention(q, k, v, is_causal=c),
            "torch": lambda c=causal: F.scaled_dot_product_attention(q, k, v, is_causal=c),
        }
        median = race(contenders, args.repeats)
        flops = 4 * args.B * args.H * args.S**2 * args.D * (0.5 if causal else 1)
        out = contenders["fa"]()
        error = (out - contenders["torch"]()).abs().max().item()
        mask = {"mask": lambda b, h, i, j: j <= i} if causal else {}
        one = right.attention(*(x[-1:, -1:] for x in (q, k, v)), **mask)
        if right.share(right.back(out[-1:, -1:]), one.out, one.limit) > 1:
            print("  fa is WRONG", flush=True)
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
