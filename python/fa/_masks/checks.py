# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of the arguments of fa's named masks and scores, run when these are made.

The checks take arrays of every library and traced values, and torch.compile can trace them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fa._trace.captured import PartlyIndexed, is_array


def expect_array(what: str, value: Any, dims: str, *ranks: int) -> None:
    """Raises TypeError for a value that is no array, ValueError for another rank.

    Args:
        what: the argument's name.
        value: the argument.
        dims: the expected dimensions, for the message: "integers [B]".
        ranks: the ranks that it may have.
    """
    is_known = is_array(value) or isinstance(value, PartlyIndexed)  # a row: ids[h]
    if not is_known or isinstance(value, np.generic):
        raise TypeError(
            f"expected {what} to be an array, {dims}, got {type(value).__name__}; make it one of "
            "q's library, on its device"
        )
    if len(value.shape) not in ranks:
        raise ValueError(
            f"expected {what} to be {dims}, got shape {list(value.shape)}; reshape it, or index it "
            "in a function of your own"
        )


def expect_number(what: str, value: Any, least: float, *, is_above: bool = False) -> None:
    """Raises TypeError or ValueError unless the value is a number >= least, or one element.

    Args:
        what: the argument's name.
        value: the argument; an array's element is not read.
        least: the smallest number.
        is_above: whether it must be finite and above `least`.
    """
    sign = ">" if is_above else ">="
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        if not (least < value < float("inf") if is_above else value >= least):
            raise ValueError(
                f"expected {'a finite ' if is_above else ''}{what} {sign} {least}, got {value}; "
                "give another one, or leave the function out"
            )
    elif isinstance(value, bool) or not is_array(value):
        raise TypeError(
            f"expected {what} to be a number {sign} {least} or an array of one, got "
            f"{type(value).__name__}; convert it"
        )
    elif any([size != 1 for size in value.shape]):
        raise ValueError(
            f"expected {what} to be a number or an array of one, got shape {list(value.shape)}; "
            "index it in a function of your own"
        )


def expect_pair(what: str, value: Any) -> tuple[Any, Any]:
    """The two numbers of a pair, or of one number for both."""
    if not isinstance(value, tuple):
        return value, value
    if len(value) != 2:
        raise ValueError(f"expected {what} to be one number or two, got {value}; give two")
    return value
