# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Named masks and scores whose arguments do not fit a call: errors, not clamping."""

import fa
import numpy as np
import pytest
from fa import masks, scores

B, H, SQ, SK = 3, 8, 50, 70
RNG = np.random.default_rng(3)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def ids(*shape):
    return np.ones(shape, np.int32)


Q, K, V = floats(B, H, SQ, 16), floats(B, H, SK, 16), floats(B, H, SK, 16)
BLOCKS = np.ones((2, H, 2, 3), bool)


def own_mask(mask):
    return lambda b, h, i, j: mask(b, h, i, j) & (i >= j)


# Of each: its functions, of what makes a library's arrays, and what the error says.
WRONG = {
    "padding": (lambda a: masks.padding(a(ids(4))), r"3 elements \(batch entries\) .* \[4\]"),
    "and": (lambda a: masks.and_masks(masks.causal, masks.padding(a(ids(4)))), r"\[4\]"),
    "own": (lambda a: own_mask(masks.padding(a(ids(4)))), r"\[4\]"),
    "prefix": (lambda a: masks.prefix(a(ids(2))), r"3 elements .* \[2\]"),
    "lengths": (lambda a: masks.causal_lengths(a(ids(3)), a(ids(2))), r"\[2\]"),
    "keys": (lambda a: masks.documents(a(ids(SQ))), r"at least 70 elements \(keys\)"),
    "queries": (
        lambda a: masks.documents(a(ids(SQ - 1)), a(ids(SK))),
        r"at least 50 elements \(queries\)",
    ),
    "documents": (lambda a: masks.documents(a(ids(2, SK))), "dimension 0 .* 3 elements"),
    "blocks": (lambda a: masks.block_sparse(a(BLOCKS), 32), r"3 elements .* \[2, 8, 2, 3\]"),
    "blocks of heads": (
        lambda a: masks.not_mask(masks.block_sparse(a(BLOCKS[0, :4]), 32)),
        r"8 elements \(query heads\)",
    ),
    "alibi": (lambda a: scores.alibi(4), "fa.scores.alibi for 8 heads like query, got 4"),
    "slopes": (lambda a: scores.alibi(a(floats(4))), r"8 elements .* \[4\]"),
    "compose": (lambda a: scores.compose(scores.softcap(3.0), scores.alibi(16)), "got 16"),
    "bias": (lambda a: scores.bias(a(floats(B, H, SK, SQ))), "dimension 3 .* at least 70"),
    "bias of heads": (lambda a: scores.bias(a(floats(4, SQ, SK))), "dimension 0 .* 8 elements"),
    "relative": (lambda a: scores.relative_position(a(floats(9, 7))), r"\[9, 7\]"),
    "t5": (lambda a: scores.t5_bias(a(floats(8, 32))), "dimension 1 .* 8 elements"),
}
SCORES = ("alibi", "slopes", "compose", "bias", "bias of heads", "relative", "t5")


def functions_of(name, array):
    function = WRONG[name][0](array)
    return {"score_mod" if name in SCORES else "mask_mod": function}


@pytest.mark.parametrize("name", WRONG)
def test_sizes_of_another_call(name):
    with pytest.raises(ValueError, match=WRONG[name][1]):
        fa.attention(Q, K, V, **functions_of(name, np.asarray))


@pytest.mark.parametrize("name", WRONG)
def test_sizes_of_another_call_in_pytorch(name):
    """Its tensors' traces are kept, and calls with gradients are an operator's."""
    torch = pytest.importorskip("torch")
    q, k, v = map(torch.from_numpy, (Q, K, V))
    functions = functions_of(name, torch.from_numpy)
    for query in (q, q, q.clone().requires_grad_()):
        with pytest.raises(ValueError, match=WRONG[name][1]):
            fa.attention(query, k, v, **functions)


@pytest.mark.parametrize("name", WRONG)
def test_sizes_of_another_call_in_compiled_code(name):
    torch = pytest.importorskip("torch", minversion="2.8")
    torch._dynamo.reset()
    functions = functions_of(name, torch.from_numpy)

    def call(q, k, v):
        return fa.attention(q, k, v, **functions)

    compiled = torch.compile(call, backend="eager", fullgraph=True)
    with pytest.raises(ValueError, match=WRONG[name][1]):
        compiled(*map(torch.from_numpy, (Q, K, V)))


def test_each_call_is_asked():
    """Sizes are no part of a kernel, nor of what is remembered of calls."""
    torch = pytest.importorskip("torch")
    q, k, v = map(torch.from_numpy, (Q, K, V))
    mask_mod = masks.documents(torch.ones(SK, dtype=torch.int32))
    for _ in range(3):
        fa.attention(q, k, v, mask_mod=mask_mod)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"at least 140 elements \(keys\)"):
            fa.attention(q, torch.cat((k, k), 2), torch.cat((v, v), 2), mask_mod=mask_mod)
    assert fa.attention(q, k, v, mask_mod=mask_mod).shape == (B, H, SQ, 16)


def test_sequences():
    """Of packed sequences an array has an element for each."""
    offsets = np.array([0, 20, 50], np.int32)
    q = k = v = floats(50, H, 16)

    def attend(mask_mod):
        return fa.attention_varlen(q, k, v, offsets, mask_mod=mask_mod)

    for lengths in (np.int32([7]), np.int32([7, 4])):
        first, second = lengths[0], lengths[-1]
        given = attend(masks.padding(lengths))
        both = (int(first), int(second))
        same = attend(lambda b, h, i, j, n=both: (j < n[0]) & (b == 0) | (j < n[1]) & (b == 1))
        np.testing.assert_array_equal(given, same)
    with pytest.raises(ValueError, match=r"size of 2 \(sequences\) or 1, got shape \[3\]"):
        attend(masks.padding(ids(3)))
    with pytest.raises(ValueError, match="for 8 heads like query, got 4"):
        fa.attention_varlen(q, k, v, offsets, score_mod=scores.alibi(4))


ROWS = np.sort(RNG.integers(0, 4, (H, SK))).astype(np.int32)
BIAS, SLOPES = floats(1, H, 1, SK), floats(H)
LIKE = {
    "one length": (masks.padding(ids(1) * 60), masks.padding(np.full(B, 60, np.int32))),
    "long ids": (masks.documents(ids(90)), masks.documents(ids(SK))),
    "one row of ids": (masks.documents(ids(1, SK)), masks.documents(ids(B, SK))),
    "one matrix": (
        masks.block_sparse(np.tri(2, 3, dtype=bool)[None, None], 32),
        masks.block_sparse(np.tri(2, 3, dtype=bool), 32),
    ),
    "heads of NumPy": (scores.alibi(np.int64(H)), scores.alibi(H)),
    "one row of a bias": (
        scores.bias(BIAS),
        scores.bias(np.ascontiguousarray(np.broadcast_to(BIAS, (B, H, SQ, SK)))),
    ),
    "slopes": (scores.alibi(SLOPES), lambda s, b, h, i, j: s - SLOPES[h] * abs(i - j)),
    "no limit": (masks.sliding_window(float("inf")), masks.causal),
    "a row of ids": (
        lambda b, h, i, j: masks.documents(ROWS[h])(b, h, i, j),
        lambda b, h, i, j: ROWS[h, i] == ROWS[h, j],
    ),
    "cap of NumPy": (scores.softcap(np.float32(2)), scores.softcap(2.0)),
}
MASKS = ("one length", "long ids", "one row of ids", "one matrix", "no limit", "a row of ids")


@pytest.mark.parametrize("name", LIKE)
def test_sizes_that_fit(name):
    kind = "mask_mod" if name in MASKS else "score_mod"
    given, same = (fa.attention(Q, K, V, **{kind: function}) for function in LIKE[name])
    np.testing.assert_array_equal(given, same)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: masks.padding([1, 2]), TypeError, r"array, integers \[B\], got list"),
        (lambda: masks.padding(5), TypeError, "got int"),
        (lambda: masks.documents([0, 1]), TypeError, "ids to be an array, .* got list"),
        (lambda: masks.documents(ids(1, 2, 3)), ValueError, r"got shape \[1, 2, 3\]"),
        (lambda: masks.prefix(ids(2, 3)), ValueError, r"got shape \[2, 3\]"),
        (lambda: masks.prefix("4"), TypeError, "length to be a number .* got str"),
        (lambda: masks.sliding_window(None), TypeError, "left .* got NoneType"),
        (lambda: masks.sliding_window(float("nan")), ValueError, "left >= 0, got nan"),
        (lambda: masks.sliding_window(ids(2)), ValueError, r"left .* got shape \[2\]"),
        (lambda: masks.neighbourhood_2d((3,), 5), ValueError, r"one number or two, got \(3,\)"),
        (lambda: masks.block_sparse(BLOCKS, (32,)), ValueError, r"got \(32,\)"),
        (lambda: masks.block_sparse_csr([0, 1], [0], 1), TypeError, "offsets .* got list"),
        (lambda: masks.block_sparse_csr(ids(1) * 0, ids(0), 2.5), ValueError, "got 2.5"),
        (lambda: scores.alibi(4.0), TypeError, "slopes to be an array, .* got float"),
        (lambda: scores.alibi(floats(2, 2)), ValueError, r"got shape \[2, 2\]"),
        (lambda: scores.softcap(np.float32(-1)), ValueError, "cap > 0, got -1.0"),
        (lambda: scores.softcap(floats(2)), ValueError, r"cap .* got shape \[2\]"),
        (lambda: scores.bias([1.0]), TypeError, "values to be an array, .* got list"),
        (lambda: scores.relative_position(floats(4)), ValueError, r"got shape \[4\]"),
        (lambda: scores.t5_bias([[1.0]]), TypeError, "table to be an array, .* got list"),
    ],
)
def test_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


class OnlyDLPack:
    """An array that has no shape of its own."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_arrays_without_a_shape():
    with pytest.raises(ValueError, match="3 elements"):
        fa.attention(*map(OnlyDLPack, (Q, K, V)), mask_mod=masks.padding(ids(4)))


def test_no_heads():
    q, k, v = Q[:, :0], K, V
    assert fa.attention(q, k, v, score_mod=scores.alibi(4)).shape == (B, 0, SQ, 16)


def test_texts_without_extents():
    """Of graphs that PyTorch kept on a disk."""
    torch = pytest.importorskip("torch")
    import fa.torch  # noqa: F401 (registers the operator)

    q, k, v = map(torch.from_numpy, (Q, K, V))
    text = '[null, [["%0 = arith.cmpi sle, %j, %i : index"], "%0"], [], [], 0]'
    assert torch.equal(
        torch.ops.fa.attention(q, k, v, [], variant=text),
        fa.attention(q, k, v, mask_mod=masks.causal),
    )
