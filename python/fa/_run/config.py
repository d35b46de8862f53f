# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The key of a compiled kernel, and its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fa._run.arrays import compute_type
from fa._run.checks import is_scale, scale_error
from fa._run.variant import Variant

_PLAIN = Variant()


@dataclass(frozen=True)
class AttentionConfig:
    """One attention variant; hashable, the key of the kernel cache.

    Batch and lengths are not part of it: one kernel serves all of them.
    """

    dtype: str
    """Element type of q, k, v and out: "f32", "f16", "bf16", or "f64" for the CPU."""
    query_heads: int
    key_heads: int
    head_dim: int
    value_dim: int
    is_causal: bool = False
    """Query i sees keys j <= i (top-left alignment, as in PyTorch's SDPA)."""
    scale: float | None = None
    """None means 1/sqrt(head_dim)."""
    return_lse: bool = False
    variant: Variant | None = None
    """The result of `fa.trace` for a score and a mask function. With `is_causal` a query sees
    the keys that both masks show."""

    def __post_init__(self) -> None:
        if self.variant is not None:
            object.__setattr__(self, "variant", self.variant.without_arrays())
        if self.dtype not in ("f32", "f16", "bf16", "f64"):
            raise ValueError(
                "expected element type f32 (float32), f16 (float16), bf16 (bfloat16) or f64 "
                f"(float64), got {self.dtype}; convert q, k and v to one of them"
            )
        computed = compute_type(self.dtype)
        if self.variant is not None and not self.variant.computes_in(computed):
            raise ValueError(
                f"expected a score function traced for scores of {computed}, got one for "
                f"{self.variant.compute_type}; trace it with dtype={self.dtype!r}"
            )
        if self.scale is not None and not is_scale(self.scale):
            raise scale_error(self.scale)
        if self.key_heads < 1 or self.query_heads % self.key_heads:
            raise ValueError(
                "expected the number of key heads to divide the number of "
                f"query heads, got {self.key_heads} and {self.query_heads}; repeat or leave out heads"
            )
        for name, size in (
            ("head dim", self.head_dim),
            ("value dim", self.value_dim),
        ):
            if not 1 <= size <= 256:
                if size < 1:
                    remedy = "give each head elements"
                elif name == "head dim":
                    remedy = "use PyTorch's scaled_dot_product_attention for larger heads"
                else:
                    remedy = "give v in parts of at most 256 columns and concatenate the results"
                raise ValueError(f"expected a {name} in [1, 256], got {size}; {remedy}")

    def ir(self, sizes: tuple[int, int, int] | None = None) -> str:
        """The attention IR of this variant.

        Args:
            sizes: (batch, query length, key length); dynamic if None.
        """
        batch, rows, keys = ("?", "?", "?") if sizes is None else sizes
        q = f"tensor<{batch}x{self.query_heads}x{rows}x{self.head_dim}x{self.dtype}>"
        k = f"tensor<{batch}x{self.key_heads}x{keys}x{self.head_dim}x{self.dtype}>"
        v = f"tensor<{batch}x{self.key_heads}x{keys}x{self.value_dim}x{self.dtype}>"
        o = f"tensor<{batch}x{self.query_heads}x{rows}x{self.value_dim}x{self.dtype}>"
        lse = f"tensor<{batch}x{self.query_heads}x{rows}x{compute_type(self.dtype)}>"
        results = f"({o}, {lse})" if self.return_lse else f"({o})"
        values = "%o, %lse" if self.return_lse else "%o"
        types = f"{o}, {lse}" if self.return_lse else o
        scale = "" if self.scale is None else f" scale {self.scale:.17e}"
        variant = _PLAIN if self.variant is None else self.variant
        captured = [f"%captured{n}: {type}" for n, type in enumerate(variant.captured)]
        arguments = ", ".join([f"%q: {q}", f"%k: {k}", f"%v: {v}", *captured])
        lengths = ""
        if variant.lengths:
            lengths = "  %sequence = arith.constant 2 : index\n"
        for name in variant.lengths:
            tensor, type = ("%q", q) if name == "query_length" else ("%k", k)
            lengths += f"  %{name} = tensor.dim {tensor}, %sequence : {type}\n"
        return f"""\
func.func @attention({arguments}) -> {results} {{
{lengths}  {values} = fa.attention %q, %k, %v{scale}{variant.regions(self.is_causal)}
    : ({q}, {k}, {v}) -> {results}
  return {values} : {types}
}}
"""


@dataclass(frozen=True)
class Schedule:
    """An expert's choices for a kernel's schedule; hashable."""

    rows: int = 0
    """Rows of a tile, 0 to let the target choose."""
    keys: int = 0
    """Keys of a tile, 0 to let the target choose."""
    speculate: str = "auto"
    order: str = "auto"
    """Of a row's blocks of keys: "ascending" or "descending"; "auto" goes by
    the score function where `fa-speculate-max` runs."""
    options: str = ""
    """Options of the target's schedule: "spare=64 stages=2" for
    fa-schedule-hopper, "warps=8" for fa-schedule-ampere."""

    @staticmethod
    def of(given: Mapping[str, Any] | None, **defaults: Any) -> Schedule:
        """The schedule of a dictionary.

        Args:
            given: rows, keys, speculate and order; all else is an option of the
                schedule pass with "_" for "-", `True` and `False` being 1 and 0.
            defaults: the values of names that `given` lacks.
        """
        own = dict(defaults)
        options = []
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(
                f"expected schedule to be a dictionary, got {type(given).__name__}; give names "
                'and values, as {"rows": 128, "keys": 64}'
            )
        for name, value in (given or {}).items():
            if name in ("rows", "keys", "speculate", "order"):
                is_size = name in ("rows", "keys")
                is_index = hasattr(value, "__index__") and not isinstance(value, bool)
                if not (is_index if is_size else isinstance(value, str)):
                    raise TypeError(
                        f"expected {name} of a schedule to be {'an integer' if is_size else 'a word'}"
                        f", got {value!r}; leave it out for the target's choice"
                    )
                own[name] = int(value) if is_size else value
            else:
                value = int(value) if isinstance(value, bool) else value
                options.append(f"{name.replace('_', '-')}={value}")
        return Schedule(options=" ".join(options), **own)


DEFAULT_SCHEDULE = Schedule()
"""Everything chosen; made once."""
