# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races the speculated softmax with the classic one on unfriendly data.

fa-speculate-max takes a row's maximum from earlier blocks, which data can make
stale. Kinds of data, by what scores do along the keys: "randn" nothing; "sharp"
has ten times larger queries, "sink" one key of ten times the size; "stale200"
and "stale500" grow by that many powers of two from the first key to the last;
"steep" overflows in every block; "falling" is steep the other way round. Both
kernels are compiled alike but for the option `speculate`, interleaved in one
process, and checked against float64.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from timing import Reference, Shape, Timer, numbers, provenance, race_options, result_path, write

KINDS = ("randn", "sharp", "sink", "stale200", "stale500", "steep", "falling")


def inputs_of(kind: str, shape: Shape) -> tuple[Any, Any, Any]:
    """q, k and v [B, H, S, D] of a kind, bfloat16, on the GPU."""
    import torch

    q, k, v = shape.inputs()
    if kind == "sharp":
        q = q * 10
    elif kind == "sink":
        k[:, :, 0] *= 10
    elif kind != "randn":
        along = torch.randn(shape.dim, device="cuda")
        along /= along.norm()
        place = torch.arange(shape.length, device="cuda", dtype=torch.float32)
        if kind.startswith("stale"):
            # In log2 units of the scaled scores, for the mean query.
            total = float(kind.removeprefix("stale"))
            slope = total * math.log(2) * math.sqrt(shape.dim) / 4 / shape.length
            q, k = q.float() + 4 * along, k.float() + (place * slope)[:, None] * along
        else:
            place = place.flip(0) if kind == "falling" else place
            q = torch.zeros_like(q, dtype=torch.float32) + along * math.sqrt(shape.dim)
            k = 0.1 * k.float() + place[:, None] * along
        q, k = q.to(v.dtype), k.to(v.dtype)
    return q, k, v


def race(shape: Shape, kinds: list[str], timer: Timer) -> list[dict[str, Any]]:
    """A row for each kind: TFLOP/s and the error's share of what is allowed."""
    import fa
    import torch
    from fa._run.config import AttentionConfig

    config = AttentionConfig("bf16", shape.heads, shape.heads, shape.dim, shape.dim, shape.causal)
    kernels = {
        name: fa.compile(config, "sm_90a", speculate=option)
        for name, option in (("speculated", "on"), ("classic", "off"))
    }
    rows = []
    for kind in kinds:
        inputs = inputs_of(kind, shape)
        reference = Reference(shape, *inputs)
        out = torch.full_like(inputs[0], float("nan"))
        errors = {}
        for name, kernel in kernels.items():
            kernel(*inputs, out.fill_(float("nan")))
            errors[name] = reference.error(out)
        calls = {
            name: lambda kernel=kernel, arrays=(*inputs, out): kernel(*arrays)
            for name, kernel in kernels.items()
        }
        tflops = {name: shape.flops / ms / 1e9 for name, ms in timer(calls).items()}
        ratio = tflops["speculated"] / tflops["classic"]
        row = dict(D=shape.dim, S=shape.length, causal=shape.causal, kind=kind)
        rows.append(dict(row, tflops=tflops, error=errors, ratio=ratio))
        print(
            f"{shape!s:22} {kind:9} {tflops['speculated']:6.0f} {tflops['classic']:6.0f} "
            f"{ratio:6.3f}   {errors['speculated']:.2f} {errors['classic']:.2f}",
            flush=True,
        )
    return rows


def main() -> int:
    """Races all shapes and kinds asked for."""
    options = race_options(__doc__, "speculation", rounds=12)
    options.add_argument("--dims", type=numbers, default=[64, 128, 256], help="64,128,256")
    options.add_argument("--lengths", type=numbers, default=[2048, 8192], help="2048,8192")
    options.add_argument("--kinds", default=",".join(KINDS), help=",".join(KINDS))
    args = options.parse_args()
    timer = Timer(args.rounds)
    print(f"{'':32} TFLOP/s: speculated, classic, ratio; error's share of what is allowed")
    rows = [
        row
        for dim in args.dims
        for causal in (False, True)
        for length in args.lengths
        for row in race(Shape(dim, length, causal), args.kinds.split(","), timer)
    ]
    for kind in args.kinds.split(","):
        ratios = [row["ratio"] for row in rows if row["kind"] == kind]
        print(f"{kind}: speculated / classic {min(ratios):.3f} to {max(ratios):.3f}")
    result = dict(benchmark="speculation", **provenance(args.commit), rows=rows)
    write(result_path("speculation", args.out), result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
