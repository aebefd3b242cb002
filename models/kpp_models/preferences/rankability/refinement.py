r"""The fraction of a preference matrix that clusters of comparable items explain, and its increase by moving items.

Given its members, the utility of a cluster is the mean preference over them, and its part of :math:`\|G\|^2` is

.. math:: \sum_{i, j \in l} (f_i - f_j)^2 = 2 n_l \sum_{i \in l} f_i^2, \quad f_i = \frac{1}{n_l} \sum_{j \in l} G_{ij},

because the utilities of a skew-symmetric block sum to zero.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

_MAX_SWEEPS = 100  # the explained fraction increases with each sweep; usually fewer than ten are needed


def explained(matrix: Float[np.ndarray, "n n"], labels: Int[np.ndarray, " n"]) -> float:
    """Return the fraction of the squared preferences that rankings within clusters explain (none between clusters)."""
    members = labels[:, None] == np.arange(labels.max() + 1)[None, :]
    sums = matrix @ members
    return float(2.0 * _quality(sums, members).sum() / np.sum(matrix**2))


def refine(matrix: Float[np.ndarray, "n n"], labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
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
