# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a right result is: one rule, for tests, fuzzers and benchmarks alike.

`fa-run --check` has the same rule with the same constants in lib/Run/Compare.cpp
(`outputLimit`, `gradientLimit`, `lseLimit`, `compare`); test_right.py has both judge the same data.
docs/right.md says why it is as it is.

- The reference is the definition in float64, of the inputs as they are in their type.
- A 16-bit output may be twice as far from it as the plain formula in the same type is
  (`naive.attention(dtype=...)`), and 1e-5 more: max|out - ref| <= 2 max|naive - ref| + 1e-5.
- A float32 output may be 1e-5 of the largest reference away, a float64 one 1e-12 of it:
  168 roundings of float32 and 9007 of float64, the reference's own among the latter.
- A gradient of 16-bit inputs may be three times as far from it as the plain formula's is
  in the same type under PyTorch's autograd, and 1e-5 more; of float32 and float64 inputs as
  much as an output.
- A log-sum-exp, which is float32 but of float64 inputs, may be 1e-4 away, or eight roundings
  of a float32 of its size: a number of 1e4 has neighbours at a distance of 1e-3. One that is
  float64 may be 1e-12 away, or eight of its roundings.
- Where the reference is 0 or infinite or NaN, so is the result, exactly: rows with
  nothing to attend are 0 and their log-sum-exp is -inf. NaN passes nowhere else. A
  gradient that is 0 because terms cancel need not be.

Some scores can't be computed in float32 as well as that: functions that a target
approximates within a documented bound, and scores of which one rounding is more than
the rule allows. For these `score_error` says how wrong a score may be (`approximated`,
`of_size`), and what follows from it for the results is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import naive
import numpy as np
from naive import back

NAIVE_ERRORS = 2.0
"""16 bits: how many times the plain formula's error is allowed."""
ABSOLUTE = 1e-5
"""16 bits: what is allowed where that formula is exact."""
RELATIVE = {"float32": 1e-5, "float64": 1e-12}
"""Of the largest reference."""
NAIVE_GRADIENT_ERRORS = 3.0
"""16 bits: how many times the plain formula's error of a gradient is allowed."""
ROUNDING = {"float32": 2.0**-24, "float64": 2.0**-53}
"""Of a number's size."""
ROW_ROUNDINGS = 8
"""Of a sum of products: of so many products in turn, or of sums of those, which another order
sums otherwise."""
LSE = {"float32": 1e-4, "float64": 1e-12}
LSE_ROUNDINGS = 8
"""Of a log-sum-exp. Its maximum is a product that is rounded (1), times the scale
and log2 e, a rounded constant (2, 3), after what a score function added (4); the
logarithm is added (5), and the sum multiplied by ln 2, rounded too (6, 7); it may be
formed from halves (8)."""
FUNCTION = {"float32": (3e-6, 2e-6), "float64": (6e-15, 4e-15)}
"""Relative to its size, and absolute: of any function's result: what test_trace.py holds each to."""
MATH = {"cpu": 3e-7, "cuda": 2e-6}
"""Of a float32 function's result (tanh: of 1), by the numeric contracts of fa-cpu-expand-math
and fa-lower-kernel-math."""


def is_short(dtype: str) -> bool:
    """Whether a type has 16 bits, so that the plain formula in it says what is right."""
    return dtype in ("float16", "bfloat16")


def computed_in(dtype: str) -> str:
    """The type of scores, sums and the log-sum-exp of attention of a type."""
    return "float64" if dtype == "float64" else "float32"


def output_limit(dtype: str, naive_error: float, max_reference: float) -> float:
    """How far an output of float64, float32, float16 or bfloat16 may be from its reference."""
    if is_short(dtype):
        return NAIVE_ERRORS * naive_error + ABSOLUTE
    return RELATIVE[dtype] * max(max_reference, 1e-30)


def gradient_limit(dtype: str, naive_error: float, max_reference: float) -> float:
    """How far a gradient of attention of that type may be from its reference."""
    return output_limit(dtype, NAIVE_GRADIENT_ERRORS / NAIVE_ERRORS * naive_error, max_reference)


def lse_limit(exact: Any, dtype: str = "float32") -> Any:
    """How far log-sum-exps of attention of a type may be from `exact`, for each of them."""
    exact, computed = np.where(np.isfinite(exact), exact, 0.0), computed_in(dtype)
    return np.maximum(LSE[computed], of_size(exact, dtype))


def approximated(size: float, device: str) -> float:
    """The error of a score in which an approximate function has results up to `size`
    (of tanh: is multiplied with it)."""
    return MATH["cpu" if device == "cpu" else "cuda"] * size


def of_size(score: Any, dtype: str = "float32") -> Any:
    """The error of scores of that size: the roundings of a log-sum-exp, which is one."""
    return LSE_ROUNDINGS * ROUNDING[computed_in(dtype)] * abs(score)


def dtype_of(array: Any) -> str:
    """ "float64", "float32", "float16" or "bfloat16": the type of an array of NumPy or PyTorch."""
    return str(array.dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Expected:
    """A reference, with what decides how far a result may be from it."""

    out: Any
    """float64 output."""
    lse: Any = None
    """float64 log-sum-exp."""
    dtype: str = "float32"
    naive_error: float = 0.0
    """The largest error of the plain formula's output in the 16-bit type."""
    score_error: float = 0.0
    """How wrong scores may be."""
    spread: float = 0.0
    """The largest distance of two values of a column of v."""

    @property
    def limit(self) -> float:
        """How far an output may be from `out`."""
        largest = np.abs(np.where(np.isfinite(self.out), self.out, 0.0)).max(initial=0.0)
        # Weights w that are wrong by factors 1 + e, |e| <= error, move sum(w v) / sum(w)
        # by sum(w e (v - out)) / sum(w): by the error times a distance in v.
        own = output_limit(self.dtype, self.naive_error, largest)
        return own + self.score_error * self.spread

    @property
    def lse_limit(self) -> Any:
        """How far each log-sum-exp may be from `lse`."""
        return lse_limit(self.lse, self.dtype) + self.score_error

    def map(self, out: Callable[[Any], Any], lse: Callable[[Any], Any] | None = None) -> Expected:
        """With what functions make of the output and, if it is of use, the log-sum-exp."""
        return replace(self, out=out(self.out), lse=lse(self.lse) if lse else None)


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    dtype: str | None = None,
    score_error: float = 0.0,
    score: Callable[..., Any] | None = None,
    has_large_scores: bool = False,
    samples: int = 0,
    xp: Any = np,
    **formulas: Any,
) -> Expected:
    """What is expected of arrays of NumPy or PyTorch; `formulas` as for naive.attention.

    Args:
        q, k, v: As the kernel gets them, or their values with the type in `dtype`.
        score: The score function's formula.
        score_error: How wrong scores may be, beside the rule.
        has_large_scores: The score function's results are so large that their roundings
            (`of_size`) are more than the rule allows.
        samples: The largest error of the plain formula is one of so many elements at least:
            of few it is a matter of luck. Values in another order make up more columns. With
            it that error is no less than what rounding the largest output to the type may be,
            of which there are few.
        xp: PyTorch, to compute with it where the tensors are; formulas are given tensors.
    """
    dtype = dtype or dtype_of(q)
    if xp is not np:
        return _of_tensors(q, k, v, dtype, xp, score_error, score=score, **formulas)
    q, k, v = map(back, (q, k, v))
    sizes = [0.0]

    def measured(s: Any, *at: Any) -> Any:
        result = score(s, *at)
        sizes.append(float(np.abs(np.where(np.isfinite(result), result, 0.0)).max(initial=0.0)))
        return result

    formulas["score"] = measured if score and has_large_scores else score
    out, lse = naive.attention(q, k, v, **formulas)
    error = 0.0
    if is_short(dtype):
        columns, more = v, out
        if 0 < out.size < samples:
            turns = range(-(-samples // out.size))
            columns = np.concatenate([np.roll(v, turn, -2) for turn in turns], -1)
            more, _ = naive.attention(q, k, columns, **formulas)
        error = difference(naive.attention(q, k, columns, dtype=dtype, **formulas)[0], more)
        if samples:
            error = max(error, half_unit(out, dtype))
    score_error += of_size(max(sizes), dtype)
    return Expected(out, lse, dtype, error, score_error, spread_of(v) if score_error else 0.0)


def _of_tensors(
    q: Any, k: Any, v: Any, dtype: str, torch: Any, score_error: float, **formulas: Any
) -> Expected:
    out, lse = naive.attention(q, k, v, xp=torch, **formulas)
    error = 0.0
    if is_short(dtype):
        plain, _ = naive.attention(q, k, v, dtype=dtype, xp=torch, **formulas)
        wrong = (plain.double() - out).abs()
        error = float(wrong[wrong.isfinite()].amax()) if wrong.isfinite().any() else 0.0
    spread = spread_of(v) if score_error else 0.0
    return Expected(back(out), back(lse), dtype, error, score_error, spread)


def spread_of(v: Any) -> float:
    """The largest distance of two values of a column of v [..., Sk, Dv]."""
    values = np.asarray(back(v), np.float64)
    if not values.size:
        return 0.0
    return float((values.max(-2) - values.min(-2)).max(initial=0.0))


def half_unit(out: Any, dtype: str) -> float:
    """The largest error of rounding the largest number of `out` to a 16-bit type."""
    largest = np.abs(out[np.isfinite(out)]).max(initial=0.0)
    bits = {"float16": 11, "bfloat16": 8}[dtype]
    return float(np.ldexp(0.5, np.frexp(largest)[1] - bits)) if largest else 0.0


def difference(out: Any, exact: Any) -> float:
    """The largest |out - exact| where both are finite."""
    out, exact = np.asarray(out, np.float64), np.asarray(exact, np.float64)
    both = np.isfinite(out) & np.isfinite(exact)
    return float(np.abs(out[both] - exact[both]).max(initial=0.0))


def share(out: Any, exact: Any, limit: Any, exact_zeros: bool = True) -> float:
    """The largest error as a share of the limit: right is what is at most 1.

    Infinite where one is not finite and the other is not the same, and where `exact`
    is 0 and `out` is not.
    """
    out, exact = np.asarray(out, np.float64), np.asarray(exact, np.float64)
    assert out.shape == exact.shape, f"expected shape {exact.shape}, got {out.shape}"
    finite = np.isfinite(out) & np.isfinite(exact)
    same = (out == exact) | (np.isnan(out) & np.isnan(exact))
    if (~finite & ~same).any() or (exact_zeros and (out[exact == 0] != 0).any()):
        return math.inf
    error = np.abs(np.where(finite, out, 0.0) - np.where(finite, exact, 0.0))
    return float((error / np.maximum(limit, 1e-300)).max(initial=0.0))


def _assert(what: str, out: Any, exact: Any, limit: Any, exact_zeros: bool, note: str) -> None:
    worst = share(out, exact, limit, exact_zeros)
    if worst <= 1:
        return
    out, exact = np.asarray(out, np.float64), np.asarray(exact, np.float64)
    limits = np.broadcast_to(limit, exact.shape)
    with np.errstate(all="ignore"):
        bad = ~(
            (np.abs(out - exact) <= limits) | (out == exact) | (np.isnan(out) & np.isnan(exact))
        )
        if exact_zeros:
            bad |= (exact == 0) & (out != 0)
    at = tuple(int(n) for n in np.argwhere(bad)[0])
    raise AssertionError(
        f"{what}: {bad.sum()} of {bad.size} elements are not right, the largest error is {worst:.3g} "
        f"times the limit; first at {list(at)}: expected {exact[at]:.9g} within {limits[at]:.3g}, "
        f"got {out[at]:.9g}" + (f"\n{note}" if note else "")
    )


def assert_right(out: Any, expected: Expected, lse: Any = None, note: str = "") -> None:
    """The output, and the log-sum-exp if it is given, are right by the rule.

    Args:
        out: An array of the type of `expected`, of NumPy or PyTorch, or its values.
        expected: What `attention` or a test's own reference gives.
    """
    if lse is not None:
        assert_right_lse(lse, expected, note)
    _assert("output", back(out), expected.out, expected.limit, True, note)


def assert_right_lse(lse: Any, expected: Expected, note: str = "") -> None:
    """The log-sum-exp is right by the rule."""
    _assert("log-sum-exp", back(lse), expected.lse, expected.lse_limit, False, note)


# --- Gradients -----------------------------------------------------------------------


@dataclass(frozen=True)
class ExpectedGradient:
    """A gradient's reference, with what decides how far a result may be from it."""

    exact: Any
    """float64"""
    dtype: str = "float32"
    """Of query, key and value, whose roundings all gradients have; or the gradient's own
    where that is one of 16 bits."""
    naive_error: float = 0.0
    terms: float = 0.0
    """The size of terms of which nothing is left, but for the roundings of what is computed in."""
    moved: float = 0.0
    """What is added to the limit (`moved_by_rows`)."""

    @property
    def limit(self) -> float:
        """How far a gradient may be from `exact`."""
        largest = np.abs(np.where(np.isfinite(self.exact), self.exact, 0.0)).max(initial=0.0)
        own = gradient_limit(self.dtype, self.naive_error, largest)
        return own + RELATIVE[computed_in(self.dtype)] * self.terms + self.moved


def gradients(
    formula: Callable[..., Any],
    inputs: Any,
    results_grad: Any,
    samples: int = 2048,
    rounds_output: bool = False,
) -> list[ExpectedGradient | None]:
    """What is expected of gradients; None for an input that requires none.

    Args:
        formula: formula(*inputs, dtype=None) is differentiable attention of tensors, in
            their type or in that of the name `dtype`; gives (out, lse).
        inputs: PyTorch's tensors, query, key and value first.
        results_grad: The gradients with respect to out and lse; None for what is not used.
        samples: The largest error of the plain formula is one of so many elements at least:
            of few it is a matter of luck. Other gradients of the results make up more.
        rounds_output: What the rounding of a 16-bit output moves is allowed (`moved_by_rows`)
            for query, key and value. Captured tensors have no such allowance.
    """
    dtype = dtype_of(inputs[0])
    dtypes = [dtype if is_short(dtype) else dtype_of(x) for x in inputs]

    exact = exact_gradients(formula, inputs, results_grad)
    errors = [0.0] * len(exact)
    sizes = [x.size for x, own in zip(exact, dtypes) if x is not None and x.size and is_short(own)]
    for turn in range(min(32, -(-samples // min(sizes))) if sizes else 0):
        # Rows of one element stay as they are when they are rolled: other mantissas help.
        size = 1 + turn / 64
        turned = [None if x is None else size * x.roll(turn, -1) for x in results_grad]
        plain = exact_gradients(formula, inputs, turned, dtype)
        pairs = zip(plain, exact_gradients(formula, inputs, turned) if turn else exact)
        wrong = [0.0 if y is None else difference(x, y) / size for x, y in pairs]
        errors = list(map(max, errors, wrong))
    moved = moved_by_rows(formula, inputs, results_grad, exact, False)
    if rounds_output:
        moved[:3] = moved_by_rows(formula, inputs, results_grad, exact, True)[:3]
    return [
        None if x is None else ExpectedGradient(x, own, error, moved=size)
        for x, own, error, size in zip(exact, dtypes, errors, moved)
    ]


def moved_by_rows(
    formula: Callable[..., Any],
    inputs: Any,
    results_grad: Any,
    exact: list[Any],
    rounds_output: bool,
) -> list[float]:
    """What gradients move by if what rows subtract is rounded: the product of the output
    with its gradient (Dao et al. 2022, FlashAttention, appendix B.2), a sum in what is computed in, and
    of an output that is rounded to 16 bits if that is asked for. It is as if the
    log-sum-exp's gradient were another. The plain formula takes the sum of the weights' gradients instead, whose
    roundings are those of the terms that it is subtracted from."""
    import torch

    grad, lse_grad = results_grad
    if grad is None:
        return [0.0] * len(exact)
    wide = [x.detach().double() if x.is_floating_point() else x.detach() for x in inputs]
    out, lse = formula(*wide, dtype=None)
    grad = grad.double()
    terms = torch.nan_to_num(grad * out, 0.0, 0.0, 0.0)
    rounding = ROUNDING[computed_in(dtype_of(inputs[0]))]
    size = ROW_ROUNDINGS * rounding * terms.abs().sum(-1)
    rounded = out.to(inputs[0].dtype).double() if rounds_output else out
    of_output = torch.nan_to_num(grad * (out - rounded), 0.0, 0.0, 0.0)
    lse_grad = torch.zeros_like(lse) if lse_grad is None else lse_grad.double()
    found = []
    for seed in range(2):
        signs = torch.from_numpy(np.random.default_rng(seed).choice([-1.0, 1.0], tuple(size.shape)))
        error = of_output.sum(-1) + size * signs.to(size.device)
        if out.ndim == 3:  # packed sequences, out [T, H, Dv], lse [H, T]
            error = error.mT
        found.append(exact_gradients(formula, inputs, (grad, lse_grad + error)))
    return [
        0.0 if own is None else max(difference(x[n], own) for x in found)
        for n, own in enumerate(exact)
    ]


def exact_gradients(
    formula: Callable[..., Any], inputs: Any, results_grad: Any, dtype: str | None = None
) -> list[Any]:
    """Gradients of the formula in float64, or in a type; None for an input that requires none."""
    leaves = [x.detach() for x in inputs]
    if dtype is None:
        leaves = [x.double() if x.is_floating_point() else x for x in leaves]
    wanted = [leaf.requires_grad_() for leaf, x in zip(leaves, inputs) if x.requires_grad]
    found = iter(_differentiated(formula(*leaves, dtype=dtype), wanted, results_grad))
    return [back(next(found)) if x.requires_grad else None for x in inputs]


def _differentiated(results: Any, wanted: list[Any], results_grad: Any) -> list[Any]:
    """Gradients of the results with respect to tensors, 0 where none depends on them."""
    import torch

    used = [(x, g.to(x.dtype)) for x, g in zip(results, results_grad) if g is not None]
    outputs, grads = zip(*[(x, g) for x, g in used if x.requires_grad])
    found = torch.autograd.grad(outputs, wanted, grads, allow_unused=True)
    return [x.new_zeros(x.shape) if g is None else g for x, g in zip(wanted, found)]


def assert_right_gradient(gradient: Any, expected: ExpectedGradient, note: str = "") -> None:
    """A gradient is right by the rule."""
    _assert("gradient", back(gradient), expected.exact, expected.limit, False, note)
