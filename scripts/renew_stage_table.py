#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Renews README.md's table of stages: what stands between its two comments.

    scripts/renew_stage_table.py [--machine NAME] [--fa-run PROGRAM] [-- ARGUMENT...]

Runs GPT-2 small's attention through every stage on the CPU, and writes what fa-run
prints with the machine, the date and the commit. Further arguments are fa-run's
(`-- --repeat=5 --threads=2`). Nothing is written where a stage is wrong.
"""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- stage table -->", "<!-- /stage table -->"
FILE = "test/inputs/gpt2-small.mlir"
OPTIONS = ["--target=cpu", "--each-stage", "--io", "--check"]


def replaced(page: str, block: str) -> str:
    """The page with a block between its two comments."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(END) < page.index(BEGIN):
        raise ValueError(f"expected {BEGIN} once and {END} once after it, got other comments")
    return page[: page.index(BEGIN)] + f"{BEGIN}\n{block}\n" + page[page.index(END) :]


def block_of(table: str, machine: str, threads: int, date: str, commit: str) -> str:
    """The text of the block."""
    return (
        "GPT-2 small's attention (B=1, 12 heads, 1024 tokens, head dim 64, causal, f16) through\n"
        f"every stage on {threads} thread{'s' if threads > 1 else ''} of an {machine}, {date}, "
        f"{commit}.\nGFLOP/s do not count what the mask saves:\n\n```\n{table.rstrip()}\n```"
    )


def git(*arguments: str) -> str:
    """What git says of the sources."""
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip("\n")


def commit() -> str:
    """What is measured; README.md itself may differ from it."""
    changed = [line[3:] for line in git("status", "--porcelain").splitlines()]
    head = "commit " + git("rev-parse", "--short", "HEAD")
    return head if set(changed) <= {"README.md"} else "the working tree after " + head


def processor() -> str:
    """The machine's processor, as it calls itself."""
    found = re.search(r"^model name\s*:\s*(.+)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return found[1] if found else "unknown processor"


def main() -> int:
    """Runs, and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", default=processor(), help="what README.md calls it")
    parser.add_argument("--fa-run", default=str(ROOT / "build/bin/fa-run"), help="the program")
    parser.add_argument("arguments", nargs="*", help="further ones of fa-run, after --")
    args = parser.parse_args()
    asked = re.findall(r"--?threads=(\d+)", " ".join(args.arguments))
    threads = (asked and int(asked[-1])) or len(os.sched_getaffinity(0))
    command = [args.fa_run, str(ROOT / FILE), *OPTIONS, *args.arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    print(run.stdout, end="")
    if run.returncode:
        print(f"renew_stage_table.py: fa-run failed: {run.stderr.strip()}", file=sys.stderr)
        return 1
    date = datetime.date.today().isoformat()
    block = block_of(run.stdout, args.machine, threads, date, commit())
    readme = ROOT / "README.md"
    readme.write_text(replaced(readme.read_text(), block))
    return 0


if __name__ == "__main__":
    sys.exit(main())
