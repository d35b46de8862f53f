# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains GPT-2 small with fa's attention, and says whether its loss is the reference's.

    python examples/training/gpt2.py                       # fa and the two references
    python examples/training/gpt2.py --compare             # all implementations
    python examples/training/gpt2.py --device cpu --layers 2 --heads 2 --context 64 \\
        --vocabulary 256 --batch 2 --steps 8 --dtype float32     # seconds on a CPU

The model is transformers' GPT2LMHeadModel as it is (Radford et al. 2019: 12 layers, 12
heads of head dim 64, width 768, context 1024, 50257 tokens, 124M parameters), from random
weights, without dropout; only its attn_implementation changes. Tokens are the bytes of
Python's own library on this disk, ids [batch, context]: nothing is downloaded, and the
same seed gives the same weights and batches to every run. AdamW (Loshchilov and Hutter
2019), parameters in float32; --dtype bfloat16 is torch.autocast.

The check: the losses of a run are compared, step by step, with eager attention's in the
next higher precision (float32 for bfloat16, float64 for float32). d is the largest
|loss - reference| / reference of all steps. fa's d may be 3 times eager attention's d in
fa's own type, plus 1e-5: the rule of gradients in docs/right.md. Exit status 1 if it is more.

Tokens per second are those of the median step, without the first ones. With --compare all
implementations take turns in steps of one model, which is then what is timed: a GPU's clock
changes between runs by more than their attention differs. Peak memory
(bytes) is that of the GPU, model and optimizer included. The share of attention is that
of the time of all kernels of a step, forward and backward, by torch.profiler.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import hashlib
import json
import math
import pathlib
import random
import statistics
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import common
import fa
import torch
import transformers
from torch import Tensor
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    GPT2Config,
    GPT2LMHeadModel,
)
from transformers.masking_utils import eager_mask, sdpa_mask
from transformers.models.gpt2.modeling_gpt2 import eager_attention_forward

HIGHER = {"bfloat16": "float32", "float32": "float64"}
"""The type of the reference of each type."""
HEAD_DIM = 64
TURN = 4
"""Steps that one implementation takes before the next does."""
BATCHES = 256
"""Batches whose places in the text are drawn at once."""
PROFILED = 3
"""Steps that are profiled."""

# --- Attention by name -----------------------------------------------------------------


def of_model(attend: Callable[..., Tensor]) -> Callable[..., Any]:
    """An implementation for transformers from causal attention.

    Args:
        attend: (query, key, value [B, H, S, D], scale) -> [B, H, S, D].
    """

    def forward(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any,
        scaling: float | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        if attention_mask is not None or dropout:
            raise ValueError(
                "expected causal attention without padding and dropout, got "
                f"{'a mask' if attention_mask is not None else f'dropout={dropout}'}"
            )
        return attend(query, key, value, scaling).transpose(1, 2).contiguous(), None

    return forward


def by_fa(query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
    """Attention by fa, differentiable."""
    return fa.attention(query, key, value, is_causal=True, scale=scale)


def by_sdpa(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None, backend: str | None = None
) -> Tensor:
    """Attention by PyTorch, with a kernel by the name of torch.nn.attention.SDPBackend."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, backend)) if backend else contextlib.nullcontext():
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scale
        )


@functools.cache
def _flex(length: int, device: torch.device) -> tuple[Any, Any]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, i, j: j <= i, None, None, length, length, device)
    return torch.compile(flex_attention, dynamic=False), mask


def by_flex(query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
    """Attention by FlexAttention, compiled, with the blocks of the causal mask."""
    attend, mask = _flex(query.shape[2], query.device)
    return attend(query, key, value, block_mask=mask, scale=scale)


def no_mask(**kwargs: Any) -> None:
    """The mask of implementations that are causal by themselves: none."""


@dataclass(frozen=True)
class Implementation:
    """How a model computes attention.

    Attributes:
        forward: as transformers' AttentionInterface wants it.
        mask: as its AttentionMaskInterface does.
        needs_gpu: whether it runs on GPUs alone.
    """

    forward: Callable[..., Any]
    mask: Callable[..., Any] = no_mask
    needs_gpu: bool = False


def implementations(args: argparse.Namespace) -> dict[str, Implementation]:
    """What --compare compares, by name."""
    flash = functools.partial(by_sdpa, backend="FLASH_ATTENTION")
    cudnn = functools.partial(by_sdpa, backend="CUDNN_ATTENTION")
    return {
        "fa": fa_implementation(args),
        "eager": Implementation(eager_attention_forward, eager_mask),
        "sdpa": Implementation(AttentionInterface()["sdpa"], sdpa_mask),
        "cudnn": Implementation(of_model(cudnn), needs_gpu=True),
        "fa2": Implementation(of_model(flash), needs_gpu=True),
        "flex": Implementation(of_model(by_flex), needs_gpu=True),
    }


def fa_implementation(args: argparse.Namespace) -> Implementation:
    """fa: attn_implementation="fa" where that trains with these sizes, else a call of fa's."""
    if door_trains(args):
        from fa import transformers as door

        print('fa: attn_implementation="fa" of fa.transformers')
        return Implementation(door.attention_forward, door.mask)
    print("fa: fa.attention, in an attention implementation of this example")
    return Implementation(of_model(by_fa))


def door_trains(args: argparse.Namespace) -> bool:
    """Whether fa.transformers computes such a call itself when its gradient is recorded."""
    try:
        from fa import transformers as door
    except ImportError:  # a transformers that it does not know
        return False
    sizes = (args.batch, args.heads, args.context, HEAD_DIM)
    options = {"dtype": getattr(torch, args.dtype), "device": args.device}
    query, key, value = (torch.zeros(sizes, **options, requires_grad=True) for _ in range(3))
    before = door.statistics().routed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it leaves the call to PyTorch
        door.attention_forward(torch.nn.Module(), query, key, value, None)
    return door.statistics().routed > before


# --- Data and model --------------------------------------------------------------------


def library_text() -> bytes:
    """Python's own library: its modules, in the order of their names."""
    folder = pathlib.Path(sysconfig.get_path("stdlib"))
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))


def batches(text: bytes, args: argparse.Namespace) -> Iterator[Tensor]:
    """Token ids [batch, context], int64, from random places; the same for a seed.

    The places of many steps go to the device at once: a copy from the host's memory waits for
    all that is enqueued there, and a step that begins with one has the GPU wait for the host.
    """
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(args.device)
    generator = torch.Generator().manual_seed(args.seed)
    steps, sizes = torch.arange(args.context, device=args.device), (BATCHES, args.batch, 1)
    while True:
        starts = torch.randint(len(text) - args.context, sizes, generator=generator)
        for start in starts.to(args.device):
            yield tokens[start + steps].long()


def use(implementation: Implementation) -> None:
    """Has the models of this example compute attention so."""
    AttentionInterface.register("example", implementation.forward)
    AttentionMaskInterface.register("example", implementation.mask)


def model_of(implementation: Implementation, dtype: str, args: argparse.Namespace) -> Any:
    """GPT-2 from random weights, with that attention."""
    use(implementation)
    config = GPT2Config(
        n_layer=args.layers,
        n_head=args.heads,
        n_embd=HEAD_DIM * args.heads,
        n_positions=max(1024, args.context),
        vocab_size=args.vocabulary,
        bos_token_id=0,
        eos_token_id=0,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        attn_implementation="example",
    )
    torch.manual_seed(args.seed)
    model = GPT2LMHeadModel(config).train()
    model.loss_type = "ForCausalLM"  # what it takes anyway, after a warning
    return model.to(args.device, torch.float64 if dtype == "float64" else torch.float32)


# --- Training --------------------------------------------------------------------------


class StepClock:
    """The milliseconds of steps, by the GPU's clock where there is one, without waiting."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._marks: list[Any] = []
        self.mark()

    def mark(self) -> None:
        """A step is over."""
        if self._device == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def milliseconds(self) -> list[float]:
        """Of each step."""
        pairs = list(zip(self._marks, self._marks[1:]))
        if self._device == "cuda":
            torch.cuda.synchronize()
            return [start.elapsed_time(end) for start, end in pairs]
        return [1000 * (end - start) for start, end in pairs]


class Trainer:
    """A model, its optimizer and its data.

    Args:
        implementation: of its attention, to begin with.
        dtype: float32, float64, or bfloat16 by autocast.
    """

    def __init__(
        self, implementation: Implementation, dtype: str, text: bytes, args: argparse.Namespace
    ) -> None:
        self._autocast = functools.partial(
            torch.autocast, args.device, torch.bfloat16, enabled=dtype == "bfloat16"
        )
        self.model = model_of(implementation, dtype, args)
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=args.learning_rate, betas=(0.9, 0.95), weight_decay=0.1
        )
        warmup = max(1, args.steps // 10)
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda step: min(1.0, (step + 1) / warmup)
        )
        self._data = batches(text, args)

    def step(self) -> tuple[Tensor, Tensor]:
        """The loss, and the norm of the gradient."""
        ids = next(self._data)
        with self._autocast():
            loss = self.model(ids, labels=ids, use_cache=False).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        self._schedule.step()
        self._optimizer.zero_grad(set_to_none=True)
        return loss.detach(), norm


def in_turns(
    implementations: dict[str, Implementation], text: bytes, args: argparse.Namespace
) -> dict[str, float]:
    """The median milliseconds of a step of each, of one model, whose steps they take in turns."""
    names = list(implementations)
    trainer = Trainer(implementations[names[0]], args.dtype, text, args)
    shuffle = random.Random(args.seed).shuffle  # nobody always follows the same one
    clock = StepClock(args.device)
    turns = []
    for number in range(max(4, args.steps // 4)):
        shuffle(names)
        for name in names:
            use(implementations[name])
            for step in range(TURN):
                trainer.step()
                clock.mark()
                turns.append((name, number > 0 and step > 0))
    found: dict[str, list[float]] = {name: [] for name in names}
    for (name, counts), ms in zip(turns, clock.milliseconds(), strict=True):
        if counts:  # others fill allocators, or follow another one's step
            found[name].append(ms)
    return {name: statistics.median(all_of) for name, all_of in found.items()}


def free(device: str) -> None:
    """Gives back what models that are gone held."""
    if device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def speed(ms: float, args: argparse.Namespace) -> dict[str, float]:
    """What is kept of the milliseconds of a step."""
    return dict(ms_per_step=ms, tokens_per_second=1000 * args.batch * args.context / ms)


def train(
    name: str, implementation: Implementation, dtype: str, text: bytes, args: argparse.Namespace
) -> dict[str, Any]:
    """A run: losses and norms of the gradient of each step, speed, memory."""
    is_cuda = args.device == "cuda"
    trainer = Trainer(implementation, dtype, text, args)
    skipped = min(5, args.steps - 1)  # they compile and fill allocators
    peak = common.PeakMemory() if is_cuda else None
    clock = StepClock(args.device)
    found = []
    for number in range(args.steps):
        if peak and number == skipped:
            peak.reset()
        found.append(trainer.step())
        clock.mark()
        if number % max(1, args.steps // 10) == 0 or number == args.steps - 1:
            print(f"  {name} {dtype}, step {number}: loss {found[-1][0].item():.4f}", flush=True)
    ms = statistics.median(clock.milliseconds()[skipped:])
    return dict(
        losses=[loss.item() for loss, _ in found],
        gradient_norms=[norm.item() for _, norm in found],
        parameters=sum(parameter.numel() for parameter in trainer.model.parameters()),
        **speed(ms, args),
        peak_bytes=peak.bytes() if peak else None,
        attention_share=None,
    )


# --- The share of attention ------------------------------------------------------------

RANGE = "attention"


def marked(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The same implementation, with ranges in the profile around its forward and backward.

    The backward is what runs between the moments when the gradient of the output is there
    and when those of query, key and value are.
    """

    def call(module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any):
        with torch.profiler.record_function(RANGE):
            out, weights = forward(module, query, key, value, *args, **kwargs)
        open_range: list[Any] = []
        missing = [3]

        def begin(gradient: Tensor) -> None:
            open_range.append(torch.profiler.record_function(RANGE))
            open_range[0].__enter__()

        def end(gradient: Tensor) -> None:
            missing[0] -= 1
            if not missing[0]:
                open_range[0].__exit__(None, None, None)

        out.register_hook(begin)
        for tensor in (query, key, value):
            tensor.register_hook(end)
        return out, weights

    return call


def profile(
    implementation: Implementation, text: bytes, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """The events of some steps, those of a trace of Chrome's.

    What is timed is timed before, while nothing of the profiler's is in the process.
    """
    trainer = Trainer(implementation, args.dtype, text, args)
    AttentionInterface.register("example", marked(implementation.forward))
    for _ in range(2):
        trainer.step()
    with torch.profiler.profile() as profiler:
        for _ in range(PROFILED):
            trainer.step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return json.loads(path.read_text())["traceEvents"]


def share(events: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Attention's share of the time of all kernels in a trace.

    A kernel is attention's if the call that launched it lies in one of the ranges, on the
    same thread. Of a kernel whose launch is not in the trace nobody knows.

    Returns:
        attention, of attention; unknown, of kernels without a launch: both of 1.
    """
    ranges: dict[Any, list[tuple[float, float]]] = {}
    launches: dict[Any, tuple[Any, float]] = {}
    kernels = []
    for event in events:
        kind, at = event.get("cat"), event.get("ts")
        if kind == "user_annotation" and event["name"] == RANGE:
            ranges.setdefault(event["tid"], []).append((at, at + event["dur"]))
        elif kind in ("cuda_runtime", "cuda_driver"):
            launches[event["args"].get("correlation")] = (event["tid"], at)
        elif kind in ("kernel", "gpu_memset", "gpu_memcpy"):
            kernels.append((event["dur"], event["args"].get("correlation")))
    total = attention = unknown = 0.0
    for duration, correlation in kernels:
        total += duration
        if correlation not in launches:
            unknown += duration
            continue
        thread, at = launches[correlation]
        attention += duration * any(a <= at <= b for a, b in ranges.get(thread, ()))
    if not total:
        return dict(attention=math.nan, unknown=math.nan)
    return dict(attention=attention / total, unknown=unknown / total)


# --- The check -------------------------------------------------------------------------


def difference(losses: Sequence[float], reference: Sequence[float]) -> float:
    """The largest |loss - reference| / reference; infinite where a loss is no number."""
    found = [abs(x - y) / abs(y) for x, y in zip(losses, reference, strict=True)]
    return max(found) if all(map(math.isfinite, found)) else math.inf


def check(runs: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Whether fa's losses are as near to the reference's as the rule asks for."""
    reference = runs[f"eager {HIGHER[dtype]}"]["losses"]
    differences = {
        label: difference(run["losses"], reference)
        for label, run in runs.items()
        if "losses" in run and label.endswith(f" {dtype}")
    }
    allowed = common.limit(differences[f"eager {dtype}"])
    return dict(
        reference=f"eager {HIGHER[dtype]}",
        largest_relative_differences=differences,
        limit=allowed,
        is_within=differences[f"fa {dtype}"] <= allowed,
    )


# --- What is printed and drawn ---------------------------------------------------------


def table(runs: dict[str, Any]) -> str:
    """A line for each run."""
    lines = [
        f"{'run':18} {'last loss':>9} {'ms/step':>9} {'tokens/s':>10} {'peak GiB':>9} attention"
    ]
    for label, run in runs.items():
        if "error" in run:
            lines.append(f"{label:18} {run['error']}")
            continue
        peak, part = run["peak_bytes"], run["attention_share"]
        lines.append(
            f"{label:18} {run['losses'][-1]:9.4f} {run['ms_per_step']:9.1f} "
            f"{run['tokens_per_second']:10.0f} "
            + (f"{peak / 2**30:9.2f} " if peak is not None else f"{'-':>9} ")
            + (f"{part['attention']:9.1%}" if part else f"{'-':>9}")
            + (f" ({part['unknown']:.1%} unknown)" if part and part["unknown"] > 0 else "")
        )
    return "\n".join(lines)


def curves(runs: dict[str, Any], dtype: str) -> str:
    """The losses of fa and the references, step by step."""
    labels = [f"fa {dtype}", f"eager {dtype}", f"eager {HIGHER[dtype]}"]
    lines = [f"{'step':>6} " + " ".join(f"{label:>16}" for label in labels)]
    for number, losses in enumerate(zip(*(runs[label]["losses"] for label in labels))):
        lines.append(f"{number:6} " + " ".join(f"{loss:16.6f}" for loss in losses))
    return "\n".join(lines)


def plot(result: dict[str, Any], path: pathlib.Path) -> None:
    """Losses, how far they are from the reference's; tokens per second, peak memory."""
    runs = {label: run for label, run in result["runs"].items() if "losses" in run}
    reference = runs[result["check"]["reference"]]["losses"]
    own = {label: run for label, run in runs.items() if label.endswith(result["settings"]["dtype"])}
    bars = [("tokens_per_second", "tokens per second", 1, "{:,.0f}")]
    if all(run["peak_bytes"] for run in own.values()):
        bars.append(("peak_bytes", "peak memory, GiB", 2**-30, "{:.1f}"))
    title = f"GPT-2, {result['provenance']['device']}"
    figure, (left, middle, *rest) = common.axes(2 + len(bars), title)
    for label, run in own.items():
        color = common.COLORS[label.rpartition(" ")[0]]
        left.plot(run["losses"], color=color, lw=1.3, label=label)
        away = [abs(x - y) / abs(y) for x, y in zip(run["losses"], reference)]
        middle.plot(away, color=color, lw=1, label=label)
    left.plot(reference, "k:", label=result["check"]["reference"])
    middle.axhline(result["check"]["limit"], color="gray", ls=":", label="limit for fa")
    middle.set(xlabel="step", ylabel="relative difference from the reference", yscale="log")
    left.set(xlabel="step", ylabel="loss (nats per byte)")
    left.legend(fontsize=8)
    middle.legend(fontsize=8)
    names = [label.rpartition(" ")[0] for label in own]
    for axis, (key, unit, scale, form) in zip(rest, bars):
        values = [run[key] * scale for run in own.values()]
        drawn = axis.barh(names, values, color=[common.COLORS[name] for name in names])
        axis.bar_label(drawn, fmt=form, fontsize=8)
        axis.invert_yaxis()
        axis.set(xlabel=unit)
        axis.margins(x=0.2)
    common.save(figure, path)


# --- The command -----------------------------------------------------------------------


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options, checked."""
    options = common.parser(__doc__, "gpt2")
    options.add_argument("--device", choices=("cpu", "cuda"), default=common.default_device())
    options.add_argument("--dtype", choices=tuple(HIGHER), default="bfloat16")
    options.add_argument("--layers", type=int, default=12, help="(12)")
    options.add_argument("--heads", type=int, default=12, help="of head dim 64 (12)")
    options.add_argument("--context", type=int, default=1024, help="tokens (1024)")
    options.add_argument("--vocabulary", type=int, default=50257, help="tokens, 256 used (50257)")
    options.add_argument("--batch", type=int, default=8, help="sequences a step (8)")
    options.add_argument("--steps", type=int, default=100, help="(100)")
    options.add_argument("--learning-rate", type=float, default=6e-4, help="(6e-4)")
    options.add_argument("--compare", action="store_true", help="run all implementations")
    args = options.parse_args(arguments)
    common.require(args.device)
    for name, least in dict(layers=1, heads=1, context=2, vocabulary=256, batch=1, steps=2).items():
        if getattr(args, name) < least:
            options.error(f"expected --{name} of {least} or more, got {getattr(args, name)}")
    return args


def main(arguments: list[str] | None = None) -> int:
    """Trains, prints, checks; 1 if the check fails."""
    args = parse(arguments)
    text = library_text()
    known = implementations(args)
    eager = known["eager"]
    todo = [("fa", known["fa"], args.dtype), ("eager", eager, args.dtype)]
    if args.compare:
        todo += [
            (name, known[name], args.dtype)
            for name in known
            if name not in ("fa", "eager") and (args.device == "cuda" or not known[name].needs_gpu)
        ]
    todo.append(("eager", eager, HIGHER[args.dtype]))
    settings = {key: value for key, value in vars(args).items() if key not in ("out", "plot")}
    result: dict[str, Any] = dict(
        example="gpt2",
        provenance=common.provenance(args.device) | dict(transformers=transformers.__version__),
        settings=settings,
        text=dict(bytes=len(text), sha256=hashlib.sha256(text).hexdigest()),
        runs={},
    )
    runs = result["runs"]
    for name, implementation, dtype in todo:
        try:
            run = train(name, implementation, dtype, text, args)
        except Exception as error:  # no such kernel here, or out of memory
            if name in ("fa", "eager"):
                raise
            run = dict(error=common.first_line(error))
        runs[f"{name} {dtype}"] = run
        common.write(args.out, result)
        free(args.device)
    ran = {name: known[name] for name, _, dtype in todo if dtype == args.dtype}
    ran = {n: x for n, x in ran.items() if "losses" in runs[f"{n} {args.dtype}"]}
    if args.compare:
        try:
            by_turns = in_turns(ran, text, args)
        except Exception as error:  # out of memory: the runs' own times stay
            print(f"not timed in turns: {common.first_line(error)}")
            by_turns = {}
        for name, ms in by_turns.items():
            runs[f"{name} {args.dtype}"].update(speed(ms, args))
    if args.device == "cuda":
        for name, implementation in ran.items():
            free(args.device)
            found = share(profile(implementation, text, args))
            runs[f"{name} {args.dtype}"]["attention_share"] = found
    print(curves(runs, args.dtype))
    print(table(runs))
    found = result["check"] = check(runs, args.dtype)
    print(f"largest relative difference of losses from {found['reference']}'s:")
    for label, value in found["largest_relative_differences"].items():
        print(f"  {label:18} {value:.2e}")
    verdict = "within" if found["is_within"] else "OUTSIDE"
    print(f"fa is {verdict} the limit of {found['limit']:.2e}: 3 times eager's, plus 1e-5")
    print(common.keep(args, result, plot))
    return 0 if found["is_within"] else 1


if __name__ == "__main__":
    sys.exit(main())
