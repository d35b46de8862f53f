# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of fa.attention against PyTorch's autograd of the formula in float64."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import fa
import naive
import numpy as np
import pytest
import right
from libraries import DEVICE, compiled, needs_functions

torch = pytest.importorskip("torch")

import fa.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from fa import _attention, _native, scores  # noqa: E402
from fa import math as m  # noqa: E402
from fa._run import backward  # noqa: E402
from fa._torch import op  # noqa: E402
from fa._torch import sdpa as fa_sdpa  # noqa: E402


@pytest.fixture(autouse=True)
def device():
    """Tensors are made where the test runs, if nothing else is said."""
    with torch.device(DEVICE):
        yield


only_cpu = pytest.mark.skipif(DEVICE != "cpu", reason="is about the CPU")

FUNCTION = {"heads": (4, 2), "lengths": ((33, 40), (17, 17)), "dims": (16, 24)}
"""What functions are tried on."""


@dataclass(frozen=True)
class Variant:
    """A variant as fa's functions and as formulas: the same functions of tensors."""

    score: Callable[..., Any] | None = None
    """score(s, b, h, i, j, *captured)"""
    mask: Callable[..., Any] | None = None
    captured: Callable[..., tuple[Any, ...]] = lambda heads, rows, keys: ()
    """Gives the captured tensors; those of floats require a gradient."""
    is_causal: bool = False
    scale: float | None = None

    def attention(self, q, k, v, *captured, **options):
        """fa.attention, with its log-sum-exp."""
        functions = {}
        if self.score:
            functions["score_mod"] = lambda *at: self.score(*at, *captured)
        if self.mask:
            functions["mask_mod"] = lambda *at: self.mask(*at, *captured)
        own = {"is_causal": self.is_causal, "scale": self.scale, "return_lse": True}
        return fa.attention(q, k, v, **functions, **{**own, **options})

    def formula(self, q, k, v, *captured, dtype=None, **options):
        def mask(b, h, i, j):
            seen = torch.ones((), dtype=torch.bool)
            if self.mask:
                seen = self.mask(b, h, i, j, *captured)
            return seen & (j <= i) if self.is_causal else seen

        score = self.score and (lambda *at: self.score(*at, *captured))
        return naive.differentiable(
            *(q, k, v), score=score, mask=mask, scale=self.scale, dtype=dtype, **options
        )


def normal(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed + 31 * sum(shape))
    return torch.randn(*shape, generator=generator, device="cpu").to(DEVICE, dtype)


def inputs(heads=(4, 2), rows=33, keys=40, dims=(16, 24), batch=2, dtype=torch.float32):
    """q, k and v, which require gradients."""
    arrays = naive.inputs(batch, *heads, rows, keys, *dims)
    return tuple(torch.from_numpy(x).to(DEVICE, dtype).requires_grad_() for x in arrays)


def learned(*tensors):
    """The tensors, of which those of floats require a gradient."""
    return tuple(x.requires_grad_(x.is_floating_point()) for x in tensors)


def gradients_of(results, tensors, results_grad, **options):
    """Gradients with respect to those tensors that require one; None for the others."""
    used, grads = zip(*[(x, g) for x, g in zip(results, results_grad) if g is not None])
    wanted = [x for x in tensors if x.requires_grad]
    found = iter(torch.autograd.grad(used, wanted, grads, **options))
    return [next(found) if x.requires_grad else None for x in tensors]


def grads_like(out, lse, uses):
    """Gradients of the results that are used."""
    return (
        normal(*out.shape, dtype=out.dtype, seed=1) if "out" in uses else None,
        normal(*lse.shape, seed=2) if "lse" in uses else None,
    )


def assert_right(found, expected, note=""):
    for number, (gradient, own) in enumerate(zip(found, expected, strict=True)):
        if own is None:
            assert gradient is None
            continue
        right.assert_right_gradient(gradient, own, f"of input {number} {note}")


def check(variant, tensors, uses="out", has_one_key=False, **options):
    """The gradients of a variant are right; returns them."""
    tensors = (*tensors, *learned(*variant.captured(*sizes_of(tensors))))
    out, lse = variant.attention(*tensors, **options)
    grads = grads_like(out, lse, uses)
    found = gradients_of((out, lse), tensors, grads)
    for gradient, tensor in zip(found, tensors):
        if gradient is not None:
            assert (gradient.shape, gradient.dtype) == (tensor.shape, tensor.dtype)
    expected = right.gradients(variant.formula, tensors, grads)
    if has_one_key:
        expected[:2] = [replace(x, terms=terms_of(*tensors[:3], grads[0])) for x in expected[:2]]
    assert_right(found, expected)
    return found


def terms_of(q, k, v, out_grad):
    """The size of the terms of a gradient of q or k: of one key the sum of them is 0."""
    q, k, v = (x.detach() for x in (q, k, v))
    products = out_grad.double().abs() @ v.double().abs().mT.repeat_interleave(
        q.shape[1] // v.shape[1], 1
    )
    largest = max(float(x.abs().max()) for x in (q, k))
    return float(products.max()) * largest * q.shape[-1] ** -0.5


def sizes_of(tensors):
    return tensors[0].shape[1], tensors[0].shape[2], tensors[1].shape[2]


# --- Shapes and types ----------------------------------------------------------------

LENGTHS = [(1, 1), (17, 33), (33, 17), (1, 130), (100, 1), (130, 100)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("heads", "dims", "is_causal"),
    [
        ((2, 2), (16, 16), True),
        ((4, 1), (64, 64), False),
        ((4, 1), (80, 48), True),
        ((2, 1), (192, 128), False),
        ((2, 2), (256, 256), True),
    ],
)
def test_shapes(dtype, heads, dims, is_causal):
    for rows, keys in LENGTHS:
        given = inputs(heads, rows, keys, dims, batch=1 if rows > 100 else 2, dtype=dtype)
        has_one_key = 1 in (keys, rows if is_causal else keys)
        check(Variant(is_causal=is_causal), given, has_one_key=has_one_key)


@pytest.mark.parametrize("uses", ["lse", "out and lse"])
def test_the_log_sum_exp(uses):
    """Alone, and as in a loss of the output and of z (Chowdhery et al. 2022, PaLM, 5)."""
    for rows, keys in ((17, 33), (100, 70)):
        given = inputs(rows=rows, keys=keys)
        found = check(Variant(mask=lambda b, h, i, j: (j <= i) & (i != 3)), given, uses)
        assert all(x[:, :, 3].eq(0).all() for x in found[:1])
        if uses == "lse":
            assert found[2].eq(0).all()


def test_z_loss():
    q, k, v = inputs()
    out, lse = fa.attention(q, k, v, return_lse=True)
    (out.square().sum() + 1e-2 * lse.square().sum()).backward()
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    out, lse = naive.differentiable(*wide)
    (out.square().sum() + 1e-2 * lse.square().sum()).backward()
    for x, exact in zip((q, k, v), wide):
        right.assert_right_gradient(x.grad, right.ExpectedGradient(exact.grad.cpu().numpy()))


# --- Masks ---------------------------------------------------------------------------

DOCUMENTS = torch.repeat_interleave(torch.arange(8), 5).to(DEVICE)
MASKS = {
    "window": Variant(mask=lambda b, h, i, j: (j <= i) & (i - j < 7)),
    "prefix": Variant(
        mask=lambda b, h, i, j, prefix: (j <= i) | (j < prefix[b]),
        captured=lambda *sizes: (torch.tensor([5, 30]),),
    ),
    "documents": Variant(
        mask=lambda b, h, i, j, ids: (ids[i] == ids[j]) & (j <= i),
        captured=lambda *sizes: (DOCUMENTS,),
    ),
    "by head": Variant(mask=lambda b, h, i, j: (j - i) % (h + 2) == 0),
    "nothing": Variant(mask=lambda b, h, i, j: (i % 3 != 1) & (j < 15) & (b == 0)),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    for rows, keys in FUNCTION["lengths"]:
        check(MASKS[name], inputs(rows=rows, keys=keys), "out and lse")


def test_rows_that_see_nothing():
    """Their gradients are 0, and so are those of keys that nobody sees."""
    given = inputs(rows=33, keys=40)
    dq, dk, dv = check(MASKS["nothing"], given, "out and lse")
    assert dq[:, :, 1::3].eq(0).all() and dq[1].eq(0).all()
    assert dk[:, :, 15:].eq(0).all() and dv[:, :, 15:].eq(0).all() and dv[1].eq(0).all()


# --- Score functions -----------------------------------------------------------------


def loops(s, b, h, i, j, coefficients):
    """A polynomial by Horner's scheme, in a loop that is unrolled."""
    result = coefficients[h, 3]
    for power in (2, 1, 0):
        result = result * (s / 8) + coefficients[h, power]
    return s + result


def piecewise(s, b, h, i, j, bounds):
    s = m.clamp(s, -4.0, 4.0) + m.maximum(s - bounds[h], bounds[0] - s)
    s = m.where(s > 1.5, s * 0.5, m.minimum(s, bounds[1] + j * 0.125))
    return abs(s - bounds[2]) + m.relu(s)


SCORES = {
    "alibi": Variant(
        lambda s, b, h, i, j, slopes: s - slopes[h] * abs(i - j),
        captured=lambda heads, rows, keys: (normal(heads).abs() / 4,),
        is_causal=True,
    ),
    "bias": Variant(
        lambda s, b, h, i, j, bias: s + bias[h, i, j],
        captured=lambda heads, rows, keys: (normal(heads, rows, keys),),
    ),
    "bias of a batch entry": Variant(
        lambda s, b, h, i, j, bias: s + bias[b, 0, 0, j],
        captured=lambda heads, rows, keys: (normal(2, 1, 1, keys),),
    ),
    "bias twice": Variant(
        lambda s, b, h, i, j, bias: s * bias[i] + bias[j] * bias[h],
        captured=lambda heads, rows, keys: (normal(max(rows, keys)),),
    ),
    "relative": Variant(
        lambda s, b, h, i, j, table: s + table[h, i - j + 39],
        captured=lambda heads, rows, keys: (normal(heads, 80),),
    ),
    "softcap": Variant(
        lambda s, b, h, i, j, cap: cap * m.tanh(s / cap),
        captured=lambda *sizes: (torch.tensor(3.0),),
    ),
    "temperature": Variant(
        lambda s, b, h, i, j, temperature: s / temperature[h],
        captured=lambda heads, rows, keys: (1 + normal(heads).abs(),),
    ),
    "piecewise": Variant(piecewise, captured=lambda heads, *sizes: (normal(heads),)),
    "loops": Variant(loops, captured=lambda heads, *sizes: (normal(heads, 4),)),
    "sinks": Variant(
        lambda s, b, h, i, j, sink: m.where(j == 0, sink[h], s),
        mask=lambda b, h, i, j, sink: (j <= i) & ((i - j < 9) | (j == 0)),
        captured=lambda heads, *sizes: (normal(heads),),
    ),
    "masked by the score": Variant(
        lambda s, b, h, i, j, slopes: m.where(j <= i, s + slopes[h] * j, -math.inf),
        captured=lambda heads, *sizes: (normal(heads) / 8,),
    ),
    "by an index that is read": Variant(
        lambda s, b, h, i, j, kinds, pairs: s + pairs[kinds[b, i], kinds[b, j]],
        captured=lambda heads, rows, keys: (
            torch.arange(2 * max(rows, keys)).reshape(2, -1) % 3,
            normal(3, 3),
        ),
    ),
    "16-bit table": Variant(
        lambda s, b, h, i, j, table, wide: s + table[i] * wide[j],
        captured=lambda heads, rows, keys: (
            normal(rows, dtype=torch.float16),
            normal(keys, dtype=torch.bfloat16),
        ),
    ),
    "fa.scores": Variant(
        lambda s, b, h, i, j, slopes, cap: scores.compose(
            scores.alibi(slopes), scores.softcap(cap)
        )(s, b, h, i, j),
        captured=lambda heads, *sizes: (normal(heads).abs() / 4, torch.tensor([6.0])),
    ),
    "fa.scores' tables": Variant(
        lambda s, b, h, i, j, table, t5, bias: scores.compose(
            scores.relative_position(table),
            scores.t5_bias(t5, max_distance=24),
            scores.bias(bias),
        )(s, b, h, i, j),
        captured=lambda heads, rows, keys: (
            normal(heads, 21),
            normal(8, heads),
            normal(1, rows, keys),
        ),
    ),
}
IN_16_BITS = ["relative", "temperature", "16-bit table"]


@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    for rows, keys in FUNCTION["lengths"]:
        check(SCORES[name], inputs(rows=rows, keys=keys))


@pytest.mark.parametrize("name", IN_16_BITS)
def test_scores_in_16_bits(name):
    dtype = torch.float16 if IN_16_BITS.index(name) % 2 else torch.bfloat16
    for rows, keys in FUNCTION["lengths"]:
        check(SCORES[name], inputs(rows=rows, keys=keys, dtype=dtype), "out and lse")


# --- Functions of fa.math --------------------------------------------------------------

ONE = {  # of values of any size
    **{name: getattr(m, name) for name in ("neg", "exp2", "expm1", "tanh", "sinh", "cosh")},
    **{name: getattr(m, name) for name in ("sin", "cos", "tan", "atan", "asinh", "erf")},
    **{name: getattr(m, name) for name in ("exp", "square", "sigmoid", "silu", "relu", "gelu")},
    **{name: getattr(m, name) for name in ("leaky_relu", "softplus", "logsigmoid", "elu")},
    **{name: getattr(m, name) for name in ("celu", "selu", "hardtanh", "relu6", "hardsigmoid")},
    **{name: getattr(m, name) for name in ("hardswish", "mish", "softsign", "tanhshrink")},
    **{name: getattr(m, name) for name in ("abs", "sign", "floor", "ceil", "trunc", "round")},
    **{name: getattr(m, name) for name in ("frac", "nan_to_num")},
    "reciprocal": lambda x: m.reciprocal(abs(x) + 0.5),
    "clamp": lambda x: m.clamp(x, -0.5, 0.75),
    "clamp_min": lambda x: m.clamp_min(x, 0.25),
    "clamp_max": lambda x: m.clamp_max(x, 0.25),
    "pow 3": lambda x: x**3,
    "pow -2": lambda x: (abs(x) + 0.5) ** -2.0,
    "gelu tanh": lambda x: m.gelu(x, approximate="tanh"),
}
POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt")
UNIT = ("asin", "acos", "atanh")
TWO = {
    **{name: getattr(m, name) for name in ("add", "sub", "mul", "div", "maximum", "minimum")},
    **{name: getattr(m, name) for name in ("fmax", "fmin", "atan2", "logaddexp", "copysign")},
    **{name: getattr(m, name) for name in ("hypot", "fmod", "remainder")},
    "pow": lambda x, y: m.pow(m.exp(x), y),
    "xlogy": lambda x, y: m.xlogy(x, m.exp(y)),
    "lerp": lambda x, y: m.lerp(x, y, 0.3),
    "lerp by": lambda x, y: m.lerp(x, 2.0, y),
    "where": lambda x, y: m.where(x > y, x, y * 2),
    "div by floor": lambda x, y: x - y * m.trunc(x / y),
}
OF_X = {
    **ONE,
    **{name: lambda x, name=name: getattr(m, name)(abs(x) + 0.25) for name in POSITIVE},
    **{name: lambda x, name=name: getattr(m, name)(0.9 * m.tanh(x)) for name in UNIT},
    "acosh": lambda x: m.acosh(1.25 + abs(x)),
}


def by_head(functions):
    """The function with the number of a head, in the score of that head."""

    def score(x, b, h, i, j, *y):
        result = x * 0.0
        for number, function in enumerate(functions):
            result = m.where(h == number, function(x, *(own[h, j] for own in y)), result)
        return result

    return score


@pytest.mark.parametrize("functions", [OF_X, TWO], ids=["one", "two"])
def test_functions_of_numbers(functions):
    """A head each: what a derivative gets wrong is that head's alone."""
    count = len(functions)
    score = by_head(functions.values())
    captured = (lambda *sizes: (normal(count, 9),)) if functions is TWO else lambda *sizes: ()
    variant = Variant(score, captured=captured)
    q, k, v = (normal(1, count, n, 16, seed=n).requires_grad_() for n in (11, 9, 10))
    tensors = learned(q, k, v[:, :, :9].detach(), *captured())
    grads = (normal(1, count, 11, 16), None)
    found = gradients_of(variant.attention(*tensors), tensors, grads)
    for head, (name, function) in enumerate(functions.items()):
        variant = of_one_head(function)
        mine = [x[:, head : head + 1] for x in found[:3]] + [x[head : head + 1] for x in found[3:]]
        own = [x[:, head : head + 1] for x in tensors[:3]] + [
            x[head : head + 1] for x in tensors[3:]
        ]
        own = learned(*(x.detach() for x in own))
        expected = right.gradients(variant.formula, own, (grads[0][:, head : head + 1], None))
        assert_right(mine, expected, name)


def of_one_head(function):
    return Variant(lambda x, b, h, i, j, *y: function(x, *(own[h, j] for own in y)))


ONE_AT_KINKS = {
    **OF_X,
    **{name: getattr(m, name) for name in (*POSITIVE, *UNIT, "acosh")},
    "clamp": lambda x: m.clamp(x, -1.0, 1.0),
    "clamp by equal bounds": lambda x: m.clamp(x, 1.0, 1.0),
    "clamp by bounds the wrong way round": lambda x: m.clamp(x, 1.0, -1.0),
    "clamp_min": lambda x: m.clamp_min(x, 1.0),
    "clamp_max": lambda x: m.clamp_max(x, 1.0),
    "hardtanh by other bounds": lambda x: m.hardtanh(x, -3.0, 0.5),
    "elu of another factor": lambda x: m.elu(x, 2.0),
    "celu of another factor": lambda x: m.celu(x, 2.0),
    "softplus above its threshold": lambda x: m.softplus(x, 2.0, 6.0),
    "maximum of itself": lambda x: m.maximum(x, x),
    "where": lambda x: m.where(x > 0, x, x * 2),
    "reciprocal": m.reciprocal,
    "pow 0": lambda x: x**0,
    "pow 1": lambda x: x**1.0,
    "pow 2": lambda x: x**2,
    "pow -2": lambda x: x**-2.0,
    "pow 0.5": lambda x: x**0.5,
    "pow 2.5": lambda x: x**2.5,
    "2 to a power": lambda x: 2.0**x,
    "fmod": lambda x: m.fmod(x, 2.0),
    "fmod -2": lambda x: m.fmod(x, -2.0),
    "remainder": lambda x: m.remainder(x, 2.0),
    "copysign": lambda x: m.copysign(x, -1.0),
    "xlogy": lambda x: m.xlogy(x, 2.0),
    "bfloat16": lambda x: m.cast(x, torch.bfloat16).to(x.dtype),
}
TWO_AT_KINKS = {
    **TWO,
    "pow": lambda x, y: m.pow(x, y * 2),
    "xlogy": m.xlogy,
    "clamp from": lambda x, y: m.clamp_min(x, y),
    "clamp to": lambda x, y: m.clamp_max(x, y),
    "clamp between": lambda x, y: torch.clamp(x, y, torch.ones_like(y)),
    "clamp a constant": lambda x, y: torch.clamp(torch.ones_like(x), x, y),
}
SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
"""Steps, kinks, poles, bounds of domains, and where operands are equal."""
POINTS = [(x,) for x in (*SPECIAL, 3.0, -3.0, 6.0, -6.0, math.inf, -math.inf)]
PAIRS = list(itertools.product(SPECIAL, repeat=2))


def derivatives(functions, points):
    """Of each function its derivatives with respect to its operands at the points."""
    q, k = torch.zeros(1, len(functions), len(points), 16), torch.zeros(1, len(functions), 1, 16)
    operands = [x.repeat(len(functions), 1).requires_grad_() for x in torch.tensor(points).T]

    def score(s, b, h, i, j):
        # 0 times what is infinite is NaN: in other heads a function's operands are usual.
        for number, function in enumerate(functions.values()):
            given = [torch.where(h == number, x[h, i], 0.25 + n) for n, x in enumerate(operands)]
            s = torch.where(h == number, function(*given), s)
        return s

    # Of one key it is the score.
    _, lse = fa.attention(q, k, k, score_mod=score, return_lse=True)
    found = torch.stack(torch.autograd.grad(lse.sum(), operands), dim=1)
    return dict(zip(functions, found))


def derivatives_of_pytorch(function, points):
    """They in float64, and where the function is a number and has them."""
    operands = torch.tensor(points, dtype=torch.float64).T.clone().requires_grad_()
    result = function(*operands) + 0 * operands.nan_to_num(0, 0, 0).sum()
    (expected,) = torch.autograd.grad(result.sum(), operands)
    return expected, result.isfinite() & ~expected.isnan().any(0)


def assert_right_derivatives(name, function, points, found):
    expected, at = derivatives_of_pytorch(function, points)
    assert at.any(), name
    for gradient, own in zip(found[:, at], expected[:, at].cpu().numpy()):
        right.assert_right_gradient(gradient, right.ExpectedGradient(own), name)


@pytest.mark.parametrize(
    ("functions", "points"),
    [(ONE_AT_KINKS, POINTS), (TWO_AT_KINKS, PAIRS)],
    ids=["one", "two"],
)
def test_kinks(functions, points):
    """Where there is no derivative it is PyTorch's choice."""
    for name, found in derivatives(functions, points).items():
        assert_right_derivatives(name, functions[name], points, found)


def test_next_to_zero():
    """Of a number that is small its square is 0, and the inverse of that infinite."""
    functions = {name: getattr(m, name) for name in ("asin", "atan", "asinh", "atanh", "softsign")}
    points = [(x,) for x in (0.0, 1e-30, -1e-30, 1e-20, -1e-20, 1e-10, 2e-8, -2e-8, 1e-4, 0.99e-4)]
    for name, found in derivatives(functions, points).items():
        assert_right_derivatives(name, functions[name], points, found)


UNLIKE_PYTORCH = {
    "an infinite slope of a power that is no square root": lambda x: m.pow(x, 1 / 3),
}
"""What is left: 0 there, for which the power needs no case of its own."""


@pytest.mark.xfail(strict=True, reason="it is not worth what each power would cost")
@pytest.mark.parametrize("name", UNLIKE_PYTORCH)
def test_unlike_pytorch(name):
    function = UNLIKE_PYTORCH[name]
    found = derivatives({name: function}, [(0.0,), (1.0,)])[name]
    assert_right_derivatives(name, function, [(0.0,), (1.0,)], found)


def test_where_pytorch_has_none():
    """By an exponent PyTorch's power has a derivative of no negative base; at 0 xlogy
    none by an operand that its result does not depend on."""
    powers = derivatives({"pow": m.pow}, [(-2.0, 3.0), (-1.0, 2.0)])["pow"]
    assert powers[1].tolist() == pytest.approx([-8 * math.log(2), 0.0])
    assert derivatives({"xlogy": m.xlogy}, [(0.0, 0.0)])["xlogy"].tolist() == [[0.0], [0.0]]


# --- Dropout -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout(dtype):
    """The same weights are dropped as in the forward, which the formula is told."""
    given = inputs(dtype=dtype)
    bias = normal(4, 33, 40, seed=5).requires_grad_()
    variant = SCORES["bias"]
    kept = torch.from_numpy(naive.kept(7, (2, 4, 33, 40), 64)).to(DEVICE)
    out, lse = variant.attention(*given, bias, dropout_p=0.25, dropout_seed=7)
    grads = grads_like(out, lse, "out and lse")
    tensors = (*given, bias)
    found = gradients_of((out, lse), tensors, grads)

    def formula(*tensors, dtype=None):
        return variant.formula(*tensors, dtype=dtype, keep=kept, factor=256 / 192)

    assert_right(found, right.gradients(formula, tensors, grads))


def test_dropout_by_a_seed_in_a_tensor():
    """It is read when the kernel runs; a seed that was drawn is the forward's."""
    q, k, v = inputs()
    grad = normal(2, 4, 33, 24)

    def of(**options):
        out = fa.attention(q, k, v, dropout_p=0.5, **options)
        return torch.autograd.grad(out, (q, k, v), grad)

    for x, y in zip(of(dropout_seed=9), of(dropout_seed=torch.tensor(9))):
        assert_same(x, y)
    torch.manual_seed(3)
    first = of()
    assert not torch.allclose(first[0], of()[0])
    torch.manual_seed(3)
    assert_same(first[0], of()[0])


# --- Numbers that are none -------------------------------------------------------------


@pytest.mark.parametrize("where", ["query", "key", "value", "gradient"])
def test_nan_stays_in_its_batch_entry(where):
    q, k, v = (x.detach() for x in inputs())
    grad = normal(2, 4, 33, 24)
    clean = of_attention(q, k, v, grad)
    spoilt = {"query": q, "key": k, "value": v, "gradient": grad}
    spoilt[where] = spoilt[where].clone()
    spoilt[where][1, 1, 2, 3] = math.nan
    found = of_attention(*spoilt.values())
    for x, y in zip(found, clean):
        assert_same(x[0], y[0])
    assert any(x[1].isnan().any() for x in found)


def assert_same(x, y):
    """The same bits; on a GPU, where blocks add to one sum in any order, near ones."""
    if DEVICE == "cpu":
        assert torch.equal(x, y)
    else:
        assert_near([x], [y])


def of_attention(q, k, v, grad, **options):
    """The gradients of plain attention."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(fa.attention(*leaves, **options), leaves, grad)


def assert_near(found, expected):
    """But for the order of sums, which is another one for other strides and functions, and
    on a GPU in each run."""
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-5 * float(y.abs().max()))


# --- The same bits ---------------------------------------------------------------------


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def bias_of(heads, rows, keys):
    return (normal(heads, rows, keys),)


def slopes_and_table(heads, rows, keys):
    return normal(heads), normal(heads, 16), torch.arange(rows * keys).reshape(rows, keys) % 16


SAME_BITS = {
    "plain": (Variant(), {}),
    "causal": (Variant(is_causal=True), {}),
    "dropout": (Variant(), {"dropout_p": 0.3, "dropout_seed": 5}),
    "bias": (Variant(lambda s, b, h, i, j, x: s + x[h, i, j], captured=bias_of), {}),
    "shared bias": (
        Variant(lambda s, b, h, i, j, x: s + x[0, i, j] * x[1, i, j], captured=bias_of),
        {},
    ),
    "slopes and table": (
        Variant(lambda s, b, h, i, j, x, y, n: s * x[h] + y[h, n[i, j]], captured=slopes_and_table),
        {},
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", SAME_BITS)
@pytest.mark.usefixtures("deterministic")
def test_same_bits(name, dtype):
    """Time after time, with blocks enough that some of them wait."""
    variant, options = SAME_BITS[name]
    runs = 3 if DEVICE == "cpu" else 100
    rows, keys = (70, 90) if DEVICE == "cpu" else (700, 2300)
    tensors = inputs((4, 2), rows, keys, (64, 64), dtype=dtype)
    tensors = (*tensors, *learned(*variant.captured(*sizes_of(tensors))))
    out, _ = variant.attention(*tensors, **options)
    grad = normal(*out.shape, dtype=dtype, seed=1)
    wanted = [x for x in tensors if x.requires_grad]
    first, *others = (
        torch.autograd.grad(out, wanted, grad, retain_graph=True) for _ in range(runs)
    )
    for other in others:
        assert all(torch.equal(x, y) for x, y in zip(other, first))
    if "dropout_p" not in options:
        expected = right.gradients(variant.formula, tensors, (grad, None))
        assert_right(first, [x for x in expected if x is not None])


def test_bits_by_an_argument():
    q, k, v = (x.detach() for x in inputs())
    out, lse = fa.attention(q, k, v, return_lse=True)
    given = q, k, v, out, lse, normal(*out.shape)
    asked = fa.attention_backward(*given, deterministic=True)
    for x, y in zip(asked[:3], fa.attention_backward(*given, deterministic=True)[:3]):
        assert torch.equal(x, y)
    assert_near(asked[:3], fa.attention_backward(*given, deterministic=False)[:3])


# --- Memory ----------------------------------------------------------------------------


def test_strides():
    """Of inputs, of gradients that come, and of those that go: as of contiguous ones."""
    q, k, v = (x.detach() for x in inputs())
    grad = normal(2, 4, 33, 24)
    expected = of_attention(q, k, v, grad)
    strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v, grad)]
    apart = [x.repeat_interleave(2, -1)[..., ::2] for x in (q, k, v, grad)]
    if DEVICE != "cpu":  # whose kernels want unit stride: of a gradient it is fa's own matter
        apart[:3] = q, k, v
    for given in (strided, apart):
        assert_near(of_attention(*given), expected)


def test_expanded_tensors():
    """Of stride 0: a sum's gradient, and keys that all batch entries share."""
    q, k, v = inputs()
    found = torch.autograd.grad(fa.attention(q, k, v).sum(), (q, k, v))
    assert_near(found, of_attention(q, k, v, torch.ones(2, 4, 33, 24)))
    one = k[:1].detach().requires_grad_()
    (found,) = torch.autograd.grad(fa.attention(q, one.expand(2, -1, -1, -1), v).sum(), one)
    shared = k[:1].detach().expand(2, -1, -1, -1)
    each = of_attention(q, shared, v, torch.ones(2, 4, 33, 24))[1]
    assert_near([found], [each.sum(0, keepdim=True)])


def test_empty():
    bias = torch.zeros(4, 33, 40, requires_grad=True)
    for sizes in ({"rows": 0}, {"keys": 0}, {"batch": 0}):
        tensors = inputs(**sizes)
        out = fa.attention(*tensors, score_mod=lambda s, b, h, i, j: s + bias[h, i, j])
        for x in torch.autograd.grad(out.sum(), (*tensors, bias)):
            assert x.eq(0).all()


# --- What has a gradient ----------------------------------------------------------------


def test_only_what_requires_a_gradient_gets_one():
    q, k, v = (x.detach() for x in inputs())
    slopes, ids = normal(4), torch.arange(40) // 9
    fixed = normal(4)

    def attention():
        return fa.attention(
            *(q, k, v),
            score_mod=lambda s, b, h, i, j: s * fixed[h] + slopes[h] * j / 8,
            mask_mod=lambda b, h, i, j: ids[i] >= ids[j],
        )

    assert not attention().requires_grad
    slopes.requires_grad_()
    attention().sum().backward()
    assert slopes.grad is not None
    assert all(x.grad is None for x in (q, k, v, ids, fixed))
    (exact,) = right.gradients(
        lambda slopes, dtype=None: naive.differentiable(
            *(x.to(slopes.dtype) for x in (q, k, v)),
            score=lambda s, b, h, i, j: s * fixed[h] + slopes[h] * j / 8,
            mask=lambda b, h, i, j: ids[i] >= ids[j],
        ),
        (slopes,),
        (torch.ones(2, 4, 33, 24), None),
    )
    right.assert_right_gradient(slopes.grad, exact)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_nothing_is_recorded_where_it_is_not_wanted(mode):
    tensors = inputs()
    expected = fa.attention(*tensors)
    with mode():
        out, lse = fa.attention(*tensors, return_lse=True)
    for x in (out, lse):
        assert x.grad_fn is None and not x.requires_grad
    assert torch.equal(out, expected)


def test_a_mask_has_no_gradient():
    """A float that only a mask reads: what is seen does not depend on it by degrees."""
    bound = torch.tensor(20.0, requires_grad=True)
    q, k, v = inputs()
    out = fa.attention(q, k, v, mask_mod=lambda b, h, i, j: j < bound)
    *found, of_bound = torch.autograd.grad(out.sum(), (q, k, v, bound), allow_unused=True)
    assert of_bound is None or of_bound == 0
    ones = torch.ones_like(out)
    assert_near(found, of_attention(q, k, v, ones, mask_mod=lambda b, h, i, j: j < 20))


def test_a_number_of_16_bits():
    """A captured tensor without dimensions, in a process of its own."""
    code = """if True:
        import fa, sys, torch
        torch.set_default_device(sys.argv[1])
        x = torch.ones(1, 1, 4, 16)
        cap = torch.tensor(2.0, dtype=torch.bfloat16, requires_grad=True)
        fa.attention(x, x, x, score_mod=lambda s, *at: s * cap).sum().backward()
        assert cap.grad.dtype == torch.bfloat16"""
    done = subprocess.run([sys.executable, "-c", code, DEVICE], stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr


def test_what_where_does_not_choose():
    """It is computed, and 0 times an infinite slope is NaN, as in PyTorch; with an argument
    that is chosen it is not."""
    bias = torch.tensor([0.0, 1.0, 4.0], requires_grad=True)
    q, k, v = (normal(1, 1, 3, 16, seed=n) for n in range(3))
    trap = lambda x: m.where(x > 0, m.sqrt(x), 0.0)  # noqa: E731
    safe = lambda x: m.where(x > 0, m.sqrt(m.where(x > 0, x, 1.0)), 0.0)  # noqa: E731
    scores_of = {
        True: lambda s, b, h, i, j: s + trap(bias[j]),
        False: lambda s, b, h, i, j: s + safe(bias[j]),
    }
    for is_nan, score in scores_of.items():
        out = fa.attention(q, k, v, score_mod=score)
        (found,) = torch.autograd.grad(out.square().sum(), bias)
        assert found.isnan().tolist() == [is_nan, False, False]


# --- PyTorch's ways ---------------------------------------------------------------------


@only_cpu
def test_the_same_bits():
    """Each time, with more threads than one, and with the graph kept."""
    tensors = inputs(rows=130, keys=100)
    variant = SCORES["alibi"]
    slopes = variant.captured(4, 130, 100)[0].requires_grad_()
    out, _ = variant.attention(*tensors, slopes)
    grad = normal(*out.shape)
    found = [
        torch.autograd.grad(out, (*tensors, slopes), grad, retain_graph=True) for _ in range(5)
    ]
    for other in found[1:]:
        for x, y in zip(other, found[0]):
            assert torch.equal(x, y)


def test_accumulation():
    """Two backward passes add up, as of any operator."""
    q, k, v = inputs()
    out = fa.attention(q, k, v)
    out.sum().backward(retain_graph=True)
    once = q.grad.clone()
    out.sum().backward()
    assert_same(q.grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()


def test_second_derivatives_are_refused():
    q, k, v = inputs()
    (found,) = torch.autograd.grad(fa.attention(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"no second derivative.*create_graph"):
        found.sum().backward()


def test_a_tensor_that_was_changed_since():
    q, k, v = inputs()
    bias = normal(4, 33, 40).requires_grad_()
    out = fa.attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[h, i, j])
    with torch.no_grad():
        bias.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_the_same_tensor_more_than_once():
    """As query, key and value; and captured as well."""
    x = normal(2, 4, 24, 16).requires_grad_()
    out = fa.attention(x, x, x, score_mod=lambda s, b, h, i, j: s + x[b, h, i, 0] * x[b, h, j, 1])
    grad = normal(*out.shape)
    (found,) = torch.autograd.grad(out, x, grad)

    def formula(x, dtype=None):
        return naive.differentiable(
            *(x, x, x), score=lambda s, b, h, i, j: s + x[b, h, i, 0] * x[b, h, j, 1]
        )

    assert_right([found], right.gradients(formula, (x,), (grad, None)))


@pytest.mark.parametrize("name", ["alibi", "16-bit table", "strided", "dropout"])
def test_the_operators_give_the_same(name):
    """Eager mode does without them where autograd alone sees the call."""
    variant = SCORES.get(name, SCORES["bias"])
    options = {"dropout_p": 0.25, "dropout_seed": 7} if name == "dropout" else {}
    leaves = tensors = (*inputs(), *learned(*variant.captured(4, 33, 40)))
    if name == "strided":
        leaves = (*tensors[:3], normal(4, 33, 80).requires_grad_())
        tensors = (*tensors[:3], leaves[3][..., ::2])
    found = []
    for is_eager in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not is_eager:
                patch.setattr(op, "_is_eager", lambda tensors: False)
                patch.setattr(_native, "unseen_attention", lambda *arguments: None)
            out, lse = variant.attention(*tensors, **options)
        assert ("fa_attention" in out.grad_fn.name()) == (not is_eager)
        grads = grads_like(out, lse, "out and lse")
        found.append(torch.autograd.grad((out, lse), leaves, grads))
    for x, y in zip(*found):
        assert x.dtype == y.dtype
        assert_same(x, y)


@pytest.mark.parametrize("way", ["plain", "mask", "dropout", "with lse"])
def test_gradients_that_are_known(way):
    """The second call of a kind, forth and back, without the long way."""
    q, k, v = inputs()
    seen = torch.arange(40) % 5 != 1
    options = {"mask": {"mask_mod": lambda b, h, i, j: seen[j]}}
    options["dropout"] = {"dropout_p": 0.25, "dropout_seed": torch.tensor(3)}

    def call(out_grad):
        out, lse = fa.attention(q, k, v, return_lse=True, **options.get(way, {}))
        if way != "with lse":
            return torch.autograd.grad(out, (q, k, v), out_grad)
        return torch.autograd.grad((out, lse), (q, k, v), (out_grad, out_grad[..., 0].contiguous()))

    grad = normal(*q.shape[:3], v.shape[3])
    first = call(grad)
    with pytest.MonkeyPatch.context() as patch:
        refuse = mock.Mock(side_effect=AssertionError("the long way"))
        patch.setattr(backward, "views_of", refuse)
        if way != "dropout":  # which is added to the functions first
            patch.setattr(_attention, "answer", refuse)
        for x, y in zip(first, call(grad)):
            assert x is not y
            assert_same(x, y)
        with pytest.raises(AssertionError, match="the long way"):
            call(grad.transpose(2, 3).contiguous().transpose(2, 3))
    for x, y in zip(first, call(grad.transpose(2, 3).contiguous().transpose(2, 3))):
        assert_same(x, y)


def test_known_gradients_are_of_other_lengths_too():
    """One kernel serves them; shapes that do not fit are refused as before."""
    for rows, keys in ((33, 40), (7, 300), (64, 1)):
        arrays = [x.detach() for x in inputs(rows=rows, keys=keys)]
        out, lse = fa.attention(*arrays, return_lse=True)
        grad = normal(*out.shape)
        by_hand = fa.attention_backward(*arrays, out, lse, grad)
        leaves = [x.clone().requires_grad_() for x in arrays]
        own = torch.autograd.grad(fa.attention(*leaves), leaves, grad)
        for x, y in zip(by_hand, own):
            assert_same(x, y)
        for wrong in (
            (out[:, :, 1:], lse, grad),
            (out, lse.double(), grad),
            (out, lse, grad.half()),
        ):
            with pytest.raises(ValueError, match="give the results of fa.attention"):
                fa.attention_backward(*arrays, *wrong)


def test_no_query_heads():
    """Keys and values that nothing attends to have gradients of 0."""
    q, k, v = inputs()
    found = torch.autograd.grad(fa.attention(q[:, :0], k, v).sum(), (q, k, v))
    assert [x.shape for x in found] == [x.shape for x in (q, k, v)]
    assert not any(x.any() for x in found)
    own = [x.detach().cpu().numpy() for x in (q[:, :0], k, v)]
    results = fa.attention(*own, return_lse=True)
    found = fa.attention_backward(*own, *results, results[0])
    assert not found.k.any() and not found.v.any()


@pytest.mark.parametrize("which", range(6))
def test_known_gradients_read_no_negated_memory(which):
    """A lazily negated tensor's memory has the opposite of its values."""
    arrays = [x.detach() for x in inputs()]
    arrays += fa.attention(*arrays, return_lse=True)
    arrays.append(normal(*arrays[3].shape))
    for _ in range(2):
        fa.attention_backward(*arrays)
    arrays[which] = torch._neg_view(-arrays[which])
    with pytest.raises(ValueError, match=r"lazily negated one .* call resolve_neg\(\)"):
        fa.attention_backward(*arrays)


def test_modes_see_the_operators():
    """What watches or replaces operators, forth and back."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.names.append(function.name())
            return function(*args, **(kwargs or {}))

    q, k, v = inputs()
    with Seen() as seen:
        out = fa.attention(q, k, v)
    assert "fa::attention_with_lse" in seen.names
    for own in (out, fa.attention(q, k, v)):
        with Seen() as seen:
            own.sum().backward()
        assert "fa::attention_backward" in seen.names


def test_batched_gradients_are_refused():
    """By PyTorch, of an operator that has no rule for them, and not by what they lack."""
    q, k, v = inputs()
    out = fa.attention(q, k, v)
    with pytest.raises(RuntimeError, match="Batching rule not implemented"):
        torch.autograd.grad(out, (q, k, v), normal(3, *out.shape), is_grads_batched=True)


def test_hooks_of_what_is_saved():
    """It is kept where they say, and nowhere else."""
    import weakref

    q, k, v = (x.detach() for x in inputs())
    slopes = normal(4).requires_grad_()

    def attention(q):
        score = lambda s, b, h, i, j: s + slopes[h] * j / 8  # noqa: E731
        return fa.attention(q, k, v, score_mod=score)

    (expected,) = torch.autograd.grad(attention(q).sum(), slopes)
    kept = []

    def pack(tensor):
        kept.append(tensor.clone())
        return len(kept) - 1

    copy = q.clone()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda number: kept[number]):
        out = attention(copy)
    assert len(kept) == 6  # query, key, value, slopes, the output and the log-sum-exp
    left = weakref.ref(copy)
    del copy
    assert left() is None
    assert_same(torch.autograd.grad(out.sum(), slopes)[0], expected)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints(use_reentrant):
    from torch.utils.checkpoint import checkpoint

    q, k, v = inputs()
    slopes = normal(4).requires_grad_()

    def model(q, k, v, slopes):
        return fa.attention(
            q, k, v, score_mod=lambda s, b, h, i, j: s + slopes[h] * j, dropout_p=0.25
        )

    def gradients(call):
        torch.manual_seed(1)
        for x in (q, k, v, slopes):
            x.grad = None
        call(q, k, v, slopes).sum().backward()
        return [x.grad.clone() for x in (q, k, v, slopes)]

    expected = gradients(model)
    found = gradients(lambda *tensors: checkpoint(model, *tensors, use_reentrant=use_reentrant))
    for x, y in zip(found, expected):
        assert_same(x, y)


def test_autocast():
    """Gradients come back in the type of what was converted."""
    q, k, v = inputs()
    slopes = normal(4).requires_grad_()
    with torch.autocast(DEVICE, torch.bfloat16):
        out = fa.attention(q, k, v, score_mod=lambda s, b, h, i, j: s + slopes[h] / (j + 1))
    assert out.dtype == torch.bfloat16
    grad = normal(*out.shape, dtype=torch.bfloat16)
    found = torch.autograd.grad(out, (q, k, v, slopes), grad)
    assert all(x.dtype == torch.float32 for x in found)
    rounded = learned(*(x.detach().bfloat16() for x in (q, k, v)), slopes)
    variant = Variant(lambda s, b, h, i, j, slopes: s + slopes[h] / (j + 1))
    assert_right(found, right.gradients(variant.formula, rounded, (grad, None)))


def test_autocast_of_its_own_types():
    """What is of autocast's type already goes the short way, forth and back; the rest does not."""
    q, k, v = inputs(dims=(16, 16), dtype=torch.bfloat16)
    grad = normal(*q.shape, dtype=torch.bfloat16)

    def call(k=k):
        with torch.autocast(DEVICE, torch.bfloat16):
            return torch.autograd.grad(fa.attention(q, k, v), (q, k, v), grad)

    first = call()
    with pytest.MonkeyPatch.context() as patch:
        refuse = mock.Mock(side_effect=AssertionError("the long way"))
        patch.setattr(_attention, "answer", refuse)
        for x, y in zip(first, call()):
            assert_same(x, y)
        with pytest.raises(AssertionError, match="the long way"):
            call(k.detach().float().requires_grad_())


def test_gradcheck_of_directions():
    """The gradient is what the output changes by: no formula but fa's own forward."""
    tensors = inputs(rows=9, keys=11)
    bias = normal(4, 9, 11).requires_grad_()
    variant = SCORES["bias"]
    tensors = (*tensors, bias)
    grad = normal(2, 4, 9, 24)
    found = torch.autograd.grad(variant.attention(*tensors)[0], tensors, grad)
    for number, gradient in enumerate(found):
        step = 1e-2 * gradient / gradient.norm()
        ends = []
        for sign in (1, -1):
            moved = [
                x.detach() + sign * step * (n == number) if n == number else x.detach()
                for n, x in enumerate(tensors)
            ]
            ends.append((variant.attention(*moved)[0] * grad).double().sum())
        slope = float(ends[0] - ends[1]) / 2e-2
        assert slope == pytest.approx(float(gradient.norm()), rel=5e-3)


# --- torch.compile and operators ----------------------------------------------------------


def test_opcheck():
    """The operators' registrations, with gradients."""
    q, k, v = inputs()
    slopes = normal(4).requires_grad_()
    variant = fa.trace(score_mod=fa.scores.alibi(slopes)).to_text()
    operator = torch.ops.fa.attention_with_lse
    torch.library.opcheck(operator, (q, k, v, [slopes]), {"variant": variant})
    out, lse = fa.attention(q, k, v, return_lse=True, score_mod=fa.scores.alibi(slopes))
    results = (out.detach(), lse.detach(), normal(*out.shape), normal(*lse.shape))
    given = [x.detach() for x in (q, k, v)]
    torch.library.opcheck(
        torch.ops.fa.attention_backward,
        (*given, [slopes.detach()], *results),
        {"variant": variant, "wrt": [0]},
    )


@pytest.mark.ci
@needs_functions
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", ["alibi", "relative", None])
def test_compiled(backend, name):
    """The same gradients as without torch.compile, of functions' captured tensors, too."""
    variant = SCORES[name] if name else Variant(is_causal=True)
    tensors = (*inputs(), *learned(*variant.captured(4, 33, 40)))
    grad = normal(2, 4, 33, 24)

    def model(*tensors):
        return variant.attention(*tensors, return_lse=False) * 1.0

    expected = torch.autograd.grad(model(*tensors), tensors, grad)
    found = torch.autograd.grad(compiled(model, backend)(*tensors), tensors, grad)
    for x, y in zip(found, expected):
        assert_same(x, y)


@pytest.mark.ci
@needs_functions
def test_compiled_with_the_log_sum_exp():
    q, k, v = inputs()
    cap = torch.tensor(4.0, requires_grad=True)

    def model(q, k, v, cap):
        out, lse = fa.attention(q, k, v, return_lse=True, score_mod=scores.softcap(cap))
        return out.square().sum() + 0.1 * lse.square().sum()

    tensors = (q, k, v, cap)
    expected = torch.autograd.grad(model(*tensors), tensors)
    for backend in ("aot_eager", "inductor"):
        assert_near(torch.autograd.grad(compiled(model, backend)(*tensors), tensors), expected)


# --- The other doors ------------------------------------------------------------------------


def test_varlen():
    """Each sequence's gradients are those of attention of it alone."""
    lengths = ((5, 0, 17), (5, 3, 20))
    cq, ck = (torch.tensor(np.cumsum([0, *own]), dtype=torch.int32) for own in lengths)
    q, k, v = normal(22, 4, 16), normal(28, 2, 16, seed=1), normal(28, 2, 24, seed=2)
    slopes = normal(4).abs() / 4
    tensors = learned(q, k, v, slopes)
    score = lambda s, b, h, i, j: s - slopes[h] * abs(i - j)  # noqa: E731
    out, lse = fa.attention_varlen(
        q, k, v, cq, ck, score_mod=score, is_causal=True, return_lse=True
    )
    grads = normal(*out.shape), normal(*lse.shape)
    found = gradients_of((out, lse), tensors, grads)

    def formula(q, k, v, slopes, dtype=None):
        outs, lses = [], []
        for n in range(3):
            rows, keys = slice(*cq[n : n + 2]), slice(*ck[n : n + 2])
            one = naive.differentiable(
                *(x[own].transpose(0, 1)[None] for x, own in ((q, rows), (k, keys), (v, keys))),
                score=lambda s, b, h, i, j: s - slopes[h] * abs(i - j),
                mask=lambda b, h, i, j: j <= i,
            )
            outs.append(one[0][0].transpose(0, 1))
            lses.append(one[1][0])
        return torch.cat(outs), torch.cat(lses, -1)

    assert_right(found, right.gradients(formula, tensors, grads))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_tensors(layout):
    """They are those of each of its tensors."""
    parts = [[normal(n, 4, 16, seed=seed).requires_grad_() for n in (5, 17)] for seed in range(3)]
    q, k, v = (torch.nested.as_nested_tensor(own, layout=layout).transpose(1, 2) for own in parts)
    out = fa.attention(q, k, v, is_causal=True)
    sum((x.square().sum() for x in out.unbind()), torch.zeros(())).backward()
    for own in zip(*parts):
        wide = [x.detach().transpose(0, 1)[None].double().requires_grad_() for x in own]
        exact, _ = naive.differentiable(*wide, mask=lambda b, h, i, j: j <= i)
        exact.square().sum().backward()
        for x, y in zip(own, wide):
            expected = right.ExpectedGradient(y.grad[0].transpose(0, 1).cpu().numpy())
            right.assert_right_gradient(x.grad, expected)


def test_flex_attention():
    """Functions and block masks of PyTorch's FlexAttention, and its own gradients."""
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    q, k, v = inputs((4, 4), rows=128, keys=128, dims=(16, 16))
    bias = normal(257).requires_grad_()
    score = lambda s, b, h, i, j: s + bias[i - j + 128]  # noqa: E731
    causal = lambda b, h, i, j: i >= j  # noqa: E731
    options = {"block_mask": flex.create_block_mask(causal, None, None, 128, 128, device=DEVICE)}
    out = fa.torch.flex_attention(q, k, v, score, **options)
    grad = normal(*out.shape)
    found = torch.autograd.grad(out, (q, k, v, bias), grad)
    variant = Variant(
        lambda s, b, h, i, j, bias: s + bias[i - j + 128], mask=lambda b, h, i, j, bias: i >= j
    )
    expected = right.gradients(variant.formula, (q, k, v, bias), (grad, None))
    assert_right(found, expected)


def test_sdpa():
    q, k, v = inputs((4, 4))
    bias = normal(2, 4, 33, 40).requires_grad_()
    out = fa.torch.sdpa(q, k, v, bias)
    grad = normal(*out.shape)
    tensors = (q, k, v, bias)
    found = torch.autograd.grad(out, tensors, grad)
    wide = [x.detach().double().requires_grad_() for x in tensors]
    exact = torch.autograd.grad(F.scaled_dot_product_attention(*wide), wide, grad.double())
    assert_right(found, [right.ExpectedGradient(x.cpu().numpy()) for x in exact])


@pytest.mark.parametrize("door", ["attention", "sdpa", "flex_attention", "use_sdpa"])
def test_the_forward_runs_once(door, monkeypatch):
    """The backward has its log-sum-exp from there, and computes none again."""
    monkeypatch.setattr(fa_sdpa, "slower", lambda *call: None)
    calls = []
    attend, native = op.attend, op._native

    class Counted:
        """`_native`, which counts the forwards that it knows."""

        def __getattr__(self, name):
            return getattr(native, name)

        def attention(self, *call):
            results = native.attention(*call)
            calls.extend([call] if results is not None else [])
            return results

    monkeypatch.setattr(op, "attend", lambda call: (calls.append(call), attend(call))[1])
    monkeypatch.setattr(op, "_native", Counted())
    q, k, v = inputs((4, 4))
    with fa.torch.use_sdpa():
        function = {
            "attention": fa.attention,
            "sdpa": fa.torch.sdpa,
            "flex_attention": fa.torch.flex_attention,
            "use_sdpa": F.scaled_dot_product_attention,
        }[door]
        function(q, k, v).sum().backward()
    assert len(calls) == 1 and q.grad.abs().max() > 0


def test_training():
    """A model of a few parameters comes to the ones that made the data."""
    q, k, v = (x.detach() for x in inputs(rows=20, keys=20))
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.05])
    wanted = fa.attention(q, k, v, score_mod=scores.alibi(slopes), is_causal=True)
    own = torch.full((4,), 0.2, requires_grad=True)
    optimizer = torch.optim.Adam([own], lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        out = fa.attention(q, k, v, score_mod=scores.alibi(own), is_causal=True)
        (out - wanted).square().mean().backward()
        optimizer.step()
    torch.testing.assert_close(own.detach(), slopes, atol=0.02, rtol=0)
