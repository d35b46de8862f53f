#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of random score and mask functions against PyTorch's autograd in float64.

    PYTHONPATH=build/python gradient_fuzzer.py --functions 1000 --device cuda
    PYTHONPATH=build/python gradient_fuzzer.py --seed 17 --functions 1 --verbose
    PYTHONPATH=build/python gradient_fuzzer.py --functions 1000 --device sm_90a

The device is cpu or a CUDA device of PyTorch's; the formula is computed on the CPU. Or it is a
chip, which need not be there: gradients are compiled for it and no more. The functions are
those of variant_fuzzer.py; captured floats have gradients, too. The rule is that of right.py,
and two things are added: what scores that are wrong by as much as they may move, with errors
in each function, which also takes a kink's other side where a value is next to it; and what
the rounding of a 16-bit output moves. At a kink itself fa and the formula choose alike.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import sys
from typing import Any

import fa
import naive
import numpy as np
import right
import torch
from variant_fuzzer import (
    APPROXIMATE,
    COMPARISONS,
    Case,
    Generator,
    Node,
    arguments,
    largest_of,
    run_seeds,
)


def _softplus(x: Any) -> Any:
    return torch.relu(x) + torch.log1p(torch.exp(-abs(x)))


def _divided(x: Any, y: Any) -> Any:
    """x // y: a step, of which PyTorch has no derivative for floats."""
    return (x / y).floor() if x.is_floating_point() else x // y


OPS = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "floordiv": _divided,
    "mod": lambda x, y: x - y * _divided(x, y),
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.logical_not,
    "invert": torch.bitwise_not,
    "lshift": torch.bitwise_left_shift,
    "rshift": torch.bitwise_right_shift,
    "neg": torch.neg,
    "min": torch.minimum,
    "max": torch.maximum,
    "clamp": torch.clamp,
    "where": torch.where,
    "as_integer": lambda x: x.long(),
    "as_float": lambda x: x.double(),
    "shrink": lambda x: 4 * torch.tanh(x / 64),
    "average": lambda x, y: (x + y) / 2,
    "quotient": lambda x, y: x / (y * y + 1),
    "relu": torch.relu,
    "softplus": _softplus,
    "logsigmoid": lambda x: -_softplus(-x),
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
    "square_small": lambda x: torch.clamp(x, -3, 3) ** 2,
    "power_small": lambda x: torch.clamp(x, -2, 2) ** 3,
    "exp_small": lambda x: torch.exp(torch.clamp(x, -3, 2)),
    "exp2_small": lambda x: torch.exp2(torch.clamp(x, -3, 3)),
    "log_large": lambda x: torch.log(abs(x) + 0.5),
    "log2_large": lambda x: torch.log2(abs(x) + 0.5),
    "sqrt_large": lambda x: torch.sqrt(abs(x) + 0.25),
    "rsqrt_large": lambda x: torch.rsqrt(abs(x) + 0.25),
    "reciprocal_large": lambda x: 1 / (abs(x) + 0.25),
    **{name: getattr(torch, name) for name in ("floor", "abs", "tanh", "sigmoid", "sin", "cos")},
    **{name: getattr(torch, name) for name in ("erf", "atan", *COMPARISONS)},
}
"""The ops on tensors."""


def evaluated(node: Any, env: dict[str, Any], ops: dict[str, Any]) -> Any:
    """The node on PyTorch's tensors."""
    if not isinstance(node, Node):
        return node
    if node.op == "const":
        kind = torch.float64 if isinstance(node.args[0], float) else torch.int64
        return torch.tensor(node.args[0], dtype=kind)
    if node.op == "name":
        return env[node.args[0]]
    if node.op == "read":
        array = env[node.args[0].name]
        inside = []
        for size, argument in zip(array.shape, node.args[1:]):
            index = evaluated(argument, env, ops)
            inside.append(torch.where(index < 0, index + size, index).clamp(0, size - 1))
        return array[tuple(inside)] if inside else array
    return ops[node.op](*(evaluated(argument, env, ops) for argument in node.args))


ROUNDED = ("add", "sub", "mul", "average", "quotient")
"""Ops whose terms may cancel, in the value or in the derivative."""


def wrong_ops(generator: Any, computed: str) -> dict[str, Any]:
    """The ops with errors of any sign that functions of a type and their derivatives, which
    are computed of their results, may have, and with roundings; "sign" gives signs."""
    relative, absolute = right.FUNCTION[computed]

    def sign(x: Any) -> Any:
        return torch.randint(0, 2, x.shape, generator=generator).to(x.dtype) * 2 - 1

    def erring(op: Any) -> Any:
        def wrong(*args: Any) -> Any:
            y = op(*args)
            size = relative * abs(y.detach()) + absolute
            slope = absolute * sign(y) * sum(x - x.detach() for x in args)
            return y + sign(y) * size + slope

        return wrong

    def rounding(op: Any) -> Any:
        def rounded(*args: Any) -> Any:
            y = op(*args)
            if not y.is_floating_point():
                return y
            size = right.of_size(1.0, computed)
            terms = sum(x - x.detach() for x in args if x.is_floating_point())
            return y + sign(y) * size * (abs(y.detach()) + terms)

        return rounded

    wrong = {name: erring(own) for name, own in OPS.items() if name in APPROXIMATE}
    wrong |= {name: rounding(OPS[name]) for name in ROUNDED}
    return {**OPS, **wrong, "sign": sign}


class GradientCase(Case):
    """A case of tensors, with a deeper score function in three of four."""

    def __init__(self, seed: int, device: str = "cpu") -> None:
        super().__init__(seed, "cpu")  # the same choices on each device
        self.device, self.library = device, "torch"
        if seed % 4:
            generator = Generator(seed + 1_000_000)
            generator.arrays = self.arrays
            self.score = generator.smooth(3 + seed % 3)
        if device == "cpu":
            self.widen(random.Random(~seed))


class Differentiated:
    """One call of a case on tensors, and its formula.

    Args:
        case: the functions.
        names: those of captured arrays, in the order of the tensors.
    """

    def __init__(self, case: Case, names: list[str]) -> None:
        self.case = case
        self.names = names

    def attention(self, q: Any, k: Any, v: Any, *captured: Any) -> Any:
        """out and lse by fa."""
        case = self.case
        score, mask = case._functions(dict(zip(self.names, map(fa.array, captured))))
        options = {"is_causal": case.is_causal, "scale": case.scale, "return_lse": True}
        return fa.attention(q, k, v, score_mod=score, mask_mod=mask, **options)

    def formula(
        self, q: Any, k: Any, v: Any, *captured: Any, dtype: Any = None, ops: Any = OPS
    ) -> Any:
        """out and lse by the formula."""
        case, given = self.case, dict(zip(self.names, captured))
        sign = ops.get("sign")

        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            if sign is not None:  # roundings of a product
                s = s + sign(s) * right.of_size(s.detach(), case.dtype)
            env = {"s": s, "b": b, "h": h, "i": i, "j": j, **given}
            return evaluated(case.score, env, ops)

        def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
            seen = torch.ones((), dtype=torch.bool)
            if case.mask is not None:
                env = {"b": b, "h": h, "i": i, "j": j, **given}
                seen = evaluated(case.mask, env, OPS)
            return seen & (j <= i) if case.is_causal else seen

        has_score = case.score is not None
        return naive.differentiable(
            *(q, k, v),
            **{"score": score if has_score else None, "mask": mask},
            **{"scale": case.scale, "dtype": dtype},
        )


def tensors_of(case: Case, values: Any, sizes: dict[str, int]) -> tuple[list[Any], list[str]]:
    """Query, key, value and captured tensors on the case's device, which require gradients;
    names of the latter."""
    (heads, key_heads), (dim, value_dim) = case.heads, case.dims
    shapes = (
        (sizes["batch"], heads, sizes["rows"], dim),
        (sizes["batch"], key_heads, sizes["keys"], dim),
        (sizes["batch"], key_heads, sizes["keys"], value_dim),
    )
    kind = right.computed_in(case.dtype)
    q, k, v = (values.standard_normal(shape).astype(kind) for shape in shapes)
    arrays = [naive.rounded(x, case.dtype) for x in naive.telling(q, k, v)]
    on_gpu = case.device != "cpu"  # where kernels want unit stride
    tensors = [case._given(x, case.dtype, case.random.random() < 0.9 or on_gpu) for x in arrays]
    captured = case._fitting(case._captured(values, sizes), sizes)
    tensors += [case._given(captured[a.name], a.dtype, a.unit) for a in case.arrays]
    tensors = [x.requires_grad_(x.is_floating_point()) for x in tensors]
    return tensors, [a.name for a in case.arrays]


def moved(call: Differentiated, tensors: list[Any], grads: Any, exact: list[Any]) -> list[float]:
    """What gradients move by if scores are wrong by as much as they may be."""
    found = []
    if call.case.score is not None:
        for seed in range(4):
            formula = functools.partial(
                call.formula,
                ops=wrong_ops(
                    torch.Generator().manual_seed(seed), right.computed_in(call.case.dtype)
                ),
            )
            found.append(right.exact_gradients(formula, tensors, grads))
    return [
        0.0 if own is None else max([right.difference(x[n], own.exact) for x in found], default=0.0)
        for n, own in enumerate(exact)
    ]


def run_shape(case: Case, verbose: bool = False) -> float:
    """Runs one shape; the largest error divided by its bound. Raises where it is above 1."""
    rng = case.random
    sizes = {
        "batch": rng.choice([1, 2]),
        "rows": rng.choice([1, rng.randrange(2, 40), rng.randrange(2, 100)]),
        "keys": rng.choice([rng.randrange(2, 40), rng.randrange(2, 100)]),
    }
    values = np.random.default_rng(rng.randrange(1 << 30))
    tensors, names = tensors_of(case, values, sizes)
    call = Differentiated(case, names)
    results = call.attention(*tensors)
    grads = [torch.from_numpy(values.standard_normal(x.shape)).to(x.dtype) for x in results]
    wanted = [x for x in tensors if x.requires_grad]
    given = [x.to(case.device) for x in grads]
    found = iter(torch.autograd.grad(results, wanted, given, allow_unused=True))
    tensors = [x.detach().cpu().requires_grad_(x.requires_grad) for x in tensors]
    expected = right.gradients(call.formula, tensors, grads, rounds_output=True)
    worst = 0.0
    more = moved(call, tensors, grads, expected)
    for number, (own, size) in enumerate(zip(expected, more)):
        if own is None:
            continue
        gradient = next(found)
        name = ["query", "key", "value", *names][number]
        message = f"of {name}: {case}\n  {sizes}"
        if gradient is None:  # no part in a score
            assert not np.any(own.exact), f"no gradient {message}"
            continue
        if not np.isfinite(own.exact).all():
            continue
        wide = dataclasses.replace(own, moved=own.moved + size)
        right.assert_right_gradient(gradient, wide, message)
        share = right.share(right.back(gradient), own.exact, wide.limit, exact_zeros=False)
        worst = max(worst, share)
        if verbose:
            print(f"  {sizes} {name}: error / bound {share:.3f}, moved {size:.2g}")
    return worst


HEAD_DIMS = ((64, 64), (128, 128), (96, 96), (256, 256), (128, 64), (64, 128), (192, 128))


def compile_case(case: GradientCase, chip: str, seed: int) -> None:
    """Compiles the gradients of a case's functions, of types and head dims that a seed draws."""
    choose = random.Random(seed)
    case.device = "cpu"  # of captured tensors
    sizes = {"batch": 2, "rows": 33, "keys": 40}
    captured = case._fitting(case._captured(np.random.default_rng(seed), sizes), sizes)
    given = {a.name: case._given(captured[a.name], a.dtype, True) for a in case.arrays}
    score, mask = case._functions({name: fa.array(x) for name, x in given.items()})
    traced = fa._trace.trace.trace_functions(score, mask, True, "f32")
    wrt = [3 + n for n, x in enumerate(traced.arrays) if x.is_floating_point()]
    config = fa.AttentionConfig(
        choose.choice(("bf16", "f16", "bf16", "f32")),
        *case.heads,
        *(case.dims if choose.random() < 0.5 else choose.choice(HEAD_DIMS)),
        *(case.is_causal, case.scale, True),
        traced.variant and traced.variant.without_arrays(),
    )
    backward = "+".join(map(str, wrt)) if wrt and choose.random() < 0.6 else "none"
    fa.compile(config, chip, backward=backward, deterministic=choose.random() < 0.2)


def run_case(case: GradientCase, shapes: int, verbose: bool = False) -> float:
    """Differentiates a case on some shapes; the largest error by its bound."""
    if verbose:
        print(case)
    worst = largest_of(case, lambda: run_shape(case, verbose), shapes)
    assert math.isfinite(worst)
    return worst


def run_seed(seed: int, device: str = "cpu", shapes: int = 2, verbose: bool = False) -> float:
    """Differentiates the functions of a seed on some shapes, or compiles them for a chip."""
    case = GradientCase(seed, device)
    if device.startswith("sm_"):
        compile_case(case, device, seed)
        return 0.0
    return run_case(case, shapes, verbose)


def main() -> int:
    """Runs seeds one after the other; 1 if one fails."""
    options = arguments(__doc__, shapes=2).parse_args()

    def run(seed: int) -> float:
        return run_seed(seed, options.device, options.shapes, options.verbose)

    return run_seeds(options, run)


if __name__ == "__main__":
    sys.exit(main())
