# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The lines with which fa's PTX describes its arguments and launches."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass
class Program:
    """The header of a PTX file."""

    args: dict = field(default_factory=dict)
    temps: dict = field(default_factory=dict)
    same: list = field(default_factory=list)
    launches: list = field(default_factory=list)


def parse_header(text: str) -> Program:
    program = Program()
    for line in text.splitlines():
        if not line.startswith("//!fa."):
            break
        kind, _, rest = line[len("//!fa.") :].partition(" ")
        fields = dict(part.split("=", 1) for part in rest.split() if "=" in part)
        if kind == "arg":
            program.args[int(fields["index"])] = fields
        elif kind == "temp":
            program.temps[int(fields["index"])] = fields
        elif kind == "launch":
            program.launches.append(fields)
        elif kind == "same":
            program.same.append(tuple(rest.split("=")))
    return program


def evaluate(expression: str, tensors: dict) -> int:
    product = 1
    for term in expression.split("*"):
        match = re.fullmatch(r"a(\d+)\.d(\d+)(?:/(\d+))?", term)
        if match:
            size = tensors[int(match[1])].shape[int(match[2])]
            product *= -(-size // int(match[3] or 1))
        else:
            product *= int(term)
    return product
