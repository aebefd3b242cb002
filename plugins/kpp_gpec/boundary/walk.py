"""A random walk along a boundary."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from kpp_gpec.boundary.bisection import halve
from kpp_gpec.boundary.brackets import Brackets, CountedMargin
from kpp_gpec.boundary.farthest_points import spread

# The length to which segments are halved, in standard units, before the next round starts from their middles; and the
# number of these starts.
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
    r"""Explore a boundary from known points on it, by proposals along and across it.

    From a known point p, with random unit vectors u and v and a random length s, the points

    .. math:: q_\pm = p + s\,(u \pm v)

    are proposed. If they are on opposite sides, the boundary crosses the segment between them, which is bisected, and
    its middle is a new point. Each round starts from points spread evenly over all that were found, so that the walk
    also continues from the ends of the known part. On a flat boundary with normal n, half of the proposals are accepted
    in any dimension, namely those with :math:`|n^\top u| < |n^\top v|`. Like the boundary attack, it needs only the
    side of a point.

    It starts from at least one segment, does not leave the `box` of the smallest and the largest values of each
    feature, and takes s up to `step`. The proposals are those of all rounds together; a round takes one call of the
    margin, and a few more for the bisection. The result holds the given and the new segments, at most 0.02 long.

    References:
        Brendel, Rauber, Bethge (2018), "Decision-based adversarial attacks: reliable attacks against black-box
        machine learning models".
    """
    low, high = box
    found = halve(margin, brackets, _COARSE)
    for count in np.diff(np.linspace(0, num_proposals, num_rounds + 1).astype(int)).tolist():
        known = found.midpoints
        starts = known[np.resize(spread(known, min(count, _MAX_STARTS)), count)]
        lengths = step * rng.uniform(size=(count, 1))  # the same for both, so that half are accepted in any dimension
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
