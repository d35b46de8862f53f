# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs fa's PTX for sm_80 on the CPU, a block at a time, with numpy.

For machines without a GPU: slow, but strict. Shared memory starts as NaN;
cp.async lands only when its group is waited for; an access outside every
allocation, a barrier that not all threads reach, and an instruction that is not
known are errors. Threads step together; where they diverge, those that are
behind go first, and instructions of a whole warp wait for all threads.
"""

from __future__ import annotations

import re

import numpy as np
from ptx_header import parse_header

U = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
S = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


def bf16_to_f32(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def f32_to_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FFF, rounded).astype(np.uint16)


class Memory:
    """Global memory: arrays at addresses with poisoned gaps between them."""

    def __init__(self):
        self.data = np.zeros(0, np.uint8)
        self.live = np.zeros(0, bool)
        self.base = 1 << 20

    def add(self, array: np.ndarray) -> int:
        raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        pad = (-raw.size) % 256 + 4096
        at = self.base + self.data.size
        self.data = np.concatenate([self.data, raw, np.full(pad, 0xFF, np.uint8)])
        self.live = np.concatenate([self.live, np.ones(raw.size, bool), np.zeros(pad, bool)])
        return at

    def read_back(self, at: int, like: np.ndarray) -> np.ndarray:
        """What lies there at the strides of `like`, whose elements have no gaps."""
        start = at - self.base
        raw = self.data[start : start + like.nbytes].copy()
        return np.ndarray(like.shape, like.dtype, raw, strides=like.strides)

    def index(self, addresses, size):
        i = addresses.astype(np.int64)[:, None] - self.base + np.arange(size)
        if i.size and (i.min() < 0 or i.max() >= self.data.size or not self.live[i].all()):
            raise RuntimeError("access outside every tensor")
        return i


def temporary(shape, kind):
    """A buffer between kernels, of values that should not be read: NaN, or -1."""
    size = {"f32": np.float32, "i32": np.int32, "i64": np.int64}.get(kind, np.uint16)
    return (
        np.full(np.prod(shape, dtype=int) * np.dtype(size).itemsize, 0xFF, np.uint8)
        .view(size)
        .reshape(shape)
    )


class Kernel:
    """One .entry of a PTX text."""

    def __init__(self, text: str, name: str):
        body = text[text.index(f".entry {name}(") :]
        end = body.index("\n}")
        body = body[:end]
        self.params = re.findall(r"\.param \.\w+ .*?(\w+_param_\d+)", body)
        body = body[body.index("{") + 1 :]
        body = re.sub(r"//[^\n]*", "", body)
        self.code, self.labels = [], {}
        for line in re.split(r";|(?<=:)\n", body):
            line = " ".join(line.split())
            if line.endswith(":"):
                self.labels[line[:-1]] = len(self.code)
            elif line and not line.startswith("."):
                self.code.append(self.decode(line))

    @staticmethod
    def decode(line):
        guard = None
        match = re.match(r"@(!?)(%p\d+) (.*)", line)
        if match:
            guard, line = (match[2], bool(match[1])), match[3]
        op, _, rest = line.partition(" ")
        operands = [part.strip() for part in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", rest)]
        operands = [
            [p.strip() for p in o[1:-1].split(",")] if o.startswith("{") else o for o in operands
        ]
        return op, operands, guard

    def run(self, block, threads, smem, memory, params):
        Block(self, block, threads, smem, memory, params).run()

    def run_grid(self, grid, threads, smem, memory, params, random, resident=4):
        """All blocks, as many of them at once, which begin and go on in random order."""
        waiting = [
            Block(self, block, threads, smem, memory, params, random).steps()
            for block in random.permutation(grid)
        ]
        running = []
        while waiting or running:
            while waiting and len(running) < resident:
                running.append(waiting.pop())
            block = running[random.integers(len(running))]
            if next(block, None) is None:
                running.remove(block)


def run_function(path, name, shape):
    """What a function of a file writes, which has one kernel of one block and gives one tensor of
    16-bit elements: their bits, of this shape."""
    with open(path) as file:
        text = file.read()
    # The kernels of a file stand one after the other, each with its header.
    start = text.index(f"//!fa.program version=1 name={name} ")
    end = text.find("//!fa.program", start + 1)
    text = text[start : end if end > 0 else None]
    (launch,) = parse_header(text).launches
    memory, out = Memory(), np.full(shape, 0xFFFF, np.uint16)
    address = memory.add(out)
    params = [address, *out.shape, *(s // out.itemsize for s in out.strides)]
    kernel = Kernel(text, launch["kernel"])
    kernel.run(0, int(launch["block"]), int(launch["smem"]), memory, params)
    return memory.read_back(address, out)


class Block:
    def __init__(self, kernel, block, threads, smem, memory, params, random=None):
        """With random numbers threads add to memory in another order each time."""
        self.k, self.T, self.memory, self.random = kernel, threads, memory, random
        self.block = block
        self.smem = np.full(smem + 16, 0xFF, np.uint8)
        self.params = dict(zip(kernel.params, params))
        self.regs = {}
        self.open_group, self.groups = [], []

    TOGETHER = ("bar", "shfl", "ldmatrix", "mma", "redux")

    # Operands
    def get(self, name, bits):
        if name.startswith("%tid.x"):
            return np.arange(self.T, dtype=np.uint32)
        if name.startswith("%ctaid.x"):
            return np.full(self.T, self.block, np.uint32)
        if name.startswith("%"):
            v = self.regs.get(name)
            if v is None:
                raise RuntimeError(f"{name} is read before it is written")
            return v
        if name == "fa_smem":
            return np.zeros(self.T, U[64])
        if name.startswith("0f"):
            return np.full(self.T, int(name[2:], 16), np.uint32)
        if name.startswith("0d"):
            return np.full(self.T, int(name[2:], 16), np.uint64)
        if name.startswith("0x"):
            return np.full(self.T, int(name, 16) & ((1 << bits) - 1), U[bits])
        if bits == 1:
            return np.full(self.T, int(name) != 0)
        return np.full(self.T, int(name) & ((1 << bits) - 1), U[bits])

    def put(self, name, value, mask):
        if name == "_":
            return
        if mask.all() or name not in self.regs:
            self.regs[name] = np.array(value)
        else:
            old = self.regs[name]
            self.regs[name] = np.where(mask, value, old).astype(value.dtype)

    def f32(self, name):
        return self.get(name, 32).view(np.float32)

    def address(self, text):
        match = re.fullmatch(r"\[([^+\]]+)(?:\+(-?\d+))?\]", text)
        return self.get(match[1], 64).astype(np.int64) + int(match[2] or 0)

    # What other blocks can see, and what sees them.
    SHARED = ("red", "atom", "ld.acquire", "st.release")

    def run(self):
        for _ in self.steps():
            pass

    def steps(self):
        """Runs, and gives each instruction that other blocks may see, when it has run."""
        pc = np.zeros(self.T, np.int64)
        end = len(self.k.code)
        parked = np.zeros(self.T, bool)
        with np.errstate(all="ignore"):
            while True:
                free = pc[~parked]
                if not len(free):
                    raise RuntimeError(
                        f"threads wait for each other at {[self.k.code[a] for a in set(pc)]}"
                    )
                at = free.min()
                if at >= end:
                    if not parked.any():
                        return
                    # Warps of a role that has ended are not waited for.
                    if (pc[parked] != pc[parked][0]).any():
                        raise RuntimeError(
                            f"some threads end, others wait at {self.k.code[pc[parked][0]]}"
                        )
                    parked[:] = False
                    continue
                mask = pc == at
                op, operands, guard = self.k.code[at]
                if op.startswith(self.TOGETHER) and not (mask | (pc >= end)).all():
                    # Threads meet here: let the others come. Warps that are
                    # complete need not wait for others to combine their words.
                    warps = mask.reshape(-1, 32).all(axis=1).repeat(32)
                    ready = mask & warps & op.startswith(("redux", "bar.warp"))
                    parked = (parked | mask) & ~ready
                    if not ready.any():
                        continue
                    mask = ready
                if mask.all():
                    parked[:] = False
                here = mask
                if guard:
                    p = self.regs[guard[0]]
                    mask = mask & (~p if guard[1] else p)
                pc[here] = at + 1
                if not mask.any():
                    continue
                if op.startswith("bra"):
                    pc[mask] = self.k.labels[operands[0]]
                elif op == "ret":
                    pc[mask] = end
                else:
                    self.step(op, operands, mask)
                    if op.startswith(self.SHARED):
                        yield op

    # Instructions
    def step(self, op, o, mask):
        parts = op.split(".")
        handler = getattr(self, "op_" + parts[0], None)
        if not handler:
            raise RuntimeError(f"instruction {op} is not known")
        handler(parts, o, mask)

    @staticmethod
    def width(parts):
        return int(re.search(r"\d+$", parts[-1])[0])

    def typed(self, parts, name):
        """An operand in the instruction's type."""
        kind, bits = parts[-1][0], self.width(parts)
        raw = self.get(name, bits)
        if kind == "f":
            return raw.view({16: np.float16, 32: np.float32, 64: np.float64}[bits])
        raw = raw.astype(U[bits])
        return raw.view(S[bits]) if kind == "s" else raw

    def result(self, parts, value):
        kind, bits = parts[-1][0], self.width(parts)
        if kind == "f":
            return np.ascontiguousarray(value, np.float32 if bits == 32 else np.float64).view(
                U[bits]
            )
        return np.ascontiguousarray(value).astype(S[bits] if kind == "s" else U[bits]).view(U[bits])

    def binary(self, function):
        def run(parts, o, mask):
            a, b = self.typed(parts, o[1]), self.typed(parts, o[2])
            self.put(o[0], self.result(parts, function(a, b)), mask)

        return run

    def op_add(self, p, o, m):
        self.binary(lambda a, b: a + b)(p, o, m)

    def op_sub(self, p, o, m):
        self.binary(lambda a, b: a - b)(p, o, m)

    def op_mul(self, p, o, m):
        if "wide" in p:
            bits = self.width(p)
            a, b = self.typed(p, o[1]), self.typed(p, o[2])
            wide = S[64] if p[-1][0] == "s" else U[64]
            if bits == 16:
                wide = S[32] if p[-1][0] == "s" else U[32]
            value = a.astype(wide) * b.astype(wide)
            self.put(o[0], value.view(U[2 * bits]), m)
        elif "hi" in p and self.width(p) == 64:
            a, b = (self.typed(p, x).astype(object) for x in o[1:])
            value = [int(x) * int(y) >> 64 & (1 << 64) - 1 for x, y in zip(a, b)]
            self.put(o[0], np.array(value, np.uint64), m)
        elif "hi" in p:
            a, b = self.typed(p, o[1]), self.typed(p, o[2])
            wide = S[64] if p[-1][0] == "s" else U[64]
            value = (a.astype(wide) * b.astype(wide)) >> wide(32)
            self.put(o[0], self.result(p, value), m)
        else:
            self.binary(lambda a, b: a * b)(p, o, m)

    def op_mad(self, p, o, m):
        a, b = self.typed(p, o[1]), self.typed(p, o[2])
        if "wide" in p:
            wide = S[64] if p[-1][0] == "s" else U[64]
            c = self.get(o[3], 64).view(wide)
            self.put(o[0], (a.astype(wide) * b.astype(wide) + c).view(U[64]), m)
        else:
            self.put(o[0], self.result(p, a * b + self.typed(p, o[3])), m)

    def op_fma(self, p, o, m):
        a, b, c = (self.typed(p, x).astype(np.float64) for x in o[1:])
        self.put(o[0], self.result(p, a * b + c), m)

    def op_div(self, p, o, m):
        if p[-1][0] == "f":
            return self.binary(lambda a, b: a / b)(p, o, m)
        a = self.typed(p, o[1]).astype(object)
        b = self.typed(p, o[2]).astype(object)
        q = [
            int(abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1) if y else 0
            for x, y in zip(a, b)
        ]
        self.put(o[0], self.result(p, np.array(q, np.int64)), m)

    def op_rem(self, p, o, m):
        wide = np.uint64 if p[-1][0] == "u" else np.int64
        a, b = self.typed(p, o[1]).astype(wide), self.typed(p, o[2]).astype(wide)
        self.put(o[0], self.result(p, np.fmod(a, np.where(b == 0, 1, b))), m)

    def op_min(self, p, o, m):
        self.binary(np.fmin if p[-1][0] == "f" and "NaN" not in p else np.minimum)(p, o, m)

    def op_max(self, p, o, m):
        if p[-1] in ("bf16x2", "f16x2"):
            return self.max_of_halves(p, o, m)
        self.binary(np.fmax if p[-1][0] == "f" and "NaN" not in p else np.maximum)(p, o, m)

    def max_of_halves(self, p, o, m):
        """The greater halves of two words, by `max.NaN`."""
        to = bf16_to_f32 if p[-1] == "bf16x2" else lambda x: x.view(np.float16)
        a, b = (self.get(x, 32) for x in o[1:])
        value = np.zeros(self.T, np.uint32)
        for shift in (np.uint32(0), np.uint32(16)):
            x, y = ((v >> shift & 0xFFFF).astype(np.uint16) for v in (a, b))
            larger = np.where(np.isnan(to(y)) | (to(y) > to(x)), y, x)
            value |= larger.astype(np.uint32) << shift
        return self.put(o[0], value, m)

    def op_copysign(self, p, o, m):
        self.binary(lambda sign, size: np.copysign(size, sign))(p, o, m)

    def op_neg(self, p, o, m):
        self.put(o[0], self.result(p, -self.typed(p, o[1])), m)

    def op_abs(self, p, o, m):
        self.put(o[0], self.result(p, abs(self.typed(p, o[1]))), m)

    def logic(self, function):
        def run(p, o, m):
            if p[-1] == "pred":
                a, b = (self.get(x, 1).astype(bool) for x in o[1:])
                return self.put(o[0], function(a, b), m)
            bits = self.width(p)
            a, b = (self.get(x, bits).astype(U[bits]) for x in o[1:])
            self.put(o[0], function(a, b), m)

        return run

    def op_and(self, p, o, m):
        self.logic(np.bitwise_and)(p, o, m)

    def op_or(self, p, o, m):
        self.logic(np.bitwise_or)(p, o, m)

    def op_xor(self, p, o, m):
        self.logic(np.bitwise_xor)(p, o, m)

    def op_not(self, p, o, m):
        a = self.get(o[1], 32)
        self.put(o[0], ~a, m)

    def op_popc(self, p, o, m):
        bits = np.unpackbits(self.get(o[1], 32).view(np.uint8).reshape(-1, 4), axis=1)
        self.put(o[0], bits.sum(axis=1).astype(np.uint32), m)

    def op_shl(self, p, o, m):
        bits = self.width(p)
        n = self.get(o[2], 32).astype(U[bits])
        self.put(o[0], self.get(o[1], bits).astype(U[bits]) << n, m)

    def op_shr(self, p, o, m):
        n = self.get(o[2], 32)
        a = self.typed(p, o[1])
        self.put(o[0], self.result(p, a >> n.astype(a.dtype)), m)

    def op_bfe(self, p, o, m):
        a = self.typed(p, o[1])
        start, length = int(o[2]), int(o[3])
        bits = self.width(p)
        up = bits - start - length
        self.put(o[0], self.result(p, (a << a.dtype.type(up)) >> a.dtype.type(bits - length)), m)

    def op_prmt(self, p, o, m):
        """Bytes of two words by the nibbles of a third; its top bit spreads a byte's sign."""
        low, high, which = (self.get(x, 32).astype(np.uint64) for x in o[1:])
        both, value = low | high << np.uint64(32), np.zeros_like(low)
        for n in map(np.uint64, range(4)):
            nibble = which >> 4 * n & 15
            byte = both >> 8 * (nibble & 7) & 255
            spread = np.where(byte >> 7, np.uint64(255), np.uint64(0))
            value |= np.where(nibble >> 3, spread, byte) << 8 * n
        self.put(o[0], value.astype(np.uint32), m)

    def op_shf(self, p, o, m):
        low, high = self.get(o[1], 32).astype(np.uint64), self.get(o[2], 32).astype(np.uint64)
        n = self.get(o[3], 32).astype(np.uint64) & np.uint64(31)
        both = (high << np.uint64(32)) | low
        value = both >> n if p[1] == "r" else (both << n) >> np.uint64(32)
        self.put(o[0], value.astype(np.uint32), m)

    def op_setp(self, p, o, m):
        compare = {
            "lt": np.less,
            "le": np.less_equal,
            "gt": np.greater,
            "ge": np.greater_equal,
            "eq": np.equal,
            "ne": np.not_equal,
            "neu": np.not_equal,
            "lo": np.less,
            "hi": np.greater,
            "ls": np.less_equal,
            "hs": np.greater_equal,
        }
        if p[-1] == "f16x2":  # two conditions
            words = [self.get(x, 32) for x in o[1:]]
            for n, name in enumerate(o[0].split("|")):
                pair = [(w >> np.uint32(16 * n) & 0xFFFF).astype(np.uint16) for w in words]
                self.regs["%low"], self.regs["%high"] = pair
                self.op_setp([*p[:-1], "f16"], [name, "%low", "%high"], m)
            return
        a, b = self.typed(p, o[1]), self.typed(p, o[2])
        if p[1] in compare:
            value = compare[p[1]](a, b)
            if p[1] == "neu" or p[1] == "ne" and p[-1][0] == "f":
                value = value if p[1] == "neu" else value & ~np.isnan(a) & ~np.isnan(b)
        elif p[1] in ("ltu", "leu", "gtu", "geu", "equ"):
            value = compare[p[1][:-1]](a, b) | np.isnan(a) | np.isnan(b)
        elif p[1] == "nan":
            value = np.isnan(a) | np.isnan(b)
        elif p[1] == "num":
            value = ~(np.isnan(a) | np.isnan(b))
        else:
            raise RuntimeError("setp." + p[1])
        self.put(o[0], value, m)

    def op_selp(self, p, o, m):
        bits = self.width(p)
        a, b = self.get(o[1], bits), self.get(o[2], bits)
        self.put(o[0], np.where(self.regs[o[3]], a, b).astype(U[bits]), m)

    def op_mov(self, p, o, m):
        if p[-1] == "pred":
            return self.put(o[0], self.get(o[1], 1).astype(bool), m)
        bits = self.width(p)
        if isinstance(o[1], list):  # pack
            part = bits // len(o[1])
            value = np.zeros(self.T, U[bits])
            for i, x in enumerate(o[1]):
                value |= self.get(x, part).astype(U[bits]) << U[bits](i * part)
            return self.put(o[0], value, m)
        if isinstance(o[0], list):  # unpack
            part = bits // len(o[0])
            v = self.get(o[1], bits).astype(U[bits])
            for i, x in enumerate(o[0]):
                self.put(x, (v >> U[bits](i * part)).astype(U[part]), m)
            return None
        return self.put(o[0], self.get(o[1], bits).astype(U[bits]), m)

    ROUNDING = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc}

    def op_cvta(self, p, o, m):
        self.put(o[0], self.get(o[1], 64), m)

    def op_cvt(self, p, o, m):
        to, source = p[-2], p[-1]
        if "bf16x2" in p or "f16x2" in p:
            high, low = self.f32(o[1]), self.f32(o[2])
            if "bf16x2" in p:
                hi, lo = f32_to_bf16(high), f32_to_bf16(low)
            else:
                hi, lo = (x.astype(np.float16).view(np.uint16) for x in (high, low))
            return self.put(o[0], hi.astype(np.uint32) << 16 | lo, m)
        if to == "bf16":
            return self.put(o[0], f32_to_bf16(self.f32(o[1])), m)
        if to == source == "f16":
            value = self.get(o[1], 16).view(np.float16)
            for mode, rounded in self.ROUNDING.items():
                value = rounded(value) if mode in p else value
            return self.put(o[0], value.view(np.uint16), m)
        if to == "f16":
            return self.put(o[0], self.f32(o[1]).astype(np.float16).view(np.uint16), m)
        if source == "f16":
            value = self.get(o[1], 16).view(np.float16).astype(np.float32)
            return self.put(o[0], value.view(np.uint32), m)
        if source == "bf16":
            return self.put(o[0], bf16_to_f32(self.get(o[1], 16)).view(np.uint32), m)
        value = self.typed(["", source], o[1])
        if to[0] == "f" and source[0] == "f":
            for mode, rounded in self.ROUNDING.items():
                value = rounded(value) if mode in p else value
        if to[0] in "su" and source[0] == "f":
            value = np.nan_to_num(np.trunc(value)).clip(-(2.0**31), 2.0**31 - 1).astype(np.int64)
        bits = int(re.search(r"\d+", to)[0])
        if to[0] == "f":
            return self.put(o[0], self.result(["", to], value), m)
        wide = value.astype(np.int64 if value.dtype.kind == "i" else np.uint64)
        return self.put(o[0], wide.astype(U[bits]), m)

    def unary(self, function):
        def run(p, o, m):
            self.put(o[0], self.result(["f32"], function(self.f32(o[1])).astype(np.float32)), m)

        return run

    def op_ex2(self, p, o, m):
        self.unary(np.exp2)(p, o, m)

    def op_lg2(self, p, o, m):
        self.unary(np.log2)(p, o, m)

    def op_rcp(self, p, o, m):
        self.unary(lambda x: np.float32(1) / x)(p, o, m)

    def op_rsqrt(self, p, o, m):
        self.unary(lambda x: 1 / np.sqrt(x))(p, o, m)

    def op_sqrt(self, p, o, m):
        self.unary(np.sqrt)(p, o, m)

    # Memory
    def op_ld(self, p, o, m):
        if p[1] == "param":
            name = o[1].strip("[]")
            bits = self.width(p)
            value = int(self.params[name]) & ((1 << bits) - 1)
            return self.put(o[0], np.full(self.T, value, U[bits]), m)
        names = o[0] if isinstance(o[0], list) else [o[0]]
        bits = self.width(p)
        size = bits // 8 * len(names)
        at = self.address(o[1])
        raw = np.zeros((self.T, size), np.uint8)
        if p[1] == "shared":
            raw[m] = self.smem[at[m][:, None] + np.arange(size)]
        else:
            raw[m] = self.memory.data[self.memory.index(at[m], size)]
        values = raw.view(U[bits])
        for i, name in enumerate(names):
            value = values[:, i]
            if p[-1][0] == "s":  # fills the register
                wide = 64 if name.startswith("%rd") else 16 if name.startswith("%rs") else 32
                value = np.ascontiguousarray(value).view(S[bits]).astype(S[wide]).view(U[wide])
            if name.startswith("%rs") and bits == 8:
                value = value.astype(np.uint16)
            elif (
                name.startswith("%r")
                and not name.startswith("%rd")
                and bits < 32
                and not name.startswith("%rs")
            ):
                value = value.astype(np.uint32)
            self.put(name, value, m)

    def op_st(self, p, o, m):
        names = o[1] if isinstance(o[1], list) else [o[1]]
        bits = self.width(p)
        size = bits // 8
        at = self.address(o[0])
        for i, name in enumerate(names):
            value = np.ascontiguousarray(self.get(name, bits).astype(U[bits]))
            raw = value.view(np.uint8).reshape(self.T, size)[m]
            where = at[m] + i * size
            if p[1] == "shared":
                self.smem[where[:, None] + np.arange(size)] = raw
            else:
                self.memory.data[self.memory.index(where, size)] = raw

    def op_red(self, p, o, m):
        """Sums in global memory, of threads that may add to one place."""
        if "global" not in p or "add" not in p or p[-1] != "f32" or isinstance(o[1], list):
            raise RuntimeError(f"reduction {'.'.join(p)} is not known")
        threads = m.nonzero()[0]
        if self.random is not None:
            threads = self.random.permutation(threads)
        at = self.address(o[0])[threads]
        if (at % 4).any():
            raise RuntimeError("a reduction at an unaligned address")
        where = self.memory.index(at, 4)[:, 0]
        np.add.at(self.memory.data.view(np.float32), where // 4, self.f32(o[1])[threads])

    def op_atom(self, p, o, m):
        """A counter in global memory."""
        if "global" not in p or "add" not in p or p[-1] != "u32":
            raise RuntimeError(f"atomic operation {'.'.join(p)} is not known")
        at, words = self.address(o[1]), self.memory.data.view(np.uint32)
        found = np.zeros(self.T, np.uint32)
        for thread in m.nonzero()[0]:
            where = self.memory.index(at[thread : thread + 1], 4)[0, 0] // 4
            found[thread] = words[where]
            words[where] += self.get(o[2], 32)[thread]
        self.put(o[0], found, m)

    def op_cp(self, p, o, m):
        if "commit_group" in p:
            self.groups.append(self.open_group)
            self.open_group = []
        elif "wait_group" in p or "wait_all" in p:
            keep = 0 if "wait_all" in p else int(o[0])
            while len(self.groups) > keep:
                for where, what in self.groups.pop(0):
                    self.smem[where[:, None] + np.arange(what.shape[1])] = what
        else:
            size = int(o[2])
            to, source = self.address(o[0])[m], self.address(o[1])[m]
            count = self.get(o[3], 32)[m] if len(o) > 3 else np.full(m.sum(), size)
            if (to % size).any():
                raise RuntimeError("cp.async to an unaligned address")
            what = np.zeros((len(to), size), np.uint8)
            whole = count == size
            if not (whole | (count == 0)).all():
                raise RuntimeError("cp.async of part of a chunk")
            if (source[whole] % size).any():
                raise RuntimeError("cp.async from an unaligned address")
            what[whole] = self.memory.data[self.memory.index(source[whole], size)]
            self.open_group.append((to, what))

    def op_bar(self, p, o, m):
        if p[1] != "warp" and len(o) > 1:
            # Barriers of some warps: those that come by together.
            _, counts = np.unique(self.get(o[0], 32)[m], return_counts=True)
            if (counts != int(o[1])).any():
                raise RuntimeError(f"{counts} threads reach barriers of {o[1]}")
        elif p[1] != "warp" and not m.all():
            raise RuntimeError("not every thread reaches a barrier")

    def op_barrier(self, p, o, m):
        self.op_bar(p, o, m)

    def op_shfl(self, p, o, m):
        name = o[0].split("|")[0]
        v = self.get(o[1], 32)
        threads = np.arange(self.T)
        if "idx" in p:
            other = threads // 32 * 32 + self.get(o[2], 32).astype(np.int64) % 32
        else:
            other = threads ^ int(o[2])
        if not m[other[m]].all():
            raise RuntimeError("shfl with a thread that is elsewhere")
        self.put(name, v[other], m)

    def op_vote(self, p, o, m):
        if p[2] != "any":
            raise RuntimeError("vote." + p[2])
        found = (self.get(o[1], 1).astype(bool) & m).reshape(-1, 32).any(axis=1)
        self.put(o[0], np.repeat(found, 32), m)

    def op_setmaxnreg(self, p, o, m):
        """How many registers a warp has changes no number."""

    def op_fence(self, p, o, m):
        """Here memory is in order."""

    def op_redux(self, p, o, m):
        combine = {"or": np.bitwise_or, "min": np.minimum, "max": np.maximum}[p[2]]
        words = self.get(o[1], 32).reshape(-1, 32)
        words = combine.reduce(words.view(np.int32) if p[2] != "or" else words, axis=1)
        self.put(o[0], np.repeat(words, 32).view(np.uint32), m)

    def op_ldmatrix(self, p, o, m):
        if not m.all():
            raise RuntimeError("ldmatrix in divergent code")
        at = self.address(o[1])
        count = len(o[0])
        for warp in range(self.T // 32):
            lanes = slice(warp * 32, warp * 32 + 32)
            rows = at[lanes][: 8 * count]
            self.check_banks(rows)
            if (rows % 16).any():
                raise RuntimeError("ldmatrix from an unaligned address")
            raw = self.smem[rows[:, None] + np.arange(16)]
            matrices = raw.view(np.uint16).reshape(count, 8, 8)
            if "trans" in p:
                matrices = matrices.transpose(0, 2, 1)
            pairs = np.ascontiguousarray(matrices).reshape(count, 32, 2)
            for i, name in enumerate(o[0]):
                if name not in self.regs or warp == 0:
                    self.regs[name] = np.zeros(self.T, np.uint32)
                self.regs[name][lanes] = pairs[i].copy().view(np.uint32)[:, 0]

    conflicts = 0

    def check_banks(self, rows):
        for i in range(0, len(rows), 8):
            if len(set(rows[i : i + 8] // 16 % 8)) != 8:
                Block.conflicts += 1

    def op_mma(self, p, o, m):
        if not m.all() or "m16n8k16" not in p:
            raise RuntimeError("mma in divergent code, or of another shape")
        to = bf16_to_f32 if "bf16" in p else (lambda x: x.view(np.float16).astype(np.float32))
        T, W = self.T, self.T // 32
        lane = np.arange(32)
        g, t = lane // 4, lane % 4

        def halves(name):
            v = self.get(name, 32)
            return to((v & 0xFFFF).astype(np.uint16)), to((v >> 16).astype(np.uint16))

        a = np.zeros((W, 16, 16), np.float32)
        b = np.zeros((W, 16, 8), np.float32)
        for i, name in enumerate(o[1]):
            low, high = (x.reshape(W, 32) for x in halves(name))
            r, c = g + 8 * (i % 2), 2 * t + 8 * (i // 2)
            a[:, r, c], a[:, r, c + 1] = low, high
        for i, name in enumerate(o[2]):
            low, high = (x.reshape(W, 32) for x in halves(name))
            r = 2 * t + 8 * i
            b[:, r, g], b[:, r + 1, g] = low, high
        d = a @ b
        for i, name in enumerate(o[0]):
            c = self.f32(o[3][i]).reshape(W, 32)
            value = d[:, g + 8 * (i // 2), 2 * t + i % 2] + c
            self.regs[name + "'"] = np.ascontiguousarray(value.reshape(T)).view(np.uint32)
        for name in o[0]:
            self.regs[name] = self.regs.pop(name + "'")
