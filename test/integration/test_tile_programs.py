# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile programs that are no attention: on the CPU, by PTX for sm_80 in the emulator, and on a
GPU, there on Hopper by its schedule as well, against float64."""

from __future__ import annotations

import math
import pathlib
import sys

import fa
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import right  # noqa: E402
from test_emulated_gradients import emulate, encode  # noqa: E402

FILES = pathlib.Path(__file__).resolve().parents[1] / "inputs/tiles"
HAS_GPU = torch.cuda.is_available()
IS_HOPPER = HAS_GPU and torch.cuda.get_device_capability() == (9, 0)
WAYS = {
    "cpu": ("cpu", None),
    "emulated sm_80": ("sm_80", None),
    "sm_80": ("sm_80", None),
    "sm_90a": ("sm_90a", None),
}


def gemm(a, b, bias):
    """gemm.mlir: relu(A B + bias)."""
    return torch.relu(a @ b + bias)


def mlp(x, u, w):
    """mlp.mlir: relu(X U) W."""
    return torch.relu(x @ u) @ w


def backward(q, k, v, out_grad, lse, d):
    """backward.mlir: gradients of key, value and query, weights in base 2."""
    p = torch.exp2(q @ k.mT - lse[:, None])
    ds = p * (out_grad @ v.mT - d[:, None])
    return ds.mT @ q, p.mT @ out_grad, ds @ k


def linear(q, k, v):
    """linear.mlir: Q times the sum of K^T V over blocks of 128 keys, up to the queries' own."""
    outs = []
    for first in range(0, len(q), 128):
        end = first + 128
        state = (k[:end].mT @ v[:end]).to(q.dtype)
        outs.append(q[first:end] @ state)
    return torch.cat(outs)


def elements(x, y):
    """elements.mlir: x y + j / 40, and the first columns of x y."""
    product = x * y
    return (product + torch.arange(40) / 40).to(x.dtype), product[:, :33]


def rows(x, y, v):
    """rows.mlir: sums of x y over columns, less v, and the largest of x."""
    return (x * y[:, 1:-1]).sum(1) - v, x.amax(1)


PROGRAMS = {
    "gemm": (gemm, torch.bfloat16, [torch.bfloat16]),
    "mlp": (mlp, torch.float16, [torch.float16]),
    "backward": (backward, torch.bfloat16, [torch.bfloat16, torch.bfloat16, torch.float32]),
    "linear": (linear, torch.bfloat16, [torch.bfloat16]),
    "elements": (elements, torch.bfloat16, [torch.bfloat16, torch.float32]),
    "rows": (rows, torch.bfloat16, [torch.float32, torch.bfloat16]),
}
"""The formula, the type of matrices that are given, and those of results."""


def inputs(name, rows, depth):
    """Normal numbers, products of a size of about 1."""
    generator = torch.Generator().manual_seed(rows + depth)
    dtype = PROGRAMS[name][1]
    shapes = {
        "gemm": [(rows, depth), (depth, 128), (128,)],
        "mlp": [(256, 64), (64, 512), (512, 128)],
        "backward": [(256, 64)] * 4,
        "linear": [(rows, 64)] * 3,
        "elements": [(rows, 40)] * 2,
        "rows": [(rows, 48), (rows, 50), (rows,)],
    }[name]
    first, *weights = (torch.randn(shape, generator=generator) for shape in shapes)
    if name == "backward":
        weights[0] = weights[0] / 8
    else:
        weights = [x / max(len(x), 1) ** 0.5 if x.dim() == 2 else x for x in weights]
    tensors = [x.to(dtype) if x.dim() == 2 else x for x in (first, *weights)]
    if name in ("elements", "rows"):
        tensors[1] = tensors[1].float() * depth
    if name == "backward":
        q, k, v, out_grad = (x.double() for x in tensors)
        scores = q @ k.mT * math.log(2)
        d = (scores.softmax(-1) @ v * out_grad).sum(-1)
        tensors += [(scores.logsumexp(-1) / math.log(2)).float(), d.float()]
    return tensors


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "rows", "depth"),
    [
        ("gemm", 128, 64),
        ("gemm", 300, 200),
        ("gemm", 1, 8),
        ("gemm", 129, 0),
        ("mlp", 256, 64),
        ("backward", 256, 64),
        ("linear", 128, 64),
        ("linear", 300, 64),
        ("elements", 48, 4),
        ("elements", 1, 4),
        ("elements", 61, 4),
        ("rows", 48, 4),
        ("rows", 1, 4),
        ("rows", 61, 4),
    ],
)
def test_programs(name, rows, depth, way):
    if way == "sm_80" and not HAS_GPU:
        pytest.skip("needs a GPU")
    if way == "sm_90a" and not IS_HOPPER:
        pytest.skip("needs a Hopper GPU")
    target, schedule = WAYS[way]
    kernel = fa.compile((FILES / f"{name}.mlir").read_text(), target, schedule=schedule)
    formula, dtype, dtypes = PROGRAMS[name]
    given = inputs(name, rows, depth)
    exact = tuple_of(formula(*(x.double() for x in given)))
    if way.startswith("emulated"):
        arrays = [encode(x) for x in given]
        found = emulate(kernel.asm["ptx"], arrays, [tuple(x.shape) for x in exact])
        outs = [
            torch.from_numpy(x if own == torch.float32 else x.view("i2")).view(own)
            for x, own in zip(found, dtypes)
        ]
    else:
        device = "cpu" if target == "cpu" else "cuda"
        outs = [
            torch.full(x.shape, math.nan, dtype=own, device=device) for x, own in zip(exact, dtypes)
        ]
        kernel(*(x.to(device) for x in given), *outs)
    # The same with each result rounded to the type, as PyTorch has it.
    naive = tuple_of(formula(*(x.to(dtype) for x in given)))
    for own, wanted, plain in zip(outs, exact, naive, strict=True):
        error = (plain.double() - wanted).abs().max().item()
        limit = right.output_limit(right.dtype_of(plain), error, wanted.abs().max().item())
        assert (own.cpu().double() - wanted).abs().max().item() <= limit
        assert wanted.abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "first", "later"),
    [("elements", "%sum[0, 0]", "%sum[1, 0]"), ("rows", "%less[0]", "%less[1]")],
)
def test_a_part_that_begins_later_is_an_error(name, first, later):
    """Of a tile of 32 rows, which threads could hold, too."""
    text = (FILES / f"{name}.mlir").read_text().replace("24", "32")
    fa.compile(text, "sm_80")
    assert first in text
    with pytest.raises(fa.CompileError, match="can only lose its last rows and columns"):
        fa.compile(text.replace(first, later), "sm_80")


def tuple_of(results):
    """One result, or several."""
    return results if isinstance(results, tuple) else (results,)
