# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forward and backward on the CPU against PyTorch's own, interleaved, one thread.

Kinds of calls are those of the table in fa._torch.sdpa (`_ON_CPUS`), which rests on this: fused
kernels (full, causal), masks and additions that are read (bool, float), a learned addition and
dropout, for which PyTorch writes the matrix of scores, mask functions (padding, window), of
which PyTorch is given the matrix, and softcap, written out in PyTorch.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import pathlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("FA_NUM_THREADS", "1")

import fa  # noqa: E402
import fa.torch  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from cpu_forward import processor, race  # noqa: E402

KINDS = ("full", "causal", "bool", "float", "learned", "dropout", "padding", "window", "softcap")
BATCH, HEADS = 1, 4


def contenders(kind: str, q: Any, k: Any, v: Any) -> tuple[list[Any], dict[str, Callable[[], Any]]]:
    """What is differentiated with respect to, and the calls."""
    length, dtype = q.shape[2], q.dtype
    i, j = torch.arange(length)[:, None], torch.arange(length)[None]
    causal = j <= i
    if kind in ("padding", "window", "softcap"):
        seen = torch.arange(length)[None] < length - length // 4
        functions = {
            "padding": lambda b, h, i, j: (j <= i) & seen[b, j],
            "window": lambda b, h, i, j: (j <= i) & (i - j < length // 4),
        }
        matrices = {"padding": causal & seen, "window": causal & (i - j < length // 4)}
        if kind in functions:
            matrix = matrices[kind][None, None]
            return [q, k, v], {
                "fa": lambda: fa.attention(q, k, v, mask_mod=functions[kind]),
                "torch": lambda: F.scaled_dot_product_attention(q, k, v, matrix),
            }
        softcap = fa.scores.softcap(2.0)

        def written() -> Any:
            scores = 2.0 * torch.tanh(q @ k.mT * q.shape[3] ** -0.5 / 2.0)
            scores = scores.masked_fill(~causal, torch.finfo(dtype).min)
            return torch.softmax(scores, -1, dtype=torch.float32).to(dtype) @ v

        own = {"score_mod": softcap, "is_causal": True}
        return [q, k, v], {"fa": lambda: fa.attention(q, k, v, **own), "torch": written}
    options: dict[str, Any] = {
        "full": {},
        "causal": {"is_causal": True},
        "bool": {"attn_mask": torch.rand(1, 1, length, length) < 0.8},
        "float": {"attn_mask": torch.randn(1, 1, length, length, dtype=dtype)},
        "learned": {"attn_mask": torch.randn(1, HEADS, length, length, dtype=dtype)},
        "dropout": {"dropout_p": 0.1},
    }[kind]
    learned = [options["attn_mask"].requires_grad_()] if kind == "learned" else []
    return [q, k, v, *learned], {
        "fa": lambda: fa.torch.sdpa(q, k, v, **options),
        "torch": lambda: F.scaled_dot_product_attention(q, k, v, **options),
    }


def differentiate(call: Callable[[], Any], leaves: list[Any], grad: Any) -> None:
    """Forward and backward of a call."""
    torch.autograd.grad(call(), leaves, grad)


def main() -> None:
    """Races every kind at every type, head dim and length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 1024, 2048])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float16", "bfloat16"])
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.6, help="for each row of the table")
    parser.add_argument("--out", default="")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for dtype, dim, kind, length in itertools.product(
        args.dtypes, (64, 128), args.kinds, args.lengths
    ):
        shape = (BATCH, HEADS, length, dim)
        q, k, v = (torch.randn(shape, dtype=getattr(torch, dtype)) for _ in range(3))
        leaves, calls = contenders(kind, *(x.requires_grad_() for x in (q, k, v)))
        grad = torch.randn(shape, dtype=q.dtype)
        # The thread's own time, since a machine may be shared. Autograd runs nodes of the CPU on
        # the thread that asks.
        gradients = {
            name: partial(differentiate, call, leaves, grad) for name, call in calls.items()
        }
        median = race(gradients, args.repeats, args.seconds, time.thread_time)
        ratio = median["torch"] / median["fa"]
        rows.append(
            dict(dtype=dtype, dim=dim, kind=kind, length=length, seconds=median, ratio=ratio)
        )
        print(
            f"{dtype:8} D={dim:3} {kind:8} S={length:4}: fa {1e3 * median['fa']:8.2f} ms, "
            f"torch {1e3 * median['torch']:8.2f} ms, ratio {ratio:.2f}",
            flush=True,
        )
    if args.out:
        result = dict(
            benchmark="cpu_training",
            machine=processor(),
            torch=torch.__version__,
            threads=1,
            clock="thread_time",
            shape=[BATCH, HEADS],
            date=datetime.date.today().isoformat(),
            commit=args.commit,
            rows=rows,
        )
        pathlib.Path(args.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
