#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random score and mask functions, shapes, strides and types against float64.

    PYTHONPATH=build/python variant_fuzzer.py --functions 1000 --device cuda
    PYTHONPATH=build/python variant_fuzzer.py --seed 17 --functions 1 --verbose

The device is cpu, a CUDA device of PyTorch's (cuda:1), or emulator: PTX for
sm_80, run by test/integration/ptx_emulator.py where there is no GPU.
Seed n gives the same functions everywhere. Each is compiled once and run on
several shapes and captured arrays: a second compilation is a failure, too.

The functions are trees. What jumps (comparisons, //, %, conversions to integers)
is applied to integers and to floats that are exact in float32; the rest is
continuous, so that float32 and float64 may be compared. The rule is that of right.py;
how wrong scores may be is measured: each function of the tree errs by what it may, and
the formula is computed in float32.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import fa
import naive
import numpy as np
import right
from fa._run import arrays as _arrays
from fa._run.call import _kernel

try:
    import torch
except ImportError:
    torch = None

LIMIT = 1 << 22
"""Integers and exact floats stay below it."""
TELLS_EVERY = 30.0
"""Seconds between lines that say how far it is."""


# --- Trees -------------------------------------------------------------------------


@dataclass
class Node:
    """An op of a function: on booleans "b", integers "i", exact floats "e", floats "f"."""

    op: str
    kind: str
    args: list[Any] = field(default_factory=list)
    bound: float = LIMIT
    """Largest magnitude."""
    flavour: int = 0
    """Which library's function is called."""

    def __str__(self) -> str:
        if self.op in ("const", "name"):
            return str(self.args[0])
        if self.op == "read":
            return f"{self.args[0].name}[{', '.join(map(str, self.args[1:]))}]"
        if self.op in INFIX and len(self.args) == 2:
            return f"({self.args[0]} {INFIX[self.op]} {self.args[1]})"
        return f"{self.op}({', '.join(map(str, self.args))})"


@dataclass
class Array:
    """A captured array: its rank and type; sizes and values come with a shape."""

    name: str
    kind: str
    dtype: str
    rank: int
    unit: bool
    """Whether the last stride is 1: a kernel for which it is not is another one."""


INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
# Continuous, with a slope of about 1 at most where the argument is below 20.
SMOOTH = (
    *("tanh", "sigmoid", "sin", "cos", "erf", "atan", "abs", "relu", "softplus", "gelu"),
    *("silu", "logsigmoid", "neg", "square_small", "exp_small", "log_large", "sqrt_large"),
    *("rsqrt_large", "exp2_small", "reciprocal_large", "log2_large", "power_small"),
)


class Generator:
    """Makes functions; what it makes depends on the seed alone."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.arrays: list[Array] = []

    def _array(self, kind: str) -> Array:
        known = [array for array in self.arrays if array.kind == kind]
        if known and (len(self.arrays) >= 5 or self.random.random() < 0.4):
            return self.random.choice(known)
        dtypes = {"b": ["bool"], "i": ["int32", "int64"], "e": ["float32", "float16", "bfloat16"]}
        array = Array(
            f"a{len(self.arrays)}",
            kind,
            self.random.choice(dtypes[kind]),
            self.random.choice([0, 1, 1, 2, 2, 3, 4]),
            self.random.random() < 0.7,
        )
        self.arrays.append(array)
        return array

    def _read(self, kind: str, depth: int) -> Node:
        array = self._array(kind)
        bound = {"b": 1, "i": 64, "e": 16}[kind]
        indices = [self.integer(min(depth - 1, 1)) for _ in range(array.rank)]
        return Node("read", kind, [array, *indices], bound, self.random.randrange(2))

    def _node(self, op: str, kind: str, args: list[Node], bound: float) -> Node:
        return Node(op, kind, args, bound, self.random.randrange(4))

    def integer(self, depth: int) -> Node:
        """An integer."""
        choice = self.random.random()
        if depth <= 0 or choice < 0.15:
            name = self.random.choice(["b", "h", "i", "i", "j", "j"])
            return Node("name", "i", [name], {"b": 8, "h": 8}.get(name, 512))
        if choice < 0.25:
            return self._read("i", depth)
        x = self.integer(depth - 1)
        op = self.random.choice(
            ["add", "sub", "mul", "floordiv", "mod", "abs", "min", "max", "clamp", "where"]
            + ["bits", "shift", "divby", "neg", "count", "invert"]
        )
        if op in ("floordiv", "mod"):
            divisor = self.random.choice([2, 3, 4, 7, 8, 13, -3, -4, -1])
            bound = x.bound if op == "floordiv" else abs(divisor)
            return self._node(op, "i", [x, Node("const", "i", [divisor])], bound)
        if op in ("abs", "neg", "invert"):
            return self._node(op, "i", [x], x.bound + 1)
        if op == "clamp":
            lo = self.random.randrange(-20, 20)
            hi = lo + self.random.randrange(0, 40)
            return Node("clamp", "i", [x, lo, hi], 60, self.random.randrange(4))
        if op == "count":
            return self._node("as_integer", "i", [self.boolean(depth - 1)], 1)
        if op == "where":
            y = self.integer(depth - 1)
            args = [self.boolean(depth - 1), x, y]
            return self._node("where", "i", args, max(x.bound, y.bound))
        if op == "shift":
            by = self.random.randrange(0, 4)
            left = self.random.random() < 0.5 and x.bound * 8 < LIMIT
            bound = x.bound * 8 if left else x.bound
            shift = "lshift" if left else "rshift"
            return self._node(shift, "i", [x, Node("const", "i", [by])], bound)
        if self.random.random() < 0.5:
            y = Node("const", "i", [self.random.randrange(-9, 50)], 50)
        else:
            y = self.integer(depth - 1)
        if op == "divby":  # by what is not constant: at least 1
            divisor = self._node("max", "i", [y, Node("const", "i", [1])], y.bound)
            name = self.random.choice(["floordiv", "mod"])
            return self._node(name, "i", [x, divisor], max(x.bound, y.bound))
        if op == "bits":
            bound = 2 * max(x.bound, y.bound) + 2
            return self._node(self.random.choice(["and", "or", "xor"]), "i", [x, y], bound)
        if op == "mul":
            if x.bound * y.bound >= LIMIT:
                op = "add"
            else:
                return self._node("mul", "i", [x, y], x.bound * y.bound)
        if op in ("min", "max"):
            return self._node(op, "i", [x, y], max(x.bound, y.bound))
        if x.bound + y.bound >= LIMIT:
            return x
        return self._node(op, "i", [x, y], x.bound + y.bound)

    def exact(self, depth: int) -> Node:
        """A float that float32 holds exactly: a multiple of 1/4."""
        choice = self.random.random()
        if depth <= 0 or choice < 0.4:
            x = self.integer(depth - 1)
            return self._node("as_float", "e", [x], x.bound)
        if choice < 0.7:
            return self._read("e", depth)
        x, y = self.exact(depth - 1), self.exact(depth - 1)
        if self.random.random() < 0.3:
            args = [self.boolean(depth - 1), x, y]
            return self._node("where", "e", args, max(x.bound, y.bound))
        if self.random.random() < 0.2:
            return self._node("floor", "e", [x], x.bound + 1)
        if self.random.random() < 0.2:
            divisor = self.random.choice([3.0, 0.5, -2.0, 7.25])
            op = self.random.choice(["floordiv", "mod"])
            bound = 2 * x.bound + 8
            if bound < LIMIT:
                return self._node(op, "e", [x, Node("const", "e", [divisor])], bound)
        if x.bound + y.bound >= LIMIT / 8:
            return x
        op = self.random.choice(["add", "sub", "min", "max"])
        return self._node(op, "e", [x, y], x.bound + y.bound)

    def boolean(self, depth: int) -> Node:
        """A boolean."""
        choice = self.random.random()
        if depth > 0 and choice < 0.15:
            return self._read("b", depth)
        if depth > 0 and choice < 0.45:
            args = [self.boolean(depth - 1), self.boolean(depth - 1)]
            return self._node(self.random.choice(["and", "or", "or", "xor"]), "b", args, 1)
        if depth > 0 and choice < 0.55:
            return self._node("not", "b", [self.boolean(depth - 1)], 1)
        op = self.random.choice(COMPARISONS)
        if self.random.random() < 0.3:
            return self._node(op, "b", [self.exact(depth - 1), self.exact(depth - 1)], 1)
        x = self.integer(depth - 1)
        if self.random.random() < 0.3:
            return self._node(op, "b", [x, Node("const", "i", [self.random.randrange(-5, 60)])], 1)
        return self._node(op, "b", [x, self.integer(depth - 1)], 1)

    def smooth(self, depth: int) -> Node:
        """A float of magnitude 20 at most, as a continuous function of the score."""
        choice = self.random.random()
        if depth <= 0 or choice < 0.2:
            return Node("name", "f", ["s"], 20)
        if choice < 0.35:  # far distances are small
            return self._node("shrink", "f", [self.exact(depth - 1)], 4)
        x = self.smooth(depth - 1)
        if choice < 0.6:
            return self._node(self.random.choice(SMOOTH), "f", [x], 20)
        y = self.smooth(depth - 1)
        op = self.random.choice(["add", "sub", "min", "max", "where", "average", "quotient"])
        if op == "where":
            return self._node(op, "f", [self.boolean(depth - 1), x, y], 20)
        if op in ("add", "sub"):
            inner = self._node(op, "f", [x, y], 40)
            return Node("clamp", "f", [inner, -20.0, 20.0], 20, self.random.randrange(4))
        return self._node(op, "f", [x, y], 20)


# --- What ops are ---------------------------------------------------------------------


def _reference(kind: Any) -> dict[str, Any]:
    """The ops on NumPy's arrays with floats of a type."""
    f = lambda value: kind(value)  # noqa: E731
    erf = np.vectorize(math.erf, otypes=[kind])
    log1p_exp = lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))  # noqa: E731
    return {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "floordiv": np.floor_divide,
        "mod": np.remainder,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "not": np.logical_not,
        "invert": np.invert,
        "lshift": np.left_shift,
        "rshift": np.right_shift,
        "neg": np.negative,
        "min": np.minimum,
        "max": np.maximum,
        "clamp": np.clip,
        "where": np.where,
        "as_integer": lambda x: np.asarray(x).astype(np.int64),
        "as_float": lambda x: np.asarray(x).astype(kind),
        "shrink": lambda x: f(4) * np.tanh(x * f(0.015625)),
        "average": lambda x, y: x * f(0.5) + y * f(0.5),
        "quotient": lambda x, y: x / (y * y + f(1)),
        "floor": np.floor,
        "abs": np.abs,
        "tanh": np.tanh,
        "sigmoid": lambda x: f(1) / (f(1) + np.exp(-x)),
        "sin": np.sin,
        "cos": np.cos,
        "erf": lambda x: erf(x).astype(kind),
        "atan": np.arctan,
        "relu": lambda x: np.maximum(x, f(0)),
        "softplus": log1p_exp,
        "gelu": lambda x: f(0.5) * x * (f(1) + erf(x * f(math.sqrt(0.5)))),
        "silu": lambda x: x / (f(1) + np.exp(-x)),
        "logsigmoid": lambda x: -log1p_exp(-x),
        "square_small": lambda x: np.square(np.clip(x, f(-3), f(3))),
        "power_small": lambda x: np.clip(x, f(-2), f(2)) ** 3,
        "exp_small": lambda x: np.exp(np.clip(x, f(-3), f(2))),
        "exp2_small": lambda x: np.exp2(np.clip(x, f(-3), f(3))),
        "log_large": lambda x: np.log(np.abs(x) + f(0.5)),
        "log2_large": lambda x: np.log2(np.abs(x) + f(0.5)),
        "sqrt_large": lambda x: np.sqrt(np.abs(x) + f(0.25)),
        "rsqrt_large": lambda x: f(1) / np.sqrt(np.abs(x) + f(0.25)),
        "reciprocal_large": lambda x: f(1) / (np.abs(x) + f(0.25)),
        **{name: getattr(np, long) for name, long in zip(COMPARISONS, _LONG)},
    }


APPROXIMATE = {*SMOOTH, "shrink", "quotient"} - {
    "abs",
    "relu",
    "neg",
    "square_small",
    "power_small",
}
"""Ops with functions that are approximated."""


def erring(op: Any, sign: Callable[[Any], Any], computed: str) -> Any:
    """The op with the errors that a function of a type may have."""
    relative, absolute = right.FUNCTION[computed]

    def wrong(*args: Any) -> Any:
        y = op(*args)
        size = relative * np.abs(y) + absolute
        return y + sign(y) * size

    return wrong


_LONG = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")


def _flavours() -> dict[str, list[Any]]:
    """The ops as a user may write them."""
    from fa import math as m

    def of(name: str, *more: Any, numpy: str | None = None) -> list[Any]:
        found = [getattr(m, name), *more]
        if hasattr(np, numpy or name):
            found.append(getattr(np, numpy or name))
        if torch is not None and hasattr(torch, name):
            found.append(getattr(torch, name))
        return found

    functional = torch.nn.functional if torch is not None else m
    ops = {
        "add": of("add", lambda x, y: x + y),
        "sub": of("sub", lambda x, y: x - y, numpy="subtract"),
        "mul": of("mul", lambda x, y: x * y, numpy="multiply"),
        "floordiv": of("floor_divide", lambda x, y: x // y),
        "mod": of("remainder", lambda x, y: x % y),
        "and": [lambda x, y: x & y, np.bitwise_and],
        "or": [lambda x, y: x | y, np.bitwise_or],
        "xor": [lambda x, y: x ^ y, np.bitwise_xor],
        "not": of("logical_not", lambda x: ~x, lambda x: x ^ True),
        "invert": [lambda x: ~x, np.invert],
        "lshift": [lambda x, y: x << y, np.left_shift],
        "rshift": [lambda x, y: x >> y, np.right_shift],
        "neg": of("neg", lambda x: -x, numpy="negative"),
        "min": of("minimum"),
        "max": of("maximum"),
        "clamp": of("clamp", lambda x, lo, hi: x.clamp(lo, hi), np.clip),
        "where": of("where"),
        "as_integer": [lambda x: x + 0, lambda x: 1 * x, lambda x: x.int(), lambda x: x.long()],
        "as_float": [lambda x: x.float(), lambda x: x * 1.0, lambda x: m.cast(x, float)],
        "shrink": [lambda x: 4 * m.tanh(x / 64), lambda x: np.tanh(x * 0.015625) * 4.0],
        "average": [lambda x, y: (x + y) / 2, lambda x, y: m.lerp(x, y, 0.5)],
        "quotient": [lambda x, y: x / (y * y + 1), lambda x, y: x / (1.0 + y**2)],
        "floor": of("floor"),
        "abs": of("abs", abs),
        "erf": of("erf", lambda x: x.erf()),
        "atan": of("atan", numpy="arctan"),
        # Without a threshold it is its argument from 20 on, which float64 tells apart.
        "softplus": [
            lambda x: m.softplus(x, threshold=50),
            lambda x: functional.softplus(x, threshold=50),
        ],
        "gelu": [m.gelu, functional.gelu],
        "silu": [m.silu, functional.silu],
        "relu": [m.relu, functional.relu, lambda x: np.where(x <= 0, 0.0, x)],
        "logsigmoid": [m.logsigmoid, functional.logsigmoid],
        "square_small": [
            lambda x: m.clamp(x, -3, 3) ** 2,
            lambda x: np.square(np.clip(x, -3.0, 3.0)),
        ],
        "power_small": [lambda x: m.clamp(x, -2, 2) ** 3.0, lambda x: m.pow(x.clamp(-2.0, 2.0), 3)],
        "exp_small": [lambda x: m.exp(m.clamp(x, -3, 2)), lambda x: np.exp(np.clip(x, -3, 2))],
        "exp2_small": [lambda x: 2 ** m.clamp(x, -3, 3), lambda x: m.exp2(x.clamp(-3, 3))],
        "log_large": [lambda x: m.log(abs(x) + 0.5), lambda x: np.log(np.abs(x) + 0.5)],
        "log2_large": [lambda x: m.log2(abs(x) + 0.5), lambda x: np.log2(np.abs(x) + 0.5)],
        "sqrt_large": [lambda x: m.sqrt(abs(x) + 0.25), lambda x: (abs(x) + 0.25) ** 0.5],
        "rsqrt_large": [lambda x: m.rsqrt(abs(x) + 0.25), lambda x: (abs(x) + 0.25) ** -0.5],
        "reciprocal_large": [lambda x: 1 / (abs(x) + 0.25), lambda x: m.reciprocal(abs(x) + 0.25)],
        **{name: of(name, numpy=long) for name, long in zip(COMPARISONS, _LONG)},
    }
    for name in ("tanh", "sigmoid", "sin", "cos"):
        ops[name] = of(name, lambda x, name=name: getattr(x, name)())
    return ops


FLAVOURS = _flavours()


def traced(node: Any, env: dict[str, Any]) -> Any:
    """The node of traced values, as a user's function computes it."""
    if not isinstance(node, Node):
        return node
    if node.op == "const":
        return node.args[0]
    if node.op == "name":
        return env[node.args[0]]
    args = [traced(argument, env) for argument in node.args if not isinstance(argument, Array)]
    if node.op == "read":
        array = env[node.args[0].name]
        if not args:  # an op of ours, lest the library compute with it alone
            is_bool = node.kind == "b"
            return fa.math.logical_or(array, False) if is_bool else fa.math.add(array, 0)
        if node.flavour and len(args) > 1:  # one index after the other
            for index in args:
                array = array[index]
            return array
        return array[tuple(args)] if len(args) > 1 else array[args[0]]
    known = FLAVOURS[node.op]
    function = known[node.flavour % len(known)]
    try:
        return function(*args)
    except TypeError as error:
        # PyTorch's functions of two tensors don't take a number, by themselves.
        if "must be Tensor" not in str(error):
            raise
        return known[0](*args)


def evaluated(node: Any, env: dict[str, Any], ops: dict[str, Any], kind: Any) -> Any:
    """The node on NumPy's arrays."""
    if not isinstance(node, Node):
        return node
    if node.op == "const":
        value = node.args[0]
        return kind(value) if isinstance(value, float) else value
    if node.op == "name":
        return env[node.args[0]]
    args = [evaluated(a, env, ops, kind) for a in node.args if not isinstance(a, Array)]
    if node.op == "read":
        array = env[node.args[0].name]
        inside = []
        for size, index in zip(array.shape, args):
            index = np.where(index < 0, index + size, index)
            inside.append(np.clip(index, 0, size - 1))
        values = array[tuple(inside)]
        return values.astype(kind) if node.kind == "e" else values
    if node.op == "clamp" and node.kind == "f":
        args[1:] = map(kind, args[1:])
    return ops[node.op](*args)


# --- Cases -------------------------------------------------------------------------------


def strided(rng: random.Random, values: np.ndarray, unit: bool, negative: bool) -> np.ndarray:
    """The values somehow in memory, with unit stride in the last dimension or without."""
    if values.ndim == 0:
        return values
    if not unit:
        return np.repeat(values, 2, -1)[..., ::2]
    layout = rng.randrange(4)
    if layout == 1 and values.ndim == 4:  # [B, S, H, D] in memory
        return np.ascontiguousarray(values.swapaxes(1, 2)).swapaxes(1, 2)
    if layout == 2 and values.ndim > 1:  # every other row
        return np.repeat(values, 2, -2)[..., ::2, :]
    if layout == 3 and values.ndim > 1 and negative:
        return np.ascontiguousarray(values[::-1])[::-1]
    return values


class Case:
    """Functions, and what is the same for all shapes that they run on."""

    def __init__(self, seed: int, device: str) -> None:
        self.name = f"seed {seed}"
        self.device = device
        generator = Generator(seed)
        self.random = rng = generator.random
        depth = rng.choice([2, 3, 3, 4])
        self.mask = generator.boolean(depth) if rng.random() < 0.75 else None
        self.score = generator.smooth(depth) if rng.random() < 0.75 or not self.mask else None
        self.arrays = generator.arrays
        self.is_causal = rng.random() < 0.25
        self.heads = rng.choice([(1, 1), (2, 1), (4, 2), (3, 3)])
        self.dims = rng.choice([(16, 16), (16, 16), (32, 32), (64, 64), (40, 24), (32, 48)])
        self.dtype = rng.choice(["float32", "float32", "float16", "bfloat16"])
        self.scale = rng.choice([None, None, 1.0, 0.3])
        on_gpu = device != "cpu"
        needs_torch = on_gpu or "bfloat16" in [self.dtype, *(a.dtype for a in self.arrays)]
        self.library = "torch" if needs_torch else rng.choice(["torch", "numpy"])
        if device == "emulator":
            self.library, self.dtype = "numpy", rng.choice(["float16", "bfloat16"])
        elif torch is None:
            self.without_torch()

    def without_torch(self) -> None:
        """Takes NumPy's arrays, and float16 where NumPy has no such type."""
        self.library = "numpy"
        for typed in (self, *self.arrays):
            if typed.dtype == "bfloat16":
                typed.dtype = "float16"

    def widen(self, rng: random.Random) -> None:
        """Has some cases in float64, and some of what these capture; the rest stays as it is.
        No GPU takes them."""
        if rng.random() < 0.8:
            return
        self.dtype = "float64"
        for array in self.arrays:
            if array.dtype == "float32" and rng.random() < 0.5:
                array.dtype = "float64"

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.dtype} of {self.library} on {self.device}, heads "
            f"{self.heads}, dims {self.dims}, scale {self.scale}, causal {self.is_causal}, "
            f"captured {[(a.name, a.dtype, a.rank) for a in self.arrays]}\n"
            f"  score: {self.score}\n  mask: {self.mask}"
        )

    def _given(self, values: np.ndarray, dtype: str, unit: bool) -> Any:
        """The values as an array of the library, somehow in memory."""
        if self.device == "emulator":
            return EmulatedArray(values, dtype)
        is_torch = self.library == "torch"
        array = strided(self.random, values, unit, not is_torch)
        if not is_torch:
            return array.astype(dtype, copy=False)
        # from_numpy keeps strides, to() those of dense arrays.
        tensor = torch.from_numpy(array) if array.ndim else torch.tensor(array[()])
        tensor = tensor.to(getattr(torch, dtype))
        if self.device == "cpu":
            return tensor
        moved = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self.device
        )
        return moved.copy_(tensor)

    def _captured(self, values: np.random.Generator, sizes: dict[str, int]) -> dict[str, Any]:
        """Values of each captured array, of another size for each shape."""
        arrays = {}
        for array in self.arrays:
            # Sizes of the attention or not: indices are clamped.
            shape = tuple(
                self.random.choice([1, 3, 7, sizes["rows"], sizes["keys"], sizes["batch"]])
                for _ in range(array.rank)
            )
            if not array.unit and array.rank:  # one element has every stride
                shape = (*shape[:-1], max(shape[-1], 2))
            if array.kind == "b":
                arrays[array.name] = values.random(shape) < 0.7
            elif array.kind == "i":
                arrays[array.name] = values.integers(-4, 40, shape)
            else:
                arrays[array.name] = values.integers(-64, 64, shape) / np.float32(4)
            arrays[array.name] = np.asarray(arrays[array.name])
        return arrays

    def _all_given(self, captured: dict[str, Any]) -> dict[str, Any]:
        """The arrays of the library, which traced values can index."""
        return {
            a.name: fa.array(self._given(captured[a.name], a.dtype, a.unit)) for a in self.arrays
        }

    def _fitting(self, captured: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
        """The arrays, repeated where a coordinate alone indexes one that is too short for it."""
        given = self._all_given(captured)
        found = fa._trace.trace.trace_both(
            *self._functions(given), computed=_arrays.compute_type(_arrays._TYPES[self.dtype])
        )
        names = {id(getattr(x, "_array", x)): name for name, x in given.items()}
        least = {"b": sizes["batch"], "h": self.heads[0]}
        least |= {"q_idx": sizes["rows"], "kv_idx": sizes["keys"]}
        for extent in found.extents:
            name, dim = names[id(found.arrays[extent.array])], extent.size
            size = captured[name].shape[dim]
            if size < least[extent.coordinate]:
                repeated = np.arange(least[extent.coordinate]) % size
                captured[name] = np.take(captured[name], repeated, dim)
        return captured

    def run(self, verbose: bool = False) -> float:
        """Runs one shape; the error divided by its bound. Raises where it is above 1."""
        rng = self.random
        sizes = {
            "batch": rng.choice([1, 1, 2, 3]) if self.device != "emulator" else 1,
            "rows": rng.choice([1, rng.randrange(1, 40), rng.randrange(1, 140), 64]),
            "keys": rng.choice([1, rng.randrange(1, 40), rng.randrange(1, 140), 128]),
        }
        values = np.random.default_rng(rng.randrange(1 << 30))
        heads, key_heads = self.heads
        dim, value_dim = self.dims
        shapes = (
            (sizes["batch"], heads, sizes["rows"], dim),
            (sizes["batch"], key_heads, sizes["keys"], dim),
            (sizes["batch"], key_heads, sizes["keys"], value_dim),
        )
        kind = right.computed_in(self.dtype)
        q, k, v = (values.standard_normal(shape).astype(kind) for shape in shapes)
        q, k, v = (naive.rounded(x, self.dtype) for x in naive.telling(q, k, v))
        captured = self._fitting(self._captured(values, sizes), sizes)
        given = self._all_given(captured)
        unit = self.device != "cpu" or rng.random() < 0.9
        out, lse = self._attention([self._given(x, self.dtype, unit) for x in (q, k, v)], given)
        message = f"{self}\n  {sizes}, captured {[x.shape for x in captured.values()]}"
        expected = self._expected(q, k, v, captured)
        right.assert_right(out, expected, lse, message)
        worst = max(
            right.share(out, expected.out, expected.limit),
            right.share(lse, expected.lse, expected.lse_limit, exact_zeros=False),
        )
        if verbose:
            print(f"  {sizes}: error / bound {worst:.3f}")
        return worst

    def _functions(self, given: dict[str, Any]) -> tuple[Any, Any]:
        """The score and the mask function, or None."""
        score = mask = None
        if self.score is not None:

            def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
                return traced(self.score, {"s": s, "b": b, "h": h, "i": i, "j": j, **given})

        if self.mask is not None:

            def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
                return traced(self.mask, {"b": b, "h": h, "i": i, "j": j, **given})

        return score, mask

    def _attention(self, qkv: list[Any], given: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        score, mask = self._functions(given)
        if self.device == "emulator":
            return emulated(self, score, mask, qkv)
        options = {"is_causal": self.is_causal, "scale": self.scale, "return_lse": True}
        results = fa.attention(*qkv, score_mod=score, mask_mod=mask, **options)
        if self.library == "torch":
            return tuple(x.double().cpu().numpy() for x in results)
        return tuple(x.astype(np.float64) for x in results)

    def _expected(
        self, q: np.ndarray, k: np.ndarray, v: np.ndarray, captured: dict[str, Any]
    ) -> right.Expected:
        """What is right."""

        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            env = {"s": s, "b": b, "h": h, "i": i, "j": j, **captured}
            return evaluated(self.score, env, _reference(s.dtype.type), s.dtype.type)

        def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
            seen = np.ones((), bool)
            if self.mask is not None:
                env = {"b": b, "h": h, "i": i, "j": j, **captured}
                seen = evaluated(self.mask, env, _reference(np.float64), np.float64)
            return seen & (j <= i) if self.is_causal else seen

        error = self._score_error(q, k, captured) if self.score is not None else 0.0
        return right.attention(
            *(q, k, v),
            dtype=self.dtype,
            scale=self.scale,
            score=score if self.score is not None else None,
            mask=mask,
            score_error=error,
            samples=2048,
        )

    def _score_error(self, q: np.ndarray, k: np.ndarray, captured: dict[str, Any]) -> float:
        """How wrong scores may be: what they are if every function errs by as much as it
        may, to either side or to any, and twice what float32 makes of the formula, or of
        float64 as much less as its roundings are smaller."""
        computed = right.computed_in(self.dtype)
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        k = k.repeat(q.shape[1] // k.shape[1], 1)

        def scores(kind: Any, sign: Callable[[Any], Any] | None = None) -> np.ndarray:
            s = q.astype(kind) @ k.astype(kind).swapaxes(-1, -2) * kind(scale)
            ops = _reference(kind)
            if sign is not None:
                ops |= {
                    name: erring(ops[name], sign, computed) for name in ops if name in APPROXIMATE
                }
            b, h, i, j = naive.coordinates(*s.shape)
            env = {"s": s, "b": b, "h": h, "i": i, "j": j, **captured}
            return np.broadcast_to(evaluated(self.score, env, ops, kind), s.shape)

        random = np.random.default_rng(0)
        signs = [np.ones_like, lambda x: -np.ones_like(x)]
        signs += 2 * [lambda x: random.choice([-1.0, 1.0], np.shape(x))]
        with np.errstate(all="ignore"):
            exact = scores(np.float64)
            worst = max(right.difference(scores(np.float64, sign), exact) for sign in signs)
            share = right.ROUNDING[computed] / right.ROUNDING["float32"]
            return worst + 2 * share * right.difference(scores(np.float32), exact)


# --- Without a GPU --------------------------------------------------------------------------


class EmulatedArray:
    """An array for the emulator, of any type; the tracer sees its description."""

    def __init__(self, values: np.ndarray, dtype: str) -> None:
        self.values, self.dtype, self.shape = values, dtype, values.shape
        raw = values.astype({"bfloat16": "float32"}.get(dtype, dtype))
        if dtype == "bfloat16":
            raw = (np.ascontiguousarray(raw).view(np.uint32) >> 16).astype(np.uint16)
            raw = raw.reshape(values.shape)
        self.raw = np.ascontiguousarray(raw).reshape(values.shape)

    def view(self) -> Any:
        """What fa takes for an array's description."""
        pointer = self.raw.__array_interface__["data"][0]
        strides = _arrays._contiguous(self.shape)
        return _arrays.View(pointer, _arrays._TYPES[self.dtype], self.shape, strides)


_arrays._LIBRARIES[EmulatedArray] = _arrays.Library(
    "emulated", EmulatedArray.view, lambda *_: None, lambda device: 0
)


def emulated(
    case: Case,
    score: Any,
    mask: Any,
    qkv: list[Any],
    keys: int = 32,
    rows: int = 16,
    order: str = "auto",
) -> tuple[np.ndarray, np.ndarray]:
    """The results of the kernel for sm_80 with tiles of that size, an instruction at a time."""
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
    from ptx_emulator import Kernel, Memory, bf16_to_f32, temporary
    from ptx_header import evaluate, parse_header

    traced = fa._trace.trace.trace_both(score, mask)
    dtype = {"float16": "f16", "bfloat16": "bf16"}[case.dtype]
    config = fa.AttentionConfig(
        *(dtype, *case.heads, *case.dims, case.is_causal, case.scale, True), traced.variant
    )
    schedule = {"rows": rows, "keys": keys, "order": order}
    text = fa.compile(config, "sm_80", schedule=schedule).asm["ptx"]
    program, memory = parse_header(text), Memory()
    sizes_of_rows = qkv[0].shape[:3]
    arrays = [np.array(getattr(x, "raw", x), order="C") for x in (*qkv, *traced.arrays)]
    arrays.append(np.full((*sizes_of_rows, case.dims[1]), 0xFFFF, np.uint16))
    arrays.append(np.full(sizes_of_rows, np.nan, np.float32))
    results = range(len(arrays) - 2, len(arrays))
    for _, temp in sorted(program.temps.items()):
        sizes = dict(enumerate(arrays))
        arrays.append(
            temporary([evaluate(e, sizes) for e in temp["shape"].split(",")], temp["type"])
        )
    address = [memory.add(array) for array in arrays]
    for launch in program.launches:
        kernel = Kernel(text, launch["kernel"])
        params = []
        for index in map(int, launch["args"].split(",")):
            array = arrays[index]
            params += [address[index], *array.shape, *(s // array.itemsize for s in array.strides)]
        for block in range(evaluate(launch["grid"], dict(enumerate(arrays)))):
            kernel.run(block, int(launch["block"]), int(launch["smem"]), memory, params)
    out, lse = (memory.read_back(address[i], arrays[i]) for i in results)
    out = bf16_to_f32(out) if dtype == "bf16" else out.view(np.float16)
    return out.astype(np.float64), lse.astype(np.float64)


def largest_of(case: Any, run: Callable[[], float], shapes: int) -> float:
    """The largest of what runs of a case give, which names itself where one fails."""
    worst = 0.0
    for _ in range(shapes):
        try:
            worst = max(worst, run())
        except AssertionError:
            raise
        except Exception as error:
            error.add_note(str(case))
            raise
    return worst


def run_case(case: Case, shapes: int, verbose: bool = False) -> float:
    """Runs a case on some shapes; the largest error by its bound.

    Raises AssertionError where a result is wrong or a kernel is compiled anew.
    """
    if verbose:
        print(case)
    before = _kernel.cache_info().misses
    worst = largest_of(case, lambda: case.run(verbose), shapes)
    made = _kernel.cache_info().misses - before
    assert made <= 1, f"{made} kernels: {case}"
    return worst


def run_seed(seed: int, device: str = "cpu", shapes: int = 4, verbose: bool = False) -> float:
    """Runs the functions of a seed on some shapes; see run_case."""
    case = Case(seed, device)
    if device == "cpu":
        case.widen(random.Random(~seed))
    return run_case(case, 1 if device == "emulator" else shapes, verbose)


def arguments(doc: str, shapes: int) -> argparse.ArgumentParser:
    """What a fuzzer's command takes."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--functions", type=int, default=100, help="seeds from there on (100)")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no seed after so many"
    )
    parser.add_argument(
        "--shapes", type=int, default=shapes, help=f"shapes for each seed ({shapes})"
    )
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--device", default=os.environ.get("FA_TEST_DEVICE", "cpu"))
    return parser


def run_seeds(options: argparse.Namespace, run: Callable[[int], float]) -> int:
    """Runs seeds one after the other; 1 if one fails."""
    if torch is not None:  # tensors are small, and other fuzzers may run beside this one
        torch.set_num_threads(1)
    failures, worst, count = 0, 0.0, 0
    told = start = time.monotonic()
    end = start + options.seconds
    for seed in range(options.seed, options.seed + options.functions):
        if time.monotonic() > end:
            break
        count += 1
        try:
            worst = max(worst, run(seed))
        except Exception as error:
            failures += 1
            notes = "\n".join(getattr(error, "__notes__", []))
            print(f"seed {seed}: {type(error).__name__}: {error}\n{notes}", flush=True)
        if time.monotonic() - told > TELLS_EVERY:
            told = time.monotonic()
            print(f"{count} functions in {told - start:.0f} s, {failures} failed", flush=True)
    print(
        f"{count} functions, {options.shapes} shapes each, on {options.device}: "
        f"{failures} failed, largest error / bound {worst:.2f}"
    )
    return 1 if failures else 0


def main() -> int:
    """Runs seeds one after the other; 1 if one fails."""
    options = arguments(__doc__, shapes=4).parse_args()

    def run(seed: int) -> float:
        return run_seed(seed, options.device, options.shapes, options.verbose)

    return run_seeds(options, run)


if __name__ == "__main__":
    sys.exit(main())
