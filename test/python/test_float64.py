# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of float64, which the CPU target computes in float64 throughout.

Results are judged by right.py's rule, and some against NumPy's longdouble, where that is
longer; gradients also by `torch.autograd.gradcheck`, which asks for float64.
"""

from __future__ import annotations

import math

import fa
import naive
import numpy as np
import pytest
import right
from fa._run.config import AttentionConfig
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import fa.torch  # noqa: E402
from fa import math as m  # noqa: E402

needs_longer = pytest.mark.skipif(
    np.finfo(np.longdouble).eps >= np.finfo(np.float64).eps, reason="longdouble is float64 here"
)


def arrays(batch, heads, key_heads, rows, keys, dim, value_dim, seed=0):
    random = np.random.default_rng(seed)
    shapes = [
        (batch, heads, rows, dim),
        (batch, key_heads, keys, dim),
        (batch, key_heads, keys, value_dim),
    ]
    return naive.telling(*(random.standard_normal(shape) for shape in shapes))


def tensors(*shape, seed=0, grad=False):
    made = [torch.from_numpy(x.copy()) for x in arrays(*shape, seed)]
    return [x.requires_grad_() for x in made] if grad else made


# --- The forward ---------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 3),
    st.sampled_from([(1, 1), (4, 1), (8, 2)]),
    st.integers(1, 130),
    st.integers(0, 130),
    st.sampled_from([(16, 16), (32, 80), (96, 24), (5, 3), (256, 256)]),
    st.booleans(),
    st.integers(0, 2**16),
)
def test_shapes(batch, heads, rows, keys, dims, is_causal, seed):
    q, k, v = arrays(batch, *heads, rows, keys, *dims, seed)
    mask = {"mask": lambda b, h, i, j: j <= i} if is_causal else {}
    out, lse = fa.attention(q, k, v, is_causal=is_causal, return_lse=True)
    assert out.dtype == lse.dtype == np.float64
    right.assert_right(out, right.attention(q, k, v, **mask), lse)


@needs_longer
@pytest.mark.parametrize("length", [1, 17, 333, 1000])
def test_against_longer_numbers(length):
    q, k, v = arrays(1, 2, 2, length, length, 64, 48)
    wide = [x.astype(np.longdouble) for x in (q, k, v)]
    s = wide[0] @ wide[1].swapaxes(-1, -2) * np.longdouble(0.125)
    s = np.tanh(s / 30) * 30
    top = s.max(-1, keepdims=True)
    p = np.exp(s - top)
    expected = p @ wide[2] / p.sum(-1, keepdims=True)
    cap = lambda s, b, h, i, j: m.tanh(s / 30) * 30  # noqa: E731
    out, lse = fa.attention(q, k, v, score_mod=cap, return_lse=True)
    assert np.abs(out - expected).max() <= 1e-14 * np.abs(expected).max()
    assert np.abs(lse - (top + np.log(p.sum(-1, keepdims=True)))[..., 0]).max() <= 1e-14


def test_a_constant_is_no_float32():
    # In float32 0.1 is wrong by 1.5e-9.
    q, k, v = arrays(1, 2, 2, 30, 40, 16, 16)
    score = lambda s, b, h, i, j: s * 0.1 + 0.3 * (i - j)  # noqa: E731
    out, lse = fa.attention(q, k, v, score_mod=score, return_lse=True)
    right.assert_right(out, right.attention(q, k, v, score=score), lse)


FUNCTIONS = ["exp", "exp2", "expm1", "log1p", "sqrt", "tanh", "sin", "cos", "erf", "atan", "sinh"]
FUNCTIONS += ["asinh", "sigmoid", "softplus", "gelu", "log", "log2", "log10", "rsqrt", "cosh"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    q, k, v = arrays(1, 2, 1, 19, 35, 8, 8)
    own = {"sigmoid": torch.sigmoid, "erf": torch.erf}
    function = own.get(name) or getattr(torch, name, None) or getattr(torch.nn.functional, name)

    def formula(s, b, h, i, j):
        return function(torch.from_numpy(np.abs(s) + 0.1)).numpy()

    score = lambda s, b, h, i, j: getattr(m, name)(m.abs(s) + 0.1)  # noqa: E731
    out, lse = fa.attention(q, k, v, score_mod=score, return_lse=True)
    right.assert_right(out, right.attention(q, k, v, score=formula, has_large_scores=True), lse)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
def test_casts_round(name):
    q, k, v = tensors(1, 2, 1, 19, 35, 8, 8)
    dtype = getattr(torch, name)
    out = fa.attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (b + 1 / 3 + h).to(dtype))
    rounded = torch.tensor([1 / 3, 4 / 3], dtype=torch.float64).to(dtype).double()
    own = lambda s, b, h, i, j: s + rounded.numpy()[h]  # noqa: E731
    right.assert_right(out, right.attention(q, k, v, score=own))
    third = torch.tensor(1 / 3, dtype=torch.float64).to(dtype).double().item()
    _, lse = fa.attention(
        q, k, v, return_lse=True, score_mod=lambda s, b, h, i, j: s * 0 + (b + 1 / 3).to(dtype)
    )
    assert abs(lse - math.log(35) - third).max() < 1e-14


def test_double_needs_float64():
    q, k, v = (x.float() for x in tensors(1, 1, 1, 4, 4, 8, 8))
    with pytest.raises(fa.TraceError, match="to float64; .*or make query, key and value float64"):
        fa.attention(q, k, v, score_mod=lambda s, b, h, i, j: s.double())


def test_integers_of_32_bits():
    q, k, v = arrays(1, 1, 1, 3, 4, 8, 8)
    seen = lambda b, h, i, j: m.cast((j + 2147483600.0), int) == j + 2147483600  # noqa: E731
    out = fa.attention(q, k, v, mask_mod=seen)
    right.assert_right(out, right.attention(q, k, v))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_captured(dtype):
    q, k, v = tensors(2, 4, 2, 20, 30, 16, 16)
    bias = torch.randn(4, 20, 30, dtype=torch.float64).to(getattr(torch, dtype))
    score = lambda s, b, h, i, j: s + bias[h, i, j]  # noqa: E731
    out, lse = fa.attention(q, k, v, score_mod=score, return_lse=True)
    own = lambda s, b, h, i, j: s + bias.double().numpy()[h, i, j]  # noqa: E731
    right.assert_right(out, right.attention(q, k, v, score=own), lse)


def test_captured_by_float32_is_refused():
    q, k, v = (x.float() for x in tensors(1, 1, 1, 4, 4, 8, 8))
    bias = torch.zeros(4, dtype=torch.float64)
    with pytest.raises(fa.TraceError, match=r"capture x.float\(\).*or make query, key and value"):
        fa.attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[j])
    out = fa.attention(
        *(x.double() for x in (q, k, v)), score_mod=lambda s, b, h, i, j: s + bias[j]
    )
    assert out.dtype == torch.float64


def test_one_function_for_both_types():
    """A trace is kept for the type that it was made for."""
    q, k, v = tensors(1, 2, 2, 9, 11, 8, 8)
    score = lambda s, b, h, i, j: s * 0.1  # noqa: E731
    for _ in range(2):
        for kind in (torch.float32, torch.float64):
            given = [x.to(kind) for x in (q, k, v)]
            out, lse = fa.attention(*given, score_mod=score, return_lse=True)
            assert out.dtype == lse.dtype == kind
            own = lambda s, b, h, i, j: s * 0.1  # noqa: E731
            right.assert_right(out, right.attention(*given, score=own), lse)


def test_rows_with_nothing_to_attend():
    q, k, v = tensors(1, 2, 2, 7, 9, 16, 16, grad=True)
    out, lse = fa.attention(q, k, v, mask_mod=lambda b, h, i, j: j < i - 3, return_lse=True)
    assert (out[:, :, :4] == 0).all() and (lse[:, :, :4] == -math.inf).all()
    out.sum().backward()
    assert (q.grad[:, :, :4] == 0).all()
    assert all(x.grad.isfinite().all() for x in (q, k, v))


def test_strides():
    q, k, v = (x.transpose(1, 2) for x in tensors(2, 30, 40, 4, 4, 32, 32)[:1] * 3)
    right.assert_right(fa.attention(q, k, v), right.attention(q, k, v))
    inner = [x.mT.contiguous().mT for x in (q, k, v)]
    right.assert_right(fa.attention(*inner), right.attention(q, k, v))


def test_dropout():
    q, k, v = tensors(2, 2, 2, 20, 64, 16, 16)
    out = fa.attention(q, k, v, dropout_p=0.25, dropout_seed=3)
    kept = naive.kept(3, (2, 2, 20, 64), 64)
    right.assert_right(out, right.attention(q, k, v, keep=kept, factor=256 / 192))


def test_varlen():
    offsets = torch.tensor([0, 5, 5, 18], dtype=torch.int32)
    q, k, v = (torch.randn(18, 2, 16, dtype=torch.float64, requires_grad=True) for _ in range(3))
    out, lse = fa.attention_varlen(q, k, v, offsets, is_causal=True, return_lse=True)
    assert out.dtype == lse.dtype == torch.float64
    for first, end in ((0, 5), (5, 18)):
        own = [x[None, first:end].transpose(1, 2) for x in (q, k, v)]
        expected = torch.nn.functional.scaled_dot_product_attention(*own, is_causal=True)
        torch.testing.assert_close(out[first:end], expected[0].transpose(0, 1), rtol=0, atol=1e-13)

    def packed(*given):
        return fa.attention_varlen(*given, offsets, is_causal=True)

    assert torch.autograd.gradcheck(packed, (q, k, v), fast_mode=True)


# --- PyTorch's doors ----------------------------------------------------------------------


@pytest.mark.parametrize("mask", [None, torch.bool, torch.float64, torch.float32])
def test_sdpa(mask):
    q, k, v = tensors(2, 4, 4, 12, 20, 16, 16, grad=True)
    given = None
    if mask is not None:
        given = torch.randn(2, 1, 12, 20, dtype=torch.float64)
        given = given > -0.5 if mask is torch.bool else given.to(mask)
    for _ in range(2):  # the second call may take a shorter way
        out = fa.torch.sdpa(q, k, v, attn_mask=given)
        wide = given.double() if mask is torch.float32 else given
        own = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=wide)
        torch.testing.assert_close(out, own, rtol=1e-13, atol=1e-13)
    assert torch.autograd.gradcheck(
        lambda *x: fa.torch.sdpa(*x, attn_mask=given), (q, k, v), fast_mode=True
    )


def test_sdpa_takes_no_wider_mask():
    q, k, v = (x.float() for x in tensors(1, 2, 2, 5, 6, 8, 8))
    with pytest.raises(TypeError, match="or of float64 as query is, got torch.float64"):
        fa.torch.sdpa(q, k, v, attn_mask=torch.zeros(5, 6, dtype=torch.float64))


def test_flex_attention():
    from torch.nn.attention.flex_attention import flex_attention

    q, k, v = tensors(1, 4, 4, 16, 16, 16, 16)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.1], dtype=torch.float64)
    score = lambda s, b, h, i, j: s + slopes[h] * (i - j)  # noqa: E731
    out, lse = fa.torch.flex_attention(q, k, v, score_mod=score, return_lse=True)
    own = flex_attention(q, k, v, score_mod=score)
    assert out.dtype == lse.dtype == torch.float64
    torch.testing.assert_close(out, own, rtol=1e-13, atol=1e-13)


def test_compiled():
    q, k, v = tensors(1, 2, 2, 9, 11, 8, 8, grad=True)
    bias = torch.randn(9, 11, dtype=torch.float64, requires_grad=True)

    def call(q, k, v, bias):
        score = lambda s, b, h, i, j: s * 0.1 + bias[i, j]  # noqa: E731
        out, lse = fa.attention(q, k, v, score_mod=score, return_lse=True)
        return out.sum() + lse.sum()

    made = torch.compile(call, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(made(q, k, v, bias), call(q, k, v, bias), rtol=1e-13, atol=0)
    found = torch.autograd.grad(made(q, k, v, bias), (q, k, v, bias))
    own = torch.autograd.grad(call(q, k, v, bias), (q, k, v, bias))
    for x, y in zip(found, own):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-13)


# --- Gradients ------------------------------------------------------------------------------


def _captured(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


SCORES = {
    "none": (None, lambda: ()),
    "cap": (lambda s, b, h, i, j: m.tanh(s / 2) * 2, lambda: ()),
    "alibi": (lambda s, b, h, i, j: s - abs(i - j) / 8, lambda: ()),
    "powers": (lambda s, b, h, i, j: s + 0.1 * s * s + m.exp(s * 0.3) * 0.1, lambda: ()),
    "bias": (lambda s, b, h, i, j, bias: s + bias[h, i, j], lambda: (_captured(4, 5, 7),)),
    "table": (lambda s, b, h, i, j, table: s * table[h, i - j + 6], lambda: (_captured(4, 12),)),
    "branch": (
        lambda s, b, h, i, j, x, y: m.where(i > j, s * x[h], m.sin(s) + y[j]),
        lambda: (_captured(4), _captured(7)),
    ),
}
MASKS = {
    "none": None,
    "causal": lambda b, h, i, j: j <= i,
    "holes": lambda b, h, i, j: (i + j) % 3 != 0,
    "some rows": lambda b, h, i, j: (j < i) & (h != 1),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", SCORES)
def test_gradcheck(score, mask):
    function, make = SCORES[score]
    torch.manual_seed(0)
    captured = make()
    q, k, v = tensors(2, 4, 2, 5, 7, 6, 3, grad=True)

    def attention(q, k, v, *captured):
        own = function and (lambda *at: function(*at, *captured))
        options = {"score_mod": own, "mask_mod": MASKS[mask], "return_lse": mask != "some rows"}
        return fa.attention(q, k, v, **options)

    assert torch.autograd.gradcheck(attention, (q, k, v, *captured), fast_mode=True)


def test_gradcheck_of_every_element():
    q, k, v = tensors(1, 2, 1, 3, 4, 3, 2, grad=True)
    bias = _captured(2, 3, 4)
    attention = lambda q, k, v, bias: fa.attention(  # noqa: E731
        q, k, v, score_mod=lambda s, b, h, i, j: m.tanh(s) + bias[h, i, j], return_lse=True
    )
    assert torch.autograd.gradcheck(attention, (q, k, v, bias))


def test_gradcheck_of_dropout():
    q, k, v = tensors(1, 2, 1, 5, 7, 6, 3, grad=True)
    attention = lambda *x: fa.attention(*x, dropout_p=0.25, dropout_seed=1, scale=0.3)  # noqa: E731
    assert torch.autograd.gradcheck(attention, (q, k, v), fast_mode=True)


def test_gradgradcheck_is_refused():
    q, k, v = tensors(1, 2, 1, 5, 7, 6, 3, grad=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.gradgradcheck(fa.attention, (q, k, v))


@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (17, 40), (130, 70), (200, 200)])
@pytest.mark.parametrize("score", SCORES)
def test_gradients(score, rows, keys):
    """Against PyTorch's autograd of the formula, by the rule: 1e-12."""
    function, make = SCORES[score]
    shapes = {"bias": (4, rows, keys), "table": (4, rows + keys)}
    captured = [_captured(*shapes[score])] if score in shapes else list(make())
    if score == "branch":
        captured[1] = _captured(keys)
    q, k, v = tensors(1, 4, 2, rows, keys, 16, 24, grad=True)

    def own_score(*at):
        at = (*at[:4], at[4] + keys - 7) if score == "table" else at
        return function(*at, *captured)

    def formula(q, k, v, *captured, dtype=None):
        own = function and (lambda s, b, h, i, j: function(s, b, h, i, j, *captured))
        if score == "table":
            own = lambda s, b, h, i, j: s * captured[0][h, i - j + keys - 1]  # noqa: E731
        return naive.differentiable(q, k, v, score=own, dtype=dtype)

    if score == "table":
        own_score = lambda s, b, h, i, j: s * captured[0][h, i - j + keys - 1]  # noqa: E731
    inputs = (q, k, v, *captured)
    results = fa.attention(q, k, v, score_mod=function and own_score, return_lse=True)
    grads = [torch.randn_like(x) for x in results]
    found = torch.autograd.grad(results, inputs, grads)
    expected = right.gradients(formula, inputs, grads)
    for gradient, own in zip(found, expected):
        assert gradient.dtype == torch.float64
        if rows == keys == 1:  # of one key's weight, which is 1, nothing is left but roundings
            own = right.replace(own, terms=1e3)
        right.assert_right_gradient(gradient, own)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_gradient_of_a_captured_tensor_has_its_type(dtype):
    q, k, v = tensors(1, 2, 2, 9, 11, 8, 8)
    bias = torch.randn(9, 11, dtype=torch.float64).to(getattr(torch, dtype)).requires_grad_()
    out = fa.attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[i, j])
    (grad,) = torch.autograd.grad(out.sum(), bias)
    wide = bias.detach().double().requires_grad_()
    s = q @ k.mT * 8**-0.5 + wide
    (own,) = torch.autograd.grad((s.softmax(-1) @ v).sum(), wide)
    assert grad.dtype == bias.dtype
    unit = torch.finfo(bias.dtype).eps
    torch.testing.assert_close(grad.double(), own, rtol=unit, atol=1e-12)


def test_attention_backward_of_numpy():
    q, k, v = arrays(1, 2, 1, 9, 11, 8, 8)
    out, lse = fa.attention(q, k, v, return_lse=True)
    found = fa.attention_backward(q, k, v, out, lse, np.ones_like(out))
    given = [torch.from_numpy(x.copy()).requires_grad_() for x in (q, k, v)]
    own = torch.nn.functional.scaled_dot_product_attention(*given, enable_gqa=True)
    for x, y in zip(found, torch.autograd.grad(own.sum(), given)):
        assert x.dtype == np.float64
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="lse of shape .* and element type f64, got .* and f32"):
        fa.attention_backward(q, k, v, out, lse.astype(np.float32), np.ones_like(out))


# --- What is refused -----------------------------------------------------------------------


def test_mixed_types():
    q, k, v = arrays(1, 2, 1, 9, 11, 8, 8)
    with pytest.raises(ValueError, match="value of element type f64 like query, got f32"):
        fa.attention(q, k, v.astype(np.float32))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_gpus_do_not_take_it(target):
    config = AttentionConfig("f64", 4, 2, 64, 64)
    with pytest.raises(fa.CompileError, match=f"at most 32 bits on {target}, got f64; convert"):
        fa.compile(config, target)
    with pytest.raises(fa.CompileError, match=f"at most 32 bits on {target}, got f64; convert"):
        fa.compile(config, target, backward="all")
    with pytest.raises(fa.CompileError, match=f"at most 32 bits on {target}, got f64; convert"):
        fa.compile(config, target, schedule={"rows": 64, "keys": 64})
    with pytest.raises(ValueError, match="or f64 .float64., got f8"):
        AttentionConfig("f8", 4, 2, 64, 64)


def test_a_variant_has_a_type():
    variant = fa.trace(score_mod=lambda s, b, h, i, j: s * 0.1)
    with pytest.raises(ValueError, match="traced for scores of f64, got one for f32; trace it"):
        AttentionConfig("f64", 4, 2, 64, 64, variant=variant)
    variant = fa.trace(score_mod=lambda s, b, h, i, j: s * 0.1, dtype="f64")
    assert "%s: f64" in str(variant) and "1.00000000000000006e-01 : f64" in str(variant)
    fa.compile(AttentionConfig("f64", 4, 2, 64, 64, variant=variant), "cpu")
