# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as operators of PyTorch: `fa::attention` and `fa::attention_with_lse`.

torch.compile, torch.export, fake tensors and autograd see a call as one operator. A variant
is text in it, so a graph that PyTorch keeps on disk is complete; the captured tensors are
operands beside it.

Importing this module registers the operators; it needs PyTorch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fa import _native
from fa._run.arrays import compute_type_of, describe, in_order_of, is_seen
from fa._run.backward import Results, differentiate, known_gradients
from fa._run.call import Call, attend
from fa._run.checks import check, number_of_argument
from fa._run.dropout import variant_text
from fa._run.lists import Lists
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
    "(Tensor query, Tensor key, Tensor value, Tensor[] captured, Tensor out, Tensor lse, "
    "Tensor out_grad, Tensor? lse_grad, *, int[] wrt, str variant='', bool is_causal=False, "
    "float? scale=None) -> Tensor[]",
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


def lse_dtype(query: Tensor) -> torch.dtype:
    """The type of scores and of the log-sum-exp."""
    return torch.float64 if compute_type_of(query) == "f64" else torch.float32


@torch.library.register_fake("fa::attention")
def _fake_attention(
    query: Tensor, key: Tensor, value: Tensor, captured: Sequence[Tensor], **options: Any
) -> Tensor:
    return in_order_of(query, _sizes(query, key, value)[3])


@torch.library.register_fake("fa::attention_with_lse")
def _fake_attention_with_lse(
    query: Tensor, key: Tensor, value: Tensor, captured: Sequence[Tensor], **options: Any
) -> tuple[Tensor, Tensor]:
    sizes = _sizes(query, key, value)
    return in_order_of(query, sizes[3]), query.new_empty(sizes[:3], dtype=lse_dtype(query))


# --- Gradients ---------------------------------------------------------------------


@torch.library.impl("fa::attention_backward", "CompositeExplicitAutograd")
def _attention_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    captured: Sequence[Tensor],
    out: Tensor,
    lse: Tensor,
    out_grad: Tensor,
    lse_grad: Tensor | None,
    *,
    wrt: Sequence[int],
    variant: str = "",
    is_causal: bool = False,
    scale: float | None = None,
) -> list[Tensor]:
    call = Call(query, key, value, traced_of(variant, captured), is_causal, scale)
    return differentiate(call, Results(out, lse, out_grad, lse_grad), wrt)


@torch.library.register_fake("fa::attention_backward")
def _fake_attention_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    captured: Sequence[Tensor],
    *results: Any,
    wrt: Sequence[int],
    **options: Any,
) -> list[Tensor]:
    made = [in_order_of(like, like.shape[3]) for like in (query, key, value)]
    return [*made, *(captured[number].new_empty(captured[number].shape) for number in wrt)]


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    query, key, value, captured = inputs
    ctx.options = keyword_only_inputs
    ctx.wrt = [
        number
        for number, tensor in enumerate(captured)
        if tensor.requires_grad and tensor.is_floating_point()
    ]
    ctx.captured_count = len(captured)
    ctx.set_materialize_grads(False)  # a log-sum-exp that is not used has no gradient
    results = output if isinstance(output, tuple) else (output,)
    ctx.save_for_backward(query, key, value, *captured, *results)


def _backward(ctx: Any, out_grad: Any, lse_grad: Any = None) -> tuple[Any, ...]:
    end = 3 + ctx.captured_count
    saved = ctx.saved_tensors  # once: checkpoints compute them again for each time
    query, key, value, *captured = saved[:end]
    results = saved[end:]
    if len(results) == 1:  # an operator that did not say it
        results = torch.ops.fa.attention_with_lse(query, key, value, captured, **ctx.options)
    out, lse = results
    if out_grad is None:
        if lse_grad is None:
            return None, None, None, [None] * len(captured)
        out_grad = torch.zeros_like(out)
    gradients = torch.ops.fa.attention_backward(
        *(query, key, value, captured, out, lse, out_grad, lse_grad), wrt=ctx.wrt, **ctx.options
    )
    of_captured = [None] * len(captured)
    for number, gradient in zip(ctx.wrt, gradients[3:]):
        of_captured[number] = gradient
    return (*gradients[:3], of_captured)


for _name in ("fa::attention", "fa::attention_with_lse"):
    torch.library.register_autograd(_name, _backward, setup_context=_setup_context)


def _second_backward(ctx: Any, *gradients: Any) -> Any:
    raise NotImplementedError(
        "fa has no second derivative of attention, got a gradient of its gradients; leave out "
        "create_graph=True, or use PyTorch's scaled_dot_product_attention under "
        "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
    )


torch.library.register_autograd("fa::attention_backward", _second_backward)


def records_gradient(*tensors: Any) -> bool:
    """Whether PyTorch records operations on these tensors."""
    return torch.is_grad_enabled() and any(
        [isinstance(x, Tensor) and x.requires_grad for x in tensors]
    )


# --- Gradients of eager mode -----------------------------------------------------------


_BATCHED = torch._C._parse_dispatch_key("Batched")
"""Of the gradients of torch.autograd.grad(..., is_grads_batched=True)."""


class _Asked(NamedTuple):
    """The arguments of a call without its tensors."""

    variant: Variant | None
    number: int
    extents: tuple[Extent, ...]
    is_causal: bool
    scale: float | None
    prepared: Lists | None
    """Where lists of a prepared mask are kept."""

    @property
    def floating(self) -> tuple[int, ...]:
        """The numbers of the captured tensors that may have gradients."""
        return () if self.variant is None else self.variant.floating

    def of(self, query: Tensor, key: Tensor, value: Tensor, captured: Sequence[Tensor]) -> Call:
        """The call with these tensors, which gives the log-sum-exp, too."""
        options = (self.number, self.extents, self.prepared)
        traced = Traced(self.variant, tuple(captured), *options)
        return Call(query, key, value, traced, self.is_causal, self.scale, True)

    def key(self, captured: tuple[Tensor, ...]) -> tuple[Any, ...]:
        """The part of `Call.key` behind the tensors."""
        return self.is_causal, self.scale, True, self.number, captured


def _places(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Where the tensors lie in memory."""
    return tuple([x.data_ptr() for x in tensors])


class Attention(torch.autograd.Function):
    """`fa::attention_with_lse` and its gradient where autograd alone has to see the call.

    The operators' way through PyTorch's dispatcher is one in Python, of 100 us forth and
    as many back.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, asked: _Asked, query: Tensor, key: Tensor, value: Tensor, *captured: Tensor
    ) -> tuple[Tensor, Tensor]:
        # Without a `Call` around what is asked, where that is known.
        arguments = (query, key, value, *asked.key(captured))
        if asked.prepared is None:
            known = _native.attention(*arguments)
        else:
            known = _native.attention_with(asked.prepared.calls, *arguments)
        out, lse = known or attend(asked.of(query, key, value, captured))
        # What is saved is the tensors' only place: hooks may keep them elsewhere.
        ctx.asked = asked
        ctx.places = () if asked.prepared is None else _places(captured)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(query, key, value, *captured, out, lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, out_grad: Any, lse_grad: Any) -> tuple[Any, ...]:
        asked, saved = ctx.asked, ctx.saved_tensors
        query, key, value, *captured, out, lse = saved
        if out_grad is None and lse_grad is None:
            return (None,) * (4 + len(captured))
        results = (out, lse, torch.zeros_like(out) if out_grad is None else out_grad, lse_grad)
        wrt = [number for number in asked.floating if ctx.needs_input_grad[4 + number]]
        gradients: Any = None
        is_eager = not torch.compiler.is_compiling()
        if is_eager and asked.prepared is not None and _places(captured) != ctx.places:
            asked = asked._replace(prepared=None)  # of copies nobody promised anything
        if is_eager and not wrt:
            arguments = (query, key, value, *asked.key(tuple(captured)), *results)
            is_deterministic = torch.are_deterministic_algorithms_enabled()
            gradients = known_gradients(asked.prepared, *arguments, is_deterministic)
        if gradients is None:
            gradients = _gradients((query, key, value), captured, results, asked, wrt)
        of_captured: list[Any] = [None] * len(captured)
        for number, gradient in zip(wrt, gradients[3:]):
            of_captured[number] = gradient
        return (None, *gradients[:3], *of_captured)


def _gradients(
    inputs: tuple[Tensor, Tensor, Tensor],
    captured: list[Tensor],
    results: tuple[Any, ...],
    asked: _Asked,
    wrt: list[int],
) -> Sequence[Tensor]:
    """The gradients of a recorded call that `_native` does not know.

    Args:
        inputs: query, key and value.
        captured: the tensors that its functions captured.
        results: out, lse and the gradients with respect to them, of which the last may be None.
        asked: the other arguments of the call.
        wrt: numbers of captured tensors whose gradients follow.
    """
    tensors = [x for x in (*inputs, *captured, *results) if x is not None]
    is_batched = any([torch._C._dispatch_keys(x).has(_BATCHED) for x in tensors])
    if torch.compiler.is_compiling() or is_batched or is_seen(tuple(tensors)):
        options = {"variant": _text_of(asked), "is_causal": asked.is_causal, "scale": asked.scale}
        return torch.ops.fa.attention_backward(  # type: ignore[no-any-return]
            *inputs, captured, *results, wrt=wrt, **options
        )
    call = asked.of(*inputs, captured)
    return differentiate(call, Results(*results), wrt, has_run=True)


def _is_eager(tensors: Sequence[Tensor]) -> bool:
    """Whether no mode, transform or class of tensors is there that would see an operator."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return False
    for tensor in tensors:
        kind = type(tensor)
        if (kind is not Tensor and kind is not torch.nn.Parameter) or tensor.is_meta:
            return False
    return True


def _text_of(traced: Traced | _Asked) -> str:
    return "" if traced.variant is None else traced.variant.to_text(traced.extents)


def record_eager(call: Call, lists: Lists | None) -> tuple[Tensor, Tensor]:
    """The output and the log-sum-exp of a call that autograd alone has to see.

    Args:
        call: the call.
        lists: the lists of a prepared mask, or None.
    """
    q, k, v, traced, is_causal, scale = call[:6]
    asked = _Asked(traced.variant, traced.number, traced.extents, is_causal, scale, lists)
    return Attention.apply(asked, q, k, v, *traced.arrays)


def record(call: Call) -> tuple[Tensor, Tensor]:
    """The output and the log-sum-exp of a call that records a gradient, whose tensors are not
    lazily negated."""
    q, k, v, traced = call[:4]
    if _is_eager((q, k, v, *traced.arrays)):
        types = () if traced.variant is None else traced.variant.captured
        arrays = tuple(map(_with_unit_stride, traced.arrays, types))
        return record_eager(call._replace(traced=traced._replace(arrays=arrays)), traced.prepared)
    options = {"variant": _text_of(traced), "is_causal": call.is_causal, "scale": call.scale}
    return torch.ops.fa.attention_with_lse(q, k, v, list(traced.arrays), **options)


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
"""The context in which fa takes no call, and the error's message."""


def transform_of(*tensors: Any) -> str | None:
    """The context of a call that fa refuses, a key of `TRANSFORM_ERRORS`; None for others."""
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
    """The type of torch.autocast for query's kind of device; None if it is off."""
    kind = query.device.type if isinstance(query, Tensor) else ""
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def _is_cast(x: Any, dtype: torch.dtype) -> bool:
    """Whether torch.autocast to a type converts x."""
    if not isinstance(x, Tensor) or x.dtype == dtype:
        return False
    return x.is_floating_point() and x.dtype != torch.float64


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


def _refuse_distributed(*tensors: Any) -> None:
    """Raises NotImplementedError for a tensor that is spread over processes."""
    distributed = sys.modules.get("torch.distributed.tensor")
    for tensor in tensors if distributed is not None else ():
        if isinstance(tensor, distributed.DTensor):
            raise NotImplementedError(
                f"expected tensors of this process, got a DTensor with placements "
                f"{list(tensor.placements)}; give x.to_local() where each process computes its own "
                "batch entries or heads, or x.full_tensor()"
            )


def call(request: Call) -> Any:
    """A call as one operator; tensors of any kind."""
    if request.schedule is not None:
        raise ValueError(NO_SCHEDULE)
    q, k, v, traced = request[:4]
    _refuse_distributed(q, k, v, *traced.arrays)
    arrays = [torch.as_tensor(array).resolve_neg() for array in traced.arrays]
    factor = None if request.scale is None else number_of_argument("scale", request.scale)
    for number, array in enumerate(arrays):
        if array.device.type == "meta" != q.device.type:
            raise TypeError(
                f"expected captured array {number} of shape {list(array.shape)} on {q.device} like "
                "query, got it on meta, where there are no values; move it"
            )
    q, k, v = (x.resolve_neg() if isinstance(x, Tensor) else x for x in (q, k, v))
    if records_gradient(q, k, v, *arrays):  # which needs the log-sum-exp
        traced = traced._replace(arrays=tuple(arrays))
        results = record(Call(q, k, v, traced, bool(request.is_causal), factor))
        return results if request.return_lse else results[0]
    text = _text_of(traced)
    options = {"variant": text, "is_causal": bool(request.is_causal), "scale": factor}
    if request.return_lse:
        return torch.ops.fa.attention_with_lse(q, k, v, arrays, **options)
    return torch.ops.fa.attention(q, k, v, arrays, **options)
