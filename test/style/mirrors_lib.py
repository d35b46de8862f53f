#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders of lit tests are those of lib.

A test lies where the source file that it tests lies: test/Dialect/FA/Transforms has
the tests of lib/Dialect/FA/Transforms. A folder that lib does not have is one of OTHER.
"""

from __future__ import annotations

import pathlib
import sys

TEST = pathlib.Path(__file__).resolve().parents[1]
LIB = TEST.parent / "lib"

# Folders, with all below, whose tests are of no library.
OTHER = {
    "docs": "what the documentation says",
    "fuzz": "random programs through many passes",
    "style": "rules of the sources",
    "tools": "the command lines of programs",
}
# Inputs of tests, which lit does not run.
INPUTS = {"inputs", "Inputs", "unit", "python"}


def main():
    folders = {
        path.parent.relative_to(TEST)
        for suffix in ("*.mlir", "*.test")
        for path in TEST.rglob(suffix)
    }
    wrong = [
        folder
        for folder in sorted(folders)
        if not INPUTS & set(folder.parts)
        and (folder.parts[:1] or (".",))[0] not in OTHER
        and (folder == pathlib.Path(".") or not (LIB / folder).is_dir())
    ]
    for folder in wrong:
        print(f"test/{folder}: expected a folder of lib, or one of {', '.join(OTHER)}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
