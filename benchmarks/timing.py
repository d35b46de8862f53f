# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the GPU benchmarks share: fair timing, a reference, provenance."""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import math
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "test/python"))

RESULTS = pathlib.Path(__file__).parent / "results"
TOKENS = 16384
"""Batch size times length."""
WIDTH = 2048
"""Heads times head dim."""


@dataclass(frozen=True)
class Shape:
    """One problem of the FlashAttention papers' kind."""

    dim: int
    length: int
    causal: bool

    @property
    def batch(self) -> int:
        """As many sequences as make 16384 tokens."""
        return max(1, TOKENS // self.length)

    @property
    def heads(self) -> int:
        """As many heads as make the model 2048 wide."""
        return max(1, WIDTH // self.dim)

    @property
    def flops(self) -> float:
        """The papers' count: 4*B*H*S*S*D, half of it when causal."""
        full = 4 * self.batch * self.heads * self.length**2 * self.dim
        return full / 2 if self.causal else full

    def __str__(self) -> str:
        return f"D={self.dim} S={self.length}{' causal' if self.causal else ''}"

    def inputs(self, seed: int = 0) -> tuple[Any, Any, Any]:
        """q, k and v [B, H, S, D], normal, bfloat16, on the GPU."""
        import torch

        generator = torch.Generator("cuda").manual_seed(seed)
        sizes = (self.batch, self.heads, self.length, self.dim)
        return tuple(
            torch.randn(sizes, generator=generator, device="cuda", dtype=torch.bfloat16)
            for _ in range(3)
        )


def numbers(text: str) -> list[int]:
    """A list of an option: "64,128"."""
    return [int(part) for part in text.split(",") if part]


def geomean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of what is there."""
    known = [value for value in values if value]
    return math.exp(statistics.fmean(map(math.log, known))) if known else None


class Reference:
    """The first and last rows of the last head in float64, and what is allowed, by the
    tests' rule (test/python/right.py)."""

    ROWS = 256

    def __init__(self, shape: Shape, q: Any, k: Any, v: Any) -> None:
        import right
        import torch

        count = min(self.ROWS, shape.length)
        first = torch.arange(count, device="cuda")
        self.rows = torch.cat([first, first + shape.length - count])
        a, b, c = (x[-1:, -1:] for x in (q, k, v))
        mask = {"mask": lambda b, h, i, j: j <= self.rows[i]} if shape.causal else {}
        scale = shape.dim**-0.5
        self.expected = right.attention(a[:, :, self.rows], b, c, scale=scale, xp=torch, **mask)

    def error(self, out: Any) -> float:
        """The largest error, as a share of what is allowed; infinite with NaN."""
        import right

        if out.isnan().any():
            return math.inf
        own = right.back(out[-1:, -1:, self.rows])
        return right.share(own, self.expected.out, self.expected.limit)


def leaves(*tensors: Any) -> tuple[Any, ...]:
    """The tensors as ones that require gradients."""
    return tuple(x.detach().requires_grad_() for x in tensors)


def backward(out: Any, inputs: Sequence[Any]) -> Callable[[], object]:
    """The gradients of a result, again and again."""
    import torch

    grad = torch.randn_like(out)
    return functools.partial(torch.autograd.grad, out, inputs, grad, retain_graph=True)


def gradient_error(shape: Shape) -> float:
    """The largest error of fa's three gradients, of two heads, as a share of what is allowed
    by the tests' rule (test/python/right.py). Of the same gradient of the output each time, as
    tests have them: the largest error of 16-bit gradients is a matter of luck (docs/right.md)."""
    import fa
    import naive
    import right
    import torch

    q, k, v = leaves(*(x[:1, :2] for x in shape.inputs()))
    naive.telling(*(x.detach() for x in (q, k, v)))
    out = fa.attention(q, k, v, is_causal=shape.causal)
    generator = torch.Generator("cuda").manual_seed(1)
    grad = torch.randn(out.shape, generator=generator, device="cuda", dtype=out.dtype)

    def formula(*tensors: Any, dtype: str | None = None) -> Any:
        mask = (lambda b, h, i, j: j <= i) if shape.causal else None
        with torch.device(q.device):
            return naive.differentiable(*tensors, mask=mask, dtype=dtype)

    found = torch.autograd.grad(out, (q, k, v), grad)
    expected = right.gradients(formula, (q, k, v), (grad, None))
    pairs = zip(found, expected)
    return max(right.share(right.back(x), y.exact, y.limit, False) for x, y in pairs)


class Timer:
    """Times functions on the GPU's clock, fairly."""

    def __init__(self, rounds: int, ahead: float = 0.0) -> None:
        """
        Args:
            rounds: calls of each.
            ahead: for how many milliseconds, about, the GPU waits before each call: where
                calls are short and some take the host long, kernels alone are timed with it.
        """
        import torch

        self.torch = torch
        self.rounds = rounds
        self.cycles = int(ahead * 1e6 * 1.5)
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def __call__(self, functions: dict[str, Callable[[], object]]) -> dict[str, float]:
        """Median milliseconds of each.

        One call of each a round, in an order that rotates; L2 is flushed before
        each, which also hides the host's time.
        """
        cuda = self.torch.cuda
        names = list(functions)
        times: dict[str, list[float]] = {name: [] for name in names}
        for name in names:
            functions[name]()
            functions[name]()
        cuda.synchronize()
        for turn in range(self.rounds):
            shift = turn % max(1, len(names))
            pairs = []
            for name in names[shift:] + names[:shift]:
                start, end = (cuda.Event(enable_timing=True) for _ in range(2))
                self.flush.zero_()
                if self.cycles:
                    cuda._sleep(self.cycles)
                start.record()
                functions[name]()
                end.record()
                pairs.append((name, start, end))
            cuda.synchronize()
            for name, start, end in pairs:
                times[name].append(start.elapsed_time(end))
        return {name: statistics.median(t) for name, t in times.items()}

    def gemm(self, size: int = 8192) -> float:
        """TFLOP/s of PyTorch's bf16 product of two square matrices."""
        torch = self.torch
        a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        return 2 * size**3 / self({"gemm": lambda: a @ b})["gemm"] / 1e9


def output_of(command: Sequence[str]) -> str:
    """What a command prints; "" if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=pathlib.Path(__file__).parent
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def provenance(commit: str = "") -> dict[str, Any]:
    """Where and when a result was measured, and of what."""
    import torch

    driver = output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return dict(
        device=torch.cuda.get_device_name(),
        driver=driver.splitlines()[0] if driver else "",
        torch=torch.__version__,
        cudnn=torch.backends.cudnn.version(),
        date=datetime.date.today().isoformat(),
        commit=commit or output_of(["git", "rev-parse", "--short", "HEAD"]),
    )


def race_options(doc: str | None, result: str, rounds: int) -> argparse.ArgumentParser:
    """The options of every race: rounds, where the result goes, what was measured."""
    options = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rounds", type=int, default=rounds, help=f"calls of each ({rounds})")
    options.add_argument(
        "--out", help=f"JSON to write (results/{result}-<device>.json), '' for none"
    )
    options.add_argument("--commit", default="", help="what was measured (git's HEAD)")
    return options


def result_path(benchmark: str, out: str | None) -> pathlib.Path | None:
    """Where a result goes: `out`, results/<benchmark>-<device>.json if None."""
    import torch

    if out is None:
        device = torch.cuda.get_device_name().split()[1:2] or ["gpu"]
        return RESULTS / f"{benchmark}-{device[0].lower()}.json"
    return pathlib.Path(out) if out else None


def write(path: pathlib.Path | None, result: dict[str, Any]) -> None:
    """Writes a result, if it is to go anywhere."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"wrote {path}")
