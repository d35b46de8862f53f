# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks that are given block by block: fa.masks.block_sparse and its relatives."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

from fa._masks.checks import expect_array, expect_pair
from fa._run.arrays import is_recorded
from fa._trace.captured import element
from fa._trace.made import picklable
from fa._trace.trace import call_function

Mask = Callable[[Any, Any, Any, Any], Any]

_MISSING = object()
_WHOLE = 1 << 30
"""PyTorch's block size for a mask of one block, of which the lengths say nothing."""


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """The size of a block: rows and keys."""
    rows, keys = expect_pair("size", size)
    remedy = "give size as one number or as (rows, keys)"
    return _count("a block's rows", rows, remedy), _count("a block's keys", keys, remedy)


def _count(what: str, value: Any, remedy: str) -> int:
    """An integer from 1 on; raises ValueError for anything else."""
    is_integer = not isinstance(value, bool) and hasattr(value, "__index__")
    try:
        number = operator.index(value) if is_integer else 0
    except TypeError:  # an array of several, or of booleans
        number = 0
    if number < 1:
        raise ValueError(f"expected {what} to be an integer >= 1, got {value!r}; {remedy}")
    return number


def _is_boolean(array: Any) -> bool:
    return str(getattr(array, "dtype", "")).rpartition(".")[2] == "bool"


@picklable
def block_sparse(blocks: Any, size: int | tuple[int, int] = 128) -> Mask:
    """The keys of the blocks that a matrix names: blocks[i // rows, j // keys].

    Costs time in proportion to the blocks named. Blocks of 128 (D <= 128) are
    the kernel's own; smaller ones share its tiles. Rows and keys beyond the
    matrix are treated as those of its last row and column. Source: Dao et al.
    2022, "FlashAttention", Algorithm 5.

    Args:
        blocks: booleans [Nq, Nk], [H, Nq, Nk] or [B, H, Nq, Nk] on the device
            of q; a B or H of 1 stands for all.
        size: rows and keys of a block, (rows, keys) or one number for both.

    Raises:
        ValueError: a size below 1. A B or H that is another than q's is one of
            the call.
        TypeError: a matrix of another rank or type.
    """
    rows, keys = _pair(size)
    rank = getattr(blocks, "ndim", None)
    if rank not in (2, 3, 4) or not _is_boolean(blocks):
        raise TypeError(
            "expected blocks to be an array of booleans [Nq, Nk], [H, Nq, Nk] or "
            f"[B, H, Nq, Nk], got {getattr(blocks, 'dtype', type(blocks).__name__)} of shape "
            f"{list(getattr(blocks, 'shape', ()))}; convert it"
        )

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        at = (q_idx // rows, kv_idx // keys)
        if blocks.ndim > 2:
            at = (0 if blocks.shape[-3] == 1 else h, *at)
        if blocks.ndim > 3:
            at = (0 if blocks.shape[0] == 1 else b, *at)
        return element(blocks, at, "fa.masks.block_sparse")

    return seen


def check_block_mask(mask: Any, q: Any, k: Any) -> None:
    """Raises ValueError if a BlockMask was made for another call than of q and k."""
    sizes, shape = tuple(mask.kv_num_blocks.shape[:-1]), getattr(q, "shape", ())
    if len(shape) == 4 and not all([size in (1, own) for size, own in zip(sizes, shape[:2])]):
        raise ValueError(
            "expected block_mask to be for as many batch entries and heads as query, or for 1, "
            f"got {list(sizes)} for query of shape {list(shape)}; make it for these"
        )
    made = getattr(mask, "seq_lengths", None)
    if made is None or min(mask.BLOCK_SIZE) >= _WHOLE:
        return
    given = tuple([tuple(getattr(x, "shape", ()))[-2:-1] for x in (q, k)])
    if all(given) and (made[0] != given[0][0] or made[1] != given[1][0]):
        raise ValueError(
            f"block_mask was created for {made[0]} queries and {made[1]} keys, got "
            f"{given[0][0]} and {given[1][0]}; create one for these lengths"
        )


@picklable
def block_sparse_csr(
    offsets: Any, columns: Any, key_blocks: int, size: int | tuple[int, int] = 128
) -> Mask:
    """`block_sparse` by compressed rows: row n has columns[offsets[n] : offsets[n + 1]].

    The lists are read when the mask is made; later changes are not seen.

    Args:
        offsets: where each row of blocks begins, and the end, integers [Nq + 1].
        columns: the numbers of the blocks of keys, integers [offsets[-1]].
        key_blocks: Nk.
        size: as for `block_sparse`.

    Raises:
        ValueError: offsets that fall or do not span columns, or a column
            outside 0..Nk - 1.
    """
    _pair(size)
    key_blocks = _count("key_blocks", key_blocks, "give the number of blocks of keys")
    expect_array("offsets", offsets, "integers [Nq + 1]", 1)
    expect_array("columns", columns, "integers [offsets[-1]]", 1)
    if offsets.shape[0] < 1:
        raise ValueError("expected offsets [Nq + 1], got none; give at least the end")
    starts, names = offsets.tolist(), columns.tolist()
    falls = [n for n, (a, b) in enumerate(zip(starts, starts[1:])) if a > b]
    if starts[0] != 0 or starts[-1] != len(names) or falls:
        raise ValueError(
            f"expected offsets to rise from 0 to the {len(names)} columns, got {starts[0]} to "
            f"{starts[-1]}{f', falling after {falls[0]}' if falls else ''}; see scipy.sparse.csr_array"
        )
    wrong = [name for name in names if not 0 <= name < key_blocks]
    if wrong:
        raise ValueError(
            f"expected columns in 0..{key_blocks - 1}, got {wrong[0]}; key_blocks is the number of "
            "blocks of keys"
        )
    import numpy as np

    matrix = np.zeros((len(starts) - 1, key_blocks), bool)
    matrix[np.repeat(np.arange(len(starts) - 1), np.diff(starts)), names] = True
    return block_sparse(_like(offsets, matrix), size)


def _like(array: Any, matrix: Any) -> Any:
    """A NumPy matrix in the library and on the device of an array."""
    library = type(array).__module__.partition(".")[0]
    if library == "torch":
        import torch

        return torch.from_numpy(matrix).to(array.device)
    if library == "cupy":
        import cupy

        with array.device:
            return cupy.asarray(matrix)
    return matrix


def is_block_mask(mask: Any) -> bool:
    """Whether it is a BlockMask of PyTorch's FlexAttention."""
    return hasattr(mask, "kv_num_blocks") and hasattr(mask, "BLOCK_SIZE")


def _matrices(counts: Any, indices: Any, is_checked: bool) -> Any:
    """Booleans [..., Nq, Nk] from how many blocks each row has, and which.

    If `is_checked`, a number of no block is an error. The check waits for a GPU.
    """
    import torch

    size = indices.shape[-1]
    # Few operations, of which each takes microseconds: they are done in each call. One
    # column more is for what is not listed.
    places = torch.arange(size + 1, device=indices.device)
    listed = places[:size] < counts[..., None]
    if is_checked:
        fits = ((counts >= 0) & (counts <= size)).all()
        fits &= (~listed | ((indices >= 0) & (indices < size))).all()
        if not fits:
            raise ValueError(
                f"expected a BlockMask's rows to have 0 to {size} blocks, numbered 0 to "
                f"{size - 1}, got {counts.min()} to {counts.max()} blocks, numbered "
                f"{indices[listed].tolist()[:16]}; make it with create_block_mask"
            )
    columns = torch.where(listed, indices, places[size:]).clamp_(0, size)
    matrices = torch.zeros(*indices.shape[:-1], size + 1, dtype=torch.bool, device=indices.device)
    return matrices.scatter_(-1, columns, True)[..., :size]


def block_mask(mask: Any, is_checked: bool | None = None) -> Mask:
    """The mask of a BlockMask of PyTorch's FlexAttention.

    Keys of its full blocks, and of its partial blocks those that its function
    shows. `fa.attention` takes a BlockMask for `mask_mod` and calls this in each
    call; `fa.prepare(mask)` does it once.

    Args:
        mask: from `create_block_mask` or `BlockMask.from_kv_blocks`.
        is_checked: whether the numbers in its lists are looked at, which waits for a
            GPU; None to do so where they are on the CPU.

    Raises:
        TypeError: no BlockMask.
        ValueError: numbers of blocks that there are none of, if they are looked at.
    """
    if not is_block_mask(mask):
        raise TypeError(
            "expected a BlockMask of torch.nn.attention.flex_attention, got "
            f"{type(mask).__name__}; make one with create_block_mask, or pass a function as it is"
        )
    counts = mask.kv_num_blocks
    if is_checked is None:
        # Where PyTorch records what is done there are no values.
        is_checked = not is_recorded() and counts.device.type == "cpu"
    size = tuple(mask.BLOCK_SIZE)
    if mask.full_kv_num_blocks is None:
        return _partly(_matrices(counts, mask.kv_indices, is_checked), size, mask.mask_mod)
    import torch

    lists = (counts, mask.kv_indices), (mask.full_kv_num_blocks, mask.full_kv_indices)
    if lists[0][1].shape == lists[1][1].shape:
        matrices = _matrices(*map(torch.stack, zip(*lists)), is_checked)
    else:
        matrices = [_matrices(*own, is_checked) for own in lists]
    return _either(block_sparse(matrices[1], size), _partly(matrices[0], size, mask.mask_mod))


def _partly(matrix: Any, size: tuple[int, int], function: Any) -> Mask:
    """Shows keys that a function shows in the blocks of a matrix."""
    blocks = block_sparse(matrix, size)
    return blocks if _shows_all(function) else _both(blocks, function)


def _both(blocks: Mask, function: Mask) -> Mask:
    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        at = (b, h, q_idx, kv_idx)
        return blocks(*at) & call_function(function, *at)

    return seen


def _either(full: Mask, partly: Mask) -> Mask:
    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        at = (b, h, q_idx, kv_idx)
        return full(*at) | partly(*at)

    return seen


def _shows_all(function: Any) -> bool:
    """Whether it is PyTorch's placeholder in a BlockMask without a function."""
    flex = sys.modules.get("torch.nn.attention.flex_attention")
    names = ("noop_mask", "_no_mask")  # of PyTorch 2.6 on, and before
    return any([function is getattr(flex, name, _MISSING) for name in names])
