#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Score and mask functions that are stored with the tests: functions.jsonl beside this file.

    PYTHONPATH=build/python function_corpus.py --choose 3000     # store a new choice
    PYTHONPATH=build/python function_corpus.py --add values 17   # store seed 17, too

A line of the file is a function of one use:

* `values`: results on the CPU against float64, as variant_fuzzer.py does,
* `emulator`: the same as PTX for sm_80 in the emulator,
* `gradients`: gradients on the CPU, as gradient_fuzzer.py does,
* `sm_80`, `sm_90a`: gradients are compiled for that chip.

A line holds the tree itself and no seed: a function stays the same where the generator
changes. Lines of "seed N" were chosen so that each feature of a function is there (each op
of each kind, each way to write it, each type of a captured array, head dims and so on), and
`--choose` replaces them; all others stay.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import sys
from collections.abc import Iterator
from typing import Any

from variant_fuzzer import FLAVOURS, Array, Case, Node

FILE = pathlib.Path(__file__).parent / "functions.jsonl"
USES = ("values", "emulator", "gradients", "sm_80", "sm_90a")


def _listed(node: Any) -> Any:
    """The tree in lists: [op, kind, flavour, arguments...]."""
    if isinstance(node, Array):
        return node.name
    if not isinstance(node, Node):
        return node
    return [node.op, node.kind, node.flavour, *map(_listed, node.args)]


def _tree(listed: Any, arrays: dict[str, Array]) -> Any:
    """The tree that `_listed` wrote."""
    if not isinstance(listed, list):
        return listed
    op, kind, flavour, *args = listed
    args = [_tree(argument, arrays) for argument in args]
    if op == "read":
        args[0] = arrays[args[0]]
    return Node(op, kind, args, flavour=flavour)


def described(case: Case, use: str, name: str, draws: int = 0) -> dict[str, Any]:
    """A line of the file; `draws` gives the shapes and the values that it runs on."""
    arrays = [[a.name, a.kind, a.dtype, a.rank, a.unit] for a in case.arrays]
    return {
        **{"use": use, "name": name, "draws": draws, "dtype": case.dtype, "heads": case.heads},
        **{"dims": case.dims, "scale": case.scale, "causal": case.is_causal},
        **{"library": case.library, "arrays": arrays},
        **{"score": _listed(case.score), "mask": _listed(case.mask)},
    }


def case_of(entry: dict[str, Any], kind: type[Case] = Case) -> Case:
    """The case of a line."""
    case = kind.__new__(kind)
    case.name = f"stored {entry['name']}"
    case.device = "emulator" if entry["use"] == "emulator" else "cpu"
    case.random = random.Random(entry["draws"])
    case.arrays = [Array(*array) for array in entry["arrays"]]
    arrays = {array.name: array for array in case.arrays}
    case.score, case.mask = (_tree(entry[part], arrays) for part in ("score", "mask"))
    case.is_causal, case.scale = entry["causal"], entry["scale"]
    case.heads, case.dims = tuple(entry["heads"]), tuple(entry["dims"])
    case.dtype, case.library = entry["dtype"], entry["library"]
    return case


def stored(use: str | None = None) -> list[dict[str, Any]]:
    """The lines of the file, or those of a use."""
    entries = [json.loads(line) for line in FILE.read_text().splitlines()]
    return [entry for entry in entries if use in (None, entry["use"])]


def run(entry: dict[str, Any], shapes: int = 3) -> float:
    """Runs a function as its use says; the largest error by its bound, or raises."""
    import variant_fuzzer

    use = entry["use"]
    if use in ("values", "emulator"):
        case = case_of(entry)
        if variant_fuzzer.torch is None and use == "values":
            case.without_torch()
        return variant_fuzzer.run_case(case, 1 if use == "emulator" else shapes)
    import gradient_fuzzer

    case = case_of(entry, gradient_fuzzer.GradientCase)
    if use.startswith("sm_"):
        gradient_fuzzer.compile_case(case, use, entry["draws"])
        return 0.0
    return gradient_fuzzer.run_case(case, shapes)


# --- Choosing ----------------------------------------------------------------------------


def nodes(tree: Any) -> Iterator[Node]:
    """The nodes of a tree."""
    if isinstance(tree, Node):
        yield tree
        for argument in tree.args:
            yield from nodes(argument)


def features(case: Case, use: str) -> set[Any]:
    """Which parts of fa a case may go through."""
    found: set[Any] = {
        *(("dtype", case.dtype), ("dims", case.dims), ("heads", case.heads)),
        *(("scale", case.scale), ("causal", case.is_causal)),
        ("functions", case.score is None, case.mask is None),
    }
    for tree in (case.score, case.mask):
        for node in nodes(tree):
            found.add((node.op, node.kind))
            if node.op == "read":
                array = node.args[0]
                found |= {("read", array.dtype, array.rank), ("unit", array.kind, array.unit)}
            for argument in node.args:
                if isinstance(argument, Node) and argument.op == "read":
                    found.add((node.op, "of a read"))
            # How an op is written is all the same once it is traced.
            if use == "values" and node.op in FLAVOURS:
                found.add((node.op, "as", node.flavour % len(FLAVOURS[node.op])))
    if use == "values":
        found |= {("library", case.library, case.dtype)}
    return found


def seed_case(seed: int, use: str) -> Case:
    """The case that the fuzzers make of a seed for a use."""
    if use in ("values", "emulator"):
        case = Case(seed, "emulator" if use == "emulator" else "cpu")
        if use == "values":
            case.widen(random.Random(~seed))
        return case
    import gradient_fuzzer

    return gradient_fuzzer.GradientCase(seed, use if use.startswith("sm_") else "cpu")


def choose(use: str, seeds: int, most: int) -> list[dict[str, Any]]:
    """Lines of seeds that have all features of all of them, or at most so many lines."""
    cases = {seed: seed_case(seed, use) for seed in range(seeds)}
    left = {seed: features(case, use) for seed, case in cases.items()}
    size = {seed: sum(1 for t in (c.score, c.mask) for _ in nodes(t)) for seed, c in cases.items()}
    missing = set().union(*left.values())
    chosen: list[int] = []
    while missing and len(chosen) < most:
        # Small functions first: they take less time, and say more where they fail.
        best = max(left, key=lambda seed: (len(left[seed] & missing) / (10 + size[seed]), -seed))
        if not left[best] & missing:
            break
        missing -= left.pop(best)
        chosen.append(best)
    print(f"{use}: {len(chosen)} functions of {seeds}, {len(missing)} features are not there")
    return [described(cases[seed], use, f"seed {seed}", seed) for seed in chosen]


def write(entries: list[dict[str, Any]]) -> None:
    """Writes the file."""
    entries = sorted(entries, key=lambda entry: USES.index(entry["use"]))
    FILE.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def add(use: str, seed: int) -> None:
    """Stores a seed's function with shapes on which it fails, where some are found."""
    case = seed_case(seed, use)
    entry = described(case, use, f"found by seed {seed}", seed)
    for draws in range(seed, seed + 40):
        entry["draws"] = draws
        try:
            run(entry)
        except Exception as error:
            print(f"it fails with draws {draws}: {str(error).splitlines()[0]}")
            break
    else:
        print("it does not fail on 40 draws of shapes; it is stored all the same")
    write([*stored(), entry])


def main() -> None:
    """Stores functions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--choose", type=int, metavar="SEEDS", help="of the seeds below this one")
    parser.add_argument("--most", type=int, nargs=5, default=[60, 6, 10, 8, 8], metavar="N")
    parser.add_argument("--add", nargs=2, metavar=("USE", "SEED"))
    options = parser.parse_args()
    if options.add:
        add(options.add[0], int(options.add[1]))
    if options.choose:
        kept = [e for e in (stored() if FILE.exists() else []) if not e["name"].startswith("seed")]
        for use, most in zip(USES, options.most):
            kept += choose(use, options.choose, most)
        write(kept)


if __name__ == "__main__":
    sys.exit(main())
