r"""The law of Shapley values given the values of some coalitions: its hyperparameters, and which coalitions come next.

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
    prior); Harville, Maximum likelihood approaches to variance component estimation and to related problems, 1977.
"""

from __future__ import annotations

import functools

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special
from jaxtyping import Bool, Float

from kpp.games.estimators.active.coalition_kernel import CoalitionKernel, as_signs

# A smaller posterior variance of the value of a coalition is rounding; the prior variance is about 1.
_KNOWN = 1e-9
# Mean and standard deviation of (mu, log epsilon), and the standard deviation of delta. With 1 in place of 0.7, or
# without roughness, 90 % intervals of one unanimity game or of one row of a forest hold only 82 to 86 % in some cases.
_MEANS, _DEVIATIONS, _PLAYER_DEVIATION = (-1.5, np.log(1e-3)), (1.5, 2.0), 0.7
_LIMITS, _PLAYER_LIMITS = ((-5.0, 3.0), (np.log(1e-6), 0.0)), (-4.0, 4.0)
# The most games whose evidence is added up: more would not change the hyperparameters, and cost time.
_MOST_GAMES = 256
# Interactions below this share of the range of a game are taken for rounding errors of its values.
_ROUNDING = 1e-6
_STEPS = 30


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


def prior_parameters(num_players: int) -> Float[np.ndarray, " q"]:
    """Return the mode of the prior of (mu, log epsilon, delta)."""
    return np.concatenate([_MEANS, np.zeros(num_players)])


def as_kernel(parameters: Float[np.ndarray, " q"]) -> CoalitionKernel:
    """Return the kernel with parameters (mu, log epsilon, delta)."""
    return CoalitionKernel(scipy.special.expit(parameters[0] + parameters[2:]), float(np.exp(parameters[1])))


def fit_parameters(
    coalitions: Bool[np.ndarray, "n g"], values: Float[np.ndarray, "n r"], start: Float[np.ndarray, " q"]
) -> Float[np.ndarray, " q"]:
    r"""Return the parameters at the mode of the posterior density, found from `start` by L-BFGS.

    With m = n - g - 1 and a scale of each game with density proportional to its inverse, the values :math:`y_r` of R
    games have the restricted likelihood

    .. math:: -\log p(y \mid w, \epsilon) = \frac R2 \log \det(N^\top K N)
        + \frac m2 \sum_r \log(y_r^\top P y_r) + \text{const}.

    The prior is :math:`\operatorname{logit} w_j = \mu + \delta_j` with :math:`\mu \sim N(-1.5, 1.5^2)`,
    :math:`\delta_j \sim N(0, 0.7^2)`, and :math:`\log \epsilon \sim N(\log 10^{-3}, 2^2)`.

    There are at least g + 2 coalitions, the empty one first. At most 256 games are used, evenly spaced, and only those
    that are not additive up to rounding; if all are, `start` is returned.
    """
    chosen = np.unique(np.linspace(0, values.shape[1] - 1, _MOST_GAMES).astype(int))
    games = values[:, chosen] - values[:1, chosen]
    signs = as_signs(coalitions)
    contrasts = contrasts_of(signs)
    targets = contrasts.T @ games
    targets = targets[:, np.abs(targets).max(axis=0) > _ROUNDING * np.abs(games).max(axis=0)]
    if not targets.size:
        return start
    limits = [*_LIMITS, *[_PLAYER_LIMITS] * coalitions.shape[1]]
    arguments = (signs, contrasts, targets / np.linalg.norm(targets, axis=0))
    options = {"maxiter": _STEPS}
    return scipy.optimize.minimize(
        negative_log_posterior, start, arguments, jac=True, method="L-BFGS-B", bounds=limits, options=options
    ).x


def negative_log_posterior(
    parameters: Float[np.ndarray, " q"],
    signs: Float[np.ndarray, "n g"],
    contrasts: Float[np.ndarray, "n m"],
    targets: Float[np.ndarray, "m r"],
) -> tuple[float, Float[np.ndarray, " q"]]:
    r"""Return the negative logarithm of the posterior density, up to a constant, and its gradient.

    The contrasts are N, and the targets :math:`N^\top y_r`.
    """
    kernel = as_kernel(parameters)
    degrees, num_games = targets.shape
    gram = contrasts.T @ kernel.evaluate(signs, signs) @ contrasts
    factor = scipy.linalg.cho_factor(gram, lower=True)
    solved = scipy.linalg.cho_solve(factor, targets)
    squares = np.sum(targets * solved, axis=0)
    inverse = scipy.linalg.cho_solve(factor, np.eye(degrees))
    value = num_games * np.log(np.diag(factor[0])).sum() + degrees / 2 * np.log(squares).sum()
    slope = contrasts @ (num_games * inverse - degrees * (solved / squares) @ solved.T) @ contrasts.T / 2
    gradient = _gradient(kernel, signs, slope)
    spread = np.concatenate([_DEVIATIONS, np.full(len(parameters) - 2, _PLAYER_DEVIATION)])
    scores = (parameters - prior_parameters(len(parameters) - 2)) / spread
    return value + 0.5 * scores @ scores, gradient + scores / spread


def _gradient(
    kernel: CoalitionKernel, signs: Float[np.ndarray, "n g"], slope: Float[np.ndarray, "n n"]
) -> Float[np.ndarray, " q"]:
    """Return the gradient by the parameters of a function whose gradient by the kernel matrix is `slope`.

    A factor 1 + w s with s = -1 or 1 has the logarithmic derivative s / (1 + w s) = (s - w) / (1 - w^2), so that all
    players take one matrix product. The additive terms of the kernel do not count: `slope` is orthogonal to them.
    """
    weights, scale = kernel.weights, kernel.scale
    weighted = slope * kernel.products(signs, signs)
    total, noise = weighted.sum(), kernel.roughness * np.trace(slope)
    products = (np.sum(signs * (weighted @ signs), axis=0) - weights * total) / (1 - weights**2)
    scales = np.prod(1 + weights) / (1 + weights) - 1
    by_weights = (products - scales / scale * total) / scale * weights * (1 - weights)
    return np.concatenate([[by_weights.sum(), noise], by_weights])
