# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The GPU target against float64, through the Python package. Needs a GPU."""

from __future__ import annotations

import math

import naive
import pytest
import right

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

import fa  # noqa: E402
from fa._run.config import AttentionConfig  # noqa: E402

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


def assert_right(out, lse, q, k, v, causal, scale=None):
    """By the rule of right.py."""
    mask = {"mask": lambda b, h, i, j: j <= i} if causal else {}
    expected = right.attention(q, k, v, scale=scale, xp=torch, **mask)
    right.assert_right(out, expected, lse)


def inputs(b, hq, hk, sq, sk, d, dv, dtype, seed=0):
    g = torch.Generator("cuda").manual_seed(seed)

    shapes = ((b, hq, sq, d), (b, hk, sk, d), (b, hk, sk, dv))
    made = (torch.randn(*shape, generator=g, device="cuda") for shape in shapes)
    return tuple(x.to(DTYPES[dtype]) for x in naive.telling(*made))


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 17, 333, 1000, 4097])
def test_lengths(length, causal, dtype):
    q, k, v = inputs(2, 4, 2, length, length, 64, 64, dtype)
    out, lse = fa.attention(q, k, v, is_causal=causal, return_lse=True)
    assert_right(out, lse, q, k, v, causal)


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("d", [16, 32, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_head_dims(d, causal, dtype):
    q, k, v = inputs(1, 4, 4, 333, 333, d, d, dtype)
    out, lse = fa.attention(q, k, v, is_causal=causal, return_lse=True)
    assert_right(out, lse, q, k, v, causal)


@pytest.mark.parametrize("d,dv", [(64, 128), (128, 64), (96, 80), (40, 24), (72, 8)])
def test_value_dim_differs(d, dv):
    q, k, v = inputs(1, 2, 2, 200, 300, d, dv, "bf16")
    out = fa.attention(q, k, v)
    assert_right(out, None, q, k, v, False)


@pytest.mark.parametrize("hq,hk", [(8, 8), (8, 2), (8, 1), (32, 4)])
def test_grouped_heads(hq, hk):
    q, k, v = inputs(2, hq, hk, 129, 257, 64, 64, "bf16")
    out, lse = fa.attention(q, k, v, is_causal=True, return_lse=True)
    assert_right(out, lse, q, k, v, True)


@pytest.mark.parametrize("sq,sk", [(1, 1000), (1000, 1), (17, 4097), (333, 64)])
def test_lengths_differ(sq, sk):
    for causal in (False, True):
        q, k, v = inputs(2, 2, 2, sq, sk, 64, 64, "f16")
        out, lse = fa.attention(q, k, v, is_causal=causal, return_lse=True)
        assert_right(out, lse, q, k, v, causal)


def test_strided_inputs():
    # [B, S, H, D] in memory, seen as [B, H, S, D].
    q, k, v = (t.transpose(1, 2) for t in inputs(2, 300, 300, 4, 4, 64, 64, "bf16"))
    out = fa.attention(q, k, v, is_causal=True)
    assert_right(out, None, q, k, v, True)


def test_broadcast_heads():
    q, k, v = inputs(2, 4, 4, 200, 300, 64, 64, "bf16")
    k, v = (t[:, :1].expand(-1, 4, -1, -1) for t in (k, v))
    assert_right(fa.attention(q, k, v), None, q, k, v, False)


def test_target_is_that_of_the_device():
    from fa import _native

    hopper = torch.cuda.get_device_capability() == (9, 0)
    assert _native.target_of_device(0) == ("sm_90a" if hopper else "sm_80")


def test_empty_batch_and_no_keys():
    q, k, v = inputs(0, 2, 2, 64, 64, 64, 64, "bf16")
    assert fa.attention(q, k, v).shape == (0, 2, 64, 64)
    q, k, v = inputs(1, 2, 2, 64, 0, 64, 64, "bf16")
    out, lse = fa.attention(q, k, v, return_lse=True)
    assert (out == 0).all() and (lse == -math.inf).all()


def test_scale_and_large_scores():
    q, k, v = inputs(1, 2, 2, 256, 256, 64, 64, "bf16")
    for scale in (0.0, 0.5, -0.125, 4.0):
        out = fa.attention(q, k, v, scale=scale)
        assert_right(out, None, q, k, v, False, scale)


def test_nan_stays_in_its_row():
    q, k, v = inputs(1, 1, 1, 128, 128, 64, 64, "bf16")
    q[0, 0, 5, 3] = math.nan
    out = fa.attention(q, k, v)
    assert out[0, 0, 5].isnan().all()
    rows = torch.arange(128, device="cuda") != 5
    assert not out[0, 0, rows].isnan().any()


def test_more_than_2_31_elements():
    b, h, s, d = 1, 4, 1 << 23, 80  # 2.7e9 elements
    q = torch.randn(b, h, s, d, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(b, h, 64, d, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    naive.telling(q, k, v)
    out = fa.attention(q, k, v)
    for rows in (slice(0, 300), slice(s - 300, s)):
        part = q[:, :, rows]
        assert_right(out[:, :, rows], None, part, k, v, False)


@pytest.mark.parametrize("algorithm", ["standard", "fa1", "fa2"])
@pytest.mark.parametrize("sq,sk", [(64, 64), (333, 200), (1, 17)])
def test_algorithms(algorithm, sq, sk):
    for causal in (False, True):
        config = AttentionConfig("bf16", 4, 2, 64, 64, causal, None, True)
        kernel = fa.compile(config, "sm_80", algorithm=algorithm)
        q, k, v = inputs(2, 4, 2, sq, sk, 64, 64, "bf16")
        out = torch.full_like(q, math.nan)
        lse = torch.full(q.shape[:3], math.nan, device="cuda")
        kernel(q, k, v, out, lse)
        assert_right(out, lse, q, k, v, causal)


def test_runs_on_the_current_stream_and_repeats_bitwise():
    q, k, v = inputs(2, 4, 4, 1000, 1000, 128, 128, "bf16")
    expected = fa.attention(q, k, v, is_causal=True)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(20):
            assert torch.equal(fa.attention(q, k, v, is_causal=True), expected)


def test_graph_capture():
    q, k, v = inputs(2, 4, 4, 512, 512, 64, 64, "bf16")
    expected = fa.attention(q, k, v)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = fa.attention(q, k, v)
    out.zero_()
    graph.replay()
    assert torch.equal(out, expected)


def test_cupy_arrays():
    cupy = pytest.importorskip("cupy")
    q, k, v = inputs(1, 2, 2, 200, 200, 64, 64, "f16")
    ours = fa.attention(*(cupy.from_dlpack(t) for t in (q, k, v)))
    assert isinstance(ours, cupy.ndarray)
    assert_right(torch.from_dlpack(ours), None, q, k, v, False)


def test_errors_name_value_and_remedy():
    q, k, v = inputs(1, 2, 2, 64, 64, 64, 64, "bf16")
    with pytest.raises(ValueError, match="same length, got 64 and 63"):
        fa.attention(q, k, v[:, :, :63])
    with pytest.raises(ValueError, match="same library and device"):
        fa.attention(q, k.cpu(), v)
    with pytest.raises(ValueError, match="finite scale"):
        fa.attention(q, k, v, scale=math.inf)
