#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Renews the tables of stages: what stands between two comments of a page.

    scripts/renew_stage_table.py [--page PAGE] [--machine NAME] [--fa-run PROGRAM] [-- ARGUMENT...]

Runs GPT-2 small's attention, and its gradient, through every stage on the CPU, and writes
what fa-run prints with the machine, the date and the commit: docs/building.md and
docs/tutorial-backward.md. Further arguments are fa-run's (`-- --repeat=5 --threads=2`).
Nothing is written where a stage is wrong.
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
OPTIONS = ["--each-stage", "--io", "--check"]
WHAT = "GPT-2 small's attention"
GRADIENT = ("docs/tutorial-backward.md", "The gradient of " + WHAT)
TABLES = (
    # page; what is run; its comments; fa-run's options
    ("docs/building.md", WHAT, (BEGIN, END), ["--target=cpu"]),
    (
        *GRADIENT,
        ("<!-- stage table of algorithm 3 -->", "<!-- /stage table of algorithm 3 -->"),
        ["--backward", "--passes=fa-decompose,fa-expand-steps"],
    ),
    (
        *GRADIENT,
        ("<!-- stage table of cpu -->", "<!-- /stage table of cpu -->"),
        ["--backward", "--rows=64", "--keys=64"],
    ),
    (
        *GRADIENT,
        ("<!-- stage table of sm_80 -->", "<!-- /stage table of sm_80 -->"),
        ["--backward", "--target=sm_80", "--deterministic", "--stop-after=fa-order-sums"],
    ),
)


def replaced(page: str, block: str, comments: tuple[str, str] = (BEGIN, END)) -> str:
    """The page with a block between its two comments."""
    begin, end = comments
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(end) < page.index(begin):
        raise ValueError(f"expected {begin} once and {end} once after it, got other comments")
    return page[: page.index(begin)] + f"{begin}\n{block}\n" + page[page.index(end) :]


def block_of(
    table: str, machine: str, threads: int, date: str, commit: str, what: str = WHAT
) -> str:
    """The text of the block."""
    return (
        f"{what} (B=1, 12 heads, 1024 tokens, head dim 64, causal, f16) through\n"
        f"every stage on {threads} thread{'s' if threads > 1 else ''} of an {machine}, {date}, "
        f"{commit}.\nGFLOP/s count every score, hidden ones too:\n\n```\n{table.rstrip()}\n```"
    )


def git(*arguments: str) -> str:
    """What git says of the sources."""
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip("\n")


def commit() -> str:
    """What is measured; the pages themselves may differ from it."""
    changed = [line[3:] for line in git("status", "--porcelain").splitlines()]
    head = "commit " + git("rev-parse", "--short", "HEAD")
    return (
        head if set(changed) <= {page for page, *_ in TABLES} else "the working tree after " + head
    )


def processor() -> str:
    """The machine's processor, as it calls itself."""
    found = re.search(r"^model name\s*:\s*(.+)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return found[1] if found else "unknown processor"


def main() -> int:
    """Runs, and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", default=processor(), help="what the pages call it")
    pages = {name: (ROOT / name).read_text() for name, *_ in TABLES}
    parser.add_argument("--page", choices=pages, help="renew this page only")
    parser.add_argument("--fa-run", default=str(ROOT / "build/bin/fa-run"), help="the program")
    parser.add_argument("arguments", nargs="*", help="further ones of fa-run, after --")
    args = parser.parse_args()
    asked = re.findall(r"--?threads=(\d+)", " ".join(args.arguments))
    threads = (asked and int(asked[-1])) or len(os.sched_getaffinity(0))
    date = datetime.date.today().isoformat()
    for name, what, comments, options in TABLES:
        if args.page not in (None, name):
            continue
        command = [args.fa_run, str(ROOT / FILE), *options, *OPTIONS, *args.arguments]
        run = subprocess.run(command, capture_output=True, text=True)
        print(run.stdout, end="")
        if run.returncode:
            print(f"renew_stage_table.py: fa-run failed: {run.stderr.strip()}", file=sys.stderr)
            return 1
        block = block_of(run.stdout, args.machine, threads, date, commit(), what)
        pages[name] = replaced(pages[name], block, comments)
    for name, page in pages.items():
        (ROOT / name).write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
