# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a model is asked for in the zoo, and how two answers are compared."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from inputs import LENGTH, Inputs, paddings, parameters_of
from torch import Tensor
from transformers import PreTrainedModel

TOLERANCE, GRADIENT_TOLERANCE = 1e-4, 1e-3
PROMPT, PIECE, SLOTS = 12, 5, 32

# --- Runs -------------------------------------------------------------------------------


@dataclass
class Run:
    """One thing that both implementations compute.

    Attributes:
        compute: of a model, its numbers.
        rows: booleans [B, S] that say what counts of numbers [B, S, ...]; None for all.
        tolerance: of the largest difference, over the largest expected number.
    """

    compute: Callable[[PreTrainedModel], list[Tensor]]
    rows: Tensor | None = None
    tolerance: float = TOLERANCE


def _of_all(out: dict[str, Any]) -> list[Any]:
    """What every implementation gives: eager alone has weights."""
    return [value for key, value in out.items() if "past" not in key and "attentions" not in key]


def numbers(out: Any) -> list[Tensor]:
    """The tensors of floats of a model's output, without caches and weights of attention."""
    if isinstance(out, Tensor):
        return [out.detach()] if out.is_floating_point() and out.numel() else []
    if isinstance(out, dict):
        return [x for value in _of_all(out) for x in numbers(value)]
    if isinstance(out, (list, tuple)):
        return [x for value in out for x in numbers(value)]
    return []


def _call(model: PreTrainedModel, inputs: Inputs) -> Any:
    torch.manual_seed(2)
    return model(**copy.deepcopy(inputs))


def forward(inputs: Inputs) -> Callable[[PreTrainedModel], list[Tensor]]:
    @torch.no_grad()
    def compute(model: PreTrainedModel) -> list[Tensor]:
        return numbers(_call(model, inputs))

    return compute


def _weighted(out: Any) -> Tensor:
    """A sum in which numbers count differently: that of a normalized row is constant."""
    values = [x for x in _graph(out) if x.requires_grad]
    return sum((x * torch.linspace(-1, 1, x.numel()).view_as(x)).sum() for x in values)


def _graph(out: Any) -> list[Tensor]:
    if isinstance(out, Tensor):
        return [out] if out.is_floating_point() and out.numel() else []
    if isinstance(out, dict):
        return [x for value in _of_all(out) for x in _graph(value)]
    return [x for v in out for x in _graph(v)] if isinstance(out, (list, tuple)) else []


def _gradient(inputs: Inputs) -> Callable[[PreTrainedModel], list[Tensor]]:
    def compute(model: PreTrainedModel) -> list[Tensor]:
        model.zero_grad()
        _weighted(_call(model, inputs)).backward()
        zero = torch.zeros(1)
        result = [zero if p.grad is None else p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        return result

    return compute


def _positions(mask: Tensor) -> Tensor:
    return (mask.cumsum(-1) - 1).clamp(min=0)


def _pieces(
    ids: Tensor, make_cache: Callable[[PreTrainedModel], Any], mask: Tensor | None = None
) -> Callable[[PreTrainedModel], list[Tensor]]:
    """A prompt, one token and several tokens, with a cache."""
    ends = (PROMPT, PROMPT + 1, PROMPT + 1 + PIECE)

    @torch.no_grad()
    def compute(model: PreTrainedModel) -> list[Tensor]:
        cache, start, results = make_cache(model), 0, []
        names = parameters_of(model)
        for end in ends:
            inputs: Inputs = {"input_ids": ids[:, start:end], "use_cache": True}
            if mask is not None:
                inputs["attention_mask"] = mask[:, :end]
                if "position_ids" in names:
                    inputs["position_ids"] = _positions(mask[:, :end])[:, start:]
            torch.manual_seed(2)
            out = model(**inputs, past_key_values=cache)
            cache, start = out.past_key_values, end
            if cache is None:
                raise ValueError("no cache comes back")
            results += [x[:, -1:] for x in numbers(out)[:1]]  # padding may be before
        return results

    return compute


def _static(model: PreTrainedModel) -> Any:
    return transformers.StaticCache(
        config=model.config.get_text_config(decoder=True), max_cache_len=SLOTS
    )


def _padded(model: PreTrainedModel, inputs: Inputs, side: str) -> Run | None:
    made = paddings(inputs, side)
    if made is None or "attention_mask" not in parameters_of(model):
        return None
    name, mask = made
    more: Inputs = {"attention_mask": mask}
    is_decoder = name == "input_ids" and _is_decoder(model, inputs)
    if is_decoder and side == "left" and "position_ids" in parameters_of(model):
        more["position_ids"] = _positions(mask)
    return Run(forward({**inputs, **more}), mask.bool())


def _is_decoder(model: PreTrainedModel, inputs: Inputs) -> bool:
    has_cache = "past_key_values" in parameters_of(model)
    is_alone = set(inputs) <= {"input_ids"} and inputs["input_ids"].dim() == 2
    return has_cache and is_alone and not model.config.is_encoder_decoder


def runs_of(model: PreTrainedModel, inputs: Inputs) -> dict[str, Run]:
    """What can be asked of a model, by name."""
    runs: dict[str, Run | None] = {"no mask": Run(forward(inputs))}
    for side in ("right", "left"):
        runs[f"{side} padding"] = _padded(model, inputs, side)
    if "input_ids" in inputs and _is_decoder(model, inputs):
        ids = inputs["input_ids"]
        mask = torch.ones_like(ids)
        mask[0, :5] = 0
        runs["dynamic cache"] = Run(_pieces(ids, lambda model: None))
        runs["dynamic cache, left padding"] = Run(_pieces(ids, lambda model: None, mask))
        runs["static cache"] = Run(_pieces(ids, _static))
    runs["gradient"] = Run(_gradient(inputs), tolerance=GRADIENT_TOLERANCE)
    return {name: run for name, run in runs.items() if run is not None}


# --- Comparison ---------------------------------------------------------------------------


def _kept(values: list[Tensor], rows: Tensor | None) -> list[Tensor]:
    """What counts: rows that are no padding, where there are such.

    Of frames that a convolution made fewer, those of full entries and the third of the
    padded one that is farthest from its padding.
    """
    if rows is None:
        return values
    same = [x for x in values if x.dim() >= 2 and x.shape[:2] == rows.shape]
    if same:
        return [x[rows] for x in same]
    if rows.shape[1] == LENGTH:
        return [_without_padding(x, rows) for x in values]
    kept = [x[1:] for x in values]
    for x in values:
        if x.dim() > 1:
            third = x.shape[1] // 3
            kept.append(x[:1, :third] if rows[0, 0] else x[:1, x.shape[1] - third :])
    return kept


def _without_padding(x: Tensor, rows: Tensor) -> Tensor:
    """Rows that are no padding, wherever a model has put a few tokens of its own."""
    more = x.shape[1] - rows.shape[1] if x.dim() > 2 else 0
    if not 0 < more <= 4:
        return x
    shifted = [torch.nn.functional.pad(rows, (n, more - n)) for n in range(more + 1)]
    return x[torch.stack(shifted).all(0)]


def _scale(run: Run, expected: Tensor, largest: float) -> float:
    """Of what a difference is a part: gradients' are those of each parameter, if not tiny."""
    if run.tolerance == TOLERANCE:
        return largest
    return max(expected.abs().max().item(), largest * 1e-3)


def error(run: Run, got: list[Tensor], expected: list[Tensor]) -> float:
    """The largest difference over the largest expected number; inf where shapes differ."""
    got, expected = _kept(got, run.rows), _kept(expected, run.rows)
    if [x.shape for x in got] != [x.shape for x in expected]:
        return float("inf")
    pairs = [(a, b) for a, b in zip(got, expected) if b.numel()]
    largest = max((b[b.isfinite()].abs().max().item() for _, b in pairs if b.isfinite().any()))
    worst = 0.0
    for a, b in pairs:
        if (a.isfinite() != b.isfinite()).any():
            return float("inf")
        at = b.isfinite()
        if at.any():
            scale = max(_scale(run, b[at], largest), 1e-30)
            worst = max(worst, (a[at] - b[at]).abs().max().item() / scale)
    return worst


@torch.no_grad()
def own_noise(model: PreTrainedModel, run: Run, expected: list[Tensor]) -> float:
    """How much eager's numbers change if weights change by a few roundings."""
    random = torch.Generator().manual_seed(5)
    before = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        if p.is_floating_point():
            p.mul_(1 + 2e-7 * torch.randn(p.shape, generator=random))
    with torch.enable_grad():
        noise = error(run, run.compute(model), expected)
    for p, old in zip(model.parameters(), before):
        p.copy_(old)
    return noise
