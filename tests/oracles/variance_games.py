"""Sensitivity indices by their definition: averages over all orders, and loops over all combinations of rows."""

from __future__ import annotations

import itertools
import math

import numpy as np


def indices_of_game(variance, num_players):
    """Return first-order, total and Shapley indices, (3, g), of a function from tuples of players to variances."""
    everyone = tuple(range(num_players))
    shapley = np.zeros(num_players)
    for order in itertools.permutations(everyone):
        for step, player in enumerate(order):
            before, after = tuple(sorted(order[:step])), tuple(sorted(order[: step + 1]))
            shapley[player] += (variance(after) - variance(before)) / math.factorial(num_players)
    first = [variance((j,)) for j in everyone]
    total = [variance(everyone) - variance(tuple(k for k in everyone if k != j)) for j in everyone]
    return np.array([first, total, shapley])


def all_combinations(rows, groups):
    """Return the rows that combine the columns of groups from different rows, (m, ..., m, d), an axis per group."""
    places = np.indices((len(rows),) * len(groups))
    grid = np.empty((*places.shape[1:], rows.shape[1]))
    for group, place in zip(groups, places, strict=True):
        grid[..., list(group)] = rows[place][..., list(group)]
    return grid


def conditional_mean(values, kept):
    """Return E[f | players] of values on a grid with an axis per player, broadcast to the grid."""
    absent = tuple(axis for axis in range(values.ndim) if axis not in kept)
    return np.broadcast_to(values.mean(axis=absent, keepdims=True), values.shape)


def projections(num_levels, num_players):
    """Return for each set of players the matrix A of the quadratic form Var(E[f | players]) = f' A f on a grid."""
    matrices = {}
    for size in range(num_players + 1):
        for kept in itertools.combinations(range(num_players), size):
            parts = [
                np.eye(num_levels) if j in kept else np.full((num_levels,) * 2, 1 / num_levels)
                for j in range(num_players)
            ]
            mean = np.full((num_levels**num_players,) * 2, num_levels**-num_players)
            product = np.ones((1, 1))
            for part in parts:
                product = np.kron(product, part)
            matrices[kept] = (product - mean) / num_levels**num_players
    return matrices
