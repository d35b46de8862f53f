# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mutants of IR that are stored with the sources, and how few are chosen of many.

A file of the corpus holds groups. A group begins with a line `//! FLAGS`, and its mutants,
which one process of fa-opt takes with those flags, are separated by lines `// -----`. A byte
that is no printable ASCII character stands as `\\x` with two hexadecimal digits, a backslash
as two.

The outcome of a mutant is the message of its first error without numbers, names and types;
or, where it is valid to the end, the ops that are left of it. Choosing keeps a few mutants
of each outcome, the shortest first, and in few groups: of all messages that the sources
have, of all that come from a pass, and of some that MLIR's parser and verifiers give.
"""

from __future__ import annotations

import bisect
import collections
import pathlib
import re
import shlex
from collections.abc import Callable

SEPARATOR = b"\n// -----\n"
MARK = "// ====="
"""Stands between the results of mutants in fa-opt's output."""
OUTCOMES = re.compile(r"^// (\d+) outcomes", re.M)


# --- Files -------------------------------------------------------------------------------


def escaped(text: bytes) -> str:
    """The text in printable ASCII."""
    return "".join(
        "\\\\" if c == 0x5C else chr(c) if 0x20 <= c < 0x7F or c in b"\t\n" else f"\\x{c:02x}"
        for c in text
    )


def unescaped(text: str) -> bytes:
    """The bytes that were written as text."""

    def byte(match: re.Match) -> bytes:
        return b"\\" if match[1] is None else bytes([int(match[1], 16)])

    return re.sub(rb"\\(?:\\|x([0-9a-f]{2}))", byte, text.encode())


def read(path: pathlib.Path) -> tuple[int, list[tuple[list[str], list[bytes]]]]:
    """How many outcomes the file's mutants had, and [(flags, mutants)]."""
    text = path.read_text()
    head, *groups = re.split(r"^//! ", text, flags=re.M)
    found = OUTCOMES.search(head)
    result = []
    for group in groups:
        flags, _, rest = group.partition("\n")
        parts = rest.removesuffix("\n").split(SEPARATOR.decode())
        result.append((shlex.split(flags), [unescaped(part) for part in parts]))
    return int(found[1]) if found else 0, result


def write(path: pathlib.Path, head: list[str], groups: list[tuple[list[str], list[bytes]]]) -> None:
    """Writes a file; `head` are its first lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"// {line}".rstrip() + "\n" for line in head]
    for flags, mutants in groups:
        texts = map(escaped, mutants)
        lines.append(f"//! {shlex.join(flags)}\n" + SEPARATOR.decode().join(texts) + "\n")
    path.write_text("".join(lines))


def storable(text: bytes) -> bool:
    """Whether a file of the corpus can hold the mutant among others."""
    return b"// -----" not in text and b"//! " not in text and b"\r" not in text


# --- Outcomes ----------------------------------------------------------------------------


def general(message: str) -> str:
    """The message without numbers, names and types; our own ops keep their names."""

    if message.startswith("custom op '") and " is unknown" in message:
        return "custom op '' is unknown"

    def quoted(match: re.Match) -> str:
        is_ours = re.fullmatch(r"(fa|hopper|nvidia)\.\w+", match[1])
        return f"'{match[1]}'" if is_ours else "''"

    message = re.sub(r"'([^']*)'", quoted, message)
    message = re.sub(r'"[^"]*"', "''", message)
    message = re.sub(r"[%@#^!][\w.$-]+", "%", message)
    while message != (message := re.sub(r"\w+<[^<>]*>", "T", message)):
        pass
    return re.sub(r"-?\b\d[\w.+]*", "N", message)[:160]


def valid_outcome(text: str) -> str:
    """The ops of valid IR, and how many loops it has: none, one, two or more."""
    ops = set(re.findall(r"(?:^|= )\"?([a-z]\w*\.[\w.]+)", text, re.M))
    loops = min(len(re.findall(r"\bscf\.for\b", text)), 3)
    return f"valid, {loops} loops: " + " ".join(sorted(ops))


def outcomes(mutants: list[bytes], out: str, err: str) -> list[str] | None:
    """The outcome of each mutant of a run, in their order; None where that is not to be told."""
    parts = re.split(rf"^{MARK}$", out, flags=re.M)
    if len(parts) != len(mutants):
        return None
    # A diagnostic names the line in the whole input.
    starts, line = [], 1
    for mutant in mutants:
        starts.append(line)
        line += mutant.count(b"\n") + SEPARATOR.count(b"\n")
    messages: dict[int, str] = {}
    elsewhere = []  # errors without a line, in the order of the mutants
    for match in re.finditer(r"^(?:<stdin>:(\d+):\d+|\S+): error: (.*)$", err, re.M):
        if match[1] is None:
            elsewhere.append(general(match[2]))
        else:
            n = bisect.bisect_right(starts, int(match[1])) - 1
            messages.setdefault(n, general(match[2]))
    silent = [n for n, part in enumerate(parts) if n not in messages and not part.strip()]
    if len(mutants) == 1 and silent:
        messages[0] = elsewhere[0] if elsewhere else "no message"
    elif len(silent) != len(elsewhere):
        return None
    messages |= dict(zip(silent, elsewhere))
    return [messages.get(n) or valid_outcome(part) for n, part in enumerate(parts)]


# --- Shortening --------------------------------------------------------------------------


def shortened(mutant: bytes, wanted: str, outcomes_of: Callable[[list[bytes]], list[str]]) -> bytes:
    """The mutant with as few lines as its outcome needs, by halves, quarters and so on.

    Args:
        mutant: the text.
        wanted: its outcome.
        outcomes_of: gives the outcomes of several texts.
    """
    lines = mutant.split(b"\n")
    size = len(lines) // 2
    while size:
        parts = range(0, len(lines), size)
        without = [b"\n".join(lines[:at] + lines[at + size :]) for at in parts]
        needless = [at for at, found in zip(parts, outcomes_of(without)) if found == wanted]
        # Together, if they may go together; else half of them, from the end on.
        while needless:
            left = [line for at, line in enumerate(lines) if at // size * size not in needless]
            if len(needless) == 1 or outcomes_of([b"\n".join(left)]) == [wanted]:
                lines = left
                break
            needless = needless[len(needless) // 2 :]
        size //= 2
    return b"\n".join(lines)


# --- Choosing ----------------------------------------------------------------------------


class Messages:
    """The messages of the sources in some folders."""

    def __init__(self, folders: list[pathlib.Path]) -> None:
        files = [file for folder in folders for file in sorted(folder.rglob("*"))]
        files = [file for file in files if file.suffix in (".cpp", ".td", ".h")]
        text = "\n".join(file.read_text() for file in files)
        # A literal that goes on in the next line, or around a value, is one.
        self.text = re.sub(r"\"\s*\"", "", text)

    def has(self, outcome: str) -> bool:
        """Whether the sources have the longest part of a message, or it names an op of ours."""
        if re.search(r"'(fa|hopper|nvidia)\.", outcome):
            return True
        part = max(re.split(r"''|\bN\b|\bT\b|%|\bop\b", outcome), key=len).strip()
        return len(part) >= 12 and part in self.text


class Choice:
    """Chooses a few mutants that stand for all.

    Args:
        each: how many of an outcome are kept.
        valid: how many outcomes of mutants that are valid to the end are kept.
        syntax: how many that are errors without any pass, and not of the sources.
        messages: those of the sources.
    """

    def __init__(self, each: int, valid: int, syntax: int, messages: Messages) -> None:
        self.each = each
        self.valid = valid
        self.syntax = syntax
        self.messages = messages
        self.found: dict[str, dict[tuple[str, ...], list[bytes]]] = {}
        self.of_passes: set[str] = set()

    def add(self, outcome: str, flags: list[str], mutant: bytes) -> None:
        """Considers a mutant."""
        if not storable(mutant):
            return
        known = self.found.setdefault(outcome, {}).setdefault(tuple(flags), [])
        if mutant not in known:
            known.append(mutant)
            known.sort(key=lambda text: (len(text), text))
            del known[self.each :]

    def chosen(self) -> list[tuple[list[str], list[bytes]]]:
        """Groups of mutants of all outcomes: flags first that have most of them."""
        missing = {outcome: self.each for outcome in self._kept()}
        groups: list[tuple[list[str], list[bytes]]] = []
        left = {flags for by_flags in self.found.values() for flags in by_flags}
        while left and any(missing.values()):
            gain = collections.Counter()
            for outcome, count in missing.items():
                for flags, mutants in self.found[outcome].items():
                    if flags in left:
                        gain[flags] += min(count, len(mutants))
            if not gain:
                break
            best = min(gain, key=lambda flags: (-gain[flags], flags))
            if not gain[best]:
                break
            left.remove(best)
            mutants = []
            for outcome in sorted(missing):
                own = self.found[outcome].get(best, [])[: missing[outcome]]
                missing[outcome] -= len(own)
                mutants += own
            groups.append((list(best), mutants))
        return groups

    def _kept(self) -> list[str]:
        """The outcomes whose mutants the corpus keeps."""
        ours, valid, syntax = [], [], []
        for outcome in sorted(self.found, key=lambda known: (self._shortest(known), known)):
            if outcome.startswith("valid"):
                valid.append(outcome)
            elif outcome in self.of_passes or self.messages.has(outcome):
                ours.append(outcome)
            else:
                syntax.append(outcome)
        return ours + valid[: self.valid] + syntax[: self.syntax]

    def _shortest(self, outcome: str) -> int:
        """The length of the shortest mutant of an outcome."""
        return min(len(m) for mutants in self.found[outcome].values() for m in mutants)


def trimmed(
    groups: list[tuple[list[str], list[bytes]]], most: int
) -> list[tuple[list[str], list[bytes]]]:
    """The groups without the longest mutants, so that all together have so many bytes."""
    lengths = sorted(len(mutant) for _, mutants in groups for mutant in mutants)
    total, longest = 0, 0
    for length in lengths:
        total += length
        if total > most:
            break
        longest = length
    kept = [(flags, [m for m in mutants if len(m) <= longest]) for flags, mutants in groups]
    return [(flags, mutants) for flags, mutants in kept if mutants]
