# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa.attention_varlen and nested tensors against attention of each sequence in float64.

On the CPU, or with FA_TEST_DEVICE=cuda on a GPU, there in 16 bits as well.
"""

from __future__ import annotations

import fa
import naive
import numpy as np
import pytest
import right
from fa import masks, scores
from libraries import DEVICE, HAS_TORCH, LIBRARIES, differentiate, needs_torch, on
from naive import back

DTYPES = ["float32"] if DEVICE == "cpu" else ["float32", "bfloat16"]
"""Of q, k and v."""
HEADS, DIM = (4, 2), (16, 24)
EMPTY = ((0, 3, 0, 1, 40, 0), (2, 3, 0, 5, 17, 0))
"""Lengths of queries and keys: none of either or both, one, and more of each."""


def offsets_of(lengths, dtype="int32"):
    return np.cumsum([0, *lengths]).astype(dtype)


def packed(lengths, heads=HEADS, dims=DIM, behind=(0, 0), seed=0):
    """float32 q [Tq, Hq, D], k [Tk, Hk, D] and v [Tk, Hk, Dv]."""
    rng = np.random.default_rng(seed)
    rows, keys = (sum(own) + more for own, more in zip(lengths, behind))
    shapes = ((rows, heads[0], dims[0]), (keys, heads[1], dims[0]), (keys, heads[1], dims[1]))
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    row, key = 0, 0
    for own in zip(*lengths):
        ends = row + own[0], key + own[1]
        parts = q[row : ends[0]], k[key : ends[1]], v[key : ends[1]]
        naive.telling(*(x.swapaxes(0, 1) for x in parts))
        row, key = ends
    return q, k, v


def aligned(alignment):
    """The formula of is_causal."""

    def of(n, rows, keys):
        shift = keys - rows if alignment == "bottom_right" else 0
        return lambda b, h, i, j: j <= i + shift

    return of


def both(*formulas):
    def of(n, rows, keys):
        functions = [formula(n, rows, keys) for formula in formulas if formula is not None]
        return lambda *at: np.logical_and.reduce(np.broadcast_arrays(*(f(*at) for f in functions)))

    return of if any(formulas) else None


def reference(arrays, lengths, mask=None, score=None, scale=None, dtype=None):
    """What is right: each sequence for itself. A formula is made by (number of it, rows,
    keys). `dtype` is needed for arrays that have not the type of what they stand for."""
    dtype = dtype or right.dtype_of(arrays[0])
    q, k, v = (np.asarray(back(x), np.float64) for x in arrays)
    out = np.zeros((*q.shape[:2], v.shape[2]))
    error = 0.0
    lse = np.full((q.shape[1], q.shape[0]), -np.inf)
    row, key = 0, 0
    for n, (rows, keys) in enumerate(zip(*lengths)):
        own = (q[row : row + rows], k[key : key + keys], v[key : key + keys])
        formulas = {
            what: formula and formula(n, rows, keys)
            for what, formula in (("mask", mask), ("score", score))
        }
        one = right.attention(
            *(x.swapaxes(0, 1)[None] for x in own), dtype=dtype, scale=scale, **formulas
        )
        out[row : row + rows] = one.out[0].swapaxes(0, 1)
        error = max(error, one.naive_error)
        lse[:, row : row + rows] = one.lse[0]
        row, key = row + rows, key + keys
    return right.Expected(out, lse, dtype, error)


def check(
    library,
    lengths,
    *,
    heads=HEADS,
    dims=DIM,
    behind=(0, 0),
    offsets="int32",
    mask=None,
    score=None,
    alignment=None,
    scale=None,
):
    """Runs fa and compares. mask and score: (library -> function, formula)."""
    causal = {} if alignment is None else {"is_causal": True, "alignment": alignment}
    formulas = (mask and mask[1], alignment and aligned(alignment))
    for dtype in DTYPES:
        arrays = [on(x, library, dtype) for x in packed(lengths, heads, dims, behind)]
        ends = [on(offsets_of(own, offsets), library) for own in lengths]
        out, lse = fa.attention_varlen(
            *arrays,
            *ends,
            mask_mod=mask and mask[0](library),
            score_mod=score and score[0](library),
            scale=scale,
            return_lse=True,
            **causal,
        )
        assert out.dtype == arrays[0].dtype and str(lse.dtype).endswith("float32")
        wanted = reference(arrays, lengths, both(*formulas), score and score[1], scale)
        right.assert_right(out, wanted, lse)


# --- Values ------------------------------------------------------------------------

BIAS = np.random.default_rng(7).standard_normal((9, 4)).astype(np.float32)
LIMITS = np.array([3, 0, 9, 5, 11, 2], np.int64)


def up_to(limits):
    """Of more sequences than there are: fa.masks.padding wants as many."""
    return lambda b, h, i, j: j < limits[b]


MASKS = {
    "causal": (lambda library: masks.causal, lambda n, rows, keys: lambda b, h, i, j: j <= i),
    "causal, bottom right": (
        lambda library: masks.causal_bottom_right,
        lambda n, rows, keys: lambda b, h, i, j: j - keys <= i - rows,
    ),
    "window": (
        lambda library: masks.sliding_window(3, 2),
        lambda n, rows, keys: lambda b, h, i, j: (i - j <= 3) & (j - i <= 2),
    ),
    "padding, of each sequence": (
        lambda library: up_to(on(LIMITS, library)),
        lambda n, rows, keys: lambda b, h, i, j: (j < LIMITS[n]) & (i == i),
    ),
    "lengths, by fa's names": (
        lambda library: lambda b, h, i, j: (j * 2 < fa.key_length()) | (i * 2 >= fa.query_length()),
        lambda n, rows, keys: lambda b, h, i, j: (j * 2 < keys) | (i * 2 >= rows),
    ),
    "nothing": (
        lambda library: masks.or_masks(),
        lambda n, rows, keys: lambda b, h, i, j: (i < 0) & (j < 0),
    ),
}


def rows_of_bias(library):
    bias = on(BIAS, library)

    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[b, h] * (kv_idx - q_idx)

    return score_mod


SCORES = {
    "ALiBi": (
        lambda library: scores.alibi(4),
        lambda n, rows, keys: (
            lambda s, b, h, i, j: s - np.array([0.25, 0.0625, 2**-6, 2**-8])[h] * abs(i - j)
        ),
    ),
    "bias, of each sequence": (
        rows_of_bias,
        lambda n, rows, keys: lambda s, b, h, i, j: s + BIAS.astype(float)[n, h] * (j - i),
    ),
    "lengths": (
        lambda library: lambda s, b, h, i, j: s * (i + 1) / fa.query_length() - j / fa.key_length(),
        lambda n, rows, keys: lambda s, b, h, i, j: s * (i + 1) / rows - j / keys,
    ),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "lengths",
    [
        EMPTY,
        ((1,), (1,)),
        ((1, 1, 1), (333, 1, 64)),
        ((65, 64, 200), (1, 130, 3)),
        ((0,), (4,)),
        ((4,), (0,)),
        ((0, 0), (0, 0)),
        ((300, 45), (300, 45)),
    ],
    ids=str,
)
@pytest.mark.parametrize("alignment", [None, "top_left", "bottom_right"])
def test_lengths(library, lengths, alignment):
    check(library, lengths, alignment=alignment)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("heads", [(1, 1), (6, 1), (3, 3), (8, 2)])
@pytest.mark.parametrize("dims", [(32, 32), (16, 40), (40, 8)])
def test_heads_and_dims(library, heads, dims):
    check(library, EMPTY, heads=heads, dims=dims, alignment="bottom_right")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("alignment", [None, "bottom_right"])
def test_behind_the_last_offset(library, alignment):
    """Queries there see nothing; keys there nobody sees."""
    check(library, EMPTY, behind=(70, 3), alignment=alignment)
    check(library, ((0,), (0,)), behind=(5, 5), mask=MASKS["window"])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", MASKS)
def test_masks(library, name):
    check(library, EMPTY, mask=MASKS[name], behind=(2, 0))
    check(library, EMPTY, mask=MASKS[name], alignment="bottom_right", score=SCORES["ALiBi"])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", SCORES)
def test_scores(library, name):
    check(library, EMPTY, score=SCORES[name], behind=(2, 0))
    check(library, EMPTY, score=SCORES[name], alignment="top_left", scale=0.5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_long(library):
    check(library, ((700, 1, 299), (513, 1000, 7)), heads=(2, 1), alignment="bottom_right")


@pytest.mark.parametrize("library", LIBRARIES)
def test_types_of_offsets(library):
    check(library, EMPTY, offsets="int64", alignment="bottom_right", mask=MASKS["window"])
    q, k, v = (on(x, library) for x in packed(EMPTY))
    ends = [on(offsets_of(own, t), library) for own, t in zip(EMPTY, ("int32", "int64"))]
    out = fa.attention_varlen(q, k, v, *ends, is_causal=True)
    right.assert_right(out, reference((q, k, v), EMPTY, aligned("top_left")))


@pytest.mark.parametrize("library", LIBRARIES)
def test_offsets_of_the_keys_are_the_queries(library):
    lengths = (EMPTY[0], EMPTY[0])
    arrays = [on(x, library) for x in packed(lengths)]
    out = fa.attention_varlen(*arrays, on(offsets_of(EMPTY[0]), library))
    right.assert_right(out, reference(arrays, lengths))


@pytest.mark.parametrize("library", LIBRARIES)
def test_strided(library):
    """Of one array of queries, keys and values, as a projection gives it."""
    lengths = (EMPTY[0], EMPTY[0])
    rows = sum(EMPTY[0])
    qkv = np.random.default_rng(3).standard_normal((rows, 3, 4, 16)).astype(np.float32)
    arrays = [on(qkv, library)[:, n] for n in range(3)]
    out = fa.attention_varlen(*arrays, on(offsets_of(EMPTY[0]), library), is_causal=True)
    right.assert_right(out, reference(arrays, lengths, aligned("top_left")))


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("library", LIBRARIES)
def test_one_kernel(library):
    """Lengths, how many there are, and the offsets' values are no part of a kernel."""

    def call(lengths):
        arrays = [on(x, library) for x in packed(lengths)]
        ends = [on(offsets_of(own), library) for own in lengths]
        return fa.attention_varlen(*arrays, *ends, mask_mod=masks.causal_bottom_right)

    call(EMPTY)
    before = fa.compile_count()
    for lengths in (((5,), (9,)), ((1, 2, 3, 4) * 5, (4, 0, 1, 90) * 5), ((0,), (1,))):
        call(lengths)
    assert fa.compile_count() == before


def random_case(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 7))
    longest = int(rng.choice([3, 40, 150]))
    rows, keys = (tuple(map(int, rng.integers(0, longest, count))) for _ in range(2))
    pick = lambda table: None if rng.random() < 0.5 else table[rng.choice(list(table))]  # noqa: E731
    return {
        "library": LIBRARIES[seed % len(LIBRARIES)],
        "lengths": (rows, rows if rng.random() < 0.3 else keys),
        "heads": (4, int(rng.choice([1, 2, 4]))),
        "behind": tuple(map(int, rng.integers(0, 9, 2) * (rng.random() < 0.3))),
        "offsets": str(rng.choice(["int32", "int64"])),
        "mask": pick(MASKS),
        "score": pick(SCORES),
        "alignment": [None, "top_left", "bottom_right"][rng.integers(3)],
        "scale": None if rng.random() < 0.7 else float(rng.random()),
    }


@pytest.mark.parametrize("seed", range(40))
def test_random(seed):
    check(**random_case(seed))


# --- Errors ------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": lambda x: x[None]}, ValueError, r"q of rank 3 .*got shape \[1, 7, 4, 16\]; pack"),
        ({"k": lambda x: x[0]}, ValueError, r"k of rank 3 .*got shape \[2, 16\]"),
        ({"v": lambda x: x[..., None]}, ValueError, r"v of rank 3 .*got shape \[8, 2, 24, 1\]"),
        ({"v": lambda x: x[:5]}, ValueError, "same length, got 8 and 5"),
        ({"q": lambda x: x[:, :3]}, ValueError, "to divide the number of query heads, got 2 and 3"),
        ({"q": lambda x: x[..., :8]}, ValueError, "same head dim, got 8 and 16"),
        ({"cq": lambda x: x[None]}, TypeError, r"cu_seqlens_q to be integers .*shape \[1, 3\]"),
        ({"cq": lambda x: x * 1.0}, TypeError, r"int32 or int64\) \[N \+ 1\], got float"),
        ({"cq": lambda x: x > 2}, TypeError, "got bool"),
        ({"ck": lambda x: x.tolist()}, TypeError, r"cu_seqlens_k to be integers .*got list"),
        ({"cq": lambda x: x[:1]}, ValueError, "at least one sequence, two offsets, got 1; give"),
        (
            {"ck": lambda x: x[:2]},
            ValueError,
            r"cu_seqlens_k of as many sequences as cu_seqlens_q, got shapes \[2\] and \[3\]",
        ),
        (
            {"alignment": "right"},
            ValueError,
            "alignment to be one of top_left, bottom_right, got 'right'; choose one",
        ),
        ({"mask_mod": lambda b, h, i, j: j - i}, fa.TraceError, "expected mask_mod to return a b"),
    ],
)
def test_errors(library, change, error, message):
    q, k, v = packed(((3, 4), (2, 6)))
    given = {"q": q, "k": k, "v": v, "cq": offsets_of((3, 4)), "ck": offsets_of((2, 6))}
    given = {name: on(x, library) for name, x in given.items()}
    for name in set(change) & set(given):
        given[name] = change[name](given[name])
    options = {name: value for name, value in change.items() if name not in given}
    with pytest.raises(error, match=message):
        fa.attention_varlen(*given.values(), **options)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "offsets",
    [[0, 20], [10, 0], [5, 3, -2, 8], [-5, 4, 400], [0, -(2**31)], [7, 2**31 - 1], [4, 4, 4]],
    ids=str,
)
def test_wrong_offsets_read_nothing_else(library, offsets):
    """What they show is anyone's guess, and of the tokens there are."""
    q, k, v = (on(x, library) for x in packed(((10,), (10,))))
    good = on(np.linspace(0, 10, len(offsets)).astype(np.int32), library)
    wrong = on(np.array(offsets, np.int32), library)
    largest = abs(back(v)).max()
    for ends in ((wrong, wrong), (good, wrong), (wrong, good)):
        for options in (
            {"is_causal": True, "alignment": "bottom_right"},
            {"mask_mod": masks.causal_bottom_right, "score_mod": rows_of_bias(library)},
        ):
            out = back(fa.attention_varlen(q, k, v, *ends, **options))
            assert (abs(out) <= largest * 1.001).all()


# --- PyTorch -----------------------------------------------------------------------

if HAS_TORCH:
    import fa.torch
    import torch
    import torch.nn.functional as F

quiet = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def tensors(lengths=((3, 4), (2, 6)), **options):
    """q, k, v and both offsets."""
    arrays = [on(x, "torch") for x in packed(lengths, **options)]
    return (*arrays, *(on(offsets_of(own), "torch") for own in lengths))


def assert_is(out, arrays, lengths, **formulas):
    right.assert_right(out, reference(arrays, lengths, **formulas))


@needs_torch
def test_mixed_libraries_of_offsets():
    q, k, v, cq, ck = tensors()
    with pytest.raises(TypeError, match="same library as cu_seqlens_q, got ndarray and Tensor"):
        fa.attention_varlen(q, k, v, cq, back(ck))


@needs_torch
@pytest.mark.skipif(DEVICE == "cpu", reason="needs two devices")
def test_offsets_elsewhere():
    q, k, v, cq, ck = tensors()
    with pytest.raises(ValueError, match="cu_seqlens_k on the device of q, got cpu and cuda:0"):
        fa.attention_varlen(q, k, v, cq, ck.cpu())


@needs_torch
def test_block_mask_is_refused():
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    q, k, v, cq, ck = tensors()
    mask = flex.create_block_mask(masks.causal, 1, 1, 7, 8, device=DEVICE)
    for given in (mask, fa.prepare(mask)):
        with pytest.raises(TypeError, match="mask_mod to be a function, got a BlockMask"):
            fa.attention_varlen(q, k, v, cq, ck, mask_mod=given)


@needs_torch
def test_offsets_changed_in_place():
    q, k, v, cq, ck = tensors()
    for lengths in (((3, 4), (2, 6)), ((1, 6), (8, 0)), ((5, 2), (5, 3))):
        cq.copy_(on(offsets_of(lengths[0]), "torch"))
        ck[1] = lengths[1][0]
        assert_is(fa.attention_varlen(q, k, v, cq, ck), (q, k, v), lengths)
        assert_is(fa.attention_varlen(q, k, v, cq, ck), (q, k, v), lengths)


@needs_torch
def test_offsets_with_other_partners():
    """What is kept of one tensor is not for its use with another, or another q."""
    q, k, v, cq, ck = tensors()
    other = on(offsets_of((6, 2)), "torch")
    for ends, lengths in (
        ((cq, ck), ((3, 4), (2, 6))),
        ((cq, other), ((3, 4), (6, 2))),
        ((cq, cq), ((3, 4), (3, 4))),
        ((cq, ck), ((3, 4), (2, 6))),
    ):
        for causal in (None, "top_left", "bottom_right"):
            options = {"is_causal": True, "alignment": causal} if causal else {}
            formulas = {"mask": aligned(causal)} if causal else {}
            out = fa.attention_varlen(q, k, v, *ends, **options)
            assert_is(out, (q, k, v), lengths, **formulas)
    assert_is(fa.attention_varlen(q[:6], k, v, cq, ck), (q[:6], k, v), ((3, 3), (2, 6)))


@needs_torch
def test_offsets_changed_unnoticed():
    """What PyTorch does not see is seen: nothing is kept that was not prepared."""
    q, k, v, cq, ck = tensors()
    for lengths in (((3, 4), (2, 6)), ((1, 6), (8, 0)), ((5, 2), (5, 3))):
        before = cq._version
        cq.data.copy_(on(offsets_of(lengths[0]), "torch"))
        ck.data.copy_(on(offsets_of(lengths[1]), "torch"))
        assert cq._version == before
        assert_is(fa.attention_varlen(q, k, v, cq, ck), (q, k, v), lengths)


@needs_torch
def test_prepared_offsets(monkeypatch):
    """Which sequence a query is of is computed once for each number of queries."""
    from fa._masks import packed

    made = []
    own = packed.sequences_of
    monkeypatch.setattr(packed, "sequences_of", lambda *args: made.append(args) or own(*args))
    q, k, v, cq, ck = tensors()
    pq, pk = fa.prepare(cq), fa.prepare(ck)
    for causal in (None, "top_left", "bottom_right", None):
        options = {"is_causal": True, "alignment": causal} if causal else {}
        formulas = {"mask": aligned(causal)} if causal else {}
        out = fa.attention_varlen(q, k, v, pq, pk, **options)
        assert_is(out, (q, k, v), ((3, 4), (2, 6)), **formulas)
    assert len(made) == 1
    assert_is(fa.attention_varlen(q[:6], k, v, pq, pk), (q[:6], k, v), ((3, 3), (2, 6)))
    assert len(made) == 2
    # Both have to be prepared: one alone promises nothing of the other.
    assert_is(fa.attention_varlen(q, k, v, pq, ck), (q, k, v), ((3, 4), (2, 6)))
    assert len(made) == 3
    assert fa.prepare(pq) is pq
    # Nor is the mask looked at again, but for other partners and types.
    po = fa.prepare(on(offsets_of((6, 2)), "torch"))
    for keys, lengths in ((pk, (2, 6)), (po, (6, 2)), (pk, (2, 6))):
        for dtype in (torch.float32, torch.float64 if DEVICE == "cpu" else torch.bfloat16):
            for dropped in (0.0, 0.5):
                given = [x.to(dtype).requires_grad_() for x in (q, k, v)]
                options = {"dropout_p": dropped, "dropout_seed": torch.tensor(3)}
                first = fa.attention_varlen(*given, pq, keys, **options)
                with monkeypatch.context() as patch:
                    patch.setattr(packed, "trace_functions", None)
                    again = fa.attention_varlen(*given, pq, keys, **options)
                assert again.requires_grad and torch.equal(again, first)
                if not dropped:
                    assert_is(again, given, ((3, 4), lengths))
    with pytest.raises(
        TypeError, match="expected a mask function, a BlockMask or an array .* got int"
    ):
        fa.prepare(3)


@needs_torch
def test_autocast():
    q, k, v, cq, ck = tensors()
    with torch.autocast(DEVICE, torch.bfloat16):
        out = fa.attention_varlen(q, k, v, cq, ck)
    assert out.dtype == torch.bfloat16
    exact = fa.attention_varlen(*(x.bfloat16() for x in (q, k, v)), cq, ck)
    assert torch.equal(out, exact)


@needs_torch
def test_inference_mode():
    q, k, v, cq, ck = tensors()
    lengths = ((3, 4), (2, 6))
    with torch.inference_mode():
        assert_is(fa.attention_varlen(q, k, v, cq, ck), (q, k, v), lengths)
        ck[1] = 5
        assert_is(fa.attention_varlen(q, k, v, cq, ck), (q, k, v), ((3, 4), (5, 3)))
        inner = [x.clone() for x in (q, k, v, cq, ck)]
        inner[3][1] = 4
        assert_is(fa.attention_varlen(*inner), (q, k, v), ((4, 3), (5, 3)))
        inner[3][1] = 2
        assert_is(fa.attention_varlen(*inner), (q, k, v), ((2, 5), (5, 3)))
    # What is kept of offsets is no tensor of the mode's.
    out = fa.attention_varlen(q.requires_grad_(), k, v, cq, ck)
    assert out.requires_grad
    assert_is(out, (q, k, v), ((3, 4), (5, 3)))


@needs_torch
@pytest.mark.parametrize("functions", [False, True])
def test_gradients(functions):
    q, k, v, cq, ck = tensors()
    bias = on(BIAS, "torch").requires_grad_(functions)
    options = {"score_mod": lambda s, b, h, i, j: s + bias[b, h]} if functions else {}
    given = (q if functions else q.requires_grad_(), k, v, cq, ck)
    out, lse = fa.attention_varlen(*given, return_lse=True, **options)
    assert out.requires_grad
    assert_is(out, (q, k, v), ((3, 4), (2, 6)))  # a bias of a row changes nothing
    differentiate(out + lse.mT[..., None], bias if functions else q)
    with torch.no_grad():
        assert not fa.attention_varlen(*given, **options).requires_grad


@needs_torch
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("where", ["q", "k", "v", "gradient"])
@pytest.mark.parametrize("lengths", [(40, 0, 130, 7), (64, 64), (3,), (0, 0)], ids=str)
def test_nan_in_memory_of_nobody(lengths, where, dtype):
    """What is behind the last offset reaches neither results nor gradients."""
    import torch

    total, behind = sum(lengths), 147
    cu = on(offsets_of(lengths), "torch")
    rng = torch.Generator().manual_seed(0)
    given = [torch.randn(total + behind, 4, 64, generator=rng) for _ in range(4)]
    clean = [x.to(DEVICE, getattr(torch, dtype)) for x in given]
    spoilt = [x.clone() for x in clean]
    spoilt["q k v gradient".split().index(where)][total:] = float("nan")

    def run(q, k, v, grad):
        leaves = [x.requires_grad_() for x in (q, k, v)]
        out, lse = fa.attention_varlen(*leaves, cu, is_causal=True, return_lse=True)
        return out, lse, *torch.autograd.grad(out, leaves, grad)

    for found, wanted in zip(run(*spoilt), run(*clean)):
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
    for gradient in run(*spoilt)[2:]:
        assert not gradient[total:].any()


@pytest.mark.ci
@needs_torch
@pytest.mark.parametrize("alignment", [None, "bottom_right"])
@pytest.mark.parametrize("return_lse", [False, True])
def test_compile(alignment, return_lse):
    causal = {} if alignment is None else {"is_causal": True, "alignment": alignment}

    def function(q, k, v, cq, ck):
        return fa.attention_varlen(q, k, v, cq, ck, return_lse=return_lse, **causal)

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    for lengths in (((3, 4), (2, 6)), ((5, 2), (0, 8)), ((9, 1, 7), (2, 2, 20))):
        given = tensors(lengths)
        out = compiled(*given)
        formulas = {"mask": aligned(alignment)} if alignment else {}
        assert_is(out[0] if return_lse else out, given[:3], lengths, **formulas)
        if return_lse:
            right.assert_right_lse(out[1], reference(given[:3], lengths, **formulas))
    # Values of the offsets are no part of the graph.
    given[3][1] = 0
    out = compiled(*given)
    assert_is(out[0] if return_lse else out, given[:3], ((0, 10, 7), lengths[1]), **formulas)


@needs_torch
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("what", ["mask_mod", "score_mod"])
def test_compile_with_functions(fullgraph, what):
    given = {"mask_mod": masks.causal, "score_mod": scores.softcap(2.0)}[what]

    def function(q, k, v, cq, ck):
        return fa.attention_varlen(q, k, v, cq, ck, **{what: given})

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=fullgraph, backend="eager")
    with pytest.raises(Exception, match="NotImplementedError: expected attention of packed"):
        compiled(*tensors())
    # The remedy that it names.
    torch._dynamo.reset()
    outside = torch.compiler.disable(function)
    compiled = torch.compile(lambda *given: outside(*given) * 2, backend="eager")
    assert torch.equal(compiled(*tensors()), function(*tensors()) * 2)


# --- Nested tensors ----------------------------------------------------------------


def nested(array, lengths, layout="jagged", dtype="float32"):
    """A nested tensor [B, H, *, D] of packed tokens [T, H, D]."""
    rows = list(on(array, "torch", dtype).split(list(lengths)))
    if layout == "strided":
        rows = [row.transpose(0, 1) for row in rows]
        return torch.nested.as_nested_tensor(rows, layout=torch.strided)
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged).transpose(1, 2)


def nested_inputs(lengths, layout="jagged", dtype="float32", **options):
    arrays = packed(lengths, **options)
    q, k, v = (nested(x, own, layout, dtype) for x, own in zip(arrays, (*lengths, lengths[1])))
    return (q, k, v), [on(x, "torch", dtype) for x in arrays]


def unnested(out):
    """Packed tokens again, as NumPy has them."""
    return np.concatenate([back(row).swapaxes(0, 1) for row in out.unbind()])


LENGTHS = ((3, 1, 40), (5, 70, 17))


@needs_torch
@quiet
@pytest.mark.parametrize("layout", ["jagged", "strided"])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_nested(layout, heads, is_causal):
    formulas = {"mask": aligned("top_left")} if is_causal else {}
    for dtype in DTYPES:
        (q, k, v), arrays = nested_inputs(LENGTHS, layout, dtype, heads=heads)
        out = fa.attention(q, k, v, is_causal=is_causal)
        assert out.is_nested and out.layout == q.layout and out.dtype == q.dtype
        assert [row.shape for row in out.unbind()] == [(heads[0], n, DIM[1]) for n in LENGTHS[0]]
        right.assert_right(unnested(out), reference(arrays, LENGTHS, **formulas))


@needs_torch
@quiet
@pytest.mark.parametrize("layout", ["jagged", "strided"])
@pytest.mark.parametrize("lengths", [EMPTY, ((0,), (3,)), ((3,), (0,)), ((5,), (5,))], ids=str)
def test_nested_empty(layout, lengths):
    (q, k, v), arrays = nested_inputs(lengths, layout)
    out = fa.attention(q, k, v, is_causal=True)
    right.assert_right(unnested(out), reference(arrays, lengths, mask=aligned("top_left")))


@needs_torch
@quiet
@pytest.mark.parametrize("layout", ["jagged", "strided"])
def test_nested_goes_on(layout):
    """The output meets tensors that are nested as query is."""
    (q, k, v), arrays = nested_inputs(LENGTHS, layout, dims=(16, 16))
    exact = reference(arrays, LENGTHS)
    wanted = exact.map(lambda x: x + back(arrays[0]))
    right.assert_right(unnested(fa.attention(q, k, v) + q), wanted)


@needs_torch
@quiet
def test_nested_functions():
    """b is the number of the sequence, positions are those within it."""
    (q, k, v), arrays = nested_inputs(LENGTHS)
    for name in MASKS:
        out = fa.attention(
            q, k, v, mask_mod=MASKS[name][0]("torch"), score_mod=rows_of_bias("torch")
        )
        formula = SCORES["bias, of each sequence"][1]
        right.assert_right(
            unnested(out), reference(arrays, LENGTHS, mask=MASKS[name][1], score=formula)
        )


@needs_torch
@quiet
@pytest.mark.parametrize("is_causal", [False, True])
def test_nested_with_holes(is_causal):
    """Tokens between the sequences take no part."""
    holed, lengths = (np.array([0, 6, 6, 20]), (4, 0, 11))
    arrays = packed(((20,), (20,)))
    q, k, v = (
        torch.nested.nested_tensor_from_jagged(
            on(x, "torch"), offsets=offsets, lengths=own, jagged_dim=1
        ).transpose(1, 2)
        for offsets, own in [(on(holed, "torch"), on(np.array(lengths), "torch"))]
        for x in arrays
    )
    within = np.concatenate([np.arange(a, a + n) for a, n in zip(holed, lengths)])
    formulas = {"mask": aligned("top_left")} if is_causal else {}
    exact = reference([x[within] for x in arrays], (lengths, lengths), **formulas)
    out = fa.attention(q, k, v, is_causal=is_causal)
    right.assert_right(back(out.values().transpose(0, 1))[within], exact)
    # Queries without holes, and keys that have some.
    dense = nested(arrays[0][within], lengths)
    out = fa.attention(dense, k, v, is_causal=is_causal)
    right.assert_right(unnested(out), exact)


@needs_torch
@quiet
@pytest.mark.parametrize("where", range(4))
def test_nan_in_holes(where):
    """Tokens between the sequences reach neither results nor gradients."""
    import torch

    offsets, lengths = on(np.array([0, 6, 6, 20]), "torch"), on(np.array([4, 0, 11]), "torch")
    within = np.r_[0:4, 6:17]
    clean = [on(x, "torch") for x in packed(((20,), (20,)))]
    clean.append(torch.randn_like(clean[0][..., :1]).expand(20, HEADS[0], DIM[1]))

    def run(q, k, v, grad):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        inputs = (
            torch.nested.nested_tensor_from_jagged(x, offsets, lengths, jagged_dim=1)
            for x in leaves
        )
        out = fa.attention(*(x.transpose(1, 2) for x in inputs), is_causal=True).values()
        found = torch.autograd.grad(out, leaves, grad.transpose(0, 1))
        return out.transpose(0, 1)[within], *found

    spoilt = [x.clone() for x in clean]
    holes = np.setdiff1d(np.arange(20), within)
    spoilt[where][holes] = float("nan")
    for found, wanted in zip(run(*spoilt), run(*clean)):
        torch.testing.assert_close(found, wanted)
    for gradient in run(*spoilt)[1:]:
        assert not gradient[holes].any()


@needs_torch
@quiet
@pytest.mark.parametrize(
    "holes", [((2, 5), (2, 4)), (None, (2, 4)), ((2, 4), None)], ids=["other", "value", "key"]
)
def test_nested_lengths_of_key_and_value(holes):
    """Lengths are compared where the offsets are the same."""
    (q, _, _), _ = nested_inputs(((3, 4), (4, 6)))
    _, k, v = packed(((3, 4), (4, 6)))
    offsets = on(offsets_of((4, 6)), "torch")
    key, value = (
        torch.nested.nested_tensor_from_jagged(
            on(x, "torch"), offsets, None if own is None else on(np.array(own), "torch")
        ).transpose(1, 2)
        for x, own in zip((k, v), holes)
    )
    with pytest.raises(ValueError, match="key and value to have the same lengths, in the same"):
        fa.attention(q, key, value)


@needs_torch
@quiet
def test_nested_errors():
    (q, k, v), (_, array, _) = nested_inputs(LENGTHS)
    plain = back(array).astype(np.float32)
    others = nested_inputs((LENGTHS[0], (6, 69, 17)))[0]
    fewer = nested_inputs(((3, 4), (2, 6)))[0]
    flat = torch.nested.as_nested_tensor([array[:3, 0], array[3:7, 0]], layout=torch.jagged)
    by_token = nested(packed(LENGTHS)[0], LENGTHS[0], "jagged").transpose(1, 2)
    strided = torch.nested.as_nested_tensor([array[:3], array[3:7]], layout=torch.strided)
    for arguments, options, error, message in (
        ((q, array, v), {}, ValueError, r"key to be a nested tensor .* a Tensor of shape \[92, 2"),
        ((q, k, plain), {}, ValueError, "value to be a nested tensor .* a ndarray of shape"),
        ((flat, k, v), {}, ValueError, "query to be a nested tensor .* of 4 dimensions, got one"),
        ((by_token, k, v), {}, ValueError, "length as its third dimension, got .*; transpose it"),
        ((strided, k, v), {}, ValueError, "length as its third dimension, got .*; transpose it"),
        ((q, k, others[2]), {}, ValueError, "key and value to have the same lengths"),
        ((q, *fewer[1:]), {}, ValueError, "as many sequences in query and key, got 3 and 2"),
        ((q, k, fewer[2]), {}, ValueError, "got 92 and 8 tokens in 3 and 2 sequences"),
        ((q, k, v), {"return_lse": True}, NotImplementedError, "fa.attention_varlen gives it"),
        ((q, k, v), {"schedule": {}}, ValueError, "expected no schedule with nested tensors"),
    ):
        with pytest.raises(error, match=message):
            fa.attention(*arguments, **options)


@needs_torch
@quiet
@pytest.mark.parametrize("layout", ["jagged", "strided"])
def test_nested_gradients(layout):
    (q, k, v), arrays = nested_inputs(LENGTHS, layout)
    q = q.detach().requires_grad_()
    out = fa.attention(q, k, v)
    assert out.requires_grad
    right.assert_right(unnested(out), reference(arrays, LENGTHS))
    result = sum(row.square().sum() for row in out.unbind())
    result.backward()
    assert all(row.abs().sum() > 0 for row in q.grad.unbind() if row.numel())


@pytest.mark.ci
@needs_torch
@quiet
def test_nested_compile():
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda q, k: fa.attention(q, k, k, is_causal=True), fullgraph=True, backend="eager"
    )
    for lengths in (LENGTHS, ((4, 4), (1, 9))):
        (q, k, _), (x, y, _) = nested_inputs(lengths)
        exact = reference((x, y, y), lengths, mask=aligned("top_left"))
        right.assert_right(unnested(compiled(q, k)), exact)


@needs_torch
@quiet
@pytest.mark.parametrize("layout", ["jagged", "strided"])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
def test_sdpa(layout, options):
    (q, k, v), _ = nested_inputs(LENGTHS, layout, heads=(4, 4))
    out = fa.torch.sdpa(q, k, v, **options)
    assert out.layout == q.layout
    for own, *rows in zip(out.unbind(), q.unbind(), k.unbind(), v.unbind()):
        exact = F.scaled_dot_product_attention(*(row.double()[None] for row in rows), **options)
        right.assert_right(own, right.Expected(back(exact[0])))


@needs_torch
@quiet
def test_sdpa_refuses():
    (q, k, v), _ = nested_inputs(LENGTHS, heads=(4, 4))
    with pytest.raises(ValueError, match=r"dropout_p in \[0, 0.996\], got 1.5; it is"):
        fa.torch.sdpa(q, k, v, dropout_p=1.5)
    # The switch leaves them to PyTorch.
    with torch.no_grad(), fa.torch.use_sdpa() as calls:
        F.scaled_dot_product_attention(q, q, q)
    assert calls.fell_back == {"tensor class": 1}


@needs_torch
@quiet
@pytest.mark.parametrize("layout", ["jagged", "strided"])
def test_sdpa_autocast(layout):
    (q, k, v), _ = nested_inputs(LENGTHS, layout)
    with torch.autocast(DEVICE, torch.bfloat16):
        assert fa.torch.sdpa(q, k, v, enable_gqa=True).dtype == torch.bfloat16


@needs_torch
@quiet
@pytest.mark.parametrize("layout", ["jagged", "strided"])
def test_sdpa_errors(layout):
    (q, k, v), _ = nested_inputs(LENGTHS, layout, heads=(4, 2))
    with pytest.raises(ValueError, match="heads, got 4, 2 and 2; pass enable_gqa=True"):
        fa.torch.sdpa(q, k, v)
    exact = fa.attention(q, k, v)
    for own, other in zip(fa.torch.sdpa(q, k, v, enable_gqa=True).unbind(), exact.unbind()):
        assert torch.equal(own, other)
    mask = torch.ones(3, 3, device=DEVICE)
    for own, got in ((mask, r"one of shape \[3, 3\]"), (q, "a nested one")):
        with pytest.raises(ValueError, match=f"no attn_mask with nested tensors, got {got}; use"):
            fa.torch.sdpa(q, k, v, own, enable_gqa=True)
    dense = torch.ones(2, 4, 5, 16, device=DEVICE)
    for name, tensors in (("query", (dense, k, v)), ("key", (q, dense, v))):
        with pytest.raises(ValueError, match=f"expected {name} to be a nested tensor"):
            fa.torch.sdpa(*tensors, enable_gqa=True)


@needs_torch
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_cuda_graph():
    """A graph sees offsets that change between its replays."""
    q, k, v, cq, ck = tensors(((30, 40), (20, 60)))
    fa.attention_varlen(q, k, v, cq, ck, is_causal=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = fa.attention_varlen(q, k, v, cq, ck, is_causal=True)
    for lengths in (((30, 40), (20, 60)), ((64, 6), (1, 79)), ((0, 70), (80, 0))):
        for given, own in zip((cq, ck), lengths):
            given.copy_(on(offsets_of(own), "torch"))
        graph.replay()
        assert_is(out, (q, k, v), lengths, mask=aligned("top_left"))


@needs_torch
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_streams():
    q, k, v, cq, ck = tensors(((300, 400), (200, 600)))
    torch.cuda.synchronize()
    outs = []
    for _ in range(4):
        with torch.cuda.stream(torch.cuda.Stream()):
            outs.append(fa.attention_varlen(q, k, v, cq, ck))
    torch.cuda.synchronize()
    for out in outs:
        assert_is(out, (q, k, v), ((300, 400), (200, 600)))


@pytest.mark.skipif(DEVICE != "cpu", reason="runs on a GPU")
@pytest.mark.parametrize("functions", [False, True])
def test_as_ptx(functions):
    """The kernel for GPUs, an instruction at a time on the CPU."""
    import types

    import variant_fuzzer
    from fa._masks import packed as pack

    lengths, heads, dim = ((3, 0, 30, 7), (5, 2, 33, 20)), (2, 1), 16
    arrays = packed(lengths, heads, (dim, dim))
    given = [
        variant_fuzzer.EmulatedArray(np.ascontiguousarray(x.swapaxes(0, 1)[None]), "float16")
        for x in arrays
    ]
    ends = [offsets_of(own) for own in lengths]
    sides = tuple(map(pack.Side, ends))
    sequence = pack.sequences_of(ends[0], sum(lengths[0]))
    mods = (scores.softcap(2.0), masks.sliding_window(9, 4)) if functions else (None, None)
    score, mask = pack.functions(sides, sequence, "bottom_right", *mods)
    case = types.SimpleNamespace(
        dtype="float16", heads=heads, dims=(dim, dim), is_causal=False, scale=None
    )
    out, lse = variant_fuzzer.emulated(case, score, mask, given)
    window = lambda n, rows, keys: lambda b, h, i, j: (i - j <= 9) & (j - i <= 4)  # noqa: E731
    softcap = lambda n, rows, keys: lambda s, b, h, i, j: 2 * np.tanh(s / 2)  # noqa: E731
    wanted = reference(
        [x.raw[0].swapaxes(0, 1) for x in given],
        lengths,
        both(aligned("bottom_right"), window if functions else None),
        softcap if functions else None,
    )
    right.assert_right(out[0].swapaxes(0, 1), wanted, lse[0])
