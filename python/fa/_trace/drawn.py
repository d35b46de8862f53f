# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers, which a score or mask function must not draw.

fa calls such a function once, for all scores, and keeps the trace for later calls. A drawn
number would be the same for all of them.
"""

from __future__ import annotations

from typing import Any

from torch.overrides import TorchFunctionMode

from fa._trace.errors import error

_DRAWING = frozenset(
    "rand rand_like randn randn_like randint randint_like randperm bernoulli bernoulli_ normal "
    "normal_ multinomial uniform_ random_ exponential_ cauchy_ geometric_ log_normal_ poisson "
    "binomial dropout dropout_ alpha_dropout alpha_dropout_ feature_alpha_dropout dropout1d "
    "dropout2d dropout3d gumbel_softmax rrelu rrelu_".split()
)
"""PyTorch's functions that draw."""


class NothingDrawn(TorchFunctionMode):
    """While it is on, PyTorch's functions that draw random numbers raise TraceError."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        if name in _DRAWING:
            raise error(
                f"draws random numbers ({name}): fa calls the function once, for all scores, so "
                "all would get the same numbers",
                "draw a tensor before the call and index it; dropout_p drops weights",
            )
        return function(*args, **(kwargs or {}))
