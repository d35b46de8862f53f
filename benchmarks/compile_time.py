# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Seconds from attention IR to PTX (or to a CPU program) in one process."""

from __future__ import annotations

import statistics
import sys
import time

from fa._run.config import AttentionConfig
from fa._run.kernel import Kernel


def main() -> int:
    """Prints the median and the largest of ten for each variant."""
    for target in ("sm_80", "sm_90a", "cpu"):
        for dim in (64, 128):
            ir = AttentionConfig("bf16", 16, 16, dim, dim, True, None, True).ir()
            times = []
            for _ in range(10):
                start = time.perf_counter()
                Kernel(ir, target, keep_stages=False)
                times.append(time.perf_counter() - start)
            print(
                f"{target:7} D={dim:3} causal bf16: median "
                f"{statistics.median(times) * 1e3:.0f} ms, "
                f"most {max(times) * 1e3:.0f} ms"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
