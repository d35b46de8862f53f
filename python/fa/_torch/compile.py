# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`fa.attention` in code that torch.compile traces.

Without functions a call becomes `fa::attention`. A score or mask function belongs to the
code that is being compiled: it may not exist outside, and its captured tensors must be
inputs of the graph. So PyTorch traces it, with tensors of one element for the score and the
coordinates, to a graph of its own. This graph is the body of a higher-order operator, whose
operands are the captured tensors. When PyTorch takes the operator apart (`_lower`), fa runs
the graph with its traced values, which makes a variant as of any function. The result is
`fa::attention` with the captured tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fa import math as fa_math
from fa._masks.prepare import Prepared
from fa._run.arrays import compute_type_of
from fa._run.call import Call
from fa._run.checks import number_of_argument
from fa._run.dropout import add_dropout, dropped_of, torch_seed
from fa._run.variant import COORDINATES, Variant
from fa._torch import op
from fa._trace.captured import element
from fa._trace.errors import TraceError
from fa._trace.functions import dtype_name
from fa._trace.scalars import is_tracing
from fa._trace.trace import expect_heads, key_length, query_length, trace_both

try:  # from PyTorch 2.8 on
    from torch._higher_order_ops.wrap import dynamo_bypassing_wrapper
except ImportError:
    dynamo_bypassing_wrapper = None

_LENGTHS = {"query_length": query_length, "key_length": key_length}


# --- Stand-ins for traced values while PyTorch traces --------------------------------

torch.library.define("fa::traced_value", "(Tensor? like, str name) -> Tensor")


@torch.library.register_fake("fa::traced_value")
def _fake_traced_value(like: Tensor | None, name: str) -> Tensor:
    # Of one dimension: PyTorch takes the number of an index that has none.
    if like is None:
        return torch.empty((), dtype=torch.int64)
    return like.new_empty(1, dtype=op.lse_dtype(like) if name == "score" else torch.int64)


@torch.compiler.allow_in_graph
def _result(what: str, value: Any) -> Any:
    """The result of a function, marked in the graph."""
    return value if isinstance(value, Tensor) else torch.full((1,), value)


@torch.compiler.allow_in_graph
def _math(name: str, *args: Any, **options: Any) -> Any:
    """A function of fa.math, of traced values or their stand-ins."""
    result = getattr(fa_math, name)(*args, **options)
    # Of numbers a number, but what is in a graph gives tensors.
    return result if is_tracing() else torch.as_tensor(result)


@torch.compiler.allow_in_graph
def _expect_heads(h: Any, heads: int, reader: str) -> Any:
    return expect_heads(h, heads, reader)


@torch.compiler.allow_in_graph
def _element(array: Any, reader: str, *index: Any) -> Any:
    """`element`, of traced values or their stand-ins."""
    return element(array, index, reader)


def _stand_in(name: str) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return _math(name, *args, **options)

    return call


def _cast(x: Any, dtype: Any) -> Any:
    # By its name: PyTorch makes types of its own of Python's.
    for own, name in ((float, "float"), (int, "int"), (bool, "bool")):
        if dtype is own:
            return _math("cast", x, name)
    return _math("cast", x, dtype_name(dtype))


def _length_stand_in(name: str) -> Callable[[], Any]:
    def call() -> Any:
        return torch.ops.fa.traced_value(None, name)

    return call


def _substitute(function: Any, by: Any) -> None:
    torch.compiler.substitute_in_graph(function, skip_signature_check=True)(by)


for _name in fa_math.__all__:
    _substitute(getattr(fa_math, _name), _cast if _name == "cast" else _stand_in(_name))
_substitute(expect_heads, lambda h, heads, reader: _expect_heads(h, heads, reader))
_substitute(
    element,
    lambda array, index, reader: _element(
        array, reader, *(index if isinstance(index, tuple) else (index,))
    ),
)
for _name, _function in _LENGTHS.items():
    _substitute(_function, _length_stand_in(_name))


# --- From a graph to a variant -------------------------------------------------------


class _Graph:
    """A function's graph as a function of traced values.

    Args:
        module: the graph with its constants.
        inputs: the values of its placeholders.
        result: the node of the function's result.
        what: "score_mod" or "mask_mod".
    """

    def __init__(
        self, module: torch.fx.GraphModule, inputs: Mapping[Any, Any], result: Any, what: str
    ) -> None:
        self.__name__ = f"{what} of compiled code"
        self._module = module
        self._inputs = inputs
        self._result = result
        self._has_score = what == "score_mod"

    def __call__(self, *arguments: Any) -> Any:
        names = ("score", *COORDINATES) if self._has_score else COORDINATES
        given = dict(zip(names, arguments))
        values = dict(self._inputs)
        needed, modes = _needed(self._result), _Modes()
        for node in self._result.graph.nodes:
            if node in needed and node not in values:
                values[node] = self._value(node, values, given)
            modes.run(node)
            if node is self._result:
                break
        return values[self._result]

    def _value(self, node: Any, values: Mapping[Any, Any], given: Mapping[str, Any]) -> Any:
        def value_of(item: Any) -> Any:
            value = values[item]
            # A number in Python is part of the kernel: PyTorch compiles anew for another.
            if isinstance(value, torch.SymInt):
                return int(value)
            return float(value) if isinstance(value, torch.SymFloat) else value

        args, options = torch.fx.node.map_arg((node.args, node.kwargs), value_of)
        if _is_operator(node, torch.ops.fa.traced_value):
            name = args[1]
            return _LENGTHS[name]() if name in _LENGTHS else given[name]
        try:
            if node.target is _result:
                return args[1]
            if node.op == "call_function":
                return node.target(*args, **options)
            if node.op == "call_method":
                return getattr(args[0], node.target)(*args[1:], **options)
            assert node.op == "get_attr", node.op
            return torch.fx.graph_module._get_attr(self._module, node.target)
        except Exception as reason:
            line = (node.stack_trace or "").rstrip()
            error = TraceError(f"{reason}\n{line}" if line else str(reason))
            raise error from reason


class _Modes:
    """Whether gradients are recorded, as nodes of a graph switch it."""

    def __init__(self) -> None:
        self._before: list[bool] = []

    def run(self, node: Any) -> None:
        """Runs a node that switches it; does nothing for others."""
        if node.target is torch._C._set_grad_enabled:
            torch._C._set_grad_enabled(node.args[0])
        elif node.target is torch.autograd.grad_mode._enter_inference_mode:
            self._before.append(torch.is_grad_enabled())
            torch._C._set_grad_enabled(self._before[-1] and not node.args[0])
        elif node.target is torch.autograd.grad_mode._exit_inference_mode:
            torch._C._set_grad_enabled(self._before.pop())


def _is_operator(node: Any, packet: Any) -> bool:
    return node.target is packet or getattr(node.target, "overloadpacket", None) is packet


def _needed(result: Any) -> set[Any]:
    """The nodes that a node needs, and it."""
    needed, left = {result}, [result]
    while left:
        for node in left.pop().all_input_nodes:
            if node not in needed:
                needed.add(node)
                left.append(node)
    return needed


def _lower(body: torch.fx.GraphModule) -> Callable[..., Any]:
    """The replacement of a body: attention with the body's functions as a variant."""

    def call(*operands: Any) -> Any:
        nodes = body.graph.nodes
        inputs = dict(zip((n for n in nodes if n.op == "placeholder"), operands))
        functions = {
            node.args[0]: _Graph(body, inputs, node, node.args[0])
            for node in nodes
            if node.target is _result
        }
        for node in nodes:
            return_lse = _is_operator(node, torch.ops.fa.attention_with_lse)
            if return_lse or _is_operator(node, torch.ops.fa.attention):
                break
        query, key, value = (inputs[operand] for operand in node.args[:3])
        both = functions.get("score_mod"), functions.get("mask_mod")
        traced = trace_both(*both, computed=compute_type_of(query))
        if node.args[3]:
            dropped = Variant.from_text(node.kwargs["variant"])[0].dropout
            traced = add_dropout(traced, dropped, inputs[node.args[3][0]])
        # With dynamic=True a scale is an operand, too.
        scale = node.kwargs["scale"]
        options = (node.kwargs["is_causal"], inputs.get(scale, scale))
        out = op.call(Call(query, key, value, traced, *options, return_lse))
        # What the functions returned is for nobody.
        unused = [query.new_empty(1) for _ in functions]
        return (*(out if return_lse else (out,)), *unused)

    return call


@torch.compiler.assume_constant_result  # called as it is: older ones keep no message
def _check_version() -> None:
    if dynamo_bypassing_wrapper is None:
        raise NotImplementedError(
            f"expected PyTorch 2.8 or later for score and mask functions in compiled code, got "
            f"{torch.__version__}; call fa.attention in a function under torch.compiler.disable"
        )


def attention(request: Any) -> Any:
    """`fa.attention` of a request (`fa._ways`) where torch.compile traces it."""
    if request.schedule is not None:
        raise ValueError(op.NO_SCHEDULE)
    q, k, v = op.autocast(*request[:3])
    # With dynamic=True a number is a symbol: computed here, an operand of the body.
    scale = request.scale
    if isinstance(scale, Tensor):
        scale = number_of_argument("scale", scale)
    scale = None if scale is None else scale * 1.0
    options = {"is_causal": bool(request.is_causal), "scale": scale}
    score_mod, mask_mod = request.score_mod, request.mask_mod
    if isinstance(mask_mod, Prepared):
        mask_mod.check(q, k)
        mask_mod = mask_mod.value
    return_lse = request.return_lse
    seeds = []
    dropped = dropped_of(request.dropout_p)
    if dropped:
        seeds = [torch_seed(torch, request.dropout_seed, q.device)]
        options["variant"] = op.dropout_text(dropped, seeds[0].dtype == torch.int32)
    operator = torch.ops.fa.attention_with_lse if return_lse else torch.ops.fa.attention
    if score_mod is None and mask_mod is None:
        if not return_lse and op.records_gradient(q, k, v):
            return torch.ops.fa.attention_with_lse(q, k, v, seeds, **options)[0]
        return operator(q, k, v, seeds, **options)
    _check_version()

    def body(query: Any, key: Any, value: Any) -> Any:
        plain = operator(query, key, value, seeds, **options)
        at = [torch.ops.fa.traced_value(query, name) for name in COORDINATES]
        results = []
        if score_mod is not None:
            score = torch.ops.fa.traced_value(query, "score")
            results.append(_result("score_mod", score_mod(score, *at)))
        if mask_mod is not None:
            results.append(_result("mask_mod", mask_mod(*at)))
        return (*plain, *results) if return_lse else (plain, *results)

    results = dynamo_bypassing_wrapper(_lower, body, q, k, v)
    return results[:2] if return_lse else results[0]
