# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of other libraries as views: pointer, dtype, shape, strides, device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_NUMPY_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_INT_TYPES = {"int32": "i32", "int64": "i64", "bool": "i1"}
_TYPES = {**_NUMPY_TYPES, **_INT_TYPES}


@dataclass(frozen=True)
class View:
    """What a kernel needs to know of an array. Strides are in elements."""

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def native(self) -> tuple[int, str, tuple[int, ...], tuple[int, ...]]:
        return (self.pointer, self.dtype, self.shape, self.strides)


@dataclass(frozen=True)
class Library:
    """One array library: how to see its arrays, make new ones, find streams."""

    name: str
    view: Callable[[Any], View]
    empty: Callable[[Any, tuple[int, ...], str], Any]
    """(like, shape, dtype) -> an uninitialised array on `like`'s device."""
    device: Callable[[Any], int | None]
    """CUDA device index, None for the CPU."""
    stream: Callable[[int], int]
    """The caller's current stream on that device."""


def _dtype_error(array: object, dtype: object) -> TypeError:
    return TypeError(
        f"expected an array of float32, float16 or bfloat16, got {dtype} in "
        f"{type(array).__name__}; convert it first"
    )


def _numpy_view(array: np.ndarray) -> View:
    name = array.dtype.name
    if name not in _TYPES:
        raise _dtype_error(array, array.dtype)
    size = array.dtype.itemsize
    if any(stride % size for stride in array.strides):
        raise ValueError(
            f"expected strides that are multiples of the element size {size}, "
            f"got {array.strides} bytes; copy the array"
        )
    return View(
        array.__array_interface__["data"][0],
        _TYPES[name],
        array.shape,
        tuple(stride // size for stride in array.strides),
    )


def _numpy_dtype(dtype: str) -> np.dtype:
    if dtype == "bf16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype({"f32": "float32", "f16": "float16"}[dtype])


_NUMPY = Library(
    "numpy",
    _numpy_view,
    lambda like, shape, dtype: np.empty(shape, _numpy_dtype(dtype)),
    lambda array: None,
    lambda device: 0,
)


def _torch_library(torch: Any) -> Library:
    types = {
        torch.float32: "f32",
        torch.float16: "f16",
        torch.bfloat16: "bf16",
        torch.int32: "i32",
        torch.int64: "i64",
        torch.bool: "i1",
    }
    dtypes = {name: dtype for dtype, name in types.items()}

    def view(tensor: Any) -> View:
        if tensor.dtype not in types:
            raise _dtype_error(tensor, tensor.dtype)
        return View(
            tensor.data_ptr(),
            types[tensor.dtype],
            tuple(tensor.shape),
            tensor.stride(),
        )

    def device(tensor: Any) -> int | None:
        if tensor.device.type == "cpu":
            return None
        if tensor.device.type == "cuda":
            return tensor.device.index
        raise TypeError(f"expected a tensor on cpu or cuda, got {tensor.device}; move it")

    return Library(
        "torch",
        view,
        lambda like, shape, dtype: torch.empty(shape, dtype=dtypes[dtype], device=like.device),
        device,
        lambda index: torch.cuda.current_stream(index).cuda_stream,
    )


def _cuda_interface_view(array: Any) -> View:
    interface = array.__cuda_array_interface__
    dtype = np.dtype(array.dtype)
    if dtype.name not in _TYPES:
        raise _dtype_error(array, dtype)
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is None:
        strides, step = [], dtype.itemsize
        for size in reversed(shape):
            strides.insert(0, step)
            step *= size
    return View(
        interface["data"][0],
        _TYPES[dtype.name],
        shape,
        tuple(stride // dtype.itemsize for stride in strides),
    )


def _cupy_library(cupy: Any) -> Library:
    return Library(
        "cupy",
        _cuda_interface_view,
        lambda like, shape, dtype: cupy.empty(shape, _numpy_dtype(dtype)),
        lambda array: array.device.id,
        lambda index: cupy.cuda.get_current_stream().ptr,
    )


_LIBRARIES: dict[type, Library] = {np.ndarray: _NUMPY}


def library_of(array: Any) -> Library:
    """The library that an array belongs to; TypeError for one not known."""
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
        raise TypeError(
            "expected a NumPy array, a PyTorch tensor or a CuPy array, got "
            f"{type(array).__name__}; convert it, for example with "
            "numpy.asarray or torch.from_dlpack"
        )
    _LIBRARIES[type(array)] = found
    return found
