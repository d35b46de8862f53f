# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races fa's forward pass on a GPU against PyTorch's FlashAttention-2 and cuDNN.

All contenders run in one process, interleaved, in rotating order, the L2 cache
flushed before each call; the figure is the median. TFLOP/s count
4*B*H*Sq*Sk*D operations (half of it when causal), as the FlashAttention papers
do. Prints a table and writes it, with device, driver, date and commit, as JSON.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys

import fa
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "test/python"))
import right  # noqa: E402


def sdpa(backend):
    """PyTorch's attention through one backend."""

    def run(q, k, v, causal):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return run


def fa_attention(q, k, v, causal):
    """fa as a user calls it."""
    return fa.attention(q, k, v, is_causal=causal)


CONTENDERS = {
    "fa": fa_attention,
    "fa2": sdpa(SDPBackend.FLASH_ATTENTION),
    "cudnn": sdpa(SDPBackend.CUDNN_ATTENTION),
}


def race(q, k, v, causal, repeats):
    """Median milliseconds of each contender."""
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    names = list(CONTENDERS)
    times = {name: [] for name in names}
    for name in names:
        for _ in range(3):
            CONTENDERS[name](q, k, v, causal)
    torch.cuda.synchronize()
    for turn in range(repeats):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            flush.zero_()
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            start.record()
            CONTENDERS[name](q, k, v, causal)
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end))
    return {name: statistics.median(t) for name, t in times.items()}


def check(q, k, v, causal):
    """What is expected of one head by the tests' rule, and fa's largest error."""
    s = slice(0, min(1024, q.shape[2]))
    q, k, v = (t[:1, :1, s].contiguous() for t in (q, k, v))
    mask = {"mask": lambda b, h, i, j: j <= i} if causal else {}
    expected = right.attention(q, k, v, xp=torch, **mask)
    ours = right.back(fa.attention(q, k, v, is_causal=causal))
    if right.share(ours, expected.out, expected.limit) > 1:
        print("  fa is WRONG", flush=True)
    return right.difference(ours, expected.out), expected.naive_error


def main() -> int:
    """Races at every head dim, length and mask."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", default="64,128")
    parser.add_argument("--lengths", default="512,2048,8192,16384")
    parser.add_argument("--repeats", type=int, default=24)
    parser.add_argument("--out", default="")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    rows = []
    print("   D     S causal     fa    fa2  cudnn TFLOP/s   fa/fa2   error/naive")
    for dim in map(int, args.dims.split(",")):
        for length in map(int, args.lengths.split(",")):
            batch, heads = max(1, 16384 // length), 2048 // dim
            q, k, v = (
                torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.bfloat16)
                for _ in range(3)
            )
            for causal in (False, True):
                error, naive = check(q, k, v, causal)
                times = race(q, k, v, causal, args.repeats)
                flops = 4 * batch * heads * length**2 * dim * (0.5 if causal else 1)
                speed = {n: flops / t / 1e9 for n, t in times.items()}
                ratio = speed["fa"] / speed["fa2"]
                rows.append(
                    dict(
                        D=dim,
                        S=length,
                        causal=causal,
                        tflops=speed,
                        ratio_fa2=ratio,
                        error=error,
                        naive_error=naive,
                    )
                )
                print(
                    f"{dim:4} {length:5} {'yes' if causal else 'no':>6} "
                    f"{speed['fa']:6.0f} {speed['fa2']:6.0f} {speed['cudnn']:6.0f}"
                    f"           {ratio:6.2f}   {error / naive:6.2f}",
                    flush=True,
                )
    result = dict(
        benchmark="gpu_forward",
        device=torch.cuda.get_device_name(),
        torch=torch.__version__,
        date=datetime.date.today().isoformat(),
        commit=args.commit
        or subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        ).stdout.strip(),
        rows=rows,
    )
    if args.out:
        with open(args.out, "w") as file:
            json.dump(result, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
