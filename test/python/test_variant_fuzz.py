# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stored and random score and mask functions; see function_corpus.py and variant_fuzzer.py.

FA_TEST_DEVICE (cpu) says where. On a GPU, or where these ask for it, more seeds run:
FA_FUZZ_FUNCTIONS (3) says up to which seed, FA_FUZZ_FIRST (0) from which, and
FA_FUZZ_GRADIENTS (2, on a GPU 60) up to which seed gradients are compared.
scripts/fuzz.sh runs new seeds for as long as one likes.
"""

from __future__ import annotations

import json
import os
import types

import function_corpus
import naive
import numpy as np
import pytest
import right
import variant_fuzzer
from libraries import DEVICE

ON_CPU = DEVICE == "cpu"
FUNCTIONS = int(os.environ.get("FA_FUZZ_FUNCTIONS", "3"))
FIRST = int(os.environ.get("FA_FUZZ_FIRST", "0"))
GRADIENTS = int(os.environ.get("FA_FUZZ_GRADIENTS", "2" if ON_CPU else "60"))
GROUP = 10


def stored(*uses):
    """Parametrizes a test by the stored functions of these uses."""
    entries = [entry for use in uses for entry in function_corpus.stored(use)]
    named = [pytest.param(e, id=f"{e['use']}-{e['name'].replace(' ', '-')}") for e in entries]
    return pytest.mark.parametrize("entry", named)


@pytest.mark.skipif(not ON_CPU, reason="seeds run there")
@stored("values", "emulator")
def test_stored_functions(entry):
    function_corpus.run(entry)


@pytest.mark.skipif(not ON_CPU, reason="seeds run there")
@stored("gradients", "sm_80", "sm_90a")
def test_gradients_of_stored_functions(entry):
    pytest.importorskip("torch")
    function_corpus.run(entry, shapes=1)


def test_each_op_is_stored():
    """So that a new op of the generator gets a function: function_corpus.py --choose."""
    stored = json.dumps(function_corpus.stored("values"))
    assert [op for op in variant_fuzzer.FLAVOURS if f'["{op}", ' not in stored] == []


@pytest.mark.parametrize("first", range(FIRST, FUNCTIONS, GROUP))
def test_random_functions(first):
    for seed in range(first, min(first + GROUP, FUNCTIONS)):
        variant_fuzzer.run_seed(seed, DEVICE, shapes=4 if ON_CPU else 10)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("first", range(0, GRADIENTS, GROUP))
def test_gradients_of_random_functions(first):
    pytest.importorskip("torch")
    import gradient_fuzzer

    for seed in range(first, min(first + GROUP, GRADIENTS)):
        gradient_fuzzer.run_seed(seed, DEVICE, shapes=2)


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
