r"""Clusters of comparable items: items within a cluster can be ranked, items of different clusters cannot.

If items fall into L such clusters, and :math:`f_l` is the utility of cluster l (zero outside it) and :math:`1_l` its
indicator, the matrix of preferences is

.. math:: G = \sum_{l=1}^L (f_l 1_l^\top - 1_l f_l^\top).

It has rank 2L, its singular values come in equal pairs, and its singular vectors of one cluster are zero on all others.
So the rows of the 2L leading singular vectors lie in a different plane for each cluster, and k-means can find the
clusters.

Given its members, the utility of a cluster is the mean preference over them, and its part of :math:`\|G\|^2` is

.. math:: \sum_{i, j \in l} (f_i - f_j)^2 = 2 n_l \sum_{i \in l} f_i^2, \quad f_i = \frac{1}{n_l} \sum_{j \in l} G_{ij},

because the utilities of a skew-symmetric block sum to zero.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from kpp.foundation.validation import as_finite_array, as_targets, check_rng_key, check_same_rows, count, one_of
from kpp.preferences import Matches
from kpp.typing import Numbers, RngKey
from kpp_models.preferences.rankability import matrices

_STARTS = 20  # starts of k-means; the best result is used
_REFINED_STARTS = 10  # starts of k-means whose results are refined
_MAX_SWEEPS = 100  # the explained fraction increases with each sweep; usually fewer than ten are needed


def comparable_clusters(
    rng_key: RngKey, preference_matrix: Numbers, num_clusters: int, *, refine: bool = False
) -> Int[np.ndarray, " n"]:
    r"""Find clusters of comparable items by k-means of the 2L leading singular vectors of a preference matrix.

    The singular vectors are defined up to a rotation of each pair, which does not change the distances of their rows.
    k-means does not use that each cluster is a line in its own plane, and for three or more clusters it may fail even
    without noise. With `refine` the clusters of k-means are starting points: single items are moved as long as rankings
    within clusters then explain more of :math:`\|\hat G\|^2`. This finds the clusters if most pairs are known, but can
    be misleading if few are known.

    Args:
        rng_key: A JAX random key.
        preference_matrix: :math:`\hat G`, (n, n), skew-symmetric: a fitted preference function at all pairs of items.
        num_clusters: L, at most n / 2.
        refine: Whether to refine the clusters that k-means finds, from several starts.

    Returns:
        The cluster of each item, (n,), numbered from 0 in the order of first occurrence.

    Raises:
        ValueError: If the matrix is not skew-symmetric, is zero, or L is out of range.

    References:
        Chau, Gonzalez and Sejdinovic, Learning inconsistent preferences with Gaussian processes, AISTATS 2022, section
        3.2.
    """
    matrix = matrices.skew(preference_matrix, "preference_matrix")
    count(num_clusters, "num_clusters", most=len(matrix) // 2, most_is=f"half of the {len(matrix)} items")
    rows = np.linalg.svd(matrix)[0][:, : 2 * num_clusters]
    seed = int(jax.random.randint(check_rng_key(rng_key), (), 0, 2**31 - _REFINED_STARTS))
    if not refine:
        return _in_order(_k_means(rows, num_clusters, seed, starts=_STARTS))
    return _in_order(_refined(matrix, rows, num_clusters, seed))


def svd_clusters(
    rng_key: RngKey, matches: Matches, num_clusters: int, *, refine: bool = False
) -> Int[np.ndarray, " n"]:
    """Find clusters of comparable items from the mean outcomes of the matches, without a model (SVD-CLUS).

    Args:
        rng_key: A JAX random key.
        matches: The matches. Items without a match have zero rows, so they all get the same, arbitrary cluster.
        num_clusters: L, at most n / 2.
        refine: As for `comparable_clusters`.

    Returns:
        The cluster of each item, (n,).

    Raises:
        ValueError: As for `comparable_clusters`.
    """
    return comparable_clusters(rng_key, matches.comparison_matrix(), num_clusters, refine=refine)


def partial_ranking_clusters(
    rng_key: RngKey,
    matches: Matches,
    probabilities: Numbers,
    num_clusters: int,
    *,
    margin: float = 0.1,
    refine: bool = False,
) -> Int[np.ndarray, " n"]:
    r"""Find clusters as `svd_clusters` does, from the matches with confident predictions of a model (PR-CLUS).

    A row of matches is left out if its predicted probability differs from 1/2 by less than a margin. The partial
    ranking abstains for these pairs; it does not distinguish items that cannot be compared from items of equal
    strength.

    Args:
        rng_key: A JAX random key.
        matches: The matches.
        probabilities: The predicted probability, for each row of matches, that its first item wins, (m,), from a model
            that ranks items.
        num_clusters: L, at most n / 2.
        margin: :math:`\delta`; rows with :math:`|p - 1/2| < \delta` are left out.
        refine: As for `comparable_clusters`.

    Returns:
        The cluster of each item, (n,).

    Raises:
        ValueError: If no match is left, a probability is not between 0 and 1, and as for `comparable_clusters`.

    References:
        Cheng, Hüllermeier, Waegeman and Welker, Label ranking with partial abstention based on thresholded
        probabilistic models, NeurIPS 2012, section 3.
    """
    predicted = np.asarray(as_targets(probabilities, name="probabilities"))
    check_same_rows(matches.num_pairs, len(predicted), "matches", "probabilities")
    if (predicted < 0).any() or (predicted > 1).any():
        raise ValueError(
            f"`probabilities` must be between 0 and 1, got values from {predicted.min():g} to {predicted.max():g}"
        )
    if not 0 <= margin <= 0.5:
        raise ValueError(f"`margin` must be between 0 and .5, got {margin}")
    sure = np.flatnonzero(np.abs(predicted - 0.5) >= margin)
    if not sure.size:
        raise ValueError(f"`margin` must leave some matches, got {margin} where no probability is as far from .5")
    return svd_clusters(rng_key, matches.take(sure), num_clusters, refine=refine)


class ClusterChoice(NamedTuple):
    """The result of `choose_num_clusters`.

    Attributes:
        num_clusters: The number of clusters with the highest score.
        scores: The score of each number tried.
    """

    num_clusters: int
    scores: dict[int, float]


def choose_num_clusters(
    rng_key: RngKey, preference_matrix: Numbers, *, max_num_clusters: int = 6, criterion: str = "explained"
) -> ClusterChoice:
    r"""Choose the number L of clusters of comparable items.

    * "explained": the fraction of :math:`\|\hat G\|^2` that preferences of the form above explain, given the refined
      clusters of `comparable_clusters`. With too few clusters, comparisons between clusters distort the utilities;
      with too many, comparable items are in different clusters. So the fraction is highest in between. A single ranking
      of all items is one cluster.
    * "gap": the decrease :math:`\log(\sigma_L / \sigma_{L+1})` from one pair of equal singular values to the next. It
      does not need a clustering, and is for matrices with little noise; the singular values of a smooth function fitted
      with a kernel decrease without a clear gap.

    Args:
        rng_key: A JAX random key.
        preference_matrix: :math:`\hat G`, (n, n), skew-symmetric.
        max_num_clusters: The largest number to try; at most n / 2, or n / 2 - 1 for "gap".
        criterion: The score that is maximized, "explained" or "gap".

    Returns:
        The number, and the scores of all.

    Raises:
        ValueError: If the matrix is not skew-symmetric or is zero, there is nothing to try, or the criterion is
            unknown.
    """
    matrix = matrices.skew(preference_matrix, "preference_matrix")
    one_of(criterion, "criterion", ("explained", "gap"))
    count(max_num_clusters, "max_num_clusters")
    highest = min(max_num_clusters, len(matrix) // 2 - (criterion == "gap"))
    if highest < 1:
        raise ValueError(f"`preference_matrix` must hold at least 4 items for the criterion 'gap', got {len(matrix)}")
    numbers = range(1, highest + 1)
    if criterion == "gap":
        scores = dict(zip(numbers, _falls(matrix).tolist(), strict=False))
    else:
        found = {number: comparable_clusters(rng_key, matrix, number, refine=True) for number in numbers}
        scores = {number: explained(matrix, labels) for number, labels in found.items()}
    return ClusterChoice(max(scores, key=lambda number: scores[number]), scores)


def clustering_accuracy(labels: Numbers, truth: Numbers) -> float:
    """Return the fraction of items in the right cluster, under the matching of clusters that maximizes it.

    Args:
        labels: The cluster found for each item, (n,), any labels.
        truth: Its true cluster, (n,). There may be more or fewer clusters.

    Returns:
        The fraction, from 0 to 1; by chance alone it is at least 1 / L.

    Raises:
        ValueError: If the shapes differ or are not (n,), or labels are missing.

    Example:
        >>> float(kpp_models.clustering_accuracy([0, 0, 1], [1, 1, 0]))
        1.0
    """
    from scipy.optimize import linear_sum_assignment

    found, wanted = (np.asarray(part) for part in (labels, truth))
    for name, part in (("labels", found), ("truth", wanted)):
        if part.dtype.kind in "fc":
            as_finite_array(part, name)
    if found.ndim != 1 or found.shape != wanted.shape or not found.size:
        raise ValueError(
            f"`labels` and `truth` must hold one label per item, (n,), got shapes {found.shape} and {wanted.shape}"
        )
    rows, columns = (np.unique(part, return_inverse=True)[1] for part in (found, wanted))
    together = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(together, (rows, columns), 1.0)
    return float(together[linear_sum_assignment(together, maximize=True)].sum() / found.size)


def _k_means(rows: np.ndarray, num_clusters: int, seed: int, *, starts: int) -> Int[np.ndarray, " n"]:
    from sklearn.cluster import KMeans

    return KMeans(num_clusters, n_init=starts, random_state=seed).fit_predict(rows)


def _refined(matrix: np.ndarray, rows: np.ndarray, num_clusters: int, seed: int) -> Int[np.ndarray, " n"]:
    """Refine the different results of the starts of k-means, and return the clusters that explain most."""
    found = (_in_order(_k_means(rows, num_clusters, seed + start, starts=1)) for start in range(_REFINED_STARTS))
    different = {labels.tobytes(): labels for labels in found}
    refined = [refine_clusters(matrix, labels) for labels in different.values()]
    return max(refined, key=lambda labels: explained(matrix, labels))


def _in_order(labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Number clusters in the order in which they first occur."""
    _, first, code = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[code]


def _falls(matrix: np.ndarray) -> Float[np.ndarray, " pairs"]:
    """Return the decrease of the logarithm from each pair of singular values to the next."""
    values = np.linalg.svd(matrix, compute_uv=False)
    floor = len(matrix) * np.finfo(float).eps * values[0]  # smaller singular values are rounding errors
    pairs = np.maximum(values, floor)[: 2 * (len(matrix) // 2)].reshape(-1, 2).mean(axis=1)
    return -np.diff(np.log(pairs))


def explained(matrix: Float[np.ndarray, "n n"], labels: Int[np.ndarray, " n"]) -> float:
    """Return the fraction of the squared preferences that rankings within clusters explain (none between clusters)."""
    members = labels[:, None] == np.arange(labels.max() + 1)[None, :]
    sums = matrix @ members
    return float(2.0 * _quality(sums, members).sum() / np.sum(matrix**2))


def refine_clusters(matrix: Float[np.ndarray, "n n"], labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Move single items to the cluster where they explain most, until no move helps; no cluster becomes empty."""
    labels = labels.copy()
    members = labels[:, None] == np.arange(labels.max() + 1)[None, :]
    sums = matrix @ members
    for _ in range(_MAX_SWEEPS):
        before = labels.copy()
        for item in range(len(labels)):
            if members[:, labels[item]].sum() > 1:
                _place(matrix, labels, members, sums, item)
        if (labels == before).all():
            break
    return labels


def _quality(sums: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return half of the explained part of each cluster, given the sums of each row over each cluster."""
    return np.sum(sums**2 * members, axis=0) / np.maximum(members.sum(axis=0), 1)  # n_l sum f_i^2


def _place(matrix: np.ndarray, labels: np.ndarray, members: np.ndarray, sums: np.ndarray, item: int) -> None:
    """Move an item to the cluster where it explains most; it stays in its cluster if no other is better."""
    old, column = labels[item], matrix[:, item]
    members[item, old] = False
    sums[:, old] -= column
    larger = members.copy()
    larger[item] = True
    gain = _quality(sums + column[:, None], larger) - _quality(sums, members)
    best = int(np.argmax(gain))
    # Rounding must not count as a gain, or an item could move back and forth.
    new = best if gain[best] > gain[old] + 1e-9 * np.abs(gain).max() else old
    members[item, new] = True
    sums[:, new] += column
    labels[item] = new
