# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of libraries that fa does not know, through small classes for each protocol."""

from __future__ import annotations

import ctypes
import gc
import types
import weakref

import fa
import numpy as np
import pytest
from fa._run import arrays as _arrays
from fa._run.config import AttentionConfig
from naive import inputs
from right import assert_right
from test_attention import reference

SHAPE = (1, 2, 2, 21, 33, 16, 16)


class DLPack1:
    """DLPack as of version 1: max_version, a read-only flag."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        assert stream is None, "no stream on the CPU"
        return self.array.__dlpack__(max_version=max_version)


class DLPack0:
    """DLPack before version 1."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


class Interface:
    """The array interface, nothing else."""

    def __init__(self, array):
        self.keep = array
        self.__array_interface__ = array.__array_interface__


class Both(Interface):
    """DLPack that can't, the array interface that can."""

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        raise BufferError("can't")


PROTOCOLS = [DLPack0, DLPack1, Interface, Both]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_protocols_on_the_cpu(protocol):
    arrays = inputs(*SHAPE)
    out, lse = fa.attention(*map(protocol, arrays), return_lse=True)
    assert type(out) is np.ndarray and out.dtype == np.float32 and out.flags.writeable
    assert_right(out, reference(*arrays), lse)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_strides(protocol):
    q, k, v = inputs(*SHAPE)
    q = q[:, ::-1, ::-1, ::-1]
    k = np.ascontiguousarray(k.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)[..., ::-1]
    v = np.broadcast_to(v[:, :1], v.shape)
    if protocol is DLPack0:  # NumPy's old export refuses what is read-only
        v.setflags(write=True)
    assert_right(fa.attention(*map(protocol, (q, k, v))), reference(q, k, v))


@pytest.mark.parametrize("protocol", [DLPack1, Interface])
def test_read_only_inputs(protocol):
    arrays = inputs(*SHAPE)
    for array in arrays:
        array.flags.writeable = False
    assert_right(fa.attention(*map(protocol, arrays)), reference(*arrays))
    assert_right(fa.attention(*arrays), reference(*arrays))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("sizes", [(0, 2, 2, 5, 7), (1, 2, 2, 0, 7), (1, 2, 2, 5, 0)])
def test_zero_size(protocol, sizes):
    arrays = inputs(*sizes, 16, 24)
    out, lse = fa.attention(*map(protocol, arrays), return_lse=True)
    assert out.shape == (*sizes[:2], sizes[3], 24) and not out.any()
    assert (lse == -np.inf).all()


def test_float16_through_dlpack():
    arrays = [x.astype(np.float16) for x in inputs(*SHAPE)]
    out = fa.attention(*map(DLPack1, arrays))
    assert out.dtype == np.float16
    assert_right(out, reference(*arrays))


def test_bfloat16_numpy():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    arrays = [x.astype(ml_dtypes.bfloat16) for x in inputs(*SHAPE)]
    out = fa.attention(*arrays)
    assert type(out) is np.ndarray and out.dtype == ml_dtypes.bfloat16
    assert_right(out, reference(*arrays))


def test_bfloat16_through_dlpack():
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(x).bfloat16() for x in inputs(*SHAPE)]

    class Wrapped:
        def __init__(self, tensor):
            self.__dlpack__ = tensor.__dlpack__
            self.__dlpack_device__ = tensor.__dlpack_device__

    out = fa.attention(*map(Wrapped, tensors))
    try:
        import ml_dtypes

        assert out.dtype == ml_dtypes.bfloat16
        values = out.astype(np.float32)
    except ImportError:
        assert isinstance(out, fa.Array) and out.dtype == "bfloat16"
        assert not hasattr(out, "__array_interface__")
        values = torch.from_dlpack(out).float().numpy()
    assert_right(values, reference(*tensors))


def test_result_of_an_array_api_library():
    class Mine(DLPack1):
        def __array_namespace__(self):
            return types.SimpleNamespace(from_dlpack=lambda x: Mine(np.from_dlpack(x)))

    arrays = inputs(*SHAPE)
    out, lse = fa.attention(*map(Mine, arrays), return_lse=True)
    assert isinstance(out, Mine) and isinstance(lse, Mine)
    assert_right(out.array, reference(*arrays))


def test_jax():
    jax = pytest.importorskip("jax")
    arrays = [jax.numpy.asarray(x) for x in inputs(*SHAPE)]
    out = fa.attention(*arrays)
    assert isinstance(out, jax.Array)
    assert_right(out, reference(*arrays))
    half = [x.astype(jax.numpy.bfloat16) for x in arrays]
    out = fa.attention(*half)
    assert out.dtype == jax.numpy.bfloat16
    assert_right(out, reference(*half))


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 3)])
def test_array_exports_dlpack(version):
    array = fa.Array((2, 3), "f32", None)
    values = np.from_dlpack(array)
    values[:] = 7
    assert (np.asarray(array) == 7).all()

    class AsVersion:
        def __init__(self, inner):
            self.inner = inner
            self.__dlpack_device__ = inner.__dlpack_device__

        def __dlpack__(self, **options):
            return self.inner.__dlpack__(max_version=version)

    taken = np.from_dlpack(AsVersion(array))
    memory = weakref.ref(array._memory)
    del array, values
    gc.collect()
    assert memory() is not None and (taken == 7).all()
    del taken
    gc.collect()
    assert memory() is None


def test_array_that_nobody_takes_is_freed():
    array = fa.Array((2, 3), "f16", None)
    memory = weakref.ref(array._memory)
    capsules = [array.__dlpack__(), array.__dlpack__(max_version=(1, 0))]
    del array
    assert memory() is not None
    del capsules
    assert memory() is None


def test_array_does_not_move():
    array = fa.Array((2, 3), "f32", None)
    assert repr(array) == "fa.Array(shape=(2, 3), dtype=float32, device=cpu)"
    with pytest.raises(BufferError, match=r"expected device \(1, 0\), got \(2, 0\)"):
        array.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="copy it afterwards"):
        array.__dlpack__(copy=True)
    assert not hasattr(array, "__cuda_array_interface__")


class Elsewhere(DLPack1):
    def __dlpack_device__(self):
        return (7, 0)


def unaligned(array):
    raw = np.empty(array.nbytes + 1, np.uint8)
    moved = raw[1:].view(array.dtype).reshape(array.shape)
    moved[:] = array
    return moved


def test_errors():
    q, k, v = inputs(*SHAPE)
    with pytest.raises(TypeError, match="on a CUDA device .2 or 13., got device 7"):
        fa.attention(*map(Elsewhere, (q, k, v)))
    with pytest.raises(TypeError, match="DLPack type code 5, 64 bits, 1 lanes in DLPack1"):
        fa.attention(*(DLPack1(x.astype(np.complex64)) for x in (q, k, v)))
    with pytest.raises(TypeError, match="__array_interface__, got object; convert it"):
        fa.attention(object(), k, v)
    with pytest.raises(ValueError, match="key of the same library and device as query"):
        fa.attention(DLPack1(q), k, v)
    with pytest.raises(TypeError, match="got >f4"):
        fa.attention(q.astype(">f4"), k, v)
    with pytest.raises(TypeError, match="got MaskedArray; fill it"):
        fa.attention(np.ma.masked_array(q, q > 0), k, v)
    with pytest.raises(ValueError, match="aligned to the element size 4, got address .*; copy"):
        fa.attention(unaligned(q), k, v)
    packed = np.zeros(q.shape, np.dtype([("x", "f4"), ("tag", "u1")]))["x"]
    with pytest.raises(ValueError, match="multiples of the element size 4, .*; copy"):
        fa.attention(packed, k, v)


def test_capsule_is_taken_once():
    class Used(DLPack1):
        def __dlpack__(self, **options):
            capsule = self.array.__dlpack__()
            rename = ctypes.pythonapi.PyCapsule_SetName
            rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
            rename(capsule, b"used_dltensor")
            return capsule

    with pytest.raises(ValueError, match="got one named 'used_dltensor'; .* taken once"):
        fa.attention(*map(Used, inputs(*SHAPE)))


def test_kernel_checks_its_results():
    kernel = fa.compile(AttentionConfig("f32", 2, 2, 16, 16, return_lse=True))
    q, k, v = inputs(*SHAPE)
    out, lse = np.empty_like(q), np.empty(q.shape[:3], np.float32)
    kernel(q, k, v, out, lse)
    assert_right(out, reference(q, k, v))
    with pytest.raises(ValueError, match="expected 5 arrays, inputs and then results, got 4"):
        kernel(q, k, v, out)
    locked = out.view()
    locked.flags.writeable = False
    for wrap in (lambda x: x, DLPack1, Interface):
        arrays = [wrap(x) for x in (q, k, v, locked, lse)]
        with pytest.raises(ValueError, match="argument 3, a result, to be writable"):
            kernel(*arrays)
    broadcast = np.lib.stride_tricks.as_strided(out, out.shape, (0, *out.strides[1:]))
    kernel(q, k, v, broadcast, lse)  # one batch: no two elements share an address
    broadcast = np.lib.stride_tricks.as_strided(out, out.shape, (*out.strides[:3], 0))
    with pytest.raises(ValueError, match="at an address of its own"):
        kernel(q, k, v, broadcast, lse)


# --- A GPU that is not there -------------------------------------------------------


class FakeGPU:
    """Records what would be launched; its memory is the host's."""

    def __init__(self):
        self.launches, self.waited = [], []

    def launch(self, views, stream):
        self.launches.append((views, stream))

    def synchronize(self, device, stream):
        self.waited.append((device, stream, len(self.launches)))


@pytest.fixture
def gpu(monkeypatch):
    gpu = FakeGPU()

    class Memory:
        def __init__(self, device, size):
            self.bytes = np.zeros(size, np.uint8)
            self.pointer = self.bytes.__array_interface__["data"][0]

    monkeypatch.setattr(fa._native, "synchronize", gpu.synchronize)
    monkeypatch.setattr(fa._native, "DeviceMemory", Memory)
    monkeypatch.setattr(fa._run.call, "target_of", lambda device: "sm_80")
    monkeypatch.setattr(fa.Kernel, "program", lambda self, device: gpu)
    monkeypatch.setattr(_arrays, "_device_of_pointer", lambda pointer: 3)
    return gpu


class CudaInterface:
    """The CUDA array interface, as Numba has it."""

    def __init__(self, array, stream=None, **more):
        self.__cuda_array_interface__ = {
            **array.__array_interface__,
            "version": 3,
            "stream": stream,
            **more,
        }


class CudaDLPack(DLPack1):
    def __dlpack_device__(self):
        return (2, 3)

    def __dlpack__(self, *, stream=None, max_version=None):
        assert stream == 1, "the legacy default stream waits for the producer"
        return self.array.__dlpack__(max_version=max_version)


def test_cuda_array_interface(gpu):
    q, k, v = inputs(*SHAPE)
    out = fa.attention(CudaInterface(q, 5), CudaInterface(k, 9, strides=None), CudaInterface(v))
    ((views, stream),) = gpu.launches
    assert stream == 0
    assert views[0][1:] == ("f32", q.shape, tuple(s // 4 for s in q.strides))
    assert views[1][3] == tuple(s // 4 for s in k.strides)
    # The producers' streams before the launch, its own after it.
    assert sorted(gpu.waited) == [(3, 0, 1), (3, 5, 0), (3, 9, 0)]
    assert isinstance(out, fa.Array) and out.device == 3 and out.shape == q.shape
    assert out.__dlpack_device__() == (2, 3)
    interface = out.__cuda_array_interface__
    assert interface["stream"] is None and interface["typestr"] == "<f4"
    assert interface["data"] == (views[3][0], False) and interface["version"] == 3
    assert not hasattr(out, "__array_interface__")


def test_cuda_dlpack(gpu):
    q, k, v = inputs(*SHAPE)
    out = fa.attention(*map(CudaDLPack, (q, k, v)))
    ((views, _),) = gpu.launches
    assert [view[0] for view in views[:3]] == [x.ctypes.data for x in (q, k, v)]
    assert gpu.waited == [(3, 0, 1)] and out.device == 3


def test_cuda_errors(gpu):
    q, k, v = inputs(*SHAPE)
    with pytest.raises(ValueError, match="None, 1 .legacy default.*, got 0; the producer"):
        fa.attention(*(CudaInterface(x, 0) for x in (q, k, v)))
    with pytest.raises(TypeError, match="without a mask of its own, got one in CudaInterface"):
        fa.attention(*(CudaInterface(x, mask=object()) for x in (q, k, v)))
    with pytest.raises(TypeError, match="got complex64 in CudaInterface"):
        fa.attention(*(CudaInterface(x.astype("c8")) for x in (q, k, v)))
    with pytest.raises(ValueError, match="float32, float16 or bfloat16 on a GPU, got f64 on CUDA"):
        fa.attention(*(CudaInterface(x.astype("f8")) for x in (q, k, v)))
    with pytest.raises(ValueError, match="key of the same library and device as query"):
        fa.attention(CudaDLPack(q), DLPack1(k), DLPack1(v))
    assert not gpu.launches


def test_no_driver_to_ask(monkeypatch):
    monkeypatch.setenv("FA_CUDA_DRIVER", "/nowhere/libcuda.so")
    q, k, v = (CudaInterface(x) for x in inputs(*SHAPE))
    with pytest.raises(fa.RunError, match="no CUDA driver to ask"):
        fa.attention(q, k, v)
