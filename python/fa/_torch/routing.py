# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model's calls of PyTorch's scaled_dot_product_attention, taken to fa.

The name in torch.nn.functional is another function while this is on, and so it
is in modules that imported it from there. (A mode of PyTorch's would see those
calls as well, but costs microseconds in each other function of the model.)
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fa._torch import op, sdpa
from fa._torch.statistics import Calls

_NAME = "scaled_dot_product_attention"
_own = getattr(torch.nn.functional, _NAME)
"""PyTorch's own, or whatever was there before."""


class SdpaStatistics(Calls):
    """Counts of the calls of `scaled_dot_product_attention`.

    In compiled code a call is counted when it is compiled, not when it runs.

    Attributes:
        routed: number of calls that fa computed.
        fell_back: number of calls that PyTorch computed, by reason: "dropout", "dtype",
            "device", "shape", "heads", "head dim", "scale",
            "attn_mask with is_causal", "attn_mask dtype", "attn_mask shape",
            "tensor class", "function transform", "torch.jit" or "forward gradient";
            and where PyTorch is faster (docs/pytorch.md), "gradient", "few queries",
            "few scores", "float32" or "bfloat16".
    """


_lock = threading.RLock()
_total = SdpaStatistics()
_contexts: list[SdpaStatistics] = []
_is_enabled = False
_is_on = False
"""Whether calls are routed now: by `enable_sdpa` or a context."""
_had_fast_path = True


@torch.compiler.assume_constant_result
def _count(reason: str | None) -> None:
    with _lock:
        for statistics in (_total, *_contexts):
            statistics.count(reason)


def _reason(tensors: Any, dropout_p: float, is_causal: bool, *options: Any) -> str | None:
    reason = sdpa.why_left(tensors, (dropout_p, is_causal, *options))
    if reason is None:
        return sdpa.slower(*tensors, sdpa.training_of(tensors, dropout_p, is_causal))
    return reason


def _usual(query: Any, key: Any, value: Any, attn_mask: Any, options: Any) -> Tensor | str | None:
    """A usual call by the short way, or why PyTorch computes it; None for any other."""
    if type(query) is not Tensor or type(key) is not Tensor or type(value) is not Tensor:
        return None
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        return None
    # What torch.autocast converts has other types; sizes of nested tensors can't be asked.
    is_nested = query.is_nested or key.is_nested or value.is_nested
    if is_nested or op.is_autocast(query, key, value, attn_mask):
        return None
    result = sdpa.slower(query, key, value, attn_mask)
    if result is None:
        result = sdpa.known(query, key, value, attn_mask, *options)
        if result is not None:
            _count(None)
        return result
    # Another reason may come first where gradients are recorded.
    if torch.is_grad_enabled() and _reason((query, key, value, attn_mask), *options) != result:
        return None
    _count(result)
    return result


def _by_fa(query: Any, key: Any, value: Any, attn_mask: Any, options: Any) -> Tensor | None:
    """`fa.torch.sdpa` where it takes the call, else None."""
    # What only stands for tensors (of torch.fx.symbolic_trace) can't be asked anything.
    if _is_on and not torch.compiler.is_dynamo_compiling():
        usual = _usual(query, key, value, attn_mask, options)
        if usual is not None:
            return None if type(usual) is str else usual
    if _is_on and all([x is None or isinstance(x, Tensor) for x in (query, key, value, attn_mask)]):
        tensors = op.autocast(query, key, value, attn_mask)
        reason = _reason(tensors, *options)
        _count(reason)
        if reason is None:
            return sdpa.compute(*tensors, *options)
    return None


def _routed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`fa.torch.sdpa` where it takes the call, else PyTorch's own."""
    if not torch.jit.is_scripting():  # torch.jit.script leaves out what is inside
        out = _by_fa(query, key, value, attn_mask, (dropout_p, is_causal, scale, enable_gqa))
        if out is not None:
            return out
    return _own(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _replace(old: Any, new: Any) -> None:
    """Puts a function into the modules that have the other one by its name."""
    for name, module in list(sys.modules.items()):
        if not name.startswith("torch._C") and getattr(module, "__dict__", {}).get(_NAME) is old:
            setattr(module, _NAME, new)


def _update() -> None:
    """Switches the routing as `_is_enabled` and the contexts ask."""
    global _is_on, _had_fast_path
    wanted = _is_enabled or bool(_contexts)
    if wanted == _is_on:
        return
    mha = torch.backends.mha
    if wanted:
        _replace(_own, _routed)
        # The fused layers of torch.nn call no function that could be another one.
        _had_fast_path = mha.get_fastpath_enabled()
        mha.set_fastpath_enabled(False)
    else:
        _replace(_routed, _own)
        mha.set_fastpath_enabled(_had_fast_path)
    _is_on = wanted


def enable_sdpa() -> None:
    """Routes calls of `scaled_dot_product_attention` to fa until `disable_sdpa`.

    In the whole process: in `torch.nn.functional`, and in modules that imported
    the function from there under its name. A reference to it that is kept
    elsewhere (an attribute, a default argument) stays PyTorch's. Calls that fa
    does not take go to PyTorch's own, as do those that PyTorch computes in less
    time, its backward included; `sdpa_statistics` says how many, and why. The fused inference path of
    `torch.nn.MultiheadAttention` and `TransformerEncoderLayer`, which does not
    call it, is off meanwhile. Code compiled before is compiled again.
    """
    global _is_enabled
    with _lock:
        _is_enabled = True
        _update()


def disable_sdpa() -> None:
    """Ends `enable_sdpa`; within a `use_sdpa` calls are routed until its end."""
    global _is_enabled
    with _lock:
        _is_enabled = False
        _update()


@contextlib.contextmanager
def use_sdpa() -> Iterator[SdpaStatistics]:
    """`enable_sdpa` for a `with` statement, which gets the counts of its calls.

    Contexts may be nested, also in several threads; calls are routed as long as one is
    entered. Enter it outside of compiled functions.
    """
    statistics = SdpaStatistics()
    with _lock:
        _contexts.append(statistics)
        _update()
    try:
        yield statistics
    finally:
        with _lock:
            _contexts[:] = [context for context in _contexts if context is not statistics]
            _update()


def sdpa_statistics() -> SdpaStatistics:
    """The counts of all calls so far, those in `use_sdpa` included; a copy."""
    with _lock:
        return SdpaStatistics(_total.routed, Counter(_total.fell_back))
