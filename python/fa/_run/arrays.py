# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of other libraries as views: pointer, dtype, shape, strides, device.

NumPy, PyTorch and CuPy are known: their results are their own arrays, and on a
GPU work goes to their current stream. Any other object is seen through the
protocol that it has, the first of

- `__dlpack__` with `__dlpack_device__` (CPU and CUDA; DLPack 0.x and 1.x),
- `__cuda_array_interface__` (version 3: its stream is waited for),
- `__array_interface__`.

A result for such an object belongs to its library where that has a
`from_dlpack` (`__array_namespace__`, the array API standard; JAX has it). Else
it is a NumPy array on the CPU, where NumPy has the type, and an `Array` on a
GPU.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fa import _native
from fa._run.environment import cuda_driver
from fa._run.frames import users_level

_NUMPY_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}
_INT_TYPES = {"int64": "i64", "int32": "i32", "int8": "i8", "uint8": "u8", "bool": "i1"}
_TYPES = {**_NUMPY_TYPES, **_INT_TYPES}
_NAMES = {name: full for full, name in _TYPES.items()}
_SIZES = {
    **{"f64": 8, "f32": 4, "f16": 2, "bf16": 2},
    **{"i64": 8, "i32": 4, "i8": 1, "u8": 1, "i1": 1},
}


def compute_type(dtype: str) -> str:
    """The type of scores, sums and the log-sum-exp for elements of a type."""
    return "f64" if dtype == "f64" else "f32"


class View(NamedTuple):
    """An array as a kernel sees it. Strides are in elements."""

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int | None = None
    """CUDA device index, None for the CPU."""
    writable: bool = True
    stream: int | None = None
    """A CUDA stream whose work makes the values, None if they are there."""
    owner: Any = None
    """An object that keeps the memory alive as long as the view."""

    def native(self) -> tuple[int, str, tuple[int, ...], tuple[int, ...]]:
        """The view in the form of `_native`, whose integers have no sign."""
        return (self.pointer, self.dtype.replace("u", "i"), self.shape, self.strides)


@dataclass(frozen=True)
class Library:
    """One array library: how to see its arrays, make new ones, find streams."""

    name: str
    view: Callable[[Any], View]
    empty: Callable[[Any, tuple[int, ...], str, int | None], Any]
    """(like, shape, dtype, device) -> an uninitialised row-major array beside `like`."""
    stream: Callable[[int], int]
    """The caller's current stream on a CUDA device."""
    describe: Callable[[Any], View] | None = None
    """`view` without the pointer, for arrays that may have no memory."""
    finish: Callable[[Any, Any], Any] = lambda like, array: array
    """(like, array of `empty`) -> the user's result, once it is computed."""
    memory: Callable[[Any, int, int | None], tuple[Any, int]] | None = None
    """(like, bytes, device) -> an owner of so much uninitialised memory, and its address;
    None where `empty` is as good."""
    waits: bool = False
    """Calls return when the GPU has finished: nothing orders their streams."""
    in_order: Callable[[Any, int], Any] | None = None
    """(like, last) -> an uninitialised array of `like`'s type and sizes, but for the last
    one, whose dimensions lie in memory in the order of like's where like's last one is the
    innermost; None where `empty` is as good."""
    is_native: bool = False
    """Calls that were made once need no view: `_native` reads the arrays itself."""
    copy: Callable[[Any], Any] | None = None
    """array -> its elements in row-major order elsewhere; None where fa makes no copies."""

    def result(self, like: Any, view: View, last: int) -> Any:
        """Uninitialised memory for a result of an operand's type and sizes, but for the last one.

        Args:
            like: an array of the library.
            view: the operand's view.
            last: the size of the result's last dimension.
        """
        if self.in_order is not None:
            return self.in_order(like, last)
        return self.empty(like, (*view.shape[:-1], last), view.dtype, view.device)

    def workspace(self, like: Any, size: int, device: int | None) -> tuple[Any, int]:
        """An owner of so many bytes for the kernel, and their address."""
        if self.memory is not None:
            return self.memory(like, size, device)
        array = self.empty(like, (-(-size // 4),), "f32", device)
        return array, self.view(array).pointer


def _dtype_error(array: object, dtype: object) -> TypeError:
    return TypeError(
        f"expected an array of float32, float16, bfloat16 or float64, got {dtype} in "
        f"{type(array).__name__}; convert it first"
    )


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _byte_strides(dtype: np.dtype, strides: Sequence[int]) -> tuple[int, ...]:
    """Strides in bytes as strides in elements."""
    size = dtype.itemsize
    if any(stride % size for stride in strides):
        raise ValueError(
            f"expected strides that are multiples of the element size {size}, "
            f"got {tuple(strides)} bytes; copy the array"
        )
    return tuple(stride // size for stride in strides)


def _checked(view: View) -> View:
    """The view, if its elements lie where loads of their type may."""
    size = _SIZES[view.dtype]
    if view.pointer % size and 0 not in view.shape:
        raise ValueError(
            f"expected data aligned to the element size {size}, got address "
            f"{view.pointer:#x}; copy the array"
        )
    return view


# --- NumPy ---------------------------------------------------------------------


def _numpy_view(array: np.ndarray, owner: Any = None) -> View:
    dtype = array.dtype
    if dtype.name not in _TYPES or not dtype.isnative:
        raise _dtype_error(array, dtype)
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            "expected an array without a mask of its own, got MaskedArray; fill it "
            "(numpy.ma.filled), or leave elements out with a mask of attention's"
        )
    strides = _byte_strides(dtype, array.strides)
    return _checked(
        View(
            array.__array_interface__["data"][0],
            _TYPES[dtype.name],
            array.shape,
            strides,
            writable=array.flags.writeable,
            owner=owner,
        )
    )


def _numpy_dtype(dtype: str) -> np.dtype:
    if dtype == "bf16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(_NAMES[dtype])


_NUMPY = Library(
    "numpy",
    _numpy_view,
    lambda like, shape, dtype, device: np.empty(shape, _numpy_dtype(dtype)),
    lambda device: 0,
)


# --- PyTorch and CuPy ------------------------------------------------------------


@functools.cache
def _torch_library(torch: Any) -> Library:
    types = {
        torch.float32: "f32",
        torch.float64: "f64",
        torch.float16: "f16",
        torch.bfloat16: "bf16",
        torch.int32: "i32",
        torch.int64: "i64",
        torch.int8: "i8",
        torch.uint8: "u8",
        torch.bool: "i1",
    }
    dtypes = {name: dtype for dtype, name in types.items()}

    def describe(tensor: Any) -> View:
        return view(tensor, has_memory=False)

    def view(tensor: Any, has_memory: bool = True) -> View:
        dtype = types.get(tensor.dtype)
        if dtype is None:
            raise _dtype_error(tensor, tensor.dtype)
        if tensor.layout is not torch.strided:
            raise TypeError(
                f"expected a strided tensor, got one of layout {tensor.layout} and shape "
                f"{list(tensor.shape)}; convert it with to_dense()"
            )
        index = None
        if not tensor.is_cpu:
            device = tensor.device
            if device.type != "cuda" and (has_memory or device.type != "meta"):
                raise TypeError(f"expected a tensor on cpu or cuda, got {device}; move it")
            index = device.index if device.type == "cuda" else None
        if has_memory and tensor.is_neg():
            raise ValueError(
                "expected a tensor with its values in memory, got a lazily negated one of shape "
                f"{list(tensor.shape)}; call resolve_neg()"
            )
        pointer = tensor.data_ptr() if has_memory else 0
        return View(pointer, dtype, tuple(tensor.shape), tensor.stride(), index)

    def memory(like: Any, size: int, device: int | None) -> tuple[Any, int]:
        storage = torch.UntypedStorage(size, device=like.device)
        return storage, storage.data_ptr()

    def unfilled(shape: tuple[int, ...], *, dtype: Any, device: Any, strides: Any = None) -> Any:
        if not torch.are_deterministic_algorithms_enabled():
            return torch.empty(shape, dtype=dtype, device=device)
        # By its storage: torch.empty fills tensors then, and fa writes all of them.
        tensor = torch.empty(0, dtype=dtype, device=device)
        storage = torch.UntypedStorage(math.prod(shape) * dtype.itemsize, device=device)
        return tensor.set_(storage, 0, shape, strides or _contiguous(shape))

    def unfilled_like(like: Any, last: int | None = None) -> Any:
        last = like.size(-1) if last is None else last
        if not torch.are_deterministic_algorithms_enabled():
            return in_order_of(like, last)
        shown = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device="meta")
        strides = in_order_of(shown, last).stride()
        shape, kind = (*like.shape[:-1], last), {"dtype": like.dtype, "device": like.device}
        return unfilled(shape, strides=strides, **kind)

    _watch(torch)
    # PyTorch has it from version 2.11 on. What is no tensor of these classes,
    # exactly, is seen through `view`.
    api = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    is_native = _native.add_library(
        [torch.Tensor, torch.nn.Parameter],
        api,
        unfilled,
        dtypes,
        lambda index: torch.device("cpu") if index < 0 else torch.device("cuda", index),
        unfilled_like,
        (torch.empty, torch.empty_like, torch._C._get_deterministic_algorithms),
    )

    # The handle alone, without an object around it; builds without CUDA lack it.
    stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return Library(
        "torch",
        view,
        lambda like, shape, dtype, device: unfilled(shape, dtype=dtypes[dtype], device=like.device),
        stream or (lambda index: torch.cuda.current_stream(index).cuda_stream),
        describe,
        memory=memory,
        in_order=unfilled_like,
        is_native=is_native,
        copy=lambda tensor: tensor.clone(memory_format=torch.contiguous_format),
    )


def in_order_of(like: Any, last: int) -> Any:
    """An uninitialised tensor of a tensor's type and sizes, but for the last one.

    Its dimensions lie in memory in the order of like's, as in results of PyTorch's own
    attention, so that a projection [B, S, H, D] needs no copy afterwards. It is row-major if
    like's last dimension is not the innermost.
    """
    torch, own = sys.modules["torch"], like.size(-1)
    # A last dimension of size 1 has any stride: fake and real tensors would differ.
    if own > 1 and like.stride(-1) == 1:
        if last == own:
            made = torch.empty_like(like)
        else:
            order = sorted(range(like.dim()), key=like.stride, reverse=True)
            shape = (*like.shape[:-1], last)
            made = torch.empty_permuted(shape, order, dtype=like.dtype, device=like.device)
        if made.stride(-1) == 1:
            return made
    return like.new_empty((*like.shape[:-1], last))


@functools.cache
def _watch(torch: Any) -> None:
    """Gives `_native`, once, the parts of PyTorch that it uses."""
    own = torch._C
    _native.watch_tensors(
        plain=torch.Tensor,
        parameter=torch.nn.Parameter,
        states=(
            own._len_torch_dispatch_stack,
            own._are_functorch_transforms_active,
            own._is_tracing,
        ),
        level_owner=torch.autograd.forward_ad,
        level_name="_current_level",
        is_recording=torch.is_grad_enabled,
        is_recorded="requires_grad",
        is_negated=torch.Tensor.is_neg,
        is_converting=own._is_any_autocast_enabled,
        is_converted=_is_converted,
    )


def _is_converted(query: Any, *others: Any) -> bool:
    """Whether torch.autocast, which is on, converts one of a call's tensors."""
    from fa._torch import op

    return op.is_autocast(query, *others)


def is_torch_tensor(array: Any) -> bool:
    """Whether it is a tensor of PyTorch; types in functions traced for it are PyTorch's then."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_one_tensor(array: Any) -> bool:
    """Whether it is a tensor of PyTorch and no nested one, which is several."""
    return is_torch_tensor(array) and not array.is_nested


def is_compiling() -> bool:
    """Whether torch.compile is tracing the code that runs."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_dynamo_compiling()


def is_recorded() -> bool:
    """Whether PyTorch records operations, for which the values of tensors are not to be read."""
    torch = sys.modules.get("torch")
    return torch is not None and (is_compiling() or torch._C._len_torch_dispatch_stack() > 0)


def is_seen(arrays: tuple[Any, ...]) -> bool:
    """Whether PyTorch has to see a call with these arrays, the first of which is the query.

    It must if it records gradients or operations or transforms functions, if a subclass of
    its tensors (such as a fake one) implements operators itself, if it negates a tensor's
    memory only when an operator reads it, and if there is no memory.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    _watch(torch)
    return _native.is_seen(arrays) or getattr(arrays[0], "is_meta", False) is True


def _cuda_interface_view(array: Any, device: int | None) -> View:
    interface = array.__cuda_array_interface__
    dtype = np.dtype(interface["typestr"])
    if dtype.kind == "V":  # how it says bfloat16; the array's dtype knows
        dtype = np.dtype(getattr(array, "dtype", dtype))
    if dtype.name not in _TYPES or not dtype.isnative:
        raise _dtype_error(array, dtype)
    if interface.get("mask") is not None:
        raise TypeError(
            f"expected an array without a mask of its own, got one in "
            f"{type(array).__name__}; leave elements out with a mask of attention's"
        )
    stream = interface.get("stream")
    if stream == 0:
        raise ValueError(
            "expected the stream of __cuda_array_interface__ to be None, 1 (legacy "
            "default), 2 (per-thread default) or a handle, got 0; the producer must "
            "say which default stream it means"
        )
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    pointer, readonly = interface["data"]
    if device is None:
        device = _device_of_pointer(pointer) if pointer else 0
    return _checked(
        View(
            pointer,
            _TYPES[dtype.name],
            shape,
            _contiguous(shape) if strides is None else _byte_strides(dtype, strides),
            device,
            not readonly,
            stream,
            array,
        )
    )


def _device_of_pointer(pointer: int) -> int:
    """The CUDA device that memory belongs to, from the driver."""
    try:
        driver = ctypes.CDLL(cuda_driver())
    except OSError as error:
        raise _native.RunError(
            f"no CUDA driver to ask for the device of address {pointer:#x}: {error}; install it"
        ) from None
    device = ctypes.c_int(-1)
    ordinal = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status = driver.cuPointerGetAttribute(ctypes.byref(device), ordinal, ctypes.c_uint64(pointer))
    if status:
        raise ValueError(
            f"expected an address in CUDA memory, got {pointer:#x} (error {status} of the "
            "driver); export host memory as __array_interface__"
        )
    return device.value


def _cupy_library(cupy: Any) -> Library:
    def empty(like: Any, shape: tuple[int, ...], dtype: str, device: int | None) -> Any:
        with cupy.cuda.Device(device):
            return cupy.empty(shape, _numpy_dtype(dtype))

    return Library(
        "cupy",
        # CuPy's own stream is used, so the interface's needs no waiting for.
        lambda array: _cuda_interface_view(array, array.device.id)._replace(stream=None),
        empty,
        lambda index: cupy.cuda.get_current_stream().ptr,
        copy=lambda array: array.copy(order="C"),
    )


# --- Any other -------------------------------------------------------------------

# DLDeviceType; pinned host memory is host memory, managed memory the device's.
_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_LEGACY_STREAM = 1
# (DLDataTypeCode, bits)
_DLPACK_TYPES = {
    (2, 64): "f64",
    (2, 32): "f32",
    (2, 16): "f16",
    (4, 16): "bf16",
    (0, 32): "i32",
    (0, 64): "i64",
    (0, 8): "i8",
    (1, 8): "u8",
    (6, 8): "i1",
}


class Array:
    """A result for a library that fa does not know: row-major, own memory.

    It exports `__dlpack__`, and `__array_interface__` (CPU) or
    `__cuda_array_interface__` (GPU) unless its type is bfloat16, which those
    can't say. Its values are there: no stream must be waited for.

    Attributes:
        shape: sizes.
        dtype: "float32", "float16", "bfloat16" or "float64".
        device: CUDA device index, None for the CPU.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str, device: int | None) -> None:
        self.shape = tuple(shape)
        self.dtype = _NAMES[dtype]
        self.device = device
        size = _SIZES[dtype] * int(np.prod(self.shape))
        if device is None:
            # At 64 bytes, which some libraries need to share memory.
            self._memory: Any = np.empty(size + 64, np.uint8)
            start = self._memory.__array_interface__["data"][0]
            self._pointer = (start + 63) // 64 * 64
        else:
            self._memory = _native.DeviceMemory(device, size)
            self._pointer = self._memory.pointer

    def _view(self) -> View:
        shape = self.shape
        strides = _contiguous(shape)
        return View(
            self._pointer, _TYPES[self.dtype], shape, strides, self.device, owner=self._memory
        )

    def _interface(self, protocol: str, on_device: bool) -> dict[str, Any]:
        if self.dtype == "bfloat16" or (self.device is not None) != on_device:
            raise AttributeError(f"an Array of {self.dtype} on {self.device} has no {protocol}")
        return {
            "shape": self.shape,
            "typestr": np.dtype(self.dtype).str,
            "data": (self._pointer, False),
            "strides": None,
            "version": 3,
        }

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The array interface, version 3; AttributeError on a GPU."""
        return self._interface("__array_interface__", False)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3; AttributeError on the CPU."""
        return {**self._interface("__cuda_array_interface__", True), "stream": None}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CPU, 0) if self.device is None else (_CUDA, self.device)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(
                f"expected device {self.__dlpack_device__()}, got {tuple(dl_device)}; "
                "copy the array there afterwards"
            )
        if copy:
            raise BufferError("an Array exports its own memory; copy it afterwards")
        versioned = max_version is not None and max_version[0] >= 1
        return _native.dlpack_export(
            self._view().native(), self.__dlpack_device__(), self._memory, versioned
        )

    def __repr__(self) -> str:
        where = "cpu" if self.device is None else f"cuda:{self.device}"
        return f"fa.Array(shape={self.shape}, dtype={self.dtype}, device={where})"


def _export(array: Any, device: tuple[int, int]) -> Any:
    """The array's DLPack capsule, of the newest version that it knows."""
    options = {} if device[0] in (_CPU, _CUDA_HOST) else {"stream": _LEGACY_STREAM}
    try:
        return array.__dlpack__(max_version=(1, 0), **options)
    except TypeError:  # from before version 1
        return array.__dlpack__(**options)


def _dlpack_view(array: Any) -> View:
    kind, index = map(int, array.__dlpack_device__())
    if kind not in (_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED):
        raise TypeError(
            f"expected an array on the CPU (DLPack device 1 or 3) or on a CUDA device "
            f"(2 or 13), got device {kind} in {type(array).__name__}; move it"
        )
    # The capsule is not consumed: it frees the tensor when the view goes.
    capsule = _export(array, (kind, index))
    pointer, (code, bits, lanes), shape, strides, writable = _native.dlpack_view(capsule)
    dtype = _DLPACK_TYPES.get((code, bits))
    if dtype is None or lanes != 1:
        raise _dtype_error(array, f"DLPack type code {code}, {bits} bits, {lanes} lanes")
    return _checked(
        View(
            pointer,
            dtype,
            shape,
            _contiguous(shape) if strides is None else strides,
            None if kind in (_CPU, _CUDA_HOST) else index,
            writable,
            owner=capsule,
        )
    )


def _has(array: Any, *names: str) -> bool:
    return all(hasattr(array, name) for name in names)


# What a tracer of JAX is of, by its class, and what to do.
_TRACERS = {
    "DynamicJaxprTracer": (
        "jax.jit",
        "call it by jax.pure_callback(lambda *x: fa.attention(*x), jax.ShapeDtypeStruct(q.shape, "
        "q.dtype), q, k, v), or outside of jax.jit",
    ),
    "BatchTracer": ("jax.vmap", "give arrays with a dimension for batch entries, [B, H, S, D]"),
    "JVPTracer": (
        "jax.grad, jvp or vjp",
        "JAX has no rule for fa.attention: use fa.attention_backward, or JAX's own attention where "
        "it is to differentiate",
    ),
}
_TRACERS["LinearizeTracer"] = _TRACERS["JVPTracer"]


def _refuse_tracer(array: Any) -> None:
    """Raises for a tracer of JAX, which replaces an array while JAX traces a function."""
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(array, jax.core.Tracer):
        return
    kind, remedy = _TRACERS.get(
        type(array).__name__, ("a transformation of JAX", _TRACERS["DynamicJaxprTracer"][1])
    )
    raise NotImplementedError(
        f"expected arrays with values, got one that {kind} traces, {array.aval.str_short()}; "
        f"{remedy}"
    )


def _foreign_view(array: Any) -> View:
    if isinstance(array, Array):
        return array._view()
    _refuse_tracer(array)
    on_host = _has(array, "__array_interface__")
    on_device = _has(array, "__cuda_array_interface__")
    if _has(array, "__dlpack__", "__dlpack_device__"):
        try:
            return _dlpack_view(array)
        except BufferError:  # what DLPack can't say another protocol may
            if not on_host and not on_device:
                raise
    if on_device:
        return _cuda_interface_view(array, None)
    if on_host:
        # NumPy knows the protocol's forms; it shares the memory.
        host = np.asarray(array)
        return _numpy_view(host, owner=host)
    raise TypeError(
        "expected an array of NumPy, PyTorch or CuPy, or an object with __dlpack__, "
        "__cuda_array_interface__ or __array_interface__, got "
        f"{type(array).__name__}; convert it, for example with numpy.asarray"
    )


def _foreign_finish(like: Any, array: Array) -> Any:
    namespace = getattr(like, "__array_namespace__", None)
    from_dlpack = getattr(namespace(), "from_dlpack", None) if namespace else None
    if from_dlpack is not None:
        return from_dlpack(array)
    if array.device is not None:
        return array
    try:
        dtype = _numpy_dtype(_TYPES[array.dtype])
    except ImportError:
        return array
    start = array._pointer - array._memory.__array_interface__["data"][0]
    count = int(np.prod(array.shape))
    return np.frombuffer(array._memory, dtype, count, start).reshape(array.shape)


_FOREIGN = Library(
    "other",
    _foreign_view,
    lambda like, shape, dtype, device: Array(shape, dtype, device),
    lambda device: 0,
    finish=_foreign_finish,
    waits=True,
)


_LIBRARIES: dict[type, Library] = {np.ndarray: _NUMPY}


def library_of(array: Any) -> Library:
    """The library that an array belongs to."""
    found = _LIBRARIES.get(type(array))
    if found is not None:
        return found
    torch = sys.modules.get("torch")
    cupy = sys.modules.get("cupy")
    if torch is not None and isinstance(array, torch.Tensor):
        found = _torch_library(torch)
    elif cupy is not None and isinstance(array, cupy.ndarray):
        found = _cupy_library(cupy)
    elif isinstance(array, np.ndarray):
        found = _NUMPY
    else:
        return _FOREIGN
    _LIBRARIES[type(array)] = found
    return found


def describe(array: Any) -> View:
    """The array's view; its pointer is 0 where it need not have memory.

    Of PyTorch's tensors, which while it compiles are stand-ins.
    """
    library = library_of(array)
    return (library.describe or library.view)(array)


@functools.cache
def _is_wide(dtype: Any) -> bool:
    return str(dtype).rpartition(".")[2] == "float64"


def compute_type_of(array: Any) -> str:
    """`compute_type` of an array's elements; `views_of` refuses arrays that fa does not take."""
    dtype = getattr(array, "dtype", None)
    if dtype is not None:
        return "f64" if _is_wide(dtype) else "f32"
    try:
        return compute_type(describe(array).dtype)
    except (TypeError, ValueError, NotImplementedError):
        return "f32"


def views_of(arrays: Sequence[Any], names: Sequence[str]) -> tuple[Library, list[View]]:
    """The arrays' library and their views; all must be of one device.

    Raises:
        TypeError: an object that is no array, or an element type not known.
        ValueError: arrays of several libraries or devices, or memory that is
            not aligned to its elements.
    """
    library = library_of(arrays[0])
    views: list[View] = []
    for name, array in zip(names, arrays):
        if library_of(array) is library:
            views.append(library.view(array))
            if views[-1].device == views[0].device:
                continue
        raise ValueError(
            f"expected {name} of the same library and device as {names[0]}, "
            f"got {type(array).__name__}; move it to where {names[0]} is"
        )
    return library, views


_VECTOR = 16
"""Bytes that a load of a GPU's kernel reads at once."""


def is_readable(view: View) -> bool:
    """Whether a kernel of a GPU reads rows as they are: their elements lie side by side, and
    where vectors could hold a row each begins at a vector's address."""
    size = _SIZES[view.dtype]
    if view.shape[-1] > 1 and view.strides[-1] != 1:
        return False
    if view.shape[-1] * size % _VECTOR != 0:
        return True
    steps = [step for length, step in zip(view.shape[:-1], view.strides) if length > 1]
    return all(place % _VECTOR == 0 for place in (view.pointer, *(size * step for step in steps)))


def readable(
    library: Library, arrays: Sequence[Any], views: Sequence[View], names: Sequence[str]
) -> list[View]:
    """The views that a kernel reads: on a GPU those of copies, where it can't read the arrays.

    A copy is made in each call and lives as long as its view: the arrays' values may be
    others in the next one.

    Args:
        library: the arrays'.
        arrays: of rank 4, whose last dimension is the head dim.
        views: theirs.
        names: their names, for the warning that is given once in a process.
    """
    result = list(views)
    if library.copy is None or views[0].device is None:
        return result
    for at, (array, view, name) in enumerate(zip(arrays, views, names)):
        if 0 not in view.shape and not is_readable(view):
            copied = library.copy(array)
            result[at] = library.view(copied)._replace(owner=copied)
            _note_copy(name, view)
    return result


_noted = False


def _note_copy(name: str, view: View) -> None:
    """Warns once in a process that an array is copied in each call."""
    global _noted
    if not _noted:
        _noted = True
        warnings.warn(
            f"{name} of shape {list(view.shape)} with strides {list(view.strides)} at an address "
            f"{view.pointer % _VECTOR} above a multiple of {_VECTOR} is copied in each call: a "
            f"GPU's kernel reads rows in vectors of {_VECTOR} bytes; make it contiguous once",
            stacklevel=users_level(),
        )


def check_result(view: View, name: str) -> None:
    """Raises ValueError if a kernel can't write to an array."""
    if not view.writable:
        raise ValueError(
            f"expected {name}, a result, to be writable, got a read-only array or a "
            "copy; pass one that can be written to"
        )
    if any(size > 1 and stride == 0 for size, stride in zip(view.shape, view.strides)):
        raise ValueError(
            f"expected each element of {name}, a result, at an address of its own, got "
            f"shape {list(view.shape)} with strides {list(view.strides)}; pass an array "
            "that is not broadcast"
        )
