# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times what gradients of fa's variants cost.

bf16, a model width of 2048. Score and mask functions of variants.py (B=2, S=8192)
beside FlexAttention's; what the gradient of a captured bias and what dropout cost;
and what it costs that gradients of plain and causal attention of 16384 tokens have
the same bits each time, beside PyTorch's FlashAttention-2. (gpu_race.py --training
races these without.) The backward alone is timed, torch.autograd.grad with the graph
kept. Interleaved in one process, order rotated, L2 flushed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from timing import (
    Shape,
    Timer,
    backward,
    geomean,
    leaves,
    numbers,
    provenance,
    race_options,
    result_path,
    write,
)
from variants import BATCH, LENGTH, WIDTH, cases

LENGTHS = (512, 2048, 8192, 16384)


def deterministic(call: Callable[[], object]) -> Callable[[], object]:
    """A backward whose results have the same bits each time: asked when it runs."""
    import torch

    def run() -> None:
        torch.use_deterministic_algorithms(True)
        try:
            call()
        finally:
            torch.use_deterministic_algorithms(False)

    return run


def race_deterministic(shape: Shape, timer: Timer) -> dict[str, Any]:
    """Milliseconds with and without the same bits each time: of fa's backward and PyTorch's FA2's,
    and, with them, of forward and backward by fa and by what PyTorch chooses."""
    import fa
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = leaves(*shape.inputs())
    grad = torch.randn_like(q)

    def step(attention: Callable[..., Any]) -> Callable[[], object]:
        def run() -> None:
            torch.autograd.grad(attention(q, k, v, is_causal=shape.causal), (q, k, v), grad)

        return run

    calls = {"fa": backward(fa.attention(q, k, v, is_causal=shape.causal), (q, k, v))}
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=shape.causal)
    calls["fa2"] = backward(out, (q, k, v))
    calls |= {f"{name} deterministic": deterministic(call) for name, call in calls.items()}
    for name, attention in (("fa", fa.attention), ("sdpa", F.scaled_dot_product_attention)):
        calls[f"{name} step deterministic"] = deterministic(step(attention))
    ms = timer(calls)
    ratios = {name: ms[name] / ms[f"{name} deterministic"] for name in ("fa", "fa2")}
    ratios["fa / fa2"] = ms["fa2 deterministic"] / ms["fa deterministic"]
    ratios["step, fa / sdpa"] = ms["sdpa step deterministic"] / ms["fa step deterministic"]
    print(f"{shape!s:24} " + " ".join(f"{x:9.2f}" for x in ratios.values()), flush=True)
    return dict(shape=str(shape), ms=ms, ratios=ratios)


def race_variant(dim: int, name: str, timer: Timer) -> dict[str, Any]:
    """Milliseconds of fa's and FlexAttention's gradients."""
    import fa
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    heads = WIDTH // dim
    score, mask = cases(heads)[name]
    tensors = [
        torch.randn(BATCH, heads, LENGTH, dim, device="cuda", dtype=torch.bfloat16)
        for _ in range(3)
    ]
    q, k, v = leaves(*tensors)
    block_mask = mask and create_block_mask(mask, None, None, LENGTH, LENGTH, "cuda")
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    outs = {
        "fa": fa.attention(q, k, v, score_mod=score, mask_mod=mask),
        "flex": compiled(q, k, v, score_mod=score, block_mask=block_mask),
    }
    grad = torch.randn_like(q)
    found = {x: torch.autograd.grad(outs[x], (q, k, v), grad, retain_graph=True) for x in outs}
    difference = max((a - b).abs().max().item() for a, b in zip(found["fa"], found["flex"]))
    ms = timer({x: backward(out, (q, k, v)) for x, out in outs.items()})
    ratio = ms["flex"] / ms["fa"]
    print(f"{dim:4} {name:14} {ms['fa']:8.3f} {ms['flex']:8.3f} {ratio:7.2f} {difference:11.1e}")
    return dict(D=dim, case=name, ms=ms, ratio=ratio, difference=difference)


def race_extras(dim: int, timer: Timer) -> dict[str, Any]:
    """Time of gradients with that of a bias, or with dropout, over that without; and speed of
    those of a bias with the same bits each time over without. B=2, S=4096."""
    import fa
    import torch

    heads, length = WIDTH // dim, 4096
    tensors = [
        torch.randn(BATCH, heads, length, dim, device="cuda", dtype=torch.bfloat16)
        for _ in range(3)
    ]
    q, k, v = leaves(*tensors)
    dense = torch.zeros(heads, length, length, device="cuda")
    table = torch.zeros(2 * length, device="cuda")
    slopes = torch.zeros(heads, device="cuda")
    scores = {
        "dense": (dense, lambda x: lambda s, b, h, i, j: s + x[h, i, j]),
        "table": (table, lambda x: lambda s, b, h, i, j: s + x[i - j + length]),
        "slopes": (slopes, lambda x: lambda s, b, h, i, j: s + x[h] * (j - i)),
    }
    calls = {"plain": backward(fa.attention(q, k, v), (q, k, v))}
    calls["dropout"] = backward(fa.attention(q, k, v, dropout_p=0.1, dropout_seed=7), (q, k, v))
    for name, (bias, score) in scores.items():
        out = fa.attention(q, k, v, score_mod=score(bias))
        calls[name] = backward(out, (q, k, v))
        learned = bias.clone().requires_grad_()
        out = fa.attention(q, k, v, score_mod=score(learned))
        calls[f"{name} learned"] = backward(out, (q, k, v, learned))
        calls[f"{name} deterministic"] = deterministic(calls[f"{name} learned"])
    ms = timer(calls)
    ratios = {name: ms[f"{name} learned"] / ms[name] for name in scores}
    ratios["dropout"] = ms["dropout"] / ms["plain"]
    for name in scores:
        ratios[f"{name} deterministic"] = ms[f"{name} learned"] / ms[f"{name} deterministic"]
    print(f"{dim:4} " + ", ".join(f"{name} {x:.2f}" for name, x in ratios.items()), flush=True)
    return dict(D=dim, ms=ms, ratios=ratios)


def main() -> int:
    """Runs all parts, or those that are named."""
    options = race_options(__doc__, "gpu_backward", rounds=10)
    options.add_argument("--dims", type=numbers, default=[64, 128, 256], help="64,128,256")
    options.add_argument("--parts", default="deterministic,variants,extras")
    args = options.parse_args()
    parts = args.parts.split(",")
    timer = Timer(args.rounds)
    result = dict(benchmark="gpu_backward", **provenance(args.commit))
    shapes = [Shape(d, n, c) for d in args.dims for n in LENGTHS for c in (False, True)]
    if "deterministic" in parts:
        names = ("fa", "FA2", "fa / FA2", "fa / SDPA, forward too")
        print(f"{'speed, same bits / not':24} " + " ".join(f"{name:>9}" for name in names))
        rows = result["deterministic"] = [race_deterministic(shape, timer) for shape in shapes]
        ratios = [row["ratios"]["fa"] for row in rows]
        print(f"same bits / not: geometric mean {geomean(ratios):.3f}, worst {min(ratios):.3f}")
    if "variants" in parts:
        print(f"{'D':>4} {'case':14} {'fa ms':>8} {'flex ms':>8} {'ratio':>7} difference")
        rows = result["variants"] = [race_variant(128, name, timer) for name in cases(1)]
        ratios = [row["ratio"] for row in rows]
        print(f"FlexAttention / fa: geometric mean {geomean(ratios):.2f}, worst {min(ratios):.2f}")
    if "extras" in parts:
        print("Time with the gradient of a captured bias, or with dropout, over that without")
        result["extras"] = [race_extras(dim, timer) for dim in args.dims]
    write(result_path("gpu_backward", args.out), result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
