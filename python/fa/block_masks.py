# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks that are given block by block: fa.masks.block_sparse and its relatives."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

Mask = Callable[[Any, Any, Any, Any], Any]


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """The size of a block: rows and keys."""
    rows, keys = size if isinstance(size, tuple) else (size, size)
    for name, value in (("rows", rows), ("keys", keys)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(
                f"expected a block's {name} to be an integer >= 1, got {value!r}; "
                "give size as one number or as (rows, keys)"
            )
    return rows, keys


def _is_boolean(array: Any) -> bool:
    return str(getattr(array, "dtype", "")).rpartition(".")[2] == "bool"


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
        ValueError: a size below 1.
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
        if blocks.ndim == 2:
            return blocks[at[0], at[1]]
        head = 0 if blocks.shape[-3] == 1 else h
        if blocks.ndim == 3:
            return blocks[head, at[0], at[1]]
        return blocks[0 if blocks.shape[0] == 1 else b, head, at[0], at[1]]

    return seen


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
    if offsets.ndim != 1 or columns.ndim != 1 or offsets.shape[0] < 1:
        raise ValueError(
            f"expected offsets [Nq + 1] and columns, got shapes {list(offsets.shape)} and "
            f"{list(columns.shape)}; make a mask for each head, or use block_sparse"
        )
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


def _matrix(counts: Any, indices: Any) -> Any:
    """Booleans [B, H, Nq, Nk] from how many blocks each row has, and which."""
    import torch

    size = indices.shape[-1]
    listed = torch.arange(size, device=indices.device) < counts[..., None]
    places = torch.where(listed, indices, size).long()
    matrix = torch.zeros(*indices.shape[:-1], size + 1, dtype=torch.bool, device=indices.device)
    return matrix.scatter_(-1, places, True)[..., :size].contiguous()


_known: weakref.WeakKeyDictionary[Any, tuple[Any, Any, Mask]] = weakref.WeakKeyDictionary()
"""What a BlockMask held and at which versions, and its mask."""


def block_mask(mask: Any) -> Mask:
    """The mask of a BlockMask of PyTorch's FlexAttention.

    Keys of its full blocks, and of its partial blocks those that its function
    shows. `fa.attention` takes a BlockMask for `mask_mod` and calls this.

    Args:
        mask: from `create_block_mask` or `BlockMask.from_kv_blocks`.

    Raises:
        TypeError: no BlockMask.
    """
    if not is_block_mask(mask):
        raise TypeError(
            "expected a BlockMask of torch.nn.attention.flex_attention, got "
            f"{type(mask).__name__}; make one with create_block_mask, or pass a function as it is"
        )
    lists = (mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices)
    parts = (*lists, mask.mask_mod)
    if any(x is not None and x.is_inference() for x in lists):
        return _of_lists(*lists, mask.BLOCK_SIZE, mask.mask_mod)  # they have no version
    state = (tuple(mask.BLOCK_SIZE), *(x._version for x in lists if x is not None))
    known = _known.get(mask)
    if known is None or known[1] != state or any(x is not y for x, y in zip(known[0], parts)):
        made = _of_lists(*lists, mask.BLOCK_SIZE, mask.mask_mod)
        known = _known[mask] = (parts, state, made)
    return known[2]


def _of_lists(
    counts: Any, indices: Any, full_counts: Any, full_indices: Any, size: Any, function: Any
) -> Mask:
    """The mask of a BlockMask's lists."""
    from fa.masks import and_masks, or_masks  # which offers what is here, too

    partly = block_sparse(_matrix(counts, indices), tuple(size))
    if getattr(function, "__name__", "") not in ("noop_mask", "_no_mask"):
        partly = and_masks(partly, function)
    if full_counts is None:
        return partly
    return or_masks(block_sparse(_matrix(full_counts, full_indices), tuple(size)), partly)
