# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The short way of a call: to the GPU, through the runtime and a fake driver; to the CPU."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import fa
import numpy as np
import pytest
from fa import _native
from fa._run import arrays as _arrays

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
    with torch.no_grad():
        out = fa.attention(tensor, parameter, parameter)
    assert isinstance(out, torch.Tensor) and not np.asarray(out).any()


def test_known_on_the_cpu():
    torch = pytest.importorskip("torch")
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this PyTorch has no exchange API")

    def known(*arrays, causal=False, lse=False):
        return _native.attention(*arrays, causal, None, lse, 0, ())

    def make(sq, sk, dim=24):
        return [torch.randn(2, 3, n, dim) for n in (sq, sk, sk)]

    q, k, v = make(5, 40)
    assert known(q, k, v) is None
    out = fa.attention(q, k, v)
    assert torch.equal(known(q, k, v), out)
    # Other lengths and strides are the same kernel.
    q, k, v = make(1, 300)
    apart = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert torch.equal(known(q, k, v), fa.attention(*apart))
    assert known(*apart).transpose(1, 2).is_contiguous()
    # Another variant is not, nor what does not fit: the long way has the message.
    assert known(q, k, v, causal=True) is None
    assert known(q, k, v, lse=True) is None
    assert known(q, k, v[:, :, 1:]) is None
    assert known(q[0], k, v) is None
    assert known(q.double(), k.double(), v.double()) is None
    assert known(q.to("meta"), k, v) is None
    with pytest.raises(ValueError, match="same length"):
        fa.attention(q, k, v[:, :, 1:])
    fa.attention(q, k, v, return_lse=True)
    out, lse = known(q, k, v, lse=True)
    assert out.shape == q.shape and lse.shape == q.shape[:3]
    empty = make(0, 4)
    assert known(*empty).shape == empty[0].shape
    # What PyTorch has to see goes the long way.
    out = fa.attention(q.requires_grad_(), k, v)
    assert out.requires_grad
