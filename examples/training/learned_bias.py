# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Learns position biases through fa: T5's table of buckets, and ALiBi's slopes.

    python examples/training/learned_bias.py
    python examples/training/learned_bias.py --device cpu --bias t5 --length 32 --steps 200

The task is to copy: of random tokens [batch, length], the target at t is the token at
t - n. The model is one layer of causal attention between an embedding and its inverse,
and knows nothing of positions but a bias that score functions add, so that it learns the
task through the bias alone:

- t5: score + table[bucket(j - i), h], a table [buckets, heads] of zeros at first (Raffel
  et al. 2020, "Exploring the Limits of Transfer Learning", 2.1), as `fa.scores.t5_bias`;
  n = 7.
- alibi: score - slopes[h] |i - j| (Press et al. 2022, "Train Short, Test Long", 3) with
  slopes [heads] that are learned, as `fa.scores.alibi`; n = 1, which takes the difference
  of two heads: a bias that only falls or grows with the distance favours no key between.

Before and after training fa's gradient of the bias is compared with that of the plain
formula in float64 (T5's buckets by transformers' own function), over several batches. Its
largest error may be 3 times the plain formula's in fa's type, plus 1e-5 of the largest
gradient (docs/right.md). Exit status 1 if it is more, or if the loss of the last steps is
not below half of that of guessing, log(vocabulary).
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import sys
from typing import Any

import common
import fa
import torch
from torch import Tensor, nn
from transformers.models.t5.modeling_t5 import T5Attention

DISTANCES = {"t5": 7, "alibi": 1}
"""How far back the token is that is copied."""
BUCKETS, MAX_DISTANCE = 32, 128
"""Of T5."""
BATCHES = 8
"""Over which errors of gradients are compared: of few elements one error is luck."""

# --- The model -------------------------------------------------------------------------


def by_fa(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, kind: str) -> Tensor:
    """Causal attention with a bias, by fa."""
    if kind == "t5":
        score_mod = fa.scores.t5_bias(bias, bidirectional=False, max_distance=MAX_DISTANCE)
    else:
        score_mod = fa.scores.alibi(bias)
    return fa.attention(query, key, value, score_mod=score_mod, is_causal=True)


def by_formula(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, kind: str) -> Tensor:
    """The same, as it is defined, with a matrix of scores."""
    positions = torch.arange(query.shape[2], device=query.device)
    relative = positions - positions[:, None]  # [i, j]: j - i
    if kind == "t5":
        buckets = T5Attention._relative_position_bucket(
            relative, bidirectional=False, num_buckets=len(bias), max_distance=MAX_DISTANCE
        )
        added = bias[buckets].permute(2, 0, 1)
    else:
        added = -bias[:, None, None] * relative.abs()
    scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5 + added
    return torch.softmax(scores.masked_fill(relative > 0, -math.inf), -1).to(value.dtype) @ value


class Copier(nn.Module):
    """One layer of attention whose positions are a learned bias.

    Args:
        kind: "t5" or "alibi".
        vocabulary: tokens.
        heads: of head dim 32.
        attend: `by_fa` or `by_formula`.
    """

    def __init__(self, kind: str, vocabulary: int, heads: int, attend: Any) -> None:
        super().__init__()
        width = 32 * heads
        self.kind, self.heads, self.attend = kind, heads, attend
        self.embedding = nn.Embedding(vocabulary, width)
        self.project_in = nn.Linear(width, 3 * width, bias=False)
        self.project_out = nn.Linear(width, width, bias=False)
        self.unembedding = nn.Linear(width, vocabulary, bias=False)
        zeros, slopes = torch.zeros(BUCKETS, heads), torch.linspace(0.1, 1.0, heads)
        self.bias = nn.Parameter(zeros if kind == "t5" else slopes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [B, S, vocabulary] of tokens [B, S]."""
        x = self.project_in(self.embedding(tokens))
        q, k, v = x.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        out = self.attend(q, k, v, self.bias, self.kind)
        return self.unembedding(self.project_out(out.transpose(1, 2).flatten(2)))


def loss_of(model: Copier, tokens: Tensor, dtype: str) -> Tensor:
    """The cross-entropy (nats) of copies, where there is something to copy."""
    back = DISTANCES[model.kind]
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
        logits = model(tokens)[:, back:]
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, :-back].flatten())


# --- Gradients, and training -----------------------------------------------------------


def data(args: argparse.Namespace, seed: int) -> Any:
    """Batches of random tokens [batch, length], the same for a seed."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (args.batch, args.length)
    while True:
        yield torch.randint(args.vocabulary, sizes, generator=generator).to(args.device)


def compare_gradients(model: Copier, args: argparse.Namespace) -> dict[str, Any]:
    """fa's gradient of the bias, and the plain formula's in its type, against float64."""
    models = {"fa": model}
    for name in ("formula", "float64"):
        models[name] = copy.deepcopy(model)
        models[name].attend = by_formula
    models["float64"].double()
    errors = dict.fromkeys(("fa", "formula"), 0.0)
    size = 0.0
    for _, tokens in zip(range(BATCHES), data(args, args.seed + 1)):
        found = {
            name: torch.autograd.grad(
                loss_of(one, tokens, "float64" if name == "float64" else args.dtype), one.bias
            )[0].double()
            for name, one in models.items()
        }
        size = max(size, found["float64"].abs().max().item())
        for name in errors:
            error = (found[name] - found["float64"]).abs().max().item()
            errors[name] = max(errors[name], error) if error == error else math.inf
    allowed = common.limit(errors["formula"], size)
    return dict(
        largest=size, errors=errors, limit=allowed, is_within=errors["fa"] <= allowed and size > 0
    )


def train(kind: str, attend: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Losses of all steps, the bias at the end, and the check of gradients for fa."""
    torch.manual_seed(args.seed)
    model = Copier(kind, args.vocabulary, args.heads, attend).to(args.device)
    result: dict[str, Any] = {}
    if attend is by_fa:
        result["gradients before"] = compare_gradients(model, args)
    biases, others = [model.bias], [p for name, p in model.named_parameters() if name != "bias"]
    rate = args.learning_rate
    optimizer = torch.optim.Adam([dict(params=others), dict(params=biases, lr=10 * rate)], lr=rate)
    losses = []
    for number, tokens in zip(range(args.steps), data(args, args.seed)):
        loss = loss_of(model, tokens, args.dtype)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if number % max(1, args.steps // 5) == 0 or number == args.steps - 1:
            name = "fa" if attend is by_fa else "formula"
            print(f"  {kind}, {name}, step {number}: loss {loss.item():.4f}", flush=True)
    if attend is by_fa:
        result["gradients after"] = compare_gradients(model, args)
    return result | dict(losses=[loss.item() for loss in losses], bias=model.bias.tolist())


def judge(run: dict[str, Any], vocabulary: int) -> dict[str, Any]:
    """What is said of fa's run, and whether all of it is as it should be."""
    losses = run["losses"]
    last = statistics.fmean(losses[-max(1, len(losses) // 10) :])
    checks = [run["gradients before"], run["gradients after"]]
    return dict(
        guessing=math.log(vocabulary),
        last=last,
        is_learned=last < math.log(vocabulary) / 2,
        is_within=all(check["is_within"] for check in checks),
    )


# --- The plot and the command ----------------------------------------------------------


def plot(result: dict[str, Any], path: Any) -> None:
    """For each bias its losses and what was learned."""
    kinds = list(result["runs"])
    figure, panels = common.axes(2 * len(kinds), "Learned position biases")
    for kind, left, right in zip(kinds, panels[::2], panels[1::2]):
        runs = result["runs"][kind]
        left.plot(runs["formula"]["losses"], color=common.COLORS["eager"], label="plain formula")
        left.plot(runs["fa"]["losses"], "--", color=common.COLORS["fa"], label="fa")
        left.axhline(result["judged"][kind]["guessing"], color="gray", ls=":", label="guessing")
        left.set(
            xlabel="step", ylabel="loss (nats)", title=f"{kind}: copies {DISTANCES[kind]} back"
        )
        left.legend(fontsize=8)
        bias = runs["fa"]["bias"]
        if kind == "t5":
            for head, column in enumerate(zip(*bias)):
                right.plot(column, marker=".", label=f"head {head}")
            right.set(xlabel="bucket", ylabel="bias", title="table")
            right.legend(fontsize=8)
        else:
            right.bar([f"head {head}" for head in range(len(bias))], bias, color="#66a182")
            right.set(ylabel="slope", title="slopes")
    common.save(figure, path)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options, checked."""
    options = common.parser(__doc__, "learned_bias")
    options.add_argument("--device", choices=("cpu", "cuda"), default=common.default_device())
    options.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    options.add_argument("--bias", choices=("t5", "alibi", "both"), default="both")
    options.add_argument("--length", type=int, default=64, help="tokens (64)")
    options.add_argument("--batch", type=int, default=16, help="sequences (16)")
    options.add_argument("--vocabulary", type=int, default=16, help="tokens (16)")
    options.add_argument("--heads", type=int, default=4, help="of head dim 32 (4)")
    options.add_argument("--steps", type=int, default=120, help="(120)")
    options.add_argument(
        "--learning-rate", type=float, default=3e-3, help="10 times it: the bias's"
    )
    args = options.parse_args(arguments)
    common.require(args.device)
    if args.length <= max(DISTANCES.values()):
        options.error(f"expected --length above {max(DISTANCES.values())}, got {args.length}")
    return args


def main(arguments: list[str] | None = None) -> int:
    """Trains with both, prints, checks; 1 if a check fails."""
    args = parse(arguments)
    settings = {key: value for key, value in vars(args).items() if key not in ("out", "plot")}
    result: dict[str, Any] = dict(
        example="learned_bias",
        provenance=common.provenance(args.device),
        settings=settings,
        runs={},
        judged={},
    )
    for kind in DISTANCES if args.bias == "both" else (args.bias,):
        ways = {"fa": by_fa, "formula": by_formula}
        runs = {name: train(kind, attend, args) for name, attend in ways.items()}
        result["runs"][kind] = runs
        found = result["judged"][kind] = judge(runs["fa"], args.vocabulary)
        for when in ("before", "after"):
            gradient = runs["fa"][f"gradients {when}"]
            verdict = "within" if gradient["is_within"] else "OUTSIDE"
            print(
                f"{kind}: gradient of the bias {when} training: largest {gradient['largest']:.2e}, "
                f"error {gradient['errors']['fa']:.1e} (plain formula "
                f"{gradient['errors']['formula']:.1e}), {verdict} {gradient['limit']:.1e}"
            )
        print(
            f"{kind}: loss {runs['fa']['losses'][0]:.3f} to {found['last']:.3f}, guessing is "
            f"{found['guessing']:.3f}: {'learned' if found['is_learned'] else 'NOT LEARNED'}"
        )
    print(common.keep(args, result, plot))
    return 0 if all(x["is_learned"] and x["is_within"] for x in result["judged"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
