"""Bisection of segments between opposite sides of a boundary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kpp.foundation.validation import positive
from kpp.typing import AnyArray
from kpp_gpec.boundary.brackets import Brackets, CountedMargin


def bisect(
    margin: Callable[[Any], Any] | CountedMargin, inside: AnyArray, outside: AnyArray, width: float = 1e-6
) -> Brackets:
    """Halve segments between points on opposite sides of a boundary until they are short.

    A round halves every segment that is longer than `width`, with one call of the margin for all of them. A segment
    stays longer only if there is no floating-point number between its ends.

    Args:
        margin: From points (n, d) to (n,), positive inside and zero or negative outside.
        inside: Points where it is positive, (k, d); k may be 0.
        outside: Points where it is not, (k, d).
        width: The length at which to stop, in the units of the points.

    Returns:
        The short segments, in the order of the pairs.

    Raises:
        ValueError: If `inside` and `outside` have different shapes, or a point is on the wrong side.
    """
    inside, outside = np.asarray(inside, dtype=float), np.asarray(outside, dtype=float)
    if inside.shape != outside.shape or inside.ndim != 2:
        raise ValueError(
            f"`inside` and `outside` must have the same shape (k, d), got shapes {inside.shape} and {outside.shape}"
        )
    positive(width, "width")
    margin = margin if isinstance(margin, CountedMargin) else CountedMargin(margin)
    sides = margin.is_inside(np.concatenate([inside, outside]))
    wrong = int((~sides[: len(inside)]).sum()), int(sides[len(inside) :].sum())
    if any(wrong):
        raise ValueError(
            "`margin` must be positive at every row of `inside` and at none of `outside`, got "
            f"{wrong[0]} of `inside` and {wrong[1]} of `outside` on the wrong side, of {len(inside)} pairs"
        )
    return halve(margin, Brackets(inside, outside, len(inside)), width)


def halve(margin: CountedMargin, brackets: Brackets, width: float) -> Brackets:
    """Halve segments, whose ends must be on opposite sides, until their lengths are at most `width`."""
    inside, outside = brackets.inside.copy(), brackets.outside.copy()
    remaining = np.flatnonzero(brackets.widths > width)
    while len(remaining):
        middle = 0.5 * (inside[remaining] + outside[remaining])
        # Neighboring floats have nothing between them.
        between = ((middle != inside[remaining]) & (middle != outside[remaining])).any(axis=1)
        remaining, middle = remaining[between], middle[between]
        is_inside = margin.is_inside(middle)
        inside[remaining[is_inside]] = middle[is_inside]
        outside[remaining[~is_inside]] = middle[~is_inside]
        lengths = np.linalg.norm(inside[remaining] - outside[remaining], axis=1)
        remaining = remaining[lengths > width]
    return Brackets(inside, outside, brackets.num_pairs)
