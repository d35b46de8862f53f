#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the machine code of kernels with roles (sm_90a), without a GPU.

    check_sass.py [--overlap] [--after N] FILE.ptx ...

Assembles each file with ptxas, disassembles it with nvdisasm (both on the PATH,
in FA_CUDA_BIN, or of the package triton) and prints one row a kernel. Fails
where

- ptxas says that it serialised wgmma (C75xx), or spills or uses local memory;
- setmaxnreg is not there for both roles: ptxas drops it where it does not know
  the registers at entry;
- the consumers' loop, the innermost one that starts matrix products, does not
  start both before it waits for one.

With --overlap the softmax of that loop must run under the second product: it
waits for the first product, then for the second, and all its exponentials but N
stand between the two. What the loop branches over by a vote of the warp (rows
whose reference maximum is too small) does not count.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

import check_ptx


def find_tool(name: str) -> str | None:
    """A program of the CUDA toolkit."""
    folders = [os.environ.get("FA_CUDA_BIN", "")]
    spec = importlib.util.find_spec("triton")
    for folder in spec.submodule_search_locations if spec else []:
        folders.append(str(pathlib.Path(folder, "backends/nvidia/bin")))
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(filter(None, folders)))


@dataclass
class Instruction:
    """One instruction: its index, its guard, its text without the guard."""

    index: int
    guard: str
    text: str

    @property
    def opcode(self) -> str:
        return self.text.split(" ", 1)[0]


@dataclass
class Function:
    """A kernel's instructions in order, and the index of each label."""

    name: str
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def target(self, at: Instruction) -> int | None:
        """Where a branch goes."""
        label = re.search(r"`\((\.L_x_\d+)\)", at.text)
        return self.labels.get(label[1]) if label and at.opcode.startswith("BRA") else None


def parse(text: str) -> list[Function]:
    """The functions of what `nvdisasm -c` prints."""
    functions = []
    for line in text.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.([^,\s]+)", line):
            functions.append(Function(section[1]))
        elif not functions:
            continue
        elif label := re.match(r"(\.L_x_\d+):", line):
            functions[-1].labels[label[1]] = len(functions[-1].code)
        elif match := re.match(r"\s*/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?(\S.*?)\s*;", line):
            code = functions[-1].code
            code.append(Instruction(len(code), (match[1] or "").strip(), match[2]))
    return functions


def is_product(i: Instruction) -> bool:
    return i.opcode.startswith("HGMMA")


def reachable(function: Function, without: int) -> set[int]:
    """The instructions that the entry reaches without passing one of them."""
    seen, work = set(), [0]
    while work:
        at = work.pop()
        if at in seen or at == without or at >= len(function.code):
            continue
        seen.add(at)
        i = function.code[at]
        to = function.target(i)
        if to is not None:
            work.append(to)
        if i.guard or i.opcode not in ("BRA", "EXIT", "RET"):
            work.append(at + 1)
    return seen


def steady_loop(function: Function) -> list[Instruction]:
    """The smallest loop that starts matrix products; [] where there is none."""
    best = []
    for branch in function.code:
        to = function.target(branch)
        if to is None or to > branch.index:
            continue
        body = function.code[to : branch.index + 1]
        # A branch back to what does not dominate it returns from a wait that
        # stands behind the function.
        if (
            any(map(is_product, body))
            and (not best or len(body) < len(best))
            and branch.index not in reachable(function, to)
        ):
            best = body
    return best


def common_path(function: Function, loop: list[Instruction]) -> list[Instruction]:
    """The loop without what a branch on a warp's vote jumps over."""
    path, skip, voted = [], -1, ""
    for i in loop:
        if i.index < skip:
            continue
        path.append(i)
        if i.opcode.startswith("VOTE"):
            voted = re.findall(r"\b(U?P\d)\b", i.text)[0]
        to = function.target(i)
        if to is not None and to > i.index and voted and i.guard == f"@!{voted}":
            skip, voted = to, ""
    return path


@dataclass
class Report:
    """What the machine code of one kernel says."""

    name: str
    released: bool  # setmaxnreg.dec, of the producer
    taken: bool  # setmaxnreg.inc, of the consumers
    products: int
    events: str  # of the loop: S, O (a product's start), 1, 0 (a wait), in order
    before: int  # exponentials of the loop before its last wait
    after: int

    def problems(self, overlap: bool, after: int = 0) -> list[str]:
        found = []
        if not (self.released and self.taken):
            found.append("no setmaxnreg")
        if self.events not in (("SO10",) if overlap else ("SO0", "SO10")):
            found.append(f"waits in another order: {self.events or 'no loop'}")
        if overlap and (self.after > after or not self.before):
            found.append(
                f"{self.after} of {self.before + self.after} exponentials after the last wait"
            )
        return found

    def __str__(self) -> str:
        return (
            f"{self.name}: setmaxnreg {'yes' if self.released and self.taken else 'NO'}, "
            f"{self.products} products in a loop {self.events}, exponentials {self.before} "
            f"before and {self.after} after its last wait"
        )


def inspect(function: Function) -> Report:
    loop = common_path(function, steady_loop(function))
    events, last = "", 0
    for i in loop:
        event = ""
        if is_product(i):
            # The second product's first operand is in registers.
            event = "O" if re.match(r"HGMMA\S+ R\d+, R\d+,", i.text) else "S"
        elif wait := re.match(r"WARPGROUP\.DEPBAR\S* gsb0, 0x(\d)", i.text):
            event, last = wait[1], i.index
        if event and not (events.endswith(event) and event in "SO"):
            events += event
    exponentials = [i.index for i in loop if i.opcode == "MUFU.EX2"]
    opcodes = [i.opcode for i in function.code]
    return Report(
        function.name,
        any(o.startswith("USETMAXREG.DEALLOC") for o in opcodes),
        any(o.startswith("USETMAXREG.TRY_ALLOC") for o in opcodes),
        sum(map(is_product, loop)),
        events,
        sum(i < last for i in exponentials),
        sum(i >= last for i in exponentials),
    )


def disassemble(text: str, chip: str = "sm_90a") -> list[Function]:
    """The machine code of a PTX text; RuntimeError without the tools."""
    ptxas, nvdisasm = check_ptx.find_ptxas(), find_tool("nvdisasm")
    if not ptxas or not nvdisasm:
        raise RuntimeError("no ptxas or nvdisasm on the PATH, in FA_CUDA_BIN or of triton")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "kernel.ptx")
        path.write_text(text)
        cubin = str(path) + ".cubin"
        subprocess.run([ptxas, f"-arch={chip}", str(path), "-o", cubin], check=True)
        done = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True)
    return parse(done.stdout)


def check(name: str, text: str, overlap: bool = False, after: int = 0) -> list[str]:
    """Prints a row for each kernel; returns what is wrong."""
    wrong = []
    for row in check_ptx.assemble_all([(name, text)], "sm_90a"):
        if not row.good:
            wrong.append(str(row))
    for function in disassemble(text):
        report = inspect(function)
        problems = report.problems(overlap, after)
        print(report, *(f"FAIL {p}" for p in problems), sep="; ")
        wrong += [f"{name}: {p}" for p in problems]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", help="PTX for sm_90a")
    parser.add_argument("--overlap", action="store_true", help="softmax under the second product")
    parser.add_argument("--after", type=int, default=0, help="exponentials that may come later")
    options = parser.parse_args()
    wrong = []
    for name in options.files:
        wrong += check(name, pathlib.Path(name).read_text(), options.overlap, options.after)
    for problem in wrong:
        print("FAIL", problem)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
