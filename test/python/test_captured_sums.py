# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of captured tensors that add a row's elements up in one place.

The elements of a row of dS sum to 0, so such a gradient keeps the error of
D = rowsum(dO * O) and loses the rest. It is compared with the formula in float32,
whatever the type of query, key and value. On the CPU, or with FA_TEST_DEVICE=cuda
on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fa
import naive
import numpy as np
import pytest
import right
from libraries import DEVICE

torch = pytest.importorskip("torch")


@dataclass(frozen=True)
class Sums:
    """A score function, and the tensor that it is differentiated by."""

    score: Callable[..., Any]
    captured: Callable[[int], Any]
    """Gives the tensor for a number of heads."""
    mask: Callable[..., Any] | None = None
    sizes: tuple[int, int] = (1031, 130)
    heads: tuple[int, int] = (3, 3)
    most: float = 4
    """The largest error, in those of the formula in float32, which sums in another order."""


def bucket(i: Any, j: Any) -> Any:
    return (i - j).abs() // 300


class Each:
    """A captured tensor plus a number for each element of the scores."""

    def __init__(self, tensor: Any, apart: Any) -> None:
        self.tensor, self.apart = tensor, apart

    def __getitem__(self, at: Any) -> Any:
        return self.tensor[at] + self.apart


FAR = {
    "slopes": Sums(
        lambda s, b, h, i, j, x: s - x[h] * (i - j).abs(),
        lambda heads: 0.3 * torch.rand(heads),
        most=2,
    ),
    "slopes, as many rows as keys": Sums(
        lambda s, b, h, i, j, x: s - x[h] * (i - j).abs(),
        lambda heads: 0.3 * torch.rand(heads),
        sizes=(519, 519),
    ),
    "a number for each head": Sums(lambda s, b, h, i, j, x: s + x[h], torch.randn),
    "a factor for each head": Sums(lambda s, b, h, i, j, x: s * x[h], torch.rand),
    "a number for each row": Sums(
        lambda s, b, h, i, j, x: s + x[i] * (j + 200), lambda heads: 1e-3 * torch.randn(1031)
    ),
    "buckets": Sums(lambda s, b, h, i, j, x: s + x[bucket(i, j)], lambda heads: torch.randn(4)),
    "causal, groups": Sums(
        lambda s, b, h, i, j, x: s - x[h] * (i - j),
        lambda heads: 0.3 * torch.rand(heads),
        mask=lambda b, h, i, j: j <= i,
        sizes=(300, 257),
        heads=(4, 2),
    ),
    "window": Sums(
        lambda s, b, h, i, j, x: s - x[h] * j,
        lambda heads: 0.01 * torch.rand(heads),
        mask=lambda b, h, i, j: (j <= i) & (i - j < 100),
        sizes=(400, 400),
    ),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", FAR)
def test_as_the_formula_in_float32(name, dtype):
    case = FAR[name]
    generator = torch.Generator().manual_seed(len(name))
    (rows, keys), (heads, key_heads) = case.sizes, case.heads
    shapes = ((heads, rows), (key_heads, keys), (key_heads, keys), (heads, rows))
    q, k, v, grad = (
        torch.randn(2, *shape, 64, generator=generator).to(getattr(torch, dtype))
        for shape in shapes
    )
    torch.manual_seed(len(name))
    tensors = [*(x.requires_grad_() for x in (q, k, v)), case.captured(heads).requires_grad_()]

    def formula(q, k, v, x, dtype=None):
        return naive.differentiable(
            *(q, k, v), score=lambda *at: case.score(*at, x), mask=case.mask, dtype=dtype
        )

    exact = right.exact_gradients(formula, tensors, (grad, None))[3]
    # The largest of some: an error is a matter of luck.
    plain = 0.0
    for shift in range(4):
        turned = grad.roll(shift, 2)
        single = [x.detach().float().requires_grad_() for x in tensors]
        pair = (
            right.exact_gradients(formula, single, (turned.float(), None), way)[3]
            for way in ("float32", None)
        )
        plain = max(plain, right.difference(*pair))
    limit = case.most * plain
    if DEVICE != "cpu":
        # Blocks of a GPU add up columns first, whose sums are large where rows' are small:
        # one rounding of each term.
        apart = torch.zeros(2, heads, rows, keys, dtype=torch.float64, requires_grad=True)

        def formula_of_each(q, k, v, x, each, dtype=None):
            return formula(q, k, v, Each(x, each), dtype)

        terms = right.exact_gradients(formula_of_each, [*tensors, apart], (grad, None))[4]
        limit += right.ROUNDING["float32"] * np.abs(terms).sum()
    given = [x.detach().to(DEVICE) for x in tensors[:3]]
    x = tensors[3].detach().to(DEVICE).requires_grad_()
    out = fa.attention(*given, score_mod=lambda *at: case.score(*at, x), mask_mod=case.mask)
    (found,) = torch.autograd.grad(out, x, grad.to(DEVICE))
    error = right.difference(right.back(found), exact)
    assert error <= limit, (
        f"{error:.3g}, more than {limit:.3g}; the formula in float32 {plain:.3g}, of "
        f"{np.abs(exact).max():.3g}"
    )
