# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks that data decide: block-sparse matrices, PyTorch's BlockMask, any ids.

On arrays of NumPy, and of PyTorch where it is installed, against the same mask
written as an array, in float64.
"""

from __future__ import annotations

import fa
import naive
import numpy as np
import pytest
import right
from fa import masks
from libraries import compiled

try:
    import torch
    from torch.nn.attention import flex_attention as flex
except ImportError:
    torch = flex = None

BATCH, HEADS, KEY_HEADS, DIM = 2, 4, 2, 16
LIBRARIES = {"numpy": lambda x: x}
if torch is not None:
    LIBRARIES["torch"] = torch.from_numpy

needs_torch = pytest.mark.skipif(flex is None, reason="needs FlexAttention")


@pytest.fixture(params=LIBRARIES)
def on(request):
    """Makes an array of the library that the test runs with."""
    return LIBRARIES[request.param]


def check(on, mask, seen, rows, keys, batch=BATCH, heads=(HEADS, KEY_HEADS)):
    """fa with a mask function against the dense mask `seen`, an array that
    broadcasts to [B, H, Sq, Sk]. Returns fa's results."""
    q, k, v = naive.inputs(batch, *heads, rows, keys, DIM, seed=rows + keys)
    out, lse = fa.attention(on(q), on(k), on(v), mask_mod=mask, return_lse=True)
    right.assert_right(out, right.attention(q, k, v, mask=lambda b, h, i, j: seen), lse)
    return np.asarray(out), np.asarray(lse)


def some(*shape, share=0.4, seed=0):
    """Random booleans, the first of which is true and the last false."""
    result = np.random.default_rng(seed).random(shape) < share
    result.flat[0], result.flat[-1] = True, False
    return result


def dense(blocks, size, rows, keys):
    """The blocks [..., Nq, Nk] as [..., Sq, Sk], one element at a time."""
    row = np.minimum(np.arange(rows) // size[0], blocks.shape[-2] - 1)
    column = np.minimum(np.arange(keys) // size[1], blocks.shape[-1] - 1)
    return blocks[..., row[:, None], column[None, :]]


def count(length, size):
    return -(-length // size)


@pytest.mark.parametrize("lead", [(), (HEADS,), (1,), (BATCH, HEADS), (1, HEADS), (BATCH, 1)])
def test_ranks(on, lead):
    blocks = some(*lead, count(333, 64), count(333, 64))
    check(on, masks.block_sparse(on(blocks), 64), dense(blocks, (64, 64), 333, 333), 333, 333)


@pytest.mark.parametrize("size", [1, 7, (16, 64), (64, 16), (100, 30), 128, 1000])
@pytest.mark.parametrize(("rows", "keys"), [(150, 150), (17, 333), (333, 17), (1, 40)])
def test_sizes_and_lengths(on, size, rows, keys):
    pair = size if isinstance(size, tuple) else (size, size)
    blocks = some(HEADS, count(rows, pair[0]), count(keys, pair[1]), seed=rows)
    check(on, masks.block_sparse(on(blocks), size), dense(blocks, pair, rows, keys), rows, keys)


def test_default_size(on):
    blocks = some(3, 3)
    check(on, masks.block_sparse(on(blocks)), dense(blocks, (128, 128), 300, 300), 300, 300)


@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (6, 2), (5, 1)])
def test_grouped_queries(on, heads):
    blocks = some(heads[0], 5, 9)
    seen = dense(blocks, (32, 16), 150, 140)
    check(on, masks.block_sparse(on(blocks), (32, 16)), seen, 150, 140, heads=heads)


def test_empty_rows(on):
    """Rows of blocks that see nothing: output 0 and log-sum-exp -inf."""
    blocks = some(HEADS, 5, 5)
    blocks[:, 2] = False
    blocks[:, 0, 0] = True
    mask = masks.block_sparse(on(blocks), (32, 64))
    out, lse = check(on, mask, dense(blocks, (32, 64), 150, 300), 150, 300)
    assert (out[:, :, 64:96] == 0).all()
    assert np.isneginf(lse[:, :, 64:96]).all()
    assert np.isfinite(lse[:, :, :32]).all()


def test_no_block(on):
    mask = masks.block_sparse(on(np.zeros((3, 3), bool)), 64)
    out, lse = check(on, mask, np.zeros((1, 1), bool), 150, 150)
    assert (out == 0).all() and np.isneginf(lse).all()


def test_all_blocks(on):
    """The numbers of no mask at all."""
    mask = masks.block_sparse(on(np.ones((3, 3), bool)), 64)
    out, _ = check(on, mask, np.ones((1, 1), bool), 150, 150)
    q, k, v = naive.inputs(BATCH, HEADS, KEY_HEADS, 150, 150, DIM, seed=300)
    right.assert_right(fa.attention(on(q), on(k), on(v)), right.attention(q, k, v))


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 1)])
def test_beyond_the_matrix(on, shape):
    """Its last row and column go on."""
    blocks = some(HEADS, *shape, share=0.6)
    check(on, masks.block_sparse(on(blocks), 32), dense(blocks, (32, 32), 200, 333), 200, 333)


def test_with_other_masks(on):
    blocks = some(BATCH, HEADS, 11, 6)
    lengths, i, j = np.array([300, 5]), *np.ogrid[:333, :333]
    sparse, seen = masks.block_sparse(on(blocks), (32, 64)), dense(blocks, (32, 64), 333, 333)
    inside = j < lengths[:, None, None, None]
    check(on, masks.and_masks(sparse, masks.causal), seen & (j <= i), 333, 333)
    check(
        on,
        masks.or_masks(sparse, masks.sliding_window(9)),
        seen | (j <= i) & (i - j <= 9),
        333,
        333,
    )
    check(on, masks.and_masks(sparse, masks.padding(on(lengths))), seen & inside, 333, 333)
    check(on, masks.not_mask(sparse), ~seen, 333, 333)


def test_with_a_score_that_masks(on):
    """A score function that hides keys by the score: no block is full."""
    blocks = some(HEADS, 3, 3)
    q, k, v = naive.inputs(BATCH, HEADS, KEY_HEADS, 150, 150, DIM)

    def positive(score, b, h, q_idx, kv_idx):
        return fa.math.where(score > 0.0, score, -np.inf)

    mask = masks.block_sparse(on(blocks), 64)
    out, lse = fa.attention(on(q), on(k), on(v), score_mod=positive, mask_mod=mask, return_lse=True)
    seen = dense(blocks, (64, 64), 150, 150)
    wanted = right.attention(
        q,
        k,
        v,
        score=lambda s, b, h, i, j: np.where(s > 0, s, -np.inf),
        mask=lambda b, h, i, j: seen,
    )
    right.assert_right(out, wanted, lse)


@pytest.mark.usefixtures("empty_cache")
def test_one_kernel_for_all_matrices(on):
    before = fa.compile_count()
    for n in (1, 2, 5):
        blocks = some(HEADS, n, n, seed=n)
        seen = dense(blocks, (48, 48), 48 * n, 48 * n)
        check(on, masks.block_sparse(on(blocks), 48), seen, 48 * n, 48 * n)
    assert fa.compile_count() - before <= 1


@pytest.mark.parametrize(
    ("blocks", "size", "error", "message"),
    [
        (np.ones(3, bool), 128, TypeError, r"got bool of shape \[3\]"),
        (np.ones((1, 1, 1, 2, 2), bool), 128, TypeError, r"got bool of shape \[1, 1, 1, 2, 2\]"),
        (np.ones((2, 3), np.int32), 128, TypeError, r"got int32 of shape \[2, 3\]"),
        ([[True]], 128, TypeError, "got list"),
        (np.ones((2, 2), bool), 0, ValueError, "rows to be an integer >= 1, got 0"),
        (np.ones((2, 2), bool), (16, -1), ValueError, "keys to be an integer >= 1, got -1"),
        (np.ones((2, 2), bool), (16, 1.5), ValueError, "keys to be an integer >= 1, got 1.5"),
    ],
)
def test_errors(blocks, size, error, message):
    with pytest.raises(error, match=message):
        masks.block_sparse(blocks, size)


def csr(blocks):
    """offsets and columns of a matrix of blocks."""
    offsets = np.concatenate([[0], np.cumsum(blocks.sum(1))])
    return offsets, np.nonzero(blocks)[1]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("size", [64, (32, 50)])
def test_csr(on, dtype, size):
    """The same as the matrix, bit by bit; a row and a column are empty."""
    blocks = some(6, 7)
    blocks[2], blocks[:, 3] = False, False
    pair = size if isinstance(size, tuple) else (size, size)
    rows, keys = 5 * pair[0] + 9, 7 * pair[1] - 1
    offsets, columns = (on(x.astype(dtype)) for x in csr(blocks))
    seen = dense(blocks, pair, rows, keys)
    mask = masks.block_sparse_csr(offsets, columns, 7, size)
    out, lse = check(on, mask, seen, rows, keys)
    same, same_lse = check(on, masks.block_sparse(on(blocks), size), seen, rows, keys)
    assert (out == same).all() and (lse == same_lse).all()


def test_csr_in_any_order_and_twice(on):
    offsets, columns = np.array([0, 4, 5]), np.array([2, 0, 2, 2, 1])
    blocks = np.array([[True, False, True], [False, True, False]])
    mask = masks.block_sparse_csr(on(offsets), on(columns), 3, 64)
    check(on, mask, dense(blocks, (64, 64), 128, 190), 128, 190)


@pytest.mark.parametrize(
    ("offsets", "columns", "message"),
    [
        ([[0, 1]], [0], r"offsets to be integers \[Nq \+ 1\], got shape \[1, 2\]"),
        ([0, 1], [[0]], r"columns to be integers .* got shape \[1, 1\]"),
        ([], [], r"offsets \[Nq \+ 1\], got none"),
        ([1, 2], [0, 1], "rise from 0 to the 2 columns, got 1 to 2"),
        ([0, 1], [0, 1], "rise from 0 to the 2 columns, got 0 to 1"),
        ([0, 2, 1, 2], [0, 1], "got 0 to 2, falling after 1"),
        ([0, 2], [0, 3], r"columns in 0\.\.2, got 3"),
        ([0, 2], [-1, 0], r"columns in 0\.\.2, got -1"),
    ],
)
def test_csr_errors(on, offsets, columns, message):
    arrays = (on(np.array(x, np.int64)) for x in (offsets, columns))
    with pytest.raises(ValueError, match=message):
        masks.block_sparse_csr(*arrays, 3)


def test_sizes_of_other_integers(on):
    blocks = some(3, 3)
    mask = masks.block_sparse(on(blocks), (np.int64(32), np.int32(16)))
    check(on, mask, dense(blocks, (32, 16), 90, 40), 90, 40)


@pytest.mark.parametrize("size", [True, (32, False), np.True_, 32.0, np.array([32, 32])], ids=str)
def test_sizes_that_are_no_integers(size):
    with pytest.raises(ValueError, match="to be an integer >= 1"):
        masks.block_sparse(some(3, 3), size)


@pytest.mark.parametrize("lead", [(3,), (1, 3), (3, 1), (BATCH, KEY_HEADS)], ids=str)
def test_matrix_for_another_call(on, lead):
    mask = masks.block_sparse(on(some(*lead, 2, 2)), 32)
    with pytest.raises(
        ValueError, match=r"fa.masks.block_sparse reads to have [24] elements .* got shape"
    ):
        check(on, mask, np.ones((1, 1, 1, 1), bool), 64, 64)


def test_csr_size_error(on):
    with pytest.raises(ValueError, match="rows to be an integer >= 1, got 0"):
        masks.block_sparse_csr(on(np.array([0])), on(np.array([], np.int64)), 3, 0)


# What is read for each element. name: length -> what is captured, and what of
# it two coordinates see.
RNG = np.random.default_rng(3)
IDS = {
    "sorted": lambda n: np.sort(RNG.integers(0, 5, n)).astype(np.int32),
    "unsorted": lambda n: RNG.integers(0, 3, n).astype(np.int32),
    "negative": lambda n: np.sort(RNG.integers(-3, 3, n)).astype(np.int32),
    "extreme": lambda n: RNG.choice(np.array([-(2**31), -1, 0, 2**31 - 1], np.int32), n),
    "beyond 32 bits": lambda n: np.sort(RNG.integers(0, 4, n)) * 2**32 + 2**31,
    "64 bits": lambda n: RNG.choice(np.array([-(2**63), -(2**57), 0, 2**57, 2**63 - 1]), n),
    "all the same": lambda n: np.full(n, 7, np.int64),
    "all different": lambda n: np.arange(n)[::-1].copy(),
}


@pytest.mark.parametrize("length", [1, 17, 333])
@pytest.mark.parametrize("name", IDS)
def test_ids(on, name, length):
    ids = IDS[name](length)
    array = on(ids)
    i, j = np.ogrid[:length, :length]
    same = ids[i] == ids[j]

    def equal(b, h, q_idx, kv_idx):
        return array[q_idx] == array[kv_idx]

    def above(b, h, q_idx, kv_idx):
        return array[q_idx] > array[kv_idx]

    check(on, equal, same, length, length)
    check(on, masks.documents(array), same, length, length)
    check(on, masks.and_masks(equal, masks.causal), same & (j <= i), length, length)
    check(on, above, ids[i] > ids[j], length, length)
    check(on, masks.not_mask(equal), ~same, length, length)


@pytest.mark.parametrize("length", [1, 17, 333])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sums_of_ids(on, dtype, length):
    """Arithmetic on what is read, near the limits of 32 bits."""
    near = 2**31 - 20
    ids = (near + RNG.integers(0, 19, length)).astype(dtype)
    array = on(ids)
    wide = ids.astype(object)
    i, j = np.ogrid[:length, :length]

    def near_each_other(b, h, q_idx, kv_idx):
        return abs(array[q_idx] - array[kv_idx]) < 5

    def large(b, h, q_idx, kv_idx):
        return array[q_idx] + array[kv_idx] > 2 * near + 18

    def odd(b, h, q_idx, kv_idx):
        return (array[q_idx] + array[kv_idx]) % 2 == 1

    check(on, near_each_other, (abs(wide[i] - wide[j]) < 5).astype(bool), length, length)
    check(on, large, (wide[i] + wide[j] > 2 * near + 18).astype(bool), length, length)
    check(on, odd, ((wide[i] + wide[j]) % 2 == 1).astype(bool), length, length)


@pytest.mark.parametrize("length", [1, 17, 333])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.999])
def test_matrix_of_elements(on, share, length):
    seen = RNG.random((HEADS, length, length)) < share
    array = on(seen)
    check(on, lambda b, h, q_idx, kv_idx: array[h, q_idx, kv_idx], seen, length, length)
    check(on, lambda b, h, q_idx, kv_idx: array[0, q_idx, kv_idx], seen[0], length, length)
    check(on, lambda b, h, q_idx, kv_idx: array[0, kv_idx, q_idx], seen[0].T, length, length)


@pytest.mark.parametrize(("rows", "keys"), [(1, 333), (333, 1), (17, 200), (200, 17)])
def test_other_ids_of_keys(on, rows, keys):
    """Of another length, a list for each batch entry and head."""
    of_rows = RNG.integers(0, 4, (BATCH, rows))
    of_keys = np.sort(RNG.integers(0, 4, (HEADS, keys)))
    ours, theirs = on(of_rows), on(of_keys)
    seen = of_rows[:, None, :, None] == of_keys[None, :, None, :]
    check(on, lambda b, h, q_idx, kv_idx: ours[b, q_idx] == theirs[h, kv_idx], seen, rows, keys)


def test_values_of_an_array_may_change(on):
    """Lists are made in every call."""
    blocks = some(3, 3)
    array = on(blocks)
    mask = masks.block_sparse(array, 64)
    check(on, mask, dense(blocks, (64, 64), 150, 150), 150, 150)
    blocks = ~blocks
    array[:] = on(blocks)
    check(on, mask, dense(blocks, (64, 64), 150, 150), 150, 150)


def same_document(ids):
    def mask(b, h, q_idx, kv_idx):
        return (ids[q_idx] == ids[kv_idx]) & (kv_idx <= q_idx)

    return mask


def of_mask(mask, rows, keys, batch=BATCH):
    """A mask function of PyTorch as an array."""
    return flex.create_mask(mask, batch, HEADS, rows, keys, device="cpu").numpy()


@needs_torch
@pytest.mark.parametrize(("rows", "keys"), [(333, 333), (256, 256), (100, 300)])
@pytest.mark.parametrize("size", [128, (64, 32)])
def test_block_mask(rows, keys, size):
    ids = torch.from_numpy(np.sort(RNG.integers(0, 5, max(rows, keys))))
    mask = same_document(ids)
    given = flex.create_block_mask(mask, None, None, rows, keys, "cpu", BLOCK_SIZE=size)
    check(torch.from_numpy, given, of_mask(mask, rows, keys), rows, keys)


@needs_torch
def test_block_mask_for_each_head_and_batch_entry():
    first = torch.tensor([[0, 50, 100, 150], [250, 60, 130, 10]])

    def mask(b, h, q_idx, kv_idx):
        return kv_idx >= first[b, h]

    given = flex.create_block_mask(mask, BATCH, HEADS, 300, 300, "cpu", BLOCK_SIZE=64)
    check(torch.from_numpy, given, of_mask(mask, 300, 300), 300, 300)


def lists_of(blocks):
    """kv_num_blocks and kv_indices of blocks [B, H, Nq, Nk]; behind a row's
    blocks are others' numbers, which do not count."""
    counts = blocks.sum(-1).astype(np.int32)
    indices = np.argsort(~blocks, -1, kind="stable").astype(np.int32)
    return torch.from_numpy(counts), torch.from_numpy(indices)


@needs_torch
def test_block_mask_of_lists():
    """Without a function: what is listed is seen."""
    blocks = some(BATCH, HEADS, 5, 5)
    given = flex.BlockMask.from_kv_blocks(*lists_of(blocks), BLOCK_SIZE=(64, 64))
    check(torch.from_numpy, given, dense(blocks, (64, 64), 320, 320), 320, 320)


@needs_torch
def test_block_mask_of_lists_and_a_function():
    """The function is asked in partial blocks, not in full ones nor elsewhere."""
    partly, fully = some(1, 1, 5, 5), some(1, 1, 5, 5, seed=1)
    partly &= ~fully
    given = flex.BlockMask.from_kv_blocks(
        *lists_of(partly), *lists_of(fully), BLOCK_SIZE=(64, 64), mask_mod=masks.causal
    )
    i, j = np.ogrid[:320, :320]
    seen = dense(partly, (64, 64), 320, 320) & (j <= i) | dense(fully, (64, 64), 320, 320)
    assert (seen & (j > i)).any() and (~seen & (j <= i)).any()
    check(torch.from_numpy, given, seen, 320, 320)


@needs_torch
def test_block_mask_of_one_function():
    partly = some(1, 1, 5, 5)
    given = flex.BlockMask.from_kv_blocks(
        *lists_of(partly), BLOCK_SIZE=(64, 64), mask_mod=masks.causal
    )
    i, j = np.ogrid[:320, :320]
    check(torch.from_numpy, given, dense(partly, (64, 64), 320, 320) & (j <= i), 320, 320)


@needs_torch
def test_block_mask_changed_in_place():
    before, after = some(1, 1, 5, 5), some(1, 1, 5, 5, seed=1)
    lists = lists_of(before)
    given = flex.BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=(64, 64))
    for _ in range(2):
        check(torch.from_numpy, given, dense(before, (64, 64), 320, 320), 320, 320)
    given.kv_num_blocks.copy_(lists_of(after)[0])
    given.kv_indices.copy_(lists_of(after)[1])
    check(torch.from_numpy, given, dense(after, (64, 64), 320, 320), 320, 320)


@needs_torch
def test_prepared_block_mask(monkeypatch):
    """What is made of its lists is made once, and their numbers are looked at."""
    from fa._masks import blocks as own

    made = []
    matrix = own._matrices
    monkeypatch.setattr(own, "_matrices", lambda *args: made.append(args) or matrix(*args))
    blocks = some(1, 1, 5, 5)
    given = fa.prepare(flex.BlockMask.from_kv_blocks(*lists_of(blocks), BLOCK_SIZE=(64, 64)))
    for _ in range(2):
        check(torch.from_numpy, given, dense(blocks, (64, 64), 320, 320), 320, 320)
    assert len(made) == 1
    q = torch.zeros(1, HEADS, 300, DIM)
    with pytest.raises(ValueError, match="created for 320 queries and 320 keys, got 300"):
        fa.attention(q, q, q, mask_mod=given)
    right, short = (torch.zeros(1, HEADS, rows, DIM, requires_grad=True) for rows in (320, 300))
    for _ in range(2):  # also where a call of its kind was recorded before
        fa.attention(right, right, right, mask_mod=given)
        with pytest.raises(ValueError, match="created for 320 queries and 320 keys, got 300"):
            fa.attention(short, short, short, mask_mod=given)
    call = compiled(lambda q: fa.attention(q, q, q, mask_mod=given))
    with pytest.raises(Exception, match="created for 320 queries and 320 keys, got 300"):
        call(q)
    wrong = flex.BlockMask.from_kv_blocks(*lists_of(blocks), BLOCK_SIZE=(64, 64))
    wrong.kv_indices[..., 0] = 9
    wrong.kv_num_blocks.clamp_(min=1)
    with pytest.raises(ValueError, match="numbered 0 to 4, got"):
        fa.prepare(wrong)


@needs_torch
def test_block_mask_changed_unnoticed():
    """What PyTorch does not see is seen: nothing is kept that was not prepared."""
    lists = lists_of(some(1, 1, 5, 5))
    given = flex.BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=(64, 64))
    for seed in range(3):
        blocks = some(1, 1, 5, 5, seed=seed)
        for own, other in zip((given.kv_num_blocks, given.kv_indices), lists_of(blocks)):
            before = own._version
            own.data.copy_(other)
            assert own._version == before
        check(torch.from_numpy, given, dense(blocks, (64, 64), 320, 320), 320, 320)


@needs_torch
def test_block_mask_and_is_causal():
    blocks = some(1, 1, 5, 5)
    given = flex.BlockMask.from_kv_blocks(*lists_of(blocks), BLOCK_SIZE=(64, 64))
    q, k, v = naive.inputs(BATCH, HEADS, KEY_HEADS, 320, 320, DIM)
    out = fa.attention(*map(torch.from_numpy, (q, k, v)), mask_mod=given, is_causal=True)
    i, j = np.ogrid[:320, :320]
    seen = dense(blocks, (64, 64), 320, 320) & (j <= i)
    right.assert_right(out, right.attention(q, k, v, mask=lambda *at: seen))


@needs_torch
def test_block_mask_is_like_flex_attention():
    """The same result as FlexAttention gives for the same BlockMask."""
    ids = torch.from_numpy(np.sort(RNG.integers(0, 5, 256)))
    given = flex.create_block_mask(same_document(ids), None, None, 256, 256, "cpu")
    q, k, v = map(torch.from_numpy, naive.inputs(BATCH, HEADS, HEADS, 256, 256, DIM))
    theirs = flex.flex_attention(*(x.double() for x in (q, k, v)), block_mask=given)
    right.assert_right(fa.attention(q, k, v, mask_mod=given), right.Expected(theirs.numpy()))


@needs_torch
def test_block_mask_with_another_function():
    """Whatever of a BlockMask is replaced, the result follows."""
    blocks = some(1, 1, 5, 5)
    given = flex.BlockMask.from_kv_blocks(
        *lists_of(blocks), BLOCK_SIZE=(64, 64), mask_mod=masks.causal
    )
    i, j = np.ogrid[:320, :320]
    seen = dense(blocks, (64, 64), 320, 320)
    check(torch.from_numpy, given, seen & (j <= i), 320, 320)
    given.mask_mod = masks.sliding_window(10)
    check(torch.from_numpy, given, seen & (j <= i) & (i - j <= 10), 320, 320)
    given.BLOCK_SIZE = (128, 64)
    seen = dense(blocks, (128, 64), 320, 320)
    check(torch.from_numpy, given, seen & (j <= i) & (i - j <= 10), 320, 320)


@needs_torch
def test_block_mask_of_inference():
    """Its tensors do not count changes."""
    with torch.inference_mode():
        given = flex.create_block_mask(masks.causal, None, None, 320, 320, "cpu")
        i, j = np.ogrid[:320, :320]
        for _ in range(2):
            check(torch.from_numpy, given, (j <= i) & (i >= 0), 320, 320)


def test_block_mask_error():
    with pytest.raises(TypeError, match="expected a BlockMask .* got function"):
        masks.block_mask(masks.causal)


CAUSAL = np.tri(64, dtype=bool)


def lists_mask(counts, indices, mask_mod=None, **options):
    """A BlockMask of [2, 2] blocks of 32 by its lists."""
    counts = torch.tensor([[counts]], dtype=torch.int32)
    indices = torch.tensor([[indices]], dtype=torch.int32)
    options = {"BLOCK_SIZE": 32, "mask_mod": mask_mod, "compute_q_blocks": False, **options}
    return flex.BlockMask.from_kv_blocks(counts, indices, **options)


@needs_torch
@pytest.mark.parametrize("name", ["noop_mask", "_no_mask"])
def test_block_mask_with_a_function_of_pytorchs_name(name):
    def function(b, h, q_idx, kv_idx):
        return kv_idx <= q_idx

    function.__name__ = name
    given = lists_mask([2, 2], [[0, 1], [0, 1]], function)
    check(torch.from_numpy, given, CAUSAL, 64, 64)


@needs_torch
@pytest.mark.parametrize("rows, keys", [(96, 64), (64, 96), (32, 64), (63, 64)])
def test_block_mask_for_other_lengths(rows, keys):
    given = flex.create_block_mask(masks.causal, None, None, 64, 64, "cpu", BLOCK_SIZE=32)
    with pytest.raises(ValueError, match="block_mask was created for 64 queries and 64 keys"):
        check(torch.from_numpy, given, np.ones((1, 1, 1, 1), bool), rows, keys)


@needs_torch
@pytest.mark.parametrize("batch, heads", [(None, 3), (3, None), (BATCH, KEY_HEADS)])
def test_block_mask_for_another_call(batch, heads):
    given = flex.create_block_mask(masks.causal, batch, heads, 64, 64, "cpu", BLOCK_SIZE=32)
    with pytest.raises(ValueError, match="expected block_mask to be for as many"):
        check(torch.from_numpy, given, np.ones((1, 1, 1, 1), bool), 64, 64)


@needs_torch
@pytest.mark.parametrize(
    "counts, indices",
    [([9, 1], [0, 1]), ([-2, 1], [0, 1]), ([2, 1], [0, 2]), ([2, 1], [-1, 0])],
    ids=["count", "negative count", "index", "negative index"],
)
def test_block_mask_of_wrong_lists(counts, indices):
    given = lists_mask(counts, [indices, [0, 7]])
    with pytest.raises(ValueError, match="expected a BlockMask's rows to have 0 to 2 blocks"):
        masks.block_mask(given)


@needs_torch
def test_block_mask_of_lists_not_read_to_the_end():
    """What is behind a row's count is no block."""
    given = lists_mask([1, 0], [[1, 99], [-5, 2]])
    seen = dense(np.array([[False, True], [False, False]]), (32, 32), 64, 64)
    check(torch.from_numpy, given, seen, 64, 64)


@needs_torch
def test_block_mask_among_masks():
    given = flex.create_block_mask(masks.causal, None, None, 64, 64, "cpu", BLOCK_SIZE=32)
    window = masks.sliding_window(9, 9)
    near = np.abs(np.subtract.outer(np.arange(64), np.arange(64))) <= 9
    check(torch.from_numpy, masks.and_masks(given, window), CAUSAL & near, 64, 64)
    check(torch.from_numpy, masks.or_masks(window, given), CAUSAL | near, 64, 64)
    check(torch.from_numpy, masks.not_mask(given), ~CAUSAL, 64, 64)


@needs_torch
def test_block_mask_with_nested_tensors():
    given = flex.create_block_mask(masks.causal, None, None, 64, 64, "cpu", BLOCK_SIZE=32)
    rows = [torch.randn(length, 2, 16) for length in (30, 34)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged).transpose(1, 2)
    with pytest.raises(TypeError, match="got a BlockMask"):
        fa.attention(x, x, x, mask_mod=given)
