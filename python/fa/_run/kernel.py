# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled kernels: their texts, and how to run them."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fa import _native
from fa._run import cache as _cache
from fa._run.arrays import Library, View, check_result, views_of
from fa._run.config import AttentionConfig, Schedule
from fa._run.environment import cpu_optimization, cpu_threads, verbose
from fa._run.lists import Launch, Lists, reads_of


def _notes_of(ptx: str | None) -> list[str]:
    """The notes that the compiler wrote behind the header of PTX."""
    _, _, body = (ptx or "").partition("//!fa.end\n")
    notes = itertools.takewhile(lambda line: line.startswith(_NOTE), body.splitlines())
    return [line.removeprefix(_NOTE) for line in notes]


_NOTE = "// fa.note: "


class _Texts(Mapping[str, str]):
    """Texts of a kernel: those that are known, and its stages."""

    def __init__(self, known: dict[str, str], kernel: Kernel) -> None:
        self._known, self._kernel = known, kernel

    def __getitem__(self, name: str) -> str:
        return self._known[name] if name in self._known else self._kernel.stages[name]

    def __iter__(self) -> Iterator[str]:
        first, *last = self._known
        return iter([first, *self._kernel.stages, *last])

    def __len__(self) -> int:
        return len(self._known) + len(self._kernel.stages)


class Kernel:
    """One attention function compiled for one target.

    Attributes:
        target: "cpu", "sm_80", "sm_90a", ...
        ir: the attention IR that was compiled.
        schedule: the schedule that the caller asked for.
        notes: differences from the request or the usual choice, a sentence each: another
            target or schedule, a maximum that is not speculated, a second kernel.
            FA_VERBOSE=1 prints them.
    """

    def __init__(
        self,
        ir: str,
        target: str = "cpu",
        *,
        algorithm: str = "fa2",
        schedule: Schedule = Schedule(),  # noqa: B008 (frozen)
        backward: str = "",
        deterministic: bool = False,
        keep_stages: bool = True,
    ) -> None:
        self.ir = ir
        self.target = target
        self.schedule = schedule
        self._request = (
            ir,
            target,
            algorithm,
            schedule.rows,
            schedule.keys,
            schedule.speculate,
            schedule.order,
            schedule.options,
            backward,
            deterministic,
            cpu_optimization() if target == "cpu" else 3,
        )
        self._programs: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._keeps_stages = keep_stages
        self.notes: list[str] = []
        self._compiled: Any = None
        self._loaded: Any = None
        self._module = self._find()
        self.list_reads = reads_of(self._module.ptx)
        for text in _notes_of(self._module.ptx):
            self.note(text)
        self._launcher = _native.launcher(self._module.num_args, self._module.num_results)

    def _find(self) -> _cache.Entry:
        """The module from the cache; else it is compiled and kept there."""
        is_cpu = self.target == "cpu"
        kind = "machine code" if is_cpu else "PTX"
        key = _cache.key_of(*self._request, _native.host() if is_cpu else "")
        found = None if key is None else _cache.get(key)
        if key is not None and found is not None and self._load(found):
            self._say(f"{kind} from the cache, {_native.cache_path(key)}")
            return found
        start = time.perf_counter()
        compiled = self._compile(self._keeps_stages)
        self._say(f"compiled in {1e3 * (time.perf_counter() - start):.1f} ms")
        self._compiled = self._loaded = compiled
        module = _cache.Entry(
            compiled.num_args(), compiled.num_results(), compiled.ptx(), compiled.image()
        )
        if key is not None:
            reason = _cache.put(key, module)
            if reason:
                self._say(f"{kind} not cached: {reason}")
        return module._replace(image=None)

    def _load(self, entry: _cache.Entry) -> bool:
        """Makes an entry's machine code callable, if it has some; whether that was possible."""
        if (self.target == "cpu") != (entry.image is not None):
            return False
        if entry.image is None:
            return True
        try:
            self._loaded = _native.load_image(entry.image, cpu_threads())
        except ValueError as error:
            self._say(f"machine code in the cache is of no use: {error}")
            return False
        return True

    def _compile(self, keep_stages: bool) -> Any:
        return _native.compile(*self._request, cpu_threads(), keep_stages)

    def note(self, text: str) -> None:
        """Adds to `notes`."""
        if text not in self.notes:
            self.notes.append(text)
            self._say(text)

    def _say(self, text: str) -> None:
        if verbose():
            print(f"fa: {self.target}: {text}", file=sys.stderr)

    def _staged(self) -> Any:
        """The compiled module; one that came from the cache is compiled now."""
        if self._compiled is None:
            with self._lock:
                if self._compiled is None:
                    self._compiled = self._compile(self._keeps_stages)
        return self._compiled

    @property
    def stages(self) -> dict[str, str]:
        """IR after each stage, by the pass's name, in order."""
        return dict(self._staged().stages())

    @property
    def io(self) -> dict[str, str]:
        """HBM traffic after each stage: the text of its `fa.io` attribute."""
        return dict(self._staged().io())

    @property
    def asm(self) -> Mapping[str, str]:
        """Every text of the kernel: "source", each stage, and "ptx".

        A kernel from the cache is compiled when one of its stages is asked for.
        """
        known = {"source": self.ir}
        if self._module.ptx is not None:
            known["ptx"] = self._module.ptx
        return _Texts(known, self)

    def resources(self, device: int = 0) -> list[dict[str, Any]]:
        """Registers, shared and local memory (bytes) of each GPU kernel."""
        return self.program(device).resources()

    def program(self, device: int) -> Any:
        """The kernel, loaded on a device."""
        program = self._programs.get(device)
        if program is None:
            with self._lock:
                program = self._programs.get(device)
                if program is None:
                    ptx = self._module.ptx
                    if ptx is None:
                        raise _native.RunError(
                            f"a kernel for target {self.target} can't run on "
                            f"CUDA device {device}; compile for sm_80 or later"
                        )
                    program = _native.load(device, ptx)
                    self._programs[device] = program
                    _native.add_program(self._launcher, device, program)
        return program

    def runnable(self, device: int | None) -> Any:
        """The object that `_native` runs: the program of a GPU, or for None that of the CPU."""
        return self._loaded if device is None else self.program(device)

    def __call__(self, *arrays: Any) -> None:
        """Runs on inputs followed by results, all of one library and device.

        GPU kernels are enqueued on the current stream of PyTorch and CuPy; for
        arrays of another library the call waits for the GPU.
        """
        if _native.launch(self._launcher, arrays):
            return
        names = [f"argument {i}" for i in range(len(arrays))]
        if len(arrays) != self._module.num_args:
            raise ValueError(
                f"expected {self._module.num_args} arrays, inputs and then results, got "
                f"{len(arrays)}; see the kernel's ir"
            )
        library, views = views_of(arrays, names)
        results = self._module.num_results
        for view, name in list(zip(views, names))[len(views) - results :]:
            check_result(view, name)
        self.run(library, views)

    def run(
        self,
        library: Library,
        views: list[View],
        prepared: Lists | None = None,
        captured: Sequence[Any] = (),
        like: Any = None,
    ) -> tuple[int, int] | None:
        """Runs on views of one library and device; their results are writable.

        Args:
            library: the views' library.
            views: inputs, then results.
            prepared: where the kernel's lists are kept, None to make them now.
            captured: the arrays among the inputs that follow q, k and v.
            like: an array beside which the library allocates temporary buffers; with None
                they are the runtime's.

        Returns:
            Where the lists are that were kept, and the stream that they were made on.
        """
        device = views[0].device
        native = [view.native() for view in views]
        if device is None:
            self._loaded.run(native)
            return None
        for stream in {view.stream for view in views} - {None}:
            _native.synchronize(device, stream)
        stream = library.stream(device)
        program, reads = self.program(device), self.list_reads
        size = program.workspace_size(native) if like is not None else 0
        # Freed in the stream's order, or when the call has waited.
        _owner, pointer = library.workspace(like, size, device) if size else (None, 0)
        kept = None
        if prepared is not None and reads is not None:
            launch = Launch(program, native, stream, (pointer, size))
            kept = prepared.launch(launch, reads, library, views, captured)
        if kept is None and size:
            program.launch_in(native, stream, pointer, size)
        elif kept is None:
            program.launch(native, stream)
        if library.waits:
            _native.synchronize(device, stream)
        return kept


def compile(
    ir: str | AttentionConfig,
    target: str = "cpu",
    *,
    algorithm: str = "fa2",
    rows: int = 0,
    keys: int = 0,
    speculate: str = "auto",
    schedule: Mapping[str, Any] | None = None,
    backward: str = "",
    deterministic: bool = False,
) -> Kernel:
    """Compiles attention IR, or a variant, for a target.

    Args:
        ir: MLIR text with one function around `fa.attention`, or a config.
        target: "cpu" or an NVIDIA target ("sm_80", "sm_90a").
        algorithm: "standard" (S and P in memory), "fa1" (FlashAttention's
            Algorithm 1) or "fa2" (one fused kernel).
        rows: rows of a tile, 0 to let the IO model choose.
        keys: keys of a tile, 0 to let the IO model choose.
        speculate: "on" or "off": whether `fa-speculate-max` takes the running
            maximum out of the loop's common path; "auto" asks the target.
        schedule: for experts: rows, keys and speculate as above, "order"
            ("ascending" or "descending": which of a row's blocks of keys comes
            first; "auto" goes by the score function where `fa-speculate-max` runs),
            and options of the target's schedule: of fa-schedule-hopper for "sm_90a",
            {"rows": 128, "stages": 2, "ping_pong": 0, "spare": 64}, of
            fa-schedule-ampere for another GPU, {"warps": 8}. For "sm_90a" {"by": "ampere"}
            compiles for "sm_90", whose schedule is fa-schedule-ampere's. A program that the
            schedule does not take is then an error.
        backward: the function's gradient in its place, with respect to q, k, v and
            captured tensors: "all" floating-point ones, "none", or the numbers of
            arguments, as "3+5". The kernel takes the function's arguments, out, lse,
            the gradients with respect to out and, where the function returns it, to
            lse; then its results.
        deterministic: whether gradients have the same bits each time, also on a GPU,
            whose blocks then add in an order (`fa-order-sums`).

    Raises:
        CompileError: malformed or unsupported IR; names the location.
        ValueError: an unknown option; names the known ones.
    """
    text = ir.ir() if isinstance(ir, AttentionConfig) else ir
    chosen = Schedule.of(schedule, rows=rows, keys=keys, speculate=speculate)
    return Kernel(
        text,
        target,
        algorithm=algorithm,
        schedule=chosen,
        backward=backward,
        deterministic=deterministic,
    )


def compile_count() -> int:
    """How many kernels this process has compiled; those from the cache are not."""
    return _native.compilations()
