# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The short way of a call to the GPU, through the runtime and a fake driver."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import fa
import numpy as np
import pytest
from fa import _arrays

PACKAGES = pathlib.Path(fa.__file__).parents[1]
DRIVER = PACKAGES.parent / "test/unit/runtime/libfa_fake_cuda.so"
SCRIPT = pathlib.Path(__file__).with_name("fake_gpu.py")
CASES = re.findall(r"^def (\w+)\(\):\n    \"\"\"", SCRIPT.read_text(), re.MULTILINE)


@pytest.mark.skipif(not DRIVER.exists(), reason="the fake driver is not built")
@pytest.mark.parametrize("case", CASES)
def test_on_a_fake_gpu(case, tmp_path):
    environment = {
        **os.environ,
        "PYTHONPATH": str(PACKAGES),
        "FA_CUDA_DRIVER": str(DRIVER),
        "FAKE_CUDA_CC": "90",
        "FAKE_CUDA_VERSION": "13000",
        "FAKE_CUDA_SMEM": "232448",
        "FA_CACHE_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), case],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_pytorch_is_one_library():
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(1, 1, 4, 16)
    parameter = torch.nn.Parameter(torch.zeros(1, 1, 4, 16))
    assert _arrays.library_of(tensor) is _arrays.library_of(parameter)
    assert _arrays.library_of(tensor).is_native == hasattr(
        torch.Tensor, "__dlpack_c_exchange_api__"
    )
    # On the CPU nothing changes.
    with torch.no_grad():
        out = fa.attention(tensor, parameter, parameter)
    assert isinstance(out, torch.Tensor) and not np.asarray(out).any()
