#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adds up JUnit reports: `count_tests.py FOLDER SUITE...` prints the total as one line.

A suite without a readable report counts as one failure.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def count(report):
    """(passed, failed, skipped) of one report."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main():
    """Prints a line for each suite and the total; fails if a test failed."""
    folder = pathlib.Path(sys.argv[1])
    total = [0, 0, 0]
    for name in sys.argv[2:]:
        try:
            counts = count(folder / f"{name}.xml")
        except (OSError, ElementTree.ParseError) as error:
            print(f"{name}: no report: {error}")
            counts = (0, 1, 0)
        print(f"{name}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")
        total = [a + b for a, b in zip(total, counts)]
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
