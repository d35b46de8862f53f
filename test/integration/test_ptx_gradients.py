# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Local memory and R2P in machine code are seen where they are. Needs ptxas."""

from __future__ import annotations

import subprocess

import check_ptx
import check_sass
import corpus
import fa
import ptx_gradients
import pytest
import sass_loops
from check_ptx import Limit

PTXAS = check_ptx.find_ptxas()
if not PTXAS:
    pytest.skip("no ptxas on the PATH or in the package triton", allow_module_level=True)


PLANTED = """\
//!fa.program version=1 name=f target={chip}
//!fa.launch kernel=f block=32 smem=128 grid=1 args=0
//!fa.end
.version 8.0
.target {chip}
.address_size 64
.visible .entry f(.param .u64 p, .param .u32 n) {{
  .local .align 4 .b8 depot[64];
  .reg .b64 %rd<4>;
  .reg .b32 %r<8>;
  .reg .pred %p<4>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r4, [n];
  mov.u64 %rd3, depot;
  mov.u32 %r5, 0;
  {before}
$heads:
  .pragma "nounroll";
  mov.u32 %r6, 0;
  {around}
$rows:
  .pragma "nounroll";
  ld.global.u32 %r1, [%rd1];
  {inside}
  bar.sync 0;
  st.global.u32 [%rd1], %r1;
  add.s32 %r6, %r6, 1;
  setp.lt.s32 %p1, %r6, %r4;
  @%p1 bra $rows;
  add.s32 %r5, %r5, 1;
  setp.lt.s32 %p2, %r5, %r4;
  @%p2 bra $heads;
  ret;
}}
"""
LOCAL = """\
ld.volatile.global.u32 %r2, [%rd1];
  and.b32 %r2, %r2, 15;
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd2, %rd2, %rd3;
  st.local.u32 [%rd2], %r4;
  add.u32 %r2, %r2, %r4;
  and.b32 %r2, %r2, 15;
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd2, %rd2, %rd3;
  ld.local.u32 %r3, [%rd2];
  st.volatile.global.u32 [%rd1], %r3;"""


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("where", "looped"), [("before", 0), ("around", 0), ("inside", 2)])
def test_local_memory_is_seen_where_it_is(chip, where, looped):
    """In the loop that has the barrier; not before it, nor in one around it."""
    parts = {"before": "", "around": "", "inside": "", where: LOCAL}
    text = PLANTED.format(chip=chip, **parts)
    (row,) = check_ptx.assemble("planted", text, chip, PTXAS, Limit(64, looped))
    assert row.good and (row.stack, row.looped) == (64, looped)
    for limit in (Limit(63, looped), Limit(64, looped - 1), Limit()):
        (row,) = check_ptx.assemble("planted", text, chip, PTXAS, limit)
        assert not row.good and "FAIL" in str(row)


def assembled(text, chip, tmp_path):
    """The machine code of PTX, a file."""
    ptx, cubin = tmp_path / "f.ptx", tmp_path / "f.cubin"
    ptx.write_text(text)
    subprocess.run([PTXAS, f"-arch={chip}", ptx, "-o", cubin], check=True)
    return cubin


def disassembled(nvdisasm, cubin):
    """Its functions, as nvdisasm reads them."""
    done = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True)
    return check_sass.parse(done.stdout)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_machine_code_is_read_as_nvdisasm_reads_it(chip, dtype, tmp_path):
    nvdisasm = check_sass.find_tool("nvdisasm")
    if not nvdisasm:
        pytest.skip("no nvdisasm on the PATH, in FA_CUDA_BIN or of the package triton")
    config = fa.AttentionConfig(dtype, 8, 2, 64, 64)
    text = fa.compile(config, chip, backward="all", deterministic=True).asm["ptx"]
    cubin = assembled(text, chip, tmp_path)
    kernels, listed = sass_loops.functions(cubin.read_bytes()), disassembled(nvdisasm, cubin)
    assert {function.name for function in listed} == set(kernels)
    for function in listed:
        code = sass_loops.decode(kernels[function.name], chip)
        assert len(code) == len(function.code)
        for own, other in zip(code, function.code):
            opcode = other.opcode.partition(".")[0]
            assert (own.opcode in sass_loops.LOCAL) == (opcode in ("LDL", "STL")), other
            assert (own.opcode in sass_loops.BARRIERS) == (opcode == "BAR"), other
            assert opcode != "BRA" or own.target == function.target(other), other


def test_bits_of_dropout_become_predicates_by_r2p(tmp_path):
    """Rather than tested one by one, by the order in which elements are computed
    (KernelEmitter::orderOf): a byte holds eight, and P and dS read each."""
    if check_ptx.release_of(PTXAS) != ptx_gradients.RELEASE:
        pytest.skip(f"the count is of CUDA {ptx_gradients.RELEASE}'s ptxas")
    name = str(ptx_gradients.Gradient((64, 64), words=("dropout",)))
    (dropout,) = (x for x in corpus.entries("sm_90a", "gradient") if x.name == name)
    cubin, moves = assembled(dropout.ptx(), "sm_90a", tmp_path), 0
    for kernel in sass_loops.functions(cubin.read_bytes()).values():
        code = sass_loops.decode(kernel, "sm_90a")
        moves += sum(own.opcode == sass_loops.BITS_TO_PREDICATES for own in code)
    elements = 128 * 128 // (2 * 128)  # of a thread of two warpgroups
    assert moves >= 2 * elements / 8
    if nvdisasm := check_sass.find_tool("nvdisasm"):
        listed = [i.opcode for f in disassembled(nvdisasm, cubin) for i in f.code]
        assert moves == listed.count("R2P")
