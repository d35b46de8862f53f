# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of sequences of different lengths, packed one after the other.

There is no second kernel: the packed tokens are one batch entry, and the mask
says for each query where its sequence's keys begin and end. Blocks of keys that
no query of a block sees are not visited (fa-list-blocks).
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from fa._api import attention
from fa._config import reuses_lists
from fa._trace import call_with_lengths
from fa.block_masks import is_block_mask

_ALIGNMENTS = ("top_left", "bottom_right")


class _Bounds(NamedTuple):
    """Of each query [Tq]: its sequence, where that begins, and the keys it sees."""

    sequence: Any
    query_start: Any
    first: Any
    end: Any
    query_length: Any
    key_length: Any


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _bounds(starts: tuple[Any, Any], ends: tuple[Any, Any], queries: int, causal: str) -> _Bounds:
    """The bounds from where each sequence's queries and keys begin and end [N]."""
    (query_start, key_start), (query_end, key_end) = starts, ends
    count = query_start.shape[0]
    if _is_torch(query_start):
        xp = sys.modules["torch"]
        at = xp.arange(queries, dtype=query_start.dtype, device=query_start.device)
        sequence = xp.searchsorted(query_end, at, right=True).clamp(max=count - 1)
    else:
        xp = _namespace(query_start)
        # Of one query where there are none: a captured array has to have elements.
        at = xp.arange(max(queries, 1), dtype=query_start.dtype)
        sequence = xp.minimum(xp.searchsorted(query_end, at, side="right"), count - 1)
    own_start, first, last = query_start[sequence], key_start[sequence], key_end[sequence]
    own_end = query_end[sequence]
    query_length, key_length = own_end - own_start, last - first
    end = last
    if causal:
        shift = key_length - query_length if causal == "bottom_right" else 0
        end = xp.minimum(last, first + (at - own_start) + shift + 1)
    # Between the sequences nothing is seen.
    end = xp.where((at >= own_start) & (at < own_end), end, first)
    arrays = (sequence, own_start, first, end, query_length, key_length)
    return _Bounds(*(_int32(array) for array in arrays))


def _int32(array: Any) -> Any:
    return array.int() if _is_torch(array) else array.astype("int32")


def _namespace(array: Any) -> Any:
    """The module of an array's functions, with NumPy's names."""
    name = type(array).__module__.partition(".")[0]
    if name in ("jax", "jaxlib"):
        return __import__("jax.numpy").numpy
    return sys.modules[name] if name == "cupy" else sys.modules["numpy"]


_MOST = 64
"""Bounds kept; then all are forgotten. They go with the offsets, too."""

_known: dict[tuple[Any, ...], tuple[Any, ...]] = {}
"""(state, bounds, weak references to the offsets) of offsets: layers share them."""


def _is_known(torch: Any, arrays: tuple[Any, ...]) -> bool:
    """Whether bounds of these may be used again: PyTorch sees what changes them."""
    if torch is None or any(type(array) is not torch.Tensor for array in arrays):
        return False
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return False
    # A CUDA graph has to see what changes between its replays.
    return not (arrays[0].is_cuda and torch.cuda.is_current_stream_capturing())


def _known_bounds(arrays: tuple[Any, ...], make: Callable[[], _Bounds], key: Any) -> _Bounds:
    """The bounds made of PyTorch's tensors, again while these do not change."""
    torch = sys.modules.get("torch")
    if not _is_known(torch, arrays) or not reuses_lists():
        return make()
    try:
        state = tuple([array._version for array in arrays])
    except RuntimeError:  # inference tensors have no version
        return make()
    device = arrays[0].device
    # On another stream they might be read before they are there.
    stream = torch._C._cuda_getCurrentRawStream(device.index) if device.type == "cuda" else None
    key = (*map(id, arrays), stream, *key)
    found = _known.get(key)
    if found is not None and found[0] == state and all(map(_refers, found[2], arrays)):
        return found[1]
    with torch.inference_mode(False):  # a later call may record gradients
        bounds = make()
    if len(_known) >= _MOST:
        _known.clear()
    forget = functools.partial(_forget, key)
    _known[key] = (state, bounds, tuple([weakref.ref(array, forget) for array in arrays]))
    return bounds


def _refers(reference: Any, array: Any) -> bool:
    return reference() is array


def _forget(key: tuple[Any, ...], _: Any) -> None:
    _known.pop(key, None)


def _check_offsets(name: str, offsets: Any, like: Any) -> None:
    dtype = str(getattr(offsets, "dtype", "")).rpartition(".")[2]
    if getattr(offsets, "ndim", None) != 1 or dtype not in ("int32", "int64"):
        raise TypeError(
            f"expected {name} to be integers (int32 or int64) [N + 1], got "
            f"{dtype or type(offsets).__name__} of shape {list(getattr(offsets, 'shape', ()))}; "
            "give where each sequence begins, and the end"
        )
    if offsets.shape[0] < 2:
        raise ValueError(
            f"expected {name} of at least one sequence, two offsets, got {offsets.shape[0]}; "
            "give where each sequence begins, and the end"
        )
    if like is None:
        return
    if _is_torch(offsets) != _is_torch(like):
        raise TypeError(
            f"expected {name} of the same library as cu_seqlens_q, got {type(offsets).__name__} "
            f"and {type(like).__name__}; convert one"
        )
    if offsets.shape != like.shape:
        raise ValueError(
            f"expected {name} of as many sequences as cu_seqlens_q, got shapes "
            f"{list(offsets.shape)} and {list(like.shape)}; pack as many of each"
        )


def _masks(
    bounds: _Bounds,
    sequences: int,
    score_mod: Callable[..., Any] | None,
    mask_mod: Callable[..., Any] | None,
) -> tuple[Callable[..., Any] | None, Callable[..., Any]]:
    """The functions on packed positions, of those within one of the sequences."""
    sequence, query_start, first, end, query_length, key_length = bounds

    def inside(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (kv_idx >= first[q_idx]) & (kv_idx < end[q_idx])

    def mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        i, j = q_idx - query_start[q_idx], kv_idx - first[q_idx]
        lengths = (query_length[q_idx], key_length[q_idx])
        own = sequence[q_idx]
        seen = call_with_lengths(mask_mod, lengths, own, sequences, (own, h, i, j))
        return (kv_idx >= first[q_idx]) & (kv_idx < end[q_idx]) & seen

    def score(value: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        i, j = q_idx - query_start[q_idx], kv_idx - first[q_idx]
        lengths = (query_length[q_idx], key_length[q_idx])
        own = sequence[q_idx]
        return call_with_lengths(score_mod, lengths, own, sequences, (value, own, h, i, j))

    return (None if score_mod is None else score), (inside if mask_mod is None else mask)


def _swapped(array: Any) -> Any:
    """[S, H, D] as [1, H, S, D] and back, a view."""
    if _is_torch(array):
        if array.ndim == 4:
            return array.squeeze(0).transpose(0, 1)
        return array.transpose(0, 1).unsqueeze(0)
    return array[0].swapaxes(0, 1) if array.ndim == 4 else array.swapaxes(0, 1)[None]


def attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any = None,
    *,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    is_causal: bool = False,
    alignment: str = "top_left",
    scale: float | None = None,
    return_lse: bool = False,
    dropout_p: float = 0.0,
    dropout_seed: Any = None,
) -> Any:
    """`fa.attention` of N sequences of different lengths, packed without padding.

    Sequence n has queries cu_seqlens_q[n] to cu_seqlens_q[n + 1] and keys
    cu_seqlens_k[n] to cu_seqlens_k[n + 1]; either may be empty. A query sees
    keys of its own sequence. No length is part of the kernel.

    Args:
        q: queries [Tq, Hq, D], of an array library that `fa.attention` takes.
        k: keys [Tk, Hk, D].
        v: values [Tk, Hk, Dv].
        cu_seqlens_q: offsets of the queries, int32 or int64 [N + 1], rising from
            0, on the device of q. Queries behind the last offset get 0.
        cu_seqlens_k: offsets of the keys; those of the queries if None.
        score_mod: as for `fa.attention`, called with b the number of the
            sequence, and q_idx and kv_idx counted from the sequence's start.
        mask_mod: likewise. `fa.query_length()` and `fa.key_length()` are the
            sequence's.
        is_causal: query i of a sequence sees its keys j <= i.
        alignment: of is_causal where a sequence has not as many keys as
            queries: "top_left", j <= i, or "bottom_right", j - keys <= i -
            queries (FlashAttention from version 2.1 on).
        scale: factor of the scores; 1/sqrt(D) if None.
        return_lse: also return the log-sum-exp.
        dropout_p: as for `fa.attention`. What is dropped of a sequence depends on
            where it lies among the others.
        dropout_seed: likewise.

    Returns:
        out [Tq, Hq, Dv], or (out, lse) with lse [Hq, Tq] in float32. In memory
        the heads of out come first: it is a view of [Hq, Tq, Dv].

    Raises:
        ValueError, TypeError, TraceError: as `fa.attention`, and for offsets of
            another shape, type or device. Their values are not looked at:
            wrong ones give wrong results, of the tokens that there are.
        NotImplementedError: score_mod or mask_mod under torch.compile.

    On PyTorch's tensors what is computed of the offsets is kept until PyTorch
    changes them; what others write into their memory is not noticed, unless
    FA_REUSE_LISTS=0 is set. Source: Dao 2023, FlashAttention-2 (its interface for
    variable lengths).
    """
    if alignment not in _ALIGNMENTS:
        raise ValueError(
            f"expected alignment to be one of {', '.join(_ALIGNMENTS)}, got {alignment!r}; "
            "choose one"
        )
    for name, array in (("q", q), ("k", k), ("v", v)):
        if getattr(array, "ndim", None) != 3:
            raise ValueError(
                f"expected {name} of rank 3 [tokens, heads, dim], got shape "
                f"{list(getattr(array, 'shape', ()))}; pack the sequences one after the other"
            )
    _check_offsets("cu_seqlens_q", cu_seqlens_q, None)
    if cu_seqlens_k is None:
        cu_seqlens_k = cu_seqlens_q
    elif cu_seqlens_k is not cu_seqlens_q:
        _check_offsets("cu_seqlens_k", cu_seqlens_k, cu_seqlens_q)
    if _is_torch(q) and _is_torch(cu_seqlens_q):
        for name, offsets in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
            if offsets.device != q.device:
                raise ValueError(
                    f"expected {name} on the device of q, got {offsets.device} and {q.device}; "
                    "move it there"
                )
    if mask_mod is not None:
        refuse_block_mask(mask_mod)
    return _attend(
        (q, k, v),
        lambda: (
            (cu_seqlens_q[:-1], cu_seqlens_k[:-1]),
            (cu_seqlens_q[1:], cu_seqlens_k[1:]),
        ),
        (cu_seqlens_q, cu_seqlens_k),
        (score_mod, mask_mod),
        alignment if is_causal else "",
        scale,
        return_lse,
        (dropout_p, dropout_seed),
    )


def refuse_block_mask(mask_mod: Any) -> None:
    """Raises TypeError if a mask of packed sequences is a BlockMask."""
    if is_block_mask(mask_mod):
        raise TypeError(
            "expected mask_mod to be a function, got a BlockMask, whose blocks are not of one "
            "sequence; pass its mask_mod, or fa.masks.block_sparse"
        )


def _attend(
    tensors: tuple[Any, Any, Any],
    limits: Callable[[], tuple[tuple[Any, Any], tuple[Any, Any]]],
    origins: tuple[Any, ...],
    functions: tuple[Callable[..., Any] | None, Callable[..., Any] | None],
    causal: str,
    scale: float | None,
    return_lse: bool,
    dropout: tuple[float, Any],
) -> Any:
    """Attention of packed sequences.

    Args:
        tensors: q, k and v [T, H, D].
        limits: gives (where queries and keys begin, where they end), each [N].
        origins: what those are made of; the first has one element more than N.
        functions: score_mod and mask_mod.
        causal: the alignment, empty for none.
        scale, return_lse: as for `fa.attention`.
        dropout: its dropout_p and dropout_seed.
    """
    q, k, v = tensors
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_dynamo_compiling():
        if functions != (None, None):
            from fa import _torch_nested

            _torch_nested.refuse_functions()
    elif torch is not None and isinstance(q, torch.Tensor):
        from fa import _torch_op

        _torch_op.refuse_transforms(*tensors)  # before offsets are read
    queries = q.shape[0]
    bounds = _known_bounds(origins, lambda: _bounds(*limits(), queries, causal), (queries, causal))
    score, mask = _masks(bounds, origins[0].shape[0] - 1, *functions)
    result = attention(
        *map(_swapped, tensors),
        score_mod=score,
        mask_mod=mask,
        scale=scale,
        return_lse=return_lse,
        dropout_p=dropout[0],
        dropout_seed=dropout[1],
    )
    if return_lse:
        return _swapped(result[0]), result[1][0]
    return _swapped(result)
