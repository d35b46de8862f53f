# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random score and mask functions; see variant_fuzzer.py.

FA_FUZZ_FUNCTIONS (24) says how many, FA_TEST_DEVICE (cpu) where.
"""

from __future__ import annotations

import os

import pytest
import variant_fuzzer

FUNCTIONS = int(os.environ.get("FA_FUZZ_FUNCTIONS", "24"))
DEVICE = os.environ.get("FA_TEST_DEVICE", "cpu")
GROUP = 8


@pytest.mark.parametrize("first", range(0, FUNCTIONS, GROUP))
def test_random_functions(first):
    for seed in range(first, min(first + GROUP, FUNCTIONS)):
        variant_fuzzer.run_seed(seed, DEVICE, shapes=9)


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
