# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The masks and score functions of attention-gym, unchanged, against float64.

attention-gym (https://github.com/meta-pytorch/attention-gym) is a collection of
functions for PyTorch's FlexAttention. Its tests run where it can be imported: from the
checkout that ATTENTION_GYM names, or installed (`pip install
git+https://github.com/meta-pytorch/attention-gym`). What these functions are made of is
tested without it.

The reference calls the functions as FlexAttention does, by `torch.vmap` over the
coordinates, and computes attention in float64.
"""

from __future__ import annotations

import math
import os
import sys

import fa
import naive
import numpy as np
import pytest
import right

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")

HEADS, DIM = 4, 16


def over_coordinates(function, batch, rows, keys, score=None):
    """The function of every coordinate, as an array [B, H, Sq, Sk]."""
    at = (torch.arange(n) for n in (batch, HEADS, rows, keys))
    dims = [(None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0,) + (None,) * 3]
    for dim in dims:
        function = torch.vmap(function, in_dims=dim if score is None else (0, *dim))
    given = () if score is None else (score,)
    return function(*given, *at).numpy()


def check(score_mod=None, mask_mod=None, *, batch=1, rows=96, keys=None, **options):
    """Options are right.attention's."""
    keys = keys or rows
    q, k, v = map(torch.from_numpy, naive.inputs(batch, HEADS, HEADS, rows, keys, DIM))
    out, lse = fa.attention(q, k, v, score_mod=score_mod, mask_mod=mask_mod, return_lse=True)
    if score_mod is not None:
        options["score"] = lambda s, *at: over_coordinates(
            score_mod, batch, rows, keys, torch.from_numpy(s)
        )
    if mask_mod is not None:
        options["mask"] = lambda *at: over_coordinates(mask_mod, batch, rows, keys)
    right.assert_right(out, right.attention(q, k, v, **options), lse)


def offsets_of(*lengths):
    return torch.cumsum(torch.tensor([0, *lengths], dtype=torch.int32), -1)


# --- attention-gym itself ------------------------------------------------------------------


@pytest.fixture(scope="session")
def gym():
    where = os.environ.get("ATTENTION_GYM")
    if where:
        sys.path.insert(0, where)
    pytest.importorskip("attn_gym.mods", reason="set ATTENTION_GYM to a checkout of attention-gym")
    import attn_gym

    return attn_gym


def tiles(batch, rows, columns, chosen, seed=0):
    """For each row of tiles the numbers of some tiles of keys, int64 [B, H, rows, chosen]."""
    order = torch.rand(
        batch, HEADS, rows, columns, generator=torch.Generator().manual_seed(seed)
    ).argsort(-1)
    return order[..., :chosen]


# What makes the mask, and the sizes that it is for.
MASKS = {
    "causal_mask": lambda m: (m.causal_mask, {}),
    "batchify_mask_mod": lambda m: (m.batchify_mask_mod(m.causal_mask, 16), {}),
    "batchify_mask_mod, noop": lambda m: (m.batchify_mask_mod(flex.noop_mask, 20), {}),
    "generate_block_diffusion_mask": lambda m: (m.generate_block_diffusion_mask(48, 8), {}),
    "generate_dilated_sliding_window": lambda m: (m.generate_dilated_sliding_window(20, 3), {}),
    "generate_doc_mask_mod": lambda m: (
        m.generate_doc_mask_mod(m.causal_mask, offsets_of(10, 30, 1, 55)),
        {},
    ),
    "generate_packed_causal_doc_mask_mod": lambda m: (
        m.generate_packed_causal_doc_mask_mod(offsets_of(10, 30, 1, 55)),
        {},
    ),
    "generate_vision_cross_attention_mask_mod": lambda m: (
        m.generate_vision_cross_attention_mask_mod(
            torch.tensor([[0, 70], [10, 70], [70, 96]], dtype=torch.int32), 9
        ),
        {"keys": 27},
    ),
    "generate_global_sliding_window": lambda m: (
        m.generate_global_sliding_window(7, torch.arange(96) % 31 == 0),
        {},
    ),
    "generate_jetspec_training_mask_mod": lambda m: (
        m.generate_jetspec_training_mask_mod(21, 8),
        {"rows": 64, "keys": 85},
    ),
    "generate_jetspec_tree_causal_mask_mod": lambda m: (
        m.generate_jetspec_tree_causal_mask_mod(
            17, m.build_tree_ancestor_matrix([-1, 0, 1, 1, 3, 3, 0, 6, 2, 2], "cpu")
        ),
        {"rows": 10, "keys": 27},
    ),
    "generate_natten": lambda m: (m.generate_natten(10, 10, 5, 3), {"rows": 100}),
    "generate_tiled_natten": lambda m: (
        m.generate_tiled_natten(12, 8, 5, 3, 4, 4),
        {"rows": 96},
    ),
    "generate_morton_natten": lambda m: (m.generate_morton_natten(8, 8, 3, 3), {"rows": 64}),
    "generate_prefix_lm_mask": lambda m: (m.generate_prefix_lm_mask(21), {}),
    "generate_shared_prefix_mask_mod": lambda m: (
        m.generate_shared_prefix_mask_mod(
            offsets_of(20, 9, 11, 8, 30, 18), torch.tensor([0, 0, 0, 0, 4, 4])
        ),
        {},
    ),
    "generate_sliding_window": lambda m: (m.generate_sliding_window(13), {}),
    "generate_sta_mask_mod_2d": lambda m: (
        m.generate_sta_mask_mod_2d((8, 12), (4, 8), (2, 4), 9),
        {"rows": 105},
    ),
    "generate_sta_mask_mod_3d": lambda m: (
        m.generate_sta_mask_mod_3d((4, 4, 6), (2, 2, 6), (2, 2, 2), 5),
        {"rows": 101},
    ),
    "generate_spatial_head_mask_mod": lambda m: (
        m.generate_spatial_head_mask_mod(6, 9, 10, 2, True, 4),
        {},
    ),
    "generate_temporal_head_mask_mod": lambda m: (
        m.generate_temporal_head_mask_mod(6, 9, 10, 2),
        {},
    ),
    "generate_vsa_mask_mod": lambda m: (
        m.generate_vsa_mask_mod(tiles(2, 6, 6, 3), 16),
        {"batch": 2},
    ),
    "generate_vsa_mask_mod, sizes": lambda m: (
        m.generate_vsa_mask_mod(tiles(1, 6, 6, 3), 16, torch.tensor([16, 16, 9, 16, 16, 4])),
        {},
    ),
    "generate_vsa_block_map_mask_mod": lambda m: (
        m.vsa.generate_vsa_block_map_mask_mod(
            torch.arange(HEADS * 36).reshape(1, HEADS, 6, 6) % 5 < 2, 16
        ),
        {},
    ),
    "generate_vsa_padding_mask_mod": lambda m: (
        m.vsa.generate_vsa_padding_mask_mod(torch.tensor([16, 16, 9, 16, 16, 4]), 16),
        {},
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(gym, name):
    mask, sizes = MASKS[name](gym.masks)
    check(mask_mod=mask, **sizes)


def graphs(batch, nodes):
    """Rings with a few chords, bool [B, N, N]."""
    at = torch.arange(nodes)
    result = torch.zeros(batch, nodes, nodes, dtype=torch.bool)
    for n in range(batch):
        for step in (1, 7 + n):
            result[n, at, (at + step) % nodes] = True
            result[n, (at + step) % nodes, at] = True
    return result


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def spatial_bias(mods):
    distances = mods.shortest_path_distances(graphs(2, 24), 4)
    return mods.generate_graphormer_spatial_bias(normal(HEADS, 6), distances)


def edge_bias(mods):
    adjacency = graphs(2, 24)
    kinds = (torch.arange(2 * 24 * 24) % 5).reshape(2, 24, 24)
    paths = mods.shortest_path_edge_types(adjacency, kinds, 3)
    return mods.generate_graphormer_edge_bias(normal(HEADS, 3, 5), *paths)


MODS = {
    "generate_activation_score_mod": lambda m: (m.generate_activation_score_mod(), {}),
    "generate_alibi_bias": lambda m: (m.generate_alibi_bias(HEADS), {}),
    "generate_graphormer_edge_bias": lambda m: (edge_bias(m), {"rows": 24, "batch": 2}),
    "generate_graphormer_spatial_bias": lambda m: (spatial_bias(m), {"rows": 24, "batch": 2}),
    "generate_mla_rope_score_mod": lambda m: (
        m.generate_mla_rope_score_mod(
            normal(2, HEADS, 40, 16), normal(2, 1, 40, 16), HEADS, scale=0.25
        ),
        {"rows": 40, "batch": 2},
    ),
    "generate_sandwich_bias": lambda m: (m.generate_sandwich_bias(HEADS, 96, 16), {}),
    "generate_tanh_softcap": lambda m: (m.generate_tanh_softcap(2), {}),
    "generate_tanh_softcap, approx": lambda m: (m.generate_tanh_softcap(2, approx=True), {}),
}


@pytest.mark.parametrize("name", MODS)
def test_score_functions(gym, name):
    score, sizes = MODS[name](gym.mods)
    check(score_mod=score, **sizes)


def test_all_are_tested(gym):
    """Each function of the package's modules that makes or is a mask or score function."""
    given = {
        name
        for module in (gym.masks, gym.mods)
        for name in dir(module)
        if name.startswith("generate_") or name in ("causal_mask", "batchify_mask_mod")
    }
    tested = {name.partition(",")[0] for name in (*MASKS, *MODS)}
    assert given <= tested, given - tested


@pytest.mark.parametrize("activation", ["gelu", "relu", "sigmoid"])
def test_undone_softmax(gym, activation):
    """Attention without softmax, by the log-sum-exp."""
    q, k, v = map(torch.from_numpy, naive.inputs(1, HEADS, HEADS, 96, 96, DIM))
    function = getattr(torch.nn.functional, activation)
    score = gym.mods.generate_activation_score_mod(function)
    out, lse = fa.attention(q, k, v, score_mod=score, return_lse=True)
    result = gym.mods.undo_softmax(out, lse, v.sum(-2, keepdim=True))
    exact = function(q.double() @ k.double().mT / math.sqrt(DIM)) @ v.double()
    # By the rule an output is wrong by 1e-5 of the largest, and exp(lse) by 1e-4 of itself.
    limit = (out * lse.exp().unsqueeze(-1)).abs().max() * (1e-5 + 1e-4)
    assert (result - exact).abs().max() < limit


def test_block_masks(gym):
    q, k, v = map(torch.from_numpy, naive.inputs(1, HEADS, HEADS, 256, 256, DIM))
    fast = gym.masks.causal.create_causal_block_mask_fast(1, 1, 256, 256, torch.device("cpu"), 128)
    out = fa.attention(q, k, v, mask_mod=fast)
    right.assert_right(out, right.attention(q, k, v, mask=lambda b, h, i, j: j <= i))
    chosen, sizes = tiles(1, 16, 16, 5), torch.tensor([16] * 15 + [7])
    for given in (None, sizes):
        mask = gym.masks.create_vsa_block_mask(chosen, 16, 16, given)
        out = fa.attention(q, k, v, mask_mod=mask)
        same = gym.masks.generate_vsa_mask_mod(chosen, 16, given)
        wanted = right.attention(
            *(q, k, v), mask=lambda *at, same=same: over_coordinates(same, 1, 256, 256)
        )
        right.assert_right(out, wanted)


# --- What they are made of ------------------------------------------------------------------


def test_masks_of_torch():
    """Combinations of PyTorch's own, and names that are given to functions afterwards."""
    both = flex.and_masks(lambda b, h, i, j: i - j <= 9, fa.masks.causal)
    check(mask_mod=flex.or_masks(both, lambda b, h, i, j: j < 4))
    both.__name__ = "window_9"
    check(mask_mod=both)
    check(mask_mod=flex.noop_mask)

    def within(mask, size):
        def grouped(b, h, i, j):
            return (i // size == j // size) & mask(b, h, i % size, j % size)

        return grouped

    check(mask_mod=within(flex.noop_mask, 20))
    check(mask_mod=within(fa.masks.causal, 20))


def test_an_index_of_an_index():
    starts = offsets_of(10, 30, 1, 55)
    document = torch.repeat_interleave(torch.arange(4, dtype=torch.int32), starts.diff())
    parent = torch.tensor([0, 0, 2, 2])

    def own(b, h, i, j):
        inside = i - starts[document[i]] >= j - starts[document[j]]
        return (document[i] == document[j]) & inside

    def with_parent(b, h, i, j):
        prefix = parent[document[i]]
        before = (document[i] != prefix) & (j >= starts[prefix]) & (j < starts[prefix + 1])
        return ((j >= starts[document[i]]) & (j <= i)) | before

    check(mask_mod=own)
    check(mask_mod=with_parent)


def test_rows_of_arrays():
    intervals = torch.tensor([[0, 70], [10, 70], [70, 96]], dtype=torch.int32)
    image = torch.repeat_interleave(torch.arange(3), 9)

    def between(b, h, i, j):
        interval = intervals[image[j]]
        return (i >= interval[0]) & (i < interval[1])

    check(mask_mod=between, keys=27)
    chosen = tiles(2, 6, 6, 3)

    def among(b, h, i, j):
        return (chosen[b, h, i // 16] == (j // 16).unsqueeze(-1)).any(dim=-1)

    check(mask_mod=among, batch=2)
    check(mask_mod=lambda b, h, i, j: torch.any(chosen[b, h, i // 16] == j // 16), batch=2)
    check(mask_mod=lambda b, h, i, j: (chosen[b, h, i // 16] != j // 16).all(-1), batch=2)


def test_dots_of_rows():
    x, y = normal(2, HEADS, 40, 16), normal(2, 1, 40, 16)

    def score(s, b, h, i, j):
        return s + 0.25 * torch.dot(x[b, h, i], y[b, h // HEADS, j])

    check(score, batch=2, rows=40)
    check(lambda s, b, h, i, j: s + x[b, h, i] @ y[b, 0, j] / 4, batch=2, rows=40)
    check(
        lambda s, b, h, i, j: s + (x[b, h, i] * y[b, 0, j]).sum(-1) - x[b, h, i].amax(),
        batch=2,
        rows=40,
    )


def test_bits():
    def spread(x):
        for shift, mask in ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
            x = (x | (x << shift)) & mask
        return x

    def gather(x):
        x = x & 0x55555555
        for shift, mask in ((1, 0x33333333), (2, 0x0F0F0F0F), (4, 0x00FF00FF), (8, 0x0000FFFF)):
            x = (x | (x >> shift)) & mask
        return x

    def near(b, h, i, j):
        rows = (gather(i) - gather(j)).abs() <= 2
        return rows & ((gather(i >> 1) - gather(j >> 1)).abs() <= 1)

    check(mask_mod=near, rows=64)
    check(mask_mod=lambda b, h, i, j: (spread(i) | (spread(j) << 1)) % 3 == 0, rows=64)


def test_lists_of_tables_and_where():
    tables = [normal(HEADS, 5), normal(HEADS, 5) * 2, normal(HEADS, 5) - 1]
    kinds = (torch.arange(2 * 24 * 24 * 3) % 5).reshape(2, 24, 24, 3).int()
    lengths = (torch.arange(2 * 24 * 24) % 4).reshape(2, 24, 24).int()

    def score(s, b, h, i, j):
        length, total = lengths[b, i, j], 0.0
        for n, table in enumerate(tables):
            total = total + torch.where(length > n, table[h, kinds[b, i, j, n]], 0.0)
        return s + total / torch.clamp(length, min=1)

    check(score, batch=2, rows=24)


def operator(name, implementation, keys="CompositeExplicitAutograd", schema="(Tensor x) -> Tensor"):
    """An operator fa_gym::name of PyTorch, made once."""
    if not hasattr(torch.ops.fa_gym, name):
        torch.library.define(f"fa_gym::{name}", schema)
        torch.library.impl(f"fa_gym::{name}", keys, implementation)
    return getattr(torch.ops.fa_gym, name)


class Capped(torch.autograd.Function):
    """A function with a backward of its own, around an operator."""

    @staticmethod
    def forward(x):
        return operator("tanh", lambda x: torch.tanh(x))(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, gradient):
        (result,) = ctx.saved_tensors
        return gradient * (1 - result * result)

    @staticmethod
    def vmap(info, in_dims, x):
        return torch.tanh(x), 0


def test_operators_of_others():
    """What their implementations do with PyTorch's operations is what is computed."""
    capped = Capped.apply
    check(lambda s, b, h, i, j: 2 * capped(s / 2))
    tanh = operator("tanh", lambda x: torch.tanh(x))
    variants = [
        fa.trace(score_mod=function)
        for function in (
            lambda s, b, h, i, j: torch.tanh(s),
            lambda s, b, h, i, j: tanh(s),
            lambda s, b, h, i, j: tanh.default(s),
        )
    ]
    assert len(set(variants)) == 1
    assert "gradient {" in str(fa.trace(score_mod=lambda s, b, h, i, j: capped(s)))

    def bent(x):
        y = torch.where(x > 0, x.float() * 0.5, torch.zeros_like(x) - 0.1)
        y = torch.nn.functional.gelu(y, approximate="tanh") + x.clamp(min=-1) ** 2 / (1 + x.abs())
        return y + torch.full_like(x, 0.25) + tanh(x).detach()

    bent_op = operator("bent", bent, "CPU")
    qkv = naive.inputs(1, HEADS, HEADS, 32, 32, DIM)
    out = fa.attention(*map(torch.from_numpy, qkv), score_mod=lambda s, b, h, i, j: bent_op(s))
    wanted = right.attention(
        *qkv,
        score=lambda s, *at: bent(torch.from_numpy(s)).numpy(),
        score_error=right.approximated(4, "cpu"),
    )
    right.assert_right(out, wanted)
    implicit = operator("implicit", torch.nn.functional.softplus, "CompositeImplicitAutograd")
    assert "log1p" in str(fa.trace(score_mod=lambda s, b, h, i, j: implicit(s)))


def test_operators_that_can_not_be_traced():
    def changed(x):
        y = x.clone()
        y.mul_(2)
        return y

    cases = [
        ("by_numpy", lambda x: torch.from_numpy(np.tanh(x.numpy())), "by_numpy can't be traced"),
        ("by_value", lambda x: x * 2 if x > 0 else x.clone(), "_local_scalar_dense.*write it out"),
        ("changed", changed, r"in place \(mul_\); write it without"),
        ("constant", lambda x: torch.zeros(()), "constant can't be traced: its implementation is"),
        ("unknown", lambda x: torch.special.bessel_j0(x), "uses special_bessel_j0, which can't"),
    ]
    for name, implementation, message in cases:
        own = operator(name, implementation)
        with pytest.raises(fa.TraceError, match=message):
            fa.trace(score_mod=lambda s, b, h, i, j, own=own: own(s))
    elsewhere = operator("elsewhere", torch.tanh, "CUDA")
    with pytest.raises(fa.TraceError, match="elsewhere has no implementation for tensors of the C"):
        fa.trace(score_mod=lambda s, b, h, i, j: elsewhere(s))
    mutates = operator("mutates", lambda x: x, "CPU", "(Tensor(a!) x) -> Tensor(a!)")
    with pytest.raises(fa.TraceError, match="mutates changes its operands; write it out"):
        fa.trace(score_mod=lambda s, b, h, i, j: mutates(s))
