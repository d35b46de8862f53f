# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels that ship are those that were measured, and the assembler spills no more of them
than is known. Each is compiled and assembled once."""

from __future__ import annotations

import check_ptx
import corpus
import ptx_digests
import ptx_gradients
import pytest

PTXAS = check_ptx.find_ptxas()
KNOWN = ptx_digests.known()
IS_KNOWN_LLVM = ptx_digests.release() == KNOWN["LLVM"]
RELEASE = check_ptx.release_of(PTXAS) if PTXAS else ""
IS_OLDER_PTXAS = RELEASE != "" and int(RELEASE.split(".")[0]) < 13
"""CUDA 12.8's, which the package triton has, serialises wgmma of some forwards (C7515)."""


@pytest.mark.quick_cases(24)
@pytest.mark.parametrize("entry", corpus.entries(), ids=str)
def test_kernel(entry):
    """If it is meant to change: ptx_digests.py --renew, and say what was measured."""
    text = entry.ptx()
    if IS_KNOWN_LLVM:
        assert ptx_digests.digest(text) == KNOWN[entry.chip].get(entry.known_as), "another kernel"
    if not PTXAS:
        pytest.skip("no ptxas on the PATH or in the package triton")
    rows = check_ptx.assemble_shipped(entry)
    if IS_OLDER_PTXAS and entry.chip == "sm_90a" and entry.kind != "gradient":
        pytest.skip(f"it was assembled; CUDA {RELEASE}'s ptxas serialises, 13.0's is judged")
    assert rows and not [str(row) for row in rows if row.messages], "serialised, or no wgmma"
    if entry.kind == "gradient" and RELEASE != ptx_gradients.RELEASE:
        pytest.skip(f"the limits are of CUDA {ptx_gradients.RELEASE}'s ptxas")
    beyond = [
        f'{row}: "{row.name}": Limit({row.stack}, {row.looped})' for row in rows if not row.good
    ]
    assert not beyond
    if entry.kind == "gradient" and entry.limit.stack:
        assert any(row.stack for row in rows), "it spills no more; take it from the list"
    if not IS_KNOWN_LLVM:
        pytest.skip(f"digests are of PTX made by LLVM {KNOWN['LLVM']}")


def test_all_kernels_are_known():
    for chip in corpus.CHIPS:
        assert KNOWN[chip].keys() == {entry.known_as for entry in corpus.entries(chip)}
        gradients = {entry.name for entry in corpus.entries(chip, "gradient")}
        assert ptx_gradients.LIMITS[chip].keys() <= gradients
