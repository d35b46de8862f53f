# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random score and mask functions; see variant_fuzzer.py.

FA_FUZZ_FUNCTIONS (20) says up to which seed, FA_FUZZ_FIRST (0) from which,
FA_TEST_DEVICE (cpu) where,
FA_FUZZ_EMULATED (20) how many as PTX in the emulator, and
FA_FUZZ_GRADIENTS (60) up to which seed gradients are compared; see gradient_fuzzer.py.
"""

from __future__ import annotations

import os
import types

import naive
import numpy as np
import pytest
import right
import variant_fuzzer
from libraries import DEVICE

FUNCTIONS = int(os.environ.get("FA_FUZZ_FUNCTIONS", "20"))
FIRST = int(os.environ.get("FA_FUZZ_FIRST", "0"))
GROUP = 10


@pytest.mark.parametrize("first", range(FIRST, FUNCTIONS, GROUP))
def test_random_functions(first):
    for seed in range(first, min(first + GROUP, FUNCTIONS)):
        variant_fuzzer.run_seed(seed, DEVICE, shapes=10)


GRADIENTS = int(os.environ.get("FA_FUZZ_GRADIENTS", "60"))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("first", range(0, GRADIENTS, GROUP))
def test_gradients_of_random_functions(first):
    pytest.importorskip("torch")
    import gradient_fuzzer

    for seed in range(first, min(first + GROUP, GRADIENTS)):
        gradient_fuzzer.run_seed(seed, DEVICE, shapes=2)


@pytest.mark.ci
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_gradients_of_random_functions_compile(chip):
    """Where there is no such GPU, too."""
    pytest.importorskip("torch")
    import gradient_fuzzer

    for seed in range(10):
        gradient_fuzzer.run_seed(seed, chip)


def test_a_wrong_derivative_is_noticed(monkeypatch):
    pytest.importorskip("torch")
    import gradient_fuzzer

    def planted(own):
        def op(*args):
            y = own(*args)
            return y + 0.02 * (y - y.detach())  # the same value with another slope

        return op

    for name in ("quotient", "average", "sigmoid", "sin", "tanh", "neg"):
        monkeypatch.setitem(gradient_fuzzer.OPS, name, planted(gradient_fuzzer.OPS[name]))
    failures = []
    for seed in range(16):
        case = gradient_fuzzer.GradientCase(seed, DEVICE)
        if case.dtype in ("float32", "float64") and "quotient" in str(case.score):
            try:
                gradient_fuzzer.run_seed(seed, DEVICE, shapes=1)
            except AssertionError as error:
                failures.append(str(error))
    assert failures and all("seed" in text and "score:" in text for text in failures)


def test_a_wrong_reference_is_noticed(monkeypatch):
    """The fuzzer sees an error, and says how to find it again."""
    reference = variant_fuzzer._reference

    def planted(kind):
        return {**reference(kind), "tanh": lambda x: x * kind(0.9), "le": lambda x, y: x < y}

    monkeypatch.setattr(variant_fuzzer, "_reference", planted)
    failures = []
    for seed in range(8):
        try:
            variant_fuzzer.run_seed(seed, DEVICE, shapes=2)
        except AssertionError as error:
            failures.append(str(error))
    assert failures and all("seed" in text and "score:" in text for text in failures)


EMULATED = int(os.environ.get("FA_FUZZ_EMULATED", "20"))


@pytest.mark.ci
@pytest.mark.skipif(DEVICE != "cpu", reason="runs on a GPU")
def test_random_functions_as_ptx():
    """Kernels for GPUs, an instruction at a time on the CPU."""
    for seed in range(EMULATED):
        variant_fuzzer.run_seed(seed, "emulator")


LARGEST = np.iinfo(np.int64).max


@pytest.mark.parametrize(
    ("numbers", "mask", "formula"),
    [
        # No limit, in integers of 64 bits: neither of a loop's bounds nor of an element.
        (np.array([LARGEST, 5]), lambda x, b, h, i, j: j < x[h], lambda h, i, j: (j < 5) | (h < 1)),
        (
            np.array([LARGEST - 1, -LARGEST]),
            lambda x, b, h, i, j: (j <= x[h]) & (i - 3 <= x[h]) & (x[h] + 1 > 0),
            lambda h, i, j: (h < 1) & (i >= 0) & (j >= 0),
        ),
        (
            np.array([2**31 - 1, 3], np.int32),
            lambda x, b, h, i, j: j <= i + x[h],
            lambda h, i, j: (j <= i + 3) | (h < 1),
        ),
        # Equal in 32 bits only.
        (
            np.array([0, 1, 1 << 32, 1 + (1 << 32)]),
            lambda x, b, h, i, j: x[i % 4] == x[j % 4],
            lambda h, i, j: (i % 4 == j % 4) & (h >= 0),
        ),
        (
            np.array([True, False, True]),
            lambda x, b, h, i, j: x[(i * 65536 + j) * 65536 // 3 * 3 - (1 << 40)],
            lambda h, i, j: (h >= 0) & (i >= 0) & (j >= 0),
        ),
    ],
)
def test_integers_beyond_32_bits_as_ptx(numbers, mask, formula):
    case = types.SimpleNamespace(
        dtype="float16", heads=(2, 1), dims=(16, 16), is_causal=False, scale=None
    )
    array = variant_fuzzer.EmulatedArray(numbers, numbers.dtype.name)
    q, k, v = naive.inputs(1, 2, 1, 20, 50, 16)
    given = [variant_fuzzer.EmulatedArray(x, "float16") for x in (q, k, v)]
    out, lse = variant_fuzzer.emulated(
        case, None, lambda b, h, i, j: mask(array, b, h, i, j), given
    )
    expected = right.attention(*(x.raw for x in given), mask=lambda b, h, i, j: formula(h, i, j))
    right.assert_right(out, expected, lse)
