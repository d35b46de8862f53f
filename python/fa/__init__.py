# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa: a compiler for attention.

`attention` computes softmax(scale * Q K^T) V with any score function and mask. It takes
arrays of NumPy, PyTorch, CuPy, JAX and of any library with DLPack or the (CUDA) array
interface, and runs on the CPU or the GPU that holds them. `compile` returns the kernel
itself, with its stages, PTX, HBM traffic and resources.
"""

import importlib as _importlib
from typing import Any as _Any

from fa import masks, math, scores
from fa._attention import attention
from fa._backward import Gradients, attention_backward
from fa._masks.prepare import prepare
from fa._native import CompileError, RunError, __version__
from fa._run.arrays import Array
from fa._run.config import AttentionConfig
from fa._run.kernel import Kernel, compile, compile_count
from fa._run.variant import Variant
from fa._trace.captured import array
from fa._trace.errors import TraceError
from fa._trace.trace import key_length, query_length, trace
from fa.varlen import attention_varlen

__all__ = [
    "Array",
    "AttentionConfig",
    "CompileError",
    "Gradients",
    "Kernel",
    "RunError",
    "TraceError",
    "Variant",
    "__version__",
    "array",
    "attention",
    "attention_backward",
    "attention_varlen",
    "compile",
    "compile_count",
    "key_length",
    "masks",
    "math",
    "prepare",
    "query_length",
    "scores",
    "trace",
]


def __getattr__(name: str) -> _Any:
    """Imports `fa.torch` and `fa.transformers`, and so these libraries, at their first use."""
    if name in ("torch", "transformers"):
        return _importlib.import_module(f"fa.{name}")
    raise AttributeError(f"module 'fa' has no attribute {name!r}")
