# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that others registered with PyTorch, traced through their implementation.

An operator of `torch.library` has an implementation, often a few lines with
functions of PyTorch. It is called with stand-ins: tensors of no dimensions and
without memory, each for one traced value. PyTorch gives every operation on such a
tensor over to it (`__torch_dispatch__`); those of PyTorch are done with the traced
values, and those of others are looked into in the same way. An implementation that
reads memory, or that is compiled code, makes none of these operations and is refused.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from fa._trace import custom
from fa._trace.captured import get_item, is_traced, lift
from fa._trace.errors import TraceError, error
from fa._trace.scalars import FUNCTIONS, Scalar, current_region

_REMEDY = "write it out in the function, with functions of torch or fa.math"
_DTYPES = {"f32": torch.float32, "f64": torch.float64, "i1": torch.bool}

# Operations of PyTorch whose names here are others, or which give their operand.
_NAMES = {
    **dict.fromkeys(("alias", "lift_fresh", "lift", "expand", "expand_as", "t"), "clone"),
    "_to_copy": "to",
}


class _StandIn(torch.Tensor):
    """A tensor of no dimensions that stands for a traced value."""

    value: Scalar

    @staticmethod
    def of(value: Scalar) -> _StandIn:
        """The stand-in of a traced value."""
        dtype = _DTYPES.get(value._type, torch.int64)
        result = torch.Tensor._make_wrapper_subclass(_StandIn, (), dtype=dtype)
        result.value = value
        return result

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function.namespace not in ("aten", "prims"):
            return _wrapped(_run(function, tuple(map(_plain, args)), kwargs))
        name = function._schema.name.partition("::")[2]
        if function._schema.is_mutable:
            raise error(
                f"the implementation of a torch operator changes a tensor in place ({name})",
                "write it without functions whose names end with _ and without out=",
            )
        if name == "index":
            return _wrapped(get_item(args[0], tuple(_plain(x) for x in args[1])))
        own = FUNCTIONS.get(_NAMES.get(name, name))
        if own is None:
            raise error(
                f"the implementation of a torch operator uses {name}, which can't be traced",
                _REMEDY,
            )
        for option in ("memory_format", "layout", "device", "pin_memory", "non_blocking"):
            kwargs.pop(option, None)
        if _NAMES.get(name) == "clone":
            args = args[:1]
        given = [_plain(x) for x in args]
        return _wrapped(own(*given, **{key: _plain(x) for key, x in kwargs.items()}))


def _plain(x: Any) -> Any:
    """The traced value of a stand-in."""
    if isinstance(x, _StandIn):
        return x.value
    if isinstance(x, (tuple, list)):
        return type(x)(map(_plain, x))
    return x


def _wrapped(x: Any) -> Any:
    """The stand-in of a traced value."""
    if isinstance(x, tuple):
        return tuple(map(_wrapped, x))
    return _StandIn.of(x) if isinstance(x, Scalar) else x


_KEYS = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CPU")
"""For which implementations are registered, the most general one first."""


def _implementation(function: Any) -> Any:
    """The implementation of an operator for the CPU; raises if there is none."""
    for key in _KEYS:
        if torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), key):
            return functools.partial(function._op_dk, getattr(torch._C.DispatchKey, key))
    name = function._schema.name
    raise error(f"torch operator {name} has no implementation for tensors of the CPU", _REMEDY)


def _overload(function: Any) -> Any:
    """An operator, of a name of `torch.ops` the one that is not named further."""
    if isinstance(function, torch._ops.OpOverloadPacket):
        names = function.overloads()
        return getattr(function, "default" if "default" in names else names[0])
    return function


def _gradient_of(function: Any) -> Any:
    """The definition by `torch.library.custom_op` of an operator that has a gradient of its
    own; True of another one that has one, and None of one whose implementation is differentiated."""
    name = function._schema.name
    definition = torch._library.custom_ops.OPDEFS.get(name)
    if definition is not None:
        return definition if definition._backward_fn is not None else None
    keys = ("Autograd", "AutogradCPU")
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return True if any(has(function.name(), key) for key in keys) else None


def _composed(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator's implementation for traced values."""
    region = current_region(f"torch operator {function._schema.name}")

    def given(x: Any) -> Any:
        return _wrapped(lift(region, x) if is_traced(x) and not isinstance(x, (tuple, list)) else x)

    options = {key: given(x) for key, x in kwargs.items()}
    return _plain(_implementation(function)(*map(given, args), **options))


def _run(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`_composed`, with the gradient that the operator has."""
    own = _gradient_of(function)
    if own is None:
        return _composed(function, args, kwargs)
    name = function._schema.name

    def forward(context: Any, args: tuple[Any, ...]) -> Any:
        result = _composed(function, args, kwargs)
        if own is not True and own._setup_context_fn is not None:
            options = {"keyword_only_inputs": kwargs} if kwargs else {}
            own._setup_context_fn(ctx=context, inputs=args, output=result, **options)
        return result

    def backward(context: Any, *gradients: Any) -> Any:
        if own is True:
            raise error(
                f"torch operator {name} has a gradient that is not known",
                "define it by torch.library.custom_op and register_autograd",
            )
        return own._backward_fn(context, *gradients)

    return custom.with_backward(f"torch operator {name}", args, forward, backward)


def stand_for(values: Any) -> bool:
    """Whether one of the values stands for a traced one."""
    return any(isinstance(x, _StandIn) for x in values)


def apply(function: Any, args: tuple[Any, ...]) -> Any:
    """The results of an `autograd.Function` that an implementation applies."""
    return _wrapped(custom.call(function, tuple(map(_plain, args))))


def call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator of torch.ops for traced values.

    Args:
        function: an `OpOverload` or `OpOverloadPacket`, none of PyTorch's own.
        args: its arguments, traced values and others.
        kwargs: likewise.
    """
    overload = _overload(function)
    name = overload._schema.name
    if overload._schema.is_mutable:
        raise error(f"torch operator {name} changes its operands", _REMEDY)
    try:
        result = _run(overload, args, kwargs)
    except TraceError:
        raise
    except Exception as reason:
        what = str(reason).strip().partition("\n")[0]
        raise error(f"torch operator {name} can't be traced: {what}", _REMEDY) from reason
    if not _is_traced(result):
        raise error(
            f"torch operator {name} can't be traced: its implementation is no composition of "
            "PyTorch's operations",
            _REMEDY,
        )
    return result


def _is_traced(result: Any) -> bool:
    if isinstance(result, (tuple, list)):
        return all(map(_is_traced, result))
    return is_traced(result)
