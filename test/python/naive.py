# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as it is defined, in float64 with NumPy: what results are compared with."""

from __future__ import annotations

import numpy as np


def coordinates(batch, heads, rows, keys):
    """b, h, i, j, which broadcast to [B, H, Sq, Sk]."""
    return np.ogrid[:batch, :heads, :rows, :keys]


def philox(counter, key, rounds=7):
    """The four words of Philox4x32 (Salmon et al. 2011, section 3.3) of a counter of
    four, integers or arrays that broadcast, and a key of two integers."""
    c0, c1, c2, c3 = (np.asarray(word, np.uint64) for word in counter)
    key = [int(word) for word in key]
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for n in range(rounds):
        k0, k1 = (
            np.uint64((word + n * weyl) % 2**32)
            for word, weyl in zip(key, (0x9E3779B9, 0xBB67AE85))
        )
        first, second = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1 = (second >> half) ^ c1 ^ k0, second & low
        c2, c3 = (first >> half) ^ c3 ^ k1, first & low
    return c0, c1, c2, c3


def random_bits(seed, shape):
    """The numbers below 256 of weights of the shape [B, H, Sq, Sk]: the definition of
    `fa.random_bits`."""
    batch, heads, rows, keys = shape
    b, h, r, c = np.ogrid[:batch, :heads, : -(-rows // 16) * 8, : -(-keys // 64) * 8]
    i, j = np.ogrid[:rows, :keys]
    at = (i // 16 * 8 + i % 8, j // 64 * 8 + j % 8 // 2 * 2)
    place = 8 * (2 * (i // 8 % 2) + j % 2) + 7 - j // 8 % 8
    key = (seed % 2**32, (seed >> 32) % 2**32)
    words = [
        np.broadcast_to(word, (batch, heads, r.size, c.size))
        for rounds in (9, 7)
        for word in philox((r, c, h, b), key, rounds)
    ]
    number = np.zeros(shape, np.uint64)
    for n, word in enumerate(words):
        word = word[:, :, at[0], at[1]]
        number += ((word >> place.astype(np.uint64)) & np.uint64(1)) << np.uint64(n)
    return number


def kept(seed, shape, dropped):
    """Which weights dropout of `dropped` of 256 keeps, bool of the shape [B, H, Sq, Sk]."""
    return random_bits(seed, shape) >= dropped


def attention(q, k, v, *, score=None, mask=None, scale=None, keep=None, factor=1.0):
    """float64 (out, lse). `score(s, b, h, i, j)` and `mask(b, h, i, j)` take and
    give arrays that broadcast to [B, H, Sq, Sk]. `keep`, bool of that shape, says which
    normalised weights are kept, `factor` what these are multiplied with."""
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
        if keep is not None:
            weights = np.where(keep, weights * factor, 0)
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


def back(array):
    """A result, of NumPy or PyTorch, as NumPy has it."""
    if isinstance(array, np.ndarray):
        return array
    if array.is_floating_point():
        array = array.detach().double()
    return array.cpu().numpy()


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
