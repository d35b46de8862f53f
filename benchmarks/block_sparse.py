# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether time follows density, and what lists of blocks cost.

First: B=2, S=8192, bf16, a model width of 2048, of whose blocks of 128 x 128 a
share is seen, as many in each row; fa with the mask against fa without one,
interleaved in one process, order rotated, L2 flushed. The lists are made in
every call. Then: the time of the kernel that lists the blocks, by PyTorch's
profiler, for packed documents and masks that need no list.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from timing import Timer, numbers, provenance, race_options, result_path, write

BATCH, LENGTH, WIDTH, BLOCK = 2, 8192, 2048, 128


def blocks(every: int) -> Any:
    """Booleans [Nq, Nk]: one block of `every` in each row, at random places."""
    import torch

    count = LENGTH // BLOCK
    places = torch.rand(count, count, device="cuda").argsort(-1)
    return places < count // every


def densities(dim: int, timer: Timer) -> list[dict[str, Any]]:
    """Time over density and the dense time."""
    import fa
    import torch

    heads = WIDTH // dim
    q, k, v = (
        torch.randn(BATCH, heads, LENGTH, dim, device="cuda", dtype=torch.bfloat16)
        for _ in range(3)
    )
    functions = {"dense": functools.partial(fa.attention, q, k, v)}
    for every in (1, 2, 4, 8, 16):
        mask = fa.masks.block_sparse(blocks(every), BLOCK)
        functions[f"1/{every}"] = functools.partial(fa.attention, q, k, v, mask_mod=mask)
    ms = timer(functions)
    rows = []
    for every in (1, 2, 4, 8, 16):
        time = ms[f"1/{every}"]
        ratio = time * every / ms["dense"]
        rows.append(dict(D=dim, density=1 / every, ms=time, dense_ms=ms["dense"], ratio=ratio))
        print(f"{dim:4} {'1/' + str(every):>8} {time:9.3f} {ms['dense']:9.3f} {ratio:7.3f}")
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
    options = race_options(__doc__, "block-sparse", rounds=20)
    options.add_argument("--dims", type=numbers, default=[64, 128, 256], help="64,128,256")
    args = options.parse_args()
    timer = Timer(args.rounds)
    print(f"{'D':>4} {'density':>8} {'ms':>9} {'dense ms':>9} {'ratio':>7}")
    sparse = [row for dim in args.dims for row in densities(dim, timer)]
    print(f"{'S':>6} {'mask':18} {'lists ms':>9} {'all ms':>9}")
    lists = [row for length in (8192, 65536) for row in building(length)]
    result = dict(benchmark="block-sparse", **provenance(args.commit), rows=sparse, lists=lists)
    write(result_path("block-sparse", args.out), result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
