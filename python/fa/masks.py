# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Named masks for `fa.attention(..., mask_mod=...)`.

A mask function mask(b, h, q_idx, kv_idx) is true if query `q_idx` sees key `kv_idx`.
`causal` and `causal_bottom_right` are mask functions; the others make one. In the formulas
i is the query, j the key, Sq and Sk are the lengths.

A size in a mask is a number, which belongs to the compiled kernel, or an array of one
element (`torch.tensor(1024)`), which the kernel reads, so that another value needs no other
kernel. Sizes count tokens. Arrays must be on the device of q, k and v. A dimension for batch
entries has the size that q has, or 1 for all. A dimension for queries or keys has at least
the size that q or k has, or 1. Other arrays are a TypeError or a ValueError.

Mask functions also take plain tensors of indices. PyTorch's create_mask, create_block_mask
and FlexAttention take all but those that ask for a length. There an array that holds one
number must have rank 0, and a dimension of size 1 that stands for all must be expanded with
`.expand(...)`.
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
    """The masks, with a function for each BlockMask."""
    return tuple([block_mask(mask) if is_block_mask(mask) else mask for mask in masks])


@picklable
def and_masks(*masks: Mask) -> Mask:
    """Shows keys that all masks show; without masks, all keys."""
    masks = _functions(masks)

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result: Any = True
        for mask in masks:
            result = call_function(mask, b, h, q_idx, kv_idx) & result
        return result

    return seen


@picklable
def or_masks(*masks: Mask) -> Mask:
    """Shows keys that at least one mask shows; without masks, none."""
    masks = _functions(masks)

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result: Any = False
        for mask in masks:
            result = call_function(mask, b, h, q_idx, kv_idx) | result
        return result

    return seen


@picklable
def not_mask(mask: Mask) -> Mask:
    """Shows keys that the mask hides."""
    (mask,) = _functions((mask,))

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return call_function(mask, b, h, q_idx, kv_idx) ^ True

    return seen


def causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    """Shows keys up to the query, both counted from the start: j <= i.

    This is the alignment of `is_causal` and of PyTorch's SDPA.
    """
    return kv_idx <= q_idx


def causal_bottom_right(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    """Shows keys up to the query, and all keys to the last query: j - Sk <= i - Sq.

    This is the alignment of FlashAttention from version 2.1 on, for queries that continue a
    cache of keys. It asks for the lengths when the kernel runs. Queries i < Sq - Sk see no
    key.
    """
    return kv_idx - q_idx <= key_length() - query_length()


@picklable
def causal_lengths(query_lengths: Any, key_lengths: Any) -> Mask:
    """`causal_bottom_right` for a padded batch: j - key_lengths[b] <= i - query_lengths[b].

    It hides keys from key_lengths[b] on. Output rows from query_lengths[b] on are padding
    and have no meaning.

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
    """Shows keys at most `left` before and `right` after the query: -left <= j - i <= right.

    With right=0 it is causal. Mistral's window of W keys, which includes the query's own, is
    sliding_window(W - 1) (Jiang et al. 2023, "Mistral 7B", 2). Source: Beltagy et al. 2020,
    "Longformer", 3.1.

    Args:
        left: number of keys before the query, >= 0, or an array of one integer.
        right: number of keys after the query, likewise.
    """
    expect_number("left", left, 0)
    expect_number("right", right, 0)

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (q_idx - kv_idx <= left) & (kv_idx - q_idx <= right)

    return seen


@picklable
def prefix(length: Any) -> Mask:
    """Prefix LM: shows the keys of a prefix, and keys up to the query: j < P or j <= i.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning" (T5), figure 4.

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
    """Packed sequences: shows keys of the query's document, ids[i] == key_ids[j].

    Args:
        ids: the document of each query, integers [Sq] or [B, Sq].
        key_ids: the document of each key, integers [Sk] or [B, Sk]; ids if None.
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
    """Shows keys before the padding of each batch entry: j < key_lengths[b].

    Args:
        key_lengths: integers [B].
    """
    expect_array("key_lengths", key_lengths, "integers [B]", 1)

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return kv_idx < element(key_lengths, b, "fa.masks.padding")

    return seen


@picklable
def dilated(step: Any, left: Any = None, right: Any = None) -> Mask:
    """Shows every step-th key from the query on, in both directions: (i - j) mod step == 0.

    Source: the strided pattern of Child et al. 2019, "Generating Long Sequences with Sparse
    Transformers", 4.2; with a window, the dilated one of Beltagy et al. 2020, "Longformer",
    3.1.

    Args:
        step: a number >= 1, or an array of one integer.
        left: the largest distance of a key before the query, as in `sliding_window`; no
            limit if None.
        right: the largest distance of a key after the query, likewise.
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
    """Whether a key is in the window of `size` keys around a position, shifted at the ends."""
    last = _math.maximum(length - size, 0)
    first = _math.minimum(_math.maximum(position - size // 2, 0), last)
    return (key >= first) & (key < first + size)


@picklable
def neighbourhood(size: Any) -> Mask:
    """Shows the `size` keys nearest to the query; at the ends, the first or last ones.

    Every query sees the same number of keys. It asks for the length when the kernel runs,
    and expects as many queries as keys. Source: Hassani et al. 2023, "Neighborhood Attention
    Transformer", 3.1.

    Args:
        size: a number >= 1, odd to be symmetric, or an array of one integer.
    """
    expect_number("size", size, 1)

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return _neighbours(q_idx, kv_idx, key_length(), size)

    return seen


@picklable
def neighbourhood_2d(size: int | tuple[int, int], width: Any) -> Mask:
    """Shows the keys around the query in an image that lies row after row.

    Position n is row n // width and column n % width. At the borders the neighbourhood is
    shifted into the image. It asks for the length when the kernel runs. Source: as
    `neighbourhood`, equation 1.

    Args:
        size: (height, width) of a neighbourhood in keys, or one number for both.
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
    """Shows the first `sinks` keys and the last `window` keys up to the query, causally.

    The formula is j <= i and (j < sinks or i - j < window). Source: Xiao et al. 2024,
    "Efficient Streaming Language Models with Attention Sinks" (StreamingLLM), without its
    shift of positions. Learned logits without a key (as in gpt-oss) are no mask:
    docs/variants.md computes them from the log-sum-exp.

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
