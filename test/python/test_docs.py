# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documentation: links lead somewhere, pictures are as they are drawn and complete, and
the commands of tutorials and of the page on schedules print what these show."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
BUILD = ROOT / os.environ.get("FA_BUILD_DIR", "build")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
FENCE = re.compile(r"^ {0,3}```.*?^ {0,3}```[^\n]*$", re.M | re.S)


def pages() -> list[pathlib.Path]:
    """The Markdown files of the project, without what is built."""
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-co"]
    command += ["--exclude-standard", "--", "*.md"]
    try:
        names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        return [ROOT / name for name in names if (ROOT / name).exists()]
    except (OSError, subprocess.CalledProcessError):  # sources without git
        built = re.compile(r"build|dist|\.")
        found = [path.relative_to(ROOT) for path in ROOT.rglob("*.md")]
        return [ROOT / path for path in found if not any(map(built.match, path.parts[:-1]))]


def anchors(page: pathlib.Path) -> set[str]:
    """What a link can name in a page: its headings, spelled as GitHub does."""
    headings = re.findall(r"^#+ +(.+?)\s*$", FENCE.sub("", page.read_text()), re.M)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {text.replace(" ", "-") for text in words}


def broken(page: pathlib.Path) -> list[str]:
    """The links of a page that lead nowhere."""
    wrong = []
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = page.parent / path if path else page
        if not file.exists():
            wrong.append(target)
        elif anchor and (file.suffix != ".md" or anchor not in anchors(file)):
            wrong.append(target)
    return wrong


def load(script: str):
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(script, ROOT / f"scripts/{script}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page):
    assert not broken(page)


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b` c, d\n[here](#a-b-c-d) [there](page.md) [x](https://example.org/)\n"
        "![picture](none.svg) [gone](gone.md) [lost](#lost)\n```\n[i](code)\n```\n"
    )
    assert broken(page) == ["none.svg", "gone.md", "#lost"]


def test_pictures_are_as_drawn():
    module = load("draw_pictures")
    assert set(module.PICTURES) - set(module.drawable()) <= module.OF_BUILD
    for path, draw in module.drawable().items():
        assert module.is_current(path, draw()), f"{path} is stale; run scripts/draw_pictures.py"
        ElementTree.parse(ROOT / path)


def test_the_picture_has_every_stage_in_order():
    source = (ROOT / "lib/Pipelines/Pipelines.cpp").read_text()
    # The forward's list is the last one.
    stages = source[source.rindex("StageTexts stages = {") : source.rindex("return stages;")]
    passes = re.findall(r'\{"(fa-[a-z0-9-]+)"', stages)
    drawn = (ROOT / "docs/stages.svg").read_text()
    places = [drawn.find(f">{name}<") for name in passes]
    assert len(passes) > 10
    missing = [name for name, place in zip(passes, places) if place < 0]
    assert not missing, "scripts/draw_pictures.py lacks them"
    assert places == sorted(places)


def test_the_picture_of_a_gradient_has_every_stage_in_order():
    source = (ROOT / "lib/Pipelines/Pipelines.cpp").read_text()
    source = source[source.index("if (!options.backward.empty())") :]
    # Those of all targets, then a GPU's, then the CPU's.
    parts = re.split(r"if \(target.kind|\} else if", source[: source.index("return stages;")])
    all_targets, gpu, cpu = (re.findall(r'\{"(fa-[a-z0-9-]+)"', part) for part in parts)
    assert len(gpu) > 5 and len(cpu) > 2
    drawn = re.findall(r">(fa-[a-z0-9-]+)<", (ROOT / "docs/stages-backward.svg").read_text())
    expected = [
        *all_targets,
        *cpu,
        "fa-lower-to-cpu",
        *gpu,
        "fa-schedule-ampere",
        "fa-tiles-to-threads",
    ]
    assert drawn == expected, "scripts/draw_pictures.py has others"
    # The table is of gradients in an order, which go from the first rows to the last.
    gpu.remove("fa-order-rows")
    table = load("draw_pictures").traffic("sm_80")
    assert list(table) == [*all_targets[1:], *gpu], "scripts/renew_stage_table.py renews it"


@pytest.mark.skipif(not (BUILD / "bin/fa-opt").exists(), reason="needs the build tree")
def test_the_picture_of_a_schedule_is_of_a_pipelined_loop():
    module = load("draw_pictures")
    texts = module.schedules()
    assert [module.loads(text) for text in texts] == 3 * [("Q", "KV", "")] + [("QK", "KV", "V")]
    delayed, expanded, ordered, finished = (
        [(step.kind, step.of, step.late) for step in module.steps(text)] for text in texts
    )
    late = [step for step in delayed if step[2]]
    product = [("wgmma", "O", True), ("wait_group", "O", True)]
    assert late == [("acquire", "V", True), *product, ("release", "V", True)]
    assert expanded[:4] == late and sorted(expanded) == sorted(delayed)
    assert set(finished) - set(ordered) == {
        ("turn_begin", "", False),
        ("turn_end", "", False),
        ("poll", "K", False),
    }
    for found in (ordered, finished):
        begin, end = (found.index(step) for step in product)
        first = found.index(("wait_group", "S", False))
        assert begin < first < found.index(("computed", "exp2", False)) < end


@pytest.mark.parametrize("ordered, one_by_one", [(False, False), (True, False), (True, True)])
def test_the_picture_of_additions_keeps_their_order(ordered, one_by_one):
    module = load("draw_pictures")
    found = module.additions(ordered, one_by_one)
    pairs = [(keys, rows) for keys, rows, *_ in found]
    assert pairs == [(j, i) for j in range(module.BLOCKS) for i in range(j, module.BLOCKS)]
    assert all(ready <= added for *_, ready, added in found)
    for rows in range(module.BLOCKS):
        times = [added for _, at, _, added in found if at == rows]
        assert len(set(times)) == len(times)
        assert (times == sorted(times)) == (ordered or rows == 0)
    assert any(ready < added for *_, ready, added in found) == (ordered and not one_by_one)


def test_the_stage_table_is_replaced():
    module = load("renew_stage_table")
    page = (ROOT / "docs/building.md").read_text()
    block = module.block_of("stage  ms\nfa-fuse  1\n", "x86", 2, "2026-01-02", "commit abc")
    renewed = module.replaced(page, block)
    assert "2 threads of an x86, 2026-01-02, commit abc." in renewed
    assert module.replaced(renewed, block) == renewed
    before, after = page.index(module.BEGIN), page.index(module.END)
    assert renewed.startswith(page[:before]) and renewed.endswith(page[after:])
    with pytest.raises(ValueError, match="expected <!-- stage table --> once"):
        module.replaced("# no comments", block)


# --- The tutorials ---------------------------------------------------------------------

# Pages, and how many of their excerpts and outputs at least are compared.
COMPARED = {"docs/tutorial.md": 0, "docs/tutorial-backward.md": 14, "docs/schedules.md": 11}
SIZE = re.compile(r"\d[\d.]* (?:B|[KMG]iB)")
# What an excerpt of IR has to have in common with a line of what is printed.
TOKEN = re.compile(
    r"\bhopper\.wait_group \d+|\bhopper\.delay = \d+|"
    r"\b(?:fa|hopper|linalg|scf|tensor|affine|arith|math)(?:\.\w+)+|tensor<[^>]*>|\[[\d, ]+\]|"
    r"\b(?:in|to|step) \([\d, ]+\)|\bstep %c\d+|\bordered = \d+|"
    r"\b(?:registers|at|barriers|spare) \d+|<\d+, |\b(?:polled|transposed|turns|ones)\b"
)


def needs_a_gpu(commands: str) -> bool:
    """Whether fa-run goes on to the kernel."""
    return "--target=sm_" in commands and "--stop-after" not in commands


def run_page(blocks: list[tuple[str, str]], folder: pathlib.Path) -> list[str]:
    """What each block of commands prints, all run by one shell; nothing of other blocks."""
    for name, target in (("build", BUILD), ("test", ROOT / "test")):
        (folder / name).symlink_to(target)
    script = "set -euo pipefail\n"
    for n, (kind, text) in enumerate(blocks):
        shown = "".join(blocks[n + 1][1:]) if n + 1 < len(blocks) else ""
        if kind == "sh" and not needs_a_gpu(text):
            # What finds a mistake fails.
            script += f"! {{\n{text}}}\n" if re.search("WRONG|error:", shown) else text
        elif kind == "python":
            script += f"{sys.executable} - <<'END'\n{text}END\n"
        script += "echo '@@ next block'\n"
    command = ["bash", "-c", script]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, f"{run.stdout[-2000:]}{run.stderr}"
    return run.stdout.split("@@ next block\n")[:-1]


def rows_of(text: str) -> list:
    """A printed table without what is measured; other lines without their numbers."""
    rows = []
    for line in text.rstrip().splitlines():
        cells = re.split(r" {2,}", line)
        sizes = [cell for cell in cells if SIZE.fullmatch(cell)]
        if sizes:  # the first one is what the process took
            rows.append([cells[0], *(c for c in cells if c in ("ok", "WRONG")), *sizes[1:]])
        else:
            rows.append(cells if cells[0] == "stage" else re.sub(r"-?\d[\d.e+-]*", "N", line))
    return rows


def lost_line(excerpt: str, printed: str) -> str | None:
    """The first line of an excerpt whose operations and types no line has, in their order."""
    # The gradient stands after the function.
    lines = iter(printed[max(printed.find("_backward("), 0) :].splitlines())
    for line in excerpt.splitlines():
        tokens = set(TOKEN.findall(line.split("//")[0]))
        if tokens and not any(tokens <= set(TOKEN.findall(other)) for other in lines):
            return line
    return None


@pytest.mark.ci
@pytest.mark.skipif(not (BUILD / "bin/fa-run").exists(), reason="needs the build tree")
@pytest.mark.parametrize("name", COMPARED)
def test_tutorials_show_what_is_printed(name, tmp_path):
    page = (ROOT / name).read_text()
    blocks = BLOCK.findall(page)
    printed = run_page(blocks, tmp_path)
    last = ""  # what the last commands before a block have printed
    compared = 0
    for (kind, text), own in zip(blocks, printed):
        if kind == "sh":
            last = own
        elif kind == "":
            assert rows_of(text) == rows_of(last)
            compared += 1
        elif kind == "mlir" and COMPARED[name]:
            line = lost_line(text, last)
            assert line is None, f"{line}\nis not in\n{last}"
            compared += 1
    assert compared >= COMPARED[name]
    # Sizes in the text are those of a stage: read, written, or both.
    sizes = set()
    for _, *cells in (row for own in printed for row in rows_of(own) if isinstance(row, list)):
        sizes |= set(cells)
        numbers = [float(cell.split()[0]) for cell in cells if cell.endswith(" MiB")]
        sizes |= {f"{sum(numbers[:2]):.1f} MiB"}
    said = set(re.findall(r"\d+\.\d [KMG]iB", FENCE.sub("", page)))
    assert said <= sizes, "no stage has them"


def test_a_wrong_excerpt_is_found():
    printed = (
        "%0 = scf.for %i = %c0 to %c8 step %c4 -> (tensor<8xf32>) {\n"
        "  %1 = math.exp %in : f32\n"
        "  %2 = tensor.insert_slice %1 into %0[%i] [4] [1] : tensor<4xf32> into tensor<8xf32>\n"
    )
    right = (
        "%x = scf.for %i = ... step %c4 {   // math.log\n  tensor.insert_slice ... tensor<4xf32>"
    )
    assert lost_line(right, printed) is None
    for old, new in (("%c4", "%c2"), ("<4", "<2"), ("insert_slice", "extract_slice")):
        assert lost_line(right.replace(old, new), printed)
    assert lost_line("tensor.insert_slice\nmath.exp", printed) == "math.exp"


def test_tables_are_compared_by_what_is_not_measured():
    page = (
        "stage    ms  read\nfa-tile  1.5  2.0 KiB  ok  3.0 MiB\nfirst wrong: tile 3, got -1.5e-01\n"
    )
    for same in (page.replace("1.5  2.0 KiB", "9.75  8.0 MiB"), page.replace("-1.5e-01", "7")):
        assert rows_of(page) == rows_of(same)
    for other in (page.replace("3.0", "3.1"), page.replace("ok", "WRONG"), page.replace("fa-", "")):
        assert rows_of(page) != rows_of(other)
