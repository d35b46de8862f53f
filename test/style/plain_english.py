#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prose names the thing and has short lines.

    plain_english.py                     checks the sources
    plain_english.py ROOT [LISTED...]    checks others, with LISTED in both lists

"what" as a noun ("what is loaded comes a tile ahead") hides the subject of a sentence. So
each page may have 4 in 1000 words, and the docstrings of a Python file and the
descriptions of a TableGen file 3; a short text may have one. Lines of a page have at most
100 characters, apart from tables, code and targets of links. Text between
`<!-- NAME -->` and `<!-- /NAME -->` is written by scripts and does not count.

MANY and LONG are the files that do not pass yet. The lists only shrink: a file of them that
passes is an error, too.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys

OF_A_PAGE, OF_SOURCES, WIDTH = 4, 3, 100

# Files with more "what" than their limit.
MANY: set[str] = set()
# Pages with longer lines.
LONG: set[str] = set()

FENCE = re.compile(r"^ *```.*?^ *```[^\n]*$", re.M | re.S)
WRITTEN = re.compile(r"^<!-- (?P<name>[^/].*?) -->$.*?^<!-- /(?P=name) -->$", re.M | re.S)
# Not the name of an argument.
WHAT = re.compile(r"\bwhat\b(?!:)", re.I)
TARGET = re.compile(r"\]\([^)\s]*\)")
FIELD = re.compile(
    r'let (?:description|summary) = (?:\[\{(?P<block>.*?)\}\]|"(?P<line>(?:[^"\\]|\\.)*)")', re.S
)


def blanked(match):
    """As many empty lines, so that the others keep their numbers."""
    return "\n" * match[0].count("\n")


def prose(page):
    """The text of a page without code and without text that scripts write."""
    return FENCE.sub(blanked, WRITTEN.sub(blanked, page))


def docstrings(source):
    """All docstrings of a Python file, those behind assignments included."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.Expr) and isinstance(getattr(value, "value", None), str):
                yield value.value


def descriptions(source):
    """All descriptions and summaries of a TableGen file, without their code."""
    for field in FIELD.finditer(source):
        yield FENCE.sub("", field["block"] or field["line"] or "")


def texts(root):
    """For each file its path, its prose and how many "what" 1000 words may have."""
    pages = [*root.glob("docs/*.md"), root / "README.md", root / "benchmarks/README.md"]
    for path in filter(pathlib.Path.is_file, sorted(pages)):
        yield path, prose(path.read_text()), OF_A_PAGE
    for path in sorted(root.glob("python/fa/**/*.py")):
        yield path, "\n".join(docstrings(path.read_text())), OF_SOURCES
    for path in sorted(root.glob("include/fa/Dialect/FA/**/*.td")):
        yield path, "\n".join(descriptions(path.read_text())), OF_SOURCES


def too_many(text, limit):
    """The complaint about a text with more "what" than the limit, or None."""
    words, found = len(text.split()), len(WHAT.findall(text))
    allowed = max(1, limit * words // 1000)
    if found <= allowed:
        return None
    return (
        f'"what" stands {found} times in {words} words, expected at most {allowed} ({limit} in '
        "1000); name the thing and make it the subject"
    )


def too_long(text):
    """The complaint about a page with long lines, or None."""
    for number, line in enumerate(text.splitlines(), 1):
        length = len(TARGET.sub("]", line))
        if length > WIDTH and not line.lstrip().startswith("|"):
            return f"line {number} has {length} characters, expected at most {WIDTH}; wrap it"
    return None


def main():
    root, listed = pathlib.Path(__file__).resolve().parents[2], {"MANY": MANY, "LONG": LONG}
    if len(sys.argv) > 1:
        root, listed = pathlib.Path(sys.argv[1]), dict.fromkeys(listed, set(sys.argv[2:]))
    failed, checked = False, set()
    for path, text, limit in texts(root):
        name = path.relative_to(root).as_posix()
        checked.add(name)
        complaints = {"MANY": too_many(text, limit)}
        if path.suffix == ".md":
            complaints["LONG"] = too_long(text)
        for rule, complaint in complaints.items():
            if complaint and name not in listed[rule]:
                print(f"{name}: {complaint}")
                failed = True
            if not complaint and name in listed[rule]:
                print(f"{name}: passes; remove it from {rule} in test/style/plain_english.py")
                failed = True
    for name in sorted(set().union(*listed.values()) - checked):
        print(f"{name}: is not checked; remove it from test/style/plain_english.py")
        failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
