# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`fa.attention_varlen`: sequences of different lengths, packed one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fa._attention import unknown_keywords
from fa._masks import packed
from fa._masks.packed import Side, swapped
from fa._masks.prepare import Prepared, unprepared
from fa._run.arrays import is_compiling, is_torch_tensor
from fa._ways import answer

_ALIGNMENTS = ("top_left", "bottom_right")


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
    if is_torch_tensor(offsets) != is_torch_tensor(like):
        raise TypeError(
            f"expected {name} of the same library as cu_seqlens_q, got {type(offsets).__name__} "
            f"and {type(like).__name__}; convert one"
        )
    if offsets.shape != like.shape:
        raise ValueError(
            f"expected {name} of as many sequences as cu_seqlens_q, got shapes "
            f"{list(offsets.shape)} and {list(like.shape)}; pack as many of each"
        )


def attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any = None,
    *others: Any,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    is_causal: bool = False,
    alignment: str = "top_left",
    scale: float | None = None,
    return_lse: bool = False,
    dropout_p: float = 0.0,
    dropout_seed: Any = None,
    **unknown: Any,
) -> Any:
    """`fa.attention` of N sequences of different lengths, packed without padding.

    Sequence n has queries cu_seqlens_q[n] to cu_seqlens_q[n + 1] and keys
    cu_seqlens_k[n] to cu_seqlens_k[n + 1], without the ends; either may be empty. A query
    sees only keys of its own sequence. Lengths are no part of the kernel.

    Args:
        q: queries [Tq, Hq, D], of an array library that `fa.attention` takes.
        k: keys [Tk, Hk, D].
        v: values [Tk, Hk, Dv].
        cu_seqlens_q: offsets of the queries in tokens, int32 or int64 [N + 1], rising from
            0, on the device of q; or the result of `fa.prepare` for them. Queries behind
            the last offset get 0.
        cu_seqlens_k: offsets of the keys, likewise; those of the queries if None.
        others: a sixth positional argument is a TypeError. Other libraries take the
            largest lengths there.
        score_mod: as for `fa.attention`. b is the number of the sequence, and q_idx and
            kv_idx count from the sequence's start.
        mask_mod: likewise. `fa.query_length()` and `fa.key_length()` are the lengths of the
            sequence.
        is_causal: query i of a sequence sees its keys j <= i.
        alignment: of is_causal if a sequence has other numbers of queries and keys:
            "top_left", j <= i, or "bottom_right", j - keys <= i - queries (FlashAttention
            from version 2.1 on).
        scale: factor of the products; 1/sqrt(D) if None.
        return_lse: also return the log-sum-exp.
        dropout_p: as for `fa.attention`. The dropped weights of a sequence depend on its
            place in the packing.
        dropout_seed: likewise.
        unknown: any other keyword is a TypeError that names the right one.

    Returns:
        out [Tq, Hq, Dv] in q's type, or (out, lse) with lse [Hq, Tq] in float32 (float64 if
        q is). For tensors of PyTorch out lies in memory as q does; for other arrays it is a
        view of [Hq, Tq, Dv].

    Raises:
        ValueError, TypeError, TraceError: as `fa.attention`, and for offsets of another
            shape, type or device. Values of offsets are not checked: wrong ones give wrong
            results but read only inside q, k and v.
        NotImplementedError: score_mod or mask_mod under torch.compile.

    Each call computes the bounds of the sequences from the offsets. `fa.prepare(offsets)`
    computes them once, for layers that share them. Source: Dao 2023, FlashAttention-2 (its
    interface for variable lengths).
    """
    if others:
        raise TypeError(
            f"expected at most 5 positional arguments of fa.attention_varlen, got {5 + len(others)}; "
            "leave out the largest lengths (max_seqlen_q, max_seqlen_k), which no kernel needs, and "
            "give all else by keyword"
        )
    if unknown:
        raise unknown_keywords(unknown, "fa.attention_varlen")
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
    cu_seqlens_k = cu_seqlens_q if cu_seqlens_k is None else cu_seqlens_k
    offsets = unprepared(cu_seqlens_q), unprepared(cu_seqlens_k)
    _check_offsets("cu_seqlens_q", offsets[0], None)
    if offsets[1] is not offsets[0]:
        _check_offsets("cu_seqlens_k", offsets[1], offsets[0])
    if is_torch_tensor(q) and is_torch_tensor(offsets[0]):
        for name, given in zip(("cu_seqlens_q", "cu_seqlens_k"), offsets):
            if given.device != q.device:
                raise ValueError(
                    f"expected {name} on the device of q, got {given.device} and {q.device}; "
                    "move it there"
                )
    if mask_mod is not None:
        packed.refuse_block_mask(mask_mod)
    if is_compiling() and (score_mod is not None or mask_mod is not None):
        from fa._torch import nested

        nested.refuse_functions()
    if is_torch_tensor(q) and not is_compiling():
        from fa._torch import op

        op.refuse_transforms(q, k, v)  # before offsets are read
    is_prepared = isinstance(cu_seqlens_q, Prepared) and isinstance(cu_seqlens_k, Prepared)
    sides = Side(offsets[0]), Side(offsets[1])
    request = packed.request(
        packed.without_tail((q, k, v), sides),
        sides,
        (score_mod, mask_mod),
        alignment if is_causal else "",
        cu_seqlens_q if is_prepared else None,
    )
    result = answer(
        request._replace(
            scale=scale, return_lse=return_lse, dropout_p=dropout_p, dropout_seed=dropout_seed
        )
    )
    rows = q.shape[0]
    if return_lse:
        out, lse = swapped(result[0]), result[1][0]
        return tuple(packed.with_tail(x, sides[0], rows) for x in (out, lse))
    return packed.with_tail(swapped(result), sides[0], rows)
