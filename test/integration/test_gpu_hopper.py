# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Hopper schedule on hostile data, again and again, from many threads."""

from __future__ import annotations

import math
import threading

import pytest
import right

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("no Hopper GPU", allow_module_level=True)

import fa  # noqa: E402

KINDS = "randn q3 q10 sink grow shrink outlier tiny huge nan".split()


def hostile(kind, dim, dtype, length=1024):
    torch.manual_seed(len(kind) + dim)
    q, k, v = (torch.randn(1, 2, length, dim, device="cuda", dtype=dtype) for _ in range(3))
    ramp = torch.linspace(0.1, 8, length, device="cuda", dtype=dtype)[:, None]
    wide = dtype == torch.bfloat16
    if kind == "q3":
        q = q * 3
    elif kind == "q10":
        q = q * 10
    elif kind == "sink":
        k[:, :, 3] = q.mean(2) * 40
    elif kind == "grow":
        k = k * ramp
    elif kind == "shrink":
        k = k * ramp.flip(0)
    elif kind == "outlier":
        q[..., 5] *= 20
        k[..., 5] *= 5
    elif kind == "tiny":
        v = v * 2.0 ** (-40 if wide else -10)
    elif kind == "huge":
        v = v * 2.0 ** (100 if wide else 8)
    elif kind == "nan":
        q[0, 0, 17, 3] = math.nan
    return q, k, v


def causal(b, h, i, j):
    return j <= i


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [40, 64, 96, 128, 192, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_hostile_data(kind, dim, dtype):
    q, k, v = hostile(kind, dim, dtype)
    expected = right.attention(q, k, v, mask=causal, xp=torch)
    want = torch.from_numpy(expected.out).cuda()
    out, lse = fa.attention(q, k, v, is_causal=True, return_lse=True)
    classic = fa.attention(q, k, v, is_causal=True, schedule={"speculate": "off"})
    number = ~want.isnan()
    scale = v.double().abs().max().item()
    error, limit = ((x.double() - want)[number].abs().max().item() / scale for x in (out, classic))
    # The contract of fa-speculate-max: 1.5 times the classic form's error.
    assert error <= 1.5 * limit + 1e-6
    # And the rule.
    right.assert_right(out, expected, lse)
    if kind == "nan":
        assert out[0, 0, 17].isnan().all()
        assert not out[0, 0, 16].isnan().any() and not out[0, 1].isnan().any()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_same_bits_every_time(dim, causal):
    q, k, v = (torch.randn(2, 4, 1000, dim, device="cuda").bfloat16() for _ in range(3))
    first = fa.attention(q, k, v, is_causal=causal)
    for _ in range(100):
        assert torch.equal(first, fa.attention(q, k, v, is_causal=causal))


def test_ten_thousand_launches_of_four_threads_on_two_streams():
    q, k, v = (torch.randn(1, 4, 512, 64, device="cuda").bfloat16() for _ in range(3))
    want = fa.attention(q, k, v, is_causal=True)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    wrong = [0] * 4

    def launch(thread):
        with torch.cuda.stream(streams[thread % 2]):
            for _ in range(25):
                outs = [fa.attention(q, k, v, is_causal=True) for _ in range(100)]
                torch.cuda.current_stream().synchronize()
                wrong[thread] += sum(not torch.equal(out, want) for out in outs)

    threads = [threading.Thread(target=launch, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0] * 4


def test_a_captured_graph_replays():
    q, k, v = (torch.randn(1, 4, 700, 128, device="cuda").bfloat16() for _ in range(3))
    want = fa.attention(q, k, v, is_causal=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = fa.attention(q, k, v, is_causal=True)
    for _ in range(20):
        out.zero_()
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, want)


def test_graphs_on_two_streams():
    """Captured launches and calls do not take each other's tiles."""
    q, k, v = (torch.randn(2, 8, 1100, 64, device="cuda").bfloat16() for _ in range(3))
    kinds = ({}, {"is_causal": True}, {"mask_mod": fa.masks.sliding_window(90)})
    wanted = [fa.attention(q, k, v, **kind) for kind in kinds]
    torch.cuda.synchronize()
    graphs = []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            # Twice the same program in one graph.
            outs = [fa.attention(q, k, v, **kind) for kind in (*kinds, *kinds)]
        graphs.append((graph, outs, torch.cuda.Stream()))
    for _ in range(50):
        for graph, outs, stream in graphs:
            with torch.cuda.stream(stream):
                for out in outs:
                    out.zero_()
                graph.replay()
        direct = [fa.attention(q, k, v, **kind) for kind in kinds]
        torch.cuda.synchronize()
        for found in (direct, graphs[0][1], graphs[1][1]):
            for number, out in enumerate(found):
                assert torch.equal(out, wanted[number % len(kinds)])


VARIANTS = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"mask_mod": fa.masks.sliding_window(100)},
    "softcap": {"score_mod": fa.scores.softcap(20.0), "is_causal": True},
    "log-sum-exp": {"return_lse": True},
    "not speculated": {"is_causal": True, "speculate": "off"},
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("length", [64, 333, 1000, 4097])
def test_forward(length, dim, name):
    """The Hopper schedule computes what the Ampere schedule does, to the sums' order."""
    options = dict(VARIANTS[name])
    rest = {"speculate": options.pop("speculate")} if "speculate" in options else {}
    q, k, v = (torch.randn(2, h, length, dim, device="cuda").bfloat16() for h in (4, 2, 2))
    functions = {x: y for x, y in options.items() if x != "return_lse"}
    found = fa.attention(q, k, v, schedule=rest, **options)
    ampere = fa.attention(q, k, v, schedule=rest | {"by": "ampere"}, **options)
    exact = fa.attention(q.float(), k.float(), v.float(), **functions)
    if "return_lse" in options:
        torch.testing.assert_close(found[1], ampere[1], rtol=0, atol=1e-4)
        found, ampere = found[0], ampere[0]
    error, own = ((x.float() - exact).abs().max().item() for x in (ampere, found))
    assert own <= right.output_limit("bfloat16", error, exact.abs().max().item())


GRADIENTS = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"mask_mod": fa.masks.sliding_window(100)},
    "softcap": {"score_mod": fa.scores.softcap(20.0), "is_causal": True},
}
TILES = {
    64: [(64, 128), (128, 128)],
    80: [(64, 64)],
    96: [(64, 128)],
    128: [(64, 128), (80, 128), (128, 64)],
    192: [(64, 64)],
    256: [(64, 64)],
}
"""Rows and keys of head dims."""


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize(
    ("dim", "rows", "keys"), [(dim, *tile) for dim in TILES for tile in TILES[dim]]
)
@pytest.mark.parametrize("length", [64, 333, 1500])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients(dtype, length, dim, rows, keys, name):
    """Five products in a loop; the Ampere schedule's errors are the measure."""
    options = GRADIENTS[name]
    generator = torch.Generator("cuda").manual_seed(length + dim)
    q, k, v, out_grad = (
        torch.randn(2, heads, length, dim, device="cuda", generator=generator).to(dtype)
        for heads in (4, 2, 2, 4)
    )
    out, lse = fa.attention(q, k, v, return_lse=True, **options)
    schedule = {"rows": rows, "keys": keys}
    found = fa.attention_backward(q, k, v, out, lse, out_grad, schedule=schedule, **options)
    ampere = fa.attention_backward(
        q, k, v, out, lse, out_grad, schedule={"by": "ampere"}, **options
    )
    wide = [x.float() for x in (q, k, v)]
    exact_out, exact_lse = fa.attention(*wide, return_lse=True, **options)
    exact = fa.attention_backward(*wide, exact_out, exact_lse, out_grad.float(), **options)
    for own, other, wanted in zip(found[:3], ampere[:3], exact[:3]):
        error = (other.float() - wanted).abs().max().item()
        limit = right.gradient_limit(right.dtype_of(own), error, wanted.abs().max().item())
        assert (own.float() - wanted).abs().max().item() <= limit


@pytest.mark.parametrize(
    "lengths", [(300, 0), (0, 200), (1, 1), (4000, 130), (130, 4000), (77, 333)]
)
@pytest.mark.parametrize("dim", [32, 48, 64, 128])
def test_sums_begin_with_zeros(dim, lengths):
    """Whatever lay there, and whoever zeroes them: nobody adds to queries' gradients without keys."""
    generator = torch.Generator("cuda").manual_seed(dim)
    q, k, v = (
        torch.randn(
            3, heads, lengths[heads < 8], dim, device="cuda", generator=generator
        ).bfloat16()
        for heads in (8, 2, 2)
    )
    for is_causal in (False, True):
        out, lse = fa.attention(q, k, v, return_lse=True, is_causal=is_causal)
        # What is allocated next is what this is given back as.
        junk = [torch.full((2**n,), math.nan, device="cuda") for n in range(8, 26)]
        del junk
        found = fa.attention_backward(q, k, v, out, lse, out, is_causal=is_causal)
        ampere = fa.attention_backward(
            q, k, v, out, lse, out, is_causal=is_causal, schedule={"by": "ampere"}
        )
        for own, other in zip(found[:3], ampere[:3]):
            assert own.shape == other.shape
            if own.numel():
                error = (own.float() - other.float()).abs().max().item()
                assert error <= 0.03 * other.abs().max().item()
