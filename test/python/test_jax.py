# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of JAX, and functions written with jax.numpy, jax.lax and jax.nn.

The reference calls the same function by `jax.vmap` over the coordinates, in float64.
"""

from __future__ import annotations

import functools
import subprocess
import sys

import fa
import naive
import numpy as np
import pytest
import right

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax

HEADS, LENGTH, DIM = 2, 20, 16
Q, K, V = naive.inputs(2, HEADS, 1, LENGTH, LENGTH, DIM)
BIAS = jax.random.normal(jax.random.key(0), (HEADS, LENGTH, LENGTH))
SLOPES = jnp.array([0.5, -0.25])
IDS = jnp.arange(LENGTH) // 6
TABLE = jax.random.normal(jax.random.key(1), (LENGTH, 4))


def of_all(function, *score):
    """A function of numbers, of every coordinate, in float64."""
    with jax.enable_x64(True):
        at = [jnp.arange(n) for n in (2, HEADS, LENGTH, LENGTH)]
        for dim in (3, 2, 1, 0):
            dims = tuple(0 if n == dim else None for n in range(4))
            function = jax.vmap(function, (0, *dims) if score else dims)
        return np.asarray(function(*map(jnp.asarray, score), *at))


def check(score=None, mask=None, **options):
    """Options are right.attention's."""
    arrays = tuple(map(jnp.asarray, (Q, K, V)))
    out, lse = fa.attention(*arrays, score_mod=score, mask_mod=mask, return_lse=True)
    assert isinstance(out, jax.Array) and isinstance(lse, jax.Array)
    if score is not None:
        options["score"] = lambda s, *at: of_all(score, s)
    if mask is not None:
        options["mask"] = lambda *at: of_all(mask)
    right.assert_right(out, right.attention(Q, K, V, **options), lse)


def test_plain():
    out = fa.attention(*map(jnp.asarray, (Q, K, V)), is_causal=True)
    wanted = right.attention(Q, K, V, mask=lambda b, h, i, j: j <= i)
    assert isinstance(out, jax.Array)
    right.assert_right(np.asarray(out), wanted)


def gelu_of_nn(s, b, h, i, j):
    return jax.nn.gelu(s) + jax.nn.silu(s) - jax.nn.sigmoid(s) + jax.nn.softplus(s)


@jax.jit
def helper(x, y):
    return jnp.where(x > y, x, y * 0.5)


@jax.custom_jvp
def own_rule(x):
    return jnp.tanh(x) * 2


own_rule.defjvp(lambda primals, tangents: (own_rule(*primals), tangents[0]))

SCORES = {
    "where": lambda s, b, h, i, j: jnp.where(i >= j, s, s * 0.5),
    "minus infinity": lambda s, b, h, i, j: jnp.where(i >= j, s, -jnp.inf),
    "tanh": lambda s, b, h, i, j: 5 * jnp.tanh(s / 5),
    "gelu": gelu_of_nn,
    "gelu, exact": lambda s, b, h, i, j: jax.nn.gelu(s, approximate=False),
    "relu": lambda s, b, h, i, j: jax.nn.relu(s) + jax.nn.relu6(s) - jax.nn.leaky_relu(s),
    "elu": lambda s, b, h, i, j: jax.nn.elu(s) + jax.nn.celu(s) + jax.nn.selu(s),
    "own rule": lambda s, b, h, i, j: own_rule(s),
    "log_sigmoid": lambda s, b, h, i, j: jax.nn.log_sigmoid(s) + jax.nn.hard_tanh(s),
    "powers": lambda s, b, h, i, j: s**2 + jnp.power(jnp.abs(s) + 1, 0.5) + jnp.square(s) + s**3,
    "functions": lambda s, b, h, i, j: (
        jnp.exp(-jnp.abs(s)) + jnp.log1p(jnp.abs(s)) + jnp.sqrt(s * s + 1) + jnp.sin(s) * jnp.cos(s)
    ),
    "more functions": lambda s, b, h, i, j: (
        jnp.arctan2(s, 2.0) + jnp.expm1(s * 0.1) + jnp.sinh(s * 0.1) + jnp.log2(s * s + 1)
    ),
    "rounding": lambda s, b, h, i, j: jnp.floor(s) + jnp.ceil(s) + jnp.round(s) + jnp.trunc(s),
    "lax.round": lambda s, b, h, i, j: lax.round(s) + s,
    "clip": lambda s, b, h, i, j: jnp.clip(s, -1, 1) + jnp.maximum(s, 0) + jnp.minimum(s, 0.5),
    "lax.clamp": lambda s, b, h, i, j: lax.clamp(-1.0, s, 1.0) + lax.max(s, 0.0) + lax.min(s, 0.0),
    "lax.select": lambda s, b, h, i, j: lax.select(i > j, s, -s),
    "lax": lambda s, b, h, i, j: lax.mul(lax.add(s, 1.0), lax.rsqrt(lax.abs(s) + 1)),
    "lax.fori_loop": lambda s, b, h, i, j: lax.rsqrt(lax.integer_pow(s, 2) + 1),
    "signs": lambda s, b, h, i, j: jnp.sign(s) + jnp.where(jnp.isnan(s), 0.0, s),
    "logaddexp": lambda s, b, h, i, j: jnp.logaddexp(s, 0.5),
    "integers": lambda s, b, h, i, j: (
        s + (i // 3) * 0.1 + (i % 3) * 0.2 + ((i - j) // 4) * 0.1 + ((i - j) % 5) * 0.1
    ),
    "integers of lax": lambda s, b, h, i, j: (
        s + lax.div(i - j, jnp.asarray(3, i.dtype)) * 0.1 + lax.rem(i - j, jnp.asarray(3, i.dtype))
    ),
    "bits": lambda s, b, h, i, j: s + ((i & 3) + (i | 4) + (i ^ j) + (i << 1) + (i >> 1)) * 0.01,
    "conversions": lambda s, b, h, i, j: (
        s + (s * 2).astype(jnp.int32) + i.astype(jnp.float32) * 0.1 + (i > j) * 0.5
    ),
    "bias": lambda s, b, h, i, j: s + BIAS[h, i, j],
    "bias by parts": lambda s, b, h, i, j: s + BIAS[h][i, j] + BIAS[h, i][j],
    "slopes": lambda s, b, h, i, j: s + SLOPES[h] * (j - i),
    "at": lambda s, b, h, i, j: s + BIAS.at[h, i, j].get() + jnp.take(SLOPES, h),
    "dynamic index": lambda s, b, h, i, j: s + lax.dynamic_index_in_dim(SLOPES, h, keepdims=False),
    "index of an index": lambda s, b, h, i, j: s + SLOPES[IDS[j] % 2] * 2,
    "negative": lambda s, b, h, i, j: s + BIAS[-1, i - j, j - LENGTH],
    "beyond the end": lambda s, b, h, i, j: s + BIAS[h + 5, i + 7, j],
    "dot": lambda s, b, h, i, j: s + jnp.dot(TABLE[i], TABLE[j]) + TABLE[i] @ TABLE[j],
    "rows": lambda s, b, h, i, j: s + jnp.sum(TABLE[i] * 2 - TABLE[j]) + TABLE[i].max(),
    "mean": lambda s, b, h, i, j: s + jnp.mean(TABLE[i]) + jnp.linalg.norm(TABLE[j]),
    "helper": lambda s, b, h, i, j: helper(s, 0.25) + helper(i, j) * 0.1,
    "partial": functools.partial(lambda factor, s, b, h, i, j: jnp.tanh(s) * factor, 2.0),
    "array of one": lambda s, b, h, i, j: s * jnp.float32(0.5) + jnp.array(1.5) * jnp.cos(s),
    "array made inside": lambda s, b, h, i, j: s + jnp.array([1.0, 2.0])[h] + jnp.arange(20.0)[i],
    "operators alone": lambda s, b, h, i, j: s * 2 + (i - j) * 0.1,
}


@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    check(SCORES[name], has_large_scores=True, score_error=right.approximated(4, "cpu"))


MASKS = {
    "causal": lambda b, h, i, j: j <= i,
    "logical": lambda b, h, i, j: jnp.logical_or(jnp.logical_and(j <= i, i - j < 7), j == 0),
    "documents": lambda b, h, i, j: IDS[i] == IDS[j],
    "documents and not": lambda b, h, i, j: (IDS[i] == IDS[j]) & ~(j > i),
    "any of a row": lambda b, h, i, j: jnp.any((TABLE[i] > 0) & (TABLE[j] > 0)) | (i == j),
    "combined": fa.masks.and_masks(fa.masks.causal, lambda b, h, i, j: jnp.abs(i - j) < 9),
    "named": fa.masks.documents(IDS),
    "true": lambda b, h, i, j: jnp.bool_(True),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    check(mask=MASKS[name])


def test_functions_of_others():
    """What JAX has no part in is not done by its rules, where that is imported, too."""
    row = np.arange(LENGTH)
    for function, message in (
        (lambda s, b, h, i, j: s + i // 0, "divides an integer by 0"),
        (lambda s, b, h, i, j: s + row[i] + BIAS[2, i, j], "index 2 is out of range"),
        (lambda s, b, h, i, j: s if i > j else -s, "needs the truth"),
    ):
        with pytest.raises(fa.TraceError, match=message):
            fa.attention(*map(jnp.asarray, (Q, K, V)), score_mod=function)


def test_nothing_is_left_of_a_first_attempt():
    """Which JAX could not go on with: neither ops nor arrays nor lengths."""
    bias = np.asarray(BIAS)

    def first(s, b, h, i, j):
        return jnp.tanh(s + bias[h, i, j] + fa.key_length())

    def second(s, b, h, i, j):
        return jnp.tanh(s) + bias[h, i, j] + fa.key_length()

    for function in (first, second):
        variant = fa.trace(score_mod=function)
        assert len(variant.arrays) == 1 and variant.lengths == ("key_length",)
        assert str(variant).count("tensor.extract") == 1


def test_arrays_in_containers():
    tables = {"bias": [BIAS], "numpy": fa.array(np.asarray(BIAS))}
    check(lambda s, b, h, i, j: s + tables["bias"][0][h, i, j])
    out = fa.attention(
        *map(jnp.asarray, (Q, K, V)),
        score_mod=lambda s, b, h, i, j: jnp.tanh(s) + tables["numpy"][h, i, j],
    )
    bias = np.asarray(BIAS)
    wanted = right.attention(
        *(Q, K, V),
        score=lambda s, b, h, i, j: np.tanh(s) + bias[h, i, j],
        score_error=right.approximated(1, "cpu"),
    )
    right.assert_right(out, wanted)


def test_named_scores():
    check(fa.scores.bias(BIAS))
    score = fa.scores.compose(fa.scores.softcap(3.0), lambda s, b, h, i, j: jnp.tanh(s))
    out = fa.attention(*map(jnp.asarray, (Q, K, V)), score_mod=score)
    wanted = right.attention(Q, K, V, score=lambda s, *at: np.tanh(3 * np.tanh(s / 3)))
    right.assert_right(np.asarray(out), wanted)


def test_numpy_arrays():
    """Captured by functions of JAX, which hand them to it, or indexed as they are."""
    bias, row = np.asarray(BIAS), np.asarray(TABLE[0])
    check(lambda s, b, h, i, j: s + jnp.asarray(bias)[h, i, j])
    out = fa.attention(
        *map(jnp.asarray, (Q, K, V)), score_mod=lambda s, b, h, i, j: jnp.tanh(s) + bias[h, i, j]
    )
    wanted = right.attention(Q, K, V, score=lambda s, b, h, i, j: np.tanh(s) + bias[h, i, j])
    right.assert_right(np.asarray(out), wanted)
    check(lambda s, b, h, i, j: s + jnp.dot(TABLE[i], row))


def test_lengths():
    def mask(b, h, i, j):
        return jnp.less_equal(j - i, fa.key_length() - fa.query_length())

    q = jnp.asarray(Q[:, :, :7])
    out = fa.attention(q, jnp.asarray(K), jnp.asarray(V), mask_mod=mask)
    wanted = right.attention(Q[:, :, :7], K, V, mask=lambda b, h, i, j: j - i <= LENGTH - 7)
    right.assert_right(np.asarray(out), wanted)
    lengths = fa.trace(mask_mod=mask).lengths
    assert lengths == ("key_length", "query_length")
    assert fa.trace(mask_mod=lambda b, h, i, j: jnp.equal(i, j)).lengths == ()


def test_other_values_are_seen():
    """JAX's arrays don't change; functions that are made for others do."""
    for factor in (0.5, 2.0):
        slopes = jnp.full(HEADS, factor)
        check(lambda s, b, h, i, j, slopes=slopes: jnp.tanh(s) * slopes[h])


def test_errors():
    def message(function):
        with pytest.raises(fa.TraceError) as caught:
            fa.attention(*map(jnp.asarray, (Q, K, V)), score_mod=function)
        return str(caught.value)

    text = message(lambda s, b, h, i, j: jax.scipy.special.digamma(s))
    assert "can't be traced" in text and "test_jax.py" in text
    text = message(lambda s, b, h, i, j: jnp.cumsum(TABLE[i])[0])
    assert "JAX's cumsum can't be traced; use" in text
    text = message(lambda s, b, h, i, j: s if s > jnp.float32(0) else -jnp.tanh(s))
    assert "needs the truth" in text
    text = message(lambda s, b, h, i, j: jnp.tanh(s) > 0)
    assert "expected score_mod to return a float, got a traced boolean" in text
    text = message(lambda s, b, h, i, j: lax.sort(TABLE[i])[0])
    assert "JAX's sort can't be traced" in text
    text = message(lambda s, b, h, i, j: jnp.nextafter(s, jnp.float32(0)))
    assert "JAX's nextafter can't be traced" in text
    with pytest.raises(KeyError):
        fa.attention(*map(jnp.asarray, (Q, K, V)), score_mod=lambda s, *at: jnp.tanh(s) + {}["a"])


def test_transformations_of_jax():
    q, k, v = map(jnp.asarray, (Q, K, V))
    for transform, message in (
        (jax.jit(fa.attention), "jax.jit.*jax.pure_callback"),
        (jax.jit(lambda q, k, v: fa.attention(q, k, v, mask_mod=fa.masks.causal)), "pure_callback"),
        (jax.grad(lambda *x: fa.attention(*x).sum()), "jax.grad.*use fa.attention_backward"),
        (jax.vmap(fa.attention), "jax.vmap.*a dimension for batch entries"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            transform(q, k, v)
    bias = jnp.zeros((HEADS, LENGTH, LENGTH))
    with pytest.raises(NotImplementedError, match=r"jax.jit.*pure_callback"):
        jax.jit(lambda x: fa.attention(q, k, v, score_mod=fa.scores.bias(x)))(bias)


def test_the_recipe_for_jit():
    def attention(q, k, v):
        shape = jax.ShapeDtypeStruct(q.shape, q.dtype)
        return jax.pure_callback(lambda *x: fa.attention(*x, is_causal=True), shape, q, k, v)

    q, k, v = map(jnp.asarray, (Q, K, V))
    out = jax.jit(lambda q: attention(q * 2, k, v) + 1)(q)
    wanted = right.attention(2 * Q, K, V, mask=lambda b, h, i, j: j <= i)
    right.assert_right(np.asarray(out) - 1, wanted)


def test_jax_is_not_imported():
    code = "import sys, fa, numpy as np; x = np.ones((1, 1, 4, 16), 'f4'); "
    code += "fa.attention(x, x, x, mask_mod=fa.masks.causal); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
