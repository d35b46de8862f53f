# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on traced values, by the names of PyTorch and NumPy.

Types follow PyTorch: a boolean becomes an integer and an integer a float
where the other operand is one; of two booleans `+` is or, `*` is and, and `-` is
refused; `/` of integers and functions such as `exp` give
a float; `//` rounds down and `%` has the sign of the divisor, as in Python.
Integers are computed without wrapping, in 64 bits at most. A division by an
integer 0 gives some number.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Callable
from typing import Any

from fa._trace.captured import (
    Elements,
    PartlyIndexed,
    is_whole,
    lift,
    over_elements,
    own_of_elements,
)
from fa._trace.errors import error
from fa._trace.scalars import (
    FLOATS,
    FUNCTIONS,
    I32,
    INT_MAX,
    INT_MIN,
    Region,
    Scalar,
    constant,
    current_region,
    integer_type,
    is_tracing,
)

Range = tuple[int, int]
_RANK = {"i1": 0, "index": 1, "i64": 2, **dict.fromkeys(FLOATS, 3)}


def _clip(lo: int, hi: int) -> Range:
    """A range of 64-bit integers; everything where a bound may have wrapped."""
    return (lo, hi) if INT_MIN <= lo and hi <= INT_MAX else (INT_MIN, INT_MAX)


def region_of(values: tuple[Any, ...]) -> Region:
    """The region that traced operands belong to."""
    for value in values:
        if type(value) is Scalar:
            return value._region
    for value in values:
        if isinstance(value, (PartlyIndexed, Elements)):
            return value._region
    return current_region("a traced value")


def _lift_all(*values: Any) -> tuple[Region, list[Scalar]]:
    region = region_of(values)
    return region, [lift(region, value) for value in values]


def _convert(x: Scalar, type: str) -> Scalar:
    """x as a type that holds its values: booleans < integers < floats."""
    region = x._region
    if x._type == type:
        return x
    if x._constant is not None and type in FLOATS:
        return constant(region, float(x._constant))
    if x._constant is not None and type == "index":
        return constant(region, int(x._constant))
    if x._type == "i1":
        one, zero = (_convert(constant(region, value), type) for value in (1, 0))
        name = region.op(f"arith.select {x._name}, {one._name}, {zero._name} : {type}")
        return Scalar(region, name, type, (0, 1))
    if type == "i64":
        if x._constant is not None:
            name = region.op(f"arith.constant {int(x._constant)} : i64")
        else:
            name = region.op(f"arith.index_cast {x._name} : index to i64")
        return Scalar(region, name, "i64", x._range, x._constant)
    assert type == region.real, (x._type, type)
    name, of = x._name, "i64"
    if x._type == "index":  # 32 bits hold it, and are cheaper on GPUs
        name, of = region.op(f"arith.index_cast {x._name} : index to i32"), "i32"
    return Scalar(region, region.op(f"arith.sitofp {name} : {of} to {type}"), type)


def _as_float(x: Any) -> Scalar:
    """x as a float of the region's type."""
    region, (x,) = _lift_all(x)
    return _convert(x, region.real)


def _promote(x: Scalar, y: Scalar, least: str = "i1") -> tuple[str, Scalar, Scalar]:
    type = max(x._type, y._type, least, key=_RANK.__getitem__)
    return type, _convert(x, type), _convert(y, type)


def _integers(op: str, x: Scalar, y: Scalar, range: Range) -> Scalar:
    """An op on integers, in the type that holds its result and operands."""
    type = max(x._type, y._type, integer_type(range), key=_RANK.__getitem__)
    result = _emit(op, _convert(x, type), _convert(y, type), range=range)
    return _narrowed(result)


def _narrowed(x: Scalar) -> Scalar:
    """An i64 whose values fit 32 bits as an index."""
    if x._type != "i64" or integer_type(x._range) != "index":
        return x
    name = x._region.op(f"arith.index_cast {x._name} : i64 to index")
    return Scalar(x._region, name, "index", x._range)


def _emit(op: str, *operands: Scalar, range: Range = (INT_MIN, INT_MAX)) -> Scalar:
    """An op whose result has its operands' type."""
    first = operands[0]
    names = ", ".join(operand._name for operand in operands)
    type = first._type
    return Scalar(first._region, first._region.op(f"{op} {names} : {type}"), type, range)


def _select(condition: Scalar, x: Scalar, y: Scalar) -> Scalar:
    name = x._region.op(f"arith.select {condition._name}, {x._name}, {y._name} : {x._type}")
    lo, hi = min(x._range[0], y._range[0]), max(x._range[1], y._range[1])
    return Scalar(x._region, name, x._type, (lo, hi))


def _compare_op(predicate: str, x: Scalar, y: Scalar) -> Scalar:
    """x ? y of equal type, integers or floats."""
    if x._type in FLOATS:
        # A NaN is unequal to everything, and neither less nor greater.
        ordered = "une" if predicate == "ne" else f"o{predicate}"
        text = f"arith.cmpf {ordered}, {x._name}, {y._name} : {x._type}"
    else:
        signed = predicate if predicate in ("eq", "ne") else f"s{predicate}"
        text = f"arith.cmpi {signed}, {x._name}, {y._name} : {x._type}"
    return Scalar(x._region, x._region.op(text), "i1", (0, 1))


# --- Arithmetic -------------------------------------------------------------------


def add(x: Any, y: Any, *, alpha: Any = 1) -> Scalar:
    """x + alpha * y."""
    _, (x, y) = _lift_all(x, y)
    if alpha != 1:
        y = mul(y, alpha)
    if x._type == y._type == "i1":
        return or_(x, y)
    type, x, y = _promote(x, y, "index")
    if type in FLOATS:
        return _emit("arith.addf", x, y)
    lo, hi = x._range[0] + y._range[0], x._range[1] + y._range[1]
    return _integers("arith.addi", x, y, _clip(lo, hi))


def sub(x: Any, y: Any, *, alpha: Any = 1) -> Scalar:
    """x - alpha * y."""
    _, (x, y) = _lift_all(x, y)
    if alpha != 1:
        y = mul(y, alpha)
    if x._type == y._type == "i1":
        raise error("subtracts two booleans", "use ^, or & ~, or make them integers by .int()")
    type, x, y = _promote(x, y, "index")
    if type in FLOATS:
        return _emit("arith.subf", x, y)
    lo, hi = x._range[0] - y._range[1], x._range[1] - y._range[0]
    return _integers("arith.subi", x, y, _clip(lo, hi))


def rsub(x: Any, y: Any, *, alpha: Any = 1) -> Scalar:
    """y - alpha * x."""
    return sub(y, x, alpha=alpha)


def mul(x: Any, y: Any) -> Scalar:
    """x * y."""
    _, (x, y) = _lift_all(x, y)
    if x._type == y._type == "i1":
        return and_(x, y)
    type, x, y = _promote(x, y, "index")
    if type in FLOATS:
        return _emit("arith.mulf", x, y)
    products = [a * b for a in x._range for b in y._range]
    return _integers("arith.muli", x, y, _clip(min(products), max(products)))


def neg(x: Any) -> Scalar:
    """-x."""
    _, (x,) = _lift_all(x)
    return _emit("arith.negf", x) if x._type in FLOATS else sub(0, x)


def positive(x: Any) -> Scalar:
    """x, a boolean as an integer."""
    _, (x,) = _lift_all(x)
    return _convert(x, "index") if x._type == "i1" else x


def true_divide(x: Any, y: Any) -> Scalar:
    """x / y, a float."""
    _, (x, y) = _lift_all(x, y)
    _, x, y = _promote(x, y, x._region.real)
    return _emit("arith.divf", x, y)


def div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Scalar:
    """x / y, rounded as PyTorch's modes say."""
    if rounding_mode is None:
        return true_divide(x, y)
    if rounding_mode == "floor":
        return floor_divide(x, y)
    if rounding_mode != "trunc":
        raise error(f"rounding mode {rounding_mode!r} is not known", 'use "floor" or "trunc"')
    _, (x, y) = _lift_all(x, y)
    type, x, y = _promote(x, y, "index")
    if type in FLOATS:
        whole = round_(true_divide(x - _emit("arith.remf", x, y), y))
        return where(eq(y, 0.0), true_divide(x, y), whole)
    # Rounded down, and one more where that was below a quotient that is no integer.
    quotient, rest = _quotient(x, y), _remainder(x, y)
    below = _logical("andi", ne(rest, 0), ne(lt(x, 0), lt(y, 0)))
    return where(below, quotient + 1, quotient)


def _divisor(y: Scalar) -> Scalar:
    """An integer divisor for which no division traps: 0 is 1, and -1 too."""
    if y._range[0] > 0 or y._range[1] < -1:
        return y
    if y._constant == 0:
        raise error("divides an integer by 0", "divide by another number")
    one = _convert(constant(y._region, 1), y._type)
    if y._constant == -1:
        return one
    if y._range[0] >= 0:
        return _integers("arith.maxsi", y, one, (1, max(1, y._range[1])))
    return where(_logical("ori", gt(y, 0), lt(y, -1)), y, one)


def _divide_op(op: str, x: Scalar, y: Scalar, range: Range) -> Scalar:
    """A division of integers, in 32 bits where they hold everything."""
    region = x._region
    bounds = (*x._range, *y._range)
    if not all(I32[0] < bound <= I32[1] for bound in bounds):
        x, y = _convert(x, "i64"), _convert(y, "i64")
        return _narrowed(_emit(op, x, y, range=range))
    a, b = (region.op(f"arith.index_cast {_narrowed(v)._name} : index to i32") for v in (x, y))
    narrow = region.op(f"{op} {a}, {b} : i32")
    name = region.op(f"arith.index_cast {narrow} : i32 to index")
    return Scalar(region, name, "index", range)


def _quotient(x: Scalar, y: Scalar) -> Scalar:
    """x // y of integers, rounded down."""
    divisor = _divisor(y)
    if x._range[0] >= 0 and divisor._range[0] > 0:
        range = (0, x._range[1] // divisor._range[0])
        quotient = _divide_op("arith.divui", x, divisor, range)
    else:
        limit = max(abs(x._range[0]), abs(x._range[1]))
        quotient = _divide_op("arith.floordivsi", x, divisor, _clip(-limit, limit))
    if y._range[0] <= -1 <= y._range[1]:
        return where(eq(y, -1), neg(x), quotient)
    return quotient


def _remainder(x: Scalar, y: Scalar) -> Scalar:
    """x % y of integers, with the sign of y."""
    divisor = _divisor(y)
    largest = max(abs(divisor._range[0]), abs(divisor._range[1])) - 1
    if x._range[0] >= 0 and divisor._range[0] > 0:
        return _divide_op("arith.remui", x, divisor, (0, min(largest, x._range[1])))
    # |x // y * y| is at most |x| + |y|.
    limit = max(abs(bound) for bound in x._range) + max(abs(bound) for bound in y._range)
    product = _integers("arith.muli", _quotient(x, y), y, _clip(-limit, limit))
    result = sub(x, product)
    positive_y, negative_y = y._range[0] > 0, y._range[1] < 0
    result._range = _clip(0 if positive_y else -largest, 0 if negative_y else largest)
    return _narrowed(result)


def _float_remainder(x: Scalar, y: Scalar) -> Scalar:
    """x % y of floats, with the sign of y."""
    rest = _emit("arith.remf", x, y)
    zero = constant(x._region, 0.0)
    is_other = ne(rest, zero) & ne(lt(rest, zero), lt(y, zero))
    return where(is_other, rest + y, rest)


def _float_quotient(x: Scalar, y: Scalar) -> Scalar:
    """x // y of floats: x less the remainder, divided, is an integer but for rounding."""
    rest = _emit("arith.remf", x, y)
    whole = round_(true_divide(x - rest, y))
    is_other = ne(rest, 0.0) & ne(lt(rest, 0.0), lt(y, 0.0))
    return where(eq(y, 0.0), true_divide(x, y), where(is_other, whole - 1.0, whole))


def floor_divide(x: Any, y: Any) -> Scalar:
    """x // y, rounded down."""
    _, (x, y) = _lift_all(x, y)
    type, x, y = _promote(x, y, "index")
    return _float_quotient(x, y) if type in FLOATS else _quotient(x, y)


def remainder(x: Any, y: Any) -> Scalar:
    """x % y, with the sign of y."""
    _, (x, y) = _lift_all(x, y)
    type, x, y = _promote(x, y, "index")
    return _float_remainder(x, y) if type in FLOATS else _remainder(x, y)


def fmod(x: Any, y: Any) -> Scalar:
    """x - trunc(x / y) * y, with the sign of x."""
    _, (x, y) = _lift_all(x, y)
    type, x, y = _promote(x, y, "index")
    if type in FLOATS:
        return _emit("arith.remf", x, y)
    return _negated_where(lt(x, 0), remainder(abs_(x), abs_(y)))


def _negated_where(condition: Scalar, x: Scalar) -> Scalar:
    """-x where the condition holds, else x."""
    return where(condition, neg(x), x)


def _power(x: Scalar, exponent: int) -> Scalar:
    """x to a small positive power, by squaring."""
    result, square = None, x
    while True:
        if exponent & 1:
            result = square if result is None else mul(result, square)
        exponent >>= 1
        if not exponent:
            return result
        square = mul(square, square)


def pow_(x: Any, y: Any) -> Scalar:
    """x ** y. Of integers for a constant y >= 0 only; else of floats."""
    region, (x, y) = _lift_all(x, y)
    exponent = y._constant
    if x._type not in FLOATS and y._type not in FLOATS:
        if exponent is None or exponent < 0:
            raise error(
                "raises an integer to a power that is no constant >= 0",
                "make the base a float: x.float() ** y",
            )
        return constant(region, 1) if exponent == 0 else _power(positive(x), int(exponent))
    x, y = _as_float(x), _as_float(y)
    if exponent is not None:
        if exponent == 0:
            return constant(region, 1.0)
        if exponent == 0.5:
            return sqrt(x)
        if float(exponent).is_integer() and abs(exponent) <= 64:
            return _power(x if exponent > 0 else reciprocal(x), int(abs(exponent)))
    if x._constant is not None and x._constant > 0:
        return exp2(mul(y, math.log2(x._constant)))
    # A negative base has a power where the exponent is an integer.
    # Of 0 there is no logarithm, or the derivative there would be NaN; nor of an infinity
    # or a NaN to the power of 0, which is 1.
    is_zero = eq(x, 0.0)
    is_one = or_(is_zero, and_(eq(y, 0.0), invert(isfinite(x))))
    size = exp2(mul(y, log2(where(is_one, 1.0, abs_(x)))))
    of_zero = where(eq(y, 1.0), x, where(gt(y, 0.0), 0.0, where(lt(y, 0.0), math.inf, size)))
    size = where(is_zero, of_zero, size)
    is_integer = eq(floor(y), y)
    is_odd = ne(mul(floor(mul(y, 0.5)), 2.0), y)
    signed = where(is_integer, _negated_where(is_odd, size), constant(region, math.nan))
    return where(lt(x, 0.0), signed, size)


def float_power(x: Any, y: Any) -> Scalar:
    """x ** y of floats."""
    return pow_(_as_float(x), y)


def abs_(x: Any) -> Scalar:
    """|x|."""
    _, (x,) = _lift_all(x)
    if x._type in FLOATS:
        return _emit("math.absf", x)
    x = positive(x)
    if x._range[0] >= 0:
        return x
    lo, hi = x._range
    return _integers("arith.maxsi", x, neg(x), _clip(0, max(-lo, hi)))


def sign(x: Any) -> Scalar:
    """-1, 0 or 1 like x."""
    _, (x,) = _lift_all(x)
    if x._type in FLOATS:
        return where(gt(x, 0.0), 1.0, where(lt(x, 0.0), -1.0, where(eq(x, 0.0), 0.0, x)))
    return where(gt(x, 0), 1, where(lt(x, 0), -1, 0))


def _extreme(what: str, name: str, of: Callable[[int, int], int]) -> Callable[[Any, Any], Scalar]:
    def choose(x: Any, y: Any) -> Scalar:
        _, (x, y) = _lift_all(x, y)
        if x._type == y._type == "i1":
            return (or_ if name == "max" else and_)(x, y)
        type, x, y = _promote(x, y, "index")
        if type in FLOATS:
            return _emit(f"arith.{name}imumf", x, y)
        lo, hi = map(of, x._range, y._range)
        return _integers(f"arith.{name}si", x, y, (lo, hi))

    choose.__doc__ = f"The {what} one; NaN if one is."
    return choose


maximum = _extreme("larger", "max", max)
minimum = _extreme("smaller", "min", min)


def _of_two(name: str, function: Callable[[Any, Any], Scalar]) -> Callable[..., Scalar]:
    def choose(x: Any, *others: Any, **options: Any) -> Scalar:
        if options or (others and (len(others) > 1 or isinstance(others[0], (int, float)))):
            given = ", ".join([*map(repr, others), *(f"{k}={v!r}" for k, v in options.items())])
            raise error(
                f"{name} over dimension {given} of one number",
                f"use {name}imum for the {name}imum of two values",
            )
        if not others:
            raise error(f"{name} of one number", f"give two values to {name}imum")
        return function(x, others[0])

    choose.__doc__ = f"The {name}imum of two values; a number would be a dimension."
    return choose


max_of_two = _of_two("max", maximum)
min_of_two = _of_two("min", minimum)


def clamp(x: Any, min: Any = None, max: Any = None) -> Scalar:
    """x, at least `min` and at most `max`; at a bound the derivative is that of x alone."""
    bounds = [bound for bound in (min, max) if bound is not None]
    _, values = _lift_all(x, *bounds)
    if bounds and any(value._type in FLOATS for value in values):
        return _clamp_float(x, -math.inf if min is None else min, math.inf if max is None else max)
    (x, *_) = values
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


def _clamp_float(x: Any, lo: Any, hi: Any) -> Scalar:
    region, values = _lift_all(x, lo, hi)
    x, lo, hi = (_convert(value, region.real) for value in values)
    name = region.op(f"math.clampf {x._name} to [{lo._name}, {hi._name}] : {region.real}")
    return Scalar(region, name, region.real)


def clamp_min(x: Any, min: Any) -> Scalar:
    """x, at least `min`; where both are equal the derivative is that of x alone."""
    return clamp(x, min=min)


def clamp_max(x: Any, max: Any) -> Scalar:
    """x, at most `max`; where both are equal the derivative is that of x alone."""
    return clamp(x, max=max)


def clip(
    x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None
) -> Scalar:
    """NumPy's name for clamp."""
    return clamp(x, a_min if min is None else min, a_max if max is None else max)


def _number_of(what: str, extreme: Callable[[Any, Any], Scalar]) -> Callable[[Any, Any], Scalar]:
    def choose(x: Any, y: Any) -> Scalar:
        x, y = _lift_all(x, y)[1]
        return where(isnan(x), y, where(isnan(y), x, extreme(x, y)))

    choose.__doc__ = f"The {what} one; the other one if one is NaN."
    return choose


fmax = _number_of("larger", clamp_min)
fmin = _number_of("smaller", clamp_max)


# --- Booleans, bits, comparisons ---------------------------------------------------


def _logical(op: str, x: Scalar, y: Scalar) -> Scalar:
    return _emit(f"arith.{op}", x, y, range=(0, 1))


def _bits(what: str, op: str) -> Callable[[Any, Any], Scalar]:
    def apply(x: Any, y: Any) -> Scalar:
        _, (x, y) = _lift_all(x, y)
        type, x, y = _promote(x, y)
        if type in FLOATS:
            raise error(
                f"{what} of {x.describe()} and {y.describe()}",
                "compare floats first, as in (x > 0)",
            )
        if type == "i1":
            for known, other in ((x, y), (y, x)):
                if known._constant is (op == "andi") and op != "xori":
                    return other
            return _logical(op, x, y)
        both = (*x._range, *y._range)
        range = (INT_MIN, INT_MAX)
        if min(both) >= 0:  # no bit above the highest one of both
            range = (0, (1 << max(both).bit_length()) - 1)
        elif integer_type((min(both), max(both))) == "index":
            range = I32
        return _integers(f"arith.{op}", x, y, range)

    apply.__doc__ = f"x {what} y, of booleans or of the bits of integers."
    return apply


and_ = _bits("&", "andi")
or_ = _bits("|", "ori")
xor = _bits("^", "xori")


def invert(x: Any) -> Scalar:
    """~x: not, or all bits of an integer."""
    region, (x,) = _lift_all(x)
    if x._type in FLOATS:
        raise error(f"~ of {x.describe()}", "compare it first, as in ~(x > 0)")
    if x._type == "i1":
        return _logical("xori", x, constant(region, True))
    lo, hi = x._range
    return _integers("arith.xori", x, constant(region, -1), (-1 - hi, -1 - lo))


def left_shift(x: Any, y: Any) -> Scalar:
    """x << y of integers, y in [0, 63]."""
    return _shift("arith.shli", x, y)


def right_shift(x: Any, y: Any) -> Scalar:
    """x >> y of integers, y in [0, 63]."""
    return _shift("arith.shrsi", x, y)


def _shift(op: str, x: Any, y: Any) -> Scalar:
    _, (x, y) = _lift_all(x, y)
    type, x, y = _promote(x, y, "index")
    if type in FLOATS:
        raise error("shifts a float", "shift integers")
    if y._constant is not None and not 0 <= y._constant <= 63:
        raise error(f"shifts by {y._constant} bits", "shift by 0 to 63")
    if y._range[0] < 0 or y._range[1] > 63:
        y = clamp(y, 0, 63)
    if op == "arith.shrsi":
        range = (min(x._range[0], 0), max(x._range[1], 0))
    elif y._constant is None:
        range = (INT_MIN, INT_MAX)
    else:
        range = _clip(x._range[0] << y._constant, x._range[1] << y._constant)
    return _integers(op, x, y, range)


def truth(x: Any) -> Scalar:
    """x != 0 of a number, a boolean itself."""
    region, (x,) = _lift_all(x)
    if x._constant is not None:
        return constant(region, bool(x._constant))
    return x if x._type == "i1" else ne(x, 0)


def logical_and(x: Any, y: Any) -> Scalar:
    """Whether both are true (not 0)."""
    return and_(truth(x), truth(y))


def logical_or(x: Any, y: Any) -> Scalar:
    """Whether one is true (not 0)."""
    return or_(truth(x), truth(y))


def logical_xor(x: Any, y: Any) -> Scalar:
    """Whether exactly one is true (not 0)."""
    return xor(truth(x), truth(y))


def logical_not(x: Any) -> Scalar:
    """Whether x is false (0)."""
    return invert(truth(x))


def _comparison(sign: str, predicate: str) -> Callable[[Any, Any], Scalar]:
    def compare(x: Any, y: Any) -> Scalar:
        _, (x, y) = _lift_all(x, y)
        if x._type == y._type == "i1" and predicate in ("eq", "ne"):
            different = _logical("xori", x, y)
            return different if predicate == "ne" else invert(different)
        _, x, y = _promote(x, y, "index")
        return _compare_op(predicate, x, y)

    compare.__doc__ = f"x {sign} y."
    return compare


eq = _comparison("==", "eq")
ne = _comparison("!=", "ne")
lt = _comparison("<", "lt")
le = _comparison("<=", "le")
gt = _comparison(">", "gt")
ge = _comparison(">=", "ge")


def where(condition: Any, x: Any, y: Any) -> Scalar:
    """x where the condition holds, else y. Both are computed."""
    _, (condition, x, y) = _lift_all(condition, x, y)
    if condition._type != "i1":
        raise error(f"chooses by {condition.describe()}", "choose by a comparison, as in x > 0")
    _, x, y = _promote(x, y)
    return _narrowed(_select(condition, x, y))


def isnan(x: Any) -> Scalar:
    """Whether x is NaN."""
    _, (x,) = _lift_all(x)
    return ne(x, x) if x._type in FLOATS else constant(x._region, False)


def isinf(x: Any) -> Scalar:
    """Whether x is an infinity."""
    _, (x,) = _lift_all(x)
    return eq(abs_(x), math.inf) if x._type in FLOATS else constant(x._region, False)


def isfinite(x: Any) -> Scalar:
    """Whether x is neither NaN nor an infinity."""
    _, (x,) = _lift_all(x)
    return lt(abs_(x), math.inf) if x._type in FLOATS else constant(x._region, True)


# --- Functions of floats --------------------------------------------------------------


def _unary(op: str, doc: str) -> Callable[[Any], Scalar]:
    def apply(x: Any) -> Scalar:
        _, (x,) = _lift_all(x)
        return _emit(op, _as_float(x))

    apply.__doc__ = doc
    return apply


exp = _unary("math.exp", "e^x.")
exp2 = _unary("math.exp2", "2^x.")
expm1 = _unary("math.expm1", "e^x - 1.")
log = _unary("math.log", "Natural logarithm.")
log2 = _unary("math.log2", "Logarithm to base 2.")
log10 = _unary("math.log10", "Logarithm to base 10.")
log1p = _unary("math.log1p", "ln(1 + x).")
sqrt = _unary("math.sqrt", "Square root.")
rsqrt = _unary("math.rsqrt", "1 / square root.")
tanh = _unary("math.tanh", "Hyperbolic tangent.")
sin = _unary("math.sin", "Sine.")
cos = _unary("math.cos", "Cosine.")
erf = _unary("math.erf", "Error function.")
atan = _unary("math.atan", "Arc tangent.")


def _rounding(op: str, doc: str) -> Callable[[Any], Scalar]:
    def apply(x: Any) -> Scalar:
        _, (x,) = _lift_all(x)
        return _emit(op, x) if x._type in FLOATS else positive(x)

    apply.__doc__ = doc + " An integer is its own."
    return apply


floor = _rounding("math.floor", "The next integer below, as a float.")
ceil = _rounding("math.ceil", "The next integer above, as a float.")
trunc = _rounding("math.trunc", "The next integer towards 0, as a float.")
_round = _rounding("math.roundeven", "The nearest integer, as a float.")


def round_(x: Any, decimals: int = 0) -> Scalar:
    """The nearest integer as a float, halves to even ones."""
    if decimals:
        raise error(f"rounds to {decimals} decimals", "scale, round and scale back")
    return _round(x)


def tan(x: Any) -> Scalar:
    """Tangent."""
    return true_divide(sin(x), cos(x))


sinh = _unary("math.sinh", "Hyperbolic sine.")


def cosh(x: Any) -> Scalar:
    """Hyperbolic cosine."""
    return mul(add(exp(x), exp(neg(x))), 0.5)


def reciprocal(x: Any) -> Scalar:
    """1 / x."""
    return true_divide(1.0, x)


def square(x: Any) -> Scalar:
    """x * x."""
    return mul(positive(x), positive(x))


def sigmoid(x: Any) -> Scalar:
    """1 / (1 + e^-x)."""
    return reciprocal(add(exp(neg(x)), 1.0))


def silu(x: Any, inplace: bool = False) -> Scalar:
    """x sigmoid(x)."""
    return mul(x, sigmoid(x))


def relu(x: Any, inplace: bool = False) -> Scalar:
    """max(x, 0)."""
    return clamp_min(0, x)  # so that at 0 the slope is that of the constant


def leaky_relu(x: Any, negative_slope: Any = 0.01, inplace: bool = False) -> Scalar:
    """x where it is positive, else negative_slope * x."""
    return where(gt(x, 0), x, mul(x, negative_slope))


def softplus(x: Any, beta: Any = 1.0, threshold: Any = 20.0) -> Scalar:
    """ln(1 + e^(beta x)) / beta; x where beta x is above the threshold."""
    scaled = mul(_as_float(x), beta)
    # ln(1 + e^y) = max(y, 0) + ln(1 + e^-|y|): nothing overflows.
    soft = add(maximum(scaled, 0.0), log1p(exp(neg(abs_(scaled)))))
    return where(gt(scaled, threshold), x, true_divide(soft, beta))


def logsigmoid(x: Any) -> Scalar:
    """-ln(1 + e^-x)."""
    x = _as_float(x)
    return sub(minimum(x, 0.0), log1p(exp(neg(abs_(x)))))


def gelu(x: Any, approximate: str = "none") -> Scalar:
    """x Phi(x) with the normal distribution's Phi, or its approximation with tanh."""
    x = _as_float(x)
    if approximate == "tanh":
        cubic = mul(x, add(mul(mul(x, x), 0.044715), 1.0))
        phi = add(tanh(mul(cubic, math.sqrt(2 / math.pi))), 1.0)
    elif approximate == "none":
        phi = add(erf(mul(x, math.sqrt(0.5))), 1.0)
    else:
        raise error(f"approximation {approximate!r} is not known", 'use "none" or "tanh"')
    return mul(mul(x, 0.5), phi)


def elu(x: Any, alpha: Any = 1.0, inplace: bool = False) -> Scalar:
    """x where it is positive, else alpha * (e^x - 1)."""
    return where(gt(x, 0), x, mul(expm1(clamp_max(x, 0)), alpha))


def celu(x: Any, alpha: Any = 1.0, inplace: bool = False) -> Scalar:
    """x where it is positive, else alpha * (e^(x / alpha) - 1)."""
    return where(gt(x, 0), x, mul(expm1(true_divide(clamp_max(x, 0), alpha)), alpha))


def selu(x: Any, inplace: bool = False) -> Scalar:
    """elu with the factors for which activations keep mean 0 and variance 1.

    Source: Klambauer et al. 2017, "Self-Normalizing Neural Networks", equation 2.
    """
    return mul(elu(x, 1.6732632423543772), 1.0507009873554805)


def hardtanh(x: Any, min_val: Any = -1.0, max_val: Any = 1.0, inplace: bool = False) -> Scalar:
    """x, at least `min_val` and at most `max_val`."""
    # Unlike clamp it is flat at its bounds, as the constants are.
    return clamp_max(max_val, clamp_min(min_val, x))


def relu6(x: Any, inplace: bool = False) -> Scalar:
    """x, at least 0 and at most 6."""
    return hardtanh(x, 0, 6)


def hardsigmoid(x: Any, inplace: bool = False) -> Scalar:
    """relu6(x + 3) / 6."""
    return true_divide(relu6(add(x, 3.0)), 6.0)


def hardswish(x: Any, inplace: bool = False) -> Scalar:
    """x hardsigmoid(x)."""
    return mul(x, hardsigmoid(x))


def mish(x: Any, inplace: bool = False) -> Scalar:
    """x tanh(softplus(x))."""
    return mul(x, tanh(softplus(x)))


def softsign(x: Any) -> Scalar:
    """x / (1 + |x|)."""
    return true_divide(x, add(abs_(x), 1.0))


def tanhshrink(x: Any) -> Scalar:
    """x - tanh(x)."""
    return sub(x, tanh(x))


def logaddexp(x: Any, y: Any) -> Scalar:
    """ln(e^x + e^y)."""
    # Of equal infinities the difference is NaN.
    rest = where(eq(x, y), 0.0, neg(abs_(sub(_as_float(x), y))))
    return add(maximum(x, y), log1p(exp(rest)))


def asin(x: Any) -> Scalar:
    """Arc sine; NaN beyond 1."""
    x = _as_float(x)
    # By half the angle, which has a derivative at 1.
    return mul(atan(true_divide(x, add(_other_leg(x), 1.0))), 2.0)


def _other_leg(x: Scalar) -> Scalar:
    """sqrt(1 - x^2), of which no digits cancel near 1."""
    return sqrt(_emit("math.fma", neg(x), x, constant(x._region, 1.0)))


def acos(x: Any) -> Scalar:
    """Arc cosine; NaN beyond 1."""
    x = _as_float(x)
    # By half the angle of |x|: nothing cancels near 1, nor is anything infinite near -1.
    negative = lt(x, 0.0)
    size = _negated_where(negative, x)
    angle = mul(atan(true_divide(_other_leg(x), add(size, 1.0))), 2.0)
    return where(negative, sub(math.pi, angle), angle)


def atan2(y: Any, x: Any) -> Scalar:
    """The angle of the point (x, y), in [-pi, pi]."""
    y, x = _as_float(y), _as_float(x)
    # Not by abs, which is flat at 0; and by the signs, which -0 has as well.
    is_below, is_left = (lt(copysign(1.0, value), 0.0) for value in (y, x))
    height, width = _negated_where(is_below, y), _negated_where(is_left, x)
    # Of the smaller one through the larger one; both may be 0 or infinite.
    is_steep = gt(height, width)
    small, large = where(is_steep, width, height), where(is_steep, height, width)
    is_origin = eq(large, 0.0)
    is_known = or_(is_origin, eq(small, math.inf))
    ratio = true_divide(small, where(is_known, 1.0, large))
    angle = atan(where(is_known, where(is_origin, 0.0, 1.0), ratio))
    angle = where(is_steep, sub(math.pi / 2, angle), angle)
    angle = _negated_where(is_below, where(is_left, sub(math.pi, angle), angle))
    return where(isnan(x) | isnan(y), math.nan, angle)


def asinh(x: Any) -> Scalar:
    """Inverse hyperbolic sine."""
    x = _as_float(x)
    # The square of a small number may be 0, and the derivative of its inverse is NaN there.
    size = abs_(x)
    is_small = lt(size, 1e-8)
    size = where(is_small, 1.0, size)
    # Of x^2 / (1 + sqrt(1 + x^2)), which is x where x^2 overflows.
    more = true_divide(
        size, add(true_divide(1.0, size), sqrt(add(true_divide(1.0, square(size)), 1.0)))
    )
    inverse = log1p(add(size, more))
    size = where(gt(size, 1e18), add(log(size), math.log(2)), inverse)
    # Not by copysign, which is flat at 0: on a GPU log1p of a small number is.
    return where(is_small, x, _negated_where(lt(x, 0.0), size))  # to the last digit


def acosh(x: Any) -> Scalar:
    """Inverse hyperbolic cosine; NaN below 1."""
    above = sub(_as_float(x), 1.0)
    inverse = log1p(add(above, mul(sqrt(above), sqrt(add(above, 2.0)))))
    # Not the logarithm of 0, or the derivative there would be NaN.
    return where(gt(above, 1e18), add(log(clamp_min(above, 1.0)), math.log(2)), inverse)


def atanh(x: Any) -> Scalar:
    """Inverse hyperbolic tangent; NaN beyond 1."""
    x = _as_float(x)
    # Neither abs nor copysign, which are flat at 0: on a GPU log1p of a small number is.
    is_below = lt(copysign(1.0, x), 0.0)
    size = _negated_where(is_below, x)
    size = mul(log1p(true_divide(mul(size, 2.0), sub(1.0, size))), 0.5)
    return _negated_where(is_below, size)


def isclose(
    x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Scalar:
    """Whether |x - y| is at most atol + rtol |y|, or both are equal."""
    near = le(abs_(sub(x, y)), add(mul(abs_(y), rtol), atol)) & isfinite(y)
    near = or_(near, eq(x, y))
    return or_(near, isnan(x) & isnan(y)) if equal_nan else near


def xlogy(x: Any, y: Any) -> Scalar:
    """x ln(y), 0 where x is 0."""
    has_none = eq(x, 0) & (le(y, 0) | eq(y, math.inf))
    return mul(x, log(where(has_none, 1.0, y)))


def heaviside(x: Any, values: Any) -> Scalar:
    """0 below 0, 1 above, `values` at 0."""
    return where(gt(x, 0), 1.0, where(eq(x, 0), values, mul(sign(x), 0.0)))


def frac(x: Any) -> Scalar:
    """x - trunc(x)."""
    return sub(x, trunc(x))


def lerp(x: Any, end: Any, weight: Any) -> Scalar:
    """x + weight * (end - x)."""
    return add(x, mul(weight, sub(end, x)))


def addcmul(x: Any, y: Any, z: Any, *, value: Any = 1) -> Scalar:
    """x + value * y * z."""
    return add(x, mul(mul(y, z), value))


def copysign(x: Any, y: Any) -> Scalar:
    """|x| with the sign of y."""
    _, (x, y) = _lift_all(x, y)
    return _emit("math.copysign", _as_float(x), _as_float(y))


def hypot(x: Any, y: Any) -> Scalar:
    """sqrt(x^2 + y^2)."""
    return sqrt(add(mul(x, x), mul(y, y)))


def nan_to_num(x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Scalar:
    """x with numbers for NaN and the infinities."""
    x = _as_float(x)
    largest = {"f32": 3.4028234663852886e38, "f64": sys.float_info.max}[x._type]
    x = where(isnan(x), 0.0 if nan is None else nan, x)
    x = where(eq(x, math.inf), largest if posinf is None else posinf, x)
    return where(eq(x, -math.inf), -largest if neginf is None else neginf, x)


def masked_fill(x: Any, mask: Any, value: Any) -> Scalar:
    """value where the mask holds, else x."""
    return where(mask, value, x)


# --- Types --------------------------------------------------------------------------------

_FLOAT_TYPES = {
    **{"float64": "f64", "double": "f64", "float32": "f32"},
    **{"float16": "f16", "half": "f16", "bfloat16": "bf16"},
}
_KINDS = {
    **dict.fromkeys([*_FLOAT_TYPES, "float"], float),
    **dict.fromkeys(["int64", "long", "int32", "int"], int),
    "bool": bool,
}
"""The kinds of types that are converted to; Python's own float is as wide as scores are."""
_LARGEST_I32 = {"f32": 2147483520.0, "f64": 2147483647.0}
"""The largest float that is an integer of 32 bits."""


def dtype_name(dtype: Any) -> str:
    if isinstance(dtype, type):
        return dtype.__name__.removesuffix("_")
    name = getattr(dtype, "name", None)
    return name if isinstance(name, str) else str(dtype).rpartition(".")[2]


def cast(x: Any, dtype: Any) -> Scalar:
    """x as float64, float32, float16 or bfloat16 (rounded, computed with as the scores
    are), an integer (towards 0; floats beyond 32 bits become the nearest integer of 32
    bits, NaN the smallest) or bool (x != 0). `dtype` is one of PyTorch or NumPy,
    or float, int or bool, or its name.
    """
    region, (x,) = _lift_all(x)
    name = dtype_name(dtype)
    kind, rounded_to = _KINDS.get(name), _FLOAT_TYPES.get(name, region.real)
    if kind is None or (kind is float and rounded_to == "f64" != region.real):
        raise error(
            f"converts {x.describe()} to {name}",
            "convert to float32, float16, bfloat16, int32, int64 or bool"
            + (", or make query, key and value float64" if kind else ""),
        )
    if kind is bool:
        return truth(x)
    if kind is int and x._type in FLOATS:
        lo, hi = constant(region, float(I32[0])), constant(region, _LARGEST_I32[x._type])
        # This way round NaN becomes the lower bound.
        inside = where(lt(x, hi), where(gt(x, lo), x, lo), where(ge(x, hi), hi, lo))
        narrow = region.op(f"arith.fptosi {inside._name} : {x._type} to i32")
        return Scalar(region, region.op(f"arith.index_cast {narrow} : i32 to index"), "index", I32)
    if kind is int:
        return positive(x)
    x = _as_float(x)
    if rounded_to == x._type:
        return x
    rounded = region.op(f"arith.truncf {x._name} : {x._type} to {rounded_to}")
    wide = region.op(f"arith.extf {rounded} : {rounded_to} to {x._type}")
    return Scalar(region, wide, x._type)


_DEVICE = re.compile(r"(cpu|cuda|mps|xpu|hpu|mtia|meta)(:\d+)?")


def to(x: Any, *others: Any, **options: Any) -> Scalar:
    """PyTorch's x.to(dtype), (device, dtype) or (tensor) for its type; devices are ignored."""
    dtype = None
    for given in (*others, options.get("dtype"), options.get("other")):
        if given is None or isinstance(given, (bool, int)) or type(given).__name__ == "device":
            continue
        if isinstance(given, str) and _DEVICE.fullmatch(given):
            continue
        is_dtype = isinstance(given, (str, type)) or not hasattr(given, "dtype")
        dtype = given if is_dtype else given.dtype
    return _lift_all(x)[1][0] if dtype is None else cast(x, dtype)


def astype(x: Any, dtype: Any, *others: Any, **options: Any) -> Scalar:
    """NumPy's x.astype(dtype); the order and whether it copies are ignored."""
    return cast(x, dtype)


def _cast_to(dtype: str) -> Callable[[Any], Scalar]:
    def convert(x: Any) -> Scalar:
        return cast(x, dtype)

    convert.__doc__ = f"x as {dtype}."
    return convert


def _full(value: Any) -> Callable[..., Scalar]:
    def like(x: Any, fill_value: Any = value, *, dtype: Any = None, **options: Any) -> Scalar:
        return new_full(x, (), fill_value, dtype=dtype)

    like.__doc__ = "A constant of x's type."
    return like


def _require_one(what: str, sizes: tuple[Any, ...]) -> None:
    """Raises if a shape, as one argument or as several, is not that of one number."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    for size in sizes:
        if not isinstance(size, int):
            raise error(
                f"{what} with {size!r}, where a shape is expected",
                "convert values by .to(dtype); bits can't be read as another type",
            )
        if size not in (1, -1):
            raise error(f"{what} of shape {list(sizes)}", "it is one number: leave the shape ()")


def _shaped(name: str) -> Callable[..., Any]:
    def keep(x: Any, *sizes: Any, **options: Any) -> Any:
        given = [options[key] for key in ("shape", "size", "dtype") if key in options]
        _require_one(f"{name} of a traced value", (*sizes, *given))
        return _copied(x)

    keep.__doc__ = "x, of the shape of one number."
    return keep


def _new(value: Any) -> Callable[..., Scalar]:
    def new(x: Any, *size: Any, dtype: Any = None, **options: Any) -> Scalar:
        return new_full(x, (*size, *options.get("size", ())), value, dtype=dtype)

    new.__doc__ = "A constant, of x's type if no other is given."
    return new


def new_full(x: Any, size: Any, fill_value: Any, *, dtype: Any = None, **options: Any) -> Scalar:
    """A constant, of x's type if no other is given."""
    _require_one("makes an array", tuple(size) if isinstance(size, (tuple, list)) else (size,))
    return cast(lift(region_of((x,)), fill_value), x.dtype if dtype is None else dtype)


def _itself(x: Any, *others: Any, **options: Any) -> Any:
    """x, which is as asked already: of functions that give the array back."""
    return x


def _copied(x: Any, *others: Any, **options: Any) -> Any:
    """x, as another result: a copy or a view of an array."""
    return x.anew() if type(x) is Scalar else x


def _detached(x: Any) -> Any:
    """x as a constant to gradients."""
    return x.stopped() if type(x) is Scalar else x


# --- By name ----------------------------------------------------------------------------------

_PUBLIC: dict[str, Callable[..., Any]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "neg": neg,
    "div": div,
    "floor_divide": floor_divide,
    "remainder": remainder,
    "fmod": fmod,
    "pow": pow_,
    "abs": abs_,
    "sign": sign,
    "maximum": maximum,
    "minimum": minimum,
    "fmax": fmax,
    "fmin": fmin,
    "clamp": clamp,
    "clamp_min": clamp_min,
    "clamp_max": clamp_max,
    "eq": eq,
    "ne": ne,
    "lt": lt,
    "le": le,
    "gt": gt,
    "ge": ge,
    "logical_and": logical_and,
    "logical_or": logical_or,
    "logical_xor": logical_xor,
    "logical_not": logical_not,
    "where": where,
    "isnan": isnan,
    "isinf": isinf,
    "isfinite": isfinite,
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log2": log2,
    "log10": log10,
    "log1p": log1p,
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "tanh": tanh,
    "sinh": sinh,
    "cosh": cosh,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "atan2": atan2,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "erf": erf,
    "floor": floor,
    "ceil": ceil,
    "trunc": trunc,
    "round": round_,
    "reciprocal": reciprocal,
    "square": square,
    "sigmoid": sigmoid,
    "silu": silu,
    "relu": relu,
    "leaky_relu": leaky_relu,
    "softplus": softplus,
    "logsigmoid": logsigmoid,
    "gelu": gelu,
    "elu": elu,
    "celu": celu,
    "selu": selu,
    "hardtanh": hardtanh,
    "relu6": relu6,
    "hardsigmoid": hardsigmoid,
    "hardswish": hardswish,
    "mish": mish,
    "softsign": softsign,
    "tanhshrink": tanhshrink,
    "logaddexp": logaddexp,
    "isclose": isclose,
    "xlogy": xlogy,
    "heaviside": heaviside,
    "frac": frac,
    "lerp": lerp,
    "copysign": copysign,
    "hypot": hypot,
    "nan_to_num": nan_to_num,
}
"""The functions of `fa.math`, by PyTorch's names."""

_ALIASES = {
    "subtract": sub,
    "rsub": rsub,
    "multiply": mul,
    "negative": neg,
    "positive": positive,
    "divide": div,
    "true_divide": true_divide,
    "mod": remainder,
    "power": pow_,
    "float_power": float_power,
    "absolute": abs_,
    "fabs": abs_,
    "max": max_of_two,
    "min": min_of_two,
    "clip": clip,
    "equal": eq,
    "not_equal": ne,
    "less": lt,
    "less_equal": le,
    "greater": gt,
    "greater_equal": ge,
    "bitwise_and": and_,
    "bitwise_or": or_,
    "bitwise_xor": xor,
    "bitwise_not": invert,
    "invert": invert,
    "bitwise_left_shift": left_shift,
    "bitwise_right_shift": right_shift,
    "left_shift": left_shift,
    "right_shift": right_shift,
    "rint": round_,
    "around": round_,
    "fix": trunc,
    "arctan": atan,
    "arcsin": asin,
    "arccos": acos,
    "arctan2": atan2,
    "arcsinh": asinh,
    "arccosh": acosh,
    "arctanh": atanh,
    "special_xlogy": xlogy,
    "log_sigmoid": logsigmoid,
    "special_expit": sigmoid,
    "special_erf": erf,
    "special_exp2": exp2,
    "special_expm1": expm1,
    "special_log1p": log1p,
    "addcmul": addcmul,
    "masked_fill": masked_fill,
    "zeros_like": _full(0),
    "ones_like": _full(1),
    "full_like": _full(0),
    "new_zeros": _new(0),
    "new_ones": _new(1),
    "new_full": new_full,
    "new_tensor": lambda x, value, **options: new_full(x, (), value, **options),
    "copy": _copied,
    "clone": _copied,
    "detach": _detached,
    "stop_gradient": _detached,
    "contiguous": _itself,
    "squeeze": _copied,
    "view": _shaped("view"),
    "reshape": _shaped("reshape"),
    "cpu": _itself,
    "cuda": _itself,
    "type_as": to,
    "to": to,
    "astype": astype,
    "type": cast,
    "double": _cast_to("float64"),
    "float": _cast_to("float32"),
    "half": _cast_to("float16"),
    "bfloat16": _cast_to("bfloat16"),
    "int": _cast_to("int32"),
    "long": _cast_to("int64"),
    "bool": _cast_to("bool"),
}


def _reflected(function: Callable[[Any, Any], Scalar]) -> Callable[[Any, Any], Scalar]:
    return lambda x, y: function(y, x)


def _to_int(function: Callable[[Any], Scalar]) -> Callable[[Any], Scalar]:
    return lambda x: cast(function(x), "int64")


_BINARY = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "truediv": true_divide,
    "floordiv": floor_divide,
    "mod": remainder,
    "pow": pow_,
    "and": and_,
    "or": or_,
    "xor": xor,
    "lshift": left_shift,
    "rshift": right_shift,
}
_OPERATORS: dict[str, Callable[..., Any]] = {
    **{f"__{name}__": function for name, function in _BINARY.items()},
    **{f"__r{name}__": _reflected(function) for name, function in _BINARY.items()},
    **{f"__{name}__": _PUBLIC[name] for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "__neg__": neg,
    "__pos__": positive,
    "__abs__": abs_,
    "__invert__": invert,
    "__divmod__": lambda x, y: (floor_divide(x, y), remainder(x, y)),
    "__rdivmod__": lambda x, y: (floor_divide(y, x), remainder(y, x)),
    "__floor__": _to_int(floor),
    "__ceil__": _to_int(ceil),
    "__trunc__": _to_int(trunc),
    "__round__": lambda x, decimals=None: (
        cast(round_(x), "int64") if decimals is None else round_(x, decimals)
    ),
}


def _elementwise(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, of each element where an operand is an array of them."""

    @functools.wraps(function)
    def apply(*args: Any, **options: Any) -> Any:
        for x in args:
            if type(x) is PartlyIndexed or type(x) is Elements or (is_tracing() and is_whole(x)):
                own = own_of_elements(name, args[0])
                if own is not None:
                    return own(*args[1:], **options)
                return over_elements(function, *args, **options)
        return function(*args, **options)

    return apply


PUBLIC = {name: _elementwise(name, function) for name, function in _PUBLIC.items()}
"""The functions of `fa.math`."""

FUNCTIONS["truth"] = truth
FUNCTIONS.update(PUBLIC)
FUNCTIONS.update({name: _elementwise(name, function) for name, function in _ALIASES.items()})
for _name, _function in _OPERATORS.items():
    FUNCTIONS[_name] = _elementwise(_name, _function)
    for _class in (Scalar, PartlyIndexed, Elements):
        setattr(_class, _name, FUNCTIONS[_name])
