#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the pictures of the documentation: docs/*.svg.

    scripts/draw_pictures.py [--check]      --check: change nothing, fail if stale

The race is benchmarks/results/gpu_race-h200.json, a gradient's bytes are those of the
tables in docs/tutorial-backward.md (scripts/renew_stage_table.py), a schedule is what fa-opt
makes of the program in docs/schedules.md. All pictures are as wide as a README is shown, have
a background of their own, and follow the reader's light or dark scheme. Needs Python alone,
and for the schedule fa-opt of a build tree ($FA_BUILD_DIR, else build): without it that
picture is left out.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable
from html import escape
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
RACE = "benchmarks/results/gpu_race-h200.json"
TABLES = "docs/tutorial-backward.md"
SCHEDULES = "docs/schedules.md"
FA_OPT = ROOT / os.environ.get("FA_BUILD_DIR", "build") / "bin/fa-opt"
WIDTH, MARGIN = 860, 20

# Each class's properties: in a light scheme, and in a dark one.
STYLE = {
    ".page": ("fill:#ffffff", "fill:#0d1117"),
    ".text": ("fill:#1b1f24", "fill:#e6edf3"),
    ".soft": ("fill:#57606a", "fill:#9198a1"),
    ".line": ("stroke:#57606a;fill:none", "stroke:#9198a1;fill:none"),
    ".grid": ("stroke:#d0d7de;fill:none", "stroke:#30363d;fill:none"),
    ".what": ("fill:#fff8c5;stroke:#d4a72c", "fill:#3a2d0d;stroke:#bb8009"),
    ".order": ("fill:#ddf4ff;stroke:#54aeff", "fill:#0c2d4d;stroke:#388bfd"),
    ".tiles": ("fill:#dafbe1;stroke:#4ac26b", "fill:#0f3320;stroke:#2ea043"),
    ".target": ("fill:#fbefff;stroke:#c297ff", "fill:#2e1a4a;stroke:#8957e5"),
    ".fa": ("fill:#cf222e", "fill:#f85149"),
    ".cudnn": ("fill:#4d9e6b", "fill:#56b378"),
    ".fa3": ("fill:#2f5d8c", "fill:#6ca4dc"),
    ".fa2": ("fill:#8c959f", "fill:#8b949e"),
    ".flex": ("fill:#b392d6", "fill:#a583cc"),
    ".stripe": ("stroke:#ffffff", "stroke:#0d1117"),
}
FONTS = (
    "text{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:14px}"
    ".code{font-family:Menlo,Consolas,'DejaVu Sans Mono',monospace;font-weight:bold}"
    ".formula{font-family:Georgia,'DejaVu Serif',serif}"
    ".title{font-size:18px;font-weight:bold}.head{font-weight:bold}.small{font-size:13px}"
    ".end{text-anchor:end}.middle{text-anchor:middle}"
)


class Picture:
    """An SVG, element by element."""

    def __init__(self, title: str, description: str, height: int) -> None:
        light = "".join(f"{name}{{{one}}}" for name, (one, _) in STYLE.items())
        dark = "".join(f"{name}{{{two}}}" for name, (_, two) in STYLE.items())
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img">',
            "<!-- Drawn by scripts/draw_pictures.py; do not edit. -->",
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(description)}</desc>",
            f"<style>{FONTS}{light}@media (prefers-color-scheme:dark){{{dark}}}</style>",
        ]
        self.box(0, 0, WIDTH, height, "page", 8)

    def add(self, element: str) -> None:
        """Any element."""
        self.parts.append(element)

    def box(self, x: float, y: float, width: float, height: float, style: str, radius=5) -> None:
        """A rectangle."""
        self.add(
            f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'rx="{radius}"/>'
        )

    def text(self, x: float, y: float, style: str, text: str) -> None:
        """A line of text."""
        self.add(f'<text class="{style}" x="{x:g}" y="{y:g}">{escape(text)}</text>')

    def line(self, path: str, style: str = "line") -> None:
        """A line."""
        self.add(f'<path class="{style}" stroke-width="1.5" d="{path}"/>')

    def arrow(self, x: float, top: float, bottom: float) -> None:
        """From above to below."""
        self.line(f"M{x:g} {top:g} V{bottom:g} m-4 -5 l4 5 l4 -5")

    def step(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        style: str,
        name: str,
        lines,
        right="",
    ) -> None:
        """A pass, below it what it does, and at its right what that costs."""
        self.box(x, y, width, height, style)
        self.text(x + 12, y + 21, "code text", name)
        for n, words in enumerate(lines):
            self.text(x + 12, y + 41 + 18 * n, "text", words)
        if right:
            self.text(x + width - 12, y + 21, "small soft end", right)

    def legend(self, y: float, entries) -> None:
        """What the colours are, a line each."""
        for n, (style, words) in enumerate(entries):
            self.box(MARGIN, y + 24 * n - 13, 16, 16, style, 3)
            self.text(MARGIN + 26, y + 24 * n, "soft", words)

    def svg(self) -> str:
        """The file's text."""
        return "\n".join([*self.parts, "</svg>", ""])


# --- The stages ------------------------------------------------------------------------

STAGES = (
    # class, pass, what the IR is afterwards, HBM traffic
    ("what", "fa.attention", "what: scale, score, mask, softmax, sum", ""),
    ("order", "fa-decompose", "the standard algorithm: S and P are in memory", "Θ(Nd + N²)"),
    ("order", "fa-online-softmax", "one merge with state (m, l, o): P is gone", "Θ(Nd + N²)"),
    ("order", "fa-tile", "keys outside: S is gone (FlashAttention)", "Θ(N²d²/M)"),
    ("order", "fa-interchange", "queries outside, state on chip (FlashAttention-2)", "Θ(N²d/Br)"),
    ("tiles", "fa-pad-tiles", "tiles at the edge become full tiles", ""),
    ("tiles", "fa-clip-loads", "tiles end at a length that the mask reads", ""),
    ("tiles", "fa-list-blocks", "where data decide: a list of blocks is visited", ""),
    (
        "tiles",
        "fa-split-mask-loops",
        "empty tiles not visited, full ones not masked",
        "less is read",
    ),
    ("tiles", "fa-order-keys", "last keys first, where scores grow with them", ""),
    ("tiles", "fa-defer-normalization", "one division, after the loop", ""),
    ("tiles", "fa-fuse", "one kernel: batch × head × block of queries", "no temporaries"),
    ("tiles", "fa-fold-scale-exp2", "exp as exp2, the scale in the same fma", ""),
)
TARGETS = (
    # heading; passes, each with two lines; what comes out
    (
        "CPU",
        (("fa-lower-to-cpu", "vectors as wide as the machine’s,", "threads"),),
        "machine code (LLVM’s JIT)",
    ),
    (
        "NVIDIA, sm_80 and later",
        (
            ("fa-schedule-ampere", "rings in shared memory,", "layouts: nvidia dialect"),
            ("fa-tiles-to-threads", "ldmatrix, mma.sync,", "cp.async"),
        ),
        "PTX",
    ),
    (
        "NVIDIA Hopper, sm_90a",
        (
            ("fa-speculate-max", "weights by an earlier maximum,", "checked afterwards"),
            ("fa-schedule-hopper", "warp roles, rings of tiles,", "overlap: hopper dialect"),
            ("fa-hopper-layouts", "what each thread holds:", "nvidia dialect"),
            ("fa-tiles-to-threads", "TMA, mbarriers, wgmma,", "setmaxnreg"),
        ),
        "PTX",
    ),
)


def kinds_of_passes(whose: str) -> tuple[tuple[str, str], ...]:
    """What the styles of passes mean, where a block of keys or queries (`whose`) has one."""
    return (
        ("order", "the algorithm: which order, what is kept in memory"),
        ("tiles", f"the tile program: what a block of {whose} does"),
        ("target", "the target: instructions, threads, memories"),
    )


def stages() -> str:
    """docs/stages.svg: each pass, and what the IR is after it."""
    top, height, step, tall, gap = 66, 34, 44, 68, 12
    fork = top + len(STAGES) * step + 4
    columns = fork + 46
    deepest = max(len(passes) for _, passes, _ in TARGETS)
    page = columns + deepest * (tall + gap) + 34
    names = [name for _, name, _, _ in STAGES]
    names += [name for _, passes, _ in TARGETS for name, *_ in passes]
    picture = Picture("The stages of fa", f"Passes from top to bottom: {', '.join(names)}.", page)
    side, middle = 668, MARGIN + (668 - 20 - MARGIN) / 2
    picture.text(MARGIN, 30, "title text", "From attention to a kernel")
    picture.text(
        MARGIN,
        52,
        "soft",
        "After each pass fa-opt prints the IR, and fa-run executes and checks it.",
    )
    picture.text(side, 52, "head soft", "HBM traffic")
    for i, (style, name, what, traffic) in enumerate(STAGES):
        y = top + i * step
        picture.box(MARGIN, y, side - 20 - MARGIN, height, style)
        picture.text(MARGIN + 12, y + 22, "code text", name)
        picture.text(MARGIN + 216, y + 22, "text", what)
        if traffic:
            picture.text(side, y + 22, "soft formula" if "Θ" in traffic else "soft", traffic)
        if i + 1 < len(STAGES):
            picture.arrow(middle, y + height, y + step)
    width = (WIDTH - 2 * MARGIN - 2 * 16) / 3
    centres = [MARGIN + width / 2 + i * (width + 16) for i in range(3)]
    end = top + (len(STAGES) - 1) * step + height
    picture.line(f"M{middle:g} {end} V{fork} M{centres[0]:g} {fork} H{centres[2]:g}")
    for (heading, passes, result), centre in zip(TARGETS, centres):
        picture.arrow(centre, fork, columns - 22)
        picture.text(centre, columns - 7, "head text middle", heading)
        y = columns
        for i, (name, *lines) in enumerate(passes):
            if i:
                picture.arrow(centre, y - gap, y)
            picture.step(centre - width / 2, y, width, tall, "target", name, lines)
            y += tall + gap
        picture.arrow(centre, y - gap, y + 2)
        picture.text(centre, y + 18, "text middle", result)
    # Where the shorter columns leave room.
    picture.legend(page - 2 * 24 - 18, kinds_of_passes("queries"))
    return picture.svg()


# --- The stages of a gradient ----------------------------------------------------------

GRADIENT = (
    # class, pass, what the IR is afterwards
    ("what", "fa.attention", ("what: scale, score, mask, softmax, sum",)),
    (
        "what",
        "fa-differentiate",
        ("beside it the gradient’s function, with the score function’s adjoint",),
    ),
    (
        "order",
        "fa-decompose",
        ("the standard algorithm: S, P, dP and dS are in memory",),
    ),
)
GRADIENT_TARGETS = (
    # heading, its table; passes; what follows, what comes out
    (
        "CPU: threads take heads",
        "cpu",
        (
            ("order", "fa-tile", "keys outside, rows inside: P, dP, dS are gone"),
            ("tiles", "fa-list-blocks", "where data decide: a list of blocks of rows"),
            ("tiles", "fa-split-mask-loops", "empty tiles not visited, full not masked"),
        ),
        (("fa-lower-to-cpu", "vectors as wide as the machine’s, threads"),),
        "machine code (LLVM’s JIT)",
    ),
    (
        "NVIDIA: blocks of keys are a grid",
        "sm_80",
        (
            ("order", "fa-parallelize", "blocks of keys keep dK and dV, add to dQ"),
            ("order", "fa-tile", "in each a loop over blocks of rows"),
            ("tiles", "fa-pad-tiles", "tiles at the edge become full tiles"),
            ("tiles", "fa-clip-loads", "tiles end at a length that the mask reads"),
            ("tiles", "fa-list-blocks", "where data decide: a list of blocks of rows"),
            ("tiles", "fa-split-mask-loops", "empty tiles not visited, full not masked"),
            ("order", "fa-order-rows", "long rows: the last ones first, together"),
            ("tiles", "fa-expand-steps", "five products, and sums that blocks share"),
            ("tiles", "fa-fold-scale-exp2", "exp as exp2, the scale in the same fma"),
            ("tiles", "fa-orient-products", "Sᵀ and dPᵀ: dV and dK read registers"),
            ("tiles", "fa-order-sums", "deterministic=true: additions have an order"),
        ),
        (
            ("fa-schedule-ampere", "rings in shared memory, layouts"),
            ("fa-tiles-to-threads", "ldmatrix, mma.sync, cp.async, red.global.add"),
        ),
        "PTX",
    ),
)


def traffic(target: str) -> dict[str, str]:
    """What each pass of a table of the tutorial leaves to be read and written."""
    page = (ROOT / TABLES).read_text()
    table = re.search(f"<!-- stage table of {target} -->.*?```\n(.*?)```", page, re.S)[1]
    header, *rows = (re.split(r" {2,}", line) for line in table.splitlines())
    rows = [dict(zip(header, row)) for row in rows]
    assert all(row["verdict"] == "ok" for row in rows)
    return {row["stage"]: f"{row['read'].removesuffix(' MiB')} + {row['written']}" for row in rows}


def gradient() -> str:
    """docs/stages-backward.svg: each pass, what the IR is after it, and its bytes."""
    top, height, gap, tall = 66, 34, 10, 54
    fork = top + len(GRADIENT) * (height + gap) + 4
    columns = fork + 46
    deepest = max(len(passes) + len(last) for _, _, passes, last, _ in GRADIENT_TARGETS)
    page = columns + deepest * (tall + gap) + 34
    names = [name for _, name, _ in GRADIENT]
    for heading, _, passes, last, _ in GRADIENT_TARGETS:
        steps = [name for _, name, _ in passes] + [name for name, _ in last]
        names += [f"{heading}: {', '.join(steps)}"]
    picture = Picture("The stages of a gradient", f"From top to bottom: {'; '.join(names)}.", page)
    picture.text(MARGIN, 30, "title text", "From a gradient to a kernel")
    picture.text(
        MARGIN, 52, "soft", "GPT-2 small, causal: what is read + written after each pass, by fa-run"
    )
    middle = WIDTH / 2
    for i, (style, name, (words,)) in enumerate(GRADIENT):
        y = top + i * (height + gap)
        picture.box(MARGIN, y, WIDTH - 2 * MARGIN, height, style)
        picture.text(MARGIN + 12, y + 22, "code text", name)
        picture.text(MARGIN + 166, y + 22, "text", words)
        if name == "fa-decompose":  # its step written out: as one operation it would hide P
            cost = traffic("algorithm 3")["fa-expand-steps"]
            picture.text(WIDTH - MARGIN - 12, y + 22, "small soft end", cost)
        if i + 1 < len(GRADIENT):
            picture.arrow(middle, y + height, y + height + gap)
    width = (WIDTH - 2 * MARGIN - 20) / 2
    centres = [MARGIN + width / 2, WIDTH - MARGIN - width / 2]
    picture.line(f"M{middle:g} {fork - gap - 4} V{fork} M{centres[0]:g} {fork} H{centres[1]:g}")
    for (heading, target, passes, last, result), centre in zip(GRADIENT_TARGETS, centres):
        picture.arrow(centre, fork, columns - 22)
        picture.text(centre, columns - 7, "head text middle", heading)
        y, costs = columns, traffic(target)
        for style, name, words in (*passes, *(("target", *step) for step in last)):
            if y > columns:
                picture.arrow(centre, y - gap, y)
            cost = costs.get(name, "")
            picture.step(centre - width / 2, y, width, tall, style, name, (words,), cost)
            y += tall + gap
        picture.arrow(centre, y - gap, y + 2)
        picture.text(centre, y + 18, "text middle", result)
    picture.legend(page - 2 * 24 - 18, kinds_of_passes("keys"))
    return picture.svg()


# --- What blocks of keys add to dQ -----------------------------------------------------

BLOCKS = 6  # of keys, and of rows


def additions(ordered: bool, one_by_one: bool = False) -> list[tuple[int, int, int, int]]:
    """When blocks of keys add to rows, under a causal mask: (keys, rows, ready, added).

    A step computes a tile and takes a unit of time. `ready` is when a tile is computed.
    `ordered`: a tile is added when the block of keys before has come to its next rows, or has
    ended, a step after its last rows (TilesToThreads/Turns.cpp). `one_by_one`: a block begins when the one
    before it has made its additions.
    """
    found: list[tuple[int, int, int, int]] = []
    begin = 0
    # When the block before has said that it, and all before it, are past these rows.
    past = [0] * BLOCKS
    for keys in range(BLOCKS):
        computed, added = {}, {}
        now = begin
        for rows in range(keys, BLOCKS):
            computed[rows] = now + 1
            now = added[rows] = max(now + 1, past[rows] if ordered else 0)
            found.append((keys, rows, computed[rows], now))
        comes = {rows: computed.get(rows + 1, now + 1) for rows in added}
        past = [max(past[rows], comes.get(rows, 0)) for rows in range(BLOCKS)]
        begin = now if one_by_one else 0
    return found


def blocks() -> str:
    """docs/blocks-of-keys.svg: which block of keys adds to which rows' dQ, and when."""
    cell, left, top = 28, 96, 66
    panels = (
        # heading, what is drawn, where
        ("Atomic: in any order", additions(False), 0, 0),
        ("deterministic=true, one head", additions(True), 1, 0),
        ("deterministic=true, a head for each multiprocessor", additions(True, True), 0, 1),
    )
    tall = BLOCKS * cell + 74
    page = top + 2 * tall + 66
    picture = Picture(
        "What blocks of keys add to dQ",
        f"{BLOCKS} blocks of keys over time, and the rows to which each adds: in any order, and "
        "after the block of keys before it.",
        page,
    )
    picture.text(MARGIN, 30, "title text", "Which block of keys adds to which rows of dQ, and when")
    picture.text(
        MARGIN,
        52,
        "soft",
        f"Causal, {BLOCKS} blocks of keys and of rows. A number is the block of rows whose dQ is "
        "added to at the end of a step.",
    )
    for heading, adds, column, row in panels:
        x0 = left + column * (left + BLOCKS * cell + 46)
        y0 = top + row * tall + 36
        end = max(added for *_, added in adds)
        picture.text(x0, y0 - 12, "head text", heading)
        for keys in range(BLOCKS):
            y = y0 + keys * cell
            picture.text(x0 - 8, y + 19, "small soft end", f"keys {keys}")
            for _, rows, ready, added in (add for add in adds if add[0] == keys):
                if added > ready:  # the tile waits in registers
                    x = x0 + (ready - 1) * cell
                    picture.box(x + 1, y + 6, (added - ready) * cell - 2, cell - 12, "line", 3)
                x = x0 + (added - 1) * cell
                style = "target" if rows == BLOCKS - 1 else "order"
                picture.box(x + 1, y + 1, cell - 2, cell - 2, style, 3)
                picture.text(x + cell / 2, y + 19, "text middle", str(rows))
        y = y0 + BLOCKS * cell + 6
        picture.line(f"M{x0:g} {y:g} H{x0 + end * cell:g} m-5 -4 l5 4 l-5 4")
        picture.text(x0 + end * cell, y + 18, "small soft end", f"{end} steps")
    picture.legend(
        page - 2 * 24 - 12,
        (
            ("target", "the last rows: all blocks of keys add to them"),
            ("line", "a tile is computed, and waits for the block of keys before it"),
        ),
    )
    picture.text(
        MARGIN,
        page - 12,
        "small soft",
        "Heads are drawn before keys: with a head for each multiprocessor, what a block would wait "
        "for has ended, and nothing waits.",
    )
    return picture.svg()


# --- A schedule ------------------------------------------------------------------------

PLACED = ("--hopper-narrow", "--hopper-schedule")
PANELS = (
    # the passes that it is after, what it shows of the last one
    (("--fa-hopper-place", *PLACED), "what has hopper.delay = 1 is to come an iteration later"),
    (("--hopper-expand",), "it is of the iteration before; each product is still awaited at once"),
    (("--hopper-order",), "products start first, and O’s is in flight under the exponentials"),
    (("--hopper-finish",), "turns, a poll before the last wait, and the producer in this order"),
)
LANES = ("stage of K", "stage of V", "S = Q Kᵀ", "O += P V", "computed", "producer")
# What is computed of whole tiles, by the first of these that an operation has.
COMPUTED = (
    ("arith.maxnumf", "max"),
    ("math.exp2", "exp2"),
    ("hopper.partial_sums", "sums"),
    ("arith.truncf", "bf16"),
    ("arith.mulf", "scale"),
)


class Step(NamedTuple):
    """Something that the consumers' loop does."""

    kind: str
    """The operation of the hopper dialect, poll, or computed."""
    of: str = ""
    """K or V, S or O, or what is computed."""
    late: bool = False
    """Of the iteration before, or to be so."""


def operations(text: str) -> list[str]:
    """The operations of a block, each with its regions."""
    indent = len(text) - len(text.lstrip(" "))
    begins = [m.start() for m in re.finditer(rf"^ {{{indent}}}(?=[%a-z])", text, re.M)]
    return [text[a:b].strip() for a, b in zip(begins, [*begins[1:], len(text)])]


def region_of(text: str, name: str) -> str:
    """The region of the first operation of a name."""
    begin = rf"^( *)(?:%[\w:]+ = )?{re.escape(name)}\b[^\n]*\n"
    return re.search(begin + r"(.*?)^\1\}", text, re.M | re.S)[2]


def slices(text: str) -> dict[str, str]:
    """Of which of Q, K and V, the function's arguments, tiles are."""
    found = re.findall(r"(%\w+) = tensor\.extract_slice %arg([012])\[", text)
    return {tile: "QKV"[int(argument)] for tile, argument in found}


def steps(text: str) -> list[Step]:
    """What the consumers' loop does in IR of the hopper dialect, in its order: with stages that
    it fills and empties, with products and with whole tiles."""
    consumers = region_of(text, "hopper.consumers")
    tiles = slices(consumers)
    # What a value is: a slot, a ring or a product.
    known: dict[str, Step] = {}
    found: list[Step] = []
    for op in operations(region_of(consumers, "scf.for")):
        values = re.findall(r"%\w+", op)
        kind = re.search(r"\b(?:hopper|linalg)\.(\w+)|$", op)[1]
        uses = [known[value] for value in values if value in known]
        late = "hopper.delay = 1" in op or any(use.late for use in uses)
        if kind == "acquire":
            step = Step(kind, tiles[values[2]], late or "hopper.behind = 1" in op)
            known[values[0]] = known[values[1]] = step
        elif kind == "wgmma":  # Q's slot is from before the loop
            step = known[values[0]] = Step(kind, "S" if uses[0].of == "K" else "O", late)
        elif kind in ("wait_group", "release", "poll") and uses:  # not Q's release
            step = Step(kind, uses[0].of, late)
        elif kind in ("generic", "partial_sums") and "tensor<128x128x" in op:
            step = Step("computed", next(words for part, words in COMPUTED if part in op))
        elif kind in ("pin", "turn_begin", "turn_end"):
            step = Step(kind)
        else:
            continue
        found.append(step)
    return found


def loads(text: str) -> tuple[str, str, str]:
    """What the producer loads before its loop, in it and behind it."""
    producer = region_of(text, "hopper.producer")
    tiles = slices(text[: text.index("hopper.consumers")])
    loop = region_of(producer, "scf.for")
    at = producer.index(loop)
    parts = (producer[:at], loop, producer[at + len(loop) :])
    names = ["".join(tiles[v] for v in re.findall(r"hopper\.load (%\w+)", p)) for p in parts]
    return names[0], names[1], names[2]


def draw_loop(picture: Picture, top: float, text: str) -> None:
    """A lane for each of what lasts or is computed, a column for each step."""
    left, cell, tall = 112, 42, 24
    lanes = {name: top + n * tall for n, name in enumerate(LANES)}
    for name, y in lanes.items():
        picture.text(left - 10, y + 16, "small soft end", name)
        picture.line(f"M{left} {y + tall - 1:g} H{WIDTH - MARGIN}", "grid")

    def bar(lane: str, first: float, columns: float, style: str, words: str) -> None:
        x = left + first * cell
        picture.box(x + 2, lanes[lane] + 3, columns * cell - 4, tall - 7, style, 3)
        picture.text(x + columns * cell / 2, lanes[lane] + 16, "small text middle", words)

    late = "delay = 1" if "hopper.delay" in text else "n − 1"
    begins: dict[str, int] = {}
    turns: list[tuple[int, int]] = []
    for column, step in enumerate(steps(text)):
        lane = "computed"
        if step.kind in ("acquire", "release"):
            lane = f"stage of {step.of}"
        elif step.kind in ("wgmma", "wait_group"):
            lane = next(name for name in LANES if name.startswith(step.of + " "))
        if step.kind in ("acquire", "wgmma", "turn_begin"):
            begins[lane] = column
        elif step.kind in ("release", "wait_group"):
            style = "target" if step.late else "what" if step.kind == "release" else "order"
            first = begins.pop(lane)
            bar(lane, first, column + 1 - first, style, late if step.late else "n")
        elif step.kind == "turn_end":
            turns.append((begins.pop(lane), column))
        elif step.kind == "computed":
            bar(lane, column, 1, "tiles", step.of)
        else:
            words = f"{step.kind} {step.of}".strip()
            picture.text(left + (column + 0.5) * cell, lanes[lane] + 16, "small soft middle", words)
    for first, last in turns:
        x, wide = left + first * cell, (last + 1 - first) * cell
        picture.box(x + 12, lanes["S = Q Kᵀ"], wide - 24, 2 * tall - 1, "line", 6)
        picture.text(x + wide / 2, lanes["computed"] + 16, "small soft middle", "a turn")
    column = 0.0
    for part, letters in enumerate(loads(text)):
        if part == 1:
            x, y = left + column * cell, lanes["producer"]
            picture.box(x + 2, y, (len(letters) + 0.2) * cell, tall - 2, "line", 5)
            column += 0.15
        for letter in letters:
            bar("producer", column, 1, "what", letter)
            column += 1
        column += 0.25


def schedules() -> list[str]:
    """The page's program after the passes of each panel."""
    page = (ROOT / SCHEDULES).read_text()
    program = re.search(r"<<'END'\n(.*?)^END", page, re.M | re.S)[1]
    command = [str(FA_OPT), "--fa-pipeline=target=sm_90a speculate=off"]
    texts = []
    for passes, _ in PANELS:
        command += passes
        run = subprocess.run(command, input=program, check=True, capture_output=True, text=True)
        texts.append(run.stdout)
    return texts


def schedule() -> str:
    """docs/schedule.svg: a loop of consumers after the passes that schedule it."""
    top, tall = 88, 188
    page = top + len(PANELS) * tall + 4 * 24
    names = [passes[-1].removeprefix("--") for passes, _ in PANELS]
    picture = Picture(
        "How a schedule comes to be",
        "Held stages of K and V, products in flight, what is computed and what the producer loads "
        f"in attention's loop over blocks of keys, after {', '.join(names)}.",
        page,
    )
    picture.text(MARGIN, 30, "title text", "A loop over blocks of keys, pass by pass")
    picture.text(
        MARGIN,
        52,
        "soft",
        "From left to right the steps of an iteration, as they stand in the IR: of block n and, in "
        "violet, of the block before.",
    )
    for n, (name, (_, words), text) in enumerate(zip(names, PANELS, schedules())):
        picture.text(MARGIN, top + n * tall, "code text", name)
        picture.text(MARGIN + 152, top + n * tall, "text", words)
        draw_loop(picture, top + n * tall + 12, text)
    picture.legend(
        page - 3 * 24 - 14,
        (
            ("what", "a stage is held, from its acquisition to its release; the producer’s loads"),
            ("order", "a product is in flight, from its start to the wait for it"),
            ("tiles", "a whole tile is computed, on the other units"),
            ("target", "a stage or product that comes an iteration later, or has come so"),
        ),
    )
    return picture.svg()


# --- The race --------------------------------------------------------------------------

CONTENDERS = {
    "fa": "fa",
    "cudnn": "cuDNN",
    "fa3": "FlashAttention-3, computed",
    "fa2": "FlashAttention-2",
    "flex": "FlexAttention",
}


def race() -> str:
    """docs/race.svg: TFLOP/s by head dim, mask and length."""
    result = json.loads((ROOT / RACE).read_text())
    rows = result["rows"]
    dims = sorted({row["D"] for row in rows})
    masks = sorted({row["causal"] for row in rows})
    most = max(value for row in rows for value in row["tflops"].values())
    ticks = range(0, int(most) + 1, 200)
    left, between, tall, below, top = 62, 18, 150, 52, 106
    width = (WIDTH - MARGIN - left - between * (len(dims) - 1)) / len(dims)
    page = top + len(masks) * (tall + below) + 44
    picture = Picture(
        "Attention forward, TFLOP/s",
        f"Bars for head dims {dims}, causal or not, by length: {', '.join(CONTENDERS.values())}.",
        page,
    )
    picture.add(
        '<pattern id="computed" width="5" height="5" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect class="fa3" width="5" height="5"/>'
        '<path class="stripe" stroke-width="2.4" d="M0 0 V5"/></pattern>'
    )

    def bar(name: str, x: float, y: float, wide: float, high: float) -> None:
        fill = ' style="fill:url(#computed)"' if name == "fa3" else ""
        picture.add(
            f'<rect class="{name}"{fill} x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" '
            f'height="{high:.1f}"/>'
        )

    picture.text(MARGIN, 30, "title text", f"Attention forward, TFLOP/s, bf16, {result['device']}")
    x = MARGIN
    for name, label in CONTENDERS.items():
        bar(name, x, 46, 16, 14)
        picture.text(x + 22, 58, "text", label)
        x += 56 + 7 * len(label)
    for m, causal in enumerate(masks):
        for d, dim in enumerate(dims):
            x0 = left + d * (width + between)
            y0 = top + m * (tall + below) + tall
            scale = tall / (1.1 * most)
            title = f"D = {dim}" + (", causal" if causal else "")
            picture.text(x0 + width / 2, y0 - tall - 10, "head text middle", title)
            for tick in ticks:
                y = y0 - tick * scale
                picture.line(f"M{x0:g} {y:g} H{x0 + width:g}", "line" if tick == 0 else "grid")
                if d == 0:
                    picture.text(x0 - 8, y + 5, "small soft end", str(tick))
            here = [row for row in rows if row["D"] == dim and row["causal"] == causal]
            group = width / len(here)
            wide = (group - 9) / len(CONTENDERS)
            for g, row in enumerate(here):
                x = x0 + g * group + 4.5
                picture.text(x0 + (g + 0.5) * group, y0 + 18, "small soft middle", str(row["S"]))
                for n, name in enumerate(CONTENDERS):
                    high = row["tflops"][name] * scale
                    bar(name, x + n * wide, y0 - high, wide - 1, high)
                # Above fa's bar, which is at least as high as cuDNN's beside it.
                middle, y = x + wide / 2, y0 - row["tflops"]["fa"] * scale - 4
                picture.text(middle, y, "small text middle", f"{row['tflops']['fa']:.0f}")
    y = page - 40
    picture.text(
        MARGIN,
        y,
        "small soft",
        f"By sequence length; batch size × length = 16384, heads × D = 2048. Measured together on "
        f"{result['date']}, commit {result['commit']}.",
    )
    picture.text(
        MARGIN,
        y + 20,
        "small soft",
        "FlashAttention-3 did not run here: its bars are cuDNN’s of this run × their ratio in "
        "another run that had both.",
    )
    return picture.svg()


PICTURES = {
    "docs/stages.svg": stages,
    "docs/stages-backward.svg": gradient,
    "docs/blocks-of-keys.svg": blocks,
    "docs/schedule.svg": schedule,
    "docs/race.svg": race,
}


OF_BUILD = {"docs/schedule.svg"}
"""Those for which fa-opt is run."""


def drawable() -> dict[str, Callable[[], str]]:
    """The pictures that can be drawn here."""
    return {
        path: draw for path, draw in PICTURES.items() if path not in OF_BUILD or FA_OPT.exists()
    }


def main() -> int:
    """Draws, or says what is stale."""
    if sys.argv[1:] not in ([], ["--check"]):
        print(f"draw_pictures.py: expected nothing or --check, got {' '.join(sys.argv[1:])}")
        return 2
    stale = [path for path, draw in drawable().items() if not is_current(path, draw())]
    if sys.argv[1:]:
        for path in stale:
            print(f"{path} is stale; run scripts/draw_pictures.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        (ROOT / path).write_text(PICTURES[path]())
        print(f"drew {path}")
    for path in PICTURES.keys() - drawable().keys():
        print(f"left {path} as it is: there is no {FA_OPT}")
    return 0


def is_current(path: str, text: str) -> bool:
    """Whether the file is what would be drawn."""
    file = ROOT / path
    return file.exists() and file.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
