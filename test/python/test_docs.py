# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documentation: links lead somewhere, pictures are as they are drawn and complete."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
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
    for path, draw in module.PICTURES.items():
        assert module.is_current(path, draw()), f"{path} is stale; run scripts/draw_pictures.py"
        ElementTree.parse(ROOT / path)


def test_the_picture_has_every_stage_in_order():
    source = (ROOT / "lib/Pipelines/Pipelines.cpp").read_text()
    # The forward's list is the last one.
    stages = source[source.rindex("> stages = {") : source.rindex("return stages;")]
    passes = re.findall(r'\{"(fa-[a-z0-9-]+)"', stages)
    drawn = (ROOT / "docs/stages.svg").read_text()
    places = [drawn.find(f">{name}<") for name in passes]
    assert len(passes) > 10
    missing = [name for name, place in zip(passes, places) if place < 0]
    assert not missing, "scripts/draw_pictures.py lacks them"
    assert places == sorted(places)


def test_the_stage_table_is_replaced():
    module = load("renew_stage_table")
    page = (ROOT / "README.md").read_text()
    block = module.block_of("stage  ms\nfa-fuse  1\n", "x86", 2, "2026-01-02", "commit abc")
    renewed = module.replaced(page, block)
    assert "2 threads of an x86, 2026-01-02, commit abc." in renewed
    assert module.replaced(renewed, block) == renewed
    before, after = page.index(module.BEGIN), page.index(module.END)
    assert renewed.startswith(page[:before]) and renewed.endswith(page[after:])
    with pytest.raises(ValueError, match="expected <!-- stage table --> once"):
        module.replaced("# no comments", block)
