# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lists of blocks on a GPU: made in each call, or once of what was prepared."""

from __future__ import annotations

import fa
import naive
import pytest
import right

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LENGTH, DIM = 700, 64


@pytest.fixture
def qkv():
    arrays = naive.inputs(2, 2, 2, LENGTH, LENGTH, DIM)
    return [torch.from_numpy(x).to("cuda", torch.bfloat16) for x in arrays]


def reference(q, k, v, seen, **formulas):
    return right.attention(q, k, v, mask=lambda b, h, i, j: seen, xp=torch, **formulas)


def same(ids):
    return ids[:, None] == ids[None, :]


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


def test_prepared_lists_are_used_again(qkv):
    mask = fa.prepare(fa.masks.documents(documents(100)))
    first = fa.attention(*qkv, mask_mod=mask)
    again = kernels_of(lambda: fa.attention(*qkv, mask_mod=mask))
    assert len(again) == 1, again
    assert torch.equal(fa.attention(*qkv, mask_mod=mask), first)
    assert len(mask.lists) == 1
    plain = fa.masks.documents(documents(100))
    for _ in range(2):
        fresh = kernels_of(lambda: fa.attention(*qkv, mask_mod=plain))
        assert len(fresh) == 2, fresh


def test_prepared_of_another_array(qkv):
    """A function that names another array than before is of that one."""
    arrays = [documents(100), documents(30), documents(350)]
    ids = arrays[0]

    def seen(b, h, q_idx, kv_idx):
        return ids[q_idx] == ids[kv_idx]

    mask = fa.prepare(seen)
    for _ in range(2):
        for ids in arrays:
            for _ in range(2):
                out = fa.attention(*qkv, mask_mod=mask)
                right.assert_right(out, reference(*qkv, same(ids)))


def test_prepared_offsets(qkv):
    """Packed sequences whose offsets are prepared launch attention alone."""
    q, k, v = (x[0].transpose(0, 1).contiguous() for x in qkv)
    offsets = torch.tensor([0, 100, 350, 700], device="cuda", dtype=torch.int32)
    plain = fa.attention_varlen(q, k, v, offsets, is_causal=True)
    prepared = fa.prepare(offsets)
    for _ in range(2):
        out = fa.attention_varlen(q, k, v, prepared, is_causal=True)
        assert torch.equal(out, plain)
    call = lambda: fa.attention_varlen(q, k, v, prepared, is_causal=True)  # noqa: E731
    assert len(kernels_of(call)) == 1


@pytest.fixture
def same_bits():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def step_of(qkv, attend):
    """What computes the output and the gradients of the tensors, by `attend`."""
    leaves = [x.detach().requires_grad_() for x in qkv]
    grad = torch.randn_like(leaves[0])

    def step():
        out = attend(*leaves)
        return out, *torch.autograd.grad(out, leaves, grad)

    return step


def assert_same(found, expected):
    for x, y in zip(found, expected, strict=True):
        assert torch.equal(x, y)


def test_prepared_lists_serve_gradients(qkv, same_bits):
    plain = fa.masks.documents(documents(100))
    mask = fa.prepare(plain)

    def step(of):
        return step_of(qkv, lambda q, k, v: fa.attention(q, k, v, mask_mod=of))

    torch.manual_seed(0)
    made = step(plain)
    torch.manual_seed(0)
    kept = step(mask)
    expected = made()
    for _ in range(3):
        assert_same(kept(), expected)
    assert len(mask.lists) == 2
    # One for the output and one for the gradients makes lists.
    assert len(kernels_of(kept)) == len(kernels_of(made)) - 2


def test_gradients_of_another_array(qkv, same_bits):
    """A function that names another array than before is of that one."""
    arrays = [documents(100), documents(30), documents(350)]
    ids = arrays[0]

    def seen(b, h, q_idx, kv_idx):
        return ids[q_idx] == ids[kv_idx]

    mask = fa.prepare(seen)
    torch.manual_seed(0)
    kept = step_of(qkv, lambda q, k, v: fa.attention(q, k, v, mask_mod=mask))
    torch.manual_seed(0)
    made = step_of(qkv, lambda q, k, v: fa.attention(q, k, v, mask_mod=seen))
    for of in 2 * arrays:
        ids = of
        for _ in range(2):
            assert_same(kept(), made())


def test_prepared_offsets_serve_gradients(qkv, same_bits):
    """Also with dropout, whose seed is another one each time."""
    packed = [x[0].transpose(0, 1).contiguous() for x in qkv]
    offsets = torch.tensor([0, 100, 350, 700], device="cuda", dtype=torch.int32)
    prepared = fa.prepare(offsets)
    for options in ({}, {"dropout_p": 0.25}):

        def step(of, options=options):
            attend = lambda q, k, v: fa.attention_varlen(q, k, v, of, **options)  # noqa: E731
            return step_of(packed, attend)

        torch.manual_seed(0)
        made = step(offsets)
        torch.manual_seed(0)
        kept = step(prepared)
        for seed in range(3):
            torch.manual_seed(seed)
            expected = made()
            torch.manual_seed(seed)
            assert_same(kept(), expected)
        assert len(kernels_of(kept)) < len(kernels_of(made))


def test_gradients_of_copies(qkv, same_bits):
    """What hooks of autograd's give back is another array, of which nothing was promised."""
    mask = fa.prepare(fa.masks.documents(documents(100)))
    step = step_of(qkv, lambda q, k, v: fa.attention(q, k, v, mask_mod=mask))
    expected = step()
    made = len(mask.lists)
    with torch.autograd.graph.save_on_cpu():
        for _ in range(3):
            assert_same(step(), expected)
    assert len(mask.lists) == made


def test_graphs_of_prepared_masks(qkv, same_bits):
    """Of calls on the stream that lists were made on or on another one, or of none before.

    A graph has what makes lists where these are not known to be there.
    """
    for warm in ("this", "other", "at once", "none"):
        mask = fa.prepare(fa.masks.documents(documents(110)))
        plain = fa.masks.documents(documents(110))
        torch.manual_seed(1)
        made = step_of(qkv, lambda q, k, v, mask=plain: fa.attention(q, k, v, mask_mod=mask))
        torch.manual_seed(1)
        step = step_of(qkv, lambda q, k, v, mask=mask: fa.attention(q, k, v, mask_mod=mask))
        expected = made()
        stream = torch.cuda.Stream()
        if warm in ("other", "at once"):
            step()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(3 if warm in ("this", "other") else 0):
                step()
                torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            found = step()
        for _ in range(2):
            graph.replay()
            torch.cuda.synchronize()
            assert_same(found, expected)
        own = 0 if warm in ("this", "other") else 2
        assert len(kernels_of(graph.replay)) == len(kernels_of(made)) - 2 + own


def test_gradients_on_streams(qkv, same_bits):
    mask = fa.prepare(fa.masks.documents(documents(90)))
    step = step_of(qkv, lambda q, k, v: fa.attention(q, k, v, mask_mod=mask))
    expected = step()
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    found = []
    for stream in streams * 3:
        with torch.cuda.stream(stream):
            found.append(step())
    torch.cuda.synchronize()
    for results in found:
        assert_same(results, expected)


def test_writes_that_pytorch_does_not_count(qkv):
    """Other libraries' kernels and collectives write without a new version."""
    ids = documents(100)
    mask = fa.masks.documents(ids)
    for width in (100, 30, 700):
        version = ids._version
        ids.data.copy_(documents(width))
        assert ids._version == version
        right.assert_right(fa.attention(*qkv, mask_mod=mask), reference(*qkv, same(ids)))


def test_changes_are_seen(qkv):
    ids = documents(100)
    mask = fa.masks.documents(ids)
    for width in (100, 30, 700, 1, 100):
        ids.copy_(documents(width))
        for _ in range(2):
            right.assert_right(fa.attention(*qkv, mask_mod=mask), reference(*qkv, same(ids)))
    ids[350:] = 0
    right.assert_right(fa.attention(*qkv, mask_mod=mask), reference(*qkv, same(ids)))
    with torch.inference_mode():
        ids.fill_(1)
    right.assert_right(fa.attention(*qkv, mask_mod=mask), reference(*qkv, same(ids)))


def test_new_tensors_in_old_memory(qkv):
    """A tensor that takes the place of one that is gone is another tensor."""
    for width in (100, 33, 250, 100, 33):
        ids = documents(width)
        exact = reference(*qkv, same(ids))
        right.assert_right(fa.attention(*qkv, mask_mod=fa.masks.documents(ids)), exact)
        del ids


def test_other_lengths(qkv):
    ids = documents(64)
    mask = fa.masks.documents(ids)
    for length in (LENGTH, 300, 129, LENGTH):
        part = [x[:, :, :length] for x in qkv]
        right.assert_right(fa.attention(*part, mask_mod=mask), reference(*part, same(ids[:length])))


def test_inference_tensors(qkv):
    with torch.inference_mode():
        ids = documents(100)
        for width in (100, 50):
            ids.copy_(documents(width))
            out = fa.attention(*qkv, mask_mod=fa.masks.documents(ids))
            right.assert_right(out, reference(*qkv, same(ids)))


def test_streams(qkv):
    ids = documents(90)
    mask = fa.prepare(fa.masks.documents(ids))
    exact = reference(*qkv, same(ids))
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    outs = []
    for stream in streams * 5:
        with torch.cuda.stream(stream):
            outs.append(fa.attention(*qkv, mask_mod=mask))
    torch.cuda.synchronize()
    for out in outs:
        right.assert_right(out, exact)


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
        right.assert_right(out, reference(*qkv, same(ids)))


def test_many_masks(qkv):
    """More than are kept."""
    ids = documents(100)
    mask = fa.prepare(fa.masks.documents(ids))
    for _ in range(2):
        for length in range(300, 340):
            part = [x[:, :, :length] for x in qkv]
            out = fa.attention(*part, mask_mod=mask)
        right.assert_right(out, reference(*part, same(ids[:length])))
    assert len(mask.lists) == 32


def test_only_what_the_mask_reads_counts(qkv):
    """Other values of a bias need no other lists."""
    ids, bias = documents(100), torch.randn(LENGTH, LENGTH, device="cuda")
    mask, score = fa.prepare(fa.masks.documents(ids)), fa.scores.bias(bias)

    def call():
        return fa.attention(*qkv, score_mod=score, mask_mod=mask)

    call()
    bias.mul_(2)
    assert len(kernels_of(call)) == 1
    expected = reference(*qkv, same(ids), score=lambda s, b, h, i, j: s + bias)
    right.assert_right(call(), expected)
