r"""The hyperparameters of a Gaussian process on coalitions: the mode of their posterior, shared by several games.

With the notation of `CoalitionProcess`, m = n - g - 1 and a scale of each game with density proportional to its
inverse, the values :math:`y_r` of R games have the restricted likelihood

.. math:: -\log p(y \mid w, \epsilon) = \frac R2 \log \det(N^\top K N)
    + \frac m2 \sum_r \log(y_r^\top P y_r) + \text{const}.

The prior is :math:`\operatorname{logit} w_j = \mu + \delta_j` with :math:`\mu \sim N(-1.5, 1.5^2)`,
:math:`\delta_j \sim N(0, 0.7^2)`, and :math:`\log \epsilon \sim N(\log 10^{-3}, 2^2)`.

References:
    Harville, Maximum likelihood approaches to variance component estimation and to related problems, 1977.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special
from jaxtyping import Bool, Float

from kpp.games.estimators.active.coalition_kernel import CoalitionKernel, as_signs
from kpp.games.estimators.active.coalition_process import contrasts_of

# Mean and standard deviation of (mu, log epsilon), and the standard deviation of delta. With 1 in place of 0.7, or
# without roughness, 90 % intervals of one unanimity game or of one row of a forest hold only 82 to 86 % in some cases.
_MEANS, _DEVIATIONS, _PLAYER_DEVIATION = (-1.5, np.log(1e-3)), (1.5, 2.0), 0.7
_LIMITS, _PLAYER_LIMITS = ((-5.0, 3.0), (np.log(1e-6), 0.0)), (-4.0, 4.0)
# The most games whose evidence is added up: more would not change the hyperparameters, and cost time.
_MOST_GAMES = 256
# Interactions below this share of the range of a game are taken for rounding errors of its values.
_ROUNDING = 1e-6
_STEPS = 30


def prior_parameters(num_players: int) -> Float[np.ndarray, " q"]:
    """Return the mode of the prior of (mu, log epsilon, delta)."""
    return np.concatenate([_MEANS, np.zeros(num_players)])


def as_kernel(parameters: Float[np.ndarray, " q"]) -> CoalitionKernel:
    """Return the kernel with parameters (mu, log epsilon, delta)."""
    return CoalitionKernel(scipy.special.expit(parameters[0] + parameters[2:]), float(np.exp(parameters[1])))


def fit_parameters(
    coalitions: Bool[np.ndarray, "n g"], values: Float[np.ndarray, "n r"], start: Float[np.ndarray, " q"]
) -> Float[np.ndarray, " q"]:
    """Return the parameters at the mode of the posterior density, found from `start` by L-BFGS.

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
