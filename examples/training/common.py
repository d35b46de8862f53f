# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the examples share: the rule of what is right, peak memory, JSON and plots."""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import pathlib
import platform
import re
import sys
from collections.abc import Sequence
from typing import Any

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from timing import output_of  # noqa: E402

ERRORS, FLOOR = 3.0, 1e-5
"""The rule of gradients in docs/right.md: how many times the plain formula's error in the
same type is allowed, and what is allowed beside it, as a share of the reference."""

LABELS = {
    "fa": "fa",
    "fa packed": "fa, packed",
    "eager": "eager",
    "sdpa": "SDPA",
    "cudnn": "SDPA, cuDNN",
    "fa2": "SDPA, FlashAttention-2",
    "fa2 packed": "FlashAttention-2, packed",
    "efficient": "SDPA, memory-efficient",
    "flex": "FlexAttention",
}
"""What plots call the implementations of attention."""
COLORS = dict(
    zip(
        LABELS,
        "#d1495b #e8919c #2e4057 #7a9cc6 #66a182 #8d96a3 #bcc2cb #edae49 #b8a1cf".split(),
    )
)


def limit(naive_error: float, size: float = 1.0) -> float:
    """How far a result may be from its reference.

    Args:
        naive_error: how far the plain formula's result in the same type is from it.
        size: the reference's largest magnitude.
    """
    return ERRORS * naive_error + FLOOR * size


def parser(doc: str | None, name: str) -> argparse.ArgumentParser:
    """The options that all examples have: --out, --plot and --seed."""
    options = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--out",
        type=pathlib.Path,
        default=ROOT / "out" / f"{name}.json",
        help=f"JSON to write (out/{name}.json)",
    )
    options.add_argument(
        "--plot", type=pathlib.Path, help="plot to write, .png or .svg (beside the JSON, .png)"
    )
    options.add_argument("--seed", type=int, default=0, help="of weights and data (0)")
    return options


def default_device() -> str:
    """ "cuda" where PyTorch finds a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def require(device: str) -> None:
    """Raises SystemExit where PyTorch has no such device."""
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            "expected a GPU that PyTorch can use for --device cuda, got none; give --device cpu, "
            "or install a PyTorch with CUDA and NVIDIA's driver"
        )


def provenance(device: str) -> dict[str, Any]:
    """Where and when a result was measured, and of what."""
    import fa

    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = output_of(command).splitlines() if device == "cuda" else []
    return dict(
        device=torch.cuda.get_device_name() if device == "cuda" else _processor(),
        driver=driver[0] if driver else "",
        torch=torch.__version__,
        fa=fa.__version__,
        commit=output_of(["git", "rev-parse", "--short", "HEAD"]),
        date=datetime.date.today().isoformat(),
    )


def _processor() -> str:
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^model name\s*: (.*)$", text, re.M)
    return f"CPU: {found[1] if found else platform.machine()}, {torch.get_num_threads()} threads"


class PeakMemory:
    """The most GPU memory that was in use since `reset`, in bytes.

    `torch.cuda.max_memory_allocated` counts what PyTorch's allocator gave. Temporary
    arrays of fa's kernels come from the driver's stream-ordered allocator
    (cuMemAllocAsync) and are not in that number, so that pool's own high-water mark is
    added. The two marks need not be of the same moment: the sum is an upper bound.
    """

    _USED_NOW, _USED_HIGH = 7, 8  # CUmemPool_attribute

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._pool = ctypes.c_void_p()
        torch.cuda.synchronize()
        self._call("cuDeviceGetMemPool", ctypes.byref(self._pool), torch.cuda.current_device())

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"expected {name} to succeed, got CUresult {status}")

    def _of_pool(self, attribute: int) -> int:
        value = ctypes.c_uint64()
        self._call("cuMemPoolGetAttribute", self._pool, attribute, ctypes.byref(value))
        return value.value

    def reset(self) -> None:
        """Begins to count, from what is in use now."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        zero = ctypes.c_uint64(0)  # the only value that may be set
        self._call("cuMemPoolSetAttribute", self._pool, self._USED_HIGH, ctypes.byref(zero))

    def now(self) -> int:
        """What is in use."""
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated() + self._of_pool(self._USED_NOW)

    def bytes(self) -> int:
        """The peak."""
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() + self._of_pool(self._USED_HIGH)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is used up, PyTorch's or the driver's."""
    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in text


def first_line(error: BaseException) -> str:
    """What an error says, in a line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def write(path: pathlib.Path, result: dict[str, Any]) -> None:
    """Writes a result as JSON, which has no infinity and no NaN: these become text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_plain(result), indent=1, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    return value


def axes(count: int, title: str) -> tuple[Any, Sequence[Any]]:
    """A figure with `count` panels in a row."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, count, figsize=(5.6 * count, 4.2), squeeze=False)
    figure.suptitle(title, fontsize=11)
    return figure, panels[0]


def save(figure: Any, path: pathlib.Path) -> None:
    """Writes a figure and forgets it."""
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def keep(args: argparse.Namespace, result: dict[str, Any], plot: Any) -> str:
    """Writes the JSON and, where matplotlib is installed, the plot: plot(result, path).

    Returns:
        what was written, in words.
    """
    write(args.out, result)
    path = args.plot or args.out.with_suffix(".png")
    try:
        plot(result, path)
    except ImportError as error:
        return f"wrote {args.out}, no plot: {error}; pip install matplotlib"
    return f"wrote {args.out} and {path}"
