# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training in two processes: gradients are those of one process with the whole batch."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import fa
import pytest
from libraries import DEVICE

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed"),
    pytest.mark.skipif(DEVICE != "cpu", reason="is about the CPU, of which there is one"),
]
PROCESSES = 2


class Layer(torch.nn.Module):
    """Attention with a learned score function, whose parameter is captured, not an argument."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.slopes = torch.nn.Parameter(torch.full((heads,), 0.1))

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = fa.attention(q, k, v, score_mod=fa.scores.alibi(self.slopes), is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(2))


def model_and_batch():
    torch.manual_seed(0)
    model = torch.nn.Sequential(Layer(), Layer())
    return model, torch.randn(2 * PROCESSES, 24, 32)


def gradients_of(model, batch):
    model(batch).square().mean().backward()
    return {name: x.grad for name, x in model.named_parameters()}


def check(kind: str, rank: int) -> None:
    """What each process does: its part of the batch, and the whole by itself."""
    model, batch = model_and_batch()
    expected = gradients_of(model, batch)
    model, batch = model_and_batch()
    if kind == "ddp":
        whole = torch.nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (PROCESSES,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        whole = fully_shard(model, mesh=mesh)
    for _ in range(2):  # again: what a step leaves is of no other
        whole.zero_grad()
        found = gradients_of(whole, batch.chunk(PROCESSES)[rank])
    for name, gradient in found.items():
        gradient = gradient.full_tensor() if kind == "fsdp" else gradient
        exact = expected[name.removeprefix("module.")]
        torch.testing.assert_close(gradient, exact, rtol=0, atol=1e-5 * float(exact.abs().max()))
        assert exact.abs().max() > 0, name


def main() -> None:
    kind, rank, store = sys.argv[1:]
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(rank), world_size=PROCESSES
    )
    check(kind, int(rank))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    # Not by way of the interpreter's end: threads of gloo and of autograd that want the
    # interpreter then are ended by Python up to 3.13, which some of their frames turn
    # into std::terminate, seldom and without a word of why.
    os._exit(0)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_gradients(kind, tmp_path):
    if kind == "fsdp":
        pytest.importorskip("torch.distributed.fsdp", reason="needs fully_shard")
        if not hasattr(torch.distributed.fsdp, "fully_shard"):
            pytest.skip("needs fully_shard")
    command = [sys.executable, str(pathlib.Path(__file__)), kind]
    processes = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stderr=subprocess.PIPE)
        for rank in range(PROCESSES)
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors.decode()
    finally:
        for process in processes:
            process.kill()


if __name__ == "__main__":
    main()
