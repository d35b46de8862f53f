# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races fa on Hopper against cuDNN and the FlashAttentions, forward or in training.

fa (target sm_90a), fa's Ampere schedule (sm_90), cuDNN and FlashAttention-2
through PyTorch, and with --flex FlexAttention, in one process, interleaved, in
an order that rotates, L2 flushed before each call; the figure is the median, on
the GPU's clock. bf16, B*S = 16384, H = 2048/D. TFLOP/s count 4*B*H*S*S*D, half
of it when causal. FlashAttention-3 is not in PyTorch: its figure is cuDNN's of
this run times their ratio in a run that had both.

Then the host time of a call, and the time of a variant's first call in a fresh
process. Writes JSON (--out) and a plot of it; --plot-only draws a kept result.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from timing import (
    Reference,
    Shape,
    Timer,
    backward,
    geomean,
    gradient_error,
    leaves,
    numbers,
    provenance,
    race_options,
    result_path,
    write,
)

DIMS, LENGTHS = (64, 128, 256), (512, 2048, 8192, 16384)

FA3_TO_CUDNN = {
    (64, 512, False): (0.847, 1.179),
    (64, 512, True): (0.86, 1.154),
    (64, 2048, False): (1.075, 1.211),
    (64, 2048, True): (1.078, 1.289),
    (64, 8192, False): (1.204, 1.3),
    (64, 8192, True): (1.196, 1.374),
    (64, 16384, False): (1.217, 1.321),
    (64, 16384, True): (1.242, 1.43),
    (128, 512, False): (0.989, 1.052),
    (128, 512, True): (0.967, 1.06),
    (128, 2048, False): (1.06, 1.097),
    (128, 2048, True): (1.186, 1.166),
    (128, 8192, False): (1.091, 1.162),
    (128, 8192, True): (1.2, 1.216),
    (128, 16384, False): (1.103, 1.229),
    (128, 16384, True): (1.226, 1.229),
    (256, 512, False): (1.017, 1.222),
    (256, 512, True): (1.003, 1.109),
    (256, 2048, False): (1.076, 1.189),
    (256, 2048, True): (1.153, 1.179),
    (256, 8192, False): (1.08, 1.333),
    (256, 8192, True): (1.24, 1.155),
    (256, 16384, False): (1.117, 1.342),
    (256, 16384, True): (1.253, 1.252),
}
"""FlashAttention-3's TFLOP/s over cuDNN's by (D, S, causal), of the forward and of the
backward, each measured interleaved on an H200 on 2026-11-21: FlashAttention-3 built from its
public source with ptxas 13.0, PyTorch 2.11.0 with cuDNN 9.19.0, driver 580.159.04."""

MUST, AIM = {"geomean": 1.05, "worst": 0.95}, {"geomean": 1.12, "worst": 1.02}
"""What fa over the best of cuDNN and FlashAttention-3 has to be."""

TRAINING_GOALS = {
    "backward": ("to_best", lambda row: True, 0.98, 1.10),
    "backward, S=512": ("to_best", lambda row: row["S"] == 512, 1.00, 1.30),
    "backward, D=64, S>=8192": (
        "to_best",
        lambda row: row["D"] == 64 and row["S"] >= 8192,
        1.03,
        1.1,
    ),
    "backward, D=128, S>=8192": (
        "to_best",
        lambda row: row["D"] == 128 and row["S"] >= 8192,
        0.93,
        1.05,
    ),
    "backward, D=256": ("to_best", lambda row: row["D"] == 256, 0.95, 1.20),
    "step": ("step_to_best", lambda row: True, 1.00, 1.10),
    "forward without log-sum-exp / with": ("lse", lambda row: True, 0.97, 0.99),
}
"""The column, its rows, and what its geometric mean must be and is to be."""

LABELS = {
    "fa": "fa",
    "ampere": "fa, Ampere schedule",
    "cudnn": "cuDNN",
    "fa2": "FlashAttention-2",
    "flex": "FlexAttention",
    "fa4": "FlashAttention-4",
    "fa3": "FlashAttention-3 (by its ratio to cuDNN)",
}
PEERS = ("cudnn", "fa3", "fa4")
"""Of which the fastest is the best."""

# --- Contenders --------------------------------------------------------------------


class Contenders:
    """Each contender as a function of nothing, for one shape's inputs."""

    def __init__(self, names: list[str]) -> None:
        import fa
        import torch

        self.torch, self.fa, self.names = torch, fa, names
        self.kernels: dict[tuple[int, int, bool], Any] = {}
        self.flex = None
        if "flex" in names:
            from torch.nn.attention import flex_attention

            self.flex_module = flex_attention
            self.flex = torch.compile(flex_attention.flex_attention, dynamic=False)

    def sdpa(self, backend: str, shape: Shape, q: Any, k: Any, v: Any) -> Callable[[], Any]:
        """PyTorch's attention through one backend."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        attend = self.torch.nn.functional.scaled_dot_product_attention
        choice = getattr(SDPBackend, backend)

        def run() -> Any:
            with sdpa_kernel(choice):
                return attend(q, k, v, is_causal=shape.causal)

        return run

    def kernel(self, target: str, shape: Shape) -> Any:
        """fa's kernel for a target, compiled once."""
        from fa._run.config import AttentionConfig

        key = (target, shape.dim, shape.heads, shape.causal)
        if key not in self.kernels:
            heads, dim = shape.heads, shape.dim
            config = AttentionConfig("bf16", heads, heads, dim, dim, shape.causal)
            self.kernels[key] = self.fa.compile(config, target)
        return self.kernels[key]

    def of(self, name: str, shape: Shape, q: Any, k: Any, v: Any) -> Callable[[], Any]:
        """One contender's call."""
        if name == "fa":
            return lambda: self.fa.attention(q, k, v, is_causal=shape.causal)
        if name == "ampere":
            kernel = self.kernel("sm_90", shape)

            def run() -> Any:
                out = self.torch.empty_like(q)
                kernel(q, k, v, out)
                return out

            return run
        if name == "flex":
            mask = None
            if shape.causal:
                mask = self.flex_module.create_block_mask(
                    lambda b, h, i, j: i >= j, None, None, shape.length, shape.length, "cuda"
                )
            # Else compiling stops after a few shapes.
            self.torch._dynamo.reset()
            return lambda: self.flex(q, k, v, block_mask=mask)
        if name == "fa4":
            from flash_attn.cute.interface import flash_attn_func

            def run_fa4() -> Any:
                given = (x.transpose(1, 2) for x in (q, k, v))
                out = flash_attn_func(*given, causal=shape.causal)
                return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

            return run_fa4
        backend = {"cudnn": "CUDNN_ATTENTION", "fa2": "FLASH_ATTENTION"}[name]
        return self.sdpa(backend, shape, q, k, v)

    def all(self, shape: Shape, q: Any, k: Any, v: Any) -> dict[str, Callable[[], Any]]:
        """Those that run, checked against the reference."""
        reference = Reference(shape, q, k, v)
        running = {}
        for name in self.names:
            try:
                call = self.of(name, shape, q, k, v)
                error = reference.error(call())
            except Exception as problem:  # a contender may lack a shape
                print(f"  {name} does not run: {str(problem).splitlines()[0]}", flush=True)
                continue
            if error > 1:
                print(f"  {name} is WRONG: {error:.3g} times the error allowed", flush=True)
                continue
            running[name] = call
        return running


# --- The race ----------------------------------------------------------------------


def over_best(rates: dict[str, float]) -> float | None:
    """fa's rate over that of the fastest peer, None where one of them is not there."""
    best = max((rates[name] for name in PEERS if name in rates), default=None)
    return rates["fa"] / best if best and "fa" in rates else None


def row_of(shape: Shape, times: dict[str, float], gemm: float) -> dict[str, Any]:
    """One shape's figures, with the ratios that the targets are about."""
    tflops = {name: shape.flops / ms / 1e9 for name, ms in times.items()}
    ratios = FA3_TO_CUDNN.get((shape.dim, shape.length, shape.causal))
    if ratios and "cudnn" in tflops:
        tflops["fa3"] = tflops["cudnn"] * ratios[0]
    ours, ampere, fa2 = (tflops.get(name) for name in ("fa", "ampere", "fa2"))
    return dict(
        D=shape.dim,
        S=shape.length,
        causal=shape.causal,
        ms=times,
        tflops=tflops,
        to_best=over_best(tflops),
        gemm_share=ours / gemm if ours else None,
        ampere_to_fa2=ampere / fa2 if ampere and fa2 else None,
    )


def cell(value: float | None, width: int, digits: int = 0) -> str:
    """A number of the table, "-" for what is not there."""
    return f"{value:{width}.{digits}f}" if value else f"{'-':>{width}}"


def header(names: list[str]) -> str:
    """The table's first line."""
    columns = "".join(f"{name:>8}" for name in names)
    return f"{'D':>4} {'S':>6} {'causal':>6}{columns}   fa/best fa/GEMM  ampere/fa2"


def line(row: dict[str, Any], names: list[str]) -> str:
    """One line of the table; a summary has no D."""
    if "D" in row:
        text = f"{row['D']:4} {row['S']:6} {'yes' if row['causal'] else 'no':>6}"
    else:
        text = f"{'geomean':18}"
    text += "".join(cell(row["tflops"].get(name), 8) for name in names)
    text += f"   {cell(row['to_best'], 7, 3)} {cell(row['gemm_share'], 7, 2)}"
    return text + f"  {cell(row['ampere_to_fa2'], 10, 3)}"


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means of the columns, and the worst shape."""
    names = {name for row in rows for name in row["tflops"]}
    worst = min((row for row in rows if row["to_best"]), key=lambda r: r["to_best"], default=None)
    return dict(
        tflops={name: geomean(row["tflops"].get(name) for row in rows) for name in names},
        **{
            name: geomean(row[name] for row in rows)
            for name in ("to_best", "gemm_share", "ampere_to_fa2")
        },
        worst=worst and {key: worst[key] for key in ("D", "S", "causal", "to_best")},
    )


def verdict(summary: dict[str, Any]) -> str:
    """The targets and whether they are reached."""
    worst = summary["worst"]
    if not worst:
        return "fa over the best of cuDNN and FlashAttention-3: not measured"

    def compare(name: str, value: float) -> str:
        words = [
            f"{kind} {limit[name]}: {'yes' if value >= limit[name] else 'NO'}"
            for kind, limit in (("must", MUST), ("aim", AIM))
        ]
        return f"{name} {value:.3f} ({', '.join(words)})"

    where = Shape(worst["D"], worst["S"], worst["causal"])
    return (
        "fa over the best of cuDNN and FlashAttention-3: "
        f"{compare('geomean', summary['to_best'])}; "
        f"{compare('worst', worst['to_best'])} at {where}"
    )


def race(args: argparse.Namespace) -> dict[str, Any]:
    """All shapes; prints the table as it comes."""
    import torch

    timer = Timer(args.rounds)
    contenders = Contenders(args.contenders)
    shapes = [Shape(d, s, c) for d in args.dims for s in args.lengths for c in args.causal]
    columns = [name for name in LABELS if name in (*args.contenders, "fa3")]
    gemms = [timer.gemm()]
    print(f"GEMM 8192^3 bf16: {gemms[0]:.0f} TFLOP/s; the table is TFLOP/s")
    print(header(columns), flush=True)
    rows, complete, begin = [], True, time.monotonic()
    for i, shape in enumerate(shapes):
        if sys.stderr.isatty():
            print(f"{i + 1}/{len(shapes)} {shape}", end="\r", file=sys.stderr, flush=True)
        q, k, v = shape.inputs()
        running = contenders.all(shape, q, k, v)
        complete &= len(running) == len(args.contenders)
        rows.append((shape, timer(running)))
        # The rate while the chip is as warm as it was for the rows.
        if i + 1 == len(shapes) or shapes[i + 1].dim != shape.dim:
            gemms.append(timer.gemm())
        print(line(row_of(*rows[-1], statistics.median(gemms)), columns), flush=True)
        del q, k, v, running
        torch.cuda.empty_cache()
    gemm = statistics.median(gemms)
    finished = [row_of(shape, times, gemm) for shape, times in rows]
    summary = summarise(finished)
    print(line(summary, columns))
    print(f"GEMM {', '.join(f'{g:.0f}' for g in gemms)}; {time.monotonic() - begin:.0f} s")
    print(verdict(summary), flush=True)
    return dict(
        rounds=args.rounds, gemm_tflops=gemm, rows=finished, summary=summary, complete=complete
    )


# --- The race in training ----------------------------------------------------------


def training_row(shape: Shape, ms: dict[str, float]) -> dict[str, Any]:
    """One shape's figures: TFLOP/s of backward and step by contender, and fa's over the best.

    Args:
        ms: of "NAME forward" and "NAME backward", and of fa's "plain", a forward that keeps no
            log-sum-exp.
    """
    ratios = FA3_TO_CUDNN.get((shape.dim, shape.length, shape.causal))
    names = [name for name in LABELS if f"{name} backward" in ms]
    times = {name: (ms[f"{name} forward"], ms[f"{name} backward"]) for name in names}
    if ratios and "cudnn" in times:
        times["fa3"] = tuple(time / ratio for time, ratio in zip(times["cudnn"], ratios))
    tflops = {name: 2.5 * shape.flops / back / 1e9 for name, (_, back) in times.items()}
    step = {name: 3.5 * shape.flops / sum(both) / 1e9 for name, both in times.items()}

    return dict(
        D=shape.dim,
        S=shape.length,
        causal=shape.causal,
        ms=ms,
        tflops=tflops,
        to_best=over_best(tflops),
        step=step,
        step_to_best=over_best(step),
        lse=ms["plain"] / ms["fa forward"] if "plain" in ms and "fa forward" in ms else None,
    )


def training_line(row: dict[str, Any], names: list[str]) -> str:
    """One line of the table; a summary has no D."""
    text = f"{'geomean':18}"
    if "D" in row:
        text = f"{row['D']:4} {row['S']:6} {'yes' if row['causal'] else 'no':>6}"
    for rates in ("tflops", "step"):
        text += "".join(cell(row[rates].get(name), 7) for name in names) + "  "
    return text + "".join(cell(row[x], 9, 3) for x in ("to_best", "step_to_best", "lse"))


def training_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means of the columns, and of each goal's rows the mean and the worst."""
    names = {name for row in rows for name in row["tflops"]}
    summary: dict[str, Any] = {
        rates: {name: geomean(row[rates].get(name) for row in rows) for name in names}
        for rates in ("tflops", "step")
    }
    for column in ("to_best", "step_to_best", "lse"):
        summary[column] = geomean(row[column] for row in rows)
    summary["goals"] = {}
    for goal, (column, holds, must, aim) in TRAINING_GOALS.items():
        values = [row[column] for row in rows if row[column] and holds(row)]
        if values:
            summary["goals"][goal] = dict(
                geomean=geomean(values), worst=min(values), must=must, aim=aim
            )
    return summary


def training_calls(
    contenders: Contenders, shape: Shape, inputs: tuple[Any, Any, Any]
) -> tuple[dict[str, Callable[[], object]], list[str]]:
    """The forward and the backward of each contender, which have run once; and who does not run."""
    calls: dict[str, Callable[[], object]] = {}
    problems = []
    for name in contenders.names:
        try:
            attend = contenders.of(name, shape, *inputs)
            gradients = backward(attend(), inputs)
            gradients()
        except Exception as problem:  # a contender may lack a shape
            problems.append(f"{name} does not run: {str(problem).splitlines()[0]}")
            continue
        calls[f"{name} backward"] = gradients
        calls[f"{name} forward"] = attend
    return calls, problems


def race_training(args: argparse.Namespace) -> dict[str, Any]:
    """All shapes; prints the table as it comes."""
    import torch

    # A call of FlashAttention-4 from Python takes the host longer than the flush of L2, and
    # what comes behind it would be timed with the host's time.
    timer, contenders = Timer(args.rounds, ahead=0.5), Contenders(args.contenders)
    shapes = [Shape(d, s, c) for d in args.dims for s in args.lengths for c in args.causal]
    columns = [name for name in LABELS if name in (*args.contenders, "fa3")]
    complete, begin = True, time.monotonic()
    for dim in args.dims:
        for causal in args.causal:
            error = gradient_error(Shape(dim, 512, causal))
            complete &= error <= 1
            verdict = "" if error <= 1 else ": WRONG"
            shape = Shape(dim, 512, causal)
            print(f"{shape}: gradients err by {error:.2f} of what is allowed{verdict}")
    print("TFLOP/s of the backward, then of forward and backward; fa over the best of both;")
    print("fa's forward without the log-sum-exp over that with it")
    heads = "".join(f"{name:>7}" for name in columns) + "  "
    print(f"{'D':>4} {'S':>6} {'causal':>6}{heads}{heads}   backward     step  lse", flush=True)
    # What is compiled at first is compiled before anything is timed.
    for shape in {(s.dim, s.causal): s for s in reversed(shapes)}.values():
        training_calls(contenders, shape, leaves(*shape.inputs()))
    rows = []
    for shape in shapes:
        inputs = shape.inputs()
        q, k, v = leaves(*inputs)
        calls, problems = training_calls(contenders, shape, (q, k, v))
        complete &= not problems
        for problem in problems:
            print(f"  {problem}", flush=True)
        if "fa" in args.contenders:
            calls["plain"] = contenders.of("fa", shape, *inputs)
        rows.append(training_row(shape, timer(calls)))
        print(training_line(rows[-1], columns), flush=True)
        del q, k, v, inputs, calls
        torch.cuda.empty_cache()
    summary = training_summary(rows)
    print(training_line(summary, columns))
    for goal, found in summary["goals"].items():
        print(
            f"{goal}: geometric mean {found['geomean']:.3f} (must {found['must']}, aim "
            f"{found['aim']}), worst {found['worst']:.3f}"
        )
    print(f"{time.monotonic() - begin:.0f} s", flush=True)
    how = {"rounds": args.rounds, "waiting_cycles": timer.cycles}
    return dict(training=True, **how, rows=rows, summary=summary, complete=complete)


# --- Host time and first calls -----------------------------------------------------


def host_times(contenders: Contenders, calls: int = 500) -> dict[str, float]:
    """Microseconds of the host for a call of a tiny problem, by contender."""
    import torch
    from fa._run.config import AttentionConfig
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v, o = (torch.randn(1, 1, 64, 64, device="cuda", dtype=torch.bfloat16) for _ in "qkvo")
    kernel = contenders.fa.compile(AttentionConfig("bf16", 1, 1, 64, 64), "sm_90a")
    attend = torch.nn.functional.scaled_dot_product_attention

    def measure(call: Callable[[], object]) -> float:
        medians = []
        for _ in range(7):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            medians.append((time.perf_counter() - start) / calls * 1e6)
        return statistics.median(medians)

    times = {
        "fa, prepared kernel": measure(lambda: kernel(q, k, v, o)),
        "fa.attention": measure(lambda: contenders.fa.attention(q, k, v)),
    }
    for name, backend in (("cudnn", "CUDNN_ATTENTION"), ("fa2", "FLASH_ATTENTION")):
        if name in contenders.names:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                times[name] = measure(lambda: attend(q, k, v))
    return times


def first_call(name: str) -> dict[str, float]:
    """Milliseconds of a causal variant's first call; in a process of its own."""
    import torch

    q, k, v = Shape(128, 2048, True).inputs()
    torch.cuda.synchronize()
    if name == "flex":
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        start = time.perf_counter()
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 2048, 2048, "cuda")
        torch.compile(flex_attention, dynamic=False)(q, k, v, block_mask=mask)
        torch.cuda.synchronize()
        return {"first call": (time.perf_counter() - start) * 1e3}
    start = time.perf_counter()
    import fa
    from fa._run.config import AttentionConfig

    imported = time.perf_counter()
    fa.attention(q, k, v, is_causal=True)
    torch.cuda.synchronize()
    called = time.perf_counter()
    # The compiler's part again, past the cache: what a call with an empty one
    # spends in it, less what the process did once.
    kernel = fa.compile(AttentionConfig("bf16", 16, 16, 128, 128, True), "sm_90a")
    looked_up = time.perf_counter()
    kernel._compile(keep_stages=False)
    compiled = time.perf_counter()
    return {
        "import fa": (imported - start) * 1e3,
        "first call": (called - imported) * 1e3,
        "IR to PTX": (compiled - looked_up) * 1e3,
    }


CACHES = ("FA_CACHE_DIR", "CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def first_calls(names: list[str], fresh: dict[str, int]) -> dict[str, dict[str, float]]:
    """Medians over fresh processes, as many as `fresh` says, of first calls with
    empty caches, and then with what those left."""
    times: dict[str, dict[str, float]] = {}
    for name in [name for name in fresh if name in names]:
        runs: dict[str, list[dict[str, float]]] = {"empty": [], "warm": []}
        for _ in range(fresh[name]):
            with tempfile.TemporaryDirectory() as folder:
                environment = os.environ | {key: f"{folder}/{key}" for key in CACHES}
                for done in runs.values():
                    process = subprocess.run(
                        [sys.executable, __file__, "--first-call", name],
                        env=environment,
                        capture_output=True,
                        text=True,
                    )
                    if process.returncode:
                        print(f"  first call of {name} fails: {process.stderr.strip()[-300:]}")
                        continue
                    done.append(json.loads(process.stdout.splitlines()[-1]))
        for cache, done in runs.items():
            if done:
                times[f"{name}, {cache} cache"] = {
                    part: statistics.median(one[part] for one in done) for part in done[0]
                }
    return times


# --- The plot ----------------------------------------------------------------------


def plot(result: dict[str, Any], path: pathlib.Path) -> None:
    """Bars of TFLOP/s: a panel for each head dim and mask."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = result["rows"]
    dims = sorted({row["D"] for row in rows})
    masks = sorted({row["causal"] for row in rows})
    names = [name for name in LABELS if any(name in row["tflops"] for row in rows)]
    colors = dict(
        zip(LABELS, ("#d1495b", "#edae49", "#66a182", "#8d96a3", "#b8a1cf", "#76b7d6", "#2e4057"))
    )
    figure, axes = plt.subplots(
        len(dims),
        len(masks),
        figsize=(6 * len(masks), 2.6 * len(dims) + 1),
        squeeze=False,
        sharey=True,
    )
    for axis_row, dim in zip(axes, dims):
        for axis, causal in zip(axis_row, masks):
            here = [row for row in rows if row["D"] == dim and row["causal"] == causal]
            width = 0.84 / len(names)
            for n, name in enumerate(names):
                at = [x - 0.42 + (n + 0.5) * width for x in range(len(here))]
                values = [row["tflops"].get(name) or 0 for row in here]
                bars = axis.bar(
                    at,
                    values,
                    0.92 * width,
                    color=colors[name],
                    label=LABELS[name],
                    hatch="///" if name == "fa3" else None,
                    edgecolor="white",
                    linewidth=0.3,
                )
                if name == "fa":
                    axis.bar_label(bars, fmt="%.0f", fontsize=7)
            if "gemm_tflops" in result:
                axis.axhline(result["gemm_tflops"], color="#444444", linewidth=0.8, linestyle=":")
            axis.set_xticks(range(len(here)), [str(row["S"]) for row in here])
            axis.set_title(f"D = {dim}{', causal' if causal else ''}", fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
        axis_row[0].set_ylabel("TFLOP/s")
    for axis in axes[-1]:
        axis.set_xlabel("length (batch size x length = 16384)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=3, fontsize=9, frameon=False)
    what = "backward" if result.get("training") else "forward"
    gemm = "; dotted: 8192³ GEMM" if "gemm_tflops" in result else ""
    figure.suptitle(
        f"Attention {what}, bf16, {result['device']}, {result['date']}, commit "
        f"{result['commit'] or '?'}{gemm}",
        fontsize=11,
    )
    figure.tight_layout(rect=(0, 0.5 / figure.get_figheight(), 1, 1))
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"wrote {path}")


def try_plot(result: dict[str, Any], path: pathlib.Path) -> None:
    """Draws, where matplotlib is installed."""
    try:
        plot(result, path)
    except ImportError as error:
        print(f"no plot: {error}; install matplotlib and use --plot-only", file=sys.stderr)


# --- The command -------------------------------------------------------------------


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options, checked."""
    parser = race_options(__doc__, "gpu_race", rounds=24)
    parser.add_argument("--dims", type=numbers, default=list(DIMS), help="64,128,256")
    parser.add_argument("--lengths", type=numbers, default=list(LENGTHS), help="512,2048,...")
    parser.add_argument("--causal", choices=("no", "yes", "both"), default="both")
    parser.add_argument(
        "--contenders",
        type=lambda text: text.split(","),
        help="of fa,ampere,cudnn,fa2,flex,fa4 (fa,cudnn,fa2, and forward ampere)",
    )
    parser.add_argument("--training", action="store_true", help="the backward, and the step")
    parser.add_argument("--flex", action="store_true", help="FlexAttention, too: seconds a shape")
    parser.add_argument("--no-host", action="store_true", help="no host time, no first calls")
    parser.add_argument("--plot", help="file of the plot, .svg or .png (beside the JSON, .svg)")
    parser.add_argument("--plot-only", metavar="JSON", help="draw a result that was kept")
    parser.add_argument("--first-call", choices=("fa", "flex"), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.contenders is None:
        args.contenders = ["fa", *([] if args.training else ["ampere"]), "cudnn", "fa2"]
    if args.training and "ampere" in args.contenders:
        parser.error("--training has no ampere: name fa,cudnn,fa2,flex or fa4")
    if args.flex and "flex" not in args.contenders:
        args.contenders.append("flex")
    unknown = set(args.contenders) - set(LABELS) | {"fa3"} & set(args.contenders)
    if unknown:
        parser.error(f"unknown contenders {', '.join(sorted(unknown))}")
    if args.rounds < 1:
        parser.error(f"expected at least 1 round, got {args.rounds}")
    args.causal = {"no": [False], "yes": [True], "both": [False, True]}[args.causal]
    return args


def main() -> int:
    """Races, or draws what was measured; fails if a contender failed."""
    args = parse()
    if args.first_call:
        print(json.dumps(first_call(args.first_call)))
        return 0
    if args.plot_only:
        source = pathlib.Path(args.plot_only)
        plot(json.loads(source.read_text()), pathlib.Path(args.plot or source.with_suffix(".svg")))
        return 0
    from fa._run.call import target_of

    result = dict(benchmark="gpu_race", **provenance(args.commit), target=target_of(0))
    print(
        f"{result['device']}, driver {result['driver']}, PyTorch {result['torch']}; "
        f"fa for {result['target']}"
    )
    result |= race_training(args) if args.training else race(args)
    if not args.no_host and not args.training:
        result["host_us"] = host_times(Contenders(args.contenders))
        print("host time of a call:", end=" ")
        print(", ".join(f"{name} {us:.1f} us" for name, us in result["host_us"].items()))
        result["first_call_ms"] = first_calls(args.contenders, {"fa": 5, "flex": 1})
        for name, parts in result["first_call_ms"].items():
            print(f"{name}:", ", ".join(f"{part} {ms:.0f} ms" for part, ms in parts.items()))
    path = result_path("gpu_race-training" if args.training else "gpu_race", args.out)
    write(path, result)
    if path or args.plot:
        try_plot(result, pathlib.Path(args.plot or path.with_suffix(".svg")))
    return 0 if result["complete"] else 1


if __name__ == "__main__":
    sys.exit(main())
