# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa: a compiler for attention.

`attention` computes softmax(scale * Q K^T) V on arrays of NumPy, PyTorch, CuPy
and of any library that speaks DLPack or the (CUDA) array interface: on the CPU
or on the GPU, where the arrays are. `compile` gives the kernel itself: its
stages, PTX, HBM traffic and resources.
"""

from fa import masks, math, scores
from fa._api import attention
from fa._arrays import Array
from fa._config import AttentionConfig
from fa._kernel import Kernel, compile, compile_count
from fa._native import CompileError, RunError, __version__
from fa._scalars import TraceError
from fa._trace import key_length, query_length, trace
from fa._variant import Variant
from fa.varlen import attention_varlen

__all__ = [
    "Array",
    "AttentionConfig",
    "CompileError",
    "Kernel",
    "RunError",
    "TraceError",
    "Variant",
    "__version__",
    "attention",
    "attention_varlen",
    "compile",
    "compile_count",
    "key_length",
    "masks",
    "math",
    "query_length",
    "scores",
    "trace",
]
