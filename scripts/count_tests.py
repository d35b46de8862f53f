#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adds up a run's reports: `count_tests.py FOLDER TIER SUITE...` prints the total as one line.

FOLDER has of each suite a JUnit report, SUITE.xml, and SUITE.seconds, its elapsed, user and
system time. A suite without a readable report counts as one failure, and so does one whose
processors were busy for longer than test/budgets.toml allows.
"""

from __future__ import annotations

import hashlib
import pathlib
import sys
import time
import tomllib
import xml.etree.ElementTree as ElementTree

BUDGETS = pathlib.Path(__file__).parents[1] / "test/budgets.toml"


def count(report: pathlib.Path) -> tuple[int, int, int]:
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


def slowness() -> float:
    """How many times as long as the machine of the budgets this one takes, and at least 1."""
    start = time.process_time()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)
    return max(1.0, (time.process_time() - start) / tomllib.loads(BUDGETS.read_text())["hash"])


def over_budget(folder: pathlib.Path, tier: str, suites: list[str]) -> list[str]:
    """A line for each suite that took too long."""
    budgets = tomllib.loads(BUDGETS.read_text())[tier]
    slow, lines = slowness(), []
    for name in suites:
        elapsed, user, system = map(float, (folder / f"{name}.seconds").read_text().split()[-3:])
        busy, allowed = user + system, budgets[name] * slow
        print(f"{name}: {elapsed:.0f} s, processors busy for {busy:.0f} s of {allowed:.0f} s")
        if busy > allowed:
            lines.append(
                f"{name}: expected processors to be busy for at most {budgets[name]} s "
                f"({allowed:.0f} s on a machine as slow as this one), got {busy:.0f} s; make its "
                f"tests faster, or raise the {tier} tier's budget in {BUDGETS.name} and say why"
            )
    return lines


def main() -> int:
    """Prints a line for each suite and the total; fails if a test failed."""
    folder, tier, suites = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    total = [0, 0, 0]
    for name in suites:
        try:
            counts = count(folder / f"{name}.xml")
        except (OSError, ElementTree.ParseError) as error:
            print(f"{name}: no report: {error}")
            counts = (0, 1, 0)
        print(f"{name}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")
        total = [a + b for a, b in zip(total, counts)]
    slow = over_budget(folder, tier, suites)
    for line in slow:
        print(line)
    total[1] += len(slow)
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
