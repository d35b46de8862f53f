# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lists of blocks that are made once: of arrays whose owner said that they stay as they are.

Nothing is kept without that word (`fa.prepare`): a tensor's memory can be written
by another library's kernel or by a collective without PyTorch counting it.
"""

from __future__ import annotations

import collections
import re
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from fa import _native
from fa._run.arrays import Library, View

_MOST = 32
"""Lists that one `Lists` keeps."""


class _Entry(NamedTuple):
    """Lists, and when they are there."""

    buffer: Any
    stream: int
    event: Any
    arrays: tuple[Any, ...]
    """The arrays that the lists were made from, kept alive so that no other takes their memory."""
    is_there: bool = False
    """Whether any stream may use them without waiting."""


class Launch(NamedTuple):
    """The arguments of a launch.

    Attributes:
        program: the kernel, loaded.
        native: its arguments' views, as `_native` has them.
        stream: the arguments' library's current one.
        workspace: where other temporary buffers are, and their bytes; 0 for the runtime's.
    """

    program: Any
    native: list[Any]
    stream: int
    workspace: tuple[int, int]

    def run(self, entry: _Entry, is_prepared: bool) -> None:
        """Runs with lists that are there, or makes them before."""
        pointer = entry.buffer.data_ptr()
        self.program.launch_prepared(
            self.native, self.stream, pointer, is_prepared, *self.workspace
        )


def reads_of(ptx: str | None) -> tuple[int, ...] | None:
    """The arguments that a kernel's lists are made of; None if it has no lists."""
    header = "" if ptx is None else ptx.partition("//!fa.end")[0]
    found = re.findall(r"^//!fa\.launch .* prepares=(\S+)$", header, re.M)
    if not found:
        return None
    return tuple(sorted({int(n) for text in found for n in text.split(",") if n != "-"}))


class Lists:
    """Lists of one mask, of PyTorch's tensors on GPUs."""

    def __init__(self) -> None:
        self.calls = _native.prepared_calls()
        """Calls that `_native` runs by itself with these lists."""
        self._entries: collections.OrderedDict[Any, _Entry] = collections.OrderedDict()
        self._of_graphs: dict[int, Any] = {}
        """Buffers that captured launches use, by address."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def launch(
        self,
        launch: Launch,
        reads: tuple[int, ...],
        library: Library,
        views: list[View],
        captured: Sequence[Any],
    ) -> tuple[int, int] | None:
        """Runs a kernel with lists that are there, or that then are.

        None, without having run, where lists can't be kept; else where they are, and
        the stream that they were made on.

        Args:
            launch: the kernel and its arguments.
            reads: the arguments that its lists are made of, as `reads_of` has them.
            library: the arguments' library.
            views: the arguments.
            captured: the arrays among them that follow q, k and v.
        """
        # A view with an owner is of a copy that was made for this call.
        if library.name != "torch" or any(views[n].owner is not None for n in reads):
            return None
        import torch

        device = views[0].device
        if device != torch.cuda.current_device():
            # Questions about the current stream are about that one's.
            with torch.cuda.device(device):
                return self.launch(launch, reads, library, views, captured)
        made_of = tuple(launch.native[n] for n in reads)
        key = (id(launch.program), made_of, *(view[2:] for view in launch.native))
        is_capturing = torch.cuda.is_current_stream_capturing()
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
        if entry is None:
            if is_capturing:
                return None  # memory of a graph holds nothing before it is replayed
            arrays = tuple(captured[n - 3] for n in reads if 3 <= n < 3 + len(captured))
            return self._make(launch, key, device, arrays)
        if is_capturing:
            if entry.stream != launch.stream and not entry.is_there:
                return None  # a graph waits for nothing from without
            self._of_graphs[entry.buffer.data_ptr()] = entry.buffer
        elif entry.stream != launch.stream:
            self._wait(key, entry, torch.cuda.current_stream(device))
        launch.run(entry, True)
        return entry.buffer.data_ptr(), entry.stream

    def _wait(self, key: Any, entry: _Entry, stream: Any) -> None:
        """Has a stream of PyTorch's wait for lists that were made on another one."""
        entry.buffer.record_stream(stream)
        if entry.is_there:
            return
        stream.wait_event(entry.event)
        if entry.event.query():
            with self._lock:
                if self._entries.get(key) is entry:
                    self._entries[key] = entry._replace(is_there=True)

    def _make(
        self, launch: Launch, key: Any, device: int, arrays: tuple[Any, ...]
    ) -> tuple[int, int]:
        import torch

        size = max(launch.program.prepared_size(launch.native), 1)
        buffer = torch.empty(size, dtype=torch.uint8, device=torch.device("cuda", device))
        event = torch.cuda.Event()
        made = _Entry(buffer, launch.stream, event, arrays)
        launch.run(made, False)
        event.record(torch.cuda.current_stream(device))
        with self._lock:
            entry = self._entries.setdefault(key, made)  # another thread may have been first
            while len(self._entries) > _MOST:
                self._entries.popitem(last=False)
                _native.forget_calls(self.calls)  # some of which use its memory
        return entry.buffer.data_ptr(), entry.stream
