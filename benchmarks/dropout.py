# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What dropout of the weights costs.

B=2, S=8192, bf16, a model width of 2048, dropout_p=0.1: fa with and without it,
and PyTorch's scaled_dot_product_attention with it (its FlashAttention).
Interleaved in one process, order rotated, L2 flushed. The seed is a tensor, so
that no kernel but attention's is timed.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from timing import Shape, Timer, geomean, numbers, provenance, race_options, result_path, write

LENGTH = 8192


def race(shape: Shape, dropout_p: float, timer: Timer) -> dict[str, Any]:
    """Milliseconds without and with dropout, and of PyTorch's own."""
    import fa
    import torch
    import torch.nn.functional as F

    q, k, v = shape.inputs()
    seed = torch.full((), 7, device="cuda")
    plain = functools.partial(fa.attention, q, k, v, is_causal=shape.causal)
    dropped = functools.partial(plain, dropout_p=dropout_p, dropout_seed=seed)
    own = functools.partial(
        F.scaled_dot_product_attention, q, k, v, is_causal=shape.causal, dropout_p=dropout_p
    )
    # The share of zeros and the mean tell whether what is timed drops anything.
    ones = torch.ones_like(v)
    mean = fa.attention(q, k, ones, is_causal=shape.causal, dropout_p=dropout_p, dropout_seed=seed)
    assert abs(mean.float().mean().item() - 1) < 0.01 and (mean != 1).any()
    ms = timer({"without": plain, "with": dropped, "torch": own})
    row = dict(D=shape.dim, causal=shape.causal, ms=ms, ratio=ms["with"] / ms["without"])
    print(
        f"{shape.dim:4} {'causal' if shape.causal else '':6} {ms['without']:8.3f} "
        f"{ms['with']:8.3f} {row['ratio']:6.3f} {ms['torch']:8.3f}",
        flush=True,
    )
    return row


def main() -> int:
    """Races all head dims."""
    options = race_options(__doc__, "dropout", rounds=20)
    options.add_argument("--dims", type=numbers, default=[64, 128, 192, 256], help="64,128")
    options.add_argument("--dropout-p", type=float, default=0.1)
    args = options.parse_args()
    timer = Timer(args.rounds)
    print(f"{'D':>4} {'':6} {'fa ms':>8} {'dropout':>8} {'ratio':>6} {'torch':>8}")
    rows = [
        race(Shape(dim, LENGTH, causal), args.dropout_p, timer)
        for dim in args.dims
        for causal in (False, True)
    ]
    print(f"with / without: geometric mean {geomean(row['ratio'] for row in rows):.3f}")
    result = dict(
        benchmark="dropout", dropout_p=args.dropout_p, **provenance(args.commit), rows=rows
    )
    write(result_path("dropout", args.out), result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
