"""Shapley values of the reduction of a loss (SAGE), by their definition: averages over all orders of the features."""

from __future__ import annotations

import itertools

import numpy as np


def loss_reductions(function, loss, x, y, background, groups=None):
    """Return the contributions of each row, (p, g); absent features are taken from the background rows.

    `function` takes points (n, d) and returns (n,) or (n, outputs); `loss` takes a target and a mean prediction.
    """
    groups = [[j] for j in range(x.shape[1])] if groups is None else groups
    orders = list(itertools.permutations(range(len(groups))))
    values = np.zeros((len(x), len(groups)))
    for i, row in enumerate(x):
        for order in orders:
            rows = background.copy()
            before = loss(y[i], np.mean(function(rows), axis=0))
            for player in order:
                rows[:, groups[player]] = row[groups[player]]
                after = loss(y[i], np.mean(function(rows), axis=0))
                values[i, player] += (before - after) / len(orders)
                before = after
    return values
