# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the memory of one attention layer, forward and backward, by sequence length.

    python examples/training/long_context.py                        # 1K to 64K on a GPU
    python examples/training/long_context.py --device cpu           # 512 to 4K

The claim is FlashAttention's (Dao et al. 2022, theorem 1 and section 4.3): memory beside
inputs and outputs is linear in the length, where that of the plain formula is quadratic.
q, k, v and the gradient of the output are normal, [batch, heads, length, head dim].
Measured is the peak during a forward and its backward, less what was in use before (these
four), the output and the gradients of q, k and v:

- on a GPU by PyTorch's allocator (torch.cuda.max_memory_allocated) and the driver's pool
  of temporary arrays, which fa's kernels use, too (`common.PeakMemory`);
- on a CPU by the process's resident memory, whose high-water mark Linux resets (VmHWM of
  /proc/self/status, by writing 5 to /proc/self/clear_refs). Pages, not bytes, are counted,
  with what libraries keep for themselves.

The check: from the shortest to the longest length fa's memory may grow as the length does,
times 1.25, plus a slack of 2 MiB on a GPU, 4 MiB on a CPU. Exit status 1 if it grows more.
What does not fit is shown as out of memory.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import common
import fa
import torch
from timing import numbers
from torch import Tensor

GROWTH = 1.25
SLACK = {"cuda": 2 << 20, "cpu": 4 << 20}
"""Bytes."""
WARM_UP = 64
"""A length that is not measured: what is kept from it is small."""
LENGTHS = {
    "cuda": [1024, 2048, 4096, 8192, 16384, 32768, 65536],
    "cpu": [512, 1024, 2048, 4096],
}

# --- Attention -------------------------------------------------------------------------


def by_fa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention by fa."""
    return fa.attention(query, key, value, is_causal=True)


def by_sdpa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """By PyTorch's kernel of its own choice."""
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def by_formula(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """As it is defined, with a matrix of scores for each head."""
    scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
    positions = torch.arange(query.shape[2], device=query.device)
    hidden = positions > positions[:, None]
    return torch.softmax(scores.masked_fill(hidden, -math.inf), -1) @ value


ATTENTION: dict[str, Callable[..., Tensor]] = {"fa": by_fa, "sdpa": by_sdpa, "eager": by_formula}

# --- Measuring -------------------------------------------------------------------------


class PeakResident:
    """The most memory that was resident since `reset`, in bytes: `PeakMemory` on a CPU."""

    def __init__(self) -> None:
        if not pathlib.Path("/proc/self/clear_refs").exists():
            raise SystemExit(
                "expected Linux's /proc/self/clear_refs for --device cpu, got none; "
                "use --device cuda"
            )
        # Large arrays go back to the system as soon as they are freed (M_MMAP_THRESHOLD).
        ctypes.CDLL(None).mallopt(-3, 1 << 16)

    @staticmethod
    def _read(field: str) -> int:
        for line in pathlib.Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return 1024 * int(line.split()[1])
        raise RuntimeError(f"expected {field} in /proc/self/status")

    def reset(self) -> None:
        """Begins to count, from what is in use now."""
        pathlib.Path("/proc/self/clear_refs").write_text("5")

    def now(self) -> int:
        """What is in use."""
        return self._read("VmRSS")

    def bytes(self) -> int:
        """The peak."""
        return self._read("VmHWM")


def measure(attend: Callable[..., Tensor], length: int, args: argparse.Namespace) -> int:
    """Bytes at the peak of a forward and a backward, beside inputs and outputs."""
    generator = torch.Generator(args.device).manual_seed(args.seed)
    options = dict(device=args.device, dtype=getattr(torch, args.dtype), generator=generator)
    sizes = (args.batch, args.heads, length, args.dim)
    q, k, v, gradient = (torch.randn(sizes, **options) for _ in range(4))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    peak = common.PeakMemory() if args.device == "cuda" else PeakResident()
    peak.reset()
    before = peak.now()
    out = attend(*leaves)
    found = torch.autograd.grad(out, leaves, gradient)
    outputs = sum(x.numel() * x.element_size() for x in (out, *found))
    return max(0, peak.bytes() - before - outputs)


def row(name: str, length: int, args: argparse.Namespace) -> int | None:
    """`measure`, None where memory does not suffice."""
    try:
        return measure(ATTENTION[name], length, args)
    except RuntimeError as error:
        if not common.is_out_of_memory(error):
            raise
    return None


# --- The check -------------------------------------------------------------------------


def is_linear(lengths: Sequence[int], found: Sequence[int], slack: int) -> bool:
    """Whether bytes grow as lengths do, from the first to the last."""
    return found[-1] <= GROWTH * found[0] * lengths[-1] / lengths[0] + slack


def exponent(lengths: Sequence[int], found: Sequence[int]) -> float:
    """p of bytes ~ length^p, by least squares of the logarithms."""
    points = [(math.log(n), math.log(x)) for n, x in zip(lengths, found) if x > 0]
    if len(points) < 2:
        return math.nan
    x_mean, y_mean = (sum(column) / len(points) for column in zip(*points))
    products = sum((x - x_mean) * (y - y_mean) for x, y in points)
    return products / sum((x - x_mean) ** 2 for x, _ in points)


# --- What is printed and drawn ---------------------------------------------------------


def line(length: int, found: dict[str, int | None]) -> str:
    """A line of the table: MiB, and bytes for each token."""
    cells = [
        f"{'out of memory':>22}" if x is None else f"{x / 2**20:12.2f} {x / length:9.0f}"
        for x in found.values()
    ]
    return f"{length:8} " + " ".join(cells)


def plot(result: dict[str, Any], path: pathlib.Path) -> None:
    """Memory by length, both by logarithms, with a line of slope 1."""
    figure, (axis,) = common.axes(1, f"Memory of attention\n{result['provenance']['device']}")
    for name, found in result["bytes"].items():
        known = [(n, x / 2**20) for n, x in zip(result["lengths"], found) if x]
        if not known:
            continue
        axis.plot(*zip(*known), "o-", color=common.COLORS[name], label=common.LABELS[name])
        missing = [n for n, x in zip(result["lengths"], found) if x is None]
        if missing:
            axis.annotate(
                "out of memory",
                known[-1],
                fontsize=8,
                color=common.COLORS[name],
                textcoords="offset points",
                xytext=(6, 6),
            )
        if name == "fa":
            first, last = known[0], known[-1]
            axis.plot(
                [first[0], last[0]],
                [first[1], first[1] * last[0] / first[0]],
                ":",
                color="gray",
                label="linear",
            )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=10)
    axis.set(xlabel="length", ylabel="peak beside inputs and outputs, MiB")
    axis.legend(fontsize=8)
    common.save(figure, path)


# --- The command -----------------------------------------------------------------------


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options, checked."""
    options = common.parser(__doc__, "long_context")
    options.add_argument("--device", choices=("cpu", "cuda"), default=common.default_device())
    options.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="bfloat16")
    options.add_argument("--lengths", type=numbers, help="1024,2048,... (to 65536; CPU: to 4096)")
    options.add_argument("--batch", type=int, default=1, help="(1)")
    options.add_argument("--heads", type=int, default=8, help="(8)")
    options.add_argument("--dim", type=int, default=64, help="head dim (64)")
    options.add_argument(
        "--implementations",
        type=lambda text: text.split(","),
        default=list(ATTENTION),
        help="of fa,sdpa,eager (all)",
    )
    args = options.parse_args(arguments)
    common.require(args.device)
    args.lengths = sorted(args.lengths or LENGTHS[args.device])
    if len(args.lengths) < 2:
        options.error(f"expected two --lengths or more, got {len(args.lengths)}")
    unknown = set(args.implementations) - set(ATTENTION)
    if unknown or "fa" not in args.implementations:
        options.error(
            f"expected --implementations of {','.join(ATTENTION)} with fa among them, got "
            f"{','.join(args.implementations)}"
        )
    return args


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints, checks; 1 if fa's memory is not linear."""
    args = parse(arguments)
    names = args.implementations
    for name in names:  # compiles, and starts what is started once
        row(name, WARM_UP, args)
    print(f"{'length':>8} " + " ".join(f"{name + ': MiB, B/token':>22}" for name in names))
    found: dict[str, list[int | None]] = {name: [] for name in names}
    for length in args.lengths:
        for name in names:
            is_over = found[name] and found[name][-1] is None
            found[name].append(None if is_over else row(name, length, args))
            if args.device == "cuda":
                torch.cuda.empty_cache()
        print(line(length, {name: found[name][-1] for name in names}), flush=True)
    exponents = {}
    for name in names:
        known = [(n, x) for n, x in zip(args.lengths, found[name]) if x is not None]
        exponents[name] = exponent(*zip(*known)) if known else math.nan
        print(f"{name}: grows as length^{exponents[name]:.2f}")
    own = found["fa"]
    is_right = None not in own and is_linear(args.lengths, own, SLACK[args.device])
    print(f"fa's memory is {'linear' if is_right else 'NOT LINEAR'} in the length")
    settings = {key: value for key, value in vars(args).items() if key not in ("out", "plot")}
    result = dict(
        example="long_context",
        provenance=common.provenance(args.device),
        settings=settings,
        lengths=args.lengths,
        bytes=found,
        exponents=exponents,
        is_linear=is_right,
    )
    print(common.keep(args, result, plot))
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
