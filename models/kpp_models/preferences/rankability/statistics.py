"""Statistics of rankability: spectral rankability, the number of cycles, and the clustering of the graph of matches."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from kpp.typing import Numbers
from kpp_models.preferences.rankability import matrices


def spectral_rankability(adjacency: Numbers) -> float:
    r"""Measure how close a graph of preferences is to a ranking, by its spectrum and its degrees.

    .. math::

        \mathrm{specR} = 1 - \frac{h(\mathrm{eig}(D - A), s) + h(\mathrm{deg}, s)}{2 (n - 1)},
        \qquad s = \{0, 1, \dots, n - 1\}

    with D the diagonal of the out-degrees and h the Hausdorff distance in the complex plane. A complete ranking, in
    which each item beats all items below it, has s as its eigenvalues and as its out-degrees; only for it the measure
    is 1. The measure of a graph without edges is 0. So with few matches the measure is low, also if they are
    consistent.

    Args:
        adjacency: A, (n, n), weights from 0 to 1 for "the item of the row is preferred to the item of the column", such
            as `Matches.dominance`, or probabilities with zeros on the diagonal.

    Returns:
        The measure.

    Raises:
        ValueError: If a weight is negative or above 1, or an item is preferred to itself.

    Example:
        >>> ladder = np.tril(np.ones((4, 4)), -1)
        >>> kpp_models.spectral_rankability(ladder)
        1.0

    References:
        Cameron, Langville and Smith, On the graph Laplacian and the rankability of data, Linear Algebra and its
        Applications, 2020.
    """
    weights = matrices.adjacency(adjacency, "adjacency")
    if weights.max() > 1:
        raise ValueError(
            f"`adjacency` must have weights from 0 to 1, got up to {weights.max():g}; `Matches.dominance` says who "
            "won more often"
        )
    degrees = weights.sum(axis=1)
    ranking = np.arange(len(weights), dtype=float)
    spectrum = np.linalg.eigvals(np.diag(degrees) - weights)
    return float(1.0 - (_hausdorff(spectrum, ranking) + _hausdorff(degrees, ranking)) / (2.0 * (len(weights) - 1)))


def count_cycles(preferences: Numbers) -> Int[np.ndarray, " *draws"]:
    r"""Count the triples of items whose preferences form a cycle, :math:`i \succ j \succ k \succ i`.

    Args:
        preferences: A matrix, (n, n), or draws of it, (*draws, n, n); i is preferred to j if entry ij is greater than
            entry ji. For example a preference function at all pairs of items, probabilities, or numbers of wins.

    Returns:
        The counts, (*draws); 0 for a ranking. The maximum for n items is (n^3 - n) / 24 for odd n and (n^3 - 4 n) / 24
        for even n. If all pairs are decided, a longer cycle exists only if a cycle of three exists.

    Raises:
        ValueError: If the matrices are not square or hold NaN.

    Example:
        >>> rock_paper_scissors = np.array([[0, 1, -1], [-1, 0, 1], [1, -1, 0]])
        >>> int(kpp_models.count_cycles(rock_paper_scissors))
        1

    References:
        Kendall and Babington Smith, On the method of paired comparisons, Biometrika, 1940.
    """
    matrix = matrices.square(preferences, "preferences", draws=True)
    above = (matrix > np.swapaxes(matrix, -1, -2)).astype(float)
    triples = np.sum((above @ above) * np.swapaxes(above, -1, -2), axis=(-2, -1))
    return np.asarray(np.round(triples / 3.0), dtype=np.int64)  # each cycle is counted from each of its three items


def mean_clustering_coefficient(adjacency: Numbers) -> float:
    r"""Return how often two opponents of the same item also met each other, averaged over items.

    .. math:: \frac{1}{n} \sum_i \frac{\#\{\text{edges among the neighbors of } i\}}{d_i (d_i - 1) / 2}

    over the undirected graph of matches, where :math:`d_i` is the number of different opponents of i. Items with fewer
    than two opponents count as 0. A cycle of three can be observed only if all three items met, so more cycles can be
    observed if the coefficient is high.

    Args:
        adjacency: (n, n); i and j met if entry ij or ji is positive, as in `Matches.adjacency`.

    Returns:
        The mean coefficient, from 0 to 1.

    Raises:
        ValueError: If an entry is negative, or an item met itself.

    Example:
        >>> float(kpp_models.mean_clustering_coefficient(np.ones((4, 4)) - np.eye(4)))
        1.0

    References:
        Watts and Strogatz, Collective dynamics of small-world networks, Nature, 1998. Saramäki et al., Generalizations
        of the clustering coefficient to weighted complex networks, Physical Review E, 2007, equation 1.
    """
    weights = matrices.adjacency(adjacency, "adjacency")
    met = ((weights + weights.T) > 0).astype(float)
    degrees = met.sum(axis=1)
    triangles = np.sum((met @ met) * met, axis=1)  # twice the number of edges among the neighbors
    return float(np.mean(triangles / np.maximum(degrees * (degrees - 1.0), 1.0)))


def _hausdorff(first: np.ndarray, second: np.ndarray) -> float:
    """Return the Hausdorff distance of two sets of complex numbers."""
    distances = np.abs(first[:, None] - second[None, :])
    return max(distances.min(axis=0).max(), distances.min(axis=1).max())
