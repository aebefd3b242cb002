"""The law of Shapley values under a Gaussian process on coalitions, by dense matrices over all 2^g coalitions."""

from __future__ import annotations

import itertools
import math

import numpy as np


def kernel_matrix(signs, weights, roughness):
    """The kernel for all pairs of coalitions, as a sum over interactions of two and more players, one at a time.

    The interaction of the players in A has the variance prod_{j in A} w_j / V.
    """
    players = range(signs.shape[1])
    groups = [group for size in range(2, signs.shape[1] + 1) for group in itertools.combinations(players, size)]
    variances = [math.prod(weights[list(group)]) for group in groups]
    total = np.zeros((len(signs), len(signs)))
    for group, variance in zip(groups, variances, strict=True):
        interaction = np.prod(signs[:, list(group)], axis=1)
        total += variance / sum(variances) * np.outer(interaction, interaction)
    return total + roughness * np.eye(len(signs))


def shapley_matrix(signs):
    """The matrix (g, 2^g) from the values of all coalitions to Shapley values: gains, averaged over all orders."""
    num_players = signs.shape[1]
    position = {tuple(row > 0): number for number, row in enumerate(signs)}
    matrix = np.zeros((num_players, len(signs)))
    for order in itertools.permutations(range(num_players)):
        present = [False] * num_players
        for player in order:
            matrix[player, position[tuple(present)]] -= 1
            present[player] = True
            matrix[player, position[tuple(present)]] += 1
    return matrix / math.factorial(num_players)


def law(signs, known, weights, roughness):
    """The weights (g, n) of the known values in the means of Shapley values, and their covariance (g, g).

    They follow from the equations of universal kriging with Lagrange multipliers for the flat prior of additive games.
    """
    covariance, additive = kernel_matrix(signs, weights, roughness), np.column_stack([np.ones(len(signs)), signs])
    num_known, num_additive = len(known), additive.shape[1]
    system = np.block(
        [
            [covariance[np.ix_(known, known)], additive[known]],
            [additive[known].T, np.zeros((num_additive, num_additive))],
        ]
    )
    right = np.concatenate([covariance[:, known], additive], axis=1)
    solved = np.linalg.solve(system, right.T)
    shapley = shapley_matrix(signs)
    return shapley @ solved[:num_known].T, shapley @ (covariance - right @ solved) @ shapley.T
