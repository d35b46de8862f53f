# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lists of blocks on a GPU: made again exactly when what they are made of changes."""

from __future__ import annotations

import fa
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LENGTH, DIM = 700, 64


@pytest.fixture
def qkv():
    generator = torch.Generator("cuda").manual_seed(0)
    return [
        torch.randn(2, 2, LENGTH, DIM, generator=generator, device="cuda", dtype=torch.bfloat16)
        for _ in range(3)
    ]


def reference(q, k, v, seen):
    scores = (q.double() @ k.double().mT * DIM**-0.5).masked_fill(~seen, -torch.inf)
    return scores.softmax(-1).nan_to_num() @ v.double()


def same(ids):
    return ids[:, None] == ids[None, :]


def close(out, exact):
    torch.testing.assert_close(out.double(), exact, atol=2e-2, rtol=0)


def documents(width):
    return torch.arange(LENGTH, device="cuda", dtype=torch.int32) // width


def kernels_of(function):
    """The names of the GPU kernels that a call launches, without copies."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    names = [event.key for event in profile.key_averages() if "kernel" in event.key]
    return [name for name in names if "attention" in name]


def test_lists_are_used_again(qkv):
    mask = fa.masks.documents(documents(100))
    first = fa.attention(*qkv, mask_mod=mask)
    again = kernels_of(lambda: fa.attention(*qkv, mask_mod=mask))
    assert len(again) == 1, again
    assert torch.equal(fa.attention(*qkv, mask_mod=mask), first)
    fresh = kernels_of(lambda: fa.attention(*qkv, mask_mod=fa.masks.documents(documents(100))))
    assert len(fresh) == 2, fresh


def test_changes_are_seen(qkv):
    ids = documents(100)
    mask = fa.masks.documents(ids)
    for width in (100, 30, 700, 1, 100):
        ids.copy_(documents(width))
        for _ in range(2):
            close(fa.attention(*qkv, mask_mod=mask), reference(*qkv, same(ids)))
    ids[350:] = 0
    close(fa.attention(*qkv, mask_mod=mask), reference(*qkv, same(ids)))
    with torch.inference_mode():
        ids.fill_(1)
    close(fa.attention(*qkv, mask_mod=mask), reference(*qkv, same(ids)))


def test_new_tensors_in_old_memory(qkv):
    """A tensor that takes the place of one that is gone is another tensor."""
    for width in (100, 33, 250, 100, 33):
        ids = documents(width)
        exact = reference(*qkv, same(ids))
        close(fa.attention(*qkv, mask_mod=fa.masks.documents(ids)), exact)
        del ids


def test_other_lengths(qkv):
    ids = documents(64)
    mask = fa.masks.documents(ids)
    for length in (LENGTH, 300, 129, LENGTH):
        part = [x[:, :, :length] for x in qkv]
        close(fa.attention(*part, mask_mod=mask), reference(*part, same(ids[:length])))


def test_inference_tensors(qkv):
    with torch.inference_mode():
        ids = documents(100)
        for width in (100, 50):
            ids.copy_(documents(width))
            out = fa.attention(*qkv, mask_mod=fa.masks.documents(ids))
            close(out, reference(*qkv, same(ids)))


def test_streams(qkv):
    ids = documents(90)
    mask = fa.masks.documents(ids)
    exact = reference(*qkv, same(ids))
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    outs = []
    for stream in streams * 5:
        with torch.cuda.stream(stream):
            outs.append(fa.attention(*qkv, mask_mod=mask))
    torch.cuda.synchronize()
    for out in outs:
        close(out, exact)


def test_a_graph_makes_its_own(qkv):
    """What changes between replays is seen: the lists are part of the graph."""
    ids = documents(100)
    mask = fa.masks.documents(ids)
    fa.attention(*qkv, mask_mod=mask)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = fa.attention(*qkv, mask_mod=mask)
    for width in (100, 20, 350):
        ids.copy_(documents(width))
        graph.replay()
        close(out, reference(*qkv, same(ids)))


def test_many_masks(qkv):
    """More than are kept."""
    masks = [documents(20 + n) for n in range(40)]
    for _ in range(2):
        for ids in masks:
            out = fa.attention(*qkv, mask_mod=fa.masks.documents(ids))
        close(out, reference(*qkv, same(masks[-1])))


def test_switched_off(qkv, monkeypatch):
    monkeypatch.setenv("FA_REUSE_LISTS", "0")
    mask = fa.masks.documents(documents(100))
    fa.attention(*qkv, mask_mod=mask)
    assert len(kernels_of(lambda: fa.attention(*qkv, mask_mod=mask))) == 2


def test_only_what_the_mask_reads_counts(qkv):
    """Other values of a bias need no other lists."""
    ids, bias = documents(100), torch.randn(LENGTH, LENGTH, device="cuda")
    mask, score = fa.masks.documents(ids), fa.scores.bias(bias)

    def call():
        return fa.attention(*qkv, score_mod=score, mask_mod=mask)

    call()
    bias.mul_(2)
    assert len(kernels_of(call)) == 1
    exact = (qkv[0].double() @ qkv[1].double().mT * DIM**-0.5 + bias).masked_fill(
        ~same(ids), -torch.inf
    )
    close(call(), exact.softmax(-1) @ qkv[2].double())
