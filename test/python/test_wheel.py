# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The wheel: built, installed into a fresh virtual environment, used.

Takes minutes and needs the network or pip's configured indexes, so it runs only
when asked: FA_TEST_WHEEL=1 builds everything with LLVM inside; the path of a
library that scripts/build-portable.sh made builds the wheel around that one.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WANTED = os.environ.get("FA_TEST_WHEEL", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not WANTED, reason="FA_TEST_WHEEL is not set"),
]

USE = """
import fa, numpy as np
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((2, 3, 77, 40)).astype(np.float32) for _ in "qkv")
out, lse = fa.attention(q, k, v, return_lse=True)
s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(40)
p = np.exp(s - s.max(-1, keepdims=True))
exact = p / p.sum(-1, keepdims=True) @ v
assert np.abs(out - exact).max() < 1e-5
ptx = fa.compile(fa._config.AttentionConfig("bf16", 8, 2, 64, 64), "sm_80").asm["ptx"]
assert ".target sm_80" in ptx
print(fa.__file__)
"""


def run(*command, **options):
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    extra = []
    if WANTED != "1":
        library = pathlib.Path(WANTED).resolve()
        extra = [f"--config-settings=cmake.define.FA_LIBRARY={library}"]
        extra += [f"--config-settings=build-dir={folder / 'build'}"]
    run(sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "-w", folder, *extra)
    (made,) = folder.glob("fa-*.whl")
    return made


def test_content(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.startswith("fa/")}
    sources = {f"fa/{source.name}" for source in (ROOT / "python/fa").glob("*.py")}
    native = names - sources
    assert sources <= names
    assert {name.split(".")[0] for name in native} == {"fa/_native", "fa/libfa", "fa/libfa_runtime"}
    assert len(native) == 3


@pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf")
def test_library_is_self_contained(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        library = archive.extract("fa/libfa.so", tmp_path)
    needed = run("readelf", "-d", library)
    assert "libLLVM" not in needed and "libMLIR" not in needed
    assert ".symtab" not in run("readelf", "-S", "-W", library), "not stripped"
    symbols = [line.split() for line in run("readelf", "--dyn-syms", "-W", library).splitlines()]
    exported = {
        fields[7].split("@")[0]
        for fields in symbols
        if len(fields) > 7 and fields[4] in ("GLOBAL", "WEAK") and fields[6] not in ("UND", "Ndx")
    }
    assert "fa_compile" in exported
    assert {name for name in exported if not name.startswith("fa_")} == set()


def test_install_and_use(wheel, tmp_path):
    environment = tmp_path / "venv"
    run(sys.executable, "-m", "venv", environment)
    python = environment / "bin/python"
    run(python, "-m", "pip", "install", wheel)
    # Isolated: neither the working directory nor PYTHONPATH is searched.
    where = run(python, "-I", "-c", USE, cwd=tmp_path)
    assert where.startswith(str(environment)), where
