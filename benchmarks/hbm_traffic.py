# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""HBM bytes by the GPU's counters, beside what the IO model predicts.

For the standard algorithm, FlashAttention's Algorithm 1 and the fused kernel,
at one shape: bytes that DRAM moved (dram__bytes), bytes that the L2 cache
served to the SMs (lts__t_sectors), and the model's bytes, which count what
kernels ask for. What the model predicts and DRAM did not move, L2 held.
Needs Nsight Compute (ncu) and a GPU whose counters may be read.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import json
import re
import subprocess
import sys

ALGORITHMS = ("standard", "fa1", "fa2")
METRICS = {
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
    "l2_read": "lts__t_sectors_op_read.sum",
    "l2_write": "lts__t_sectors_op_write.sum",
}
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "sector": 32}


def kernel_of(algorithm: str, shape: dict[str, int]):
    """One algorithm compiled for one shape."""
    import fa
    from fa._run.config import AttentionConfig

    config = AttentionConfig("bf16", shape["H"], shape["H"], shape["D"], shape["D"])
    ir = config.ir((shape["B"], shape["N"], shape["N"]))
    return fa.compile(ir, "sm_80", algorithm=algorithm)


def run_once(algorithm: str, shape: dict[str, int]) -> None:
    """What ncu watches."""
    import torch

    kernel = kernel_of(algorithm, shape)
    q, k, v, o = (
        torch.randn(
            shape["B"],
            shape["H"],
            shape["N"],
            shape["D"],
            device="cuda",
            dtype=torch.bfloat16,
        )
        for _ in range(4)
    )
    kernel(q, k, v, o)
    torch.cuda.synchronize()


def counters(algorithm: str, args: list[str]) -> tuple[dict[str, float], int]:
    """Bytes by metric, summed over fa's kernels, and how many those were."""
    command = ["ncu", "--clock-control", "none", "--csv", "--metrics"]
    command += [",".join(METRICS.values()), "-k", "regex:attention"]
    command += [sys.executable, __file__, "--run", algorithm, *args]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [x for x in done.stdout.splitlines() if x.startswith('"')]
    if not lines:
        raise SystemExit(f"ncu gave no counters:\n{done.stdout}\n{done.stderr}")
    total = dict.fromkeys(METRICS, 0.0)
    kernels = set()
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        for name, metric in METRICS.items():
            if row["Metric Name"] == metric:
                value = float(row["Metric Value"].replace(",", ""))
                total[name] += value * UNITS[row["Metric Unit"]]
                kernels.add(row["ID"])
    return total, len(kernels)


def predicted(algorithm: str, shape: dict[str, int]) -> dict[str, int]:
    """The IO model's bytes after the last stage."""
    text = list(kernel_of(algorithm, shape).io.values())[-1]
    return {
        name: int(re.search(rf"{name}_bytes = (\d+)", text).group(1))
        for name in ("read", "write", "temp")
    }


def main() -> int:
    """Compares model and counters for the three algorithms."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("B", 4), ("H", 16), ("N", 2048), ("D", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--run", choices=ALGORITHMS)
    parser.add_argument("--out", default="")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    shape = {name: getattr(args, name) for name in "BHND"}
    if args.run:
        run_once(args.run, shape)
        return 0
    sizes = [f"--{name}={value}" for name, value in shape.items()]
    rows = []
    print(f"{shape}, bf16; MiB")
    print("algorithm kernels | model read write | L2 read write | DRAM read write")
    for algorithm in ALGORITHMS:
        model = predicted(algorithm, shape)
        seen, kernels = counters(algorithm, sizes)
        rows.append(dict(algorithm=algorithm, kernels=kernels, model=model, **seen))
        print(
            f"{algorithm:9} {kernels:7} | {model['read'] / 2**20:10.0f} "
            f"{model['write'] / 2**20:5.0f} | {seen['l2_read'] / 2**20:7.0f} "
            f"{seen['l2_write'] / 2**20:5.0f} | {seen['dram_read'] / 2**20:9.0f} "
            f"{seen['dram_write'] / 2**20:5.0f}",
            flush=True,
        )
    if args.out:
        import torch

        with open(args.out, "w") as file:
            json.dump(
                dict(
                    benchmark="hbm_traffic",
                    device=torch.cuda.get_device_name(),
                    date=datetime.date.today().isoformat(),
                    commit=args.commit,
                    shape=shape,
                    rows=rows,
                ),
                file,
                indent=1,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
