# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa-speculate-max on hostile data: as accurate as the running maximum.

Both forms run on the CPU and are compared with float64. Tiles are 32 x 32, so
that each row meets many blocks; the scale makes a unit of q.k one of log2.
"""

from __future__ import annotations

import functools
import math

import fa
import numpy as np
import pytest
import right as rule
from fa._run.config import AttentionConfig

torch = pytest.importorskip("torch")

ROWS, KEYS, DIM, VALUE_DIM = 64, 320, 32, 48
BLOCK = 32
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}

MASKS = {
    "dense": "",
    "causal": "%seen = arith.cmpi sle, %j, %i : index",
    # 40 keys: row blocks start in the middle of a key block, and in their
    # first block most rows see nothing.
    "window": """
      %d = arith.subi %i, %j : index
      %w = arith.constant 40 : index
      %after = arith.cmpi sle, %j, %i : index
      %near = arith.cmpi slt, %d, %w : index
      %seen = arith.andi %after, %near : i1""",
    # Every third row sees nothing, the others only keys from 64 on.
    "holes": """
      %three = arith.constant 3 : index
      %zero = arith.constant 0 : index
      %start = arith.constant 64 : index
      %r = arith.remui %i, %three : index
      %some = arith.cmpi ne, %r, %zero : index
      %later = arith.cmpi sge, %j, %start : index
      %seen = arith.andi %some, %later : i1""",
}


def seen(mask: str) -> np.ndarray:
    i, j = np.indices((ROWS, KEYS))
    return {
        "dense": i >= 0,
        "causal": j <= i,
        "window": (j <= i) & (i - j < 40),
        "holes": (i % 3 != 0) & (j >= 64),
    }[mask]


@functools.cache
def kernel(dtype: str, mask: str, lse: bool, speculate: str) -> fa.Kernel:
    q, k, v, o = (
        f"tensor<1x{heads}x{n}x{d}x{dtype}>"
        for heads, n, d in (
            (2, ROWS, DIM),
            (1, KEYS, DIM),
            (1, KEYS, VALUE_DIM),
            (2, ROWS, VALUE_DIM),
        )
    )
    results = f"({o}, tensor<1x2x{ROWS}xf32>)" if lse else f"({o})"
    names = "%o, %l" if lse else "%o"
    region = MASKS[mask] and (
        "mask {\n ^bb0(%b: index, %h: index, %i: index, %j: index):\n"
        f"{MASKS[mask]}\n fa.yield %seen : i1 }}"
    )
    ir = f"""func.func @f(%q: {q}, %k: {k}, %v: {v}) -> {results} {{
      {names} = fa.attention %q, %k, %v scale {math.log(2)!r} {region}
        : ({q}, {k}, {v}) -> {results}
      return {names} : {results.strip("()")}
    }}"""
    compiled = fa.compile(ir, rows=BLOCK, keys=BLOCK, speculate=speculate)
    assert ("fa-speculate-max" in compiled.stages) == (speculate == "on")
    return compiled


def run(inputs, dtype, mask="dense", lse=False, speculate="on"):
    out = torch.full((1, 2, ROWS, VALUE_DIM), 7, dtype=TYPES[dtype])
    results = [out] + ([torch.full((1, 2, ROWS), 7.0)] if lse else [])
    kernel(dtype, mask, lse, speculate)(*inputs, *results)
    return [x.double().numpy() for x in results]


def reference(inputs, mask="dense"):
    """float64 (out, lse)."""
    q, k, v = (x.double().numpy() for x in inputs)
    with np.errstate(all="ignore"):
        s = np.where(seen(mask), q @ k.transpose(0, 1, 3, 2) * math.log(2), -np.inf)
        m = s.max(-1, keepdims=True)
        p = np.exp(s - np.where(np.isinf(m), 0, m))
        total = p.sum(-1, keepdims=True)
        out = np.where(total > 0, p / total, 0) @ v
        return out, (m + np.log(total))[..., 0]


def make(dtype, q=None, k=None, v=None, seed=0):
    """Inputs: standard normal, changed by functions of the arrays."""
    rng = np.random.default_rng(seed)
    arrays = [
        rng.standard_normal(shape)
        for shape in ((1, 2, ROWS, DIM), (1, 1, KEYS, DIM), (1, 1, KEYS, VALUE_DIM))
    ]
    arrays[0] *= DIM**-0.5
    for array, change in zip(arrays, (q, k, v), strict=True):
        if change:
            change(array)
    return [torch.tensor(array).to(TYPES[dtype]) for array in arrays]


def set_bias(q):
    """Makes column 0 of k a number that is added to the key's scores."""
    q[..., 0] = 1


def ramp(step):
    """Each block's scores are `step` log2 units above the one before."""

    def change(k):
        k[..., 0] = step * (np.arange(KEYS) // BLOCK)
        if step < 0:
            k[..., 0] -= step * (KEYS // BLOCK)

    return change


def sink(k):
    k[..., 0] = 0
    k[..., 3, 0] = 24


def scaled(factor):
    def change(x):
        x *= factor

    return change


def outlier_channel(x):
    x[..., 5] *= 20


HOSTILE = {
    "normal": {},
    **{f"grow {n}": {"q": set_bias, "k": ramp(n)} for n in (1, 8, 30, 62, 100, 1000)},
    **{f"shrink {n}": {"q": set_bias, "k": ramp(-n)} for n in (1, 30, 1000)},
    "sink": {"q": set_bias, "k": sink},
    "outlier channel": {"q": outlier_channel, "k": outlier_channel},
    "q x 10": {"q": scaled(10)},
    "q x 1000": {"q": scaled(1000)},
    "large v": {"v": scaled(2.0**100)},
    "tiny v": {"v": scaled(2.0**-40)},
    "large v, growing": {"q": set_bias, "k": ramp(30), "v": scaled(2.0**100)},
    "tiny v, growing": {"q": set_bias, "k": ramp(30), "v": scaled(2.0**-40)},
}


# f16 has no values as large or small as some kinds ask for.
CASES = [(d, kind) for d in TYPES for kind in HOSTILE if d == "bf16" or "v" not in HOSTILE[kind]]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("dtype", "kind"), CASES)
def test_error_is_that_of_the_running_maximum(dtype, kind, mask):
    inputs = make(dtype, **HOSTILE[kind])
    exact, exact_lse = reference(inputs, mask)
    (classic,) = run(inputs, dtype, mask, speculate="off")
    (out,) = run(inputs, dtype, mask)
    error, allowed = np.abs(out - exact), np.abs(classic - exact)
    assert error.max() <= 1.5 * allowed.max()
    assert error.mean() <= 1.2 * allowed.mean()
    # The same output with a log-sum-exp, bit by bit.
    with_lse, lse = run(inputs, dtype, mask, lse=True)
    np.testing.assert_array_equal(with_lse, out)
    some = seen(mask).any(-1)
    assert (lse[..., ~some] == -np.inf).all() and (out[..., ~some, :] == 0).all()
    # Scores in the thousands have larger errors of their own in f32.
    _, classic_lse = run(inputs, dtype, mask, lse=True, speculate="off")
    error, allowed = (np.abs(x[..., some] - exact_lse[..., some]) for x in (lse, classic_lse))
    assert (error <= np.maximum(rule.lse_limit(exact_lse[..., some]), 1.5 * allowed.max())).all()


@functools.cache
def alibi_kernel(keys: int, magnitude: bool, causal: bool, **options) -> fa.Kernel:
    """score + slopes[h] d, or - slopes[h] |d|, of the distance d to the diagonal that
    ends in the last row's last key."""
    q, k, o = (f"tensor<1x2x{n}x{DIM}xbf16>" for n in (ROWS, keys, ROWS))
    results = f"{o}, tensor<1x2x{ROWS}xf32>"
    distance = f"""
      %last = arith.constant {keys - ROWS} : index
      %row = arith.addi %i, %last : index
      %d = arith.subi %j, %row : index"""
    size = """
      %zero = arith.constant 0 : index
      %minus = arith.subi %zero, %d : index
      %size = arith.maxsi %d, %minus : index"""
    ir = f"""func.func @f(%q: {q}, %k: {k}, %v: {k}, %slopes: tensor<2xf32>) -> ({results}) {{
      %o, %l = fa.attention %q, %k, %v scale {DIM**-0.5!r} score {{
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %slope = tensor.extract %slopes[%h] : tensor<2xf32>
        {distance}
        {size if magnitude else ""}
        %n = arith.index_cast {"%size" if magnitude else "%d"} : index to i32
        %f = arith.sitofp %n : i32 to f32
        %bias = arith.mulf %slope, %f : f32
        %y = {"arith.subf" if magnitude else "arith.addf"} %s, %bias : f32
        fa.yield %y : f32
      }} mask {{
      ^bb0(%b: index, %h: index, %i: index, %j: index):
        {distance}
        %zero = arith.constant {0 if causal else keys} : index
        %seen = arith.cmpi sle, %d, %zero : index
        fa.yield %seen : i1
      }} : ({q}, {k}, {k}) -> ({results})
      return %o, %l : {results}
    }}"""
    return fa.compile(ir, schedule={"rows": BLOCK, "keys": BLOCK, **options})


@pytest.mark.parametrize("keys", [320, 65536])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("magnitude", [False, True])
@pytest.mark.parametrize("slopes", [(0.7, 2**-8), (0, -0.7), (100, 1e4), (math.nan, math.inf)])
def test_bias_of_the_distance(slopes, magnitude, causal, keys):
    rng = np.random.default_rng(0)
    inputs = [
        torch.tensor(rng.standard_normal((1, 2, n, DIM))).to(torch.bfloat16)
        for n in (ROWS, keys, keys)
    ]
    outs = {}
    for speculate in ("on", "off", "descending"):
        options = {"speculate": speculate, "order": "ascending"}
        if speculate == "descending":
            options = {"speculate": "on", "order": "descending"}
        out = torch.full((1, 2, ROWS, DIM), 7, dtype=torch.bfloat16)
        lse = torch.full((1, 2, ROWS), 7.0)
        kernel = alibi_kernel(keys, magnitude, causal, **options)
        kernel(*inputs, torch.tensor(slopes, dtype=torch.float32), out, lse)
        outs[speculate] = out.double().numpy(), lse.double().numpy()
    q, k, v = (x.double().numpy() for x in inputs)
    with np.errstate(all="ignore"):
        d = np.arange(keys)[None, :] - (np.arange(ROWS)[:, None] + keys - ROWS)
        bias = np.asarray(slopes, "f4").astype("f8")[:, None, None] * (-abs(d) if magnitude else d)
        s = q @ k.transpose(0, 1, 3, 2) * DIM**-0.5 + bias
        s = np.where((d <= 0) | (not causal), s, -np.inf)
        m = s.max(-1, keepdims=True)
        p = np.exp(s - m)
        exact = (p / p.sum(-1, keepdims=True)) @ v, (m + np.log(p.sum(-1, keepdims=True)))[..., 0]
    pairs = [(outs[name], outs["off"]) for name in ("on", "descending")]
    for got, classic, right in (x for pair in pairs for x in zip(*pair, exact, strict=True)):
        finite = np.isfinite(right)
        np.testing.assert_array_equal(np.isfinite(got), finite)
        # In units of f32: scores of 1e8 have errors of their own.
        size = np.maximum(1, abs(right[finite]))
        error, allowed = (abs(x[finite] - right[finite]) / size for x in (got, classic))
        if finite.any():
            # Of outputs one rounding to bfloat16.
            least = rule.LSE["float32"] if right.ndim == 3 else 2.0**-8
            assert error.max() <= max(least, 1.5 * allowed.max())


def put(row, value, column=slice(None)):
    def change(x):
        x[..., row, column] = value

    return change


NOT_FINITE = {
    f"{name} {value} at {row}": {name: put(row, value, 1 if name == "v" else 0)}
    for name, row in (("q", 40), ("k", 3), ("k", 200), ("v", 3), ("v", 200))
    for value in (math.nan, math.inf, -math.inf)
}


@pytest.mark.parametrize("mask", ["dense", "causal", "window"])
@pytest.mark.parametrize("kind", NOT_FINITE)
@pytest.mark.parametrize("dtype", TYPES)
def test_nan_and_infinity_stay_where_they_are(dtype, kind, mask):
    inputs = make(dtype, **NOT_FINITE[kind])
    classic, classic_lse = run(inputs, dtype, mask, lse=True, speculate="off")
    out, lse = run(inputs, dtype, mask, lse=True)
    np.testing.assert_array_equal(np.isfinite(out), np.isfinite(classic))
    np.testing.assert_array_equal(np.isnan(out), np.isnan(classic))
    np.testing.assert_array_equal(np.isnan(lse), np.isnan(classic_lse))
    both = np.isfinite(out)
    expected = rule.attention(*inputs, scale=math.log(2), mask=lambda *at: seen(mask))
    both &= np.isfinite(expected.out)
    assert np.abs(out[both] - expected.out[both]).max(initial=0) <= expected.limit
    both = np.isfinite(lse)
    np.testing.assert_array_equal(both, np.isfinite(classic_lse))
    assert np.abs(lse[both] - classic_lse[both]).max(initial=0) <= rule.LSE["float32"]


def test_a_row_that_one_key_dominates_is_exact():
    """The weight's rounding is in its sum, too: V's own bits come out."""

    def dominant(k):
        k[..., 0] = 0
        k[..., 250, 0] = 40.3

    inputs = make("bf16", q=set_bias, k=dominant)
    (out,) = run(inputs, "bf16")
    expected = inputs[2].double().numpy()[:, :, 250:251]
    np.testing.assert_array_equal(out, np.broadcast_to(expected, out.shape))


def test_rows_depend_on_their_neighbours_by_rounding_only():
    """Rows move with neighbours that overflow: to the same numbers, rounded again."""
    calm = make("bf16")
    wild = [x.clone() for x in calm]
    wild[0][:, :, ::2] *= 300
    (a,), (b,) = run(calm, "bf16"), run(wild, "bf16")
    # One rounding of weights to bf16, one of the result.
    np.testing.assert_allclose(a[:, :, 1::2], b[:, :, 1::2], rtol=2**-7, atol=2**-8)
    assert (a[:, :, ::2] != b[:, :, ::2]).any()


def test_options_are_checked():
    config = AttentionConfig("bf16", 1, 1, 16, 16)
    with pytest.raises(ValueError, match="unknown speculate 'yes'; expected auto, on or off"):
        fa.compile(config, speculate="yes")
    with pytest.raises(ValueError, match="got on; only fa2"):
        fa.compile(config, algorithm="standard", speculate="on")
