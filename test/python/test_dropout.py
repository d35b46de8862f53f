# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dropout of attention's weights against float64 with the same weights dropped.

Which weights these are a second Philox says, in NumPy (`naive.kept`). On the CPU, or
with FA_TEST_DEVICE=cuda on a GPU.
"""

from __future__ import annotations

import contextlib
import math

import fa
import naive
import numpy as np
import pytest
import right
from fa import masks, scores
from fa._run.variant import Variant
from libraries import (
    DEVICE,
    HAS_TORCH,
    LIBRARIES,
    compiled,
    differentiate,
    has_functions,
    needs_torch,
    on,
)
from naive import back

DTYPES = ["float32", "float16", "bfloat16"]
"""Of q, k and v."""
ROUTED = "float32" if DEVICE == "cpu" else "bfloat16"
"""A type of which fa.torch.use_sdpa leaves nothing to PyTorch."""
SEED = 0x123456789ABCDEF0
PROBABILITIES = {0.1: 26, 0.5: 128, 0.996: 255, 1 / 256: 1}
"""Probabilities, and of how many of 256 random numbers a weight is dropped."""

if HAS_TORCH:
    import fa.torch
    import torch
    import torch.nn.functional as F


def dtypes(library):
    return [dtype for dtype in DTYPES if library == "torch" or dtype != "bfloat16"]


def expected(arrays, p, seed=SEED, **options):
    """What is right: of arrays of NumPy or PyTorch; options as for right.attention."""
    q, k, v = arrays
    dropped = PROBABILITIES[p]
    keep = naive.kept(seed, (*q.shape[:3], k.shape[2]), dropped)
    return right.attention(q, k, v, keep=keep, factor=256 / (256 - dropped), **options)


def check(
    library,
    shape,
    p=0.5,
    *,
    seed=SEED,
    is_causal=False,
    mask=None,
    score=None,
    only=None,
    **options,
):
    """Runs fa and compares. shape: as for naive.inputs; mask and score: (function,
    formula); options: for fa.attention alone."""
    formulas = {} if mask is None else {"mask": mask[1]}
    if is_causal:
        own = formulas.get("mask", lambda b, h, i, j: True)
        formulas["mask"] = lambda b, h, i, j: own(b, h, i, j) & (j <= i)
    if score is not None:
        formulas["score"] = score[1]
    for dtype in only or dtypes(library):
        arrays = [on(x, library, dtype) for x in naive.inputs(*shape)]
        functions = {"mask_mod": mask and mask[0], "score_mod": score and score[0]}
        out, lse = fa.attention(
            *arrays,
            **functions,
            **options,
            is_causal=is_causal,
            return_lse=True,
            dropout_p=p,
            dropout_seed=seed,
        )
        assert out.dtype == arrays[0].dtype and str(lse.dtype).endswith("float32")
        # Of few elements the plain formula's largest error is a matter of luck.
        wanted = expected(arrays, p, seed, samples=2048, **formulas)
        right.assert_right(out, wanted, lse)
        alone = fa.attention(
            *arrays, **functions, **options, is_causal=is_causal, dropout_p=p, dropout_seed=seed
        )
        right.assert_right(alone, wanted)


# --- What is compared with -----------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, "5f6fb709 0d893f64 4f121f81 4f730a48"),
        ([2**32 - 1] * 4, [2**32 - 1] * 2, "5207ddc2 45165e59 4d8ee751 8c52f662"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "4dfccaba 190a87f0 c47362ba b6b5242a",
        ),
    ],
)
def test_philox(counter, key, words):
    """The known answers of Random123, for 7 rounds."""
    assert " ".join(f"{int(word):08x}" for word in naive.philox(counter, key)) == words


def test_philox_of_ten_rounds():
    words = naive.philox([0] * 4, [0] * 2, rounds=10)
    assert [int(word) for word in words] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_kept_by_definition():
    """An element at a time, as the formula of fa.random_bits says it."""
    shape, dropped = (2, 2, 35, 70), 90
    together = naive.kept(SEED, shape, dropped)
    rng = np.random.default_rng(0)
    for b, h, i, j in rng.integers(0, shape, (200, 4)).tolist():
        place = 8 * (2 * (i // 8 % 2) + j % 2) + 7 - j // 8 % 8
        number = 0
        for n in range(8):
            counter = (8 * (i // 16) + i % 8, 8 * (j // 64) + j % 8 // 2 * 2, h, b)
            words = naive.philox(counter, (SEED % 2**32, SEED >> 32), 7 if n >= 4 else 9)
            number += (int(words[n % 4]) >> place & 1) << n
        assert together[b, h, i, j] == (number >= dropped)


# --- Values --------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("rows", [1, 17, 333])
@pytest.mark.parametrize("keys", [1, 40, 333])
def test_lengths(library, rows, keys, is_causal):
    check(library, (2, 4, 2, rows, keys, 32), is_causal=is_causal)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("p", PROBABILITIES)
def test_probabilities(library, p, is_causal):
    check(library, (1, 3, 1, 70, 100, 16), p, is_causal=is_causal)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("heads", [(1, 1), (3, 3), (8, 2), (6, 1)])
@pytest.mark.parametrize("dims", [(32, 32), (16, 40), (40, 8), (64, 128)])
def test_heads_and_dims(library, heads, dims):
    check(library, (2, *heads, 33, 65, *dims), 0.1, is_causal=True)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("rows", [0, 5])
def test_empty(library, rows):
    check(library, (2, 4, 2, rows, 0, 16))
    check(library, (0, 4, 2, rows, 7, 16))


@pytest.mark.parametrize("library", LIBRARIES)
def test_long(library):
    check(library, (1, 2, 1, 700, 1100, 64), 0.1, is_causal=True)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_scale(library, scale):
    q, k, v = (on(x, library) for x in naive.inputs(1, 2, 2, 40, 50, 16))
    out = fa.attention(q, k, v, scale=scale, dropout_p=0.5, dropout_seed=SEED)
    right.assert_right(out, expected((q, k, v), 0.5, scale=scale))


@pytest.mark.parametrize("library", LIBRARIES)
def test_strided(library):
    arrays = [
        on(np.ascontiguousarray(x.swapaxes(1, 2)), library).swapaxes(1, 2)
        for x in naive.inputs(2, 4, 4, 40, 50, 16)
    ]
    out = fa.attention(*arrays, dropout_p=0.5, dropout_seed=SEED)
    right.assert_right(out, expected(arrays, 0.5))


IDS = np.repeat(np.arange(9), [3, 1, 40, 2, 60, 7, 1, 30, 56]).astype(np.int32)
BIAS = np.random.default_rng(7).standard_normal(4).astype(np.float32)


def rows_of_bias(bias):
    return lambda s, b, h, i, j: s + bias[h] * (j - i) / 100


VARIANTS = {
    "window": lambda library: {
        "mask": (masks.sliding_window(9, 4), lambda b, h, i, j: (i - j <= 9) & (j - i <= 4))
    },
    "documents": lambda library: {
        "mask": (masks.documents(on(IDS, library)), lambda b, h, i, j: IDS[i] == IDS[j])
    },
    "rows that see nothing": lambda library: {
        "mask": (lambda b, h, i, j: i % 3 != 1, lambda b, h, i, j: (i % 3 != 1) & (j == j))
    },
    "nothing": lambda library: {
        "mask": (masks.or_masks(), lambda b, h, i, j: (i < 0) & (j < 0)),
    },
    "softcap": lambda library: {
        "score": (scores.softcap(2.0), lambda s, b, h, i, j: 2 * np.tanh(s / 2))
    },
    "bias": lambda library: {
        "score": (
            rows_of_bias(on(BIAS, library)),
            lambda s, b, h, i, j: s + BIAS.astype(float)[h] * (j - i) / 100,
        )
    },
}
VARIANTS["both"] = lambda library: VARIANTS["documents"](library) | VARIANTS["bias"](library)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("name", VARIANTS)
def test_functions(library, name, is_causal):
    check(library, (2, 4, 2, 133, 150, 32), is_causal=is_causal, **VARIANTS[name](library))


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_with_nothing_to_attend(library):
    q, k, v = (on(x, library) for x in naive.inputs(1, 2, 2, 40, 40, 16))
    out, lse = fa.attention(
        q,
        k,
        v,
        mask_mod=lambda b, h, i, j: (i != 3) & (j < i),
        return_lse=True,
        dropout_p=0.5,
        dropout_seed=SEED,
    )
    for row in (0, 3):
        assert not back(out)[:, :, row].any() and (back(lse)[:, :, row] == -np.inf).all()
    assert np.isfinite(back(lse)[:, :, [1, 2, 4, 39]]).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_lse_is_the_same(library):
    """It knows nothing of dropout; only tiles may be others."""
    q, k, v = (on(x, library) for x in naive.inputs(2, 4, 2, 100, 130, 32))
    _, plain = fa.attention(q, k, v, return_lse=True)
    _, lse = fa.attention(q, k, v, return_lse=True, dropout_p=0.5, dropout_seed=SEED)
    np.testing.assert_allclose(
        back(lse), back(plain), rtol=0, atol=1e-6 if DEVICE == "cpu" else 1e-4
    )


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("library", LIBRARIES)
def test_without(library):
    """A probability of 0, or one that rounds to it, is the plain call."""
    q, k, v = (on(x, library) for x in naive.inputs(1, 2, 2, 40, 50, 16))
    plain = fa.attention(q, k, v)
    before = fa.compile_count()
    for p in (0, 0.0, -0.0, 1e-9, 0.4 / 256):
        for seed in (None, SEED):
            out = fa.attention(q, k, v, dropout_p=p, dropout_seed=seed)
            assert (back(out) == back(plain)).all()
    assert fa.compile_count() == before


# --- Which weights are kept ----------------------------------------------------------


def mask_of(library, seed, shape, p=0.5, dtype="float32", **options):
    """Which weights a call keeps, bool [B, H, Sq, Sk]: of equal weights and one-hot
    values, so many keys at a time."""
    batch, heads, rows, keys = shape
    dim, step = 16, 128
    q = on(np.zeros((batch, heads, rows, dim), np.float32), library, dtype)
    k = on(np.ones((batch, heads, keys, dim), np.float32), library, dtype)
    parts = []
    for first in range(0, keys, step):
        own = np.broadcast_to(np.eye(keys, step, -first, np.float32), (batch, heads, keys, step))
        v = on(np.ascontiguousarray(own), library, dtype)
        out = back(fa.attention(q, k, v, dropout_p=p, dropout_seed=seed, **options))
        parts.append(out[..., : keys - first])
    weights = np.concatenate(parts, -1)
    factor = 256 / (256 - PROBABILITIES[p])
    kept = weights != 0
    # Of float32; else a weight and a result are rounded.
    roundings = {**right.RELATIVE, "float16": 2 * 2**-11, "bfloat16": 2 * 2**-8}[dtype]
    np.testing.assert_allclose(weights[kept], factor / keys, rtol=roundings)
    return kept


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("p", PROBABILITIES)
def test_kept(library, p):
    shape = (2, 3, 77, 150)
    wanted = naive.kept(SEED, shape, PROBABILITIES[p])
    for dtype in dtypes(library):
        assert (mask_of(library, SEED, shape, p, dtype) == wanted).all()


TILES = (
    [(0, 16), (0, 32), (0, 48), (0, 64), (16, 0), (48, 32), (8, 8), (24, 40), (7, 5), (64, 128)]
    if DEVICE == "cpu"
    else [(64, 64), (128, 64), (64, 128), (128, 128), (64, 32), (128, 16)]
)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("tiles", TILES, ids=str)
def test_kept_whatever_the_tiles(library, tiles):
    schedule = dict(zip(("rows", "keys"), tiles))
    shape = (1, 2, 133, 150)
    wanted = naive.kept(SEED, shape, 128)
    dtype = "float32" if DEVICE == "cpu" else "float16"
    for is_causal in (False, True):
        if is_causal:
            arrays = [on(x, library, dtype) for x in naive.inputs(1, 2, 1, 133, 150, 32)]
            out = fa.attention(
                *arrays, is_causal=True, schedule=schedule, dropout_p=0.5, dropout_seed=SEED
            )
            right.assert_right(out, expected(arrays, 0.5, mask=lambda b, h, i, j: j <= i))
        else:
            kept = mask_of(library, SEED, shape, dtype=dtype, schedule=schedule)
            assert (kept == wanted).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_kept_of_a_part(library):
    """It is the same for fewer batch entries, heads, rows and keys."""
    whole = mask_of(library, SEED, (3, 4, 70, 90))
    for shape in ((1, 4, 70, 90), (3, 1, 70, 90), (3, 4, 1, 90), (3, 4, 70, 1), (2, 2, 33, 31)):
        batch, heads, rows, keys = shape
        part = mask_of(library, SEED, shape)
        assert (part == whole[:batch, :heads, :rows, :keys]).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_kept_of_a_slice(library):
    """Arrays that begin elsewhere are another batch entry 0 and head 0."""
    q, k, v = (on(x, library) for x in naive.inputs(3, 4, 4, 30, 40, 16))
    part = [x[1:, 2:] for x in (q, k, v)]
    out = fa.attention(*part, dropout_p=0.5, dropout_seed=SEED)
    right.assert_right(out, expected(part, 0.5))


@needs_torch
@pytest.mark.parametrize("return_lse", [False, True])
@pytest.mark.parametrize("dim", [64, 128, 192, 256])
@pytest.mark.parametrize("speculate", ["on", "off"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_growing_scores(dtype, speculate, dim, return_lse):
    """Along the keys, far beyond what a speculated maximum allows: what was summed, also
    of weights that are dropped, is rescaled and made again."""
    q, k, v = naive.inputs(1, 2, 1, 130, 700 if DEVICE == "cpu" else 2100, dim)
    k *= np.linspace(0.1, 12, k.shape[2], dtype=np.float32)[:, None]
    given = [on(x, "torch", dtype) for x in (q, k, v)]
    result = fa.attention(
        *given,
        dropout_p=0.5,
        dropout_seed=SEED,
        return_lse=return_lse,
        schedule={"speculate": speculate},
    )
    out, lse = result if return_lse else (result, None)
    right.assert_right(out, expected(given, 0.5), lse)


SEEDS = [0, 1, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**31), -(2**63), SEED]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_seeds(library, seed):
    """As an integer, and in arrays of the types that it fits, of no dimension and of 1."""
    shape = (1, 2, 33, 65)
    wanted = naive.kept(seed, shape, 128)
    assert (mask_of(library, seed, shape) == wanted).all()
    for dtype in ("int64", "int32"):
        if np.iinfo(dtype).min <= seed <= np.iinfo(dtype).max:
            for sizes in ((), (1,), (1, 1)):
                array = on(np.full(sizes, seed, dtype), library)
                assert (mask_of(library, array, shape) == wanted).all()


def test_seeds_of_numpy_scalars():
    """They are arrays of no dimension, as NumPy has it."""
    if DEVICE != "cpu":
        pytest.skip("NumPy's arrays are on the CPU")
    shape = (1, 1, 33, 65)
    for seed in (np.int64(7), np.int32(7)):
        assert (mask_of("numpy", seed, shape) == naive.kept(7, shape, 128)).all()


@pytest.mark.skipif("torch" not in LIBRARIES, reason="needs PyTorch")
def test_seeds_of_numpy_with_tensors():
    shape = (1, 1, 33, 65)
    for seed in (np.int64(7), np.int32(7), np.uint64(7), np.array(7)):
        assert (mask_of("torch", seed, shape) == naive.kept(7, shape, 128)).all()
    for seed in (True, np.True_, np.array(True), np.array([7, 8]), np.float32(7)):
        with pytest.raises(TypeError, match="expected dropout_seed as an integer"):
            mask_of("torch", seed, shape)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("at", [(3,), (slice(3, 4),), (slice(3, None, 20),)], ids=str)
def test_seed_of_a_larger_array(library, at):
    seeds = on(np.arange(12), library)
    shape = (1, 1, 33, 65)
    assert (mask_of(library, seeds[at], shape) == naive.kept(3, shape, 128)).all()


# --- Kernels -------------------------------------------------------------------------


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("library", LIBRARIES)
def test_seed_changed_in_place(library):
    q, k, v = (on(x, library) for x in naive.inputs(1, 2, 2, 40, 50, 16))
    seed = on(np.zeros((), np.int64), library)
    fa.attention(q, k, v, dropout_p=0.5, dropout_seed=seed)
    before = fa.compile_count()
    for value in (5, -3, 2**40):
        seed[...] = value
        out = fa.attention(q, k, v, dropout_p=0.5, dropout_seed=seed)
        right.assert_right(out, expected((q, k, v), 0.5, value))
    assert fa.compile_count() == before


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("functions", [False, True])
def test_one_kernel(library, functions):
    """Seeds, however they are given, and sizes are no part of a kernel."""
    options = {"mask_mod": masks.sliding_window(9), "score_mod": scores.alibi(4)}

    def call(batch, rows, keys, seed):
        arrays = [on(x, library) for x in naive.inputs(batch, 4, 2, rows, keys, 16)]
        own = options if functions else {}
        return fa.attention(*arrays, **own, dropout_p=0.25, dropout_seed=seed)

    call(1, 17, 40, SEED)
    before = fa.compile_count()
    for batch, rows, keys in ((1, 17, 40), (2, 1, 9), (3, 70, 5)):
        for seed in (0, -1, None, on(np.array([4]), library), on(np.array(4), library)):
            call(batch, rows, keys, seed)
    assert fa.compile_count() == before


# --- Statistics ----------------------------------------------------------------------


def in_five_sigma(count, total, share):
    return abs(count - total * share) <= 5 * math.sqrt(total * share * (1 - share))


LARGE = (2, 2, 256, 384)


@pytest.mark.parametrize("p", PROBABILITIES)
def test_share_kept(p):
    share = 1 - PROBABILITIES[p] / 256
    for seed in (0, 1, 2, SEED, -1):
        kept = mask_of(LIBRARIES[-1], seed, LARGE, p)
        assert in_five_sigma(kept.sum(), kept.size, share)
        # Of each entry and head, and of 16 rows or 32 columns of it, too.
        for part in kept.reshape(-1, *LARGE[2:]):
            assert in_five_sigma(part.sum(), part.size, share)
            for own in (*part.reshape(-1, 16, LARGE[3]), *part.T.reshape(-1, 32, LARGE[2])):
                assert in_five_sigma(own.sum(), own.size, share)


def correlation(a, b):
    """Of two masks of the same weights, in sigmas of its distribution if there is none."""
    a, b = (x.astype(float) - 0.5 for x in (a, b))
    return abs((a * b).mean() / 0.25) * math.sqrt(a.size)


@pytest.mark.parametrize("seed", [0, 1, SEED])
def test_neighbours_are_independent(seed):
    kept = mask_of(LIBRARIES[-1], seed, LARGE)
    for axis in range(4):
        for step in (1, 2, 8, 16, 32):
            if step < LARGE[axis]:
                one = np.take(kept, range(step, LARGE[axis]), axis)
                other = np.take(kept, range(LARGE[axis] - step), axis)
                assert correlation(one, other) < 5, (axis, step)
    # Diagonals: the same word serves two rows and eight columns.
    assert correlation(kept[:, :, 8:, 1:], kept[:, :, :-8, :-1]) < 5
    assert correlation(kept[:, :, 1:, 1:], kept[:, :, :-1, :-1]) < 5


@pytest.mark.parametrize("seed", [0, SEED])
def test_halves_are_independent(seed):
    """The lower half of a number comes of words of the upper half, mixed: of elements that
    share words, each pair of halves is as frequent as every other."""
    rows, keys = 1024, 1024
    numbers = naive.random_bits(seed, (1, 1, rows, keys)).astype(int)
    # Rows i / 16, i / 8 % 2, i % 8 and columns j / 64, j / 8 % 8, j % 8 / 2, j % 2.
    parts = numbers.reshape(rows // 16, 2, 8, keys // 64, 8, 4, 2)
    shared = parts.transpose(1, 4, 6, 0, 2, 3, 5).reshape(32, -1)
    expected = shared.shape[1] / 256
    for upper in shared >> 4:
        for lower in shared & 15:
            counts = np.bincount(16 * upper + lower, minlength=256)
            chi_square = ((counts - expected) ** 2 / expected).sum()
            assert abs(chi_square - 255) < 6 * math.sqrt(2 * 255)


def test_seeds_are_independent():
    """Those that differ in one bit, or have their halves swapped."""
    seeds = [0, 1, 2, 1 << 31, 1 << 32, 1 << 62, SEED, SEED ^ 1]
    kept = [mask_of(LIBRARIES[-1], seed, LARGE) for seed in seeds]
    for n, one in enumerate(kept):
        for other in kept[:n]:
            assert correlation(one, other) < 5


def test_mean_of_outputs():
    """That over many seeds is the output without dropout."""
    q, k, v = (on(x, LIBRARIES[-1]) for x in naive.inputs(1, 2, 2, 20, 60, 16))
    exact, _ = naive.attention(*map(back, (q, k, v)))
    count, p = 400, 0.25
    outs = [
        back(fa.attention(q, k, v, dropout_p=p, dropout_seed=seed)).astype(float)
        for seed in range(count)
    ]
    error = np.mean(outs, 0) - exact
    sigma = np.std(outs, 0) / math.sqrt(count)
    assert (abs(error) < 6 * sigma).all()
    assert 0.8 < np.sqrt((error**2 / sigma**2).mean()) < 1.2


# --- No seed -------------------------------------------------------------------------


@pytest.mark.skipif(DEVICE != "cpu", reason="NumPy's arrays are on the CPU")
def test_numpy_without_a_seed():
    q, k, v = naive.inputs(1, 2, 2, 40, 50, 16)
    first, second = (fa.attention(q, k, v, dropout_p=0.5) for _ in range(2))
    assert np.isfinite(first).all() and (first != second).any()


@needs_torch
def test_torch_without_a_seed():
    """PyTorch's generator decides, and goes on."""
    q, k, v = (on(x, "torch") for x in naive.inputs(1, 2, 2, 40, 50, 16))
    runs = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        runs.append([back(fa.attention(q, k, v, dropout_p=0.5)) for _ in range(2)])
    assert (runs[0][0] != runs[0][1]).any()
    assert all((one == other).all() for one, other in zip(runs[0], runs[1]))
    assert (runs[0][0] != runs[2][0]).any()


# --- Errors --------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("p", [-0.1, 1.0, math.nan, 2, math.inf, 0.9961])
def test_probabilities_that_are_none(library, p):
    q, k, v = (on(x, library) for x in naive.inputs(1, 1, 1, 4, 4, 16))
    message = rf"expected dropout_p in \[0, 0.996\], got {p}; it is the share of weights"
    for seed in (None, SEED):
        with pytest.raises(ValueError, match=message):
            fa.attention(q, k, v, dropout_p=p, dropout_seed=seed)


WRONG_SEEDS = {
    "float array": (lambda on: on(np.ones((), np.float32)), TypeError, "f32|float32"),
    "two": (lambda on: on(np.arange(2)), TypeError, r"of shape \[2\]; convert"),
    "none": (lambda on: on(np.arange(0)), TypeError, r"of shape \[0\]; convert"),
    "bool array": (lambda on: on(np.array(True)), TypeError, "bool|i1"),
    "int16": (lambda on: on(np.array(3, np.int16)), TypeError, "int16|i16"),
    "too large": (lambda on: 2**64, ValueError, f"64 bits, got {2**64}; take it modulo"),
    "too small": (lambda on: -(2**63) - 1, ValueError, f"64 bits, got -{2**63 + 1}; take it"),
    "True": (lambda on: True, TypeError, "bool"),
    "float": (lambda on: 1.5, TypeError, "float"),
    "text": (lambda on: "1", TypeError, "str"),
    "list": (lambda on: [1], TypeError, "list"),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", WRONG_SEEDS)
def test_seeds_that_are_none(library, name):
    make, error, message = WRONG_SEEDS[name]
    q, k, v = (on(x, library) for x in naive.inputs(1, 1, 1, 4, 4, 16))
    seed = make(lambda array: on(array, library))
    with pytest.raises(error, match=message) as raised:
        fa.attention(q, k, v, dropout_p=0.5, dropout_seed=seed)
    assert str(raised.value).startswith("expected ") and ";" in str(raised.value)


@needs_torch
@pytest.mark.skipif(DEVICE == "cpu", reason="needs two devices")
def test_seed_elsewhere():
    """A number of the CPU goes with tensors of a GPU, as with PyTorch's operators."""
    q, k, v = (on(x, "torch") for x in naive.inputs(1, 1, 1, 4, 4, 16))
    out = fa.attention(q, k, v, dropout_p=0.5, dropout_seed=torch.tensor(3))
    assert torch.equal(out, fa.attention(q, k, v, dropout_p=0.5, dropout_seed=3))


# --- Variants ------------------------------------------------------------------------


def test_variant():
    """Text and back; the seed is the last captured array, the number one more key."""
    base = fa.trace(score_mod=scores.softcap(2.0))
    one, other, short = (
        fa._run.dropout.with_seed_type(base, dropped, type)
        for dropped, type in ((26, "tensor<i64>"), (27, "tensor<i64>"), (26, "tensor<i32>"))
    )
    assert len({base, one, other, short}) == 4
    for variant in (base, one, other, short):
        assert Variant.from_text(variant.to_text()) == (variant, ())
    assert one.captured == (*base.captured, "tensor<i64>") and one.score == base.score
    assert "fa.random_bits %seed at [%b, %h, %i, %j]" in str(one)
    assert "arith.extsi" in str(short) and "arith.extsi" not in str(one)


@pytest.mark.parametrize("dropped", [1, 26, 127, 128, 255])
@pytest.mark.parametrize("return_lse", [False, True])
@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90a"])
def test_compiles(target, dropped, return_lse):
    """With functions, too, on every target."""
    functions = fa.trace(score_mod=scores.alibi(4), mask_mod=masks.sliding_window(9))
    for base in (None, functions):
        variant = fa._run.dropout.with_seed_type(base, dropped)
        config = fa.AttentionConfig(
            "bf16", 4, 2, 64, 64, is_causal=True, return_lse=return_lse, variant=variant
        )
        assert fa.compile(config, target).asm


# --- Packed sequences ----------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("functions", [False, True])
def test_varlen(library, is_causal, functions):
    """What is dropped depends on where a token lies among all."""
    lengths = ((3, 0, 1, 40), (5, 2, 0, 70))
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal((sum(own), heads, 16)).astype(np.float32)
        for own, heads in zip((*lengths, lengths[1]), (4, 2, 2))
    )
    ends = [np.cumsum([0, *own]).astype(np.int32) for own in lengths]
    options = {"score_mod": scores.softcap(2.0)} if functions else {}
    out, lse = fa.attention_varlen(
        *(on(x, library) for x in (q, k, v, *ends)),
        **options,
        is_causal=is_causal,
        return_lse=True,
        dropout_p=0.5,
        dropout_seed=SEED,
    )
    sequence = [np.repeat(np.arange(len(own)), own) for own in lengths]
    start = [end[own] for end, own in zip(ends, sequence)]

    def mask(b, h, i, j):
        seen = sequence[0][i] == sequence[1][j]
        return seen & (j - start[1][j] <= i - start[0][i]) if is_causal else seen

    formulas = {"score": lambda s, b, h, i, j: 2 * np.tanh(s / 2)} if functions else {}
    packed = [x.swapaxes(0, 1)[None] for x in (q, k, v)]
    wanted = expected(packed, 0.5, mask=mask, **formulas)
    right.assert_right(out, wanted.map(lambda x: x[0].swapaxes(0, 1), lambda x: x[0]), lse)


@needs_torch
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", ["jagged", "strided"])
def test_nested(layout):
    """As the packed sequences are."""
    lengths = (3, 1, 40)
    rows = [[torch.randn(n, 4, 16, device=DEVICE) for n in lengths] for _ in range(3)]
    if layout == "strided":
        q, k, v = (
            torch.nested.as_nested_tensor([x.transpose(0, 1) for x in own], layout=torch.strided)
            for own in rows
        )
    else:
        q, k, v = (
            torch.nested.as_nested_tensor(own, layout=torch.jagged).transpose(1, 2) for own in rows
        )
    ends = torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int32, device=DEVICE)
    wanted = fa.attention_varlen(
        *map(torch.cat, rows), ends, is_causal=True, dropout_p=0.5, dropout_seed=SEED
    )
    out = fa.attention(q, k, v, is_causal=True, dropout_p=0.5, dropout_seed=SEED)
    assert out.layout == q.layout
    assert torch.equal(torch.cat([row.transpose(0, 1) for row in out.unbind()]), wanted)
    torch.manual_seed(0)
    first, second = (fa.torch.sdpa(q, k, v, dropout_p=0.5) for _ in range(2))
    torch.manual_seed(0)
    again = fa.torch.sdpa(q, k, v, dropout_p=0.5)
    pairs = list(zip(first.unbind(), again.unbind(), second.unbind()))
    assert all(torch.equal(one, same) for one, same, _ in pairs)
    assert any(not torch.equal(one, other) for one, _, other in pairs)


# --- PyTorch -------------------------------------------------------------------------


def tensors(*shape):
    return [on(x, "torch") for x in naive.inputs(*(shape or (2, 4, 2, 33, 40, 16)))]


def seed_of(seed):
    """What a call without a seed draws after torch.manual_seed(seed)."""
    torch.manual_seed(seed)
    return int(torch.randint(0, 2**63 - 1, (), dtype=torch.int64, device=DEVICE))


SDPA_MASKS = {
    "none": lambda: None,
    "bool": lambda: on(np.random.default_rng(1).random((4, 33, 40)) < 0.7, "torch"),
    "added": lambda: on(np.random.default_rng(1).standard_normal((2, 1, 1, 40)), "torch").float(),
}


@needs_torch
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", ["none", "bool", "added"])
def test_sdpa(kind, is_causal):
    if is_causal and kind != "none":
        pytest.skip("PyTorch has no such call")
    q, k, v = tensors()
    mask = SDPA_MASKS[kind]()
    drawn = seed_of(3)
    torch.manual_seed(3)
    out = fa.torch.sdpa(q, k, v, mask, 0.5, is_causal, enable_gqa=True)
    formulas = {"mask": lambda b, h, i, j: j <= i} if is_causal else {}
    if kind == "bool":
        seen = back(mask)
        formulas = {"mask": lambda b, h, i, j: seen[h, i, j]}
    elif kind == "added":
        added = back(mask)
        formulas = {"score": lambda s, b, h, i, j: s + added[b, 0, 0, j]}
    right.assert_right(out, expected((q, k, v), 0.5, drawn, **formulas))
    other = fa.torch.sdpa(q, k, v, mask, 0.5, is_causal, enable_gqa=True)
    assert not torch.equal(out, other)
    torch.manual_seed(3)
    assert torch.equal(out, fa.torch.sdpa(q, k, v, mask, 0.5, is_causal, enable_gqa=True))


@needs_torch
@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("prepares", [False, True])
def test_a_call_draws_once(prepares, records):
    """Whether fa knows the call from before or not: it takes one seed of the generator."""
    lengths = torch.tensor([33, 7], dtype=torch.int32, device=DEVICE)
    mask = masks.padding(lengths)
    mask = fa.prepare(mask) if prepares else mask
    # Head dims of no other test: the first call is one that nothing is known of.
    q, k, v = tensors(2, 4, 2, 33, 40, 24 + 2 * prepares + records)
    q.requires_grad_(records)
    generator = torch.cuda.default_generators[0] if DEVICE == "cuda" else torch.default_generator

    def calls(count):
        torch.manual_seed(5)
        outs = [fa.attention(q, k, v, mask_mod=mask, dropout_p=0.5) for _ in range(count)]
        return outs, generator.get_state()

    (first, second, third), state = calls(3)
    again, same = calls(3)
    for out, other in zip((first, second, third), again):
        assert torch.equal(out, other)
    assert not torch.equal(first, second) and not torch.equal(second, third)
    assert torch.equal(state, same)
    torch.manual_seed(5)
    for _ in range(3):
        torch.randint(0, 2**63 - 1, (), dtype=torch.int64, device=DEVICE)
    assert torch.equal(state, generator.get_state())
    seen = {"mask": lambda b, h, i, j: j < np.array([33, 7])[b]}
    right.assert_right(first, expected((q.detach(), k, v), 0.5, seed_of(5), **seen))


@needs_torch
def test_drawn_seeds_of_several_variants():
    """Calls that fa knows: each probability with each function, in turns."""
    q, k, v = tensors()
    own = masks.padding(torch.tensor([33, 7], dtype=torch.int32, device=DEVICE))
    lengths = np.array([33, 7])
    seen = {"mask": lambda b, h, i, j: j < lengths[b]}
    for turn in range(3):
        for probability in (0.1, 0.5, 1 / 256):
            for mask, formulas in ((None, {}), (own, seen)):
                drawn = seed_of(turn)
                torch.manual_seed(turn)
                out = fa.attention(q, k, v, mask_mod=mask, dropout_p=probability)
                right.assert_right(out, expected((q, k, v), probability, drawn, **formulas))


@needs_torch
def test_probabilities_of_other_classes():
    """Also where fa knows a call with the number that they are."""
    q, k, v = tensors()
    for p in (0.5, np.float64(0.5), np.float32(0.5), np.array(0.5)):
        drawn = seed_of(2)
        torch.manual_seed(2)
        right.assert_right(fa.attention(q, k, v, dropout_p=p), expected((q, k, v), 0.5, drawn))
    for p in ([0.5], 0.5 + 0j, "0.5"):
        with pytest.raises(TypeError, match="expected dropout_p"):
            fa.attention(q, k, v, dropout_p=p)


@needs_torch
def test_sdpa_of_other_ranks():
    for shape in ((7, 16), (3, 7, 16), (2, 3, 4, 7, 16)):
        q = torch.randn(shape, device=DEVICE)
        torch.manual_seed(0)
        out = fa.torch.sdpa(q, q, q, dropout_p=0.5)
        torch.manual_seed(0)
        assert out.shape == shape
        assert torch.equal(out, fa.torch.sdpa(q, q, q, dropout_p=0.5))
        assert not torch.equal(out, fa.torch.sdpa(q, q, q))


@needs_torch
@pytest.mark.parametrize("p", [-0.1, 1.0, math.nan, 1.5])
def test_sdpa_errors(p):
    q, k, v = tensors(2, 4, 4, 33, 40, 16)
    with pytest.raises(ValueError, match=rf"dropout_p in \[0, 0.996\], got {p}; it is"):
        fa.torch.sdpa(q, k, v, dropout_p=p)


def test_kinds():
    q, k, v = naive.inputs(1, 2, 1, 8, 8, 16)
    for p, got in (([0.1], "list"), ("0.1", "str"), (np.ones(2), r"ndarray of shape \[2\]")):
        with pytest.raises(TypeError, match=f"dropout_p to be a number, got {got}"):
            fa.attention(q, k, v, dropout_p=p)


@needs_torch
def test_routing():
    """Calls with dropout are fa's; those that drop everything are PyTorch's."""
    q, k, v = (on(x, "torch", ROUTED) for x in naive.inputs(2, 4, 4, 33, 40, 16))
    drawn = seed_of(3)
    with fa.torch.use_sdpa() as statistics:
        torch.manual_seed(3)
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
        assert (statistics.routed, statistics.fell_back) == (1, {})
        with contextlib.suppress(RuntimeError):  # 0, or NaN on a GPU, or cuDNN's error
            F.scaled_dot_product_attention(q, k, v, dropout_p=1.0)
        assert (statistics.routed, statistics.fell_back) == (1, {"dropout": 1})
        with contextlib.suppress(RuntimeError):  # what PyTorch says is its own
            F.scaled_dot_product_attention(q, k, v, dropout_p=-0.1)
        assert statistics.fell_back == {"dropout": 2}
    right.assert_right(out, expected((q, k, v), 0.5, drawn))


@needs_torch
def test_multihead_attention():
    """Of PyTorch's layer, in training and in evaluation."""
    dtype = getattr(torch, ROUTED)
    layer = torch.nn.MultiheadAttention(32, 4, dropout=0.5, batch_first=True).to(DEVICE, dtype)
    x = torch.randn(2, 9, 32, device=DEVICE, dtype=dtype)
    with torch.no_grad(), fa.torch.use_sdpa() as statistics:
        plain = layer.eval()(x, x, x, need_weights=False)[0]
        torch.manual_seed(0)
        one, other = (layer.train()(x, x, x, need_weights=False)[0] for _ in range(2))
        torch.manual_seed(0)
        assert torch.equal(layer(x, x, x, need_weights=False)[0], one)
    assert statistics.routed == 4 and not statistics.fell_back
    assert not torch.equal(one, other) and not torch.equal(one, plain)


FUNCTIONS = {
    "none": lambda ids: {},
    "mask": lambda ids: {"mask_mod": masks.documents(ids)},
    "score": lambda ids: {"score_mod": scores.softcap(2.0)},
    "both": lambda ids: {
        "mask_mod": masks.documents(ids),
        "score_mod": lambda s, b, h, i, j: s - 0.1 * (ids[i] - j),
    },
}


@pytest.mark.ci
@pytest.mark.usefixtures("empty_cache")
@needs_torch
@pytest.mark.parametrize("return_lse", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled(name, return_lse):
    """Eager's results; seeds and lengths make no other kernel."""
    if name != "none" and not has_functions():
        pytest.skip("needs PyTorch 2.8")
    ids = torch.arange(64, device=DEVICE) // 5

    def model(q, k, v, seed):
        options = FUNCTIONS[name](ids)
        result = fa.attention(
            q, k, v, **options, return_lse=return_lse, dropout_p=0.5, dropout_seed=seed
        )
        return result if return_lse else (result,)

    call = compiled(model)
    for type in (torch.int64, torch.int32):
        seed = torch.tensor(3, dtype=type, device=DEVICE)
        before = None
        for rows, keys in ((33, 40), (17, 50), (40, 9)):
            q, k, v = tensors(2, 4, 2, rows, keys, 16)
            wanted = model(q, k, v, seed)
            before = before or fa.compile_count()
            for out, eager in zip(call(q, k, v, seed), wanted, strict=True):
                assert torch.equal(out, eager)
            seed.add_(1)
        assert fa.compile_count() == before


@needs_torch
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_without_a_seed(name):
    """A call draws another one each time, and torch.manual_seed decides."""
    if name != "none" and not has_functions():
        pytest.skip("needs PyTorch 2.8")
    ids = torch.arange(64, device=DEVICE) // 5
    call = compiled(lambda q, k, v: fa.attention(q, k, v, **FUNCTIONS[name](ids), dropout_p=0.5))
    q, k, v = tensors()
    torch.manual_seed(3)
    first, second = (call(q, k, v) for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(call(q, k, v), first)
    assert not torch.equal(first, second)


@needs_torch
def test_compiled_with_a_number():
    call = compiled(lambda q, k, v, seed: fa.attention(q, k, v, dropout_p=0.5, dropout_seed=seed))
    q, k, v = tensors()
    for seed in (3, -1, 2**63 - 1):
        assert torch.equal(
            call(q, k, v, seed), fa.attention(q, k, v, dropout_p=0.5, dropout_seed=seed)
        )


@pytest.mark.ci
@needs_torch
@pytest.mark.parametrize("function", ["attention", "sdpa"])
def test_compiled_with_other_probabilities(function):
    """Each is another kernel, and so another graph."""
    q, k, v = tensors(2, 4, 4, 33, 40, 16)

    def model(q, k, v, p):
        if function == "sdpa":
            return fa.torch.sdpa(q, k, v, dropout_p=p)
        return fa.attention(q, k, v, dropout_p=p, dropout_seed=SEED)

    call = compiled(model)
    for p in (0.1, 0.5, 1 / 256, 0.0):
        out = call(q, k, v, p)
        if function == "attention":
            assert torch.equal(out, model(q, k, v, p))


@needs_torch
def test_compiled_errors():
    q, k, v = tensors()
    for options, message in (
        ({"dropout_p": 1.5}, r"dropout_p in \[0, 0.996\], got 1.5"),
        ({"dropout_p": 0.5, "dropout_seed": 1.5}, "dropout_seed as an integer"),
    ):
        with pytest.raises(Exception, match=message):
            compiled(lambda q, k, v, options=options: fa.attention(q, k, v, **options))(q, k, v)


@needs_torch
def test_compiled_sdpa():
    q, k, v = tensors(2, 4, 4, 33, 40, 16)
    mask = SDPA_MASKS["bool"]()
    call = compiled(lambda q, k, v, mask: fa.torch.sdpa(q, k, v, mask, dropout_p=0.5))
    for own in (None, mask):
        torch.manual_seed(3)
        first, second = (call(q, k, v, own) for _ in range(2))
        torch.manual_seed(3)
        assert torch.equal(call(q, k, v, own), first)
        assert not torch.equal(first, second)


@needs_torch
@pytest.mark.parametrize("strict", [False, True])
def test_export(strict):
    """The seed is drawn when the program runs, as an eager call draws it."""

    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return fa.attention(q, k, v, dropout_p=0.5)

    q, k, v = tensors()
    program = torch.export.export(Model(), (q, k, v), strict=strict).module()
    torch.manual_seed(3)
    first, second = (program(q, k, v) for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(fa.attention(q, k, v, dropout_p=0.5), first)
    assert not torch.equal(first, second)


@needs_torch
def test_two_calls_compiled():
    """Two calls without a seed in one graph draw two."""
    call = compiled(lambda q, k, v: [fa.attention(q, k, v, dropout_p=0.5) for _ in range(2)])
    one, other = call(*tensors())
    assert not torch.equal(one, other)


@needs_torch
@pytest.mark.parametrize("name", ["fa::attention", "fa::attention_with_lse"])
@pytest.mark.parametrize("is_short", [False, True])
def test_opcheck(name, is_short):
    operator = getattr(torch.ops.fa, name.removeprefix("fa::"))
    seed = torch.tensor(5, dtype=torch.int32 if is_short else torch.int64, device=DEVICE)
    options = {"variant": fa._run.dropout.variant_text(26, is_short)}
    torch.library.opcheck(operator, (*tensors(), [seed]), options)


@needs_torch
def test_gradients():
    """test_gradients.py says that they are right."""
    q, k, v = tensors()
    q.requires_grad_()
    out = fa.attention(q, k, v, dropout_p=0.5, dropout_seed=3)
    assert out.requires_grad
    right.assert_right(out, expected((q, k, v), 0.5, 3))
    differentiate(out, q)


@needs_torch
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_cuda_graph():
    """A replay reads what the seed is then."""
    q, k, v = tensors()
    seed = torch.tensor(0, device=DEVICE)
    fa.attention(q, k, v, dropout_p=0.5, dropout_seed=seed)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = fa.attention(q, k, v, dropout_p=0.5, dropout_seed=seed)
    for value in (3, 4, -1):
        seed.fill_(value)
        graph.replay()
        right.assert_right(out, expected((q, k, v), 0.5, value))


# --- The kernel for GPUs -------------------------------------------------------------


@pytest.mark.skipif(DEVICE != "cpu", reason="runs on a GPU")
@pytest.mark.parametrize(
    ("p", "tile", "functions", "is_causal", "dtype"),
    [
        *((p, 32, False, False, "float16") for p in PROBABILITIES),
        (0.5, 16, False, False, "float16"),
        (0.1, 16, True, True, "float16"),
        (0.5, 64, False, True, "float16"),
        (0.1, 64, True, False, "bfloat16"),
        (0.1, 32, True, True, "float16"),
        (0.1, 32, True, False, "bfloat16"),
        # Two groups of rows a warp, which share a word of the mask.
        (0.1, (128, 32), False, False, "float16"),
        (0.5, (128, 16), False, True, "bfloat16"),
    ],
)
def test_as_ptx(monkeypatch, p, tile, functions, is_causal, dtype):
    """An instruction at a time on the CPU; tiles of whole groups of weights or not."""
    import types

    import variant_fuzzer

    tile_rows, tile_keys = tile if isinstance(tile, tuple) else (16, tile)
    # Two groups of rows and more than one block of keys, none of them whole.
    batch, heads, rows, keys, dim = 1, (2, 1), 20, 45, 16
    given = [
        variant_fuzzer.EmulatedArray(x, dtype) for x in naive.inputs(batch, *heads, rows, keys, dim)
    ]
    case = types.SimpleNamespace(
        dtype=dtype, heads=heads, dims=(dim, dim), is_causal=is_causal, scale=None
    )
    seed = np.array(SEED, np.int64)
    plain = fa._trace.trace.trace_both
    monkeypatch.setattr(
        fa._trace.trace,
        "trace_both",
        lambda *own: fa._run.dropout.add_dropout(plain(*own), PROBABILITIES[p], seed),
    )
    mods = (scores.softcap(2.0), masks.sliding_window(9, 4)) if functions else (None, None)
    out, lse = variant_fuzzer.emulated(case, *mods, given, tile_keys, tile_rows)
    arrays = [x.raw for x in given]
    if dtype == "bfloat16":
        arrays = [(x.raw.astype(np.uint32) << 16).view(np.float32) for x in given]
    formulas = {}
    if functions:
        formulas["score"] = lambda s, b, h, i, j: 2 * np.tanh(s / 2)
    window = lambda i, j: (i - j <= 9) & (j - i <= 4)  # noqa: E731
    if functions or is_causal:
        formulas["mask"] = lambda b, h, i, j: (
            (window(i, j) if functions else True) & ((j <= i) if is_causal else True)
        )
    right.assert_right(out, expected(arrays, p, dtype=dtype, **formulas), lse)
