#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Feeds mutated attention IR to fa-opt and fails on a crash or a hang.

    mutate_ir.py --kind hopper --seed 7 --cases 2000 --save out/fuzz   # new mutants
    mutate_ir.py --kind hopper --corpus                                # those that are stored
    mutate_ir.py --kind hopper --distil --seeds 8                      # store a new choice
    mutate_ir.py --add out/fuzz/crash0.mlir                            # store this one as well

An error message is a right answer to bad input; a signal, an LLVM fatal error, a report of
a sanitizer or a timeout is not. Deterministic in the seed. Mutants are made from every file
under test/inputs and test/Dialect, and from the IR of those inputs after each pass; each
goes through the passes that follow. Many mutants share one process (--split-input-file);
when one crashes, the batch is halved until the culprit stands alone, and it is written to
--save. README.md beside this file describes the corpus; ir_corpus.py reads and writes it.
"""

import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import resource
import shlex
import subprocess
import sys
import time

import ir_corpus
from ir_corpus import SEPARATOR

TOKEN = re.compile(rb"0x[0-9A-Fa-f]+|[%@#^!]?[A-Za-z_][\w.$-]*|\d+\.\d+(?:[eE][+-]?\d+)?|\d+|->|\S")
NUMBERS = [
    b"0",
    b"1",
    b"-1",
    b"2",
    b"3",
    b"7",
    b"16",
    b"63",
    b"65",
    b"128",
    b"255",
    b"256",
    b"257",
    b"1024",
    b"2147483647",
    b"2147483648",
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551616",
    b"?",
    b"*",
    b"1.0",
    b"-0.0",
    b"1e400",
    b"0x7FF0000000000000",
    b"0x7FC00000",
    b"0xFF800000",
]
TYPES = [
    b"f32",
    b"f16",
    b"bf16",
    b"f64",
    b"f80",
    b"f8E4M3FN",
    b"tf32",
    b"i1",
    b"i8",
    b"i32",
    b"i64",
    b"si32",
    b"i0",
    b"i16777215",
    b"index",
    b"none",
    b"complex<f32>",
    b"vector<4xf32>",
    b"memref<4xf32>",
    b"tensor<f32>",
    b"tuple<>",
]
WORDS = [
    b"hopper.ring",
    b"hopper.load",
    b"hopper.acquire",
    b"hopper.release",
    b"hopper.poll",
    b"hopper.wgmma",
    b"hopper.wait_group",
    b"hopper.turn_begin",
    b"hopper.yield",
    b"nvidia.convert_layout",
    b"nvidia.block",
    b"nvidia.hoisted",
    b"#nvidia.fragment<tile, row_warps = 2 of 4>",
    b"#nvidia.fragment<rows, row_warps = 4 of 4>",
    b"#nvidia.shared<offset = 0>",
    b"polled",
    b"transposed",
    b"fa.attention",
    b"fa.yield",
    b"fa.online_softmax",
    b"scale",
    b"score",
    b"mask",
    b"arith.addf",
    b"arith.mulf",
    b"arith.cmpi",
    b"arith.select",
    b"arith.divsi",
    b"math.exp",
    b"math.tanh",
    b"scf.for",
    b"scf.if",
    b"scf.yield",
    b"scf.forall",
    b"tensor.extract",
    b"tensor.empty",
    b"tensor.dim",
    b"tensor.pad",
    b"linalg.generic",
    b"linalg.yield",
    b"linalg.index",
    b"linalg.fill",
    b"func.call",
    b"affine.apply",
    b"affine.min",
    b"parallel",
    b"reduction",
    b"slt",
    b"ule",
    b"oeq",
    b"true",
    b"{",
    b"}",
    b"(",
    b")",
    b"<",
    b">",
    b",",
    b":",
    b"=",
    b"^bb0",
    b"%q",
    b"@f",
    b"\x00",
    b"\xff",
    b'"',
    b"//",
    b"{a = 1 : i64}",
    b"loc(unknown)",
]
# The order of the passes; those that this fa-opt does not have are left out.
PASSES = [
    "fa-decompose",
    "fa-online-softmax",
    "fa-tile",
    "fa-interchange",
    "fa-pad-tiles",
    "fa-list-blocks",
    "fa-split-mask-loops",
    "fa-order-keys",
    "fa-defer-normalization",
    "fa-fuse",
    "fa-fold-scale-exp2",
    "fa-speculate-max",
]
# Not run on mutants: fa-emit-ptx writes files.
WRITERS = {"fa-emit-ptx", "fa-pipeline"}
# The way to a kernel for sm_90a, from attention on.
HOPPER = [
    "--fa-pipeline=target=sm_90a",
    "--fa-schedule-hopper",
    "--hopper-verify",
    "--fa-hopper-layouts",
    "--fa-schedule-ampere=chip=sm_90a",
    "--fa-tiles-to-threads",
    "--fa-lower-to-nvvm",
]
# The way to what each thread holds, for sm_80, and the way from there.
AMPERE = ["--fa-pipeline=target=sm_80", "--fa-schedule-ampere"]
LAYOUTS = ["--fa-tiles-to-threads", "--fa-lower-to-nvvm"]
# From a kernel in the LLVM dialect.
KERNELS = ["--fa-emit-ptx"]
TARGETS = ["cpu", "sm_80", "sm_90a"]


def mutate_bytes(rng, text, corpus):
    """Flips, deletes, inserts or repeats a few bytes."""
    text = bytearray(text)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        kind = rng.randrange(4)
        if kind == 0 and at < len(text):
            text[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del text[at : at + rng.randint(1, 8)]
        elif kind == 2:
            text[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))
        else:
            text[at:at] = text[at : at + rng.randint(1, 64)]
    return bytes(text)


def replacement(rng, token, tokens):
    """Something of the token's kind, mostly."""
    if rng.random() < 0.15:
        return rng.choice(WORDS)
    if token[:1].isdigit():
        return rng.choice(NUMBERS)
    if token in TYPES:
        return rng.choice(TYPES)
    if token[:1] in b"%@#^!":
        alike = [t for t in tokens if t[:1] == token[:1]]
        return rng.choice(alike)
    return rng.choice(rng.choice([tokens, WORDS, TYPES]))


def mutate_tokens(rng, text, corpus):
    """Replaces, deletes, repeats or exchanges a few tokens."""
    for _ in range(rng.randint(1, 3)):
        spans = [m.span() for m in TOKEN.finditer(text)]
        if not spans:
            return text
        tokens = [text[a:b] for a, b in spans]
        n = rng.randrange(len(spans))
        a, b = spans[n]
        kind = rng.randrange(5)
        if kind <= 1:
            new = replacement(rng, tokens[n], tokens)
        elif kind == 2:
            new = b""
        elif kind == 3:
            new = tokens[n] + b" " + tokens[n]
        else:
            new = tokens[rng.randrange(len(tokens))]
        text = text[:a] + new + text[b:]
    return text


def mutate_everywhere(rng, text, corpus):
    """Replaces every occurrence of one token: what often stays verifier-valid."""
    for _ in range(rng.randint(1, 2)):
        # Shapes are one word to a lexer: take their parts.
        kind = rng.randrange(3)
        pattern, pool = [
            (rb"(?<![\w.%])\d+(?=[x,\]) ])", NUMBERS[:21]),
            (rb"(?:(?<=x)|\b)(?:bf16|f16|f32|f64|i32|i1|index)\b", TYPES),
            (
                rb"\b(?:arith|math|scf|tensor|linalg|affine|fa)\.\w+|\b(?:sle|slt|sge|sgt|eq|ne|oeq)\b",
                None,
            ),
        ][kind]
        found = sorted(set(re.findall(pattern, text)))
        if not found:
            continue
        old = rng.choice(found)
        if pool is None:
            pool = found + WORDS
        new = rng.choice(pool)
        after = rb"(?![\w.])" if kind else rb"(?=[x,\]) ])"
        text = re.sub(
            rb"(?:(?<=x)|(?<![\w.%]))" + re.escape(old) + after, lambda m, new=new: new, text
        )
    return text


def mutate_lines(rng, text, corpus):
    """Deletes, repeats, exchanges or borrows a few lines."""
    lines = text.split(b"\n")
    for _ in range(rng.randint(1, 3)):
        n = rng.randrange(len(lines))
        kind = rng.randrange(4)
        if kind == 0 and len(lines) > 1:
            del lines[n]
        elif kind == 1:
            lines.insert(n, rng.choice(lines))
        elif kind == 2:
            m = rng.randrange(len(lines))
            lines[n], lines[m] = lines[m], lines[n]
        else:
            other = rng.choice(corpus).split(b"\n")
            at = rng.randrange(len(other))
            lines[n:n] = other[at : at + rng.randint(1, 4)]
    return b"\n".join(lines)


def mutate_dims(rng, text, corpus):
    """Changes one dimension, or the element type, of all tensors of one rank that agree in it."""
    types = sorted(set(re.findall(rb"tensor<((?:[\d?]+x)+)(bf16|f16|f32)>", text)))
    if not types:
        return text
    shape, _ = rng.choice(types)
    dims = shape[:-1].split(b"x")
    at = rng.randrange(len(dims))
    old, new = (
        dims[at],
        rng.choice(
            [
                b"?",
                b"?",
                b"0",
                b"1",
                b"2",
                b"17",
                b"64",
                b"255",
                b"300",
                b"4294967296",
                b"9223372036854775807",
            ]
        ),
    )
    element = rng.choice([b"f16", b"bf16", b"f32"]) if rng.random() < 0.3 else None

    def change(match):
        mine = match.group(1)[:-1].split(b"x")
        kind = element or match.group(2)
        if len(mine) == len(dims) and mine[at] == old:
            mine[at] = new
        if len(mine) < 4:
            kind = match.group(2)
        return b"tensor<" + b"x".join(mine) + b"x" + kind + b">"

    return re.sub(rb"tensor<((?:[\d?]+x)+)(bf16|f16|f32)>", change, text)


FAMILIES = [
    [
        b"addi",
        b"subi",
        b"muli",
        b"divsi",
        b"divui",
        b"floordivsi",
        b"ceildivsi",
        b"remsi",
        b"remui",
        b"minsi",
        b"maxsi",
        b"minui",
        b"maxui",
        b"shli",
        b"shrsi",
        b"shrui",
        b"andi",
        b"ori",
        b"xori",
    ],
    [b"addf", b"subf", b"mulf", b"divf", b"maxnumf", b"minnumf", b"maximumf", b"minimumf", b"remf"],
    [b"slt", b"sle", b"sgt", b"sge", b"ult", b"ule", b"ugt", b"uge", b"eq", b"ne"],
    [b"tanh", b"exp", b"exp2", b"log", b"sqrt", b"rsqrt", b"sin", b"absf", b"erf", b"floor"],
]


def mutate_meaning(rng, text, corpus):
    """Other constants, operators, predicates and operands of the same kind."""
    for _ in range(rng.randint(1, 4)):
        kind = rng.randrange(4)
        if kind == 0:
            spans = [
                m.span(1)
                for m in re.finditer(rb"constant (-?\d+|[\d.]+(?:e[+-]\d+)?) : (?=i)", text)
            ]
            pool = [
                b"0",
                b"1",
                b"-1",
                b"2",
                b"63",
                b"64",
                b"65",
                b"4096",
                b"-4096",
                b"100000",
                b"9223372036854775807",
                b"-9223372036854775808",
            ]
        elif kind == 1:
            spans = [
                m.span(1)
                for m in re.finditer(
                    rb"(?:constant|scale) (-?[\d.]+(?:e[+-]\d+)?)(?= : f|\s+\w+ \{|\s*:)", text
                )
            ]
            pool = [b"0.0", b"-0.0", b"1.0", b"-1.0", b"1.0e30", b"1.0e-40", b"3.5"]
        elif kind == 2:
            spans = [m.span(1) for m in re.finditer(rb"(?:arith|math)\.(\w+)|cmpi (\w+)", text)]
            spans = [s for s in spans if s[0] >= 0]
            pool = None
        else:
            spans = [m.span(1) for m in re.finditer(rb"cmpi (\w+)", text)]
            pool = FAMILIES[2]
        if not spans:
            continue
        a, b = rng.choice(spans)
        if pool is None:
            pool = next((f for f in FAMILIES if text[a:b] in f), [text[a:b]])
        text = text[:a] + rng.choice(pool) + text[b:]
    if rng.random() < 0.3:
        operands = list(re.finditer(rb"((?:cmpi|arith)[\w., ]* )(%[\w.]+), (%[\w.]+)", text))
        if operands:
            m = rng.choice(operands)
            text = text[: m.start(2)] + m.group(3) + b", " + m.group(2) + text[m.end() :]
    return text


MUTATORS = [
    mutate_bytes,
    mutate_tokens,
    mutate_tokens,
    mutate_everywhere,
    mutate_everywhere,
    mutate_lines,
    mutate_dims,
    mutate_dims,
    mutate_meaning,
    mutate_meaning,
]


# What breaks MLIR's own parser: it allocates as many values as `%x#2147483647`
# names, and asks the index of `array<index: 1>` for its width.
BREAKS_UPSTREAM = re.compile(rb"%[\w.$-]+[#:]\d{7,}|array<\s*index")


WRONG = (
    b"LLVM ERROR",
    b"PLEASE submit a bug report",
    b"Stack dump",
    b"ERROR: AddressSanitizer",
    b"ERROR: LeakSanitizer",
    b": runtime error: ",
)
"""Stands on stderr where something went wrong."""


class Runner:
    """Runs fa-opt on batches of mutants and finds the culprit of a crash."""

    def __init__(self, options):
        self.options = options
        self.env = dict(os.environ, LLVM_DISABLE_SYMBOLIZATION="1", LLVM_DISABLE_CRASH_REPORT="1")

    def run(self, text, flags, timeout):
        """(what went wrong or None, stdout, stderr); an error message is nothing wrong."""

        def limit():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            gigabytes = self.options.memory << 30
            if gigabytes:
                resource.setrlimit(resource.RLIMIT_AS, (gigabytes, gigabytes))

        command = [self.options.fa_opt, "--split-input-file", "--mlir-disable-threading"]
        command += [f"--output-split-marker={ir_corpus.MARK}", *flags]
        try:
            done = subprocess.run(
                command,
                input=text,
                capture_output=True,
                timeout=timeout,
                env=self.env,
                preexec_fn=limit,
            )
        except subprocess.TimeoutExpired:
            return f"no end after {timeout} s", b"", b""
        for word in WRONG:
            if word in done.stderr:
                at = done.stderr.find(word)
                return done.stderr[max(0, at - 200) : at + 300].decode(errors="replace"), b"", b""
        if done.returncode not in (0, 1):
            return f"exit status {done.returncode}", b"", b""
        return None, done.stdout, done.stderr

    def find(self, mutants, flags):
        """The mutants of a batch that go wrong, each alone, [(mutant, what, flags)]; the
        outcomes of the others, [(mutant, outcome)]."""
        timeout = self.options.timeout * (1 if len(mutants) == 1 else 6)
        what, out, err = self.run(SEPARATOR.join(mutants), flags, timeout)
        if what is None:
            out, err = out.decode(errors="replace"), err.decode(errors="replace")
            found = ir_corpus.outcomes(mutants, out, err)
            if found is not None:
                return [], list(zip(mutants, found))
        if len(mutants) == 1:
            # One that holds a separator is several to fa-opt.
            return ([(mutants[0], what, flags)], []) if what else ([], [(mutants[0], "several")])
        half = len(mutants) // 2
        left, some = self.find(mutants[:half], flags)
        right, more = self.find(mutants[half:], flags)
        return left + right, some + more

    def stage(self, text, flags):
        """The IR after some passes, or None."""
        what, out, _ = self.run(text, flags, 60)
        return out if what is None and out.strip() else None


def collect(options, runner, passes):
    """[(IR, flags of the passes that follow)]"""
    seeds = []
    files = sorted(pathlib.Path(options.tests, "inputs").rglob("*.mlir"))
    for file in files:
        text = file.read_bytes()
        seeds.append((text, passes))
        if options.stages and (file.parent.name == "small" or "gpt2" in file.name):
            for n in range(1, len(passes)):
                ir = runner.stage(text, passes[:n])
                if ir is None:
                    break
                seeds.append((ir, passes[n:]))
    for file in sorted(pathlib.Path(options.tests, "Dialect", "FA").rglob("*.mlir")):
        seeds += [(part, passes) for part in functions(file)]
    return seeds


def functions(file):
    """The parts of a test that is read with --split-input-file."""
    parts = re.split(rb"^// -----.*$", file.read_bytes(), flags=re.M)
    return [part for part in parts if b"func" in part]


def collect_hopper(options, runner):
    """[(IR, flags of the passes that follow)] on the way to a kernel for sm_90a."""
    seeds = []
    inputs = sorted(pathlib.Path(options.tests, "inputs").rglob("*.mlir"))
    inputs += sorted(pathlib.Path(options.tests, "Target").rglob("schedule-hopper.mlir"))
    for file in inputs:
        # Each function alone: a batch of mutants is to be small.
        text = file.read_bytes()
        parts = re.split(rb"^(?=func\.func)", text, flags=re.M)[1:]
        for part in [text] if file.parent.name == "inputs" else parts:
            if b"f32" in part and b"f16" not in part:
                continue
            seeds.append((part, HOPPER))
            for speculate in ("on", "off"):
                first = [f"{HOPPER[0]} speculate={speculate}"]
                for chosen in ("", "=persistent=0", "=ping-pong=0 stage-stores=0"):
                    scheduled = [*first, HOPPER[1] + chosen]
                    for clean in ([], ["--canonicalize", "--cse"]):
                        ir = runner.stage(part, scheduled + clean)
                        if ir is not None:
                            seeds.append((ir, HOPPER[2:]))
                ir = runner.stage(part, first)
                if ir is not None:
                    seeds.append((ir, HOPPER[1:]))
    for file in sorted(pathlib.Path(options.tests, "Dialect", "Hopper").rglob("*.mlir")):
        seeds += [(part, HOPPER[2:]) for part in functions(file)]
    return seeds


def collect_layouts(options, runner):
    """[(IR whose types say where tiles live, flags of the passes that follow)]"""
    seeds = []
    inputs = pathlib.Path(options.tests, "inputs")
    for file in sorted((inputs / "small").glob("*.mlir")) + sorted(inputs.glob("tiles/*.mlir")):
        for part in re.split(rb"^(?=func\.func)", file.read_bytes(), flags=re.M)[1:]:
            for flags in (AMPERE, HOPPER[: -len(LAYOUTS)]):
                ir = runner.stage(part, flags)
                if ir is not None:
                    seeds.append((ir, LAYOUTS))
    for file in sorted(pathlib.Path(options.tests, "Target").rglob("*.mlir")):
        flags = own_flags(file)
        if flags:
            seeds += [(part, flags) for part in functions(file)]
    return seeds


def own_flags(file):
    """The flags of a test's first command, if the test is its input and it writes no file."""
    found = re.search(rb"RUN: fa-opt %s (.*?)(?:\||$)", file.read_bytes(), re.M)
    flags = shlex.split(found[1].decode()) if found else []
    if any("%" in flag or "=" in flag and "output" in flag for flag in flags):
        return []
    return [f for f in flags if f.startswith("--") and f.lstrip("-") not in HARNESS]


def collect_kernels(options):
    """[(kernels in the LLVM dialect, flags to PTX)]: where LLVM itself gives up."""
    files = sorted(pathlib.Path(options.tests, "Target").rglob("emit-ptx-fatal.mlir"))
    return [(part, KERNELS) for file in files for part in functions(file)]


def choose_flags(rng, following, every):
    """What follows, one pass, what follows with cleanups, a pipeline, or passes in no order."""
    kind = rng.randrange(9)
    if kind <= 2:
        flags = following
    elif kind == 3:
        flags = following[:1]
    elif kind <= 5:
        flags = following[:1] + ["--canonicalize", "--cse"] + following[1:]
    elif kind == 6:
        flags = [rng.choice(every)]
    elif kind == 7:
        target, algorithm = rng.choice(TARGETS), rng.choice(["standard", "fa1", "fa2"])
        speculate = rng.choice(["auto", "on", "off"])
        flags = [f"--fa-pipeline=target={target} algorithm={algorithm} speculate={speculate}"]
        if target == "sm_90a":
            flags += HOPPER[1:]
    else:
        flags = rng.sample(every, rng.randint(1, len(every)))
    sizes = [1, 7, 16, 64, 128] * 3 + [0, -1, 4096, 2**31, 2**63 - 1]
    options = {
        "--fa-tile": lambda: f"--fa-tile=rows={rng.choice(sizes)} keys={rng.choice(sizes)}",
        "--fa-schedule-hopper": lambda: (
            f"--fa-schedule-hopper=spare={rng.choice([-1, 0, 24, 96, 999])}"
            f" teams={rng.choice([-1, 1, 2, 3])} persistent={rng.choice([-1, 0])}"
            f" ping-pong={rng.choice([-1, 0, 1])} stages={rng.choice([-1, 0, 1, 2, 3, 9])}"
        ),
        "--fa-pipeline=target=sm_90a": lambda: (
            f"--fa-pipeline=target=sm_90a speculate={rng.choice(['on', 'off'])}"
            + rng.choice(["", f" rows={rng.choice(sizes)} keys={rng.choice(sizes)}"])
        ),
        "--fa-distribute": lambda: (
            f"--fa-distribute=rows={rng.choice(sizes)} target={rng.choice(TARGETS)}"
        ),
        "--fa-speculate-max": lambda: (
            f"--fa-speculate-max=headroom={rng.choice([0, 8, 63, 126, 127])}"
            f" limit={rng.choice([0, 1, 1.5, 2, 65504, 2.0**60])}"
        ),
        "--fa-online-softmax": lambda: f"--fa-online-softmax=passes={rng.choice([1, 1, 1, 2, 0])}",
    }
    return [options[f]() if f in options and rng.random() < 0.5 else f for f in flags]


HARNESS = {"split-input-file", "verify-diagnostics"}
"""Flags that are no passes."""
KINDS = ("general", "hopper", "layouts", "kernels")
FOUND = "found"
"""The kind of mutants that were added one by one; --distil leaves them alone."""


class Source:
    """What mutants of a kind are made from.

    Args:
        options: those of the command.
        runner: runs passes on the inputs.
    """

    def __init__(self, options, runner):
        known = subprocess.run([options.fa_opt, "--help"], capture_output=True, text=True).stdout
        names = options.passes.split(",") if options.passes else PASSES
        passes = [f"--{name}" for name in names if re.search(rf"--{name}\b", known)]
        every = sorted(set(re.findall(r"^ +--(fa-[\w-]+)", known, re.M)) - WRITERS)
        self.every = [f"--{name}" for name in every]
        self.kind = options.kind
        self.seeds = {
            "general": lambda: collect(options, runner, passes),
            "hopper": lambda: collect_hopper(options, runner),
            "layouts": lambda: collect_layouts(options, runner),
            "kernels": lambda: collect_kernels(options),
        }[options.kind]()
        self.passes = {"hopper": HOPPER, "layouts": LAYOUTS, "kernels": KERNELS}.get(
            options.kind, passes
        )
        self.texts = [text for text, _ in self.seeds]
        self.pools = {}

    def batches(self, seed, cases, size, pool=0):
        """[(mutants, flags)]; with `pool`, so many flags at most for one place to begin."""
        rng, made, result = random.Random(seed), 0, []
        while made < cases:
            text, flags = self.seeds[rng.randrange(len(self.seeds))]
            if self.kind != "kernels":
                known = self.pools.setdefault(tuple(flags), [])
                if not pool or len(known) < pool:
                    flags = choose_flags(rng, flags, self.every)
                    known.append(flags)
                else:
                    flags = rng.choice(known)
            mutants = []
            for _ in range(min(size, cases - made)):
                mutant = rng.choice(MUTATORS)(rng, text, self.texts)
                mutants.append(text if BREAKS_UPSTREAM.search(mutant) else mutant)
            made += len(mutants)
            result.append((mutants, flags))
        return result


def run_all(runner, batches):
    """Those that went wrong, [(mutant, what, flags)], and [(flags, [(mutant, outcome)])]."""
    bad, found = [], []
    with concurrent.futures.ThreadPoolExecutor(runner.options.jobs) as pool:
        for (_, flags), (wrong, own) in zip(
            batches, pool.map(lambda batch: runner.find(*batch), batches)
        ):
            bad += wrong
            found.append((flags, own))
    return bad, found


def report(bad, folder):
    """Prints the mutants that went wrong, and saves each in the folder."""
    for n, (mutant, what, flags) in enumerate(bad):
        print(f"--- crash {n}: fa-opt {shlex.join(flags)}\n{what}")
        if folder:
            pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
            file = pathlib.Path(folder, f"crash{n}.mlir")
            file.write_bytes(b"// fa-opt " + shlex.join(flags).encode() + b"\n" + mutant)
            print(f"saved as {file}")
        elif n < 3:
            print(mutant.decode(errors="replace")[:4000])


def count_valid(found):
    """How many mutants are valid to the end."""
    return sum(o.startswith("valid") for _, own in found for _, o in own)


def fuzz(options, runner):
    """Runs new mutants."""
    start, source = time.time(), Source(options, runner)
    batches = source.batches(options.seed, options.cases, options.batch)
    bad, found = run_all(runner, batches)
    report(bad, options.save)
    made = sum(len(mutants) for mutants, _ in batches)
    print(
        f"seed {options.seed}: {made} mutants of {len(source.seeds)} programs through "
        f"{len(source.passes)} passes, {count_valid(found)} of them valid to the end, "
        f"{len(bad)} gone wrong, {time.time() - start:.0f} s"
    )
    return 1 if bad else 0


def corpus_file(options, kind):
    """The corpus of a kind."""
    return pathlib.Path(options.tests, "fuzz", "corpus", f"{kind}.mutants")


def replay(options, runner):
    """Runs the stored mutants, or a part of their groups."""
    start = time.time()
    wanted, groups = ir_corpus.read(corpus_file(options, options.kind))
    part, parts = map(int, options.shard.split("/"))
    groups = groups[part - 1 :: parts]
    bad, found = run_all(runner, [(mutants, flags) for flags, mutants in groups])
    report(bad, options.save)
    outcomes = {outcome for _, own in found for _, outcome in own}
    print(
        f"{options.kind}: {sum(len(mutants) for _, mutants in groups)} stored mutants in "
        f"{len(groups)} groups, {count_valid(found)} of them valid to the end, "
        f"{len(outcomes)} outcomes, {len(bad)} gone wrong, {time.time() - start:.1f} s"
    )
    if parts == 1 and len(outcomes) < wanted / 2 and not bad:
        print(f"they had {wanted} outcomes when they were chosen: renew them with --distil")
        return 1
    return 1 if bad else 0


def distil(options, runner):
    """Chooses mutants from those of many seeds and stores them."""
    start, source = time.time(), Source(options, runner)
    folders = [pathlib.Path(options.tests).parent / part for part in ("lib", "include")]
    messages = ir_corpus.Messages(folders)
    choice = ir_corpus.Choice(options.each, options.valid, options.syntax, messages)
    made = 0
    for seed in range(options.seed, options.seed + options.seeds):
        batches = source.batches(seed, options.cases, options.batch, pool=options.pool)
        batches = [([without_comments(m) for m in mutants], flags) for mutants, flags in batches]
        bad, found = run_all(runner, batches)
        if bad:
            report(bad, options.save)
            return 1
        made += options.cases
        # An error that comes without any pass is no pass's.
        _, parsed = run_all(runner, [(mutants, []) for mutants, _ in batches])
        for (flags, own), (_, alone) in zip(found, parsed):
            for (mutant, outcome), (_, without) in zip(own, alone):
                if without.startswith("valid"):
                    choice.of_passes.add(outcome)
                if len(mutant) <= options.longest:
                    choice.add(outcome, flags, mutant)
        print(
            f"{made} mutants, {len(choice.found)} outcomes, {time.time() - start:.0f} s", flush=True
        )
    groups = choice.chosen()
    groups = [(flags, shorten(runner, mutants, flags)) for flags, mutants in groups]
    groups = ir_corpus.trimmed(groups, options.kib << 10)
    _, found = run_all(runner, [(mutants, flags) for flags, mutants in groups])
    outcomes = {outcome for _, own in found for _, outcome in own}
    seeds = f"{options.seed} to {options.seed + options.seeds - 1}"
    head = [
        f"Chosen from {made} mutants (seeds {seeds}) by",
        f"mutate_ir.py --kind {options.kind} --distil; see README.md.",
        f"{len(outcomes)} outcomes",
    ]
    ir_corpus.write(corpus_file(options, options.kind), head, groups)
    print(
        f"{sum(len(mutants) for _, mutants in groups)} mutants in {len(groups)} groups with "
        f"{len(outcomes)} outcomes stored"
    )
    return 0


def shorten(runner, mutants, flags):
    """The mutants of a group without the lines that their outcomes do not need."""

    def outcomes_of(texts):
        bad, found = runner.find(texts, flags)
        if bad:
            report(bad, runner.options.save)
            sys.exit(1)
        return [outcome for _, outcome in found]

    def short(mutant, wanted):
        if len(mutant) < runner.options.shorten:
            return mutant
        return ir_corpus.shortened(mutant, wanted, outcomes_of)

    with concurrent.futures.ThreadPoolExecutor(runner.options.jobs) as pool:
        return list(
            pool.map(
                short,
                mutants,
                outcomes_of(mutants),
            )
        )


def without_comments(text):
    """The text without lines that are comments: a stored mutant is short."""
    return re.sub(rb"^[ \t]*//.*\n", b"", text, flags=re.M).strip(b"\n") + b"\n"


def add(options):
    """Stores mutants that went wrong, as --save left them, once each."""
    path = corpus_file(options, FOUND)
    groups = ir_corpus.read(path)[1] if path.exists() else []
    for name in options.add:
        first, _, mutant = pathlib.Path(name).read_bytes().partition(b"\n")
        if not first.startswith(b"// fa-opt "):
            sys.exit(f"{name}: expected a first line '// fa-opt FLAGS', got {first[:60]!r}")
        flags = shlex.split(first.decode().removeprefix("// fa-opt "))
        if not ir_corpus.storable(mutant):
            mutant = without_comments(mutant)
        mutants = next((own for known, own in groups if known == flags), None)
        if mutants is None:
            groups.append((flags, mutants := []))
        if mutant not in mutants:
            mutants.append(mutant)
    head = ["Mutants that once crashed a pass, added by mutate_ir.py --add; see README.md."]
    ir_corpus.write(path, head, groups)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fa-opt", default="build/bin/fa-opt")
    parser.add_argument("--tests", default=str(pathlib.Path(__file__).parent.parent))
    parser.add_argument("--kind", default="general", choices=(*KINDS, FOUND))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=2000, help="mutants of a seed")
    parser.add_argument("--batch", type=int, default=0, help="mutants of a process (40, or 10)")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    # Upstream's canonicalizer takes 10 s for some loops that carry a hundred values.
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one mutant")
    parser.add_argument("--memory", type=int, default=6, help="GiB for one process; 0: no limit")
    parser.add_argument("--save", default="", help="folder for the mutants that go wrong")
    parser.add_argument("--passes", default="", help="comma-separated, instead of all")
    parser.add_argument(
        "--no-stages",
        dest="stages",
        action="store_false",
        help="mutate the inputs only, not the IR after each pass",
    )
    parser.add_argument("--corpus", action="store_true", help="run the stored mutants")
    parser.add_argument("--shard", default="1/1", help="of the stored mutants' groups, as 2/3")
    parser.add_argument("--distil", action="store_true", help="choose mutants and store them")
    parser.add_argument("--seeds", type=int, default=4, help="how many seeds to choose from")
    parser.add_argument("--each", type=int, default=1, help="mutants of an outcome to store")
    parser.add_argument("--valid", type=int, default=40, help="valid mutants to store")
    parser.add_argument("--syntax", type=int, default=15, help="mere syntax errors to store")
    parser.add_argument("--longest", type=int, default=20000, help="bytes of a stored mutant")
    parser.add_argument("--shorten", type=int, default=1500, help="mutants of so many bytes")
    parser.add_argument("--kib", type=int, default=250, help="KiB of all stored mutants")
    parser.add_argument("--pool", type=int, default=4, help="flags that follow one stage")
    parser.add_argument("--add", nargs="+", default=[], help="files that --save left, to store")
    options = parser.parse_args()
    options.batch = options.batch or (10 if options.kind in ("hopper", "kernels") else 40)
    runner = Runner(options)
    if options.add:
        return add(options)
    if options.corpus:
        return replay(options, runner)
    return distil(options, runner) if options.distil else fuzz(options, runner)


if __name__ == "__main__":
    sys.exit(main())
