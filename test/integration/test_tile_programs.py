# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile programs that are no attention: on the CPU, by PTX for sm_80 in the emulator, and on a
GPU, there on Hopper by the schedule by rules as well, against float64."""

from __future__ import annotations

import pathlib
import sys

import fa
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import right  # noqa: E402
from test_emulated_gradients import emulate  # noqa: E402

FILES = pathlib.Path(__file__).resolve().parents[1] / "inputs/tiles"
HAS_GPU = torch.cuda.is_available()
IS_HOPPER = HAS_GPU and torch.cuda.get_device_capability() == (9, 0)
WAYS = {
    "cpu": ("cpu", None),
    "emulated sm_80": ("sm_80", None),
    "sm_80": ("sm_80", None),
    "sm_90a by rules": ("sm_90a", {"by": "rules"}),
}


def gemm(a, b, bias):
    """gemm.mlir: relu(A B + bias)."""
    return torch.relu(a @ b + bias)


def mlp(x, u, w):
    """mlp.mlir: relu(X U) W."""
    return torch.relu(x @ u) @ w


PROGRAMS = {"gemm": (gemm, torch.bfloat16), "mlp": (mlp, torch.float16)}


def inputs(name, rows, depth):
    """Normal numbers, products of a size of about 1."""
    generator = torch.Generator().manual_seed(rows + depth)
    dtype = PROGRAMS[name][1]
    shapes = {
        "gemm": [(rows, depth), (depth, 128), (128,)],
        "mlp": [(256, 64), (64, 512), (512, 128)],
    }[name]
    first, *weights = (torch.randn(shape, generator=generator) for shape in shapes)
    weights = [x / max(len(x), 1) ** 0.5 if x.dim() == 2 else x for x in weights]
    return [x.to(dtype) if x.dim() == 2 else x for x in (first, *weights)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "rows", "depth"),
    [("gemm", 128, 64), ("gemm", 300, 200), ("gemm", 1, 8), ("gemm", 129, 0), ("mlp", 256, 64)],
)
def test_programs(name, rows, depth, way):
    if way == "sm_80" and not HAS_GPU:
        pytest.skip("needs a GPU")
    if way == "sm_90a by rules" and not IS_HOPPER:
        pytest.skip("needs a Hopper GPU")
    target, schedule = WAYS[way]
    kernel = fa.compile((FILES / f"{name}.mlir").read_text(), target, schedule=schedule)
    formula, dtype = PROGRAMS[name]
    given = inputs(name, rows, depth)
    exact = formula(*(x.double() for x in given))
    if way.startswith("emulated"):
        arrays = [encoded(x) for x in given]
        (found,) = emulate(kernel.asm["ptx"], arrays, [tuple(exact.shape)])
        out = torch.from_numpy(found.view("i2")).view(dtype)
    else:
        device = "cpu" if target == "cpu" else "cuda"
        out = torch.full(exact.shape, float("nan"), dtype=dtype, device=device)
        kernel(*(x.to(device) for x in given), out)
    # The same in the type: a product whose result is rounded, as PyTorch has it.
    naive = formula(*(x.to(dtype) for x in given))
    error = (naive.double() - exact).abs().max().item()
    limit = right.output_limit(right.dtype_of(naive), error, exact.abs().max().item())
    assert (out.cpu().double() - exact).abs().max().item() <= limit
    assert exact.abs().max() > 0.5


def encoded(tensor):
    """An array for the emulator."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view("u2")
    return tensor.numpy()
