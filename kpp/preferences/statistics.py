"""How far preferences are from a ranking: spectral rankability, cycles, and the clustering of who met whom."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int

from kpp.preferences import _matrices

__all__ = ["count_cycles", "mean_clustering_coefficient", "spectral_rankability"]


def spectral_rankability(adjacency: Any) -> float:
    r"""Measure how near a graph of preferences is to that of a ranking, by its spectrum and its degrees.

    .. math::

        \mathrm{specR} = 1 - \frac{h(\mathrm{eig}(D - A), s) + h(\mathrm{deg}, s)}{2 (n - 1)},
        \qquad s = \{0, 1, \dots, n - 1\}

    with D the diagonal of the out-degrees and h the Hausdorff distance in the complex plane. A complete ranking, in
    which each item beats all below it, has s for its eigenvalues and its out-degrees and alone measures 1; a graph
    without edges measures 0. Few matches therefore measure low, however consistent they are.

    Args:
        adjacency: A, (n, n), weights from 0 to 1: that the item of the row is preferred to that of the column, such as
            `Matches.dominance`, or probabilities with zeros on the diagonal.

    Returns:
        The measure.

    Raises:
        ValueError: If a weight is negative or above 1, or an item is preferred to itself.

    References:
        Cameron, Langville and Smith, On the graph Laplacian and the rankability of data, Linear Algebra and its
        Applications, 2020.
    """
    weights = _matrices.adjacency(adjacency, "adjacency")
    if weights.max() > 1:
        raise ValueError(
            f"`adjacency` must have weights from 0 to 1, got up to {weights.max():g}; `Matches.dominance` says who "
            "won more often"
        )
    degrees = weights.sum(axis=1)
    ranking = np.arange(len(weights), dtype=float)
    spectrum = np.linalg.eigvals(np.diag(degrees) - weights)
    return float(1.0 - (_hausdorff(spectrum, ranking) + _hausdorff(degrees, ranking)) / (2.0 * (len(weights) - 1)))


def count_cycles(preferences: Any) -> Int[np.ndarray, " *draws"]:
    r"""Count the triples of items that are preferred in a circle, :math:`i \succ j \succ k \succ i`.

    Args:
        preferences: A matrix, (n, n), or draws of it, (*draws, n, n), in which i is preferred to j where entry ij is
            above entry ji: a preference function at all pairs of items, probabilities, or numbers of wins.

    Returns:
        The counts, (*draws). No ranking has any; n items have at most (n^3 - n) / 24 for odd n and (n^3 - 4 n) / 24
        for even n.
        Where all pairs are decided, there is a longer circle only if there is one of three.

    Raises:
        ValueError: If the matrices are not square or hold NaN.

    References:
        Kendall and Babington Smith, On the method of paired comparisons, Biometrika, 1940.
    """
    matrix = _matrices.square(preferences, "preferences", draws=True)
    counts = [_circles(draw) for draw in matrix.reshape(-1, *matrix.shape[-2:])]
    return np.array(counts, dtype=np.int64).reshape(matrix.shape[:-2])


def mean_clustering_coefficient(adjacency: Any) -> float:
    r"""Return how often two items that met the same one also met each other, averaged over items.

    .. math:: \frac{1}{n} \sum_i \frac{\#\{\text{edges among the neighbours of } i\}}{d_i (d_i - 1) / 2}

    over the undirected graph of who met whom, :math:`d_i` the number of different opponents of i; items of fewer than
    two count as 0. A circle of three needs three items that all met: the higher the coefficient, the more can be seen.

    Args:
        adjacency: (n, n); i and j met where entry ij or ji is above 0, as in `Matches.adjacency`.

    Returns:
        The mean coefficient, from 0 to 1.

    Raises:
        ValueError: If an entry is negative, or an item met itself.

    References:
        Watts and Strogatz, Collective dynamics of small-world networks, Nature, 1998. Saramäki et al., Generalizations
        of the clustering coefficient to weighted complex networks, Physical Review E, 2007, equation 1.
    """
    weights = _matrices.adjacency(adjacency, "adjacency")
    met = ((weights + weights.T) > 0).astype(float)
    degrees = met.sum(axis=1)
    triangles = np.sum((met @ met) * met, axis=1)  # twice the edges among the neighbours
    return float(np.mean(triangles / np.maximum(degrees * (degrees - 1.0), 1.0)))


def _circles(matrix: np.ndarray) -> int:
    above = (matrix > matrix.T).astype(float)
    return round(np.sum((above @ above) * above.T) / 3.0)  # each circle is met from three starts


def _hausdorff(first: np.ndarray, second: np.ndarray) -> float:
    """Return the Hausdorff distance of two sets of complex numbers."""
    distances = np.abs(first[:, None] - second[None, :])
    return max(distances.min(axis=0).max(), distances.min(axis=1).max())
