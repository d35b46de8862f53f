# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions for PyTorch's FlexAttention, unchanged, against FlexAttention itself."""

from __future__ import annotations

import inspect
import warnings

import fa
import naive
import pytest
import right
from libraries import compiled

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 96, 12
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=GENERATOR)


SLOPES = torch.exp2(-(torch.arange(HEADS) + 1) * 8.0 / HEADS)
BIAS = normal(HEADS, LENGTH, LENGTH).bfloat16()
TABLE = normal(2 * LENGTH)
DOCUMENTS = torch.repeat_interleave(torch.arange(8), LENGTH // 8)
STARTS = torch.arange(0, LENGTH, LENGTH // 8)
PREFIXES = torch.tensor([10, 40])


def checkerboard(score, b, h, q_idx, kv_idx):
    score = torch.where(torch.abs(kv_idx - q_idx) % 2 == 1, score * 0.5, score)
    return torch.where(torch.abs(kv_idx - q_idx) % 2 == 0, score * 2.0, score)


def alibi(score, b, h, q_idx, kv_idx):
    return score + SLOPES[h] * (kv_idx - q_idx)


def relative(score, b, h, q_idx, kv_idx):
    return score + TABLE[q_idx - kv_idx]  # negative ones count from the end


def softcap_and_bias(score, b, h, q_idx, kv_idx):
    return 2 * torch.tanh(score / 2) + BIAS[h, q_idx, kv_idx]


def causal_by_score(score, b, h, q_idx, kv_idx):
    return torch.where(q_idx >= kv_idx, score, -float("inf"))


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def window(b, h, q_idx, kv_idx):
    return q_idx - kv_idx <= 20


def prefix(b, h, q_idx, kv_idx):
    return kv_idx <= PREFIXES[b]


def causal_documents(b, h, q_idx, kv_idx):
    same = DOCUMENTS[q_idx] == DOCUMENTS[kv_idx]
    q_here = q_idx - STARTS[DOCUMENTS[q_idx]]
    return same & causal(b, h, q_here, kv_idx - STARTS[DOCUMENTS[kv_idx]])


def neighbours(b, h, q_idx, kv_idx):
    row, column = q_idx // WIDTH, q_idx % WIDTH
    row = row.clamp(2, LENGTH // WIDTH - 3)
    column = column.clamp(2, WIDTH - 3)
    near = (row - kv_idx // WIDTH).abs() <= 2
    return near & ((column - kv_idx % WIDTH).abs() <= 2)


@pytest.mark.parametrize(
    ("score_mod", "mask_mod"),
    [
        (checkerboard, None),
        (alibi, neighbours),
        (relative, causal_documents),
        (softcap_and_bias, flex.or_masks(causal, prefix)),
        (causal_by_score, flex.and_masks(window, flex.noop_mask)),
    ],
)
def test_as_it_is(score_mod, mask_mod):
    q, k, v = naive.telling(*(normal(BATCH, HEADS, LENGTH, 32) for _ in range(3)))
    block_mask = None
    if mask_mod is not None:
        block_mask = flex.create_block_mask(
            mask_mod, BATCH, HEADS, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=32
        )
    ours = fa.attention(q, k, v, score_mod=score_mod, mask_mod=mask_mod)
    wide = (x.double() for x in (q, k, v))
    theirs = flex.flex_attention(*wide, score_mod=score_mod, block_mask=block_mask)
    right.assert_right(ours, right.Expected(theirs.numpy()))


# --- fa.torch.flex_attention --------------------------------------------------------------

fa_torch = pytest.importorskip("fa.torch")
AuxRequest = getattr(flex, "AuxRequest", None)
needs_aux = pytest.mark.skipif(AuxRequest is None, reason="needs PyTorch 2.9")


def blocks_of(mask_mod, batch=BATCH, length=LENGTH):
    return flex.create_block_mask(
        mask_mod, batch, HEADS, length, length, device="cpu", BLOCK_SIZE=32
    )


def exact(q, k, v, *arguments, **options):
    """FlexAttention itself, in float64."""
    return flex.flex_attention(*(x.double() for x in (q, k, v)), *arguments, **options)


def vectors(key_heads=HEADS, batch=BATCH):
    q = normal(BATCH, HEADS, LENGTH, 32)
    return q, normal(batch, key_heads, LENGTH, 32), normal(batch, key_heads, LENGTH, 16)


@pytest.mark.parametrize("wrap", [lambda f: f, compiled], ids=["eager", "compiled"])
@pytest.mark.parametrize("score_mod", [None, alibi, softcap_and_bias])
@pytest.mark.parametrize("mask_mod", [None, causal_documents, prefix])
def test_by_arguments(score_mod, mask_mod, wrap):
    q, k, v = vectors(key_heads=2)
    blocks = None if mask_mod is None else blocks_of(mask_mod)
    expected, lse = exact(q, k, v, score_mod, blocks, 0.3, True, True)
    call = wrap(fa_torch.flex_attention)
    out = call(q, k, v, score_mod, blocks, 0.3, True)
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=0)
    out, own = call(q, k, v, score_mod, blocks, 0.3, True, True)
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=0)
    assert own.dtype == torch.float32
    torch.testing.assert_close(own.double(), lse.double(), atol=1e-4, rtol=0)


@needs_aux
@pytest.mark.parametrize("wrap", [lambda f: f, compiled], ids=["eager", "compiled"])
def test_auxiliary_results(wrap):
    q, k, v = vectors()
    call = wrap(fa_torch.flex_attention)
    expected, lse = exact(q, k, v, alibi, return_lse=True)
    out, aux = call(q, k, v, alibi, return_aux=AuxRequest(lse=True))
    assert isinstance(aux, flex.AuxOutput) and aux.max_scores is None
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(aux.lse.double(), lse.double(), atol=1e-4, rtol=0)
    out, aux = call(q, k, v, alibi, return_aux=AuxRequest())
    assert aux.lse is None and aux.max_scores is None
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=0)


def test_rows_that_see_nothing():
    q, k, v = vectors()

    def mask_mod(b, h, q_idx, kv_idx):
        return kv_idx < q_idx - 10

    expected, lse = exact(q, k, v, None, blocks_of(mask_mod), return_lse=True)
    out, own = fa_torch.flex_attention(q, k, v, None, blocks_of(mask_mod), return_lse=True)
    assert (out[:, :, :11] == 0).all() and (own[:, :, :11] == -torch.inf).all()
    assert torch.equal(own.isinf(), lse.isinf())
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=0)


def test_a_function_in_the_place_of_blocks():
    q, k, v = vectors()
    out = fa_torch.flex_attention(q, k, v, block_mask=causal)
    torch.testing.assert_close(
        out.double(), exact(q, k, v, None, blocks_of(causal)), atol=1e-5, rtol=0
    )


def test_keys_of_one_batch_entry():
    q, k, v = vectors(batch=1)
    out = fa_torch.flex_attention(q, k, v, alibi, blocks_of(prefix))
    expected = exact(q, *(x.expand(BATCH, -1, -1, -1) for x in (k, v)), alibi, blocks_of(prefix))
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=0)


def test_kernel_options_are_said_to_be_ignored_once():
    q, k, v = vectors()
    options = {"BLOCK_M": 64, "num_stages": 2}
    with pytest.warns(UserWarning, match="ignores kernel_options, got BLOCK_M, num_stages.*leave"):
        out = fa_torch.flex_attention(q, k, v, kernel_options=options)
    assert torch.equal(out, fa_torch.flex_attention(q, k, v))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fa_torch.flex_attention(q, k, v, kernel_options=dict(options))
        fa_torch.flex_attention(q, k, v, kernel_options={})


def test_signature():
    ours = inspect.signature(fa_torch.flex_attention).parameters
    theirs = inspect.signature(flex.flex_attention).parameters
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


def test_errors():
    q, k, v = vectors(key_heads=2)
    call = fa_torch.flex_attention
    with pytest.raises(ValueError, match="same number of heads, got 4 and 2; pass enable_gqa"):
        call(q, k, v)
    three = normal(BATCH, 3, LENGTH, 32)
    with pytest.raises(ValueError, match="a multiple of those of key, got 4 and 3; repeat"):
        call(q, three, three, enable_gqa=True)
    q, k, v = vectors()
    with pytest.raises(TypeError, match="BlockMask .* or a function, got Tensor; pass a tensor"):
        call(q, k, v, block_mask=torch.ones(LENGTH, LENGTH, dtype=torch.bool))
    with pytest.raises(ValueError, match="created for 32 queries and 32 keys, got 96 and 96"):
        call(q, k, v, block_mask=blocks_of(causal, length=32))
    with pytest.raises(ValueError, match="same batch size, got 2 and 3"):
        call(q, k[:1].expand(3, -1, -1, -1), v[:1].expand(3, -1, -1, -1))
    with pytest.raises(ValueError, match=r"rank 4 \[B, H, S, D\], got shape"):
        call(q[0], k[0], v[0])


@needs_aux
def test_errors_of_auxiliary_results():
    q, k, v = vectors()
    with pytest.raises(ValueError, match="return_lse or return_aux, got both; leave"):
        fa_torch.flex_attention(q, k, v, return_lse=True, return_aux=AuxRequest(lse=True))
    with pytest.raises(NotImplementedError, match="without max_scores.*; leave it out, or use"):
        fa_torch.flex_attention(q, k, v, return_aux=AuxRequest(max_scores=True))
