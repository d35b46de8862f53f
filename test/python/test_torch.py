# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa in PyTorch: operators, torch.compile, fa.torch.sdpa and the routing of calls.

On the CPU, or with FA_TEST_DEVICE=cuda on a GPU. What is compared with is
PyTorch's own in float64.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import pathlib
import subprocess
import sys
import types

import fa
import naive
import numpy as np
import pytest
import right
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import DEVICE, compiled, differentiate, has_functions, needs_functions

torch = pytest.importorskip("torch")

import fa.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from fa._torch import sdpa as _torch_sdpa  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
"""Of query, key and value."""
only_cpu = pytest.mark.skipif(DEVICE != "cpu", reason="is about the CPU")
OPERATORS = [torch.ops.fa.attention, torch.ops.fa.attention_with_lse]


def normal(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed + 31 * sum(shape))
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype)


def inputs(
    batch=2, heads=4, key_heads=2, rows=17, keys=40, dim=32, value_dim=24, dtype=torch.float32
):
    arrays = naive.inputs(batch, heads, key_heads, rows, keys, dim, value_dim)
    return tuple(torch.from_numpy(x).to(DEVICE, dtype) for x in arrays)


def numbers(x):
    return x.detach().double().cpu().numpy()


def assert_right(out, expected):
    """`expected`: what right.py makes, or for a float32 output a tensor."""
    if isinstance(expected, torch.Tensor):
        assert out.dtype == torch.float32, "a 16-bit output needs what exact_sdpa gives"
        expected = right.Expected(numbers(expected))
    right.assert_right(out, expected)


def exact_sdpa(q, k, v, mask=None, **options):
    """What is right: PyTorch's own in float64, which for float32 is a tensor."""
    wide = [x.double() for x in (q, k, v)]
    added = mask
    if mask is not None and mask.dtype != torch.bool:
        added = mask.double()
    exact = F.scaled_dot_product_attention(*wide, added, **options)
    if q.dtype == torch.float32:
        return exact
    formulas = {"scale": options.get("scale")}
    if options.get("is_causal"):
        formulas["mask"] = lambda *at: at[-1] <= at[-2]
    if mask is not None:
        given = numbers(mask) if mask.dtype != torch.bool else mask.cpu().numpy()
        what = "mask" if mask.dtype == torch.bool else "score"
        formulas[what] = (lambda *at: given) if what == "mask" else (lambda s, *at: s + given)
    dtype = right.dtype_of(q)
    plain, _ = naive.attention(*map(numbers, wide), dtype=dtype, **formulas)
    exact = numbers(exact)
    return right.Expected(exact, None, dtype, right.difference(plain, exact))


def test_import_without_pytorch():
    """`import fa` alone imports no PyTorch."""
    done = subprocess.run(
        [sys.executable, "-c", "import fa, sys; sys.exit('torch' in sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(fa.__file__).parents[1])},
    )
    assert done.returncode == 0


# --- Operators ---------------------------------------------------------------------


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op._qualified_op_name)
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ({}, {}),
        ({"key_heads": 4, "rows": 40, "value_dim": 32}, {"is_causal": True}),
        ({"batch": 1, "heads": 1, "key_heads": 1, "rows": 1}, {"scale": 0.5}),
        ({}, {"bias": True}),
    ],
)
def test_opcheck(operator, shape, options):
    q, k, v = inputs(**shape)
    captured = []
    if options.get("bias"):
        captured = [normal(4, 17, 40)]
        variant = fa.trace(score_mod=fa.scores.bias(captured[0]))
        options = {"variant": variant.to_text()}
    torch.library.opcheck(operator, (q, k, v, captured), options)


def test_opcheck_with_gradients():
    q, k, v = inputs()
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    arguments = (q.requires_grad_(), k, v, [])
    torch.library.opcheck(torch.ops.fa.attention, arguments, test_utils=tests)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op._qualified_op_name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_fake_kernels(operator, dtype):
    """Sizes, types, strides and devices are those of the real ones."""
    from torch._subclasses import FakeTensorMode

    q, k, v = inputs(dtype=dtype)
    q = q.transpose(1, 2).contiguous().transpose(1, 2)
    real = operator(q, k, v, [])
    with FakeTensorMode() as mode:
        fake = operator(*map(mode.from_tensor, (q, k, v)), [])
    real, fake = ((x,) if isinstance(x, torch.Tensor) else x for x in (real, fake))
    assert len(real) == len(fake)
    for x, y in zip(real, fake):
        assert (x.shape, x.dtype, x.stride(), x.device) == (y.shape, y.dtype, y.stride(), y.device)


LAYOUTS = {
    "row-major": lambda x: x.contiguous(),
    "heads after queries": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "a part of a projection": lambda x: torch.cat([x, x], 3).transpose(1, 2)[..., : x.shape[3]],
    "batch last but one": lambda x: x.permute(1, 2, 0, 3).contiguous().permute(2, 0, 1, 3),
    "expanded": lambda x: x[:1, :1].expand(x.shape),
}


@pytest.mark.parametrize("values", [16, 24])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_lie_as_their_operands(layout, values):
    """The output as the query, gradients as what they are of; known calls, operators, fakes."""
    from torch._subclasses import FakeTensorMode

    def laid(shape):
        x = LAYOUTS[layout](normal(*shape))
        return x.transpose(1, 2) if layout == "a part of a projection" else x

    operands = [laid((2, 4, n, dim)) for n, dim in ((17, 16), (40, 16), (40, values))]
    q, k, v = (x.detach().requires_grad_() for x in operands)
    # By PyTorch itself: what the operand's own elements, densely, would lie as.
    wanted = [torch.empty_like(x).stride() for x in operands]
    expected = fa.attention(*(x.contiguous() for x in operands))
    grad = normal(*expected.shape)
    for _ in range(2):
        out = fa.attention(*operands)
        assert torch.equal(out, expected)
        if values == 16:
            assert out.stride() == wanted[0]
        else:
            by_size = [sorted(range(4), key=x.stride) for x in (out, torch.empty_like(q))]
            assert by_size[0] == by_size[1] and out.untyped_storage().nbytes() == out.nbytes
        recorded = fa.attention(q, k, v)
        assert recorded.stride() == out.stride()
        # With a scale of 1 kernels on a GPU add up float32 gradients where they lie.
        for result in (recorded, fa.attention(q, k, v, scale=1.0)):
            found = torch.autograd.grad(result, (q, k, v), grad)
            assert [x.stride() for x in found] == wanted
    compiled = torch.compile(fa.attention, backend="aot_eager")(q, k, v)
    assert compiled.stride() == out.stride()
    assert [x.stride() for x in torch.autograd.grad(compiled, (q, k, v), grad)] == wanted
    with FakeTensorMode() as mode:
        fake = torch.ops.fa.attention(*map(mode.from_tensor, operands), [])
    assert fake.stride() == out.stride()
    torch.use_deterministic_algorithms(True)
    try:  # which allocates in another way
        ordered = fa.attention(*operands), *fa.attention(q, k, v, return_lse=True)
    finally:
        torch.use_deterministic_algorithms(False)
    assert ordered[0].stride() == ordered[1].stride() == out.stride()
    assert not any(x._is_view() for x in ordered)  # of which autograd refuses x.mul_()


def test_a_fake_of_head_dim_1():
    """Whose stride says nothing of where it lies."""
    from torch._subclasses import FakeTensorMode

    x = torch.randn(60).as_strided((3, 3, 2, 1), (1, 6, 3, 0))
    with FakeTensorMode() as mode:
        fake = torch.ops.fa.attention(*[mode.from_tensor(x)] * 3, [])
    assert fake.stride() == fa.attention(x, x, x).stride()


def test_fake_tensors_are_checked():
    from torch._subclasses import FakeTensorMode

    q, k, _ = inputs()
    _, _, v = inputs(keys=39)
    with FakeTensorMode() as mode, pytest.raises(ValueError, match="same length, got 40 and 39"):
        fa.attention(*map(mode.from_tensor, (q, k, v)))


def test_meta_tensors():
    tensors = [x.to("meta") for x in inputs(dtype=torch.float16)]
    bias, ids = normal(17, 40), torch.zeros(40, device="meta", dtype=torch.int32)
    results = [
        torch.ops.fa.attention(*tensors, []),
        fa.attention(*tensors),
        fa.attention(*tensors, is_causal=True, score_mod=fa.scores.bias(bias), dropout_p=0.5),
        fa.attention(*tensors, mask_mod=lambda b, h, i, j: ids[j] == 1),
        fa.torch.sdpa(*tensors, bias.to("meta"), enable_gqa=True),
    ]
    out, lse = fa.attention(*tensors, return_lse=True)
    for result in (*results, out, lse):
        assert result.device.type == "meta"
        sizes = (2, 4, 17) if result is lse else (2, 4, 17, 24)
        assert result.shape == sizes and result.is_contiguous()
        assert result.dtype == (torch.float32 if result is lse else torch.float16)
    offsets = torch.zeros(3, dtype=torch.int32, device="meta")
    q, k, v = (x[0].transpose(0, 1) for x in tensors)
    assert fa.attention_varlen(q, k, v, offsets).shape == (17, 4, 24)


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("is_meta", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_meta_tensors_among_others(at, is_meta, requires_grad):
    tensors = [x.requires_grad_(requires_grad) for x in inputs()]
    for n in range(3):
        if (n == at) == is_meta:
            tensors[n] = tensors[n].to("meta")
    with pytest.raises((ValueError, TypeError), match="got meta|on meta like query, got|move it"):
        fa.attention(*tensors)


def test_meta_tensors_are_checked():
    q, k, v = (x.to("meta") for x in inputs())
    with pytest.raises(ValueError, match="same length, got 40 and 39"):
        fa.attention(q, k, v[:, :, 1:])
    with pytest.raises(ValueError, match="expected no schedule"):
        fa.attention(q, k, v, schedule={"rows": 64})


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_variants_are_text(data):
    """What is a text and read again is the same variant."""
    from fa._run.variant import Variant

    left = data.draw(st.integers(0, 9))
    table = torch.zeros(*data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=2)))
    score, mask = data.draw(st.sampled_from([(True, True), (True, False), (False, True)]))
    variant = fa.trace(
        score_mod=(lambda s, b, h, i, j: s + table[h, j] + left) if score else None,
        mask_mod=fa.masks.and_masks(fa.masks.sliding_window(left), fa.masks.causal_bottom_right)
        if mask
        else None,
    )
    assert Variant.from_text(variant.to_text()) == (variant, ())


# --- What PyTorch computes faster ------------------------------------------------------


@pytest.fixture(autouse=True)
def takes_all(request, monkeypatch):
    """Tests are of what fa takes wherever they run; but one, of what it leaves."""
    if request.node.get_closest_marker("leaves") is None:
        monkeypatch.setattr(_torch_sdpa, "slower", lambda *call: None)


class OnGpu:
    """As much of a tensor on a GPU of 132 multiprocessors as the rule asks for."""

    is_cuda, is_cpu = True, False

    def __init__(self, *shape, dtype=torch.bfloat16):
        self.shape, self.dtype = torch.Size(shape), dtype

    def size(self, dim):
        return self.shape[dim]

    def get_device(self):
        return 0


@pytest.mark.leaves
def test_what_pytorch_computes_faster(monkeypatch):
    monkeypatch.setattr(_torch_sdpa, "_multiprocessors", lambda device: 132)

    def reason(queries, keys, batch=1, heads=8, dim=128, dtype=torch.bfloat16, mask=None):
        q = OnGpu(batch, heads, queries, dim, dtype=dtype)
        k = OnGpu(batch, heads, keys, dim, dtype=dtype)
        return _torch_sdpa.slower(q, k, k, mask)

    for queries, keys, options, expected in (
        (1, 8192, {}, "few queries"),
        (128, 512, {}, "few queries"),
        (129, 512, {}, None),
        (1, 100, {}, None),
        (128, 511, {}, None),
        (128, 128, {"batch": 32, "heads": 32}, "few queries"),
        (1024, 1024, {"dim": 64}, "few queries"),
        (1024, 1024, {"dim": 64, "heads": 32}, None),
        (1024, 1024, {"dim": 128}, None),
        (1024, 511, {"dim": 64}, None),
        (4096, 4096, {"dtype": torch.float32}, "float32"),
        (1024, 1024, {"mask": torch.ones(1, 1)}, "few scores"),
        (1024, 1024, {"mask": torch.ones(1, 1), "heads": 128}, None),
        (1024, 8192, {"mask": torch.ones(1, 1)}, None),
    ):
        assert reason(queries, keys, **options) == expected, (queries, keys, options)
    for has_amx in (False, True):
        monkeypatch.setattr(_torch_sdpa, "_has_amx", lambda has_amx=has_amx: has_amx)
        for rows, dtype in ((4, torch.bfloat16), (5, torch.bfloat16), (5, torch.float16)):
            x = torch.zeros(1, 2, rows, 16, dtype=dtype)
            is_left = has_amx and rows == 5 and dtype == torch.bfloat16
            assert _torch_sdpa.slower(x, x, x) == ("bfloat16" if is_left else None)
            with torch.no_grad(), fa.torch.use_sdpa() as calls:
                torch.nn.functional.scaled_dot_product_attention(x, x, x)
            assert calls.fell_back == ({"bfloat16": 1} if is_left else {})
            assert calls.routed == (not is_left)


@pytest.mark.leaves
def test_training_that_pytorch_computes_faster_on_gpus(monkeypatch):
    """By what PyTorch would run: FlashAttention-2, cuDNN, or a kernel that reads a matrix."""
    monkeypatch.setattr(_torch_sdpa, "_multiprocessors", lambda device: 132)
    by_capability = {
        (8, 0): {("full", 64): None, ("full", 128): "gradient", ("masked", 128): None},
        (8, 9): {("causal", 64): None, ("causal", 72): "gradient", ("masked", 160): None},
        (9, 0): {("full", 64): None, ("causal", 128): "gradient", ("masked", 64): "gradient"},
        (12, 0): {("full", 64): "gradient", ("masked", 64): "gradient"},
    }
    for capability, expected in by_capability.items():
        monkeypatch.setattr(_torch_sdpa, "_capability", lambda device, own=capability: own)
        for call in ("function", "written"):
            expected[call, 128] = None
        for (call, dim), reason in expected.items():
            q = OnGpu(4, 16, 4096, dim)
            assert _torch_sdpa.slower(q, q, q, None, call) == reason, (capability, call, dim)
            # What is slower without gradients comes first.
            wide = OnGpu(4, 16, 4096, dim, dtype=torch.float32)
            assert _torch_sdpa.slower(wide, wide, wide, None, call) == "float32"


@pytest.mark.leaves
@pytest.mark.parametrize("batch, expected", [(15, "gradient"), (16, None)])
def test_training_of_few_scores_on_gpus(monkeypatch, batch, expected):
    """The host's time counts: 3 * 2**26 scores of 12 heads are 16 times 1024 x 1024."""
    monkeypatch.setattr(_torch_sdpa, "_multiprocessors", lambda device: 132)
    monkeypatch.setattr(_torch_sdpa, "_capability", lambda device: (9, 0))
    q = OnGpu(batch, 12, 1024, 64)
    assert _torch_sdpa.slower(q, q, q, None, "causal") == expected


@pytest.mark.leaves
def test_training_in_order_that_pytorch_computes_faster_on_gpus(monkeypatch):
    """PyTorch has no cuDNN then."""
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    monkeypatch.setattr(_torch_sdpa, "_multiprocessors", lambda device: 132)
    for capability, call, keys, expected in (
        ((9, 0), "full", 512, None),
        ((9, 0), "causal", 4096, None),
        ((9, 0), "causal", 511, "gradient"),
        ((9, 0), "masked", 4096, "gradient"),
        ((9, 0), "written", 4096, None),
        ((8, 0), "full", 4096, "gradient"),
        ((8, 0), "function", 4096, None),
    ):
        monkeypatch.setattr(_torch_sdpa, "_capability", lambda device, own=capability: own)
        q, k = OnGpu(4, 16, 4096, 64), OnGpu(4, 16, keys, 64)
        assert _torch_sdpa.slower(q, k, k, None, call) == expected, (capability, call, keys)


@pytest.mark.leaves
@only_cpu
def test_training_that_pytorch_computes_faster_on_cpus(monkeypatch):
    """By PyTorch's kernel, type and length, as it was measured."""
    for dtype, call, keys, has_amx, expected in (
        (torch.float32, "causal", 512, False, None),
        (torch.float32, "causal", 511, False, "gradient"),
        (torch.float32, "full", 512, False, None),
        (torch.float32, "full", 511, False, "gradient"),
        (torch.float32, "masked", 4096, False, "gradient"),
        (torch.float32, "function", 512, False, None),
        (torch.float32, "written", 2048, False, None),
        (torch.float32, "written", 2047, False, "gradient"),
        (torch.float16, "full", 8, True, None),
        (torch.float16, "masked", 8, True, "gradient"),
        (torch.bfloat16, "full", 4096, False, "gradient"),
        (torch.bfloat16, "full", 4096, True, "bfloat16"),
        (torch.bfloat16, "written", 4096, True, None),
        (torch.bfloat16, "written", 1024, True, "bfloat16"),
    ):
        monkeypatch.setattr(_torch_sdpa, "_has_amx", lambda own=has_amx: own)
        q, k = (torch.empty(1, 1, n, 16, dtype=dtype) for n in (8, keys))
        assert _torch_sdpa.slower(q, k, k, None, call) == expected, (dtype, call, keys, has_amx)


@pytest.mark.parametrize("options", [{}, {"dropout_p": 0.1}, {"is_causal": True}])
def test_what_pytorch_would_run(options):
    """Of tensors that record a gradient, in the words of the table."""
    q, k, v = inputs()
    given = (options.get("dropout_p", 0.0), options.get("is_causal", False))
    learned = normal(17, 40).requires_grad_()
    plain = "causal" if options.get("is_causal") else "full"
    for mask, has_function, expected in (
        (None, False, plain),
        (None, True, "function"),
        (learned.detach(), False, "masked"),
        (learned, False, "written"),
    ):
        if options.get("dropout_p") and DEVICE == "cpu":
            expected = "written"
        tensors = (q, k.detach().requires_grad_(), v, mask)
        assert _torch_sdpa.training_of(tensors, *given, has_function) == expected
        with torch.no_grad():
            assert _torch_sdpa.training_of(tensors, *given, has_function) == ""
    assert _torch_sdpa.training_of((q, k, v, None), *given) == ""


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.usefixtures("deterministic")
def test_results_are_not_filled_first(batch):
    """PyTorch fills what torch.empty gives then, and fa writes all of its results."""
    q, k, v = (x.requires_grad_() for x in inputs(batch=batch))
    out_grad = normal(batch, 4, 17, 24)

    def step():
        out, lse = fa.attention(q, k, v, return_lse=True)
        return out, lse, *torch.autograd.grad(out, (q, k, v), out_grad)

    for _ in range(2):  # a call that is known takes a shorter way
        with torch.autograd.profiler.profile(record_shapes=True) as profile:
            results = step()
        filled = [e.input_shapes[0] for e in profile.function_events if e.name == "aten::fill_"]
        assert not [sizes for sizes in filled if np.prod(sizes)]
    assert all(x.is_contiguous() and x.untyped_storage().nbytes() == x.nbytes for x in results)
    torch.use_deterministic_algorithms(False)
    assert all(map(torch.equal, results, step()))


def test_sums_that_take_long_in_order(monkeypatch):
    """Of sinks and position biases, if they are recorded."""
    monkeypatch.setattr(_torch_sdpa, "why_not", lambda *call: None)
    q = OnGpu(1, 1, 16, 64)
    for learns, records, in_order, expected in (
        (True, True, True, "deterministic"),
        (True, False, True, None),
        (False, True, True, None),
        (True, True, False, None),
    ):
        asked = functools.partial(bool, in_order)
        monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", asked)
        bias = torch.zeros(2, requires_grad=learns)
        with torch.set_grad_enabled(records):
            given = (q, q, q, None), (0.0, False, None, False)
            assert _torch_sdpa.why_left(*given, (None, bias)) == expected
            assert _torch_sdpa.why_left(*given) is None


@pytest.mark.leaves
def test_where_pytorch_is_faster_nested_and_under_autocast(monkeypatch):
    """What is asked is what is computed: types after autocast, no sizes of nested tensors."""
    monkeypatch.setattr(_torch_sdpa, "_has_amx", lambda: True)
    x = torch.zeros(1, 2, 5, 16, dtype=torch.bfloat16)
    nested = torch.nested.as_nested_tensor([x[0, :, :3], x[0]])
    with torch.no_grad(), fa.torch.use_sdpa() as calls:
        out = F.scaled_dot_product_attention(nested, nested, nested)
    assert out.is_nested and calls.routed == 0
    assert calls.fell_back == {"tensor class": 1}
    for own, wanted, reason in (
        (torch.bfloat16, torch.float16, None),
        (torch.float32, torch.bfloat16, "bfloat16"),
    ):
        x = x.to(own)
        with torch.no_grad(), torch.autocast("cpu", wanted), fa.torch.use_sdpa() as calls:
            assert F.scaled_dot_product_attention(x, x, x).dtype == wanted
        assert calls.fell_back == ({} if reason is None else {reason: 1})
        assert calls.routed == (reason is None)


# --- Gradients -----------------------------------------------------------------------


@pytest.mark.parametrize("which", range(4), ids=["query", "key", "value", "captured"])
@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_gradients_are_never_left_out(which, backend):
    """Of each tensor that requires one, and of no other."""
    if backend and not has_functions():
        pytest.skip("needs PyTorch 2.8")
    tensors = [*inputs(), normal(4)]
    tensors[which].requires_grad_()

    def model(q, k, v, slopes):
        out = fa.attention(q, k, v, score_mod=lambda s, b, h, i, j: s + slopes[h] * j)
        return q.sum() + out.sum()

    call = compiled(model, backend) if backend else model
    out = call(*tensors)
    assert out.requires_grad
    out.backward()
    assert [x.grad is not None for x in tensors] == [n == which for n in range(4)]
    with torch.no_grad():
        assert not call(*tensors).requires_grad
    out = call(*(x.detach() for x in tensors))
    assert not out.requires_grad
    assert torch.isfinite(out)


def test_lse_requires_a_gradient():
    q, k, v = inputs()
    _, lse = fa.attention(q.requires_grad_(), k, v, return_lse=True)
    differentiate(lse, q)


# --- torch.compile -------------------------------------------------------------------


@pytest.mark.usefixtures("empty_cache")
def test_compiled():
    """No graph break, eager's numbers, no kernel and no graph for another length."""

    def model(q, k, v):
        out, lse = fa.attention(2 * q, k, v, is_causal=True, return_lse=True)
        return out + 1, lse

    call = compiled(model)
    graphs = []
    for shape in ({}, {"rows": 19, "keys": 41}, {"rows": 30, "keys": 7}, {"rows": 64, "keys": 64}):
        q, k, v = inputs(**shape)
        expected = model(q, k, v)
        before = fa.compile_count()
        results = call(q, k, v)
        assert fa.compile_count() == before
        for out, eager in zip(results, expected):
            assert torch.equal(out, eager)
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs[1:] == [graphs[1]] * 3, "a length that changed once may change again"


def test_dynamic_dimensions():
    """Dimensions that are marked so are dynamic from the first call on."""
    call = compiled(lambda q, k, v: fa.attention(q, k, v))
    graphs = set()
    for batch, rows, keys in ((2, 17, 40), (3, 5, 9), (4, 64, 33)):
        q, k, v = inputs(batch=batch, rows=rows, keys=keys)
        for x in (q, k, v):
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.mark_dynamic(x, 2)
        assert torch.equal(call(q, k, v), fa.attention(q, k, v))
        graphs.add(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert len(graphs) == 1


@pytest.mark.ci
def test_inductor():
    """The default backend keeps strides as kernels may read them."""

    def model(x, w):
        q, k, v = (x @ w).view(2, 33, 3, 4, 16).unbind(2)
        out = fa.attention(*(y.transpose(1, 2) for y in (q, k, v)), is_causal=True)
        return out.transpose(1, 2).reshape(2, 33, 64) + x

    x, w = normal(2, 33, 64), normal(64, 192) / 8
    with torch.no_grad():
        try:
            out = compiled(model, "inductor")(x, w)
        except Exception as error:
            if "No working C++ compiler" not in str(error):
                raise
            pytest.skip("no C++ compiler for Inductor")
        assert_right(out, model(x, w))


class Model(torch.nn.Module):
    """Functions made while it runs, of parameters, inputs, numbers and lengths."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(normal(4, 64, 64))
        self.register_buffer("cap", torch.tensor(2.0, device=DEVICE))

    def forward(self, q, k, v, ids, window=9):
        def score_mod(score, b, h, q_idx, kv_idx):
            score = self.cap * torch.tanh((score + self.bias[h][q_idx, kv_idx]) / self.cap)
            return score - 0.1 * fa.math.maximum(q_idx - kv_idx, 0).float()

        mask = fa.masks.or_masks(
            fa.masks.and_masks(fa.masks.sliding_window(window, 1), fa.masks.documents(ids)),
            fa.masks.causal_bottom_right,
        )
        return fa.attention(q, k, v, score_mod=score_mod, mask_mod=mask)

    def exact(self, q, k, v, ids, window=9):
        """The same in float64."""
        bias, cap, ids = numbers(self.bias), self.cap.item(), ids.cpu().numpy()
        rows, keys = q.shape[2], k.shape[2]

        def score(s, b, h, i, j):
            return cap * np.tanh((s + bias[h, i, j]) / cap) - 0.1 * np.maximum(i - j, 0)

        def mask(b, h, i, j):
            near = (i - j <= window) & (j - i <= 1) & (ids[i] == ids[j])
            return near | (j - keys <= i - rows)

        error = right.approximated(cap, DEVICE)
        return right.attention(q, k, v, score=score, mask=mask, score_error=error)


@pytest.mark.ci
@pytest.mark.usefixtures("empty_cache")
@needs_functions
def test_compiled_functions():
    """Captured tensors are read at each call, and numbers are looked at."""
    model = Model()
    call = compiled(model)
    ids = torch.arange(64, device=DEVICE) // 5
    with torch.no_grad():
        q, k, v = inputs()
        first = call(q, k, v, ids)
        assert_right(first, model.exact(q, k, v, ids))
        before = fa.compile_count()
        model.bias.mul_(-2)
        model.cap.fill_(5.0)
        second = call(q, k, v, ids // 2)
        assert_right(second, model.exact(q, k, v, ids // 2))
        assert (first - second).abs().max() > 0.1
        for rows, keys in ((19, 50), (33, 64)):
            q, k, v = inputs(rows=rows, keys=keys)
            assert_right(call(q, k, v, ids), model.exact(q, k, v, ids))
        assert fa.compile_count() == before
        for window in (3, 5, 1):
            assert_right(call(q, k, v, ids, window), model.exact(q, k, v, ids, window))


@needs_functions
@pytest.mark.parametrize(
    "score_mod",
    [
        lambda s, b, h, i, j: fa.math.cast(i > j, float) + fa.math.cast(s, torch.int32) * s,
        lambda s, b, h, i, j: fa.math.where(j % 3 == 0, fa.math.clamp(s, -1, 1), fa.math.neg(s)),
        lambda s, b, h, i, j: s * fa.math.sigmoid(s) + fa.math.log1p(fa.math.abs(i - j)),
        lambda s, b, h, i, j: F.silu(s) + torch.exp2(-(h.float() + 1)) * (j - fa.key_length()),
        lambda s, b, h, i, j: 0.5,
        fa.scores.alibi(4),
        fa.scores.compose(fa.scores.alibi(4), fa.scores.softcap(2.0)),
    ],
)
def test_compiled_as_eager(score_mod):
    """Functions of fa.math, PyTorch and fa.scores, and a number alone."""

    def model(q, k, v):
        return fa.attention(q, k, v, score_mod=score_mod, is_causal=True, return_lse=True)

    q, k, v = inputs()
    for out, eager in zip(compiled(model)(q, k, v), model(q, k, v), strict=True):
        assert torch.equal(out, eager)


@needs_functions
def test_compiled_slopes_of_six_heads():
    """Of no power of two: fa.scores.alibi has a choice in it."""

    def model(q, k, v):
        return fa.attention(q, k, v, score_mod=fa.scores.alibi(6))

    q, k, v = inputs(heads=6)
    assert torch.equal(compiled(model)(q, k, v), model(q, k, v))


@pytest.mark.ci
@needs_functions
@pytest.mark.parametrize("name", ["masks", "scores"])
def test_named_functions_compiled(name):
    """Those of fa.masks and fa.scores that capture arrays."""
    table, ids = normal(4, 21), torch.arange(64, device=DEVICE) // 3
    few = torch.tensor([5, 30], device=DEVICE)
    functions = {
        "masks": [
            lambda: {"mask_mod": fa.masks.causal_lengths(few, few + 3)},
            lambda: {"mask_mod": fa.masks.not_mask(fa.masks.prefix(few))},
            lambda: {"mask_mod": fa.masks.neighbourhood(7)},
            lambda: {"mask_mod": fa.masks.dilated(3, 20)},
            lambda: {"mask_mod": fa.masks.documents(ids, ids + 1)},
        ],
        "scores": [
            lambda: {"score_mod": fa.scores.relative_position(table)},
            lambda: {"score_mod": fa.scores.t5_bias(table.T)},
            lambda: {"score_mod": fa.scores.bias(table[:, None, :1])},
        ],
    }[name]
    q, k, v = inputs()
    for make in functions:
        call = compiled(lambda q, k, v, make=make: fa.attention(q, k, v, **make()))
        assert torch.equal(call(q, k, v), fa.attention(q, k, v, **make()))


@needs_functions
def test_compiled_errors():
    q, k, v = inputs()
    table = normal(4, 40).double()

    def untraceable(s, b, h, i, j):
        return s + table[h, j]  # the line

    with pytest.raises(Exception, match=r"(?s)got torch.float64; scores are float32.*# the line"):
        compiled(lambda q, k, v: fa.attention(q, k, v, score_mod=untraceable))(q, k, v)
    with pytest.raises(Exception, match="expected mask_mod to return a boolean, got a traced int"):
        mask = lambda b, h, i, j: i - j  # noqa: E731
        compiled(lambda q, k, v: fa.attention(q, k, v, mask_mod=mask))(q, k, v)
    with pytest.raises(Exception, match="expected no schedule"):
        compiled(lambda q, k, v: fa.attention(q, k, v, schedule={"rows": 64}))(q, k, v)
    with pytest.raises(Exception, match="same length, got 40 and 39"):
        compiled(lambda q, k, v: fa.attention(q, k, v))(q, k, v[:, :, :39])


def test_functions_need_a_newer_pytorch(monkeypatch):
    monkeypatch.setattr(fa._torch.compile, "dynamo_bypassing_wrapper", None)
    q, k, v = inputs()
    with pytest.raises(Exception, match="expected PyTorch 2.8 or later for score and mask"):
        compiled(lambda q, k, v: fa.attention(q, k, v, mask_mod=fa.masks.causal))(q, k, v)
    # A mask of sdpa is no function to PyTorch.
    mask = normal(17, 40) > 0
    call = compiled(lambda q, k, v, m: fa.torch.sdpa(q, k, v, m, enable_gqa=True))
    assert_right(call(q, k, v, mask), exact_sdpa(q, k, v, mask, enable_gqa=True))


@needs_functions
@pytest.mark.parametrize("strict", [True, False])
def test_export(strict):
    model, ids = Model(), torch.arange(64, device=DEVICE) // 5
    q, k, v = inputs()
    rows = torch.export.Dim("rows", min=2, max=64)
    with torch.no_grad():
        program = torch.export.export(
            model, (q, k, v, ids), strict=strict, dynamic_shapes=({2: rows}, None, None, None)
        )
        q = normal(2, 4, 23, 32)
        assert_right(program.module()(q, k, v, ids), model.exact(q, k, v, ids))


# --- sdpa ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"scale": 0.3}, {"is_causal": True, "scale": 1.0}],
)
@pytest.mark.parametrize(("rows", "keys"), [(17, 40), (40, 17), (64, 64)])
def test_sdpa(dtype, options, rows, keys):
    """Causal is aligned at the upper left where lengths differ."""
    q, k, v = inputs(rows=rows, keys=keys, dtype=dtype)
    out = fa.torch.sdpa(q, k, v, enable_gqa=True, **options)
    assert out.dtype == dtype
    assert_right(out, exact_sdpa(q, k, v, enable_gqa=True, **options))


@pytest.mark.parametrize(
    ("query", "key", "value"),
    [
        ((7, 16), (11, 16), (11, 24)),
        ((3, 7, 16), (3, 11, 16), (3, 11, 24)),
        ((3, 7, 16), (1, 11, 16), (3, 11, 24)),
        ((2, 4, 7, 16), (2, 1, 11, 16), (2, 1, 11, 24)),
        ((2, 4, 7, 16), (1, 4, 11, 16), (2, 1, 11, 24)),
        ((2, 1, 7, 16), (1, 4, 11, 16), (2, 4, 11, 24)),
        ((2, 4, 7, 16), (11, 16), (4, 11, 24)),
        ((3, 2, 4, 7, 16), (3, 2, 4, 11, 16), (1, 2, 4, 11, 24)),
        ((2, 1, 2, 4, 7, 16), (3, 1, 4, 11, 16), (4, 11, 24)),
        ((2, 4, 0, 16), (2, 4, 11, 16), (2, 4, 11, 24)),
        ((0, 4, 7, 16), (0, 4, 11, 16), (0, 4, 11, 24)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sdpa_shapes(query, key, value, dtype):
    q, k, v = (normal(*shape, dtype=dtype) for shape in (query, key, value))
    assert_right(fa.torch.sdpa(q, k, v, is_causal=True), exact_sdpa(q, k, v, is_causal=True))


def test_sdpa_grouped_heads_without_a_batch():
    q, k, v = normal(4, 7, 16), normal(2, 11, 16), normal(2, 11, 24)
    mask = normal(4, 7, 11)
    out = fa.torch.sdpa(q, k, v, mask, enable_gqa=True)
    expected = exact_sdpa(*(x[None] for x in (q, k, v, mask)), enable_gqa=True)[0]
    assert_right(out, expected)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([(), (3,), (2, 3), (2, 1, 2)]),
    st.integers(1, 40),
    st.integers(1, 70),
    st.data(),
)
def test_sdpa_masks(leads, rows, keys, data):
    """Masks of either kind that broadcast in any of their dimensions."""
    heads = 4 if leads else 1
    batch = (*leads, heads) if len(leads) != 1 else leads
    q, k, v = normal(*batch, rows, 16), normal(*batch, keys, 16), normal(*batch, keys, 8)
    scores = (*batch, rows, keys)
    rank = data.draw(st.integers(2, len(scores)))
    sizes = [data.draw(st.sampled_from([1, size])) for size in scores[-rank:]]
    mask = normal(*sizes, seed=data.draw(st.integers(0, 9)))
    kind = data.draw(st.sampled_from(["bool", "float", "half", "transposed", "expanded"]))
    if kind == "bool":
        mask = mask > -0.5
    elif kind == "half":
        mask = mask.half()
    elif kind == "transposed":
        mask = mask.transpose(-1, -2).contiguous().transpose(-1, -2)
    elif kind == "expanded":
        mask = mask.expand(scores)
    assert_right(fa.torch.sdpa(q, k, v, mask), exact_sdpa(q, k, v, mask))


def test_sdpa_masks_of_one_element():
    """Which no coordinate indexes."""
    for rows, keys in ((1, 1), (5, 7)):
        q, k, v = normal(1, rows, 16), normal(1, keys, 16), normal(1, keys, 8)
        for mask in (normal(1, 1), normal(1, 1) > -9, normal(1, 1, 1)):
            assert_right(fa.torch.sdpa(q, k, v, mask), exact_sdpa(q, k, v, mask))


def test_sdpa_rows_that_see_nothing():
    """They are 0, like PyTorch's."""
    q, k, v = inputs(key_heads=4)
    seen = torch.ones(17, 40, dtype=torch.bool, device=DEVICE)
    seen[3] = seen[16] = False
    added = torch.zeros(17, 40, device=DEVICE).masked_fill(~seen, -torch.inf)
    for mask in (seen, added):
        out = fa.torch.sdpa(q, k, v, mask)
        assert not out[:, :, 3].any() and not out[:, :, 16].any()
        assert_right(out, exact_sdpa(q, k, v, mask))
    assert not fa.torch.sdpa(q, k[:, :, :0], v[:, :, :0]).any()


def test_sdpa_makes_nothing_larger_of_a_mask(monkeypatch):
    read = []

    def attend(call):
        read.extend(call.traced.arrays)
        return own(call)

    own = _torch_sdpa.attend
    monkeypatch.setattr(_torch_sdpa, "attend", attend)
    q, k, v = inputs(key_heads=4)
    for mask in (
        normal(2, 1, 1, 40) > 0,
        normal(2, 1, 1, 40).expand(2, 4, 17, 40),
        normal(4, 17, 1).expand(4, 17, 40),
        normal(40, 17).T,
    ):
        fa.torch.sdpa(q, k, v, mask)
        assert read.pop().data_ptr() == mask.data_ptr()


@pytest.mark.usefixtures("empty_cache")
def test_sdpa_kernels_are_for_all_sizes():
    before = None
    for batch, rows, keys in ((2, 17, 40), (3, 5, 9), (5, 64, 33)):
        q, k, v = inputs(batch, 4, 4, rows, keys, dim=40)
        fa.torch.sdpa(q, k, v, normal(batch, 1, 1, keys) > 0)
        fa.torch.sdpa(*(x.flatten(0, 1) for x in (q, k, v)))
        before = before or fa.compile_count()
    assert fa.compile_count() == before


@pytest.mark.parametrize("heads", [(4, 2, 1), (4, 1, 2), (4, 1, 4), (4, 4, 2), (6, 2, 3)], ids=str)
@pytest.mark.parametrize("has_batch", [False, True])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_sdpa_groups_of_keys_and_values(heads, has_batch, is_compiled):
    """Key and value may have different numbers of heads."""
    lead = (2,) if has_batch else ()
    q, k, v = (normal(*lead, n, 9, 16, seed=n) for n in heads)
    mask = normal(heads[0], 9, 9)
    call = compiled(fa.torch.sdpa) if is_compiled else fa.torch.sdpa
    wanted = exact_sdpa(*(x if has_batch else x[None] for x in (q, k, v)), mask, enable_gqa=True)
    assert_right(call(q, k, v, mask, enable_gqa=True), wanted if has_batch else wanted[0])


@pytest.mark.parametrize(
    ("heads", "enable_gqa"),
    [
        *(((0, 0, 0), False), ((0, 1, 1), False), ((0, 0, 1), False), ((0, 1, 0), False)),
        *(((0, 0, 0), True), ((0, 4, 4), True), ((0, 4, 2), True), ((0, 1, 0), True)),
    ],
    ids=str,
)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_sdpa_without_heads(heads, enable_gqa, requires_grad):
    """Nothing of the right shape, as of PyTorch (whose 2.11 may divide by 0 there)."""
    q, k, v = (normal(2, n, 9, 16).requires_grad_(requires_grad) for n in heads)
    for mask in (None, normal(9, 9), normal(2, 1, 9, 9) > 0):
        out = fa.torch.sdpa(q, k, v, mask, enable_gqa=enable_gqa)
        assert out.shape == (2, 0, 9, 16)
        assert (out.dtype, out.requires_grad) == (torch.float32, requires_grad)
    # Without a batch: [0, L, E] is a batch of none.
    if heads == (0, 0, 0):
        assert fa.torch.sdpa(q[0], k[0], v[0], enable_gqa=enable_gqa).shape == (0, 9, 16)
    with pytest.raises(ValueError, match="numbers of heads that go together"):
        fa.torch.sdpa(normal(2, 4, 9, 16), k[:, :0], v[:, :0], enable_gqa=enable_gqa)


@pytest.mark.ci
@pytest.mark.usefixtures("empty_cache")
def test_sdpa_compiled():
    q, k, v = inputs(key_heads=4)

    def model(q, k, v, mask):
        return 2 * fa.torch.sdpa(q, k, v, mask)

    call = compiled(model)
    for rows, keys in ((17, 40), (19, 41), (30, 12)):
        q, k, v = inputs(key_heads=4, rows=rows, keys=keys)
        for mask in (normal(rows, keys), normal(2, 1, 1, keys) > 0):
            expected = model(q, k, v, mask)
            before = fa.compile_count()
            assert torch.equal(call(q, k, v, mask), expected)
            assert fa.compile_count() == before
        assert_right(call(q, k, v, None), 2 * exact_sdpa(q, k, v))


def test_sdpa_autocast():
    q, k, v = inputs(key_heads=4)
    mask = normal(17, 40)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        out = fa.torch.sdpa(q, k, v, mask)
        assert out.dtype == F.scaled_dot_product_attention(q, k, v, mask).dtype == torch.bfloat16
    assert_right(out, exact_sdpa(*(x.bfloat16() for x in (q, k, v)), mask))


def test_sdpa_autocast_of_a_mask_alone():
    """A mask is converted with the rest, where it is all that has another type, too."""
    q, k, v = (x.bfloat16() for x in inputs(key_heads=4))
    mask = 1e6 + normal(17, 40)  # bfloat16 has one number for all of them
    fa.torch.sdpa(q, k, v, mask)  # which is known without autocast
    for _ in range(2):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            out = fa.torch.sdpa(q, k, v, mask)
        assert_right(out, exact_sdpa(q, k, v, mask.bfloat16()))


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("has_function", [False, True])
def test_autocast(is_compiled, has_function):
    """Query, key and value are converted, captured tensors are not."""
    if is_compiled and has_function and not has_functions():
        pytest.skip("needs PyTorch 2.8")
    q, k, v = inputs()
    bias = 1e6 + normal(17, 40)  # bfloat16 has one number for all of them

    def score_mod(s, b, h, i, j):
        return s + (bias[i, j] - 1e6)

    def call(q, k, v):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            options = {"score_mod": score_mod} if has_function else {}
            inner = fa.attention(q, k, v, return_lse=True, **options)
            with torch.autocast(DEVICE, enabled=False):
                return (*inner, fa.attention(q, k, v, **options))

    out, lse, other = (compiled(call) if is_compiled else call)(q, k, v)
    assert (out.dtype, lse.dtype, other.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    mask = bias - 1e6 if has_function else None
    assert_right(other, exact_sdpa(q, k, v, mask, enable_gqa=True))
    rounded = [x.bfloat16() for x in (q, k, v)]
    assert_right(out, exact_sdpa(*rounded, mask, enable_gqa=True))
    options = {"score_mod": score_mod} if has_function else {}
    assert torch.equal(out, fa.attention(*rounded, **options))


def test_autocast_of_mixed_types():
    """As for PyTorch's own: types of all become one, and float64 stays."""
    q, k, v = inputs(key_heads=4)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        out = fa.attention(q, k.bfloat16(), v.half(), schedule={"rows": 64})
        assert out.dtype == torch.bfloat16
        rounded = (q.bfloat16(), k.bfloat16(), v.half().bfloat16())
        with torch.autocast(DEVICE, enabled=False):
            assert_right(out, exact_sdpa(*rounded))
        with (
            pytest.raises(ValueError, match="f64") if DEVICE != "cpu" else contextlib.nullcontext()
        ):
            assert fa.attention(q.double(), k.double(), v.double()).dtype == torch.float64
        arrays = [numbers(x).astype(np.float32) for x in (q, k, v)]
        assert fa.attention(*arrays).dtype == np.float32
        q.requires_grad_()
        assert fa.attention(q, k, v).requires_grad
    other = "cuda" if DEVICE == "cpu" else "cpu"
    with torch.no_grad(), torch.autocast(other, dtype=torch.bfloat16):
        assert fa.attention(q, k, v).dtype == torch.float32


Q, K, V = inputs(key_heads=4)
ERRORS = {
    "dropout": ((Q, K, V), {"dropout_p": 1.5}, ValueError, r"in \[0, 0.996\], got 1.5; it is"),
    "attn_mask with is_causal": (
        (Q, K, V, normal(17, 40)),
        {"is_causal": True},
        ValueError,
        r"got both, attn_mask of shape \[17, 40\]; put",
    ),
    "attn_mask dtype": ((Q, K, V, normal(17, 40).int()), {}, TypeError, "got torch.int32; convert"),
    "attn_mask shape": ((Q, K, V, normal(17, 39)), {}, ValueError, r"got \[17, 39\] for query"),
    "attn_mask shape, 1": ((Q, K, V, normal(40)), {}, ValueError, "2 to 7 dimensions, got"),
    "attn_mask shape, 3": ((Q, K, V, normal(2, 17, 40)), {}, ValueError, r"got \[2, 17, 40\]"),
    "heads": ((Q, K[:, :2], V[:, :2]), {}, ValueError, "pass enable_gqa=True"),
    "heads, grouped": (
        (Q, K[:, :3], V[:, :3]),
        {"enable_gqa": True},
        ValueError,
        "make the heads of query a multiple",
    ),
    "head dim": ((normal(1, 1, 4, 300),) * 3, {}, ValueError, r"in \[1, 256\], got query \[1, 1"),
    "shape": ((Q, K, V[:, :, :3]), {}, ValueError, r"equal S.*value \[2, 4, 3, 24\]"),
    "shape, batch": ((Q[:1].expand(3, 4, 17, 32), K, V), {}, ValueError, "batch dimensions that"),
    "shape, rank": ((Q[0, 0, 0], K, V), {}, ValueError, r"got query \[32\]"),
    "dtype": ((Q.cfloat(), K.cfloat(), V.cfloat()), {}, TypeError, "got torch.complex64"),
    "dtype, mixed": ((Q, K.half(), V), {}, TypeError, "float32, torch.float16 and torch.float32"),
    "device": ((Q, K.to("meta"), V), {}, ValueError, "got cpu, meta, cpu|got cuda:0, meta"),
    "scale": ((Q, K, V), {"scale": float("inf")}, ValueError, "finite scale, got inf; leave"),
    "scale, beyond float64": (
        (Q, K, V),
        {"scale": -(10**400)},
        ValueError,
        "scale, got -inf; leave",
    ),
    "scale, of two": ((Q, K, V), {"scale": torch.ones(2)}, TypeError, r"Tensor of shape \[2\]"),
    "scale, with a gradient": (
        *((Q, K, V), {"scale": torch.tensor(0.3, requires_grad=True)}),
        *(TypeError, r"requires one; give scale.detach\(\), or have a score_mod multiply"),
    ),
    "tensor class": ((Q, K, V.to_sparse()), {}, TypeError, "strided tensors"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_sdpa_errors(name):
    arguments, options, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        fa.torch.sdpa(*arguments, **options)


@pytest.mark.parametrize("function", [fa.attention, fa.torch.sdpa])
def test_a_scale_whose_gradient_would_be_lost(function):
    """Compiled, too; without a gradient it is a number like any other."""
    scale = torch.tensor(0.3, requires_grad=True)

    def call(scale):
        return function(Q, K, V, scale=scale)

    compiled = torch.compile(call, backend="eager")
    for form in (call, compiled):
        with pytest.raises(TypeError, match="expected scale without a gradient"):
            form(scale)
        with torch.no_grad():
            assert torch.equal(form(scale), call(scale.item()))
        assert torch.equal(form(scale.detach()), call(scale.item()))
    factor = scale.clone().detach().requires_grad_()
    score_mod = lambda score, b, h, q_idx, kv_idx: score * factor  # noqa: E731
    out = fa.attention(Q, K, V, score_mod=score_mod, scale=1.0)
    got = torch.autograd.grad(out.square().sum(), factor)[0]
    exact = scale.detach().double().requires_grad_()
    wide = torch.softmax(
        Q.double() @ K.double().repeat_interleave(Q.shape[1] // K.shape[1], 1).mT * exact, -1
    )
    wide = wide @ V.double().repeat_interleave(Q.shape[1] // V.shape[1], 1)
    torch.testing.assert_close(
        got.double(), torch.autograd.grad(wide.square().sum(), exact)[0], rtol=1e-4, atol=1e-4
    )


SLICES = {
    "first": lambda x: x[..., 1:],
    "last": lambda x: x[..., :-1],
    "every second": lambda x: x[..., ::2],
    "transposed": lambda x: x.mT.contiguous().mT,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", SLICES)
@pytest.mark.filterwarnings("ignore:.* is copied in each call")
def test_slices_that_no_vector_load_takes(name, dtype):
    """As PyTorch takes them: a GPU's kernels read copies, and see what changes in between."""
    cut = SLICES[name]
    # Another order of sums on the CPU; elements that are read wrong are off by far more.
    close = functools.partial(torch.testing.assert_close, rtol=4e-3, atol=4e-3)
    dim = {"every second": 64, "transposed": 32}.get(name, 33)
    wide = [normal(2, 2, 40, dim, dtype=dtype, seed=n).requires_grad_() for n in range(3)]
    views = [cut(x) for x in wide]
    plain = [x.detach().contiguous().requires_grad_() for x in views]
    for function in (fa.attention, fa.torch.sdpa):
        with torch.no_grad():
            for _ in range(2):
                close(function(*views), function(*[cut(x).contiguous() for x in wide]))
                wide[1].mul_(0.5)
                wide[1].mul_(2.0)
        out, expected = function(*views), function(*plain)
        grads = torch.autograd.grad(out.float().square().sum(), wide, retain_graph=True)
        others = torch.autograd.grad(expected.float().square().sum(), plain)
        for got, other in zip(grads, others):
            close(cut(got), other)
    if torch.cuda.is_available() and DEVICE != "cpu":
        graph, given = torch.cuda.CUDAGraph(), [x.detach() for x in views]
        fa.attention(*given)
        with torch.cuda.graph(graph):
            out = fa.attention(*given)
        with torch.no_grad():
            wide[0].neg_()
        graph.replay()
        close(out, fa.attention(*[x.contiguous() for x in given]))


@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed")
def test_distributed_tensors():
    """Of several processes: refused by name, as one that is captured."""
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        q, k, v = (distribute_tensor(x.cpu(), mesh, [Shard(1)]) for x in (Q, K, V))
        slopes = distribute_tensor(torch.ones(Q.shape[1]), mesh, [Shard(0)])
        with pytest.raises(NotImplementedError, match=r"a DTensor .*Shard.* give x.to_local\(\)"):
            fa.attention(q, k, v)
        with pytest.raises(NotImplementedError, match="a DTensor with placements"):
            fa.attention(Q.cpu(), K.cpu(), V.cpu(), score_mod=lambda s, b, h, i, j: s * slopes[h])
        with pytest.raises(TypeError, match="got DTensor, DTensor, DTensor"):
            fa.torch.sdpa(q, k, v)
    finally:
        torch.distributed.destroy_process_group()


def test_sdpa_in_transforms():
    with pytest.raises(NotImplementedError, match="transform of torch.func"):
        torch.vmap(fa.torch.sdpa)(Q, K, V)
    with pytest.raises(NotImplementedError, match="use torch.export or torch.compile"):
        torch.jit.trace(fa.torch.sdpa, (Q, K, V))


def test_sdpa_gradients():
    q = Q.clone().requires_grad_()
    differentiate(fa.torch.sdpa(q, K, V), q)


# --- Routing -------------------------------------------------------------------------


class Block(torch.nn.Module):
    """A block as GPT has it."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )
        self.dropout = 0.0

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


def made(module, seed=0):
    """A module in evaluation, with weights that are the same each time."""
    for number, parameter in enumerate(module.parameters()):
        parameter.data = normal(*parameter.shape, seed=seed + number).cpu() / 8
    return module.to(DEVICE).eval()


@pytest.fixture
def sdpa_is_off():
    """Whatever a test leaves on is off afterwards, and was not on before."""
    own, fast_path = F.scaled_dot_product_attention, torch.backends.mha.get_fastpath_enabled()
    yield
    fa.torch.disable_sdpa()
    assert F.scaled_dot_product_attention is own
    assert torch.backends.mha.get_fastpath_enabled() == fast_path


@pytest.mark.usefixtures("sdpa_is_off")
@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_gpt(backend):
    model = made(torch.nn.Sequential(Block(), Block()))
    x = normal(2, 33, 64)
    call = compiled(model, backend) if backend else model
    with torch.no_grad():
        expected = call(x)
        with fa.torch.use_sdpa() as statistics:
            out = call(x)
        assert (statistics.routed, statistics.fell_back) == (2, {})
        assert not torch.equal(out, expected), "it was PyTorch's"
        assert_right(out, expected)
        assert torch.equal(call(x), expected)


@pytest.mark.usefixtures("sdpa_is_off")
@pytest.mark.parametrize("masked", [False, True])
def test_transformer_encoder_layer(masked):
    model = made(torch.nn.TransformerEncoderLayer(64, 4, 96, batch_first=True))
    x, options = normal(3, 21, 64), {}
    seen = torch.ones(3, 21, dtype=torch.bool, device=DEVICE)
    if masked:
        seen[1, 9:] = False
        options = {"src_key_padding_mask": ~seen}
    with torch.no_grad():
        expected = model(x, **options)
        with fa.torch.use_sdpa() as statistics:
            out = model(x, **options)
    assert (statistics.routed, statistics.fell_back) == (1, {})
    assert_right(out[seen], expected[seen])


@pytest.mark.usefixtures("sdpa_is_off")
def test_what_falls_back():
    """Calls that fa does not take are PyTorch's, errors of its own included."""
    total = fa.torch.sdpa_statistics()
    with fa.torch.use_sdpa() as statistics:
        for name, (arguments, options, _, _) in ERRORS.items():
            before = sum(statistics.fell_back.values())
            try:
                F.scaled_dot_product_attention(*arguments, **options)
            except Exception as error:
                assert "fa" not in str(error).split()
            assert sum(statistics.fell_back.values()) == before + 1, name
        torch.vmap(F.scaled_dot_product_attention)(Q, K, V)
        F.scaled_dot_product_attention(Q, K, V)
    reasons = {name.partition(",")[0] for name in ERRORS}
    assert set(statistics.fell_back) == reasons | {"function transform"}
    assert statistics.routed == 1
    assert "1 by fa" in str(statistics) and "dropout 1" in str(statistics)
    now = fa.torch.sdpa_statistics()
    assert now.routed == total.routed + 1
    assert now.fell_back - total.fell_back == statistics.fell_back


@pytest.mark.usefixtures("sdpa_is_off")
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_training(dropout):
    """Calls that record gradients are fa's, compiled or not, and the gradients are right."""
    model, x = made(Block()), normal(2, 9, 64)
    model.dropout = dropout
    model(x).sum().backward()
    expected = model.qkv.weight.grad.clone()
    for call in (model, compiled(model)):
        model.qkv.weight.grad = None
        with fa.torch.use_sdpa() as statistics:
            call(x).sum().backward()
        assert statistics.routed == 1 and not statistics.fell_back
        assert torch.isfinite(model.qkv.weight.grad).all()
        if not dropout:  # which drops other weights than PyTorch's
            assert_right(model.qkv.weight.grad, expected)


@pytest.mark.leaves
@pytest.mark.usefixtures("sdpa_is_off")
@only_cpu
def test_training_that_is_left():
    """Gradients are those of PyTorch, compiled or not, where it takes less time for them."""
    model, x = made(Block()), normal(2, 9, 64)
    model(x).sum().backward()
    expected = model.qkv.weight.grad.clone()
    for call in (model, compiled(model)):
        model.qkv.weight.grad = None
        with fa.torch.use_sdpa() as statistics:
            call(x).sum().backward()
        assert statistics.fell_back == {"gradient": 1} and not statistics.routed
        assert torch.equal(model.qkv.weight.grad, expected)
        with fa.torch.use_sdpa() as statistics:
            model(normal(1, 512, 64)).sum().backward()
        assert statistics.routed == 1 and not statistics.fell_back


@pytest.mark.usefixtures("sdpa_is_off")
def test_switch():
    """On and off, nested, and for modules that imported the function."""
    own = F.scaled_dot_product_attention
    other = types.ModuleType("fa_test_other")
    other.scaled_dot_product_attention = own
    sys.modules[other.__name__] = other
    try:

        def is_routed(function=None):
            before = fa.torch.sdpa_statistics().routed
            (function or F.scaled_dot_product_attention)(Q, K, V)
            return fa.torch.sdpa_statistics().routed == before + 1

        assert not is_routed()
        for _ in range(2):
            fa.torch.enable_sdpa()
            fa.torch.enable_sdpa()
            assert is_routed() and is_routed(other.scaled_dot_product_attention)
            kept = F.scaled_dot_product_attention
            with fa.torch.use_sdpa():
                fa.torch.disable_sdpa()
                with fa.torch.use_sdpa():
                    assert is_routed()
                assert is_routed()
            assert not is_routed()
            # What was imported meanwhile is PyTorch's again.
            assert not is_routed(kept)
            assert other.scaled_dot_product_attention is own
        with pytest.raises(KeyError), fa.torch.use_sdpa():
            raise KeyError
        assert not is_routed()
    finally:
        del sys.modules[other.__name__]


@pytest.mark.usefixtures("sdpa_is_off")
def test_switch_in_threads():
    import threading

    wrong = []

    def is_right(out, exact):
        exact = right.Expected(numbers(exact))
        return right.share(numbers(out), exact.out, exact.limit) <= 1

    def work(seed):
        q = normal(1, 2, 9, 16, seed=seed)
        expected = exact_sdpa(q, q, q)
        for _ in range(50):
            with fa.torch.use_sdpa() as statistics:
                out = F.scaled_dot_product_attention(q, q, q)
            if statistics.routed < 1 or not is_right(out, expected):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- What of PyTorch's fa has no rule for, and what tensors can be besides plain -------


def negated(*shape):
    """A tensor that PyTorch negates when it is read, and its values."""
    x = torch.view_as_complex(normal(*shape, 2)).conj().imag
    assert x.is_neg()
    return x, x.resolve_neg()


PACKED = torch.tensor([0, 5, 17], device=DEVICE)


def packed(q, k, v):
    return fa.attention_varlen(*(x[0].transpose(0, 1) for x in (q, k, v)), PACKED)


CALLS = {"attention": fa.attention, "varlen": packed, "sdpa": fa.torch.sdpa}
calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def same_lengths():
    return inputs(1, 2, 2, 17, 17, 16, 16)


@calls
@pytest.mark.parametrize("is_recording", [False, True])
def test_lazy_negation(call, is_recording):
    tensors, values = zip(*(negated(1, 2, 17, 16) for _ in range(3)))
    with torch.set_grad_enabled(is_recording):
        for at in range(3):
            mixed = [tensors[n] if n == at else values[n] for n in range(3)]
            assert torch.equal(call(*mixed), call(*values))


def test_lazy_negation_of_captured_tensors():
    q, k, v = same_lengths()
    bias, values = negated(17, 17)
    out, exact = (
        fa.attention(q, k, v, score_mod=lambda s, b, h, i, j, x=x: s + x[i, j])
        for x in (bias, values)
    )
    assert torch.equal(out, exact)
    assert torch.equal(fa.torch.sdpa(q, k, v, bias), fa.torch.sdpa(q, k, v, values))


@calls
def test_recorded_graphs(call):
    from torch.fx.experimental.proxy_tensor import make_fx

    first, second = same_lengths(), [x + 1 for x in same_lengths()]
    graph = make_fx(lambda *tensors: call(*tensors))(*first)
    assert torch.equal(graph(*second), call(*second))


@calls
def test_real_tensors_in_a_fake_mode(call):
    from torch._subclasses import FakeTensorMode

    q, k, v = same_lengths()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert isinstance(call(q, k, v), torch._subclasses.FakeTensor)
        assert mode is not None


@calls
def test_transforms_are_refused(call):
    tensors = same_lengths()
    transforms = [
        lambda: torch.vmap(call)(*(x[None] for x in tensors)),
        lambda: torch.func.jvp(call, tensors, tensors),
        lambda: torch.func.functionalize(call)(*tensors),
        lambda: torch.jit.trace(lambda *x: call(*x), tensors),
    ]
    for transform in transforms:
        with pytest.raises(NotImplementedError, match="transform of torch.func|torch.jit.trace"):
            transform()


@calls
@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("is_recording", [False, True])
def test_forward_gradients_are_refused(call, at, is_recording):
    tensors = list(same_lengths())
    exact = call(*tensors)
    forward = torch.autograd.forward_ad
    with forward.dual_level(), torch.set_grad_enabled(is_recording):
        assert torch.equal(call(*tensors), exact)
        tensors[at] = forward.make_dual(tensors[at], torch.ones_like(tensors[at]))
        with pytest.raises(NotImplementedError, match="without a forward gradient"):
            call(*tensors)


def test_forward_gradients_fall_back():
    q, k, v = same_lengths()
    forward = torch.autograd.forward_ad
    math = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with forward.dual_level(), math, fa.torch.use_sdpa() as statistics:
        out = F.scaled_dot_product_attention(forward.make_dual(q, torch.ones_like(q)), k, v)
        assert forward.unpack_dual(out).tangent is not None
    assert statistics.fell_back == {"forward gradient": 1} and not statistics.routed


@pytest.mark.parametrize("requires_grad", [False, True])
def test_captured_tensors_without_strides_or_values(requires_grad):
    q, k, v = same_lengths()
    q.requires_grad_(requires_grad)
    for bias in (torch.ones(17).to_sparse(), torch.ones(17, device="meta")):
        with pytest.raises((TypeError, fa.TraceError), match="strided tensor|meta"):
            fa.attention(q, k, v, score_mod=lambda s, b, h, i, j, x=bias: s + x[j])


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "coo"])
@pytest.mark.parametrize("width", [17, 1])
def test_captured_sparse_tensors(layout, width):
    bias = torch.ones(17, width, device=DEVICE)
    options = {"blocksize": (1, 1)} if layout == "bsr" else {}
    sparse = getattr(bias, "to_sparse" if layout == "coo" else f"to_sparse_{layout}")(**options)

    def score_mod(s, b, h, i, j):
        return s + bias[i, 0]

    fa.attention(*same_lengths(), score_mod=score_mod)
    bias = sparse  # in the place of a tensor that was read
    with pytest.raises(fa.TraceError, match=rf"layout torch.sparse_{layout}.*to_dense\(\)"):
        fa.attention(*same_lengths(), score_mod=score_mod)


def test_symbolic_trace_of_a_routed_model():
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    q, k, v = same_lengths()
    with fa.torch.use_sdpa():
        graph = torch.fx.symbolic_trace(Model())
        assert_right(graph(q, k, v), exact_sdpa(q, k, v, is_causal=True))


@pytest.mark.usefixtures("sdpa_is_off")
@pytest.mark.filterwarnings("ignore:.*is deprecated")
def test_script_of_a_routed_function():
    """It has PyTorch's own, then and later, and can be saved."""

    def call(q, k, v, mask: torch.Tensor | None):
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, scale=0.5)

    with fa.torch.use_sdpa() as statistics:
        script = torch.jit.script(call)
        layer = torch.jit.script(made(torch.nn.TransformerEncoderLayer(64, 4, batch_first=True)))
        routed = [script(Q, K, V, mask) for mask in (None, normal(17, 40))]
        x = layer(normal(2, 9, 64))
    assert not statistics.routed and not statistics.fell_back
    buffer = io.BytesIO()
    torch.jit.save(script, buffer)
    buffer.seek(0)
    for function in (call, script, torch.jit.load(buffer)):
        for mask, out in zip((None, normal(17, 40)), routed):
            assert torch.equal(function(Q, K, V, mask), out)
    assert_right(x, layer(normal(2, 9, 64)))


def test_sdpa_scale_beyond_float32():
    with pytest.raises(ValueError, match="finite scale"):
        fa.torch.sdpa(*same_lengths(), scale=1e39)


def doubled(s, b, h, i, j):
    return s * 2 + (i - j)


class Doubled(torch.nn.Module):
    def forward(self, *arguments):
        return doubled(*arguments)

    @torch.compile
    def method(self, *arguments):
        return doubled(*arguments)

    def outer(self, *arguments):
        return self.method(*arguments)


def compiled_in_place():
    module = Doubled()
    module.compile()
    return module


@functools.wraps(torch.compile(doubled))
def one_more(s, *arguments):
    return doubled(s, *arguments) + 1


INNER = torch.compile(doubled)
COMPILED = {
    "function": lambda: torch.compile(doubled),
    "twice": lambda: torch.compile(torch.compile(doubled)),
    "disabled": lambda: torch.compiler.disable(doubled),
    "partial": lambda: functools.partial(torch.compile(doubled)),
    "module": lambda: torch.compile(Doubled()),
    "module in place": compiled_in_place,
    "method": lambda: Doubled().method,
    "inner": lambda: lambda *arguments: INNER(*arguments),
    "inner method": lambda: Doubled().outer,
    "copied attributes": lambda: lambda s, *arguments: one_more(s, *arguments) - 1,
}


@pytest.mark.parametrize("name", COMPILED)
def test_functions_that_are_compiled(name):
    """The function that torch.compile was given is traced."""
    torch._dynamo.reset()
    q, k, v = same_lengths()
    expected = fa.attention(q, k, v, score_mod=doubled)
    function = COMPILED[name]()
    for _ in range(2):
        out = fa.attention(q, k, v, score_mod=function)
        assert_right(out, expected.double())


def test_masks_that_are_compiled():
    q, k, v = same_lengths()
    causal = torch.compile(fa.masks.causal)
    expected = fa.attention(q, k, v, is_causal=True)
    for mask in (causal, fa.masks.and_masks(causal, fa.masks.causal)):
        assert_right(fa.attention(q, k, v, mask_mod=mask), expected.double())
    assert fa.trace(mask_mod=causal) == fa.trace(mask_mod=fa.masks.causal)


def test_functions_that_compile():
    """What is compiled while a function is traced runs as it was written."""
    torch._dynamo.reset()
    out = fa.attention(Q, K, V, score_mod=lambda *arguments: torch.compile(doubled)(*arguments))
    assert torch.equal(out, fa.attention(Q, K, V, score_mod=doubled))


@needs_functions
@pytest.mark.parametrize("is_argument", [False, True])
def test_compiled_block_mask(is_argument):
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    q, k, v = same_lengths()
    causal = flex.create_block_mask(fa.masks.causal, None, None, 17, 17, DEVICE, BLOCK_SIZE=8)

    def call(q, k, v, mask):
        return fa.attention(q, k, v, mask_mod=mask if is_argument else causal)

    assert_right(compiled(call)(q, k, v, causal), exact_sdpa(q, k, v, is_causal=True))


@pytest.mark.ci
@needs_functions
def test_numbers_that_are_symbols_in_compiled_code():
    """With dynamic=True a scale and a function's number are symbols, not constants."""
    q = torch.randn(1, 2, 17, 16, device=DEVICE)

    def call(q, scale, cap):
        def score_mod(score, b, h, q_idx, kv_idx):
            return cap * torch.tanh(score / cap)

        return fa.attention(q, q, q, score_mod=score_mod, scale=scale)

    dynamic = compiled(call, dynamic=True)
    for scale, cap in ((2.0, 1.0), (0.3, 1.0), (0.3, 5.0)):
        assert torch.equal(dynamic(q, scale, cap), call(q, scale, cap))
