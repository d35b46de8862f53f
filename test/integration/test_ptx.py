# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How PTX is assembled, and the checks of it. Needs ptxas; test_corpus.py has what ships."""

from __future__ import annotations

import re

import check_ptx
import fa
import pytest
from ptx_header import parse_header

PTXAS = check_ptx.find_ptxas()
if not PTXAS:
    pytest.skip("no ptxas on the PATH or in the package triton", allow_module_level=True)


def test_keys_and_values_come_a_step_ahead_on_sm_80():
    """At D=64 there are registers for it: Q of 128 rows, K and V of 64 keys twice."""
    text = fa.compile(fa.AttentionConfig("bf16", 4, 4, 64, 64), "sm_80").asm["ptx"]
    (launch,) = parse_header(text).launches
    assert int(launch["smem"]) == (128 + 2 * (64 + 64)) * 64 * 2


def test_ptx_without_wgmma_is_seen():
    text = SPILLING.replace("sm_80", "sm_90a")
    (row,) = check_ptx.assemble_all([("planted", text)], "sm_90a")
    assert "no wgmma" in str(row)


SPILLING = """\
//!fa.program version=1 name=f target=sm_80
//!fa.launch kernel=f block=32 smem=128 grid=1 args=0
//!fa.end
.version 8.0
.target sm_80
.address_size 64
.visible .entry f(.param .u64 p) {
  .local .align 4 .b8 depot[64];
  .reg .b64 %rd<4>;
  .reg .b32 %r<4>;
  ld.param.u64 %rd1, [p];
  ld.global.u32 %r1, [%rd1];
  and.b32 %r2, %r1, 15;
  mul.wide.u32 %rd2, %r2, 4;
  mov.u64 %rd3, depot;
  add.u64 %rd2, %rd2, %rd3;
  st.local.u32 [%rd2], %r1;
  ld.local.u32 %r3, [depot+8];
  st.global.u32 [%rd1], %r3;
  ret;
}
"""


def test_local_memory_is_seen():
    (row,) = check_ptx.assemble_all([("planted", SPILLING)], "sm_80")
    assert not row.good and row.stack == 64 and row.smem == 128
    assert "FAIL" in str(row)


def test_bad_ptx_is_an_error():
    with pytest.raises(RuntimeError, match="planted: ptxas does not take it"):
        check_ptx.assemble_all([("planted", SPILLING.replace("ret;", "rat;"))], "sm_80")


@pytest.mark.parametrize("dim,rows,keys", [(64, 64, 128), (64, 128, 128), (128, 64, 128)])
@pytest.mark.parametrize("words", ["", "causal", "grouped", "grouped causal"])
def test_gradients_of_tiles_assemble(words, dim, rows, keys):
    """Nothing is serialised, and no steady loop has local memory but one; 32 bytes have what the
    producer's 24 registers do not hold between query heads, 16 what they do not hold while its
    warps zero and compute what follows. After its roles have parted a block has no barrier of all
    its threads, at which consumers would wait for the producer for ever."""
    config = fa.AttentionConfig(
        "bf16", 8, 2 if "grouped" in words else 8, dim, dim, is_causal="causal" in words
    )
    schedule = {"rows": rows, "keys": keys}
    text = fa.compile(config, "sm_90a", backward="all", schedule=schedule).asm["ptx"]
    rows = check_ptx.assemble("gradient", text, "sm_90a", check_ptx.find_ptxas())
    # Two instructions are 1.03 times as fast as none and 24 bytes outside the loop
    # (benchmarks/experiments/2026-11-28-p-in-f32.md).
    looped = 2 if dim == 128 and "grouped" not in words else 0
    assert len(rows) == 2 and not [str(row) for row in rows if row.messages or row.looped > looped]
    assert max(row.stack for row in rows) <= (32 if "grouped" in words else 16)
    (kernel,) = [part for part in text.split(".entry") if "setmaxnreg" in part]
    before, after = kernel.split("setmaxnreg", 1)
    whole = re.compile(r"\b(bar|barrier)\.sync\s+0;")
    assert len(whole.findall(before)) == 1 and not whole.search(after)
