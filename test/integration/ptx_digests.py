#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Digests of the PTX of every configuration that ships, to see which kernels a change changes.

    ptx_digests.py            # what differs from ptx_digests.json
    ptx_digests.py --renew    # writes it

Virtual registers and labels are numbered in the order in which they appear, so that a text
whose instructions are the same has the same digest. A change that should leave kernels alone
(a move, a rename, another way to make the same schedule) leaves this file alone; one that
should not renews it, and its message says what was measured of the new kernels.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

import corpus
from corpus import CHIPS

FILE = pathlib.Path(__file__).with_suffix(".json")


def release() -> str | None:
    """Of the LLVM that makes PTX here, whose register allocation and order are in it."""
    config = shutil.which("llvm-config-22") or shutil.which("/usr/lib/llvm-22/bin/llvm-config")
    if not config:
        return None
    return subprocess.run([config, "--version"], capture_output=True, text=True).stdout.strip()


def normalized(text: str) -> str:
    """Without what numbering and comments alone make different."""
    names: dict[str, str] = {}
    text = re.sub(r"//(?!!fa).*", "", text)
    text = re.sub(r"(\.reg \.\w+ %\w+)<\d+>", r"\1", text)
    return re.sub(
        r"%(?:r[sd]?|rq|f|fd|p|h|b)\d+\b|\$L_*\w+",
        lambda m: names.setdefault(m[0], re.sub(r"\d+$", "", m[0]) + f"#{len(names)}"),
        text,
    )


def digest(text: str) -> str:
    return hashlib.sha256(normalized(text).encode()).hexdigest()[:16]


def digest_of(entry: corpus.Entry) -> str:
    return digest(entry.ptx())


def digests(chip: str) -> dict[str, str]:
    """Of all kernels that ship for a chip."""
    return {entry.known_as: own for entry, own in corpus.map_parallel(digest_of, chip)}


def known() -> dict:
    """The file: the release of LLVM, and digests by chip and name."""
    return json.loads(FILE.read_text())


def differences(old: dict[str, str], new: dict[str, str]) -> list[str]:
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--renew", action="store_true", help="write the file")
    options = parser.parse_args()
    made = {chip: digests(chip) for chip in CHIPS}
    old = known() if FILE.exists() else {chip: {} for chip in CHIPS}
    changed = {chip: differences(old[chip], made[chip]) for chip in CHIPS}
    for chip, names in changed.items():
        print(f"{chip}: {len(names)} of {len(made[chip])} differ", *names, sep="\n  ")
    if options.renew:
        FILE.write_text(json.dumps({"LLVM": release(), **made}, indent=1) + "\n")
    return 0 if options.renew else any(changed.values())


if __name__ == "__main__":
    sys.exit(main())
