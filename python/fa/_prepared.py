# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lists of blocks that are used again while what they are made of stays as it is.

Only for PyTorch's tensors on a GPU, which count the operations that change them:
others can change unnoticed. What changes a tensor's memory behind PyTorch's back
(another library's kernel) is not noticed here either; FA_REUSE_LISTS=0 makes
the lists in every call.
"""

from __future__ import annotations

import collections
import re
import threading
import weakref
from typing import Any, NamedTuple

from fa._config import reuses_lists

_MOST = 16
"""Lists kept for each kernel and device."""


class _Entry(NamedTuple):
    """Lists, what they were made of, and when they are there."""

    buffer: Any
    tensors: tuple[weakref.ref[Any], ...]
    stream: int
    event: Any


def reads_of(ptx: str | None) -> tuple[int, ...] | None:
    """The arguments that a kernel's lists are made of; None if it has no lists."""
    header = "" if ptx is None else ptx.partition("//!fa.end")[0]
    found = re.findall(r"^//!fa\.launch .* prepares=(\S+)$", header, re.M)
    if not found:
        return None
    return tuple(sorted({int(n) for text in found for n in text.split(",") if n != "-"}))


def may_reuse(reads: tuple[int, ...] | None, library: str) -> bool:
    """Whether a kernel has lists that arrays of a library allow to be used again."""
    return reads is not None and library == "torch" and reuses_lists()


def _current(torch: Any) -> Any:
    """The device that questions about the current stream are about."""
    return torch.device("cuda", torch.cuda.current_device())


class Lists:
    """The lists of one kernel on one device.

    Args:
        program: the kernel, loaded.
        reads: as `reads_of` gives it.
    """

    def __init__(self, program: Any, reads: tuple[int, ...]) -> None:
        self._program = program
        self._reads = reads
        self._entries: collections.OrderedDict[Any, _Entry] = collections.OrderedDict()
        self._lock = threading.Lock()

    def launch(self, native: list[Any], arrays: tuple[Any, ...], stream: int) -> bool:
        """Runs the kernel with lists that are there, or that then are.

        False, without having run, where that can't be known to be right.

        Args:
            native: the arguments as the runtime takes them.
            arrays: the objects behind those that are inputs.
            stream: PyTorch's current one.
        """
        import torch

        tensors = tuple(arrays[n] for n in self._reads)
        # Numbers of the CPU are copied in each call, and share memory with NumPy.
        if not all(x.is_cuda for x in tensors) or arrays[0].device != _current(torch):
            return False
        try:
            state = tuple((id(x), x._version, x.data_ptr()) for x in tensors)
        except (AttributeError, RuntimeError):  # inference tensors have no version
            return False
        if torch.cuda.is_current_stream_capturing():
            return False  # a graph is to see what changes between its replays
        key = (state, *(view[2:] for view in native[: len(arrays)]))
        with self._lock:
            entry = self._entries.get(key)
            if entry and all(ref() is x for ref, x in zip(entry.tensors, tensors)):
                self._entries.move_to_end(key)
            else:
                entry = None
        if entry is None:
            self._make(native, key, tensors, arrays[0].device, stream)
            return True
        if entry.stream != stream:
            current = torch.cuda.current_stream(arrays[0].device)
            current.wait_event(entry.event)
            entry.buffer.record_stream(current)
        self._program.launch_prepared(native, stream, entry.buffer.data_ptr(), True)
        return True

    def _make(
        self, native: list[Any], key: Any, tensors: tuple[Any, ...], device: Any, stream: int
    ) -> None:
        import torch

        size = self._program.prepared_size(native)
        buffer = torch.empty(max(size, 1), dtype=torch.uint8, device=device)
        self._program.launch_prepared(native, stream, buffer.data_ptr(), False)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        with self._lock:
            for old, kept in list(self._entries.items()):
                if any(ref() is None for ref in kept.tensors):
                    del self._entries[old]
            self._entries[key] = _Entry(buffer, tuple(map(weakref.ref, tensors)), stream, event)
            while len(self._entries) > _MOST:
                self._entries.popitem(last=False)
