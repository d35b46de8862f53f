#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the schedules that fa-hopper-mutants changes, and runs it on them.

    mutate_schedules.py --mutants 3000 --seed 7       # new mutants, of all programs together
    mutate_schedules.py --corpus --programs backward  # those that are stored
    mutate_schedules.py --store --mutants 40000       # store a new choice

A mutant is right where hopper-verify refuses it, or where it computes the same in the
interpreter, whatever the order of things. README.md beside this file describes the corpus.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
CLEAN = ["--canonicalize", "--cse"]


def forward(rows, schedule):
    """The passes of a forward kernel with tiles of 64 keys."""
    return [f"--fa-pipeline=target=sm_90a rows={rows} keys=64", schedule]


PROGRAMS = {
    # Blocks with several tiles of a queue, with turns of warpgroups, with one team.
    "causal-persistent": ("causal", forward(128, "--fa-schedule-hopper=persistent=1") + CLEAN),
    "causal-turns": (
        "causal",
        forward(128, "--fa-schedule-hopper=persistent=0 ping-pong=1") + CLEAN,
    ),
    "causal-team": ("causal", forward(128, "--fa-schedule-hopper=teams=1 spare=72") + CLEAN),
    # As the pass leaves it: values that are computed in several places.
    "causal-unclean": ("causal", forward(128, "--fa-schedule-hopper")),
    # Three stages and one; a loop for whole tiles.
    "window-3-stages": (
        "window",
        forward(128, "--fa-schedule-hopper=stages=3 persistent=1") + CLEAN,
    ),
    "window-1-stage": ("window", forward(64, "--fa-schedule-hopper=stages=1") + CLEAN),
    "dense-turns": ("dense", forward(128, "--fa-schedule-hopper=persistent=1 ping-pong=1") + CLEAN),
    # Only placed: no order was chosen.
    "causal-placed": ("causal", forward(192, "--fa-hopper-place") + CLEAN),
    "gemm-placed": ("tiles/gemm", ["--fa-hopper-place"] + CLEAN),
    # Gradients: a vector has a stage of its own, or shares one with a tile.
    "backward": ("tiles/backward", ["--fa-schedule-hopper"] + CLEAN),
    "backward-companions": (
        "tiles/backward",
        ["--fa-schedule-hopper=companions=1 carried-first=1 spare=48"] + CLEAN,
    ),
}
"""The programs: an input and the passes."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default="build/bin", help="folder of the programs")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="comma-separated")
    parser.add_argument("--mutants", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1, help="of the first mutant")
    parser.add_argument("--corpus", action="store_true", help="run the stored mutants")
    parser.add_argument("--store", action="store_true", help="store a choice of the mutants")
    parser.add_argument("--each", type=int, default=3, help="mutants of a kind to store")
    parser.add_argument("--file", default=str(HERE / "corpus" / "schedules.txt"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name in options.programs.split(","):
            source, passes = PROGRAMS[name]
            inputs = HERE.parent if "/" in source else HERE
            files.append(f"{folder}/{name}.mlir")
            command = [f"{options.bin}/fa-opt", f"{inputs}/inputs/{source}.mlir", *passes]
            subprocess.run([*command, "-o", files[-1]], check=True)
        command = [f"{options.bin}/fa-hopper-mutants", *files]
        if options.corpus:
            command.append(f"--corpus={options.file}")
        else:
            command += [f"--mutants={options.mutants}", f"--seed={options.seed}"]
        if options.store:
            command += [f"--store={options.file}", f"--each={options.each}"]
        return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
