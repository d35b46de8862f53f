# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels in the cache on disk: found by the next process, never trusted if damaged."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import fa
import naive
import numpy as np
import pytest
import right
from fa import _native
from fa._run import cache as _cache
from fa._run import kernel as _kernel
from fa._run.config import AttentionConfig

CONFIG = AttentionConfig("f16", 2, 1, 64, 64, is_causal=True)

# Prints how often it compiled, whether the compiler was opened, and the PTX's size.
PROCESS = """
import fa
from fa import _native
from fa._run.call import _kernel
from fa._run.config import DEFAULT_SCHEDULE, AttentionConfig
kernel = _kernel(AttentionConfig("f16", 2, 1, 64, 64, is_causal=True), "sm_90a", DEFAULT_SCHEDULE)
print(_native.compilations(), _native.compiler_is_loaded(), len(kernel._module.ptx))
"""


@pytest.fixture(autouse=True)
def directory(empty_cache, monkeypatch):
    monkeypatch.delenv("FA_CACHE", raising=False)
    return empty_cache


def start():
    python_path = str(pathlib.Path(fa.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS],
        env={**os.environ, "PYTHONPATH": python_path},
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, _ = process.communicate()
    assert process.returncode == 0
    return out.split()


def compiled(make):
    """What `make` gives, and how many modules were compiled for it."""
    before = _native.compilations()
    result = make()
    return result, _native.compilations() - before


def test_second_process_does_not_open_the_compiler():
    first, second = finish(start()), finish(start())
    assert first[:2] == ["1", "True"] and second[:2] == ["0", "False"]
    assert first[2] == second[2]


def test_concurrent_writers(directory):
    processes = [start() for _ in range(3)]
    assert len({finish(process)[2] for process in processes}) == 1
    assert [path.suffix for path in directory.iterdir()] == [".fa"]
    assert finish(start())[:2] == ["0", "False"]


def test_stages_of_a_cached_kernel_are_compiled_when_asked_for():
    one, count = compiled(lambda: fa.compile(CONFIG, "sm_80"))
    assert count == 1
    two, count = compiled(lambda: fa.compile(CONFIG, "sm_80"))
    assert count == 0
    assert compiled(lambda: two.asm["ptx"]) == (one.asm["ptx"], 0)
    assert compiled(lambda: dict(two.asm)) == (dict(one.asm), 1)
    assert compiled(lambda: (two.stages, two.io)) == ((one.stages, one.io), 0)
    with pytest.raises(ValueError, match="expected 4 arrays"):
        two()


def test_what_the_key_holds(monkeypatch):
    requests = [
        lambda: fa.compile(CONFIG, "sm_80"),
        lambda: fa.compile(CONFIG, "sm_90"),
        lambda: fa.compile(CONFIG, "sm_80", algorithm="fa1"),
        lambda: fa.compile(CONFIG, "sm_80", rows=32),
        lambda: fa.compile(CONFIG, "sm_80", keys=32),
        lambda: fa.compile(CONFIG, "sm_80", speculate="on"),
        lambda: fa.compile(CONFIG, "sm_90a", schedule={"stages": 1}),
        lambda: fa.compile(CONFIG, "sm_90a"),
        lambda: fa.compile(CONFIG.ir((1, 64, 64)), "sm_80"),
    ]
    for request in requests:
        assert compiled(request)[1] == 1
    for request in requests:
        assert compiled(request)[1] == 0
    monkeypatch.setattr(_cache, "_compiler", lambda: b"another build")
    assert compiled(requests[0])[1] == 1


def test_machine_code_of_the_cpu():
    """From the cache it computes the same, for strides of any kind, and has its stages."""
    config = AttentionConfig("f32", 2, 1, 16, 24, return_lse=True)
    first, count = compiled(lambda: fa.compile(config))
    assert count == 1
    second, count = compiled(lambda: fa.compile(config))
    assert count == 0
    q, k, v = naive.inputs(1, 2, 1, 33, 40, 16, 24)
    for arrays in ((q, k, v), (q, np.asfortranarray(k), v)):
        results = []
        for kernel in (first, second):
            out, lse = np.full((1, 2, 33, 24), np.nan, "f4"), np.full((1, 2, 33), np.nan, "f4")
            kernel(*arrays, out, lse)
            results.append((out, lse))
        right.assert_right(results[0][0], right.attention(*arrays), results[0][1])
        assert all(np.array_equal(a, b) for a, b in zip(*results))
    assert compiled(lambda: second.stages) == (first.stages, 1)
    assert "ptx" not in second.asm and second.asm["source"] == first.ir


def test_machine_code_of_another_machine(monkeypatch):
    """The key has the machine (that an image is not taken there: ProgramTest.cpp)."""
    config = AttentionConfig("f32", 2, 1, 16, 16)
    assert compiled(lambda: fa.compile(config))[1] == 1
    monkeypatch.setattr(_native, "host", lambda: "another machine")
    assert compiled(lambda: fa.compile(config))[1] == 1


@pytest.mark.parametrize("cut", [0, 8, 15, 16, 17, 1000, -1])
def test_damaged_images(cut):
    image = _native.compile(*fa.compile(CONFIG)._request, 1, False).image()
    with pytest.raises(ValueError, match="compile the kernel anew"):
        _native.load_image(image[:cut], 1)


@pytest.mark.parametrize("level", ["0", "1", "2", "3"])
def test_optimization_of_the_cpu(level, monkeypatch):
    """Each level is another entry, and computes the same."""
    config = AttentionConfig("f32", 2, 2, 16, 16)
    monkeypatch.setenv("FA_CPU_OPTIMIZE", "3" if level != "3" else "0")
    fa.compile(config)
    monkeypatch.setenv("FA_CPU_OPTIMIZE", level)
    kernel, count = compiled(lambda: fa.compile(config))
    assert count == 1
    arrays = naive.inputs(1, 2, 2, 33, 40, 16, 16)
    out = np.full_like(arrays[0], np.nan)
    kernel(*arrays, out)
    right.assert_right(out, right.attention(*arrays))


def test_optimization_that_there_is_not(monkeypatch):
    monkeypatch.setenv("FA_CPU_OPTIMIZE", "fast")
    with pytest.raises(ValueError, match=r"FA_CPU_OPTIMIZE to be 0 .*, got 'fast'; unset it"):
        fa.compile(CONFIG)
    request = list(fa.compile(CONFIG, "sm_80")._request)
    with pytest.raises(ValueError, match="expected optimize to be 0, 1, 2 or 3, got 4"):
        _native.compile(*request[:-1], 4, 1, False)


def flipped(at):
    def damage(data):
        place = at if at >= 0 else len(data) + at
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[:-1],
        lambda data: data + b" ",
        lambda data: bytes(len(data)),
        flipped(0),
        flipped(20),
        flipped(45),
        flipped(60),
        flipped(-1),
    ],
)
def test_damaged_entries_are_compiled_again(directory, damage):
    good, _ = compiled(lambda: fa.compile(CONFIG, "sm_80"))
    (entry,) = directory.iterdir()
    data = entry.read_bytes()
    entry.write_bytes(damage(data))
    again, count = compiled(lambda: fa.compile(CONFIG, "sm_80"))
    assert count == 1 and again.asm == good.asm
    assert entry.read_bytes() == data, "not repaired"


def test_entry_of_another_kernel(directory):
    fa.compile(CONFIG, "sm_80")
    (one,) = directory.iterdir()
    fa.compile(CONFIG, "sm_90")
    (two,) = set(directory.iterdir()) - {one}
    shutil.copy(one, two)
    kernel, count = compiled(lambda: fa.compile(CONFIG, "sm_90"))
    assert count == 1 and ".target sm_90\n" in kernel.asm["ptx"]


@pytest.mark.parametrize("value", [b"", b"x" * 15, b"\xff" * 16, b"\0" * 40])
def test_values_that_are_no_entries(value):
    """What another program may have kept under the key."""
    key = _cache.key_of("a request")
    _native.cache_put(key, value)
    assert _cache.get(key) is None


def test_directory_that_cannot_be_written(tmp_path, monkeypatch, capfd):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("FA_VERBOSE", "1")
    for _ in range(2):
        kernel, count = compiled(lambda: fa.compile(CONFIG, "sm_80"))
        assert count == 1 and ".target sm_80" in kernel.asm["ptx"]
    assert capfd.readouterr().err.count("sm_80: PTX not cached: cannot ") == 2


def test_switched_off(directory, monkeypatch):
    monkeypatch.setenv("FA_CACHE", "0")
    for _ in range(2):
        assert compiled(lambda: fa.compile(CONFIG, "sm_80"))[1] == 1
    assert not directory.exists()


def test_verbose(monkeypatch, capfd):
    monkeypatch.setenv("FA_VERBOSE", "1")
    fa.compile(CONFIG, "sm_80")
    fa.compile(CONFIG, "sm_80")
    first, second = capfd.readouterr().err.splitlines()
    assert first.startswith("fa: sm_80: compiled in ")
    assert second.startswith("fa: sm_80: PTX from the cache, ")


def test_library_without_a_build_id(tmp_path, monkeypatch):
    library = tmp_path / "libfa.so"
    library.write_bytes(b"one build")
    monkeypatch.setattr(_native, "compiler_path", lambda: str(library))
    identity = _cache._compiler.__wrapped__
    one = identity()
    library.write_bytes(b"another build")
    assert one is not None and one != identity()
    library.write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 90)
    assert identity() is None or len(identity()) == 20
    library.unlink()
    assert identity() is None
    monkeypatch.setattr(_cache, "_compiler", identity)
    assert compiled(lambda: _kernel.compile(CONFIG, "sm_80"))[1] == 1


def test_build_id_of_the_library():
    assert len(_cache._build_id(_native.compiler_path())) == 20


def test_notes(tmp_path, monkeypatch, capfd):
    """What a kernel is otherwise than expected, from the compiler and from the cache."""
    monkeypatch.setenv("FA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("FA_VERBOSE", "1")
    usual = AttentionConfig("bf16", 2, 2, 64, 64)
    assert fa.compile(usual, "sm_90a").notes == [] == fa.compile(usual, "sm_80").notes
    for _ in range(2):
        notes = fa.compile(AttentionConfig("f32", 2, 2, 64, 64), "sm_90a").notes
        assert [note.partition(":")[0] for note in notes] == [
            "fa-speculate-max",
            "fa-hopper-place",
        ]
        assert "left the kernel to the Ampere schedule" in notes[1]
        said = capfd.readouterr().err
        assert all(note in said for note in notes)
    assert "PTX from the cache" in said
