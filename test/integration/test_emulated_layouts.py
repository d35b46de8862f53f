# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where tiles live, said by hand: other layouts give the same numbers in the emulator, what
cannot be is an error of fa-tiles-to-threads, and the IR between a schedule and its threads
holds all that the kernel needs."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from ptx_emulator import Kernel, Memory
from ptx_header import evaluate, parse_header

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/python"))
import right  # noqa: E402

FA_OPT = ROOT / os.environ.get("FA_BUILD_DIR", "build") / "bin/fa-opt"
pytestmark = pytest.mark.skipif(not FA_OPT.exists(), reason="needs the build tree")

PRODUCT = """
#ik = affine_map<(i, j, k) -> (i, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
#ij = affine_map<(i, j, k) -> (i, j)>
#sum = #nvidia.fragment<tile, row_warps = 2 of 4>
#a = #nvidia.shared<offset = 0, ring = 0, stages = 2>
#b = #nvidia.shared<offset = 4096, ring = 1, stages = 2>
!sum = tensor<64x64xf32, #sum>
!a = tensor<64x16xf16, #a>
!b = tensor<16x64xf16, #b>
func.func @product(%a: tensor<64x96xf16>, %b: tensor<96x64xf16>) -> tensor<64x64xf32> {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c96 = arith.constant 96 : index
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64x64xf32>
  %result = scf.forall (%i) = (0) to (64) step (64) shared_outs(%out = %empty)
      -> (tensor<64x64xf32>) {
    %new = tensor.empty() : !sum
    %none = linalg.fill ins(%zero : f32) outs(%new : !sum) -> !sum
    %total = scf.for %k = %c0 to %c96 step %c16 iter_args(%acc = %none) -> (!sum) {
      %x = tensor.extract_slice %a[%i, %k] [64, 16] [1, 1] : tensor<64x96xf16> to !a
      %y = tensor.extract_slice %b[%k, 0] [16, 64] [1, 1] : tensor<96x64xf16> to !b
      %next = linalg.generic {indexing_maps = [#ik, #kj, #ij],
          iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%x, %y : !a, !b) outs(%acc : !sum) {
      ^bb0(%p: f16, %q: f16, %s: f32):
        %pe = arith.extf %p : f16 to f32
        %qe = arith.extf %q : f16 to f32
        %m = arith.mulf %pe, %qe : f32
        %r = arith.addf %s, %m : f32
        linalg.yield %r : f32
      } -> !sum
      scf.yield %next : !sum
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %total into %out[%i, 0] [64, 64] [1, 1]
        : !sum into tensor<64x64xf32>
    }
  } {nvidia.block = #nvidia.block<chip = "sm_80", warps = 4, teams = 1, shared = 8192>}
  return %result : tensor<64x64xf32>
}
"""
WARPS, SUM = "warps = 4, teams", "row_warps = 2 of 4"
A, B = "offset = 0, ring = 0, stages = 2", "offset = 4096, ring = 1, stages = 2"


def edited(*pairs, text=PRODUCT):
    """The program with other words in the place of some."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def fa_opt(text, *passes):
    done = subprocess.run([FA_OPT, "-", *passes], input=text, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def to_ptx(text, path, chip="sm_80"):
    code, _, errors = fa_opt(
        text,
        "--fa-tiles-to-threads",
        "--fa-lower-to-nvvm",
        f"--fa-emit-ptx=chip={chip} output={path}",
    )
    assert code == 0, errors
    return path.read_text()


@pytest.mark.parametrize(
    "edits",
    [
        (),
        ((SUM, "row_warps = 4 of 4"),),  # all warps divide rows
        ((SUM, "row_warps = 1 of 4"),),  # or columns
        ((SUM, "row_warps = 2 of 2"),),  # two warps have copies
        ((SUM, "row_warps = 4 of 8"), (WARPS, "warps = 8, teams")),
        ((SUM, "row_warps = 1 of 1"), (WARPS, "warps = 1, teams")),
        # Without rings, with another number of stages, each filled once it is read.
        ((A, "offset = 0"), (B, "offset = 2048")),
        ((A, "offset = 0"), (B, "offset = 2048, ring = 0, stages = 2")),
        (
            (A, "offset = 0, ring = 0, stages = 3"),
            (B, "offset = 6144, ring = 1, stages = 3"),
            ("shared = 8192", "shared = 12288"),
        ),
        # The other one comes first in memory, and there is room between.
        ((A, "offset = 8192, ring = 0, stages = 2"), ("shared = 8192", "shared = 12288")),
    ],
    ids=lambda edits: ", ".join(new for _, new in edits) or "as it is",
)
def test_other_layouts_give_the_same_numbers(edits, tmp_path):
    text = to_ptx(edited(*edits), tmp_path / "product.ptx")
    random = np.random.default_rng(3)
    a, b = (random.standard_normal(shape).astype("f2") for shape in ((64, 96), (96, 64)))
    out, memory = np.full((64, 64), np.nan, "f4"), Memory()
    program = parse_header(text)
    (launch,) = program.launches
    params = []
    for array in (a, b, out):
        at = memory.add(array)
        params += [at, *array.shape, *(s // array.itemsize for s in array.strides)]
    assert evaluate(launch["grid"], {0: a, 1: b, 2: out}) == 1
    kernel = Kernel(text, launch["kernel"])
    kernel.run(0, int(launch["block"]), int(launch["smem"]), memory, params)
    found = memory.read_back(at, out)
    exact = a.astype("f8") @ b.astype("f8")
    assert right.share(found, exact, 1e-5 * np.abs(exact).max(), False) <= 1


IN_TURN = ((A, A + ", in_turn = true"), (B, B + ", in_turn = true"))


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        # What types say.
        (((SUM, "row_warps = 3 of 4"),), "a multiple of those that divide the rows, got 3 of 4"),
        (((SUM, "row_warps = 8 of 8"),), "multiples of 16 for each of 8 warps, got 64"),
        (((SUM, "row_warps = 1 of 32"),), "multiples of 8 for each of 32 warps, got 64"),
        (((SUM, "row_warps = 1 of 64"),), "at most 32 warps"),
        (((SUM, "row_warps = 0 of 4"),), "got 0 of 4"),
        ((("<tile,", "<rows,"),), "expected a static shape of rank 1 for fragments of rows"),
        (((A, "offset = 100"),), "a multiple of 128, got 100"),
        (((A, "offset = 0, stages = 2"),), "or neither, got ring -1 of 2 stages"),
        (((A, "offset = 0, ring = 0, stages = 0"),), "got ring 0 of 0 stages"),
        (((WARPS, "warps = 40, teams"),), "at most 32 warps in a block, got 1 times 40"),
        (((WARPS, "warps = 0, teams"),), "got 1 times 0"),
        (((", teams = 1", ", teams = 3"),), "that 3 teams divide, got 8192"),
        ((("} {nvidia.block", "} {nvidia.black"),), "unknown attribute of the nvidia dialect"),
        ((("nvidia.block = #nv", "nvidia.hoisted = #nv"),), "a unit attribute of a product"),
        # What they say together.
        (((WARPS, "warps = 2, teams"),), "expected its tile's warps to divide the block's, 2"),
        (((", teams = 1", ", teams = 2"),), "expected the teams of its tile queue, 1, got 2"),
        ((('"sm_80"', '"sm_70"'),), "unknown target 'sm_70'"),
        ((("shared = 8192", "shared = 8000"),), "ends at byte 8192 of shared memory"),
        ((("shared = 8192", "shared = 999936"),), "and sm_80 has 166912"),
        (((B, "offset = 3968, ring = 1, stages = 2"),), "has two tiles at byte 3968"),
        (((B, "offset = 4096, ring = 2, stages = 2"),), "numbered from 0"),
        (((B, "offset = 4096, ring = 1, stages = 3"), ("= 8192", "= 12288")), "as many stages"),
        (
            ((A, "offset = 0, ring = 0"), (B, "offset = 4096, ring = 1")),
            "expected a ring of two stages or more",
        ),
        (IN_TURN, "or one whose loads are read in turn"),
        ((("tensor<16x64xf16, #b>", "tensor<16x64xf16>"),), "second operand in shared memory"),
        (
            (("tensor<64x16xf16, #a>", "tensor<64x16xf16>"), (B, "offset = 4096")),
            "first operand in shared memory",
        ),
        ((("xf32, #sum>", "xf32>"),), "that no thread holds; give it a #nvidia.fragment"),
        (
            (("outs(%acc : !sum) {", "outs(%acc : !sum) attrs = {nvidia.hoisted} {"),),
            "nvidia.hoisted to be loaded before the loop",
        ),
        ((("nvidia.block = #nv", "other = #nv"),), "does not say where its tiles live"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_cannot_be_is_an_error(edits, message):
    code, _, errors = fa_opt(edited(*edits), "--fa-tiles-to-threads")
    assert code == 1 and "error:" in errors and message in errors, errors


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("backward", ["", " backward=all"])
def test_the_ir_between_schedule_and_threads_holds_all(chip, backward, tmp_path):
    source = (ROOT / "test/inputs/gpt2-small.mlir").read_text()
    options = f"target={chip} stop-after=fa-schedule-ampere{backward}"
    code, text, errors = fa_opt(source, f"--fa-pipeline={options}")
    assert code == 0, errors
    for words in ("#nvidia.block<", "#nvidia.fragment<tile"):
        assert words in text
    code, again, errors = fa_opt(text)
    assert code == 0 and again == text, errors
    printed = to_ptx(text, tmp_path / "printed.ptx", chip)
    passes = [
        f"fa-pipeline{{{options}}}",
        "fa-tiles-to-threads",
        "fa-lower-to-nvvm",
        f"fa-emit-ptx{{chip={chip} output={tmp_path / 'direct.ptx'}}}",
    ]
    code, _, errors = fa_opt(source, f"--pass-pipeline=builtin.module({','.join(passes)})")
    assert code == 0, errors
    assert printed == (tmp_path / "direct.ptx").read_text()
