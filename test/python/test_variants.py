# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa.masks and fa.scores against formulas of their own in float64.

On the CPU, or with FA_TEST_DEVICE=cuda on a GPU, there in 16 bits as well.
FA_TEST_LENGTHS (1,17,333) says at which lengths; FA_TARGET, for which target on
the GPU.
"""

from __future__ import annotations

import math
import os

import fa
import libraries
import naive
import numpy as np
import pytest
import right
from fa import masks, scores
from fa._run.call import _kernel
from libraries import DEVICE, needs_torch

BATCH, HEADS, KEY_HEADS, DIM = 2, 4, 2, 16
LENGTHS = tuple(map(int, os.environ.get("FA_TEST_LENGTHS", "1,17,333").split(",")))
DTYPES = ["float32"] if DEVICE == "cpu" else ["float32", "bfloat16"]
"""Of q, k and v."""


def on(array, dtype=None):
    """The array where the test runs."""
    return libraries.on(array, "numpy" if DEVICE == "cpu" else "torch", dtype)


def distance(b, h, i, j):
    return i - j


def ids_of(length):
    """Packed documents of 1, 2, 3, ... tokens, [B, S], of another start in each entry."""
    at = np.arange(length)
    return np.stack([np.floor(np.sqrt(2 * (at + 5 * b))) for b in range(BATCH)]).astype(np.int32)


def t5_bucket(relative, buckets, most, bidirectional):
    """The bucket of T5, one number at a time and in exact powers."""
    base = 0
    if bidirectional:
        buckets //= 2
        base, relative = (buckets if relative > 0 else 0), abs(relative)
    else:
        relative = max(-relative, 0)
    exact = buckets // 2
    if relative < exact:
        return base + relative
    bucket = exact
    # log(d / exact) / log(most / exact) * (buckets - exact) >= bucket + 1 - exact
    while bucket < buckets - 1 and (relative / exact) ** (buckets - exact) >= (most / exact) ** (
        bucket + 1 - exact
    ) * (1 - 1e-12):
        bucket += 1
    return base + bucket


def t5_reference(table, bidirectional, most):
    bucket = np.vectorize(lambda r: t5_bucket(r, len(table), most, bidirectional), otypes=[int])

    def score(s, b, h, i, j):
        return s + table.astype(np.float64)[bucket(j - i), h]

    return score


def alibi_slopes(heads):
    """As the paper's code has it."""
    if math.log2(heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [start * start**i for i in range(heads)]
    near = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(near) + alibi_slopes(2 * near)[0::2][: heads - near]


def neighbours(p, r, length, size):
    start = np.clip(p - size // 2, 0, np.maximum(length - size, 0))
    return (r >= start) & (r < start + size)


RNG = np.random.default_rng(1)
SLOPES = RNG.random(HEADS).astype(np.float32)
TABLE = RNG.standard_normal((HEADS, 21)).astype(np.float32)
T5 = RNG.standard_normal((32, HEADS)).astype(np.float16)
T5_CAUSAL = RNG.standard_normal((16, HEADS)).astype(np.float32)
FEW = np.array([5, 0], np.int32)
ROWS = np.array([7, 300], np.int64)


def one(value):
    return on(np.array(value, np.int32))


# name: (length -> what fa takes, length -> formula on arrays)
MASKS = {
    "causal": (lambda n: masks.causal, lambda n: lambda b, h, i, j: j <= i),
    "causal, bottom right": (
        lambda n: masks.causal_bottom_right,
        lambda n: lambda b, h, i, j: j <= i,
    ),
    "causal, lengths": (
        lambda n: masks.causal_lengths(on(ROWS), on(FEW)),
        lambda n: lambda b, h, i, j: (j - FEW[b] <= i - ROWS[b]) & (j < FEW[b]),
    ),
    "window": (
        lambda n: masks.sliding_window(20),
        lambda n: lambda b, h, i, j: (j <= i) & (i - j < 21),
    ),
    "window, both sides, read": (
        lambda n: masks.sliding_window(one(3), one([40])),
        lambda n: lambda b, h, i, j: (j - i <= 40) & (j - i >= -3),
    ),
    "prefix": (
        lambda n: masks.prefix(30),
        lambda n: lambda b, h, i, j: (j < 30) | (j <= i),
    ),
    "prefix of each entry": (
        lambda n: masks.prefix(on(FEW)),
        lambda n: lambda b, h, i, j: (j < FEW[b]) | (j <= i),
    ),
    "documents": (
        lambda n: masks.documents(on(ids_of(n))),
        lambda n: lambda b, h, i, j: ids_of(n)[b, i] == ids_of(n)[b, j],
    ),
    "documents, rank 1": (
        lambda n: masks.documents(on(ids_of(n)[0]), on(ids_of(n)[1].astype(np.int64))),
        lambda n: lambda b, h, i, j: ids_of(n)[0, i] == ids_of(n)[1, j],
    ),
    "padding": (
        lambda n: masks.padding(on(FEW)),
        lambda n: lambda b, h, i, j: (j < FEW[b]) & (i == i),
    ),
    "dilated": (
        lambda n: masks.dilated(3),
        lambda n: lambda b, h, i, j: np.abs(i - j) % 3 == 0,
    ),
    "dilated window, read": (
        lambda n: masks.dilated(one(4), 17, 9),
        lambda n: lambda b, h, i, j: ((i - j) % 4 == 0) & (i - j <= 17) & (j - i <= 9),
    ),
    "neighbourhood": (
        lambda n: masks.neighbourhood(7),
        lambda n: lambda b, h, i, j: neighbours(i, j, n, 7),
    ),
    "neighbourhood 2D": (
        lambda n: masks.neighbourhood_2d((3, 5), 9),
        lambda n: (
            lambda b, h, i, j: (
                neighbours(i // 9, j // 9, n // 9, 3) & neighbours(i % 9, j % 9, 9, 5)
            )
        ),
    ),
    "neighbourhood 2D, read": (
        lambda n: masks.neighbourhood_2d(5, one(8)),
        lambda n: (
            lambda b, h, i, j: (
                neighbours(i // 8, j // 8, n // 8, 5) & neighbours(i % 8, j % 8, 8, 5)
            )
        ),
    ),
    "nanoseconds": (
        lambda n: within_three_years(on(nanoseconds_of(n))),
        lambda n: within_three_years(nanoseconds_of(n)),
    ),
    "block-sparse": (
        lambda n: masks.block_sparse(on(blocks_of(n, 16, 64)), (16, 64)),
        lambda n: lambda b, h, i, j: blocks_of(n, 16, 64)[b, h, i // 16, j // 64],
    ),
    "block-sparse, one for all": (
        lambda n: masks.block_sparse(on(blocks_of(n, 128, 128)[0, 1])),
        lambda n: lambda b, h, i, j: blocks_of(n, 128, 128)[0, 1, i // 128, j // 128] & (h == h),
    ),
    "block-sparse, causal": (
        lambda n: masks.and_masks(
            masks.block_sparse(on(blocks_of(n, 10, 20)[:1]), (10, 20)), masks.causal
        ),
        lambda n: lambda b, h, i, j: blocks_of(n, 10, 20)[0, h, i // 10, j // 20] & (j <= i),
    ),
    "attention sink": (
        lambda n: masks.attention_sink(50, 4),
        lambda n: lambda b, h, i, j: (j <= i) & ((j < 4) | (j > i - 50)),
    ),
    "and, or, not": (
        lambda n: masks.and_masks(
            masks.not_mask(masks.sliding_window(2)),
            masks.or_masks(masks.causal, masks.padding(on(FEW))),
        ),
        lambda n: lambda b, h, i, j: ~((j <= i) & (i - j <= 2)) & ((j <= i) | (j < FEW[b])),
    ),
    "nothing": (
        lambda n: masks.and_masks(masks.causal, masks.or_masks()),
        lambda n: lambda b, h, i, j: (j < i) & (j > i),
    ),
}
SCORES = {
    "softcap": (
        lambda n: scores.softcap(2.0),
        lambda n: lambda s, b, h, i, j: 2 * np.tanh(s / 2),
    ),
    "softcap, read": (
        lambda n: scores.softcap(on(np.array(1.5, np.float32))),
        lambda n: lambda s, b, h, i, j: 1.5 * np.tanh(s / 1.5),
    ),
    "ALiBi": (
        lambda n: scores.alibi(HEADS),
        lambda n: lambda s, b, h, i, j: s - np.array(alibi_slopes(HEADS))[h] * np.abs(i - j),
    ),
    "ALiBi, slopes": (
        lambda n: scores.alibi(on(SLOPES)),
        lambda n: lambda s, b, h, i, j: s - SLOPES.astype(np.float64)[h] * np.abs(i - j),
    ),
    "bias": (
        lambda n: scores.bias(on(bias_of(n))),
        lambda n: lambda s, b, h, i, j: s + bias_of(n).astype(np.float64)[0, h, i, j],
    ),
    "relative position": (
        lambda n: scores.relative_position(on(TABLE)),
        lambda n: (
            lambda s, b, h, i, j: s + TABLE.astype(np.float64)[h, np.clip(j - i, -10, 10) + 10]
        ),
    ),
    "T5": (
        lambda n: scores.t5_bias(on(T5)),
        lambda n: t5_reference(T5, True, 128),
    ),
    "T5, decoder": (
        lambda n: scores.t5_bias(on(T5_CAUSAL), bidirectional=False, max_distance=64),
        lambda n: t5_reference(T5_CAUSAL, False, 64),
    ),
    "softcap of ALiBi": (
        lambda n: scores.compose(scores.alibi(on(SLOPES)), scores.softcap(3.0)),
        lambda n: (
            lambda s, b, h, i, j: (
                3 * np.tanh((s - SLOPES.astype(np.float64)[h] * np.abs(i - j)) / 3)
            )
        ),
    ),
}


CAPS = {"softcap": 2.0, "softcap, read": 1.5, "softcap of ALiBi": 3.0}


def error_of(name, device=DEVICE):
    """How wrong the scores may be: a cap's tanh is approximated."""
    return right.approximated(CAPS.get(name, 0.0), device)


def nanoseconds_of(length):
    """Times of tokens, four years between the halves: sums beyond 32 bits."""
    at = np.arange(length)
    return (1_700_000_000 + at + (at > length // 2) * 4 * 365 * 86400) * 10**9


def within_three_years(times):
    def seen(b, h, q_idx, kv_idx):
        return (times[q_idx] - times[kv_idx]) // 10**9 < 3 * 365 * 86400

    return seen


def blocks_of(length, rows, keys):
    """Which blocks are seen, [B, H, Nq, Nk]: a third of them."""
    rng = np.random.default_rng(length)
    return rng.random((BATCH, HEADS, -(-length // rows), -(-length // keys))) < 0.35


def bias_of(length):
    rng = np.random.default_rng(length)
    return rng.standard_normal((1, HEADS, length, length)).astype(np.float32)


def check(
    length, *, rows=None, batch=BATCH, heads=(HEADS, KEY_HEADS), dim=DIM, score_error=0.0, **given
):
    """Runs fa with functions and compares with the formulas beside them."""
    mods = {f"{what}_mod": mod for what, (mod, _) in given.items()}
    formulas = {what: formula for what, (_, formula) in given.items()}
    for dtype in DTYPES:
        q, k, v = naive.inputs(batch, *heads, length if rows is None else rows, length, dim)
        arrays = [on(x, dtype) for x in (q, k, v)]
        out, lse = fa.attention(*arrays, return_lse=True, **mods)
        expected = right.attention(*arrays, score_error=score_error, **formulas)
        right.assert_right(out, expected, lse)


def check_lengths(what, functions, **options):
    """Checks one of a table's entries at several lengths, with one kernel a type."""
    before = _kernel.cache_info().misses
    for length in LENGTHS:
        # One batch entry of the long ones: the reference takes minutes else.
        batch = BATCH if length < 1000 else 1
        check(length, batch=batch, **{what: tuple(make(length) for make in functions)}, **options)
    assert _kernel.cache_info().misses - before <= len(DTYPES), "a length is no part of a kernel"


@pytest.mark.quick_cases(len(MASKS))  # 8 s with the scores: each is a function of fa
@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    check_lengths("mask", MASKS[name])


@pytest.mark.quick_cases(len(SCORES))
@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    check_lengths("score", SCORES[name], score_error=error_of(name))


@pytest.mark.parametrize(
    ("length", "mask", "score"),
    [
        (1000, "window", "ALiBi"),
        (1000, "neighbourhood", "softcap"),
        (4097, "attention sink", None),
    ],
)
def test_long(length, mask, score):
    given = {"mask": tuple(make(length) for make in MASKS[mask])}
    if score:
        given["score"] = tuple(make(length) for make in SCORES[score])
        given["score_error"] = error_of(score)
    check(length, batch=1, heads=(4, 1) if length < 4000 else (1, 1), **given)


@pytest.mark.parametrize("dim", [DIM, 128])
@pytest.mark.parametrize("size", [-1e4, -1e6, -1e9, -1e10, -1e30, np.finfo(np.float32).min, 1e9])
def test_large_scores(size, dim):
    """Rows of scores that are all as large, or every other: equal weights."""
    length = 333
    large = np.zeros((length, length), np.float32)
    large[5:9] = size
    large[20, ::2] = size
    large[30, 200:] = size
    table = on(large)

    def read(s, b, h, i, j):
        return fa.math.where(table[i, j] != 0, table[i, j], s)

    def written(s, b, h, i, j):
        return fa.math.where((i >= 5) & (i < 9), float(size), s)

    exact_read = lambda s, b, h, i, j: np.where(large[i, j] != 0, large[i, j], s)  # noqa: E731
    exact_written = lambda s, b, h, i, j: np.where((i >= 5) & (i < 9), float(size), s)  # noqa: E731
    for dtype in DTYPES:
        q, k, v = naive.inputs(1, HEADS, KEY_HEADS, length, length, dim)
        arrays = [on(x, dtype) for x in (q, k, v)]
        for score_mod, exact_mod in ((read, exact_read), (written, exact_written)):
            out, lse = fa.attention(*arrays, score_mod=score_mod, return_lse=True)
            right.assert_right(out, right.attention(*arrays, score=exact_mod), lse)


@pytest.mark.parametrize(("rows", "keys"), [(5, 40), (40, 5), (1, 333), (64, 64)])
def test_bottom_right(rows, keys):
    formula = lambda b, h, i, j: j - keys <= i - rows  # noqa: E731
    check(keys, rows=rows, mask=(masks.causal_bottom_right, formula))


@pytest.mark.parametrize("heads", [1, 6, 12])
def test_alibi_of_any_number_of_heads(heads):
    slopes = np.array(alibi_slopes(heads))
    formula = lambda s, b, h, i, j: s - slopes[h] * np.abs(i - j)  # noqa: E731
    check(17, heads=(heads, 1), score=(scores.alibi(heads), formula))


def test_mask_after_score():
    """A mask is not softened by the score function, whatever that makes of -inf."""
    formula = lambda s, b, h, i, j: 2 * np.tanh(s / 2)  # noqa: E731
    causal = (masks.causal, lambda b, h, i, j: j <= i)
    check(40, score=(scores.softcap(2.0), formula), mask=causal, score_error=error_of("softcap"))


def test_is_causal_and_a_mask():
    q, k, v = naive.inputs(BATCH, HEADS, KEY_HEADS, 50, 50, DIM)
    lengths = np.array([30, 50])
    mask = masks.padding(on(lengths))
    out = fa.attention(on(q), on(k), on(v), is_causal=True, mask_mod=mask)
    right.assert_right(
        out, right.attention(q, k, v, mask=lambda b, h, i, j: (j <= i) & (j < lengths[b]))
    )


def test_t5_thresholds():
    """Where a bucket begins is an integer at times: no rounding may move it."""
    for buckets, most in ((16, 128), (32, 128), (8, 64), (32, 1024)):
        exact = buckets // 2
        thresholds = scores._t5_thresholds(exact, buckets, most)
        for d in range(exact, 2 * most):
            ours = exact + sum(d >= t for t in thresholds)
            assert ours == t5_bucket(-d, buckets, most, False), (buckets, most, d)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: masks.sliding_window(-1), "left >= 0, got -1"),
        (lambda: masks.dilated(0), "step >= 1, got 0"),
        (lambda: masks.neighbourhood_2d((3, 0), 4), "size >= 1, got 0"),
        (lambda: masks.attention_sink(0), "window >= 1, got 0"),
        (lambda: scores.softcap(0.0), "cap > 0, got 0.0"),
        (lambda: scores.alibi(0), "heads >= 1, got 0"),
        (lambda: scores.relative_position(TABLE[:, :4]), r"got \[4, 4\]"),
        (lambda: scores.t5_bias(T5[:2]), "at least 4 buckets"),
        (lambda: scores.bias(SLOPES), r"\[Sq, Sk\], got shape \[4\]"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_flex_attention_takes_masks():
    """What is made of operators alone is also a mask for PyTorch."""
    torch = pytest.importorskip("torch")
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    ids = torch.from_numpy(ids_of(40))
    mask = masks.and_masks(
        masks.causal,
        masks.or_masks(masks.documents(ids), masks.attention_sink(torch.tensor(3), 1)),
        masks.not_mask(masks.dilated(5)),
    )
    ours = naive_mask(mask, 40)
    theirs = flex.create_mask(mask, BATCH, HEADS, 40, 40, device="cpu").numpy()
    assert (ours == theirs).all()
    both = flex.and_masks(mask, flex.or_masks(masks.causal, flex.noop_mask))
    q, k, v = map(torch.from_numpy, naive.inputs(BATCH, HEADS, KEY_HEADS, 40, 40, DIM))
    out = fa.attention(q, k, v, mask_mod=both)
    right.assert_right(out, right.attention(q, k, v, mask=lambda b, h, i, j: theirs))


def naive_mask(mask, length):
    import torch

    at = naive.coordinates(BATCH, HEADS, length, length)
    seen = mask(*(torch.from_numpy(np.asarray(x)) for x in at))
    return np.broadcast_to(seen.numpy(), (BATCH, HEADS, length, length))


@pytest.mark.skipif(DEVICE != "cpu", reason="runs on a GPU")
@pytest.mark.parametrize("name", [*MASKS, *SCORES])
def test_as_ptx(name):
    """A kernel for GPUs, an instruction at a time on the CPU."""
    import types

    import variant_fuzzer

    length = 40
    q, k, v = naive.inputs(BATCH, HEADS, KEY_HEADS, length, length, DIM)
    given = [variant_fuzzer.EmulatedArray(x, "float16") for x in (q, k, v)]
    heads = (HEADS, KEY_HEADS)
    case = types.SimpleNamespace(
        dtype="float16", heads=heads, dims=(DIM, DIM), is_causal=False, scale=None
    )
    mask, mask_formula = (make(length) for make in MASKS.get(name, [lambda n: None] * 2))
    score, formula = (make(length) for make in SCORES.get(name, [lambda n: None] * 2))
    out, lse = variant_fuzzer.emulated(case, score, mask, given)
    expected = right.attention(
        *(x.raw for x in given),
        score=formula,
        mask=mask_formula,
        score_error=error_of(name, "cuda"),
    )
    right.assert_right(out, expected, lse)


@pytest.mark.skipif(DEVICE != "cpu", reason="runs on a GPU")
def test_last_keys_first_as_ptx():
    """Blocks of keys from the last to the first, which is loaded ahead."""
    import types

    import variant_fuzzer

    length = 75
    q, k, v = naive.inputs(BATCH, HEADS, KEY_HEADS, length, length, DIM)
    slopes = np.array([0.7, 2**-8, 0.0, -0.3][:HEADS], "f4")
    given = [variant_fuzzer.EmulatedArray(x, "float16") for x in (q, k, v)]
    case = types.SimpleNamespace(
        dtype="float16", heads=(HEADS, KEY_HEADS), dims=(DIM, DIM), is_causal=True, scale=None
    )
    out, lse = variant_fuzzer.emulated(
        case, fa.scores.alibi(slopes), None, given, keys=16, rows=32, order="descending"
    )
    expected = right.attention(
        *(x.raw for x in given),
        score=lambda s, b, h, i, j: s - slopes[h] * abs(i - j),
        mask=lambda b, h, i, j: j <= i,
    )
    right.assert_right(out, expected, lse)


def test_parts_that_are_shared_are_looked_at_once():
    """Of 2^40 ways through these functions none is walked twice."""

    def score(s, b, h, i, j):
        x = (j - i) * 0.125
        for _ in range(40):
            x = (x + x) * 0.5
        return s + x

    def mask(b, h, i, j):
        seen = j <= i
        for n in range(40):
            seen = (seen & (i >= n - 40)) & (seen & (j < i + 41 + n))
        return seen

    q, k, v = naive.inputs(1, 2, 2, 40, 40, 16)
    out = fa.attention(*map(on, (q, k, v)), score_mod=score, mask_mod=mask)
    expected = right.attention(
        q, k, v, score=lambda s, b, h, i, j: s + (j - i) / 8, mask=lambda b, h, i, j: j <= i
    )
    right.assert_right(out, expected)
    for target in ("sm_80", "sm_90a"):
        variant = fa.trace(score_mod=score, mask_mod=mask)
        fa.compile(fa.AttentionConfig("bf16", 2, 2, 64, 64, variant=variant), target)


@pytest.mark.skipif(DEVICE != "cpu", reason="asks nothing of a GPU")
def test_numbers_that_multiply_kernels(monkeypatch):
    """One warning that names the number; arrays of one element and few values are silent."""
    import warnings

    from fa._trace import numbers

    monkeypatch.setattr(numbers, "_values", {})

    def traced_with(make, values):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for value in values:
                fa.trace(mask_mod=make(value))
        return [str(warning.message) for warning in caught]

    def windowed(width):
        return masks.and_masks(masks.causal, lambda b, h, i, j: i - j < width)

    assert not traced_with(windowed, range(1, 9))
    (said,) = traced_with(windowed, range(1, 20))
    assert "test_variants.py" in said and "the number 'width' had 9 values" in said
    assert "give torch.tensor(width)" in said
    (said,) = traced_with(masks.prefix, range(1, 20))
    assert said.startswith("fa.masks.prefix: the number 'length' had 9 values")
    assert not traced_with(lambda n: masks.dilated(np.array([n])), range(1, 20))


@needs_torch
@pytest.mark.parametrize("size", [3e4, 1e5, 1e15])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_beyond_what_integers_hold(dtype, size):
    """Rows of them are the largest's, and none is 0 or NaN."""
    import torch

    if DEVICE != "cpu" and dtype == "bfloat16":
        pytest.skip("taken to be below 1e9")
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 70, 64, generator=generator) for _ in range(3))
    q, k, v = (x.to(getattr(torch, dtype)).to(DEVICE) for x in (q * size, k * size, v))
    out, lse = fa.attention(q, k, v, return_lse=True)
    scores = q.double() @ k.double().mT / 8
    assert out.isfinite().all() and lse.isfinite().all()
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), rtol=1e-5, atol=0)
    # A score's rounding may put another key first.
    order = scores.sort(-1, descending=True).values
    is_clear = order[..., 0] - order[..., 1] > 1e-5 * order[..., 0].abs()
    assert is_clear.float().mean() > 0.5
    want = torch.softmax(scores, -1) @ v.double()
    torch.testing.assert_close(out.double()[is_clear], want[is_clear], rtol=1e-2, atol=1e-5)
