# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every function of the table of scalar semantics, over all decades of float32, both signs
and its edges, against float64.

Attention to one key has its score as the log-sum-exp, so a call gives the value of a score
function in each row.
"""

from __future__ import annotations

import types

import fa
import numpy as np
import pytest
from libraries import DEVICE

torch = pytest.importorskip("torch")
F = torch.nn.functional

LARGEST = 1e8
"""Values beyond it are compared as it: scores are below 1e9."""
IS_NAN = 12345.0
SMALLEST = 2.0**-126

EDGES = [0.0, -0.0, 1e-45, -1e-45, 1e-40, -1e-40, 2**-126, 1.9999998, 0.99999994, -0.99999994]
EDGES += [0.5, -0.5, 1.5, 2.5, -2.5, 0.25, 0.35, 0.7853982, 3.1415927, 100.0, 7006.0, 2.0**23 + 1]
EDGES += [2.0**24, 88.7, -87.4, 709.0, 3.4028235e38, -3.4028235e38]
EDGES += [float("inf"), float("-inf"), float("nan")]


def decades(*mantissas):
    """Numbers of all decades, both signs, and edges, as float32."""
    numbers = [s * m * 10.0**d for d in range(-38, 39) for m in mantissas for s in (1, -1)]
    with np.errstate(over="ignore"):
        return np.array([*numbers, *EDGES], np.float32)


ONE = decades(1.0, 1.5707964, 7.3)
PAIRS = tuple(
    x.reshape(-1)
    for x in np.meshgrid(
        np.array([*[s * 1.7 * 10.0**d for d in range(-38, 39, 4) for s in (1, -1)], *EDGES], "f4"),
        np.array([*[s * 2.3 * 10.0**d for d in range(-38, 39, 9) for s in (1, -1)], *EDGES[::2]], "f4"),
    )
)  # fmt: skip


def truncated(x, y):
    """x / y towards 0, an integer: x less the remainder, divided; x / 0 of 0."""
    return np.where(y == 0, x / y, np.round((x - np.fmod(x, y)) / y))


def rounded_down(x, y):
    """x // y: the same, and one less where that is above x / y."""
    rest = np.fmod(x, y)
    return truncated(x, y) - ((rest != 0) & ((rest < 0) != (y < 0)))


# A function of PyTorch, of NumPy in float64, and the error that it may have: a share of
# the value, and a number. `by_argument`: how many roundings of the argument it has, which
# move an exponential by as many of its size.
UNARY = {
    "exp": (torch.exp, np.exp, 3e-7, 1e-37, 2),
    "exp2": (torch.exp2, np.exp2, 3e-7, 1e-37, 0),
    "expm1": (torch.expm1, np.expm1, 4e-7, 0, 2),
    "log": (torch.log, np.log, 2e-7, 3e-7, 0),
    "log2": (torch.log2, np.log2, 2e-7, 4e-7, 0),
    "log10": (torch.log10, np.log10, 3e-7, 2e-7, 0),
    "log1p": (torch.log1p, np.log1p, 4e-7, 2e-45, 0),
    "sqrt": (torch.sqrt, np.sqrt, 2e-7, 0, 0),
    "rsqrt": (torch.rsqrt, lambda x: 1 / np.sqrt(x), 3e-7, 0, 0),
    "reciprocal": (torch.reciprocal, lambda x: 1 / x, 2e-7, 2e-38, 0),
    "sin": (torch.sin, np.sin, 2e-7, 2e-7, 0),
    "cos": (torch.cos, np.cos, 2e-7, 2e-7, 0),
    "tan": (torch.tan, np.tan, 1e-6, 0, 0),
    "sinh": (torch.sinh, np.sinh, 4e-7, 0, 2),
    "cosh": (torch.cosh, np.cosh, 4e-7, 0, 2),
    # On GPUs 1 - 2 / (1 + e^2x).
    "tanh": (torch.tanh, np.tanh, 1e-6, 3e-7, 0),
    "asin": (torch.asin, np.arcsin, 1e-6, 2e-45, 0),
    "acos": (torch.acos, np.arccos, 1e-6, 1e-6, 0),
    "atan": (torch.atan, np.arctan, 1e-6, 0, 0),
    "asinh": (torch.asinh, np.arcsinh, 1e-6, 0, 0),
    "acosh": (torch.acosh, np.arccosh, 1e-6, 3e-7, 0),
    "atanh": (torch.atanh, np.arctanh, 1e-6, 0, 0),
    "erf": (torch.erf, lambda x: torch.erf(torch.from_numpy(x)).numpy(), 1e-6, 1e-7, 0),
    "sigmoid": (torch.sigmoid, lambda x: 1 / (1 + np.exp(-x)), 4e-7, 1e-37, 2),
    "softplus": (F.softplus, lambda x: np.logaddexp(0, x), 1e-6, 1e-8, 0),
    "floor": (torch.floor, np.floor, 0, 0, 0),
    "ceil": (torch.ceil, np.ceil, 0, 0, 0),
    "round": (torch.round, np.round, 0, 0, 0),
    "trunc": (torch.trunc, np.trunc, 0, 0, 0),
    "frac": (torch.frac, lambda x: x - np.trunc(x), 0, 0, 0),
    "abs": (torch.abs, np.abs, 0, 0, 0),
    "neg": (torch.neg, np.negative, 0, 0, 0),
    "sign": (torch.sign, np.sign, 0, 0, 0),
    "square": (torch.square, np.square, 1e-7, 1e-37, 0),
    "relu": (torch.relu, lambda x: np.maximum(x, 0), 0, 0, 0),
}
BINARY = {
    "+": (lambda x, y: x + y, np.add, 1e-7, 2e-45, 0),
    "-": (lambda x, y: x - y, np.subtract, 1e-7, 2e-45, 0),
    "*": (lambda x, y: x * y, np.multiply, 1e-7, 2e-38, 0),
    "/": (lambda x, y: x / y, np.divide, 3e-7, 2e-38, 0),
    "//": (lambda x, y: x // y, rounded_down, 3e-7, 0, 0),
    "%": (lambda x, y: x % y, np.mod, 1.3e-7, 2e-45, 0),
    "fmod": (torch.fmod, np.fmod, 0, 2e-45, 0),
    "trunc of /": (lambda x, y: torch.div(x, y, rounding_mode="trunc"),
                   truncated, 3e-7, 0, 0),
    "minimum": (torch.minimum, np.minimum, 0, 0, 0),
    "maximum": (torch.maximum, np.maximum, 0, 0, 0),
    "copysign": (torch.copysign, np.copysign, 0, 0, 0),
    "atan2": (torch.atan2, np.arctan2, 3e-6, 2e-38, 0),
    "logaddexp": (torch.logaddexp, np.logaddexp, 1e-6, 3e-7, 0),
}  # fmt: skip


def values(function, *arguments, on):
    """The function's values as a score function's, in float64."""
    captured = [torch.from_numpy(x.copy()).to(DEVICE) for x in arguments]

    def score(s, b, h, i, j):
        x = function(*(c[i] for c in captured))
        return torch.where(torch.isnan(x), IS_NAN, torch.clamp(x, -LARGEST, LARGEST)) + 0 * s

    count = len(arguments[0])
    if on == "emulator":
        import variant_fuzzer

        rows = [np.zeros((1, 1, n, 16), "f4") for n in (count, 1, 1)]
        given = [variant_fuzzer.EmulatedArray(x, "float16") for x in rows]
        case = types.SimpleNamespace(
            dtype="float16", heads=(1, 1), dims=(16, 16), is_causal=False, scale=None
        )
        lse = variant_fuzzer.emulated(case, score, None, given)[1]
    else:
        q, k, v = (torch.zeros(1, 1, n, 16, device=DEVICE) for n in (count, 1, 1))
        lse = fa.attention(q, k, v, score_mod=score, return_lse=True)[1].cpu().double().numpy()
    return lse.reshape(-1)


def flushed(x):
    """The numbers, denormal ones as 0 of their sign: GPUs' arithmetic takes them for it."""
    return np.where(np.abs(x) < SMALLEST, np.copysign(np.float32(0), x), x)


def expected(entry, arguments):
    """A function's values in float64, and how far from them a number may be."""
    _, exact, share, number, by_argument = entry
    wide = [x.astype(np.float64) for x in arguments]
    with np.errstate(all="ignore"):
        want = exact(*wide)
        # A score is scaled to log2 and back: two roundings of it.
        allowed = (share + 2.0**-22) * np.abs(want) + number
        if by_argument:
            allowed += by_argument * 2.0**-24 * np.abs(want * wide[0])
    allowed = np.nan_to_num(allowed, nan=0.0, posinf=0.0)
    return np.where(np.isnan(want), IS_NAN, np.clip(want, -LARGEST, LARGEST)), allowed


def check(name, table, arguments, on):
    if on == "cuda" and name in ("//", "%", "trunc of /", "fmod"):
        # Remainders of a small divisor may be denormal.
        is_usual = ~((arguments[1] != 0) & (np.abs(arguments[1]) < 2.0**-100))
        arguments = [x[is_usual] for x in arguments]
    got = values(table[name][0], *arguments, on=on)
    want, allowed = expected(table[name], arguments)
    is_right = np.abs(got - want) <= allowed
    if on == "cuda":
        # Denormal numbers may count as 0, arguments and results.
        other, allowed = expected(table[name], [flushed(x) for x in arguments])
        is_right |= np.abs(got - want) <= 4 * SMALLEST
        is_right |= np.abs(got - other) <= allowed + 4 * SMALLEST
    bad = np.flatnonzero(~is_right)
    lines = [
        f"{name}({', '.join(f'{x[n]:.9g}' for x in arguments)}) = {got[n]:.9g}, "
        f"expected {want[n]:.9g}"
        for n in bad[:12]
    ]
    assert not len(bad), f"{len(bad)} of {len(got)}:\n" + "\n".join(lines)


@pytest.mark.parametrize("name", UNARY)
def test_of_one(name):
    check(name, UNARY, (ONE,), DEVICE)


@pytest.mark.parametrize("name", BINARY)
def test_of_two(name):
    check(name, BINARY, PAIRS, DEVICE)


only_cpu = pytest.mark.skipif(DEVICE != "cpu", reason="runs on a GPU")


@only_cpu
@pytest.mark.parametrize("name", UNARY)
def test_of_one_as_ptx(name):
    check(name, UNARY, (ONE[::3],), "emulator")


@only_cpu
@pytest.mark.parametrize("name", BINARY)
def test_of_two_as_ptx(name):
    check(name, BINARY, tuple(x[::5] for x in PAIRS), "emulator")


@only_cpu
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_gradients_compile_for_gpus(chip):
    """Derivatives have a lowering, too."""

    def score(s, b, h, i, j):
        x = s + i
        one = sum(function(x) for function, *_ in UNARY.values())
        return one + sum(function(x, s * 2) for function, *_ in BINARY.values())

    variant = fa.trace(score_mod=score)
    config = fa.AttentionConfig("bf16", 2, 2, 64, 64, variant=variant)
    assert "math.cosh" in fa.compile(config, chip, backward="all").stages["fa-differentiate"]
