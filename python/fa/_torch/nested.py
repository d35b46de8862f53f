# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of PyTorch's nested tensors: packed sequences by another name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fa._masks import packed
from fa._run.request import Request
from fa._torch import op


@torch.compiler.assume_constant_result  # called as it is: older ones keep no message
def refuse_functions() -> None:
    """The error of packed sequences with functions where torch.compile traces them."""
    raise NotImplementedError(
        "expected attention of packed sequences without score_mod and mask_mod under "
        "torch.compile, which does not see the sequence's coordinates; call it in a function "
        "under torch.compiler.disable"
    )


def refuse_mask(attn_mask: Tensor) -> None:
    """Raises ValueError for a mask of nested tensors, which is of no sequence."""
    shape = "a nested one" if attn_mask.is_nested else f"one of shape {list(attn_mask.shape)}"
    raise ValueError(
        f"expected no attn_mask with nested tensors, got {shape}; use fa.attention with "
        "mask_mod or score_mod, which count from each sequence's start"
    )


class _Packed(NamedTuple):
    """A nested tensor's tokens, and where its sequences lie in them."""

    values: Tensor
    """[T, H, D]."""
    offsets: Tensor
    """Where each sequence begins, and the end [N + 1]."""
    lengths: Tensor | None
    """How long each is [N]; up to the next one if None."""

    def origins(self) -> tuple[Tensor, ...]:
        return (self.offsets,) if self.lengths is None else (self.offsets, self.lengths)

    def side(self) -> packed.Side:
        return packed.Side(self.offsets, self.lengths)

    def cleared(self, tokens: Tensor) -> Tensor:
        """Tokens [T, H, D] with 0 in the holes between sequences, where there may be any."""
        return tokens if self.lengths is None else packed.cleared(tokens, self.side())


def _packed(tensor: Any, name: str) -> _Packed:
    """The values, offsets and lengths of a nested tensor [B, H, *, D]."""
    if not isinstance(tensor, Tensor) or not tensor.is_nested:
        raise ValueError(
            f"expected {name} to be a nested tensor [B, H, *, D] like query, got a "
            f"{type(tensor).__name__} of shape {list(getattr(tensor, 'shape', ()))}; make it one "
            "with torch.nested.nested_tensor"
        )
    if tensor.dim() != 4:
        raise ValueError(
            f"expected {name} to be a nested tensor [B, H, *, D] of 4 dimensions, got one of "
            f"{tensor.dim()}; add that of the heads"
        )
    if tensor.layout != torch.jagged:
        rows = [row.transpose(0, 1) for row in tensor.unbind()]
        if len({row.shape[1:] for row in rows}) > 1:
            raise ValueError(_length_error(name))
        tensor = torch.nested.as_nested_tensor(rows, layout=torch.jagged).transpose(1, 2)
    if tensor._ragged_idx != 2:
        raise ValueError(_length_error(name))
    # Operations on the nested tensor itself, `values` among them, take 50 us each.
    is_recording = torch.is_grad_enabled() and tensor.requires_grad
    is_plain = not is_recording and not torch.compiler.is_compiling()
    values = tensor._values if is_plain else tensor.values()
    return _Packed(values.transpose(0, 1), tensor.offsets(), tensor.lengths())


def _length_error(name: str) -> str:
    return (
        f"expected {name} to be a nested tensor [B, H, *, D] with the length as its third "
        "dimension, got another one that varies; transpose it"
    )


def _are_alike(a: _Packed, b: _Packed) -> bool:
    """Whether two have the same sequences; for other tensors' values it waits for the GPU."""
    if a.values.shape[0] != b.values.shape[0] or (a.lengths is None) != (b.lengths is None):
        return False
    pairs = zip(a.origins(), b.origins())
    return all([x is y or torch.equal(x, y) for x, y in pairs])


def attention(request: Request, answer: Callable[[Request], Any], enable_gqa: bool = True) -> Any:
    """`fa.attention` of nested tensors; out is one [B, Hq, *, Dv] of query's layout.

    Args:
        request: the call.
        answer: gives the result of a request of packed tensors.
        enable_gqa: whether several query heads may share a key head.

    Raises:
        ValueError: tensors that are not all nested, or of other sizes; a
            schedule; keys and values of other lengths.
        NotImplementedError: return_lse.
    """
    if request.return_lse:
        raise NotImplementedError(
            "expected return_lse=False with nested tensors, got True; fa.attention_varlen gives it"
        )
    if request.schedule is not None:
        raise ValueError(
            "expected no schedule with nested tensors, got one; leave it out, or make tensors of "
            "one length"
        )
    score_mod, mask_mod = request.score_mod, request.mask_mod
    if mask_mod is not None:
        packed.refuse_block_mask(mask_mod)
    if torch.compiler.is_dynamo_compiling() and (score_mod is not None or mask_mod is not None):
        refuse_functions()
    query, key, value = request[:3]
    q, k, v = (_packed(x, name) for x, name in ((query, "query"), (key, "key"), (value, "value")))
    heads = [x.values.shape[1] for x in (q, k, v)]
    if not enable_gqa and (heads[0] != heads[1] or heads[0] != heads[2]):
        raise ValueError(
            f"expected query, key and value to have the same number of heads, got {heads[0]}, "
            f"{heads[1]} and {heads[2]}; pass enable_gqa=True where several query heads share one "
            "key head"
        )
    if q.offsets.shape != k.offsets.shape:
        raise ValueError(
            f"expected as many sequences in query and key, got {q.offsets.shape[0] - 1} and "
            f"{k.offsets.shape[0] - 1}; pack as many of each"
        )
    if not _are_alike(k, v):
        raise ValueError(
            "expected key and value to have the same lengths, in the same places, got "
            f"{k.values.shape[0]} and {v.values.shape[0]} tokens in {k.offsets.shape[0] - 1} and "
            f"{v.offsets.shape[0] - 1} sequences; make them of the same offsets and lengths"
        )
    if not torch.compiler.is_dynamo_compiling():
        op.refuse_transforms(q.values, k.values, v.values)  # before offsets are read
    tokens = tuple(x.cleared(x.values) for x in (q, k, v))
    made = packed.request(
        packed.without_tail(tokens, (q.side(), k.side())),
        (q.side(), k.side()),
        (score_mod, mask_mod),
        "top_left" if request.is_causal else "",
    )
    out = answer(
        made._replace(
            scale=request.scale,
            dropout_p=request.dropout_p,
            dropout_seed=request.dropout_seed,
        )
    )
    out = packed.with_tail(packed.swapped(out), q.side(), q.values.shape[0])
    # So that the gradient of what belongs to nobody is 0, whatever is given.
    out = q.cleared(out).contiguous()
    if query.layout != torch.jagged:
        sizes = q.offsets.diff().tolist()
        rows = [row.transpose(0, 1) for row in out.split(sizes)]
        return torch.nested.as_nested_tensor(rows, layout=torch.strided)
    return torch.nested.nested_tensor_from_jagged(
        out.transpose(0, 1), q.offsets, q.lengths, jagged_dim=2
    )
