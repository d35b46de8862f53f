# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa.attention on the CPU target against float64, NumPy and PyTorch arrays."""

from __future__ import annotations

import math
import re

import fa
import numpy as np
import pytest
import right
from fa._run.config import AttentionConfig
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import inputs
from right import assert_right

CAUSAL = {"mask": lambda b, h, i, j: j <= i}


def reference(q, k, v, causal=False, scale=None):
    """What is expected of arrays [B, H, S, D]."""
    return right.attention(q, k, v, scale=scale, **(CAUSAL if causal else {}))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 17, 333, 1000])
def test_lengths(length, causal):
    q, k, v = inputs(1, 2, 1, length, length, 64, 64)
    out, lse = fa.attention(q, k, v, is_causal=causal, return_lse=True)
    assert_right(out, reference(q, k, v, causal), lse)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 3),
    st.sampled_from([(1, 1), (4, 1), (8, 2)]),
    st.integers(1, 130),
    st.integers(0, 130),
    st.sampled_from([(16, 16), (32, 80), (96, 24)]),
    st.booleans(),
    st.integers(0, 2**16),
)
def test_shapes(batch, heads, sq, sk, dims, causal, seed):
    q, k, v = inputs(batch, *heads, sq, sk, *dims, seed)
    out, lse = fa.attention(q, k, v, is_causal=causal, return_lse=True)
    assert_right(out, reference(q, k, v, causal), lse)


@pytest.mark.parametrize("causal", [False, True])
def test_scale_of_one(causal):
    # Nothing scales the scores, and the last block of keys is padded.
    q, k, v = inputs(1, 2, 1, 100, 100, 64, 64)
    out = fa.attention(q, k, v, is_causal=causal, scale=1.0)
    assert_right(out, reference(q, k, v, causal, scale=1.0))


def test_rows_with_nothing_to_attend():
    q, k, v = inputs(1, 2, 2, 5, 0, 16, 16)
    out, lse = fa.attention(q, k, v, return_lse=True)
    assert (out == 0).all() and (lse == -np.inf).all()


def test_strided_numpy():
    q, k, v = (x.transpose(0, 2, 1, 3) for x in inputs(2, 70, 70, 4, 4, 32, 32))
    assert_right(fa.attention(q, k, v), reference(q, k, v))


def test_float16_numpy():
    q, k, v = (x.astype(np.float16) for x in inputs(1, 2, 2, 100, 100, 64, 64))
    out = fa.attention(q, k, v)
    assert out.dtype == np.float16
    assert_right(out, reference(q, k, v))


@pytest.mark.parametrize("value_dim", [7, 15])
def test_bfloat16_beside_whole_vectors(value_dim):
    torch = pytest.importorskip("torch")
    arrays = [torch.from_numpy(x).bfloat16() for x in inputs(1, 2, 2, 19, 21, 8, value_dim)]
    out = fa.attention(*arrays)
    assert_right(out, reference(*arrays))


def test_torch_cpu():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(x) for x in inputs(1, 4, 4, 77, 77, 64, 64))
    out = fa.attention(q, k, v, is_causal=True)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), is_causal=True
    )
    assert isinstance(out, torch.Tensor)
    assert_right(out, right.Expected(expected.numpy()))
    rounded = [x.bfloat16() for x in (q, k, v)]
    out = fa.attention(*rounded, is_causal=True)
    assert out.dtype == torch.bfloat16
    assert_right(out, reference(*rounded, causal=True))


def test_errors():
    q, k, v = inputs(1, 4, 2, 8, 8, 16, 16)
    with pytest.raises(ValueError, match="same length, got 8 and 7"):
        fa.attention(q, k, v[:, :, :7])
    with pytest.raises(ValueError, match="divide the number of query heads"):
        fa.attention(q[:, :3], k, v)
    with pytest.raises(ValueError, match="finite scale, got inf"):
        fa.attention(q, k, v, scale=math.inf)
    for scale, got in (("x", "str"), ([1], "list"), (np.ones(2), r"ndarray of shape \[2\]")):
        with pytest.raises(TypeError, match=f"scale to be a number, got {got}"):
            fa.attention(q, k, v, scale=scale)
    with pytest.raises(ValueError, match="rank 4"):
        fa.attention(q[0], k, v)
    with pytest.raises(ValueError, match="head dim in .1, 256., got 300"):
        fa.attention(*inputs(1, 1, 1, 4, 4, 300, 16))
    with pytest.raises(TypeError, match="float32, float16, bfloat16 or float64"):
        fa.attention(q.astype(np.complex64), k, v)
    with pytest.raises(ValueError, match="key of element type f64 like query, got f32"):
        fa.attention(q.astype(np.float64), k, v)
    with pytest.raises(TypeError, match="got list"):
        fa.attention([1.0], k, v)


@pytest.mark.parametrize("scale", [1e39, -1e39, np.nan])
def test_scale_beyond_float32(scale):
    q, k, v = inputs(1, 2, 1, 4, 5, 8, 8)
    with pytest.raises(ValueError, match="finite scale"):
        fa.attention(q, k, v, scale=scale)
    with pytest.raises(ValueError, match="finite scale, got .*float32's 3.40e"):
        AttentionConfig("f32", 2, 1, 8, 8, scale=scale)
    fa.attention(q, k, v, scale=3e38)


@pytest.mark.parametrize(
    ("which", "dim", "message"),
    [
        (1, 0, "query and key to have the same batch size, got 2 and 3; expand a batch of one"),
        (2, 0, "key and value to have the same batch size, got 2 and 3; expand a batch of one"),
        (2, 1, "key and value to have the same number of heads, got 4 and 3; repeat or leave"),
        (2, 2, "key and value to have the same length, got 6 and 3; give each key one value"),
        (1, 3, "query and key to have the same head dim, got 8 and 3; project both to one"),
    ],
)
def test_sizes_that_differ(which, dim, message):
    arrays = list(inputs(2, 4, 4, 5, 6, 8, 8))
    shape = list(arrays[which].shape)
    shape[dim] = 3
    arrays[which] = np.zeros(shape, np.float32)
    with pytest.raises(ValueError, match=message):
        fa.attention(*arrays)


@pytest.mark.parametrize("key_heads", [0, 2])
def test_no_heads(key_heads):
    q, k, v = inputs(1, 0, key_heads, 4, 5, 8, 6)
    out, lse = fa.attention(q, k, v, return_lse=True)
    assert out.shape == (1, 0, 4, 6) and lse.shape == (1, 0, 4)
    with pytest.raises(ValueError, match="number of key heads"):
        fa.attention(inputs(1, 2, 1, 4, 5, 8, 8)[0], k[:, :0], v[:, :0])


@pytest.mark.parametrize("shape", [(0,), (4, 0), (0, 5)])
def test_captured_arrays_without_elements(shape):
    q, k, v = inputs(1, 2, 1, 4, 5, 8, 8)

    def item(array, i, j):
        return array[(i, j)[-len(shape) :]]

    bias, seen = np.empty(shape, np.float32), np.empty(shape, bool)
    functions = [
        {"score_mod": lambda s, b, h, i, j: s + item(bias, i, j)},
        {"mask_mod": lambda b, h, i, j: item(seen, i, j)},
    ]
    for options in functions:
        with pytest.raises(ValueError, match=re.escape(f"got shape {list(shape)}")):
            fa.attention(q, k, v, **options)
        # Where there are no scores nothing is read.
        out = fa.attention(q, k[:, :, :0], v[:, :, :0], **options)
        assert out.shape == q.shape and not out.any()
        assert fa.attention(q[:, :, :0], k, v, **options).shape == (1, 2, 0, 8)


def test_compile_gives_stages_io_and_ptx():
    config = AttentionConfig("bf16", 8, 2, 64, 64, is_causal=True)
    kernel = fa.compile(config, "sm_80")
    assert list(kernel.stages)[0] == "fa-decompose"
    assert "read" in kernel.io["fa-fuse"]
    assert ".target sm_80" in kernel.asm["ptx"]
    assert kernel.asm["ptx"].startswith("//!fa.program")


def test_compile_errors():
    with pytest.raises(fa.CompileError, match="line 1"):
        fa.compile("func.func @f( {")
    with pytest.raises(ValueError, match="unknown algorithm 'fa9'"):
        fa.compile(AttentionConfig("f32", 1, 1, 16, 16), algorithm="fa9")
    with pytest.raises(ValueError, match="sm_42"):
        fa.compile(AttentionConfig("f32", 1, 1, 16, 16), "sm_42")


def test_one_kernel_serves_all_lengths():
    from fa._run.call import _kernel

    _kernel.cache_clear()
    for length in (3, 50, 129):
        fa.attention(*inputs(2, 2, 2, length, length, 32, 32))
    assert _kernel.cache_info().misses == 1


SCHEDULE = {"rows": 128, "keys": 64, "spare": 60, "ping_pong": False, "stages": 2}


def test_schedule_reaches_the_pass():
    config = AttentionConfig("bf16", 8, 2, 128, 128)
    kernel = fa.compile(config, "sm_90a", schedule=SCHEDULE)
    assert kernel.schedule.options == "spare=60 ping-pong=0 stages=2"
    deeper = fa.compile(config, "sm_90a", schedule=SCHEDULE | {"stages": 3})
    smem = [int(re.search(r" smem=(\d+)", k.asm["ptx"])[1]) for k in (kernel, deeper)]
    assert smem[1] - smem[0] >= 2 * 64 * 2 * 128  # K and V of one stage
    assert "rows=128" in deeper.asm["ptx"] and "rows=64" in deeper.asm["ptx"]


def test_schedule_errors():
    config = AttentionConfig("bf16", 8, 2, 128, 128)
    with pytest.raises(TypeError, match="schedule to be a dictionary, got str"):
        fa.compile(config, "cpu", schedule="rows=64")
    with pytest.raises(TypeError, match="rows of a schedule to be an integer, got 'a'"):
        fa.compile(config, "cpu", schedule={"rows": "a"})
    with pytest.raises(ValueError, match="no such option colour"):
        fa.compile(config, "sm_90a", schedule={"colour": 3})
    with pytest.raises(ValueError, match="got 'stages=1},fa-hopper-layouts'"):
        fa.compile(config, "sm_90a", schedule={"stages": "1},fa-hopper-layouts"})
    with pytest.raises(ValueError, match="for an NVIDIA target only, got 'stages=3' for cpu"):
        fa.compile(config, "cpu", schedule={"stages": 3})
    with pytest.raises(ValueError, match="expected options of fa-schedule-ampere, got 'spare=60'"):
        fa.compile(config, "sm_80", schedule={"spare": 60})
    text = fa.compile(config, "sm_80", rows=128, keys=32, schedule={"warps": 8}).asm["ptx"]
    assert "block=256" in text
    with pytest.raises(fa.CompileError, match="does not take this program.*'stages=3'"):
        fa.compile(config, "sm_90a", schedule={"rows": 32, "stages": 3})


@pytest.mark.parametrize(
    ("dtype", "dims", "wgmma"),
    [
        ("bf16", (64, 64), True),
        ("f16", (40, 72), True),
        ("bf16", (44, 44), False),
        ("bf16", (64, 12), False),
        ("f32", (64, 64), False),
    ],
)
def test_hopper_takes_what_it_can(dtype, dims, wgmma):
    """What the Hopper schedule does not take goes through the other one."""
    for lse in (False, True):
        for speculate in ("auto", "on", "off"):
            config = AttentionConfig(dtype, 8, 2, *dims, is_causal=True, return_lse=lse)
            kernel = fa.compile(config, "sm_90a", speculate=speculate)
            assert ("wgmma.mma_async" in kernel.asm["ptx"]) == wgmma
            assert ".target sm_90a" in kernel.asm["ptx"]


def test_strides_that_tma_cannot_express(monkeypatch):
    """A refusal by the kernel with TMA is not the last word."""
    from fa._run import call as _attention

    asked, notes = [], []

    class Kernel:
        list_reads = None

        def __init__(self, target):
            self.target = target

        def run(self, library, views, prepared, captured):
            assert len(views) == 4 and prepared is None
            asked.append(self.target)
            if self.target == refusing or refusing == "all":
                raise ValueError(f"{self.target} refuses")

        def note(self, text):
            notes.append(text)

    monkeypatch.setattr(_attention, "target_of", lambda device: "sm_90a")
    monkeypatch.setattr(_attention, "_kernel", lambda config, target, schedule: Kernel(target))
    arrays = inputs(1, 2, 2, 8, 8, 16, 16)
    refusing = "sm_90a"
    fa.attention(*arrays)
    assert asked == ["sm_90a", "sm_90"]
    assert notes == ["compiled beside the kernel of sm_90a, which refused: sm_90a refuses"]
    with pytest.raises(ValueError, match="sm_90a refuses"):
        fa.attention(*arrays, schedule={"stages": 2})
    refusing = "all"
    with pytest.raises(ValueError, match="sm_90 refuses"):
        fa.attention(*arrays)
