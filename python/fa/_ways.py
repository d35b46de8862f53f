# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ways that compute a call of attention, in the order in which `answer` tries them.

A `Request` is a user's call as one frozen value. `answer` hands it to the first way that
takes it. The way computes the result, or simplifies the request (nested tensors become
packed ones, functions become a traced variant) and calls `answer` again. PyTorch's ways are
imported at the first call that needs them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from fa import _native
from fa._masks.blocks import block_mask, check_block_mask, is_block_mask
from fa._masks.prepare import Prepared
from fa._run.arrays import compute_type_of, is_compiling, is_seen, is_torch_tensor
from fa._run.call import Call, attend
from fa._run.dropout import with_dropout
from fa._run.lists import Lists
from fa._run.request import Request
from fa._trace.trace import trace_functions


class Way(NamedTuple):
    """One way: a test whether it takes a request, and a function that answers it."""

    name: str
    takes: Callable[[Request], bool]
    run: Callable[[Request], Any]


def answer(request: Request) -> Any:
    """The result of `fa.attention` for a request."""
    if request.traced.number > 0 and not _has_functions(request):
        call = request.call()
        result = short(call, request.prepared) if call.is_usual(True) else None
        if result is not None:
            return result
    for way in _WAYS:
        if way.takes(request):
            return way.run(request)
    raise AssertionError("the last way takes every request")


# --- The short way -------------------------------------------------------------------------


def short(
    call: Call, lists: Lists | None, check: Callable[[Any, Any], object] | None = None
) -> Any:
    """The result of a usual call that `_native` knows or that only PyTorch's autograd has to
    see; None for any other call.

    Args:
        call: the call.
        lists: the lists of a prepared mask, or None.
        check: that mask's check, called with query and key if the lists do not imply that
            the mask fits.
    """
    if lists is None:
        known = _native.unseen_attention(*call.key())
    else:
        known = _native.prepared_attention(lists.calls, *call.key())
    if known is not _native.RECORDED:
        return known
    if check is not None:
        check(call.q, call.k)
    from fa._torch import op

    results = op.record_eager(call, lists)
    return results if call.return_lse else results[0]


# --- Nested: sequences of different lengths as PyTorch's nested tensors ---------------


def _is_nested(request: Request) -> bool:
    for x in request[:3]:
        if getattr(x, "is_nested", False) is True:
            return True
    return False


def _nested(request: Request) -> Any:
    from fa._torch import nested

    return nested.attention(request, answer)


# --- Block masks: a BlockMask of FlexAttention for a function -------------------------


def _has_block_mask(request: Request) -> bool:
    return request.mask_mod is not None and is_block_mask(request.mask_mod)


def _block_masked(request: Request) -> Any:
    check_block_mask(request.mask_mod, request.q, request.k)
    return answer(request._replace(mask_mod=block_mask(request.mask_mod)))


# --- Compiled: torch.compile traces the call -----------------------------------------


def _is_compiled(request: Request) -> bool:
    return is_compiling()


def _compiled(request: Request) -> Any:
    from fa._torch import compile as torch_compile

    return torch_compile.attention(request)


# --- Prepared: a mask whose arrays keep their values -----------------------------------


def _is_prepared(request: Request) -> bool:
    return type(request.mask_mod) is Prepared


def _unprepared(request: Request) -> Any:
    mask = request.mask_mod
    mask.check(request.q, request.k)
    return answer(request._replace(mask_mod=mask.value, prepared=mask.lists))


# --- Functions: traced, with dropout ---------------------------------------------------


def _has_functions(request: Request) -> bool:
    if request.score_mod is not None or request.mask_mod is not None:
        return True
    return not (type(request.dropout_p) is float and request.dropout_p == 0.0)


def _traced(request: Request) -> Any:
    traced, mask_mod = request.traced, request.mask_mod
    if request.score_mod is not None or mask_mod is not None:
        of_query = is_torch_tensor(request.q), compute_type_of(request.q)
        traced = trace_functions(request.score_mod, mask_mod, *of_query)
    traced = with_dropout(traced, request.dropout_p, request.dropout_seed, request.q)
    return answer(request.with_traced(traced))


# --- Autocast: torch.autocast converts the tensors --------------------------------------


def _is_converted(request: Request) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or not torch._C._is_any_autocast_enabled():
        return False
    from fa._torch import op

    return op.is_autocast(*request[:3])


def _converted(request: Request) -> Any:
    from fa._torch import op

    q, k, v = op.autocast(*request[:3])
    return answer(request._replace(q=q, k=k, v=v))


# --- Seen by PyTorch: one operator, for gradients, fake tensors, transforms -------------


def _is_seen(request: Request) -> bool:
    return is_seen((*request[:3], *request.traced.arrays))


def _operator(request: Request) -> Any:
    from fa._torch import op

    op.refuse_transforms(*request[:3], *request.traced.arrays)
    return op.call(request.call())


# --- Plain: arrays, shapes and a kernel -------------------------------------------------


def _is_any(request: Request) -> bool:
    return True


def _plain(request: Request) -> Any:
    return attend(request.call())


_WAYS = (
    Way("nested", _is_nested, _nested),
    Way("block mask", _has_block_mask, _block_masked),
    Way("compiled", _is_compiled, _compiled),
    Way("prepared", _is_prepared, _unprepared),
    Way("functions", _has_functions, _traced),
    Way("autocast", _is_converted, _converted),
    Way("seen by PyTorch", _is_seen, _operator),
    Way("plain", _is_any, _plain),
)
