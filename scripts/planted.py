#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plants each fault of test/planted and sees whether the tests find it.

    planted.py before [NAME...]   # the one test that each patch names
    planted.py after [NAME...]    # the quick tier of scripts/test.sh, then CI's
    planted.py report             # a table of the results

Works on the last commit, in a work tree of its own (build/planted/tree, with its build
folder); changes that are not committed are not in it. The patches are those of this
checkout. Each test, and each tier, first has to pass without a fault.

Results are kept in test/planted/results.json after each fault, and a fault that has one
is left out (but for --again). Fails unless all faults were found.

Environment: FA_JOBS, FA_CMAKE_ARGS as for scripts/build.sh.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
PATCHES = ROOT / "test/planted"
RESULTS = PATCHES / "results.json"
TREE = ROOT / "build/planted/tree"
# Inside the tree: only so do ccache's relative paths hit what other trees have compiled.
BUILD = TREE / "build"
KINDS = ("passes", "emission", "runtime", "python", "checks")
TIERS = {"quick": ["--quick"], "ci": []}
LIMIT = 3600
"""Seconds that one test may take. A fault that makes it hang is found."""


class Failure(Exception):
    """What keeps a fault from a result."""


def read_patches() -> dict[str, dict[str, str]]:
    """The fields of each patch's header, by name, ordered by kind."""
    patches = {}
    for path in sorted(PATCHES.glob("*.patch")):
        header = path.read_text().partition("\n\n")[0]
        fields = dict(re.findall(r"^([\w-]+): *(.*)$", header, re.M))
        is_known = fields.get("kind") in KINDS and fields.get("tier") in TIERS
        if not is_known or not {"fault", "builds", "found-by"} <= fields.keys():
            sys.exit(f"{path}: its header lacks a field, or has an unknown kind or tier")
        patches[path.stem] = fields
    return dict(sorted(patches.items(), key=lambda item: (KINDS.index(item[1]["kind"]), item[0])))


def read_results() -> dict[str, Any]:
    """Results by phase ("before", "after", and "clean" without a fault) and name."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def record(phase: str, name: str, **result: object) -> None:
    """Writes a result."""
    results = read_results()
    results.setdefault(phase, {})[name] = {"commit": commit()[:12], **result}
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def git(*words: str, tree: pathlib.Path = TREE) -> str:
    """The output of a git command."""
    done = subprocess.run(["git", "-C", tree, *words], capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def commit() -> str:
    """The commit that is tested: commits that are made meanwhile are not."""
    return git("rev-parse", "HEAD")


def prepare_tree() -> None:
    """The tree is the last commit, without a fault, and this process's alone."""
    TREE.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(TREE.parent / "lock", os.O_CREAT | os.O_RDWR)  # open while the process is
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("planted.py: another one works in the same tree; wait for its end")
    if not TREE.exists():
        git("worktree", "prune", tree=ROOT)
        git("worktree", "add", "--detach", str(TREE), "HEAD", tree=ROOT)
    clean_tree()
    last = git("rev-parse", "HEAD", tree=ROOT)
    if commit() != last:
        git("checkout", "--quiet", "--detach", last)
    if not (TREE / ".venv").exists() and (ROOT / ".venv").exists():
        (TREE / ".venv").symlink_to((ROOT / ".venv").resolve())


def clean_tree() -> None:
    """Takes a fault back."""
    git("checkout", "--quiet", "--", ".")
    changed = git("status", "--porcelain", "--untracked-files=no")
    if changed:
        raise Failure(f"the tree is not clean: {changed}")


def run(*command: object, limit: int = LIMIT) -> tuple[int | None, str]:
    """A command's exit status in the tree (None: it took too long) and its output."""
    path = os.pathsep.join(filter(None, [f"{BUILD}/python", os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"FA_BUILD_DIR": "build", "FA_SKIP_SETUP": "1", "PYTHONPATH": path}
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        # A session of its own, so that its children end with it.
        options = {"cwd": TREE, "env": environment, "start_new_session": True}
        process = subprocess.Popen([*map(str, command)], stdout=out, stderr=out, **options)
        status = None
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if status is None:
                os.killpg(process.pid, signal.SIGKILL)
        out.seek(0)
        return status, out.read()


def tail(text: str) -> str:
    """The last lines."""
    return "\n".join(text.splitlines()[-20:])


def build(targets: list[str]) -> None:
    """Builds ninja's targets; a failure is no fault found."""
    status, text = run("scripts/build.sh", *targets) if targets else (0, "")
    if status != 0:
        raise Failure(f"the build failed:\n{tail(text)}")


def run_test(test: str) -> tuple[bool, str]:
    """Whether a test of the form of `found-by` passes, and its output."""
    suite, _, name = test.partition(" ")
    binary, _, pattern = name.partition(".")
    lit = shutil.which("/usr/lib/llvm-22/bin/lit") or "lit"
    commands = {
        "lit": (lit, "-v", BUILD / "test", "--filter", f"^fa :: {re.escape(name)}$"),
        "ctest": (BUILD / "bin" / binary, f"--gtest_filter={pattern}"),
        "pytest": (".venv/bin/python", "-m", "pytest", "-q", "-x", name),
    }
    status, text = run(*commands[suite])
    ran = (
        r"(Passed|Failed|Timed Out) *: +[1-9]|Running [1-9]\d* test|[1-9]\d* (passed|failed|error)"
    )
    has_ended = status is not None and status >= 0  # it has not hung or crashed
    if has_ended and not re.search(ran, text):
        raise Failure(f"{test} runs no test:\n{tail(text)}")
    return status == 0, text


def run_tier(tier: str, options: list[str]) -> tuple[bool, str]:
    """Whether a tier of scripts/test.sh passes, and the test that failed first."""
    shutil.rmtree(BUILD / "test-reports", ignore_errors=True)
    status, text = run("scripts/test.sh", *TIERS[tier], *options, limit=3 * LIMIT)
    if status == 0:
        return True, ""
    reports = (BUILD / "test-reports").glob("*.xml")
    for report in sorted(reports, key=lambda path: path.stat().st_mtime):
        with contextlib.suppress(ElementTree.ParseError):
            for case in ElementTree.parse(report).iter("testcase"):
                if case.find("failure") is not None or case.find("error") is not None:
                    words = (report.stem, case.get("classname", ""), case.get("name", ""))
                    return False, " ".join(filter(None, words))
    return False, "no end" if status is None else f"no report: {tail(text)}"


def expect_clean(name: str, targets: list[str], again: bool, test: Any) -> None:
    """A test or tier passes without a fault; it is run once for each commit."""
    known = read_results().get("clean", {}).get(name)
    if known and commit().startswith(known["commit"]) and not (known["found"] and again):
        if known["found"]:
            raise Failure(f"{name} failed without the fault, too; --again runs it again")
        return
    build(targets)
    start = time.monotonic()
    passes, what = test()
    record("clean", name, found=not passes, seconds=round(time.monotonic() - start, 1))
    if not passes:
        raise Failure(f"{name} fails without the fault, too:\n{tail(what)}")


def try_fault(name: str, targets: list[str], test: Any) -> tuple[bool, str, float]:
    """Plants a fault: whether a test or tier still passes, what it says, and its seconds."""
    git("apply", "-p1", str(PATCHES / f"{name}.patch"))
    try:
        build(targets)
        start = time.monotonic()
        passes, what = test()
        return passes, what, round(time.monotonic() - start, 1)
    finally:
        clean_tree()


def before(name: str, patch: dict[str, str], again: bool) -> dict[str, Any]:
    """Looks for a fault by the test that its patch names."""
    test = patch["found-by"]
    # The module is there with what was planted before.
    targets = [*patch["builds"].split(), *["FAPython"] * test.startswith("pytest")]
    expect_clean(test, targets, again, lambda: run_test(test))
    passes, _, seconds = try_fault(name, targets, lambda: run_test(test))
    return {"found": not passes, "by": test, "tier": patch["tier"], "seconds": seconds}


def after(name: str, patch: dict[str, str], again: bool) -> dict[str, Any]:
    """Looks for a fault by the quick tier, and by CI's where that finds nothing."""
    targets, total = ["all", "FAUnitTests"], 0.0
    for tier in TIERS:
        expect_clean(tier, targets, again, lambda tier=tier: run_tier(tier, []))
        passes, by, seconds = try_fault(name, targets, lambda tier=tier: run_tier(tier, ["--stop"]))
        total = round(total + seconds, 1)
        if not passes:
            return {"found": True, "by": by, "tier": tier, "seconds": total}
    return {"found": False, "by": "", "tier": "", "seconds": total}


def look(phase: str, names: list[str], again: bool) -> int:
    """Plants faults one after the other; the exit status."""
    patches, start, missed = read_patches(), time.monotonic(), []
    unknown = [name for name in names if name not in patches]
    if unknown:
        sys.exit(f"expected names of {PATCHES}/*.patch, got {', '.join(unknown)}")
    names = names or list(patches)
    prepare_tree()
    for number, name in enumerate(names, 1):
        known = read_results().get(phase, {}).get(name)
        if known is None or again:
            minutes, seconds = divmod(int(time.monotonic() - start), 60)
            print(f"{number} of {len(names)}: {name}, {minutes}:{seconds:02}", flush=True)
            try:
                known = {"before": before, "after": after}[phase](name, patches[name], again)
                record(phase, name, **known)
                verdict = f"found by {known['by']}" if known["found"] else "NOT FOUND"
                print(f"  {verdict}, {known['seconds']} s", flush=True)
            except Failure as error:
                known = {"found": False}
                print(f"  ERROR: {error}", flush=True)
        if not known["found"]:
            missed.append(name)
    print(f"{len(names) - len(missed)} of {len(names)} faults found", *missed, sep="\n  ")
    return 1 if missed else 0


def report() -> int:
    """Prints the results as a table."""
    results = read_results()
    for name, patch in read_patches().items():
        print(f"{name} ({patch['kind']}, {patch['tier']}): {patch['fault']}")
        for phase in ("before", "after"):
            line, got = "not run", results.get(phase, {}).get(name)
            if got:
                by = f"{got['tier']}, {got['by']}" if got["found"] else "NOT FOUND"
                line = f"{by}, {got['seconds']} s at {got['commit']}"
            print(f"  {phase + ':':7} {line}")
    return 0


def main() -> int:
    """Runs the command that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("before", "after", "report"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults; all if none is given")
    parser.add_argument("--again", action="store_true", help="also those that have a result")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # which takes the fault back
    if options.command == "report":
        return report()
    return look(options.command, options.names, options.again)


if __name__ == "__main__":
    sys.exit(main())
