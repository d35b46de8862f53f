# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiers of tests, one cache of compiled kernels for all processes, and the helpers' path.

`--tier quick` is for use after each edit: tests marked `ci` are left out, and of each
parametrised test a few cases are run, evenly spread; `@pytest.mark.quick_cases(n)` says how many
where `CASES` is too few or too many.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import sys

if "PYTEST_XDIST_WORKER" in os.environ:
    # Processes share the machine already; threads of each would wait for those of others.
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import fa  # noqa: E402
import pytest  # noqa: E402

# naive.py, right.py and libraries.py, for the tests in other folders.
sys.path.insert(0, str(pathlib.Path(__file__).parent / "python"))

CASES = 2
"""Cases of a parametrised test in the quick tier."""


def pytest_addoption(parser):
    parser.addoption(
        "--tier", choices=("quick", "ci"), default="ci", help="which tests to run (ci: all)"
    )


def pytest_collection_modifyitems(config, items):
    if config.getoption("--tier") == "ci":
        return
    tests = {}
    for item in items:
        if item.get_closest_marker("ci") is None:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = set()
    for cases in tests.values():
        marker = cases[0].get_closest_marker("quick_cases")
        count = min(marker.args[0] if marker else CASES, len(cases))
        kept.update(cases[i * len(cases) // count] for i in range(count))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _build_folder():
    """The build tree whose package is tested; None for one that lies elsewhere."""
    folder = pathlib.Path(fa.__file__).absolute().parents[2]
    return folder if (folder / "build.ninja").exists() else None


def pytest_configure(config):
    """Kernels of another build are of no use: once, before workers start, they go."""
    build = _build_folder()
    if build is None or hasattr(config, "workerinput"):
        return
    cache, library = build / "test-cache", build / "python/fa/libfa.so"
    with open(library, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    stamp = cache / "build"
    if not stamp.exists() or stamp.read_text() != digest:
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir()
        stamp.write_text(digest)


@pytest.fixture(scope="session", autouse=True)
def _cache_directory(tmp_path_factory):
    """The user's caches stay as they are. Processes share one, as do runs of one build."""
    build = _build_folder()
    folder = tmp_path_factory.mktemp("cache") if build is None else build / "test-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FA_CACHE_DIR", str(folder))
        if "FA_CPU_OPTIMIZE" not in os.environ:
            # Most of a test's time would be LLVM's. test.sh runs a part of them at 3.
            patch.setenv("FA_CPU_OPTIMIZE", "0")
        # PyTorch's would have programs made of another commit's operators.
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """A cache of the test's own: it counts compilations."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FA_CACHE_DIR", str(folder))
    return folder
