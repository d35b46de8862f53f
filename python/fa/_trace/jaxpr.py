# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions written with jax.numpy and jax.lax: JAX traces them, and fa reads its trace.

JAX makes a jaxpr of a function, a list of primitives; captured arrays are the jaxpr's
constants. This module runs each primitive on traced values. An array of traced values is a
NumPy array of objects, so NumPy moves elements (reshape, broadcast, concatenate, ...). A
captured array stays whole until elements are taken.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fa._trace import custom
from fa._trace.captured import (
    MAX_ELEMENTS,
    PartlyIndexed,
    apply,
    get_item,
    is_traced,
    lift,
)
from fa._trace.errors import TraceError, at_line, error, is_internal
from fa._trace.scalars import FLOATS, FUNCTIONS, Region, Scalar, current_region

_LENGTHS = ("query_length", "key_length")


def is_of_jax(raised: Exception) -> bool:
    """Whether JAX raised it, of a value that it does not know.

    JAX takes its own frames out of tracebacks, and says so in a note.
    """
    at = raised.__traceback__
    while at is not None:
        if str(at.tb_frame.f_globals.get("__name__")).partition(".")[0] == "jax":
            return True
        at = at.tb_next
    texts = [type(raised).__module__, *getattr(raised, "__notes__", ())]
    # The text of an error of ours has the user's path.
    is_own = isinstance(raised, TraceError)
    texts.append("JAX" if is_own and "as an array of JAX" in str(raised) else "")
    texts.append("" if is_own else str(raised))
    return any("jax" in text.lower() for text in texts)


def own_array(value: Any) -> Any:
    """A variable of a function that JAX traces: an array as one of JAX."""
    jax = sys.modules["jax"]
    if isinstance(value, jax.Array):
        return value
    current_region("an array").captures.is_certain = False  # a copy
    return jax.numpy.asarray(value)


def call(function: Callable[..., Any], region: Region, arguments: list[Scalar]) -> Any:
    """The function's result for traced values; passes errors of JAX on."""
    jax = sys.modules["jax"]
    wide = np.float64 if jax.config.jax_enable_x64 else np.float32
    types = {"f32": np.float32, "f64": wide, "i1": np.bool_}
    kinds = [types.get(x._type, np.int32) for x in arguments]
    shapes = [jax.ShapeDtypeStruct((), kind) for kind in kinds]
    lengths = dict.fromkeys(_LENGTHS, jax.ShapeDtypeStruct((), np.int32))

    def traced(lengths: dict[str, Any], *values: Any) -> Any:
        before, region.lengths = region.lengths, lengths
        try:
            return function(*values)
        finally:
            region.lengths = before

    made = jax.make_jaxpr(traced)(lengths, *shapes)
    names = sorted(_LENGTHS)  # JAX orders a dictionary by its keys
    used = {id(v) for e in made.jaxpr.eqns for v in e.invars}
    own = [
        region.length(name) if id(variable) in used else None
        for variable, name in zip(made.jaxpr.invars, names)
    ]
    (result,) = _Interpreter(region).run(made.jaxpr, made.consts, [*own, *arguments])
    return _scalar(result)


def _place(equation: Any) -> str | None:
    """Where the user wrote an equation, for messages."""
    frames = getattr(getattr(equation.source_info, "traceback", None), "frames", None) or ()
    for frame in frames:
        if not is_internal(frame.file_name) and not frame.file_name.startswith("<frozen"):
            return f"{frame.file_name}:{frame.line_num}: in {frame.function_name}: "
    return None


def _is_of_trace(value: Any) -> bool:
    is_array = isinstance(value, np.ndarray)
    return isinstance(value, Scalar) or (is_array and value.dtype == object)


def _scalar(value: Any) -> Any:
    """The one element of an array of objects."""
    if isinstance(value, np.ndarray) and value.dtype == object and value.size == 1:
        return value.reshape(())[()]
    return value


class _Interpreter:
    """Runs jaxprs. Values are Scalars, NumPy arrays of them, or whole arrays."""

    def __init__(self, region: Region, has_gradient: bool = True) -> None:
        self._region = region
        self._has_gradient = has_gradient  # False while a gradient is traced

    def run(self, jaxpr: Any, consts: Any, arguments: list[Any]) -> list[Any]:
        """The results of a jaxpr."""
        values = {id(v): x for v, x in zip(jaxpr.constvars, consts)}
        values.update({id(v): x for v, x in zip(jaxpr.invars, arguments)})

        def read(atom: Any) -> Any:
            return atom.val if hasattr(atom, "val") else values[id(atom)]

        for equation in jaxpr.eqns:
            operands = [read(atom) for atom in equation.invars]
            with at_line(_place(equation)):
                results = self._equation(equation, operands)
            values.update({id(v): x for v, x in zip(equation.outvars, results)})
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, operands: list[Any]) -> list[Any]:
        name, params = equation.primitive.name, equation.params
        if not any(map(_is_of_trace, operands)):
            return self._evaluated(equation, operands)
        inner = params.get("jaxpr") or params.get("call_jaxpr") or params.get("fun_jaxpr")
        if inner is not None:  # jit, custom_jvp_call, ...
            closed = (inner.jaxpr, inner.consts) if hasattr(inner, "jaxpr") else (inner, [])
            results = self.run(*closed, operands)
            if "custom" not in name or not self._has_gradient:
                return results
            return self._custom(equation, operands, results)
        if name in _ELEMENTWISE:
            return [self._elementwise(_ELEMENTWISE[name](params), operands)]
        if name in _STRUCTURAL:
            first = [self._elements(x) for x in operands]
            return [_STRUCTURAL[name](params, *first)]
        if name in _REDUCTIONS:
            return [self._reduce(_REDUCTIONS[name], params["axes"], operands[0])]
        if name == "gather":
            return [self._gather(params, *operands)]
        if name == "dynamic_slice":
            return [self._dynamic_slice(params, operands[0], operands[1:])]
        if name == "dot_general":
            return [self._dot(params, *operands)]
        raise error(
            f"JAX's {name} can't be traced",
            "use functions of jax.numpy, jax.lax and jax.nn that compute numbers, and index "
            "captured arrays",
        )

    def _evaluated(self, equation: Any, operands: list[Any]) -> list[Any]:
        """The results of an equation without coordinates, computed by JAX."""
        if any(getattr(x, "ndim", 0) for x in operands):
            self._region.captures.is_certain = False  # values are read
        results = equation.primitive.bind(*operands, **equation.params)
        return list(results) if equation.primitive.multiple_results else [results]

    def _custom(self, equation: Any, operands: list[Any], results: list[Any]) -> list[Any]:
        """The results of a function with a derivative of its own, as JAX transposes it."""
        jax = sys.modules["jax"]
        primitive = equation.primitive
        params = primitive.get_bind_params(equation.params)
        # Older versions give functions apart.
        functions, params = params if isinstance(params, tuple) else ((), params)
        is_float = [np.issubdtype(x.aval.dtype, np.floating) for x in equation.invars]
        shapes = [jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in equation.invars]
        of = [jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in equation.outvars]

        def transposed(primals: list[Any], cotangents: list[Any]) -> Any:
            def own(*floats: Any) -> list[Any]:
                rest = iter(floats)
                given = [next(rest) if own else x for own, x in zip(is_float, primals)]
                return primitive.bind(*functions, *given, **params)  # type: ignore[no-any-return]

            floats = [x for own, x in zip(is_float, primals) if own]
            return jax.vjp(own, *floats)[1](cotangents)

        inputs = [self._elements(x) for own, x in zip(is_float, operands) if own]
        values = [self._elements(x) for x in results]

        def gradient(cotangents: list[Any]) -> list[Any]:
            made = jax.make_jaxpr(transposed)(shapes, of)
            inner = _Interpreter(self._region, has_gradient=False)
            return inner.run(made.jaxpr, made.consts, [*operands, *cotangents])

        what = f"JAX's {primitive.name}"
        return custom.with_gradient(self._region, what, values, inputs, gradient)

    def _elements(self, value: Any) -> Any:
        """A whole array as one of its elements, each read."""
        if isinstance(value, np.ndarray) and value.dtype == object:
            return value
        shape = tuple(getattr(value, "shape", ()))
        if isinstance(value, Scalar) or not shape:
            result = np.empty((), object)
            is_number = not isinstance(value, Scalar) and hasattr(value, "dtype")
            result[()] = self._number(value) if is_number else value
            return result
        if np.prod(shape) > MAX_ELEMENTS:
            raise error(
                f"computes with a captured array of shape {list(shape)}, more than {MAX_ELEMENTS} "
                "elements",
                "index it first",
            )
        result = np.empty(shape, object)
        for at in np.ndindex(shape):
            result[at] = get_item(value, tuple(lift(self._region, n) for n in at))
        return result

    def _number(self, value: Any) -> Any:
        """A constant of a jaxpr: a number in Python, an array of one read when it runs."""
        if isinstance(value, (np.generic, np.ndarray)) or type(value).__name__.endswith("Literal"):
            return np.asarray(value).item()
        return lift(self._region, value)

    def _elementwise(self, function: Callable[..., Any], operands: list[Any]) -> Any:
        return apply(function, *map(self._elements, operands))

    def _reduce(self, combine: str, axes: Any, operand: Any) -> Any:
        values = self._elements(operand)
        for axis in sorted(axes, reverse=True):
            values = _fold(FUNCTIONS[combine], values, axis)
        return values

    def _dot(self, params: dict[str, Any], x: Any, y: Any) -> Any:
        (contracted, batch) = params["dimension_numbers"]
        x, y = self._elements(x), self._elements(y)
        if batch != ((), ()) or x.ndim != 1 or y.ndim != 1 or contracted != ((0,), (0,)):
            raise error("JAX's dot_general of matrices can't be traced", "use rows of arrays")
        return _fold(FUNCTIONS["add"], apply(FUNCTIONS["mul"], x, y), 0)

    # Taking elements of arrays.
    def _take(self, operand: Any, start: list[Any], sizes: Any) -> np.ndarray:
        """The elements of a window; those beyond the array are its ends."""
        result = np.empty(tuple(sizes), object)
        if np.prod(sizes) > MAX_ELEMENTS:
            raise error(
                f"takes {int(np.prod(sizes))} elements of a captured array at once, more than "
                f"{MAX_ELEMENTS}",
                "give an index for more of its dimensions",
            )
        for at in np.ndindex(*sizes):
            index = tuple(
                FUNCTIONS["add"](lift(self._region, first), n) if n else first
                for first, n in zip(start, at)
            )
            result[at] = self._at(operand, index)
        return result

    def _at(self, operand: Any, index: tuple[Any, ...]) -> Any:
        if isinstance(operand, np.ndarray) and operand.dtype == object:
            if not is_traced(index):
                return operand[tuple(int(n) for n in index)]
            raise error("indexes computed elements with a traced value", "index captured arrays")
        taken = get_item(operand, tuple(lift(self._region, n) for n in index))
        assert not isinstance(taken, PartlyIndexed)
        return taken

    def _dynamic_slice(self, params: dict[str, Any], operand: Any, start: list[Any]) -> Any:
        return self._take(operand, [_scalar(x) for x in start], params["slice_sizes"])

    def _gather(self, params: dict[str, Any], operand: Any, indices: Any) -> Any:
        numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
        if getattr(numbers, "operand_batching_dims", ()):
            raise error("JAX's gather with batches can't be traced", "index by one coordinate each")
        indices = self._elements(indices)
        batch = indices.shape[:-1]
        rank = len(sizes)
        kept = [n for n in range(rank) if n not in numbers.collapsed_slice_dims]
        taken = np.empty((*batch, *(sizes[n] for n in kept)), object)
        for at in np.ndindex(*batch):
            start: list[Any] = [0] * rank
            for place, dim in enumerate(numbers.start_index_map):
                start[dim] = indices[(*at, place)]
            window = self._take(operand, start, sizes)
            taken[at] = window.reshape([sizes[n] for n in kept])[()]
        offsets = numbers.offset_dims
        others = [n for n in range(taken.ndim) if n not in offsets]
        order = np.empty(taken.ndim, int)
        order[others] = range(len(batch))
        order[list(offsets)] = range(len(batch), taken.ndim)
        return taken.transpose(order)


def _fold(combine: Callable[[Any, Any], Any], values: np.ndarray, axis: int) -> np.ndarray:
    """The elements along an axis, combined."""
    rows = np.moveaxis(values, axis, 0)
    if len(rows) == 0:
        raise error("reduces an array without elements", "give it some")
    result = apply(lambda x: x, np.asarray(rows[:1], object).reshape(rows.shape[1:]))
    for n in range(1, len(rows)):
        row = np.empty(rows.shape[1:], object)
        row[...] = rows[n : n + 1].reshape(row.shape)
        result = apply(combine, result, row)
    return result


# --- Primitives ----------------------------------------------------------------------


def _convert(params: dict[str, Any]) -> Callable[[Any], Any]:
    dtype = np.dtype(params["new_dtype"])
    return lambda x: FUNCTIONS["type"](_as_scalar(x), dtype.name)


def _as_scalar(x: Any) -> Any:
    return lift(current_region("a number"), x)


def _round(params: dict[str, Any]) -> Callable[[Any], Any]:
    if int(params.get("rounding_method", 0)) == 1:
        return FUNCTIONS["round"]
    return _away_from_zero


def _away_from_zero(x: Any) -> Any:
    f = FUNCTIONS
    return f["mul"](f["sign"](x), f["floor"](f["add"](f["abs"](x), 0.5)))


def _select(params: dict[str, Any]) -> Callable[..., Any]:
    def select(which: Any, *cases: Any) -> Any:
        result = cases[-1]
        for n in reversed(range(len(cases) - 1)):
            is_case = FUNCTIONS["logical_not"](which) if len(cases) == 2 else which == n
            result = FUNCTIONS["where"](is_case, cases[n], result)
        return result

    return select


def _divide(params: dict[str, Any]) -> Callable[[Any, Any], Any]:
    def divide(x: Any, y: Any) -> Any:
        is_float = any(_as_scalar(value)._type in FLOATS for value in (x, y))
        return FUNCTIONS["div"](x, y, rounding_mode=None if is_float else "trunc")

    return divide


def _remainder(x: Any, y: Any) -> Any:
    return FUNCTIONS["fmod"](x, y)


def _plain(name: str) -> Callable[[dict[str, Any]], Callable[..., Any]]:
    return lambda params: FUNCTIONS[name]


_SAME = {
    **{name: name for name in ("add", "sub", "mul", "neg", "abs", "sign", "floor", "ceil")},
    **{name: name for name in ("eq", "ne", "lt", "le", "gt", "ge", "exp", "exp2", "expm1")},
    **{name: name for name in ("log", "log1p", "tanh", "sinh", "cosh", "sin", "cos", "tan")},
    **{name: name for name in ("asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh")},
    **{name: name for name in ("sqrt", "rsqrt", "erf", "square", "pow")},
    **{"max": "maximum", "min": "minimum", "logistic": "sigmoid", "is_finite": "isfinite"},
    **{"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "bitwise_not"},
    **{"shift_left": "left_shift", "shift_right_arithmetic": "right_shift"},
    **{"copy": "clone", "copy_p": "clone", "stop_gradient": "stop_gradient"},
}
_ELEMENTWISE: dict[str, Callable[[dict[str, Any]], Callable[..., Any]]] = {
    **{name: _plain(own) for name, own in _SAME.items()},
    "div": _divide,
    "rem": lambda params: _remainder,
    "integer_pow": lambda params: lambda x: FUNCTIONS["pow"](x, params["y"]),
    "convert_element_type": _convert,
    "reduce_precision": lambda params: lambda x: x,
    "round": _round,
    "select_n": _select,
    "erfc": lambda params: lambda x: FUNCTIONS["sub"](1.0, FUNCTIONS["erf"](x)),
    "clamp": lambda params: lambda least, x, most: FUNCTIONS["clamp"](x, least, most),
}


def _broadcast(params: dict[str, Any], x: np.ndarray) -> np.ndarray:
    shape, dims = params["shape"], params["broadcast_dimensions"]
    sizes = [1] * len(shape)
    for own, dim in zip(x.shape, dims):
        sizes[dim] = own
    return np.broadcast_to(x.reshape(sizes), shape)


_STRUCTURAL: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda params, x: x.reshape(params["new_sizes"]),
    "squeeze": lambda params, x: np.squeeze(x, tuple(params["dimensions"])),
    "expand_dims": lambda params, x: np.expand_dims(x, tuple(params["dimensions"])),
    "transpose": lambda params, x: x.transpose(params["permutation"]),
    "rev": lambda params, x: np.flip(x, params["dimensions"]),
    "concatenate": lambda params, *xs: np.concatenate(xs, params["dimension"]),
    "slice": lambda params, x: x[
        tuple(
            slice(a, b, c)
            for a, b, c in zip(
                params["start_indices"],
                params["limit_indices"],
                params["strides"] or [1] * x.ndim,
            )
        )
    ],
}
_REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "maximum",
    "reduce_min": "minimum",
    "reduce_and": "bitwise_and",
    "reduce_or": "bitwise_or",
}
