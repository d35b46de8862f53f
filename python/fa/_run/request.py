# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A call of attention before its functions are traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fa._run.call import Call
from fa._run.lists import Lists
from fa._run.variant import NOTHING, Traced


class Request(NamedTuple):
    """A call of `fa.attention` with the user's arguments; immutable.

    `traced` stands for functions that a way has traced already; `prepared` is where
    lists of blocks are kept (`fa.prepare`), None to make them in each call.
    """

    q: Any
    k: Any
    v: Any
    score_mod: Callable[..., Any] | None = None
    mask_mod: Callable[..., Any] | None = None
    is_causal: bool = False
    scale: float | None = None
    return_lse: bool = False
    dropout_p: float = 0.0
    dropout_seed: Any = None
    schedule: Mapping[str, Any] | None = None
    traced: Traced = NOTHING
    prepared: Lists | None = None

    def with_traced(self, traced: Traced) -> Request:
        """The request whose functions and dropout have become a variant."""
        nothing = {"score_mod": None, "mask_mod": None, "dropout_p": 0.0, "dropout_seed": None}
        return self._replace(traced=traced, **nothing)

    def call(self) -> Call:
        """The call of a request without functions that are to be traced."""
        traced = self.traced
        if self.prepared is not None:
            traced = traced._replace(prepared=self.prepared)
        options = (self.is_causal, self.scale, self.return_lse, self.schedule)
        return Call(self.q, self.k, self.v, traced, *options)
