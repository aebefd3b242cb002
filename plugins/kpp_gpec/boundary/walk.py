"""A random walk along a boundary."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from kpp_gpec.boundary.bisection import halve
from kpp_gpec.boundary.brackets import Brackets, CountedMargin
from kpp_gpec.boundary.farthest_points import spread

__all__ = ["walk"]

# The length that segments are brought to, in standard units, before the next round starts from their middles, and from
# how many of them.
_COARSE, _MAX_STARTS = 0.02, 500


def walk(
    rng: np.random.Generator,
    margin: CountedMargin,
    brackets: Brackets,
    box: tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]],
    *,
    step: float,
    num_rounds: int,
    num_proposals: int,
) -> Brackets:
    r"""Explore a boundary from points found on it, by steps along it and looks across it.

    From a point p found before, with random unit vectors u and v and a random length s,

    .. math:: q_\pm = p + s\,(u \pm v)

    are tried. If they are on opposite sides, the boundary crosses the segment between them, which is bisected, and its
    middle is a new point. Each round starts from points spread evenly over all that were found, so that it goes on from
    the ends of what is known. On a flat boundary half of the proposals are accepted in any
    dimension, those with :math:`|n^\top u| < |n^\top v|`, n being its normal. Like the boundary attack it needs no more
    than the side of a point.

    Args:
        rng: Draws the random numbers.
        margin: The margin, which counts its calls.
        brackets: The segments to start from, at least one.
        box: The least and the greatest values of each feature, (d,) each; the walk does not leave them.
        step: The greatest s.
        num_rounds: How many rounds; each takes one call of the margin, and a few for the bisection in between.
        num_proposals: How many proposals, in all rounds together.

    Returns:
        The segments given and those found, at most 0.02 long.

    References:
        Brendel, Rauber, Bethge (2018), "Decision-based adversarial attacks: reliable attacks against black-box
        machine learning models".
    """
    low, high = box
    found = halve(margin, brackets, _COARSE)
    for count in np.diff(np.linspace(0, num_proposals, num_rounds + 1).astype(int)).tolist():
        known = found.midpoints
        starts = known[np.resize(spread(known, min(count, _MAX_STARTS)), count)]
        lengths = step * rng.uniform(size=(count, 1))
        along, across = (lengths * _unit_vectors(rng, starts.shape) for _ in range(2))
        first, second = (np.clip(starts + along + side * across, low, high) for side in (1.0, -1.0))
        in_first, in_second = np.split(margin.is_inside(np.concatenate([first, second])), 2)
        opposite, in_first = in_first != in_second, in_first[:, None]
        inside, outside = np.where(in_first, first, second), np.where(in_first, second, first)
        new = Brackets(inside[opposite], outside[opposite], int(opposite.sum()))
        found = Brackets.joined(found, halve(margin, new, _COARSE))
    return found


def _unit_vectors(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    vectors = rng.normal(size=shape)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
