r"""How much of a preference matrix clusters of comparable items explain, and moves of single items that explain more.

Given its members, a cluster's utility is the mean preference over them, and what it explains of :math:`\|G\|^2` is

.. math:: \sum_{i, j \in l} (f_i - f_j)^2 = 2 n_l \sum_{i \in l} f_i^2, \quad f_i = \frac{1}{n_l} \sum_{j \in l} G_{ij},

for the utilities of a skew-symmetric block add up to zero.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

__all__: list[str] = []

_MAX_SWEEPS = 100  # each explains more than the one before; a handful is the rule


def explained(matrix: Float[np.ndarray, "n n"], labels: Int[np.ndarray, " n"]) -> float:
    """Return the share of the squared preferences that rankings within clusters, and nothing between them, explain."""
    members = labels[:, None] == np.arange(labels.max() + 1)[None, :]
    sums = matrix @ members
    return float(2.0 * _quality(sums, members).sum() / np.sum(matrix**2))


def refine(matrix: Float[np.ndarray, "n n"], labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Move single items to where they explain most, until no move helps; no cluster loses its last item."""
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
    """Return half of what each cluster explains, given the sums of each row over each cluster."""
    return np.sum(sums**2 * members, axis=0) / np.maximum(members.sum(axis=0), 1)


def _place(matrix: np.ndarray, labels: np.ndarray, members: np.ndarray, sums: np.ndarray, item: int) -> None:
    """Take an item out of its cluster and put it where that explains most, back where nothing is better."""
    old, column = labels[item], matrix[:, item]
    members[item, old] = False
    sums[:, old] -= column
    larger = members.copy()
    larger[item] = True
    gain = _quality(sums + column[:, None], larger) - _quality(sums, members)
    best = int(np.argmax(gain))
    new = best if gain[best] > gain[old] + 1e-9 * np.abs(gain).max() else old
    members[item, new] = True
    sums[:, new] += column
    labels[item] = new
