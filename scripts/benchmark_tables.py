#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the tables of benchmarks/README.md and benchmarks/results/README.md.

    scripts/benchmark_tables.py [--check]      --check: change nothing, fail if a table is stale

A table stands between `<!-- table: NAME -->` and `<!-- /table -->`. Its entry NAME in
benchmarks/results/tables.toml says which files it reads and how its cells are written. The
caption begins with the machine, the date and the commit of each file. Needs Python alone.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import re
import sys
import textwrap
import tomllib
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = "benchmarks/results"
PAGES = ("benchmarks/README.md", "benchmarks/results/README.md")
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- /table -->)", re.S)

Row = dict[str, Any]


class Table(NamedTuple):
    """An entry of tables.toml. Cells are formats that read a row's fields.

    A row is an entry of the first file's lists `rows`; with `beside`, a path to a dictionary of
    each file, a row is a key (`name`) with that key's value in every file (`runs`). With `top`
    and `cell` the rows whose `line` is equal become one line, with a column for each text of
    `top`. `cell` also knows the geometric `mean`, the `least` and the `most` of their `value`.
    """

    files: list[str]
    caption: str
    head: str
    line: str
    rows: list[str] = ["rows"]
    beside: list[str] = []
    top: str = ""
    cell: str = ""
    value: str = "ratio"


class Number(float):
    """A number of a result, with formats of its own."""

    def __format__(self, spec: str) -> str:
        """`ms`: three digits at least; `mib`, `gib`: bytes; none: whole numbers as such."""
        if spec in ("mib", "gib"):
            return f"{self / 2**20:.0f}" if spec == "mib" else f"{self / 2**30:.1f}"
        if spec == "ms":
            spec = ".3f" if self < 10 else ".1f" if self < 100 else ".0f"
        if not spec and self.is_integer():
            return str(int(self))
        return super().__format__(spec)


def text_of(form: str, row: Row) -> str:
    """A cell; empty where the row has no such field."""
    try:
        return form.format_map(row)
    except (KeyError, TypeError):
        return ""


def texts_of(line: str, row: Row) -> list[str]:
    """The cells of a line."""
    return [text_of(form.strip(), row) for form in line.split("|")]


def completed(row: Row) -> Row:
    """A row with its shape and its mask as fields."""
    row = dict(row)
    if "shape" in row:  # "D=64 S=512 causal"
        dim, length, *rest = row["shape"].split()
        row |= {"D": Number(dim[2:]), "S": Number(length[2:]), "causal": bool(rest)}
    if "causal" in row:
        row.setdefault("mask", "causal" if row["causal"] else "dense")
    return row


def rows_of(table: Table, results: list[Row]) -> list[Row]:
    """The rows that a table shows."""
    if not table.beside:
        return [completed(row) for part in table.rows for row in results[0][part]]
    found = []
    for result in results:
        for key in table.beside:
            result = result[key]
        found.append(result)
    return [{"name": name, "runs": [entry[name] for entry in found]} for name in found[0]]


def grid_of(table: Table, rows: list[Row]) -> list[list[str]]:
    """The header and the lines."""
    head = [title.strip() for title in table.head.split("|")]
    if not table.top:
        return [head, *(texts_of(table.line, row) for row in rows)]
    lines: dict[tuple[str, ...], dict[str, list[Row]]] = {}
    for row in rows:
        line = lines.setdefault(tuple(texts_of(table.line, row)), {})
        line.setdefault(text_of(table.top, row), []).append(row)
    titles = list(dict.fromkeys(title for line in lines.values() for title in line))
    grid = [head + titles]
    for key, line in lines.items():
        cells = (text_of(table.cell, merged(line.get(title, []), table.value)) for title in titles)
        grid.append([*key, *cells])
    return grid


def merged(rows: list[Row], value: str) -> Row:
    """The first of some rows, with the mean, the least and the most of a value of all."""
    values = [row[value] for row in rows if value in row]
    if not isinstance(values[0] if values else None, float):
        return rows[0] if rows else {}
    mean = math.exp(sum(map(math.log, values)) / len(values))
    return {**rows[0], "mean": mean, "least": min(values), "most": max(values)}


def markdown(table: Table, page: pathlib.Path) -> str:
    """A table with its caption, as it stands in a page."""
    results, sources = [], []
    for name in table.files:
        path = ROOT / RESULTS / f"{name}.json"
        result = json.loads(path.read_text(), parse_float=Number, parse_int=Number)
        facts = result.get("provenance", result)
        where = re.sub(r" \d+GB\b", "", facts.get("device", facts.get("machine")))
        link = path.relative_to(page.parent).as_posix()
        sources.append(f"{where}, {facts['date']}, commit {facts['commit']} ([file]({link}))")
        results.append(result)
    head, *lines = grid_of(table, rows_of(table, results))
    rule = "|" + "---|" * len(head)
    body = "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(x)} |" for x in lines)])
    caption = f"*{'; '.join(sources)}. {table.caption}*"
    caption = textwrap.fill(caption, 100, break_long_words=False, break_on_hyphens=False)
    return f"{caption}\n\n{body}\n"


def main() -> int:
    """Writes the tables, or says which are stale."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--check", action="store_true", help="change nothing, fail if stale")
    check = options.parse_args().check
    tables = tomllib.loads((ROOT / RESULTS / "tables.toml").read_text())
    stale, shown = [], set()
    for page in (ROOT / name for name in PAGES):
        text = page.read_text()
        fresh = text
        for block, (begin, name, end) in ((m[0], m.groups()) for m in BLOCK.finditer(text)):
            if name not in tables:
                raise ValueError(f"expected a table of tables.toml in {page}, got {name}")
            shown.add(name)
            new = begin + "\n" + markdown(Table(**tables[name]), page) + "\n" + end
            if new != block:
                stale.append(f"{page.relative_to(ROOT)}: table {name}")
                fresh = fresh.replace(block, new)
        if not check and fresh != text:
            page.write_text(fresh)
    if unused := sorted(tables.keys() - shown):
        raise ValueError(f"expected each table of tables.toml in a page, got none for {unused}")
    if check:
        for place in stale:
            print(f"{place} differs from its files: run scripts/benchmark_tables.py")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
