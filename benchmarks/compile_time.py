# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Seconds from attention IR to PTX (or to a CPU program) in one process."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

from fa._run.config import AttentionConfig
from fa._run.kernel import Kernel


def median_of(compile: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds: the median and the largest of ten."""
    times = []
    for _ in range(10):
        start = time.perf_counter()
        compile()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times), max(times)


def main() -> int:
    """Prints the median and the largest of ten for each variant, of the forward and its gradient."""
    os.environ["FA_CACHE"] = "0"  # or nothing would be compiled
    for target in ("sm_80", "sm_90a", "cpu"):
        for dim in (64, 128):
            ir = AttentionConfig("bf16", 16, 16, dim, dim, True, None, True).ir()
            parts = [
                median_of(partial(Kernel, ir, target, backward=backward, keep_stages=False))
                for backward in ("", "all")
            ]
            text = "; ".join(
                f"{name}: median {median:.0f} ms, most {most:.0f} ms"
                for name, (median, most) in zip(("forward", "backward"), parts)
            )
            print(f"{target:7} D={dim:3} causal bf16: {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
