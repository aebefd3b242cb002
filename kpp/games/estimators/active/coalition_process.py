r"""The law of Shapley values given the values of some coalitions, and the coalitions to value next.

A game is an additive game with a flat prior plus a Gaussian process with a `CoalitionKernel`, times an unknown scale.
Let y be the values of n coalitions with kernel matrix K, and H the n rows :math:`(1, \sigma)`. With an orthonormal
basis N of the vectors orthogonal to the columns of H,

.. math:: P = N (N^\top K N)^{-1} N^\top .

Every linear functional u of the game, such as a value or a Shapley value, has a covariance :math:`k_u` with y and a
value :math:`h_u` of the additive functions. With :math:`b_u = h_u H^+` its best linear unbiased prediction is
:math:`W_u y`, and the errors of two predictions have the covariance

.. math:: W_u = b_u + (k_u - b_u K) P, \qquad c(u, v) = k(u, v) - W_u k_v^\top - (k_u - W_u K)\, b_v^\top .

An additive game is therefore predicted without error, and KernelSHAP is the case of independent values whose variances
are the inverse Shapley kernel.

References:
    Rasmussen and Williams, Gaussian processes for machine learning, 2006, section 2.7 (explicit basis functions, flat
    prior).
"""

from __future__ import annotations

import functools

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float

from kpp.games.estimators.active.coalition_kernel import CoalitionKernel, as_signs

# A smaller posterior variance of the value of a coalition is rounding; the prior variance is about 1.
_KNOWN = 1e-9


class CoalitionProcess:
    """The process of the module, conditioned on the values of some coalitions, the empty and the full one first.

    There are at least g + 2 coalitions, which determine an additive game.
    """

    def __init__(self, kernel: CoalitionKernel, coalitions: Bool[np.ndarray, "n g"]) -> None:
        self._kernel, self._signs = kernel, as_signs(coalitions)
        self._gram = kernel.evaluate(self._signs, self._signs)
        self._basis = additive_functions(self._signs)
        self._contrasts = contrasts_of(self._signs)
        self._factor = scipy.linalg.cho_factor(self._contrasts.T @ self._gram @ self._contrasts, lower=True)
        self._precision = self._contrasts @ scipy.linalg.cho_solve(self._factor, self._contrasts.T)
        self._inverse = np.linalg.pinv(self._basis)

    @functools.cached_property
    def shapley_weights(self) -> Float[np.ndarray, "g n"]:
        """The weights of the values in the Shapley values, whose sum is the full value minus the empty one."""
        weights = self._predict(self._kernel.sections(self._signs), self._slopes)
        ends = np.zeros(weights.shape[1])
        ends[:2] = -1, 1
        return weights + (ends - weights.sum(axis=0)) / len(weights)

    @functools.cached_property
    def shapley_covariance(self) -> Float[np.ndarray, "g g"]:
        """The covariance of the Shapley values at scale 1."""
        return self._kernel.shapley_covariance() - self._explained(self._kernel.sections(self._signs), self._slopes)

    def squared_scales(self, values: Float[np.ndarray, "n r"]) -> Float[np.ndarray, " r"]:
        r"""Return :math:`y^\top P y / (n - g - 1)`, the unbiased estimate of the squared scale of each of r games."""
        contrasts = self._contrasts.T @ values  # first, so that additive games have the scale 0 up to rounding
        return np.mean(contrasts * scipy.linalg.cho_solve(self._factor, contrasts), axis=0)

    def choose(self, candidates: Bool[np.ndarray, "m g"], num: int) -> Bool[np.ndarray, "num g"]:
        r"""Choose coalitions one after the other, each by which the variances of the Shapley values shrink most.

        The sum of the variances shrinks by :math:`\sum_i c(\phi_i, S)^2 / c(S, S)` if the value of S becomes known,
        which does not depend on this value. The candidates were not valued.
        """
        signs = as_signs(candidates)
        cross, basis = self._kernel.evaluate(signs, self._signs), additive_functions(signs)
        gains = self._kernel.sections(signs) - self._explained(cross, basis)
        weights, base = self._predict(cross, basis), basis @ self._inverse
        rest = cross - weights @ self._gram
        variances = self._kernel.variance - np.sum(weights * cross + rest * base, axis=1)
        roots = np.zeros((num, len(signs)))
        chosen: list[int] = []
        for step in range(num):
            scores = np.sum(gains**2, axis=0) / np.maximum(variances, _KNOWN)
            scores[chosen] = -1.0
            best = int(np.argmax(scores))
            chosen.append(best)
            # The covariances of the best value, given the values and the coalitions chosen before (Gram-Schmidt).
            own = self._kernel.evaluate(signs[best : best + 1], signs)[0] - cross @ weights[best] - base @ rest[best]
            roots[step] = (own - roots[:step, best] @ roots[:step]) / np.sqrt(max(variances[best], _KNOWN))
            gains = gains - np.outer(gains[:, best], roots[step]) / np.sqrt(max(variances[best], _KNOWN))
            variances = variances - roots[step] ** 2
        return candidates[chosen]

    @property
    def _slopes(self) -> Float[np.ndarray, "g h"]:
        """The Shapley values of the additive functions: a sign grows by 2 if its player joins."""
        num_players = self._signs.shape[1]
        return np.column_stack([np.zeros(num_players), 2 * np.eye(num_players)])

    def _predict(self, cross: Float[np.ndarray, "k n"], basis: Float[np.ndarray, "k h"]) -> Float[np.ndarray, "k n"]:
        """Return the weights of the values in the predictions of functionals."""
        base = basis @ self._inverse
        return base + (cross - base @ self._gram) @ self._precision

    def _explained(self, cross: Float[np.ndarray, "m n"], basis: Float[np.ndarray, "m h"]) -> Float[np.ndarray, "g m"]:
        """Return by how much the covariances of Shapley values and functionals are smaller than those of the kernel."""
        sections = self._kernel.sections(self._signs)
        weights = self._predict(sections, self._slopes)
        return weights @ cross.T + (sections - weights @ self._gram) @ (basis @ self._inverse).T


def additive_functions(signs: Float[np.ndarray, "n g"]) -> Float[np.ndarray, "n h"]:
    """Return the constant and the signs of coalitions, H."""
    return np.column_stack([np.ones(len(signs)), signs])


def contrasts_of(signs: Float[np.ndarray, "n g"]) -> Float[np.ndarray, "n m"]:
    """Return the orthonormal basis N of the combinations of values to which additive games contribute nothing."""
    basis = additive_functions(signs)
    return np.linalg.qr(basis, mode="complete")[0][:, basis.shape[1] :]
