# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Few queries on the CPU: a tile has the rows that there are, and no more.

Up to 16 rows are computed otherwise than more; blocks of 4, 2 and 1 rows, vectors
of keys and of the head dim all have ends of their own.
"""

from __future__ import annotations

import fa
import naive
import numpy as np
import pytest
import right
from fa import masks, scores

torch = pytest.importorskip("torch")

QUERIES = (1, 2, 3, 4, 7, 8, 15, 16, 17, 18, 31, 129)
KEYS = (1, 15, 16, 17, 64, 65, 128, 333)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def tensors(dtype, *sizes, seed=0):
    return [torch.from_numpy(x).to(dtype) for x in naive.inputs(*sizes, seed=seed)]


def exact_of(q, k, v, **formulas):
    return right.attention(q, k, v, **formulas)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dims", [(64, 64), (40, 72)])
def test_lengths(dtype, dims):
    for sq in QUERIES:
        for sk in KEYS:
            q, k, v = tensors(dtype, 2, 2, 1, sq, sk, *dims, seed=sq + sk)
            out, lse = fa.attention(q, k, v, return_lse=True)
            exact = exact_of(q, k, v)
            right.assert_right(out, exact, lse)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_causal(dtype):
    for sq in QUERIES:
        for sk in (1, 16, 65, 333):
            q, k, v = tensors(dtype, 1, 4, 2, sq, sk, 64, seed=sq)
            exact = exact_of(q, k, v, mask=lambda b, h, i, j: j <= i)
            right.assert_right(fa.attention(q, k, v, is_causal=True), exact)


@pytest.mark.parametrize("sq", [1, 5, 16, 17])
def test_queries_at_the_end(sq):
    # What a decoder asks: the last queries of a sequence see what is before them.
    sk = 333
    q, k, v = tensors(torch.float32, 1, 4, 2, sq, sk, 64)
    offset = sk - sq
    at = torch.tensor(offset)
    out = fa.attention(q, k, v, mask_mod=lambda b, h, i, j: j <= i + at)
    exact = exact_of(q, k, v, mask=lambda b, h, i, j: j <= i + offset)
    right.assert_right(out, exact)
    window = fa.attention(q, k, v, mask_mod=lambda b, h, i, j: (j <= i + at) & (j > i + at - 20))
    exact = exact_of(q, k, v, mask=lambda b, h, i, j: (j <= i + offset) & (j > i + offset - 20))
    right.assert_right(window, exact)


@pytest.mark.parametrize("sq", [1, 3, 16, 17])
def test_lists_scores_and_dropout(sq):
    sk = 200
    q, k, v = tensors(torch.float32, 2, 2, 2, sq, sk, 32)
    documents = torch.arange(sk).div(70, rounding_mode="floor").int()
    mine = torch.full((sq,), 1, dtype=torch.int32)
    out = fa.attention(q, k, v, mask_mod=lambda b, h, i, j: mine[i] == documents[j])
    exact = exact_of(q, k, v, mask=lambda b, h, i, j: np.broadcast_to(j // 70 == 1, (1, 1, sq, sk)))
    right.assert_right(out, exact)
    out = fa.attention(q, k, v, score_mod=scores.softcap(2.0), mask_mod=masks.causal)
    exact = exact_of(
        q,
        k,
        v,
        score=lambda s, b, h, i, j: 2 * np.tanh(s / 2),
        mask=lambda b, h, i, j: j <= i,
    )
    right.assert_right(out, exact)
    out = fa.attention(q, k, v, dropout_p=0.5, dropout_seed=7)
    keep = naive.kept(7, (2, 2, sq, sk), 128)
    exact = exact_of(q, k, v, keep=keep, factor=2.0)
    right.assert_right(out, exact)


def test_strides():
    # Neither operand has its elements side by side: nothing is read as vectors.
    for sq in (1, 5, 17):
        q, k, v = tensors(torch.float32, 1, 2, 2, sq, 77, 32)
        exact = exact_of(q, k, v)
        wide = [torch.stack((x, x), -1)[..., 0] for x in (q, k, v)]
        right.assert_right(fa.attention(*wide), exact)
        apart = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
        right.assert_right(fa.attention(*apart), exact)


def test_what_is_read_in_place_stays():
    # Whole tiles of keys and values are not copied before they are used.
    for sq in (1, 16, 70):
        q, k, v = tensors(torch.float32, 1, 2, 2, sq, 256, 64)
        before = [x.clone() for x in (q, k, v)]
        fa.attention(q, k, v, is_causal=True)
        assert all(torch.equal(x, y) for x, y in zip((q, k, v), before))


@pytest.mark.usefixtures("empty_cache")
def test_one_kernel_for_any_number():
    sizes = [(sq, sk) for sq in (1, 2, 16, 17, 500) for sk in (1, 1024)]
    calls = [tensors(torch.float32, 1, 2, 2, sq, sk, 48) for sq, sk in sizes]
    fa.attention(*calls[0])
    before = fa.compile_count()
    for call in calls:
        fa.attention(*call)
    assert fa.compile_count() == before
