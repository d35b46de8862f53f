#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks PTX made by fa: assembles it, or runs it on a GPU and times it.

    check_ptx.py --assemble                 # every shipped configuration
    check_ptx.py --assemble --gradients     # and their gradients
    check_ptx.py --assemble FILE.ptx ...

runs ptxas (on the PATH or of the package triton) and prints registers and
memory of each kernel; it fails where a kernel spills, uses local memory, has
its wgmma serialised or, for sm_90a (--chip), has none.
Without files it needs the Python package fa. No GPU is needed. --variants takes
the named score and mask functions in the place of the plain configurations,
--gradients the backward, whose kernels may have as much local memory as
ptx_gradients.py says.

    check_ptx.py dense.ptx causal.ptx:causal local.ptx:causal,window=256

needs PyTorch and the CUDA driver only. Each FILE may carry what it computes.
Inputs are random; the reference is float64, the rule that of test/python/right.py.
Prints one row a file and shape.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import importlib.util
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptx_header import Program, evaluate, parse_header
from sass_loops import local_in_loops

if TYPE_CHECKING:
    import corpus

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

try:
    import naive
    import right
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:
    torch = None

DTYPES = torch and {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "i32": torch.int32,
    "i64": torch.int64,
    "i1": torch.bool,
}

# --- Assembling --------------------------------------------------------------------


def find_ptxas() -> str | None:
    """NVIDIA's assembler: on the PATH, or in the package triton."""
    found = shutil.which("ptxas")
    spec = None if found else importlib.util.find_spec("triton")
    for folder in spec.submodule_search_locations if spec else []:
        path = pathlib.Path(folder, "backends/nvidia/bin/ptxas")
        if os.access(path, os.X_OK):
            return str(path)
    return found


def release_of(ptxas: str) -> str:
    """The CUDA release that an assembler is of, as "13.0"; "" where it does not say."""
    done = subprocess.run([ptxas, "--version"], capture_output=True, text=True)
    found = re.search(r"release (\d+\.\d+)", done.stdout)
    return found[1] if found else ""


@dataclass(frozen=True)
class Limit:
    """What a kernel may have of local memory."""

    stack: float = 0
    """Bytes a thread."""
    looped: float = 0
    """Instructions in steady loops that load or store it."""


@dataclass
class Assembled:
    """What ptxas says of one kernel; sizes in bytes."""

    name: str
    kernel: str
    threads: int
    registers: int
    smem: int
    stack: int
    spilled: int
    looped: int
    """Instructions in steady loops that touch local memory."""
    messages: list
    limit: Limit = Limit()

    @property
    def good(self) -> bool:
        """Within the limit, which is nothing where none is given."""
        is_within = self.stack <= self.limit.stack and self.looped <= self.limit.looped
        return is_within and (self.spilled == 0 or self.stack > 0) and not self.messages

    HEADER = f"{'configuration':50} {'threads':>7} {'registers':>9} {'smem':>7} {'stack':>5} {'spilled':>7} {'in loops':>8}"

    def __str__(self) -> str:
        verdict = "" if self.good else "  FAIL " + " ".join(self.messages)
        if self.limit.stack:
            verdict = f"  allowed {self.limit.stack:3} and {self.limit.looped:3}" + verdict
        return (
            f"{self.name:50} {self.threads:7} {self.registers:9} {self.smem:7} "
            f"{self.stack:5} {self.spilled:7} {self.looped:8}{verdict}"
        )


def assemble(
    name: str, text: str, chip: str, ptxas: str, limit: Limit = Limit(), *, wgmma: bool = False
) -> list[Assembled]:
    """One row for each kernel of a PTX text.

    Args:
        limit: what its kernels may spill.
        wgmma: whether it has to have some.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "kernel.ptx")
        path.write_text(text)
        cubin = pathlib.Path(folder, "kernel.cubin")
        command = [ptxas, "-v", f"-arch={chip}", str(path), "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True)
        log = done.stdout + done.stderr
        if done.returncode:
            raise RuntimeError(f"{name}: ptxas does not take it: {log}")
        looped = local_in_loops(cubin.read_bytes(), chip)
    rows = []
    for launch in parse_header(text).launches:
        kernel = re.escape(launch["kernel"])
        part = re.search(rf"entry function '{kernel}'.*?(?=Compiling entry|\Z)", log, re.DOTALL)[0]

        def number(pattern: str, part: str = part) -> int:
            return sum(map(int, re.findall(pattern, part)))

        rows.append(
            Assembled(
                name,
                launch["kernel"],
                int(launch["block"]),
                number(r"Used (\d+) registers"),
                int(launch.get("smem", 0)) + number(r"(\d+) bytes smem"),
                number(r"(\d+) bytes stack frame") + number(r"(\d+) bytes lmem"),
                number(r"(\d+) bytes spill (?:stores|loads)"),
                looped[launch["kernel"]],
                # C75xx: instructions that were serialised.
                sorted(set(re.findall(r"C75\d\d", log)))
                + ["no wgmma"] * (wgmma and "wgmma.mma_async" not in text),
                limit,
            )
        )
    return rows


def require_ptxas() -> str:
    found = find_ptxas()
    if not found:
        raise RuntimeError("no ptxas on the PATH or in the package triton; install one of them")
    return found


def assemble_all(texts: Iterable[tuple[str, str]], chip: str) -> list[Assembled]:
    """Rows of (name, PTX) pairs, forwards; RuntimeError without ptxas."""
    ptxas, is_hopper = require_ptxas(), chip == "sm_90a"
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            pool.submit(assemble, name, text, chip, ptxas, wgmma=is_hopper) for name, text in texts
        ]
        return [row for job in jobs for row in job.result()]


def assemble_shipped(entry: corpus.Entry) -> list[Assembled]:
    """Rows of a kernel that ships; RuntimeError without ptxas."""
    is_hopper = entry.chip == "sm_90a" and entry.kind != "gradient"
    return assemble(
        entry.name, entry.ptx(), entry.chip, require_ptxas(), entry.limit, wgmma=is_hopper
    )


def largest(rows: list[Assembled]) -> list[Assembled]:
    """Of each configuration the kernel with most shared memory, and those that fail."""
    most: dict[str, int] = {}
    for row in rows:
        most[row.name] = max(row.smem, most.get(row.name, 0))
    return [row for row in rows if row.smem == most[row.name] or not row.good]


def table(rows: list[Assembled]) -> str:
    """The rows as text."""
    return "\n".join([Assembled.HEADER, *map(str, rows)])


# --- Running -----------------------------------------------------------------------

cuda = None


def check(result: int, what: str) -> None:
    if result:
        name = ctypes.c_char_p()
        cuda.cuGetErrorName(result, ctypes.byref(name))
        raise RuntimeError(f"{what}: {name.value.decode()}")


class Kernel:
    def __init__(self, path: str):
        text = open(path).read()
        self.program = parse_header(text)
        torch.zeros(1, device="cuda")
        image = text.encode() + b"\0"
        log = ctypes.create_string_buffer(8192)
        # CU_JIT_ERROR_LOG_BUFFER = 5, its size = 6
        keys = (ctypes.c_int * 2)(5, 6)
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), ctypes.c_void_p(8192))
        module = ctypes.c_void_p()
        result = cuda.cuModuleLoadDataEx(ctypes.byref(module), image, 2, keys, values)
        if result:
            raise RuntimeError(f"{path} does not load: {log.value.decode()}")
        self.functions = []
        for launch in self.program.launches:
            function = ctypes.c_void_p()
            check(
                cuda.cuModuleGetFunction(ctypes.byref(function), module, launch["kernel"].encode()),
                "cuModuleGetFunction",
            )
            # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
            check(
                cuda.cuFuncSetAttribute(function, 8, int(launch["smem"])),
                "cuFuncSetAttribute",
            )
            self.functions.append(function)

    def prepare(self, tensors: dict):
        """A function that launches every kernel on the current stream."""
        tensors = dict(tensors)
        for index, temp in self.program.temps.items():
            shape = [evaluate(e, tensors) for e in temp["shape"].split(",")]
            tensors[index] = torch.empty(shape, dtype=DTYPES[temp["type"]], device="cuda")
        calls = []
        for function, launch in zip(self.functions, self.program.launches):
            values = []
            for index in map(int, launch["args"].split(",")):
                t = tensors[index]
                values.append(ctypes.c_uint64(t.data_ptr()))
                values += [ctypes.c_int64(x) for x in t.shape]
                values += [ctypes.c_int64(x) for x in t.stride()]
            pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
            calls.append(
                (
                    function,
                    evaluate(launch["grid"], tensors),
                    int(launch["block"]),
                    int(launch["smem"]),
                    pointers,
                    values,
                )
            )

        def run():
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            for function, grid, block, smem, pointers, _ in calls:
                if grid:
                    check(
                        cuda.cuLaunchKernel(
                            function,
                            grid,
                            1,
                            1,
                            block,
                            1,
                            1,
                            smem,
                            stream,
                            pointers,
                            None,
                        ),
                        "cuLaunchKernel",
                    )

        run.keep = tensors
        return run


def mask_of(flags: dict, sq: int, sk: int):
    """True where a query sees a key; None: everywhere."""
    if not flags:
        return None
    i = torch.arange(sq, device="cuda")[:, None]
    j = torch.arange(sk, device="cuda")[None, :]
    mask = torch.ones(sq, sk, dtype=torch.bool, device="cuda")
    if "causal" in flags:
        mask &= j <= i
    if "window" in flags:
        w = int(flags["window"])
        mask &= (i - j) <= w
    return mask


def expected(q, k, v, flags):
    """What is right."""
    formulas = {"scale": flags_scale(flags, q.shape[3]), "xp": torch}
    mask = mask_of(flags, q.shape[2], k.shape[2])
    if mask is not None:
        formulas["mask"] = lambda b, h, i, j: mask
    if "softcap" in flags:
        cap = float(flags["softcap"])
        formulas["score"] = lambda s, b, h, i, j: cap * torch.tanh(s / cap)
        formulas["score_error"] = right.approximated(cap, "cuda")
    return right.attention(q, k, v, **formulas)


def flags_scale(flags, d):
    return float(flags.get("scale", d**-0.5)) if flags else d**-0.5


def make_tensors(program: Program, sizes: dict, layout: str):
    """Random inputs and NaN outputs; unknown sizes by position."""
    tensors = {}
    names = ["q", "k", "v"]
    for index, arg in sorted(program.args.items()):
        dims = arg["shape"].split("x")
        rows = sizes["sq"] if index == 0 or arg["role"] == "out" else sizes["sk"]
        known = [sizes["b"], None, rows, None]
        shape = [known[d] if text == "?" else int(text) for d, text in enumerate(dims)]
        dtype = DTYPES[arg["type"]]
        if arg["role"] == "out":
            tensors[index] = torch.full(shape, float("nan"), dtype=dtype, device="cuda")
        elif layout == "bshd" and len(shape) == 4:
            b, h, s, d = shape
            t = torch.randn(b, s, h, d, device="cuda").to(dtype)
            tensors[index] = t.transpose(1, 2)
        else:
            tensors[index] = torch.randn(shape, device="cuda").to(dtype)
        if index < 3:
            names[index] = index
    naive.telling(*(tensors[index] for index in range(3)))
    return tensors


def run_check(kernel, flags, sizes, layout):
    torch.manual_seed(0)
    tensors = make_tensors(kernel.program, sizes, layout)
    outs = [i for i, a in kernel.program.args.items() if a["role"] == "out"]
    kernel.prepare(tensors)()
    torch.cuda.synchronize()
    q, k, v = tensors[0], tensors[1], tensors[2]
    wanted = expected(q, k, v, flags)
    got = naive.back(tensors[outs[0]])
    share = right.share(got, wanted.out, wanted.limit)
    good = share <= 1
    error = right.difference(got, wanted.out)
    note = f"error {error:.2e} bound {wanted.limit:.2e}"
    if len(outs) > 1:
        lse = naive.back(tensors[outs[1]])
        good = good and right.share(lse, wanted.lse, wanted.lse_limit, exact_zeros=False) <= 1
        note += f" lse {right.difference(lse, wanted.lse):.1e}"
    before = tensors[outs[0]].clone()
    for _ in range(3):
        kernel.prepare(tensors)()
    torch.cuda.synchronize()
    if not torch.equal(before, tensors[outs[0]]):
        good, note = False, note + " not repeatable"
    return good, note


def median_ms(run, repeats=20):
    flush = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        flush.zero_()
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def run_time(kernel, flags, sizes):
    tensors = make_tensors(kernel.program, sizes, "bhsd")
    q, k, v = tensors[0], tensors[1], tensors[2]
    ours = median_ms(kernel.prepare(tensors))
    group = q.shape[1] // k.shape[1]
    kk, vv = (t.repeat_interleave(group, 1) for t in (k, v))
    peer = float("nan")
    if q.dtype != torch.float32:

        def flash():
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                F.scaled_dot_product_attention(q, kk, vv, is_causal="causal" in flags)

        try:
            peer = median_ms(flash)
        except RuntimeError:
            pass
    flops = 4 * q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] * q.shape[3]
    if "causal" in flags:
        flops /= 2
    tflops = flops / ours / 1e9
    return (
        f"{ours:.3f} ms, {tflops:.0f} TFLOP/s; FA2 {peer:.3f} ms, "
        f"{flops / peer / 1e9:.0f} TFLOP/s; ratio {peer / ours:.2f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="FILE.ptx[:flag,flag=value]")
    parser.add_argument("--assemble", action="store_true", help="ptxas only, no GPU")
    parser.add_argument("--variants", action="store_true", help="named scores and masks")
    parser.add_argument("--gradients", action="store_true", help="the backward")
    parser.add_argument("--chip", default="sm_80", help="the target to assemble for (sm_80)")
    parser.add_argument("--no-time", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one shape")
    options = parser.parse_args()
    if options.assemble:
        if options.files:
            files = [(name, pathlib.Path(name).read_text()) for name in options.files]
            rows = assemble_all(files, options.chip)
        else:
            import corpus

            kind = "variant" if options.variants else "forward"
            kind = "gradient" if options.gradients else kind
            made = corpus.map_parallel(assemble_shipped, options.chip, kind)
            rows = [row for _, own in made for row in own]
        print(table(largest(rows) if options.gradients else rows))
        return 0 if all(row.good for row in rows) else 1
    if not options.files or torch is None:
        parser.error("expected PTX files and PyTorch; --assemble needs neither")
    global cuda
    cuda = ctypes.CDLL("libcuda.so.1")
    bad = 0
    for name in options.files:
        path, _, text = name.partition(":")
        flags = {}
        for part in filter(None, text.split(",")):
            key, _, value = part.partition("=")
            flags[key] = value or True
        try:
            kernel = Kernel(path)
        except RuntimeError as error:
            print("FAIL", name, error, flush=True)
            bad += 1
            continue
        shapes = [
            (2, 128, 128),
            (1, 333, 333),
            (2, 1, 1000),
            (1, 1000, 417),
            (1, 17, 1),
            (1, 4097, 4097),
        ]
        if options.quick:
            shapes = shapes[:1]
        dynamic = "?" in kernel.program.args[0]["shape"]
        if not dynamic:
            shapes = shapes[:1]
        for n, (b, sq, sk) in enumerate(shapes):
            sizes = {"b": b, "sq": sq, "sk": sk}
            layout = "bshd" if n % 2 else "bhsd"
            try:
                good, note = run_check(kernel, flags, sizes, layout)
            except RuntimeError as error:
                good, note = False, str(error).splitlines()[0]
            bad += not good
            shape = f"B{b} {sq}x{sk} {layout}" if dynamic else "as given"
            print("ok  " if good else "FAIL", name, shape, note, flush=True)
        if options.no_time:
            continue
        for s in (2048, 8192):
            heads = int(kernel.program.args[0]["shape"].split("x")[1])
            d = int(kernel.program.args[0]["shape"].split("x")[3])
            b = max(1, 16384 // s * (2048 // d) // heads) if dynamic else 1
            try:
                row = run_time(kernel, flags, {"b": b, "sq": s, "sk": s})
                print("time", name, f"B{b} H{heads} S{s} D{d}", row, flush=True)
            except RuntimeError as error:
                print("time", name, str(error).splitlines()[0], flush=True)
            if not dynamic:
                break
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
