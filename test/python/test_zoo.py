# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One model family of transformers for each way that attention takes; test/zoo has all of them."""

from __future__ import annotations

import pathlib
import sys
import warnings

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "test" / "zoo"))

import zoo  # noqa: E402

EXPECTED = {
    **dict.fromkeys(zoo.ROUTINGS, "all"),
    **dict.fromkeys(("deberta-v2", "falcon", "bloom", "rembert"), "own"),
    **dict.fromkeys(("deepseek_v4", "deepseek_v32"), "refused"),
}


@pytest.fixture(scope="module", autouse=True)
def prepared():
    """In this process alone until the module ends: transformers' interfaces are global."""
    from fa import transformers as door

    before = door.slower
    zoo.prepare()
    yield
    door.slower = before


@pytest.mark.ci
@pytest.mark.parametrize("family", zoo.ROUTINGS)
def test_routing(family):
    entry = zoo.run(family)
    assert entry.verdict == EXPECTED[family], entry
    if entry.verdict == "own":
        assert "told by a warning and a count of own attention" in entry.reason
    if entry.verdict == "refused":
        assert "Deepseek" in entry.reason, "it names the class"


def test_an_error_is_noticed(monkeypatch):
    """A mask that hides one key more is wrong in each family that has a mask."""
    forward = zoo.fa_transformers.attention_forward

    def planted(module, query, key, value, mask, **options):
        mask = mask if mask is None else mask.numbers("read").roll(1, -1)
        return forward(module, query, key, value, mask, **options)

    monkeypatch.setattr(zoo.fa_transformers, "attention_forward", planted)
    entry = zoo.run("llama")
    assert entry.verdict == "wrong" and "padding by" in entry.reason


@pytest.mark.ci
def test_families_without_a_row():
    """A newer transformers has families that nobody tried: scripts/fuzz.sh families."""
    missing = zoo.families_without_row((ROOT / "test" / "zoo" / "families.md").read_text())
    if missing:
        warnings.warn(f"no row in test/zoo/families.md for {', '.join(missing)}", stacklevel=1)
    assert len(missing) < len(zoo.families()) / 2
