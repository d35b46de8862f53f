# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tries schedules of a head dim on a GPU and says which is fastest.

All combinations of rows and keys of a tile and of options of the target's
schedule: for sm_90a (fa-schedule-hopper) spare, ping-pong and stages, for
another target (fa-schedule-ampere) warps, stages and registers to hoist into; and
of any further option (--option name=value,value), less those that cannot fit, and
the compiler's own choice ("default"). Each is compiled in
a pool of processes, checked against float64 in a process that may hang or fail,
and timed, all interleaved, on every shape asked for. The score is the geometric
mean of TFLOP/s over the shapes. Prints the table and writes it as JSON.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from timing import (
    Reference,
    Shape,
    Timer,
    geomean,
    numbers,
    provenance,
    race_options,
    result_path,
    write,
)

SHARED_BYTES = 227 << 10
THREAD_REGISTERS = {64: 240, 128: 240, 192: 160, 256: 120}
"""Of a consumer's thread on Hopper, by the rows of a tile: one to four warpgroups."""

HOPPER = (
    ("rows", [64, 128, 192, 256], "rows of a tile"),
    ("keys", [48, 64, 80, 96, 112, 128, 160, 192], "keys of a tile"),
    ("spare", [24, 56], "registers that are for no tile: fewer have more products start at once"),
    ("ping-pong", [0, 1], "warpgroups take turns"),
    ("stages", [2, 3], "stages of the rings"),
)
AMPERE = (
    ("rows", [64, 128], "rows of a tile"),
    ("keys", [32, 48, 64, 96, 128], "keys of a tile"),
    ("warps", [4, 8], "warps of a block"),
    ("stages", [2, 3], "stages of the ring"),
    ("hoist-registers", [0, 224], "registers that fragments may be hoisted into"),
)

Schedule = dict[str, Any]


def text_of(schedule: Schedule) -> str:
    """One schedule as a word of the table."""
    return " ".join(f"{key}={value}" for key, value in schedule.items()) or "default"


# --- Candidates --------------------------------------------------------------------


def fits_hopper(dim: int, schedule: Schedule) -> bool:
    """Whether shared memory and registers can do at all."""
    rows, keys, stages = (schedule[key] for key in ("rows", "keys", "stages"))
    panels = -(-dim // 64) * 64
    shared = 2 * panels * (rows + 2 * max(1, stages) * keys)
    # S, P and O.
    registers = keys // 2 + keys // 4 + dim // 2
    # A single warpgroup has nobody to take turns with.
    alone = rows == 64 and schedule["ping_pong"] == 1
    return not alone and shared <= SHARED_BYTES and registers < THREAD_REGISTERS.get(rows, 0)


def fits_ampere(dim: int, schedule: Schedule) -> bool:
    """Whether shared memory and registers can do at all."""
    rows, keys, warps, stages = (schedule[key] for key in ("rows", "keys", "warps", "stages"))
    shared = 2 * dim * (rows + 2 * max(1, stages) * keys)
    registers = rows * (keys + dim) // (32 * warps)
    return rows % (16 * warps) == 0 and shared <= SHARED_BYTES and registers < 240


def candidates(args: argparse.Namespace) -> list[Schedule]:
    """The schedules to try, the compiler's own choice first."""
    lists: dict[str, list[Any]] = {**args.lists, "speculate": args.speculate, **args.option}
    every = [dict(zip(lists, values)) for values in itertools.product(*lists.values())]
    fits = fits_hopper if args.target == "sm_90a" else fits_ampere
    return [{}] + [schedule for schedule in every if fits(args.dim, schedule)]


# --- Compiling, in a pool ----------------------------------------------------------


def compile_one(
    target: str, dim: int, heads: int, causal: bool, lse: bool, schedule: Schedule
) -> tuple:
    """(PTX, resources, error) of one schedule; loads it, for the driver's cache."""
    import fa
    from fa._run.config import AttentionConfig

    config = AttentionConfig("bf16", heads, heads, dim, dim, causal, None, lse)
    try:
        kernel = fa.compile(config, target, schedule=schedule)
        ptx = kernel.asm["ptx"]
        if target == "sm_90a" and "wgmma.mma_async" not in ptx:
            return None, None, "not on the Hopper schedule"
        return ptx, kernel.resources()[0], None
    except (ValueError, RuntimeError) as error:
        return None, None, " ".join(str(error).split())


def compile_all(args: argparse.Namespace, schedules: list[Schedule]) -> dict[tuple[int, bool], Any]:
    """What compile_one says, by schedule and mask."""
    heads = Shape(args.dim, args.lengths[0], False).heads
    spawn = multiprocessing.get_context("spawn")
    jobs = {}
    start = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(args.jobs, mp_context=spawn) as pool:
        for n, schedule in enumerate(schedules):
            for causal in args.causal:
                variant = (args.target, args.dim, heads, causal, args.lse)
                job = pool.submit(compile_one, *variant, schedule)
                jobs[job] = (n, causal)
        results = {}
        for done, job in enumerate(concurrent.futures.as_completed(jobs)):
            results[jobs[job]] = job.result()
            progress(f"compiled {done + 1} of {len(jobs)}")
    print(f"compiled {len(jobs)} kernels in {time.monotonic() - start:.0f} s", flush=True)
    return results


def progress(text: str) -> None:
    """A line that the next one replaces."""
    if sys.stderr.isatty():
        print(f"{text:60}", end="\r", file=sys.stderr, flush=True)


# --- Running -----------------------------------------------------------------------


def results_for(inputs: tuple, lse: bool) -> list[Any]:
    """What a kernel writes on these inputs."""
    import torch

    q = inputs[0]
    results = [torch.full_like(q, float("nan"))]
    if lse:
        results.append(torch.empty(q.shape[:3], device=q.device, dtype=torch.float32))
    return results


def prepare(ptx: str, arrays: tuple) -> Callable[[], None]:
    """A function that launches a kernel on inputs and results, which must live."""
    from fa import _native
    from fa._run.arrays import views_of

    library, views = views_of(arrays, [f"argument {i}" for i in range(len(arrays))])
    native = [view.native() for view in views]
    program = _native.load(views[0].device, ptx)
    stream = library.stream(views[0].device)
    return lambda: program.launch(native, stream)


def check_forever(connection: Any, shapes: list[Shape], lse: bool) -> None:
    """A process that answers (shape's index, PTX) with the error's share.

    A text says why there is none, and ends the process: its GPU context may be
    of no more use.
    """
    import torch

    known: dict[int, tuple] = {}
    connection.send("ready")
    while True:
        index, ptx = connection.recv()
        try:
            if index not in known:
                inputs = shapes[index].inputs()
                known[index] = (inputs, Reference(shapes[index], *inputs))
            inputs, reference = known[index]
            results = results_for(inputs, lse)
            prepare(ptx, (*inputs, *results))()
            torch.cuda.synchronize()
            connection.send(reference.error(results[0]))
        except Exception as error:
            connection.send(str(error).splitlines()[0])
            return


class Checker:
    """Checks kernels in a process that can be lost to one."""

    def __init__(self, shapes: list[Shape], lse: bool, seconds: float) -> None:
        self.shapes, self.lse, self.seconds = shapes, lse, seconds
        self.process = self.connection = None

    def start(self) -> None:
        """Starts the process, and waits until it can check."""
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        self.process = spawn.Process(
            target=check_forever, args=(theirs, self.shapes, self.lse), daemon=True
        )
        self.process.start()
        theirs.close()
        self.connection.recv()

    def stop(self) -> None:
        """Ends the process, whatever it does."""
        if self.process:
            self.process.kill()
            self.process.join()
            self.process = None

    def __call__(self, index: int, ptx: str) -> str | None:
        """What is wrong with a kernel on a shape, None if nothing."""
        if not self.process:
            self.start()
        try:
            self.connection.send((index, ptx))
            if not self.connection.poll(self.seconds):
                self.stop()
                return f"hangs on {self.shapes[index]}"
            error = self.connection.recv()
        except (EOFError, OSError):
            self.stop()
            return f"fails on {self.shapes[index]}"
        if isinstance(error, str):
            self.stop()
            return f"fails on {self.shapes[index]}: {error}"
        return f"WRONG on {self.shapes[index]}" if error > 1 else None


def check_all(args: argparse.Namespace, rows: list[dict], shapes: list[Shape]) -> None:
    """Sets the status of each row that does not compute what it should."""
    checker = Checker(shapes, args.lse, args.timeout)
    try:
        for n, row in enumerate(rows):
            progress(f"checking {n + 1} of {len(rows)}: {text_of(row['schedule'])}")
            for index, shape in enumerate(shapes):
                if not row["status"]:
                    row["status"] = checker(index, row["ptx"][shape.causal])
    finally:
        checker.stop()


def time_all(args: argparse.Namespace, rows: list[dict], shapes: list[Shape]) -> float:
    """Fills in TFLOP/s by shape and the score; gives the GEMM rate."""
    timer = Timer(args.rounds)
    good = [row for row in rows if not row["status"]]
    for shape in shapes:
        progress(f"timing {shape}")
        inputs = shape.inputs()
        # The same results for all: nobody reads them any more.
        arrays = (*inputs, *results_for(inputs, args.lse))
        calls = {str(n): prepare(row["ptx"][shape.causal], arrays) for n, row in enumerate(good)}
        for name, ms in timer(calls).items():
            good[int(name)]["tflops"][str(shape)] = shape.flops / ms / 1e9
    for row in good:
        row["score"] = geomean(row["tflops"].values())
    return timer.gemm()


# --- The command -------------------------------------------------------------------


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options, checked."""
    parser = race_options(__doc__, "autotune-<target>-d<D>", rounds=12)
    parser.add_argument("--dim", type=int, default=64, help="head dim (64)")
    parser.add_argument("--lengths", type=numbers, default=[2048, 8192], help="2048,8192")
    parser.add_argument("--causal", choices=("no", "yes", "both"), default="both")
    parser.add_argument("--lse", action="store_true", help="with the log-sum-exp")
    parser.add_argument("--target", default="sm_90a", help="sm_90a; sm_90, sm_80, ...")
    target = parser.parse_known_args(arguments)[0].target
    lists = HOPPER if target == "sm_90a" else AMPERE
    for name, values, what in lists:
        text = ",".join(map(str, values))
        parser.add_argument(f"--{name}", type=numbers, default=values, help=f"{what} ({text})")
    parser.add_argument(
        "--speculate", type=lambda text: text.split(","), default=["auto"], help="auto,on,off"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help="a further option of the schedule pass, and its values",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile")
    parser.add_argument("--timeout", type=float, default=15, help="seconds of a check (15)")
    parser.add_argument("--top", type=int, default=30, help="lines to print (30)")
    parser.add_argument("--list", action="store_true", help="print the schedules, run nothing")
    args = parser.parse_args(arguments)
    options = {}
    for option in args.option:
        name, equals, values = option.partition("=")
        if not equals or not values:
            parser.error(f"expected --option NAME=VALUE,..., got {option!r}")
        options[name] = values.split(",")
    args.option = options
    args.lists = {
        name.replace("-", "_"): vars(args)[name.replace("-", "_")] for name, _, _ in lists
    }
    if not 1 <= args.dim <= 256 or args.dim % 8:
        parser.error(f"expected a multiple of 8 in [8, 256], got --dim {args.dim}")
    args.causal = {"no": [False], "yes": [True], "both": [False, True]}[args.causal]
    return args


def show(rows: list[dict], shapes: list[Shape], top: int) -> None:
    """The table, fastest first; the compiler's own choice is always in it."""
    columns = "".join(f"{str(shape).split(' ', 1)[1]:>14}" for shape in shapes)
    print(f"{'rank':>4} {'TFLOP/s':>8}{columns} {'regs':>5} {'smem':>7} {'local':>6}  schedule")
    for rank, row in enumerate(rows):
        if row["status"] or (rank >= top and row["schedule"]):
            continue
        values = "".join(f"{row['tflops'][str(shape)]:14.0f}" for shape in shapes)
        used = row["resources"]
        print(
            f"{rank + 1:4} {row['score']:8.1f}{values} {used['registers']:5} "
            f"{used['dynamic_smem']:7} {used['local_bytes']:6}  {text_of(row['schedule'])}"
        )
    failed: dict[str, list[str]] = {}
    for row in rows:
        if row["status"]:
            failed.setdefault(row["status"], []).append(text_of(row["schedule"]))
    for status, names in failed.items():
        print(f"{len(names)} x {status[:200]}\n    such as {names[0]}")


def main() -> int:
    """Compiles, checks, times and shows."""
    args = parse()
    schedules = candidates(args)
    shapes = [Shape(args.dim, s, c) for s in args.lengths for c in args.causal]
    print(f"{len(schedules)} schedules, {', '.join(map(str, shapes))}", flush=True)
    if args.list:
        print("\n".join(map(text_of, schedules)))
        return 0
    compiled = compile_all(args, schedules)
    rows = []
    for n, schedule in enumerate(schedules):
        mine = {causal: compiled[n, causal] for causal in args.causal}
        errors = [error for _, _, error in mine.values() if error]
        rows.append(
            dict(
                schedule=schedule,
                status=errors[0] if errors else None,
                resources=max(
                    (used for _, used, _ in mine.values() if used),
                    key=lambda used: used["local_bytes"],
                    default=None,
                ),
                ptx={causal: ptx for causal, (ptx, _, _) in mine.items()},
                tflops={},
                score=0.0,
            )
        )
    check_all(args, rows, shapes)
    if all(row["status"] for row in rows):
        show(rows, shapes, args.top)
        print("no schedule works")
        return 1
    gemm = time_all(args, rows, shapes)
    rows.sort(key=lambda row: -row["score"])
    show(rows, shapes, args.top)
    best, own = rows[0], next(row for row in rows if not row["schedule"])
    gain = f", {best['score'] / own['score']:.3f} of the default" if own["score"] else ""
    print(f"chosen: {text_of(best['schedule'])}: {best['score']:.1f} TFLOP/s, ", end="")
    print(f"{best['score'] / gemm:.2f} of GEMM's {gemm:.0f}{gain}")
    for row in rows:
        del row["ptx"]
    result = dict(
        benchmark="autotune",
        **provenance(args.commit),
        target=args.target,
        dim=args.dim,
        lse=args.lse,
        shapes=[vars(shape) for shape in shapes],
        rounds=args.rounds,
        gemm_tflops=gemm,
        chosen=best["schedule"],
        rows=rows,
    )
    write(result_path(f"autotune-{args.target}-d{args.dim}", args.out), result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
