# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests leave the user's caches of compiled kernels alone, and share what is right."""

from __future__ import annotations

import pathlib
import sys

import pytest

# naive.py, right.py and libraries.py, for the tests in other folders.
sys.path.insert(0, str(pathlib.Path(__file__).parent / "python"))


@pytest.fixture(scope="session", autouse=True)
def _cache_directory(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        # PyTorch's would have programs made of another commit's operators.
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield
