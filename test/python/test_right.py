# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rule of what is right: mistakes that are planted fail it, and nothing else does."""

from __future__ import annotations

import functools
import math
import pathlib
import re
import subprocess

import fa
import naive
import numpy as np
import pytest
import right

DTYPES = ["float32", "float16", "bfloat16"]
DIMS = {1: [(16, 16), (64, 64)], 17: [(16, 16), (64, 64), (80, 24)]}
DIMS |= {333: [(16, 16), (64, 64), (80, 24), (128, 128)], 1000: [(64, 64), (128, 128)]}
"""Lengths, and head dims at that length."""


def width(length):
    return max(1, length // 3)


MASKS = {
    "dense": lambda n: lambda b, h, i, j: (i >= 0) & (j >= 0),
    "causal": lambda n: lambda b, h, i, j: j <= i,
    "window": lambda n: lambda b, h, i, j: (j <= i) & (i - j <= width(n)),
    "padding": lambda n: lambda b, h, i, j: (j < n - n // 5) & (i >= 0),
    "holes": lambda n: lambda b, h, i, j: (i % 7 != 3) & (j <= i),
}
OFF_BY_ONE = {
    "dense": lambda n: lambda b, h, i, j: (i >= 0) & (j >= 1),
    "causal": lambda n: lambda b, h, i, j: j <= i + 1,
    "window": lambda n: lambda b, h, i, j: (j <= i) & (i - j < width(n)),
    "padding": lambda n: lambda b, h, i, j: (j < n - n // 5 - 1) & (i >= 0),
    "holes": lambda n: lambda b, h, i, j: (i % 7 != 3) & (j < i),
}


@functools.cache
def problem(dtype, length, dims, name):
    """Inputs, the mask, and what is expected."""
    heads = (4, 2) if length < 1000 else (2, 2)
    arrays = naive.inputs(1, *heads, length, length, *dims)
    arrays = tuple(naive.rounded(x, dtype) for x in arrays)
    mask = MASKS[name](length)(*naive.coordinates(1, 1, length, length))[0, 0]
    return arrays, mask, right.attention(*arrays, dtype=dtype, mask=lambda *at: mask)


def kernel(
    arrays, mask, dtype, *, weights=naive.rounded, result=naive.rounded, scale=1.0, max_of=None
):
    """What a right kernel does: scores and sums are float32, weights are rounded to the
    type of v before they are normalised, and so is the result. With ways to do it wrong."""
    q, k, v = arrays
    k, v = (x.repeat(q.shape[1] // x.shape[1], 1) for x in (k, v))
    with np.errstate(all="ignore"):
        s = q @ k.swapaxes(2, 3) * np.float32(scale * q.shape[-1] ** -0.5)
        s = np.where(mask, s, np.float32(-np.inf))
        m = s.max(-1, keepdims=True)
        p = np.exp(s - np.where(np.isinf(m), 0, m if max_of is None else max_of(s)))
        total = p.sum(-1, keepdims=True)
        out = weights(p, dtype) @ v / np.where(total > 0, total, 1)
        return result(out, dtype).astype(np.float64), (m + np.log(total))[..., 0].astype(np.float64)


@functools.cache
def right_result(*case):
    arrays, mask, _ = problem(*case)
    return kernel(arrays, mask, case[0])


# --- Mistakes ------------------------------------------------------------------------

PLANTED = {}
"""Functions of a case that give (out, lse), or None where they change nothing."""


def planted(function):
    PLANTED[function.__name__] = function
    return function


def planted_in_result(function):
    """A mistake made in a right result, in place."""

    def of(case):
        out, lse = (x.copy() for x in right_result(*case))
        function(out, lse)
        return out, lse

    PLANTED[function.__name__] = of
    return function


@planted_in_result
def output_times_1_02(out, lse):
    out *= 1.02


@planted_in_result
def output_times_0_98(out, lse):
    out *= 0.98


@planted_in_result
def lse_and_0_015(out, lse):
    lse += 0.015


@planted_in_result
def lse_in_log2(out, lse):
    lse *= math.log2(math.e)


@planted_in_result
def one_lse_nan(out, lse):
    lse[0, -1, -1] = math.nan


@planted_in_result
def first_row_wrong(out, lse):
    out[:, :, 0] *= 1.05


@planted_in_result
def heads_swapped(out, lse):
    out[:, [0, -1]] = out[:, [-1, 0]]


@planted_in_result
def one_nan(out, lse):
    out[0, -1, -1, -1] = math.nan


@planted_in_result
def one_infinity(out, lse):
    out[0, -1, -1, -1] = math.inf


@planted_in_result
def tile_not_written(out, lse):
    out[0, 1, -64:] = 0


@planted_in_result
def last_column_not_written(out, lse):
    out[..., -1] = 0


@planted
def rows_that_see_nothing_are_small(case):
    out, lse = (x.copy() for x in right_result(*case))
    empty = np.isinf(lse)
    out[empty] = 1e-7
    return (out, lse) if empty.any() else None


@planted
def rows_that_see_nothing_have_a_finite_lse(case):
    out, lse = (x.copy() for x in right_result(*case))
    empty = np.isinf(lse)
    lse[empty] = -1e30
    return (out, lse) if empty.any() else None


@planted
def scale_1_percent_off(case):
    arrays, mask, _ = problem(*case)
    return kernel(arrays, mask, case[0], scale=1.01)


def masked_otherwise(case, other):
    arrays, mask, _ = problem(*case)
    return None if (mask == other).all() else kernel(arrays, other, case[0])


@planted
def last_key_forgotten(case):
    mask = problem(*case)[1]
    keys = np.arange(mask.shape[1])
    return masked_otherwise(case, mask & (keys != keys[mask.any(0)].max()))


@planted
def last_block_forgotten(case):
    mask = problem(*case)[1]
    keys = np.arange(mask.shape[1])
    return masked_otherwise(case, mask & (keys < (len(keys) - 1) // 64 * 64))


@planted
def last_key_of_each_row_forgotten(case):
    mask = problem(*case)[1]
    keys = np.arange(mask.shape[1])
    return masked_otherwise(case, mask & (keys != (mask * (keys + 1)).max(-1, keepdims=True) - 1))


@planted
def mask_off_by_one(case):
    _, length, _, name = case
    other = OFF_BY_ONE[name](length)(*naive.coordinates(1, 1, length, length))
    return masked_otherwise(case, other[0, 0])


@planted
def mask_forgotten(case):
    return masked_otherwise(case, np.ones_like(problem(*case)[1]))


@planted
def state_not_rescaled(case):
    """The first half of the keys keeps the maximum that was known then."""
    arrays, mask, _ = problem(*case)
    half = mask.shape[1] // 2

    def max_of(s):
        first = s[..., :half].max(-1, keepdims=True, initial=-np.inf)
        last = s.max(-1, keepdims=True)
        first = np.where(np.isinf(first), last, first)
        return np.where(np.arange(s.shape[-1]) < half, first, last)

    return kernel(arrays, mask, case[0], max_of=max_of) if half else None


def fp8(values, dtype):
    """Rounded to e4m3: 4 bits, and nothing finer than 2^-9."""
    with np.errstate(divide="ignore"):
        unit = 2.0 ** (np.maximum(np.floor(np.log2(values)), -6) - 3)
    return (np.round(values / unit) * unit).astype(np.float32)


def truncated(values, dtype):
    """Rounded towards 0 to bfloat16."""
    bits = np.array(values, np.float32, order="C").view(np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


@planted
def weights_in_fp8(case):
    arrays, mask, _ = problem(*case)
    # The weight of a row's only key is 1, which is exact.
    return kernel(arrays, mask, case[0], weights=fp8) if case[1] > 1 else None


@planted
def weights_truncated_to_bfloat16(case):
    arrays, mask, _ = problem(*case)
    if case[1] == 1 or case[0] == "bfloat16":
        return None
    return kernel(arrays, mask, case[0], weights=truncated)


@planted
def output_in_bfloat16(case):
    arrays, mask, _ = problem(*case)
    if case[0] == "bfloat16":
        return None
    return kernel(arrays, mask, case[0], result=lambda x, _: naive.rounded(x, "bfloat16"))


# --- Tests ---------------------------------------------------------------------------


def cases(dtype, length):
    return [(dtype, length, dims, mask) for dims in DIMS[length] for mask in MASKS]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", DIMS)
def test_right_results_pass(length, dtype):
    for case in cases(dtype, length):
        out, lse = right_result(*case)
        right.assert_right(out, problem(*case)[2], lse, str(case))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", DIMS)
@pytest.mark.parametrize("mistake", PLANTED)
def test_mistakes_fail(mistake, length, dtype):
    tried, unnoticed = 0, []
    for case in cases(dtype, length):
        result = PLANTED[mistake](case)
        if result is None:
            continue
        tried += 1
        try:
            right.assert_right(result[0], problem(*case)[2], result[1])
        except AssertionError:
            continue
        unnoticed.append(case)
    assert not unnoticed
    if not tried:
        pytest.skip("changes nothing here")


def test_a_truncated_output_is_at_the_edge_of_the_rule():
    """Of bfloat16. It errs by one unit in the last place, where rounding errs by half of
    one and the rule allows twice what the plain formula's largest error happens to be:
    some pass, and none is far from it. So it is no mistake that must be noticed."""
    shares = []
    for case in (case for length in DIMS if length > 1 for case in cases("bfloat16", length)):
        arrays, mask, expected = problem(*case)
        out, _ = kernel(arrays, mask, case[0], result=truncated)
        shares.append(right.share(out, expected.out, expected.limit))
    assert min(shares) < 1 and max(shares) < 2


def test_random_values_hide_mistakes():
    """Why inputs are given a form: without it a factor is within bfloat16's rounding."""
    rng = np.random.default_rng(0)
    arrays = [naive.rounded(rng.standard_normal((1, 2, 1000, 64)).astype("f4"), "bfloat16")] * 3
    plain = right.attention(*arrays, dtype="bfloat16")
    assert right.share(1.01 * plain.out, plain.out, plain.limit) < 1
    telling = naive.telling(*(x.copy() for x in arrays))
    expected = right.attention(*(naive.rounded(x, "bfloat16") for x in telling), dtype="bfloat16")
    assert right.share(1.02 * expected.out, expected.out, expected.limit) > 1.5


def test_rounding_of_the_largest_output():
    """What NumPy's float16 rounds by, at most, in the largest number's binade."""
    for largest in (4.83143807, 7.999, 0.3, 1e-3):
        x = np.linspace(-1, 1, 4001) * largest
        top = abs(x) >= 2.0 ** np.floor(np.log2(largest))
        wrong = abs(x.astype("f2").astype("f8") - x)[top].max()
        assert 0.9 < wrong / right.half_unit(x, "float16") <= 1
        assert right.half_unit(x, "bfloat16") == 8 * right.half_unit(x, "float16")
    assert right.half_unit(np.array([4.0]), "float16") == 2.0**-9
    assert right.half_unit(np.zeros(3), "float16") == 0
    assert right.half_unit(np.array([np.inf, 1.0]), "bfloat16") == 2.0**-8


def test_limits():
    """The numbers of lib/Run/Compare.cpp, as CompareTest.cpp has them."""
    assert right.output_limit("bfloat16", 0.25, 100) == pytest.approx(0.5 + 1e-5, rel=1e-15)
    assert right.output_limit("float16", 0.25, 100) == pytest.approx(0.5 + 1e-5, rel=1e-15)
    assert right.output_limit("float32", 0.25, 2) == pytest.approx(2e-5, rel=1e-15)
    assert right.output_limit("float64", 0.25, 2) == pytest.approx(2e-12, rel=1e-15)
    given = right.lse_limit(np.array([0.0, -1e4]), "float64")
    assert given == pytest.approx([1e-12, 8e4 * 2.0**-53], rel=1e-15)
    given = right.lse_limit(np.array([0.0, -math.inf, 200.0, -1e4]))
    assert given == pytest.approx([1e-4, 1e-4, 1e-4, 8e4 * 2.0**-24], rel=1e-15)


def test_score_errors_move_results_no_further():
    """What `score_error` allows is what scores that are so wrong can do, and little more."""
    rng = np.random.default_rng(1)
    arrays = naive.inputs(1, 2, 2, 30, 50, 16)
    error = 1e-3
    for errors in (rng.uniform(-error, error, (1, 2, 30, 50)), error * rng.choice([-1, 1], (50,))):
        expected = right.attention(*arrays, score_error=error)
        out, lse = naive.attention(*arrays, score=lambda s, *at, e=errors: s + e)
        right.assert_right(out, expected, lse)
        with pytest.raises(AssertionError):
            right.assert_right(out, right.attention(*arrays))
    assert right.share(out, expected.out, expected.limit) > 0.02


def test_messages_say_where_and_how_much():
    expected = right.attention(*naive.inputs(1, 2, 2, 5, 6, 16))
    out = expected.out.copy()
    out[0, 1, 4, 3] += 1
    with pytest.raises(AssertionError, match=r"output: 1 of 160 .* first at \[0, 1, 4, 3\]: exp"):
        right.assert_right(out, expected, expected.lse)
    with pytest.raises(AssertionError, match=r"log-sum-exp: 10 of 10 .*first at \[0, 0, 0\]"):
        right.assert_right_lse(expected.lse + 1, expected)
    with pytest.raises(AssertionError, match="expected shape"):
        right.assert_right(out[:, :1], expected)


def test_nan_where_the_reference_has_it():
    q, k, v = naive.inputs(1, 1, 1, 5, 6, 16)
    q[0, 0, 2] = math.nan
    expected = right.attention(q, k, v)
    right.assert_right(expected.out, expected, expected.lse)
    for value in (0, math.inf):
        with pytest.raises(AssertionError):
            right.assert_right(np.nan_to_num(expected.out, nan=value), expected)


# --- The suites use it ------------------------------------------------------------------


def of_variants():
    import test_variants

    formula = lambda s, b, h, i, j: s - 0.25 * np.abs(i - j)  # noqa: E731
    score = lambda s, b, h, i, j: s - 0.25 * fa.math.abs(i - j)  # noqa: E731
    test_variants.check(333, score=(score, formula))


def of_attention():
    import test_attention

    test_attention.test_lengths(333, False)


def of_arrays():
    import test_attention

    test_attention.test_float16_numpy()


def of_bfloat16():
    torch = pytest.importorskip("torch")
    import test_torch

    q, k, v = test_torch.inputs(dtype=torch.bfloat16, rows=130, keys=200)
    out = fa.attention(q, k, v)
    test_torch.assert_right(out, test_torch.exact_sdpa(q, k, v, enable_gqa=True))


def of_dropout():
    import test_dropout

    test_dropout.check("numpy", (1, 4, 2, 133, 150, 32))


def of_block_masks():
    import test_block_masks

    seen = np.ones((1, 1), bool)
    mask = fa.masks.block_sparse(np.ones((3, 3), bool), 64)
    test_block_masks.check(lambda x: x, mask, seen, 150, 150)


def of_traces():
    import test_trace

    test_trace.check(lambda s, b, h, i, j: s * 1.5 - (i - j) * 0.125)


SUITES = (
    *(of_variants, of_attention, of_arrays, of_bfloat16, of_dropout),
    *(of_block_masks, of_traces),
)


def with_output(result, change):
    if isinstance(result, tuple):
        return (change(result[0]), *result[1:])
    return change(result)


WRONG = {
    "output times 1.02": lambda own, q, k, v, options: with_output(
        own(q, k, v, **options), lambda x: x * x.dtype.type(1.02) if is_array(x) else x * 1.02
    ),
    "a row that is not written": lambda own, q, k, v, options: with_output(
        own(q, k, v, **options), first_row_zero
    ),
    "scale 1% off": lambda own, q, k, v, options: own(
        q, k, v, **{**options, "scale": 1.01 * (options.get("scale") or q.shape[-1] ** -0.5)}
    ),
    "last key forgotten": lambda own, q, k, v, options: own(
        q, k[:, :, :-1], v[:, :, :-1], **options
    ),
}


def is_array(x):
    return isinstance(x, np.ndarray)


def first_row_zero(x):
    x[:, :, 0] = 0
    return x


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.__name__)
@pytest.mark.parametrize("mistake", [None, *WRONG, "log-sum-exp + 0.015"])
def test_suites_notice(monkeypatch, suite, mistake):
    """A package that is wrong fails each suite, and one that is right passes."""
    own = fa.attention

    def planted(q, k, v, **options):
        if mistake in WRONG:
            return WRONG[mistake](own, q, k, v, options)
        result = own(q, k, v, **options)
        if mistake and isinstance(result, tuple):
            return result[0], result[1] + np.float32(0.015)
        return result

    if mistake is None:
        suite()
        return
    if mistake.startswith("log") and suite in (of_arrays, of_bfloat16):
        pytest.skip("asks for no log-sum-exp")
    monkeypatch.setattr(fa, "attention", planted)
    with pytest.raises(AssertionError, match="are not right"):
        suite()


# --- The same rule in fa-run ------------------------------------------------------------

FA_RUN = pathlib.Path(fa.__file__).parents[2] / "bin" / "fa-run"
TYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def normal(seed, count):
    """Normal numbers as lib/Run/Inputs.cpp makes them (splitmix64, Box and Muller)."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, 2 * count + 1, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    first, second = (((z >> np.uint64(11)) + 0.5) * 2.0**-53).reshape(-1, 2).T
    return np.sqrt(-2 * np.log(first)) * np.cos(6.283185307179586 * second)


def inputs_of_fa_run(shapes, dtype, seed=0):
    arrays = []
    for number, shape in enumerate(shapes):
        start = (seed * 1000003 + number * 0x5851F42D4C957F2D) % 2**64
        arrays.append(normal(start, math.prod(shape)).reshape(shape))
    return [naive.rounded(x, dtype) for x in naive.telling(*arrays)]


@pytest.mark.skipif(not FA_RUN.exists(), reason="needs fa-run of the build tree")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("rows", "keys", "dim"), [(17, 17, 16), (70, 100, 64), (333, 333, 32)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_fa_run_has_the_same_rule(tmp_path, dtype, rows, keys, dim, is_causal):
    """Inputs, the plain formula in their type, and the limit that follows."""
    kind = TYPES[dtype]
    q, k = f"tensor<1x4x{rows}x{dim}x{kind}>", f"tensor<1x2x{keys}x{dim}x{kind}>"
    region = """mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    }"""
    file = tmp_path / "f.mlir"
    file.write_text(f"""func.func @f(%q: {q}, %k: {k}, %v: {k}) -> {q} {{
      %o = fa.attention %q, %k, %v {region if is_causal else ""} : ({q}, {k}, {k}) -> {q}
      return %o : {q}
    }}""")
    command = [FA_RUN, file, "--check", "--passes=fa-decompose"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    header, row = (re.split(r"  +", line) for line in done.stdout.splitlines()[:2])
    theirs = dict(zip(header, row))
    shapes = ((1, 4, rows, dim), (1, 2, keys, dim), (1, 2, keys, dim))
    mask = {"mask": lambda b, h, i, j: j <= i} if is_causal else {}
    expected = right.attention(*inputs_of_fa_run(shapes, dtype), dtype=dtype, **mask)
    assert theirs["verdict"] == "ok"
    # It prints three digits.
    assert float(theirs["limit"]) == pytest.approx(expected.limit, rel=1e-2)


def test_fa_run_has_the_same_rule_for_gradients():
    """lib/Run/Compare.cpp says it by the rule of an output."""
    source = (pathlib.Path(__file__).parents[2] / "lib/Run/Compare.cpp").read_text()
    (factor,) = re.findall(r"outputLimit\(dtype, ([0-9.]+) \* naiveError, maxReference\)", source)
    assert float(factor) * right.NAIVE_ERRORS == right.NAIVE_GRADIENT_ERRORS
    for dtype in TYPES:
        expected = right.output_limit(dtype, float(factor) * 0.25, 3.0)
        assert right.gradient_limit(dtype, 0.25, 3.0) == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_mistakes_in_gradients(dtype):
    """A right gradient passes, and one that is 1% off in a row or lacks a key's part fails."""
    torch = pytest.importorskip("torch")
    given = [torch.from_numpy(x) for x in naive.inputs(1, 4, 2, 33, 70, 64)]
    given = [x.to(getattr(torch, dtype)).requires_grad_() for x in given]
    grads = (
        torch.from_numpy(normal(5, 4 * 33 * 64).reshape(1, 4, 33, 64)).to(given[0].dtype),
        None,
    )
    expected = right.gradients(naive.differentiable, given, grads)
    for own in expected:
        right.assert_right_gradient(naive.rounded(own.exact, dtype), own)
        for planted in (
            lambda x: x * 1.02,
            lambda x: np.concatenate([x[:, :, :-1], 0 * x[:, :, -1:]], 2),
            lambda x: x[..., ::-1],
            lambda x: np.where(np.arange(x.size).reshape(x.shape) == 7, np.nan, x),
        ):
            with pytest.raises(AssertionError, match="are not right"):
                right.assert_right_gradient(planted(own.exact), own)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_are_judged_as_arrays_are(dtype):
    """What is computed with PyTorch, where its tensors are, and with NumPy."""
    torch = pytest.importorskip("torch")
    q, k, v = (
        torch.from_numpy(x).to(getattr(torch, dtype)) for x in naive.inputs(1, 4, 2, 9, 33, 16)
    )
    formulas = {
        "mask": lambda b, h, i, j: (j <= i + h) & (i != 3),
        "score": lambda s, b, h, i, j: s * 2 - (i - j) / 8,
        "scale": 0.3,
    }
    ours = right.attention(q, k, v, **formulas)
    theirs = right.attention(q, k, v, xp=torch, **formulas)
    np.testing.assert_allclose(theirs.out, ours.out, rtol=1e-12)
    np.testing.assert_allclose(theirs.lse, ours.lse, rtol=1e-12)
    assert theirs.limit == pytest.approx(ours.limit, rel=0.05)
    assert (theirs.out[:, :, 3] == 0).all() and np.isneginf(theirs.lse[:, :, 3]).all()
    none = right.attention(q, k[:, :, :0], v[:, :, :0], xp=torch)
    assert (none.out == 0).all() and np.isneginf(none.lse).all()
    given = torch.randn(1, 2, 17, 16)
    for x, y in zip(
        naive.telling(given.clone(), given.clone(), given.clone()),
        naive.telling(*(given.numpy().copy() for _ in range(3))),
    ):
        np.testing.assert_array_equal(x.numpy(), y)
