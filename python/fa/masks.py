# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Named masks for `fa.attention(..., mask_mod=...)`.

A mask function mask(b, h, q_idx, kv_idx) is true where query `q_idx` sees key
`kv_idx`. `causal` and `causal_bottom_right` are such functions; the others make
one. They take plain tensors of indices, too, and PyTorch's create_mask,
create_block_mask and FlexAttention take them, but for those that say that they
ask for a length. There a number in an array has no dimensions, and a dimension of
1 that stands for all is expanded by `.expand(...)`.

A size in a mask is a number, which belongs to the compiled kernel, or an array
of one element (`torch.tensor(1024)`) that the kernel reads: another value needs
no other kernel. Arrays must be on the device of q, k and v. An array that has a
dimension for batch entries has as many elements there as q, or 1 for all; one
with a dimension for queries or keys has at least as many, or 1. Other arrays are
an error: TypeError or ValueError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fa import math as _math
from fa._masks.blocks import block_mask, block_sparse, block_sparse_csr, is_block_mask
from fa._masks.checks import expect_array, expect_number, expect_pair
from fa._trace.captured import element
from fa._trace.made import picklable
from fa._trace.trace import call_function, key_length, query_length

Mask = Callable[[Any, Any, Any, Any], Any]


def _functions(masks: tuple[Any, ...]) -> tuple[Mask, ...]:
    """The masks, those of a BlockMask as functions."""
    return tuple([block_mask(mask) if is_block_mask(mask) else mask for mask in masks])


@picklable
def and_masks(*masks: Mask) -> Mask:
    """Keys that every one of the masks shows; all keys if there is none."""
    masks = _functions(masks)

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result: Any = True
        for mask in masks:
            result = call_function(mask, b, h, q_idx, kv_idx) & result
        return result

    return seen


@picklable
def or_masks(*masks: Mask) -> Mask:
    """Keys that at least one of the masks shows; none if there is none."""
    masks = _functions(masks)

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result: Any = False
        for mask in masks:
            result = call_function(mask, b, h, q_idx, kv_idx) | result
        return result

    return seen


@picklable
def not_mask(mask: Mask) -> Mask:
    """Keys that the mask hides."""
    (mask,) = _functions((mask,))

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return call_function(mask, b, h, q_idx, kv_idx) ^ True

    return seen


def causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    """Keys up to the query, both counted from the start: j <= i.

    The alignment of `is_causal`, and of PyTorch's SDPA.
    """
    return kv_idx <= q_idx


def causal_bottom_right(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    """Keys up to the query, the last query seeing all: j - Sk <= i - Sq.

    The alignment of FlashAttention from version 2.1 on, for queries that
    continue a cache of keys. Asks for the lengths when the kernel runs; queries
    i < Sq - Sk see nothing.
    """
    return kv_idx - q_idx <= key_length() - query_length()


@picklable
def causal_lengths(query_lengths: Any, key_lengths: Any) -> Mask:
    """`causal_bottom_right` of a padded batch: j - key_lengths[b] <= i - query_lengths[b].

    Keys from key_lengths[b] on are hidden. Rows of queries from query_lengths[b]
    on hold nothing of use.

    Args:
        query_lengths: queries of each batch entry, integers [B].
        key_lengths: keys of each batch entry, integers [B].
    """
    expect_array("query_lengths", query_lengths, "integers [B]", 1)
    expect_array("key_lengths", key_lengths, "integers [B]", 1)
    reader = "fa.masks.causal_lengths"

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        keys = element(key_lengths, b, reader)
        queries = element(query_lengths, b, reader)
        return (kv_idx - q_idx <= keys - queries) & (kv_idx < keys)

    return seen


@picklable
def sliding_window(left: Any, right: Any = 0) -> Mask:
    """Keys at most `left` before and `right` after the query: -left <= j - i <= right.

    With right=0 it is causal. Mistral's window of W keys, the query's own among
    them, is sliding_window(W - 1) (Jiang et al. 2023, "Mistral 7B", 2). Source:
    Beltagy et al. 2020, "Longformer", 3.1.

    Args:
        left: keys before the query, a number >= 0 or an array of one integer.
        right: keys after it, likewise.
    """
    expect_number("left", left, 0)
    expect_number("right", right, 0)

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (q_idx - kv_idx <= left) & (kv_idx - q_idx <= right)

    return seen


@picklable
def prefix(length: Any) -> Mask:
    """Prefix LM: the keys of the prefix, and the keys up to the query: j < P or j <= i.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning" (T5),
    figure 4.

    Args:
        length: P, a number >= 0, an array of one integer, or integers [B].
    """
    is_number = isinstance(length, (int, float))
    by_batch = not is_number and getattr(length, "ndim", 0) == 1 and length.shape[0] != 1
    if not by_batch:
        expect_number("length", length, 0)

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        first = element(length, b, "fa.masks.prefix") if by_batch else length
        return (kv_idx < first) | (kv_idx <= q_idx)

    return seen


@picklable
def documents(ids: Any, key_ids: Any = None) -> Mask:
    """Packed sequences: keys of the query's document, ids[i] == ids[j].

    Args:
        ids: the document of each position, integers [S] or [B, S].
        key_ids: of each key, if they are not those of the queries.
    """
    keys = ids if key_ids is None else key_ids
    expect_array("ids", ids, "integers [S] or [B, S]", 1, 2)
    expect_array("key_ids", keys, "integers [S] or [B, S]", 1, 2)
    reader = "fa.masks.documents"

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        own = element(ids, (b, q_idx)[-ids.ndim :], reader)
        return own == element(keys, (b, kv_idx)[-keys.ndim :], reader)

    return seen


@picklable
def padding(key_lengths: Any) -> Mask:
    """The keys before the padding of each batch entry: j < key_lengths[b].

    Args:
        key_lengths: integers [B].
    """
    expect_array("key_lengths", key_lengths, "integers [B]", 1)

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return kv_idx < element(key_lengths, b, "fa.masks.padding")

    return seen


@picklable
def dilated(step: Any, left: Any = None, right: Any = None) -> Mask:
    """Every step-th key from the query on, both ways: (i - j) mod step == 0.

    Source: the strided pattern of Child et al. 2019, "Generating Long Sequences
    with Sparse Transformers", 4.2; with a window the dilated one of Beltagy et
    al. 2020, "Longformer", 3.1.

    Args:
        step: a number >= 1, or an array of one integer.
        left: a window, as in `sliding_window`, of keys before the query; all
            if None.
        right: of keys after it.
    """
    expect_number("step", step, 1)
    for name, value in (("left", left), ("right", right)):
        if value is not None:
            expect_number(name, value, 0)

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        distance = q_idx - kv_idx
        result = distance % step == 0
        if left is not None:
            result = result & (distance <= left)
        return result if right is None else result & (-distance <= right)

    return seen


def _neighbours(position: Any, key: Any, length: Any, size: Any) -> Any:
    """Whether a key is among the `size` ones around a position, shifted at the ends."""
    last = _math.maximum(length - size, 0)
    first = _math.minimum(_math.maximum(position - size // 2, 0), last)
    return (key >= first) & (key < first + size)


@picklable
def neighbourhood(size: Any) -> Mask:
    """The `size` keys nearest to the query; at the ends the first or last ones.

    Every query sees the same number of keys. Asks for the length when the
    kernel runs, for as many queries as keys. Source: Hassani et al. 2023,
    "Neighborhood Attention Transformer", 3.1.

    Args:
        size: a number >= 1, odd to be symmetric, or an array of one integer.
    """
    expect_number("size", size, 1)

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return _neighbours(q_idx, kv_idx, key_length(), size)

    return seen


@picklable
def neighbourhood_2d(size: int | tuple[int, int], width: Any) -> Mask:
    """The keys around the query in an image, rows one after the other.

    Position n is row n // width and column n % width. At the borders the
    neighbourhood is shifted into the image. Asks for the length when the kernel
    runs. Source: as `neighbourhood`, equation 1.

    Args:
        size: keys of a neighbourhood (height, width), or one number for both.
        width: columns of the image, a number >= 1 or an array of one integer.
    """
    tall, wide = expect_pair("size", size)
    expect_number("size", tall, 1)
    expect_number("size", wide, 1)
    expect_number("width", width, 1)

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        rows = _neighbours(q_idx // width, kv_idx // width, key_length() // width, tall)
        return rows & _neighbours(q_idx % width, kv_idx % width, width, wide)

    return seen


@picklable
def attention_sink(window: Any, sinks: Any = 4) -> Mask:
    """The first `sinks` keys and the last `window` ones up to the query, causal.

    j <= i and (j < sinks or i - j < window). Source: Xiao et al. 2024,
    "Efficient Streaming Language Models with Attention Sinks" (StreamingLLM),
    without its shift of positions. Sinks that are learned logits, not keys (as
    in gpt-oss), are no mask: see docs/variants.md for what to do with the
    log-sum-exp.

    Args:
        window: keys, a number >= 1 or an array of one integer.
        sinks: keys, a number >= 0 or an array of one integer.
    """
    expect_number("window", window, 1)
    expect_number("sinks", sinks, 0)

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (kv_idx <= q_idx) & ((kv_idx < sinks) | (q_idx - kv_idx < window))

    return seen


__all__ = [
    "and_masks",
    "attention_sink",
    "block_mask",
    "block_sparse",
    "block_sparse_csr",
    "causal",
    "causal_bottom_right",
    "causal_lengths",
    "dilated",
    "documents",
    "neighbourhood",
    "neighbourhood_2d",
    "not_mask",
    "or_masks",
    "padding",
    "prefix",
    "sliding_window",
]
