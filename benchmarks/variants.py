# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races fa with FlexAttention on score and mask functions.

Both get the same two functions, B=2, S=8192, bf16, a model width of 2048:
FlexAttention through torch.compile with a block mask that is built beforehand, fa
as `fa.attention` calls them. Interleaved in one process, order rotated, L2
flushed. Results are compared with each other, and of the first rows and all keys of
the last head with float64, by the tests' rule (test/python/right.py).
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

from timing import Timer, geomean, numbers, provenance, race_options, result_path, write

BATCH, LENGTH, WIDTH = 2, 8192, 2048


def cases(heads: int) -> dict[str, tuple[Callable | None, Callable | None]]:
    """Score and mask functions by name, for that many heads."""
    import torch

    slopes = torch.exp2(-8 * torch.arange(1, heads + 1, device="cuda") / heads)
    table = torch.randn(2 * LENGTH, device="cuda")
    ids = torch.arange(LENGTH, device="cuda") // 1024

    def alibi(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score + slopes[h] * (kv_idx - q_idx)

    def softcap(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return 20 * torch.tanh(score / 20)

    def relative(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score + table[q_idx - kv_idx + LENGTH]

    def causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return kv_idx <= q_idx

    def window(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (kv_idx <= q_idx) & (q_idx - kv_idx <= 1024)

    def prefix(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (kv_idx <= q_idx) | (kv_idx < 1024)

    def document(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (kv_idx <= q_idx) & (ids[q_idx] == ids[kv_idx])

    return {
        "noop": (None, None),
        "alibi": (alibi, None),
        "softcap": (softcap, None),
        "relpos": (relative, None),
        "causal": (None, causal),
        "window1024": (None, window),
        "document1024": (None, document),
        "prefix1024": (None, prefix),
        "alibi_causal": (alibi, causal),
    }


def share_of_limit(
    q: Any, k: Any, v: Any, out: Any, score: Callable | None, mask: Callable | None, cap: float
) -> float:
    """The largest error of the last head's first rows as a share of what is allowed. `cap`:
    what is multiplied with a tanh."""
    import right
    import torch

    head, rows = q.shape[1] - 1, slice(0, 512)
    formulas: dict[str, Any] = {}
    if score is not None:
        formulas["score"] = lambda s, b, h, i, j: score(s, b, h + head, i, j)
        formulas["score_error"] = right.approximated(cap, "cuda")
    if mask is not None:
        formulas["mask"] = lambda b, h, i, j: mask(b, h + head, i, j)
    a, b, c = (x[-1:, -1:] for x in (q, k, v))
    expected = right.attention(a[:, :, rows], b, c, xp=torch, **formulas)
    return right.share(right.back(out[-1:, -1:, rows]), expected.out, expected.limit)


def race(dim: int, name: str, timer: Timer) -> dict[str, Any]:
    """Milliseconds of both, their ratio and the largest difference of results."""
    import fa
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    heads = WIDTH // dim
    score, mask = cases(heads)[name]
    q, k, v = (
        torch.randn(BATCH, heads, LENGTH, dim, device="cuda", dtype=torch.bfloat16)
        for _ in range(3)
    )
    block_mask = None
    if mask is not None:
        block_mask = create_block_mask(mask, None, None, LENGTH, LENGTH, "cuda")
    torch._dynamo.reset()  # or it gives up after eight variants, and runs them eagerly
    compiled = torch.compile(flex_attention, dynamic=False)
    flex = functools.partial(compiled, q, k, v, score_mod=score, block_mask=block_mask)
    # As FlexAttention, whose block masks are made beforehand.
    kept = None if mask is None else fa.prepare(mask)
    ours = functools.partial(fa.attention, q, k, v, score_mod=score, mask_mod=kept)
    start = time.perf_counter()
    out = ours()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    difference = (out.float() - flex().float()).abs().max().item()
    if share_of_limit(q, k, v, out, score, mask, 20.0 * (name == "softcap")) > 1:
        print(f"  fa is WRONG: {name}", flush=True)
    ms = timer({"fa": ours, "flex": flex})
    row = dict(D=dim, case=name, ms=ms, ratio=ms["flex"] / ms["fa"], first_call_s=first)
    print(
        f"{dim:4} {name:14} {ms['fa']:8.3f} {ms['flex']:8.3f} {row['ratio']:7.2f} "
        f"{first:8.2f} {difference:11.1e}",
        flush=True,
    )
    return dict(row, difference=difference)


def main() -> int:
    """Races all cases at D=128 and the plain ones at the other head dims."""
    options = race_options(__doc__, "variants", rounds=12)
    options.add_argument("--dims", type=numbers, default=[64, 128, 256], help="64,128,256")
    args = options.parse_args()
    timer = Timer(args.rounds)
    print(
        f"{'D':>4} {'case':14} {'fa ms':>8} {'flex ms':>8} {'ratio':>7} {'first s':>8} difference"
    )
    rows = []
    for dim in args.dims:
        for name in cases(1) if dim == 128 else ("noop", "causal"):
            rows.append(race(dim, name, timer))
    print(f"FlexAttention / fa: geometric mean {geomean(row['ratio'] for row in rows):.2f}")
    result = dict(benchmark="variants", **provenance(args.commit), rows=rows)
    write(result_path("variants", args.out), result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
