# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Score and mask functions in Python: what is traced, what is refused, what is kept."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import math
import pickle
import re

import fa
import naive
import numpy as np
import pytest
import right
from fa._trace import memo as _memo
from fa._trace import trace as _trace

HEADS, LENGTH, DIM = 2, 24, 16
Q, K, V = naive.inputs(2, HEADS, 1, LENGTH, LENGTH, DIM)
BIAS = np.random.default_rng(0).standard_normal((HEADS, LENGTH, LENGTH)).astype(np.float32)
ERRORS = dict(zip(("rtol", "atol"), right.FUNCTION["float32"]))
IDS = (np.arange(LENGTH) // 5).astype(np.int64)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def check(
    score=None, mask=None, *, expected_score=None, expected_mask=None, arrays=(Q, K, V), **options
):
    """Functions of traced values against functions of arrays: the same if not given.
    Options are right.attention's."""
    out, lse = fa.attention(*arrays, score_mod=score, mask_mod=mask, return_lse=True)
    formulas = {"score": expected_score or score, "mask": expected_mask or mask}
    right.assert_right(out, right.attention(*arrays, **formulas, **options), lse)
    right.assert_right(
        fa.attention(*arrays, score_mod=score, mask_mod=mask),
        right.attention(*arrays, **formulas, **options),
    )


def text(**functions):
    return str(fa.trace(**functions))


# --- What is traced ------------------------------------------------------------------


def test_the_region_as_text():
    slopes = np.ones(HEADS, np.float32)

    def score_mod(score, b, h, q_idx, kv_idx):
        return score + slopes[h] * (kv_idx - q_idx)

    def mask_mod(b, h, q_idx, kv_idx):
        return kv_idx <= q_idx

    assert (
        text(score_mod=score_mod, mask_mod=mask_mod)
        == """\
    // captured: %captured0: tensor<?xf32>
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %0 = tensor.extract %captured0[%h] : tensor<?xf32>
      %1 = arith.subi %j, %i : index
      %2 = arith.index_cast %1 : index to i32
      %3 = arith.sitofp %2 : i32 to f32
      %4 = arith.mulf %0, %3 : f32
      %5 = arith.addf %s, %4 : f32
      fa.yield %5 : f32
    }
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %0 = arith.cmpi sle, %j, %i : index
      fa.yield %0 : i1
    }"""
    )


def test_a_variant_can_be_compiled():
    variant = fa.trace(score_mod=lambda s, b, h, i, j: s + BIAS[h, i, j])
    config = fa.AttentionConfig("f32", HEADS, 1, DIM, DIM, is_causal=True, variant=variant)
    assert config.variant.arrays == () and hash(config) == hash(config)
    kernel = fa.compile(config)
    out = np.empty_like(Q)
    kernel(Q, K, V, *variant.arrays, out)
    formulas = {
        "score": lambda s, b, h, i, j: s + BIAS[h, i, j],
        "mask": lambda b, h, i, j: j <= i,
    }
    right.assert_right(out, right.attention(Q, K, V, **formulas))
    assert "tensor.extract %captured0" in kernel.asm["source"]


def test_operators():
    def score(s, b, h, i, j):
        y = +s - 2 * s + s / 3 + 1 / (4 + abs(s)) - (-s) + s**2 / 9 + (i - j) * 0.01
        y = y + (i + 1) // (j + 1) + (i - j) % 5 + (i - j) // 4 + i % 3 + (7 - i) % (1 + j)
        return y + (i & 3) + (i | 1) * 0.1 + (i ^ j) * 0.1 + (i << 1) * 0.1 + (i >> 1) + (~i) * 0.1

    def mask(b, h, i, j):
        return ((i >= j) | (j == 3)) & ~(i == 5) & ((i != 6) ^ (j > 4)) & (i < 100) & (i <= 99)

    check(score, mask, has_large_scores=True)


def test_integers_as_in_python():
    """// and % round down whatever the signs, also for divisors that are read."""
    numbers = np.array([3, -3, 1, -1, 7, -7], np.int32)

    def score(s, b, h, i, j):
        d = numbers[(i + j) % 6]
        x = i - j
        return s + (x // d) * 0.25 + (x % d) * 0.5 + (x // -3) * 0.25 + (x % -4) * 0.5 + (x // -1)

    check(score)


def test_division_by_what_may_be_zero():
    """Of integers it gives some number, and never a trap."""
    zeros = np.array([0, -1, 2], np.int64)
    smallest = np.array([np.iinfo(np.int64).min])

    def mask(b, h, i, j):
        d = zeros[j % 3]
        some = (i // d + i % d + smallest[0] // d + (i - j) // (i - j)) * 0
        return (some == 0) & (j <= i)

    check(mask=mask, expected_mask=lambda b, h, i, j: j <= i)


def test_functions_of_torch(torch):
    half = torch.tensor(0.5)
    functional = torch.nn.functional

    def score(s, b, h, i, j):
        distance = (i - j).to(torch.float32)
        y = torch.tanh(s / 20.0) * 20 + torch.sigmoid(s) * half - torch.exp(-s.abs())
        y = y + torch.where(i - j > 3, torch.sin(distance), s.cos()) + torch.log1p(distance.abs())
        y = torch.maximum(y, s) + torch.clamp(s, min=-1, max=1) + torch.rsqrt(distance.abs() + 1)
        y = y + functional.relu(s) + functional.gelu(s, approximate="tanh") + s.square()
        return torch.where(torch.logical_and(i > 3, torch.logical_not(j > 2)), y, y.neg() * 0.5)

    def expected(s, b, h, i, j):
        s = torch.from_numpy(s)
        i, j = torch.from_numpy(np.asarray(i)), torch.from_numpy(np.asarray(j))
        return score(s, b, h, i + 0 * j, j + 0 * i).double().numpy()

    check(score, expected_score=expected)


def test_functions_of_numpy():
    def score(s, b, h, i, j):
        y = np.tanh(s) + np.where(i > j, np.exp(-np.abs(s)), 0.0) + np.maximum(s, 0)
        return y + np.clip(s, -1, 1) + np.minimum(i, j) / 8 + np.sqrt(np.square(s) + 1) + np.sign(s)

    check(score, lambda b, h, i, j: np.logical_or(i >= j, np.equal(j, 3)))


def test_functions_of_fa():
    from fa import math as m

    check(
        lambda s, b, h, i, j: m.where(i == j, m.cast(i, float), m.tanh(s) + m.erf(s)),
        expected_score=lambda s, b, h, i, j: np.where(
            i == j, i, np.tanh(s) + np.vectorize(math.erf)(s)
        ),
    )
    for name in m.__all__:
        assert getattr(m, name).__doc__, name


def test_functions_of_python():
    """Python's min, max and math want numbers; those of other libraries do the same."""

    def score(s, b, h, i, j):
        least = fa.math.minimum(fa.math.minimum(i, j), 7)
        return s + least * 0.5 + np.maximum(i - j, 0) * math.sqrt(2.0) + math.floor(s) + round(s)

    check(
        score,
        expected_score=lambda s, b, h, i, j: (
            s
            + np.minimum(np.minimum(i, j), 7) * 0.5
            + np.maximum(i - j, 0) * 2**0.5
            + np.floor(s)
            + np.round(s)
        ),
    )
    for function, message in (
        (lambda s, b, h, i, j: s + min(i, j), "min, max.*fa.math.minimum or maximum for min and m"),
        (lambda s, b, h, i, j: max(s, 0), "fa.math.minimum or maximum"),
        (lambda s, b, h, i, j: max([s, 0.0]), "fa.math.minimum or maximum"),
        (lambda s, b, h, i, j: math.tanh(s), "a function of math.*by that name of torch, numpy or"),
        (lambda s, b, h, i, j: math.isclose(s, 0.5) * 1.0, "a function of math.*fa.math"),
    ):
        with pytest.raises(fa.TraceError, match=message):
            text(score_mod=function)


def test_conversions(torch):
    def score(s, b, h, i, j):
        return s.to(torch.bfloat16) + s.half() + (s * 4).int() + (s * 3).to(torch.int64) % 2

    def expected(s, b, h, i, j):
        s = torch.from_numpy(s.astype(np.float32))
        rounded = s.to(torch.bfloat16).double() + s.half().double()
        return (rounded + (s * 4).int() + (s * 3).to(torch.int64) % 2).numpy()

    # Of scores that are exact in float32: others may round the other way than float64's.
    exact = tuple(np.round(4 * x) / 4 for x in (Q, K, V))
    check(score, expected_score=expected, arrays=exact)
    nothing = float("nan")

    def extreme(s, b, h, i, j):
        far = fa.math.where(i == 0, nothing, fa.math.where(i == 1, 1e30, -1e30))
        return s + fa.math.where(fa.math.cast(far, int) < 0, 0.0, 1.0)

    assert np.isfinite(fa.attention(Q, K, V, score_mod=extreme)).all()


def test_powers():
    def score(s, b, h, i, j):
        y = s**2 + (s + 20) ** 0.5 + (abs(s) + 1) ** -2 + 1.5**s + (abs(s) + 1) ** s
        return y + s ** (i % 3) + (i % 5) ** 3 + 2 ** (j % 4).float() if fa_types(i) else y

    def fa_types(x):
        return not isinstance(x, np.ndarray)

    def expected(s, b, h, i, j):
        y = s**2 + (s + 20) ** 0.5 + (abs(s) + 1) ** -2.0 + 1.5**s + (abs(s) + 1) ** s
        return y + s ** (i % 3) + (i % 5) ** 3 + 2.0 ** (j % 4)

    check(score, expected_score=expected, has_large_scores=True)


def test_constants():
    check(lambda s, b, h, i, j: 0.25, expected_score=lambda s, *at: np.full_like(s, 0.25))
    check(mask=lambda b, h, i, j: True, expected_mask=lambda b, h, i, j: i >= 0)
    assert not fa.attention(Q, K, V, mask_mod=lambda b, h, i, j: np.bool_(False)).any()
    for value in (-math.inf, math.nan, 1e300, -0.0, 1e-45):
        text(score_mod=lambda s, b, h, i, j, value=value: fa.math.where(i > j, value, s))
    # An infinity from the score function is a masked key.
    check(
        lambda s, b, h, i, j: fa.math.where(i >= j, s, -math.inf),
        expected_score=lambda s, b, h, i, j: np.where(i >= j, s, -np.inf),
    )


# --- Captured arrays --------------------------------------------------------------------


DTYPES = ["float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_of_captured_tensors(torch, dtype):
    values = (torch.arange(LENGTH) % 3).to(getattr(torch, dtype))
    number = torch.tensor(1).to(getattr(torch, dtype))

    def score(s, b, h, i, j):
        return s + values[i] * 0.5 + number

    check(
        score,
        expected_score=lambda s, b, h, i, j: (
            s + (i % 3 > 0 if dtype == "bool" else i % 3) * 0.5 + 1
        ),
    )


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_ways_to_index(library):
    bias = np.stack([BIAS, 2 * BIAS]) if library == "numpy" else None
    if library == "torch":
        bias = pytest.importorskip("torch").from_numpy(np.stack([BIAS, 2 * BIAS]))
    full = np.stack([BIAS, 2 * BIAS])
    bias = fa.array(bias)  # which the functions below are called with, not fa
    ways = [
        (lambda s, b, h, i, j: s + bias[b, h, i, j], lambda b, h, i, j: full[b, h, i, j]),
        (lambda s, b, h, i, j: s + bias[b][h][i, j], lambda b, h, i, j: full[b, h, i, j]),
        (lambda s, b, h, i, j: s + bias[b, h][i][j], lambda b, h, i, j: full[b, h, i, j]),
        (lambda s, b, h, i, j: s + bias[1, 0, i, j], lambda b, h, i, j: full[1, 0, i, j]),
        (lambda s, b, h, i, j: s + bias[0][h, i, j], lambda b, h, i, j: full[0, h, i, j]),
        (lambda s, b, h, i, j: s + bias[b, ..., j][h, i], lambda b, h, i, j: full[b, h, i, j]),
        (lambda s, b, h, i, j: s + bias[:, h][b, :, j][i], lambda b, h, i, j: full[b, h, i, j]),
        (lambda s, b, h, i, j: s + bias[b, -1, i, -2], lambda b, h, i, j: full[b, -1, i, -2]),
        (
            lambda s, b, h, i, j: s + bias[b, h, i - j, j],
            lambda b, h, i, j: full[b, h, i - j, j],
        ),
        # Beyond the end: the last one.
        (
            lambda s, b, h, i, j: s + bias[b + 7, h, i + j, j],
            lambda b, h, i, j: full[1, h, np.minimum(i + j, LENGTH - 1), j],
        ),
        (
            lambda s, b, h, i, j: s + bias[b, h, i - 2 * LENGTH, j],
            lambda b, h, i, j: full[b, h, np.maximum(i - LENGTH, 0), j],
        ),
    ]

    def all_ways(s, b, h, i, j):
        return sum((score(s, b, h, i, j) * (n + 1) for n, (score, _) in enumerate(ways)), 0.0) / 8

    def expected(s, *at):
        return sum((s + way(*at)) * (n + 1) for n, (_, way) in enumerate(ways)) / 8

    check(all_ways, expected_score=expected, has_large_scores=True)


def test_an_index_from_an_array():
    order = np.random.default_rng(1).permutation(LENGTH).astype(np.int32)
    check(lambda s, b, h, i, j: s + BIAS[h, order[i], order[j]])


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_strides_of_captured_arrays(library):
    base = np.random.default_rng(2).standard_normal((LENGTH, 2 * LENGTH, HEADS)).astype(np.float32)
    arrays = [base.T[:, ::2], base[:, ::2].transpose(2, 0, 1), np.ones((HEADS, 1, 1), np.float32)]
    arrays[2] = np.broadcast_to(arrays[2], BIAS.shape)
    if library == "numpy":
        arrays.append(BIAS[:, ::-1, ::-1])
    for array in arrays:
        given = array
        if library == "torch":
            tensor = pytest.importorskip("torch").from_numpy(base)
            given = {0: tensor.permute(2, 1, 0)[:, ::2], 1: tensor[:, ::2].permute(2, 0, 1)}.get(
                next(n for n, other in enumerate(arrays) if other is array)
            )
            if given is None:
                continue
        check(
            lambda s, b, h, i, j, given=given: s + given[h, i, j],
            expected_score=lambda s, b, h, i, j, array=array: s + array[h, i, j],
        )


class Model:
    scale = 0.5

    def __init__(self, bias):
        self.bias = bias

    def score(self, s, b, h, i, j):
        return s + self.at(h, i, j) * self.scale

    def at(self, *index):
        return self.bias[index]

    def __call__(self, s, b, h, i, j):
        return s + self.bias[h][i, j] * self.scale


class Part:
    def __init__(self, model):
        self.models = [model]

    def __call__(self, s, b, h, i, j):
        return self.models[0].score(s, b, h, i, j)


def test_arrays_in_cells_globals_and_defaults():
    """A function's own variables are indexed as they are."""
    cell = 0.5 * BIAS

    def by_default(s, b, h, i, j, bias=cell):
        return s + bias[h, i, j]

    def by_keyword(s, b, h, i, j, *, bias=cell):
        return s + bias[h, i, j]

    def partial(bias, s, b, h, i, j):
        return s + bias[h, i, j]

    def partial_by_name(s, b, h, i, j, bias):
        return s + bias[h, i, j]

    def inner(s, b, h, i, j):
        helper = lambda x, y: cell[h, x, y]  # noqa: E731
        return s + helper(i, j)

    def global_inside(s, b, h, i, j):
        return s + sum(BIAS[h, x, y] * 0.5 for x, y in [(i, j)])

    not_assigned = lambda s, b, h, i, j: s + (cell[h, i, j] if b is not None else later)  # noqa: E731
    if len(BIAS) == 0:
        later = 0

    expected = lambda s, b, h, i, j: s + 0.5 * BIAS[h, i, j]  # noqa: E731
    for function in (
        *(by_default, by_keyword, inner, global_inside, not_assigned),
        functools.partial(partial, cell),
        functools.partial(partial_by_name, bias=cell),
        functools.partial(functools.partial(by_keyword), bias=cell),
        lambda s, b, h, i, j: s + 0.5 * BIAS[h, i, j],
        lambda s, b, h, i, j: functools.reduce(lambda x, y: x + y, [s, cell[h, i, j]]),
        fa.scores.compose(by_default),
        fa.scores.compose(functools.partial(partial, cell)),
    ):
        check(function, expected_score=expected)
    hides = fa.masks.not_mask(fa.prepare(fa.masks.and_masks(lambda b, h, i, j: IDS[i] == IDS[j])))
    check(mask=hides, expected_mask=lambda b, h, i, j: IDS[i] != IDS[j])


def test_arrays_in_attributes_containers_and_helpers():
    """`fa.array` makes what traced values index wherever it is; what is not says so."""
    expected = lambda s, b, h, i, j: s + 0.5 * BIAS[h, i, j]  # noqa: E731

    def functions(bias):
        model = Model(bias)
        helper = lambda h, i, j: 0.5 * bias[h, i, j]  # noqa: E731
        table = {"bias": [bias]}
        return (
            *(model.score, model, Part(model)),
            lambda s, b, h, i, j: s + helper(h, i, j),
            lambda s, b, h, i, j: s + 0.5 * table["bias"][0][h, i, j],
        )

    for function in functions(fa.array(BIAS)):
        check(function, expected_score=expected)
    for function in functions(BIAS):
        with pytest.raises(fa.TraceError, match=r"no tensor of PyTorch, make that one by fa.array"):
            text(score_mod=function)


def test_an_array_of_fa():
    """Outside of functions it is the array."""
    given = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    array = fa.array(given)
    assert fa.array(array) is array and array.shape == (3, 4) and array.ndim == 2
    assert array.dtype == np.float32 and len(array) == 3 and array.size == 12
    assert array[1, 2] == 6 and float(array[2, 3]) == 11 and int(fa.array([3])[0]) == 3
    np.testing.assert_array_equal(array[1:], given[1:])
    np.testing.assert_array_equal(np.asarray(array), given)
    np.testing.assert_array_equal(array * 2 + given, 3 * given)
    np.testing.assert_array_equal(1 - array, 1 - given)
    np.testing.assert_array_equal(np.exp(array), np.exp(given))
    np.testing.assert_array_equal(np.concatenate([array, given]), np.concatenate([given, given]))
    np.testing.assert_array_equal(array.T, given.T)
    assert array.sum() == given.sum() and array.mean(0).shape == (4,) and array.max() == 11
    assert [row[0] for row in array] == [0, 4, 8] and "fa.array(" in repr(array)
    assert bool(fa.array([True])) and list(range(3))[fa.array(1)] == 1
    array[0, 0] = 7.0
    assert given[0, 0] == 7 and not hasattr(array, "nothing")
    assert fa.array([[1, 2], [3, 4]]).shape == (2, 2) and fa.array(2.5).ndim == 0
    assert fa.array([0.5]).dtype == np.float32 and fa.array([1]).dtype == np.int64
    with pytest.raises(TypeError):
        hash(array)
    copied = pickle.loads(pickle.dumps(array))
    np.testing.assert_array_equal(np.asarray(copied), given)
    check(lambda s, b, h, i, j: s + fa.array([0.25, -0.5])[h], expected_score=two_slopes)
    check(lambda s, b, h, i, j: s + array[h, 1] * 0, expected_score=lambda s, *at: s)
    # What it gives can be indexed, too.
    doubled = fa.array(np.float32([0.125, -0.25]))
    check(lambda s, b, h, i, j: s + (doubled * 2)[h], expected_score=two_slopes)
    check(lambda s, b, h, i, j: s + doubled.take(h) * 2, expected_score=two_slopes)


def two_slopes(s, b, h, i, j):
    return s + np.where(h == 0, 0.25, -0.5)


def test_an_array_of_fa_is_a_tensor_where_it_is_one(torch):
    tensor = torch.ones(3)
    assert fa.array(tensor) is tensor
    assert is_kept(score_mod=lambda s, b, h, i, j: s + tensor[h])


def test_arrays_of_other_libraries():
    """Whatever has `__dlpack__` or an array interface, indexed by traced values."""

    class Foreign:
        def __init__(self, array):
            self.array = array
            self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

        def __getitem__(self, index):
            raise TypeError("expected a number")

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return (1, 0)

    class Careless(Foreign):
        def __getitem__(self, index):
            return self.array[index.__index__()]

    for kind in (Foreign, Careless):
        ids = kind(IDS)
        check(
            mask=lambda b, h, i, j, ids=ids: ids[i] == ids[j],
            expected_mask=lambda b, h, i, j: IDS[i] == IDS[j],
        )


def test_empty_captured_arrays():
    q, k, v = naive.inputs(1, 1, 1, 3, 0, 16)
    empty = np.zeros((3, 0), np.float32)
    out = fa.attention(q, k, v, score_mod=lambda s, b, h, i, j: s + empty[i, j])
    assert not out.any()


# --- No compilation that is not needed ---------------------------------------------------------


@pytest.mark.usefixtures("empty_cache")
def test_what_compiles(torch):
    """Lengths, captured values and their sizes don't; numbers do."""
    compiled = []

    def run(length, factor, slopes, cap):
        def score(s, b, h, i, j):
            return fa.math.tanh(s / cap) * cap + slopes[h] * (j - i) * factor

        q, k, v = naive.inputs(1, 2, 2, length, length + 3, 16)
        before = fa.compile_count()
        tensors = map(torch.from_numpy, (q, k, v))
        out = fa.attention(*tensors, score_mod=score, mask_mod=fa.masks.causal_bottom_right)
        compiled.append(fa.compile_count() - before)
        numbers = (float(factor), np.asarray(slopes, np.float64))
        exact = right.attention(
            *(q, k, v),
            score=lambda s, b, h, i, j: (
                np.tanh(s / cap) * cap + numbers[1][h] * (j - i) * numbers[0]
            ),
            mask=lambda b, h, i, j: j <= i + 3,
        )
        right.assert_right(out, exact)

    run(10, torch.tensor(0.5), torch.tensor([1.0, 2.0]), 20.5)
    run(11, torch.tensor(0.5), torch.tensor([1.0, 2.0]), 20.5)
    run(300, torch.tensor(0.25), torch.tensor([0.5, 3.0]), 20.5)
    run(300, torch.tensor([0.125]), torch.tensor([0.5, 3.0]), 20.5)
    run(12, torch.tensor(0.25), torch.tensor([0.5, 3.0]), 10.5)
    run(12, 0.25, torch.tensor([0.5, 3.0]), 10.5)
    # Rank 0 or 1, and each number in Python.
    assert compiled == [1, 0, 0, 1, 1, 1]


def is_kept(**functions):
    """Whether a second trace of the functions is looked up."""
    both = functions.get("score_mod"), functions.get("mask_mod"), True, "f32"
    found = _memo.fingerprint(*both)
    first = _trace.trace_functions(*both)
    if found is None or _memo.get(found) is None:
        return False
    return _trace.trace_functions(*both).variant is first.variant


def test_what_is_kept(torch):
    slopes, ids = torch.ones(2), torch.arange(LENGTH)
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    masks = fa.masks
    assert is_kept(mask_mod=masks.causal)
    assert is_kept(mask_mod=masks.causal_bottom_right)
    assert is_kept(mask_mod=masks.and_masks(masks.causal, masks.documents(ids)))
    assert is_kept(mask_mod=flex.and_masks(masks.sliding_window(3), masks.neighbourhood(3)))
    assert is_kept(score_mod=lambda s, b, h, i, j: torch.tanh(s) + slopes[h] * (i - j))
    assert is_kept(score_mod=fa.scores.t5_bias(torch.ones(32, 2)))
    number = torch.tensor(3)
    assert is_kept(mask_mod=lambda b, h, i, j: j <= i + number)
    state = [1]

    def counts(b, h, i, j):
        nonlocal state
        state = [2]
        return i >= j

    # What reads values, or what no key can stand for, is traced anew.
    assert not is_kept(mask_mod=lambda b, h, i, j: i >= int(slopes[0]))
    assert not is_kept(mask_mod=lambda b, h, i, j: (i >= j) if slopes[0] > 0 else (i < j))
    assert not is_kept(score_mod=lambda s, b, h, i, j: s + (slopes * 2)[h])
    assert not is_kept(score_mod=lambda s, b, h, i, j: s * slopes[0])
    assert not is_kept(score_mod=lambda s, b, h, i, j: s * torch.tensor(2.0))
    assert not is_kept(mask_mod=counts)
    # Arrays of NumPy, and of fa.array wherever they are.
    bias, table = fa.array(BIAS), [fa.array(IDS), 3]
    helper = lambda h, i, j: bias[h, i, j]  # noqa: E731
    assert is_kept(mask_mod=lambda b, h, i, j: IDS[i] == IDS[j])
    assert is_kept(mask_mod=lambda b, h, i, j: table[0][i] == table[1])
    assert is_kept(score_mod=lambda s, b, h, i, j: s + helper(h, i, j))
    assert is_kept(score_mod=lambda s, b, h, i, j: s * len(bias) + bias.shape[0])
    assert is_kept(mask_mod=masks.and_masks(masks.documents(IDS), masks.causal))
    assert is_kept(mask_mod=functools.partial(masks.causal))
    assert is_kept(mask_mod=functools.partial(lambda ids, b, h, i, j: ids[i] == 0, IDS))


def test_values_that_are_read(torch):
    """Whoever reads them on the host, in whatever way: the next call sees others."""
    numbers = np.array([1.0, 2.0], np.float32)
    tensor, own = torch.from_numpy(numbers), fa.array(numbers)
    held, holder = [own], [tensor]
    numpy_helper = lambda: numbers[0]  # noqa: E731
    tensor_helper = lambda: tensor[0].item()  # noqa: E731
    readers = {
        "own": lambda s, b, h, i, j: s * float(numbers[0]),
        "element": lambda s, b, h, i, j: s * numbers[0],
        "sum": lambda s, b, h, i, j: s * (numbers.sum() - 2),
        "function": lambda s, b, h, i, j: s * (np.sum(numbers) - 2),
        "operator": lambda s, b, h, i, j: s * (numbers * 1)[0],
        "branch": lambda s, b, h, i, j: s * 3 if numbers[0] > 2 else s,
        "loop": lambda s, b, h, i, j: sum((s * float(x) for x in numbers), 0.0) - s * 2,
        "helper": lambda s, b, h, i, j: s * numpy_helper(),
        "default": lambda s, b, h, i, j, x=numbers: s * x[0],
        "partial": functools.partial(lambda x, s, b, h, i, j: s * x[0], numbers),
        "composed": fa.scores.compose(lambda s, b, h, i, j: s * numbers[0]),
        "array": lambda s, b, h, i, j: s * own[0],
        "held array": lambda s, b, h, i, j: s * held[0].item(0),
        "as array": lambda s, b, h, i, j: s * np.asarray(own)[0],
        "tensor": lambda s, b, h, i, j: s * tensor[0].item(),
        "list": lambda s, b, h, i, j: s * tensor.tolist()[0],
        "tensor as array": lambda s, b, h, i, j: s * np.asarray(tensor)[0],
        "held tensor": lambda s, b, h, i, j: s * float(holder[0][0]),
        "tensor helper": lambda s, b, h, i, j: s * tensor_helper(),
        "unpacked": lambda s, b, h, i, j: s * [float(x) for x in tensor][0],
        "truth": lambda s, b, h, i, j: s * 3 if tensor[0] > 2 else s,
    }
    for name, function in readers.items():
        seen = []
        for value in (1.0, 3.0, 1.0):
            numbers[0] = value
            out = fa.attention(*map(torch.from_numpy, (Q, K, V)), score_mod=function)
            seen.append(out.numpy())
        exact = [right.attention(Q, K, V, scale=0.25 * value) for value in (1.0, 3.0)]
        for out, wanted in zip(seen, (exact[0], exact[1], exact[0])):
            right.assert_right(out, wanted, note=name)


def test_traces_with_functions_that_fa_made(torch, monkeypatch):
    """No fingerprint is taken of fa's own where their arrays are described as before; of
    functions of the user's among them it always is."""
    taken = []

    def fingerprint(*values, of=_memo.fingerprint):
        taken.append(values)
        return of(*values)

    monkeypatch.setattr(_memo, "fingerprint", fingerprint)
    q, k, v = map(torch.from_numpy, (Q, K, V))

    def attend(mask, seen):
        before = len(taken)
        out = fa.attention(q, k, v, mask_mod=mask)
        right.assert_right(out.numpy(), right.attention(Q, K, V, mask=seen))
        return len(taken) - before

    lengths = torch.tensor([5, 9], dtype=torch.int32)
    mask = fa.masks.and_masks(fa.masks.causal, fa.masks.padding(lengths))
    seen = lambda b, h, i, j: (j <= i) & (j < lengths.numpy()[b])  # noqa: E731
    counts = [attend(mask, seen) for _ in range(4)]
    assert counts[0] > 0 and counts[2:] == [0, 0]
    lengths += 1  # values are no part of a trace
    assert attend(mask, seen) == 0
    lengths.data = lengths.long()  # types are
    assert attend(mask, seen) > 0
    assert [attend(mask, seen) for _ in range(3)][1:] == [0, 0]
    mask.function = fa.masks.causal
    assert attend(mask, lambda b, h, i, j: j <= i) > 0
    window = [2]
    within = {
        "function": lambda b, h, i, j: i - j <= window[0],
        "partial": functools.partial(lambda size, b, h, i, j: i - j <= size[0], window),
    }
    for function in within.values():
        mask = fa.masks.and_masks(fa.masks.causal, function)
        for size in (2, 2, 2, 5, 5, 5):
            window[0] = size
            assert attend(mask, lambda b, h, i, j: (j <= i) & (i - j <= size)) > 0  # noqa: B023
    bias = fa.scores.t5_bias(torch.ones(32, len(Q[0])))
    before = [(fa.attention(q, k, v, score_mod=bias), len(taken))[1] for _ in range(4)]
    assert before[1] == before[3]


def test_functions_made_anew(torch):
    """Found by code and values: no function is traced twice for being another object."""
    bias, ids = torch.from_numpy(BIAS), torch.from_numpy(IDS)
    traced = []

    def make(number, array):
        def score(s, b, h, i, j):
            return s * number + array[h, i, j]

        return score

    for number, array in ((1.5, bias), (1.5, bias.clone()), (2.5, bias), (1.5, bias)):
        mask = fa.masks.and_masks(fa.masks.documents(ids), fa.masks.sliding_window(5))
        found = _trace.trace_functions(make(number, array), mask)
        assert found.arrays[0] is array and found.arrays[1] is ids
        traced.append(found.variant)
    assert traced[0] is traced[1] is traced[3] and traced[0] != traced[2]
    # The same with a partial, by what it is given.
    partial = [
        _trace.trace_functions(functools.partial(lambda n, s, b, h, i, j: s * n, number), None)
        for number in (2.0, 3.0, 2.0)
    ]
    assert partial[0].variant is partial[2].variant != partial[1].variant


def test_names_that_nobody_knows(torch):
    """A method of an object may give something else each time."""
    numbers = iter([2.0, 3.0])

    class Settings:
        @property
        def factor(self):
            return next(numbers)

    settings = Settings()
    score = lambda s, b, h, i, j: s * settings.factor  # noqa: E731
    variants = [_trace.trace_functions(score, None).variant for _ in range(2)]
    assert "2.0" in str(variants[0]) and "3.0" in str(variants[1])


def test_nothing_stale(torch):
    """Functions that were kept, after what they read has changed."""
    values = torch.arange(4.0)
    tensors = {"a": torch.zeros(2), "b": torch.ones(2)}

    def make(number, tensor, other, helper, flag):
        def score(s, b, h, i, j, default=number):
            if flag:
                return s
            return helper(s) * number + tensor[h] - other[h] + default + len(tensor)

        return score

    double, triple = lambda s: s * 2, lambda s: s * 3
    cases = [
        (number, tensors[x], tensors[y], helper, flag)
        for number in (1, 1.0, True, 2, 0.0, -0.0, math.nan, -2.5)
        for x, y in (("a", "b"), ("b", "b"), ("b", "a"))
        for helper in (double, triple)
        for flag in (False, True, None)
    ]
    cases.append((2, values, tensors["a"], double, False))
    cases.append((2, values.int(), tensors["a"], double, False))
    cases.append((2, values.view(2, 2)[:, 0], tensors["a"], double, False))
    for _ in range(2):
        for case in cases:
            function = make(*case)
            kept = _trace.trace_functions(function, None)
            fresh = _trace.trace_both(function, None)
            assert kept.variant == fresh.variant and kept.number == fresh.number, case
            assert [id(a) for a in kept.arrays] == [id(a) for a in fresh.arrays], case


def test_a_global_that_changes(torch):
    space = {"torch": torch, "number": 2.0}
    exec("def score(s, b, h, i, j): return s * number", space)
    first = _trace.trace_functions(space["score"], None).variant
    assert is_kept(score_mod=space["score"])
    space["number"] = 3.0
    second = _trace.trace_functions(space["score"], None).variant
    assert first != second and "3.0" in str(second)
    space["abs"] = lambda x: x
    exec("def other(s, b, h, i, j): return abs(s)", space)
    assert "math.absf" not in text(score_mod=space["other"])


def test_traces_are_forgotten(monkeypatch):
    monkeypatch.setattr(_memo, "_LIMIT", 3)
    monkeypatch.setattr(_memo, "_known", {})
    for n in range(8):
        assert is_kept(mask_mod=fa.masks.sliding_window(n))
        assert len(_memo._known) <= 3


# --- Errors ------------------------------------------------------------------------------------


def line_of(function):
    """The line in its file that an error must name: the one after `def`, or the lambda's."""
    code = function.__code__
    first = code.co_firstlineno
    return first if code.co_name == "<lambda>" else first + 1


def uses_if(b, h, i, j):
    return i >= j if h > 1 else i < j


def uses_and(b, h, i, j):
    return i >= j and j > 3


def uses_or(b, h, i, j):
    return i >= j or j > 3


def uses_not(b, h, i, j):
    return not i >= j


def uses_chain(b, h, i, j):
    return 0 <= i - j < 5


def uses_while(b, h, i, j):
    while i > j:
        i = i - 1
    return i == j


def uses_range(b, h, i, j):
    return sum(j == n for n in range(i))


def uses_list(b, h, i, j):
    return [1, 2, 3][i] == j


def uses_dictionary(b, h, i, j):
    return {1: 2}[i] == j


def uses_float(b, h, i, j):
    return float(i) > j


def uses_item(b, h, i, j):
    return i.item() > j


def uses_iteration(b, h, i, j):
    return [x for x in i] == j


def uses_unknown(b, h, i, j):
    return i.cumsum(0) > j


def uses_unknown_numpy(b, h, i, j):
    return np.cumsum(i) > j


def uses_reduction(b, h, i, j):
    return np.add.reduce(i) > j


def uses_too_many(b, h, i, j):
    return IDS[i, j] == 0


def uses_slice(b, h, i, j):
    return BIAS[1:, i, j] > 0


def uses_float_index(b, h, i, j):
    return IDS[i / 2] == j


def uses_constant_out_of_range(b, h, i, j):
    return IDS[i] + BIAS[2, i, j] > 0


def uses_text(b, h, i, j):
    return i == "a"


def uses_bits_of_float(b, h, i, j):
    return (i / 2) & j


def uses_zero(b, h, i, j):
    return i // 0 == j


DOUBLES = IDS.astype(np.float64)


def uses_float64(b, h, i, j):
    return DOUBLES[i] > 0


def uses_power(b, h, i, j):
    return i**j > 2


def uses_large(b, h, i, j):
    return i > 1 << 70


def uses_modes(b, h, i, j):
    return fa.math.div(i, j, rounding_mode="up") > 2


def uses_complex(b, h, i, j):
    return i.to("complex") > 2


def uses_slice_of_traced(b, h, i, j):
    return IDS[j : j + 1] > 2


def uses_new_dimension(b, h, i, j):
    return BIAS[h, None, j] > 2


UNALIGNED = np.frombuffer(bytes(97), np.uint8)[1:].view(np.int32)


def uses_unaligned(b, h, i, j):
    return UNALIGNED[j] > 2


class OfAClass:
    """A class that keeps an array."""

    table = IDS


def uses_class(b, h, i, j):
    return OfAClass.table[j] > 2


REFUSED = [
    (uses_slice_of_traced, "indexes a captured array with slice.*: for a later index"),
    (uses_new_dimension, "indexes a captured array with None; give an integer"),
    (uses_unaligned, "can't read: expected data aligned .*; copy the array"),
    (uses_class, r"as an array; .* make that one by fa.array\(...\)"),
    (uses_if, "needs the truth .* of a traced boolean.*use & | ~"),
    (uses_and, "needs the truth"),
    (uses_or, "needs the truth"),
    (uses_not, "needs the truth"),
    (uses_chain, "chained comparison.*two comparisons joined by &"),
    (
        uses_list,
        r"needs the number .* the traced integer q_idx.*or a list in fa.array",
    ),
    (uses_dictionary, "needs the hash .* not a dictionary"),
    (uses_float, "needs the number .float.*use .float.., or the function by that name of torch"),
    (uses_item, "needs the number .item"),
    (uses_iteration, "iterates over the elements of the traced integer q_idx"),
    (uses_unknown, "q_idx has no attribute 'cumsum' that can be traced; see fa.math"),
    (uses_unknown_numpy, "NumPy function cumsum can't be traced; see fa.math"),
    (uses_reduction, "NumPy's add.reduce can't be traced"),
    (uses_too_many, r"2 indices for a captured array of shape \[24\].*give at most 1"),
    (uses_slice, "indexes a captured array with slice"),
    (uses_float_index, "indexes dimension 0 .* with a traced float; use an integer"),
    (uses_constant_out_of_range, "index 2 is out of range for dimension 0 of size 2"),
    (uses_text, "computes with a str, which is no number"),
    (uses_bits_of_float, "& of a traced float and .* compare floats first"),
    (uses_zero, "divides an integer by 0"),
    (uses_float64, r"got float64; scores are float32: capture x.float\(\) or x.astype"),
    (uses_power, "to a power that is no constant"),
    (uses_large, "does not fit 64 bits"),
    (uses_modes, "rounding mode 'up' is not known"),
]


@pytest.mark.parametrize(("function", "message"), REFUSED)
def test_errors_name_the_line(function, message):
    place = re.escape(f"{__file__}:{line_of(function)}: in {function.__name__}: ")
    with pytest.raises(fa.TraceError, match=place + ".*" + message):
        fa.attention(Q, K, V, mask_mod=function)


def test_errors_in_loops():
    with pytest.raises(
        fa.TraceError, match=f"{line_of(uses_while)}: in uses_while.*needs the truth"
    ):
        fa.attention(Q, K, V, mask_mod=uses_while)
    with pytest.raises(fa.TraceError, match="in uses_range: needs the number"):
        fa.attention(Q, K, V, mask_mod=uses_range)
    assert "arith" in text(mask_mod=lambda b, h, i, j: sum(j == n for n in range(3)) > 0)


def test_arrays_made_inside():
    check(
        lambda s, b, h, i, j: s + fa.array(np.arange(LENGTH, dtype=np.float32))[j],
        expected_score=lambda s, b, h, i, j: s + np.asarray(j, np.float32),
    )
    check(
        lambda s, b, h, i, j: (
            s + fa.array(np.add.outer(np.arange(24.0), np.arange(24.0)).astype("f4"))[i, j]
        ),
        expected_score=lambda s, b, h, i, j: s + i + j,
    )
    with pytest.raises(fa.TraceError, match="make that one by fa.array"):
        text(score_mod=lambda s, b, h, i, j: s + np.arange(LENGTH, dtype=np.float32)[j])


class Scaled:
    """A class with a score function."""

    @classmethod
    def score(cls, s, b, h, i, j):
        return np.tanh(s)


def test_class_methods():
    check(Scaled.score, expected_score=lambda s, b, h, i, j: np.tanh(s))


def test_errors_of_torch(torch):
    bias = torch.zeros(2, 3)
    with pytest.raises(fa.TraceError, match="torch function cumsum can't be traced"):
        text(mask_mod=lambda b, h, i, j: torch.cumsum(i, 0) > j)
    for function in (torch.gather, torch.index_select):
        with pytest.raises(
            fa.TraceError, match=rf"{function.__name__} of a captured array of shap"
        ):
            text(mask_mod=lambda b, h, i, j, f=function: f(bias, 0, i) > j)
    with pytest.raises(fa.TraceError, match="3 indices for a captured array of shape"):
        text(mask_mod=lambda b, h, i, j: bias[b, i, j] > 0)
    with pytest.raises(
        fa.TraceError, match="chooses by the traced float score; choose by a comparison"
    ):
        text(score_mod=lambda s, b, h, i, j: torch.where(s, s, 0.0))
    assert text(score_mod=lambda s, b, h, i, j: torch.sum(s)) == text(
        score_mod=lambda s, b, h, i, j: s
    )
    with pytest.raises(fa.TraceError, match="got torch.complex64"):
        text(score_mod=lambda s, b, h, i, j: s + torch.zeros(4, dtype=torch.complex64)[i])


def test_scripted_functions(torch):
    """torch.jit.script takes the Python code away, which is what can be traced."""

    @torch.jit.script
    def doubled(score, b, h, i, j):
        return score * 2

    with pytest.raises(TypeError, match="score_mod to be a function in Python, got a ScriptFunc"):
        text(score_mod=doubled)
    with pytest.raises(
        fa.TraceError, match="a call of a result of torch.jit.script in it; call the"
    ):
        text(score_mod=lambda s, b, h, i, j: doubled(s, b, h, i, j) + 1)


@pytest.mark.parametrize(
    "draw",
    [
        lambda torch, s: torch.rand(()),
        lambda torch, s: torch.randn(24)[0],
        lambda torch, s: torch.rand_like(s),
        lambda torch, s: torch.zeros(1).uniform_(),
        lambda torch, s: torch.nn.functional.dropout(s, 0.5),
        lambda torch, s: torch.bernoulli(torch.full((), 0.5)),
    ],
)
def test_random_numbers(torch, draw):
    """One number for all scores, from a call to the next, is nobody's wish."""
    with pytest.raises(fa.TraceError, match="draws random numbers .*draw a tensor before the call"):
        text(score_mod=lambda s, b, h, i, j: s + draw(torch, s))


def test_whole_small_arrays(torch):
    """Arithmetic with all elements of a captured array, as NumPy and PyTorch broadcast."""
    weights = np.linspace(0.5, 2.0, 4).astype(np.float32)
    for array in (weights, torch.as_tensor(weights)):
        check(
            lambda s, b, h, i, j, array=array: (s * array).sum() + (array * array[h]).sum(),
            expected_score=lambda s, b, h, i, j: s * weights.sum() + weights.sum() * weights[h],
        )
    many = torch.zeros(2000)
    with pytest.raises(fa.TraceError, match="2000 elements, .* more than 1024; index them"):
        text(score_mod=lambda s, b, h, i, j: (s * many).sum())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda b, h, i, j: i - j, "return a boolean, got a traced integer; return a comparison"),
        (lambda b, h, i, j: (i - j) * 0.5, "return a boolean, got a traced float"),
        (lambda b, h, i, j: None, "return a boolean, got None"),
        (lambda b, h, i, j: 1, "return a boolean, got a traced integer"),
        (lambda b, h, i, j: (i > j, i < j), "return a boolean, got a tuple"),
        (lambda b, h, i, j: IDS, "return a boolean, got an array of shape .24."),
        (
            lambda b, h, i, j: IDS == i,
            "return a boolean, got an array of .24. traced elements; index",
        ),
        (lambda b, h, i, j: BIAS[h, i] > 0, "return a boolean, got an array of .24. traced"),
    ],
)
def test_results_of_masks(function, message):
    with pytest.raises(fa.TraceError, match=f"{line_of(function)}.*expected mask_mod to {message}"):
        fa.attention(Q, K, V, mask_mod=function)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda s, b, h, i, j: i, "return a float, got the traced integer q_idx; .*float"),
        (lambda s, b, h, i, j: s > 0, "return a float, got a traced boolean"),
        (lambda s, b, h, i, j: 3, "return a float, got a traced integer"),
        (
            lambda s, b, h, i, j: BIAS[h],
            "return a float, got a captured array of which dimensions .24, 24. have",
        ),
    ],
)
def test_results_of_scores(function, message):
    with pytest.raises(fa.TraceError, match=f"expected score_mod to {message}"):
        fa.attention(Q, K, V, score_mod=function)


def test_other_errors():
    got = r"expected mask_mod to be a function, got an array of shape \[24\]; give a function that"
    with pytest.raises(TypeError, match=got):
        fa.attention(Q, K, V, mask_mod=IDS)
    with pytest.raises(TypeError, match="score_mod .*an array.*as fa.scores.bias does"):
        fa.attention(Q, K, V, score_mod=BIAS)
    with pytest.raises(TypeError, match="expected mask_mod to be a function, got str; see fa.mask"):
        fa.attention(Q, K, V, mask_mod="causal")
    with pytest.raises(TypeError, match="positional argument"):
        fa.attention(Q, K, V, mask_mod=lambda i, j: i > j)
    with pytest.raises(KeyError) as caught:
        fa.attention(Q, K, V, mask_mod=lambda b, h, i, j: {}["nothing"])
    assert "while fa traced the mask_mod" in caught.value.__notes__[0]
    with pytest.raises(
        fa.TraceError,
        match="key_length.. is known only where fa traces a score or mask.*FlexAttention.*; call fa.attention",
    ):
        fa.key_length()
    kept = []
    text(mask_mod=lambda b, h, i, j: kept.append(i) or i > j)
    with pytest.raises(fa.TraceError, match="uses the traced integer .* of another function"):
        text(mask_mod=lambda b, h, i, j: kept[0] > j)
    many = [fa.array(np.zeros(1, np.float32)) for _ in range(17)]
    with pytest.raises(fa.TraceError, match="captures more than 16 arrays"):
        text(score_mod=lambda s, b, h, i, j: sum((a[i] for a in many), s))
    with pytest.raises(fa.TraceError, match="rank 9, which is above 8"):
        deep = np.zeros((1,) * 9, np.float32)
        text(score_mod=lambda s, b, h, i, j: s + deep[(*(0,) * 8, i)])


def test_after_an_error_tracing_works():
    with pytest.raises(fa.TraceError):
        text(mask_mod=uses_if)
    with pytest.raises(fa.TraceError):
        fa.query_length()
    check(mask=lambda b, h, i, j: i >= j)


def test_functions_that_trace_others():
    """A trace within a trace."""

    def outer(b, h, i, j):
        text(mask_mod=fa.masks.causal_bottom_right)
        return (j <= i) & (fa.key_length() > 0)

    check(mask=outer, expected_mask=lambda b, h, i, j: j <= i)


def test_many_threads():
    from concurrent.futures import ThreadPoolExecutor

    def work(n):
        for _ in range(20):
            t = text(mask_mod=lambda b, h, i, j: (j < n) & (i < fa.key_length()))
            assert f"constant {n} :" in t
        return t

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(work, range(16)))) == 16


# --- What Python finds the same --------------------------------------------------------------


class Kind(enum.Enum):
    PLAIN = 1
    CAPPED = 2


@dataclasses.dataclass
class Settings:
    kind: Kind = Kind.CAPPED
    cap: float = 2.0


class WithArray:
    @staticmethod
    def capped(x):
        return np.tanh(x)

    def __init__(self):
        self.bias, self.kind, self.settings = fa.array(BIAS), Kind.CAPPED, Settings()


def test_identity_in_a_function_made_anew():
    """`slopes` makes the function anew; all but such arrays is what it was before."""
    kind, settings, held, marker = Kind.CAPPED, Settings(), WithArray(), object()
    acts = {"math": math.tanh, "numpy": np.tanh, "marker": marker, "own": uses_if}
    tanh, slopes = math.tanh, np.ones(HEADS, np.float32)

    def recursive(n):
        return n == 0 or recursive(n - 1)

    truths = [
        lambda: kind is Kind.CAPPED and kind is not Kind.PLAIN and kind in (Kind.CAPPED,),
        lambda: held.kind is Kind.CAPPED and {Kind.CAPPED: True}[held.kind],
        lambda: type(settings) is Settings and isinstance(settings, Settings),
        lambda: type(held) is WithArray and isinstance(held, WithArray),
        lambda: type(held.settings) is Settings and held.settings.kind is Kind.CAPPED,
        lambda: acts["math"] is math.tanh and acts["math"] is tanh and math.tanh in {tanh},
        lambda: acts["numpy"] is np.tanh and isinstance(acts["numpy"], np.ufunc),
        lambda: acts["marker"] is marker and acts["own"] is uses_if,
        lambda: isinstance(slopes, np.ndarray) and type(slopes) is np.ndarray,
        lambda: isinstance(WithArray, type) and type(WithArray) is type,
        lambda: recursive(3) and type(recursive) is type(uses_if),
    ]
    for number, truth in enumerate(truths):

        def score(s, b, h, i, j, truth=truth):
            return np.tanh(s) + slopes[h] if truth() is True else s

        assert "math.tanh" in text(score_mod=score), number


def test_methods_of_classes():
    held = WithArray()
    check(
        lambda s, b, h, i, j: held.capped(s) + held.bias[h, i, j],
        expected_score=lambda s, b, h, i, j: np.tanh(s) + BIAS[h, i, j],
    )


def test_functions_in_variables():
    from math import floor

    from numpy import tanh

    acts = {"tanh": tanh, "fa": fa.math.tanh}

    def score(s, b, h, i, j):
        return tanh(s) + acts["tanh"](s) + acts["fa"](s) + floor(s) * 1.0

    check(score, expected_score=lambda s, *at: 3 * np.tanh(s) + np.floor(s))


def test_functions_with_attributes(torch):
    def mask(b, h, i, j):
        return (i - j < mask.size) & (j <= i)

    variants = []
    for size in (4, 40, 4):
        mask.size = size
        variants.append(_trace.trace_functions(None, mask).variant)
        assert f"constant {size} :" in str(variants[-1])
    assert variants[0] == variants[2] != variants[1] and is_kept(mask_mod=mask)


def test_functions_that_seem_to_be_of_fa(torch):
    space = {"wraps": functools.wraps, "tanh": fa.math.tanh, "number": 2.0}
    exec("@wraps(tanh)\ndef score(s, b, h, i, j): return s * number", space)
    assert "2.0" in str(_trace.trace_functions(space["score"], None).variant)
    space["number"] = 3.0
    assert "3.0" in str(_trace.trace_functions(space["score"], None).variant)
    numbers = {"a": 2.0}
    space["copy"] = numbers.copy
    exec("def score(s, b, h, i, j): return s * sum(copy().values())", space)
    assert not is_kept(score_mod=space["score"])


# --- Types -----------------------------------------------------------------------------------


def test_types_of_values(torch):
    seen = []

    def score(s, b, h, i, j):
        seen.extend([s.dtype == torch.float32, i.dtype == torch.int64])
        seen.extend([(j <= i).dtype == torch.bool, s.dtype is torch.float32])
        least = torch.finfo(s.dtype).min
        return torch.where(j <= i, s, least) + torch.zeros((), dtype=s.dtype)

    def by_numpy(s, b, h, i, j):
        seen.extend([s.dtype == np.float32, i.dtype == np.int64, s.dtype == "float32"])
        seen.extend([np.issubdtype(i.dtype, np.integer), np.finfo(s.dtype).bits == 32])
        return s + np.finfo(s.dtype).eps + s.astype(s.dtype)

    def by_either(s, b, h, i, j):
        return s + s.new_full((), fill_value=2) + fa.math.tanh(s) + s.to(s.dtype)

    arrays = {np: (Q, K, V), torch: tuple(map(torch.from_numpy, (Q, K, V)))}
    for library, function in (
        *((torch, score), (np, by_numpy), (torch, score), (np, by_numpy)),
        *((np, by_either), (torch, by_either)),
    ):
        fa.attention(*arrays[library], score_mod=function)
    assert len(seen) == 18 and all(seen)
    full = text(score_mod=lambda s, b, h, i, j: s + torch.full_like(s, fill_value=2.5))
    assert "2.5" in full


def test_conversions_with_devices(torch):
    cpu = torch.device("cpu")
    integer = text(score_mod=lambda s, b, h, i, j: s.int() * 1.0)
    for function in (
        lambda s, b, h, i, j: s.to(cpu, torch.int32) * 1.0,
        lambda s, b, h, i, j: s.to("cpu", dtype=torch.int32) * 1.0,
        lambda s, b, h, i, j: s.to("cuda:0", torch.int32, True) * 1.0,
        lambda s, b, h, i, j: s.to(i) * 1.0,
        lambda s, b, h, i, j: s.astype(np.int32, copy=False) * 1.0,
    ):
        assert text(score_mod=function) == integer
    plain = text(score_mod=lambda s, b, h, i, j: s)
    for function in (
        lambda s, b, h, i, j: s.to(cpu),
        lambda s, b, h, i, j: s.to("cuda", non_blocking=True).view(()).reshape(-1).view(1, 1),
    ):
        assert text(score_mod=function) == plain
    assert "constant 1" not in text(score_mod=lambda s, b, h, i, j: s + s.new_zeros(1, 1))
    for function, message in (
        (lambda s, b, h, i, j: s.view(torch.int32), "with torch.int32, where a shape is expected"),
        (lambda s, b, h, i, j: s.view(dtype=torch.float16), "bits can't be read as another type"),
        (lambda s, b, h, i, j: s.reshape(2, 3), r"reshape .* of shape \[2, 3\]; it is one number"),
        (lambda s, b, h, i, j: torch.reshape(s, (2, 3)), r"of shape \[2, 3\]"),
        (lambda s, b, h, i, j: s.to("complex"), "converts .* to complex"),
    ):
        with pytest.raises(fa.TraceError, match=message):
            text(score_mod=function)


def test_arithmetic_of_booleans():
    def mask(b, h, i, j):
        return ((j <= i) * (j >= 0) + (j == 20)) * (i != 5)

    check(
        mask=mask, expected_mask=lambda b, h, i, j: (((j <= i) & (j >= 0)) | (j == 20)) & (i != 5)
    )

    def score(s, b, h, i, j):
        both, no_more = (j <= i) + (j > 2), np.maximum(j <= i, j > 2)
        return s + both * 1.0 + no_more * 1.0 + 2 * (j <= i) + sum(j == n for n in range(3))

    check(
        score,
        expected_score=lambda s, b, h, i, j: (
            s + 2.0 * ((j <= i) | (j > 2)) + 2 * (j <= i) + (j < 3)
        ),
    )
    with pytest.raises(fa.TraceError, match="subtracts two booleans; use"):
        text(mask_mod=lambda b, h, i, j: (i < j) - (j < 3))


# --- Functions by name -----------------------------------------------------------------------


def test_functions_of_others_by_known_names(torch):
    operator = torch.library.custom_op(
        "fa_test::square", mutates_args=(), schema="(Tensor x) -> Tensor"
    )

    @operator
    def square(x):
        return x * x * x

    cubed = text(score_mod=lambda s, b, h, i, j: s * s * s)
    for function in (
        lambda s, b, h, i, j: torch.ops.fa_test.square(s),
        lambda s, b, h, i, j: torch.ops.fa_test.square.default(s),
        lambda s, b, h, i, j: square(s),
    ):
        assert text(score_mod=function) == cubed
    tanh = text(score_mod=lambda s, b, h, i, j: s.tanh())
    for function in (
        lambda s, b, h, i, j: torch.ops.aten.tanh(s),
        lambda s, b, h, i, j: torch.ops.aten.tanh.default(s),
        lambda s, b, h, i, j: torch.nn.functional.tanh(s),
        lambda s, b, h, i, j: torch.Tensor.tanh(s),
    ):
        try:
            assert text(score_mod=function) == tanh
        except TypeError as reason:  # of PyTorch, whose methods want tensors
            assert "tanh" in str(reason)
    assert "math.exp" in text(score_mod=lambda s, b, h, i, j: torch.special.expit(s))
    assert "negf" in text(score_mod=lambda s, b, h, i, j: torch.nn.functional.logsigmoid(s))
    for function in (lambda s, b, h, i, j: np.emath.sqrt(s), lambda s, b, h, i, j: np.emath.log(s)):
        with pytest.raises(fa.TraceError, match="is not NumPy's .* and can't be traced"):
            text(score_mod=function)


def test_maximum_over_a_dimension(torch):
    for function in (
        lambda s, b, h, i, j: torch.max(s, 0),
        lambda s, b, h, i, j: torch.max(s, dim=0),
        lambda s, b, h, i, j: np.max(s, 0),
        lambda s, b, h, i, j: np.min(s, axis=0),
        lambda s, b, h, i, j: s.max(0),
        lambda s, b, h, i, j: s.min(-1),
    ):
        with pytest.raises(fa.TraceError, match="over dimension .* of one number; use m..imum"):
            text(score_mod=function)
    for function in (
        lambda s, b, h, i, j: torch.max(s, i),
        lambda s, b, h, i, j: np.maximum(s, 0),
        lambda s, b, h, i, j: fa.math.maximum(s, 0),
    ):
        assert "maximumf" in text(score_mod=function)


def test_bounds_by_name(torch):
    check(
        lambda s, b, h, i, j: torch.clamp_min(s, -1) + s.clamp_max(1) + fa.math.clamp_min(s, 0),
        expected_score=lambda s, *at: np.maximum(s, -1) + np.minimum(s, 1) + np.maximum(s, 0),
    )


# --- What is caught or left ------------------------------------------------------------------


def test_errors_that_the_function_catches(torch):
    slopes = torch.ones(HEADS)

    def by_if(s, b, h, i, j):
        try:
            return s * 2 if i > j else s
        except Exception:
            return s

    def by_method(s, b, h, i, j):
        try:
            return s.cumsum(0)
        except Exception:
            return s

    def by_suppress(s, b, h, i, j):
        with contextlib.suppress(ValueError):
            return torch.cumsum(s, 0)
        return s

    for function, message in (
        (by_if, "needs the truth"),
        (by_method, "no attribute 'cumsum'"),
        (by_suppress, "torch function cumsum"),
    ):
        with pytest.raises(fa.TraceError, match=message) as caught:
            text(score_mod=function)
        assert "caught this error" in caught.value.__notes__[0]

    def asks(s, b, h, i, j):
        try:
            s = s * slopes[h] if hasattr(s, "tanh") and not hasattr(s, "cumsum") else s
            return s + {"a": 1.0}["b"]
        except KeyError:
            return getattr(s, "cumsum", s)

    assert "mulf" in text(score_mod=asks)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_parts_of_arrays(library):
    bounds = np.array([[0, 9], [4, 17], [9, 24]], np.int32)
    given = bounds
    if library == "torch":
        given = pytest.importorskip("torch").from_numpy(bounds)

    def mask(b, h, i, j):
        lo, hi = given[i // 8]
        return (j >= lo) & (j < hi) & (len(given[i // 8]) == 2)

    check(
        mask=mask,
        expected_mask=lambda b, h, i, j: (j >= bounds[i // 8, 0]) & (j < bounds[i // 8, 1]),
    )


# Functions of a row of an array, each of which numbers and arrays of numbers give, too.
ROWS = {
    "sum": lambda row, j: row.sum() + j,
    "sum by name": lambda row, j: np.sum(row) + j,
    "sum of squares": lambda row, j: (row * row).sum() + j,
    "sum of others": lambda row, j: (row + j).sum(),
    "from the left": lambda row, j: (j + row).sum() + (1.0 - row).sum(),
    "mean": lambda row, j: row.mean() + np.mean(row) + j,
    "largest": lambda row, j: row.max() + np.max(row) + np.min(row) - row.min() + j,
    "product": lambda row, j: row.prod() * 0.1 + j,
    "dot": lambda row, j: row @ WEIGHTS + np.dot(row, row) * 0.1 + WEIGHTS @ row + j,
    "any": lambda row, j: (row > j).any() * 1.0 + np.all(row > j) * 2.0 + j,
    "functions": lambda row, j: np.exp(-abs(row)).sum() + np.maximum(row, j).sum(),
    "where": lambda row, j: np.where(row > j, row, 0.5 * j).sum(),
    "each": lambda row, j: sum(x * (n + 1) for n, x in enumerate(row)) + row[0] - row[-1] + j,
    "parts": lambda row, j: row[1:].sum() + row[::2][0] + len(row) + j,
    "shapes": lambda row, j: (row.reshape(2, 2) * row.reshape(2, 2).T).sum(0).sum() + j,
}
TABLE = np.random.default_rng(4).standard_normal((LENGTH, 4)).astype(np.float32)
WEIGHTS = np.float32([0.5, -1, 2, 0.25])


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_arrays(name):
    function = ROWS[name]

    def score(s, b, h, i, j):
        return s + function(TABLE[i], j * 0.1)

    def expected(s, b, h, i, j):
        each = [[function(TABLE[x], y * 0.1) for y in range(LENGTH)] for x in range(LENGTH)]
        return s + np.array(each, np.float64)

    weights = fa.array(WEIGHTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "WEIGHTS", weights)
        out, lse = fa.attention(Q, K, V, score_mod=score, return_lse=True)
    error = right.approximated(4, "cpu")
    wanted = right.attention(Q, K, V, score=expected, has_large_scores=True, score_error=error)
    right.assert_right(out, wanted, lse)


def test_rows_of_tensors(torch):
    table, weights = torch.from_numpy(TABLE), torch.from_numpy(WEIGHTS)

    def function(row, j):
        both = torch.dot(row, weights) + (row * row).sum(dim=-1) + row.amax() + torch.mean(row)
        near = (row.unsqueeze(0) - row.unsqueeze(1)).abs().amin(dim=1).sum()
        return both + torch.where(row > j, row, 0.0).sum() + near + (row > j).any(dim=-1) + j

    wanted = right.attention(
        *(Q, K, V),
        has_large_scores=True,
        score=lambda s, b, h, i, j: (
            s
            + np.array(
                [[function(table[x], y * 0.1) for y in range(LENGTH)] for x in range(LENGTH)]
            )
        ),
    )
    out = fa.attention(
        *map(torch.from_numpy, (Q, K, V)),
        score_mod=lambda s, b, h, i, j: s + function(table[i], j * 0.1),
    )
    right.assert_right(out, wanted)


def test_errors_of_rows(torch):
    tensor, large = torch.from_numpy(TABLE), np.zeros((LENGTH, 2000), np.float32)
    for function, message in (
        (lambda s, b, h, i, j: s + TABLE[i], r"return a float, got an array of \[4\] traced elem"),
        (lambda s, b, h, i, j: s + TABLE[i][j * 0.5], "with a traced float; use an integer"),
        (lambda s, b, h, i, j: s + (TABLE[i] * 2)[h], "index the captured array instead"),
        (lambda s, b, h, i, j: s + TABLE[i].cumsum()[0], "has no attribute 'cumsum' that can"),
        (lambda s, b, h, i, j: s + large[i].sum(), "2000 elements, .* more than 1024; index them"),
        (
            lambda s, b, h, i, j: s + (TABLE[i] * np.ones(3, "f4")).sum(),
            r"shapes \[4\] and \[3\].*broad",
        ),
        (
            lambda s, b, h, i, j: s + np.dot(TABLE[i], TABLE[i][:2]),
            r"dot of shapes \[4\] and \[2\]",
        ),
        (lambda s, b, h, i, j: s + tensor[i].max(dim=0)[0], "gives indices, too; use amax"),
        (lambda s, b, h, i, j: s if TABLE[i] > 0 else -s, "array of .4. traced elements as a num"),
    ):
        with pytest.raises(fa.TraceError, match=message):
            text(score_mod=function)


def test_operations_are_counted():
    """A compiler's time grows with a function's operations: there is a limit, which says so."""

    def sum_of(count):
        def score(s, b, h, i, j):
            for n in range(count):
                s = s + i * n
            return s

        return score

    fa.trace(score_mod=sum_of(500))
    with pytest.raises(fa.TraceError, match="more than 4096 operations for each element; compute"):
        fa.trace(score_mod=sum_of(3000))


def test_taking_elements(torch):
    """By the functions that take them, as by an index."""
    flat, bias = torch.arange(24.0), torch.from_numpy(BIAS)
    plain = text(score_mod=lambda s, b, h, i, j: s + flat[i])
    for function in (
        lambda s, b, h, i, j: s + torch.take(flat, i),
        lambda s, b, h, i, j: s + flat.take(i),
        lambda s, b, h, i, j: s + torch.gather(flat, 0, i),
        lambda s, b, h, i, j: s + flat.gather(0, i),
        lambda s, b, h, i, j: s + flat.index_select(0, i),
        lambda s, b, h, i, j: s + np.take(FLAT, i),
        lambda s, b, h, i, j: s + FLAT.take(i),
    ):
        assert text(score_mod=function) == plain
    check(
        lambda s, b, h, i, j: s + np.take(BIAS, (h * LENGTH + i) * LENGTH + j),
        expected_score=lambda s, b, h, i, j: s + BIAS[h, i, j],
    )
    check(
        lambda s, b, h, i, j: s + np.take(BIAS, i, axis=1)[h, j],
        expected_score=lambda s, b, h, i, j: s + BIAS[h, i, j],
    )
    row = text(score_mod=lambda s, b, h, i, j: s + bias[h][i][j])
    embed = torch.nn.functional.embedding
    assert text(score_mod=lambda s, b, h, i, j: s + embed(h, bias)[i, j]) == row
    for function, message in (
        (
            lambda s, b, h, i, j: s + bias.gather(2, j),
            r"gather of .*\[2, 24, 24\]; index it, as in",
        ),
        (lambda s, b, h, i, j: s + bias.index_select(0, h), "index_select of .*; index it, as in"),
        (lambda s, b, h, i, j: s + torch.take_along_dim(bias, i), "take_along_dim of .*; index it"),
    ):
        with pytest.raises(fa.TraceError, match=message):
            text(score_mod=function)


FLAT = np.arange(24, dtype=np.float32)


def test_wrong_numbers_of_arguments():
    wanted = r"expected mask_mod to take the 4 positional arguments \(b, h, q_idx, kv_idx\), got"
    for function in (
        lambda i, j: i > j,
        lambda s, b, h, i, j: i > j,
        functools.partial(fa.masks.causal, 1),
    ):
        with pytest.raises(TypeError, match=wanted):
            text(mask_mod=function)
    with pytest.raises(TypeError, match=r"arguments \(score, b, h, q_idx, kv_idx\), got a funct"):
        text(score_mod=fa.masks.causal)


# Points of functions: ordinary ones, ends of domains, what overflows in between.
POINTS = np.float32(
    [*np.linspace(-3, 3, 41), 0.0, -0.0, 1e-8, -1e-8, 1e-4, 0.999, -0.999, 1, -1, 7, -7, 50, -50]
    + [1e5, -1e5, 1e20, -1e20, 1e30, -1e30, 3e38, -3e38, np.inf, -np.inf, np.nan]
)


def values_of(function, *arrays):
    """function(*elements) of each element, through fa: the score of a single key."""
    rows = len(arrays[0])
    q, k = np.zeros((1, 1, rows, 1), np.float32), np.zeros((1, 1, 1, 1), np.float32)

    arrays = tuple(map(fa.array, arrays))

    def score_mod(s, b, h, i, j):
        return function(*(array[i] for array in arrays))

    return fa.attention(q, k, k, score_mod=score_mod, return_lse=True)[1][0, 0]


OF_ONE = ["elu", "celu", "selu", "hardtanh", "relu6", "hardsigmoid", "hardswish", "mish"]
OF_ONE += ["softsign", "tanhshrink", "asin", "acos", "asinh", "acosh", "atanh", "frac"]


@pytest.mark.parametrize("name", OF_ONE)
def test_values_of_one(torch, name):
    theirs = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    given = values_of(getattr(fa.math, name), POINTS)
    exact = theirs(torch.from_numpy(POINTS).double()).numpy()
    same = np.isclose(given, exact, **ERRORS, equal_nan=True)
    # A row without a finite score has none, and rows of +inf no weights.
    assert (same | ~np.isfinite(exact)).all(), (POINTS[~same], given[~same], exact[~same])
    assert np.isnan(given[np.isnan(exact)]).all()


@pytest.mark.parametrize("name", ["atan2", "logaddexp", "xlogy", "heaviside", "isclose"])
def test_values_of_two(torch, name):
    x, y = (array.ravel() for array in np.meshgrid(POINTS, POINTS))
    ours = getattr(fa.math, name)
    given = values_of(lambda a, b: ours(a, b) * 1.0, x, y)
    pair = torch.from_numpy(x).double(), torch.from_numpy(y).double()
    exact = getattr(torch, name)(*pair).double().numpy()
    if name == "xlogy":  # whose product may leave float32
        exact = np.where(np.abs(exact) > 1e37, np.inf, exact)
    if name == "heaviside":
        exact = np.where(np.isnan(x), np.nan, exact)
    same = np.isclose(given, exact, **ERRORS, equal_nan=True)
    wrong = ~same & np.isfinite(exact)
    assert not wrong.any(), (x[wrong], y[wrong], given[wrong], exact[wrong])
    assert np.isnan(given[np.isnan(exact)]).all()
