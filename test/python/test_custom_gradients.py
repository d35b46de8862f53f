# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stops of gradients, and derivatives that functions give themselves."""

from __future__ import annotations

import fa
import numpy as np
import pytest
from libraries import DEVICE, compiled, needs_functions

torch = pytest.importorskip("torch")
from torch.autograd import Function  # noqa: E402
from torch.autograd.function import once_differentiable  # noqa: E402

HEADS, ROWS, KEYS, DIM = 2, 17, 23, 16


@pytest.fixture(autouse=True)
def device():
    """Tensors are made where the test runs, if nothing else is said."""
    with torch.device(DEVICE):
        yield


# --- Derivatives ----------------------------------------------------------------------


class StraightThrough(Function):
    """A gradient that is not the value's."""

    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, g):
        return g


class Saved(Function):
    """Saved values, numbers, a result for nobody, and an input without a gradient."""

    @staticmethod
    def forward(x, y, factor=3.0):
        return x * y, torch.sign(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])
        ctx.factor = inputs[2]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        x, y = ctx.saved_tensors
        assert ctx.needs_input_grad[0]
        return ctx.factor * g * y, g.tanh() * x.exp(), None


class Nested(Function):
    """A backward of another one's values."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(StraightThrough.apply(x), y)
        return x + 0.5 * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * x, StraightThrough.apply(g * y)


straight_through = StraightThrough.apply


class Ignored(Function):
    """No gradient at all."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return None


def frozen(x):
    with torch.no_grad():
        return torch.tanh(x) + x.clone()


def inference(x):
    with torch.inference_mode():
        return torch.tanh(x)


@torch.no_grad()
def decorated(x):
    with torch.enable_grad():
        y = x * x
    return y + x


def rows(table, h, i):
    """Of a tensor that is indexed where no gradient is recorded."""
    with torch.no_grad():
        row = table[h]
    return row[i]


CASES = {
    "detach": lambda t, u: lambda s, b, h, i, j: s.detach() * t[h] + s,
    "data": lambda t, u: lambda s, b, h, i, j: s.data * t[h] + s,
    "detach of a number": lambda t, u: lambda s, b, h, i, j: s + s * t[h].detach(),
    "detach of a tensor": lambda t, u: lambda s, b, h, i, j: s + s * t.detach()[h],
    "detach of rows": lambda t, u: lambda s, b, h, i, j: s + u[h].detach()[i] * t[h],
    "detach of elements": lambda t, u: lambda s, b, h, i, j: s * (u[h].detach() * t[h]).sum() / 9,
    "no_grad": lambda t, u: lambda s, b, h, i, j: s + frozen(s),
    "no_grad of a number": lambda t, u: lambda s, b, h, i, j: s + frozen(t[h]) * s,
    "no_grad of rows": lambda t, u: lambda s, b, h, i, j: s * t[h] + rows(u, h, i),
    "no_grad of it all": lambda t, u: lambda s, b, h, i, j: decorated(s + t[h]),
    "inference_mode": lambda t, u: lambda s, b, h, i, j: s * t[h] + inference(s),
    "straight through": lambda t, u: lambda s, b, h, i, j: s + (torch.round(s) - s).detach(),
    "Function": lambda t, u: lambda s, b, h, i, j: StraightThrough.apply(s) * t[h],
    "Function by its apply": lambda t, u: lambda s, b, h, i, j: straight_through(s) * t[h],
    "Function of two": lambda t, u: lambda s, b, h, i, j: Saved.apply(s, t[h])[0],
    "Function of more": lambda t, u: lambda s, b, h, i, j: sum(Saved.apply(s, t[h], 0.5)),
    "Function in another": lambda t, u: lambda s, b, h, i, j: Nested.apply(s, t[h] + u[h, i]),
    "Function without": lambda t, u: lambda s, b, h, i, j: Ignored.apply(s) + t[h],
    "Function of a scalar": lambda t, u: lambda s, b, h, i, j: Nested.apply(s, t.sum()),
}


def gradients(function, t, u, attention):
    q, k, v = (
        torch.randn(
            1, HEADS, n, DIM, requires_grad=True, generator=torch.Generator(DEVICE).manual_seed(n)
        )
        for n in (ROWS, KEYS, KEYS)
    )
    v = v.detach().flip(2).requires_grad_()
    leaves = q, k, v, t, u
    out = attention(q, k, v, function)
    weight = torch.linspace(-1, 1, out.numel()).reshape(out.shape)
    found = torch.autograd.grad(out, leaves, weight, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves)]


def formula(q, k, v, function):
    at = [torch.arange(n).reshape([-1 if d == o else 1 for d in range(4)])
          for o, n in enumerate((1, HEADS, ROWS, KEYS))]  # fmt: skip
    return torch.softmax(function(q @ k.mT / DIM**0.5, *at), -1) @ v


def compare(got, want):
    for leaf, a, b in zip("qkvtu", got, want):
        text = f"the gradient of {leaf}"
        torch.testing.assert_close(
            a, b, rtol=1e-4, atol=1e-5, msg=lambda x, text=text: f"{text}: {x}"
        )


def captured():
    return torch.tensor([0.5, -0.75], requires_grad=True), (
        torch.arange(HEADS * ROWS).reshape(HEADS, ROWS) / 20.0
    ).requires_grad_()


# The formula computes with whole tensors, in which a row stands where its element does.
ELEMENTWISE = {
    "detach of rows": lambda t, u: lambda s, b, h, i, j: s + u.detach()[h, i] * t[h],
    "no_grad of rows": lambda t, u: lambda s, b, h, i, j: s * t[h] + u.detach()[h, i],
    "detach of elements": lambda t, u: lambda s, b, h, i, j: s * (u.detach().sum(1) * t)[h] / 9,
}


# PyTorch 2.13 refuses to compile .data of a traced tensor and defaults of `forward`.
NOT_COMPILED = (*ELEMENTWISE, "data", "Function of two")


@pytest.mark.parametrize("name", CASES)
def test_eager(name):
    t, u = captured()
    got = gradients(CASES[name](t, u), t, u, lambda q, k, v, f: fa.attention(q, k, v, score_mod=f))
    want = gradients(ELEMENTWISE.get(name, CASES[name])(t, u), t, u, formula)
    compare(got, want)


@needs_functions
@pytest.mark.parametrize("name", [n for n in CASES if n not in NOT_COMPILED])
def test_compiled(name):
    t, u = captured()
    function = CASES[name](t, u)
    attention = compiled(lambda q, k, v: fa.attention(q, k, v, score_mod=function))
    got = gradients(function, t, u, lambda q, k, v, f: attention(q, k, v))
    want = gradients(function, t, u, formula)
    compare(got, want)


def test_where_no_gradient_is_recorded():
    """A call under no_grad leaves nothing behind for one that trains."""
    t, u = captured()

    def function(s, b, h, i, j):
        return s * t[h] + u[h, i]

    q = torch.randn(1, HEADS, ROWS, DIM)
    with torch.no_grad():
        fa.attention(q, q, q, score_mod=function)
    assert "custom_gradient" not in str(fa.trace(score_mod=function))
    got = gradients(function, t, u, lambda q, k, v, f: fa.attention(q, k, v, score_mod=f))
    for a, b in zip(got, gradients(function, t, u, formula)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


class Untraced(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2 if g.item() else g


def test_what_can_not_be_traced():
    """The forward is computed, and the gradient refused by name."""
    q = torch.randn(1, HEADS, ROWS, DIM, requires_grad=True)

    def function(s, b, h, i, j):
        return Untraced.apply(s)

    want = fa.attention(q, q, q, score_mod=lambda s, *at: s * 2)
    torch.testing.assert_close(fa.attention(q, q, q, score_mod=function), want)
    with pytest.raises(Exception, match=r"own \(autograd.Function Untraced\).*test_custom.*item"):
        fa.attention(q, q, q, score_mod=function).sum().backward()


def test_whole_tensors_are_refused():
    t, _ = captured()
    q = torch.randn(1, HEADS, ROWS, DIM)
    with pytest.raises(
        fa.TraceError, match=r"Nested a captured tensor of shape \[2\] that requires"
    ):
        fa.attention(q, q, q, score_mod=lambda s, *at: Nested.apply(s, t)[0])


# --- Operators of torch.library -------------------------------------------------------


def test_operators():
    """A registered gradient is computed; another one is refused by name."""
    cube = torch.library.custom_op("fa_gradients::cube", lambda x: x * x * x, mutates_args=(),
                                   schema="(Tensor x) -> Tensor")  # fmt: skip
    cube.register_autograd(
        lambda ctx, g: g * ctx.x.exp(),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "x", inputs[0]),
    )

    class Cubed(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].exp()

    t, u = captured()
    got = gradients(
        lambda s, b, h, i, j: cube(s) * t[h], t, u,
        lambda q, k, v, f: fa.attention(q, k, v, score_mod=f),
    )  # fmt: skip
    want = gradients(lambda s, b, h, i, j: Cubed.apply(s) * t[h], t, u, formula)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)

    torch.library.define("fa_gradients::own", "(Tensor x) -> Tensor")
    torch.library.impl("fa_gradients::own", "CPU", lambda x: x * 2)
    torch.library.register_autograd("fa_gradients::own", lambda ctx, g: g * 5)
    q = torch.randn(1, HEADS, ROWS, DIM, requires_grad=True)
    with pytest.raises(Exception, match=r"operator fa_gradients::own has a gradient that is not"):
        fa.attention(
            q, q, q, score_mod=lambda s, *at: torch.ops.fa_gradients.own(s)
        ).sum().backward()


# --- JAX ------------------------------------------------------------------------------


def test_jax():
    """stop_gradient, custom_jvp and custom_vjp, and functions of jax.nn that have one."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    @jax.custom_jvp
    def through(x):
        return jnp.round(x)

    through.defjvp(lambda primals, tangents: (jnp.round(primals[0]), 2 * tangents[0]))

    @jax.custom_vjp
    def product(x, y):
        return x * y

    product.defvjp(
        lambda x, y: (x * y, (x, y)), lambda saved, g: (g * jnp.exp(saved[0]), g * 3 * saved[1])
    )
    slopes = jnp.asarray([0.5, -0.75])
    functions = [
        lambda s, b, h, i, j: jax.lax.stop_gradient(s * slopes[h]) * s,
        lambda s, b, h, i, j: through(s) * slopes[h],
        lambda s, b, h, i, j: product(s, slopes[h]) + product(slopes[h], s),
        lambda s, b, h, i, j: jax.nn.relu(s * slopes[h]) + jax.nn.silu(s),
        lambda s, b, h, i, j: jax.jit(lambda x: jax.nn.relu6(x) * 0.5)(s),
    ]
    keys = jax.random.split(jax.random.key(0), 4)
    q, k, v, do = (
        jax.random.normal(key, (1, HEADS, n, DIM)) for key, n in zip(keys, (ROWS, KEYS, KEYS, ROWS))
    )
    sizes = (1, HEADS, ROWS, KEYS)
    _, h, i, j = jnp.meshgrid(*map(jnp.arange, sizes), indexing="ij")
    for function in functions:

        def plain(q, k, v, function=function):
            s = jnp.einsum("bhid,bhjd->bhij", q, k) / DIM**0.5
            return jax.nn.softmax(function(s, 0, h, i, j), -1) @ v

        with jax.default_matmul_precision("highest"):
            want = jax.vjp(plain, q, k, v)[1](do)
        results = fa.attention(q, k, v, score_mod=function, return_lse=True)
        got = fa.attention_backward(q, k, v, *results, do, score_mod=function)
        for a, b in zip(got[:3], want):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
