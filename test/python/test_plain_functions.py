# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa.math, fa.scores and fa.masks where fa does not trace: on tensors, arrays and numbers."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys

import fa
import numpy as np
import pytest

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 40, 8
GENERATOR = torch.Generator().manual_seed(0)
NAMES = [name for name in fa.math.__all__ if name != "cast"]
POINTS = [-2.75, -1.0, -0.4, 0.0, 0.3, 0.5, 0.7, 1.0, 3.5]
NOT_OF_NUMPY = {
    *("rsqrt", "erf", "sigmoid", "silu", "relu", "leaky_relu", "softplus", "logsigmoid", "gelu"),
    *("elu", "celu", "selu", "hardtanh", "relu6", "hardsigmoid", "hardswish", "mish", "softsign"),
    *("tanhshrink", "xlogy", "frac", "lerp"),
}


def normal(*shape):
    return torch.randn(*shape, generator=GENERATOR)


SCORES = {
    "softcap": fa.scores.softcap(2.0),
    "softcap of a tensor": fa.scores.softcap(torch.tensor(1.5)),
    "alibi": fa.scores.alibi(HEADS),
    "slopes": fa.scores.alibi(torch.tensor([0.5, 0.25, 1.0, 2.0])),
    "compose": fa.scores.compose(fa.scores.softcap(1.0), fa.scores.alibi(HEADS)),
    "bias": fa.scores.bias(normal(HEADS, LENGTH, LENGTH)),
    "bias of one": fa.scores.bias(normal(LENGTH, LENGTH).expand(BATCH, HEADS, -1, -1)),
    "relative": fa.scores.relative_position(normal(HEADS, 21)),
    "t5": fa.scores.t5_bias(normal(32, HEADS)),
    "t5 decoder": fa.scores.t5_bias(normal(32, HEADS), bidirectional=False),
}
MASKS = {
    "causal": fa.masks.causal,
    "window": fa.masks.sliding_window(5, 2),
    "window of tensors": fa.masks.sliding_window(torch.tensor(5)),
    "documents": fa.masks.documents(torch.arange(LENGTH) // 7),
    "documents by entry": fa.masks.documents(torch.arange(LENGTH).expand(BATCH, -1) // 9),
    "padding": fa.masks.padding(torch.tensor([5, 30])),
    "prefix": fa.masks.prefix(7),
    "prefix by entry": fa.masks.prefix(torch.tensor([3, 9])),
    "dilated": fa.masks.dilated(3, 9),
    "sinks": fa.masks.attention_sink(7, 2),
    "not": fa.masks.not_mask(fa.masks.causal),
    "or": fa.masks.or_masks(fa.masks.causal, fa.masks.prefix(9)),
    "and": fa.masks.and_masks(fa.masks.causal, fa.masks.dilated(2)),
    "blocks": fa.masks.block_sparse(torch.rand(4, 4, generator=GENERATOR) > 0.3, 10),
    "lengths": fa.masks.causal_lengths(torch.tensor([30, 40]), torch.tensor([40, 20])),
}
WITH_LENGTHS = {
    "causal_bottom_right": fa.masks.causal_bottom_right,
    "neighbourhood": fa.masks.neighbourhood(5),
    "neighbourhood_2d": fa.masks.neighbourhood_2d(3, WIDTH),
}


def coordinates():
    sizes = (BATCH, HEADS, LENGTH, LENGTH)
    return [
        torch.arange(size).view([-1 if at == own else 1 for at in range(4)])
        for own, size in enumerate(sizes)
    ]


def mixed(score, b, h, q_idx, kv_idx):
    """Numbers in many places, options in others than PyTorch's, and types."""
    m = fa.math
    result = m.leaky_relu(score, 0.2) + m.clamp(score, -1, 1) + m.clamp(score, max=0.5)
    result = result + m.gelu(score, approximate="tanh") + m.where(q_idx > kv_idx, score, 1.0)
    result = result + m.cast(m.maximum(q_idx - kv_idx, 2), float) * m.minimum(score, 0.3)
    result = result + m.softplus(score, 2.0) + m.pow(score, 2) + m.where(score > 0, 1, 2)
    return result + m.cast(score, "bfloat16") + m.isclose(score, 0.2, rtol=0.5)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", [*SCORES, "mixed"])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_scores_in_flex_attention(name, compiled):
    score_mod = SCORES.get(name, mixed)
    q, k, v = (normal(BATCH, HEADS, LENGTH, 16) for _ in range(3))
    torch._dynamo.reset()
    function = flex.flex_attention
    if compiled:
        function = torch.compile(function, backend="aot_eager", fullgraph=True)
    out = function(q, k, v, score_mod=score_mod)
    torch.testing.assert_close(out, fa.attention(q, k, v, score_mod=score_mod), atol=1e-5, rtol=0)


@pytest.mark.ci
def test_scores_without_the_operators_of_fa():
    """Where nothing was told to torch.compile about fa.math, by `import fa.torch`."""
    code = """
import sys, torch, fa
from torch.nn.attention.flex_attention import flex_attention
q = torch.randn(1, 4, 24, 16)
for score_mod in (fa.scores.alibi(4), fa.scores.t5_bias(torch.randn(32, 4)), fa.scores.softcap(2.0)):
    out = torch.compile(flex_attention, backend="aot_eager", fullgraph=True)(q, q, q, score_mod)
    assert "fa._torch.compile" not in sys.modules
    score = q @ q.mT * 16**-0.5
    at = [torch.arange(n).view([-1 if i == m else 1 for i in range(4)])
          for m, n in enumerate((1, 4, 24, 24))]
    expected = torch.softmax(score_mod(score, *at), -1) @ q
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", MASKS)
def test_masks_on_indices_and_in_block_masks(name):
    mask = MASKS[name]
    given = flex.create_mask(mask, BATCH, HEADS, LENGTH, LENGTH, device="cpu")
    assert torch.equal(mask(*coordinates()).expand(given.shape), given)
    traced = fa.attention(
        torch.zeros(BATCH, HEADS, LENGTH, 16),
        torch.zeros(BATCH, HEADS, LENGTH, 16),
        torch.eye(LENGTH).expand(BATCH, HEADS, -1, -1),
        mask_mod=mask,
    )
    assert torch.equal(traced > 0, given)
    blocks = flex.create_block_mask(mask, BATCH, HEADS, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=8)
    assert torch.equal(
        blocks.to_dense().bool(), given.unflatten(2, (-1, 8)).unflatten(4, (-1, 8)).any(3).any(4)
    )


@pytest.mark.parametrize("name", WITH_LENGTHS)
def test_masks_that_ask_for_a_length(name):
    message = r"_length\(\) is known only where fa traces .*; call fa.attention, or capture"
    with pytest.raises(fa.TraceError, match=message):
        flex.create_mask(WITH_LENGTHS[name], BATCH, HEADS, LENGTH, LENGTH, device="cpu")
    with pytest.raises(fa.TraceError, match=message):
        WITH_LENGTHS[name](*coordinates())


def test_vmap():
    values = normal(5, 7)
    double = torch.vmap(torch.vmap(lambda x: fa.math.maximum(fa.math.tanh(x) * 2, 0.5)))
    assert torch.equal(double(values), (values.tanh() * 2).clamp(min=0.5))


# --- Functions of fa.math -----------------------------------------------------------------


def call(name, values, number=0.5):
    """A function with as many arguments as it needs, the first one of them given."""
    parameters = inspect.signature(getattr(fa.math, name)).parameters.values()
    count = len([p for p in parameters if p.default is p.empty])
    args = [values, number, 0.25][:count]
    if name == "where":
        args = [values > number, values, number]
    if name == "clamp":
        args = [values, number]
    return args


def theirs(name):
    for space in (torch, torch.nn.functional, torch.special):
        if hasattr(space, name):
            return getattr(space, name)
    raise AssertionError(name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_of_tensors_they_are_pytorchs(name, dtype):
    values = torch.tensor(POINTS, dtype=dtype)
    args = call(name, values)
    got = getattr(fa.math, name)(*args)
    as_tensors = [x if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=dtype) for x in args]
    expected = theirs(name)(*as_tensors)
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.filterwarnings("ignore:(invalid|divide by zero)")
@pytest.mark.parametrize("name", NAMES)
def test_of_arrays_they_are_numpys(name):
    values = np.array(POINTS, np.float32)
    args = call(name, values)
    if name in NOT_OF_NUMPY:
        with pytest.raises(TypeError, match=f"fa.math.{name}, got an array of numpy.*; convert it"):
            getattr(fa.math, name)(*args)
        return
    got = getattr(fa.math, name)(*args)
    assert isinstance(got, np.ndarray)
    expected = getattr(fa.math, name)(
        *(torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in args)
    )
    assert str(got.dtype) == str(expected.dtype).removeprefix("torch.")
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore:(invalid|divide by zero)")
@pytest.mark.parametrize("name", NAMES)
def test_of_numbers_they_are_numbers(name):
    for value in (0.5, 0.75, 1.5):
        got = getattr(fa.math, name)(*call(name, value, 0.75))
        tensors = [torch.tensor(x, dtype=torch.float64) for x in call(name, value, 0.75)]
        if name == "where":
            tensors[0] = tensors[0].bool()
        expected = theirs(name)(*tensors).item()
        assert type(got) is type(expected)
        assert got == pytest.approx(expected, rel=1e-12, nan_ok=True)
    assert type(fa.math.abs(-3)) is int and fa.math.maximum(2, 3) == 3


def test_options_by_place_and_by_name():
    values, array = torch.tensor([0.3, math.nan]), np.array([0.3, math.nan])
    assert fa.math.nan_to_num(values, 1.0)[1] == fa.math.nan_to_num(array, 1.0)[1] == 1.0
    assert fa.math.clamp(values, None, 0.2)[0] == np.float32(0.2)
    assert fa.math.clamp(array, max=0.2)[0] == fa.math.clamp_max(array, 0.2)[0] == 0.2
    assert fa.math.div(torch.tensor(-7), 2, rounding_mode="floor") == -4
    with pytest.raises(TypeError):
        fa.math.tanh()
    with pytest.raises(TypeError):
        fa.math.tanh(values, values, values)


def test_numbers_promote_no_tensor():
    assert fa.math.maximum(torch.ones(2, dtype=torch.float16), 0.5).dtype == torch.float16
    assert fa.math.maximum(torch.ones(2, dtype=torch.int32), 3).dtype == torch.int32
    assert fa.math.maximum(torch.ones(2, dtype=torch.int32), 0.5).dtype == torch.float32


def test_cast():
    assert fa.math.cast(torch.tensor([1.7]), int).dtype == torch.int64
    assert fa.math.cast(torch.tensor([1]), float).dtype == torch.float32
    assert fa.math.cast(torch.tensor([1]), torch.bfloat16).dtype == torch.bfloat16
    assert fa.math.cast(np.array([1.7]), "float32").dtype == np.float32
    assert fa.math.cast(np.array([1]), bool).dtype == np.bool_
    assert fa.math.cast(1.7, int) == 1 and fa.math.cast(2, float) == 2.0
    with pytest.raises(ValueError, match="to cast to, got complex64; take one of them"):
        fa.math.cast(torch.tensor([1.0]), torch.complex64)


def test_they_say_what_they_are():
    assert str(inspect.signature(fa.math.clamp)).startswith("(x: 'Any', min: 'Any' = None")
    assert fa.math.tanh.__name__ == "tanh" and fa.math.tanh.__module__ == "fa.math"
    assert "Hyperbolic" in fa.math.tanh.__doc__
