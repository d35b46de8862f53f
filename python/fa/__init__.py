# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa: a compiler for attention.

`attention` computes softmax(scale * Q K^T) V on NumPy arrays and PyTorch CPU
tensors (compiled for the CPU) and on CUDA tensors of PyTorch and CuPy
(compiled for the GPU, launched on the caller's stream). `compile` gives the
kernel itself: its stages, PTX, HBM traffic and resources.
"""

from fa._attention import attention
from fa._kernel import Kernel, compile
from fa._native import CompileError, RunError, version

__version__ = version()
__all__ = ["CompileError", "Kernel", "RunError", "attention", "compile"]
