# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where machine code touches local memory: once, or at each step of a loop.

ptxas says how much a kernel spills and not where, and a disassembler is not there wherever
tests run. Instructions of sm_70 to sm_90 have 16 bytes, the opcode in the lowest 12 bits;
that, predicates and where branches go is all that is read of them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

BRANCH, CALL, EXIT, RETURN = 0x947, 0x944, 0x94D, 0x950
"""ptxas calls where it means a jump, too."""
BARRIERS = (0xB1D, 0x91D, 0x31D)
"""BAR of a number, or of registers."""
WGMMA = (0x9F0, 0xDF0)
"""HGMMA, with its first operand in shared memory or in registers."""
ASYNC_COPY = 0xFAE
"""LDGSTS."""
LOCAL = (0x983, 0x387)
"""LDL and STL."""
BITS_TO_PREDICATES = 0x804
"""R2P with a mask of which bits."""
ALWAYS = 7
"""The predicate that is true."""


@dataclass(frozen=True)
class Instruction:
    """One instruction; those of a function are counted from 0."""

    opcode: int
    target: int | None = None
    """Where a branch goes."""
    goes_on: bool = True
    """Whether the next one may come after it."""


def decode(code: bytes, chip: str) -> list[Instruction]:
    """A function's instructions."""
    found = []
    for at, (low, high) in enumerate(struct.iter_unpack("<QQ", code)):
        opcode, target = low & 0xFFF, None
        is_guarded = low >> 12 & 0xF != ALWAYS
        if opcode in (BRANCH, CALL):
            # From the next instruction on, in units of 4 bytes: 48 bits from bit 34 on, to
            # which sm_90 has added eight lower ones.
            offset = low >> 34 | (high & 0x3FFFF) << 30
            offset -= offset >> 47 << 48
            if chip.startswith("sm_9"):
                offset = offset << 8 | low >> 16 & 0xFF
            target = at + 1 + offset // 4
            is_guarded |= high >> 23 & 0xF != ALWAYS
        ends = opcode in (BRANCH, EXIT, RETURN) and not is_guarded
        found.append(Instruction(opcode, target, not ends))
    return found


def reachable(code: list[Instruction], without: int) -> set[int]:
    """The instructions that the entry reaches without passing one of them."""
    seen, work = set(), [0]
    while work:
        at = work.pop()
        if at in seen or at == without or at >= len(code):
            continue
        seen.add(at)
        if code[at].target is not None:
            work.append(code[at].target)
        if code[at].goes_on:
            work.append(at + 1)
    return seen


def loops(code: list[Instruction]) -> list[range]:
    """Loops as they lie in memory, from where a branch goes back to up to that branch."""
    found = []
    for at, branch in enumerate(code):
        if branch.target is None or branch.target >= at:
            continue
        # A branch back to what does not dominate it returns from what stands behind.
        if at not in reachable(code, branch.target):
            found.append(range(branch.target, at + 1))
    return found


def steady(code: list[Instruction]) -> set[int]:
    """The instructions of loops whose steps are those of tiles.

    A step ends at a barrier, for what it loads is shared, or has products of warpgroups,
    or copies for them: loops around such ones (over the query heads of a key head, over a
    block's tiles) are not steady, and those inside (over a product's columns) are part of a
    step.
    """
    all_loops = loops(code)
    steps = BARRIERS + WGMMA
    if any(i.opcode in WGMMA for i in code):
        steps += (ASYNC_COPY,)
    barriers = [at for at, i in enumerate(code) if i.opcode in steps]
    with_steps = [loop for loop in all_loops if any(at in loop for at in barriers)]

    def is_around(loop: range) -> bool:
        return any(own != loop and own[0] in loop and own[-1] in loop for own in with_steps)

    return {at for loop in all_loops if not is_around(loop) for at in loop}


def functions(cubin: bytes) -> dict[str, bytes]:
    """The machine code of each kernel in an ELF file."""
    start, size, count, names = struct.unpack_from("<40xQ10xHHH", cubin)[:4]
    headers = [struct.unpack_from("<IIQQQQ", cubin, start + n * size) for n in range(count)]
    text, found = headers[names], {}
    for header in headers:
        at = text[4] + header[0]
        name = cubin[at : cubin.index(b"\0", at)].decode()
        if name.startswith(".text."):
            found[name.removeprefix(".text.")] = cubin[header[4] : header[4] + header[5]]
    return found


def local_in_loops(cubin: bytes, chip: str) -> dict[str, int]:
    """How many instructions of each kernel's steady loops touch local memory."""
    found = {}
    for name, text in functions(cubin).items():
        code = decode(text, chip)
        local = {at for at, i in enumerate(code) if i.opcode in LOCAL}
        found[name] = len(local & steady(code)) if local else 0
    return found
