# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Seeds of dropout from PyTorch's CUDA generators.

A CUDA generator is a seed and an offset into the random numbers that Philox makes of
it, both of which the host knows. So what `torch.randint` would draw is computed here,
and written where the kernel reads it, behind what its stream has to do; the offset moves on as
by the operator, which takes the host longer than all else that dropout asks of it.
"""

from __future__ import annotations

from typing import Any

from fa import _native

_STEP = 4
"""What offsets are multiples of: Philox makes so many numbers at once."""


def _is_plain(torch: Any) -> bool:
    """Whether an operator does what it says: no mode stands in for tensors, no graph is
    captured, which draws others at each replay."""
    own = torch._C
    return not (
        own._len_torch_dispatch_stack()
        or own._are_functorch_transforms_active()
        or own._is_tracing()
        or own._cuda_isCurrentStreamCapturing()
    )


def draw(torch: Any, device: Any) -> Any:
    """The seed that `torch.randint(0, 2**63 - 1, ())` would draw from a device's generator.

    Args:
        torch: the module.
        device: the device, with its index.

    Returns:
        int64 without dimensions, there for what follows on the current stream; None where
        an operator has to draw it.
    """
    is_known = device.type == "cuda" and hasattr(torch.Generator, "get_offset")
    if not is_known or not _is_plain(torch):
        return None
    index = device.index
    generator = torch.cuda.default_generators[index]
    offset, seed = generator.get_offset(), generator.initial_seed()
    made = torch.empty((), dtype=torch.int64, device=device)
    stream = torch._C._cuda_getCurrentRawStream(index)
    if not _native.write_seed(index, stream, made.data_ptr(), seed % (1 << 64), offset):
        return None
    generator.set_offset(offset + _STEP)
    return made
