# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as it is defined, in float64 with NumPy: what results are compared with."""

from __future__ import annotations

import numpy as np


def coordinates(batch, heads, rows, keys):
    """b, h, i, j, which broadcast to [B, H, Sq, Sk]."""
    return np.ogrid[:batch, :heads, :rows, :keys]


def attention(q, k, v, *, score=None, mask=None, scale=None):
    """float64 (out, lse). `score(s, b, h, i, j)` and `mask(b, h, i, j)` take and
    give arrays that broadcast to [B, H, Sq, Sk]."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    k, v = (x.repeat(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = np.einsum("bhid,bhjd->bhij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    at = coordinates(*s.shape)
    with np.errstate(all="ignore"):
        if score is not None:
            s = score(s, *at)
        if mask is not None:
            s = np.where(mask(*at), s, -np.inf)
        m = s.max(-1, keepdims=True, initial=-np.inf)
        p = np.exp(s - np.where(np.isinf(m), 0, m))
        total = p.sum(-1, keepdims=True)
        weights = np.where(total > 0, p / total, 0)
        return weights @ v, (m + np.log(total))[..., 0]


def inputs(batch, heads, key_heads, rows, keys, dim, value_dim=None, seed=0):
    """float32 q, k, v."""
    rng = np.random.default_rng(seed)
    shapes = (
        (batch, heads, rows, dim),
        (batch, key_heads, keys, dim),
        (batch, key_heads, keys, value_dim or dim),
    )
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes)


def assert_close(out, exact, tolerance=1e-5):
    """No NaN, and errors below the tolerance, relative to the largest value."""
    out = np.asarray(out, np.float64)
    assert out.shape == exact.shape
    assert not np.isnan(out).any()
    error = np.abs(out - exact).max(initial=0)
    assert error <= tolerance * max(1, np.abs(exact).max(initial=0)), error


def assert_close_lse(lse, exact, tolerance=1e-4):
    """Equal infinities, and small errors elsewhere."""
    different = lse != exact
    assert (np.abs(lse[different] - exact[different]) <= tolerance).all()
