# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as operators of PyTorch: `fa::attention` and `fa::attention_with_lse`.

For what must see a call as one operator: torch.compile, torch.export, fake
tensors, autograd. A variant is text in them, so that a graph that PyTorch keeps
on disk says all of it; what its functions captured are tensors beside it.

Importing this registers them; it needs PyTorch.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fa._run.arrays import describe
from fa._run.call import Call, attend
from fa._run.checks import check, number_of_argument
from fa._run.dropout import variant_text
from fa._run.variant import NOTHING, Extent, Traced, Variant, is_padded, number_of

_ARGUMENTS = (
    "(Tensor query, Tensor key, Tensor value, Tensor[] captured, *, str variant='', "
    "bool is_causal=False, float? scale=None)"
)
# Inputs keep their strides: kernels read them as they are.
_TAGS = (torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag)


@functools.lru_cache(4096)
def _parse(text: str) -> tuple[Variant, int, tuple[Extent, ...]]:
    variant, extents = Variant.from_text(text)
    return variant, number_of(variant), extents


def traced_of(text: str, captured: Sequence[Tensor]) -> Traced:
    """The variant of a text with its tensors, as the kernel wants them."""
    if not text:
        return NOTHING
    variant, number, extents = _parse(text)
    arrays = tuple(map(_with_unit_stride, captured, variant.captured))
    return Traced(variant, arrays, number, extents)


@torch.compiler.assume_constant_result
def dropout_text(dropped: int, is_short: bool = False) -> str:
    """The text of the variant that is dropout alone, a constant of compiled code."""
    return variant_text(dropped, is_short)


def _with_unit_stride(tensor: Tensor, type: str) -> Tensor:
    """A tensor that a kernel for the type can read, whatever became of it since."""
    is_strided = tensor.dim() > 0 and tensor.shape[-1] > 1 and tensor.stride(-1) != 1
    return tensor.contiguous() if is_strided and not is_padded(type) else tensor


def _sizes(query: Tensor, key: Tensor, value: Tensor) -> tuple[Any, ...]:
    """The output's sizes; raises as a call would."""
    for name, tensor in (("key", key), ("value", value)):
        if tensor.device != query.device:
            raise ValueError(
                f"expected {name} on {query.device} like query, got {tensor.device}; move it there"
            )
    check(describe(query), describe(key), describe(value))
    return (*query.shape[:3], value.shape[3])


torch.library.define("fa::attention", f"{_ARGUMENTS} -> Tensor", tags=_TAGS)
torch.library.define("fa::attention_with_lse", f"{_ARGUMENTS} -> (Tensor, Tensor)", tags=_TAGS)
torch.library.define(
    "fa::attention_backward",
    "(Tensor[] gradients, Tensor query, Tensor key, Tensor value, Tensor[] captured) -> Tensor[]",
    tags=_TAGS,
)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    captured: Sequence[Tensor],
    *,
    variant: str = "",
    is_causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
) -> Any:
    traced = traced_of(variant, captured)
    return attend(Call(query, key, value, traced, is_causal, scale, return_lse))


torch.library.impl("fa::attention", "CompositeExplicitAutograd", _attend)
torch.library.impl(
    "fa::attention_with_lse",
    "CompositeExplicitAutograd",
    functools.partial(_attend, return_lse=True),
)


@torch.library.register_fake("fa::attention")
def _fake_attention(
    query: Tensor, key: Tensor, value: Tensor, captured: Sequence[Tensor], **options: Any
) -> Tensor:
    return query.new_empty(_sizes(query, key, value))


@torch.library.register_fake("fa::attention_with_lse")
def _fake_attention_with_lse(
    query: Tensor, key: Tensor, value: Tensor, captured: Sequence[Tensor], **options: Any
) -> tuple[Tensor, Tensor]:
    sizes = _sizes(query, key, value)
    return query.new_empty(sizes), query.new_empty(sizes[:3], dtype=torch.float32)


# --- Gradients ---------------------------------------------------------------------

# The error is an operator's, so that a graph with a backward can be compiled and
# its forward run: it is raised where something is differentiated.


@torch.library.impl("fa::attention_backward", "CompositeExplicitAutograd")
def _attention_backward(
    gradients: Sequence[Tensor], query: Tensor, key: Tensor, value: Tensor, captured: Any
) -> list[Tensor]:
    raise NotImplementedError(
        f"fa has no backward of attention yet, got a gradient of its output for query "
        f"{list(query.shape)} {query.dtype}; call it under torch.no_grad() or with tensors "
        "after .detach(), or train with PyTorch's scaled_dot_product_attention"
    )


@torch.library.register_fake("fa::attention_backward")
def _fake_attention_backward(
    gradients: Sequence[Tensor], query: Tensor, key: Tensor, value: Tensor, captured: Any
) -> list[Tensor]:
    return [torch.empty_like(tensor) for tensor in (query, key, value, *captured)]


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    query, key, value, captured = inputs
    ctx.save_for_backward(query, key, value, *captured)


def _backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
    query, key, value, *captured = ctx.saved_tensors
    given = [gradient for gradient in gradients if gradient is not None]
    results = torch.ops.fa.attention_backward(given, query, key, value, captured)
    floating = [
        gradient if tensor.is_floating_point() else None
        for gradient, tensor in zip(results[3:], captured)
    ]
    return (*results[:3], floating)


for _name in ("fa::attention", "fa::attention_with_lse"):
    torch.library.register_autograd(_name, _backward, setup_context=_setup_context)


NO_SCHEDULE = (
    "expected no schedule where PyTorch compiles a call, records a gradient or stands in for "
    "tensors, got one; leave it out, or call under torch.no_grad() outside of torch.compile"
)


# --- What of PyTorch's fa has no rule for ------------------------------------------

TRANSFORM_ERRORS = {
    "function transform": "expected plain tensors, got those of a transform of torch.func (vmap, "
    "grad, ...), which fa has no rule for; call it outside, with more batch dimensions for vmap",
    "torch.jit": "expected no torch.jit.trace, which would keep the result as a constant, got a "
    "call in one; use torch.export or torch.compile",
    "forward gradient": "expected tensors without a forward gradient, got dual ones of "
    "torch.autograd.forward_ad, which fa has no rule for; use PyTorch's "
    "scaled_dot_product_attention",
}
"""What a call meets, and the error's message."""


def transform_of(*tensors: Any) -> str | None:
    """What a call with these meets, a key of `TRANSFORM_ERRORS`; None if nothing."""
    if torch._C._are_functorch_transforms_active():
        return "function transform"
    if torch._C._is_tracing():
        return "torch.jit"
    forward = torch.autograd.forward_ad
    if forward._current_level >= 0:
        for tensor in tensors:
            if isinstance(tensor, Tensor) and forward.unpack_dual(tensor).tangent is not None:
                return "forward gradient"
    return None


def refuse_transforms(*tensors: Any) -> None:
    """Raises NotImplementedError where `transform_of` finds something."""
    found = transform_of(*tensors)
    if found is not None:
        raise NotImplementedError(TRANSFORM_ERRORS[found])


# --- Calls -------------------------------------------------------------------------


def _autocast_type(query: Any) -> torch.dtype | None:
    """What torch.autocast converts tensors on query's kind of device to; None where it is off."""
    kind = query.device.type if isinstance(query, Tensor) else ""
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def _is_cast(x: Any, dtype: torch.dtype) -> bool:
    """Whether torch.autocast to a type converts x."""
    return isinstance(x, Tensor) and x.is_floating_point() and x.dtype not in (torch.float64, dtype)


def is_autocast(query: Any, *others: Any) -> bool:
    """Whether `autocast` converts one of the tensors."""
    dtype = _autocast_type(query)
    return dtype is not None and any([_is_cast(x, dtype) for x in (query, *others)])


def autocast(query: Any, *others: Any) -> tuple[Any, ...]:
    """The tensors as torch.autocast, where it is on, has them for PyTorch's own attention.

    Args:
        query: for whose kind of device it is asked.
        others: the rest, None or arrays of other libraries among them.
    """
    given, dtype = (query, *others), _autocast_type(query)
    if dtype is None:
        return given
    return tuple([x.to(dtype) if _is_cast(x, dtype) else x for x in given])


def call(request: Call) -> Any:
    """A call as one operator; tensors of any kind."""
    if request.schedule is not None:
        raise ValueError(NO_SCHEDULE)
    q, k, v, traced = request[:4]
    operator = torch.ops.fa.attention_with_lse if request.return_lse else torch.ops.fa.attention
    text = "" if traced.variant is None else traced.variant.to_text(traced.extents)
    arrays = [torch.as_tensor(array).resolve_neg() for array in traced.arrays]
    factor = None if request.scale is None else number_of_argument("scale", request.scale)
    for number, array in enumerate(arrays):
        if array.device.type == "meta" != q.device.type:
            raise TypeError(
                f"expected captured array {number} of shape {list(array.shape)} on {q.device} like "
                "query, got it on meta, where there are no values; move it"
            )
    q, k, v = (x.resolve_neg() if isinstance(x, Tensor) else x for x in (q, k, v))
    is_causal = bool(request.is_causal)
    return operator(q, k, v, arrays, variant=text, is_causal=is_causal, scale=factor)
