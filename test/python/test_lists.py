# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where lists of blocks are kept, with a GPU of PyTorch's that only counts."""

from __future__ import annotations

import types

import pytest
from fa import _native
from fa._run import lists as _lists

torch = pytest.importorskip("torch")


class Buffer:
    """Memory of the GPU, which is freed with this."""

    alive: list[int] = []

    def __init__(self):
        self.address = 4096 * (1 + len(Buffer.alive))
        self.all, self.streams = Buffer.alive, []
        self.all.append(self.address)

    def __del__(self):
        self.all[self.all.index(self.address)] = 0

    def data_ptr(self):
        return self.address

    def record_stream(self, stream):
        self.streams.append(stream)


class Event:
    done = True

    def record(self, stream):
        self.stream = stream

    def query(self):
        return Event.done


class Stream:
    def __init__(self):
        self.waited = []

    def wait_event(self, event):
        self.waited.append(event)


class Program:
    """Says what it was launched with."""

    def __init__(self):
        self.launches = []

    def prepared_size(self, native):
        return 64

    def launch_prepared(self, native, stream, pointer, is_prepared, workspace, size):
        self.launches.append((stream, pointer, is_prepared, workspace, size))


class View(tuple):
    """A tensor's view: pointer, type, shape."""

    owner = None
    device = 0


LIBRARY = types.SimpleNamespace(name="torch")


@pytest.fixture
def gpu(monkeypatch):
    state = types.SimpleNamespace(capturing=False, stream=Stream(), device=0)
    Buffer.alive, Event.done = [], True
    cuda = torch.cuda
    monkeypatch.setattr(cuda, "current_device", lambda: state.device)
    monkeypatch.setattr(cuda, "is_current_stream_capturing", lambda: state.capturing)
    monkeypatch.setattr(cuda, "current_stream", lambda device: state.stream)
    monkeypatch.setattr(cuda, "Event", Event)
    monkeypatch.setattr(torch, "empty", lambda *sizes, **options: Buffer())
    return state


def launch(kept, program, stream=1, keys=8, array=None):
    views = [View((100 + n, "f16", (1, 1, keys, 64))) for n in range(3)]
    views.append(View((array or 900, "i32", (keys,))))
    of = _lists.Launch(program, [tuple(view) for view in views], stream, (77, 5))
    return kept.launch(of, (3,), LIBRARY, views, ["ids"])


def test_made_once(gpu):
    kept, program = _lists.Lists(), Program()
    assert launch(kept, program) == launch(kept, program) == (4096, 1)
    assert program.launches == [(1, 4096, False, 77, 5), (1, 4096, True, 77, 5)]
    assert launch(kept, program, keys=9) == (8192, 1)
    assert launch(kept, program, array=901)[0] == 3 * 4096
    assert len(kept) == 3
    # What they are made of is kept with them.
    assert {entry.arrays for entry in kept._entries.values()} == {("ids",)}


def test_another_stream_waits_until_they_are_there(gpu):
    kept, program = _lists.Lists(), Program()
    launch(kept, program)
    Event.done = False
    for waits in (1, 2):
        launch(kept, program, stream=2)
        assert len(gpu.stream.waited) == waits
    Event.done = True
    for _ in range(3):
        launch(kept, program, stream=2)
    assert len(gpu.stream.waited) == 3
    assert next(iter(kept._entries.values())).buffer.streams == [gpu.stream] * 5


def test_graphs(gpu):
    """They use lists of their stream, and others' that are there; and keep them."""
    kept, program = _lists.Lists(), Program()
    gpu.capturing = True
    assert launch(kept, program) is None and not program.launches
    gpu.capturing = False
    launch(kept, program)
    gpu.capturing = True
    assert launch(kept, program) == (4096, 1)
    assert launch(kept, program, stream=2) is None
    gpu.capturing = False
    launch(kept, program, stream=2)
    gpu.capturing = True
    assert launch(kept, program, stream=2) == (4096, 1)
    assert gpu.stream.waited and not [x for x in program.launches[1:] if not x[2]]
    gpu.capturing = False
    for keys in range(9, 9 + 2 * _lists._MOST):
        launch(kept, program, keys=keys)
    assert len(kept) == _lists._MOST
    # Those that were made first are gone, but for the graph's.
    assert [address for address in Buffer.alive if address][:2] == [4096, (_lists._MOST + 2) * 4096]


def test_eviction_forgets_calls(gpu, monkeypatch):
    kept, program, forgotten = _lists.Lists(), Program(), []
    monkeypatch.setattr(_native, "forget_calls", forgotten.append)
    for keys in range(8, 8 + _lists._MOST):
        launch(kept, program, keys=keys)
    assert not forgotten
    launch(kept, program, keys=7)
    assert forgotten == [kept.calls]


def test_two_threads_make_them_at_once(gpu):
    """The second one's are not kept, nor given to anyone."""
    kept, program = _lists.Lists(), Program()

    class First(Program):
        def launch_prepared(self, *given):
            super().launch_prepared(*given)
            if len(self.launches) == 1:
                assert launch(kept, self) == (8192, 1)

    program = First()
    assert launch(kept, program) == (8192, 1)
    assert launch(kept, program) == (8192, 1)
    assert [address for address in Buffer.alive if address] == [8192]


def test_another_device_is_asked_about_its_own_stream(gpu, monkeypatch):
    class OnDevice:
        def __init__(self, device):
            self.device = device

        def __enter__(self):
            self.before, gpu.device = gpu.device, self.device

        def __exit__(self, *error):
            gpu.device = self.before

    monkeypatch.setattr(torch.cuda, "device", OnDevice)
    kept, program = _lists.Lists(), Program()
    gpu.device = 1
    assert launch(kept, program) == launch(kept, program) == (4096, 1)
    assert gpu.device == 1 and len(kept) == 1


def test_what_cannot_be_kept(gpu):
    kept, program = _lists.Lists(), Program()
    views = [View((100 + n, "f16", (1, 1, 8, 64))) for n in range(4)]
    of = _lists.Launch(program, [tuple(view) for view in views], 1, (0, 0))
    views[3].owner = object()  # a copy that was made for the call
    assert kept.launch(of, (3,), LIBRARY, views, ["ids"]) is None
    assert kept.launch(of, (2,), types.SimpleNamespace(name="cupy"), views, ["ids"]) is None
    assert not program.launches
