#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A lit test gives the pass that it tests the pass's own input.

A test that runs other passes first does not show its input, and fails with any of
them. So fa-opt runs one pass between the IR of a file and FileCheck; what a RUN line
leaves in a file for another one counts there, too. `hopper-verify` behind the pass only
checks the result and does not count. `fa-run` executes a pipeline and is no such test, nor
are the files named `*-run`, which compare numbers before a pass and after it.

EXCEPTIONS are tests whose subject is several passes, each with the reason. The list
only shrinks: a file of it that has no chain left is an error, too.
"""

from __future__ import annotations

import pathlib
import re
import sys

TEST = pathlib.Path(__file__).resolve().parents[1]
ROOT = TEST.parent

# The folders whose tests are of passes.
FOLDERS = ("Dialect", "Analysis", "Conversion", "Schedule", "Target")

EXCEPTIONS = {
    # Bytes that are worked out by hand for stages of the pipeline, one after another.
    "Dialect/FA/Transforms/annotate-io.mlir": "the traffic of each stage",
    "Dialect/FA/Transforms/annotate-io-backward.mlir": "the traffic of a gradient by its tiles",
    "Dialect/FA/Transforms/annotate-io-dynamic.mlir": "the traffic of a whole tile program",
    "Dialect/FA/Transforms/annotate-io-lists.mlir": "the traffic of a whole tile program",
    "Target/NVIDIA/Hopper/hopper-io.test": "the traffic before the schedule and after it",
    # The pipeline chooses tiles, and the schedule by them.
    "Target/NVIDIA/Hopper/schedule-hopper.mlir": "schedules of the tiles that are chosen",
    "Target/NVIDIA/Hopper/schedule-hopper-teams.mlir": "schedules of the tiles that are chosen",
    "Target/NVIDIA/Hopper/schedule-hopper-remarks.mlir": "pipelines whose tiles are left out",
    "Target/NVIDIA/Hopper/hopper-measured.mlir": "a table with the tiles of gradients",
    "Target/NVIDIA/Hopper/hopper-followers.mlir": "kernels of a gradient that follow each other",
    # What passes do together.
    "Conversion/TilesToThreads/staged-sums-ordered.test": "an order for schedule and kernel",
    "Target/CPU/prepare.mlir": "copies that only buffers show",
    "Target/NVIDIA/no-kernel.mlir": "errors of incomplete chains",
    "Target/NVIDIA/pipeline.mlir": "a pipeline by chip",
    "Target/NVIDIA/lower-hopper.mlir": "the way from attention to PTX",
    # PTX that is assembled or executed.
    "Conversion/TilesToThreads/emit-exceeds.mlir": "executed by the emulator",
    "Conversion/TilesToThreads/emit-exchange.mlir": "executed by the emulator",
    "Target/NVIDIA/emulate.test": "executed by the emulator",
    "Target/NVIDIA/ptx.test": "assembled",
    "Target/NVIDIA/ptx-hopper.test": "assembled",
    "Target/NVIDIA/sass-hopper.test": "assembled",
}

# A pipeline that chains passes of several of those folders.
CHAINS = {"fa-pipeline"}
# Passes that check and change nothing.
CHECKS = {"hopper-verify"}


def names_of_passes():
    """Passes and pipelines of the sources, by their flags."""
    names = set()
    for path in (ROOT / "include").rglob("*.td"):
        names.update(re.findall(r'Pass<"([a-z][\w-]+)"', path.read_text()))
    for path in (ROOT / "lib").rglob("Pipeline*.cpp"):
        text = path.read_text()
        names.update(re.findall(r'Pipeline(?:Registration<[^;(]*>)?\(\s*"(fa-[\w-]+)"', text))
    return names


def run_lines(text):
    """The file's RUN lines, continued ones as one, with its substitutions applied."""
    defined, line = {}, ""
    for kind, rest in re.findall(r"\b(RUN|DEFINE|REDEFINE):[ \t]*(.*)$", text, re.M):
        line += rest
        if line.endswith("\\"):
            line = line[:-1]
            continue
        while re.search(r"%\{\w+\}", line) and kind == "RUN":
            line = re.sub(r"%\{\w+\}", lambda m: defined.get(m[0], ""), line)
        if kind == "RUN":
            yield line
        else:
            name, _, value = line.partition("=")
            defined[name.strip()] = value.strip()
        line = ""


def passes_of(line, names):
    """The passes that fa-opt runs in a RUN line, in order."""
    found = []
    for command in re.split(r"[|;]|&&", line):
        if "fa-opt" not in command:
            continue
        # Options that name passes: stop-after, remarks-filter.
        command = re.sub(r"[\w-]+-(?:after|before|filter)=\S+", "", command)
        flags = re.findall(r"(?<![\w%/.])--?([a-z][\w-]+)", command)
        for pipeline in re.findall(r'-pass-pipeline="([^"]*)"', command):
            flags += re.findall(r"[a-z][\w-]+", re.sub(r"\{[^}]*\}", "", pipeline))
        found += [flag for flag in flags if flag in names]
    return found


def chain_of(path, names):
    """The longest chain of passes before a check in a test, or []."""
    left, longest = {}, []
    for line in run_lines(path.read_text()):
        passes = passes_of(line, names)
        target = re.search(r"(?:-o|>)\s*(%t[\w./-]*)", line)
        read = re.sub(r"(?:-o|>)\s*%t[\w./-]*", "", line)
        for file in re.findall(r"%t[\w./-]*", read):
            passes = left.get(file, []) + passes
        if target:
            left[target[1]] = passes
        passes = list(dict.fromkeys(name for name in passes if name not in CHECKS)) or passes
        if len(passes) > len(longest) or CHAINS & set(passes):
            longest = passes
    return longest if len(longest) > 1 or CHAINS & set(longest) else []


def main():
    names = names_of_passes()
    failed = False
    for folder in FOLDERS:
        for path in sorted((TEST / folder).rglob("*")):
            if path.suffix not in (".mlir", ".test") or "Inputs" in path.parts:
                continue
            if path.stem.endswith("-run"):
                continue
            name = path.relative_to(TEST).as_posix()
            chain = chain_of(path, names)
            if chain and name not in EXCEPTIONS:
                print(f"test/{name}: runs {', '.join(chain)}; give the last one its own input")
                failed = True
            if not chain and name in EXCEPTIONS:
                print(f"test/{name}: has no chain of passes; remove it from EXCEPTIONS")
                failed = True
    for name in EXCEPTIONS:
        if not (TEST / name).is_file():
            print(f"test/{name}: is no test; remove it from EXCEPTIONS")
            failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
