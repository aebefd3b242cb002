r"""The kernel of a Gaussian process on coalitions, and the Shapley values of its sections in closed form.

A coalition S of g players is written as signs :math:`\sigma_j`, 1 for the players in it and -1 for the others. A
Hamming kernel :math:`\prod_j \rho_j^{[\sigma_j \ne \tau_j]}` is proportional to
:math:`\prod_j (1 + w_j \sigma_j \tau_j)` with :math:`w_j = (1 - \rho_j) / (1 + \rho_j)`. Its terms of order 0 and 1 are
those of an additive game. They are left out, because additive games have a flat prior of their own (see
`CoalitionProcess`); what is left is scaled to variance 1:

.. math:: k(\sigma, \tau) = \frac1V \Bigl(\prod_j (1 + w_j \sigma_j \tau_j) - 1 - \sum_j w_j \sigma_j \tau_j\Bigr)
    + \epsilon\,[\sigma = \tau], \qquad V = \prod_j (1 + w_j) - 1 - \sum_j w_j.

The last term is a game of independent values. It stands for the rough part of a model, such as the jumps of trees.

Shapley values are linear in the game. Of a product they follow from quadrature: with :math:`u = 2t - 1`,

.. math:: \phi_i[k(\cdot, \tau)] = \frac{2 w_i \tau_i}{V} \Bigl(\int_0^1 \prod_{l \ne i} (1 + w_l \tau_l u)\,dt - 1
    \Bigr) + \epsilon\, c_i(\tau), \qquad
    c_i(\tau) = \begin{cases} \omega_{|\tau| - 1} & \tau_i = 1 \\ -\omega_{|\tau|} & \tau_i = -1 \end{cases}

with the weights :math:`\omega_s` of `shapley_weights`, and of both arguments from quadrature in two variables.

References:
    Owen, Multilinear extensions of games, 1972 (the integral).
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Bool, Float

from kpp.games.estimators.quadrature import gauss_legendre, num_nodes
from kpp.games.estimators.sampled.coalition_weights import shapley_weights


def as_signs(coalitions: Bool[np.ndarray, "n g"]) -> Float[np.ndarray, "n g"]:
    """Return 1 for the players in a coalition and -1 for the others."""
    return np.where(coalitions, 1.0, -1.0)


@dataclasses.dataclass(frozen=True)
class CoalitionKernel:
    """The kernel of the module."""

    weights: Float[np.ndarray, " g"]  # w, between 0 and 1
    roughness: float  # epsilon, the variance of the independent values, at least 0

    @property
    def scale(self) -> float:
        """V, the variance of the interactions before they are scaled."""
        return float(np.prod(1 + self.weights) - 1 - self.weights.sum())

    @property
    def variance(self) -> float:
        r"""The variance of the value of a coalition, :math:`1 + \epsilon`."""
        return 1 + self.roughness

    def products(self, first: Float[np.ndarray, "n g"], second: Float[np.ndarray, "m g"]) -> Float[np.ndarray, "n m"]:
        """Return the products over the players for all pairs of coalitions, given by their signs."""
        # Both values of a factor are exp(a + b s) with s = -1 or 1, so that all products are one matrix product.
        inner = (first * np.arctanh(self.weights)) @ second.T
        return np.exp(inner + 0.5 * np.log1p(-(self.weights**2)).sum())

    def evaluate(self, first: Float[np.ndarray, "n g"], second: Float[np.ndarray, "m g"]) -> Float[np.ndarray, "n m"]:
        """Return the kernel matrix of coalitions given by their signs."""
        linear = (first * self.weights) @ second.T
        same = first @ second.T == first.shape[1]
        return (self.products(first, second) - 1 - linear) / self.scale + self.roughness * same

    def sections(self, signs: Float[np.ndarray, "n g"]) -> Float[np.ndarray, "g n"]:
        """Return the Shapley values of the kernel as a game in its first argument, at each coalition of the second."""
        num_players = signs.shape[1]
        slopes = signs * self.weights
        integral = np.zeros_like(slopes)
        for node, weight in zip(*gauss_legendre(num_nodes(num_players)), strict=True):
            factors = 1 + (2 * node - 1) * slopes
            integral += weight * factors.prod(axis=1, keepdims=True) / factors
        smooth = 2 * slopes * (integral - 1) / self.scale
        return (smooth + self.roughness * _shapley_values_of_one(signs)).T

    def shapley_covariance(self) -> Float[np.ndarray, "g g"]:
        """Return the prior covariance of the Shapley values: those of the kernel in both arguments."""
        num_players = len(self.weights)
        nodes, weights = gauss_legendre(num_nodes(num_players))
        inner = np.outer(2 * nodes - 1, 2 * nodes - 1).reshape(-1, 1)
        factors = 1 + inner * self.weights
        products = np.outer(weights, weights).reshape(-1, 1) * factors.prod(axis=1, keepdims=True)
        shares = self.weights / factors
        covariance = 4 * (shares * inner * products).T @ shares
        np.fill_diagonal(covariance, 4 * ((shares * products).sum(axis=0) - self.weights))
        return covariance / self.scale + self.roughness * _shapley_covariance_of_noise(num_players)


def _shapley_values_of_one(signs: Float[np.ndarray, "n g"]) -> Float[np.ndarray, "n g"]:
    """Return for each coalition the Shapley values of the game that is 1 there and 0 elsewhere."""
    weights = shapley_weights(signs.shape[1])
    sizes = np.count_nonzero(signs > 0, axis=1)[:, None]
    return np.where(signs > 0, np.append(weights, 0.0)[sizes - 1], -np.append(weights, 0.0)[sizes])


def _shapley_covariance_of_noise(num_players: int) -> Float[np.ndarray, "g g"]:
    """Return the covariance of the Shapley values of independent values of variance 1.

    The variance is twice the mean weight; the covariances are equal, and the sum of the values has variance 2.
    """
    variance = 2 * shapley_weights(num_players).mean()
    covariance = np.full((num_players, num_players), (2 / num_players - variance) / (num_players - 1))
    np.fill_diagonal(covariance, variance)
    return covariance
