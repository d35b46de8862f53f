# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts of calls that fa or PyTorch computes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Calls:
    """How many calls fa computed, and why it did not compute the others.

    Attributes:
        routed: number of calls that fa computed.
        fell_back: number of calls that PyTorch computed, by reason.
    """

    routed: int = 0
    fell_back: Counter[str] = field(default_factory=Counter)

    def count(self, reason: str | None) -> None:
        """Counts a call that PyTorch computed for a reason, or fa if the reason is None."""
        if reason is None:
            self.routed += 1
        else:
            self.fell_back[reason] += 1

    def __str__(self) -> str:
        text = f"{self.routed} by fa, {sum(self.fell_back.values())} by PyTorch"
        return f"{text} ({listed(self.fell_back)})" if self.fell_back else text


def listed(counts: Counter[str]) -> str:
    """Counts as text: "gradient 2, dtype 1"."""
    return ", ".join(f"{what} {count}" for what, count in counts.items())
