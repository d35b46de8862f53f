#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs model families of the installed transformers by fa and by eager, and counts verdicts."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import transformers  # noqa: E402
import zoo  # noqa: E402

BEGIN, END = "<!-- table of families -->", "<!-- /table of families -->"

MEANING = {
    "all": "fa computes every attention call, and the numbers are right",
    "part": "right; the model's own code or PyTorch computes some of its attention",
    "own": "right; the model computes attention with its own code, and nothing reaches fa",
    "none": "right; the model has no attention by softmax",
    "refused": "an exception",
    "wrong": "other numbers",
    "not built": "does not run here under eager",
}


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--families", help="names, with commas between them; 'routings' for CI's; else all"
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="start no family after this time"
    )
    parser.add_argument("--json", type=Path, help="write the entries to this file")
    parser.add_argument(
        "--table", type=Path, help=f"replace what is between {BEGIN} and {END} in this file"
    )
    return parser.parse_args(arguments)


def chosen(families: str | None) -> list[str]:
    """The families that were asked for; exits at a name that transformers does not have."""
    if families is None:
        return zoo.families()
    names = list(zoo.ROUTINGS) if families == "routings" else families.split(",")
    unknown = sorted(set(names) - set(zoo.families()))
    if unknown:
        sys.exit(
            f"expected families of transformers {transformers.__version__}, got "
            f"{', '.join(unknown)}; zoo.families() lists them"
        )
    return names


def run(names: list[str], seconds: float) -> list[zoo.Entry]:
    """The verdicts, with a line for each as it is known."""
    start, entries = time.monotonic(), []
    for at, name in enumerate(names):
        if time.monotonic() - start > seconds:
            print(f"{len(names) - at} families were not started within {seconds} s")
            break
        entry = zoo.run(name)
        entries.append(entry)
        reason = f": {entry.reason}" if entry.reason else ""
        print(
            f"[{at + 1}/{len(names)}] {name} {entry.verdict}{reason} ({entry.seconds} s)",
            flush=True,
        )
    return entries


def _group(entry: zoo.Entry) -> str:
    """The reason, without the details of one family."""
    reason = re.sub(r" \([a-z ,]*\)$", "", entry.reason)
    reason = re.sub(r"from \w+.*", "from a layer", reason)
    reason = re.sub(r"\d+(?:\.\d+)?", "n", reason) if entry.verdict == "refused" else reason
    if entry.verdict == "not built":
        missing = re.search(r"requires the (\w+) library", reason)
        reason = f"needs {missing[1]}" if missing else "inputs or sizes"
        reason = "no model class" if "no model class" in entry.reason else reason
    return reason.replace("`", "'").replace("|", "/")


def _names(entries: list[zoo.Entry]) -> str:
    return ", ".join(f"`{entry.family}`" for entry in sorted(entries, key=lambda e: e.family))


def _cell(entries: list[zoo.Entry]) -> str:
    """The families of one verdict, by their reasons."""
    groups: dict[str, list[zoo.Entry]] = defaultdict(list)
    for entry in entries:
        groups[_group(entry)].append(entry)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return "<br>".join(
        f"{reason}: {_names(of)}" if reason else _names(of) for reason, of in ordered
    )


def table(entries: list[zoo.Entry], commit: str, date: str) -> str:
    """The table in Markdown, with its caption.

    Args:
        entries: the verdicts.
        commit: of fa.
        date: of the run.
    """
    lines = [
        f"{len(entries)} families of transformers {transformers.__version__}, small and random, "
        f"on the CPU in float32 ({date}, {commit}):",
        "",
        "| verdict | number | meaning | families |",
        "|---|---|---|---|",
    ]
    for verdict in zoo.VERDICTS:
        of = [entry for entry in entries if entry.verdict == verdict]
        lines.append(f"| {verdict} | {len(of)} | {MEANING[verdict]} | {_cell(of)} |")
    return "\n".join(lines) + "\n"


def commit_of_sources() -> str:
    """The short name of the checkout's commit."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    here = Path(__file__).parent
    return subprocess.run(command, cwd=here, capture_output=True, text=True).stdout.strip()


def replace(path: Path, text: str) -> None:
    """Puts a text between a file's markers; exits if it has none."""
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"expected {BEGIN} and {END} in {path}, got a file without them; add both lines")
    path.write_text(f"{before}{begin}\n\n{text}\n{end}{after}")


def main() -> int:
    """Runs what the command line asks for; 1 if a family is wrong."""
    options = parsed()
    zoo.prepare()
    start = time.monotonic()
    names = chosen(options.families)
    entries = run(names, options.seconds)
    number = zoo.counts(entries)
    known = ", ".join(f"{verdict} {number[verdict]}" for verdict in zoo.VERDICTS)
    print(f"{len(entries)} families in {time.monotonic() - start:.0f} s: {known}")
    if options.json:
        options.json.write_text(json.dumps([asdict(entry) for entry in entries], indent=1) + "\n")
    if options.table and len(entries) < len(names):
        print(f"{options.table} stays as it is: {len(names) - len(entries)} families are left")
    elif options.table:
        today = datetime.date.today().isoformat()
        replace(options.table, table(entries, commit_of_sources(), today))
    return 1 if number["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
