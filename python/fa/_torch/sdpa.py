# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`scaled_dot_product_attention` of PyTorch by fa: its arguments as attention's.

torch.compile can trace everything here: functions answer questions about a call with a
word, and messages are made only where an error is raised.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fa import _native
from fa._run.arrays import is_seen
from fa._run.call import Call, attend
from fa._run.checks import is_scale, number_of_argument, scale_error
from fa._run.dropout import (
    dropped_of,
    is_probability,
    probability_error,
    torch_seed,
    with_seed_type,
)
from fa._run.request import Request
from fa._torch import nested, op
from fa._trace.captured import MAX_RANK, get_item
from fa._trace.trace import trace
from fa._ways import answer

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _is_mask_type(mask: torch.dtype, query: torch.dtype) -> bool:
    """Whether a mask of one type goes with a query of another: no wider than scores are."""
    return mask in (torch.bool, *_DTYPES) and (mask is not torch.float64 or query is mask)


MAX_HEAD_DIM = 256

# --- What fa takes -----------------------------------------------------------------


def _is_plain(tensor: Tensor) -> bool:
    """A strided tensor of PyTorch's own class, or a fake one."""
    kind = type(tensor)
    is_known = kind is Tensor or kind is torch.nn.Parameter
    if not is_known and not isinstance(tensor, torch._subclasses.FakeTensor):
        return False
    return tensor.layout == torch.strided and not tensor.is_nested


def _broadcasts(sizes: Any, to: Any) -> bool:
    """Whether sizes broadcast to others without changing those."""
    if len(sizes) > len(to):
        return False
    return all(a == 1 or a == b for a, b in zip(reversed(sizes), reversed(to)))


def _common(*several: Any) -> tuple[Any, ...] | None:
    """The sizes that these broadcast to, or None."""
    first = several[0]
    if all([sizes == first for sizes in several]):
        return tuple(first)
    result: list[Any] = []
    for at in range(max(map(len, several))):
        size: Any = 1
        for sizes in several:
            own = sizes[-1 - at] if at < len(sizes) else 1
            if own != 1:
                if size != 1 and own != size:
                    return None
                size = own
        result.insert(0, size)
    return tuple(result)


def _heads_of(shape: Any) -> Any:
    return shape[-3] if len(shape) > 2 else 1


def _heads(query: Any, key: Any, value: Any, enable_gqa: bool) -> Any:
    """The number of output heads of shapes; None if the inputs' do not go together."""
    query_heads, key_heads, value_heads = map(_heads_of, (query, key, value))
    if enable_gqa:
        for own in (key_heads, value_heads):
            if query_heads != 0 and (own < 1 or query_heads % own != 0):
                return None
        return query_heads
    if query_heads == key_heads == value_heads:
        return query_heads
    common = _common((query_heads,), (key_heads,), (value_heads,))
    if common is None or (common[0] == 0 and query_heads != 0):
        return None
    return common[0]


def why_not(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> str | None:
    """The reason why fa does not take a call, or None if it does."""
    tensors = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
    for tensor in tensors:
        if not _is_plain(tensor):
            return "tensor class"
    if not torch.compiler.is_dynamo_compiling():
        found = op.transform_of(*tensors)
        if found is not None:
            return found
    if not is_probability(dropout_p):
        return "dropout"
    dtype, device = query.dtype, query.device
    if dtype not in _DTYPES or key.dtype != dtype or value.dtype != dtype:
        return "dtype"
    if dtype is torch.float64 and device.type == "cuda":
        return "dtype"
    if device.type not in ("cpu", "cuda", "meta"):
        return "device"
    for tensor in tensors:
        if tensor.device != device:
            return "device"
    q, k, v = query.shape, key.shape, value.shape
    if min(len(q), len(k), len(v)) < 2 or q[-1] != k[-1] or k[-2] != v[-2]:
        return "shape"
    leads = _common(q[:-3], k[:-3], v[:-3])
    if leads is None:
        return "shape"
    heads = _heads(q, k, v, enable_gqa)
    if heads is None:
        return "heads"
    if not 1 <= q[-1] <= MAX_HEAD_DIM or not 1 <= v[-1] <= MAX_HEAD_DIM:
        return "head dim"
    if scale is not None and (isinstance(scale, Tensor) or not is_scale(scale)):
        return "scale"
    if attn_mask is not None:
        if is_causal:
            return "attn_mask with is_causal"
        if not _is_mask_type(attn_mask.dtype, dtype):
            return "attn_mask dtype"
        scores = (*leads, heads, q[-2], k[-2])[-max(len(q), len(k), len(v)) :]
        is_rank_known = 2 <= attn_mask.dim() < MAX_RANK
        if not is_rank_known or not _broadcasts(attn_mask.shape, scores):
            return "attn_mask shape"
    return None


def why_left(
    tensors: tuple[Tensor | None, ...],
    options: tuple[Any, ...],
    others: tuple[Tensor | None, ...] = (),
) -> str | None:
    """`why_not` of a call that PyTorch can compute, its gradient included if it records one.

    Args:
        tensors: query, key, value and attn_mask.
        options: dropout_p, is_causal, scale and enable_gqa.
        others: sinks and position biases, on which the result depends, too.
    """
    reason = why_not(*tensors, *options)
    # Their sums of all blocks are made one after another.
    has_sums = any(x is not None and x.requires_grad for x in others)
    if reason is None and has_sums and _is_in_order(tensors[0]) and torch.is_grad_enabled():
        return "deterministic"
    return reason


def _is_in_order(query: Tensor) -> bool:
    """Whether gradients are to have the same bits each time where they have not by themselves."""
    return query.is_cuda and torch.are_deterministic_algorithms_enabled()


# --- Where PyTorch is faster -----------------------------------------------------------


_FEW, _MANY = 128, 512
"""Queries, and keys."""


@torch.compiler.assume_constant_result
@functools.cache
def _has_amx() -> bool:
    """Whether this CPU has Intel's AMX, as PyTorch (2.6) knows."""
    asked = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return asked is not None and asked()


@torch.compiler.assume_constant_result
@functools.cache
def _multiprocessors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@torch.compiler.assume_constant_result
@functools.cache
def _capability(device: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


_HALF = (torch.float16, torch.bfloat16)


class _Won(NamedTuple):
    """Training whose forward and backward take no more time by fa than by PyTorch."""

    calls: tuple[str, ...]
    """Results of `training_of`."""
    dtypes: tuple[torch.dtype, ...]
    keys: int = 0
    """From so many keys on."""
    head_dim: int = MAX_HEAD_DIM
    """Up to this one."""
    below: tuple[int, int] = (99, 0)
    """On GPUs of a lower compute capability."""
    since: tuple[int, int] = (0, 0)
    """On GPUs of this compute capability and higher ones."""
    scores: int = 0
    """From so many scores of all heads on."""


_ON_CPUS = (
    # Forward and backward together on an Intel Xeon with AMX, one thread, PyTorch's time over
    # fa's: benchmarks/results/cpu_training-xeon.json. What is not here is below 1,
    # at some length or head dim at least, and bfloat16 without AMX has not been measured.
    _Won(("full", "causal"), (torch.float32,), keys=512),  # 1.01 to 1.58
    _Won(("full", "causal"), (torch.float16,)),  # 1.00 to 2.30
    _Won(("function",), (torch.float32,), keys=512),  # 1.75 to 4.31
    _Won(("function",), (torch.float16,)),  # 1.71 to 4.11
    _Won(("written",), (torch.float32, *_HALF), keys=2048),  # 1.14 to 1.78
)
_ON_GPUS = (
    # The backward alone, on an H200, both kernels those that lesser GPUs get as well, of which
    # none has been measured: "The Ampere schedule" in
    # benchmarks/results/README.md. FlashAttention-2, which PyTorch runs up to sm_89, takes 1.07 to 1.52
    # times as long as fa at D=64; at D=128 it is 0.95 to 1.28, but with additions to memory
    # that lesser GPUs lack.
    _Won(("full", "causal"), _HALF, head_dim=64, below=(9, 0)),
    # Forward and backward together on an H100, where PyTorch runs cuDNN: 1.05 to 1.28 at D=64
    # from so many scores on, with fewer the host's time is longer (0.38 to 1.09); at 96 1.03 to
    # 1.14, at 128 0.95 to 1.08, at 192 1.04 to 1.15, at 256 0.93 to 1.16
    # (benchmarks/experiments/2026-11-26-few-scores.md).
    _Won(("full", "causal"), _HALF, head_dim=64, since=(9, 0), below=(10, 0), scores=3 << 26),
    # A matrix of masks makes PyTorch run its memory-efficient kernel, on sm_90 and sm_100
    # cuDNN. Neither has been measured: fa takes the former's calls for the memory, which for
    # a learned matrix is one of all heads' scores, and for a mask function the matrix itself.
    _Won(("masked",), _HALF, below=(9, 0)),
    _Won(("function", "written"), _HALF),
)
_ON_GPUS_IN_ORDER = (
    # Under torch.use_deterministic_algorithms, where PyTorch leaves cuDNN for FlashAttention-2:
    # forward and backward on an H200, 1.20 to 2.47 from 512 keys on, "The same bits each time"
    # in benchmarks/results/README.md.
    _Won(("full", "causal"), _HALF, keys=512, since=(9, 0)),
    _Won(("function", "written"), _HALF),  # as above
)


def training_of(
    tensors: tuple[Tensor | None, ...],
    dropout_p: float,
    is_causal: bool,
    has_function: bool = False,
) -> str:
    """The kind of computation by PyTorch, if a gradient is recorded.

    Args:
        tensors: query, key, value and attn_mask.
        dropout_p: the share of weights that are dropped.
        is_causal: whether there is the causal mask.
        has_function: whether there is a mask function, of which PyTorch needs the matrix.

    Returns:
        "full" or "causal" for one of its fused kernels, "masked" for one that reads a matrix,
        "function" for one whose matrix has to be made, "written" where the matrix of scores,
        or its gradient, is written to memory; "" where no gradient is recorded.
    """
    if not op.records_gradient(*tensors):
        return ""
    query, attn_mask = tensors[0], tensors[3]
    if attn_mask is not None and attn_mask.requires_grad:
        return "written"
    if dropout_p > 0 and query.is_cpu:  # whose fused kernel has none
        return "written"
    if has_function:
        return "function"
    if attn_mask is not None:
        return "masked"
    return "causal" if is_causal else "full"


def _is_won(query: Tensor, key: Tensor, value: Tensor, training: str) -> bool:
    """Whether training by fa takes no longer: one of the lines above says so."""
    if query.is_cuda:
        lines = _ON_GPUS_IN_ORDER if _is_in_order(query) else _ON_GPUS
        capability = _capability(query.get_device())
    elif query.is_cpu:
        lines, capability = _ON_CPUS, (0, 0)
    else:
        return False
    head_dim = max(query.size(-1), value.size(-1))
    scores = query.shape[:-1].numel() * key.size(-2)
    for line in lines:
        is_of_gpu = line.since <= capability < line.below
        if training in line.calls and query.dtype in line.dtypes and is_of_gpu:
            is_enough = key.size(-2) >= line.keys and scores >= line.scores
            if is_enough and head_dim <= line.head_dim:
                return True
    return False


def slower(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    training: str = "",
) -> str | None:
    """The reason why PyTorch computes a call that fa takes in less time, or None.

    "few queries", "few scores" or "float32" (on a GPU), "bfloat16" (on a CPU), or "gradient"
    (of forward and backward together). The measurements are in "Where PyTorch is faster" of
    docs/pytorch.md.

    Args:
        query, key, value, attn_mask: as for `why_not`.
        training: the result of `training_of`.
    """
    is_left = training != "" and not _is_won(query, key, value, training)
    if not query.is_cuda:
        # Matrix instructions of bfloat16, which fa's CPU target does not use.
        is_wide = query.dtype is torch.bfloat16 and query.is_cpu and query.size(-2) > 4
        if is_wide and (is_left or training == "") and _has_amx():
            return "bfloat16"
        return "gradient" if is_left else None
    if query.dtype is torch.float32:
        return "float32"
    queries, has_many = query.size(-2), key.size(-2) >= _MANY
    if queries <= _FEW and has_many:  # a tile of rows takes as long however few there are
        return "few queries"
    # Tiles of 192 rows of narrow heads leave processors idle that smaller ones would not.
    is_narrow = has_many and query.size(-1) <= 64 and value.size(-1) <= 64
    if is_narrow or queries <= _FEW or attn_mask is not None:
        heads, processors = query.shape[:-2].numel(), _multiprocessors(query.get_device())
        if is_narrow and heads * -(-queries // 192) < processors:
            return "few queries"
        if queries <= _FEW and heads >= 4 * processors:
            return "few queries"
        # A mask that reads data has lists of its blocks made first, by a launch of their own.
        keys = key.size(-2)
        if attn_mask is not None and keys <= 2048 and heads * queries * keys <= 1 << 26:
            return "few scores"
    return "gradient" if is_left else None


_known_masks: dict[Any, int] = {}
"""The number of the variant of a mask that broadcasts, by all that it depends on."""
_MOST = 4096


def _known_mask(mask: Tensor, query: Any, key: Any, dtype: torch.dtype) -> int:
    """The number of a mask's variant, -1 for an unusual mask."""
    if type(mask) is not Tensor:
        return -1
    made_for = (mask.dtype, mask.shape, mask.stride(), query, key, dtype)
    number = _known_masks.get(made_for)
    if number is None:
        number = -1
        scores = (*query[:3], key[2])
        if _is_mask_type(mask.dtype, dtype) and mask.dim() >= 2 and _broadcasts(mask.shape, scores):
            traced = op.traced_of(_variant_of(mask, query[:1], 0, dtype), (mask,))
            number = traced.number if traced.arrays[0] is mask else -1
        if len(_known_masks) >= _MOST:
            _known_masks.clear()
        _known_masks[made_for] = number
    return number


def known(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor | None:
    """The short way of a usual call, of tensors that torch.autocast does not convert; None for any
    other, which is not computed then."""
    is_dropping = type(dropout_p) is not float or dropout_p != 0.0
    if is_dropping or query.dim() != 4 or query.is_nested or key.is_nested:
        return None
    shape = query.shape
    if not enable_gqa and shape[1] != key.size(1):
        return None
    number, arrays = 0, ()
    if attn_mask is not None:
        number = -1 if is_causal else _known_mask(attn_mask, shape, key.shape, query.dtype)
        if number < 0:
            return None
        arrays = (attn_mask,)
    out = _native.unseen_attention(query, key, value, is_causal, scale, False, number, arrays)
    return None if out is _native.RECORDED else out


def _shapes(**tensors: Tensor) -> str:
    return ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())


def _error(reason: str, query: Any, key: Any, value: Any, mask: Any, **options: Any) -> Exception:
    """The error of `sdpa` for a reason of `why_not`."""
    kinds = ", ".join(type(x).__name__ for x in (query, key, value, mask) if x is not None)
    if reason == "tensor class":
        return TypeError(
            f"expected strided tensors of torch.Tensor's own class, got {kinds}; convert them"
        )
    if reason in op.TRANSFORM_ERRORS:
        return NotImplementedError(op.TRANSFORM_ERRORS[reason])
    if reason == "dropout":
        return probability_error(options["dropout_p"])
    shapes = _shapes(query=query, key=key, value=value)
    if reason == "dtype":
        return TypeError(
            "expected query, key and value all of float16, bfloat16 or float32, or of float64 on the "
            "CPU, got "
            f"{query.dtype}, {key.dtype} and {value.dtype}; convert them"
        )
    if reason == "device":
        devices = ", ".join(str(x.device) for x in (query, key, value, mask) if x is not None)
        return ValueError(
            f"expected all tensors on one cpu or cuda device, got {devices}; move them"
        )
    if reason == "heads":
        remedy = (
            "make the heads of query a multiple of those of key and value"
            if options["enable_gqa"]
            else "pass enable_gqa=True where several query heads share one key head"
        )
        return ValueError(f"expected numbers of heads that go together, got {shapes}; {remedy}")
    if reason == "head dim":
        return ValueError(
            f"expected head dims in [1, {MAX_HEAD_DIM}], got {shapes}; use PyTorch's own for such"
        )
    if reason == "scale":
        return scale_error(options["scale"])
    if reason == "attn_mask with is_causal":
        return ValueError(
            f"expected attn_mask or is_causal=True, got both, attn_mask of shape "
            f"{list(mask.shape)}; put the causal mask into attn_mask, or use fa.attention with "
            "is_causal and mask_mod"
        )
    if reason == "attn_mask dtype":
        return TypeError(
            "expected attn_mask of bool, float16, bfloat16 or float32, or of float64 as query is, "
            f"got {mask.dtype}; convert it"
        )
    if reason == "attn_mask shape":
        return ValueError(
            f"expected attn_mask to broadcast to [..., heads, queries, keys] with 2 to "
            f"{MAX_RANK - 1} dimensions, got {list(mask.shape)} for {shapes}; give dimensions "
            "the size that the scores have, or 1"
        )
    return ValueError(
        "expected query [..., Hq, L, E], key [..., H, S, E] and value [..., H, S, Ev] with equal "
        f"E, equal S and batch dimensions that broadcast, got {shapes}; reshape them"
    )


# --- A mask as a function ------------------------------------------------------------


def _batch_coordinates(b: Any, leads: tuple[int, ...]) -> tuple[Any, ...]:
    """Where batch entry b is in dimensions of these sizes, row-major."""
    if not leads:
        return (b,)
    below = [math.prod(leads[at + 1 :]) for at in range(len(leads))]
    return tuple(b // step % size for step, size in zip(below, leads))


@functools.cache
def _trace_mask(
    dtype: torch.dtype,
    is_single: tuple[bool, ...],
    is_strided: bool,
    leads: tuple[int, ...],
    dropped: int,
    scores: str,
) -> str:
    """The text of the variant that a mask is: hides or adds to scores.

    Args:
        dtype: bool for a mask that hides, else it adds.
        is_single: for each of its dimensions whether the size is 1, which goes
            for all queries, keys, heads or batch entries.
        is_strided: in the last dimension.
        leads: sizes of the batch dimensions, if there are several.
        dropped: of how many of 256 random numbers a weight is.
        scores: the element type of attention, which decides the type of scores.
    """
    sizes = [1 if single else 2 for single in is_single]
    values = torch.empty(sizes, dtype=dtype)
    if is_strided:
        values = torch.empty([*sizes, 2], dtype=dtype)[..., 0]

    def mask_mod(b: Any, h: Any, i: Any, j: Any) -> Any:
        # Zeros for batch dimensions of size 1, where none needs a coordinate.
        at = (*[0] * len(sizes), *_batch_coordinates(b, leads), h, i, j)[-len(sizes) :]
        index = tuple(0 if size == 1 else n for size, n in zip(sizes, at))
        return get_item(values, index, "fa.torch.sdpa")

    def score_mod(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return score + mask_mod(b, h, i, j)

    functions: dict[str, Callable[..., Any]] = (
        {"mask_mod": mask_mod} if dtype == torch.bool else {"score_mod": score_mod}
    )
    variant = trace(**functions, dtype=scores).without_arrays()
    return (with_seed_type(variant, dropped) if dropped else variant).to_text()


@torch.compiler.assume_constant_result
def _mask_variant(*key: Any) -> str:
    """The result of `_trace_mask`, a constant of compiled code."""
    return _trace_mask(*key)


def _variant_of(
    mask: Tensor | None, leads: tuple[Any, ...], dropped: int, dtype: torch.dtype
) -> str:
    if mask is None:
        return op.dropout_text(dropped) if dropped else ""
    # Branches, which torch.compile decides where sizes are symbols.
    is_single = tuple([True if size == 1 else False for size in mask.shape])
    is_strided = True if mask.shape[-1] > 1 and mask.stride(-1) != 1 else False
    # One batch dimension needs no size; several do if the mask tells them apart.
    has_batch = len(leads) > 1 and not all(is_single[:-3])
    sizes = tuple([int(size) for size in leads]) if has_batch else ()
    scores = "f64" if dtype is torch.float64 else "f32"
    return _mask_variant(mask.dtype, is_single, is_strided, sizes, dropped, scores)


# --- The call ------------------------------------------------------------------------


def _is_operator_needed(tensors: tuple[Tensor, ...]) -> bool:
    if torch.compiler.is_dynamo_compiling():
        return True
    return is_seen(tensors)


def _operand(x: Tensor, leads: tuple[Any, ...], heads: Any) -> Tensor:
    """A tensor as [B, heads, length, dim], where a kernel can read it."""
    if x.dim() < 3:
        x = x.unsqueeze(0)
    if heads is not None and x.shape[-3] not in (1, heads):
        # Of no query heads, or grouped otherwise than the other of key and value.
        x = x.narrow(-3, 0, 0) if heads == 0 else x.repeat_interleave(heads // x.shape[-3], -3)
    shape = x.shape
    if shape[:-3] != leads or (heads is not None and shape[-3] != heads):
        x = x.expand((*leads, shape[-3] if heads is None else heads, *shape[-2:]))
    if len(leads) != 1:
        x = x.reshape(-1, *x.shape[-3:]) if leads else x.unsqueeze(0)
    return x.contiguous() if x.is_cuda and x.stride(-1) != 1 else x


def compute(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """The result of a call that `why_not` accepts."""
    rank = max(query.dim(), key.dim(), value.dim())
    if rank == 3 and not enable_gqa:
        # Batch entries rather than heads, whose number is part of a kernel.
        query, key, value = (x.unsqueeze(-3) for x in (query, key, value))
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.unsqueeze(-3)
    shapes = (query.shape, key.shape, value.shape)
    leads = _common(*[shape[:-3] for shape in shapes])
    heads = _heads(*shapes, enable_gqa)
    # Key heads that are fewer than the query's stay so, if they are as many as the value's.
    key_heads = None if _heads_of(shapes[1]) == _heads_of(shapes[2]) else heads
    q = _operand(query, leads, heads)
    k, v = _operand(key, leads, key_heads), _operand(value, leads, key_heads)
    captured = [] if attn_mask is None else [attn_mask]
    dropped = dropped_of(dropout_p)
    variant = _variant_of(attn_mask, leads, dropped, query.dtype)
    if dropped:
        captured.append(torch_seed(torch, None, q.device))
    factor = None if scale is None else float(scale)
    if _is_operator_needed((q, k, v, *captured)):
        if not torch.compiler.is_dynamo_compiling():
            q, k, v = (x.resolve_neg() for x in (q, k, v))
            captured = [x.resolve_neg() for x in captured]
        is_recording = op.records_gradient(q, k, v, *captured)  # which needs the log-sum-exp
        if is_recording and not torch.compiler.is_dynamo_compiling():
            traced = op.traced_of(variant, captured)
            out = op.record(Call(q, k, v, traced, bool(is_causal), factor))[0]
        else:
            options = {"variant": variant, "is_causal": bool(is_causal), "scale": factor}
            if is_recording:
                out = torch.ops.fa.attention_with_lse(q, k, v, captured, **options)[0]
            else:
                out = torch.ops.fa.attention(q, k, v, captured, **options)
    else:
        out = attend(Call(q, k, v, op.traced_of(variant, captured), bool(is_causal), factor))
    if rank == 3 and not enable_gqa:
        return out.squeeze(-3)
    return out if len(leads) == 1 else out.reshape((*leads, *out.shape[1:])[-rank:])


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`, by fa.

    Args:
        query: [..., Hq, L, E], float16, bfloat16 or float32 on the CPU or a CUDA
            device, or float64 on the CPU, any strides; E in [1, 256]. [N, L, E] is a batch of N.
        key: [..., H, S, E] of the same type.
        value: [..., H, S, Ev] of the same type; Ev in [1, 256]. Batch dimensions
            broadcast, and heads where one tensor has a single one.
            Nested tensors [B, H, *, E] are taken without attn_mask.
        attn_mask: bool, True where the query sees the key, or a float that is added to the
            scaled score. Broadcasts to [..., Hq, L, S]; the kernel reads it in place, at
            any strides.
        dropout_p: the probability of dropping a weight, in [0, 0.996] and steps of 1/256;
            PyTorch's generator for the device gives the seed.
        is_causal: query i sees keys j <= i, also if L and S differ.
        scale: factor of the products; 1/sqrt(E) if None.
        enable_gqa: whether Hq may be a multiple of H, so that query heads share a key head.
            If value has another H than key, shared heads are copied for each query head.

    Returns:
        [..., Hq, L, Ev] in query's type. Its dimensions lie in memory in query's order if E
        is the innermost there. A row that sees no key, by False or by -inf, is 0.

    Raises:
        NotImplementedError: a call in a transform of torch.func or in
            torch.jit.trace, or tensors with a forward gradient.
        ValueError: shapes or a dropout_p that do not fit; attn_mask together with
            is_causal; several devices.
        TypeError: another element type, or tensors of another class.

    torch.autocast converts the inputs as for PyTorch's own function. The output is
    differentiable, a float attn_mask's gradient included. Under torch.compile the call is
    one operator.
    """
    query, key, value, attn_mask = op.autocast(query, key, value, attn_mask)
    if isinstance(scale, Tensor):
        scale = number_of_argument("scale", scale)
    if not torch.compiler.is_dynamo_compiling():
        options = (dropout_p, is_causal, scale, enable_gqa)
        out = known(query, key, value, attn_mask, *options)
        if out is not None:
            return out
    if query.is_nested or key.is_nested or value.is_nested:
        if attn_mask is not None:
            nested.refuse_mask(attn_mask)
        request = Request(query, key, value, is_causal=is_causal, scale=scale, dropout_p=dropout_p)
        return nested.attention(request, answer, enable_gqa)
    arguments = (query, key, value, attn_mask)
    reason = why_not(*arguments, dropout_p, is_causal, scale, enable_gqa)
    if reason is not None:
        raise _error(reason, *arguments, dropout_p=dropout_p, scale=scale, enable_gqa=enable_gqa)
    return compute(*arguments, dropout_p, is_causal, scale, enable_gqa)
