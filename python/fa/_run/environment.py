# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The one place that reads the environment."""

from __future__ import annotations

import os


def cpu_optimization() -> int:
    """How far code of the CPU target is optimized: FA_CPU_OPTIMIZE, as a C compiler's -O, or 3."""
    text = os.environ.get("FA_CPU_OPTIMIZE", "3")
    if text not in ("0", "1", "2", "3"):
        raise ValueError(
            f"expected FA_CPU_OPTIMIZE to be 0 (compiles fast), 1, 2 or 3 (runs fast), got {text!r}; "
            "unset it for 3"
        )
    return int(text)


def cpu_threads() -> int:
    """Threads of the CPU target: FA_NUM_THREADS, 0 (all) if it is not set."""
    text = os.environ.get("FA_NUM_THREADS", "0")
    try:
        threads = int(text)
    except ValueError:
        threads = -1
    if threads < 0:
        raise ValueError(
            f"expected FA_NUM_THREADS to be a number >= 0, got {text!r}; "
            "unset it for all processors"
        )
    return threads


def cuda_driver() -> str:
    """The CUDA driver's library: FA_CUDA_DRIVER, like the runtime library."""
    return os.environ.get("FA_CUDA_DRIVER") or "libcuda.so.1"


def verbose() -> bool:
    """FA_VERBOSE: whether to report compilations on stderr, like the runtime library."""
    return os.environ.get("FA_VERBOSE", "") not in ("", "0")


def gpu_target() -> str | None:
    """FA_TARGET: the target of `attention` on a GPU; the device's own if None."""
    return os.environ.get("FA_TARGET") or None
