# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Repeats the benchmark of the FlashAttention paper with fa and PyTorch's attention.

    python examples/training/paper_benchmark.py
    python examples/training/paper_benchmark.py --graphs     # without the host's time
    python examples/training/paper_benchmark.py --dry-run    # seconds on a CPU; no figures

Dao et al. 2022, "FlashAttention", appendix E: batch size 16, 8 heads of head dim 64,
lengths from 128 to 64K, float16, dropout of 0.1 and a padding mask, forward and backward
together, in milliseconds. q, k, v are normal, [16, 8, length, 64]; the lengths of the
sequences are drawn from length - 20 to length - 1, as in the authors' script.

Not all implementations can say all of that, and the table says what they do:

- masked: all tokens are computed, keys of the padding are hidden. fa (`fa.masks.padding`),
  eager PyTorch, SDPA's memory-efficient and cuDNN kernels (attn_mask [16, 1, 1, length]),
  FlexAttention, which has no dropout: its times are without.
- packed: tokens of the padding are not there, and packing is not timed; in the authors'
  script FlashAttention ran so. `fa.attention_varlen`, and PyTorch's FlashAttention-2, which
  takes no mask: the operator that SDPA calls for nested tensors.

First each is compared, without dropout and at the shortest length, 1024 at most, with the
formula in float64: output and gradients may be 3 times as far from it as eager attention is, plus
1e-5 (docs/right.md). Exit status 1 if one is farther, or if fa refuses a call. Then all are timed by
benchmarks/timing.py: interleaved, order rotated, L2 flushed, medians. Short calls take as long
as the host needs for them; --graphs replays each call from a CUDA graph, where that is no time
but the GPU's. `OOM` is out of
memory, also at all greater lengths; `-` is a call that PyTorch refuses, with its reason
below the table. The JSON and the plot are written after each length.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import pathlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import common
import fa
import torch
from timing import Timer, numbers
from torch import Tensor

BATCH, HEADS, DIM, DROPOUT = 16, 8, 64, 0.1
COMPARED = 1024
"""The longest that is compared: the formula's matrices in float64 take memory."""
LENGTHS = [128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]
OUT_OF_MEMORY = "out of memory"

# --- The problem -----------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """One length.

    Attributes:
        q, k, v: [B, H, S, D], which require gradients.
        gradient: of the output, [B, H, S, D]; 0 in the padding, of which packed sequences
            know nothing.
        lengths: of the sequences, int32 [B].
        dropout: the share of weights that are dropped.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    gradient: Tensor
    lengths: Tensor
    dropout: float

    @functools.cached_property
    def seen(self) -> Tensor:
        """Which tokens are no padding, bool [B, S]."""
        return torch.arange(self.q.shape[2], device=self.q.device) < self.lengths[:, None]

    @functools.cached_property
    def padding(self) -> Callable[..., Any]:
        """The same for fa."""
        return fa.masks.padding(self.lengths)


def problem(
    length: int, device: str, dtype: torch.dtype, dropout: float, batch: int = BATCH, seed: int = 0
) -> Problem:
    """The benchmark's problem of a length."""
    generator = torch.Generator(device).manual_seed(seed)
    sizes = (batch, HEADS, length, DIM)
    tensors = [
        torch.randn(sizes, generator=generator, device=device, dtype=dtype) for _ in range(4)
    ]
    low = max(1, length - 20)
    lengths = torch.randint(low, length, (batch,), generator=generator, device=device)
    made = Problem(*(x.requires_grad_() for x in tensors[:3]), tensors[3], lengths.int(), dropout)
    made.gradient.mul_(made.seen[:, None, :, None])
    return made


# --- Attention by name -----------------------------------------------------------------

Call = Callable[[], tuple[Tensor, ...]]
"""Gives the output and the gradients of q, k and v."""


def of(attend: Callable[[], Tensor], leaves: Sequence[Tensor], gradient: Tensor) -> Call:
    """Forward and backward."""

    def call() -> tuple[Tensor, ...]:
        out = attend()
        return (out, *torch.autograd.grad(out, leaves, gradient))

    return call


def masked(attend: Callable[..., Tensor]) -> Callable[[Problem], Call]:
    """Of attention of (problem, q, k, v [B, H, S, D])."""

    def make(p: Problem) -> Call:
        return of(functools.partial(attend, p, p.q, p.k, p.v), (p.q, p.k, p.v), p.gradient)

    return make


def packed(attend: Callable[..., Tensor]) -> Callable[[Problem], Call]:
    """Of attention of (problem, offsets int32 [B + 1], q, k, v [tokens, H, D])."""

    def make(p: Problem) -> Call:
        offsets = torch.nn.functional.pad(torch.cumsum(p.lengths, 0), (1, 0)).int()
        *leaves, gradient = (pack(x.detach(), p) for x in (p.q, p.k, p.v, p.gradient))
        for leaf in leaves:
            leaf.requires_grad_()
        if attend is by_fa_packed:
            offsets = fa.prepare(offsets)  # they keep their values
        return of(functools.partial(attend, p, offsets, *leaves), leaves, gradient)

    return make


def pack(tensor: Tensor, p: Problem) -> Tensor:
    """The tokens of [B, H, S, D] that are no padding, one after the other, [tokens, H, D]."""
    return tensor.transpose(1, 2)[p.seen].contiguous()


def by_formula(p: Problem, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention as it is defined, with matrices of scores."""
    scores = q @ k.transpose(2, 3) * DIM**-0.5
    weights = torch.softmax(scores.masked_fill(~p.seen[:, None, None], -math.inf), -1)
    return torch.nn.functional.dropout(weights, p.dropout) @ v


def by_fa(p: Problem, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """By fa, with the lengths in its mask."""
    return fa.attention(q, k, v, mask_mod=p.padding, dropout_p=p.dropout)


def by_fa_packed(p: Problem, offsets: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """By fa, of sequences one after the other."""
    return fa.attention_varlen(q, k, v, offsets, dropout_p=p.dropout)


def by_flash_packed(p: Problem, offsets: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """By FlashAttention-2: the operator that PyTorch's SDPA calls for nested tensors, whose
    own time in Python is milliseconds."""
    longest = p.q.shape[2]
    sizes = (offsets, offsets, longest, longest)
    return torch.ops.aten._flash_attention_forward(q, k, v, *sizes, p.dropout, False, False)[0]


def by_sdpa(p: Problem, q: Tensor, k: Tensor, v: Tensor, backend: str | None = None) -> Tensor:
    """By PyTorch, with a kernel by the name of torch.nn.attention.SDPBackend, or any."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, backend)) if backend else contextlib.nullcontext():
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=p.seen[:, None, None], dropout_p=p.dropout
        )


def flex(p: Problem) -> Call:
    """FlexAttention, compiled for the length, with the blocks of the padding mask."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    lengths, size = p.lengths, p.q.shape[2]

    def seen(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return kv_idx < lengths[b]

    torch._dynamo.reset()
    # Compiled: otherwise it would write a matrix [16, 1, length, length].
    blocks = create_block_mask(seen, len(lengths), None, size, size, p.q.device, _compile=True)
    attend = torch.compile(flex_attention, dynamic=False)
    return of(lambda: attend(p.q, p.k, p.v, block_mask=blocks), (p.q, p.k, p.v), p.gradient)


def sdpa(backend: str) -> Callable[[Problem], Call]:
    """SDPA with one of its kernels."""
    return masked(functools.partial(by_sdpa, backend=backend))


CONTENDERS: dict[str, Callable[[Problem], Call]] = {
    "fa": masked(by_fa),
    "eager": masked(by_formula),
    "efficient": sdpa("EFFICIENT_ATTENTION"),
    "cudnn": sdpa("CUDNN_ATTENTION"),
    "flex": flex,
    "fa packed": packed(by_fa_packed),
    "fa2 packed": packed(by_flash_packed),
}
DRY = {
    "fa": CONTENDERS["fa"],
    "eager": CONTENDERS["eager"],
    "sdpa": masked(by_sdpa),
    "cudnn": CONTENDERS["cudnn"],
    "fa packed": CONTENDERS["fa packed"],
}
"""What a CPU computes, and one that it refuses."""


def is_own(name: str) -> bool:
    """Whether it is fa."""
    return name.startswith("fa") and not name.startswith("fa2")


# --- Whether all compute the same ------------------------------------------------------


def errors(p: Problem, found: Sequence[Tensor], exact: Sequence[Tensor]) -> list[float]:
    """The largest errors of the output and the gradients, where there is no padding."""
    own = [x if x.dim() == 3 else pack(x, p) for x in found]
    errors = [(x.double() - y).abs().max().item() for x, y in zip(own, exact)]
    return [x if x == x else math.inf for x in errors]


def compare(p: Problem, contenders: dict[str, Callable[[Problem], Call]]) -> dict[str, Any]:
    """Each one's error as a share of what is allowed, of p without dropout.

    Returns:
        the largest share of the output and the three gradients by name, or why there is none.
    """
    wide = [x.detach().double().requires_grad_() for x in (p.q, p.k, p.v)]
    exact_of = Problem(*wide, p.gradient.double(), p.lengths, 0.0)
    exact = [pack(x.detach(), p) for x in CONTENDERS["eager"](exact_of)()]
    naive = errors(p, CONTENDERS["eager"](p)(), exact)
    limits = [common.limit(error, y.abs().max().item()) for error, y in zip(naive, exact)]
    shares: dict[str, Any] = {}
    for name, make in contenders.items():
        made, why = attempt(make, p)
        found = made() if made else None
        shares[name] = max(x / y for x, y in zip(errors(p, found, exact), limits)) if found else why
    return shares


# --- Timing ----------------------------------------------------------------------------


class WallTimer:
    """benchmarks/timing.py's `Timer` without a GPU: medians of interleaved calls."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def __call__(self, functions: dict[str, Call]) -> dict[str, float]:
        """Median milliseconds of each."""
        times: dict[str, list[float]] = {name: [] for name in functions}
        for _ in range(self.rounds):
            for name, function in functions.items():
                start = time.perf_counter()
                function()
                times[name].append(1000 * (time.perf_counter() - start))
        return {name: statistics.median(found) for name, found in times.items()}


@dataclass(frozen=True)
class Replay:
    """A call as a CUDA graph: what it launches is launched again, with other random numbers.

    Attributes:
        graph: the graph, which is of addresses alone.
        call: the call, which has the tensors that lie there.
        results: what each replay writes.
    """

    graph: Any
    call: Call
    results: tuple[Tensor, ...]

    @staticmethod
    def of(call: Call) -> Replay:
        """A call that can be captured; what is only done at first is no part of it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            results = call()
        return Replay(graph, call, results)

    def __call__(self) -> tuple[Tensor, ...]:
        """Enqueues a replay, and gives what it writes."""
        self.graph.replay()
        return self.results


def attempt(
    make: Callable[[Problem], Call], p: Problem, graphs: bool = False
) -> tuple[Callable[[], Any] | None, str]:
    """A call that has run once, or None and why it does not run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch says one by one why no kernel does it
            call: Callable[[], Any] = make(p)
            call()
            if graphs:
                torch.cuda.synchronize()  # what was prepared is there: no graph makes it
                call = Replay.of(call)
        if p.q.is_cuda:
            torch.cuda.synchronize()
    except Exception as error:  # whatever a contender refuses is its own affair
        return None, OUT_OF_MEMORY if common.is_out_of_memory(error) else common.first_line(error)
    return call, ""


def rounds_of(previous: dict[str, Any] | None, length: int, args: argparse.Namespace) -> int:
    """As many rounds as fit the time that a length may take by the row before, 3 at least."""
    if previous is None:
        return args.rounds
    expected = sum(filter(None, previous["ms"].values())) * (length / previous["length"]) ** 2
    return max(3, min(args.rounds, int(1000 * args.seconds / max(expected, 1e-3))))


def race(
    length: int,
    rounds: int,
    contenders: dict[str, Any],
    out: dict[str, str],
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Milliseconds of all at a length, None with a reason for those that do not run.

    Args:
        length: of the padded sequences.
        rounds: calls of each.
        contenders: how their calls are made, by name.
        out: the contenders that are out for good, by name, with the reason; grows.
        args: the options.
    """
    p = problem(length, args.device, args.type, DROPOUT, args.batch, args.seed)
    calls: dict[str, Callable[[], Any]] = {}
    for name, make in contenders.items():
        if name in out:
            continue
        call, why = attempt(make, p, args.graphs)
        if call:
            calls[name] = call
        else:
            out[name] = why
        if args.device == "cuda":
            torch.cuda.empty_cache()
    timer = (WallTimer if args.dry_run else Timer)(rounds)
    try:
        ms = timer(calls)
    except RuntimeError as error:  # eager attention fits alone, not beside the others
        if not common.is_out_of_memory(error) or "eager" not in calls:
            raise
        del calls["eager"]
        out["eager"] = OUT_OF_MEMORY
        ms = None
    if ms is None:
        torch.cuda.empty_cache()
        ms = timer(calls)
    return dict(
        length=length,
        rounds=rounds,
        ms={name: ms.get(name) for name in contenders},
        why={name: out[name] for name in contenders if name in out},
    )


# --- What is printed and drawn ---------------------------------------------------------


def header(names: Sequence[str]) -> str:
    """The first line of the table."""
    return f"{'length':>8} " + " ".join(f"{name:>10}" for name in names)


def line(row: dict[str, Any]) -> str:
    """A line of the table."""
    cells = []
    for name, ms in row["ms"].items():
        if ms is not None:
            cells.append(f"{ms:10.3f}")
        else:
            cells.append(f"{'OOM' if row['why'][name] == OUT_OF_MEMORY else '-':>10}")
    return f"{row['length']:8} " + " ".join(cells)


def plot(result: dict[str, Any], path: pathlib.Path) -> None:
    """Times by length, both by logarithms; a cross where memory did not suffice."""
    how = ", CUDA graphs" if result["settings"]["graphs"] else ""
    figure, (axis,) = common.axes(
        1, f"Forward and backward, dropout, padding{how}\n{result['provenance']['device']}"
    )
    rows = result["rows"]
    for name in rows[0]["ms"] if rows else ():
        known = [(row["length"], row["ms"][name]) for row in rows if row["ms"][name]]
        if not known:
            continue
        label = common.LABELS[name] + (" (no dropout)" if name == "flex" else "")
        color = common.COLORS[name]
        style = "--" if name.endswith("packed") else "-"
        axis.plot(*zip(*known), style, marker="o", ms=3, color=color, label=label)
        if any(row["why"].get(name) == OUT_OF_MEMORY for row in rows):
            axis.plot(*known[-1], "x", ms=9, color=color)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=10)
    axis.set(xlabel="length (x: the last one that fits)", ylabel="milliseconds")
    if axis.lines:
        axis.legend(fontsize=7)
    common.save(figure, path)


# --- The command -----------------------------------------------------------------------


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options, checked."""
    options = common.parser(__doc__, "paper_benchmark")
    options.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    options.add_argument("--lengths", type=numbers, default=LENGTHS, help="128,256,... (to 65536)")
    options.add_argument(
        "--contenders",
        type=lambda text: [part.strip() for part in text.split(",")],
        help="of " + ", ".join(CONTENDERS) + " (all)",
    )
    options.add_argument("--rounds", type=int, default=20, help="at most, each length (20)")
    options.add_argument("--seconds", type=float, default=4.0, help="of each length, about (4)")
    options.add_argument(
        "--graphs", action="store_true", help="time replays of CUDA graphs, not the host's calls"
    )
    options.add_argument(
        "--dry-run", action="store_true", help="two small lengths on the CPU, to see that it runs"
    )
    args = options.parse_args(arguments)
    args.device = "cpu" if args.dry_run else "cuda"
    if not args.dry_run and not torch.cuda.is_available():
        raise SystemExit(
            "expected a GPU that PyTorch can use, got none; run this where there is one, or try "
            "it with --dry-run"
        )
    known = DRY if args.dry_run else CONTENDERS
    unknown = set(args.contenders or ()) - set(known)
    if unknown:
        options.error(f"expected --contenders of {', '.join(known)}, got {', '.join(unknown)}")
    if args.graphs and args.dry_run:
        options.error("--graphs needs a GPU, got --dry-run; leave one out")
    if min(args.lengths) < 2:
        options.error(f"expected --lengths of 2 or more, got {min(args.lengths)}")
    args.contenders = args.contenders or list(known)
    args.batch, args.type = BATCH, getattr(torch, args.dtype)
    if args.dry_run:
        args.batch, args.type, args.lengths, args.rounds = 2, torch.float32, [32, 64], 3
    return args


def main(arguments: list[str] | None = None) -> int:
    """Compares, times, prints; 1 if one computes something else."""
    args = parse(arguments)
    known = DRY if args.dry_run else CONTENDERS
    contenders = {name: known[name] for name in args.contenders}
    if args.device == "cuda":
        # What PyTorch keeps free for itself is not there for fa's temporary arrays.
        torch.cuda.set_per_process_memory_fraction(0.9)
    first = problem(
        min(*args.lengths, COMPARED), args.device, args.type, 0.0, args.batch, args.seed
    )
    shares = compare(first, contenders)
    print("largest error as a share of what is allowed, without dropout:")
    for name, found in shares.items():
        print(f"  {name:10} " + (found if isinstance(found, str) else f"{found:.2f}"))
    is_right = all(isinstance(found, str) or found <= 1 for found in shares.values())
    is_right &= not any(isinstance(shares[name], str) for name in shares if is_own(name))
    result: dict[str, Any] = dict(
        example="paper_benchmark",
        provenance=common.provenance(args.device),
        settings=dict(
            batch=args.batch,
            heads=HEADS,
            dim=DIM,
            dropout=DROPOUT,
            dtype=str(args.type).removeprefix("torch."),
            dry_run=args.dry_run,
            graphs=args.graphs,
        ),
        shares_of_allowed_error=shares,
        rows=[],
    )
    print("milliseconds, forward and backward (flex without dropout)")
    print(header(args.contenders))
    out: dict[str, str] = {}
    row = None
    for length in sorted(args.lengths):
        row = race(length, rounds_of(row, length, args), contenders, out, args)
        result["rows"].append(row)
        print(line(row), flush=True)
        common.keep(args, result, plot)
    for name, why in out.items():
        if why != OUT_OF_MEMORY:
            print(f"  {name}: {why}")
            is_right &= not is_own(name)
    print(common.keep(args, result, plot))
    if not is_right:
        print("WRONG: an error above is more than what is allowed, or fa refused a call")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
