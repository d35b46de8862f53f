#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/adding-a-pass.md, done by the letter.

`adding_a_pass.py WORK` copies the sources to WORK, applies the page's blocks in
their order, and runs its commands. A block belongs to the file that the paragraph
before it names last, followed by a colon: `diff` changes it, `cpp` and `mlir` are
the whole of a new file. `sh` is run. Fails at the first thing that does not do
what the page says.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PAGE = SOURCE / "docs/adding-a-pass.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"`([\w./-]+)`:\s*\Z")


def copy_sources(work):
    """Tracked and new files; the copy's build folder stays, for the next run."""
    git = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others"]
    names = subprocess.run(
        [*git, "--exclude-standard"], cwd=SOURCE, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    for path in work.iterdir() if work.exists() else ():
        if path.name != "build":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in names:
        if (SOURCE / name).is_file():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(SOURCE / name, work / name)


def change(path, diff):
    """Applies a diff without line numbers: its old lines must be there once."""
    lines = diff.splitlines()
    old = "".join(line[1:] + "\n" for line in lines if line[:1] != "+")
    new = "".join(line[1:] + "\n" for line in lines if line[:1] != "-")
    text = path.read_text()
    if text.count(old) != 1:
        sys.exit(f"{PAGE}: {path.name} has {text.count(old)} times, expected once:\n{old}")
    path.write_text(text.replace(old, new))


def run(commands, work):
    """The page's commands in the copy."""
    # Compilations of the same content elsewhere are the cache's.
    environment = dict(os.environ, CCACHE_BASEDIR=str(work), CCACHE_NOHASHDIR="1")
    environment.pop("FA_BUILD_DIR", None)
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", commands],
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(done.stdout)
    if done.returncode != 0:
        sys.exit(f"{PAGE}: the commands failed:\n{commands}")
    return done.stdout


def main():
    """Goes through the page."""
    work = pathlib.Path(sys.argv[1]).resolve()
    work.mkdir(parents=True, exist_ok=True)
    copy_sources(work)
    page = PAGE.read_text()
    output, created, end = "", [], 0
    for block in BLOCK.finditer(page):
        kind, text = block.groups()
        named = FILE.search(page[end : block.start()])
        end = block.end()
        if kind == "sh":
            output += run(text, work)
            continue
        if not named:
            sys.exit(f"{PAGE}: no file is named before this block:\n{block[0]}")
        path = work / named[1]
        if kind == "diff":
            change(path, text)
        elif path.exists():
            sys.exit(f"{PAGE}: {named[1]} is called a new file and exists")
        else:
            path.write_text(text)
            created.append(path)
    # The test that the page writes is the one that was run.
    if not re.search(r"^ *Passed *: *1 ", output, re.M) or len(created) != 2:
        sys.exit(f"{PAGE}: expected two new files and one test that passed, got {created}")
    formatter = shutil.which("clang-format-22") or "/usr/lib/llvm-22/bin/clang-format"
    if pathlib.Path(formatter).exists():
        sources = [path for path in created if path.suffix == ".cpp"]
        subprocess.run([formatter, "--dry-run", "-Werror", *sources], check=True)


if __name__ == "__main__":
    main()
