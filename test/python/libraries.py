# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where tests run, and what of the array libraries is there.

On the CPU, or with FA_TEST_DEVICE=cuda on a GPU. PyTorch is imported where it is asked for.
"""

from __future__ import annotations

import functools
import importlib.util
import os

import numpy as np
import pytest

DEVICE = os.environ.get("FA_TEST_DEVICE", "cpu")
HAS_TORCH = importlib.util.find_spec("torch") is not None
LIBRARIES = [*(["numpy"] if DEVICE == "cpu" else []), *(["torch"] if HAS_TORCH else [])]
"""Those whose arrays are on the device."""
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="needs PyTorch")


@functools.cache
def has_functions():
    """Whether PyTorch compiles score and mask functions."""
    if not HAS_TORCH:
        return False
    from fa._torch import compile

    return compile.dynamo_bypassing_wrapper is not None


def needs_functions(test):
    """Skips a test where PyTorch does not compile functions."""
    return pytest.mark.skipif(not has_functions(), reason="needs PyTorch 2.8")(test)


def on(array, library, dtype=None):
    """An array of NumPy in a library, where the test runs."""
    if library == "numpy":
        return array if dtype is None else array.astype(dtype, copy=False)
    import torch

    return torch.from_numpy(np.array(array)).to(DEVICE, dtype and getattr(torch, dtype))


def differentiate(result, *tensors):
    """Computes gradients, none of which is all 0."""
    import torch

    found = torch.autograd.grad(result.sum(), tensors)
    assert all(gradient.abs().sum() > 0 for gradient in found)


def compiled(function, backend="aot_eager", **options):
    """The function by torch.compile, as one graph and without what was compiled before."""
    import torch

    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend, **options)
