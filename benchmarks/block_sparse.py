# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether time follows density, and what lists of blocks cost.

First: 16384 tokens, bf16, a model width of 2048, of whose blocks of 128 x 128 a
share is seen, as many in each row; fa with the mask against fa without one,
interleaved in one process, order rotated, L2 flushed. `first` makes the lists in
every call, `again` has a mask of `fa.prepare`, which keeps them. Then: the time of
the kernel that lists the blocks, by PyTorch's profiler, for packed documents and
masks that need no list.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from timing import Timer, numbers, provenance, race_options, result_path, write

WIDTH, BLOCK, TOKENS = 2048, 128, 16384
EVERY = (1, 2, 4, 8, 16)


def blocks(length: int, every: int) -> Any:
    """Booleans [Nq, Nk]: one block of `every` in each row, at random places."""
    import torch

    count = length // BLOCK
    places = torch.rand(count, count, device="cuda").argsort(-1)
    return places < count // every


def densities(dim: int, length: int, timer: Timer) -> list[dict[str, Any]]:
    """Time over density and the dense time."""
    import fa
    import torch

    heads = WIDTH // dim
    q, k, v = (
        torch.randn(TOKENS // length, heads, length, dim, device="cuda", dtype=torch.bfloat16)
        for _ in range(3)
    )
    functions = {"dense": functools.partial(fa.attention, q, k, v)}
    for every in EVERY:
        mask = fa.masks.block_sparse(blocks(length, every), BLOCK)
        call = functools.partial(fa.attention, q, k, v)
        functions[f"again {every}"] = functools.partial(call, mask_mod=fa.prepare(mask))
        functions[f"first {every}"] = functools.partial(call, mask_mod=mask)
    ms = timer(functions)
    rows = []
    for every in EVERY:
        times = {how: ms[f"{how} {every}"] for how in ("again", "first")}
        ratios = {how: time * every / ms["dense"] for how, time in times.items()}
        row = dict(D=dim, S=length, density=1 / every, dense_ms=ms["dense"], ms=times, ratio=ratios)
        rows.append(row)
        print(
            f"{dim:4} {length:6} {'1/' + str(every):>8} {ms['dense']:9.3f} {times['again']:9.3f} "
            f"{ratios['again']:7.3f} {times['first']:9.3f} {ratios['first']:7.3f}",
            flush=True,
        )
    return rows


def building(length: int) -> list[dict[str, Any]]:
    """Milliseconds of the kernel that makes the lists of one mask."""
    import fa
    import torch
    from fa import masks

    ids = torch.arange(length, device="cuda") // 1024
    cases = {
        "causal": masks.causal,
        "window": masks.sliding_window(1024),
        "documents": masks.documents(ids),
        "causal documents": masks.and_masks(masks.causal, masks.documents(ids)),
    }
    q = torch.randn(1, 1, length, 128, device="cuda", dtype=torch.bfloat16)
    rows = []
    for name, mask in cases.items():
        for _ in range(2):
            fa.attention(q, q, q, mask_mod=mask)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(5):
                fa.attention(q, q, q, mask_mod=mask)
            torch.cuda.synchronize()
        times: dict[str, float] = {}
        for event in profile.key_averages():
            if "kernel" in event.key and event.count:
                times[event.key] = event.device_time_total / event.count / 1e3
        lists = sum(time for key, time in times.items() if key.endswith("kernel0"))
        whole = sum(times.values())
        rows.append(dict(length=length, mask=name, lists_ms=lists, kernels_ms=whole))
        print(f"{length:6} {name:18} {lists:9.3f} {whole:9.3f}", flush=True)
    return rows


def main() -> int:
    """Measures densities at each head dim, then what lists cost at two lengths."""
    options = race_options(__doc__, "block_sparse", rounds=20)
    options.add_argument("--dims", type=numbers, default=[64, 128, 256], help="64,128,256")
    options.add_argument("--lengths", type=numbers, default=[8192, 16384], help="8192,16384")
    args = options.parse_args()
    timer = Timer(args.rounds)
    print(
        f"{'D':>4} {'S':>6} {'density':>8} {'dense ms':>9} {'again ms':>9} {'ratio':>7} "
        f"{'first ms':>9} {'ratio':>7}"
    )
    sparse = [
        row for dim in args.dims for length in args.lengths for row in densities(dim, length, timer)
    ]
    print(f"{'S':>6} {'mask':18} {'lists ms':>9} {'all ms':>9}")
    lists = [row for length in (8192, 65536) for row in building(length)]
    result = dict(benchmark="block_sparse", **provenance(args.commit), rows=sparse, lists=lists)
    write(result_path("block_sparse", args.out), result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
