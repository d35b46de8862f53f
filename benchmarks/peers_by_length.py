# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa against PyTorch's scaled_dot_product_attention where queries are few, and in float32.

Where fa is the slower one, `fa.torch.use_sdpa` leaves a call to PyTorch: its rule
(fa._torch.sdpa.slower) and the table in docs/pytorch.md come from this run.

    python benchmarks/peers_by_length.py [--rounds N] [--out FILE]
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

from timing import Timer, geomean, numbers, provenance, race_options, result_path, write

QUERIES = (1, 2, 8, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 2048)
KEYS = (128, 1024, 8192)
SIZES = ((1, 8, 8), (1, 32, 8), (8, 16, 16), (32, 32, 8))
"""Batch size, query heads and key heads."""


def cases(types: list[str], dims: list[int], masks: list[str]) -> list[dict[str, Any]]:
    """What is compared."""
    result = []
    for dtype, dim, mask, size, keys in itertools.product(types, dims, masks, SIZES, KEYS):
        for queries in QUERIES:
            if queries <= keys and size[0] * size[1] * queries * keys <= 1 << 31:
                names = ("batch", "heads", "key_heads")
                result.append(
                    {
                        **dict(dtype=dtype, dim=dim, mask=mask, queries=queries, keys=keys),
                        **dict(zip(names, size)),
                    }
                )
    return result


def main() -> None:
    """Measures, prints and writes."""
    options = race_options(__doc__, "peers_by_length", 9)
    options.add_argument("--types", default="bfloat16,float32")
    options.add_argument("--dims", default="64,96,128,192,256", help="head dims")
    options.add_argument("--masks", default="none", help="of none, causal, bool")
    options.add_argument(
        "--routed", action="store_true", help="as use_sdpa routes: PyTorch where that is faster"
    )
    given = options.parse_args()
    import fa.torch
    import torch

    timer = Timer(given.rounds)
    timer.flush = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    rows = []
    sdpa = torch.nn.functional.scaled_dot_product_attention
    fa_sdpa = fa.torch.sdpa
    if given.routed:
        fa.torch.enable_sdpa()
        fa_sdpa = torch.nn.functional.scaled_dot_product_attention
    for case in cases(given.types.split(","), numbers(given.dims), given.masks.split(",")):
        dtype = getattr(torch, case["dtype"])

        def tensor(heads: int, length: int, case: Any = case, dtype: Any = dtype) -> Any:
            return torch.randn(
                case["batch"], heads, length, case["dim"], device="cuda", dtype=dtype
            )

        q = tensor(case["heads"], case["queries"])
        k, v = (tensor(case["key_heads"], case["keys"]) for _ in range(2))
        options_of_call: dict[str, Any] = {"enable_gqa": case["heads"] != case["key_heads"]}
        if case["mask"] == "causal":
            options_of_call["is_causal"] = True
        if case["mask"] == "bool":  # padding
            lengths = torch.randint(case["keys"] // 2, case["keys"], (case["batch"], 1, 1, 1))
            seen = torch.arange(case["keys"]) < lengths
            options_of_call["attn_mask"] = seen.cuda()
        with torch.no_grad():
            times = timer(
                {
                    name: functools.partial(function, q, k, v, **options_of_call)
                    for name, function in (("fa", fa_sdpa), ("torch", sdpa))
                }
            )
        rows.append({**case, **{f"{name}_ms": ms for name, ms in times.items()}})
        rows[-1]["speed"] = times["torch"] / times["fa"]
        if case["queries"] == QUERIES[-1] or case["queries"] == case["keys"]:
            same = [r for r in rows if all(r[n] == case[n] for n in case if n != "queries")]
            line = " ".join(f"{r['queries']}:{r['speed']:.2f}" for r in same)
            what = f"{case['dtype']} D={case['dim']} {case['mask']} B={case['batch']} H={case['heads']}"
            print(f"{what}/{case['key_heads']} Sk={case['keys']:5d}  {line}", flush=True)
    for dtype in given.types.split(","):
        print(dtype, "geomean", geomean([r["speed"] for r in rows if r["dtype"] == dtype]))
    result = {**provenance(given.commit), "rows": rows}
    write(result_path("peers_by_length", given.out), result)


if __name__ == "__main__":
    main()
