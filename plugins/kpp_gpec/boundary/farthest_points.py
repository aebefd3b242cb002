"""Farthest-point sampling."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def spread(points: Float[np.ndarray, "n d"], max_points: int, tolerance: float = 0.0) -> Int[np.ndarray, " k"]:
    r"""Choose points by farthest-point sampling: each one maximizes the distance to the points chosen so far.

    .. math:: i_{k+1} = \arg\max_i \min_{l \leq k} \|x_i - x_{i_l}\|

    The chosen points cover all points evenly: the largest distance of a point to the nearest chosen point is at most
    twice the smallest value for this number of points. The first chosen point is the nearest to the mean. The algorithm
    stops when all points are within the tolerance of a chosen one, so that duplicates are removed. The positions of the
    chosen points are in the order of the points.

    References:
        Gonzalez (1985), "Clustering to minimize the maximum intercluster distance", Theoretical Computer Science 38.
    """
    if not len(points):
        return np.zeros(0, int)
    columns = np.ascontiguousarray(points.T)
    chosen = [int(np.argmin(_squared_distances(columns, columns.mean(axis=1))))]
    nearest = _squared_distances(columns, columns[:, chosen[0]])
    while len(chosen) < max_points:
        farthest = int(np.argmax(nearest))
        if nearest[farthest] <= tolerance**2:
            break
        chosen.append(farthest)
        np.minimum(nearest, _squared_distances(columns, columns[:, farthest]), out=nearest)
    return np.sort(chosen)


def _squared_distances(columns: Float[np.ndarray, "d n"], point: Float[np.ndarray, " d"]) -> Float[np.ndarray, " n"]:
    return np.square(columns - point[:, None]).sum(axis=0)
