# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sequences of different lengths, packed one after the other, as a mask.

There is no second kernel: the packed tokens are one batch entry, and the mask gives each
query the begin and the end of its sequence's keys. The kernel does not visit blocks of keys
that no query of a block sees (fa-list-blocks). Before the kernel fa computes the number of
each query's sequence; the kernel reads begin and end from the offsets.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fa import math as _math
from fa._masks.blocks import is_block_mask
from fa._masks.prepare import Prepared
from fa._run.arrays import compute_type_of, is_compiling, is_recorded, is_torch_tensor
from fa._run.request import Request
from fa._run.variant import Traced
from fa._trace.captured import element
from fa._trace.trace import call_with_lengths, trace_functions

_READER = "fa.attention_varlen"


class Side(NamedTuple):
    """Where the sequences of queries, or of keys, lie among the tokens."""

    offsets: Any
    """Where each sequence begins, and the end, integers [N + 1]."""
    lengths: Any = None
    """How long each is, integers [N]; up to the next one if None."""


def _start(side: Side, sequence: Any) -> Any:
    """Where a sequence begins."""
    return element(side.offsets, sequence, _READER)


def _end(side: Side, sequence: Any) -> Any:
    """Where it ends."""
    if side.lengths is None:
        return element(side.offsets, sequence + 1, _READER)
    return _start(side, sequence) + element(side.lengths, sequence, _READER)


def _total(side: Side) -> Any:
    """Where the last sequence ends: a kernel loads nothing behind it into a sum."""
    return element(side.offsets, -1, _READER)


def sequences_of(offsets: Any, queries: int) -> Any:
    """Of each query [Tq] the number of its sequence, int32; any from N on behind the last one."""
    if is_torch_tensor(offsets):
        torch = sys.modules["torch"]
        at = torch.arange(queries, dtype=offsets.dtype, device=offsets.device)
        return torch.searchsorted(offsets[1:], at, right=True, out_int32=True)
    xp = _namespace(offsets)
    # Of one query where there are none: a captured array has to have elements.
    at = xp.arange(max(queries, 1), dtype=offsets.dtype)
    return xp.searchsorted(offsets[1:], at, side="right").astype("int32")


def _namespace(array: Any) -> Any:
    """The module of an array's functions, with NumPy's names."""
    name = type(array).__module__.partition(".")[0]
    if name in ("jax", "jaxlib"):
        return __import__("jax.numpy").numpy
    return sys.modules[name] if name == "cupy" else sys.modules["numpy"]


def functions(
    sides: tuple[Side, Side],
    sequence: Any,
    causal: str,
    score_mod: Callable[..., Any] | None,
    mask_mod: Callable[..., Any] | None,
) -> tuple[Callable[..., Any] | None, Callable[..., Any]]:
    """Score and mask functions of packed positions, from those of one of the sequences.

    Args:
        sides: of queries and keys.
        sequence: as `sequences_of` gives it.
        causal: the alignment of a causal mask, "top_left" or "bottom_right"; "" for none.
        score_mod: the user's, or None.
        mask_mod: likewise.
    """
    queries, keys = sides
    count = queries.offsets.shape[0] - 1

    def own_sequence(q_idx: Any) -> Any:
        own = element(sequence, q_idx, _READER)
        # Behind the last sequence: the offsets end there, the lengths do not.
        return own if queries.lengths is None else _math.minimum(own, count - 1)

    def place(q_idx: Any, kv_idx: Any) -> tuple[Any, Any, Any, tuple[Any, Any]]:
        own = own_sequence(q_idx)
        start, first = _start(queries, own), _start(keys, own)
        lengths = (_end(queries, own) - start, _end(keys, own) - first)
        return own, q_idx - start, kv_idx - first, lengths

    def mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        own, i, j, lengths = place(q_idx, kv_idx)
        seen = (kv_idx >= _start(keys, own)) & (kv_idx < _end(keys, own))
        seen = seen & (q_idx < _end(queries, own))
        # The same for all: what kernels end their loads at (fa-clip-loads).
        seen = seen & (kv_idx < _total(keys)) & (q_idx < _total(queries))
        if causal:
            shift = lengths[1] - lengths[0] if causal == "bottom_right" else 0
            seen = seen & (j <= i + shift)
        if mask_mod is None:
            return seen
        return seen & call_with_lengths(mask_mod, lengths, own, count, (own, h, i, j))

    def score(value: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        own, i, j, lengths = place(q_idx, kv_idx)
        return call_with_lengths(score_mod, lengths, own, count, (value, own, h, i, j))

    return (None if score_mod is None else score), mask


def request(
    tensors: tuple[Any, Any, Any],
    sides: tuple[Side, Side],
    functions_of_one: tuple[Callable[..., Any] | None, Callable[..., Any] | None],
    causal: str,
    prepared: Prepared | None = None,
) -> Request:
    """Attention of packed sequences as a request of one batch entry.

    Args:
        tensors: q, k and v [T, H, D].
        sides: of queries and keys.
        functions_of_one: score_mod and mask_mod.
        causal: as for `functions`.
        prepared: the offsets, if their values are promised to stay.
    """
    q = tensors[0]
    queries = q.shape[0]
    if prepared is None:
        sequence = sequences_of(sides[0].offsets, queries)
    else:
        sequence = prepared.bounds.get(queries)
        if sequence is None:
            sequence = sequences_of(sides[0].offsets, queries)
            prepared.bounds[queries] = sequence
    score_mod, mask_mod = functions(sides, sequence, causal, *functions_of_one)
    views = map(swapped, tensors)
    if prepared is None:
        return Request(*views, score_mod=score_mod, mask_mod=mask_mod)
    if functions_of_one == (None, None) and not is_compiling():
        traced = _traced_once(prepared, sides[1], causal, mask_mod, q)
        return Request(*views, traced=traced, prepared=prepared.lists)
    return Request(*views, score_mod=score_mod, mask_mod=mask_mod, prepared=prepared.lists)


def _traced_once(prepared: Prepared, keys: Side, causal: str, mask: Any, q: Any) -> Traced:
    """The mask of packed sequences alone, which prepared offsets keep."""
    kind = (q.shape[0], causal, is_torch_tensor(q), compute_type_of(q))
    found = prepared.bounds.get(kind)
    if found is None or found[0] is not keys.offsets:
        found = keys.offsets, trace_functions(None, mask, *kind[2:])
        prepared.bounds[kind] = found
    return found[1]


def without_tail(tensors: tuple[Any, Any, Any], sides: tuple[Side, Side]) -> tuple[Any, Any, Any]:
    """q, k and v [T, H, D] without memory behind the last sequence, on a CPU.

    This memory belongs to nobody and may hold NaN. The call slices the arrays if it can read the
    offsets. Where PyTorch records operations, it clears the tokens. Kernels of GPUs end their loads
    themselves (fa-clip-loads): the values of their offsets are on the device.
    """
    q, k, v = tensors
    if not all(map(_is_on_cpu, (q, k, v, *(side.offsets for side in sides)))):
        return tensors
    if is_torch_tensor(q) and is_recorded():
        return tuple(cleared(x, sides[n > 0]) for n, x in enumerate(tensors))
    ends = [int(side.offsets[-1]) for side in sides]
    # One row at least: an array without rows has no memory.
    rows, keys = (min(max(end, 1), x.shape[0]) for end, x in zip(ends, (q, k)))
    if (rows, keys) == (q.shape[0], k.shape[0]):
        return tensors
    return q[:rows], k[:keys], v[:keys]


def with_tail(result: Any, side: Side, rows: int) -> Any:
    """The results of a call `without_tail` for all tokens: out [T, H, Dv] with 0 behind the
    queries' last sequence, or the log-sum-exp [H, T] with -inf."""
    axis, value = (0, 0.0) if result.ndim == 3 else (1, -math.inf)
    missing = rows - result.shape[axis]
    if not missing:
        is_cleared = axis == 0 and is_torch_tensor(result) and _is_on_cpu(result) and is_recorded()
        # So that the gradient behind is 0, whatever is given.
        return cleared(result, side) if is_cleared else result
    shape = list(result.shape)
    shape[axis] = missing
    if is_torch_tensor(result):
        return sys.modules["torch"].cat([result, result.new_full(shape, value)], axis)
    xp = _namespace(result)
    return xp.concatenate([result, xp.full(shape, value, result.dtype)], axis)


def cleared(tokens: Any, side: Side) -> Any:
    """A tensor of PyTorch [T, H, D] with 0 in the tokens that belong to no sequence."""
    torch = sys.modules["torch"]
    count, offsets = tokens.shape[0], side.offsets
    place = torch.arange(count, device=tokens.device)
    is_own = place < offsets[-1]
    if side.lengths is not None:
        own = sequences_of(offsets, count).clamp(max=side.lengths.shape[0] - 1).long()
        is_own = is_own & (place - offsets[own] < side.lengths[own])
    return torch.where(is_own[:, None, None], tokens, tokens.new_zeros(()))


def _is_on_cpu(array: Any) -> bool:
    """Whether an array is NumPy's, or a tensor of PyTorch on a CPU."""
    if is_torch_tensor(array):
        return array.device.type == "cpu"
    return isinstance(array, np.ndarray)


def swapped(array: Any) -> Any:
    """[S, H, D] as [1, H, S, D] and back, a view."""
    if is_torch_tensor(array):
        if array.ndim == 4:
            return array.squeeze(0).transpose(0, 1)
        return array.transpose(0, 1).unsqueeze(0)
    return array[0].swapaxes(0, 1) if array.ndim == 4 else array.swapaxes(0, 1)[None]


def refuse_block_mask(mask_mod: Any) -> None:
    """Raises TypeError if a mask of packed sequences is a BlockMask."""
    if is_block_mask(mask_mod.origin if isinstance(mask_mod, Prepared) else mask_mod):
        raise TypeError(
            "expected mask_mod to be a function, got a BlockMask, whose blocks are not of one "
            "sequence; pass its mask_mod, or fa.masks.block_sparse"
        )
