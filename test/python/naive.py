# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as it is defined, in float64 with NumPy: what results are compared with."""

from __future__ import annotations

import math

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


def rounded(values, dtype):
    """Values as a type ("float32", "float16", "bfloat16") holds them, nearest even."""
    if dtype is None:
        return values
    if not isinstance(values, (np.ndarray, np.generic)):  # of PyTorch
        import torch

        return values.to(getattr(torch, dtype)).to(values.dtype)
    if dtype != "bfloat16":
        with np.errstate(over="ignore"):
            return values.astype(dtype).astype(values.dtype)
    with np.errstate(invalid="ignore"):
        bits = np.array(values, np.float32, order="C").view(np.uint32)
        nearest = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
        near = (nearest & np.uint32(0xFFFF0000)).view(np.float32)
        return np.where(np.isfinite(values), near, values).astype(values.dtype)


def attention(
    q, k, v, *, score=None, mask=None, scale=None, keep=None, factor=1.0, dtype=None, xp=np
):
    """float64 (out, lse), or the plain formula in a type.

    `q` is [..., Hq, Sq, D], `k` and `v` are [..., Hk, Sk, D or Dv], or what broadcasts
    so. `score(s, b, h, i, j)` and `mask(b, h, i, j)` take and give arrays that
    broadcast to [B, H, Sq, Sk]. `keep`, bool of that shape, says which normalised weights
    are kept, `factor` what these are multiplied with.

    With a `dtype` ("float16", "bfloat16", "float32") it is what the pass
    `fa-reference{precision=same}` computes: products, scores, weights and results are
    rounded to it, the rest is float32. `xp` is NumPy, or PyTorch for tensors; the
    functions are then given tensors.
    """
    real = xp.float64 if dtype is None else xp.float32
    q, k, v = (np.asarray(x, real) if xp is np else x.to(real) for x in (q, k, v))

    def of_each_head(x):
        groups = q.shape[-3] // x.shape[-3] if min(q.ndim, x.ndim) > 2 and x.shape[-3] else 0
        if groups < 2:
            return x
        return x.repeat(groups, -3) if xp is np else x.repeat_interleave(groups, -3)

    def widen(x):
        return np.asarray(x, real) if xp is np else x.to(real)

    k, v = of_each_head(k), of_each_head(v)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    with np.errstate(all="ignore"):
        s = rounded(q @ k.swapaxes(-1, -2), dtype)
        s = rounded(s * (np.float32(scale) if dtype and xp is np else scale), dtype)
        at = [
            (np.arange(n) if xp is np else xp.arange(n, device=s.device)).reshape(
                [-1 if dim == own else 1 for dim in range(s.ndim)]
            )
            for own, n in enumerate(s.shape)
        ]
        if score is not None:
            s = xp.broadcast_to(rounded(widen(score(s, *at)), dtype), s.shape)
        if mask is not None:
            s = xp.where(mask(*at), s, -math.inf)
        if s.shape[-1]:
            m = xp.amax(s, axis=-1, keepdims=True)
        else:
            m = s.sum(-1)[..., None] - math.inf
        p = xp.exp(s - xp.where(xp.isinf(m), 0, m))
        total = p.sum(-1)[..., None]
        weights = rounded(xp.where(total > 0, p / total, xp.where(total == 0, 0, total)), dtype)
        if keep is not None:
            weights = rounded(xp.where(keep, weights * factor, 0), dtype)
        return rounded(weights @ v, dtype), (m + xp.log(total))[..., 0]


def differentiable(
    q, k, v, *, score=None, mask=None, scale=None, keep=None, factor=1.0, dtype=None
):
    """`attention` of PyTorch's tensors as its autograd can differentiate it.

    In the type of q, k and v, or in `dtype`, to which every step's result is rounded and
    its gradient as well. Rows that see nothing have no part in any gradient.
    """
    import torch

    dtype = getattr(torch, dtype) if dtype else q.dtype
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    s = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    at = [
        torch.arange(n).reshape([-1 if dim == own else 1 for dim in range(4)])
        for own, n in enumerate(s.shape)
    ]
    if score is not None:
        s = torch.broadcast_to(score(s, *at), s.shape).to(dtype)
    if mask is not None:
        s = torch.where(mask(*at), s, -math.inf)
    sees = (s != -math.inf).any(-1, keepdim=True)
    s = torch.where(sees, s, 0.0)  # whose softmax has a derivative
    weights = torch.softmax(s, -1)
    if keep is not None:
        weights = torch.where(keep, weights * factor, 0.0)
    out = torch.where(sees, weights @ v, 0.0)
    return out, torch.where(sees[..., 0], torch.logsumexp(s, -1), -math.inf)


def inputs(batch, heads, key_heads, rows, keys, dim, value_dim=None, seed=0):
    """float32 q [B, Hq, Sq, D], k [B, Hk, Sk, D], v [B, Hk, Sk, Dv], in which mistakes show."""
    rng = np.random.default_rng(seed)
    shapes = (
        (batch, heads, rows, dim),
        (batch, key_heads, keys, dim),
        (batch, key_heads, keys, value_dim or dim),
    )
    return telling(*(rng.standard_normal(shape).astype(np.float32) for shape in shapes))


def telling(q, k, v):
    """Gives normal q [..., Sq, D], k and v [..., Sk, Dv], in place, a form that tells.

    The mean of many normal values is near 0, and hardly moves with one weight or with
    all: a result times 1.02, scores times 1.01 or a forgotten key would be within what
    rounding to bfloat16 may do. So, with a scale of D^-1/2,

    - every second column of v has mean 1: what is too large by a factor shows;
    - of eight keys one scores 2 more than the others, and the other columns of v are
      around 3 there and around -3 elsewhere: the scale shows, where the two
      weigh as much;
    - the last row scores 8 more at about eight keys than elsewhere: few weights that
      are of one size, one of which is the last key's.

    NumPy's arrays or PyTorch's tensors; returns them.
    """
    keys, dim = k.shape[-2:]
    if not keys or not q.shape[-2]:
        return q, k, v
    near = slice((keys - 1) % 8, None, 8)
    step = max(1, keys // 8) | 1  # odd: of both sorts
    few = slice((keys - 1) % step, None, step)
    v[..., 0::2] += 1
    v[..., 1::2] -= 3
    v[..., near, 1::2] += 6
    q *= 0.5
    if dim > 1:
        q[..., 0], q[..., 1] = dim**0.5, 0
        q[..., -1, 1] = dim**0.5
        k[..., 0], k[..., 1] = -2, -8
        k[..., near, 0] = 0
        k[..., few, 1] = 0
    return q, k, v


def back(array):
    """A result, of NumPy, PyTorch or JAX, as NumPy has it."""
    if not hasattr(array, "detach"):
        return np.asarray(array)
    if array.is_floating_point():
        array = array.detach().double()
    return array.cpu().numpy()
