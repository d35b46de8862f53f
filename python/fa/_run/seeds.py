# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Seeds of dropout from the state of PyTorch's CUDA generators.

A CUDA generator is a seed and an offset into the random numbers that Philox makes of
it, both of which the host knows. A seed of dropout is a function of the two, and to
draw one is to move the offset on, as an operator that takes random numbers does; so
`torch.manual_seed`, a state that is set again and checkpointing's second forward give the same
one. What a draw gives is a view of a tensor of many seeds in a row: an operator of
PyTorch's for each takes the host longer than all else that dropout asks of it.
"""

from __future__ import annotations

import threading
from typing import Any

_STEP = 4
"""What offsets are multiples of: Philox makes so many numbers at once."""
_COUNT = 1 << 16
"""Seeds that are made at a time; other operators move offsets on, too."""
_LIMIT = 64
"""Streams whose seeds are kept; then all are forgotten."""

_made: dict[tuple[int, int], tuple[int, Any]] = {}
"""By device and stream the first of `_COUNT` seeds, and their tensor: it is there for what
follows on the stream that makes it."""
_lock = threading.Lock()


def seed_at(seed: int, offset: int) -> int:
    """The seed of dropout in a generator's state, in [0, 2**63).

    Neighbours of one state are others by 1, which Philox, whose key a seed is, takes to
    other numbers; seeds of a generator are mixed, so that 1, 2, 3 begin far from each other.
    Source of the mixing: Steele et al., Fast splittable pseudorandom number generators
    (2014), with the constants of Stafford's variant 13.

    Args:
        seed: the generator's, of 64 bits.
        offset: below 2**62, a multiple of 4.
    """
    bits = seed % (1 << 64)
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % (1 << 64)
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % (1 << 64)
    bits ^= bits >> 31
    return (bits >> 2) + offset // _STEP


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
    """A seed from a device's generator, which moves on; int64 without dimensions, which is
    there for what follows on the current stream.

    Args:
        torch: the module.
        device: the device, with its index.

    Returns:
        None where an operator has to draw it.
    """
    is_known = device.type == "cuda" and hasattr(torch.Generator, "get_offset")
    if not is_known or not _is_plain(torch):
        return None
    index = device.index
    generator = torch.cuda.default_generators[index]
    with _lock:
        offset = generator.get_offset()
        generator.set_offset(offset + _STEP)
    seed = seed_at(generator.initial_seed(), offset)
    where = index, torch._C._cuda_getCurrentRawStream(index)
    first, seeds = _made.get(where, (seed + 1, None))
    if not 0 <= seed - first < _COUNT:
        if len(_made) >= _LIMIT:
            _made.clear()
        first, seeds = _made[where] = seed, _make(torch, seed, device)
    return seeds.select(0, seed - first)


def _make(torch: Any, first: int, device: Any) -> Any:
    """Seeds from one on."""
    with torch.inference_mode(False):  # or gradients could not keep them
        return torch.arange(first, first + _COUNT, dtype=torch.int64, device=device)
