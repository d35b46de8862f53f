# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions for PyTorch's FlexAttention, unchanged, against FlexAttention itself."""

from __future__ import annotations

import fa
import pytest

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
    q, k, v = (normal(BATCH, HEADS, LENGTH, 32) for _ in range(3))
    block_mask = None
    if mask_mod is not None:
        block_mask = flex.create_block_mask(
            mask_mod, BATCH, HEADS, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=32
        )
    theirs = flex.flex_attention(q, k, v, score_mod=score_mod, block_mask=block_mask)
    ours = fa.attention(q, k, v, score_mod=score_mod, mask_mod=mask_mod)
    assert (ours - theirs).abs().max() <= 1e-5
